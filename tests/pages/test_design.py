"""docs/DESIGN.md says what is there: the rooms, which way imports run, the contract, the keys of the JSON."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from cs336_harness.checks import all_checks
from cs336_harness.contract import ENTRY_POINTS
from cs336_harness.places import HOME, PACKAGE
from cs336_harness.verdict.report import to_json
from cs336_harness.verdict.suite import OUTCOMES, Result

PAGE = (HOME / "docs" / "DESIGN.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (`[^|]+) \| [^|]+\? \|", PAGE, re.MULTILINE)
ORDER = {name.removesuffix(".py"): floor for floor, row in enumerate(ROWS) for name in re.findall(r"`([\w.]+)`", row)}
"""Each room, or module at the top of the package, with the row of the table that it stands in."""


def section(title: str) -> str:
    """The text under a heading."""
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def modules_imported_by(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == PACKAGE.name:
            yield from (f"{PACKAGE.name}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def rooms_imported_by(file: Path) -> set[str]:
    return {name.split(".")[1] for name in modules_imported_by(file) if name.startswith(f"{PACKAGE.name}.")}


def room_of(file: Path) -> str:
    return file.relative_to(PACKAGE).with_suffix("").parts[0]


def test_every_room_is_on_the_page_and_every_room_of_the_page_is_there() -> None:
    there = {room_of(file) for file in PACKAGE.rglob("*.py")} - {"__init__", "__main__"}
    assert set(ORDER) == there


def test_imports_run_up_the_table_only() -> None:
    for file in PACKAGE.rglob("*.py"):
        own = room_of(file)
        if own not in ("__init__", "__main__"):
            lower = {room for room in rooms_imported_by(file) if room != own and ORDER[room] > ORDER[own]}
            assert not lower, f"{file.relative_to(PACKAGE)} imports {', '.join(sorted(lower))}, below {own}"


def test_the_harness_never_imports_the_decoder() -> None:
    for file in PACKAGE.rglob("*.py"):
        assert not any(name.partition(".")[0] == "cs336_basics" for name in modules_imported_by(file)), file


def test_the_contract_of_the_page_is_the_contract() -> None:
    named = set(re.findall(r"`((?:run|get)_\w+)`", section("The contract")))
    assert named == set(ENTRY_POINTS)


def test_the_outcomes_and_the_keys_of_the_json_are_those_of_the_code() -> None:
    text = section("Outcomes and exit status")
    assert set(re.findall(r"\*(\w+)\*", text)) == set(OUTCOMES)
    result = Result(next(iter(all_checks().values())), "passed")
    for key in (*to_json("subject", []), *result.to_json()):
        assert f"`{key}`" in text, key


def test_every_file_that_the_page_names_is_there() -> None:
    for name in re.findall(r"`((?:[\w-]+/)+[\w.-]*|[\w/]+\.(?:py|md))`", PAGE):
        assert (PACKAGE / name).exists() or (HOME / name).exists(), name
