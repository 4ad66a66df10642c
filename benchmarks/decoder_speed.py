"""How fast is the fused decoder beside Hugging Face's Llama of the same shape, how much memory does it take, and where
does the time go? Forward plus backward on the CPU.

    uv run --group reference python benchmarks/decoder_speed.py

Both get the same weights and token ids, and their logits are compared first: the ratio is one of equal work. Timed are
the logits and the gradient of every weight, without loss and optimiser, which would be the same code for both.
Repetitions alternate, so that a busy machine slows both alike; the ratio is the median of the ratios within a round.
Below 1, the decoder of cs336_basics is the faster one.

Memory is what the process grows by at most during one forward and backward pass, weights there and gradients not, each
decoder in a process of its own (Linux only). The operators are PyTorch's profiler's, by their own time: matrix
multiplies and fused attention are the same calls for both decoders, so what is left of the time is all that code can
change.

What holds the ratio is these calls: nine tenths of Llama's time and more. Fewer and larger products do not shorten
them. Gate and value of the feed-forward as one product, or queries, keys and values as one, take as long as apart,
because each of them runs at the rate of a large square product already; the last lines measure that.
"""

import argparse
import multiprocessing
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

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
FUSED = "cs336_basics, fused"
EXPLICIT = "cs336_basics, explicit"

KINDS = {
    "matrix multiplies": ("aten::mm", "aten::bmm", "aten::addmm"),
    "fused attention": ("flash_attention",),
    "products, sums, powers": tuple(f"aten::{name}" for name in ("mul", "add", "sub", "neg", "pow", "rsqrt", "div")),
    "SiLU": ("aten::silu", "aten::sigmoid"),
    "norms": ("rms_norm",),
    "sums over an axis": ("aten::sum", "aten::mean"),
    "copies": ("aten::copy_", "aten::cat", "aten::fill_", "aten::zero_"),
}
"""Kinds of operators, by the beginning of a name or a part of it."""


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


def models_of(generator: torch.Generator) -> dict[str, nn.Module]:
    """The decoders by name, with the same weights."""
    llama = llama_of(CONFIG)
    fused = TransformerLM(CONFIG, fused_scaled_dot_product_attention, generator=generator)
    llama.load_state_dict(to_huggingface(fused.state_dict(), CONFIG.num_heads, CONFIG.num_kv_heads))
    explicit = TransformerLM(CONFIG, scaled_dot_product_attention)
    explicit.load_state_dict(fused.state_dict())
    return {LLAMA: llama, FUSED: fused, EXPLICIT: explicit}


def data_of(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Token ids, and the gradient of the logits."""
    token_ids = torch.randint(CONFIG.vocab_size, (BATCH, CONFIG.context_length), generator=generator)
    return token_ids, torch.randn(BATCH, CONFIG.context_length, CONFIG.vocab_size, generator=generator)


def _status(field: str) -> float:
    """A field of this process's status, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1000


def peak_growth(name: str) -> float:
    """MB that one forward and backward pass takes beside weights, token ids and the gradient that is handed in."""
    generator = torch.Generator().manual_seed(0)
    model = models_of(generator)[name]
    token_ids, logit_gradient = data_of(generator)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from now on
    before = _status("VmRSS")
    seconds_of(model, token_ids, logit_gradient)
    return _status("VmHWM") - before


def operators_of(model: nn.Module, token_ids: Tensor, logit_gradient: Tensor) -> Counter[str]:
    """Seconds of one pass by kind of operator."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        seconds_of(model, token_ids, logit_gradient)
    spent: Counter[str] = Counter()
    for event in profile.key_averages():
        kind = next((kind for kind, parts in KINDS.items() if any(part in event.key for part in parts)), "all else")
        spent[kind] += event.self_cpu_time_total / 1e6
    return spent


def rates_of_products(rounds: int) -> dict[str, float]:
    """Billions of operations per second of products as a decoder makes them, apart and as one, with their backward
    pass; the best of so many rounds, each in turn. The last is a square product, for comparison."""
    tokens, width = BATCH * CONFIG.context_length, CONFIG.d_model
    x, square = torch.randn(tokens, width), torch.randn(tokens, tokens)

    def passes(outputs: int, count: int) -> tuple[Callable[[], object], int]:
        weights = [torch.randn(outputs, width) for _ in range(count)]
        gradients = [torch.randn(tokens, outputs) for _ in range(count)]

        def work() -> None:
            for weight, gradient in zip(weights, gradients, strict=True):
                _ = x @ weight.T, gradient @ weight, gradient.T @ x

        return work, 6 * tokens * width * outputs * count

    cases = {
        "gate and value, two products": passes(CONFIG.d_ff, 2),
        "gate and value, one product": passes(2 * CONFIG.d_ff, 1),
        "queries, keys, values, three products": passes(width, 3),
        "queries, keys, values, one product": passes(3 * width, 1),
        f"a square product, {tokens} each way": (lambda: square @ square, 2 * tokens**3),
    }
    best = dict.fromkeys(cases, 0.0)
    for _ in range(rounds):
        for name, (work, operations) in cases.items():
            started = time.perf_counter()
            work()
            best[name] = max(best[name], operations / (time.perf_counter() - started) / 1e9)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=15)
    repetitions = parser.parse_args().repetitions
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler writes lines of its own otherwise

    generator = torch.Generator().manual_seed(0)
    models = models_of(generator)
    token_ids, logit_gradient = data_of(generator)
    with torch.no_grad():
        expected = logits_of(models[LLAMA], token_ids)
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
        print(f"{name:24s} {median:.3f} s, {ratio:.3f} of Llama's time", flush=True)

    profiled = [
        {name: operators_of(models[name], token_ids, logit_gradient) for name in (LLAMA, FUSED)}
        for _ in range(max(1, repetitions // 3))
    ]
    whole = statistics.median(taken[LLAMA].total() for taken in profiled)
    print(f"\nshares of Llama's time under the profiler{'Llama':>10s}{'ours':>8s}")
    for kind in (*KINDS, "all else"):
        shares = (statistics.median(taken[name][kind] for taken in profiled) / whole for name in (LLAMA, FUSED))
        print(f"{kind:41s}" + "".join(f"{share:8.3f}  " for share in shares))
    same_work = list(KINDS)[:2]
    floor = statistics.median(
        sum(taken[LLAMA][kind] for kind in same_work) / taken[LLAMA].total() for taken in profiled
    )
    print(f"if all but {' and '.join(same_work)} cost nothing: {floor:.3f} of Llama's time")

    print("\nbillions of operations per second in the products of a layer, forward and backward")
    for name, rate in rates_of_products(repetitions).items():
        print(f"{name:41s}{rate:8.1f}", flush=True)

    if sys.platform == "linux":
        print("\nmost memory beside the weights, forward and backward")
        with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
            grown = {name: pool.apply(peak_growth, (name,)) for name in models}
        for name in models:
            print(f"{name:24s} {grown[name]:6.0f} MB, {grown[name] / grown[LLAMA]:.3f} of Llama's", flush=True)


if __name__ == "__main__":
    main()
