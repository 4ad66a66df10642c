"""Takes along what lies outside of this folder: ``fixtures/`` of the repository, and its licence.

A source distribution holds them inside the package, where a wheel that is built from it finds them like any other file
of it. An editable install reads the repository's own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class TakeAlong(BuildHookInterface):
    """Adds the repository's snapshots and licence to the package, in a wheel and in a source distribution."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """``version`` is the kind of build: ``standard`` or ``editable``."""
        if version == "editable" or (Path(self.root) / "cs336_harness" / "fixtures").is_dir():
            return
        repository = Path(self.root).parent
        snapshots = sorted((repository / "fixtures").glob("*.safetensors"))
        if not snapshots:
            raise FileNotFoundError(f"no snapshots in {repository / 'fixtures'}: build in a clone of the repository")
        for file in (*snapshots, repository / "LICENSE"):
            build_data["force_include"][str(file)] = f"cs336_harness/{file.relative_to(repository).as_posix()}"
