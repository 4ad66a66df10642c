"""A secret gives every check inputs of its own, the same ones again, and no correct decoder a failure."""

import contextlib

import pytest
import torch
from broken import RIGHT
from variations import COVERING, VariationAdapters

from cs336_harness.checks import all_checks
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


FIXED = {"components.silu_extremes"}
"""Checks whose inputs are extremes that cannot be others."""


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
    assert same == FIXED


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


def test_the_reference_itself_passes_under_a_secret() -> None:
    with hidden_by("x"):
        results = list(Suite(Subject(RIGHT, "right"), diagnose=False).run(all_checks().values()))
    assert {r.check.id: r.message for r in results if r.stops_exit_zero} == {}
