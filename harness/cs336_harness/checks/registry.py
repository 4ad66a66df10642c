"""The registry of checks: what each needs, what must hold before it is worth running, and which task it belongs to."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cs336_harness.reference.hidden_inputs import inputs_of
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.setting import Setting

CheckFunction = Callable[..., float | None]

GROUPS = (
    "components",
    "assembly",
    "slow_oracle",
    "information_flow",
    "tying",
    "configuration",
    "accounting",
    "incremental",
)
"""The groups of checks in the order they run; an id begins with its group."""

MODULES: dict[str, tuple[str, ...]] = {
    "components": (
        "earlier_calls",
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
    "configuration": ("configuration", "fresh_models", "input_limits", "raw_logits"),
}
"""The modules of this package that hold a group's checks, where that is not one of the group's own name."""

TASKS: dict[str, str] = {
    "linear": "§3.3.2",
    "embedding": "§3.3.3",
    "rmsnorm": "§3.4.1",
    "positionwise_feedforward": "§3.4.2",
    "rope": "§3.4.3",
    "softmax": "§3.4.4",
    "scaled_dot_product_attention": "§3.4.4",
    "multihead_self_attention": "§3.4.5",
    "transformer_block": "§3.5",
    "transformer_lm": "§3.5",
    "transformer_accounting": "§3.5",
    "grouped_query_attention": "beyond",
    "incremental_decoding": "beyond",
}
"""The handout's problems in its order, and the section each stands in; last, what goes beyond the handout."""

OPTIONAL_TASKS = ("grouped_query_attention", "incremental_decoding")
"""Tasks that count only for a subject that defines their entry points, or takes their arguments."""


GPU = "gpu"
COMPILED = ("assembly", "slow_oracle")
"""The groups that are asked of compiled code: each new shape costs seconds of compiling."""


def float32_alone(reason: str) -> dict[str, str]:
    """``not_in`` of a check that makes sense in float32 only."""
    return {"bfloat16": reason, "float64": reason}


SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """One check.

    ``needs`` are the entry points it calls; ``after`` the ids of checks without which a failure here would only repeat
    theirs. An ``advisory`` check is reported, never failed. ``snapshot`` is the fixture that it compares with, if any.
    ``not_in`` says of a dtype, or of a ``gpu``, why nothing is asked there.
    """

    id: str
    function: CheckFunction
    task: str
    needs: tuple[str, ...]
    after: tuple[str, ...] = ()
    advisory: bool = False
    snapshot: str | None = None
    not_in: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise ValueError(f"{self.id} belongs to no known task: {self.task!r}")

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

    def not_asked(self, setting: Setting) -> str | None:
        """Why a subject is not asked this in some setting, in one line; None where it is."""
        if setting.compile and self.group not in COMPILED:
            return "not asked of compiled code: only the numbers of the whole model are"
        dtype, gpu = self.not_in.get(setting.dtype), self.not_in.get(GPU)
        if dtype:
            return f"not asked in {setting.dtype}: {dtype}"
        return f"not asked on a GPU: {gpu}" if gpu and setting.gpu else None

    def __call__(self, subject: Subject) -> float | None:
        """Runs the check: the largest error in noise that it saw (None where nothing is compared), or an exception."""
        with inputs_of(self.id):
            return self.function(subject)


@dataclasses.dataclass(frozen=True, slots=True)
class Param:
    """One case of a check: its value, and what it needs, builds on or is beside what the whole check says.

    ``needs`` and ``after`` come after the check's own; ``task`` and ``advisory`` take their place where given.
    """

    value: Any
    task: str | None = None
    needs: Iterable[str] = ()
    after: Iterable[str] = ()
    advisory: bool | None = None


_REGISTRY: dict[str, Check] = {}


def check(
    check_id: str,
    *,
    task: str | None = None,
    needs: Iterable[str] = (),
    after: Iterable[str] = (),
    advisory: bool = False,
    snapshot: str | None = None,
    not_in: Mapping[str, str] | None = None,
    cases: Mapping[str, Any] | None = None,
) -> Callable[[CheckFunction], CheckFunction]:
    """Registers a function as a check, or as one check per case: ``id[name]``, the case's value as second argument.

    Where the id holds ``{}``, a case's name takes that place. A value that is a :class:`Param` says itself what differs
    from one case to the next. This is the one way to register a check, once a function, at the top level of a module:
    a module of checks reads from top to bottom as the list of them.
    """

    def register(function: CheckFunction) -> CheckFunction:
        if cases is None:
            _add(Check(check_id, function, task or "", tuple(needs), tuple(after), advisory, snapshot, not_in or {}))
        for name, value in (cases or {}).items():
            case = value if isinstance(value, Param) else Param(value)
            _add(
                Check(
                    id=check_id.format(name) if "{}" in check_id else f"{check_id}[{name}]",
                    function=functools.update_wrapper(functools.partial(function, case=case.value), function),
                    task=case.task or task or "",
                    needs=(*needs, *case.needs),
                    after=(*after, *case.after),
                    advisory=advisory if case.advisory is None else case.advisory,
                    snapshot=snapshot,
                    not_in=not_in or {},
                )
            )
        return function

    return register


def _add(item: Check) -> None:
    if item.id in _REGISTRY:
        raise ValueError(f"two checks are called {item.id}")
    _REGISTRY[item.id] = item


@functools.cache
def all_checks() -> dict[str, Check]:
    """Every check by id, in the order they run."""
    for group in GROUPS:
        for module in MODULES.get(group, (group,)):
            importlib.import_module(f"cs336_harness.checks.{module}")
    ordered = sorted(_REGISTRY.values(), key=lambda check: GROUPS.index(check.group))
    for item in ordered:
        unknown = [other for other in item.after if other not in _REGISTRY]
        if unknown:
            raise ValueError(f"{item.id} builds on checks that are not there: {unknown}")
    return {item.id: item for item in ordered}


def asked_first(item: Check) -> tuple[str, ...]:
    """What every check of an entry point builds on without saying so: that no result depends on earlier calls."""
    base = "components.earlier_calls"
    if item.id.startswith(base):
        return ()
    ids = (f"{base}[{need.removeprefix('run_')}]" for need in item.needs)
    return tuple(check_id for check_id in ids if check_id in all_checks())


PLAIN = {
    "run_transformer_lm": "assembly.transformer_lm",
    "get_transformer_lm": "configuration.model_builds",
    "get_transformer_lm_weights": "configuration.model_builds",
    "run_parameter_count": "accounting.parameter_count[mha]",
    "run_forward_flops": "accounting.flop_terms",
    "run_transformer_lm_in_pieces": "incremental.one_piece",
}


def plain_check(entry_point: str) -> str:
    """The check that says first that an entry point cannot be called at all: the plainest one that calls it."""
    return PLAIN.get(entry_point, f"components.{entry_point.removeprefix('run_')}")


def names_of_checks() -> set[str]:
    """What checks are called, in full and without their group, and what tasks and groups are called."""
    bases = {check_id.partition("[")[0] for check_id in all_checks()}
    return {*bases, *(base.partition(".")[2] for base in bases), *TASKS, *GROUPS}


def nearest(name: str, names: Iterable[str], alike: float = 0.5) -> list[str]:
    """Up to three names that one may have meant; ``alike`` is how much of the letters they must share."""
    return difflib.get_close_matches(name, sorted(names), n=3, cutoff=alike)


def find(prefix: str) -> list[Check]:
    """The checks whose id is ``prefix`` or begins with it at a dot or a bracket."""
    return [
        item
        for check_id, item in all_checks().items()
        if check_id == prefix or check_id.startswith((f"{prefix}.", f"{prefix}["))
    ]
