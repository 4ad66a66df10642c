"""Every kind of mistake that published answers make is named when it is made, at either handout, and only then."""

import itertools
from collections.abc import Callable
from fractions import Fraction

import pytest

pytest.importorskip("hypothesis")

from hypothesis import given, settings
from hypothesis import strategies as st
from written import HANDOUTS, Sizes, answer, hints, verdict, wrong_numbers

from cs336_harness.shapes import DecoderShape
from cs336_harness.writeup.questions import judge_text

Difference = Callable[[Sizes], int]

PARAMETERS: dict[str, tuple[Difference, str]] = {
    "output projection": (lambda s: -s.L * s.D**2, "without the output projections"),
    "all projections": (lambda s: -4 * s.L * s.D**2, "without the four attention projections"),
    "head": (lambda s: -s.V * s.D, "without the head"),
    "two matrices": (lambda s: -s.L * s.D * s.F, "with two feed-forward matrices"),
    "learned positions": (lambda s: s.T * s.D, "with learned positions counted"),
    "biases": (lambda s: s.L * (4 * s.D + 2 * s.F + s.D), "with biases counted on every projection"),
    "norms": (lambda s: -(2 * s.L + 1) * s.D, "without the gains of the norms"),
}
FLOPS: dict[str, tuple[Difference, str]] = {
    "output projection": (lambda s: -2 * s.T * s.D**2 * s.L, "without the output projections"),
    "all projections": (lambda s: -8 * s.T * s.D**2 * s.L, "without the four attention projections"),
    "both T² terms": (lambda s: -4 * s.T**2 * s.D * s.L, "without the two T² terms"),
    "one T² term": (lambda s: -2 * s.T**2 * s.D * s.L, "without one of the two T² terms"),
    "T² term doubled": (lambda s: 2 * s.T**2 * s.D * s.L, "one of the two T² terms counted twice"),
    "head": (lambda s: -2 * s.T * s.D * s.V, "without the head"),
    "two matrices": (lambda s: -2 * s.T * s.D * s.F * s.L, "with two feed-forward matrices"),
    "look-up": (lambda s: 2 * s.T * s.D * s.V, "with the embedding look-up counted as a matrix multiply"),
}


@pytest.fixture(params=list(HANDOUTS), ids=list(HANDOUTS))
def sizes(request: pytest.FixtureRequest) -> Sizes:
    return Sizes(HANDOUTS[request.param])


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_count_is_told_what_it_forgot_or_added(sizes: Sizes, name: str):
    difference, words = PARAMETERS[name]
    count = sizes.parameters + difference(sizes)
    text = answer(sizes.shape, parameters=f"{count:,} parameters", memory=f"{4 * count:,} bytes")
    wrong = wrong_numbers(text)
    assert len(wrong) == 2
    assert words in wrong[0].hints[0]
    assert "4 bytes for each parameter of line" in wrong[1].hints[0]


@pytest.mark.parametrize("name", FLOPS)
def test_a_total_is_told_what_it_forgot_or_added(sizes: Sizes, name: str):
    difference, words = FLOPS[name]
    total = sizes.flops + difference(sizes)
    text = answer(sizes.shape, total=f"{total:,}")
    assert words in hints(text)
    assert judge_text(text).answers["b.sum"].verdict == "wrong"


@pytest.mark.parametrize("names", list(itertools.combinations(PARAMETERS, 2)), ids=" and ".join)
def test_two_mistakes_in_a_count_are_both_named(sizes: Sizes, names: tuple[str, str]):
    _require_both(sizes, names, PARAMETERS, sizes.parameters, "parameters", "{:,} parameters")


@pytest.mark.parametrize("names", list(itertools.combinations(FLOPS, 2)), ids=" and ".join)
def test_two_mistakes_in_a_total_are_both_named(sizes: Sizes, names: tuple[str, str]):
    _require_both(sizes, names, FLOPS, sizes.flops, "total", "{:,}")


def _answer(shape: DecoderShape, what: str, written: str) -> str:
    return answer(shape, parameters=written) if what == "parameters" else answer(shape, total=written)


def _require_both(sizes: Sizes, names: tuple[str, str], mistakes: dict, true: int, what: str, form: str) -> None:
    differences = {name: difference(sizes) for name, (difference, _) in mistakes.items()}
    wrong = sum(differences[name] for name in names)
    contained = {"output projection", "all projections"} <= set(names) or {"both T² terms", "one T² term"} <= set(names)
    if wrong == 0 or contained or ("T² term doubled" in names and "T² terms" in " ".join(names)):
        return
    said = hints(_answer(sizes.shape, what, form.format(true + wrong)))
    if wrong in differences.values():
        assert any(mistakes[name][1] in said for name, value in differences.items() if value == wrong)
    else:
        assert all(mistakes[name][1] in said for name in names), said


@pytest.mark.parametrize(
    ("memory", "words"),
    [
        (lambda p: f"{2 * p:,} bytes", "at 2 bytes per float32, which has 4"),
        (lambda p: f"{2 * p / 1e9:.2f} GB", "at 2 bytes per float32"),
        (lambda p: f"{4 * p / 1e9:.2f} GiB", "in GB but written as GiB"),
        (lambda p: f"{4 * p / 1e9:.2f} MB", "a thousand times too small"),
        (lambda p: f"{4 * p / 1e9:.2f} TB", "a thousand times too large"),
        (lambda p: f"{16 * p / 1e9:.2f} GB", "AdamW moments"),
    ],
)
def test_memory_in_the_wrong_unit(sizes: Sizes, memory: Callable[[int], str], words: str):
    text = answer(sizes.shape, memory=memory(sizes.parameters))
    assert words in hints(text)
    assert len(wrong_numbers(text)) == 1


@pytest.mark.parametrize("digits", [2, 3])
def test_gib_called_gb_are_right_and_remarked_upon(sizes: Sizes, digits: int):
    """Most tools print GiB as GB: the number is right, and only its unit's name is not."""
    text = answer(sizes.shape, memory=f"{4 * sizes.parameters / 2**30:.{digits}f} GB")
    assert wrong_numbers(text) == []
    assert verdict(judge_text(text), "a.memory") == "right"
    remarked = [finding.hints for finding in judge_text(text).findings if finding.hints]
    assert remarked == [("It is right in GiB (1024³ bytes each); a GB is 1000³ bytes.",)]


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        (lambda p: f"{p / 1e9:.2f} million parameters", "a thousand times too small"),
        (lambda p: f"{p / 1e6:.2f} billion parameters", "a thousand times too large"),
        (lambda p: f"{round(p, -7):,} parameters", "rounded, but written as if every digit were meant"),
    ],
)
def test_counts_with_a_slip(sizes: Sizes, parameters: Callable[[int], str], words: str):
    assert words in hints(answer(sizes.shape, parameters=parameters(sizes.parameters)))


def test_digits_cut_off_are_not_rounded():
    assert "cut off, not rounded" in hints(answer(HANDOUTS["2026"], total="3.51 TFLOPs"))


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (Fraction(1, 2), "multiply-adds (MACs), not FLOPs"),
        (Fraction(3), "forward and backward"),
        (Fraction(1000), "a thousand times too large"),
        (Fraction(1, 1000), "a thousand times too small"),
        (Fraction(1, 1024), "of one token"),
    ],
)
def test_totals_off_by_a_factor(sizes: Sizes, factor: Fraction, words: str):
    scaled = sizes.flops * factor
    total = f"{int(scaled):,}" if scaled.denominator == 1 else f"{float(scaled) / 1e9:.6f} GFLOPs"
    assert words in hints(answer(sizes.shape, total=total))


@pytest.mark.parametrize("what", ["parameters", "total"])
def test_another_d_ff_than_the_stated_one(sizes: Sizes, what: str):
    other = 6400 if sizes.F == 4288 else 4288
    changed = Sizes(sizes.shape.replace(d_ff=other))
    given = {"parameters": f"{changed.parameters:,} parameters", "total": f"{changed.flops:,}"}[what]
    said = hints(_answer(sizes.shape, what, given))
    assert f"with d_ff {other}" in said
    assert f"not the stated {sizes.F}" in said


@pytest.mark.parametrize(
    ("line", "change", "words"),
    [
        ("q_proj", lambda s: s.lines["q_proj"] // 2, "MACs"),
        ("scores", lambda s: 2 * s.lines["scores"], "T² terms counted twice"),
        ("values", lambda s: s.lines["values"] * s.H, "d_model channels in every head"),
        ("w1", lambda s: 2 * s.T * s.D * 4 * s.D * s.L if s.F != 4 * s.D else 2 * s.T * s.D * 4288 * s.L, "with d_ff"),
        ("lm_head", lambda s: s.lines["lm_head"] // s.T, "last position only"),
        ("output_proj", lambda s: s.lines["output_proj"] // s.L, "of a single block"),
    ],
)
def test_a_line_of_b_is_told_its_own_mistake(sizes: Sizes, line: str, change: Difference, words: str):
    text = answer(sizes.shape, lines={line: f"{change(sizes):,}"})
    judgement = judge_text(text)
    assert judgement.answers[f"b.{line}"].verdict == "wrong"
    assert judgement.answers["b.sum"].verdict == "wrong"
    assert words in hints(text)


def test_one_wrong_line_makes_one_mistake_of_a_total_that_follows_from_it(sizes: Sizes):
    lines = {"w3": "0"}
    wrong_line = sizes.lines["w3"] // 2
    total = sizes.flops - sizes.lines["w3"] + wrong_line
    lines = {"w3": f"{wrong_line:,}"}
    judgement = judge_text(answer(sizes.shape, lines=lines, total=f"{total:,}"))
    assert judgement.answers["b.sum"].verdict == "right"
    said = {finding.claim.number.text: finding.hints for finding in judgement.findings if finding.verdict == "wrong"}
    assert said[f"{total:,}"] == ("It is what the lines add up to; the mistake is in a line.",)
    assert "MACs" in said[f"{wrong_line:,}"][0]


def test_grouped_heads_counted_as_full_ones():
    shape = DecoderShape(
        vocab_size=128256, context_length=8192, d_model=4096, num_layers=32, num_heads=32, num_kv_heads=8, d_ff=14336
    )
    full = Sizes(shape.replace(num_kv_heads=32))
    assert judge_text(answer(shape)).passed
    assert "GQA counted as MHA" in hints(answer(shape, parameters=f"{full.parameters:,} parameters"))
    assert "GQA counted as MHA" in hints(answer(shape, total=f"{full.flops:,}"))


def test_a_tied_matrix_counted_twice_or_never():
    shape = HANDOUTS["2026"].replace(tie_embeddings=True)
    sizes = Sizes(shape)
    matrix = sizes.V * sizes.D
    assert judge_text(answer(shape)).passed
    assert "tied vocabulary matrix counted twice" in hints(
        answer(shape, parameters=f"{sizes.parameters + matrix:,} parameters")
    )
    assert "counts once and not never" in hints(answer(shape, parameters=f"{sizes.parameters - matrix:,} parameters"))


@pytest.mark.parametrize(
    ("handout", "what", "written", "right"),
    [
        ("2026", "parameters", "1,637,020,800 parameters", False),
        ("2026", "parameters", "1.64 B parameters", True),
        ("2026", "parameters", "1.637 B parameters", False),
        ("2026", "total", "3.5 TFLOPs", True),
        ("2026", "total", "3.507 TFLOPs", False),
        ("2025", "total", "3,506,703,564,800", False),
        ("2025", "total", "3,019,898,880,000", False),
        ("2025", "total", "4.5 TFLOPs", True),
    ],
)
def test_published_numbers_that_only_look_right(handout: str, what: str, written: str, right: bool):
    text = _answer(HANDOUTS[handout], what, written)
    wrong = wrong_numbers(text)
    assert [finding.claim.number.text for finding in wrong] == ([] if right else [written])
    assert right or wrong[0].hints


def test_what_published_numbers_are_told():
    assert "the original GPT-2's feed-forward" in hints(answer(HANDOUTS["2026"], parameters="1,637,020,800 parameters"))
    assert "the original GPT-2's feed-forward" in hints(answer(HANDOUTS["2026"], total="3.507 TFLOPs"))
    said = hints(answer(HANDOUTS["2025"], total="3,506,703,564,800"))
    assert "two feed-forward matrices" in said
    assert "also consistent with" in said  # four projections of D² cost as much as a third matrix of 4D²
    assert "of the feed-forward alone" in hints(answer(HANDOUTS["2025"], total="3,019,898,880,000"))


@given(st.integers(1, 10**13))
@settings(max_examples=15, deadline=None)
def test_nothing_is_named_where_nothing_fits(number: int):
    sizes = Sizes(HANDOUTS["2026"])
    said = hints(answer(sizes.shape, total=f"{number * 2 + 1:,}"))
    assert "This is" not in said  # every mistake here makes an even number


@given(st.integers(-(10**6), 10**6).filter(bool))
@settings(max_examples=15, deadline=None)
def test_a_number_that_is_off_by_anything_is_never_right(difference: int):
    sizes = Sizes(HANDOUTS["2025"])
    text = answer(sizes.shape, parameters=f"{sizes.parameters + difference:,} parameters")
    assert judge_text(text).answers["a.parameters"].verdict == "wrong"
