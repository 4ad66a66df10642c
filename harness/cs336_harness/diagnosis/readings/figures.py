"""What was measured of a subject beside what it must be, to be drawn: rotation by pair, attention by query and key."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cs336_harness.defects import Place
from cs336_harness.diagnosis.readings import attention, rotary, self_attention
from cs336_harness.diagnosis.readings.reading import reference
from cs336_harness.subject.calling import Subject

SHOWN = 12
"""Positions of attention that are drawn."""

TURNS = (Place.POSITIONS,)
ATTENDS = (Place.POSITIONS, Place.ATTENTION, Place.HEADS, Place.MASK)


def measured(subject: Subject, name: str, where: str) -> dict[str, Any]:
    """What can be read of a program (an entry point, or ``built``) about the places that a diagnosis names."""
    places = where.split(" and ")
    figures: dict[str, Any] = {}
    if any(place in TURNS for place in places):
        turned = _rotation(subject) if name == "run_rope" else None
        figures |= {} if turned is None else {"rotation": turned}
    if any(place in ATTENDS for place in places) and name != "run_rope":
        weights = _attention(subject, name)
        figures |= {} if weights is None else {"attention": weights}
    return figures


def _rotation(subject: Subject) -> dict[str, Any] | None:
    positions = torch.arange(6)
    read = rotary.rotations(subject, positions, rotary.THETA)
    right = rotary.rotations(reference(), positions, rotary.THETA)
    if read is None or right is None:
        return None
    return {
        "theta": rotary.THETA,
        "positions": positions.tolist(),
        "read": _rounded(rotary.angles(read)),
        "must": _rounded(rotary.angles(right)),
        "mixed": bool((read.norm(dim=1) - 1).abs().max() > 1e-3 or _mixes(read)),
    }


def _mixes(turned: Tensor) -> bool:
    """Whether a channel turns into one that is not of its pair."""
    pairs = torch.block_diag(*[torch.ones(2, 2)] * (turned.shape[-1] // 2)).bool()
    return bool((turned.abs().amax(0)[~pairs] > 1e-3).any())


def _attention(subject: Subject, name: str) -> dict[str, Any] | None:
    """Attention weights of the head that is furthest off, its queries by its keys."""
    read, right = (_weights(who, name) for who in (subject, reference()))
    if read is None or right is None or read.shape != right.shape:
        return None
    head = int((read - right).abs().flatten(1).amax(-1).argmax())
    shown = slice(SHOWN)
    if float((read - right)[:, shown, shown].abs().max()) < 1e-3:
        return None
    return {
        "heads": len(read),
        "head": head,
        "read": _rounded(read[head, shown, shown]),
        "must": _rounded(right[head, shown, shown]),
    }


def _weights(subject: Subject, name: str) -> Tensor | None:
    if name == "run_scaled_dot_product_attention":
        mask = torch.ones(attention.QUERIES, attention.KEYS, dtype=torch.bool).tril(attention.KEYS - attention.QUERIES)
        read = attention.weights_of(subject, mask)
        return None if read is None else read[None]
    if name.startswith(("run_multihead", "run_transformer", "built")):
        return self_attention.weights_of(subject, name)
    return None


def _rounded(values: Tensor) -> list[list[float]]:
    return [[round(float(value), 4) + 0.0 for value in row] for row in values]
