"""What a defect is: a few-line variation of the oracle with a name, a place, an explanation and a hint.

A defect varies one of three layers: the oracle's arithmetic (:class:`OracleDefect`), the module that is assembled from
it (:class:`ModelDefect`), or what an entry point does around it (:class:`AdaptersDefect`). :func:`adapters_of` puts any
number of them together into one set of entry points, and refuses those that contradict each other.
"""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
import itertools
from collections.abc import Callable, Iterable
from typing import ClassVar, TypeVar

import torch
from torch import Tensor

from cs336_harness.reference.oracle import LayerWeights, Oracle
from cs336_harness.reference.oracle_adapters import OracleAdapters, OracleModel
from cs336_harness.subject.calling import Subject


class Place(enum.StrEnum):
    """Where in a decoder a fault can be."""

    LINEAR = "linear"
    EMBEDDING = "embedding"
    NORM = "norm"
    FIRST_NORM = "norm before attention (ln1)"
    SECOND_NORM = "norm before feed-forward (ln2)"
    POSITIONS = "positions"
    ATTENTION = "attention"
    HEADS = "heads"
    MASK = "mask"
    FEED_FORWARD = "feed-forward"
    RESIDUAL = "residual"
    LAYERS = "layer order or count"
    FINAL_NORM = "final norm"
    HEAD = "head"
    POST_PROCESSING = "post-processing"
    INFORMATION_FLOW = "information flow"
    CACHE = "cache"
    TYING = "tying"
    CONFIGURATION = "configuration"
    ACCOUNTING = "accounting"


class Defect:
    """What every defect carries. The docstring of a defect is its explanation to a learner."""

    name: ClassVar[str]
    place: ClassVar[Place]
    hint: ClassVar[str]
    steps: ClassVar[tuple[str, ...]]
    equivalent: ClassVar[str | None] = None
    same_as: ClassVar[tuple[str, ...]] = ()
    rounds: ClassVar[bool] = False
    right: ClassVar[bool] = True
    """Set in the body of a base that makes no mistake: what it replaces of the oracle is no part of a defect."""

    @classmethod
    def explanation(cls) -> str:
        """The docstring as one paragraph."""
        return " ".join((inspect.getdoc(cls) or "").split())

    @classmethod
    def overridden(cls) -> dict[str, Callable[..., object]]:
        """The steps that the defect replaces, by name; what the bases of all defects do is not counted."""
        found: dict[str, Callable[..., object]] = {}
        for base in cls.__mro__:
            if base is object or vars(base).get("right", False):
                break
            for name, value in vars(base).items():
                if inspect.isroutine(value) and name not in found:
                    found[name] = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        return found


class OracleDefect(Defect, Oracle):
    """A defect in the arithmetic.

    Attention is computed here as one (queries, keys) matrix of scores and of what may be seen: the same numbers as the
    oracle's, many times quicker, and with a place for defects in the mask and in the softmax. A query that a defect
    shows no key at all gets what a softmax over nothing gives: not a number. All rows and heads are computed at once
    unless the defect replaces a step that is made for one head of one row.
    """

    right = True

    def self_attention(self, x: Tensor, weights: LayerWeights, positions: Tensor | None, theta: float | None) -> Tensor:
        """Causal multi-head self-attention, as the oracle's."""
        if not _takes_all_heads_at_once(type(self)):
            return super().self_attention(x, weights, positions, theta)
        leading, time = x.shape[:-2], x.shape[-2]
        flat = x.reshape(-1, time, x.shape[-1])
        num_heads, num_kv_heads = self.shape.num_heads, self.shape.num_kv_heads
        queries = _by_head(self.project_queries(flat, weights), num_heads)
        keys = _by_head(self.project_keys(flat, weights), num_kv_heads)
        values = _by_head(self.project_values(flat, weights), num_kv_heads)
        if theta is not None and positions is not None:
            positions = positions.expand(*leading, time).reshape(-1, 1, time)
            queries, keys = self.rotate(queries, positions, theta), self.rotate(keys, positions, theta)
        shared = [self.kv_head_of(head, num_heads, num_kv_heads) for head in range(num_heads)]
        allowed = self._visible_to_each(len(flat), time)
        heads = self.attend_matrix(queries, keys[:, shared], values[:, shared], allowed)
        return self.project_output(heads.transpose(1, 2).flatten(2), weights).reshape(*leading, time, -1)

    def _visible_to_each(self, rows: int, time: int) -> Tensor:
        """What each head of each row may see: (rows, heads, T, T), or (T, T) where it is the same for all."""
        if type(self).visible_keys is Oracle.visible_keys:
            return self.visible(time)
        seen = []
        for row, head in itertools.product(range(rows), range(self.shape.num_heads)):
            self.row, self.head = row, head
            seen.append(self.visible(time))
        return torch.stack(seen).reshape(rows, self.shape.num_heads, time, time)

    def score_matrix(self, queries: Tensor, keys: Tensor) -> Tensor:
        """(..., Tq, d), (..., Tk, d) -> (..., Tq, Tk)."""
        if type(self).scores is Oracle.scores:
            return queries @ keys.mT * self.score_scale(queries.shape[-1])
        return torch.stack([self.scores(query, keys) for query in queries])

    def visible(self, time: int) -> Tensor:
        """What :meth:`visible_keys` says, as a matrix (T, T), True meaning that a query sees a key."""
        if type(self).visible_keys is Oracle.visible_keys:
            return torch.ones(time, time, dtype=torch.bool).tril()
        allowed = torch.zeros(time, time, dtype=torch.bool)
        for position in range(time):
            allowed[position, list(self.visible_keys(position, time))] = True
        return allowed

    def weigh(self, scores: Tensor, allowed: Tensor) -> Tensor:
        """Attention weights from scores and what may be seen, both (..., Tq, Tk)."""
        return self.softmax(scores.masked_fill(~allowed, -torch.inf), -1)

    def attend_matrix(self, queries: Tensor, keys: Tensor, values: Tensor, allowed: Tensor) -> Tensor:
        """Attention of one head of one row: (Tq, d), (Tk, d), (Tk, d_v), (Tq, Tk) -> (Tq, d_v)."""
        return self.weigh(self.score_matrix(queries, keys), allowed) @ values

    def attend_head(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Causal attention of one head of one row."""
        return self.attend_matrix(queries, keys, values, self.visible(queries.shape[0]))

    def attend_masked(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Attention under the caller's mask."""
        leading = queries.shape[:-2]
        shape = (*leading, queries.shape[-2], keys.shape[-2])
        allowed = torch.ones(shape, dtype=torch.bool) if mask is None else mask.expand(shape)
        flat = [
            tensor.expand(*leading, *tensor.shape[-2:]).reshape(-1, *tensor.shape[-2:])
            for tensor in (queries, keys, values, allowed)
        ]
        outputs = [self.attend_matrix(*rows) for rows in zip(*flat, strict=True)]
        return torch.stack(outputs).reshape(*leading, queries.shape[-2], values.shape[-1])


_MADE_FOR_ONE_HEAD = (
    "split_head",
    "merge_heads",
    "rotate",
    "rotate_queries",
    "rotate_keys",
    "attend_head",
    "attend_query",
    "attend_matrix",
    "weigh",
    "score_matrix",
    "scores",
    "softmax",
    "visible",
)


@functools.cache
def _takes_all_heads_at_once(oracle: type[OracleDefect]) -> bool:
    """Whether none of the steps that see one head of one row alone is replaced."""
    return all(getattr(oracle, step) is getattr(OracleDefect, step) for step in _MADE_FOR_ONE_HEAD)


def _by_head(projected: Tensor, num_heads: int) -> Tensor:
    """Heads as an axis, channels that fill no head left out: (rows, T, H d_head) -> (rows, H, T, d_head)."""
    d_head = projected.shape[-1] // num_heads
    return projected[..., : num_heads * d_head].unflatten(-1, (num_heads, d_head)).transpose(1, 2)


class ModelDefect(Defect, OracleModel):
    """A defect of the assembled module: what its Parameters are, and what its forward does around the arithmetic."""

    right = True


class AdaptersDefect(Defect, OracleAdapters):
    """A defect of an entry point: what it does around the arithmetic."""

    right = True


_LAYERS: tuple[type, ...] = (Oracle, OracleModel, OracleAdapters)
_MODULES = (
    "embedding",
    "norms",
    "block_norms",
    "rope",
    "positions",
    "attention",
    "softmax",
    "fused_projections",
    "attention_heads",
    "masks",
    "feed_forward",
    "blocks",
    "one_sublayer",
    "layers",
    "output_head",
    "logits",
    "information_flow",
    "cache",
    "tying",
    "construction",
    "learning",
    "accounting",
)
_REGISTRY: dict[str, type[Defect]] = {}

AnyDefect = TypeVar("AnyDefect", bound=type[Defect])


def defect(
    name: str,
    place: Place,
    *,
    hint: str,
    steps: Iterable[str] = (),
    equivalent: str | None = None,
    same_as: Iterable[str] = (),
    rounds: bool = False,
) -> Callable[[AnyDefect], AnyDefect]:
    """Registers a class as a defect.

    ``hint`` leads to the fix without writing it, ``steps`` are what a teaching assistant would have one try.
    ``equivalent`` is the reason why no output changes; ``same_as`` names defects that a whole model cannot tell apart
    from this one; ``rounds`` marks one that keeps few bits, so that float32 itself decides which way some values fall.
    """

    def register(cls: AnyDefect) -> AnyDefect:
        if name in _REGISTRY:
            raise ValueError(f"two defects are called {name}")
        cls.name, cls.place, cls.hint, cls.steps = name, place, hint, tuple(steps)
        cls.equivalent, cls.same_as, cls.rounds = equivalent, tuple(same_as), rounds
        _REGISTRY[name] = cls
        return cls

    return register


@functools.cache
def all_defects() -> dict[str, type[Defect]]:
    """Every defect by name, equivalent ones included, in the order of the files, whichever was imported first."""
    modules = [importlib.import_module(f"cs336_harness.defects.{module}").__name__ for module in _MODULES]
    return dict(sorted(_REGISTRY.items(), key=lambda item: modules.index(item[1].__module__)))


@functools.cache
def real_defects() -> tuple[type[Defect], ...]:
    """Every defect that can change something a caller sees."""
    return tuple(item for item in all_defects().values() if item.equivalent is None)


def layer_of(item: type[Defect]) -> type:
    """Which of the three layers a defect varies."""
    return next(layer for layer in _LAYERS if issubclass(item, layer))


def contradiction(*defects: type[Defect]) -> str | None:
    """Why some defects cannot be in one decoder: two of them replace the same step, and neither builds on what is
    there.
    """
    for first, second in itertools.combinations(defects, 2):
        if issubclass(first, second) or issubclass(second, first):
            return f"{first.name} and {second.name} are, or hold, the same mistake"
        if layer_of(first) is layer_of(second) and _order(first, second) is None:
            shared = " and ".join(sorted(_shared_steps(first, second)))
            return f"{first.name} and {second.name} both replace {shared}"
    return None


def _shared_steps(first: type[Defect], second: type[Defect]) -> set[str]:
    ours, theirs = first.overridden(), second.overridden()
    return {name for name in ours.keys() & theirs.keys() if ours[name] is not theirs[name]}


def _order(first: type[Defect], second: type[Defect]) -> tuple[type[Defect], type[Defect]] | None:
    """The order in which both defects have their effect: the earlier one must hand every shared step on."""
    shared = _shared_steps(first, second)
    for earlier, later in ((first, second), (second, first)):
        steps = earlier.overridden()
        if all("super" in steps[name].__code__.co_names for name in shared):  # ty: ignore[missing-attribute]
            return earlier, later
    return None


def _mixed(layer: type, defects: tuple[type[Defect], ...]) -> type:
    """One class of a layer with all of the layer's defects in it."""
    own = [item for item in defects if layer_of(item) is layer]
    own.sort(key=functools.cmp_to_key(lambda a, b: -1 if _order(a, b) == (a, b) else 1))
    if len(own) < 2:
        return own[0] if own else (OracleDefect if layer is Oracle else layer)
    return type("And".join(item.__name__ for item in own), tuple(own), {})


@functools.lru_cache(maxsize=4096)
def adapters_of(*defects: type[Defect], dtype: torch.dtype = torch.float64) -> OracleAdapters:
    """The contract's entry points over an oracle with these defects; with none at all it is right.

    Raises:
        ValueError: two of the defects contradict each other.
    """
    reason = contradiction(*defects)
    if reason is not None:
        raise ValueError(f"these defects cannot be in one decoder: {reason}")
    adapters_class = _mixed(OracleAdapters, defects)
    adapters = adapters_class(_mixed(Oracle, defects), dtype)
    adapters.model_class = _mixed(OracleModel, defects)
    return adapters


def subject_of(*defects: type[Defect]) -> Subject:
    """A subject with these defects, answering in float32 as a learner's decoder does."""
    name = " + ".join(item.name for item in defects) or "the oracle"
    return Subject(adapters_of(*defects, dtype=torch.float32), name)
