"""The shape of a decoder: its sizes, and the canonical name and size of every weight. Imports no torch."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class DecoderShape:
    """Every size of one decoder. Holds whatever it is given: refusing sizes that do not fit is the subject's job.

    ``num_kv_heads`` equals ``num_heads`` for MHA, 1 for MQA, anything between for GQA.
    """

    vocab_size: int
    context_length: int
    d_model: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    d_ff: int
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5
    tie_embeddings: bool = False

    @property
    def d_head(self) -> int:
        """Channels of one head."""
        return self.d_model // self.num_heads

    @property
    def d_q(self) -> int:
        """Channels of all query heads together: here the width of the stream."""
        return self.d_model

    @property
    def d_kv(self) -> int:
        """Channels of all key heads together, and of all value heads together."""
        return self.num_kv_heads * self.d_head

    def replace(self, **changes: Any) -> DecoderShape:
        """This shape with some sizes changed."""
        return dataclasses.replace(self, **changes)

    def layer_weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name within a layer -> size, in the handout's order. Matrices are (out, in), as ``y = W x`` has them."""
        return {
            "attn.q_proj.weight": (self.d_q, self.d_model),
            "attn.k_proj.weight": (self.d_kv, self.d_model),
            "attn.v_proj.weight": (self.d_kv, self.d_model),
            "attn.output_proj.weight": (self.d_model, self.d_q),
            "ln1.weight": (self.d_model,),
            "ffn.w1.weight": (self.d_ff, self.d_model),
            "ffn.w2.weight": (self.d_model, self.d_ff),
            "ffn.w3.weight": (self.d_ff, self.d_model),
            "ln2.weight": (self.d_model,),
        }

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Canonical name -> size. A tied shape lists both vocabulary names; they are one weight."""
        shapes: dict[str, tuple[int, ...]] = {"token_embeddings.weight": (self.vocab_size, self.d_model)}
        for layer in range(self.num_layers):
            for name, size in self.layer_weight_shapes().items():
                shapes[f"layers.{layer}.{name}"] = size
        shapes["ln_final.weight"] = (self.d_model,)
        shapes["lm_head.weight"] = (self.vocab_size, self.d_model)
        return shapes

    def model_arguments(self) -> dict[str, Any]:
        """The arguments of ``get_transformer_lm``; the norm's eps is not among them."""
        return {
            "vocab_size": self.vocab_size,
            "context_length": self.context_length,
            "d_model": self.d_model,
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "num_kv_heads": self.num_kv_heads,
            "d_ff": self.d_ff,
            "rope_theta": self.rope_theta,
            "tie_embeddings": self.tie_embeddings,
        }

    def call_arguments(self) -> dict[str, Any]:
        """The sizes that ``run_transformer_lm`` takes, which knows neither groups nor tying."""
        arguments = self.model_arguments()
        del arguments["num_kv_heads"], arguments["tie_embeddings"]
        return arguments
