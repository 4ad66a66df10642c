"""Save and load: the same model comes back, and a file that is none is named."""

import dataclasses
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from small_decoder import CONFIG, assert_near

from cs336_basics import checkpoint
from cs336_basics.attention import fused_scaled_dot_product_attention
from cs336_basics.transformer import TransformerLM

IDS = torch.tensor([[3, 0, 30, 7]])


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_same_model_comes_back(tmp_path: Path, tied: bool, dtype: torch.dtype) -> None:
    model = TransformerLM(dataclasses.replace(CONFIG, tie_embeddings=tied, norm_eps=1e-3), dtype=dtype)
    checkpoint.save(model, tmp_path / "model.safetensors")
    loaded = checkpoint.load(tmp_path / "model.safetensors")
    assert loaded.config == model.config
    assert torch.equal(loaded(IDS), model(IDS))
    assert all(weight.requires_grad and weight.dtype == dtype for weight in loaded.parameters())
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        assert ("lm_head.weight" in set(file.keys())) is not tied
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_the_attention_is_chosen_on_loading(tmp_path: Path) -> None:
    model = TransformerLM(CONFIG)
    checkpoint.save(model, str(tmp_path / "model"))
    loaded = checkpoint.load(str(tmp_path / "model"), attention=fused_scaled_dot_product_attention)
    assert loaded.layers[0].attn.attention is fused_scaled_dot_product_attention
    assert_near(loaded(IDS), model(IDS), 1e-5)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    checkpoint.save(TransformerLM(CONFIG), path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match=r"model\.safetensors is not a readable safetensors file: "):
        checkpoint.load(path)


def test_a_file_without_a_config_is_named(tmp_path: Path) -> None:
    save_file(TransformerLM(CONFIG).state_dict(), tmp_path / "bare")
    with pytest.raises(ValueError, match=r"bare carries no config in its metadata"):
        checkpoint.load(tmp_path / "bare")


def test_no_file_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        checkpoint.load(tmp_path / "absent")
