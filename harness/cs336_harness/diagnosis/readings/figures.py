"""What was measured of a subject beside what it must be, to be drawn: rotation by pair, attention by query and key,
logits by token."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from cs336_harness.defects import Place
from cs336_harness.diagnosis.readings import attention, rotary, self_attention
from cs336_harness.diagnosis.readings.reading import reference
from cs336_harness.reference.influence import map_from_calls
from cs336_harness.reference.interventions import base_ids, flow_noise, flow_shape, flow_weights, replacement_ids
from cs336_harness.subject.calling import Subject

SHOWN = 12
"""Positions of attention that are drawn."""

ATTENDS = (Place.POSITIONS, Place.ATTENTION, Place.HEADS, Place.MASK, Place.INFORMATION_FLOW)
FLOWS = (Place.MASK, Place.INFORMATION_FLOW)
ROTATES = ("run_multihead", "run_transformer", "built")
"""How the programs are called that have attention inside."""

ANGLE = 1e-2
"""Radians that an angle read through attention may be off by."""


def measured(subject: Subject, name: str, where: str) -> dict[str, Any]:
    """What can be read of a program (an entry point, or ``built``) about the places that a diagnosis names."""
    places = [place for place in Place if str(place) in where.split(" and ")]
    found = {
        "influence": _influence(subject, name) if any(place in FLOWS for place in places) else None,
        "rotation": _rotation(subject, name) if Place.POSITIONS in places else None,
        "attention": _attention(subject, name) if any(place in ATTENDS for place in places) else None,
    }
    return {kind: figure for kind, figure in found.items() if figure is not None}


def _influence(subject: Subject, name: str) -> dict[str, Any] | None:
    """Which token moves which logits of a whole decoder, where one moves what it must not, or does not what it must."""
    if name not in ("run_transformer_lm", "built"):
        return None
    token_ids, weights = base_ids(flow_shape(), flow_shape().context_length), flow_weights(flow_shape())

    def logits(token_ids: Tensor) -> Tensor | None:
        return self_attention.logits_of(subject, name, flow_shape(), weights, token_ids)

    base, changed = logits(token_ids), []
    for token in range(flow_shape().context_length):
        other = token_ids.clone()
        other[:, token] = replacement_ids(flow_shape(), token_ids, "ordinary", token)[:, token]
        changed.append(logits(other))
    known = [each for each in changed if each is not None]
    if base is None or len(known) < len(changed):
        return None
    picture = map_from_calls(base, known, range(len(known)), flow_noise(), ("above", "below"))
    return picture.figure() if picture.wrong() else None


def _rotation(subject: Subject, name: str) -> dict[str, Any] | None:
    """How far each pair turns: by ``run_rope``, or inside attention, between a token and the one before it."""
    if name == "run_rope":
        return _own_rotation(subject)
    if not name.startswith(ROTATES):
        return None
    read, right = self_attention.relative_angles(subject, name), self_attention.right_angles(name)
    if read is None or float(_turn(read - right).max()) < ANGLE:
        return None
    return {
        "theta": self_attention.ROTARY.rope_theta,
        "positions": list(range(1, read.shape[1] + 1)),
        "read": _rounded(read.T),
        "must": _rounded(right.T),
        "mixed": False,
        "relative": True,
    }


def _turn(angles: Tensor) -> Tensor:
    """How far angles are from none: a whole turn leaves no trace."""
    return (angles - 2 * math.pi * (angles / (2 * math.pi)).round()).abs()


def _own_rotation(subject: Subject) -> dict[str, Any] | None:
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
        "relative": False,
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
    if name.startswith(ROTATES):
        return self_attention.weights_of(subject, name)
    return None


def _rounded(values: Tensor) -> list[list[float]]:
    return [[round(float(value), 4) + 0.0 for value in row] for row in values]
