"""Runs checks on a subject and keeps one structured result for each."""

from __future__ import annotations

import dataclasses
import math
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from cs336_harness.checks import Check, all_checks
from cs336_harness.checks.registry import asked_first, names_of_checks, nearest, plain_check
from cs336_harness.contract import WHOLE_ENTRY_POINTS
from cs336_harness.reference.precision import judged_in
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.environment_faults import environment_fault, is_own_name
from cs336_harness.subject.failures import (
    AbsentEntryPoint,
    BlankEntryPoint,
    CannotJudgeError,
    CheckFailure,
    ConclusiveFailure,
    Evidence,
    refused_beyond_the_course,
)
from cs336_harness.subject.own_modules import raised_by_an_import
from cs336_harness.subject.setting import USUAL
from cs336_harness.subject.time_limit import TimeUp
from cs336_harness.verdict.keyword import alternatives, matches

Outcome = Literal["passed", "failed", "blank", "blocked", "skipped", "advisory"]
OUTCOMES: tuple[Outcome, ...] = ("passed", "failed", "blank", "blocked", "skipped", "advisory")
"""What can become of a check.

``blank``: an entry point that it needs is not written yet. ``blocked``: it fails, and so does a check that it builds
on. ``skipped``: the module does not define an entry point that it needs. ``advisory``: it fails and may.
"""

WHOLE_DECODER = "a whole decoder: its components are not defined and not asked"
"""Why a check is skipped that needs more than a file without a single component has to have."""

DIAGNOSIS_SECONDS = 60.0
"""Seconds of processor time for all diagnoses of a subject together, where there is a limit at all."""


@dataclasses.dataclass(slots=True)
class Result:
    """What became of one check."""

    check: Check
    outcome: Outcome
    seconds: float = 0.0
    message: str = ""
    blocked_by: str | None = None
    error_in_noise: float | None = None
    failure: CheckFailure | None = None
    diagnosis: Any = None
    states: dict[str, str] = dataclasses.field(default_factory=dict)
    """Each entry point that the check needs: ``absent``, ``blank`` or ``filled``."""
    unanswered: tuple[str, ...] = ()
    """The entry points of which none of its calls gave anything to judge; see :meth:`Subject.unanswered`."""
    whole_decoder: bool = False
    """Whether the subject is judged as a whole decoder, of which no component is asked."""

    @property
    def unasked(self) -> bool:
        """Whether it was skipped because nobody asks that of a whole decoder."""
        return self.outcome == "skipped" and self.message == WHOLE_DECODER

    @property
    def stops_exit_zero(self) -> bool:
        """Whether it keeps the subject from being right."""
        return self.outcome in ("failed", "blank", "blocked") and not self.check.advisory

    def to_json(self) -> dict[str, Any]:
        """The shape of docs/DESIGN.md, "Outcomes and exit status"."""
        return {
            "id": self.check.id,
            "task": self.check.task,
            "outcome": self.outcome,
            "seconds": round(self.seconds, 4),
            "message": self.message,
            "details": list(self.failure.evidence.details) if self.failure else [],
            "figures": dict(self.failure.evidence.figures) if self.failure and self.outcome == "failed" else {},
            "blocked_by": self.blocked_by,
            "error_in_noise": _or_none_if_infinite(self.error_in_noise),
            "diagnosis": self.diagnosis.to_json() if self.diagnosis is not None else None,
        }


def _or_none_if_infinite(number: float | None) -> float | None:
    """JSON has no infinity."""
    return number if number is not None and math.isfinite(number) else None


class Suite:
    """The checks of one subject. Results are kept: asking for a check twice, or for one it builds on, runs it once.

    ``diagnose`` says whether failures are diagnosed, or those of which checks. ``before_check`` hears of each check
    that begins, ``before_diagnosis`` of each failure before its diagnosis, which takes longer. A check in which the
    subject itself computes for more than ``timeout`` seconds fails, and whatever needs the same entry point waits for
    it. ``settled`` are results that are known already; ``lost`` the entry points that are not to be called again, each
    with the check that found out and what it does. ``passed_elsewhere`` says of a check that another process saw it
    pass on the same subject; it is not run then. ``components_asked`` says that a subject without a single component
    lacks them, and is no whole decoder.
    """

    def __init__(
        self,
        subject: Subject,
        *,
        diagnose: bool | Callable[[Check], bool] = True,
        before_check: Callable[[Check], None] | None = None,
        before_diagnosis: Callable[[Result], None] | None = None,
        timeout: float | None = None,
        settled: Iterable[Result] = (),
        lost: Mapping[str, tuple[str, str]] | None = None,
        passed_elsewhere: Callable[[Check], bool] | None = None,
        components_asked: bool = False,
    ) -> None:
        self.subject = subject
        self.diagnose = diagnose
        self._before_check = before_check
        self._before_diagnosis = before_diagnosis
        self._timeout = timeout
        self._passed_elsewhere = passed_elsewhere or (lambda check: False)
        self._for_diagnoses = None if timeout is None else DIAGNOSIS_SECONDS
        self._lost = dict(lost or {})
        self._results = {result.check.id: result for result in settled}
        self._unable: str | None = None
        self._whole = subject.is_whole_decoder and not components_asked
        self._under_way: set[str] = set()
        self._behind: dict[str, list[str]] = {}

    def run(self, checks: Iterable[Check]) -> Iterator[Result]:
        """The result of each check in turn."""
        for check in checks:
            yield self.result(check)

    def results(self) -> Iterator[Result]:
        """Everything that has been run so far."""
        return iter(self._results.values())

    def result(self, check: Check) -> Result:
        """What becomes of the check. The checks it builds on are run first, but only if it fails."""
        known = self._results.get(check.id)
        if known is None and not self._lost.keys() & set(check.needs) and self._passed_elsewhere(check):
            known = self._results[check.id] = Result(check, "passed", whole_decoder=self._whole)
        if known is None:
            self._under_way.add(check.id)
            try:
                known = self._results[check.id] = self._judge(check)
                _keep_figures(known)
            finally:
                self._under_way.remove(check.id)
            for other in self._results.values():
                if other.blocked_by == check.id and known.blocked_by is not None:  # its root was not known yet
                    other.blocked_by = known.blocked_by
        return known

    def _judge(self, check: Check) -> Result:
        if self._before_check is not None:
            self._before_check(check)
        result = self.attempt(check)
        if result.outcome == "passed" and result.unanswered:
            return self._without_an_answer(result)
        if result.failure is None:
            return result
        if self._is_echo(result):
            return result
        if isinstance(result.failure.__cause__, TimeUp):  # its causes might not end either
            result.outcome = "advisory" if check.advisory else "failed"
            return result
        conclusive = isinstance(result.failure, ConclusiveFailure)
        causes = self._causes(check, result.failure, result.unanswered)
        if not self.subject.setting.usual:
            self._conclude_beside_the_usual(check, result, result.failure, causes)
        elif causes:
            result.diagnosis = self._second_mistake(check, result.failure, causes)
            if result.diagnosis is None:
                self._block(result, causes)
        elif check.advisory:
            result.outcome = "advisory"
        elif (unasked := refused_beyond_the_course(result.failure)) is not None:
            result.outcome = "advisory"
            result.message = f"{result.message}; no test of CS336's gives it {unasked}, so this is advisory"
        elif (told := self._raised_before(result.failure)) is not None:
            self._block(result, [told])
        elif not conclusive and (told := self._told_before(check, result.failure)) is not None:
            result.outcome, result.blocked_by = "blocked", told
        elif self._wants_diagnosis(check):
            if self._before_diagnosis is not None:
                self._before_diagnosis(result)
            result.diagnosis = self._diagnosis(check, result.failure)
            self._block_what_was_read_before(result)
        return result

    def _block_what_was_read_before(self, result: Result) -> None:
        """A failure of which nothing can be said but the reading of an earlier one repeats that one."""
        told = result.diagnosis
        if told is None or told.told_before is None or told.defects or not told.reading:
            return
        if told.told_before in self._results and self._results[told.told_before].outcome == "failed":
            self._block(result, [told.told_before])

    def attempt(self, check: Check) -> Result:
        """What the check by itself gives, whatever failed before; nothing of it is kept."""
        started = time.perf_counter()
        states = {name: self.subject.state(name) for name in check.needs}
        self.subject.forget_answers()
        result = self._attempt(check, states)
        result.states, result.whole_decoder = states, self._whole
        result.unanswered = self.subject.unanswered
        result.seconds = time.perf_counter() - started
        return result

    def _without_an_answer(self, result: Result) -> Result:
        """A check passes on no answer where the check of the plain call passes: there, to refuse is an answer."""
        causes = self._roots(result.check, [plain_check(name) for name in result.unanswered])
        if causes:
            self._block(result, causes)
            result.message = f"none of its calls of {' and '.join(result.unanswered)} gave anything to judge"
        return result

    def _block(self, result: Result, causes: list[str]) -> None:
        result.outcome, result.blocked_by = "blocked", causes[0]
        self._behind[result.check.id] = causes

    def _conclude_beside_the_usual(
        self, check: Check, result: Result, failure: CheckFailure, causes: list[str]
    ) -> None:
        """The outcome in an unusual setting. Known mistakes are looked for in the usual one, if it fails there too."""
        if causes:
            self._block(result, causes)
        elif check.advisory or refused_beyond_the_course(failure) is not None:
            result.outcome = "advisory"
        elif self._wants_diagnosis(check):
            unusual = self.subject.setting
            with self.subject.usually():
                try:
                    check(self.subject)
                except CheckFailure as plain:
                    result.diagnosis = self._diagnosis(check, plain)
                except (TimeUp, AbsentEntryPoint, BlankEntryPoint):
                    return
                else:
                    failure.evidence.details.append(f"right {USUAL}: it is wrong only {unusual}")

    def _is_echo(self, result: Result) -> bool:
        """Whether a failure is of the environment or of an import, and so says nothing of the decoder's numbers.

        The first such failure stands, with the line that mends it; all others are blocked by it.
        """
        failure, check = result.failure, result.check
        if failure is None:
            return False
        by_import = raised_by_an_import(failure.__cause__, self.subject.root)
        told = environment_fault(failure.__cause__, self.subject.root, self.subject.name)
        if told is not None:
            failure.message = result.message = told
            failure.evidence.details = []
        elif not by_import and not _is_failed_import(failure.__cause__, self.subject.root):
            return False
        if check.advisory and self._unable is None:
            result.outcome = "advisory"
            return True
        if self._unable is None:
            self._unable = self._first_unable(check, result, failure)
        imported_in_part = isinstance(failure.__cause__, ImportError | SyntaxError) or by_import
        if failure.evidence.entry_point is not None and imported_in_part:
            # A second import would find half a module, and what that does is worth nothing.
            self._lost.setdefault(failure.evidence.entry_point, (self._unable, "cannot be imported in full"))
        if self._unable != check.id:
            result.outcome, result.blocked_by = "blocked", self._unable
        return True

    def _first_unable(self, check: Check, result: Result, failure: CheckFailure) -> str:
        """The check that tells the failure: the entry point's own, whatever was asked of it first."""
        needs = (failure.evidence.entry_point,)
        own = (other for other in all_checks().values() if other.snapshot is not None and other.needs == needs)
        told = next((other for other in own if other.id not in self._results), check)
        if told is not check:
            states = {name: self.subject.state(name) for name in told.needs}
            self._results[told.id] = Result(told, "failed", message=result.message, failure=failure, states=states)
        return told.id

    def _attempt(self, check: Check, states: dict[str, str]) -> Result:
        absent = [name for name, state in states.items() if state == "absent"]
        # Of a whole decoder first what nobody asks of it: to define the other, or another setting, is not enough.
        absent.sort(key=lambda name: self._whole and name in WHOLE_ENTRY_POINTS)
        unasked = self._whole and (not check.needs or not {*absent} <= {*WHOLE_ENTRY_POINTS})
        why = None if unasked else check.not_asked(self.subject.setting)
        if why is not None:
            return Result(check, "skipped", message=why)
        if absent:
            return self._skipped(check, AbsentEntryPoint(absent[0], self.subject.short_name))
        for name, state in states.items():
            if state == "blank":
                return Result(check, "blank", message=str(BlankEntryPoint(name)))
        for name in check.needs:
            if name in self._lost:
                cause, how = self._lost[name]
                return Result(check, "blocked", message=f"{name} {how}", blocked_by=cause)
        self.subject.clock.restart(self._timeout)
        try:
            with judged_in(self.subject.setting.dtype):
                return Result(check, "passed", error_in_noise=check(self.subject))
        except TimeUp as up:
            return self._did_not_end(check, up)
        except AbsentEntryPoint as absent:
            return self._skipped(check, absent)
        except BlankEntryPoint as blank:
            states[blank.entry_point] = "blank"
            return Result(check, "blank", message=str(blank))
        except CheckFailure as failure:
            error = failure.evidence.error_in_noise
            return Result(check, "failed", message=failure.message, error_in_noise=error, failure=failure)
        except CannotJudgeError:
            raise
        except Exception as error:
            return self._our_own_fault(check, error)

    def _skipped(self, check: Check, absent: AbsentEntryPoint) -> Result:
        unasked = self._whole and absent.entry_point not in WHOLE_ENTRY_POINTS
        return Result(check, "skipped", message=WHOLE_DECODER if unasked else str(absent))

    def _did_not_end(self, check: Check, up: TimeUp) -> Result:
        if up.entry_point is not None and not check.advisory:  # it is not called again; an advisory stops nothing
            self._lost[up.entry_point] = check.id, "does not end"
        failure = CheckFailure(str(up), Evidence(details=up.places, entry_point=up.entry_point))
        failure.__cause__ = up
        return Result(check, "failed", message=failure.message, failure=failure)

    @staticmethod
    def _our_own_fault(check: Check, error: Exception) -> Result:
        """A check that breaks ends neither the run nor the other checks; nor does it pass."""
        message = f"the check itself broke, with {type(error).__name__}: {error}; report this bug of the harness"
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}"
        failure = CheckFailure(message, Evidence(details=[place]))
        return Result(check, "failed", message=message, failure=failure)

    def _causes(self, check: Check, failure: CheckFailure, unanswered: Sequence[str]) -> list[str]:
        """The failing checks that this one or its failure builds on, each followed to its own roots.

        All are run before one is told: a second mistake stands where it is plainest, and not behind the first.
        """
        causes = self._roots(check, [*self._prerequisites(check, failure)])
        return causes or self._roots(check, [plain_check(name) for name in unanswered])

    def _roots(self, check: Check, behind: Iterable[str]) -> list[str]:
        """The failures that stand behind some checks, but for the one that asks."""
        found, seen, waiting = [], {check.id}, list(behind)
        while waiting:
            check_id = waiting.pop(0)
            if check_id in seen:
                continue
            seen.add(check_id)
            if check_id in self._under_way:  # only what has failed asks what it builds on
                found.append(check_id)
                continue
            result = self.result(all_checks()[check_id])
            if result.outcome == "failed":
                found.append(check_id)
            elif result.blocked_by is not None:
                waiting = [*self._behind.get(check_id, [result.blocked_by]), *waiting]
        return found

    def _prerequisites(self, check: Check, failure: CheckFailure) -> Iterator[str]:
        """The checks that come before this failure, each run; behind one that passes, those that make the same calls.

        ``leading_axes[one]`` builds on ``leading_axes[three]``, which builds on the component: where three axes are
        right and the component is wrong, one axis only repeats it.
        """
        waiting = [*asked_first(check), *check.after, *failure.after]
        seen = set(self._under_way)  # two failures that name each other: the one asked for first stands
        while waiting:
            other = waiting.pop(0)
            if other in seen:
                continue
            seen.add(other)
            before = self.result(all_checks()[other])
            yield other
            if before.outcome in ("passed", "advisory") and set(before.check.needs) & set(check.needs):
                waiting += before.check.after

    def _raised_before(self, failure: CheckFailure) -> str | None:
        """An earlier failure that told the same exception, out of the same lines of the subject's."""
        from cs336_harness.verdict import echoes

        for check_id, known in self._results.items():
            told = known.failure if known.outcome == "failed" else None
            if told is not None and echoes.raised_alike(told.evidence, failure.evidence):
                return check_id
        return None

    def _told_before(self, check: Check, failure: CheckFailure) -> str | None:
        """An earlier failure that this one only repeats, though it does not build on it."""
        from cs336_harness.verdict import echoes

        if self._lost:
            return None
        self.subject.clock.restart(self._for_diagnoses)
        failed = [result for result in self._results.values() if result.outcome == "failed"]
        for earlier in failed:
            if echoes.same_case(earlier.check, check) and echoes.same_words(earlier.message, failure.message):
                return earlier.check.id
        for earlier in failed:
            if self._mixes_alike(earlier.check, check, failure):
                return earlier.check.id
        return self._named_before(check, failure, failed)

    def _mixes_alike(self, earlier: Check, check: Check, failure: CheckFailure) -> bool:
        from cs336_harness.verdict import echoes

        if check.group != "information_flow" or len(earlier.needs) != 1:
            return False
        if earlier.needs == check.needs:
            if self._placed_in_the_flow(earlier):
                return True
            one_token = self.result(all_checks()["assembly.transformer_lm_one_token"])
            return earlier.group == "assembly" and one_token.outcome == "passed"
        return echoes.mixes_alike(self.subject, earlier.needs[0], check, failure)

    def _placed_in_the_flow(self, earlier: Check) -> bool:
        """Whether an earlier failure, of no known mistake, shows positions or rows that notice each other."""
        from cs336_harness.defects import Place

        told = self._results[earlier.id].diagnosis
        return told is not None and not told.defects and told.where == Place.INFORMATION_FLOW

    def _named_before(self, check: Check, failure: CheckFailure, failed: Sequence[Result]) -> str | None:
        """The failure whose known mistake gives this one too, or the first of several whose mistakes together do."""
        from cs336_harness.diagnosis import reproduced

        named = {r.check.id: r.diagnosis for r in failed if r.diagnosis is not None and r.diagnosis.defects}
        for check_id, diagnosis in named.items():
            alternatives = [diagnosis.defects] if diagnosis.together else [(defect,) for defect in diagnosis.defects]
            if any(reproduced(check, failure, mistakes) for mistakes in alternatives):
                return check_id
        every = dict.fromkeys(defect for d in named.values() for defect in (d.defects if d.together else d.defects[:1]))
        return next(iter(named)) if len(named) > 1 and reproduced(check, failure, every) else None

    def _wants_diagnosis(self, check: Check) -> bool:
        return self.diagnose(check) if callable(self.diagnose) else self.diagnose

    def _second_mistake(self, check: Check, failure: CheckFailure, causes: Sequence[str]) -> Any:
        """A mistake that would make a blocked check fail even if the checks that it builds on passed.

        Where one of these has no known mistake for its cause, what is left unexplained may be that one's too, and only
        a known mistake counts.
        """
        if check.advisory or self._lost or not self._wants_diagnosis(check) or self._under_way & set(causes):
            return None
        from cs336_harness.diagnosis import diagnose_blocked

        told = [self._results[cause].diagnosis for cause in causes]
        second = self._in_time(diagnose_blocked, check, failure)
        if second is None or second.defects or all(first is not None and first.defects for first in told):
            return second
        return None

    def _diagnosis(self, check: Check, failure: CheckFailure) -> Any:
        from cs336_harness.diagnosis import diagnose_check

        return self._in_time(diagnose_check, check, failure)

    def _in_time(
        self, diagnose: Callable[[Subject, Check, CheckFailure], Any], check: Check, failure: CheckFailure
    ) -> Any:
        """A diagnosis within what is left of the time for them. A failure found stands without one."""
        clock = self.subject.clock
        if self._for_diagnoses == 0:
            failure.evidence.details.append("no diagnosis: their time is used up")
            return None
        clock.restart(self._for_diagnoses)
        try:
            with clock.running():
                return diagnose(self.subject, check, failure)
        except TimeUp as up:
            what = f"{up.what} did not end" if up.what else "it took too long"
            failure.evidence.details.append(f"no diagnosis: {what}")
            return None
        finally:
            if self._for_diagnoses is not None:
                self._for_diagnoses = clock.left


def _keep_figures(result: Result) -> None:
    """Leaves the numbers that can be drawn with a failure that is told; the tensors do not leave the process."""
    if result.failure is not None and result.outcome == "failed":
        from cs336_harness.verdict.figures import figures_of

        result.failure.evidence.figures = figures_of(result.failure.evidence)


def _is_failed_import(error: BaseException | None, root: Path | None) -> bool:
    """Whether a call failed because a module of the subject's own could not be imported, now or before.

    After a failed import Python may answer the next one with ``KeyError`` and the package's name.
    """
    if isinstance(error, ImportError | SyntaxError):
        return True
    if error is None or root is None:
        return False
    if raised_by_an_import(error, root):
        return True
    return isinstance(error, KeyError) and is_own_name(
        str(error.args[0]).strip("'"), root
    )  # quoted, where it came through the pipe


def blockers(asked: Iterable[Result], known: Mapping[str, Result]) -> list[Result]:
    """Failures of checks that were not asked for and block a required one that was; ``known`` are all results, by
    id."""
    asked = list(asked)
    own = {result.check.id for result in asked}
    required = [result for result in asked if not result.check.advisory]
    blocking = dict.fromkeys(result.blocked_by for result in required if result.blocked_by is not None)
    return [known[name] for name in blocking if name not in own and name in known]


def require_any_ran(results: Sequence[Result]) -> None:
    """:class:`CannotJudgeError` where every check was skipped: a verdict on nothing would read as a good one."""
    if results and all(result.outcome == "skipped" for result in results):
        lacks = [*dict.fromkeys(need for r in results for need, state in r.states.items() if state == "absent")]
        others = f" and {len(lacks) - 1} more are" if len(lacks) > 1 else " is"
        reason = f"{lacks[0]}{others} not defined" if lacks else results[0].message
        raise CannotJudgeError(f"none of the checks that were asked can run: {reason}")


def summary(results: Iterable[Result]) -> dict[str, int]:
    """How many checks came out each way, every outcome named."""
    counts = Counter(result.outcome for result in results)
    return {outcome: counts[outcome] for outcome in OUTCOMES}


def select(expression: str | None) -> list[Check]:
    """The checks that ``-k`` means: words joined by ``and``, ``or``, ``not``, each a part of an id or task.

    Raises:
        CannotJudgeError: it is no such expression, or selects no check.
    """
    checks = list(all_checks().values())
    if not expression:
        return checks
    any_of = alternatives(expression)
    chosen = [check for check in checks if matches(any_of, f"{check.id} {check.task}".lower())]
    if not chosen:
        raise CannotJudgeError(
            f"-k {expression!r} selects no check; {_nearest_to(any_of)}`cs336 explain` lists their ids"
        )
    return chosen


def _nearest_to(any_of: list[list[tuple[str, bool]]]) -> str:
    """The names that come nearest to the words which no check has, as a question."""
    texts = [f"{check.id} {check.task}".lower() for check in all_checks().values()]
    unknown = [word for all_of in any_of for word, _ in all_of if not any(word in text for text in texts)]
    near = dict.fromkeys(name for word in unknown for name in nearest(word, names_of_checks(), alike=0.75))
    return f"did you mean {' or '.join(near)}? " if near else ""
