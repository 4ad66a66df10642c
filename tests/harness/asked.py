"""What each check asks of a subject: every call that it makes, as a short digest. ``asked.json`` holds those agreed on.

A change of the checks that is to leave their questions alone leaves that file alone. One that is to change them writes
it again, and the difference shows which checks ask something else now:

    uv run python tests/harness/asked.py
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from broken import RIGHT
from torch import Tensor, nn

from cs336_harness.checks import Check, all_checks
from cs336_harness.contract import ENTRY_POINTS
from cs336_harness.reference.oracle_adapters import OracleAdapters
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure

FILE = Path(__file__).with_name("asked.json")
COMMAND = "uv run python tests/harness/asked.py"


class Questions:
    """The calls of one check in order.

    ``digest`` is of entry points, argument names, shapes, dtypes, and every value that is no floating-point number;
    ``sum`` and ``size`` are of the floating-point numbers, each times a factor of its own, because their last bit may
    differ from one processor to the next.
    """

    def __init__(self) -> None:
        self.calls, self.sum, self.size = 0, 0.0, 0.0
        self._digest = hashlib.blake2b(digest_size=6)

    def add(self, entry_point: str, arguments: Mapping[str, Any]) -> None:
        """One more call."""
        self.calls += 1
        self._word(entry_point)
        self._value(arguments)

    def _word(self, text: str) -> None:
        self._digest.update(f"{text}\n".encode())

    def _value(self, value: Any) -> None:
        if isinstance(value, Mapping):
            for name in sorted(value):
                self._word(name)
                self._value(value[name])
        elif isinstance(value, Tensor):
            self._word(f"{value.dtype} {tuple(value.shape)}")
            if value.is_meta:
                return
            if not value.is_floating_point():
                self._word(str(value.tolist()))
                return
            numbers = value.detach().double().flatten()
            self.sum += float((numbers * torch.arange(1 + self.calls, 1 + self.calls + len(numbers)).sin()).sum())
            self.size += float(numbers.abs().sum())
        elif not isinstance(value, nn.Module):
            self._word(repr(value))

    def to_json(self) -> list[Any]:
        """As ``asked.json`` has it."""
        return [self.calls, self._digest.hexdigest(), float(f"{self.sum:.9g}")]

    def same(self, agreed: list[Any]) -> bool:
        """Whether these are the calls that were agreed on."""
        if agreed[:2] != self.to_json()[:2]:
            return False
        return abs(self.sum - agreed[2]) <= 1e-6 * self.size + 1e-9


class Listening:
    """A correct decoder that notes what it is asked. Its models note their ids, and the weights they hold then."""

    def __init__(self) -> None:
        self.questions = Questions()
        accounting = OracleAdapters()
        for name, point in ENTRY_POINTS.items():
            answer = getattr(RIGHT, name, None) or getattr(accounting, name)
            vars(self)[name] = self._noting(name, point.arguments, answer)

    def _noting(self, name: str, names: tuple[str, ...], answer: Any) -> Any:
        @functools.wraps(answer)  # what it takes is looked at
        def call(*args: Any, **arguments: Any) -> Any:
            self.questions.add(name, {**dict(zip(names, args, strict=False)), **arguments})
            result = answer(*args, **arguments)
            if name == "get_transformer_lm":
                result.register_forward_pre_hook(hear)
            return result

        def hear(model: nn.Module, inputs: tuple[Any, ...]) -> None:  # a function: a copy of a model shares it
            self.questions.add("forward", {"token_ids": inputs[0], "weights": dict(model.named_parameters())})

        return call


def questions(check: Check) -> Questions:
    """What one check asks of a correct decoder."""
    listening = Listening()
    subject = Subject(SimpleNamespace(**{name: getattr(listening, name) for name in ENTRY_POINTS}), "subject")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            check(subject)
        except CheckFailure:
            assert check.advisory, check.id
    return listening.questions


def all_questions() -> Iterator[tuple[str, Questions]]:
    """What every check asks, by id, in the order of the ids: a check's place among the others is no question."""
    for check_id in sorted(all_checks()):
        yield check_id, questions(all_checks()[check_id])


def agreed() -> dict[str, list[Any]]:
    """What was agreed on."""
    return json.loads(FILE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    lines = [f"  {json.dumps(name)}: {json.dumps(asked.to_json())}" for name, asked in all_questions()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
