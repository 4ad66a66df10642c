"""What ``-k`` means: words joined by ``and``, ``or``, ``not``. Imports no torch."""

from __future__ import annotations

from cs336_harness.subject.failures import CannotJudgeError


def alternatives(expression: str) -> list[list[tuple[str, bool]]]:
    """What ``or`` separates; each alternative is words that must, or must not, be there.

    Raises:
        CannotJudgeError: it is no such expression.
    """
    any_of: list[list[tuple[str, bool]]] = [[]]
    wanted, word_follows = True, True
    for word in expression.lower().split():
        joins = word in ("and", "or")
        if joins == word_follows or (word == "not" and not word_follows) or set(word) & set("()"):
            break
        if word == "not":
            wanted = not wanted
        elif joins:
            any_of += [[]] if word == "or" else []
            word_follows = True
        else:
            any_of[-1].append((word, wanted))
            wanted, word_follows = True, False
    else:
        if not word_follows:
            return any_of
    raise CannotJudgeError(
        f"-k {expression!r}: give words joined by and, or, not; no parentheses, such as 'rope or softmax'"
    )


def matches(any_of: list[list[tuple[str, bool]]], text: str) -> bool:
    """Whether an id and its task, in small letters, are meant."""
    return any(all((word in text) is wanted for word, wanted in all_of) for all_of in any_of)
