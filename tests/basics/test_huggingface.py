"""Checkpoint folders of the Llama family: names, the order of rotated channels, one clear line for each wrong one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from cs336_basics import huggingface
from cs336_basics.config import TransformerConfig
from cs336_basics.huggingface_config import config_from_huggingface
from cs336_basics.rope import rotary_table, rotate
from cs336_basics.transformer import TransformerLM

CONFIG = TransformerConfig(
    vocab_size=17,
    context_length=9,
    d_model=24,
    num_layers=2,
    num_heads=6,
    num_kv_heads=2,
    d_ff=10,
    rope_theta=300.0,
    norm_eps=1e-3,
)
VALUES: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "head_dim": 4,
    "hidden_act": "silu",
    "hidden_size": 24,
    "intermediate_size": 10,
    "max_position_embeddings": 9,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 6,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "pretraining_tp": 1,
    "quantization_config": None,
    "rms_norm_eps": 1e-3,
    "rope_scaling": None,
    "rope_theta": 300.0,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "transformers_version": "4.55.0",
    "vocab_size": 17,
}
TOKEN_IDS = torch.tensor([[3, 16, 0, 5, 9], [1, 2, 3, 4, 0]])


def complaint(function: Callable[[], object]) -> str:
    """The one line that a call refuses with."""
    with pytest.raises(ValueError, match=r".") as refused:
        function()
    assert "\n" not in str(refused.value)
    return str(refused.value)


def decoder(tied: bool = False) -> TransformerLM:
    generator = torch.Generator().manual_seed(1)
    config = TransformerConfig.from_json(json.dumps({**json.loads(CONFIG.to_json()), "tie_embeddings": tied}))
    return TransformerLM(config, generator=generator)


def checkpoint(model: TransformerLM) -> dict[str, Tensor]:
    state = model.state_dict()
    return huggingface.to_huggingface({name: weight.clone() for name, weight in state.items()}, 6, 2)


def write(folder: Path, values: dict[str, Any], *shards: dict[str, Tensor]) -> Path:
    """A checkpoint folder; several shards get an index."""
    (folder / "config.json").write_text(json.dumps(values))
    files = [f"model-{number:05}-of-{len(shards):05}.safetensors" for number in range(1, len(shards) + 1)]
    if len(shards) == 1:
        files = ["model.safetensors"]
    else:
        weight_map = {name: file for file, shard in zip(files, shards, strict=True) for name in shard}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    for file, shard in zip(files, shards, strict=True):
        save_file({name: weight.contiguous() for name, weight in shard.items()}, folder / file)
    return folder


def test_half_split_and_interleaved_rotation_agree_under_the_permutation() -> None:
    """Rotating pairs (i, i + 2) by hand, then permuting, is permuting, then this decoder's rotation; values by hand."""
    rows = torch.arange(8.0)
    assert huggingface.interleave_pairs(rows, 2).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    channels = torch.randn(
        8, 5, generator=torch.Generator().manual_seed(2)
    )  # two heads of four channels, five positions
    table = rotary_table(torch.arange(5), 4, 300.0, torch.float64)
    split = channels.double().unflatten(0, (2, 2, 2))  # head, half, pair, position
    cos, sin = table.real.T, table.imag.T
    first = split[:, 0] * cos - split[:, 1] * sin
    second = split[:, 0] * sin + split[:, 1] * cos
    by_hand = huggingface.interleave_pairs(torch.stack((first, second), 1).flatten(0, 2), 2)
    ours = rotate(huggingface.interleave_pairs(channels.double(), 2).unflatten(0, (2, 4)).mT, table).mT.flatten(0, 1)
    assert (ours - by_hand).abs().max() < 1e-15


def test_both_ways_give_back_every_weight() -> None:
    state = decoder().state_dict()
    theirs = huggingface.to_huggingface(state, 6, 2)
    assert not torch.equal(theirs["model.layers.1.self_attn.k_proj.weight"], state["layers.1.attn.k_proj.weight"])
    back = huggingface.from_huggingface(theirs, 6, 2)
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], state[name]) for name in state)


@pytest.mark.parametrize("name", ["model.layers.0.self_attn.q_norm.weight", "model.layers.x.mlp.up_proj.weight", "h.0"])
def test_a_name_of_another_model_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is no weight of this decoder"):
        huggingface.from_huggingface({name: torch.zeros(2)}, 1, 1)
    with pytest.raises(ValueError, match=f"{name} is no weight of this decoder"):
        huggingface.to_huggingface({name: torch.zeros(2)}, 1, 1)


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("sharded", [False, True], ids=["whole", "sharded"])
def test_a_folder_gives_the_same_logits(tmp_path: Path, tied: bool, sharded: bool) -> None:
    model = decoder(tied)
    weights = checkpoint(model)
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(2)  # old checkpoints carry it
    names = list(weights)
    shards = [weights] if not sharded else [{name: weights[name] for name in names[part::3]} for part in range(3)]
    loaded = huggingface.load_checkpoint_folder(write(tmp_path, {**VALUES, "tie_word_embeddings": tied}, *shards))
    assert loaded.config == model.config
    assert torch.equal(loaded(TOKEN_IDS), model(TOKEN_IDS))
    assert len(list(loaded.parameters())) == len(list(model.parameters()))
    assert all(weight.requires_grad for weight in loaded.parameters())


def test_a_tied_folder_may_name_its_matrix_either_way_or_both(tmp_path: Path) -> None:
    model = decoder(tied=True)
    weights, values = checkpoint(model), {**VALUES, "tie_word_embeddings": True}
    matrix = weights["model.embed_tokens.weight"]
    both = {**weights, "lm_head.weight": matrix.clone()}
    assert torch.equal(huggingface.load_checkpoint_folder(write(tmp_path, values, both))(TOKEN_IDS), model(TOKEN_IDS))
    del both["model.embed_tokens.weight"]
    assert torch.equal(huggingface.load_checkpoint_folder(write(tmp_path, values, both))(TOKEN_IDS), model(TOKEN_IDS))
    apart = {**weights, "lm_head.weight": matrix + (torch.arange(17) == 3)[:, None]}
    with pytest.raises(ValueError, match="differ in 1 of 17 rows, first in row 3, and this model is tied"):
        huggingface.load_checkpoint_folder(write(tmp_path, values, apart))


def test_the_dtype_is_that_of_the_checkpoint(tmp_path: Path) -> None:
    weights = {name: weight.bfloat16() for name, weight in checkpoint(decoder()).items()}
    loaded = huggingface.load_checkpoint_folder(write(tmp_path, VALUES, weights))
    assert {weight.dtype for weight in loaded.parameters()} == {torch.bfloat16}


def test_what_a_config_leaves_out_is_what_the_family_means() -> None:
    optional = ("rms_norm_eps", "rope_theta", "num_key_value_heads", "tie_word_embeddings", "hidden_act", "head_dim")
    config = config_from_huggingface({key: value for key, value in VALUES.items() if key not in optional})
    assert (config.norm_eps, config.rope_theta, config.num_kv_heads, config.tie_embeddings) == (1e-6, 1e4, 6, False)


@pytest.mark.parametrize(
    "change",
    [
        {"rope_parameters": {"rope_theta": 300.0, "rope_type": "default"}, "rope_theta": None},
        {"rope_scaling": {"type": "default"}},
        {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": None},
        {"sliding_window": 4096, "use_sliding_window": False},
        {"layer_types": ["full_attention", "full_attention"]},
        {"architectures": None, "head_dim": None, "partial_rotary_factor": 1.0},
    ],
    ids=lambda change: next(iter(change)),
)
def test_keys_that_are_present_and_off_change_nothing(change: dict[str, Any]) -> None:
    assert config_from_huggingface({**VALUES, **change}) == CONFIG


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attention_bias": True}, "attention_bias is true: attention projections with biases, which this decoder"),
        ({"mlp_bias": True}, "mlp_bias is true: a feed-forward with biases"),
        ({"attention_dropout": 0.1}, "attention_dropout is 0.1: dropout on the attention"),
        ({"sliding_window": 4096}, "sliding_window is 4096: attention over a sliding window"),
        ({"quantization_config": {"bits": 4}}, 'quantization_config is {"bits": 4}: quantised weights'),
        ({"layer_types": ["full_attention", "sliding_attention"]}, 'layer_types holds "sliding_attention"'),
        ({"hidden_act": "gelu"}, 'hidden_act is "gelu"; the gate of this decoder'),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8}}, 'rope_scaling is of the type "llama3"; this decoder'),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, 'rope_scaling is of the type "linear"'),
        ({"rope_scaling": "yarn"}, 'rope_scaling is "yarn"; it must be an object or null'),
        ({"rope_parameters": {"rope_type": "yarn"}}, 'rope_parameters is of the type "yarn"'),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5; this decoder rotates every channel"),
        ({"head_dim": 8}, "head_dim is 8; this decoder's heads have hidden_size / num_attention_heads = 24/6 = 4"),
        ({"model_type": "qwen2"}, 'model_type is "qwen2"; this decoder is one of the Llama family'),
        ({"model_type": None}, "model_type is missing"),
        ({"architectures": ["LlamaForSequenceClassification"]}, 'architectures holds "LlamaForSequenceClassification"'),
        (
            {"model_type": "mistral", "architectures": None, "num_key_value_heads": None},
            "num_key_value_heads is missing",
        ),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"num_attention_heads": 5}, "d_model 24 does not divide into num_heads 5"),
        ({"tie_word_embeddings": "yes"}, "tie_embeddings must be True or False, got 'yes'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_this_decoder_is_not_is_refused_by_its_key(change: dict[str, Any], message: str) -> None:
    assert complaint(lambda: config_from_huggingface({**VALUES, **change})).startswith(message)


def _without(name: str) -> Callable[[dict[str, Tensor]], Any]:
    return lambda weights: weights.pop(name)


def _with(name: str, weight: Tensor) -> Callable[[dict[str, Tensor]], Any]:
    return lambda weights: weights.update({name: weight})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_without("model.layers.1.mlp.up_proj.weight"), "model.layers.1.mlp.up_proj.weight is missing"),
        (lambda weights: weights.clear(), "lm_head.weight and 20 more are missing"),
        (_without("lm_head.weight"), "lm_head.weight is missing, and tie_word_embeddings is not true"),
        (
            _with("model.layers.0.self_attn.q_proj.bias", torch.zeros(24)),
            "model.layers.0.self_attn.q_proj.bias is left over: this decoder, at these sizes, has no such weight",
        ),
        (
            _with("model.layers.2.input_layernorm.weight", torch.zeros(24)),
            "model.layers.2.input_layernorm.weight is left over",
        ),
        (
            _with("model.norm.weight", torch.zeros(23)),
            "model.norm.weight has the shape (23,), these sizes need (24,)",
        ),
        (_with("model.norm.weight", torch.zeros(24, dtype=torch.int8)), "model.norm.weight is torch.int8; a decoder's"),
        (
            _with("model.norm.weight", torch.zeros(24, dtype=torch.float16)),
            "the weights have several dtypes, lm_head.weight torch.float32 and model.norm.weight torch.float16",
        ),
    ],
    ids=["one-missing", "all-missing", "head-missing", "bias", "third-layer", "size", "int8", "two-dtypes"],
)
def test_weights_that_do_not_fit_are_named(
    tmp_path: Path, damage: Callable[[dict[str, Tensor]], Any], message: str
) -> None:
    weights = checkpoint(decoder())
    damage(weights)
    folder = write(tmp_path, VALUES, weights)
    assert complaint(lambda: huggingface.load_checkpoint_folder(folder)).startswith(f"{folder}: {message}")


def test_a_folder_that_is_no_checkpoint_says_what_is_missing(tmp_path: Path) -> None:
    def refusal() -> str:
        return complaint(lambda: huggingface.load_checkpoint_folder(tmp_path)).replace(str(tmp_path), "FOLDER")

    assert refusal().startswith("FOLDER holds no config.json; give the folder of a checkpoint")
    config = tmp_path / "config.json"
    for text, problem in (("{", "is not JSON"), ("[1]", "holds a list, not the object"), ("{}", "model_type is")):
        config.write_text(text)
        assert problem in refusal()
    config.write_text(json.dumps(VALUES))
    assert refusal() == "FOLDER holds neither model.safetensors nor model.safetensors.index.json"
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    assert refusal().endswith("pytorch_model.bin is a pickle, which is never opened: save the model as safetensors")
    (tmp_path / "model.safetensors").write_bytes(b"no tensors")
    assert refusal().startswith("FOLDER/model.safetensors is not a readable safetensors file")


def test_a_broken_set_of_shards_says_which(tmp_path: Path) -> None:
    weights = checkpoint(decoder())
    head = {"lm_head.weight": weights.pop("lm_head.weight")}
    write(tmp_path, VALUES, weights, head)
    index = tmp_path / "model.safetensors.index.json"
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    whole = json.loads(index.read_text())

    def refusal(weight_map: Any) -> str:
        index.write_text(json.dumps({"weight_map": weight_map}))
        return complaint(lambda: huggingface.load_checkpoint_folder(tmp_path)).replace(str(tmp_path), "FOLDER")

    assert refusal([1]).endswith("is no index of shards: a JSON object with a weight_map")
    outside = refusal({**whole["weight_map"], "lm_head.weight": "../elsewhere.safetensors"})
    assert "places lm_head.weight in '../elsewhere.safetensors'; a shard lies in the folder itself" in outside
    mistaken = refusal({**whole["weight_map"], "lm_head.weight": first})
    assert mistaken.startswith(f"FOLDER/{first} lacks lm_head.weight, which model.safetensors.index.json says")
    (tmp_path / second).unlink()
    assert refusal(whole["weight_map"]) == f"FOLDER lacks {second}, which model.safetensors.index.json names"
