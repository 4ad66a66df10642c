"""Incremental decoding: every check has a subject that it fails, every known mistake is told once and by its name."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from cs336_harness.checks import all_checks, find
from cs336_harness.contract import INCREMENTAL_ENTRY_POINTS
from cs336_harness.defects import all_defects, subject_of
from cs336_harness.defects.cached import CacheDefect
from cs336_harness.reference.oracle import Oracle
from cs336_harness.reference.oracle_adapters import OracleAdapters, OracleModel
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure
from cs336_harness.verdict.suite import Suite

KNOWN = {name: item for name, item in all_defects().items() if issubclass(item, CacheDefect)}
QUICK = ("cache-positions-restart", "cache-never-emptied", "cache-shared-by-models", "cache-heads-tiled")
(RUN,) = INCREMENTAL_ENTRY_POINTS


class PositionsInTheModelsDtype(KNOWN["cache-positions-in-bfloat16"]):
    """Positions are right in a float32 model."""

    def transformer_lm_in_pieces(self, weights: Mapping[str, Tensor], pieces: Sequence[Tensor]) -> list[Tensor]:
        self.half = bool((weights["ln_final.weight"].bfloat16() == weights["ln_final.weight"]).all())
        return super().transformer_lm_in_pieces(weights, pieces)

    def positions_of_piece(self, new: int) -> Tensor:
        return super().positions_of_piece(new) if self.half else CacheDefect.positions_of_piece(self, new)


Pieces = Callable[[OracleModel, list[Tensor]], list[Tensor]]


def fed_by(around: Callable[[Pieces], Pieces], oracle: type[Oracle] = CacheDefect) -> Subject:
    """A float32 subject with a cache, whose entry point is wrapped."""
    adapters = OracleAdapters(oracle, torch.float32)
    setattr(adapters, RUN, around(adapters.run_transformer_lm_in_pieces))
    return Subject(adapters, around.__name__)


def pops_its_list(run: Pieces) -> Pieces:
    def popping(model: OracleModel, pieces: list[Tensor]) -> list[Tensor]:
        own = list(pieces)
        pieces.clear()
        return run(model, own)

    return popping


def overwrites_tokens(run: Pieces) -> Pieces:
    def overwriting(model: OracleModel, pieces: list[Tensor]) -> list[Tensor]:
        logits = run(model, pieces)
        pieces[0].zero_()
        return logits

    return overwriting


def hands_out_one_buffer(run: Pieces) -> Pieces:
    """The logits of all pieces begin at the start of one buffer, so that each piece writes over the one before."""

    def aliased(model: OracleModel, pieces: list[Tensor]) -> list[Tensor]:
        logits = run(model, pieces)
        buffer = torch.zeros(len(pieces[0]), 30, logits[0].shape[-1])
        views = [buffer[:, : part.shape[1]] for part in logits]
        for view, part in zip(views, logits, strict=True):
            view.copy_(part)
        return views

    return aliased


def keeps_the_first_batch_size(run: Pieces) -> Pieces:
    """Memory is taken for the first batch; a larger one later is cut to it."""
    sizes: list[int] = []

    def kept(model: OracleModel, pieces: list[Tensor]) -> list[Tensor]:
        sizes.append(len(pieces[0]))
        logits = run(model, pieces)
        return [part[torch.arange(len(part)).clamp(max=sizes[0] - 1)] for part in logits]

    return kept


def scales_with_autograd_on(run: Pieces) -> Pieces:
    def scaled(model: OracleModel, pieces: list[Tensor]) -> list[Tensor]:
        return [part * (2 if torch.is_grad_enabled() else 1) for part in run(model, pieces)]

    return scaled


def registers_a_buffer(run: Pieces) -> Pieces:
    def registering(model: OracleModel, pieces: list[Tensor]) -> list[Tensor]:
        model.register_buffer("cache", torch.zeros(3))
        return run(model, pieces)

    return registering


def remembers_in_train_mode(run: Pieces) -> Pieces:
    """A text is added to the last one while the model trains."""
    last: dict[int, Tensor] = {}

    def remembering(model: OracleModel, pieces: list[Tensor]) -> list[Tensor]:
        logits = run(model, pieces)
        before = last.get(id(model)) if model.training else None
        last[id(model)] = logits[0]
        return logits if before is None else [logits[0] + before, *logits[1:]]

    return remembering


VIOLATORS: dict[str, tuple[Subject, ...]] = {
    "incremental.one_piece": (subject_of(KNOWN["cache-heads-tiled"]),),
    "incremental.another_model": (subject_of(KNOWN["cache-shared-by-models"]),),
    "incremental.second_text": (subject_of(KNOWN["cache-keys-outlive-the-text"]), fed_by(remembers_in_train_mode)),
    "incremental.token_by_token": (subject_of(KNOWN["cache-positions-one-late"]),),
    "incremental.two_pieces": (subject_of(KNOWN["cache-no-mask-in-later-pieces"]),),
    "incremental.prefill_then_steps": (subject_of(KNOWN["cache-positions-count-pieces"]),),
    "incremental.unequal_pieces": (subject_of(KNOWN["cache-blind-within-a-piece"]),),
    "incremental.kinds[mha]": (subject_of(KNOWN["cache-first-layer-only"]),),
    "incremental.kinds[mha-tied]": (subject_of(KNOWN["cache-drops-last-token"]),),
    "incremental.kinds[mqa]": (subject_of(KNOWN["cache-doubles-last-token"]),),
    "incremental.kinds[gqa-6-over-2-tied]": (subject_of(KNOWN["cache-heads-tiled"]),),
    "incremental.past_256": (subject_of(KNOWN["cache-positions-in-bfloat16"]), subject_of(PositionsInTheModelsDtype)),
    "incremental.past_the_context": (subject_of(KNOWN["cache-written-over-when-full"]),),
    "incremental.another_batch_size": (fed_by(keeps_the_first_batch_size),),
    "incremental.rows": (subject_of(KNOWN["cache-shared-by-rows"]),),
    "incremental.later_pieces": (fed_by(hands_out_one_buffer),),
    "incremental.full_model": (subject_of(KNOWN["cache-leaves-full-pass-cached"]), fed_by(registers_a_buffer)),
    "incremental.pieces_unchanged": (fed_by(pops_its_list), fed_by(overwrites_tokens)),
    "incremental.gradients_on": (fed_by(scales_with_autograd_on),),
}


def test_every_check_has_a_violator() -> None:
    assert set(VIOLATORS) == {check.id for check in find("incremental")}


@pytest.mark.parametrize("check_id", VIOLATORS)
def test_the_check_fails_its_violators(check_id: str) -> None:
    for subject in VIOLATORS[check_id]:
        with pytest.raises(CheckFailure):
            all_checks()[check_id](subject)


@pytest.mark.parametrize("oracle", [Oracle, CacheDefect], ids=["without a cache", "with one"])
def test_what_is_right_passes_with_and_without_a_cache(oracle: type[Oracle]) -> None:
    suite = Suite(Subject(OracleAdapters(oracle, torch.float32), "right"), diagnose=False)
    assert {result.outcome for result in suite.run(find("incremental"))} == {"passed"}


def test_without_the_entry_point_the_checks_are_skipped_with_the_reason() -> None:
    class Plain(OracleAdapters):
        run_transformer_lm_in_pieces = None

    results = list(Suite(Subject(Plain(dtype=torch.float32), "plain"), diagnose=False).run(find("incremental")))
    assert {result.outcome for result in results} == {"skipped"}
    assert {result.message for result in results} == {f"{RUN} is not defined in plain"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in KNOWN]
)
def test_a_known_mistake_is_told_once_and_by_its_name(name: str) -> None:
    failed = [
        result for result in Suite(subject_of(KNOWN[name])).run(find("incremental")) if result.outcome == "failed"
    ]
    if KNOWN[name].equivalent is not None:
        assert not failed
        return
    assert len(failed) == 1, [result.check.id for result in failed]
    diagnosis: Any = failed[0].diagnosis
    assert diagnosis.where == "cache"
    if name == "cache-shared-by-models":  # what a class keeps depends on all that was asked of it before, here too
        assert failed[0].check.id == "incremental.another_model"
        return
    assert [item.name for item in diagnosis.defects] == [name]
    assert diagnosis.confidence == "certain"
    assert diagnosis.reproducer or name == "cache-positions-in-bfloat16"
