"""transformers' ``LlamaForCausalLM`` at any shape, with the oracle's weights, at full float64 precision."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama import modeling_llama

from cs336_basics.huggingface import from_huggingface, to_huggingface
from cs336_harness.reference.oracle import Oracle
from cs336_harness.shapes import DecoderShape


def llama_config(shape: DecoderShape, **changes: Any) -> LlamaConfig:
    """A shape in transformers' words."""
    fields = {
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.d_model,
        "intermediate_size": shape.d_ff,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "max_position_embeddings": shape.context_length,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_theta},
        "rms_norm_eps": shape.norm_eps,
        "tie_word_embeddings": shape.tie_embeddings,
        "attn_implementation": "sdpa",
        "use_cache": False,
    }
    return LlamaConfig(**{**fields, **changes})


class _WidestTorch(ModuleType):
    """``torch``, in which float32 is float64."""

    float32 = float = torch.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@contextlib.contextmanager
def in_float64() -> Iterator[None]:
    """transformers computes norms, rotary angles and eager softmax in float32, whatever the dtype of the model.

    Within this context every mention of float32 in its Llama means float64; its code is the same otherwise.
    """
    with (
        mock.patch.object(modeling_llama, "torch", _WidestTorch("torch")),
        mock.patch.object(torch.Tensor, "float", torch.Tensor.double),
    ):
        yield


def llama(shape: DecoderShape, weights: Mapping[str, Tensor], **changes: Any) -> LlamaForCausalLM:
    """transformers' Llama with weights given under canonical names, in their dtype (float64: :func:`in_float64`)."""
    model = LlamaForCausalLM(llama_config(shape, **changes)).to(next(iter(weights.values())).dtype).eval()
    theirs = to_huggingface(weights, shape.num_heads, shape.num_kv_heads)
    model.load_state_dict(theirs)
    return model


def gradients(model: LlamaForCausalLM, shape: DecoderShape) -> dict[str, Tensor]:
    """The gradients that the last backward pass left, under canonical names and in the canonical order of rows."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    theirs = {name: parameter.grad for name, parameter in parameters.items() if parameter.grad is not None}
    return from_huggingface(theirs, shape.num_heads, shape.num_kv_heads)


def logits_and_gradients(
    shape: DecoderShape, weights: Mapping[str, Tensor], token_ids: Tensor, direction: Tensor, **changes: Any
) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits of transformers in float64, and the gradient of every weight of ``(logits * direction).sum()``."""
    with in_float64():
        model = llama(shape, {name: weight.double() for name, weight in weights.items()}, **changes)
        logits = model(token_ids).logits
        (logits * direction).sum().backward()
    return logits.detach(), gradients(model, shape)


def oracle_logits_and_gradients(
    shape: DecoderShape, weights: Mapping[str, Tensor], token_ids: Tensor, direction: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """The same of the oracle. Of a tied model both vocabulary names have the one gradient."""
    leaves = {name: weight.to(torch.float64).clone().requires_grad_() for name, weight in weights.items()}
    if shape.tie_embeddings:
        leaves["lm_head.weight"] = leaves["token_embeddings.weight"]
    logits = Oracle(shape).transformer_lm(leaves, token_ids)
    found = torch.autograd.grad((logits * direction).sum(), list(leaves.values()))
    return logits.detach(), dict(zip(leaves, found, strict=True))
