"""The influence map: which token moves which position's logits, as numbers and as a picture in the terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from cs336_harness.reference.figures import plain
from cs336_harness.reference.tolerance import TOLERANCE_IN_NOISE

REACHES, SILENT, LEAK, MISSING = "■", "·", "X", "o"

LEGEND = (
    f"{REACHES} the token moves the logits, as it must   {SILENT} it does not, as it must not",
    f"{LEAK} it comes later and moves them all the same   {MISSING} it does not move them, though it must",
)


MOST_POSITIONS = 24
"""Positions of a map that are drawn: those of the changed tokens first, and the last one."""


@dataclasses.dataclass(frozen=True, slots=True)
class InfluenceMap:
    """How far each position's logits move when one token changes.

    ``moved`` is (positions, columns): the largest change of the logits at a position, over rows and vocabulary, in
    multiples of the rounding noise, when the token at ``tokens[column]`` alone is changed. ``judged`` says which
    direction is an error here: ``above`` (a later token moves the logits), ``below`` (a token does not), or both.
    """

    moved: Tensor
    tokens: tuple[int, ...]
    judged: tuple[str, ...] = ("above", "below")
    tolerance: float = TOLERANCE_IN_NOISE

    def to_json(self) -> dict[str, Any]:
        """The map as plain data."""
        return {**dataclasses.asdict(self), "moved": self.moved.tolist()}

    @staticmethod
    def from_json(fields: dict[str, Any]) -> InfluenceMap:
        """The map that was plain data."""
        moved = torch.tensor(fields["moved"], dtype=torch.float64)
        return InfluenceMap(moved, tuple(fields["tokens"]), tuple(fields["judged"]), fields["tolerance"])

    @property
    def reaches(self) -> Tensor:
        """Whether each token moves each position's logits beyond rounding: (positions, columns), boolean."""
        return self.moved > self.tolerance

    def leaks(self) -> list[tuple[int, int]]:
        """Every (position, token) pair in which a later token moves the logits, in order of position."""
        return [(i, j) for i, j in self._pairs(self.reaches) if j > i]

    def missing(self) -> list[tuple[int, int]]:
        """Every (position, token) pair in which a token at or before the position does not move its logits."""
        return [(i, j) for i, j in self._pairs(~self.reaches) if j <= i]

    def wrong(self) -> list[tuple[int, int]]:
        """Every pair that is an error in a judged direction."""
        above = self.leaks() if "above" in self.judged else []
        return above + (self.missing() if "below" in self.judged else [])

    def _pairs(self, which: Tensor) -> list[tuple[int, int]]:
        return [(int(i), self.tokens[int(column)]) for i, column in which.nonzero()]

    def symbol(self, position: int, column: int) -> str:
        """The letter of one cell."""
        later = self.tokens[column] > position
        if bool(self.reaches[position, column]):
            return LEAK if later and "above" in self.judged else REACHES
        return SILENT if later or "below" not in self.judged else MISSING

    def figure(self) -> dict[str, Any]:
        """The map as numbers to draw: of a long input, some of its positions and tokens."""
        last = len(self.moved) - 1
        tokens = list(enumerate(self.tokens))
        kept = tokens[:: -(-len(tokens) // MOST_POSITIONS)]
        every = range(last + 1) if last < MOST_POSITIONS else sorted({*(token for _, token in kept), last})
        moved = self.moved / self.tolerance
        return {
            "positions": list(every),
            "tokens": [token for _, token in kept],
            "judged": list(self.judged),
            "tolerances": [[plain(float(moved[at, column]), 2) for column, _ in kept] for at in every],
        }

    def picture(self) -> list[str]:
        """The map in letters: one line per position, one letter per token, and the legend.

        A map of which not every token was changed shows the positions of the changed tokens and the last one.
        """
        last = len(self.moved) - 1
        positions = range(last + 1) if len(self.tokens) == last + 1 else sorted({*self.tokens, last})
        width = len(str(last))
        lines = ["rows: position of the logits; columns: position of the token that is changed"]
        for digit in range(width):
            lines.append(" " * (width + 1) + "".join(f"{token:{width}d}"[digit] for token in self.tokens))
        for position in positions:
            cells = "".join(self.symbol(position, column) for column in range(len(self.tokens)))
            lines.append(f"{position:{width}d} {cells}")
        return [*lines, *LEGEND]


def map_from_calls(
    base: Tensor, changed: Sequence[Tensor], tokens: Sequence[int], noise: float, judged: tuple[str, ...]
) -> InfluenceMap:
    """The map of one call and of one more per changed token: logits (rows, positions, vocabulary) each."""
    moved = torch.stack([(logits - base).abs().amax(dim=(0, 2)).to(torch.float64) for logits in changed], dim=1)
    return InfluenceMap(moved / noise, tuple(tokens), judged)
