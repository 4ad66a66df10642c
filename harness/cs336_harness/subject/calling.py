"""The subject: whatever is being judged, known only through the entry points of its adapters module.

A call gives the subject its own copy of every argument, takes nothing on trust about what comes back, and turns
whatever goes wrong into one clear line.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import io
import os
import re
import sys
import textwrap
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from cs336_harness.contract import COMPONENTS, ENTRY_POINTS, MODEL_ENTRY_POINTS, WHOLE_ENTRY_POINTS
from cs336_harness.places import is_own_file
from cs336_harness.subject.failures import AbsentEntryPoint, BlankEntryPoint, CheckFailure, Evidence, WrongShape
from cs336_harness.subject.setting import USUAL, Setting
from cs336_harness.subject.text import text_of
from cs336_harness.subject.time_limit import Clock, TimeUp, innermost_elsewhere
from cs336_harness.subject.unwritten import UnwrittenIs

Result = TypeVar("Result")


PLAIN_TENSORS = (Tensor, torch.nn.Parameter)
"""The types of a tensor that computes as PyTorch does."""

MESSAGE_WIDTH = 300
"""How much of the text of a subject's own exception is shown."""


def own_copy(value: Any) -> Any:
    """A copy that the subject may consume: tensors cloned, dicts copied, everything else as it is."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return {name: own_copy(item) for name, item in value.items()}
    return value


def own_frames(frames: Iterable[traceback.FrameSummary], root: Path) -> list[traceback.FrameSummary]:
    """The frames that lie in the subject's own files, outermost first."""
    return [frame for frame in frames if is_own_file(frame.filename, root)]


@dataclasses.dataclass(frozen=True, slots=True)
class Visit:
    """PyTorch's global state before and after one call of the subject, as the subject left it."""

    default_dtype: tuple[torch.dtype, torch.dtype]
    grad_enabled: tuple[bool, bool]
    rng_state: tuple[Tensor, Tensor]

    @property
    def drew_random_numbers(self) -> bool:
        """Whether the global generator moved."""
        return not torch.equal(*self.rng_state)


class TorchState(NamedTuple):
    """What PyTorch keeps for the whole process and a subject may change."""

    default_dtype: torch.dtype
    default_device: torch.device
    grad_enabled: bool
    rng: Tensor

    @classmethod
    def current(cls) -> TorchState:
        """As it is now."""
        return cls(
            torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled(), torch.get_rng_state()
        )

    def restore(self) -> None:
        """Puts it back."""
        torch.set_default_dtype(self.default_dtype)
        torch.set_grad_enabled(self.grad_enabled)
        torch.set_rng_state(self.rng)
        if torch.get_default_device() != self.default_device:
            torch.set_default_device(None if self.default_device.type == "cpu" else self.default_device)


@contextlib.contextmanager
def torch_state_kept() -> Generator[None, None, None]:
    """Leaves PyTorch's state for the whole process as found."""
    before = TorchState.current()
    try:
        yield
    finally:
        before.restore()


@dataclasses.dataclass(slots=True)
class Output:
    """What a subject prints: ``shown`` as it comes, or hidden and counted."""

    shown: bool = False
    hidden_lines: int = 0

    @contextlib.contextmanager
    def caught(self) -> Generator[None, None, None]:
        """Keeps standard output to itself, unless it is to be shown."""
        if self.shown:
            yield
            return
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                yield
        finally:
            self.hidden_lines += len(printed.getvalue().splitlines())


def _working_directory() -> str | None:
    """Where we are; None when that folder was deleted."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


class Subject:
    """A decoder behind its entry points.

    ``module`` is anything with the entry points as attributes: an imported ``adapters.py`` or an object. ``name`` is
    what messages call it; ``root`` is the directory that its files live under and that calls run in (None for an
    object). ``output`` is what becomes of its prints, ``clock`` counts the time that its own code takes, ``setting`` is
    what it runs on. ``importable`` says whether there is a file, here or at the learner's, to import it from.
    """

    def __init__(
        self,
        module: ModuleType | Any,
        name: str,
        root: Path | None = None,
        path: Path | None = None,
        output: Output | None = None,
        clock: Clock | None = None,
        setting: Setting = USUAL,
        *,
        importable: bool = True,
    ) -> None:
        self.module = module
        self.importable = importable
        self.name = name
        self.root = root
        self.path = path
        self.output = output or Output()
        self.clock = clock or Clock()
        self.setting = setting
        self.last_visit: Visit | None = None
        self._answers: dict[str, bool] = {}

    @property
    def short_name(self) -> str:
        """The file's path within the subject's own directory; the name where there is none."""
        return str(self.path.relative_to(self.root)) if self.path is not None and self.root is not None else self.name

    def has(self, entry_point: str) -> bool:
        """Whether the module defines the entry point, filled in or blank."""
        return callable(getattr(self.module, entry_point, None))

    @property
    def is_whole_decoder(self) -> bool:
        """Whether it defines the whole model and not one component."""
        return any(map(self.has, WHOLE_ENTRY_POINTS)) and not any(map(self.has, COMPONENTS))

    def takes(self, entry_point: str, argument: str) -> bool:
        """Whether the function names this argument; ``**kwargs`` promises nothing. Calls nothing."""
        signature = _signature_of(getattr(self.module, entry_point, None))
        parameter = None if signature is None else signature.parameters.get(argument)
        return parameter is not None and parameter.kind is not inspect.Parameter.VAR_KEYWORD

    def unwritten_is(self, number: float) -> AbstractContextManager[object]:
        """Inside, memory that the subject leaves unwritten holds ``number``, often NaN."""
        return UnwrittenIs(number)

    def state(self, entry_point: str) -> str:
        """``absent``, ``blank`` (its whole body raises ``NotImplementedError``) or ``filled``. Calls nothing."""
        if not self.has(entry_point):
            return "absent"
        try:
            code = getattr(inspect.unwrap(getattr(self.module, entry_point)), "__code__", None)
        except ValueError:  # it wraps itself
            return "filled"
        return "blank" if code is not None and _is_blank(code) else "filled"

    @contextlib.contextmanager
    def usually(self) -> Generator[None, None, None]:
        """Inside, it runs on the CPU, in float32 and as it stands."""
        setting, self.setting = self.setting, USUAL
        try:
            yield
        finally:
            self.setting = setting

    @contextlib.contextmanager
    def at_home(self) -> Generator[None, None, None]:
        """Runs in the subject's directory, and leaves PyTorch's global state as found.

        What the subject prints is hidden unless :attr:`output` shows it. What it had made of that state is kept in
        :attr:`last_visit`.
        """
        before, directory = TorchState.current(), _working_directory()
        try:
            if self.root is not None:
                os.chdir(self.root)
            with self.output.caught():
                yield
        finally:
            if directory is not None:
                os.chdir(directory)
            after = TorchState.current()
            before.restore()
            self.last_visit = Visit(
                (before.default_dtype, after.default_dtype),
                (before.grad_enabled, after.grad_enabled),
                (before.rng, after.rng),
            )

    def invoke(self, entry_point: str, *, copy: bool = True, grad: bool = False, **arguments: Any) -> Any:
        """Calls an entry point and returns whatever it returns.

        ``copy`` hands over copies of the arguments; ``grad`` leaves autograd on. Raises :class:`AbsentEntryPoint`,
        :class:`BlankEntryPoint`, or :class:`CheckFailure` with the subject's own traceback, trimmed to its files.
        """
        self.note_answer(entry_point, False)
        result = self.ask(entry_point, copy=copy, grad=grad, arguments=arguments)
        self.note_answer(entry_point, result is not None)
        return result

    def note_answer(self, entry_point: str, answered: bool) -> None:
        """Notes a call, and whether anything came back that can be judged."""
        self._answers[entry_point] = answered or self._answers.get(entry_point, False)

    def forget_answers(self) -> None:
        """Notes calls anew."""
        self._answers.clear()

    @property
    def unanswered(self) -> tuple[str, ...]:
        """The entry points that were called since, and of which not one call gave anything that can be judged."""
        return tuple(name for name, answered in self._answers.items() if not answered)

    def ask(self, entry_point: str, *, copy: bool, grad: bool, arguments: Mapping[str, Any]) -> Any:
        """One call, wherever the subject lives; see :meth:`invoke`."""
        point = ENTRY_POINTS[entry_point]
        if not self.has(entry_point):
            raise AbsentEntryPoint(entry_point, self.short_name)
        given = {name: own_copy(value) for name, value in arguments.items()} if copy else dict(arguments)
        if not self.setting.usual:
            given = self.setting.placed(given)
        positional = [given.pop(name) for name in point.arguments[: point.positional]]
        function = getattr(self.module, entry_point)
        self._require_signature(entry_point, function, positional, given)
        evidence = Evidence(entry_point=entry_point, arguments=dict(arguments))
        if entry_point in MODEL_ENTRY_POINTS:
            function = self.setting.compiled(function)
        return self.run(entry_point, lambda: function(*positional, **given), grad=grad, evidence=evidence)

    def evaluate(self, what: str, code: Sequence[str], entry_points: Sequence[str]) -> Any:
        """The value of the last line of ``code``, an expression, after the others ran; with torch and entry points."""
        statements, expression = _compiled(what, tuple(code))

        def evaluated() -> Any:
            namespace: dict[str, Any] = {"torch": torch}
            namespace |= {name: getattr(self.module, name) for name in entry_points}
            exec(statements, namespace)
            return eval(expression, namespace)

        return self.run(what, evaluated, grad=True)

    def run(
        self, what: str, function: Callable[[], Result], *, grad: bool = False, evidence: Evidence | None = None
    ) -> Result:
        """What ``function`` returns: any code of the subject's, run as :meth:`invoke` runs an entry point.

        ``what`` begins the message when it raises; ``evidence.entry_point`` is what counts as blank when the subject
        itself raises ``NotImplementedError``.
        """
        evidence = evidence or Evidence()
        try:
            with torch.set_grad_enabled(grad), self.at_home(), self.clock.running(evidence.entry_point or what):
                return function()
        except (CheckFailure, AbsentEntryPoint, BlankEntryPoint, KeyboardInterrupt):
            raise
        except TimeUp as up:
            self._place(up, what, evidence.entry_point)
            raise
        except BaseException as error:  # sys.exit() and pytest.skip() are no Exception
            blank = isinstance(error, NotImplementedError) and self._raised_by_subject(error)
            if blank and evidence.entry_point is not None:
                raise BlankEntryPoint(evidence.entry_point) from None
            raise self._failure(what, error, evidence) from error

    def call(
        self, entry_point: str, *, shape: tuple[int, ...], copy: bool = True, grad: bool = False, **arguments: Any
    ) -> Tensor:
        """Calls an entry point that returns one tensor, and checks everything about it but its values.

        The result is a finite floating tensor of ``shape`` on the CPU, in the dtype that the subject chose.
        """
        self.note_answer(entry_point, False)
        result = self.ask(entry_point, copy=copy, grad=grad, arguments=arguments)
        evidence = Evidence(entry_point=entry_point, arguments=dict(arguments))
        checked = self.checked(entry_point, result, shape, evidence)
        self.note_answer(entry_point, True)
        return checked

    def checked(self, what: str, result: Any, shape: tuple[int, ...], evidence: Evidence | None = None) -> Tensor:
        """``result``, on the CPU, if it is a finite floating tensor of ``shape``; :class:`CheckFailure` otherwise."""
        evidence = evidence or Evidence()
        if type(result) not in PLAIN_TENSORS:  # a subclass may compare, print and compute as it likes
            kind = "nothing (is a return statement missing?)" if result is None else f"a {type(result).__name__}"
            raise CheckFailure(f"{what} returned {kind}; it must return a tensor of shape {shape}", evidence)
        if tuple(result.shape) != tuple(shape):
            raise WrongShape(f"{what} returned shape {tuple(result.shape)}; it must return {tuple(shape)}", evidence)
        if not result.is_floating_point():
            raise CheckFailure(
                f"{what} returned dtype {_dtype(result)}; it must return floating-point numbers", evidence
            )
        if result.device.type == "meta":
            raise CheckFailure(f"{what} returned a tensor on the meta device, which holds no numbers", evidence)
        result = result if result.device.type == "cpu" else result.to("cpu")
        not_finite = ~result.detach().isfinite()
        if bool(not_finite.any()):
            first = tuple(not_finite.nonzero()[0].tolist())
            value = "NaN" if bool(result[first].isnan()) else "an infinity"
            count = f"{int(not_finite.sum())} of {result.numel()} elements"
            raise CheckFailure(f"{what} returned {value} in {count}, the first at {first}", evidence)
        return result

    def _require_signature(
        self, entry_point: str, function: Any, positional: list[Any], given: Mapping[str, Any]
    ) -> None:
        signature = _signature_of(function)
        if signature is None:
            return
        try:
            signature.bind(*positional, **given)
        except TypeError:
            takes = ", ".join(signature.parameters)
            expected = ", ".join(ENTRY_POINTS[entry_point].arguments)
            raise CheckFailure(
                f"{entry_point} takes ({takes}); the contract calls it with ({expected})",
                Evidence(entry_point=entry_point),
            ) from None

    def own_frames(self, error: BaseException) -> list[traceback.FrameSummary]:
        """The frames of a traceback that lie in the subject's own files."""
        frames = traceback.extract_tb(error.__traceback__)
        return frames if self.root is None else own_frames(frames, self.root)

    def _raised_by_subject(self, error: BaseException) -> bool:
        """Whether a ``raise`` in the subject's files is the source; PyTorch's own C++ errors leave no frame behind.

        One with a reason, among other code, says what is not supported, and not that nothing is written yet.
        """
        frames, own = traceback.extract_tb(error.__traceback__), self.own_frames(error)
        if not own or own[-1] != frames[-1] or not (frames[-1].line or "").startswith("raise"):
            return False
        *_, (innermost, _) = traceback.walk_tb(error.__traceback__)
        return not error.args or _is_blank(innermost.f_code)

    def _failure(self, what: str, error: BaseException, evidence: Evidence) -> CheckFailure:
        text = textwrap.shorten(self._text_of(error, what, evidence), MESSAGE_WIDTH, placeholder=" …")
        message = f"{what} raised {type(error).__name__}" + (f": {text}" if text else "")
        places = self._places(error)
        refuses = bool(places) and ": raise " in places[-1]  # one line says no, whoever calls it
        evidence.raised = (type(error).__name__, text, *places[-1 if refuses else -2 :])
        evidence.details += places
        shapes = {name: value for name, value in (evidence.arguments or {}).items() if isinstance(value, Tensor)}
        if shapes and re.search(r"\d", text):  # numbers in it are sizes, mostly
            listed = (f"{name} {tuple(tensor.shape)}" for name, tensor in shapes.items())
            evidence.details.append(f"it was given {', '.join(listed)}")
        return CheckFailure(message, evidence)

    def _text_of(self, error: BaseException, what: str, evidence: Evidence) -> str:
        """What an exception says; a subject's own kind of exception runs the subject's code to say it."""
        try:
            with self.at_home(), self.clock.running(evidence.entry_point or what):
                return text_of(error)
        except TimeUp as up:
            self._place(up, f"the text of what {what} raised", evidence.entry_point)
            raise

    def _places(self, error: BaseException) -> list[str]:
        """The last few of the subject's own frames that an exception went through, for a person."""
        root = self.root
        return [
            f"{frame.filename if root is None else os.path.relpath(frame.filename, root)}:{frame.lineno}"
            f" in {frame.name}: {frame.line}"
            for frame in self.own_frames(error)[-6:]
        ]

    def _place(self, up: TimeUp, what: str, entry_point: str | None) -> None:
        """Notes in which call the time was up; the innermost call counts."""
        if not up.what:
            up.what, up.entry_point, up.places = what, entry_point, self._places(up)
            files = [frame.filename for frame in traceback.extract_tb(up.__traceback__)]
            up.elsewhere = innermost_elsewhere(reversed(files), self.root)


@functools.lru_cache(maxsize=1024)
def _compiled(name: str, code: tuple[str, ...]) -> tuple[CodeType, CodeType]:
    return compile("\n".join(code[:-1]), name, "exec"), compile(code[-1], name, "eval")


def _signature_of(function: Any) -> inspect.Signature | None:
    """A function's signature; None where it has none to read."""
    # Anything else that can be called may have a hash, or an equality, of the subject's own.
    return (_signature_read_once if type(function) is FunctionType else _signature_read)(function)


def _signature_read(function: Any) -> inspect.Signature | None:
    """The same, read now.

    Python 3.14 evaluates annotations when they are asked for, and one may name what only a type checker imports.
    """
    try:
        if sys.version_info >= (3, 14):
            import annotationlib

            return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
        return inspect.signature(function)
    except Exception:  # whatever it is made of
        return None


_signature_read_once = functools.lru_cache(maxsize=256)(_signature_read)


def _is_blank(code: CodeType) -> bool:
    """Whether a function only raises ``NotImplementedError``."""
    return set(code.co_names) == {"NotImplementedError"}


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
