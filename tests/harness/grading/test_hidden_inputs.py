"""A secret gives every check inputs of its own, the same ones again, and no correct decoder a failure."""

import contextlib
from typing import Any

import pytest
import test_configuration
import test_tying
import torch
from broken import RIGHT
from variations import COVERING, VariationAdapters

from cs336_harness.checks import all_checks
from cs336_harness.grading.rubric import Rubric
from cs336_harness.reference.hidden_inputs import cached, hidden_by, inputs_of, more, seed_for
from cs336_harness.reference.weights import normal
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import AbsentEntryPoint
from cs336_harness.verdict.suite import Suite


def drawn(secret: str | None, check: str) -> torch.Tensor:
    with hidden_by(secret), inputs_of(check):
        return normal(3, seed=5)


def test_inputs_are_public_without_a_secret_and_hang_on_secret_and_check_with_one() -> None:
    public = normal(3, seed=5)
    assert torch.equal(drawn(None, "a"), public)
    assert torch.equal(drawn("x", "a"), drawn("x", "a"))
    different = [public, drawn("x", "a"), drawn("x", "b"), drawn("y", "a")]
    assert all(not torch.equal(one, two) for one in different for two in different if one is not two)


def test_sizes_grow_within_bounds() -> None:
    found = set()
    for secret in range(60):
        with hidden_by(str(secret)), inputs_of("a"):
            found.add(more("rows", 3))
    assert found == {0, 1, 2, 3}
    assert more("rows", 3) == 0
    assert seed_for(7) == 7


def test_what_is_cached_is_cached_by_secret() -> None:
    calls = []

    @cached
    def value(number: int) -> torch.Tensor:
        calls.append(number)
        return normal(2, seed=number)

    public = value(1)
    with hidden_by("x"), inputs_of("a"):
        secret = value(1)
        assert value(1) is secret
    assert value(1) is public
    assert len(calls) == 2


class Listening(VariationAdapters):
    """A correct decoder that keeps what it is asked."""

    def __init__(self) -> None:
        super().__init__(COVERING["fill"])
        self.heard: list[bytes] = []

    def __getattribute__(self, name: str):
        value = super().__getattribute__(name)
        if not name.startswith(("run_", "get_transformer_lm")) or name.endswith("_weights"):
            return value

        def listening(*args, **kwargs):
            self.heard.append(repr((name, args, kwargs)).encode())
            return value(*args, **kwargs)

        return listening


@pytest.mark.slow
def test_every_check_that_compares_numbers_asks_others_under_a_secret() -> None:
    same = set()
    for item in all_checks().values():
        if item.advisory or "get_transformer_lm" in item.needs:  # whose numbers go into a model, not a call
            continue
        heard = []
        for secret in (None, "x"):
            listening = Listening()
            with hidden_by(secret), contextlib.suppress(AbsentEntryPoint):
                item(Subject(listening, "listening"))
            heard.append(listening.heard)
        if heard[0] == heard[1] != []:
            same.add(item.id)
    assert same == set()


@pytest.mark.slow
@pytest.mark.parametrize("secret", ["one", "two", "three"])
@pytest.mark.parametrize("name", sorted(COVERING)[:3])
def test_correct_decoders_pass_under_any_secret(secret: str, name: str) -> None:
    with hidden_by(secret):
        results = list(
            Suite(Subject(VariationAdapters(COVERING[name]), name), diagnose=False).run(all_checks().values())
        )
    assert {r.check.id: r.message for r in results if r.outcome not in ("passed", "skipped", "advisory")} == {}
    assert {r.check.task for r in results if r.outcome == "skipped"} == {"transformer_accounting"}  # they count nothing


@pytest.mark.slow
@pytest.mark.parametrize("secret", ["one", "two"])
def test_sizes_that_a_secret_chose_find_the_same_mistakes(secret: str) -> None:
    wanted = [("tying", name, test_tying.assembled(model)) for name, model, _ in test_tying.VIOLATORS]
    wanted += [("configuration", name, module) for name, module, _ in test_configuration.VIOLATORS]
    for group, name, module in wanted:
        checks = [item for item in all_checks().values() if item.group == group and not item.advisory]
        with hidden_by(secret):
            results = list(Suite(Subject(module, "subject"), diagnose=False).run(checks))
        assert f"{group}.{name}" in {r.check.id for r in results if r.outcome == "failed"}, (group, name)


def test_the_reference_itself_passes_under_a_secret() -> None:
    with hidden_by("x"):
        results = list(Suite(Subject(RIGHT, "right"), diagnose=False).run(all_checks().values()))
    assert {r.check.id: r.message for r in results if r.stops_exit_zero} == {}


def by_content(value: Any) -> Any:
    """A value as a key that others of the same content have too."""
    if isinstance(value, torch.Tensor):
        numbers = value.detach().contiguous().view(-1).view(torch.uint8)
        return str(value.dtype), tuple(value.shape), numbers.numpy().tobytes()
    if isinstance(value, dict):
        return tuple((name, by_content(each)) for name, each in value.items())
    return tuple(map(by_content, value)) if isinstance(value, list | tuple) else value


class Recorded(VariationAdapters):
    """A submission that is a table: what was asked before, and what the right answer was."""

    def __init__(self) -> None:
        super().__init__(COVERING["fill"])
        self.table: dict[Any, torch.Tensor] = {}
        self.learning = True

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if not name.startswith("run_"):
            return value

        def answer(*args: Any, **kwargs: Any) -> Any:
            key = name, by_content(args), by_content(kwargs)
            if self.learning:
                self.table[key] = value(*args, **kwargs)
            return self.table[key].clone()

        return answer


@pytest.mark.slow
def test_a_table_of_recorded_answers_is_worth_nothing() -> None:
    recorded = Recorded()
    tasks = [task for task in Rubric().tasks if task != "transformer_accounting"]  # this subject counts nothing
    checks = [all_checks()[name] for name in Rubric().asked if "get_transformer_lm" not in all_checks()[name].needs]

    def points() -> dict[str, float]:
        results = list(Suite(Subject(recorded, "recorded"), diagnose=False).run(checks))
        entries = [{**each.to_json(), "advisory": False, "required": True} for each in results]
        points = Rubric().by_task(entries)
        return {task: points[task]["points"] for task in tasks}

    assert points() == dict.fromkeys(tasks, 10.0)
    recorded.learning = False
    assert points() == dict.fromkeys(tasks, 10.0)  # the table is whole
    with hidden_by("a secret"):
        assert points() == dict.fromkeys(tasks, 0.0)
