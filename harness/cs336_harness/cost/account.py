"""The account as tables: one description of them, shown on a terminal or written as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cs336_harness.contract import FLOP_TERMS
from cs336_harness.cost.architecture import features_of
from cs336_harness.cost.matmuls import CONVENTION
from cs336_harness.cost.tables import ReportTable, markdown_table, text_table
from cs336_harness.cost.tally import BYTES_PER_VALUE, Tally
from cs336_harness.cost.units import grouped, percent, readable, readable_bytes, readable_count

TERM_NAMES = {
    "attention_projections": "attention projections",
    "attention_scores": "attention scores (T²)",
    "attention_values": "attention values (T²)",
    "feed_forward": "feed-forward",
    "lm_head": "lm_head",
}

_SHOWN_SIZES = ("vocab_size", "context_length", "num_layers", "d_model", "num_heads", "num_kv_heads", "d_ff")


def report_tables(account: Tally) -> Iterator[ReportTable]:
    """The tables of an account: parameters and memory, matrix multiplies, another length."""
    yield _parameters(account)
    yield _matmuls(account)
    yield _other_length(account)


def headline(account: Tally, name: str) -> str:
    """One line that says which decoder this is and what it is asked to do."""
    shape = account.shape
    said = [
        *(f"{size} {getattr(shape, size)}" for size in _SHOWN_SIZES),
        "tied" if shape.tie_embeddings else "untied",
        *features_of(shape),
    ]
    return (
        f"{name}: {', '.join(said)}; batch {account.batch_size}, sequence length {account.sequence_length}, "
        f"{account.dtype}"
    )


def notes(account: Tally, other_length: bool = True) -> list[str]:
    """What a reader should know before using the numbers; ``other_length`` when a table shows that as well."""
    said = [f"Convention: {CONVENTION}"]
    longest = max(account.sequence_length, account.other_length if other_length else 0)
    if account.sequence_length > account.shape.context_length:
        said.append(
            f"Length {account.sequence_length} is past context_length {account.shape.context_length}: a model of "
            "this shape refuses it. Rotary positions have no parameters, so a longer context adds none."
        )
    elif longest > account.shape.context_length:
        said.append(f"Length {longest} is past context_length {account.shape.context_length} and is shown to compare.")
    return said


def markdown_report(account: Tally, name: str, tables: Iterable[ReportTable] | None = None) -> str:
    """The whole account, or the tables given in its place, as Markdown."""
    blocks = [headline(account, name)]
    for table in tables or report_tables(account):
        blocks += [f"## {table.title}", markdown_table(table), table.below]
    return "\n\n".join([*blocks, *notes(account, tables is None)]) + "\n"


def text_report(
    account: Tally, name: str, width: int, tables: Iterable[ReportTable] | None = None
) -> Iterator[tuple[str, str]]:
    """The whole account, or the tables given in its place, as lines for a terminal, each with its style.

    Styles are ``bold``, ``dim`` and none. Prose is broken at ``width``; tables are not.
    """
    from textwrap import wrap

    yield from ((line, "") for line in wrap(headline(account, name), width))
    for table in tables or report_tables(account):
        yield "", ""
        yield from ((line, "bold") for line in wrap(table.title, width))
        yield "", ""
        lines = list(text_table(table, width))
        yield from ((line, "bold" if table.total and line is lines[-1] else "") for line in lines)
        yield "", ""
        yield from ((line, "") for line in wrap(table.below, width))
    for note in notes(account, tables is None):
        yield "", ""
        yield from ((line, "dim") for line in wrap(note, width))


def _parameters(account: Tally) -> ReportTable:
    bytes_each = BYTES_PER_VALUE[account.dtype]
    rows = [
        (
            weight.name.removesuffix(".weight"),
            " x ".join(map(str, weight.shape)),
            str(weight.count),
            grouped(weight.parameters),
            percent(weight.parameters, account.parameters),
            readable(weight.parameters * bytes_each, "B"),
        )
        for weight in account.weights
    ]
    if account.shape.tie_embeddings:
        rows.append(("lm_head", "is token_embeddings", "", "0", "", ""))
    total = ("total", "", "", grouped(account.parameters), percent(1, 1), readable(account.memory, "B"))
    below = (
        f"{grouped(account.parameters)} parameters ({readable_count(account.parameters)}); "
        f"{grouped(account.memory)} bytes = {readable_bytes(account.memory)} at {bytes_each} "
        f"byte{'s' if bytes_each > 1 else ''} per {account.dtype}."
    )
    columns = ("<weight", "<size", "count", "parameters", "share", account.dtype)
    return ReportTable("Parameters and memory", columns, rows, total, below)


def _matmuls(account: Tally) -> ReportTable:
    total = account.flops
    rows = [
        (
            multiply.name,
            multiply.what,
            *(str(size) for size in (multiply.m, multiply.k, multiply.n, multiply.count)),
            grouped(multiply.flops),
            percent(multiply.flops, total),
        )
        for multiply in account.matmuls
    ]
    last = ("total", "", "", "", "", "", grouped(total), percent(1, 1))
    columns = ("<multiply", "<what", "m", "k", "n", "count", "FLOPs", "share")
    per_token = readable(total // (account.batch_size * account.sequence_length), "FLOPs")
    below = f"{grouped(total)} FLOPs = {readable(total, 'FLOPs')} for one forward pass; {per_token} per token."
    return ReportTable("Matrix multiplies of one forward pass, (m, k) times (k, n)", columns, rows, last, below)


def _other_length(account: Tally) -> ReportTable:
    here, there = sorted((account.sequence_length, account.other_length))
    terms, others = account.terms, account.other_terms
    if here != account.sequence_length:
        terms, others = others, terms
    before, after = sum(terms.values()), sum(others.values())
    rows = [
        (
            TERM_NAMES[term],
            readable(terms[term], "FLOPs"),
            percent(terms[term], before),
            readable(others[term], "FLOPs"),
            percent(others[term], after),
            f"{others[term] / terms[term]:,.4g}",
        )
        for term in FLOP_TERMS
    ]
    last = (
        "total",
        readable(before, "FLOPs"),
        percent(1, 1),
        readable(after, "FLOPs"),
        percent(1, 1),
        f"{after / before:,.4g}",
    )
    columns = ("<term", f"T = {here}", "share", f"T = {there}", "share", "times")
    below = (
        f"From {here} to {there} positions the T² terms grow {there * there / (here * here):,.4g} times, "
        f"the others {there / here:,.4g} times, all together {after / before:,.4g} times. Parameters stay as they are."
    )
    return ReportTable("Another sequence length", columns, rows, last, below)
