"""The oracle and the owned decoder against transformers' Llama: logits and the gradient of every weight, in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers", reason="needs transformers: uv run --group reference pytest -m reference")

from cs336_basics.config import TransformerConfig
from cs336_basics.huggingface import load_checkpoint_folder, their_name
from cs336_basics.transformer import TransformerLM
from cs336_harness.checks.whole_model import Case
from cs336_harness.shapes import DecoderShape

from . import huggingface

pytestmark = pytest.mark.reference

LARGEST_DIFFERENCE = 1e-10
"""Relative to the largest element of the tensor that is compared."""

SMALL = DecoderShape(
    vocab_size=37, context_length=40, d_model=24, num_layers=2, num_heads=6, num_kv_heads=6, d_ff=64, norm_eps=1e-5
)
SHAPES = {
    "mha": SMALL,
    "mha-tied": SMALL.replace(tie_embeddings=True, num_layers=3),
    "gqa-6-over-2": SMALL.replace(num_kv_heads=2),
    "gqa-6-over-2-tied": SMALL.replace(num_kv_heads=2, tie_embeddings=True, rope_theta=500000.0),
    "gqa-8-over-2": SMALL.replace(d_model=48, num_heads=8, num_kv_heads=2, num_layers=1),
    "mqa": SMALL.replace(num_kv_heads=1, rope_theta=100.0),
    "mqa-tied": SMALL.replace(num_kv_heads=1, tie_embeddings=True),
    "large-eps": SMALL.replace(norm_eps=1e-2, rope_theta=317.0),
    "tiny-eps": SMALL.replace(norm_eps=1e-8, num_kv_heads=3),
    "five-layers": SMALL.replace(num_layers=5, d_ff=40, num_heads=3, num_kv_heads=3),
    "one-head": SMALL.replace(num_heads=1, num_kv_heads=1, num_layers=1),
    "long": SMALL.replace(context_length=300, num_heads=2, num_kv_heads=1, d_model=16, num_layers=1),
}


def case_of(name: str) -> Case:
    return Case(SHAPES[name], rows=1 if name == "long" else 2, time=290 if name == "long" else 9)


def relative(actual: Tensor, expected: Tensor) -> float:
    return float((actual - expected).detach().abs().max() / expected.detach().abs().max())


def owned_decoder(shape: DecoderShape, weights: dict[str, Tensor]) -> TransformerLM:
    config = TransformerConfig(**shape.model_arguments(), norm_eps=shape.norm_eps)
    model = TransformerLM(config, device="meta")
    state = {name: weight.double().clone() for name, weight in weights.items()}
    model.load_state_dict(state, assign=True)
    return model


@pytest.mark.parametrize("name", SHAPES)
def test_oracle_and_owned_decoder_agree_with_transformers(name: str, record_property: Any) -> None:
    case = case_of(name)
    weights, token_ids, direction = case.weights(), case.token_ids(), case.direction()
    logits, gradients = huggingface.logits_and_gradients(case.shape, weights, token_ids, direction)
    by_oracle, oracle_gradients = huggingface.oracle_logits_and_gradients(case.shape, weights, token_ids, direction)
    model = owned_decoder(case.shape, weights)
    by_owned = model(token_ids)
    (by_owned * direction).sum().backward()
    owned_gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    owned_gradients.setdefault("lm_head.weight", owned_gradients["token_embeddings.weight"])
    differences = {"oracle logits": relative(by_oracle, logits), "owned logits": relative(by_owned, logits)}
    assert set(case.shape.weight_shapes()) == set(gradients) == set(oracle_gradients) == set(owned_gradients)
    for weight, gradient in gradients.items():
        differences[f"oracle {weight}"] = relative(oracle_gradients[weight], gradient)
        differences[f"owned {weight}"] = relative(owned_gradients[weight], gradient)
    worst = max(differences, key=lambda what: differences[what])
    record_property("figure", f"largest relative difference {differences[worst]:.1e} ({worst})")
    assert differences[worst] < LARGEST_DIFFERENCE, worst


def test_both_attentions_of_transformers_agree_with_the_oracle() -> None:
    case = case_of("gqa-6-over-2")
    call = (case.weights(), case.token_ids(), case.direction())
    expected, _ = huggingface.oracle_logits_and_gradients(case.shape, *call)
    for implementation in ("eager", "sdpa"):
        logits, _ = huggingface.logits_and_gradients(case.shape, *call, attn_implementation=implementation)
        assert relative(logits, expected) < LARGEST_DIFFERENCE


def test_a_wrong_permutation_is_seen() -> None:
    """The comparison can fail: with the rows as transformers has them, taken for ours, logits differ grossly."""
    case = case_of("mha")
    weights = case.weights()
    logits, _ = huggingface.logits_and_gradients(case.shape, weights, case.token_ids(), case.direction())
    unmoved = huggingface.to_huggingface(weights, case.shape.num_heads, case.shape.num_kv_heads)
    for name in weights:
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            weights[name] = unmoved[their_name(name)]
    differs, _ = huggingface.oracle_logits_and_gradients(case.shape, weights, case.token_ids(), case.direction())
    assert relative(differs, logits) > 0.01
    assert relative(differs[:, 0], logits[:, 0]) < LARGEST_DIFFERENCE  # position 0 is not rotated


@pytest.mark.parametrize("name", ["mha", "mha-tied", "gqa-6-over-2-tied", "mqa"])
@pytest.mark.parametrize("shard_size", ["5GB", "20KB"])
def test_a_folder_that_transformers_saved_is_loaded(tmp_path: Path, name: str, shard_size: str) -> None:
    case = case_of(name)
    saved = huggingface.llama(case.shape, case.weights())
    saved.save_pretrained(tmp_path, max_shard_size=shard_size)
    assert (tmp_path / "model.safetensors").exists() is (shard_size == "5GB")
    loaded = load_checkpoint_folder(tmp_path)
    assert loaded.config == TransformerConfig(**case.shape.model_arguments(), norm_eps=case.shape.norm_eps)
    with torch.no_grad():
        assert relative(loaded(case.token_ids()), saved(case.token_ids()).logits) < 1e-5


def test_a_bfloat16_folder_keeps_its_dtype(tmp_path: Path) -> None:
    case = case_of("mha")
    weights = {name: weight.bfloat16() for name, weight in case.weights().items()}
    huggingface.llama(case.shape, weights).save_pretrained(tmp_path)
    loaded = load_checkpoint_folder(tmp_path).state_dict()
    assert all(torch.equal(loaded[name], weight) for name, weight in weights.items())


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"head_dim": 8}, "head_dim"),
        ({"attention_dropout": 0.1}, "attention_dropout"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}, "rope_parameters"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_transformers_can_save_and_this_decoder_cannot_do_is_refused(
    tmp_path: Path, changes: dict[str, Any], key: str
) -> None:
    huggingface.LlamaForCausalLM(huggingface.llama_config(SMALL, **changes)).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=f"config.json: {key} is "):
        load_checkpoint_folder(tmp_path)
