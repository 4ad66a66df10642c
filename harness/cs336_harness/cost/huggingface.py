"""A Hugging Face ``config.json`` as a decoder's shape, and a refusal by name of what cannot be counted.

A wrong total is worse than none, so anything that would change a weight or a multiply and that the shape cannot say is
refused, and so is a key that nobody here knows. A key that is present and off (null, false, 0) is no reason to refuse.
Imports no torch.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

from cs336_harness.cost.architecture import Architecture
from cs336_harness.shapes import DecoderShape

_QKV = ("q_proj", "k_proj", "v_proj")
_ATTENTION = (*_QKV, "output_proj")
_FEED_FORWARD = ("w1", "w2", "w3")
_SILU = ("silu", "swish")
_GELU = ("gelu", "gelu_new", "gelu_pytorch_tanh")


@dataclasses.dataclass(frozen=True, slots=True)
class _Family:
    """What the models of one ``model_type`` have in common and their config.json does not say.

    ``switches`` are keys that give biases to some matrices. A family whose ``own_head_dim`` is set does not take
    d_model / num_heads for the width of a head, so the config must say it.
    """

    activations: tuple[str, ...] = _SILU
    switches: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    biases: tuple[str, ...] = ()
    qk_norm: bool = False
    own_head_dim: bool = False
    tied: bool = False


_FAMILIES = {
    "llama": _Family(switches={"attention_bias": _ATTENTION, "mlp_bias": _FEED_FORWARD}),
    "mistral": _Family(),
    "qwen2": _Family(biases=_QKV),
    "qwen3": _Family(switches={"attention_bias": _ATTENTION}, qk_norm=True, own_head_dim=True),
    "gemma": _Family(_GELU, switches={"attention_bias": _ATTENTION}, own_head_dim=True, tied=True),
}
FAMILIES = tuple(_FAMILIES)

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
    "qk_norm": "norms on queries and keys",
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

_KNOWN = frozenset(
    (
        *_SIZES.values(),
        "architectures",
        "model_type",
        "num_key_value_heads",
        "head_dim",
        "tie_word_embeddings",
        "hidden_act",
        "hidden_activation",
        "layer_types",
        "sliding_window",
        "use_sliding_window",
        "max_window_layers",
        "rms_norm_eps",
        "rope_theta",
        "rope_scaling",
        "rope_parameters",
        "rope_interleaved",
        "partial_rotary_factor",
        "original_max_position_embeddings",
        "dtype",
        "torch_dtype",
        "attention_dropout",
        "initializer_range",
        "use_cache",
        "pretraining_tp",
        "transformers_version",
        "_name_or_path",
        "name_or_path",
        "auto_map",
        "is_llama_config",
        "is_decoder",
        "return_dict",
        "problem_type",
        "id2label",
        "label2id",
        "chunk_size_feed_forward",
        "task_specific_params",
        "generation_config",
        "max_length",
        "max_sequence_length",
        "sep_token_id",
        "unsloth_fixed",
        "unsloth_version",
        "transformers.js_config",
        "_attn_implementation_autoset",
    )
)
"""Keys that are read, and keys that change neither a weight nor a multiply."""

_HARMLESS = re.compile(r"token_id$|^output_(?:attentions|hidden_states)$|dropout$|^_?attn_implementation")


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
    """The shape that a config describes. Raises ValueError that names the key that does not fit."""
    family = _family_of(config)
    sizes = {ours: _size(config, theirs) for ours, theirs in _SIZES.items()}
    num_kv_heads = sizes["num_heads"]
    # Left out, the key means as many heads as query heads in a Llama config and 8 in a Mistral one: ask.
    if config.get("num_key_value_heads") is not None or config["model_type"] != "llama":
        num_kv_heads = _size(config, "num_key_value_heads")
    head_dim = _size(config, "head_dim") if config.get("head_dim") is not None or family.own_head_dim else None
    biases = [*family.biases, *(name for key, names in family.switches.items() if _flag(config, key) for name in names)]
    tied = _flag(config, "tie_word_embeddings") if config.get("tie_word_embeddings") is not None else family.tied
    shape = DecoderShape(**sizes, num_kv_heads=num_kv_heads, tie_embeddings=tied)
    if head_dim in (None, shape.d_head) and not biases and not family.qk_norm:
        return shape
    return Architecture(
        **dataclasses.asdict(shape), head_dim=head_dim, biases=tuple(dict.fromkeys(biases)), qk_norm=family.qk_norm
    )


def _family_of(config: dict[str, Any]) -> _Family:
    name = config.get("model_type")
    family = _FAMILIES.get(name) if isinstance(name, str) else None
    for key, value in config.items():
        if value and key not in (family or _Family()).switches:
            _refuse_another_architecture(key, value, config)
    if name is None:
        raise ValueError(f"model_type is missing; a config.json that can be counted says one of {', '.join(FAMILIES)}")
    if family is None:
        raise ValueError(f"model_type is {_shown(name)}; what can be counted is one of {', '.join(FAMILIES)}")
    _refuse_layers_and_activation(config, family)
    for key, value in config.items():
        if value and key not in _KNOWN and key not in family.switches and not _HARMLESS.search(key):
            raise ValueError(
                f"{key} is {_shown(value)}: this key is not known here and may change a weight or a multiply; take it "
                "out of the file if it does not"
            )
    return family


def _refuse_another_architecture(key: str, value: Any, config: dict[str, Any]) -> None:
    if key == "sliding_window" and config.get("use_sliding_window") is False:
        return
    what = _OTHER_ARCHITECTURE.get(key)
    what = what or next((what for word, what in _OTHER_ARCHITECTURE_WORDS.items() if word in key.lower()), None)
    if what:
        raise ValueError(f"{key} is {_shown(value)}: {what}, which is not counted here")


def _refuse_layers_and_activation(config: dict[str, Any], family: _Family) -> None:
    layer_types = config.get("layer_types") or []
    for layer_type in layer_types if isinstance(layer_types, list) else [layer_types]:
        if layer_type != "full_attention":
            raise ValueError(f"layer_types holds {_shown(layer_type)}; every layer counted here is full_attention")
    for key in ("hidden_act", "hidden_activation"):
        activation = config.get(key) or family.activations[0]
        if activation not in family.activations:
            raise ValueError(
                f"{key} is {_shown(activation)}; the gated feed-forward of {config['model_type']} has "
                f"{' or '.join(family.activations)}"
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
