"""Small calls of each entry point as text to paste, the smallest first; the last line of each is what to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator

PROJECTIONS = "q, k, v, o = (torch.randn({d}, {d}) / {d} ** 0.5 for _ in range(4))"
PASSED = "q_proj_weight=q, k_proj_weight=k, v_proj_weight=v, o_proj_weight=o"
LAYER = (
    'layer = {f"attn.{p}_proj": (D, D) for p in ("q", "k", "v", "output")}',
    'layer |= {"ffn.w1": (F, D), "ffn.w2": (D, F), "ffn.w3": (F, D)}',
    'layer |= {"ln1": (D,), "ln2": (D,)}',
)
FILLED = 'weights = {f"{n}.weight": torch.rand(s) - 0.3 for n, s in sizes.items()}'
SEED = "torch.manual_seed(0)"

Codes = Iterator[tuple[str, ...]]


def _linear() -> Codes:
    for leading in ("1", "2", "2, 3"):
        yield (
            SEED,
            f"x, weight = torch.randn({leading}, 2), torch.randn(3, 2)",
            "run_linear(d_in=2, d_out=3, weights=weight, in_features=x)",
        )


def _embedding() -> Codes:
    for ids in ("[[1]]", "[[0, 1, 2, 3, 4]]"):
        yield (
            SEED,
            f"rows, ids = torch.randn(5, 2), torch.tensor({ids})",
            "run_embedding(vocab_size=5, d_model=2, weights=rows, token_ids=ids)",
        )


def _silu() -> Codes:
    for values in ("[1.0]", "[-1.0, 0.0, 1.0, 5.0]", "[[-1.0], [1.0]]"):
        yield (f"x = torch.tensor({values})", "run_silu(x)")


def _softmax() -> Codes:
    for x, dim in (
        ("[0.0, 1.0]", -1),
        ("[[0.0, 1.0], [2.0, 5.0]]", -1),
        ("[[0.0, 1.0], [2.0, 5.0]]", 0),
        ("[10000.0, 10001.0]", -1),
        ("[[0.0, 1.0], [10000.0, 10002.0]]", -1),
    ):
        yield (f"x = torch.tensor({x})", f"run_softmax(x, {dim})")


def _rmsnorm() -> Codes:
    for leading in ("1", "2", "2, 2", "2, 2, 2"):
        for eps, scale in ((1e-5, ""), (1e-5, " * 0.003"), (0.1, "")):
            yield (
                SEED,
                f"x, gain = torch.randn({leading}, 4){scale}, torch.rand(4) + 0.5",
                f"run_rmsnorm(d_model=4, eps={eps}, weights=gain, in_features=x)",
            )


def _swiglu() -> Codes:
    for leading, d_ff in (("1", 4), ("1, 2", 4), ("1, 2", 64), ("1, 2", 40)):
        yield (
            SEED,
            f"x, w2 = torch.randn({leading}, 2), torch.randn(2, {d_ff})",
            f"w1, w3 = torch.randn({d_ff}, 2), torch.randn({d_ff}, 2)",
            "out = run_swiglu(",
            f"    d_model=2, d_ff={d_ff}, in_features=x,",
            "    w1_weight=w1, w2_weight=w2, w3_weight=w3)",
            "out",
        )


def _rope() -> Codes:
    for width, theta, positions in (
        (2, 100.0, "[0]"),
        (2, 100.0, "[1]"),
        (4, 100.0, "[0, 1]"),
        (4, 10000.0, "[0, 1]"),
        (4, 100.0, "[0, 5, 9]"),
        (8, 100.0, "[0, 1, 2]"),
        (4, 100.0, "[[0, 1], [5, 6]]"),
        (4, 100.0, "[257]"),
        (4, 100.0, "[15]"),
    ):
        reach = 300 if "257" in positions else 16
        leading = "2, " if positions.startswith("[[") else "1, "
        yield (
            SEED,
            f"positions = torch.tensor({positions})",
            f"x = torch.randn({leading}positions.shape[-1], {width})",
            "out = run_rope(",
            f"    d_k={width}, theta={theta}, max_seq_len={reach},",
            "    in_query_or_key=x, token_positions=positions)",
            "out",
        )


def _product() -> Codes:
    for leading, mask, width in (
        ("1", "[[True]]", 4),
        ("1", "[[True, True]]", 4),
        ("1", "[[True, False]]", 4),
        ("1", "[[True, False], [True, True]]", 4),
        ("1", "[[True, False, True], [True, True, False]]", 4),
        ("1", "[[True, True]]", 6),
        ("2, 3", "[[True, False], [True, True]]", 4),
    ):
        yield (
            SEED,
            f"mask = torch.tensor({mask})",
            f"mask = mask.expand({leading}, -1, -1)",
            f"Q, K = (torch.randn({leading}, size, 4) for size in mask.shape[-2:])",
            f"V = torch.randn({leading}, mask.shape[-1], {width})",
            "run_scaled_dot_product_attention(Q=Q, K=K, V=V, mask=mask)",
        )
    yield (SEED, "Q, K, V = torch.randn(3, 1, 2, 4)", "run_scaled_dot_product_attention(Q=Q, K=K, V=V)")


SMALLEST = ((1, 1, 1), (1, 2, 1), (1, 2, 2), (1, 3, 2), (2, 2, 3), (2, 5, 3), (1, 12, 1), (3, 5, 3))
"""Rows, positions and heads of four channels, to try in this order."""


def _attention() -> Codes:
    for rows, time, heads in SMALLEST:
        d = 4 * heads
        yield (
            SEED,
            PROJECTIONS.format(d=d),
            f"x = torch.randn({rows}, {time}, {d})",
            "out = run_multihead_self_attention(",
            f"    d_model={d}, num_heads={heads}, in_features=x,",
            f"    {PASSED})",
            "out",
        )


def _rotary_attention() -> Codes:
    for rows, time, heads in SMALLEST:
        for step in ("", "3 * "):
            d = 4 * heads
            yield (
                SEED,
                PROJECTIONS.format(d=d),
                f"x, positions = torch.randn({rows}, {time}, {d}), {step}torch.arange({time})[None]",
                "out = run_multihead_self_attention_with_rope(",
                f"    d_model={d}, num_heads={heads}, max_seq_len=64, theta=100.0,",
                f"    {PASSED},",
                "    in_features=x, token_positions=positions)",
                "out",
            )


def _block() -> Codes:
    for rows, time, heads in SMALLEST:
        yield (
            SEED,
            f"D, F = {4 * heads}, {8 * heads}",
            *(line.replace("layer", "sizes", 1) for line in LAYER),
            FILLED,
            f"x = 0.1 * torch.randn({rows}, {time}, D)",
            "out = run_transformer_block(",
            f"    d_model=D, num_heads={heads}, d_ff=F, max_seq_len=16, theta=100.0,",
            "    weights=weights, in_features=x)",
            "out",
        )


def _sizes_of_models() -> Iterator[tuple[int, int, int, int]]:
    for rows, time, heads in SMALLEST:
        for layers in (1, 2, 3):
            yield rows, time, heads, layers
    yield 1, 2, 1, 11


def model_code(rows: int, time: int, heads: int, layers: int) -> tuple[str, ...]:
    """A call of ``run_transformer_lm``, its logits last."""
    return (
        SEED,
        f"D, F, V, L = {4 * heads}, {8 * heads}, 7, {layers}",
        *LAYER,
        'sizes = {"token_embeddings": (V, D), "ln_final": (D,), "lm_head": (V, D)}',
        "for i in range(L):",
        '    sizes |= {f"layers.{i}.{n}": s for n, s in layer.items()}',
        FILLED,
        f"tokens = torch.arange({rows * time}).view({rows}, {time}) % V",
        "logits = run_transformer_lm(",
        "    vocab_size=V, context_length=12, d_model=D, num_layers=L,",
        f"    num_heads={heads}, d_ff=F, rope_theta=100.0,",
        "    weights=weights, in_indices=tokens)",
        "logits",
    )


def _model() -> Codes:
    yield from (model_code(*sizes) for sizes in _sizes_of_models())


def _built() -> Codes:
    shapes = [(rows, time, heads, heads, layers, False) for rows, time, heads, layers in _sizes_of_models()]
    grouped = [(1, 2, 6, 2, 1, False), (1, 2, 6, 3, 1, False), (1, 2, 6, 1, 1, False), (1, 2, 1, 1, 1, True)]
    for rows, time, heads, kv, layers, tied in (*shapes, *grouped):
        yield (
            f"sizes = dict(vocab_size=7, context_length=12, d_model={4 * heads},",
            f"             num_layers={layers}, num_heads={heads}, num_kv_heads={kv}, d_ff={8 * heads},",
            f"             rope_theta=100.0, tie_embeddings={tied})",
            "model = get_transformer_lm(**sizes)",
            "weights = get_transformer_lm_weights(model)",
            SEED,
            "with torch.no_grad():",
            "    for name in sorted(weights):",
            "        weights[name].copy_(torch.rand(weights[name].shape) - 0.3)",
            f"logits = model(torch.arange({rows * time}).view({rows}, {time}) % 7)",
            "logits",
        )


def _in_pieces() -> Codes:
    for heads, kv_heads, layers, pieces in ((1, 1, 1, "2, 1"), (1, 1, 1, "2, 2"), (1, 1, 2, "2, 2"), (6, 2, 1, "3")):
        yield (
            f"sizes = dict(vocab_size=7, context_length=12, d_model={4 * heads},",
            f"             num_layers={layers}, num_heads={heads}, num_kv_heads={kv_heads}, d_ff={8 * heads},",
            "             rope_theta=100.0, tie_embeddings=False)",
            "model = get_transformer_lm(**sizes)",
            "weights = get_transformer_lm_weights(model)",
            SEED,
            "with torch.no_grad():",
            "    for name in sorted(weights):",
            "        weights[name].copy_(torch.rand(weights[name].shape) - 0.3)",
            f"tokens = (torch.arange({sum(map(int, pieces.split(', ')))}) % 7)[None]",
            f"pieces = list(tokens.split([{pieces}], dim=1))",
            "logits = torch.cat(run_transformer_lm_in_pieces(model, pieces), dim=1)",
            "logits",
        )


CODES: dict[str, Callable[[], Codes]] = {
    "run_linear": _linear,
    "run_embedding": _embedding,
    "run_silu": _silu,
    "run_softmax": _softmax,
    "run_rmsnorm": _rmsnorm,
    "run_swiglu": _swiglu,
    "run_rope": _rope,
    "run_scaled_dot_product_attention": _product,
    "run_multihead_self_attention": _attention,
    "run_multihead_self_attention_with_rope": _rotary_attention,
    "run_transformer_block": _block,
    "run_transformer_lm": _model,
    "built": _built,
    "run_transformer_lm_in_pieces": _in_pieces,
}
"""By the name of a program."""
