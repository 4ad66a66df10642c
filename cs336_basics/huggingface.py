"""Checkpoints of the Llama family as Hugging Face stores them: names, the order of rotated channels, and whole folders.

The sole home of the key map and of the permutation. Hugging Face pairs channel i of a head with channel i + d_head/2,
this decoder pairs 2i with 2i + 1. Both rotate pair i by the same angle, so moving the rows of the query and key
projections is all that lies between the two; scores are sums over a head's channels, in whatever order.

    a head's rows there   a0 a1 a2 b0 b1 b2        here   a0 b0 a1 b1 a2 b2        pairs (a_i, b_i)
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from cs336_basics.attention import Attention, scaled_dot_product_attention
from cs336_basics.huggingface_config import read_config
from cs336_basics.transformer import TransformerLM

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"

_OUTSIDE_OF_LAYERS = {
    "model.embed_tokens.weight": "token_embeddings.weight",
    "model.norm.weight": "ln_final.weight",
    "lm_head.weight": "lm_head.weight",
}
_IN_A_LAYER = {
    "self_attn.q_proj.weight": "attn.q_proj.weight",
    "self_attn.k_proj.weight": "attn.k_proj.weight",
    "self_attn.v_proj.weight": "attn.v_proj.weight",
    "self_attn.o_proj.weight": "attn.output_proj.weight",
    "input_layernorm.weight": "ln1.weight",
    "mlp.gate_proj.weight": "ffn.w1.weight",
    "mlp.down_proj.weight": "ffn.w2.weight",
    "mlp.up_proj.weight": "ffn.w3.weight",
    "post_attention_layernorm.weight": "ln2.weight",
}
_THEIRS_IN_A_LAYER = {ours: theirs for theirs, ours in _IN_A_LAYER.items()}
_THEIRS_OUTSIDE = {ours: theirs for theirs, ours in _OUTSIDE_OF_LAYERS.items()}
_LEFT_OVER = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
"""A table that old checkpoints carry along; it follows from theta."""


def interleave_pairs(weight: Tensor, num_heads: int) -> Tensor:
    """Rows (num_heads · d_head, …) of a query or key projection: pairs (i, i + d_head/2) become (2i, 2i + 1)."""
    return weight.unflatten(0, (num_heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def split_pairs(weight: Tensor, num_heads: int) -> Tensor:
    """The inverse of :func:`interleave_pairs`: pairs (2i, 2i + 1) become (i, i + d_head/2)."""
    return weight.unflatten(0, (num_heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def from_huggingface(weights: Mapping[str, Tensor], num_heads: int, num_kv_heads: int) -> dict[str, Tensor]:
    """Weights under Hugging Face's names as this decoder's state dict.

    Raises:
        ValueError: a name is none of the Llama family's.
    """
    ours = {}
    for theirs, weight in weights.items():
        name = our_name(theirs)
        heads = _rotated_heads(name, num_heads, num_kv_heads)
        ours[name] = interleave_pairs(weight, heads) if heads else weight
    return ours


def to_huggingface(weights: Mapping[str, Tensor], num_heads: int, num_kv_heads: int) -> dict[str, Tensor]:
    """This decoder's state dict under Hugging Face's names. Raises ValueError for any other name."""
    theirs = {}
    for name, weight in weights.items():
        heads = _rotated_heads(name, num_heads, num_kv_heads)
        theirs[their_name(name)] = split_pairs(weight, heads) if heads else weight
    return theirs


def our_name(theirs: str) -> str:
    """``model.layers.0.mlp.up_proj.weight`` -> ``layers.0.ffn.w3.weight``. Raises ValueError for any other name."""
    if theirs in _OUTSIDE_OF_LAYERS:
        return _OUTSIDE_OF_LAYERS[theirs]
    layer = re.fullmatch(r"model\.layers\.(\d+)\.(.+)", theirs)
    if layer is None or layer[2] not in _IN_A_LAYER:
        raise ValueError(f"{theirs} is no weight of this decoder")
    return f"layers.{layer[1]}.{_IN_A_LAYER[layer[2]]}"


def their_name(ours: str) -> str:
    """The inverse of :func:`our_name`. Raises ValueError for a name that is none of a decoder's."""
    if ours in _THEIRS_OUTSIDE:
        return _THEIRS_OUTSIDE[ours]
    layer = re.fullmatch(r"layers\.(\d+)\.(.+)", ours)
    if layer is None or layer[2] not in _THEIRS_IN_A_LAYER:
        raise ValueError(f"{ours} is no weight of this decoder")
    return f"model.layers.{layer[1]}.{_THEIRS_IN_A_LAYER[layer[2]]}"


def _rotated_heads(name: str, num_heads: int, num_kv_heads: int) -> int | None:
    """How many heads the rows of a weight make, if they are rotated: queries and keys are, values are not."""
    if name.endswith(".q_proj.weight"):
        return num_heads
    return num_kv_heads if name.endswith(".k_proj.weight") else None


def load_checkpoint_folder(
    path: str | Path, attention: Attention = scaled_dot_product_attention, device: torch.device | str = "cpu"
) -> TransformerLM:
    """The decoder in a checkpoint folder: ``config.json`` and safetensors, in one file or in shards with their index.

    It has the dtype of the checkpoint, and its context length is ``max_position_embeddings``. Tied or untied as the
    config says.

    Raises:
        ValueError: a file is missing or damaged; the config describes what this decoder does not implement, named by
            its key; weights are missing, left over, of another size, of several dtypes, or no floating-point numbers.
    """
    folder = Path(path)
    if not (folder / CONFIG).is_file():
        raise ValueError(f"{folder} holds no {CONFIG}; give the folder of a checkpoint: {CONFIG} and {WEIGHTS}")
    config = read_config(folder / CONFIG)
    model = TransformerLM(config, attention, device="meta")
    weights = _read_weights(folder, str(device))
    try:
        _refuse_other_weights(weights, model)
        model.load_state_dict(from_huggingface(weights, config.num_heads, config.num_kv_heads), assign=True)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None
    return model


def _read_weights(folder: Path, device: str) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = {}
    for file, names in _files(folder).items():
        if not (folder / file).is_file():
            raise ValueError(f"{folder} lacks {file}, which {INDEX} names")
        try:
            with safe_open(folder / file, framework="pt", device=device) as opened:
                held = set(opened.keys())
                absent = [name for name in names or [] if name not in held]
                if absent:
                    raise ValueError(f"{folder / file} lacks {absent[0]}, which {INDEX} says it holds")
                weights |= {name: opened.get_tensor(name) for name in names or sorted(held)}
        except SafetensorError as error:
            raise ValueError(f"{folder / file} is not a readable safetensors file: {error}") from None
    return {name: weight for name, weight in weights.items() if not _LEFT_OVER.fullmatch(name)}


def _files(folder: Path) -> dict[str, list[str] | None]:
    """The files with weights, and which of their weights are meant: None for all of them."""
    if (folder / INDEX).is_file():
        files: dict[str, list[str] | None] = {}
        for name, file in _weight_map(folder / INDEX).items():
            if not isinstance(file, str) or Path(file).name != file:
                raise ValueError(f"{folder / INDEX} places {name} in {file!r}; a shard lies in the folder itself")
            files[file] = [*(files.get(file) or []), name]
        return files
    if (folder / WEIGHTS).is_file():
        return {WEIGHTS: None}
    pickled = next((file.name for file in sorted(folder.glob("*.bin")) if file.is_file()), None)
    also = f"; {pickled} is a pickle, which is never opened: save the model as safetensors" if pickled else ""
    raise ValueError(f"{folder} holds neither {WEIGHTS} nor {INDEX}{also}")


def _weight_map(path: Path) -> dict[str, Any]:
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
        return dict(index["weight_map"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is no index of shards: a JSON object with a weight_map") from None


def _refuse_other_weights(weights: Mapping[str, Tensor], model: TransformerLM) -> None:
    """ValueError, in the checkpoint's own names, unless these are the weights of the model and nothing else."""
    expected = {their_name(name): tuple(weight.shape) for name, weight in model.state_dict().items()}
    head, embedding = "lm_head.weight", "model.embed_tokens.weight"
    missing = [name for name in _by_layer(expected) if name not in weights]
    if model.config.tie_embeddings:  # either name will do, or equal numbers under both
        expected[head] = expected[embedding]
        if head in weights and embedding in missing:
            missing.remove(embedding)
    left_over = [name for name in _by_layer(weights) if name not in expected]
    if left_over:
        raise ValueError(
            f"{_first_and_how_many(left_over)} left over: this decoder, at these sizes, has no such weight"
        )
    if missing:
        tied = ", and tie_word_embeddings is not true" if missing == [head] else ""
        raise ValueError(f"{_first_and_how_many(missing)} missing{tied}")
    dtypes: dict[torch.dtype, str] = {}
    for name in _by_layer(weights):
        weight = weights[name]
        if tuple(weight.shape) != expected[name]:
            raise ValueError(f"{name} has the shape {tuple(weight.shape)}, these sizes need {expected[name]}")
        if not weight.is_floating_point():
            raise ValueError(f"{name} is {weight.dtype}; a decoder's weights are floating-point numbers")
        dtypes.setdefault(weight.dtype, name)
    if len(dtypes) > 1:
        listed = " and ".join(f"{name} {dtype}" for dtype, name in dtypes.items())
        raise ValueError(f"the weights have several dtypes, {listed}; save them in one")


def _by_layer(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: [int(part) if part.isdigit() else -1 for part in name.split(".")])


def _first_and_how_many(names: list[str]) -> str:
    return f"{names[0]} is" if len(names) == 1 else f"{names[0]} and {len(names) - 1} more are"
