"""How many tokens per second does the decoder generate, with a cache and without, beside transformers' ``generate``?

    uv run --group reference python benchmarks/generation.py

The shape is that of ``decoder_speed.py``; a prompt of 64 tokens is continued by 64, greedily. All get the same weights
and must write the same text. Repetitions alternate; a ratio is the median of the ratios within a round.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from decoder_speed import BATCH, CONFIG, llama_of
from torch import Tensor

from cs336_basics.attention import fused_scaled_dot_product_attention, scaled_dot_product_attention
from cs336_basics.generation import generate
from cs336_basics.huggingface import to_huggingface
from cs336_basics.transformer import TransformerLM

PROMPT, NEW = 64, 64
LLAMA = "transformers, generate"


@torch.no_grad()
def without_a_cache(model: TransformerLM, token_ids: Tensor) -> Tensor:
    """Greedy, the whole text anew for each token."""
    for _ in range(NEW):
        token_ids = torch.cat([token_ids, model(token_ids)[:, -1:].argmax(-1)], dim=-1)
    return token_ids


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--batch", type=int, default=BATCH)
    given = parser.parse_args()

    seeded = torch.Generator().manual_seed(0)
    fused = TransformerLM(CONFIG, fused_scaled_dot_product_attention, generator=seeded)
    explicit = TransformerLM(CONFIG, scaled_dot_product_attention)
    explicit.load_state_dict(fused.state_dict())
    llama = llama_of(CONFIG).eval()
    llama.load_state_dict(to_huggingface(fused.state_dict(), CONFIG.num_heads, CONFIG.num_kv_heads))
    llama.generation_config.eos_token_id = None
    prompt = torch.randint(CONFIG.vocab_size, (given.batch, PROMPT), generator=seeded)
    settings = {"max_new_tokens": NEW, "do_sample": False, "use_cache": True, "pad_token_id": 0}

    ways: dict[str, Callable[[], Tensor]] = {
        LLAMA: lambda: llama.generate(prompt, attention_mask=torch.ones_like(prompt), **settings),
        "cs336_basics, fused, cache": lambda: generate(fused, prompt, NEW),
        "cs336_basics, explicit, cache": lambda: generate(explicit, prompt, NEW),
        "cs336_basics, fused, no cache": lambda: without_a_cache(fused, prompt),
    }
    texts = {name: way() for name, way in ways.items()}  # warms caches and allocator, too
    assert all(torch.equal(text, texts[LLAMA]) for text in texts.values()), "the texts differ"

    rounds = [{name: _seconds(way) for name, way in ways.items()} for _ in range(given.repetitions)]
    print(
        f"batch {given.batch}, {PROMPT} + {NEW} tokens, torch {torch.__version__} on {torch.get_num_threads()} threads"
    )
    for name in ways:
        rate = given.batch * NEW / statistics.median(taken[name] for taken in rounds)
        ratio = statistics.median(taken[LLAMA] / taken[name] for taken in rounds)
        print(f"{name:30s} {rate:7.0f} tokens/s, {ratio:.2f} of transformers'")


def _seconds(way: Callable[[], Tensor]) -> float:
    started = time.perf_counter()
    way()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
