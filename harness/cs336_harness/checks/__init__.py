"""The checks: plain functions of a subject that raise ``CheckFailure``, and the registry that knows them all.

pytest, the command line and the self-tests call the same functions. A check's docstring is its explanation: the first
line says what is checked; then what usually breaks it.
"""

from cs336_harness.checks.registry import Check, all_checks, check, find

__all__ = ["Check", "all_checks", "check", "find"]
