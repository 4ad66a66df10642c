"""GPT-2 (Radford et al. 2019), small enough to read, and what its learned positions do that rotary ones do not."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cs336_basics.attention import scaled_dot_product_attention
from cs336_basics.config import TransformerConfig
from cs336_basics.transformer import TransformerLM
from cs336_harness.cost.tables import ReportTable
from cs336_harness.shapes import DecoderShape

EPS, STD = 1e-5, 0.02


class Projection(nn.Module):
    """y = x W + b, with the weight (in, out) as GPT-2's checkpoints store it."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_in, d_out))
        self.bias = nn.Parameter(torch.empty(d_out))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class Block(nn.Module):
    """Attention, then feed-forward, each after a LayerNorm: the same two residual lines as here."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.ln_1 = nn.LayerNorm(d_model, EPS)
        self.attn = nn.ModuleDict({"c_attn": Projection(d_model, 3 * d_model), "c_proj": Projection(d_model, d_model)})
        self.ln_2 = nn.LayerNorm(d_model, EPS)
        self.mlp = nn.ModuleDict({"c_fc": Projection(d_model, 4 * d_model), "c_proj": Projection(4 * d_model, d_model)})

    def forward(self, x: Tensor) -> Tensor:
        x = x + self._attention(self.ln_1(x))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))

    def _attention(self, x: Tensor) -> Tensor:
        each = self.attn["c_attn"](x).chunk(3, dim=-1)  # (batch, time, d_model) three times
        q, k, v = (part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in each)
        return self.attn["c_proj"](scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class GPT2(nn.Module):
    """Token ids (batch, time) and positions (time,) to raw logits (batch, time, vocab_size); the head is tied."""

    def __init__(self, shape: DecoderShape, generator: torch.Generator) -> None:
        super().__init__()
        self.wte = nn.Parameter(torch.empty(shape.vocab_size, shape.d_model))
        self.wpe = nn.Parameter(torch.empty(shape.context_length, shape.d_model))
        self.h = nn.ModuleList(Block(shape.d_model, shape.num_heads) for _ in range(shape.num_layers))
        self.ln_f = nn.LayerNorm(shape.d_model, EPS)
        with torch.no_grad():
            for name, weight in self.named_parameters():
                if name.endswith("bias"):
                    weight.zero_()
                elif "ln_" not in name:
                    depth = math.sqrt(2 * shape.num_layers) if "c_proj" in name else 1
                    weight.normal_(std=STD / depth, generator=generator)

    def forward(self, token_ids: Tensor, positions: Tensor | None = None) -> Tensor:
        """IndexError for a position that the table has no row for."""
        positions = torch.arange(token_ids.shape[-1]) if positions is None else positions
        x = self.wte[token_ids] + self.wpe[positions]
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.T


SHAPE = DecoderShape(vocab_size=61, context_length=24, d_model=48, num_layers=3, num_heads=6, num_kv_heads=2, d_ff=128)
TIME = 12
MOVED = 5
NOTHING = 1e-12
"""Relative; a change below it is rounding of float64."""

Model = Callable[[Tensor, Tensor | None], Tensor]


def models(shape: DecoderShape, seed: int = 1) -> dict[str, Model]:
    """GPT-2, this decoder, and this decoder with every token at position 0, in float64."""
    gpt2 = GPT2(shape, torch.Generator().manual_seed(seed)).double()
    config = TransformerConfig(**shape.model_arguments())
    decoder = TransformerLM(config, generator=torch.Generator().manual_seed(seed)).double()
    return {
        "GPT-2": gpt2,
        "this decoder": decoder,
        "no positions": lambda token_ids, _: decoder(token_ids, torch.zeros(token_ids.shape[-1], dtype=torch.int64)),
    }


def change(before: Tensor, after: Tensor) -> float:
    """The largest change of a logit, relative to the standard deviation of the logits."""
    return float((after - before).abs().max() / before.std())


@functools.cache
@torch.no_grad()
def position_dependence(shape: DecoderShape = SHAPE) -> dict[str, dict[str, float]]:
    """Question -> model -> how far the logits change."""
    token_ids = torch.randint(shape.vocab_size, (2, TIME), generator=torch.Generator().manual_seed(2))
    exchanged = token_ids.clone()
    exchanged[:, [2, 6]] = token_ids[:, [6, 2]]
    positions = torch.arange(TIME)
    answers: dict[str, dict[str, float]] = {}
    for layers in (1, shape.num_layers):
        depth = "1 layer" if layers == 1 else f"{layers} layers"
        for name, model in models(shape.replace(num_layers=layers)).items():
            logits = model(token_ids, positions)
            repeated = model(torch.full_like(token_ids, 7), positions)
            for question, found in {
                f"all positions {MOVED} later": change(logits, model(token_ids, positions + MOVED)),
                "one token repeated, from position to position": change(repeated, repeated.roll(1, 1)),
                f"two earlier tokens exchanged, at the last position, {depth}": change(
                    logits[:, -1], model(exchanged, positions)[:, -1]
                ),
            }.items():
                answers.setdefault(question, {})[name] = found
    return answers


def refuses_unseen_positions(model: Model, shape: DecoderShape = SHAPE) -> bool:
    """Whether a position past the context length is none that the model has anything for."""
    try:
        model(torch.zeros(1, 2, dtype=torch.int64), torch.tensor([0, shape.context_length]))
    except IndexError:
        return True
    return False


def position_table() -> ReportTable:
    """How far the logits change, in their standard deviations."""
    answers = position_dependence()
    columns = ("GPT-2", "this decoder", "no positions")
    rows = [(question, *(shown(found[name]) for name in columns)) for question, found in answers.items()]
    unseen = models(SHAPE)
    refused = ["no such position" if refuses_unseen_positions(unseen[name]) else "computed" for name in columns]
    rows.append(("a position past the context length", *refused))
    return ReportTable("What the logits know of positions", ("<what is changed", *columns), rows, None, "")


def shown(relative: float) -> str:
    """Two digits, or that nothing changed."""
    return "nothing" if relative < NOTHING else f"{relative:.2g}"
