"""``parametrize_with_checks``: one pytest test for each check, in somebody's own test file."""

from __future__ import annotations

from typing import Any

import pytest

from cs336_harness.api.verdicts import check_result
from cs336_harness.checks import Check
from cs336_harness.subject.failures import CannotJudgeError
from cs336_harness.subject.guest import Guest
from cs336_harness.subject.setting import Setting
from cs336_harness.verdict.suite import Result, Suite, select


def parametrize_with_checks(
    subject: Any = None, *, checks: str | None = None, diagnose: bool = True, **setting: Any
) -> pytest.MarkDecorator:
    """Parametrises a test with ``check``, once for each check; the arguments are those of :func:`judge`.

    ``setting`` is any of its ``device``, ``dtype``, ``compile`` and ``backend``.

    ::

        @parametrize_with_checks("tests/adapters.py")
        def test_decoder(check):
            check()

    The decoder is loaded by the first check that runs. A call passes, fails with the message and the diagnosis, or
    skips: where the decoder lacks an entry point, where the check is advisory, and where it only repeats a failure that
    has been told.
    """
    run = _Run(subject, diagnose, Setting(**setting))
    chosen = [pytest.param(_Bound(run, check), id=check.id) for check in select(checks)]
    return pytest.mark.parametrize("check", chosen)


class _Run:
    """The one suite behind all the tests of a decorator."""

    def __init__(self, subject: Any, diagnose: bool, setting: Setting) -> None:
        self._guest, self._diagnose = Guest(subject, setting=setting), diagnose
        self._suite: Suite | None = None
        self.told: set[str] = set()

    def result(self, check: Check) -> Result:
        with self._guest.at_work() as subject:
            if self._suite is None:
                self._suite = Suite(subject, diagnose=self._diagnose)
            return self._suite.result(check)


class _Bound:
    """One check on one decoder: called by the test that it is given to."""

    def __init__(self, run: _Run, check: Check) -> None:
        self._run, self._check = run, check
        self.id = check.id

    def __repr__(self) -> str:
        return f"<check {self.id}>"

    def __call__(self) -> None:
        __tracebackhide__ = True
        try:
            result = self._run.result(self._check)
        except CannotJudgeError as error:
            pytest.fail(f"nothing can be judged: {error}", pytrace=False)
        self._run.told.add(self.id)
        if result.outcome in ("failed", "blank"):
            pytest.fail(_text(result), pytrace=False)
        if result.outcome == "blocked" and result.blocked_by not in self._run.told:
            pytest.fail(f"blocked by {result.blocked_by}, which fails; run that first", pytrace=False)
        if result.outcome != "passed":
            pytest.skip(f"blocked by {result.blocked_by}" if result.outcome == "blocked" else result.message)


def _text(result: Result) -> str:
    plain = check_result(result)
    diagnosis = result.diagnosis.lines() if result.diagnosis is not None else []
    return "\n".join([plain.message, *(f"  {line}" for line in plain.details), *diagnosis])
