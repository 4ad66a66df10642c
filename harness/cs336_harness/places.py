"""Where the harness's own files lie, in its clone and where it is installed."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
"""The harness's own files: never the subject's, even where they lie inside the subject's repository."""

HOME = PACKAGE.parents[1]
"""The repository that the harness stands in."""

FIXTURES = HOME / "fixtures"
"""The public snapshots."""

TEMPLATES = PACKAGE / "course" / "templates"
"""Files of the handout that are written for it."""
