"""A Hugging Face ``config.json`` of the Llama family as a ``TransformerConfig``, and a refusal by key of anything else.

What would change a number that the model computes, and that this decoder does not have, is refused with its key. A key
that is present and off (null, false, 0, "default") is no reason to refuse. Imports no torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cs336_basics.config import TransformerConfig

FAMILIES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM"}
"""``model_type`` and architecture of the checkpoints that are this decoder."""

_SIZES = {
    "vocab_size": "vocab_size",
    "context_length": "max_position_embeddings",
    "d_model": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "d_ff": "intermediate_size",
}

_NOT_HERE = {
    "attention_bias": "attention projections with biases",
    "mlp_bias": "a feed-forward with biases",
    "attention_dropout": "dropout on the attention",
    "sliding_window": "attention over a sliding window",
    "quantization_config": "quantised weights",
    "add_cross_attention": "cross-attention",
    "is_encoder_decoder": "an encoder",
    "num_local_experts": "experts",
    "vision_config": "a vision tower",
}

DEFAULT_THETA, DEFAULT_EPS = 10000.0, 1e-6
"""What the family means when its config does not say."""


def read_config(path: str | Path) -> TransformerConfig:
    """The config that a ``config.json`` describes.

    Raises:
        ValueError: the file cannot be read, is no JSON object, lacks a size, or describes another architecture.
    """
    path = Path(path)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} holds a {type(values).__name__}, not the object of a Hugging Face config.json")
    try:
        return config_from_huggingface(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def config_from_huggingface(values: Mapping[str, Any]) -> TransformerConfig:
    """The config that the object of a ``config.json`` describes. Raises ValueError naming the key that does not fit."""
    family = _family(values)
    for key, what in _NOT_HERE.items():
        off = key == "sliding_window" and values.get("use_sliding_window") is False
        if values.get(key) and not off:
            raise ValueError(f"{key} is {_shown(values[key])}: {what}, which this decoder does not have")
    for layer_type in values.get("layer_types") or []:
        if layer_type != "full_attention":
            raise ValueError(f"layer_types holds {_shown(layer_type)}; every layer of this decoder is full_attention")
    if values.get("hidden_act", "silu") not in ("silu", "swish"):
        raise ValueError(f"hidden_act is {_shown(values['hidden_act'])}; the gate of this decoder's SwiGLU is silu")
    sizes = {ours: _required(values, theirs) for ours, theirs in _SIZES.items()}
    num_kv_heads = values.get("num_key_value_heads")
    if num_kv_heads is None and family != "llama":  # a Llama config means num_attention_heads, a Mistral one means 8
        num_kv_heads = _required(values, "num_key_value_heads")
    config = TransformerConfig(
        **sizes,
        num_kv_heads=sizes["num_heads"] if num_kv_heads is None else num_kv_heads,
        rope_theta=_rope_theta(values),
        norm_eps=values.get("rms_norm_eps", DEFAULT_EPS),
        tie_embeddings=values.get("tie_word_embeddings", False),
    )
    if values.get("head_dim") not in (None, config.d_head):
        raise ValueError(
            f"head_dim is {_shown(values['head_dim'])}; this decoder's heads have hidden_size / num_attention_heads = "
            f"{config.d_model}/{config.num_heads} = {config.d_head} channels"
        )
    return config


def _family(values: Mapping[str, Any]) -> str:
    family = values.get("model_type")
    if family not in FAMILIES:
        stated = "is missing" if family is None else f"is {_shown(family)}"
        raise ValueError(f"model_type {stated}; this decoder is one of the Llama family ({', '.join(FAMILIES)})")
    for architecture in values.get("architectures") or []:
        if architecture != FAMILIES[family]:
            raise ValueError(f"architectures holds {_shown(architecture)}; a decoder with logits is {FAMILIES[family]}")
    return family


def _rope_theta(values: Mapping[str, Any]) -> float:
    """The base of the rotation. It stands at the top of the config or, in newer files, in ``rope_parameters``."""
    for key in ("rope_scaling", "rope_parameters"):
        rope = values.get(key) or {}
        if not isinstance(rope, Mapping):
            raise ValueError(f"{key} is {_shown(rope)}; it must be an object or null")
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind != "default":
            raise ValueError(f"{key} is of the type {_shown(kind)}; this decoder rotates without any scaling")
    rope = values.get("rope_parameters") or {}
    for place in (values, rope):
        if place.get("partial_rotary_factor") not in (None, 1):
            share = _shown(place["partial_rotary_factor"])
            raise ValueError(f"partial_rotary_factor is {share}; this decoder rotates every channel of a head")
    return rope.get("rope_theta", values.get("rope_theta", DEFAULT_THETA))


def _required(values: Mapping[str, Any], key: str) -> Any:
    if values.get(key) is None:
        raise ValueError(f"{key} is missing")
    return values[key]


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
