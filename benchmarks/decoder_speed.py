"""How fast is the fused decoder beside Hugging Face's Llama of the same shape? Forward plus backward on the CPU.

    uv run --group reference python benchmarks/decoder_speed.py

Both get the same weights and token ids, and their logits are compared first: the ratio is one of equal work. Timed are
the logits and the gradient of every weight, without loss and optimiser, which would be the same code for both.
Repetitions alternate, so that a busy machine slows both alike; the ratio is the median of the ratios within a round.
Below 1, the decoder of cs336_basics is the faster one.
"""

import argparse
import statistics
import time

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM  # ty: ignore[import-not-found]

from cs336_basics.attention import fused_scaled_dot_product_attention, scaled_dot_product_attention
from cs336_basics.config import TransformerConfig
from cs336_basics.huggingface import to_huggingface
from cs336_basics.transformer import TransformerLM

CONFIG = TransformerConfig(vocab_size=10000, context_length=256, d_model=512, num_layers=4, num_heads=16, d_ff=1344)
BATCH = 8
LLAMA = "Hugging Face Llama, sdpa"


def llama_of(config: TransformerConfig) -> LlamaForCausalLM:
    """Hugging Face's decoder of the same shape, on PyTorch's fused attention."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocab_size,
            max_position_embeddings=config.context_length,
            hidden_size=config.d_model,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_kv_heads,
            intermediate_size=config.d_ff,
            rope_theta=config.rope_theta,
            rms_norm_eps=config.norm_eps,
            tie_word_embeddings=config.tie_embeddings,
            use_cache=False,
            attn_implementation="sdpa",
        )
    )


def seconds_of(model: nn.Module, token_ids: Tensor, logit_gradient: Tensor) -> float:
    """One forward and backward pass."""
    model.zero_grad(set_to_none=True)
    started = time.perf_counter()
    logits_of(model, token_ids).backward(logit_gradient)
    return time.perf_counter() - started


def logits_of(model: nn.Module, token_ids: Tensor) -> Tensor:
    """Raw logits (batch, time, vocab_size), which Llama hands out in a wrapper."""
    output = model(token_ids)
    return output if isinstance(output, Tensor) else output.logits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=15)
    repetitions = parser.parse_args().repetitions

    generator = torch.Generator().manual_seed(0)
    llama = llama_of(CONFIG)
    fused = TransformerLM(CONFIG, fused_scaled_dot_product_attention, generator=generator)
    llama.load_state_dict(to_huggingface(fused.state_dict(), CONFIG.num_heads, CONFIG.num_kv_heads))
    explicit = TransformerLM(CONFIG, scaled_dot_product_attention)
    explicit.load_state_dict(fused.state_dict())
    models = {LLAMA: llama, "cs336_basics, fused": fused, "cs336_basics, explicit": explicit}

    token_ids = torch.randint(CONFIG.vocab_size, (BATCH, CONFIG.context_length), generator=generator)
    logit_gradient = torch.randn(BATCH, CONFIG.context_length, CONFIG.vocab_size, generator=generator)
    with torch.no_grad():
        expected = llama(token_ids).logits
        for model in models.values():
            torch.testing.assert_close(logits_of(model, token_ids), expected, rtol=0, atol=1e-3)

    for model in models.values():  # warms caches and allocator
        seconds_of(model, token_ids, logit_gradient)
    rounds = [
        {name: seconds_of(model, token_ids, logit_gradient) for name, model in models.items()}
        for _ in range(repetitions)
    ]
    print(f"{CONFIG}, batch {BATCH}, torch {torch.__version__} on {torch.get_num_threads()} threads")
    for name in models:
        median = statistics.median(taken[name] for taken in rounds)
        ratio = statistics.median(taken[name] / taken[LLAMA] for taken in rounds)
        print(f"{name:24s} {median:.3f} s, {ratio:.3f} of Llama's time")


if __name__ == "__main__":
    main()
