"""What holds for a call of any component, each with a subject that fails it; and what is advisory."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from broken import RIGHT, broken, failures, results
from test_components_beyond import AFTER_ROPE, CASES, VIOLATORS, norm_squared_first
from torch import Tensor
from variations import COVERING, VariationAdapters

from cs336_harness.checks import all_checks

COMPONENTS = [name.partition("[")[2][:-1] for name in all_checks() if name.startswith("components.axes_of_size_one")]


def around(name: str, after: Callable[[Tensor], Tensor]) -> Any:
    """A right component with something done to its result."""
    right = getattr(RIGHT, f"run_{name}")
    return broken(**{f"run_{name}": lambda *args, **arguments: after(right(*args, **arguments))})


def overwriting(name: str) -> Any:
    """A right component that then writes into the float tensors that it was given, those of a dict too."""
    right = getattr(RIGHT, f"run_{name}")

    def run(*args: Any, **arguments: Any) -> Tensor:
        result = right(*args, **arguments).clone()
        for value in (*args, *arguments.values()):
            for tensor in value.values() if isinstance(value, dict) else [value]:
                if isinstance(tensor, Tensor) and tensor.is_floating_point():
                    tensor += 1
        return result

    return broken(**{f"run_{name}": run})


@pytest.mark.parametrize("name", COMPONENTS)
def test_manners_of_a_call(name: str) -> None:
    for check, module, message, outcome in (
        ("axes_of_size_one", around(name, torch.squeeze), "squeeze() without an axis drops", "failed"),
        ("float32_kept", around(name, torch.Tensor.double), "was given float32 and returned float64", "advisory"),
        ("arguments_untouched", overwriting(name), "leaves its arguments as they are", "failed"),
    ):
        assert message in failures(module, "components", outcome=outcome)[f"components.{check}[{name}]"]


def test_squeeze_is_named_only_where_an_axis_is_lost() -> None:
    def refuses(x: Tensor) -> Tensor:
        if x.shape[0] == 1:
            raise KeyError("ln3")
        return x

    for after in (refuses, lambda x: x + (x.shape[0] == 1)):
        message = failures(around("silu", after), "components")["components.axes_of_size_one[silu]"]
        assert "squeeze" not in message


def positions_needed(token_positions: Tensor, **rest: Any) -> Tensor:
    return RIGHT.run_multihead_self_attention_with_rope(token_positions=token_positions + 0, **rest)


ADVISORY: list[tuple[str, Any]] = [
    ("rmsnorm_half_precision[float16]", broken(run_rmsnorm=norm_squared_first)),
    ("rmsnorm_half_precision[bfloat16]", around("rmsnorm", torch.Tensor.float)),
    ("bfloat16_kept", around("linear", torch.Tensor.float)),
    ("float64_computed", around("linear", lambda x: x.float().double() if x.dtype == torch.float64 else x)),
    ("attention_position_shapes[none]", broken(**{AFTER_ROPE: positions_needed})),
]


@pytest.mark.parametrize(("name", "module"), ADVISORY, ids=[name for name, _ in ADVISORY])
def test_advisory_checks_report_and_do_not_fail(name: str, module: Any) -> None:
    judged = results(module, "components")
    assert judged[f"components.{name}"].outcome == "advisory"
    assert not [result for result in judged.values() if result.outcome in ("failed", "blocked")]


@pytest.mark.parametrize("name", COVERING)
def test_correct_variations_pass_with_little_error(name: str) -> None:
    judged = results(VariationAdapters(COVERING[name]), "components", "assembly", "tying", "configuration")
    assert not {check: result.message for check, result in judged.items() if result.outcome in ("failed", "blocked")}
    assert max(result.error_in_noise or 0 for result in judged.values() if result.outcome == "passed") < 16 / 5


def test_every_check_of_a_component_has_a_violator() -> None:
    tested = {name for name, _, _ in VIOLATORS} | set(CASES) | {name for name, _ in ADVISORY}
    own = {name.partition(".")[2]: check for name, check in all_checks().items() if check.group == "components"}
    manners = ("axes_of_size_one[", "float32_kept[", "arguments_untouched[", "earlier_calls[", "any_layout[")
    lacking = [name for name in own if name not in tested and not name.startswith(manners) and not own[name].snapshot]
    place = "VIOLATORS or CASES of tests/harness/test_components_beyond.py"
    assert not lacking, f"no subject fails components.{lacking[0]}: add one to {place} (ADVISORY of test_calls.py)"
