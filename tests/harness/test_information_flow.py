"""Information flow: each check has a subject that it must fail, and it passes what only looks like a leak."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor
from vectorised import Vectorised, replaced, result_of, subject_of

from cs336_harness.checks import all_checks
from cs336_harness.picture.plots import write_influence_plot
from cs336_harness.reference.influence import LEAK, MISSING, InfluenceMap
from cs336_harness.reference.interventions import FLOW_SHAPE, TWIN_CHANNEL, base_ids, flow_weights, influence, twins
from cs336_harness.reference.oracle import LayerWeights
from cs336_harness.reference.oracle_adapters import OracleAdapters
from cs336_harness.subject.calling import Subject
from cs336_harness.verdict.suite import Suite

FULL = FLOW_SHAPE.context_length


def tril(time: int, diagonal: int = 0) -> Tensor:
    return torch.ones(time, time, dtype=torch.bool).tril(diagonal)


class SeesTheNext(Vectorised):
    def mask(self, time: int) -> Tensor:
        return tril(time, 1)


class SeesAll(Vectorised):
    def mask(self, time: int) -> Tensor:
        return tril(time, time)


class SeesAllAtTheFullContext(Vectorised):
    def mask(self, time: int) -> Tensor:
        return tril(time, time if time == FULL else 0)


class SeesItsAlignedBlock(Vectorised):
    def mask(self, time: int) -> Tensor:
        block = torch.arange(time) // 8
        return tril(time) | (block[:, None] == block)


class SoftmaxOverQueries(Vectorised):
    def attention(self, scores: Tensor, mask: Tensor) -> Tensor:
        return torch.softmax(scores.masked_fill(~mask, -1e9), -2)


class MaskAfterSoftmax(Vectorised):
    def attention(self, scores: Tensor, mask: Tensor) -> Tensor:
        return torch.softmax(scores, -1) * mask


class HeadsMergedWithoutTranspose(Vectorised):
    def merge(self, heads: Tensor) -> Tensor:
        rows, number, time, d_head = heads.shape
        return heads.reshape(rows, time, number * d_head)


class NormOverTime(Vectorised):
    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        axes = (-2, -1) if x.ndim > 2 else (-1,)
        return x * gain / torch.sqrt((x * x).mean(axes, keepdim=True) + eps)


class LeakInTheLastLayer(Vectorised):
    def mask(self, time: int) -> Tensor:
        return tril(time, int(self.layer == self.shape.num_layers - 1))


class LeakInTheLastRow(Vectorised):
    def mask(self, time: int) -> Tensor:
        rows = len(self.token_ids)
        return torch.stack([tril(time, int(row == 3)) for row in range(rows)])[:, None]


class LeakOfTokenZero(Vectorised):
    def mask(self, time: int) -> Tensor:
        return (tril(time) | (self.token_ids == 0)[:, None, :])[:, None]


class LeakOfTheLastToken(Vectorised):
    def mask(self, time: int) -> Tensor:
        return (tril(time) | (self.token_ids == self.shape.vocab_size - 1)[:, None, :])[:, None]


class ScaleOfAShortLength(Vectorised):
    def project_output(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return super().project_output(x, weights) * min(x.shape[-2] / 4, 1)


class RoundedByLength(Vectorised):
    """As right as float32 is, with other roundings at another length, as matrix multiplies have them."""

    def attention(self, scores: Tensor, mask: Tensor) -> Tensor:
        attended = super().attention(scores, mask).float()
        return (attended * scores.shape[-1] / scores.shape[-1]).to(scores.dtype)


class NoOutputProjection(RoundedByLength):
    """Attention writes where nothing should, and the norm's huge gain makes rounding loud: no leak."""

    def project_output(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return x


class LeakOfRepeatedZeros(Vectorised):
    def mask(self, time: int) -> Tensor:
        zero = self.token_ids == 0
        repeated = zero & zero.roll(1, dims=-1)
        return (tril(time) | repeated[:, None, :])[:, None]


class SmallFill(Vectorised):
    def attention(self, scores: Tensor, mask: Tensor) -> Tensor:
        return torch.softmax(scores.masked_fill(~mask, -25.0), -1)


class SmallShift(Vectorised):
    def final_norm(self, x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        return super().final_norm(x + 1e-8 * torch.cat([x[:, 1:], x[:, :1] * 0], dim=1), weights)


class MaskOfLength256(Vectorised):
    def mask(self, time: int) -> Tensor:
        return tril(time) | (torch.arange(time) >= 256)[:, None]


class LeakOfOneZeroAlone(Vectorised):
    """A zero that follows one certain token and precedes no zero is seen one position early."""

    def mask(self, time: int) -> Tensor:
        zero = self.token_ids == 0
        follows = self.token_ids.roll(1, dims=-1) == base_ids(FLOW_SHAPE, FULL)[1, 7]
        alone = zero & follows & ~zero.roll(-1, dims=-1)
        return (tril(time) | (alone[:, None, :] & tril(time, 1)))[:, None]


class StrictMask(Vectorised):
    def mask(self, time: int) -> Tensor:
        mask = tril(time, -1)
        mask[0, 0] = True
        return mask


class DropsTheFirst(Vectorised):
    def mask(self, time: int) -> Tensor:
        mask = tril(time)
        mask[1:, 0] = False
        return mask


class Window(Vectorised):
    size = 12

    def mask(self, time: int) -> Tensor:
        return tril(time) & ~tril(time, -self.size)


class Window200(Window):
    size = 200


class HiddenGradient(Vectorised):
    """Adds a later position's values, and takes them away again without their gradient."""

    def project_output(self, x: Tensor, weights: LayerWeights) -> Tensor:
        ahead = x.roll(-1, dims=-2)
        return super().project_output(x + 1e-3 * (ahead - ahead.detach()), weights)


class RootOfZero(Vectorised):
    """Adds nothing, with a gradient that is no number."""

    def project_output(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return super().project_output(x + 0 * (x - x.detach()).sqrt(), weights)


VIOLATORS: list[tuple[str, type[Vectorised]]] = [
    ("prefix_equivalence[short]", SeesTheNext),
    ("prefix_equivalence[short]", SeesAll),
    ("prefix_equivalence[short]", SoftmaxOverQueries),
    ("prefix_equivalence[short]", MaskAfterSoftmax),
    ("prefix_equivalence[short]", HeadsMergedWithoutTranspose),
    ("prefix_equivalence[short]", NormOverTime),
    ("prefix_equivalence[short]", SeesItsAlignedBlock),
    ("prefix_equivalence[short]", LeakInTheLastLayer),
    ("prefix_equivalence[short]", LeakInTheLastRow),
    ("prefix_equivalence[short]", LeakOfTokenZero),
    ("prefix_equivalence[short]", LeakOfTheLastToken),
    ("prefix_equivalence[short]", ScaleOfAShortLength),
    ("prefix_equivalence[full]", SeesAllAtTheFullContext),
    ("changed_suffix[ordinary]", LeakOfRepeatedZeros),
    ("changed_suffix[loud]", SmallFill),
    ("changed_suffix[loud]", SmallShift),
    ("changed_suffix_past_256", MaskOfLength256),
    ("single_token", LeakOfOneZeroAlone),
    ("every_token_arrives", StrictMask),
    ("every_token_arrives", DropsTheFirst),
    ("every_token_arrives", Window),
    ("every_token_arrives_past_256", Window200),
    ("gradient_leak", HiddenGradient),
    ("gradient_leak", RootOfZero),
]


@pytest.mark.parametrize(("name", "oracle"), VIOLATORS, ids=[oracle.__name__ for _, oracle in VIOLATORS])
def test_a_broken_subject_fails_this_check_first(name: str, oracle: type[Vectorised]) -> None:
    result = result_of(f"information_flow.{name}", broken_as_a_whole(oracle))
    assert result.outcome == "failed", (result.outcome, result.blocked_by)
    assert "a correct decoder" in result.message


def broken_as_a_whole(oracle: type[Vectorised]) -> Subject:
    """The broken model among right components, which know of no token ids."""
    right = OracleAdapters(Vectorised, torch.float32)
    components = ("run_multihead_self_attention", "run_multihead_self_attention_with_rope", "run_transformer_block")
    return replaced(subject_of(oracle), **{name: getattr(right, name) for name in components})


def test_every_check_of_leaks_and_arrivals_has_a_violator() -> None:
    own = {
        item.id.removeprefix("information_flow.")
        for item in all_checks().values()
        if item.group == "information_flow" and not item.function.__module__.endswith(("independence", "built_prefix"))
    }
    assert own == {name for name, _ in VIOLATORS}


class Renormalised(Vectorised):
    """In float32: the mask comes after the softmax, and the rest is scaled up to sum to one."""

    def attention(self, scores: Tensor, mask: Tensor) -> Tensor:
        kept = torch.softmax(scores.float(), -1) * mask
        return (kept / kept.sum(-1, keepdim=True)).to(scores.dtype)


class LargeFill(Vectorised):
    def attention(self, scores: Tensor, mask: Tensor) -> Tensor:
        return torch.softmax(scores.float().masked_fill(~mask, -1e4), -1).to(scores.dtype)


class ConstantOnTheKept(Vectorised):
    def attention(self, scores: Tensor, mask: Tensor) -> Tensor:
        return torch.softmax(scores + torch.where(mask, 3.0, -1e9), -1)


class PositionsFromOne(Vectorised):
    def positions(self, time: int) -> Tensor:
        return super().positions(time) + 1


@pytest.mark.parametrize("oracle", [Renormalised, LargeFill, ConstantOnTheKept, PositionsFromOne])
def test_what_is_no_fault_fails_nothing(oracle: type[Vectorised]) -> None:
    suite = Suite(subject_of(oracle), diagnose=False)
    flow = [item for item in all_checks().values() if item.group == "information_flow"]
    assert [(r.check.id, r.message) for r in suite.run(flow) if r.outcome != "passed"] == []


@pytest.mark.parametrize(
    ("oracle", "words"),
    [
        (SeesTheNext, "the logits at position 0 move when the token at position 1, which comes later"),
        (ScaleOfAShortLength, "not with which they are: something depends on how long the input is"),
    ],
)
def test_the_message_names_the_first_pair_or_the_length(oracle: type[Vectorised], words: str) -> None:
    result = result_of("information_flow.prefix_equivalence[short]", subject_of(oracle))
    assert words in result.message


def test_a_leak_shows_in_the_picture() -> None:
    """Two layers that each see one token ahead see two."""
    result = result_of("information_flow.prefix_equivalence[short]", subject_of(SeesTheNext))
    assert result.failure is not None
    evidence = result.failure.evidence
    assert evidence.influence.leaks() == [(i, j) for i in range(7) for j in (i + 1, i + 2) if j < 7]
    assert evidence.influence.missing() == []
    assert "2 ■■■XX··" in evidence.details
    assert evidence.arguments is not None
    assert evidence.error_in_noise is not None
    assert evidence.error_in_noise > 16


def test_the_rows_that_leak_are_named() -> None:
    result = result_of("information_flow.prefix_equivalence[short]", subject_of(LeakInTheLastRow))
    assert result.failure is not None
    assert "earlier logits move by up to 3.11, in row 3 of 0 to 3" in result.failure.evidence.details[0]


def test_a_token_blind_to_itself_shows_on_the_diagonal() -> None:
    result = result_of("information_flow.every_token_arrives", subject_of(StrictMask))
    assert "the token at position 1 does not reach its own logits" in result.message
    assert result.failure is not None
    assert result.failure.evidence.influence.missing() == [(i, i) for i in range(1, FULL)]


def test_a_long_leak_is_found_where_it_begins() -> None:
    result = result_of("information_flow.changed_suffix_past_256", subject_of(MaskOfLength256))
    assert "the logits at position 256 move when the token at position 257" in result.message


def raises(*_: object, **__: object) -> Tensor:
    raise IndexError("index 7 is out of range")


def test_a_call_that_raises_is_the_assembly_s_failure() -> None:
    subject = replaced(subject_of(Vectorised), run_transformer_lm=raises)
    result = result_of("information_flow.every_token_arrives", subject)
    assert (result.outcome, result.blocked_by) == ("blocked", "assembly.transformer_lm")


def test_twins_differ_in_one_channel_s_sign() -> None:
    table = flow_weights(FLOW_SHAPE)["token_embeddings.weight"]
    ids = torch.arange(FLOW_SHAPE.vocab_size)
    difference = table[ids] - table[twins(ids)]
    assert (difference[:, :TWIN_CHANNEL] == 0).all()
    assert (table[ids][:, TWIN_CHANNEL] == -table[twins(ids)][:, TWIN_CHANNEL]).all()


@pytest.mark.parametrize("kind", ["twin", "loud", "ordinary"])
def test_every_influence_of_a_right_decoder_is_far_from_the_tolerance(kind: str) -> None:
    shape = FLOW_SHAPE.replace(num_layers=1)
    found = influence(subject_of(Vectorised), shape, base_ids(shape, FULL), kind, range(FULL))
    below = found.moved[tril(FULL)]
    assert float(below.min()) > 10 * found.tolerance
    assert float(found.moved[~tril(FULL)].max()) < found.tolerance / 5


def example(moved: list[list[float]], judged: tuple[str, ...] = ("above", "below")) -> InfluenceMap:
    return InfluenceMap(torch.tensor(moved, dtype=torch.float64), tuple(range(len(moved[0]))), judged)


def test_the_map_tells_leaks_from_gaps() -> None:
    found = example([[99, 0, 50], [0, 99, 0], [1, 40, 99]])
    assert found.leaks() == [(0, 2)]
    assert found.missing() == [(1, 0), (2, 0)]
    assert found.picture()[2:5] == [f"0 ■·{LEAK}", f"1 {MISSING}■·", f"2 {MISSING}■■"]


def test_a_map_judged_one_way_marks_that_way_alone() -> None:
    rows = [[99.0, 50.0], [0.0, 99.0]]
    assert [line[2:] for line in example(rows, judged=("above",)).picture()[2:4]] == [f"■{LEAK}", "·■"]
    assert [line[2:] for line in example(rows, judged=("below",)).picture()[2:4]] == ["■■", f"{MISSING}■"]


def test_the_map_is_drawn_as_a_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "map.png"
    write_influence_plot(example([[99, 0], [0, 99]]), path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_plot_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from cs336_harness.subject.failures import CannotJudgeError

    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(CannotJudgeError, match="uv sync --extra plots"):
        write_influence_plot(example([[99.0]]), tmp_path / "map.png")


def test_wrong_numbers_without_a_leak_are_the_snapshots_to_tell() -> None:
    flow = "information_flow.prefix_equivalence[short]"
    assert result_of(flow, subject_of(RoundedByLength)).outcome == "passed"
    wrong = Suite(subject_of(NoOutputProjection), diagnose=False).result(all_checks()[flow])
    assert (wrong.outcome, wrong.blocked_by) == ("blocked", "components.multihead_self_attention")
    leak = Suite(subject_of(SeesTheNext), diagnose=False).result(all_checks()[flow])
    assert (leak.outcome, leak.blocked_by) == ("failed", None)
