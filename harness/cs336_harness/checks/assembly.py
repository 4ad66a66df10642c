"""The whole decoder against the public snapshots: untied weights, raw logits, four lengths."""

from __future__ import annotations

from cs336_harness.checks.comparing import LOGITS, judge_snapshot
from cs336_harness.checks.registry import check
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure

AFTER = [
    "components.embedding",
    "components.transformer_block",
    "components.batch_and_heads[transformer_lm]",
    "configuration.run_rope_theta",
    "configuration.raw_logits[run_transformer_lm]",
]


@check(
    "assembly.transformer_lm",
    task="transformer_lm",
    needs=["run_transformer_lm"],
    snapshot="transformer_lm",
    after=AFTER,
)
def transformer_lm(subject: Subject) -> float:
    """Raw logits of the whole decoder: embedding, blocks in order, final norm, head.

    Usually broken by a missing final norm, a softmax at the end, theta not passed on, or layers loaded in the wrong
    order.
    """
    return judge_snapshot(subject, "transformer_lm", LOGITS)


@check(
    "assembly.transformer_lm_truncated_input",
    task="transformer_lm",
    needs=["run_transformer_lm"],
    snapshot="transformer_lm_truncated_input",
    after=["assembly.transformer_lm"],
)
def transformer_lm_truncated_input(subject: Subject) -> float:
    """An input shorter than the context gives logits for exactly its own positions.

    Usually broken by a mask or a rotary table cut to the configured length in place of the input's.
    """
    return judge_snapshot(subject, "transformer_lm_truncated_input", LOGITS)


@check(
    "assembly.transformer_lm_full_context",
    task="transformer_lm",
    needs=["run_transformer_lm"],
    snapshot="transformer_lm_full_context",
    after=["assembly.transformer_lm"],
)
def transformer_lm_full_context(subject: Subject) -> float:
    """An input as long as the context is accepted and computed like any other.

    Usually broken by a table or a mask that is one too short, or by a refusal with >= in place of >.
    """
    try:
        return judge_snapshot(subject, "transformer_lm_full_context", LOGITS)
    except CheckFailure as failure:
        if isinstance(failure.__cause__, IndexError):
            failure.evidence.details.append(
                "the positions of T tokens are 0 to T - 1: do yours count from 1, or is a table one row short?"
            )
        raise


@check(
    "assembly.transformer_lm_one_token",
    task="transformer_lm",
    needs=["run_transformer_lm"],
    snapshot="transformer_lm_one_token",
    after=["assembly.transformer_lm"],
)
def transformer_lm_one_token(subject: Subject) -> float:
    """One token per row: attention sees itself alone, and no axis of size one disappears.

    Usually broken by ``squeeze`` without an axis, or by a first row of the mask with nothing to attend to.
    """
    return judge_snapshot(subject, "transformer_lm_one_token", LOGITS)
