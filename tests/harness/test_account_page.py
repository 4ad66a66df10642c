"""docs/ACCOUNT.md shows what the commands in it print, and the published totals that the tests hold."""

import re
from pathlib import Path

import pytest
from test_account import PUBLISHED
from typer.testing import CliRunner

from cs336_harness.cli import app_of

PAGE = (Path(__file__).parents[2] / "docs" / "ACCOUNT.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```console\n\$ uv run cs336 (account [^\n]+)\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=[command[:40] for command, _ in BLOCKS])
def test_a_block_is_what_its_command_prints(command: str, shown: str):
    environment = {"COLUMNS": "80", "NO_COLOR": "1"}
    result = CliRunner().invoke(app_of("account"), command.split(), env=environment)
    assert result.stdout == shown, f"docs/ACCOUNT.md: paste what `cs336 {command}` prints"


def test_the_page_has_blocks_and_the_published_totals():
    assert len(BLOCKS) >= 2
    assert {int(number.replace(",", "")) for number in re.findall(r"\| ([\d,]{9,}) \|", PAGE)} == {
        parameters for _, parameters in PUBLISHED.values()
    }
