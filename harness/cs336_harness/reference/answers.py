"""The oracle's answers, kept from run to run: to a public question they never change, and asking takes most of a run.

A judge on one's own machine reads what a process without any subject has written (``isolation/answering.py``); whoever
grades does not. Nothing is read or written where a secret hides the inputs or where another dtype than the usual one is
judged in. Each answer is kept with a digest of its content, so that one that was damaged is asked for anew.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import threading
from collections.abc import Callable, Generator
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from cs336_harness.reference.hidden_inputs import hidden
from cs336_harness.reference.kept import ANSWERS, Kept, kept
from cs336_harness.reference.precision import dtype_judged

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


class _State(threading.local):
    file: Kept | None = None
    new = False


_now = _State()


@contextlib.contextmanager
def answers_kept(file: Kept | None = None, *, new: bool = False) -> Generator[None]:
    """Inside, answers are read from a file, by default the user's; ``new`` ones are noted for it only on demand, where
    no subject's code was run."""
    before, before_new = _now.file, _now.new
    _now.file, _now.new = file or kept(ANSWERS), new
    try:
        yield
    finally:
        _now.file, _now.new = before, before_new


def from_run_to_run(function: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """What the function gives, kept by its name and the text of its arguments, which must say all that it depends on.

    An answer is a tensor, a float, or a tuple or a dict of answers.
    """

    made_by = f"{function.__module__}.{getattr(function, '__qualname__', '')}"

    @functools.wraps(function)
    def asked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        file = _now.file
        if file is None or hidden() or dtype_judged() != "float32":
            return function(*args, **kwargs)
        name = f"{made_by}{args}{kwargs or ''}"
        try:
            return _read(file, name)
        except LookupError:
            answer = function(*args, **kwargs)
            if _now.new:
                _note(file, name, answer)
            return answer

    return asked


def _read(file: Kept, name: str) -> Any:
    """An answer from the file; :class:`LookupError` when it is not there, or not what was written."""
    fact = file.get(name)
    if not isinstance(fact, list):
        raise LookupError(name)
    plan, count, digest = fact
    tensors = [file.get(f"{name} {number}") for number in range(int(count))]
    if _digest(plan, tensors) != digest:
        raise LookupError(name)
    return _assembled(json.loads(plan), tensors)


def _note(file: Kept, name: str, answer: Any) -> None:
    tensors: list[Tensor] = []
    plan = json.dumps(_taken_apart(answer, tensors))
    for number, tensor in enumerate(tensors):
        file.add(f"{name} {number}", tensor)
    file.add(name, [plan, str(len(tensors)), _digest(plan, tensors)])


def _digest(plan: str, tensors: list[Any]) -> str:
    content = hashlib.blake2b(plan.encode(), digest_size=16)
    for tensor in tensors:
        if isinstance(tensor, Tensor):
            content.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            content.update(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().data)
    return content.hexdigest()


def _taken_apart(answer: Any, tensors: list[Tensor]) -> Any:
    """The answer for JSON: a tensor is its number, and goes to ``tensors``; a float is its text."""
    if isinstance(answer, Tensor):
        tensors.append(answer)
        return len(tensors) - 1
    if isinstance(answer, dict):
        return {name: _taken_apart(item, tensors) for name, item in answer.items()}
    if isinstance(answer, tuple):
        return [_taken_apart(item, tensors) for item in answer]
    return float(answer).hex()


def _assembled(plan: Any, tensors: list[Any]) -> Any:
    if isinstance(plan, int):
        return tensors[plan]
    if isinstance(plan, dict):
        return {name: _assembled(item, tensors) for name, item in plan.items()}
    if isinstance(plan, list):
        return tuple(_assembled(item, tensors) for item in plan)
    return float.fromhex(plan)
