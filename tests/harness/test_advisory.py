"""The one rule of what is advisory: refusing what CS336's own tests never call is, wrong numbers there are not."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from broken import RIGHT, broken, failures, results
from torch import Tensor

from cs336_harness.checks import all_checks
from cs336_harness.contract import COURSE_AXES, ENTRY_POINTS, MODEL_ENTRY_POINTS, beyond_the_course
from cs336_harness.reference.recipes import RECIPES


def named(entry_point: str, args: tuple[Any, ...], arguments: dict[str, Any]) -> dict[str, Any]:
    return {**dict(zip(ENTRY_POINTS[entry_point].arguments, args, strict=False)), **arguments}


def refusing(entry_point: str) -> Callable[..., Tensor]:
    """Right, and raises for every call that no test of CS336's makes."""

    def run(*args: Any, **arguments: Any) -> Tensor:
        beyond = beyond_the_course(entry_point, named(entry_point, args, arguments))
        if beyond is not None:
            raise RuntimeError(f"not made for {beyond}")
        return getattr(RIGHT, entry_point)(*args, **arguments)

    return run


def lying(entry_point: str) -> Callable[..., Tensor]:
    """Right, and gives numbers twice too large for every call that no test of CS336's makes."""

    def run(*args: Any, **arguments: Any) -> Tensor:
        beyond = beyond_the_course(entry_point, named(entry_point, args, arguments))
        return getattr(RIGHT, entry_point)(*args, **arguments) * (1 if beyond is None else 2)

    return run


REFUSED = {
    "run_linear": ["linear_leading_axes[three]", "linear_leading_axes[one]", "linear_leading_axes[none]"],
    "run_embedding": ["embedding_leading_axes[three]", "embedding_leading_axes[one]"],
    "run_swiglu": ["swiglu_leading_axes[three]", "swiglu_leading_axes[one]", "swiglu_d_ff"],
    "run_scaled_dot_product_attention": ["attention_no_mask", "attention_sizes[no_mask]"],
    "run_multihead_self_attention_with_rope": ["attention_position_shapes[batch_time]"],
    "run_rope": ["rope_leading_axes", "rope_position_values[by_row]", "rope_other_shapes[no_leading_axis]"],
    "run_rmsnorm": ["rmsnorm_leading_axes[three]", "rmsnorm_leading_axes[one]"],
    "run_silu": ["silu_leading_axes[three]"],
    "run_softmax": ["softmax_every_dim[0]", "softmax_leading_axes[none]"],
}
"""Some of the checks that a refusing component meets. The others are not called beyond the course but for dtypes."""


@pytest.mark.parametrize("entry_point", MODEL_ENTRY_POINTS)
def test_a_refusing_twin_fails_nothing(entry_point: str) -> None:
    judged = results(broken(**{entry_point: refusing(entry_point)}), "components")
    assert not [name for name, result in judged.items() if result.outcome in ("failed", "blocked")]
    for name in REFUSED.get(entry_point, []):
        result = judged[f"components.{name}"]
        assert result.outcome == "advisory"
        assert "no test of CS336's gives it " in result.message


@pytest.mark.parametrize("entry_point", REFUSED)
def test_wrong_numbers_there_are_a_fault(entry_point: str) -> None:
    failed = failures(broken(**{entry_point: lying(entry_point)}), "components")
    assert failed
    assert not [name for name in failed if all_checks()[name].advisory]


@pytest.mark.parametrize("name", RECIPES)
def test_no_snapshot_asks_what_the_course_does_not(name: str) -> None:
    recipe = RECIPES[name]
    assert beyond_the_course(recipe.entry_point, recipe.arguments()) is None


def test_the_table_names_arguments_of_the_contract() -> None:
    assert set(COURSE_AXES) == set(MODEL_ENTRY_POINTS)
    for entry_point, axes in COURSE_AXES.items():
        assert set(axes) <= set(MODEL_ENTRY_POINTS[entry_point].arguments)


def test_a_rotation_made_for_positions_by_row_is_right() -> None:
    def run(in_query_or_key: Tensor, token_positions: Tensor, **rest: Any) -> Tensor:
        """Cosines of (batch, 1, time, …) for vectors (batch, heads, time, …): positions (time,) meet the heads."""
        if in_query_or_key.ndim == 4 and token_positions.ndim == 1:
            in_query_or_key + torch.ones(token_positions.shape[0], 1, 1)  # raises, as that broadcast does
        return RIGHT.run_rope(in_query_or_key=in_query_or_key, token_positions=token_positions, **rest)

    assert not failures(broken(run_rope=run), "components")


def test_rows_that_are_refused_are_refused_where_they_are_as_many_as_heads() -> None:
    def run(token_positions: Tensor, num_heads: int, **rest: Any) -> Tensor:
        """Cosines of (batch, time, …) for queries (batch, heads, time, …): rows of positions meet the heads."""
        if token_positions is not None and token_positions.ndim == 2:
            token_positions.expand(num_heads, -1)  # raises for two rows and three heads
            token_positions = token_positions[:1]
        return RIGHT.run_multihead_self_attention_with_rope(
            token_positions=token_positions, num_heads=num_heads, **rest
        )

    judged = results(broken(run_multihead_self_attention_with_rope=run), "components")
    assert not [name for name, result in judged.items() if result.outcome in ("failed", "blocked")]
    coincidence = judged["components.attention_position_shapes[as_many_rows_as_heads]"]
    assert coincidence.outcome == "advisory"
    assert "with as many rows as heads it does not" in coincidence.message


def test_a_softmax_in_float64_is_right() -> None:
    assert not failures(broken(run_softmax=lambda x, dim: x.double().softmax(dim)), "components")


def renaming(entry_point: str, again: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Any:
    """Right, and gives the caller's own dict the names of a fused projection; ``again`` reads a dict that has them."""

    def run(weights: dict[str, Tensor], **rest: Any) -> Tensor:
        given = again(weights) if "fused" in weights else dict(weights)
        queries = next(name for name in given if name.endswith("q_proj.weight"))
        weights["fused"] = weights.pop(queries, given[queries])
        return getattr(RIGHT, entry_point)(weights=given, **rest)

    return broken(**{entry_point: run})


def same(weights: dict[str, Tensor], factor: float = 1) -> dict[str, Tensor]:
    queries = next(name for name in weights if name.endswith("k_proj.weight")).replace("k_proj", "q_proj")
    return {**weights, queries: weights["fused"] * factor}


RENAMED = {
    "run_transformer_block": "components.arguments_untouched[transformer_block]",
    "run_transformer_lm": "information_flow.arguments_untouched",
}


@pytest.mark.parametrize("entry_point", RENAMED)
@pytest.mark.parametrize("again", [dict, same], ids=["refuses", "same numbers"])
def test_an_adapter_that_renames_the_callers_weights_is_right(entry_point: str, again: Any) -> None:
    result = results(renaming(entry_point, again), RENAMED[entry_point])[RENAMED[entry_point]]
    assert result.outcome == "advisory"
    assert "q_proj.weight out of weights" in result.message
    assert "no test of CS336's gives it the same dict twice" in result.message


@pytest.mark.parametrize("entry_point", RENAMED)
def test_renamed_weights_that_are_then_read_wrongly_are_a_fault(entry_point: str) -> None:
    broken_subject = renaming(entry_point, lambda weights: same(weights, 2))
    assert "other numbers" in failures(broken_subject, RENAMED[entry_point])[RENAMED[entry_point]]
