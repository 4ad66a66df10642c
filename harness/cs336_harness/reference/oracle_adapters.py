"""An oracle class seen through the contract: the entry points of ``adapters.py``, computed in float64.

Checks take expected values from here, and a defect (a subclass of the oracle) becomes a subject by being wrapped in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from cs336_harness.cost.matmuls import count_parameters, flops_by_term, list_matmuls, list_weights
from cs336_harness.reference.oracle import Oracle
from cs336_harness.shapes import DecoderShape

NORM_EPS = 1e-5
"""The eps of every norm inside a block or a model: the contract passes none there (handout, section 3.3.1)."""


def _float64(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(tensor.to(torch.float64) for tensor in tensors)


def _float64_dict(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: weight.to(torch.float64) for name, weight in weights.items()}


def partial_shape(**sizes: Any) -> DecoderShape:
    """A shape of which only some sizes matter; the others are zero."""
    names = ("vocab_size", "context_length", "d_model", "num_layers", "num_heads", "d_ff")
    values: dict[str, Any] = dict.fromkeys(names, 0)
    values.update(num_kv_heads=sizes.get("num_heads", 0), norm_eps=NORM_EPS)
    values.update(sizes)
    return DecoderShape(**values)


def refuse_sizes_that_do_not_fit(shape: DecoderShape) -> None:
    """``ValueError`` for a shape that is no decoder; nothing has been allocated yet."""
    for name, size in shape.model_arguments().items():
        if name != "tie_embeddings" and size <= 0:
            raise ValueError(f"{name} must be positive, got {size}")
    if shape.d_model % shape.num_heads:
        raise ValueError(f"d_model {shape.d_model} is not a multiple of num_heads {shape.num_heads}")
    if shape.num_heads % shape.num_kv_heads:
        raise ValueError(f"num_heads {shape.num_heads} is not a multiple of num_kv_heads {shape.num_kv_heads}")
    if shape.d_head % 2:
        raise ValueError(f"the head size {shape.d_head} must be even for rotary positions")


def refuse_longer_than_context(time: int, context_length: int) -> None:
    """``ValueError`` for an input that is longer than the context."""
    if time > context_length:
        raise ValueError(f"the input has {time} tokens, the context length is {context_length}")


class OracleModel(nn.Module):
    """An oracle with live Parameters. A tied model has no head weight of its own."""

    def __init__(self, oracle: Oracle) -> None:
        super().__init__()
        self.oracle = oracle
        for name, size in oracle.shape.weight_shapes().items():
            if not (oracle.shape.tie_embeddings and name == "lm_head.weight"):
                weight = torch.ones(size) if len(size) == 1 else torch.empty(size).normal_(std=size[-1] ** -0.5)
                self.register_parameter(self.attribute(name), nn.Parameter(weight))

    @staticmethod
    def attribute(name: str) -> str:
        """PyTorch allows no dot in a parameter's own name."""
        return name.replace(".", "__")

    def weights(self) -> dict[str, nn.Parameter]:
        """Canonical name -> Parameter, both vocabulary names included."""
        names = dict(self.named_parameters())
        weights = {
            name: names[self.attribute(name)]
            for name in self.oracle.shape.weight_shapes()
            if self.attribute(name) in names
        }
        return {**weights, "lm_head.weight": weights.get("lm_head.weight", weights["token_embeddings.weight"])}

    def forward(self, token_ids: Tensor) -> Tensor:
        """Raw logits in the weights' dtype: (batch, T) -> (batch, T, V)."""
        refuse_longer_than_context(token_ids.shape[-1], self.oracle.shape.context_length)
        weights = self.weights()
        logits = self.oracle.transformer_lm(_float64_dict(weights), token_ids)
        return logits.to(weights["ln_final.weight"].dtype)


class OracleAdapters:
    """The contract's entry points over one oracle class. Results are float64, or ``dtype`` when one is given.

    Arguments and shapes are those of docs/DESIGN.md: ``run_transformer_block`` and ``run_transformer_lm``
    take canonical names.
    """

    model_class: type[OracleModel] = OracleModel

    def __init__(self, oracle_class: type[Oracle] = Oracle, dtype: torch.dtype = torch.float64) -> None:
        self.oracle_class = oracle_class
        self.dtype = dtype

    def _result(self, value: Tensor) -> Tensor:
        return value.to(self.dtype)

    def run_linear(self, d_in: int, d_out: int, weights: Tensor, in_features: Tensor) -> Tensor:
        return self._result(self.oracle_class(partial_shape()).linear(*_float64(in_features, weights)))

    def run_embedding(self, vocab_size: int, d_model: int, weights: Tensor, token_ids: Tensor) -> Tensor:
        oracle = self.oracle_class(partial_shape(vocab_size=vocab_size, d_model=d_model))
        return self._result(oracle.embedding(*_float64(weights), token_ids))

    def run_swiglu(
        self, d_model: int, d_ff: int, w1_weight: Tensor, w2_weight: Tensor, w3_weight: Tensor, in_features: Tensor
    ) -> Tensor:
        oracle = self.oracle_class(partial_shape(d_model=d_model, d_ff=d_ff))
        return self._result(oracle.swiglu(*_float64(in_features, w1_weight, w2_weight, w3_weight)))

    def run_scaled_dot_product_attention(self, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
        oracle = self.oracle_class(partial_shape(d_model=Q.shape[-1], num_heads=1))
        return self._result(oracle.attend_masked(*_float64(Q, K, V), mask))

    def run_multihead_self_attention(
        self,
        d_model: int,
        num_heads: int,
        q_proj_weight: Tensor,
        k_proj_weight: Tensor,
        v_proj_weight: Tensor,
        o_proj_weight: Tensor,
        in_features: Tensor,
    ) -> Tensor:
        return self._self_attention(
            partial_shape(d_model=d_model, num_heads=num_heads, context_length=in_features.shape[-2]),
            (q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight),
            in_features,
            None,
            None,
        )

    def run_multihead_self_attention_with_rope(
        self,
        d_model: int,
        num_heads: int,
        max_seq_len: int,
        theta: float,
        q_proj_weight: Tensor,
        k_proj_weight: Tensor,
        v_proj_weight: Tensor,
        o_proj_weight: Tensor,
        in_features: Tensor,
        token_positions: Tensor | None = None,
    ) -> Tensor:
        shape = partial_shape(d_model=d_model, num_heads=num_heads, context_length=max_seq_len, rope_theta=theta)
        weights = (q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
        if token_positions is None:
            token_positions = self.oracle_class(shape).positions(in_features.shape[-2])
        return self._self_attention(shape, weights, in_features, token_positions, theta)

    def _self_attention(
        self,
        shape: DecoderShape,
        projections: tuple[Tensor, ...],
        in_features: Tensor,
        positions: Tensor | None,
        theta: float | None,
    ) -> Tensor:
        names = ("q_proj", "k_proj", "v_proj", "output_proj")
        weights = {f"attn.{name}.weight": weight for name, weight in zip(names, _float64(*projections), strict=True)}
        return self._result(self.oracle_class(shape).self_attention(*_float64(in_features), weights, positions, theta))

    def run_rope(
        self, d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor
    ) -> Tensor:
        oracle = self.oracle_class(
            partial_shape(d_model=d_k, num_heads=1, context_length=max_seq_len, rope_theta=theta)
        )
        return self._result(oracle.rotate(*_float64(in_query_or_key), token_positions, theta))

    def run_transformer_block(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        max_seq_len: int,
        theta: float,
        weights: Mapping[str, Tensor],
        in_features: Tensor,
    ) -> Tensor:
        shape = partial_shape(
            d_model=d_model,
            num_layers=1,
            num_heads=num_heads,
            d_ff=d_ff,
            context_length=max_seq_len,
            rope_theta=theta,
        )
        oracle = self.oracle_class(shape)
        positions = oracle.positions(in_features.shape[-2])
        return self._result(oracle.block(*_float64(in_features), _float64_dict(weights), positions))

    def run_transformer_lm(
        self,
        vocab_size: int,
        context_length: int,
        d_model: int,
        num_layers: int,
        num_heads: int,
        d_ff: int,
        rope_theta: float,
        weights: Mapping[str, Tensor],
        in_indices: Tensor,
        num_kv_heads: int | None = None,
    ) -> Tensor:
        refuse_longer_than_context(in_indices.shape[-1], context_length)
        shape = DecoderShape(
            vocab_size=vocab_size,
            context_length=context_length,
            d_model=d_model,
            num_layers=num_layers,
            num_heads=num_heads,
            num_kv_heads=num_heads if num_kv_heads is None else num_kv_heads,
            d_ff=d_ff,
            rope_theta=rope_theta,
            norm_eps=NORM_EPS,
        )
        return self._result(self.oracle_class(shape).transformer_lm(_float64_dict(weights), in_indices))

    def run_rmsnorm(self, d_model: int, eps: float, weights: Tensor, in_features: Tensor) -> Tensor:
        oracle = self.oracle_class(partial_shape(d_model=d_model, norm_eps=eps))
        return self._result(oracle.rmsnorm(*_float64(in_features, weights), eps))

    def run_silu(self, in_features: Tensor) -> Tensor:
        return self._result(self.oracle_class(partial_shape()).silu(*_float64(in_features)))

    def run_softmax(self, in_features: Tensor, dim: int) -> Tensor:
        return self._result(self.oracle_class(partial_shape()).softmax(*_float64(in_features), dim))

    def get_transformer_lm(self, **sizes: Any) -> OracleModel:
        shape = DecoderShape(norm_eps=NORM_EPS, **sizes)
        refuse_sizes_that_do_not_fit(shape)
        return self.model_class(self.oracle_class(shape))

    def get_transformer_lm_weights(self, model: OracleModel) -> dict[str, nn.Parameter]:
        return model.weights()

    def run_transformer_lm_in_pieces(self, model: OracleModel, pieces: list[Tensor]) -> list[Tensor]:
        weights = model.weights()
        logits = model.oracle.transformer_lm_in_pieces(_float64_dict(weights), pieces)
        return [part.to(weights["ln_final.weight"].dtype) for part in logits]

    def run_parameter_count(self, **sizes: Any) -> int:
        return count_parameters(list_weights(partial_shape(**sizes)))

    def run_forward_flops(self, *, batch_size: int, sequence_length: int, **sizes: Any) -> dict[str, int]:
        return flops_by_term(list_matmuls(partial_shape(**sizes), batch_size, sequence_length))
