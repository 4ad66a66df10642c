"""Write-ups to judge: the right answer for a shape, with any of its numbers written otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

from cs336_harness.cost.presets import preset
from cs336_harness.shapes import DecoderShape
from cs336_harness.writeup.claims import Finding
from cs336_harness.writeup.questions import Judgement, judge_text

HANDOUTS = {"2026": preset("gpt2-xl", 2026), "2025": preset("gpt2-xl", 2025)}

LABELS = {
    "q_proj": "q_proj",
    "k_proj": "key projection",
    "v_proj": "`v_proj`",
    "scores": "attention scores, Q Kᵀ",
    "values": "attention weights times V",
    "output_proj": "output projection",
    "w1": "SwiGLU $W_1$",
    "w3": "w3 (up)",
    "w2": "w₂, back down",
    "lm_head": "LM head",
}


class Sizes:
    """A shape by the letters of the closed forms, and the right answers by them, not by the list."""

    def __init__(self, shape: DecoderShape) -> None:
        self.shape = shape
        self.V, self.T, self.L, self.D = shape.vocab_size, shape.context_length, shape.num_layers, shape.d_model
        self.H, self.F, self.E = shape.num_heads, shape.d_ff, shape.d_kv

    @property
    def parameters(self) -> int:
        block = 2 * self.D**2 + 2 * self.D * self.E + 3 * self.D * self.F + 2 * self.D
        return (2 - self.shape.tie_embeddings) * self.V * self.D + self.L * block + self.D

    @property
    def lines(self) -> dict[str, int]:
        pairs = 2 * self.T**2 * self.D * self.L
        wide, narrow = 2 * self.T * self.D**2 * self.L, 2 * self.T * self.D * self.E * self.L
        ffn = 2 * self.T * self.D * self.F * self.L
        return {
            "q_proj": wide,
            "k_proj": narrow,
            "v_proj": narrow,
            "scores": pairs,
            "values": pairs,
            "output_proj": wide,
            "w1": ffn,
            "w3": ffn,
            "w2": ffn,
            "lm_head": 2 * self.T * self.D * self.V,
        }

    @property
    def flops(self) -> int:
        return sum(self.lines.values())


def configuration(shape: DecoderShape) -> str:
    """The configuration as a table."""
    names = ("vocab_size", "context_length", "num_layers", "d_model", "num_heads", "num_kv_heads", "d_ff")
    rows = [f"| {name} | {getattr(shape, name):,} |" for name in names]
    rows.append(f"| tie_embeddings | {'yes' if shape.tie_embeddings else 'no'} |")
    return "\n".join(["## Configuration", "", "| size | value |", "| --- | ---: |", *rows])


def answer(
    shape: DecoderShape,
    *,
    parameters: str | None = None,
    memory: str | None = None,
    total: str | None = None,
    lines: Mapping[str, str] | None = None,
    write: Callable[[int], str] = "{:,}".format,
) -> str:
    """The answer to (a) to (c), right except for what is given."""
    sizes = Sizes(shape)
    costs = {name: write(count) for name, count in sizes.lines.items()} | dict(lines or {})
    groups = {
        "feed-forward": sum(sizes.lines[name] for name in ("w1", "w2", "w3")),
        "attention projections": sum(sizes.lines[name] for name in ("q_proj", "k_proj", "v_proj", "output_proj")),
        "T² terms": 2 * sizes.lines["scores"],
        "head": sizes.lines["lm_head"],
    }
    largest = max(groups, key=lambda name: groups[name])
    return "\n".join(
        [
            "# Transformer accounting",
            "",
            configuration(shape),
            "",
            "## (a)",
            "",
            f"The model has {parameters or write(sizes.parameters) + ' parameters'}.",
            f"They take {memory or write(4 * sizes.parameters) + ' bytes'}.",
            "",
            "## (b)",
            "",
            "| multiply | FLOPs |",
            "| --- | ---: |",
            *(f"| {label} | {costs[name]} |" for name, label in LABELS.items()),
            f"| total | {total or write(sizes.flops)} |",
            "",
            "## (c)",
            "",
            f"The {largest} costs most, {float(Fraction(100 * groups[largest], sizes.flops)):.1f} %.",
        ]
    )


def wrong_numbers(text: str) -> list[Finding]:
    """The findings of a text whose number is wrong."""
    return [finding for finding in judge_text(text).findings if finding.verdict == "wrong"]


def hints(text: str) -> str:
    """All that is said about wrong numbers."""
    return " ".join(hint for finding in wrong_numbers(text) for hint in finding.hints)


def verdict(judgement: Judgement, question: str) -> str:
    """What became of a question."""
    return judgement.answers[question].verdict
