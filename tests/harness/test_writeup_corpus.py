"""Answers as people write them: the kinds that were misread once, and a corpus made from the ledger."""

from pathlib import Path

import pytest
from writeup_corpus import (
    FORMATS,
    LANGUAGES,
    STYLES,
    Facts,
    blocks_of,
    is_named,
    judged,
    planted_answers,
    right_answers,
    wrong_texts,
)

from cs336_harness.cost.presets import preset
from cs336_harness.writeup.questions import judge_files

KINDS = Path(__file__).parent / "writeups"
TRUTH = dict(
    line.split("\t") for line in (KINDS / "TRUTH.tsv").read_text(encoding="utf-8").splitlines() if line[0] != "#"
)


def test_every_kind_has_its_truth():
    assert {path.name for path in KINDS.iterdir()} == {*TRUTH, "TRUTH.tsv"}


@pytest.mark.parametrize("name", TRUTH)
def test_a_kind_of_answer_is_read_as_its_writer_meant_it(name: str):
    truly_wrong = [] if TRUTH[name] == "-" else TRUTH[name].split("|")
    wrong = wrong_texts(judge_files([KINDS / name]))
    assert [text for text in wrong if not any(piece in text for piece in truly_wrong)] == []
    assert [piece for piece in truly_wrong if not any(piece in text for text in wrong)] == []


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("language", LANGUAGES)
def test_no_right_number_of_the_corpus_is_called_wrong(style: str, language: str, tmp_path: Path):
    wrong = {
        suffix: wrong_texts(judged(blocks_of(style, language, facts), suffix, tmp_path))
        for given_style, given_language, suffix, facts in right_answers(2026)
        if (given_style, given_language) == (style, language)
    }
    assert wrong == {suffix: [] for suffix in FORMATS}


@pytest.mark.parametrize("suffix", FORMATS)
def test_the_other_handout_is_read_in_every_format(suffix: str, tmp_path: Path):
    for style in STYLES:
        assert wrong_texts(judged(blocks_of(style, "en", Facts(preset("gpt2-xl", 2025))), suffix, tmp_path)) == []


def test_planted_mistakes_are_found_and_named(tmp_path: Path):
    answers = list(planted_answers(2026, 1))
    found = named = 0
    for _, phrase, style, language, suffix, facts in answers:
        judgement = judged(blocks_of(style, language, facts), suffix, tmp_path)
        found += bool(wrong_texts(judgement))
        named += is_named(judgement, phrase)
    assert len(answers) > 60
    assert found >= 0.95 * len(answers)
    assert named >= 0.95 * len(answers)
