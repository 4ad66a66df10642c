"""Where the harness's own files lie, in its clone and where it is installed."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
"""The harness's own files: never the subject's, even where they lie inside the subject's repository."""


def _repository() -> Path | None:
    repository = PACKAGE.parents[1]
    return repository if PACKAGE.parent.name == "harness" and (repository / "fixtures").is_dir() else None


HOME = _repository()
"""The repository that the harness runs from, a clone or a handout; None where it is installed as a package."""

FIXTURES = PACKAGE / "fixtures" if HOME is None else HOME / "fixtures"
"""The public snapshots."""

TEMPLATES = PACKAGE / "course" / "templates"
"""Files of the handout that are written for it."""


def is_own_file(file: str, root: Path) -> bool:
    """Whether a file is one of the subject's: under its ``root``, neither installed there nor the harness's own."""
    path = Path(file)
    return (
        path.is_relative_to(root.resolve()) and "site-packages" not in path.parts and not path.is_relative_to(PACKAGE)
    )
