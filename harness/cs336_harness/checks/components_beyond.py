"""The position-wise components where the public snapshots do not look: eps, dim, extreme inputs, other widths.

Checks that ask whether an argument is honoured compare the subject with itself, so they say so even when its numbers
are wrong for another reason; the snapshot of the same component comes after them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cs336_harness.checks.comparing import attempt, judge_call, same_numbers, taught
from cs336_harness.checks.registry import check
from cs336_harness.reference.hidden_inputs import more
from cs336_harness.reference.sample_calls import rmsnorm, softmax, swiglu
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure, Evidence

FEED_FORWARD = "positionwise_feedforward"


@check("components.rmsnorm_eps", task="rmsnorm", needs=["run_rmsnorm"])
def rmsnorm_eps(subject: Subject) -> None:
    """The eps that is passed is the eps that is used.

    Usually broken by a constant in the norm, or by an adapter that does not pass eps on.
    """
    usual, other = (rmsnorm(2, 5, 12, eps=eps, seeds=(31, 32)) for eps in (1e-5, 0.1))
    result = attempt(subject, "run_rmsnorm", tuple(usual["in_features"].shape), **usual)
    if same_numbers(result, attempt(subject, "run_rmsnorm", tuple(other["in_features"].shape), **other)):
        raise CheckFailure(
            "run_rmsnorm ignores eps: eps 1e-05 and eps 0.1 give the same numbers;"
            " a correct norm divides by sqrt(mean(x²) + eps) with the eps it is given",
            Evidence(entry_point="run_rmsnorm", arguments=other),
        )


@check(
    "components.rmsnorm_eps_values",
    task="rmsnorm",
    needs=["run_rmsnorm"],
    after=["components.rmsnorm", "components.rmsnorm_eps"],
    cases={"0.1": 0.1, "1e-8": 1e-8},
)
def rmsnorm_eps_values(subject: Subject, case: float) -> float:
    """The norm is right for other eps than 1e-5: inside the root, added to the mean of the squares.

    Usually broken by an eps that is added to the root or to the sum in place of the mean, which a small eps hides.
    """
    return judge_call(
        subject,
        "run_rmsnorm",
        what=f"eps {case:g}",
        teach="a correct norm adds eps to the mean of the squares, inside the root",
        **rmsnorm(2, 5, 12, eps=case, seeds=(33, 34)),
    )


@check(
    "components.rmsnorm_scales",
    task="rmsnorm",
    needs=["run_rmsnorm"],
    after=["components.rmsnorm", "components.rmsnorm_eps"],
    cases={"1e-4": 1e-4, "1e4": 1e4},
)
def rmsnorm_scales(subject: Subject, case: float) -> float:
    """Tiny and huge inputs: eps alone decides about the one, and must not disturb the other.

    Usually broken by squares taken in half precision, by a clamp on the variance, or by eps outside the root.
    """
    return judge_call(
        subject,
        "run_rmsnorm",
        what=f"inputs of size {case:g}",
        teach="a correct norm squares, averages and divides in float32, with no clamp but eps",
        **rmsnorm(2, 3, 14, seeds=(35, 36), std=case),
    )


@check(
    "components.rmsnorm_half_precision",
    task="rmsnorm",
    needs=["run_rmsnorm"],
    after=["components.rmsnorm"],
    advisory=True,
    cases={"bfloat16": torch.bfloat16, "float16": torch.float16},
)
def rmsnorm_half_precision(subject: Subject, case: torch.dtype) -> float:
    """Half precision in, half precision out, computed in float32 between (handout, section 3.4.1).

    In float16 the square of 1e-4 is zero: a norm that squares first and widens afterwards loses the input.
    """
    name = str(case).removeprefix("torch.")
    arguments = rmsnorm(2, 3, 12, eps=1e-8, seeds=(37, 38), std=1e-4)
    arguments |= {argument: arguments[argument].to(case) for argument in ("weights", "in_features")}
    lesson = "a correct norm widens to float32 before it squares, and returns the dtype of its input"
    with taught(lesson):
        result = subject.call("run_rmsnorm", shape=tuple(arguments["in_features"].shape), **arguments)
        if result.dtype != case:
            raise CheckFailure(f"run_rmsnorm was given {name} and returned {str(result.dtype).removeprefix('torch.')}")
    return judge_call(subject, "run_rmsnorm", what=f"{name} inputs of 1e-4", teach=lesson, dtype=case, **arguments)


@check("components.softmax_dim", task="softmax", needs=["run_softmax"])
def softmax_dim(subject: Subject) -> None:
    """The dim that is passed is the dim that is used.

    Usually broken by a softmax that always takes the last axis.
    """
    calls = [softmax(3, 4, 5, dim=dim, seed=51, std=2) for dim in (0, 1, 2)]
    results = [attempt(subject, "run_softmax", tuple(call["in_features"].shape), **call) for call in calls]
    first = results[0]
    if first is not None and all(same_numbers(first, other) for other in results[1:]):
        used = min(range(3), key=lambda dim: float((first.sum(dim) - 1).abs().max()))
        raise CheckFailure(
            f"run_softmax ignores dim: dims 0, 1 and 2 give the same numbers, those of dim {used};"
            " a correct softmax makes the numbers along dim sum to one",
            Evidence(entry_point="run_softmax", arguments=calls[0]),
        )


@check(
    "components.softmax_every_dim",
    task="softmax",
    needs=["run_softmax"],
    after=["components.softmax", "components.softmax_dim"],
    cases={str(dim): dim for dim in (0, 1, 2, -2, -3)},
)
def softmax_every_dim(subject: Subject, case: int) -> float:
    """Softmax along every axis, counted from the front and from the back.

    Usually broken by a maximum or a sum along another axis than dim.
    """
    axes = ("axis 0, index", "axis 1, index", "axis 2, index")
    return judge_call(
        subject,
        "run_softmax",
        axes,
        what=f"dim {case}",
        teach=f"a correct softmax takes its maximum and its sum along dim {case}",
        **softmax(3, 4, 5, dim=case, seed=52, std=2),
    )


def _judge_shifted(subject: Subject, offsets: Tensor, seed: int, what: str, teach: str) -> float:
    """Softmax of features plus offsets.

    Float32 counts in steps of 2^-10 near 1e4, and the noise has that in it: ``exp(x - logsumexp(x))`` is allowed to
    round there, though subtracting the maximum first would not.
    """
    arguments = softmax(2, 3, 7, seed=seed, std=2)
    arguments["in_features"] += offsets
    return judge_call(subject, "run_softmax", what=what, teach=teach, **arguments)


@check("components.softmax_large", task="softmax", needs=["run_softmax"], after=["components.softmax"])
def softmax_large(subject: Subject) -> float:
    """Inputs around 1e4: exp overflows unless the maximum is subtracted first (handout, section 3.4.4).

    Usually broken by a softmax that takes exp of the input as it is.
    """
    teach = "a correct softmax subtracts the maximum along dim before exp, which cannot overflow then"
    return _judge_shifted(subject, torch.tensor(1e4), 53, "inputs near 1e4", teach)


@check(
    "components.softmax_global_maximum",
    task="softmax",
    needs=["run_softmax"],
    after=["components.softmax", "components.softmax_large"],
)
def softmax_global_maximum(subject: Subject) -> float:
    """One line near 1e4 and another near -1e4: each is normalised by its own maximum.

    Usually broken by subtracting the maximum of the whole tensor: every other line becomes zero divided by zero.
    """
    offsets = torch.tensor([1e4, 0.0, -1e4])[None, :, None]
    teach = "a correct softmax subtracts each line's own maximum along dim, not one maximum of the whole tensor"
    return _judge_shifted(subject, offsets, 54, "lines near 1e4, 0 and -1e4 in one tensor", teach)


@check(
    "components.softmax_far_apart",
    task="softmax",
    needs=["run_softmax"],
    after=["components.softmax", "components.softmax_large"],
)
def softmax_far_apart(subject: Subject) -> float:
    """One entry of each line lies 1e4 above the others: it gets all the weight.

    Usually broken by subtracting the mean or the minimum in place of the maximum: exp of the rest still overflows.
    """
    arguments = softmax(2, 3, 7, seed=55, std=2)
    arguments["in_features"][..., 2] += 1e4
    teach = "a correct softmax subtracts the maximum along dim, so that no exponent is above zero"
    return judge_call(subject, "run_softmax", what="one entry 1e4 above the others", teach=teach, **arguments)


@check("components.silu_extremes", task=FEED_FORWARD, needs=["run_silu"], after=["components.silu"])
def silu_extremes(subject: Subject) -> float:
    """SiLU far from zero: x on the right, 0 on the left, never NaN.

    Usually broken by exp(x) / (1 + exp(x)), which is infinity over infinity from 89 on.
    """
    extremes = (-1e4, -500.0, -100.0, -20.0, -1.0, -0.1, 0.1, 1.0, 20.0, 100.0, 500.0, 1e4)
    smaller = [x * (1 - more(f"part of {x}", 999) / 10_000) for x in extremes]  # by up to a tenth, where inputs hide
    return judge_call(
        subject,
        "run_silu",
        what="inputs up to ±1e4",
        teach="a correct silu is x · sigmoid(x): nearly x for large x, nearly 0 for very negative x, though"
        " exp(x) itself is infinite from x = 89 on",
        in_features=torch.tensor(smaller).view(2, 2, 3),
    )


def _swiglu(d_model: int, d_ff: int, gate_scale: float = 1.0) -> dict[str, Any]:
    stds = (gate_scale * d_model**-0.5, d_ff**-0.5, d_model**-0.5)
    return swiglu(2, 3, d_model=d_model, d_ff=d_ff, seeds=(55, 56, 57, 58), stds=stds)


@check(
    "components.swiglu_gate",
    task=FEED_FORWARD,
    needs=["run_swiglu"],
    after=["components.swiglu", "components.silu_extremes"],
)
def swiglu_gate(subject: Subject) -> float:
    """Gates wide open and shut: W1 x a hundred times larger than W3 x.

    Usually broken by gating W3 x in place of W1 x, or by a sigmoid that overflows.
    """
    teach = "a correct feed-forward is W2(silu(W1 x) ⊙ W3 x): W1 x is the gate, W3 x passes through it"
    return judge_call(subject, "run_swiglu", what="gates near ±100", teach=teach, **_swiglu(24, 64, 100.0))


@check("components.swiglu_d_ff", task=FEED_FORWARD, needs=["run_swiglu"], after=["components.swiglu"])
def swiglu_d_ff(subject: Subject) -> float:
    """The d_ff that is passed is the d_ff that is used: 100 for a width of 48, neither a multiple of 64 nor 8/3 of it.

    Usually broken by a feed-forward that rounds d_ff, or computes its own from d_model.
    """
    lesson = "the weights have 100 rows, and a correct feed-forward neither rounds d_ff nor computes its own"
    return judge_call(subject, "run_swiglu", what="d_ff 100", teach=lesson, **_swiglu(48, 100))
