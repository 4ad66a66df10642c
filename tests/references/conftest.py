"""Nothing in this folder is collected unless asked for: the libraries take seconds to import.

Asked for by ``uv run --group reference pytest -m reference``, or by a path into this folder.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    paths = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
    asked = re.search(r"(?<!not )\breference\b", config.option.markexpr) or any(
        path.is_relative_to(HERE) for path in paths
    )
    return None if asked else True


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The figures that tests recorded, one line each."""
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties if report.when == "call" else ():
            if name == "figure":
                terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {value}")
