"""Readings of the linear layer, the embedding, the softmax and the norm.

Shapes: R rows, D = d_model, V = vocab_size.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from cs336_harness.defects import Place
from cs336_harness.diagnosis.readings.reading import ROUNDING, Reading, ask, differ, factor, number, span, table
from cs336_harness.reference.weights import normal
from cs336_harness.subject.calling import Subject

D_IN, D_OUT = 10, 6


def read_linear(subject: Subject) -> Reading | None:
    """The matrix and the bias: unit vectors and zeros go in."""
    weight = normal(D_OUT, D_IN, seed=3)
    given = torch.cat([torch.zeros(1, D_IN), torch.eye(D_IN)])[None]
    sizes = {"d_in": D_IN, "d_out": D_OUT, "weights": weight}
    read = ask(subject, "run_linear", (1, D_IN + 1, D_OUT), in_features=given, **sizes)
    if read is None:
        return None
    bias, matrix = read[0, 0], (read[0, 1:] - read[0, :1]).T
    if float(bias.abs().max()) > 1e-5:
        even = not differ(bias, bias[:1].expand_as(bias))
        text = f"{number(float(bias[0]))}" + ("" if even else " and other numbers")
        return Reading(f"an input of zeros gives {text}, must give 0: a bias is added", Place.LINEAR)
    scale = factor(matrix, weight.to(torch.float64))
    if scale is not None and abs(scale - 1) > ROUNDING:
        return Reading(f"the output is {number(scale)} times W x", Place.LINEAR)
    if scale is None:
        return _first_entry(matrix, weight.to(torch.float64))
    return None


def _first_entry(matrix: Tensor, weight: Tensor) -> Reading:
    row, column = divmod(int((matrix - weight).abs().argmax()), D_IN)
    text = (
        f"output {row} gets {number(float(matrix[row, column]))} times input {column},"
        f" must get W[{row}, {column}] = {number(float(weight[row, column]))}"
    )
    return Reading(text, Place.LINEAR)


def read_embedding(subject: Subject) -> Reading | None:
    """Which row each token gets, and by what factor, of a small vocabulary and of a larger one."""
    width = 5
    for rows in (7, 300):
        weights = normal(rows, width, seed=4)
        given = torch.arange(rows)[None]
        sizes = {"vocab_size": rows, "d_model": width, "weights": weights}
        read = ask(subject, "run_embedding", (1, rows, width), **sizes, token_ids=given)
        found = None if read is None else rows_of_tokens(read[0], weights.to(torch.float64))
        if found is not None:
            return found
    return None


def rows_of_tokens(read: Tensor, right: Tensor) -> Reading | None:
    """Which of the rows ``right`` each token got, both (V, D)."""
    scale = factor(read, right)
    if scale is not None:
        same = abs(scale - 1) <= ROUNDING
        return None if same else Reading(f"every token's vector is {number(scale)} times its row", Place.EMBEDDING)
    got = _rows_got(read, right)
    if got is not None and got != list(range(len(right))):
        return _other_rows(got)
    sized = _own_sizes(read, right)
    if sized is not None:
        return sized
    for token in range(len(right)):
        if not differ(read[token], right[token]):
            continue
        for row in range(len(right)):
            scale = factor(read[token], right[row])
            if scale is not None and abs(scale) > ROUNDING and not (row == token and abs(scale - 1) <= 2 * ROUNDING):
                times = "" if abs(scale - 1) <= ROUNDING else f"{number(scale)} times "
                return Reading(f"token {token} gets {times}row {row}, must get row {token}", Place.EMBEDDING)
        if float(read[token].abs().max()) < 1e-6:
            return Reading(f"token {token} gets zeros, must get row {token}", Place.EMBEDDING)
    return None


ROWS: dict[str, Callable[[int, int], int]] = {
    "ids are raised by one": lambda token, size: (token + 1) % size,
    "ids are lowered by one": lambda token, size: (token - 1) % size,
    "ids are raised by one, at most to vocab_size - 1": lambda token, size: min(token + 1, size - 1),
    "ids are lowered by one, at least to 0": lambda token, size: max(token - 1, 0),
    "ids are taken modulo vocab_size - 1": lambda token, size: token % (size - 1),
    "ids are cut to at most vocab_size - 2": lambda token, size: min(token, size - 2),
    "ids are cut to at least 1": lambda token, size: max(token, 1),
    "ids are counted from the end": lambda token, size: size - 1 - token,
    "ids have no effect": lambda token, size: 0,
    "ids are halved": lambda token, size: token // 2,
}
"""Which row an id may read in place of its own, for a vocabulary of a size."""


def _own_sizes(read: Tensor, right: Tensor) -> Reading | None:
    """Every token gets its own row, and each at another length: as it was, and as it is, both (V, D)."""
    times = (read * right).sum(1) / right.square().sum(1)
    if differ(read, times[:, None] * right) or bool((times <= 0).any()):
        return None
    lengths, own = read.norm(dim=1), right.norm(dim=1)
    longest = float(lengths.max())
    if differ(lengths, own.clamp_max(longest), 2 * ROUNDING):
        return None
    lines = table("id", range(min(8, len(own))), own[:8].tolist(), lengths[:8].tolist())
    if not differ(lengths, torch.full_like(lengths, longest)):
        text = f"every token gets its row shortened or stretched to the length {number(longest)}, must get it as it is"
    else:
        text = f"rows longer than {number(longest)} are shortened to it (max_norm?), must be given as they are"
    return Reading(f"{text}; below: the lengths", Place.EMBEDDING, lines)


def _rows_got(read: Tensor, right: Tensor) -> list[int] | None:
    """The row that each token got, as it is; None where one got something else."""
    nearest = torch.cdist(read, right).argmin(1)
    return None if any(differ(read[token], right[row]) for token, row in enumerate(nearest)) else nearest.tolist()


def _other_rows(got: list[int]) -> Reading:
    """Tokens that get each other's rows, and the one rule that fits."""
    size = len(got)
    wrong = [token for token, row in enumerate(got) if row != token]
    rule = next((rule for rule, of in ROWS.items() if got == [of(token, size) for token in range(size)]), None)
    first, right = wrong[0], [token for token in range(size) if token not in wrong]
    if rule is None and got == [token % max(first, 1) for token in range(size)]:
        rule = f"ids are taken modulo {first}"
    if rule is None and got == [min(token, first - 1) for token in range(size)]:
        rule = f"ids are cut to at most {first - 1}"
    text = f"with {size} rows, id {first} gets row {got[first]}, must get row {first}"
    text += f"; the ids {span(right)} are right" if right else ""
    text += f": {rule}" if rule else ""
    return Reading(text, Place.EMBEDDING, table("id", range(size), range(size), got) if size < 10 else ())


def read_softmax(subject: Subject) -> Reading | None:
    """What the probabilities add up to along the axis, and what the inputs were multiplied with."""
    x = normal(3, 4, 5, seed=5)
    for dim in (-1, 0, 1):
        read = ask(subject, "run_softmax", x.shape, in_features=x, dim=dim)
        if read is None:
            continue
        sums = read.sum(dim)
        if differ(sums, torch.ones_like(sums)):
            other = next(
                (axis for axis in range(3) if not differ(read.sum(axis), torch.ones_like(read.sum(axis)))), None
            )
            where = f"; along axis {other} they do" if other is not None else ""
            first = number(float(sums.flatten()[0]))
            return Reading(f"along dim={dim} the results add up to {first}, must add up to 1{where}", Place.ATTENTION)
        if bool((read <= 0).any()):
            continue
        logs = read.log() - read.log().mean(dim, keepdim=True)
        must = x.to(torch.float64) - x.to(torch.float64).mean(dim, keepdim=True)
        scale = factor(logs, must)
        if scale is not None and abs(scale - 1) > ROUNDING:
            return Reading(f"the inputs are multiplied by {number(scale)} before the exponential", Place.ATTENTION)
    return None


SIZE = 24
EPS = 1e-5


def read_norm(subject: Subject) -> Reading | None:
    """The divisor, eps, and what a gain does."""
    row = normal(SIZE, seed=6)
    scales = (1.0, 0.01, 1e-4)
    given = torch.stack([scale * row for scale in scales])[None]
    ones = _normed(subject, given, torch.ones(SIZE), EPS)
    if ones is None:
        return None
    ratio = given[0].to(torch.float64) / ones
    plus_one = _gain_plus_one(subject, given)
    if plus_one is not None or not bool(ratio.isfinite().all()):
        return plus_one
    if differ(ratio[0], ratio[0].mean().expand(SIZE)):
        return _uneven(ones, given[0].to(torch.float64))
    return _divisor(subject, row, ratio.mean(-1), scales) or _gain(subject, given)


def _normed(subject: Subject, given: Tensor, gain: Tensor, eps: float) -> Tensor | None:
    read = ask(subject, "run_rmsnorm", given.shape, d_model=SIZE, eps=eps, weights=gain, in_features=given)
    return None if read is None else read[0]


def _uneven(ones: Tensor, given: Tensor) -> Reading:
    """The result is no multiple of the row."""
    steps, wanted = ones[0, 1:] - ones[0, :-1], given[0, 1:] - given[0, :-1]
    scale = factor(steps, wanted)
    if scale is not None and abs(scale) > ROUNDING:
        moved = float((given[0] - ones[0] / scale).mean())
        mean = float(given[0].mean())
        which = ", the row's mean" if abs(moved - mean) < ROUNDING else ""
        return Reading(f"{number(moved)}{which} is subtracted before the division; nothing must be", Place.NORM)
    right = given[0] / given[0].square().mean().sqrt()
    lines = table("channel", range(6), right[:6].tolist(), ones[0, :6].tolist())
    return Reading("with gains of one the result is no multiple of the row", Place.NORM, lines)


def _divisor(subject: Subject, row: Tensor, read: Tensor, scales: tuple[float, ...]) -> Reading | None:
    """divisor² = share · mean(x²) + eps, from three scales of one row."""
    square = float(row.to(torch.float64).square().mean())
    told = _other_eps(read, square, scales)
    if told is not None:
        return told
    share = (float(read[0]) ** 2 - float(read[1]) ** 2) / (square * (scales[0] ** 2 - scales[1] ** 2))
    eps = float(read[2]) ** 2 - share * square * scales[2] ** 2
    right = [(square * scale**2 + EPS) ** 0.5 for scale in scales]
    lines = table("root mean square", [number(square**0.5 * scale) for scale in scales], right, read.tolist())
    predicted = (share * square * scales[1] ** 2 + eps) if share > 0 else -1.0
    fits = predicted > 0 and abs(predicted**0.5 / float(read[1]) - 1) < 0.02
    if abs(share - 1) > ROUNDING:
        return Reading(_other_divisor(row.to(torch.float64), float(read[0]), square), Place.NORM, lines)
    if not fits:
        size, got, must = (number(value) for value in (square**0.5 * scales[1], float(read[1]), right[1]))
        text = f"a large row is divided rightly; one with a root mean square of {size} is divided by {got}, must be"
        return Reading(f"{text} by {must}, because of eps = {EPS:g}", Place.NORM, lines)
    if abs(eps - EPS) > 0.02 * EPS:
        used = f"{eps:.2g}" if abs(eps) > 1e-10 else "0"
        return Reading(f"eps is {used}, must be {EPS:g} as it was given", Place.NORM, lines)
    larger = _normed(subject, row[None, None], torch.ones(SIZE), 0.1)
    if larger is None:
        return None
    other = float((row.to(torch.float64) / larger[0]).mean()) ** 2 - square
    if abs(other - 0.1) > 0.002:
        return Reading(f"given eps = 0.1, an eps of {number(other)} is used", Place.NORM)
    return None


OTHER_EPS: dict[str, Callable[[float], float]] = {
    "eps is added to the root mean square, must be added to the mean of squares under the root": lambda m: m**0.5 + EPS,
    "eps is a lower limit: the divisor is sqrt(max(mean(x²), eps)), must be sqrt(mean(x²) + eps)": lambda m: (
        max(m, EPS) ** 0.5
    ),
    "eps is a lower limit: the divisor is max(sqrt(mean(x²)), eps), must be sqrt(mean(x²) + eps)": lambda m: max(
        m**0.5, EPS
    ),
    "the root of eps is added to the root mean square, must be one root of the sum": lambda m: m**0.5 + EPS**0.5,
    "eps is subtracted from the mean of squares, must be added": lambda m: max(m - EPS, 0.0) ** 0.5,
}
"""What else eps may do: the divisor for a mean of squares m."""


def _other_eps(read: Tensor, square: float, scales: tuple[float, ...]) -> Reading | None:
    squares = [square * scale**2 for scale in scales]
    right = [(m + EPS) ** 0.5 for m in squares]
    for text, divisor in OTHER_EPS.items():
        other = [divisor(m) for m in squares]
        if all(abs(float(got) - value) <= 0.01 * value for got, value in zip(read, other, strict=True)):
            names = [number(m**0.5) for m in squares]
            return Reading(text, Place.NORM, table("root mean square", names, right, read.tolist()))
    return None


def _other_divisor(row: Tensor, read: float, square: float) -> str:
    candidates = {
        "the row's length, the root of the sum of squares": float(row.norm()),
        "the largest magnitude of the row": float(row.abs().max()),
        "the mean magnitude of the row": float(row.abs().mean()),
        "the mean of squares, without a root": square,
        "the standard deviation of the row, which subtracts the mean": float(row.std(correction=0)),
        "the standard deviation of the row as torch.std gives it, which subtracts the mean and divides by D - 1": float(
            row.std(correction=1)
        ),
        "a root mean square that divides by D - 1": (square * SIZE / (SIZE - 1)) ** 0.5,
    }
    name = next((name for name, value in candidates.items() if abs(read / value - 1) < ROUNDING), None)
    text = f"a row is divided by {number(read)}, must be by its root mean square {number(square**0.5)}"
    return f"{text}: that is {name}" if name is not None else f"{text}: {number(read / square**0.5)} times as much"


def _gain_plus_one(subject: Subject, given: Tensor) -> Reading | None:
    read = _normed(subject, given[:, :1], torch.zeros(SIZE), EPS)
    row = given[0, 0].to(torch.float64)
    if read is None or differ(read[0], row / (row.square().mean() + EPS).sqrt()):
        return None
    return Reading("gains of zero give what gains of one must give: a gain acts as 1 + gain", Place.NORM)


def _gain(subject: Subject, given: Tensor) -> Reading | None:
    gains = torch.tensor([0.25, 0.5, 1.0, 2.0, 3.0, -1.0]).repeat(SIZE // 6)
    read, ones = _normed(subject, given, gains, EPS), _normed(subject, given, torch.ones(SIZE), EPS)
    if read is None or ones is None:
        return None
    acts = (read[0] / ones[0])[:6]
    if not differ(acts, gains[:6].to(torch.float64)):
        return None
    lines = table("gain", [number(float(gain)) for gain in gains[:6]], gains[:6].tolist(), acts.tolist())
    if not differ(acts, torch.ones_like(acts)):
        return Reading("the gain has no effect", Place.NORM, lines)
    g = gains[:6].to(torch.float64)
    curves = {"g²": g * g, "sqrt(g)": g.abs().sqrt() * g.sign(), "|g|": g.abs(), "exp(g)": g.exp(), "1 / g": 1 / g}
    curves |= {"sigmoid(g)": g.sigmoid(), "softplus(g)": torch.nn.functional.softplus(g), "tanh(g)": g.tanh()}
    name = next((name for name, curve in curves.items() if not differ(acts, curve)), None)
    what = f"a gain g acts as {name}, must act as g" if name else f"a gain of 0.5 acts as {number(float(acts[1]))}"
    return Reading(what, Place.NORM, lines)
