"""The fault dictionary, and the suite judged by it: known mistakes are caught, named and placed; equals pass."""

import itertools
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from cs336_harness.checks import all_checks
from cs336_harness.commands import defects as commands
from cs336_harness.defects import (
    Defect,
    OracleDefect,
    adapters_of,
    all_defects,
    contradiction,
    real_defects,
    subject_of,
)
from cs336_harness.diagnosis import diagnose_check, small_calls
from cs336_harness.reference.oracle import Oracle
from cs336_harness.reference.oracle_adapters import OracleAdapters
from cs336_harness.subject.failures import CheckFailure
from cs336_harness.verdict import defects_pages
from cs336_harness.verdict.audit import Audited, Row, audit, row_of
from cs336_harness.verdict.suite import Suite

DOCS = Path(__file__).parents[2] / "docs"
ROWS = defects_pages.read((DOCS / defects_pages.AUDIT).read_text())
"""The audit's page, by defect."""

FIRST = {name: ROWS[name].told[0] for name in all_defects() if name in ROWS and ROWS[name].told}
"""The first check that tells each defect, as the page says."""

TOLD_MORE_THAN_ONCE: dict[str, str] = {}
"""The single mistakes that are told as more than one failure, each with the reason."""

SMALLEST_MARGIN = 10
NEARER = {"cache-leaves-full-pass-cached": 5}
"""Mistakes that the small case of their check moves by fewer tolerances, each with how many."""


def test_the_dictionary_has_one_order_whatever_was_imported_first() -> None:
    listed = "from cs336_harness.defects import all_defects; print(*all_defects())"
    for first in ("tying", "blocks"):
        code = f"import cs336_harness.defects.{first}; {listed}"
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert ran.stdout.split() == list(all_defects())


def test_the_dictionary_is_large_and_every_entry_teaches() -> None:
    assert len(real_defects()) >= 250
    for defect in all_defects().values():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", defect.name), defect.name
        assert defect.explanation().endswith((".", ")")), defect.name
        assert defect.hint, defect.name


def test_oracle_defects_compute_attention_as_the_oracle_does() -> None:
    small = {
        "run_scaled_dot_product_attention": small_calls.product_call(2),
        "run_multihead_self_attention_with_rope": small_calls.rotary_attention_call(),
    }
    for entry_point, arguments in small.items():
        quick, slow = (getattr(OracleAdapters(oracle), entry_point)(**arguments) for oracle in (OracleDefect, Oracle))
        torch.testing.assert_close(quick, slow)


def named(name: str) -> type[Defect]:
    return all_defects()[name]


@pytest.mark.parametrize("name", ["norm-gain-plus-one", "causal-mask-first-row-of-batch-only", "kv-heads-in-reverse"])
def test_all_heads_at_once_give_what_one_head_after_another_gives(name: str) -> None:
    class OneAfterAnother(named(name)):  # ty: ignore[unsupported-base]
        def split_head(self, projected: torch.Tensor, head: int, num_heads: int) -> torch.Tensor:
            return super().split_head(projected, head, num_heads)

    arguments = small_calls.model_call()
    both = (named(name), OneAfterAnother)
    together, apart = (OracleAdapters(oracle).run_transformer_lm(**arguments) for oracle in both)
    torch.testing.assert_close(together, apart)


def test_two_defects_that_replace_the_same_step_are_refused() -> None:
    reason = contradiction(named("causal-mask-missing"), named("causal-mask-hides-self"))
    assert reason == "causal-mask-missing and causal-mask-hides-self both replace visible_keys"
    with pytest.raises(ValueError, match="both replace visible_keys"):
        adapters_of(named("causal-mask-missing"), named("causal-mask-hides-self"))


def test_a_defect_cannot_be_there_twice_or_beside_one_that_holds_it() -> None:
    merged, both = named("heads-merged-without-transpose"), named("heads-split-and-merged-without-transpose")
    for pair in ((merged, merged), (merged, both), (both, merged)):
        assert contradiction(*pair) is not None


def test_two_defects_of_which_one_builds_on_the_other_are_both_there_in_either_order() -> None:
    scaled, padded = named("embedding-scaled-up"), named("embedding-padding-row")
    table, ids = torch.ones(3, 4), torch.tensor([0, 1])
    for pair in itertools.permutations((scaled, padded)):
        rows = adapters_of(*pair).run_embedding(vocab_size=3, d_model=4, weights=table, token_ids=ids)
        assert rows.tolist() == [[0.0] * 4, [2.0] * 4]


def test_defects_of_different_layers_are_in_one_decoder() -> None:
    assert (
        contradiction(named("causal-mask-missing"), named("tied-head-is-a-copy"), named("softmax-dim-ignored")) is None
    )


@pytest.mark.parametrize("page", [defects_pages.DEFECTS, defects_pages.AUDIT])
def test_the_pages_say_what_the_dictionary_says(page: str) -> None:
    missing = sorted({defect.name for defect in real_defects()} - set(ROWS))
    expected = "" if missing else defects_pages.pages(list(all_defects().values()), ROWS)[page]
    if (DOCS / page).read_text() != expected:
        what = f"does not judge {', '.join(missing)}" if missing else "is not what the dictionary says"
        pytest.fail(f"docs/{page} {what}; mend it with: {defects_pages.COMMAND}", pytrace=False)


def test_nearly_every_known_mistake_is_told_once() -> None:
    counted = {name: row for name, row in ROWS.items() if row.told_as != defects_pages.NOT_COUNTED}
    assert {name for name, row in counted.items() if row.told_as != "1"} == set(TOLD_MORE_THAN_ONCE)


def test_rows_that_were_judged_are_kept_when_the_rest_is_stopped(tmp_path: Path, monkeypatch: Any) -> None:
    shutil.copy(DOCS / "AUDIT.md", tmp_path)
    first = real_defects()[0].name

    def stopped(names: Sequence[str]) -> Iterator[Row]:
        for name in names[: commands.WRITTEN_EVERY]:
            yield Row(name, ("only.this_check",), ("only.this_check",), 10.0)
        raise KeyboardInterrupt

    monkeypatch.setattr("cs336_harness.verdict.audit.rows_of", stopped)
    with pytest.raises(KeyboardInterrupt):
        commands._write_pages(tmp_path, [item.name for item in real_defects()])
    kept = defects_pages.read((tmp_path / "AUDIT.md").read_text())
    assert kept[first].told == ("only.this_check",)
    assert len(kept) == len(real_defects())


def test_every_known_mistake_fails_the_check_that_the_page_names() -> None:
    passing = []
    for name, check_id in FIRST.items():
        try:
            all_checks()[check_id](subject_of(named(name)))
            passing.append(f"{name} passes {check_id}")
        except CheckFailure:
            pass
    assert not passing


def test_nearly_every_margin_on_the_page_is_ten_tolerances_or_more() -> None:
    margins = {name: row.by_margin()[0] for name, row in ROWS.items() if row.margin != "–"}
    assert len(margins) > 180
    assert {name: margin for name, margin in margins.items() if margin < SMALLEST_MARGIN} == NEARER


ONE_FOR_EACH_PLACE = {str(defect.place): defect.name for defect in reversed(real_defects()) if defect.name in FIRST}


@pytest.mark.parametrize("name", list(ONE_FOR_EACH_PLACE.values())[::3])
def test_a_known_mistake_is_named_and_placed(name: str) -> None:
    audited = audit(named(name), checks=[all_checks()[FIRST[name]]])
    assert verdict(audited) == (name, str(named(name).place))


def verdict(audited: Audited) -> tuple[str | None, str | None]:
    """Name and place that the diagnosis gives."""
    diagnosis = audited.diagnosis
    if diagnosis is None:
        return None, None
    return (diagnosis.defects[0].name if len(diagnosis.defects) == 1 else None), diagnosis.where


@pytest.mark.parametrize("name", [name for name, defect in all_defects().items() if defect.equivalent is not None])
@pytest.mark.slow
def test_an_equivalent_variation_passes_every_required_check(name: str) -> None:
    assert audit(named(name)).failing == []


@pytest.mark.slow
def test_every_known_mistake_is_named_and_placed() -> None:
    wrong = []
    for name, check_id in FIRST.items():
        found = verdict(audit(named(name), checks=[all_checks()[check_id]]))
        if found == (None, None):  # asked first, it may be blocked by what the whole suite asks before it
            found = verdict(audit(named(name)))
        if found != (name, str(named(name).place)):
            wrong.append((name, *found))
    assert not wrong


@pytest.mark.slow
def test_the_rows_of_the_page_are_what_the_suite_says() -> None:
    said = [defects_pages.Written.of(row_of(defect.name)) for defect in real_defects()[::8]]
    assert [row for row in said if (row.told, row.counts) != (ROWS[row.name].told, ROWS[row.name].counts)] == []


@pytest.mark.slow
def test_of_two_mistakes_at_once_both_are_named() -> None:
    draw = random.Random(2)
    pairs = [pair for pair in (draw.sample(real_defects(), 2) for _ in range(20)) if contradiction(*pair) is None]
    both = 0
    for pair in pairs:
        suite = Suite(subject_of(*pair))
        results = list(suite.run(check for check in all_checks().values() if not check.advisory))
        told = {d.name for result in results if result.diagnosis is not None for d in result.diagnosis.defects}
        both += {defect.name for defect in pair} <= told
    assert both >= 0.8 * len(pairs)


def test_nothing_is_said_of_a_check_that_has_nothing_to_do_with_it() -> None:
    check = all_checks()["components.rope"]
    assert diagnose_check(subject_of(named("silu-is-relu")), check, CheckFailure("it failed")) is None
