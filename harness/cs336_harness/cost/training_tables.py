"""Training and generation as tables."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from cs336_harness.cost.activations import count_values, list_activations
from cs336_harness.cost.cache import cached_lengths
from cs336_harness.cost.tables import ReportTable
from cs336_harness.cost.tally import BYTES_PER_VALUE, Tally
from cs336_harness.cost.training import ADAMW_FLOPS, Memory, Plan, Training
from cs336_harness.cost.units import grouped, percent, readable, readable_bytes, readable_count, readable_time


def training_tables(training: Training, plan: Plan) -> Iterator[ReportTable]:
    """FLOPs of a step, its memory, the activations it keeps, and the time that it takes where a rate is given."""
    yield _flops(training)
    yield _memory(training, plan.memory)
    yield _activations(training)
    if plan.rate is not None:
        yield _time(training, plan.rate, plan.mfu, plan.steps)


def _flops(training: Training) -> ReportTable:
    forward = training.forward
    rows = [
        (name, grouped(flops), f"{flops / forward:.4g}", readable(flops // training.tokens, "FLOPs"))
        for name, flops in (
            ("forward", forward),
            ("backward", training.backward),
            ("forward and backward", training.step),
            ("blocks computed again", training.recomputed),
            ("with recomputation", training.step + training.recomputed),
        )
    ]
    rows.append(("AdamW update", grouped(training.update), f"{training.update / forward:.4g}", ""))
    rule = 6 * training.account.parameters
    below = (
        f"{readable(training.step // training.tokens, 'FLOPs')} per token for forward and backward; the rule of thumb "
        f"6N says {readable(rule, 'FLOPs')}. The backward pass has two multiplies for each of the forward pass. AdamW "
        f"takes about {ADAMW_FLOPS} operations per parameter."
    )
    return ReportTable("FLOPs of one training step", ("<pass", "FLOPs", "of forward", "per token"), rows, None, below)


def _memory(training: Training, available: int | None) -> ReportTable:
    plain, again = training.memory(), training.memory(recomputation=True)
    parts = ("parameters", "gradients", "optimizer_state", "activations")
    rows = [
        (
            {"optimizer_state": "AdamW moments"}.get(part, part),
            grouped(getattr(plain, part)),
            percent(getattr(plain, part), plain.peak),
            grouped(getattr(again, part)),
            percent(getattr(again, part), again.peak),
        )
        for part in parts
    ]
    total = ("peak", grouped(plain.peak), percent(1, 1), grouped(again.peak), percent(1, 1))
    batch = training.account.batch_size
    below = (
        f"Peak at batch B: {_line(plain, batch)}; with recomputation {_line(again, batch)}. "
        f"At batch {batch}: {readable_bytes(plain.peak)}, or {readable_bytes(again.peak)}."
    )
    if available is not None:
        batches = [training.largest_batch(available, recomputation=again) for again in (False, True)]
        kept, recomputed = (f"a batch of {size}" if size else "not one sequence" for size in batches)
        below += f" {readable_bytes(available)} holds {kept}; with recomputation {recomputed}."
    columns = ("<bytes of", "kept", "share", "recomputed", "share")
    return ReportTable("Memory of one training step", columns, rows, total, below)


def _line(memory: Memory, batch_size: int) -> str:
    return f"{readable(memory.activations // batch_size, 'B')} x B + {readable(memory.fixed, 'B')}"


def _activations(training: Training) -> ReportTable:
    account = training.account
    kept = list_activations(account.shape, 1, account.sequence_length)
    values = count_values(kept)
    each = BYTES_PER_VALUE[account.dtype]
    rows = [
        (
            activation.name,
            " x ".join(map(str, activation.shape[1:])),
            str(activation.count),
            grouped(activation.values),
            percent(activation.values, values),
        )
        for activation in kept
    ]
    below = (
        f"{readable(each * values, 'B')} a sequence at {each} bytes per {account.dtype}. It is the handout's list, "
        "and w3; scores and softmax are written out, of which fused attention keeps neither. Recomputation keeps the "
        "input of every block, and the rest of one block at a time."
    )
    columns = ("<output of", "<size", "count", "values", "share")
    total = ("total", "", "", grouped(values), percent(1, 1))
    return ReportTable("Activations kept for the backward pass, of one sequence", columns, rows, total, below)


def _time(training: Training, rate: Fraction, mfu: Fraction, steps: int | None) -> ReportTable:
    step = training.seconds(rate, mfu)
    tokens = training.tokens
    rows = [
        ("forward", grouped(training.forward), grouped(tokens), readable_time(step / 3)),
        ("step", grouped(training.step), grouped(tokens), readable_time(step)),
    ]
    if steps is not None:
        rows.append(
            (
                f"{grouped(steps)} steps",
                readable(steps * training.step, "FLOPs"),
                readable_count(steps * tokens),
                readable_time(steps * step),
            )
        )
    below = (
        f"{readable(round(training.step / step), 'FLOP/s')} and {float(tokens / step):,.4g} tokens a second. "
        "MFU counts forward and backward; recomputation is work of which it counts nothing."
    )
    title = f"Time at {readable(round(rate), 'FLOP/s')} and an MFU of {float(100 * mfu):.3g} %"
    return ReportTable(title, ("<of", "FLOPs", "tokens", "time"), rows, None, below)


def cache_table(account: Tally) -> ReportTable:
    """The cache of keys and values by length, and the FLOPs of the next token."""
    shape = account.shape
    rows = [
        (
            grouped(row.length),
            grouped(row.values),
            readable(row.bytes, "B"),
            percent(row.bytes, account.memory),
            readable(row.flops, "FLOPs"),
        )
        for row in cached_lengths(account)
    ]
    below = (
        f"Keys and values of {shape.num_layers} layers, {shape.d_kv} channels each, for a batch of "
        f"{account.batch_size} at {BYTES_PER_VALUE[account.dtype]} bytes per {account.dtype}."
    )
    group = shape.num_heads // shape.num_kv_heads
    if group > 1:
        heads = f"{shape.num_kv_heads} key/value head{'s' if shape.num_kv_heads > 1 else ''}"
        below += f" With {heads} for {shape.num_heads} query heads it is {group} times smaller than with as many."
    columns = ("length", "values", account.dtype, "of parameters", "next token")
    return ReportTable("Key/value cache", columns, rows, None, below)
