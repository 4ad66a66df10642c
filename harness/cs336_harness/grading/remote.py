"""A subject in another process, behind the interface of :class:`~cs336_harness.subject.calling.Subject`.

The suite and every check run on it unchanged. What it answers is text and tensors from a process that somebody else
controls: dtype, shape and size are looked at before anything is used, and an answer that is none ends the judging.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
import socket
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeGuard

import torch
from torch import Tensor

from cs336_harness.contract import ENTRY_POINTS, EXTRAS
from cs336_harness.grading import frames
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.built_models import (
    ASSEMBLY,
    IN_PIECES,
    ONE_NAME,
    THE_MODEL,
    BuiltModel,
    Held,
    Inventory,
    Load,
    assemble,
    sizes_given,
)
from cs336_harness.subject.calling import Subject, Visit
from cs336_harness.subject.failures import (
    AbsentEntryPoint,
    BlankEntryPoint,
    CannotJudgeError,
    CheckFailure,
    Evidence,
    WrongShape,
    explained_by,
)
from cs336_harness.subject.own_modules import RaisedElsewhere
from cs336_harness.subject.text import clean
from cs336_harness.subject.time_limit import TimeUp

STATES = ("absent", "blank", "filled")
MOST_LINES = 10**6
MOST_RESTARTS = 3
MOST_PARAMETERS = 10_000
MOST_AXES = 8
KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        ValueError,
        TypeError,
        AssertionError,
        TimeoutError,
        MemoryError,
        NotImplementedError,
        RecursionError,
        KeyError,
        IndexError,
        AttributeError,
        ImportError,
        SyntaxError,
        OSError,
        ArithmeticError,
        RuntimeError,
        Exception,
    )
}


class WorkerLost(CannotJudgeError):
    """The submission's process ended, or answered with what is no answer. Nothing after it can be judged."""


class Wire:
    """One connection to a submission's process, which is asked one thing at a time.

    ``end`` kills the process and says how it ended, in words; ``seconds`` is how long it may be waited for in all,
    until :meth:`refill`.
    """

    def __init__(self, connection: socket.socket, end: Callable[[], str], seconds: float) -> None:
        self._connection = connection
        self._end = end
        self._lost: str | None = None
        self._left = self.seconds = seconds

    def refill(self) -> None:
        """Lets the process be waited for as long again: something else is asked now."""
        self._left = self.seconds

    @property
    def lost(self) -> str | None:
        """Why there is nobody at the other end any more; None while there is."""
        return self._lost

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to one request. ``TimeoutError`` when none comes in time; then the process is gone."""
        if self._lost is not None:
            raise WorkerLost(self._lost)
        started = time.monotonic()
        try:
            self._connection.settimeout(max(1e-3, self._left))
            frames.send(self._connection, request)
            answer = frames.receive(self._connection, started + self._left)
        except TimeoutError:
            self.close("it did not answer in time")
            raise
        except frames.BrokenFrame as broken:
            self.lose(str(broken))
        except OSError:
            answer = None
        if answer is None:
            self.close(f"its process ended in the middle: {self._end()}")
            raise WorkerLost(self._lost or "")
        self._left -= time.monotonic() - started
        return answer

    def lose(self, why: str) -> NoReturn:
        """Ends the process and the judging."""
        self.close(why)
        raise WorkerLost(self._lost or why)

    def close(self, why: str = "it is closed") -> None:
        """Kills the process, with all that it started."""
        if self._lost is None:
            self._lost = why
            self._connection.close()
            self._end()


class RemoteSubject(Subject):
    """A submission behind a pipe. ``connect`` opens a new process for it, which is done again after a time limit."""

    def __init__(self, connect: Callable[[], Wire], name: str, root: Path | None, path: Path | None) -> None:
        super().__init__(None, name, root, path)
        self._connect = connect
        self.wire = connect()
        self._released: list[int] = []
        self._unwritten: float | None = None
        self._states: dict[str, str] = {}
        self._takes: set[tuple[str, str]] = set()
        self.provenance = ""
        self.restarts = 0
        self.opened = False

    @property
    def lost(self) -> str | None:
        """Why nothing more can be judged; None while it can."""
        return self.wire.lost

    def open(self, path: Path | None) -> None:
        """Imports the submission. :class:`CannotJudgeError` with the one line that says why it does not load."""
        answer = self.answer("open", Evidence(), path=str(path))
        states = answer.get("states")
        if not isinstance(states, dict) or not all(states.get(name) in STATES for name in ENTRY_POINTS):
            self.wire.lose("it does not say which entry points it has")
        self._states = {name: states[name] for name in ENTRY_POINTS}
        takes = answer.get("takes")
        self._takes = {
            (name, extra) for name, extra in EXTRAS if isinstance(takes, list) and f"{name} {extra}" in takes
        }
        self.provenance = clean(str(answer.get("provenance", "")))
        self.opened = True

    def close(self) -> None:
        """Ends the submission's process."""
        self.wire.close()

    def has(self, entry_point: str) -> bool:
        """Whether it said that it defines the entry point."""
        return self.state(entry_point) != "absent"

    def takes(self, entry_point: str, argument: str) -> bool:
        """Whether it said that the function takes this argument."""
        return (entry_point, argument) in self._takes

    def state(self, entry_point: str) -> str:
        """What it said of the entry point when it was opened."""
        return self._states.get(entry_point, "absent")

    @contextlib.contextmanager
    def unwritten_is(self, number: float) -> Generator[None]:
        """The other process fills the memory, call by call."""
        self._unwritten = number
        try:
            yield
        finally:
            self._unwritten = None

    def ask(self, entry_point: str, *, copy: bool, grad: bool, arguments: Mapping[str, Any]) -> Any:
        """As in this process; without ``copy``, the arguments become what the call made of them."""
        if not self.has(entry_point):
            raise AbsentEntryPoint(entry_point, self.short_name)
        evidence = Evidence(entry_point=entry_point, arguments=dict(arguments))
        return self.answer(
            "invoke",
            evidence,
            changes=None if copy else arguments,
            what=entry_point,
            entry_point=entry_point,
            copy=copy,
            grad=grad,
            arguments=arguments,
        )

    def evaluate(self, what: str, code: Sequence[str], entry_points: Sequence[str]) -> Any:
        """As in this process."""
        return self.answer(
            "evaluate",
            Evidence(),
            what=what,
            request={"what": what, "code": list(code), "entry_points": list(entry_points)},
        )

    def answer(
        self,
        ask: str,
        evidence: Evidence,
        *,
        changes: Mapping[str, Any] | None = None,
        what: str = "the submission",
        request: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Any:
        """The result of one operation, or what the subject's side raised, with ``evidence``."""
        released, self._released = self._released, []
        filled = {} if self._unwritten is None else {"unwritten": self._unwritten}
        try:
            answer = self.wire.ask(ask=ask, seed=_seed(), released=released, **filled, **(request or {}), **more)
        except TimeoutError:
            up = TimeUp(self.wire.seconds)
            up.what, up.entry_point = what, evidence.entry_point
            self._start_again()
            raise up from None
        self._note(answer)
        if changes is not None and isinstance(answer.get("after"), dict):
            _take_over(changes, answer["after"])
        failure = answer.get("failure")
        if failure is not None:
            raise self._refusal(failure, evidence, opening=ask == "open")
        return answer.get("result")

    def _start_again(self) -> None:
        """A new process in place of one that did not answer: what else there is to judge is judged there."""
        if not self.opened or self.restarts >= MOST_RESTARTS:
            return
        self.restarts += 1
        self.wire = self._connect()
        try:
            self.open(self.path)
        except TimeUp:  # it does not even load in time now
            self.wire.close("it did not load in time again")

    def release(self, number: int) -> None:
        """A model is no longer needed; said with the next request."""
        self._released.append(number)

    def _note(self, answer: Mapping[str, Any]) -> None:
        lines = answer.get("hidden_lines")
        if type(lines) is int:
            self.output.hidden_lines = max(0, min(lines, MOST_LINES))
        match answer.get("visit"):
            case [[torch.dtype() as first, torch.dtype() as second], [bool() as on, bool() as still], bool() as drew]:
                drawn = (torch.zeros(1), torch.ones(1) if drew else torch.zeros(1))
                self.last_visit = Visit((first, second), (on, still), drawn)

    def _refusal(self, failure: Any, evidence: Evidence, *, opening: bool) -> Exception:
        if not isinstance(failure, dict):
            self.wire.lose("it refuses in a way that is none")
        kind, entry_point = failure.get("kind"), failure.get("entry_point")
        entry_point = entry_point if isinstance(entry_point, str) else None
        if kind in ("AbsentEntryPoint", "BlankEntryPoint") and entry_point in ENTRY_POINTS:
            if kind == "BlankEntryPoint":
                return BlankEntryPoint(entry_point)
            return AbsentEntryPoint(entry_point, self.short_name)
        message = clean(str(failure.get("message", "")))
        if kind == "CannotJudgeError":
            if not opening:  # the harness's own code over there has no reason to say so any more
                self.wire.lose("its process says that it cannot be judged")
            return CannotJudgeError(" ".join(message.split()))
        evidence.entry_point = evidence.entry_point or (entry_point if entry_point in ENTRY_POINTS else None)
        evidence.details = [clean(str(line), 400) for line in _list(failure.get("details"))[:40]]
        evidence.raised = tuple(clean(str(line), 400) for line in _list(failure.get("raised"))[:4])
        after = tuple(
            str(each) for each in _list(failure.get("after")) if isinstance(each, str) and each in _explaining()
        )
        made = WrongShape if kind == "WrongShape" else CheckFailure
        refusal = made(message, evidence, after)
        cause = failure.get("cause")
        if isinstance(cause, dict):
            base = KINDS.get(str(cause.get("kind")), Exception)
            name = clean(str(cause.get("name")), 60)
            environment = cause.get("environment")
            told = {
                "environment": clean(environment) if isinstance(environment, str) else None,
                "by_an_import": cause.get("by_an_import") is True,
            }
            made_there = type(name or "Exception", (RaisedElsewhere, base), told)
            refusal.__cause__ = made_there(clean(str(cause.get("text", ""))))
        return refusal


def _explaining() -> Mapping[str, Any]:
    from cs336_harness.checks import all_checks

    return all_checks()


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _seed() -> int:
    """A seed for the other process's generator, the same while this process's generator stands where it does."""
    state = torch.get_rng_state().numpy().tobytes()
    return int.from_bytes(hashlib.blake2b(state, digest_size=6).digest())


def _take_over(given: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Makes of arguments, in place, what a call in another process made of its copies of them."""
    for name, value in given.items():
        changed = after.get(name)
        if isinstance(value, Tensor) and holds_numbers(changed) and changed.dtype == value.dtype:
            if changed.shape != value.shape or not torch.equal(changed, value):
                value.data = changed
        elif isinstance(value, dict) and isinstance(changed, dict):
            _take_over(value, changed)
            for key in [key for key in value if key not in changed]:
                del value[key]
            value.update({key: item for key, item in changed.items() if key not in value})


def holds_numbers(value: Any) -> TypeGuard[Tensor]:
    """Whether it is a tensor with numbers in it: on meta there are none, and to compute with it loads a compiler."""
    return isinstance(value, Tensor) and not value.is_meta


def is_like(value: Any, shape: Sequence[int]) -> TypeGuard[Tensor]:
    """Whether it is a tensor of floating-point numbers of a shape."""
    return holds_numbers(value) and tuple(value.shape) == tuple(shape) and value.is_floating_point()


class RemoteModel(BuiltModel):
    """A model that lives in the submission's process, under a number."""

    subject: RemoteSubject

    def __init__(self, subject: RemoteSubject, shape: DecoderShape, number: int) -> None:
        self.subject = subject
        self.shape = shape
        self._number = number
        self._home = subject.wire
        self._filled: dict[str, Tensor] = {}

    def __del__(self) -> None:
        if self.subject.wire is self._home:
            self.subject.release(self._number)

    @property
    def device(self) -> torch.device:
        """The submission has no GPU."""
        return torch.device("cpu")

    def evidence(self, token_ids: Tensor | None = None, pieces: Sequence[int] = ()) -> Evidence:
        """With the weights that were loaded last: the process need not be there any more to ask."""
        arguments: dict[str, Any] = {**self.shape.model_arguments(), "weights": dict(self._filled)}
        if token_ids is not None:
            arguments["in_indices"] = token_ids
        if pieces:
            arguments["pieces"] = tuple(pieces)
        return Evidence(entry_point=ASSEMBLY[0], arguments=arguments)

    def _ask(self, operation: str, *arguments: Any, ids: Tensor | None = None, what: str = THE_MODEL) -> Any:
        self._require_home()
        request = {"number": self._number, "operation": operation, "arguments": list(arguments)}
        with self._witnessed(ids):
            return self.subject.answer("model", Evidence(entry_point=ASSEMBLY[0]), what=what, request=request)

    def _require_home(self) -> None:
        if self.subject.wire is not self._home:
            raise CheckFailure(f"{THE_MODEL} is gone: the process that held it was stopped", self.evidence())

    def _broken(self, operation: str) -> NoReturn:
        self.subject.wire.lose(f"it answers to {operation} with what is no answer")

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Sends the weights."""
        self._ask("load", dict(weights), what="loading weights")
        self._filled |= {name: weight.detach().clone() for name, weight in weights.items()}

    def weights(self) -> dict[str, Tensor]:
        """What it says its weights are, of the right names and sizes."""
        answer, sizes = self._ask("weights"), self.shape.weight_shapes()
        if not isinstance(answer, dict) or not all(is_like(answer.get(name), size) for name, size in sizes.items()):
            self._broken("weights")
        return {name: answer[name] for name in sizes}

    def inventory(self) -> Inventory:
        """What it says of its Parameters, which is all that this is anywhere."""
        match self._ask("inventory"):
            case {"tied": "one" | "one storage" | "equal values" | "other values" as tied, "held": list(held)}:
                known = self.shape.weight_shapes()
                parsed = [_held(each, known) for each in held[:MOST_PARAMETERS]]
                if None not in parsed:
                    return Inventory(tied, tuple(each for each in parsed if each is not None))
        self._broken("inventory")

    def forward(self, token_ids: Tensor, *, grad: bool = False) -> Any:
        """Whatever came across of what the model returned."""
        return self._ask("forward", token_ids, ids=token_ids)

    @explained_by("configuration.model_builds")
    def logits(self, token_ids: Tensor, grad: bool = False) -> Tensor:
        """Looked at here again, in shape, dtype and that they are finite."""
        return self._checked(token_ids, self._ask("logits", token_ids, grad, ids=token_ids))

    def ids_after_forward(self, token_ids: Tensor) -> Tensor:
        """The ids that the other process was sent, as they are now."""
        answer = self._ask("ids_after_forward", token_ids, ids=token_ids)
        if not holds_numbers(answer) or answer.is_floating_point() or answer.shape != token_ids.shape:
            self._broken("ids_after_forward")
        return answer

    @explained_by("configuration.model_builds")
    def logits_in_pieces(self, token_ids: Tensor, sizes: Sequence[int], grad: bool = False) -> list[Tensor]:
        """Looked at here again, each piece."""
        answer = self._in_pieces("logits_in_pieces", token_ids, list(sizes), grad)
        return self._checked_pieces(token_ids, sizes, answer)

    def pieces_after_call(self, token_ids: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        """What it says that its list of pieces holds now."""
        answer = self._in_pieces("pieces_after_call", token_ids, list(sizes))
        if not isinstance(answer, list) or not all(map(holds_numbers, answer)):
            self._broken("pieces_after_call")
        return answer

    def _in_pieces(self, operation: str, token_ids: Tensor, *arguments: Any) -> Any:
        self.subject.note_answer(IN_PIECES, False)
        answer = self._ask(operation, token_ids, *arguments, ids=token_ids, what=IN_PIECES)
        self.subject.note_answer(IN_PIECES, answer is not None)
        return answer

    def state_names(self) -> list[str]:
        """What it says."""
        return [clean(str(name), 400) for name in _list(self._ask("state_names"))[:MOST_PARAMETERS]]

    @explained_by("configuration.model_builds")
    def gradients(
        self, token_ids: Tensor, directions: Sequence[Tensor], names: Sequence[str] | None = None
    ) -> list[dict[str, Tensor | None]] | None:
        """Each of the size of its weight."""
        answer = self._ask("gradients", token_ids, list(directions), names and list(names), ids=token_ids)
        if answer is None:
            return None
        sizes = self.shape.weight_shapes()
        wanted = list(names or sizes)
        right = isinstance(answer, list) and len(answer) == len(directions)
        if not right or not all(isinstance(each, dict) and list(each) == wanted for each in answer):
            self._broken("gradients")
        for each in answer:
            if not all(each[name] is None or is_like(each[name], sizes[name]) for name in wanted):
                self._broken("gradients")
        return answer

    def step(self, token_ids: Tensor, direction: Tensor, rate: float) -> None:
        """One step of gradient descent, there."""
        self._ask("step", token_ids, direction, rate, ids=token_ids)

    def set_mode(self, mode: Literal["train", "eval"]) -> None:
        """``model.train()`` or ``model.eval()``, there."""
        self._ask("set_mode", mode, what=f"model.{mode}()")

    def draws_random_numbers(self, token_ids: Tensor) -> bool:
        """What it says."""
        return self._ask("draws_random_numbers", token_ids, ids=token_ids) is not False

    def copies_weight(self, token_ids: Tensor, name: str) -> bool:
        """What it says."""
        return self._ask("copies_weight", token_ids, name, ids=token_ids) is True

    def counted_flops(self, token_ids: Tensor) -> int:
        """What it says."""
        answer = self._ask("counted_flops", token_ids, ids=token_ids)
        return answer if type(answer) is int else self._broken("counted_flops")

    def _other(self, operation: str, *arguments: Any) -> RemoteModel:
        answer = self._ask(operation, *arguments, what=f"model.{operation}")
        if type(answer) is not int:
            self._broken(operation)
        other = RemoteModel(self.subject, self.shape, answer)
        other._filled = dict(self._filled)
        return other

    def deepcopy(self) -> BuiltModel:
        """A copy, there."""
        return self._other("deepcopy")

    def pickled(self) -> BuiltModel:
        """Through pickle and back, there: nothing of it is unpickled here."""
        return self._other("pickled")

    def cast(self, dtype: torch.dtype) -> BuiltModel:
        """``model.to(dtype)``, there."""
        return self._other("cast", dtype)

    def moved(self, device: str) -> BuiltModel:
        """``model.to(device)``, there."""
        return self._other("moved", device)

    def to_empty(self) -> BuiltModel:
        """``model.to_empty``, there."""
        return self._other("to_empty")

    def ways_to_load_one_name(self) -> list[Load]:
        """Of the two, as many as it says."""
        answer = self._ask("ways_to_load_one_name")
        return [how for how in ONE_NAME if how in answer] if isinstance(answer, list) else self._broken("state_dict")

    def load_state_of(self, source: BuiltModel, how: Load) -> str:
        """From one model there into the other."""
        assert isinstance(source, RemoteModel)
        self._require_home()
        request = {"number": self._number, "source": source._number, "how": how}
        with self._witnessed():
            answer = self.subject.answer(
                "load_state", Evidence(entry_point=ASSEMBLY[0]), what="load_state_dict", request=request
            )
        return clean(str(answer), 200)


def _is_size(value: Any) -> bool:
    return type(value) is tuple and len(value) <= MOST_AXES and all(type(each) is int for each in value)


def _held(given: Any, known: Mapping[str, Any]) -> Held | None:
    match given:
        case [list(names), str(own_name), list(shape), int(width), bool(trained), int(number)] if (
            all(type(size) is int and 0 <= size < 2**40 for size in shape)
            and len(shape) <= MOST_AXES
            and math.prod(shape) < 2**63
        ):
            named = tuple(name for name in known if name in names)
            return Held(named, clean(own_name, 200), tuple(shape), width, trained, number)
    return None


@assemble.register
def _(subject: RemoteSubject, shape: DecoderShape, device: str | None) -> BuiltModel:
    request = {"shape": dataclasses.asdict(shape), "device": device}
    evidence = Evidence(entry_point=ASSEMBLY[0], arguments=shape.model_arguments())
    subject.note_answer(ASSEMBLY[0], False)
    answer = subject.answer("build", evidence, what=ASSEMBLY[0], request=request)
    for entry_point in ASSEMBLY:
        subject.note_answer(entry_point, True)
    if type(answer) is not int:
        subject.wire.lose("it builds with what is no answer")
    return RemoteModel(subject, shape, answer)


@sizes_given.register
def _(subject: RemoteSubject, shape: DecoderShape) -> dict[str, tuple[int, ...]] | None:
    try:
        evidence = Evidence(entry_point=ASSEMBLY[0], arguments=shape.model_arguments())
        answer = subject.answer(
            "weight_sizes", evidence, what=ASSEMBLY[0], request={"shape": dataclasses.asdict(shape)}
        )
    except CheckFailure:
        return None
    if answer is None or (isinstance(answer, dict) and all(map(_is_size, answer.values()))):
        return answer
    subject.wire.lose("it lists its weights with what is no list")
