"""The checker: judges any decoder through ``adapters.py`` and knows nothing else about it.

The names of :data:`__all__` are the stable ones; docs/API.md says what each promises. They are imported on first use,
so that ``import cs336_harness`` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cs336_harness.api.judging import check_decoder, judge
    from cs336_harness.api.parametrizing import parametrize_with_checks
    from cs336_harness.api.verdicts import CheckResult, Diagnosis, FailedVerdictError, KnownDefect, Verdict
    from cs336_harness.subject.failures import CannotJudgeError

__all__ = [
    "CannotJudgeError",
    "CheckResult",
    "Diagnosis",
    "FailedVerdictError",
    "KnownDefect",
    "Verdict",
    "check_decoder",
    "judge",
    "parametrize_with_checks",
]

_HOMES = {
    "api.judging": ("check_decoder", "judge"),
    "api.parametrizing": ("parametrize_with_checks",),
    "api.verdicts": ("CheckResult", "Diagnosis", "FailedVerdictError", "KnownDefect", "Verdict"),
    "subject.failures": ("CannotJudgeError",),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
