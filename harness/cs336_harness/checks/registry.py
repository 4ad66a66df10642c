"""The registry of checks: what each needs, what must hold before it is worth running, and which task it belongs to."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cs336_harness.reference.hidden_inputs import inputs_of
from cs336_harness.subject.calling import Subject

CheckFunction = Callable[..., float | None]

GROUPS = (
    "components",
    "assembly",
    "slow_oracle",
    "information_flow",
    "tying",
    "configuration",
    "accounting",
)
"""The groups of checks in the order they run; an id begins with its group."""

MODULES: dict[str, tuple[str, ...]] = {
    "components": (
        "components",
        "components_beyond",
        "leading_axes",
        "rotary",
        "attention",
        "self_attention",
        "call_conventions",
    ),
    "slow_oracle": ("slow_oracle", "frozen_llama"),
    "information_flow": ("information_flow", "arrival", "independence", "built_prefix"),
    "tying": ("tying", "tied_identity"),
    "configuration": ("configuration", "input_limits", "raw_logits"),
}
"""The modules of this package that hold a group's checks, where that is not one of the group's own name."""

TASKS: dict[str, str] = {
    "linear": "3.3.2",
    "embedding": "3.3.3",
    "rmsnorm": "3.4.1",
    "positionwise_feedforward": "3.4.2",
    "rope": "3.4.3",
    "softmax": "3.4.4",
    "scaled_dot_product_attention": "3.4.4",
    "multihead_self_attention": "3.4.5",
    "transformer_block": "3.5",
    "transformer_lm": "3.5",
    "transformer_accounting": "3.5",
}
"""The handout's problems in its order, and the section each stands in."""


SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """One check.

    ``needs`` are the entry points it calls; ``after`` the ids of checks without which a failure here would only repeat
    theirs. An ``advisory`` check is reported, never failed. ``snapshot`` is the fixture that it compares with, if any.
    """

    id: str
    function: CheckFunction
    task: str
    needs: tuple[str, ...]
    after: tuple[str, ...] = ()
    advisory: bool = False
    snapshot: str | None = None

    @property
    def group(self) -> str:
        """The part of the id before the dot."""
        return self.id.split(".", 1)[0]

    @property
    def section(self) -> str:
        """The handout section that the task stands in."""
        return TASKS[self.task]

    @property
    def explanation(self) -> str:
        """The docstring of the function."""
        return inspect.getdoc(self.function) or ""

    @property
    def title(self) -> str:
        """The first sentence of the docstring, in one line."""
        paragraph = " ".join(self.explanation.partition("\n\n")[0].split())
        return SENTENCE_END.split(paragraph, maxsplit=1)[0]

    def __call__(self, subject: Subject) -> float | None:
        """Runs the check: the largest error in noise that it saw (None where nothing is compared), or an exception."""
        with inputs_of(self.id):
            return self.function(subject)


_REGISTRY: dict[str, Check] = {}


def check(
    check_id: str,
    *,
    task: str,
    needs: Iterable[str],
    after: Iterable[str] = (),
    advisory: bool = False,
    snapshot: str | None = None,
    cases: Mapping[str, Any] | None = None,
) -> Callable[[CheckFunction], CheckFunction]:
    """Registers a function as a check, or as one check per case: ``id[case]``, the case's value as second argument."""

    def register(function: CheckFunction) -> CheckFunction:
        for name, value in (cases or {"": None}).items():
            full_id = f"{check_id}[{name}]" if cases else check_id
            if full_id in _REGISTRY:
                raise ValueError(f"two checks are called {full_id}")
            bound = function
            if cases:
                bound = functools.update_wrapper(functools.partial(function, case=value), function)
            _REGISTRY[full_id] = Check(full_id, bound, task, tuple(needs), tuple(after), advisory, snapshot)
        return function

    return register


@functools.cache
def all_checks() -> dict[str, Check]:
    """Every check by id, in the order they run."""
    for group in GROUPS:
        for module in MODULES.get(group, (group,)):
            importlib.import_module(f"cs336_harness.checks.{module}")
    ordered = sorted(_REGISTRY.values(), key=lambda check: GROUPS.index(check.group))
    for item in ordered:
        unknown = [other for other in item.after if other not in _REGISTRY]
        if unknown or item.task not in TASKS:
            raise ValueError(f"{item.id} names an unknown check or task: {unknown or item.task}")
    return {item.id: item for item in ordered}


def find(prefix: str) -> list[Check]:
    """The checks whose id is ``prefix`` or begins with it at a dot or a bracket."""
    return [
        item
        for check_id, item in all_checks().items()
        if check_id == prefix or check_id.startswith((f"{prefix}.", f"{prefix}["))
    ]
