"""Keys and values kept from one forward pass to the next, so that each token is computed once (incremental decoding).

A key depends on its own token and on those before it, never on one that comes later, so it stays right as the text
grows. What is kept is the *rotated* key: RoPE turns a key by its own position, which does not change either. Whoever
keeps keys that are not rotated must turn all of them again at every step.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from cs336_basics.config import TransformerConfig


class LayerCache:
    """One layer's keys and values in static memory, (batch, num_kv_heads, context_length, d_head) each.

    The first ``length`` places of the third axis are filled.
    """

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys = keys
        self.values = values
        self.length = 0

    def extend(
        self, keys: Float[Tensor, "batch kv_heads new d_head"], values: Float[Tensor, "batch kv_heads new d_head"]
    ) -> tuple[Float[Tensor, "batch kv_heads seen d_head"], Float[Tensor, "batch kv_heads seen d_head"]]:
        """Writes behind what is held; returns all that is held then, as views of the memory."""
        start, self.length = self.length, self.length + keys.shape[-2]
        self.keys[:, :, start : self.length] = keys
        self.values[:, :, start : self.length] = values
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]


class KeyValueCache:
    """What a decoder keeps of the tokens it has seen: one text per row, all rows of the same length.

    It is handed to ``TransformerLM.forward`` and grows by the tokens of each call. The memory for a full context is
    taken at once: 2 · num_layers · batch_size · num_kv_heads · context_length · d_head values.

    Args:
        config: of the decoder that will use it.
        batch_size: rows of token ids; a cache serves this number and no other.
        device, dtype: where keys and values are kept and in which precision: the model's.
    """

    def __init__(
        self,
        config: TransformerConfig,
        batch_size: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        size = (config.num_layers, 2, batch_size, config.num_kv_heads, config.context_length, config.d_head)
        self.layers = [LayerCache(keys, values) for keys, values in torch.zeros(size, device=device, dtype=dtype)]
        self.batch_size = batch_size
        self.context_length = config.context_length

    @property
    def length(self) -> int:
        """How many tokens it holds."""
        return self.layers[0].length

    def require_room(self, batch_size: int, new_tokens: int) -> None:
        """Refuses what does not fit, before anything is written.

        Raises:
            ValueError: another number of rows than the cache serves, more tokens than the context has room for, or
                gradients are on: a cache holds numbers, and a gradient through it would be silently wrong.
        """
        if batch_size != self.batch_size:
            raise ValueError(f"the cache holds {self.batch_size} rows, not {batch_size}; make a cache for each batch")
        if self.length + new_tokens > self.context_length:
            raise ValueError(
                f"{self.length + new_tokens} tokens, {self.length} of them in the cache, are more than context_length "
                f"{self.context_length}: shorten the text, raise context_length, or begin a new cache"
            )
        if torch.is_grad_enabled():
            raise ValueError("a cache keeps no gradients: call the model under torch.no_grad(), or without a cache")
