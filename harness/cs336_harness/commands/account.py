"""``cs336 account``: what a decoder costs."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cs336_harness.cost.presets import D_FF_RULES, PRESET_NAMES, preset
from cs336_harness.cost.tally import BYTES_PER_VALUE, Tally, as_json, tally
from cs336_harness.shapes import DecoderShape

if TYPE_CHECKING:
    from cs336_harness.cost.tables import ReportTable
    from cs336_harness.cost.training import Plan

_MOST = 10**15
_NEEDED = ("vocab_size", "context_length", "d_model", "num_layers", "num_heads", "d_ff")


def account(
    model: Annotated[
        str | None,
        typer.Argument(
            help=f"{', '.join(PRESET_NAMES)}, or a Hugging Face config.json (Llama, Mistral, Qwen, Gemma).",
            metavar="MODEL",
        ),
    ] = None,
    handout: Annotated[
        int | None,
        typer.Option(
            help="d_ff of a gpt2 preset: 2026 (multiple of 64 nearest 8/3 d_model) or 2025 (4 d_model).", metavar="YEAR"
        ),
    ] = None,
    vocab_size: Annotated[int | None, typer.Option(help="V, rows of the embedding.")] = None,
    context_length: Annotated[int | None, typer.Option(help="Longest sequence the model takes.")] = None,
    d_model: Annotated[int | None, typer.Option(help="D, width of the residual stream.")] = None,
    num_layers: Annotated[int | None, typer.Option(help="L, Transformer blocks.")] = None,
    num_heads: Annotated[int | None, typer.Option(help="H, query heads.")] = None,
    num_kv_heads: Annotated[int | None, typer.Option(help="Key/value heads; num_heads when left out.")] = None,
    d_ff: Annotated[int | None, typer.Option(help="F, width of the feed-forward.")] = None,
    head_dim: Annotated[int | None, typer.Option(help="Width of a head; d_model / num_heads when left out.")] = None,
    tied: Annotated[
        bool | None, typer.Option("--tied/--untied", help="Whether the head is the embedding's matrix.")
    ] = None,
    seq_len: Annotated[int | None, typer.Option(help="Sequence length; the context length when left out.")] = None,
    batch: Annotated[int, typer.Option(help="Batch size.")] = 1,
    dtype: Annotated[str | None, typer.Option(help=f"One of {', '.join(BYTES_PER_VALUE)}.")] = None,
    training: Annotated[
        bool, typer.Option("--training", help="FLOPs and memory of one training step with AdamW.")
    ] = False,
    memory: Annotated[
        str | None, typer.Option(help="The largest batch to train in so much, like 80GB or 24GiB.", metavar="SIZE")
    ] = None,
    rate: Annotated[
        str | None, typer.Option(help="Training time at so many FLOP/s, like 312T or 19.5e12.", metavar="FLOP/s")
    ] = None,
    mfu: Annotated[
        str | None, typer.Option(help="The share of that rate that training uses; all when left out.", metavar="SHARE")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Time of so many steps, too.")] = None,
    step_seconds: Annotated[float | None, typer.Option(help="The MFU of a step that takes so long.")] = None,
    cache: Annotated[bool, typer.Option("--cache", help="Key/value cache by length, FLOPs of the next token.")] = False,
    compare: Annotated[str | None, typer.Option(help="Set it beside gpt2 at the same sizes.", metavar="gpt2")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON: exact integers, nothing else.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Write shares against length and model size as a figure.")] = None,
) -> None:
    """Parameters, memory and forward FLOPs of a decoder, every matrix multiply listed.

    --training, --cache and --compare show their tables in place of these.
    """
    if json and markdown:
        _refuse("--json and --markdown exclude each other; choose one")
    if compare not in (None, "gpt2"):
        _refuse(f"--compare {compare} is not known; choose gpt2")
    sizes = {
        "vocab_size": vocab_size,
        "context_length": context_length,
        "d_model": d_model,
        "num_layers": num_layers,
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "d_ff": d_ff,
        "head_dim": head_dim,
        "tie_embeddings": tied,
    }
    try:
        shape, name, stated_dtype = _shape(
            model, handout, {key: size for key, size in sizes.items() if size is not None}
        )
        counted = tally(shape, batch, seq_len, dtype or stated_dtype)
        plan = _plan(counted, training, memory, rate, mfu, steps, step_seconds)
        if plot is not None:
            from cs336_harness.cost.plot import plot_shares

            plot_shares(counted, name, handout or 2026, plot)
            typer.echo(f"wrote {plot}", err=True)
    except ValueError as error:
        _refuse(str(error))
    if json:
        from json import dumps

        typer.echo(dumps(_as_json(counted, plan, cache=cache, compare=compare is not None), indent=2))
        return
    from cs336_harness.cost.account import markdown_report, text_report

    tables = _tables(counted, plan, cache=cache, compare=compare is not None) or None
    if markdown:
        typer.echo(markdown_report(counted, name, tables), nl=False)
    else:
        from shutil import get_terminal_size

        for line, style in text_report(counted, name, max(40, get_terminal_size().columns), tables):
            typer.echo(typer.style(line, bold=style == "bold" or None, dim=style == "dim" or None) if style else line)


def _plan(
    account: Tally,
    training: bool,
    memory: str | None,
    rate: str | None,
    mfu: str | None,
    steps: int | None,
    step_seconds: float | None,
) -> Plan | None:
    """What the options ask about training, or None."""
    if rate is None:
        for option, value in {"--mfu": mfu, "--steps": steps, "--step-seconds": step_seconds}.items():
            if value is not None:
                raise ValueError(f"{option} needs a rate: add --rate, like --rate 312T")
    if mfu is not None and step_seconds is not None:
        raise ValueError("--step-seconds gives the MFU and --mfu takes it; choose one")
    for option, value in {"--steps": steps, "--step-seconds": step_seconds}.items():
        if value is not None and not 0 < value < _MOST:
            raise ValueError(f"{option} is {value}; it must be above 0 and below {_MOST:,}")
    if not training and memory is None and rate is None:
        return None
    from cs336_harness.cost.training import Plan, Training
    from cs336_harness.cost.units import read_bytes, read_rate, read_share

    speed = None if rate is None else read_rate("--rate", rate)
    share = Fraction(1) if mfu is None else read_share("--mfu", mfu)
    if speed is not None and step_seconds is not None:
        share = Training(account).mfu(speed, Fraction(step_seconds))
    return Plan(None if memory is None else read_bytes("--memory", memory), speed, share, steps)


def _shape(model: str | None, handout: int | None, sizes: dict[str, Any]) -> tuple[DecoderShape, str, str]:
    if model in PRESET_NAMES:
        year = handout or 2026
        rule = (
            f"{year} handout: d_ff is {D_FF_RULES.get(year)}"
            if "d_ff" not in sizes
            else f"d_ff {sizes['d_ff']} as given"
        )
        shape = preset(model, year)
        if "num_heads" in sizes:
            shape = shape.replace(num_kv_heads=sizes["num_heads"])
        return _with_sizes(shape, sizes), f"{model} ({rule})", "float32"
    if handout is not None:
        raise ValueError(f"--handout chooses the d_ff of a preset; name one of {', '.join(PRESET_NAMES)} with it")
    if model is not None:
        return _shape_of_file(model, sizes)
    missing = [f"--{key.replace('_', '-')}" for key in _NEEDED if key not in sizes]
    if len(missing) == len(_NEEDED):
        raise ValueError(f"say which decoder: one of {', '.join(PRESET_NAMES)}, a config.json, or {' '.join(missing)}")
    if missing:
        raise ValueError(f"the decoder's sizes are not complete: add {' '.join(missing)}")
    own = {key: size for key, size in sizes.items() if key != "head_dim"}
    shape = DecoderShape(**{"num_kv_heads": sizes["num_heads"], **own})
    return _with_sizes(shape, sizes), "decoder", "float32"


def _with_sizes(shape: DecoderShape, sizes: dict[str, Any]) -> DecoderShape:
    from cs336_harness.cost.architecture import Architecture

    if "head_dim" in sizes and not isinstance(shape, Architecture):
        shape = Architecture(**dataclasses.asdict(shape))
    return shape.replace(**sizes)


def _shape_of_file(model: str, sizes: dict[str, Any]) -> tuple[DecoderShape, str, str]:
    from cs336_harness.cost.huggingface import read_config

    path = Path(model)
    if path.is_dir() and (path / "config.json").is_file():
        path = path / "config.json"
    if not path.is_file():
        raise ValueError(f"{model} is neither a preset ({', '.join(PRESET_NAMES)}) nor a file")
    shape, dtype = read_config(path)
    return _with_sizes(shape, sizes), str(path), dtype if dtype in BYTES_PER_VALUE else "float32"


def _as_json(account: Tally, plan: Plan | None, *, cache: bool, compare: bool) -> dict[str, Any]:
    said = as_json(account)
    if plan is not None:
        from cs336_harness.cost.training import Training, training_json

        said["training"] = training_json(Training(account), plan)
    if cache:
        from cs336_harness.cost.cache import cache_json

        said["cache"] = cache_json(account)
    if compare:
        from cs336_harness.cost.beside_gpt2 import comparison

        said["comparison"] = comparison(account)
    return said


def _tables(account: Tally, plan: Plan | None, *, cache: bool, compare: bool) -> list[ReportTable]:
    tables: list[ReportTable] = []
    if plan is not None:
        from cs336_harness.cost.training import Training
        from cs336_harness.cost.training_tables import training_tables

        tables += training_tables(Training(account), plan)
    if cache:
        from cs336_harness.cost.training_tables import cache_table

        tables.append(cache_table(account))
    if compare:
        from cs336_harness.cost.beside_gpt2 import comparison_tables

        tables += comparison_tables(account)
    return tables


def _refuse(message: str) -> None:
    typer.echo(f"cs336 account: {message}", err=True)
    raise typer.Exit(2)
