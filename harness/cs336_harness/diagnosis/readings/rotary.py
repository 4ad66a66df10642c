"""Readings of ``run_rope``: unit vectors go in, so that the rotation itself comes out.

Shapes: P pairs, d = 2 P channels of a head, T positions; a rotation (T, d, d) turns the channel of its last axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from cs336_harness.defects import Place
from cs336_harness.diagnosis.readings.reading import (
    ROUNDING,
    Reading,
    ask,
    differ,
    number,
    radians,
    reference,
    span,
    table,
)
from cs336_harness.subject.calling import Subject

WIDTH = 8
THETA, OTHER_THETA = 100.0, 10000.0
REACH = 400
"""The max_seq_len of the calls."""
HERE = Place.POSITIONS


def rotations(subject: Subject, positions: Tensor, theta: float, reach: int = REACH) -> Tensor | None:
    """What becomes of each unit vector at each position: (T, d, d); None when the call raises."""
    time = positions.shape[-1]
    units = torch.eye(WIDTH)[:, None, :].expand(WIDTH, time, WIDTH).contiguous()
    arguments = {"d_k": WIDTH, "theta": theta, "max_seq_len": reach, "token_positions": positions}
    turned = ask(subject, "run_rope", units.shape, in_query_or_key=units, **arguments)
    return None if turned is None else turned.permute(1, 2, 0)


def angles(turned: Tensor) -> Tensor:
    """Radians of each pair at each position: (T, d, d) -> (T, P)."""
    first, second = torch.arange(0, WIDTH, 2), torch.arange(1, WIDTH, 2)
    return torch.atan2(turned[:, second, first], turned[:, first, first])


def read_rotary(subject: Subject) -> Reading | None:
    """Which channels turn together, by how much per position, and which position each token is taken for."""
    positions = torch.arange(6)
    turned, right = rotations(subject, positions, THETA), rotations(reference(), positions, THETA)
    if turned is None or right is None:
        return None
    return (
        _partners(turned)
        or _tables(turned)
        or _lengths(turned)
        or _frequencies(turned, right, THETA)
        or _other_theta(subject)
        or _positions(subject)
        or _slow_pairs(subject)
    )


def _partners(turned: Tensor) -> Reading | None:
    reached = turned.abs().amax(0) > ROUNDING
    for channel in range(WIDTH):
        others = [other for other in reached[:, channel].nonzero().flatten().tolist() if other // 2 != channel // 2]
        if others:
            return Reading(
                f"channel {channel} turns together with channel {span(others)}, must turn with channel {channel ^ 1}",
                HERE,
            )
    return None


TABLES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "those of position t + 1": lambda t, f: (t + 1)[:, None] * f,
    "those of position t - 1": lambda t, f: (t - 1)[:, None] * f,
    "those of half the angle": lambda t, f: t[:, None] * f / 2,
    "those of twice the angle": lambda t, f: 2 * t[:, None] * f,
    "those of the pairs in reverse order": lambda t, f: t[:, None] * f.flip(0),
    "those of the next pair": lambda t, f: t[:, None] * f.roll(-1),
    "those of the pair before": lambda t, f: t[:, None] * f.roll(1),
    "those of pair 0 in every pair": lambda t, f: t[:, None] * f[:1].expand_as(f),
}
"""At what angles the cosines or the sines may be taken in place of t · f: positions t (T), frequencies f (P)."""


def _tables(turned: Tensor) -> Reading | None:
    """Cosines and sines that do not belong to one angle: one of the two is right."""
    t, first = torch.arange(len(turned), dtype=torch.float64), torch.arange(0, WIDTH, 2)
    f = THETA ** (-first.to(torch.float64) / WIDTH)
    right = t[:, None] * f
    read = {
        "cosines": (turned[:, first, first], turned[:, first + 1, first + 1], torch.cos),
        "sines": (turned[:, first + 1, first], -turned[:, first, first + 1], torch.sin),
    }
    if any(differ(one, other) for one, other, _ in read.values()):
        return None
    wrong = [name for name, (values, _, curve) in read.items() if differ(values, curve(right))]
    if len(wrong) != 1:
        return None
    values, _, curve = read[wrong[0]]
    name = next((name for name, angles in TABLES.items() if not differ(values, curve(angles(t, f)))), None)
    if name is None:
        return None
    other = "cosines" if wrong[0] == "sines" else "sines"
    lines = table("pair", range(WIDTH // 2), curve(right)[1].tolist(), values[1].tolist())
    return Reading(f"the {other} are right, the {wrong[0]} are {name}; below: at position 1", HERE, lines)


def _lengths(turned: Tensor) -> Reading | None:
    """The first pair that is not turned but changed in another way: what its two channels become."""
    lengths = turned.norm(dim=1)
    if not differ(lengths, torch.ones_like(lengths)):
        return None
    position, channel = ((lengths - 1).abs() > ROUNDING).nonzero()[0].tolist()
    first, right = channel - channel % 2, rotations(reference(), torch.arange(len(turned)), THETA)
    if right is None:
        return None
    got, must = (each[position, first : first + 2, first : first + 2] for each in (turned, right))
    told = [
        f"channel {first + row} becomes {_sum(got[row], first)}"
        + (", as it must" if not differ(got[row], must[row]) else f", must become {_sum(must[row], first)}")
        for row in range(2)
    ]
    one_after_the_other = torch.stack([must[0], must[1, 0] * must[0] + torch.tensor([0.0, float(must[1, 1])])])
    cause = f": channel {first} is overwritten before channel {first + 1} is made of it" * (
        not differ(got, one_after_the_other)
    )
    return Reading(f"at position {position}, {'; '.join(told)}{cause}", HERE)


def _sum(row: Tensor, first: int) -> str:
    """What a new channel is made of, (2): ``0.54 x0 - 0.841 x1``."""
    sign = "-" if float(row[1]) < 0 else "+"
    return f"{number(float(row[0]))} x{first} {sign} {number(abs(float(row[1])))} x{first + 1}"


def _frequencies(turned: Tensor, right: Tensor, theta: float) -> Reading | None:
    read, must = angles(turned), angles(right)
    taken = read[0] / must[1]
    if abs(float(taken[0])) > ROUNDING and not differ(taken, taken[:1].expand_as(taken)):
        return Reading(f"position 0 is turned as position {number(float(taken[0]))}", HERE)
    if float(read[0].abs().max()) > ROUNDING:
        pair = int(read[0].abs().argmax())
        return Reading(f"at position 0, pair {pair} turns by {number(float(read[0, pair]))} rad, must not turn", HERE)
    if not differ(read, must):
        return None
    each, wanted = read[1], must[1]
    other = _other_positions(read, wanted)
    if other is not None:
        return other
    lines = table("pair", range(len(each)), wanted.tolist(), each.tolist())
    if not differ(each, wanted):
        late = int((read - must).abs().amax(-1).gt(ROUNDING).nonzero()[0])
        return Reading(
            f"position {late} is turned as position {number(float(read[late, -1] / wanted[-1]))}",
            HERE,
            table("position", range(len(read)), range(len(read)), (read[:, -1] / wanted[-1]).tolist()),
        )
    if not differ(each, -wanted):
        return Reading("every pair turns by the right angle in the opposite direction", HERE, lines)
    return Reading(_about_angles(each, wanted, theta), HERE, lines)


def _other_positions(read: Tensor, wanted: Tensor) -> Reading | None:
    """Each position turned as for another whole one, in every pair, and not by one factor: (T, P), (P)."""
    taken = (read[:, -1] / wanted[-1]).round()
    away = torch.remainder(read - taken[:, None] * wanted + math.pi, 2 * math.pi) - math.pi
    by_one_factor = torch.equal(taken, taken[1] * torch.arange(len(taken)))
    if by_one_factor or float(away.abs().max()) > ROUNDING:
        return None
    return Reading(f"the positions 0 to {len(taken) - 1} are turned as {numbers_of(taken)}", HERE)


def _about_angles(each: Tensor, wanted: Tensor, theta: float) -> str:
    """In words: another factor, another base, or the first pair that is off; radians per position, (P,) twice."""
    still = [index for index in range(len(each)) if abs(float(each[index])) < 1e-6]
    if still:
        which = f"pairs {span(still)} of 0 to {len(each) - 1} do not turn, must turn"
        return "no pair turns with the position" if len(still) == len(each) else which
    ratio = each / wanted
    if not differ(ratio, ratio[:1].expand_as(ratio)):
        by_length = abs(float(ratio[0]) * REACH - 1) < ROUNDING
        cause = f": positions are divided by max_seq_len, here {REACH}" * by_length
        return f"every pair turns by {number(float(ratio[0]))} times the angle that it must turn by{cause}"
    pair = int((ratio - 1).abs().gt(ROUNDING).nonzero()[0])
    text = f"pair {pair} turns by {radians(float(each[pair]))}, must be {number(float(wanted[pair]))}"
    steps = (each[1:] / each[:-1]).clamp_min(1e-12)
    if float(each[0]) > 0 and bool((each > 0).all()) and not differ(steps, steps[:1].expand_as(steps)):
        base = float(steps[0]) ** (-WIDTH / 2)
        if abs(float(each[0]) - 1) < ROUNDING and base > 1.01:
            base = round(base) if abs(base - round(base)) < ROUNDING * base else base
            text += f": the angles are those of theta = {base:g}, and theta is {theta:g}"
    return text


def _other_theta(subject: Subject) -> Reading | None:
    positions = torch.arange(6)
    turned, right = rotations(subject, positions, OTHER_THETA), rotations(reference(), positions, OTHER_THETA)
    if turned is None or right is None or not differ(angles(turned), angles(right)):
        return None
    before = rotations(reference(), positions, THETA)
    if before is not None and not differ(turned, before):
        return Reading(
            f"theta has no effect: given {OTHER_THETA:g}, the pairs turn as for {THETA:g}",
            HERE,
            table("pair", range(WIDTH // 2), angles(right)[1].tolist(), angles(turned)[1].tolist()),
        )
    return _frequencies(turned, right, OTHER_THETA)


GIVEN = (
    torch.tensor([0, 3, 4, 9, 11]),
    torch.tensor([5, 6, 7, 8, 9]),
    torch.tensor([255, 256, 257, 259, 301]),
)


def _positions(subject: Subject) -> Reading | None:
    """Which position each token is taken for, read off the slowest pair."""
    slowest = OTHER_THETA ** (-(WIDTH - 2) / WIDTH)
    for given in GIVEN:
        turned = rotations(subject, given, OTHER_THETA)
        if turned is None:
            continue
        taken = angles(turned)[:, -1] / slowest
        if float((taken - given).abs().max()) > 0.1:
            return Reading(
                f"the positions {tuple(given.tolist())} are turned as {numbers_of(taken)}",
                HERE,
            )
    return None


SLOW_THETA, FAR = 500000.0, 4096


def _slow_pairs(subject: Subject) -> Reading | None:
    """Pairs that turn by little per position, each where it must have turned by about a radian, or as far as can be."""
    must = SLOW_THETA ** -(torch.arange(0, WIDTH, 2, dtype=torch.float64) / WIDTH)
    positions = (1 / must).round().clamp(max=FAR - 1).long()
    turned = rotations(subject, positions, SLOW_THETA, FAR)
    if turned is None:
        return None
    each = angles(turned).diagonal() / positions
    wrong = ((each / must - 1).abs() > ROUNDING).nonzero().flatten().tolist()
    if not wrong:
        return None
    pair, ratio = wrong[0], each[wrong] / must[wrong]
    text = f"with theta {SLOW_THETA:g}, pair {pair} turns by {radians(float(each[pair]))}, must be"
    text += f" {number(float(must[pair]))}"
    if len(wrong) > 1 and not differ(ratio, ratio[:1].expand_as(ratio)):
        text += f"; the pairs {span(wrong)} all turn by {number(float(ratio[0]))} times the right angle"
    right = [other for other in range(len(each)) if other not in wrong]
    text += f"; the faster pairs {span(right)} are right" if right and right[-1] < pair else ""
    return Reading(text, HERE, table("pair", range(len(each)), must.tolist(), each.tolist()))


def numbers_of(taken: Tensor) -> str:
    """Positions, rounded where they are whole."""
    return (
        "("
        + ", ".join(f"{value:.0f}" if abs(value - round(value)) < 0.1 else number(value) for value in taken.tolist())
        + ")"
    )
