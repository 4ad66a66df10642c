"""A secret gives every check inputs of its own, the same ones again, and no correct decoder a failure."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import test_configuration
import test_tying
import torch
from broken import RIGHT
from variations import COVERING, VariationAdapters

from cs336_harness.checks import all_checks
from cs336_harness.checks.configuration import SHAPE
from cs336_harness.grading.rubric import Rubric
from cs336_harness.reference.hidden_inputs import cached, hidden_by, inputs_of, more, seed_for
from cs336_harness.reference.interventions import FLOW_SHAPE
from cs336_harness.reference.weights import normal
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import AbsentEntryPoint, CheckFailure
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


PUBLIC_SIZES = [
    "components.arguments_untouched[multihead_self_attention]",
    "components.arguments_untouched[transformer_block]",
    "components.axes_of_size_one[softmax]",
    "components.axes_of_size_one[scaled_dot_product_attention]",
    "components.axes_of_size_one[transformer_block]",
    "components.any_layout[transformer_block]",
    "components.earlier_calls[silu]",
    "components.earlier_calls[rmsnorm]",
    "components.earlier_calls[multihead_self_attention]",
    "components.earlier_calls[transformer_block]",
    "components.rmsnorm_eps",
    "components.silu_extremes",
    "components.rmsnorm_leading_axes[one]",
    "components.silu_leading_axes[one]",
    "components.rope_other_shapes[positions_with_an_axis_for_heads]",
    "components.attention_large_scores",
    "components.block_theta",
    "components.attention_position_values[jumping]",
    "components.batch_and_heads[transformer_block]",
    "configuration.refuses[heads_that_do_not_divide]",
    "configuration.refuses[kv_heads_that_do_not_divide]",
    "configuration.refuses[odd_head_size]",
    "configuration.refuses[zero]",
    "configuration.refuses[negative]",
    "accounting.unique_parameters[untied]",
    "accounting.unique_parameters[tied]",
]
"""The graded checks whose sizes anybody can know: the size is the question, or the least that shows the fault."""


def sizes(value: Any) -> Any:
    """A value with the size of each tensor in its place."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape)
    if isinstance(value, dict):
        return tuple((name, sizes(each)) for name, each in value.items())
    return tuple(map(sizes, value)) if isinstance(value, list | tuple) else repr(value)


class Measuring(VariationAdapters):
    """A correct decoder that keeps the sizes at which it is asked."""

    def __init__(self) -> None:
        super().__init__(COVERING["fill"])
        self.heard: list[Any] = []

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if not name.startswith(("run_", "get_transformer_lm")):
            return value

        def measuring(*args: Any, **kwargs: Any) -> Any:
            self.heard.append((name, sizes(args), sizes(kwargs)))
            return value(*args, **kwargs)

        return measuring


@pytest.mark.slow
def test_sizes_are_secret_but_for_these() -> None:
    same = set()
    for name in Rubric().asked:
        heard = []
        for secret in ("one", "two", "three"):
            measuring = Measuring()
            with hidden_by(secret), contextlib.suppress(AbsentEntryPoint):
                all_checks()[name](Subject(measuring, "measuring"))
            heard.append(measuring.heard)
        if heard[0] == heard[1] == heard[2] != []:
            same.add(name)
    assert same == set(PUBLIC_SIZES)


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


class RightAtPublicSizes(VariationAdapters):
    """A submission that knows a check by the sizes that it asks without a secret, and is right there alone."""

    def __init__(self, wrong: Callable[[torch.Tensor], torch.Tensor], *public: DecoderShape) -> None:
        super().__init__(COVERING["fill"])
        self.wrong, self.public = wrong, {(shape.vocab_size, shape.context_length) for shape in public}

    def run_transformer_lm(self, **arguments: Any) -> torch.Tensor:
        logits = super().run_transformer_lm(**arguments)
        public = (arguments["vocab_size"], arguments["context_length"]) in self.public
        return logits if public else self.wrong(logits)


def sees_the_last(logits: torch.Tensor) -> torch.Tensor:
    return logits + logits[:, -1:]


@pytest.mark.parametrize(
    ("wrong", "check"),
    [
        (sees_the_last, "information_flow.prefix_equivalence[short]"),
        (sees_the_last, "information_flow.prefix_equivalence[full]"),
        (sees_the_last, "information_flow.changed_suffix[ordinary]"),
        (sees_the_last, "information_flow.single_token"),
        (lambda logits: logits.softmax(-1), "configuration.raw_logits[run_transformer_lm]"),
    ],
)
def test_a_submission_that_is_right_at_the_public_sizes_fails_under_a_secret(wrong: Any, check: str) -> None:
    subject = Subject(RightAtPublicSizes(wrong, FLOW_SHAPE, SHAPE), "keyed")
    all_checks()[check](subject)
    with hidden_by("a secret"), pytest.raises(CheckFailure):
        all_checks()[check](subject)


@pytest.mark.parametrize(
    "check", ["full_context", "longer_than_context", "fresh_weights", "fresh_layers", "ids_of_any_layout"]
)
def test_models_are_built_at_sizes_that_a_secret_chose(check: str) -> None:
    built: set[tuple[int, int]] = set()

    class Noting(VariationAdapters):
        def get_transformer_lm(self, **sizes: Any) -> Any:
            built.add((sizes["vocab_size"], sizes["context_length"]))
            return super().get_transformer_lm(**sizes)

    for secret in "abcdef":
        with hidden_by(secret):
            all_checks()[f"configuration.{check}"](Subject(Noting(COVERING["fill"]), "noting"))
    assert len(built) > 2


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
