"""The blocks of the pages in ``docs/`` that are made here: what makes each, and how it is found in its page."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

from contrasts import encoder, gpt2, initialisation, minilm
from cs336_harness.cost.beside_gpt2 import comparison_tables
from cs336_harness.cost.presets import preset
from cs336_harness.cost.tables import ReportTable, markdown_table
from cs336_harness.cost.tally import tally

DOCS = Path(__file__).resolve().parent.parent / "docs"


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """One block: the page that shows it, and what makes its text. ``available`` says whether it can be made here."""

    name: str
    page: str
    make: Callable[[], str]
    available: Callable[[], bool] = lambda: True

    @property
    def path(self) -> Path:
        """The page."""
        return DOCS / self.page

    def shown(self) -> str:
        """The block as the page has it now. Raises ValueError when the page has no place for it."""
        return self._found()[2].strip("\n")

    def written(self) -> str:
        """The page with the block made anew."""
        found = self._found()
        text = self.path.read_text(encoding="utf-8")
        return text[: found.start(2)] + f"\n{self.make()}\n" + text[found.end(2) :]

    def _found(self) -> re.Match[str]:
        marks = rf"(<!-- {re.escape(self.name)} -->\n)(.*?)(<!-- end -->)"
        found = re.search(marks, self.path.read_text(encoding="utf-8"), flags=re.DOTALL)
        if found is None:
            raise ValueError(f"docs/{self.page} has no block <!-- {self.name} --> … <!-- end -->")
        return found


def fenced(text: str) -> str:
    """Letters as they are."""
    return f"```\n{text}\n```"


def beside_gpt2() -> list[ReportTable]:
    """``cs336 account gpt2-small --tied --num-kv-heads 4 --compare gpt2``: parameters, then FLOPs."""
    return comparison_tables(tally(preset("gpt2-small").replace(tie_embeddings=True, num_kv_heads=4)))


BLOCKS = (
    Block("gpt2 parameters", "GPT2.md", lambda: markdown_table(beside_gpt2()[0])),
    Block("gpt2 flops", "GPT2.md", lambda: markdown_table(beside_gpt2()[1])),
    Block("gpt2 positions", "GPT2.md", lambda: markdown_table(gpt2.position_table())),
    Block("residual stream", "INITIALISATION.md", lambda: markdown_table(initialisation.initialisation_table())),
    Block("maps", "ENCODER.md", lambda: fenced(encoder.maps_side_by_side())),
    Block("checks", "ENCODER.md", lambda: markdown_table(encoder.check_table())),
    Block("minilm", "ENCODER.md", lambda: fenced(minilm.picture()), minilm.is_installed),
)
"""Every block of every page."""
