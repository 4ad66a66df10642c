"""Scaled dot-product attention beyond the snapshots: no mask, every kind of mask, other sizes, large scores."""

from __future__ import annotations

import torch

from cs336_harness.checks.comparing import attempt, judge_call, same_numbers
from cs336_harness.checks.registry import Param, check
from cs336_harness.reference.sample_calls import random_mask, scaled_dot_product_attention
from cs336_harness.reference.weights import normal
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure, Evidence

SDPA = "run_scaled_dot_product_attention"
QUERIES = ("row", "query", "channel")
SEED = 81


@check("components.attention_no_mask", task="scaled_dot_product_attention", needs=[SDPA])
def attention_no_mask(subject: Subject) -> None:
    """Without a mask every query sees every key.

    Usually broken by a causal mask that is put in its place, or by code that needs a mask.
    """
    arguments = scaled_dot_product_attention(3, keys=5, seed=SEED)
    causal = torch.ones(5, 5, dtype=torch.bool).tril().expand(3, 5, 5)
    as_causal = attempt(subject, SDPA, (3, 5, 4), **{**arguments, "mask": causal})
    if as_causal is None:
        return
    try:
        result = subject.call(SDPA, shape=(3, 5, 4), **arguments)
    except CheckFailure as failure:
        if failure.__cause__ is None:
            raise
        raise CheckFailure(
            f"{SDPA} cannot do without a mask: mask=None raised {type(failure.__cause__).__name__};"
            " a correct attention then lets every query see every key",
            failure.evidence,
        ) from failure.__cause__
    sees_itself_alone = same_numbers(result[:, 0], arguments["V"][:, 0])
    if same_numbers(result, as_causal) and sees_itself_alone:
        raise CheckFailure(
            f"{SDPA} takes no mask for a causal mask: query 0 sees key 0 alone;"
            " a correct attention without a mask lets every query see every key",
            Evidence(entry_point=SDPA, arguments=arguments),
        )


FIRST = "components.attention_sizes[d_v_differs]"


@check(
    "components.attention_sizes",
    task="scaled_dot_product_attention",
    needs=[SDPA],
    after=["components.4d_scaled_dot_product_attention", "components.attention_no_mask"],
    cases={
        "d_v_differs": ((3,), "masked"),
        "open_mask": Param(((3,), "open"), after=[FIRST]),
        "no_mask": Param(((3,), None), after=[FIRST]),
        "one_key_visible": Param(((3,), "diagonal"), after=[FIRST]),
        "batch_and_heads": Param(((2, 4), "masked"), after=[FIRST]),
    },
)
def attention_sizes(subject: Subject, case: tuple[tuple[int, ...], str | None]) -> float:
    """Five queries over seven keys, values of another width than keys, every kind of mask.

    Usually broken by reading d_k off the values, or by expecting as many queries as keys.
    """
    leading, kind = case
    size = (*leading, 5, 7)
    masks = {
        "masked": random_mask(*size, seed=84),
        "open": torch.ones(size, dtype=torch.bool),
        "diagonal": torch.eye(5, 7, dtype=torch.bool).expand(size).contiguous(),
        None: None,
    }
    axes = ("row", "query", "channel") if len(leading) == 1 else ("row", "head", "query", "channel")
    return judge_call(
        subject,
        SDPA,
        axes,
        what=f"5 queries, 7 keys, d_k 6, d_v 4, {'no' if kind is None else kind} mask",
        teach="a correct attention scales by 1/sqrt(d_k), normalises over the keys, and takes d_v from V",
        **scaled_dot_product_attention(*leading, mask=masks[kind], seed=SEED),
    )


@check(
    "components.attention_large_scores",
    task="scaled_dot_product_attention",
    needs=[SDPA],
    after=["components.scaled_dot_product_attention", "components.softmax_large", FIRST],
)
def attention_large_scores(subject: Subject) -> float:
    """Scores around 150, some of them masked: nothing overflows, and what is masked stays out.

    All scores are large together and lie within 60 of each other, so that masking first and masking afterwards, with
    the rest normalised again, are both right. Usually broken by exp without the maximum subtracted.
    """
    arguments = scaled_dot_product_attention(3, d_k=6, mask=random_mask(3, 5, 7, seed=85), seed=SEED, std=1.0)
    common = 8 * normal(6, seed=87)
    return judge_call(
        subject,
        SDPA,
        QUERIES,
        what="scores around 150",
        teach="a correct attention subtracts the largest score before exp, which cannot overflow then",
        **{**arguments, "Q": arguments["Q"] + common, "K": arguments["K"] + common},
    )


@check(
    "components.attention_other_shapes",
    task="scaled_dot_product_attention",
    needs=[SDPA],
    after=["components.attention_sizes[batch_and_heads]"],
    cases={
        "no_leading_axis": ((), (5, 7)),
        "three_leading_axes": ((2, 3, 4), (2, 3, 4, 5, 7)),
        "one_mask_for_all": ((2, 3), (5, 7)),
    },
)
def attention_other_shapes(subject: Subject, case: tuple[tuple[int, ...], tuple[int, ...]]) -> float:
    """Shapes that the contract's dots allow and few callers use: no leading axis, three, one mask for everything."""
    leading, mask_size = case
    return judge_call(
        subject,
        SDPA,
        ("row", "group", "head", "query", "channel")[-2 - len(leading) :],
        what=f"Q of shape {(*leading, 5, 6)}, mask of shape {mask_size}",
        **scaled_dot_product_attention(*leading, mask=random_mask(*mask_size, seed=86), seed=SEED),
    )
