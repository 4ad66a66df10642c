"""Sampling from a decoder, one token after another."""

import torch
from jaxtyping import Int
from torch import Tensor

from cs336_basics.cache import KeyValueCache
from cs336_basics.layers import softmax
from cs336_basics.transformer import TransformerLM


@torch.no_grad()
def generate(
    model: TransformerLM,
    token_ids: Int[Tensor, "batch time"],
    new_tokens: int,
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "batch longer"]:
    """The given token ids, followed by ``new_tokens`` that the model continues them with.

    Args:
        temperature: 0 takes the likeliest token each time (greedy); above, tokens are drawn from
            softmax(logits / temperature).
        generator: seeds the draws.

    Raises:
        ValueError: the text would grow past ``context_length``, or the temperature is negative.
    """
    if temperature < 0:
        raise ValueError(f"temperature must be 0 (greedy) or above, got {temperature}")
    weight = model.token_embeddings.weight
    cache = KeyValueCache(model.config, len(token_ids), weight.device, weight.dtype)
    cache.require_room(len(token_ids), token_ids.shape[-1] + max(new_tokens - 1, 0))
    unseen = token_ids
    for _ in range(new_tokens):
        logits = model(unseen, cache=cache)[:, -1]
        if temperature == 0:
            unseen = logits.argmax(dim=-1, keepdim=True)
        else:
            unseen = torch.multinomial(softmax(logits / temperature, dim=-1), 1, generator=generator)
        token_ids = torch.cat([token_ids, unseen], dim=-1)
    return token_ids
