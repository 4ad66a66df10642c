"""Inputs that nobody can know beforehand: values and sizes of a check that come from a secret. Imports no torch.

Without a secret every check asks what it always asks, and its seeds can be read in its source. Whoever grades other
people's work sets a secret for the batch: then each seed becomes HMAC-SHA256(HMAC-SHA256(secret, check id), seed), and
a submission that has recorded the public answers has nothing to answer with. The same secret gives the same inputs
again, so that a result can be proved later.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import threading
from collections.abc import Callable, Generator
from typing import ParamSpec, TypeVar

from cs336_harness.reference.precision import dtype_judged
from cs336_harness.shapes import DecoderShape

Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")


class _State(threading.local):
    """The secret of the batch, and the key of the check that is running, in this thread."""

    secret: bytes | None = None
    key: bytes | None = None


_now = _State()


def _keyed(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), hashlib.sha256)


@contextlib.contextmanager
def hidden_by(secret: str | None) -> Generator[None]:
    """Inside, every check draws its inputs from ``secret``; None leaves them public."""
    before, _now.secret = _now.secret, None if secret is None else secret.encode()
    try:
        yield
    finally:
        _now.secret = before


@contextlib.contextmanager
def inputs_of(check_id: str) -> Generator[None]:
    """Inside, seeds and sizes are those of this check."""
    before, _now.key = _now.key, None if _now.secret is None else _keyed(_now.secret, check_id)
    try:
        yield
    finally:
        _now.key = before


def hidden() -> bool:
    """Whether the inputs that are drawn now come from a secret."""
    return _now.key is not None


def seed_for(public: int) -> int:
    """The seed to draw from in place of a public one; that one itself without a secret."""
    return public if _now.key is None else int.from_bytes(_keyed(_now.key, f"seed {public}")[:7])


def more(name: str, most: int) -> int:
    """What to add to a size: between 0 and ``most``, by a name; 0 without a secret."""
    if _now.key is None or most <= 0:
        return 0
    return int.from_bytes(_keyed(_now.key, f"size {name}")[:7]) % (most + 1)


def size(name: str, public: int, *others: int) -> int:
    """A size that a secret chooses: the public one, or one of the others; the public one without a secret.

    The others are given where sizes must stay different from one another, so that no axis can stand in for another.
    """
    return (public, *others)[more(name, len(others))]


def other_sizes(shape: DecoderShape) -> DecoderShape:
    """A shape of other sizes, for what only counts: as it is without a secret."""
    d_head = shape.d_head + more("d_head", 9)
    return shape.replace(
        vocab_size=shape.vocab_size + more("vocab_size", 50),
        context_length=shape.context_length + more("context_length", 9),
        d_model=shape.num_heads * d_head if hidden() else shape.d_model,
        num_layers=shape.num_layers + more("num_layers", 3),
        d_ff=shape.d_ff + more("d_ff", 20),
    )


def cached(function: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
    """``functools.cache`` for what depends on the inputs: kept for each secret, check and dtype by itself."""

    kept: dict[object, Value] = {}

    @functools.wraps(function)
    def asked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Value:
        key = (_now.key, dtype_judged(), args, tuple(sorted(kwargs.items())))
        if key not in kept:
            kept[key] = function(*args, **kwargs)
        return kept[key]

    return asked
