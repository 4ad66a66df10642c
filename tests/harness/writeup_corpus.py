"""Written answers made from the ledger: eight styles, two languages, six formats; right, or with one mistake planted.

    uv run python tests/harness/writeup_corpus.py

judges them all and prints how many right numbers are called wrong (none may be) and how many planted mistakes are
found and named.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

from cs336_harness.cost.ledger import (
    ATTENTION,
    BLOCK,
    BLOCK_NORMS,
    BYTES,
    EVERYTHING,
    FEED_FORWARD,
    FLOPS,
    HEAD,
    LAYER,
    MODEL,
    PARAMETERS,
    POSITION_PAIRS,
    PROJECTIONS,
    Ledger,
    components_of,
    true_ledger,
)
from cs336_harness.cost.mistakes import MISTAKES, mistakes_in
from cs336_harness.cost.presets import preset
from cs336_harness.cost.quantities import sibling
from cs336_harness.shapes import DecoderShape
from cs336_harness.writeup.claims import WRONG
from cs336_harness.writeup.questions import Judgement, judge_files

Block = tuple
"""("h", level, text), ("p", text), ("ul", items), ("table", header, rows) or ("code", text)."""

EMBEDDING = frozenset(("token_embeddings",))
LANGUAGES = ("en", "zh")


@dataclasses.dataclass(frozen=True)
class Facts:
    """The numbers of an answer. ``planted`` replaces the stated total of one dimension by a mistaken one."""

    shape: DecoderShape
    planted: dict[str, Fraction] = dataclasses.field(default_factory=dict)

    def ledger(self, model: str = "xl", length: int | None = None) -> Ledger:
        shape = self.shape if model == "xl" else sibling(self.shape, f"gpt2-{model}")
        return true_ledger(shape, 1, length or shape.context_length)

    def of(self, dimension: str, components: frozenset[str], scope: str = MODEL, **where: object) -> int:
        return self.ledger(**where).amount(dimension, components_of(dimension, components), scope)

    def total(self, dimension: str) -> Fraction:
        if dimension in self.planted:
            return self.planted[dimension]
        if dimension == BYTES:
            return Fraction(4 * self.of(PARAMETERS, EVERYTHING))
        return Fraction(self.of(dimension, EVERYTHING))

    def share(self, components: frozenset[str], scope: str = MODEL, **where: object) -> str:
        whole = self.of(FLOPS, BLOCK if scope == LAYER else EVERYTHING, scope, **where)
        return f"{100 * self.of(FLOPS, components, scope, **where) / whole:.1f}"


def grouped(value: Fraction | int) -> str:
    return f"{int(value):,}" if Fraction(value).denominator == 1 else f"{float(value):,.4f}"


def tera(value: Fraction | int, digits: int = 4) -> str:
    return f"{float(value) / 1e12:.{digits}f}"


def giga(value: Fraction | int, digits: int = 3) -> str:
    return f"{float(value) / 1e9:.{digits}f}"


def power(value: Fraction | int, digits: int = 5) -> str:
    exponent = len(str(int(value))) - 1
    return f"{float(value) / 10**exponent:.{digits}f} × 10^{exponent}"


def _configuration(facts: Facts) -> list[Block]:
    names = ("vocab_size", "context_length", "num_layers", "d_model", "num_heads", "d_ff")
    rows = [[name, f"{getattr(facts.shape, name):,}"] for name in names]
    return [("h", 2, "Configuration"), ("table", ["size", "value"], rows)]


# One function for each style: (facts, language) -> blocks. English first, Chinese second.

LINES = {
    "Q projection": "q_proj",
    "K projection": "k_proj",
    "V projection": "v_proj",
    "attention scores QK^T": "scores",
    "attention weights × V": "values",
    "output projection": "output_proj",
    "FFN W1 (gate)": "w1",
    "FFN W3 (up projection)": "w3",
    "FFN W2 (down projection)": "w2",
    "LM head": "lm_head",
}
LINES_ZH = {
    "Q 投影": "q_proj",
    "K 投影": "k_proj",
    "V 投影": "v_proj",
    "注意力分数 QK^T": "scores",
    "注意力权重 × V": "values",
    "注意力输出投影": "output_proj",
    "前馈网络 W1（门控）": "w1",
    "前馈网络 W3（上投影）": "w3",
    "前馈网络 W2（下投影）": "w2",
    "LM head": "lm_head",
}


def _lines(facts: Facts, zh: bool, scope: str = MODEL) -> Iterator[tuple[str, int]]:
    for label, name in (LINES_ZH if zh else LINES).items():
        components = frozenset((name,))
        yield label, facts.of(FLOPS, components, scope if components <= BLOCK else MODEL)


def exact_table(facts: Facts, zh: bool) -> list[Block]:
    p, b, f = (facts.total(dimension) for dimension in (PARAMETERS, BYTES, FLOPS))
    rows = [[label, grouped(flops)] for label, flops in _lines(facts, zh)]
    if zh:
        return [
            ("h", 2, "(a) 参数与内存"),
            ("p", f"模型共有 {grouped(p)} 个可训练参数，以 float32 存储需要 {grouped(b)} 字节。"),
            ("h", 2, "(b) 矩阵乘法"),
            ("table", ["矩阵乘法", "FLOPs"], [*rows, ["总计", grouped(f)]]),
            ("h", 2, "(c) 占比"),
            ("p", f"前馈网络最多，占 {facts.share(FEED_FORWARD)}%。"),
        ]
    return [
        ("h", 2, "(a) Parameters and memory"),
        ("p", f"The model has {grouped(p)} trainable parameters and takes {grouped(b)} bytes in float32."),
        ("h", 2, "(b) Matrix multiplies"),
        ("table", ["multiply", "FLOPs"], [*rows, ["total", grouped(f)]]),
        ("h", 2, "(c) What costs most"),
        ("p", f"The feed-forward networks cost the most, {facts.share(FEED_FORWARD)} % of the total."),
    ]


def rounded_prose(facts: Facts, zh: bool) -> list[Block]:
    p, b, f = (facts.total(dimension) for dimension in (PARAMETERS, BYTES, FLOPS))
    head, pairs = facts.share(HEAD), facts.share(POSITION_PAIRS)
    ffn, attention = facts.of(FLOPS, FEED_FORWARD), facts.of(FLOPS, ATTENTION)
    if zh:
        return [
            ("h", 3, "(a)"),
            ("p", f"参数总量约为 {giga(p, 4)}B 个参数，加载需要约 {giga(b, 4)} GB 内存。"),
            ("h", 3, "(b)"),
            ("p", f"前馈网络需要 {tera(ffn, 3)} TFLOPs，注意力需要 {tera(attention, 3)} TFLOPs。"),
            ("p", f"一次前向传播总共需要约 {tera(f)} TFLOPs。"),
            ("h", 3, "(c)"),
            ("p", f"前馈网络占 {facts.share(FEED_FORWARD)}%，LM head 占 {head}%，二次项占 {pairs}%。"),
        ]
    return [
        ("h", 3, "(a)"),
        ("p", f"In total there are about {giga(p, 4)} billion parameters, which need {giga(b, 4)} GB of memory."),
        ("h", 3, "(b)"),
        ("p", f"The FFN needs {tera(ffn, 3)} TFLOPs and attention {tera(attention, 3)} TFLOPs."),
        ("p", f"In total, one forward pass takes about {tera(f)} TFLOPs."),
        ("h", 3, "(c)"),
        (
            "p",
            f"The feed-forward layers take the most with {facts.share(FEED_FORWARD)}%, while the LM head takes {head}% "
            f"and the two T² terms {pairs}%.",
        ),
    ]


def derived_list(facts: Facts, zh: bool) -> list[Block]:
    s = facts.shape
    p, b, f = (facts.total(dimension) for dimension in (PARAMETERS, BYTES, FLOPS))
    attention, ffn = facts.of(PARAMETERS, ATTENTION, LAYER), facts.of(PARAMETERS, FEED_FORWARD, LAYER)
    embedding = facts.of(PARAMETERS, EMBEDDING)
    names = ("每层注意力", "每层前馈网络", "词嵌入", "总参数量", "内存") if zh else None
    names = names or ("Attention per layer", "Feed-forward per layer", "Token embedding", "Total parameters", "Memory")
    work = ("每层的计算量", "LM head", "总计") if zh else ("Per layer", "LM head", "Total")
    block, head = facts.of(FLOPS, BLOCK, LAYER), facts.of(FLOPS, HEAD)
    T, D, F, V = s.context_length, s.d_model, s.d_ff, s.vocab_size
    return [
        ("h", 2, "(a)"),
        (
            "ul",
            [
                f"{names[0]}: 4 × {D} × {D} = {grouped(attention)}",
                f"{names[1]}: 3 × {D} × {F} = {grouped(ffn)}",
                f"{names[2]}: {V} × {D} = {grouped(embedding)}",
                f"{names[3]}: {grouped(p)}",
                f"{names[4]}: {grouped(b)} {'字节' if zh else 'bytes'}",
            ],
        ),
        ("h", 2, "(b)"),
        (
            "ul",
            [
                f"{work[0]}: 8·T·D² + 4·T²·D + 6·T·D·F = {grouped(block)} FLOPs",
                f"{work[1]}: 2·{T}·{D}·{V} = {grouped(head)} FLOPs",
                f"{work[2]}: {grouped(f)} FLOPs",
            ],
        ),
        ("h", 2, "(c)"),
        (
            "ul",
            [
                f"FFN: {facts.share(FEED_FORWARD)}% {'最多' if zh else '(the largest)'}",
                f"{'注意力投影' if zh else 'attention projections'}: {facts.share(PROJECTIONS)}%",
                f"LM head: {facts.share(HEAD)}%",
            ],
        ),
    ]


def per_layer_table(facts: Facts, zh: bool) -> list[Block]:
    p, b, f = (facts.total(dimension) for dimension in (PARAMETERS, BYTES, FLOPS))
    layers = facts.shape.num_layers
    rows = [
        [label, giga(flops), giga(flops * (layers if label != "LM head" else 1))]
        for label, flops in _lines(facts, zh, LAYER)
        if label != "LM head"
    ]
    head = facts.of(FLOPS, HEAD)
    if zh:
        return [
            ("h", 2, "(a)"),
            ("p", f"共 {grouped(p)} 个参数，即 {giga(b, 4)} GB。"),
            ("h", 2, "(b)"),
            ("p", "单位 GFLOPs"),
            ("table", ["矩阵乘法", "每层", "所有层"], rows),
            ("p", f"LM head 需要 {giga(head)} GFLOPs。总计 {giga(f)} GFLOPs。"),
            ("h", 2, "(c)"),
            ("p", f"在一个块内，前馈网络占该块的 {facts.share(FEED_FORWARD, LAYER)}%，前馈网络最多。"),
        ]
    return [
        ("h", 2, "(a)"),
        ("p", f"We have {grouped(p)} parameters; they take {giga(b, 4)} GB."),
        ("h", 2, "(b)"),
        ("p", "All numbers in GFLOPs."),
        ("table", ["matmul", "per layer", f"all {layers} layers"], rows),
        ("p", f"The LM head costs {giga(head)} GFLOPs. The total is {giga(f)} GFLOPs."),
        ("h", 2, "(c)"),
        (
            "p",
            f"Within one block the feed-forward takes {facts.share(FEED_FORWARD, LAYER)}% of the block; "
            "the feed-forward dominates.",
        ),
    ]


def printed(facts: Facts, zh: bool) -> list[Block]:
    p, b, f = (facts.total(dimension) for dimension in (PARAMETERS, BYTES, FLOPS))
    groups = {"attn_proj": PROJECTIONS, "qk": frozenset(("scores",)), "attn_v": frozenset(("values",))}
    groups |= {"ffn": FEED_FORWARD, "lm_head": HEAD}
    said = {name: facts.of(FLOPS, components) for name, components in groups.items()}
    whole = {"total": int(f) if f.denominator == 1 else float(f)}
    text = json.dumps(said | whole)
    note = "代码输出如下：" if zh else "The output of the code:"
    return [
        ("h", 2, "(a)"),
        ("p", note),
        ("code", f"total parameters = {grouped(p)}\nmemory (fp32) = {grouped(b)} bytes"),
        ("h", 2, "(b)"),
        ("p", note),
        ("code", text),
        ("h", 2, "(c)"),
        ("code", f"ffn: {facts.share(FEED_FORWARD)}% (largest)\nlm_head: {facts.share(HEAD)}%"),
    ]


def models_and_lengths(facts: Facts, zh: bool) -> list[Block]:
    f = facts.total(FLOPS)
    models = ("small", "medium", "large")
    groups = {"FFN": FEED_FORWARD, "注意力" if zh else "attention": ATTENTION, "LM head": HEAD}
    rows = [
        [name, *(f"{facts.share(components, model=model)}%" for model in models)] for name, components in groups.items()
    ]
    totals = [f"{tera(facts.of(FLOPS, EVERYTHING, model=model), 3)} TFLOPs" for model in models]
    rows.append(["总计" if zh else "total", *totals])
    length = 16 * facts.shape.context_length
    far = {"length": length}
    before, after = facts.share(POSITION_PAIRS), facts.share(POSITION_PAIRS, **far)
    whole = tera(facts.of(FLOPS, EVERYTHING, **far), 2)
    ratio = facts.of(FLOPS, EVERYTHING, **far) / facts.of(FLOPS, EVERYTHING)
    blocks: list[Block] = [
        ("h", 2, "(b)"),
        ("p", f"总计：{grouped(f)} FLOPs。" if zh else f"Total: {grouped(f)} FLOPs."),
        ("h", 2, "(d)"),
        ("table", ["", *(f"GPT-2 {model}" for model in models)], rows),
    ]
    if zh:
        return [
            *blocks,
            ("p", "随着模型变大，FFN 的占比上升，LM head 的占比下降。"),
            ("h", 2, "(e)"),
            ("p", f"上下文长度为 {length:,} 时，总计算量为 {whole} TFLOPs，约为原来的 {ratio:.1f} 倍。"),
            ("p", f"二次项的占比从 {before}% 上升到 {after}%，FFN 降到 {facts.share(FEED_FORWARD, **far)}%。"),
        ]
    return [
        *blocks,
        ("p", "As the model grows, the share of the FFN rises and the share of the LM head falls."),
        ("h", 2, "(e)"),
        ("p", f"At {length:,} tokens the total becomes {whole} TFLOPs, {ratio:.1f} times as much."),
        ("p", f"The T² terms grow from {before}% to {after}%, the FFN falls to {facts.share(FEED_FORWARD, **far)}%."),
    ]


def parameters_table(facts: Facts, zh: bool) -> list[Block]:
    p, b, f = (facts.total(dimension) for dimension in (PARAMETERS, BYTES, FLOPS))
    parts = {"token embedding": EMBEDDING, "attention": PROJECTIONS, "feed-forward": FEED_FORWARD}
    parts |= {"norms in the blocks": BLOCK_NORMS, "final norm": frozenset(("ln_final",)), "LM head": HEAD}
    names = ("词嵌入", "注意力", "前馈网络", "各层归一化", "最终归一化", "LM head") if zh else tuple(parts)
    rows = [
        [name, grouped(facts.of(PARAMETERS, components))]
        for name, components in zip(names, parts.values(), strict=True)
    ]
    rows.append(["总计" if zh else "total", grouped(p)])
    terms = {"投影" if zh else "projections": PROJECTIONS, "QK^T + AV": POSITION_PAIRS, "SwiGLU": FEED_FORWARD}
    work = [[name, tera(facts.of(FLOPS, components), 4), facts.share(components)] for name, components in terms.items()]
    work.append(["LM head", tera(facts.of(FLOPS, HEAD), 4), facts.share(HEAD)])
    work.append(["总计" if zh else "total", tera(f), "100"])
    return [
        ("h", 2, "(a) 参数" if zh else "(a) Parameters"),
        ("table", ["部分" if zh else "part", "参数量" if zh else "parameters"], rows),
        ("p", f"内存：{giga(b, 4)} GB。" if zh else f"Memory: {giga(b, 4)} GB."),
        ("h", 2, "(b)"),
        ("table", ["部分" if zh else "part", "TFLOPs", "占比 (%)" if zh else "share (%)"], work),
        ("h", 2, "(c)"),
        ("p", "SwiGLU 最多。" if zh else "SwiGLU takes the most."),
    ]


def scientific(facts: Facts, zh: bool) -> list[Block]:
    p, b, f = (facts.total(dimension) for dimension in (PARAMETERS, BYTES, FLOPS))
    block, blocks = facts.of(FLOPS, BLOCK, LAYER), facts.of(FLOPS, BLOCK)
    layers = facts.shape.num_layers
    if zh:
        return [
            ("h", 2, "（a）"),
            ("p", f"总参数量 ≈ {power(p)}，占用内存 ≈ {power(b)} 字节。"),
            ("h", 2, "（b）"),
            ("p", f"每层 {power(block, 3)} FLOPs，{layers} 层共 {power(blocks, 3)} FLOPs。"),
            ("p", f"加上 LM head，总共 {power(f)} FLOPs。"),
            ("h", 2, "（c）"),
            ("p", f"前馈网络占比最多（{facts.share(FEED_FORWARD)}%）。"),
        ]
    return [
        ("h", 2, "(a)"),
        ("p", f"The total number of parameters is ≈ {power(p)}. They occupy {power(b)} bytes of memory."),
        ("h", 2, "(b)"),
        (
            "p",
            f"Each block costs {power(block, 3)} FLOPs, all {layers} blocks {power(blocks, 3)} FLOPs.",
        ),
        ("p", f"Together with the LM head the forward pass costs {power(f)} FLOPs in total."),
        ("h", 2, "(c)"),
        ("p", f"The MLPs dominate ({facts.share(FEED_FORWARD)}%)."),
    ]


STYLES: dict[str, Callable[[Facts, bool], list[Block]]] = {
    style.__name__: style
    for style in (
        exact_table,
        rounded_prose,
        derived_list,
        per_layer_table,
        printed,
        models_and_lengths,
        parameters_table,
        scientific,
    )
}


def markdown(blocks: list[Block]) -> str:
    lines: list[str] = []
    for kind, *content in blocks:
        if kind == "h":
            lines += [f"{'#' * content[0]} {content[1]}", ""]
        elif kind == "p":
            lines += [content[0], ""]
        elif kind == "ul":
            lines += [*(f"- {item}" for item in content[0]), ""]
        elif kind == "code":
            lines += ["```", content[0], "```", ""]
        else:
            header, rows = content
            lines += [f"| {' | '.join(header)} |", f"|{' --- |' * len(header)}"]
            lines += [*(f"| {' | '.join(row)} |" for row in rows), ""]
    return "\n".join(lines)


def text(blocks: list[Block]) -> str:
    return markdown(blocks).replace("### ", "# ").replace("## ", "# ")


def latex(blocks: list[Block]) -> str:
    def typeset(words: str) -> str:
        words = words.replace("%", "\\%").replace("_", "\\_").replace("&", "\\&").replace("#", "\\#")
        return words.replace("²", "$^2$").replace("×", "$\\times$").replace("≈", "$\\approx$").replace("·", "$\\cdot$")

    lines = ["\\documentclass{article}", "\\begin{document}"]
    for kind, *content in blocks:
        if kind == "h":
            lines += [f"\\{'sub' * (content[0] - 2)}section{{{typeset(content[1])}}}", ""]
        elif kind == "p":
            lines += [typeset(content[0]), ""]
        elif kind == "ul":
            lines += ["\\begin{itemize}", *(f"  \\item {typeset(item)}" for item in content[0]), "\\end{itemize}", ""]
        elif kind == "code":
            lines += ["\\begin{verbatim}", content[0], "\\end{verbatim}", ""]
        else:
            header, rows = content
            lines += [f"\\begin{{tabular}}{{{'l' * len(header)}}}", "\\hline"]
            lines += [f"{' & '.join(map(typeset, row))} \\\\" for row in (header, *rows)]
            lines += ["\\hline", "\\end{tabular}", ""]
    return "\n".join([*lines, "\\end{document}", ""])


def typst(blocks: list[Block]) -> str:
    lines: list[str] = []
    for kind, *content in blocks:
        if kind == "h":
            lines += [f"{'=' * (content[0] - 1)} {content[1]}", ""]
        elif kind == "p":
            lines += [content[0], ""]
        elif kind == "ul":
            lines += [*(f"- {item}" for item in content[0]), ""]
        elif kind == "code":
            lines += ["```", content[0], "```", ""]
        else:
            header, rows = content
            lines += ["#table(", f"  columns: {len(header)},"]
            lines += [f"  {', '.join(f'[{cell}]' for cell in row)}," for row in (header, *rows)]
            lines += [")", ""]
    return "\n".join(lines)


def html(blocks: list[Block]) -> str:
    lines = ["<!DOCTYPE html>", "<html><head><title>accounting</title></head><body>"]
    for kind, *content in blocks:
        if kind == "h":
            lines.append(f"<h{content[0]}>{content[1]}</h{content[0]}>")
        elif kind == "p":
            lines.append(f"<p>{content[0]}</p>")
        elif kind == "ul":
            lines.append(f"<ul>{''.join(f'<li>{item}</li>' for item in content[0])}</ul>")
        elif kind == "code":
            lines.append(f"<pre>{content[0]}</pre>")
        else:
            header, rows = content
            lines += ["<table>", f"<tr>{''.join(f'<th>{cell}</th>' for cell in header)}</tr>"]
            lines += [f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows]
            lines.append("</table>")
    return "\n".join([*lines, "</body></html>", ""])


def notebook(blocks: list[Block]) -> str:
    cells = []
    for block in blocks:
        if block[0] == "code":
            output = {"output_type": "stream", "name": "stdout", "text": [block[1]]}
            cells.append({"cell_type": "code", "source": ["account()"], "outputs": [output], "metadata": {}})
        else:
            cells.append({"cell_type": "markdown", "source": markdown([block]).splitlines(True), "metadata": {}})
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, ensure_ascii=False)


FORMATS: dict[str, Callable[[list[Block]], str]] = {
    "md": markdown,
    "tex": latex,
    "typ": typst,
    "html": html,
    "txt": text,
    "ipynb": notebook,
}


def blocks_of(style: str, language: str, facts: Facts) -> list[Block]:
    return [*_configuration(facts), *STYLES[style](facts, language == "zh")]


def judged(blocks: list[Block], suffix: str, folder: Path) -> Judgement:
    file = folder / f"answer.{suffix}"
    file.write_text(FORMATS[suffix](blocks), encoding="utf-8")
    return judge_files([file])


def wrong_texts(judgement: Judgement) -> list[str]:
    return [finding.claim.number.text for finding in judgement.findings if finding.verdict == WRONG]


def right_answers(year: int) -> Iterator[tuple[str, str, str, Facts]]:
    """Every style in every language and format."""
    for style, language, suffix in itertools.product(STYLES, LANGUAGES, FORMATS):
        yield style, language, suffix, Facts(preset("gpt2-xl", year))


def planted_mistakes(year: int) -> Iterator[tuple[str, str, Facts]]:
    """Every mistake that changes a total of this handout's model: its name, what it is called, the facts."""
    shape = preset("gpt2-xl", year)
    ledger = true_ledger(shape, 1, shape.context_length)
    for dimension in (PARAMETERS, FLOPS):
        whole = components_of(dimension, EVERYTHING)
        true = ledger.amount(dimension, whole)
        for mistake in mistakes_in(dimension):
            wrong = Fraction(mistake.change(ledger).amount(dimension, whole))
            if wrong not in (0, true):
                phrase = mistake.said_of(ledger).partition("; ")[0]
                planted = {dimension: wrong} | ({BYTES: 4 * wrong} if dimension == PARAMETERS else {})
                yield mistake.name, phrase, Facts(shape, planted)
    memory = Fraction(4 * ledger.amount(PARAMETERS, EVERYTHING))
    for name, factor, phrase in (
        ("bytes-2", Fraction(1, 2), "at 2 bytes per float32"),
        ("thousand-too-large", Fraction(1000), "a thousand times too large"),
        ("of-training-state", Fraction(4), "with gradients and both AdamW moments added"),
    ):
        yield name, phrase, Facts(shape, {BYTES: memory * factor})


def planted_answers(year: int, turns: int) -> Iterator[tuple[str, str, str, str, str, Facts]]:
    """Every mistake in ``turns`` styles, languages and formats each, which change from mistake to mistake."""
    styles, formats = list(STYLES), list(FORMATS)
    for number, (name, phrase, facts) in enumerate(planted_mistakes(year)):
        for turn in range(turns):
            at = number * turns + turn
            style = styles[(number + 3 * turn) % len(styles)]
            if style == "models_and_lengths" and FLOPS not in facts.planted:
                style = "exact_table"
            yield name, phrase, style, LANGUAGES[at % 2], formats[(number + turn) % len(formats)], facts


def is_named(judgement: Judgement, phrase: str) -> bool:
    return any(phrase in hint for finding in judgement.findings if finding.verdict == WRONG for hint in finding.hints)


def main() -> None:
    """Prints what the bars ask for."""
    with tempfile.TemporaryDirectory() as folder:
        for year in (2026, 2025):
            answers = list(right_answers(year))
            numbers = called_wrong = recognised = 0
            for style, language, suffix, facts in answers:
                judgement = judged(blocks_of(style, language, facts), suffix, Path(folder))
                numbers += len(judgement.findings)
                recognised += sum(finding.verdict == "right" for finding in judgement.findings)
                if wrong := wrong_texts(judgement):
                    called_wrong += len(wrong)
                    print(f"  right number called wrong: {style} {language} {suffix}: {wrong}")
            print(
                f"{year}: {len(answers)} right answers, {numbers} numbers, {recognised} recognised as right, "
                f"{called_wrong} called wrong"
            )
            planted = list(planted_answers(year, 4))
            found = named = 0
            for name, phrase, style, language, suffix, facts in planted:
                judgement = judged(blocks_of(style, language, facts), suffix, Path(folder))
                found += bool(wrong_texts(judgement))
                is_it = is_named(judgement, phrase)
                named += is_it
                if not is_it:
                    hints = [finding.hints for finding in judgement.findings if finding.verdict == WRONG]
                    print(f"  not named: {name} in {style} {language} {suffix}: {wrong_texts(judgement)} {hints}")
            print(
                f"{year}: {len(planted)} planted mistakes of {len(MISTAKES)} kinds, {found} found "
                f"({100 * found / len(planted):.1f} %), {named} named ({100 * named / len(planted):.1f} %)"
            )


if __name__ == "__main__":
    sys.exit(main())
