"""What a result that depends on earlier calls looks like: two calls as text to paste, of which the second is wrong.

The sizes are asked nowhere else, so that nothing is kept for them yet, and a fresh Python shows what was seen here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from cs336_harness.checks import Check
from cs336_harness.defects import Place
from cs336_harness.diagnosis.facts import fact
from cs336_harness.diagnosis.matching import Probe
from cs336_harness.diagnosis.observing import Experiment, same
from cs336_harness.diagnosis.reproducing import told
from cs336_harness.diagnosis.snippets import FILLED, LAYER, PASSED, PROJECTIONS, SEED
from cs336_harness.diagnosis.wording import Diagnosis

Code = tuple[str, ...]

CALLS: dict[str, Code] = {
    "run_linear": (
        "x, weight = torch.randn(2, {time}, 5), torch.randn(3, 5)",
        "return run_linear(d_in=5, d_out=3, weights=weight, in_features=x)",
    ),
    "run_embedding": (
        "rows, ids = torch.randn(6, 3), torch.randint(6, (2, {time}))",
        "return run_embedding(vocab_size=6, d_model=3, weights=rows, token_ids=ids)",
    ),
    "run_silu": ("return run_silu(torch.randn(2, {time}))",),
    "run_softmax": ("return run_softmax(torch.randn(2, {time}), -1)",),
    "run_rmsnorm": (
        "x, gain = torch.randn(2, {time}, 5), torch.rand(5) + 0.5",
        "return run_rmsnorm(d_model=5, eps=1e-5, weights=gain, in_features=x)",
    ),
    "run_swiglu": (
        "x, w2 = torch.randn(2, {time}, 4), torch.randn(4, 10)",
        "w1, w3 = torch.randn(10, 4), torch.randn(10, 4)",
        "return run_swiglu(d_model=4, d_ff=10, in_features=x,",
        "                  w1_weight=w1, w2_weight=w2, w3_weight=w3)",
    ),
    "run_rope": (
        "return run_rope(",
        "    d_k=12, theta=10.0 ** seed, max_seq_len={reach},",
        "    in_query_or_key=torch.randn(2, {time}, 12),",
        "    token_positions=torch.arange({time}))",
    ),
    "run_scaled_dot_product_attention": (
        "Q, K, V = torch.randn(3, 2, {time}, 4)",
        "mask = (torch.rand(2, {time}, {time}) < 0.5) | torch.eye({time}).bool()",
        "return run_scaled_dot_product_attention(Q=Q, K=K, V=V, mask=mask)",
    ),
    "run_multihead_self_attention": (
        PROJECTIONS.format(d=12),
        "return run_multihead_self_attention(",
        "    d_model=12, num_heads=3, in_features=torch.randn(2, {time}, 12),",
        f"    {PASSED})",
    ),
    "run_multihead_self_attention_with_rope": (
        PROJECTIONS.format(d=12),
        "return run_multihead_self_attention_with_rope(",
        "    d_model=12, num_heads=3, max_seq_len={reach}, theta=10.0 ** seed,",
        f"    {PASSED},",
        "    in_features=torch.randn(2, {time}, 12),",
        "    token_positions=torch.arange({time})[None])",
    ),
    "run_transformer_block": (
        "D, F = 12, 20",
        *(line.replace("layer", "sizes", 1).replace("{", "{{").replace("}", "}}") for line in LAYER),
        FILLED.replace("{", "{{").replace("}", "}}"),
        "return run_transformer_block(",
        "    d_model=D, num_heads=3, d_ff=F, max_seq_len={reach},",
        "    theta=10.0 ** seed, weights=weights,",
        "    in_features=torch.randn(2, {time}, D))",
    ),
    "run_transformer_lm": (
        "D, F, V = 12, 20, 7",
        *(line.replace("{", "{{").replace("}", "}}") for line in LAYER),
        'sizes = {{f"layers.0.{{n}}": s for n, s in layer.items()}}',
        'sizes |= {{"token_embeddings": (V, D), "ln_final": (D,), "lm_head": (V, D)}}',
        FILLED.replace("{", "{{").replace("}", "}}"),
        "return run_transformer_lm(",
        "    vocab_size=V, context_length={reach}, d_model=D, num_layers=1,",
        "    num_heads=3, d_ff=F, rope_theta=10.0 ** seed, weights=weights,",
        "    in_indices=torch.randint(V, (2, {time})))",
    ),
}
"""The body of ``call(seed)`` for each entry point: other values for each seed, and another theta where there is one."""

MODEL = (
    "sizes = dict(vocab_size=7, context_length={reach}, d_model=12, num_layers=1,",
    "             num_heads=3, num_kv_heads=3, d_ff=20, tie_embeddings=False)",
    "models = [get_transformer_lm(**sizes, rope_theta=10.0 ** n) for n in (1, 2)]",
    SEED,
    "with torch.no_grad():",
    "    for model in models:",
    "        weights = get_transformer_lm_weights(model)",
    "        for name in sorted(weights):",
    "            weights[name].copy_(torch.rand(weights[name].shape) - 0.3)",
    "tokens, others = torch.randint(7, (2, 2, {time}))",
)


def earlier_calls_shown(probe: Probe, check: Check) -> Diagnosis | None:
    """Two calls that show that a result depends on what was asked before; None where none of ours do."""
    for experiment in experiments("built" if "get_transformer_lm" in check.needs else check.needs[0]):
        if not same(probe.see(experiment), experiment):
            return Diagnosis(str(Place.INFORMATION_FLOW), "measured", reproducer=told(probe, experiment))
    return None


@functools.cache
def experiments(name: str) -> tuple[Experiment, ...]:
    """The calls to try, the most telling first; ``built`` are those of a model."""
    codes = _of_a_model() if name == "built" else _of_a_call(name)
    return tuple(
        fact(f"{name} twice, {number}", "in the second of two calls", Place.INFORMATION_FLOW, *code)
        for number, code in enumerate(codes)
    )


def _of_a_call(name: str) -> Iterator[Code]:
    for time, shown in ((23, AGAIN), (27, SECOND)):
        body = (line.format(time=time, reach=time + 20) for line in CALLS[name])
        yield ("def call(seed):", "    torch.manual_seed(seed)", *(f"    {line}" for line in body), "", *shown)


AGAIN = ("before = call(1)", "call(2)", "torch.equal(call(1), before)")
SECOND = ("call(1)", "second = call(2)", "second")


def _of_a_model() -> Iterator[Code]:
    model = iter(range(29, 99, 2))
    for first, second in (("models[0](tokens)", "models[0](others)"), ("models[0](tokens)", "models[1](tokens)")):
        for mode in ("train", "eval"):
            for line in ("torch.set_grad_enabled(False)", "torch.set_grad_enabled(True)"):
                yield (
                    *_filled(next(model)),
                    f"[model.{mode}() for model in models]",
                    line,
                    first,
                    f"logits = {second}",
                    "logits",
                )
    yield (
        *_filled(next(model)),
        "before = models[0](tokens)",
        "models[0](others)",
        "torch.equal(models[0](tokens), before)",
    )


def _filled(time: int) -> Code:
    return tuple(line.format(time=time, reach=time + 20) for line in MODEL)
