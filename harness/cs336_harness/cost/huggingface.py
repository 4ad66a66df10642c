"""A Hugging Face ``config.json`` as a decoder's shape, and a refusal by name of what this decoder is not.

A wrong total is worse than none, so anything that would change a weight or a multiply and that the shape cannot say is
refused. A key that is present and off (null, false, 0) is no reason to refuse.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cs336_harness.shapes import DecoderShape

FAMILIES = ("llama", "mistral")

_SIZES = {
    "vocab_size": "vocab_size",
    "context_length": "max_position_embeddings",
    "d_model": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "d_ff": "intermediate_size",
}

_OTHER_ARCHITECTURE = {
    "attention_bias": "projections with biases",
    "qkv_bias": "projections with biases",
    "use_bias": "layers with biases",
    "mlp_bias": "a feed-forward with biases",
    "bias": "layers with biases",
    "sliding_window": "attention over a sliding window",
    "attention_window": "attention over a window",
    "attention_chunk_size": "attention in chunks",
    "use_qk_norm": "norms on queries and keys",
    "qk_layernorm": "norms on queries and keys",
    "n_positions": "learned positions",
    "type_vocab_size": "segment embeddings",
    "add_cross_attention": "cross-attention",
    "is_encoder_decoder": "an encoder",
    "parallel_attn": "attention and feed-forward side by side",
    "use_parallel_residual": "attention and feed-forward side by side",
    "kv_lora_rank": "compressed keys and values",
    "q_lora_rank": "compressed queries",
    "quantization_config": "quantised weights",
    "cross_attention_layers": "cross-attention",
    "vision_config": "a vision tower",
    "text_config": "a decoder inside a larger model",
}
_OTHER_ARCHITECTURE_WORDS = {"expert": "experts", "moe": "experts", "layernorm_bias": "norms with biases"}


def read_config(path: Path) -> tuple[DecoderShape, str | None]:
    """The shape that a ``config.json`` describes, and the dtype that it names, if it names one.

    Raises:
        ValueError: the file cannot be read, is no JSON object, lacks a size, or describes another architecture.
    """
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {_first_line(error)}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path} holds a {type(config).__name__}, not the object of a Hugging Face config.json")
    try:
        return shape_of_config(config), _dtype_of(config)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def shape_of_config(config: dict[str, Any]) -> DecoderShape:
    """The shape that a Llama-family config describes. Raises ValueError that names the key that does not fit."""
    _refuse_other_architectures(config)
    sizes = {ours: _size(config, theirs) for ours, theirs in _SIZES.items()}
    num_kv_heads = sizes["num_heads"]
    # Left out, the key means as many heads as query heads in a Llama config and 8 in a Mistral one: ask.
    if config.get("num_key_value_heads") is not None or config["model_type"] != "llama":
        num_kv_heads = _size(config, "num_key_value_heads")
    shape = DecoderShape(
        **sizes,
        num_kv_heads=num_kv_heads,
        tie_embeddings=_flag(config, "tie_word_embeddings"),
    )
    _refuse_unusual_heads(config, shape)
    return shape


def _refuse_other_architectures(config: dict[str, Any]) -> None:
    for key, value in config.items():
        if not value or (key == "sliding_window" and config.get("use_sliding_window") is False):
            continue
        what = _OTHER_ARCHITECTURE.get(key)
        what = what or next((what for word, what in _OTHER_ARCHITECTURE_WORDS.items() if word in key.lower()), None)
        if what:
            raise ValueError(f"{key} is {_shown(value)}: {what}, which this decoder does not have")
    layer_types = config.get("layer_types") or []
    for layer_type in layer_types if isinstance(layer_types, list) else [layer_types]:
        if layer_type != "full_attention":
            raise ValueError(f"layer_types holds {_shown(layer_type)}; every layer of this decoder is full_attention")
    activation = config.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise ValueError(
            f"hidden_act is {_shown(activation)}; this decoder's feed-forward is SwiGLU, whose act is silu"
        )
    family = config.get("model_type")
    if family is None:
        raise ValueError(f"model_type is missing; a config.json of the Llama family says {' or '.join(FAMILIES)}")
    if family not in FAMILIES:
        raise ValueError(
            f"model_type is {_shown(family)}; this decoder is one of the Llama family ({', '.join(FAMILIES)})"
        )


def _refuse_unusual_heads(config: dict[str, Any], shape: DecoderShape) -> None:
    d_head = config.get("head_dim")
    if d_head is not None and d_head * shape.num_heads != shape.d_model:
        raise ValueError(
            f"head_dim is {_shown(d_head)}; this decoder's heads are hidden_size / num_attention_heads = "
            f"{shape.d_model}/{shape.num_heads} channels wide"
        )


def _dtype_of(config: dict[str, Any]) -> str | None:
    name = config.get("dtype") or config.get("torch_dtype")
    return name if isinstance(name, str) else None


def _size(config: dict[str, Any], key: str) -> int:
    value = config.get(key)
    if value is None:
        raise ValueError(f"{key} is missing")
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{key} is {_shown(value)}; it must be a positive integer")
    return value


def _flag(config: dict[str, Any], key: str) -> bool:
    value = config.get(key, False)
    if value not in (True, False, None):
        raise ValueError(f"{key} is {_shown(value)}; it must be true or false")
    return bool(value)


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
