"""The one owner of every size and policy of the decoder. Imports no torch."""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
from typing import Any, Literal, cast, get_args, no_type_check

ContextPolicy = Literal["reject", "keep_last"]


@no_type_check  # for the shape checks of a test run: the validation below says what would fit, a type error does not
@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class TransformerConfig:
    """Sizes and policies of one decoder, validated before any weight exists.

    Args:
        vocab_size: number of token ids; they run from 0 to ``vocab_size - 1``.
        context_length: most tokens that one forward pass looks at.
        d_model: width of the residual stream, in channels.
        num_layers: number of Transformer blocks.
        num_heads: query heads per layer; ``d_model / num_heads`` is the head size and must be even for RoPE.
        num_kv_heads: key and value heads per layer; ``num_heads`` (the default) is MHA, 1 is MQA, in between is GQA.
        d_ff: hidden width of the feed-forward; default: the multiple of 64 nearest to 8/3 d_model (CS336 handout).
        rope_theta: base of the rotary wavelengths (RoFormer, arXiv:2104.09864).
        norm_eps: added to the mean square inside the root of RMSNorm.
        tie_embeddings: one vocabulary matrix for look-up and logits (arXiv:1608.05859).
        context_policy: for an input longer than ``context_length``: ``"reject"`` it with a ``ValueError``, or
            ``"keep_last"``: look at its last ``context_length`` tokens.

    Raises:
        ValueError: a size is not a positive integer, sizes do not divide, the head size is odd, ``rope_theta`` or
            ``norm_eps`` is not finite and positive, or a policy is unknown. It names the numbers and what would fit.
    """

    vocab_size: int
    context_length: int
    d_model: int
    num_layers: int
    num_heads: int
    num_kv_heads: int = cast(int, None)  # None only until __post_init__ fills it in
    d_ff: int = cast(int, None)
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5
    tie_embeddings: bool = False
    context_policy: ContextPolicy = "reject"

    def __post_init__(self) -> None:
        for name in ("vocab_size", "context_length", "d_model", "num_layers", "num_heads"):
            _require_positive_integer(name, getattr(self, name))
        self._fill("num_kv_heads", self.num_heads)
        self._fill("d_ff", 64 * max(1, (self.d_model + 12) // 24))  # 8/3 d_model is d_model/24 blocks of 64
        for name in ("num_kv_heads", "d_ff"):
            _require_positive_integer(name, getattr(self, name))
        for name in ("rope_theta", "norm_eps"):
            _require_positive_number(name, getattr(self, name))
        _require_even_head_size(self.d_model, self.num_heads)
        _require_shared_kv_heads(self.num_heads, self.num_kv_heads)
        if not isinstance(self.tie_embeddings, bool):
            raise ValueError(f"tie_embeddings must be True or False, got {self.tie_embeddings!r}")
        if self.context_policy not in get_args(ContextPolicy):
            known = " or ".join(repr(policy) for policy in get_args(ContextPolicy))
            raise ValueError(f"context_policy must be {known}, got {self.context_policy!r}")

    def _fill(self, name: str, default: int) -> None:
        if getattr(self, name) is None:
            object.__setattr__(self, name, default)

    @property
    def d_head(self) -> int:
        """Channels of one head."""
        return self.d_model // self.num_heads

    def to_json(self) -> str:
        """Every field, as one JSON object."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TransformerConfig:
        """The config that ``to_json`` wrote; fields that have a default may be left out.

        Raises:
            ValueError: the text is no JSON object, has an unknown key, lacks a required one, or its sizes do not fit.
        """
        try:
            values: Any = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"the config is not JSON: {error}") from None
        if not isinstance(values, dict):
            raise ValueError(f"the config must be a JSON object of field names and values, got {text.strip()[:60]!r}")
        fields = {field.name: field for field in dataclasses.fields(cls)}
        for key in values:
            if key not in fields:
                near = difflib.get_close_matches(key, fields, n=1)
                advice = f"did you mean {near[0]}?" if near else f"its fields are {', '.join(fields)}"
                raise ValueError(f"the config has no field {key!r}; {advice}")
        absent = [name for name, field in fields.items() if field.default is dataclasses.MISSING and name not in values]
        if absent:
            raise ValueError(f"the config lacks {', '.join(absent)}")
        return cls(**values)


def _require_positive_integer(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")


def _require_positive_number(name: str, value: Any) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a finite positive number, got {value!r}")


def _require_even_head_size(d_model: int, num_heads: int) -> None:
    """RoPE turns channels in pairs, so every head has an even number: d_model is a multiple of 2 · num_heads."""
    if d_model % num_heads:
        problem = f"d_model {d_model} does not divide into num_heads {num_heads}"
    elif d_model // num_heads % 2:
        d_head = d_model // num_heads
        problem = (
            f"d_model {d_model} over num_heads {num_heads} gives a head size of {d_head}, and RoPE needs an even one"
        )
    else:
        return
    below = d_model - d_model % (2 * num_heads)
    wider = f"d_model {below} or {below + 2 * num_heads}" if below else f"d_model {2 * num_heads}"
    # The nearest count of heads below; a thousand tries do for any real model and keep a huge one from searching.
    heads = next((count for count in range(min(num_heads, 1000), 0, -1) if d_model % (2 * count) == 0), None)
    raise ValueError(f"{problem}; {wider} would fit" + (f", or num_heads {heads}" if heads else ""))


def _require_shared_kv_heads(num_heads: int, num_kv_heads: int) -> None:
    """Every KV head serves the same number of query heads."""
    if num_heads % num_kv_heads:
        fitting = [count for count in range(1, min(num_heads, 1000) + 1) if num_heads % count == 0]
        raise ValueError(
            f"num_heads {num_heads} does not divide into num_kv_heads {num_kv_heads}; "
            f"num_kv_heads {', '.join(map(str, fitting[-8:]))} would fit"
        )
