"""Readings of the feed-forward's parts: the activation's curve, and what the gate is multiplied with.

Shapes: Z values at which the curve is read; D = d_model, F = d_ff.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from cs336_harness.defects import Place
from cs336_harness.diagnosis.readings.reading import ROUNDING, Reading, ask, differ, factor, number, table
from cs336_harness.reference.weights import normal
from cs336_harness.subject.calling import Subject

VALUES = torch.tensor([-4.0, -2.0, -1.0, 0.0, 0.5, 1.0, 2.0, 4.0], dtype=torch.float64)
HERE = Place.FEED_FORWARD
D, F = 24, 64

KNOWN: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid(z)": torch.sigmoid,
    "tanh(z)": torch.tanh,
    "relu(z)": torch.relu,
    "relu(z)²": lambda z: torch.relu(z) ** 2,
    "z": lambda z: z,
    "gelu(z)": torch.nn.functional.gelu,
    "z tanh(softplus(z))": torch.nn.functional.mish,
    "z relu6(z + 3) / 6": torch.nn.functional.hardswish,
    "(z sigmoid(z))²": lambda z: torch.nn.functional.silu(z) ** 2,
    "sigmoid(z)²": lambda z: torch.sigmoid(z) ** 2,
    "z² sigmoid(z)": lambda z: z * torch.nn.functional.silu(z),
    "z sigmoid(-z)": lambda z: z * torch.sigmoid(-z),
    "elu(z)": torch.nn.functional.elu,
    "softplus(z)": torch.nn.functional.softplus,
}
"""Curves that can be told in a few signs."""


def _silu(z: Tensor) -> Tensor:
    return z * torch.sigmoid(z)


def _curve(read: Tensor, what: str) -> Reading | None:
    right = _silu(VALUES)
    if not differ(read, right):
        return None
    lines = table("z", [number(float(z)) for z in VALUES], right.tolist(), read.tolist())
    return Reading(
        f"{what} is {_formula(read)}, must be z sigmoid(z)" if _formula(read) else _at_one(read, what), HERE, lines
    )


def _at_one(read: Tensor, what: str) -> str:
    at = int((read - _silu(VALUES)).abs().argmax())
    z, got, must = (number(float(values[at])) for values in (VALUES, read, _silu(VALUES)))
    return f"{what} at {z} is {got}, must be {must}"


def _formula(read: Tensor) -> str | None:
    for formula, function in KNOWN.items():
        if not differ(read, function(VALUES)):
            return formula
    for formula, function in {"z sigmoid(z)": _silu, **KNOWN}.items():
        curve = function(VALUES)
        scale = float((read * curve).sum() / (curve * curve).sum())
        if abs(scale) > 1e-3 and not differ(read, scale * curve):
            return f"{number(scale)} × {formula}"
    added = read - _silu(VALUES)
    if not differ(added, added[:1].expand_as(added)):
        return f"z sigmoid(z) {'+' if float(added[0]) > 0 else '-'} {number(abs(float(added[0])))}"
    gate = float(read[VALUES == 1.0])
    if 0 < gate < 1:
        slope = float(torch.logit(torch.tensor(gate, dtype=torch.float64)))
        if not differ(read, VALUES * torch.sigmoid(slope * VALUES)):
            return f"z sigmoid({number(slope)} z)"
    return None


def read_silu(subject: Subject) -> Reading | None:
    """The curve of ``run_silu``."""
    given = VALUES.to(torch.float32).view(2, 4)
    read = ask(subject, "run_silu", given.shape, in_features=given)
    return None if read is None else _curve(read.flatten(), "the activation")


def read_swiglu(subject: Subject) -> Reading | None:
    """The curve that w1's output goes through, and what w3's output is good for: each alone, in one hidden channel."""
    gated = _hidden(subject, VALUES, torch.ones_like(VALUES))
    if gated is None:
        return None
    added = _added_input(subject)
    if added is not None:
        return added
    linear = _hidden(subject, torch.full_like(VALUES, 2.0), VALUES)
    nothing = _hidden(subject, torch.zeros_like(VALUES), torch.zeros_like(VALUES))
    if linear is None or nothing is None:
        return None
    if float(nothing.abs().max()) > 1e-4:
        text = f"an input of zeros gives {number(float(nothing.flatten()[0]))}, must give 0: something is added"
        return Reading(text, HERE)
    straight = linear / float(_silu(torch.tensor(2.0)))
    if not differ(gated, VALUES * float(_silu(torch.tensor(1.0)))) and not differ(linear, 2 * _silu(VALUES)):
        return Reading(
            "w3's output goes through the activation and w1's does not; it must be the other way round", HERE
        )
    formed = _form(subject)
    if formed is not None:
        return formed
    ungated = _hidden(subject, VALUES, torch.zeros_like(VALUES))
    if ungated is not None and float(ungated.abs().max()) > 1e-4:
        lines = table("w1 x", [number(float(z)) for z in VALUES], [0.0] * len(VALUES), ungated.tolist())
        return Reading("where w3 x is 0 the result is not 0: w3's output is not multiplied with the gate", HERE, lines)
    return _gate(straight) or _curve(gated, "the curve that w1's output goes through")


def _added_input(subject: Subject) -> Reading | None:
    """Whether the feed-forward gives its input too: all weights are zero, so nothing else can come out."""
    x = normal(1, 3, D, seed=34)
    weights = {"w1_weight": torch.zeros(F, D), "w2_weight": torch.zeros(D, F), "w3_weight": torch.zeros(F, D)}
    out = ask(subject, "run_swiglu", x.shape, d_model=D, d_ff=F, in_features=x, **weights)
    times = None if out is None else factor(out, x.to(torch.float64))
    if times is None or abs(times) < ROUNDING:
        return None
    how = "its input" if abs(times - 1) < ROUNDING else f"{number(times)} times its input"
    text = f"with weights of zero, the feed-forward gives {how}, must give 0: the block adds x, not the feed-forward"
    return Reading(text, HERE)


FORMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "silu(a + b) · b": lambda a, b: _silu(a + b) * b,
    "silu(a + b) · a": lambda a, b: _silu(a + b) * a,
    "silu(a + b)": lambda a, b: _silu(a + b),
    "silu(a) · (a + b)": lambda a, b: _silu(a) * (a + b),
    "silu(a · b)": lambda a, b: _silu(a * b),
    "silu(a · b) · b": lambda a, b: _silu(a * b) * b,
    "silu(a) · b · a": lambda a, b: _silu(a) * b * a,
    "silu(a) · b · b": lambda a, b: _silu(a) * b * b,
    "silu(a) · silu(b)": lambda a, b: _silu(a) * _silu(b),
    "silu(silu(a)) · b": lambda a, b: _silu(_silu(a)) * b,
    "silu(silu(a) · b)": lambda a, b: _silu(_silu(a) * b),
    "silu(a) + b": lambda a, b: _silu(a) + b,
    "silu(a) - b": lambda a, b: _silu(a) - b,
    "silu(a) · b + a": lambda a, b: _silu(a) * b + a,
    "silu(a) · b + b": lambda a, b: _silu(a) * b + b,
    "silu(a) · (1 + b)": lambda a, b: _silu(a) * (1 + b),
    "silu(a) · a": lambda a, b: _silu(a) * a,
    "silu(a)": lambda a, b: _silu(a),
    "silu(b)": lambda a, b: _silu(b),
    "silu(b) · a": lambda a, b: _silu(b) * a,
    "silu(b) · b": lambda a, b: _silu(b) * b,
    "a · b": lambda a, b: a * b,
}
"""What a hidden channel may be made of, a = w1 x and b = w3 x; the activation's own curve is read by itself."""


def _form(subject: Subject) -> Reading | None:
    a = torch.tensor([-1.5, -0.5, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0], dtype=torch.float64)
    b = torch.tensor([0.5, -2.0, 1.5, -1.0, 2.0, -0.25, 1.0, 0.75], dtype=torch.float64)
    read = _hidden(subject, a, b)
    if read is None or not differ(read, _silu(a) * b):
        return None
    form = next((form for form, of in FORMS.items() if not differ(read, of(a, b))), None)
    if form is None:
        return None
    lines = table("a, b", [f"{x:g}, {y:g}" for x, y in zip(a, b, strict=True)], (_silu(a) * b).tolist(), read.tolist())
    return Reading(f"with a = w1 x and b = w3 x, what w2 gets is {form}, must be silu(a) · b", HERE, lines)


def _gate(straight: Tensor) -> Reading | None:
    """w3's output must act as it is, but for one factor that the curve's own reading tells."""
    if factor(straight, VALUES) is not None:
        return None
    lines = table("w3 x", [number(float(z)) for z in VALUES], VALUES.tolist(), straight.tolist())
    name = _formula(straight)
    as_what = f"acts as {name}" if name else "does not act"
    return Reading(f"w3's output, z, {as_what}, must act as it is", HERE, lines)


def _hidden(subject: Subject, first: Tensor, second: Tensor) -> Tensor | None:
    """What one hidden channel gives when w1 x is ``first`` and w3 x is ``second``: (Z), (Z) -> (Z)."""
    x = torch.zeros(1, len(VALUES), D)
    x[0, :, 0], x[0, :, 1] = first.to(torch.float32), second.to(torch.float32)
    w1, w2, w3 = torch.zeros(F, D), torch.zeros(D, F), torch.zeros(F, D)
    w1[0, 0] = w3[0, 1] = w2[0, 0] = 1.0
    weights = {"w1_weight": w1, "w2_weight": w2, "w3_weight": w3}
    out = ask(subject, "run_swiglu", x.shape, d_model=D, d_ff=F, in_features=x, **weights)
    return None if out is None else out[0, :, 0]
