"""The submission's end of the pipe: loads it, and does what the checker asks, one operation at a time.

All that stands beside a submission is the room ``subject``: how an entry point is called and a model handled. No check,
no reference, no expected number, no seed and no fixture is in this process, and nothing that it answers is believed.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from cs336_harness.contract import ENTRY_POINTS, EXTRAS
from cs336_harness.grading import frames
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.built_models import BuiltModel, Inventory, build, weight_sizes
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.environment_faults import SUBJECT, environment_fault
from cs336_harness.subject.failures import (
    AbsentEntryPoint,
    BlankEntryPoint,
    CannotJudgeError,
    CheckFailure,
    WrongShape,
)
from cs336_harness.subject.loading import load, provenance
from cs336_harness.subject.own_modules import raised_by_an_import
from cs336_harness.subject.text import text_of
from cs336_harness.subject.unwritten import UnwrittenIs

MODEL_OPERATIONS = (
    "load",
    "weights",
    "inventory",
    "forward",
    "logits",
    "ids_after_forward",
    "logits_in_pieces",
    "pieces_after_call",
    "state_names",
    "gradients",
    "step",
    "set_mode",
    "draws_random_numbers",
    "copies_weight",
    "counted_flops",
    "deepcopy",
    "pickled",
    "cast",
    "moved",
    "to_empty",
    "ways_to_load_one_name",
)
"""The methods of a built model that can be asked for over the pipe; ``load_state_of`` is asked for by itself."""

BUILTIN = (
    "ValueError",
    "TypeError",
    "AssertionError",
    "TimeoutError",
    "MemoryError",
    "NotImplementedError",
    "RecursionError",
    "KeyError",
    "IndexError",
    "AttributeError",
    "ImportError",
    "SyntaxError",
    "OSError",
    "ArithmeticError",
    "RuntimeError",
    "Exception",
)
"""The kinds of exceptions that checks tell apart, the special ones before those that they are kinds of."""


class Server:
    """One submission, and the models that it has built, by number."""

    def __init__(self, connection: socket.socket, subject: Subject | None = None) -> None:
        self.connection = connection
        self.subject = subject
        self._models: dict[int, BuiltModel] = {}
        self._next = 0

    def serve(self) -> None:
        """Answers until the checker closes."""
        while (request := frames.receive(self.connection)) is not None:
            for number in request.pop("released", []):
                self._models.pop(number, None)
            unwritten = request.pop("unwritten", None)
            filled = contextlib.nullcontext() if unwritten is None else UnwrittenIs(unwritten)
            with filled:
                answer = self._answer(request.pop("ask"), request.pop("seed", 0), request)
            try:
                frames.send(self.connection, answer)
            except frames.BrokenFrame as broken:
                frames.send(self.connection, _failure(CheckFailure(f"the call returned too much: {broken}")))

    def _answer(self, ask: str, seed: int, arguments: dict[str, Any]) -> dict[str, Any]:
        operation: Callable[..., Any] = getattr(self, f"_{ask}")
        torch.default_generator.manual_seed(seed)  # there is no GPU, and asking for one takes longer than most answers
        answer: dict[str, Any] = {}
        try:
            answer["result"] = self._portable(operation(**arguments, answer=answer))
        except (CheckFailure, AbsentEntryPoint, BlankEntryPoint, CannotJudgeError) as refusal:
            answer |= _failure(refusal, self.subject)
        if self.subject is not None:
            answer["hidden_lines"] = self.subject.output.hidden_lines
            visit = self.subject.last_visit
            if visit is not None:
                answer["visit"] = [list(visit.default_dtype), list(visit.grad_enabled), visit.drew_random_numbers]
        return answer

    def _portable(self, result: Any) -> Any:
        if isinstance(result, BuiltModel):
            self._models[self._next] = result
            self._next += 1
            return self._next - 1
        if isinstance(result, Inventory):
            held = [
                [list(each.names), each.own_name, list(each.shape), each.bytes_per_element, each.trained, each.number]
                for each in result.held
            ]
            return {"tied": result.tied, "held": held}
        return result

    def _loaded(self) -> Subject:
        if self.subject is None:
            raise CannotJudgeError("nothing is loaded")
        return self.subject

    def _open(self, path: str, answer: dict[str, Any]) -> dict[str, Any]:
        """Imports the submission; the state of every entry point, and which extra arguments it takes."""
        self.subject = subject = self.subject or load(Path(path))
        return {
            "states": {name: subject.state(name) for name in ENTRY_POINTS},
            "takes": [f"{name} {extra}" for name, extra in EXTRAS if subject.takes(name, extra)],
            "provenance": provenance(subject),
        }

    def _invoke(
        self, entry_point: str, copy: bool, grad: bool, arguments: dict[str, Any], answer: dict[str, Any]
    ) -> Any:
        try:
            return self._loaded().invoke(entry_point, copy=copy, grad=grad, **arguments)
        finally:
            if not copy:  # the checker's own arguments become what this call made of its copies
                answer["after"] = {
                    name: value for name, value in arguments.items() if isinstance(value, torch.Tensor | dict)
                }

    def _evaluate(self, what: str, code: list[str], entry_points: list[str], answer: dict[str, Any]) -> Any:
        result = self._loaded().evaluate(what, code, entry_points)
        return result if isinstance(result, torch.Tensor) else text_of(result)

    def _build(self, shape: dict[str, Any], device: str | None, answer: dict[str, Any]) -> BuiltModel:
        return build(self._loaded(), DecoderShape(**shape), device=device)

    def _weight_sizes(self, shape: dict[str, Any], answer: dict[str, Any]) -> dict[str, tuple[int, ...]] | None:
        return weight_sizes(self._loaded(), DecoderShape(**shape))

    def _model(self, number: int, operation: str, arguments: list[Any], answer: dict[str, Any]) -> Any:
        if operation not in MODEL_OPERATIONS:
            raise CannotJudgeError(f"no such operation: {operation}")
        return getattr(self._model_of(number), operation)(*arguments)

    def _model_of(self, number: int) -> BuiltModel:
        if number not in self._models:
            raise CheckFailure("the model is gone")
        return self._models[number]

    def _load_state(self, number: int, source: int, how: Any, answer: dict[str, Any]) -> str:
        return self._model_of(number).load_state_of(self._model_of(source), how)


def _failure(refusal: Exception, subject: Subject | None = None) -> dict[str, Any]:
    """How a call that said no comes across: in words, and as the kind of exception that was behind it."""
    if isinstance(refusal, AbsentEntryPoint | BlankEntryPoint):
        return {"failure": {"kind": type(refusal).__name__, "entry_point": refusal.entry_point}}
    if isinstance(refusal, CannotJudgeError):
        return {"failure": {"kind": "CannotJudgeError", "message": text_of(refusal)}}
    assert isinstance(refusal, CheckFailure)
    failure: dict[str, Any] = {
        "kind": "WrongShape" if isinstance(refusal, WrongShape) else "CheckFailure",
        "message": refusal.message,
        "details": list(refusal.evidence.details),
        "raised": list(refusal.evidence.raised),
        "after": list(refusal.after),
        "entry_point": refusal.evidence.entry_point,
    }
    cause = refusal.__cause__
    if cause is not None:
        kinds = {kind.__name__ for kind in type(cause).__mro__}
        builtin = next((name for name in BUILTIN if name in kinds), "Exception")
        root = subject.root if subject is not None else None
        failure["cause"] = {
            "name": type(cause).__name__,
            "kind": builtin,
            "text": text_of(cause),
            "environment": environment_fault(cause, root, SUBJECT),
            "by_an_import": raised_by_an_import(cause, root),
        }
    return {"failure": failure}


def serve(connection: socket.socket, subject: Subject | None = None) -> None:
    """Serves one submission, or a subject that is loaded already, until the other end closes."""
    with contextlib.suppress(BrokenPipeError, ConnectionError):
        Server(connection, subject).serve()
