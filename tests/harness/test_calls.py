"""Manners of a call, leading axes and advisory checks of every component, each with a subject that it alone fails."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from broken import RIGHT, broken, failures, results
from test_components_beyond import (
    AFTER_ROPE,
    CASES,
    VIOLATORS,
    attention_positions_of,
    attention_with,
    attention_wrong_when,
    norm_squared_first,
    positions_of,
    refuses_axes,
)
from torch import Tensor
from variations import COVERING, Variation, VariationAdapters

from cs336_harness.checks import all_checks

COMPONENTS = [name.partition("[")[2][:-1] for name in all_checks() if name.startswith("components.axes_of_size_one")]


def around(name: str, after: Callable[[Tensor], Tensor]) -> Any:
    """A right component with something done to its result."""
    right = getattr(RIGHT, f"run_{name}")
    return broken(**{f"run_{name}": lambda *args, **arguments: after(right(*args, **arguments))})


def overwriting(name: str) -> Any:
    """A right component that then writes into the last float tensor, or takes from the dict, that it was given."""
    right = getattr(RIGHT, f"run_{name}")

    def run(*args: Any, **arguments: Any) -> Tensor:
        result = right(*args, **arguments).clone()
        for value in (*args, *arguments.values()):
            if isinstance(value, dict):
                value.pop("ln1.weight")
            elif isinstance(value, Tensor) and value.is_floating_point():
                value += 1
        return result

    return broken(**{f"run_{name}": run})


@pytest.mark.parametrize("name", COMPONENTS)
def test_manners_of_a_call(name: str) -> None:
    for check, module, message in (
        ("axes_of_size_one", around(name, torch.squeeze), "squeeze() without an axis drops"),
        ("float32_kept", around(name, torch.Tensor.double), "was given float32 and returned float64"),
        ("arguments_untouched", overwriting(name), "leaves its arguments as they are"),
    ):
        failed = failures(module, "components")
        assert list(failed) == [f"components.{check}[{name}]"], failed
        assert message in failed[f"components.{check}[{name}]"]


def test_squeeze_is_named_only_where_an_axis_is_lost() -> None:
    def refuses(x: Tensor) -> Tensor:
        if x.shape[0] == 1:
            raise KeyError("ln3")
        return x

    for after in (refuses, lambda x: x + (x.shape[0] == 1)):
        message = failures(around("silu", after), "components")["components.axes_of_size_one[silu]"]
        assert "squeeze" not in message


@pytest.mark.parametrize("name", ["linear", "embedding", "rmsnorm", "silu", "swiglu", "softmax"])
def test_leading_axes(name: str) -> None:
    for count, axes in (("three", 4), ("one", 2)):
        module = broken(**{f"run_{name}": refuses_axes(f"run_{name}", axes)})
        outcome = "advisory" if (name, count) == ("embedding", "one") else "failed"
        failed = failures(module, "components", outcome=outcome)
        assert f"components.{name}_leading_axes[{count}]" in failed
        assert outcome == "advisory" or len(failed) == 1


def raises_for_axes(entry_point: str, count: int) -> Callable[..., Tensor]:
    """Right, but for inputs with so many axes, which it refuses."""

    def run(*args: Any, **arguments: Any) -> Tensor:
        result = getattr(RIGHT, entry_point)(*args, **arguments)
        if result.ndim == count:
            raise RuntimeError(f"expected another number of axes than {count}")
        return result

    return run


class LinedUpWithHeads(Variation):
    """Cosines of (batch, time, …) against queries of (batch, heads, time, …), where that is no error."""

    def rotate(self, x: Tensor, positions: Tensor, theta: float, *, inside: bool = False) -> Tensor:
        if x.shape[0] == x.shape[1] == positions.shape[0] and positions.ndim == 3:
            positions = positions.squeeze(1)[None]
        return super().rotate(x, positions, theta, inside=inside)


lined_up_with_heads = VariationAdapters(LinedUpWithHeads()).run_multihead_self_attention_with_rope


def positions_needed(token_positions: Tensor, **rest: Any) -> Tensor:
    return RIGHT.run_multihead_self_attention_with_rope(token_positions=token_positions + 0, **rest)


def refuses_rows(positions: Tensor) -> Tensor:
    if positions.ndim == 2:
        raise ValueError("token_positions must have one axis")
    return positions


def rows_against_rows(in_query_or_key: Tensor, token_positions: Tensor, **rest: Any) -> Tensor:
    """Puts an axis for heads into positions (batch, time), whether or not the vectors have one."""
    if token_positions.ndim == 2:
        in_query_or_key, token_positions = in_query_or_key[None], token_positions[:, None]
    return RIGHT.run_rope(in_query_or_key=in_query_or_key, token_positions=token_positions, **rest)


ADVISORY: list[tuple[str, Any]] = [
    ("rmsnorm_half_precision[float16]", broken(run_rmsnorm=norm_squared_first)),
    ("rmsnorm_half_precision[bfloat16]", around("rmsnorm", torch.Tensor.float)),
    ("bfloat16_kept", around("linear", torch.Tensor.float)),
    ("float64_computed", around("linear", lambda x: x.float().double() if x.dtype == torch.float64 else x)),
    *(
        (f"{name}_leading_axes[three_taken]", broken(**{f"run_{name}": raises_for_axes(f"run_{name}", 4)}))
        for name in ("linear", "silu", "swiglu", "softmax", "embedding")
    ),
    ("rope_other_shapes[positions_by_row]", positions_of(refuses_rows)),
    ("rope_other_shapes[positions_by_row]", broken(run_rope=rows_against_rows)),
    ("rope_other_shapes[no_leading_axis]", broken(run_rope=refuses_axes("run_rope", 2))),
    (
        "attention_position_shapes[time]",
        broken(**{AFTER_ROPE: attention_with(token_positions=lambda p: p if p is None else p + 0 * p.size(1))}),
    ),
    ("attention_position_shapes[batch_time]", attention_positions_of(lambda p: p[:1] if p.ndim == 2 else p)),
    ("attention_position_shapes[as_many_rows_as_heads]", broken(**{AFTER_ROPE: lined_up_with_heads})),
    ("attention_position_shapes[none]", broken(**{AFTER_ROPE: positions_needed})),
    ("rope_other_shapes[positions_by_row_and_head]", positions_of(lambda p: p[0] if p.shape == (2, 3, 5) else p)),
    (
        "rope_other_shapes[positions_with_an_axis_for_heads]",
        positions_of(lambda p: p[0] if p.shape[-2:] == (1, 5) else p),
    ),
    ("attention_other_shapes[no_leading_axis]", attention_wrong_when(lambda Q, V, _: Q.ndim == 2)),
    (
        "attention_other_shapes[one_mask_for_all]",
        attention_wrong_when(lambda Q, V, mask: mask is not None and mask.ndim < Q.ndim),
    ),
    (
        "attention_other_shapes[three_leading_axes]",
        broken(run_scaled_dot_product_attention=refuses_axes("run_scaled_dot_product_attention", 5)),
    ),
    *(
        (f"{name}_leading_axes[none]", broken(**{f"run_{name}": refuses_axes(f"run_{name}", 1)}))
        for name in ("linear", "rmsnorm", "silu", "swiglu", "softmax", "embedding")
    ),
]


@pytest.mark.parametrize(("name", "module"), ADVISORY, ids=[name for name, _ in ADVISORY])
def test_advisory_checks_report_and_do_not_fail(name: str, module: Any) -> None:
    judged = results(module, "components")
    assert judged[f"components.{name}"].outcome == "advisory"
    assert not [result for result in judged.values() if result.outcome in ("failed", "blocked")]


def test_a_refused_d_ff_is_not_silent() -> None:
    def refuses(d_ff: int, **rest: Any) -> Tensor:
        if d_ff % 64:
            raise ValueError(f"d_ff {d_ff} is no multiple of 64")
        return RIGHT.run_swiglu(d_ff=d_ff, **rest)

    assert not failures(broken(run_swiglu=refuses), "components")


@pytest.mark.parametrize("name", COVERING)
def test_correct_variations_pass_with_little_error(name: str) -> None:
    judged = results(VariationAdapters(COVERING[name]), "components", "assembly", "tying", "configuration")
    assert not {check: result.message for check, result in judged.items() if result.outcome in ("failed", "blocked")}
    assert max(result.error_in_noise or 0 for result in judged.values() if result.outcome == "passed") < 16 / 5


def test_every_check_of_a_component_has_a_violator_here() -> None:
    tested = {name for name, _, _ in VIOLATORS} | set(CASES) | {name for name, _ in ADVISORY}
    beyond = {name.partition(".")[2] for name, check in all_checks().items() if check.group == "components"}
    generated = ("axes_of_size_one[", "float32_kept[", "arguments_untouched[", "_leading_axes[")
    left = {name for name in beyond - tested if not any(part in name for part in generated)}
    assert {f"components.{name}" for name in left} == {
        name for name, check in all_checks().items() if check.snapshot and check.group == "components"
    }
