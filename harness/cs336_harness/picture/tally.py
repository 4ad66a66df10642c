"""How many of a class have each part wrong: the states of one decoder, counted over many."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from cs336_harness.picture.parts import PARTS, Judged, Part, states

SHARES = ((0.1, "s1"), (0.25, "s2"), (0.5, "s3"), (1.0, "s4"))
"""Up to which part of a class each shade goes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tally:
    """One part in a class of ``of``: the names of those in whose decoder it is wrong, blank, right."""

    part: Part
    of: int
    wrong: tuple[str, ...] = ()
    blank: tuple[str, ...] = ()
    right: tuple[str, ...] = ()

    @property
    def look(self) -> str:
        """The classes that it is drawn with."""
        if self.wrong:
            share = len(self.wrong) / self.of
            return "share " + next(look for most, look in SHARES if share <= most)
        return "passed" if self.right else "blank" if self.blank else "unasked"

    @property
    def sign(self) -> str:
        """What stands before its name: how many have it wrong, or a mark."""
        return str(len(self.wrong)) if self.wrong else "✓" if self.right else "○" if self.blank else ""

    @property
    def asked(self) -> bool:
        """Whether anything is known of it."""
        return bool(self.wrong or self.blank or self.right)

    @property
    def told_at(self) -> str | None:
        """The part under which a reader finds whose it is."""
        return self.part.key if self.wrong or self.blank else None

    @property
    def text(self) -> str:
        """The same in words, for a screen reader and for the title of a box."""
        said = [f"wrong in {len(self.wrong)} of {self.of}"] if self.wrong else []
        said += [f"not written in {len(self.blank)}"] if self.blank else []
        if not said:
            said = ["wrong in none"] if self.right else ["not judged"]
        return f"{self.part.name}: {', '.join(said)}"


def tallies(verdicts: Sequence[tuple[str, Iterable[Judged]]]) -> dict[str, Tally]:
    """Every part, over the checks of many decoders by name."""
    whose: dict[str, dict[str, list[str]]] = {key: {"wrong": [], "blank": [], "right": []} for key in PARTS}
    for name, checks in verdicts:
        for key, state in states(list(checks)).items():
            kind = (
                "wrong"
                if state.found
                else {"blank": "blank", "passed": "right", "advisory": "right"}.get(state.outcome)
            )
            if kind is not None:
                whose[key][kind].append(name)
    return {
        key: Tally(part, len(verdicts), **{kind: tuple(names) for kind, names in whose[key].items()})
        for key, part in PARTS.items()
    }
