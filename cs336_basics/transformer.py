"""The pre-norm decoder: the block, and the language model over a stack of them (CS336 handout: Full Transformer LM)."""

from typing import Any, Unpack

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor, nn

from cs336_basics.attention import Attention, CausalSelfAttention, scaled_dot_product_attention
from cs336_basics.cache import KeyValueCache, LayerCache
from cs336_basics.config import TransformerConfig
from cs336_basics.layers import Creation, Embedding, Linear, RMSNorm, SwiGLU
from cs336_basics.rope import rotary_table


class TransformerBlock(nn.Module):
    """Attention, then feed-forward; each reads a normed copy of the residual stream and adds to the stream itself."""

    def __init__(
        self,
        config: TransformerConfig,
        attention: Attention = scaled_dot_product_attention,
        **creation: Unpack[Creation],
    ) -> None:
        super().__init__()
        self.attn = CausalSelfAttention(
            config.d_model, config.num_heads, config.num_kv_heads, config.d_head, attention, **creation
        )
        self.ln1 = RMSNorm(config.d_model, config.norm_eps, **creation)
        self.ffn = SwiGLU(config.d_model, config.d_ff, **creation)
        self.ln2 = RMSNorm(config.d_model, config.norm_eps, **creation)

    def forward(
        self,
        x: Float[Tensor, "*batch time d_model"],
        rotary: Complex[Tensor, "*positions time pairs"],
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "*batch time d_model"]:
        x = x + self.attn(self.ln1(x), rotary, cache)
        x = x + self.ffn(self.ln2(x))
        return x


class TransformerLM(nn.Module):
    """Token ids in, raw logits out: no softmax, no scale.

    A tied model has no ``lm_head``: its logits are h @ E^T with the embedding itself, so there is no second vocabulary
    weight that could come apart on load, copy or materialisation. Blocks share a design and the rotary table, never a
    parameter.

    Args:
        config: every size and policy.
        attention: ``scaled_dot_product_attention`` or, for speed, ``fused_scaled_dot_product_attention``.
        generator, device, dtype: how the weights are made; see ``layers``.
    """

    def __init__(
        self,
        config: TransformerConfig,
        attention: Attention = scaled_dot_product_attention,
        **creation: Unpack[Creation],
    ) -> None:
        super().__init__()
        self.config = config
        self.token_embeddings = Embedding(config.vocab_size, config.d_model, **creation)
        self.layers = nn.ModuleList(TransformerBlock(config, attention, **creation) for _ in range(config.num_layers))
        self.ln_final = RMSNorm(config.d_model, config.norm_eps, **creation)
        self.lm_head = None if config.tie_embeddings else Linear(config.d_model, config.vocab_size, **creation)
        self.register_load_state_dict_pre_hook(_fold_tied_head)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw every weight anew, as the constructor does. A meta model needs it after ``to_empty``."""
        for module in self.modules():
            if isinstance(module, Linear | Embedding | RMSNorm):
                module.reset_parameters(generator)

    def forward(
        self,
        token_ids: Int[Tensor, "*batch time"],
        positions: Int[Tensor, "*positions time"] | None = None,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "*batch seen vocab_size"]:
        """Logits for the token after each one seen: all are, or under "keep_last" the last ``context_length``.

        Args:
            positions: (time,), (1, time) or (*batch, time), for the rotation; by default those seen count 0, 1, 2, …
                Attention is causal in the order of the tokens, whatever their positions.
            cache: the tokens (batch, time) continue those it holds, and join them. Under either policy it takes
                ``context_length`` tokens in all: the logits of a window that slides are not to be had from a cache.

        Raises:
            ValueError: there are no tokens; there are more than ``context_length`` under the policy "reject"; the ids
                are no integers or, in eager mode on the CPU, outside the vocabulary; the cache refuses.
        """
        start = 0
        if cache is not None:
            cache.require_room(token_ids.shape[0], token_ids.shape[-1])
            start = cache.length
        token_ids, positions = self._fit_context(token_ids, positions)
        if positions is None:
            positions = torch.arange(start, start + token_ids.shape[-1], device=token_ids.device)
        h = self.token_embeddings(token_ids)
        rotary = rotary_table(positions, self.config.d_head, self.config.rope_theta, h.dtype)
        for index, layer in enumerate(self.layers):
            h = layer(h, rotary, None if cache is None else cache.layers[index])
        head = self.token_embeddings.logits if self.lm_head is None else self.lm_head
        return head(self.ln_final(h))

    def _fit_context(self, token_ids: Tensor, positions: Tensor | None) -> tuple[Tensor, Tensor | None]:
        time, limit = token_ids.shape[-1], self.config.context_length
        if time == 0:
            raise ValueError(
                f"token_ids of shape {tuple(token_ids.shape)} hold no tokens; a decoder needs at least one"
            )
        if time <= limit:
            return token_ids, positions
        if self.config.context_policy == "reject":
            raise ValueError(
                f"{time} tokens are more than context_length {limit}: shorten the input, raise context_length, "
                'or look at the last ones alone with context_policy="keep_last"'
            )
        return token_ids[..., -limit:], None if positions is None else positions[..., -limit:]


def _fold_tied_head(model: TransformerLM, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Before a tied model loads: its vocabulary matrix may come under either name, or equal under both."""
    if model.lm_head is not None or (head := state_dict.pop(f"{prefix}lm_head.weight", None)) is None:
        return
    embedding = state_dict.setdefault(f"{prefix}token_embeddings.weight", head)
    if head.shape != embedding.shape:
        difference = f"have the shapes {tuple(head.shape)} and {tuple(embedding.shape)}"
    elif head.is_meta or embedding.is_meta or torch.equal(head.to(embedding), embedding):
        return
    else:
        rows = (head.to(embedding) != embedding).any(dim=-1).nonzero().flatten()
        difference = f"differ in {len(rows)} of {len(head)} rows, first in row {rows[0].item()}"
    raise ValueError(
        f"lm_head.weight and token_embeddings.weight {difference}, and this model is tied: it has one matrix for both. "
        "Load them with tie_embeddings=False, or leave one of the two names out of the state dict"
    )
