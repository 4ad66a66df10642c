"""A result that depends on earlier calls, or on memory that nobody wrote, is told as that and blocks its echoes."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from broken import RIGHT, broken, results
from torch import Tensor
from variations import Variation, VariationAdapters
from vectorised import Vectorised, replaced, result_of, subject_of

from cs336_harness.checks import all_checks
from cs336_harness.contract import ENTRY_POINTS, MODEL_ENTRY_POINTS
from cs336_harness.defects import all_defects
from cs336_harness.reference.oracle_adapters import OracleModel
from cs336_harness.verdict.audit import audit

NAMES = [name.partition("[")[2][:-1] for name in all_checks() if name.startswith("components.earlier_calls")]


def shapes(value: Any) -> Any:
    """What a careless cache is kept under: shapes, and sizes."""
    if isinstance(value, Tensor):
        return tuple(value.shape)
    return tuple(map(shapes, value.values())) if isinstance(value, dict) else value if isinstance(value, int) else None


def kept_by_shape(entry_point: str) -> Callable[..., Tensor]:
    """The first result of each shape, given again for every later call of that shape."""
    kept: dict[Any, Tensor] = {}

    def run(*args: Any, **arguments: Any) -> Tensor:
        given = {**dict(zip(ENTRY_POINTS[entry_point].arguments, args, strict=False)), **arguments}
        key = tuple((name, shapes(given[name])) for name in sorted(given))
        if key not in kept:
            kept[key] = getattr(RIGHT, entry_point)(*args, **arguments)
        return kept[key].clone()

    return run


def growing(entry_point: str) -> Callable[..., Tensor]:
    """Adds a little of what it returned before, as a cache that is never emptied does."""
    kept: list[Tensor] = []

    def run(*args: Any, **arguments: Any) -> Tensor:
        result = getattr(RIGHT, entry_point)(*args, **arguments)
        kept.append(result)
        return result + 1e-3 * sum(float(earlier.sum()) for earlier in kept[:-1])

    return run


def unwritten(entry_point: str) -> Callable[..., Tensor]:
    """Writes everything but the last number of its result."""

    def run(*args: Any, **arguments: Any) -> Tensor:
        right = getattr(RIGHT, entry_point)(*args, **arguments)
        result = torch.empty_like(right)
        result.view(-1)[:-1] = right.reshape(-1)[:-1]
        return result

    return run


def unwritten_nan(entry_point: str) -> Callable[..., Tensor]:
    """The same, where what stood in that memory is NaN, as it may be."""

    def run(*args: Any, **arguments: Any) -> Tensor:
        right = getattr(RIGHT, entry_point)(*args, **arguments)
        result = torch.empty_like(right)
        if not result.view(-1)[-1:].equal(result.new_zeros(1)):
            result.fill_(torch.nan)
        result.view(-1)[:-1] = right.reshape(-1)[:-1]
        return result

    return run


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("breaking", "words"),
    [
        (kept_by_shape, "the result of run_{} depends on earlier calls: of two calls"),
        (growing, "the result of run_{} depends on earlier calls: the same call"),
        (unwritten, "run_{} is not repeatable: it returns memory that it never wrote"),
        (unwritten_nan, "run_{} is not repeatable: it returns memory that it never wrote"),
    ],
    ids=["kept_by_shape", "growing", "unwritten", "unwritten_nan"],
)
def test_it_is_told_as_what_it_is_in_one_failure(
    name: str, breaking: Callable[[str], Callable[..., Tensor]], words: str
) -> None:
    judged = results(broken(**{f"run_{name}": breaking(f"run_{name}")}), "components", "assembly", "information_flow")
    failed = {check: result.message for check, result in judged.items() if result.outcome == "failed"}
    blockers = {result.blocked_by for result in judged.values() if result.outcome == "blocked"}
    assert list(failed) == [f"components.earlier_calls[{name}]"]
    assert failed[f"components.earlier_calls[{name}]"].startswith(words.format(name))
    assert blockers <= set(failed)


def test_a_table_kept_under_the_length_alone_is_not_called_a_theta_that_is_ignored() -> None:
    thetas: dict[int, float] = {}

    def run(theta: float, in_query_or_key: Tensor, **rest: Any) -> Tensor:
        theta = thetas.setdefault(in_query_or_key.shape[-2], theta)
        return RIGHT.run_rope(theta=theta, in_query_or_key=in_query_or_key, **rest)

    judged = results(broken(run_rope=run), "components")
    assert [name for name, result in judged.items() if result.outcome == "failed"] == ["components.earlier_calls[rope]"]


def test_an_ignored_theta_is_no_matter_of_earlier_calls() -> None:
    def run(theta: float, **rest: Any) -> Tensor:
        return RIGHT.run_rope(theta=10000.0, **rest)

    judged = results(broken(run_rope=run), "components")
    assert judged["components.earlier_calls[rope]"].outcome == "passed"
    assert judged["components.rope_theta"].outcome == "failed"


@pytest.mark.parametrize("name", [name for name in all_defects() if re.search("in-b?float16", name)])
def test_few_bits_are_no_matter_of_earlier_calls(name: str) -> None:
    asked = [check for check in all_checks().values() if check.id.startswith("components.earlier_calls")]
    assert [result.message for result in audit(all_defects()[name], checks=asked).told] == []


class MixesWhatItSawBefore(OracleModel):
    def forward(self, token_ids: Tensor) -> Tensor:
        logits = super().forward(token_ids)
        kept = self.__dict__.setdefault("kept", {})
        mixed = logits + (0.01 * kept[token_ids.shape] if self.training and token_ids.shape in kept else 0)
        kept[token_ids.shape] = logits.detach()
        return mixed


class KeepsTheFirstOfAShape(OracleModel):
    """The logits of the first input of a shape are given for every later one; while gradients are on, it computes."""

    def forward(self, token_ids: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return super().forward(token_ids)
        kept = self.__dict__.setdefault("kept", {})
        return kept.setdefault(token_ids.shape, super().forward(token_ids))


class SharesATable(Vectorised):
    """The theta of the first model that had an input of a length serves all."""

    thetas: dict[int, float] = {}  # noqa: RUF012

    def rotate(self, x: Tensor, positions: Tensor, theta: float) -> Tensor:
        return super().rotate(x, positions, self.thetas.setdefault(x.shape[-2], theta))


def test_a_model_that_keeps_what_it_saw() -> None:
    result = result_of("information_flow.repeated_calls_of_a_model", subject_of(Vectorised, MixesWhatItSawBefore))
    assert result.outcome == "failed"
    assert "depends on earlier calls: in train mode, without autograd" in result.message


def test_a_model_that_answers_every_input_of_a_shape_alike() -> None:
    subject = subject_of(Vectorised, KeepsTheFirstOfAShape)
    judged = [result_of(f"information_flow.{name}", subject) for name in ("repeated_calls_of_a_model", "models_apart")]
    assert [result.outcome for result in judged] == ["failed", "passed"]
    assert (
        "in eval mode, without autograd, it gives these token ids other logits after it has seen" in judged[0].message
    )


def test_models_that_share_a_table() -> None:
    SharesATable.thetas.clear()
    subject = subject_of(SharesATable)
    right = subject_of(Vectorised)
    for name in MODEL_ENTRY_POINTS:
        replaced(subject, **{name: getattr(right.module, name)})
    result = result_of("information_flow.models_apart", subject)
    assert result.outcome == "failed"
    assert "of two models the one that is called first is right" in result.message


class OneTableForAll(Variation):
    """The theta of the first rotation of a length serves every later one, in every component."""

    thetas: dict[int, float] = {}  # noqa: RUF012

    def rotate(self, x: Tensor, positions: Tensor, theta: float, *, inside: bool = False) -> Tensor:
        return super().rotate(x, positions, self.thetas.setdefault(x.shape[-2], theta), inside=inside)


def test_one_shared_table_is_one_failure() -> None:
    judged = results(VariationAdapters(OneTableForAll()), "components", "assembly")
    assert [name for name, result in judged.items() if result.outcome == "failed"] == ["components.earlier_calls[rope]"]


@pytest.mark.parametrize("name", ["models_apart", "repeated_calls_of_a_model"])
def test_a_right_model_is_right(name: str) -> None:
    assert result_of(f"information_flow.{name}", subject_of(Vectorised)).outcome == "passed"
