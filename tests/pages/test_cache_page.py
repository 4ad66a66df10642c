"""docs/CACHE.md shows what the dictionary and the account give."""

from __future__ import annotations

import contextlib
import re
import shlex
from pathlib import Path

import pytest

from cs336_harness.cli import main
from cs336_harness.defects import all_defects
from cs336_harness.defects.cached import CacheDefect
from cs336_harness.shapes import DecoderShape

PAGE = (Path(__file__).parents[2] / "docs" / "CACHE.md").read_text(encoding="utf-8")
SHAPE = DecoderShape(
    vocab_size=7, context_length=8, d_model=4, num_layers=1, num_heads=1, num_kv_heads=1, d_ff=8, rope_theta=100.0
)
SHOWN: dict[str, type[CacheDefect]] = {
    "right": CacheDefect,
    "mask ignores held keys": all_defects()["cache-mask-ignores-held-keys"],
    "no mask in later pieces": all_defects()["cache-no-mask-in-later-pieces"],
}


def block(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n(.*?)\n?<!-- end -->", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_picture_is_what_each_query_sees() -> None:
    columns = [[title, *(_row(oracle(SHAPE), query) for query in range(2))] for title, oracle in SHOWN.items()]
    rows = zip(["", "position 3", "position 4"], *columns, strict=True)
    widths = (17, 9, 28, 0)
    drawn = ["".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    assert block("picture") == "\n".join(["```", *drawn, "```"])


def _row(oracle: CacheDefect, query: int) -> str:
    seen = oracle.visible_in_piece(query, new=2, held=3)
    return "".join("■" if key in seen else "·" for key in range(5))


def test_the_table_is_what_its_command_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (command,) = re.findall(r"^uv run cs336 (account .+)$", PAGE, re.MULTILINE)
    monkeypatch.setattr("sys.argv", ["cs336", *shlex.split(command)])
    with contextlib.suppress(SystemExit):
        main()
    table = "\n".join(line for line in capsys.readouterr().out.splitlines() if line.startswith("|"))
    assert block("memory") == table


def test_the_number_of_known_mistakes_is_theirs() -> None:
    wrong = [item for item in all_defects().values() if issubclass(item, CacheDefect) and item.equivalent is None]
    assert f"these and {len(wrong) - 2} more" in " ".join(PAGE.split())
