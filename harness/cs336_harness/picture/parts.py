"""The parts of a decoder as the handout draws it, which checks are about each, and what became of them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from cs336_harness.checks import all_checks
from cs336_harness.defects import Place
from cs336_harness.verdict.report import MARKS

Judged = Mapping[str, Any]
"""One entry of ``checks`` in the JSON result."""


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """A part with its name, and where in the handout it stands.

    ``inside`` is the part whose checks judge it where it has none of its own: it is wrong only where a diagnosis says
    that the fault is here.
    """

    key: str
    name: str
    section: str
    inside: str | None = None


PARTS: dict[str, Part] = {
    part.key: part
    for part in (
        Part("decoder", "Whole decoder", "§3.5"),
        Part("embedding", "Token embedding", "§3.3.3"),
        Part("layers", "Block", "§3.5"),
        Part("ln1", "RMSNorm before attention (ln1)", "§3.4.1"),
        Part("attention", "Multi-head self-attention", "§3.4.5"),
        Part("projections", "Q, K and V projections", "§3.4.5"),
        Part("rope", "RoPE, rotary positions", "§3.4.3"),
        Part("sdpa", "Scaled dot-product attention", "§3.4.4"),
        Part("scores", "Scores, Q Kᵀ / √d", "§3.4.4", inside="sdpa"),
        Part("mask", "Causal mask", "§3.4.4", inside="sdpa"),
        Part("softmax", "Softmax", "§3.4.4"),
        Part("heads", "Heads", "§3.4.5", inside="attention"),
        Part("output", "Output projection", "§3.4.5"),
        Part("residual1", "Residual addition around attention", "§3.5", inside="layers"),
        Part("ln2", "RMSNorm before the feed-forward (ln2)", "§3.4.1"),
        Part("feed_forward", "Feed-forward, SwiGLU", "§3.4.2"),
        Part("up", "W1 and W3", "§3.4.2"),
        Part("silu", "SiLU", "§3.4.2"),
        Part("down", "W2", "§3.4.2"),
        Part("residual2", "Residual addition around the feed-forward", "§3.5", inside="layers"),
        Part("ln_final", "Final RMSNorm (ln_final)", "§3.5"),
        Part("head", "Head, to logits", "§3.5"),
        Part("logits", "Logits", "§3.5", inside="decoder"),
        Part("tie", "Tied embedding and head", "§3.5"),
        Part("configuration", "Configuration", "§3.5"),
        Part("accounting", "Accounting: parameters and FLOPs", "§3.5"),
        Part("cache", "Key/value cache", "beyond the handout"),
    )
}

LINEAR = ("projections", "output", "up", "down", "head")
NORMS = ("ln1", "ln2", "ln_final")

BY_ENTRY_POINT: dict[str, tuple[str, ...]] = {
    "run_linear": LINEAR,
    "run_embedding": ("embedding",),
    "run_rmsnorm": NORMS,
    "run_silu": ("silu",),
    "run_swiglu": ("feed_forward",),
    "run_rope": ("rope",),
    "run_softmax": ("softmax",),
    "run_scaled_dot_product_attention": ("sdpa",),
    "run_multihead_self_attention": ("attention",),
    "run_multihead_self_attention_with_rope": ("attention",),
    "run_transformer_block": ("layers",),
}
"""The parts that a check of one component is about."""

BY_GROUP = {"tying": ("tie",), "configuration": ("configuration",), "accounting": ("accounting",)}
BY_GROUP["incremental"] = ("cache",)

BY_PLACE: dict[str, tuple[str, ...]] = {
    Place.LINEAR: LINEAR,
    Place.EMBEDDING: ("embedding",),
    Place.NORM: NORMS,
    Place.FIRST_NORM: ("ln1",),
    Place.SECOND_NORM: ("ln2",),
    Place.POSITIONS: ("rope",),
    Place.ATTENTION: ("attention",),
    Place.HEADS: ("heads",),
    Place.MASK: ("mask",),
    Place.FEED_FORWARD: ("feed_forward",),
    Place.RESIDUAL: ("residual1", "residual2"),
    Place.LAYERS: ("layers",),
    Place.FINAL_NORM: ("ln_final",),
    Place.HEAD: ("head",),
    Place.POST_PROCESSING: ("logits",),
    Place.INFORMATION_FLOW: ("decoder",),
    Place.CACHE: ("cache",),
    Place.TYING: ("tie",),
    Place.CONFIGURATION: ("configuration",),
    Place.ACCOUNTING: ("accounting",),
}
"""The parts that a diagnosis means."""

WITHIN = {"attention": ("softmax", "sdpa"), "feed_forward": ("silu",)}
"""Smaller parts: where a check of one fails and the diagnosis names the larger, the smaller is meant."""


def parts_of(check_id: str) -> tuple[str, ...]:
    """The parts that a check is about; the whole decoder where nothing smaller is meant, or the check is not known."""
    group = check_id.partition(".")[0]
    check = all_checks().get(check_id)
    if group in BY_GROUP:
        return BY_GROUP[group]
    if check is None or len(check.needs) != 1:
        return ("decoder",)
    return BY_ENTRY_POINT.get(check.needs[0], ("decoder",))


def located(judged: Judged) -> tuple[str, ...]:
    """The parts that the diagnosis of a failure says the fault is in; those of the check where it says nothing."""
    own = parts_of(judged["id"])
    diagnosis = judged.get("diagnosis")
    found: list[str] = []
    for place in str(diagnosis["where"]).split(" and ") if diagnosis else ():
        for key in BY_PLACE.get(place, ()):
            found += [part for part in own if part in WITHIN.get(key, ())] or [key]
    return tuple(dict.fromkeys(found)) or own


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """What became of one part.

    ``outcome`` is the one that it is coloured by. ``checks`` are all that are about it; ``found`` those failures whose
    diagnosis says that the fault is here. ``culprit`` is whether it is what the page opens with, ``told_at`` the part
    under which a reader finds its checks.
    """

    part: Part
    outcome: str
    checks: tuple[Judged, ...]
    found: tuple[str, ...] = ()
    culprit: bool = False
    told_at: str | None = None

    @property
    def look(self) -> str:
        """The classes that it is drawn with."""
        return self.outcome + " culprit" * self.culprit + " found" * bool(self.found)

    @property
    def sign(self) -> str:
        """What stands before its name."""
        return MARKS.get(self.outcome, "")

    @property
    def asked(self) -> bool:
        """Whether anything is known of it."""
        return bool(self.checks or self.found)

    @property
    def text(self) -> str:
        """The state in words, for a screen reader and for the title of a box."""
        counts = Counter(check["outcome"] for check in self.checks)
        said = ", ".join(f"{number} {WORDS[outcome]}" for outcome, number in counts.items())
        here = "the fault is here" if self.found else WORDS[self.outcome]
        return f"{self.part.name}: {here}" + (f" ({said})" if said else "")


WORST_FIRST = ("failed", "blank", "blocked", "advisory", "skipped", "passed")

WORDS = {
    "passed": "right",
    "failed": "wrong",
    "blocked": "blocked",
    "blank": "blank",
    "advisory": "advisory",
    "skipped": "not defined",
    "unasked": "not asked",
}
"""What an outcome is called in a picture."""


def worst(outcomes: Iterable[str]) -> str:
    """The outcome that a part of several checks is coloured by; ``skipped`` counts only where nothing else is there."""
    seen = set(outcomes)
    if "passed" in seen:
        seen.discard("skipped")
    return next((outcome for outcome in WORST_FIRST if outcome in seen), "unasked")


def states(checks: Sequence[Judged], culprit: Judged | None = None) -> dict[str, State]:
    """What became of each part."""
    own: dict[str, list[Judged]] = {key: [] for key in PARTS}
    found: dict[str, list[str]] = {key: [] for key in PARTS}
    for judged in checks:
        for key in parts_of(judged["id"]):
            own[key].append(judged)
        if judged["outcome"] == "failed":
            for key in located(judged):
                found[key].append(judged["id"])
    opened = located(culprit) if culprit is not None else ()
    asked = {key for key in PARTS if own[key] or found[key]}
    return {
        key: State(
            part,
            _outcome(part, own, found),
            tuple(own[key]),
            tuple(found[key]),
            key in opened,
            next((at for at in (key, part.inside) if at in asked), None),
        )
        for key, part in PARTS.items()
    }


def _outcome(part: Part, own: Mapping[str, list[Judged]], found: Mapping[str, list[str]]) -> str:
    if found[part.key]:
        return "failed"
    outcomes = list(_outcomes(own[part.inside or part.key], elsewhere=part.inside is not None))
    return worst(outcomes)


def _outcomes(checks: Iterable[Judged], *, elsewhere: bool) -> Iterator[str]:
    """The outcomes; where a failure is known to lie ``elsewhere``, a part can only wait for it."""
    for judged in checks:
        failed = judged["outcome"] == "failed"
        yield "blocked" if failed and elsewhere else judged["outcome"]
