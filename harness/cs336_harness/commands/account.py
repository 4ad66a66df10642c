"""``cs336 account``: what a decoder costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cs336_harness.cost.beside_gpt2 import OTHERS, comparison, comparison_tables
from cs336_harness.cost.presets import D_FF_RULES, PRESET_NAMES, preset
from cs336_harness.cost.tally import BYTES_PER_VALUE, Tally, as_json, tally
from cs336_harness.shapes import DecoderShape

_NEEDED = ("vocab_size", "context_length", "d_model", "num_layers", "num_heads", "d_ff")


def account(
    model: Annotated[
        str | None,
        typer.Argument(
            help=f"{', '.join(PRESET_NAMES)}, or a Hugging Face config.json of the Llama family.", metavar="MODEL"
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
    tied: Annotated[
        bool | None, typer.Option("--tied/--untied", help="Whether the head is the embedding's matrix.")
    ] = None,
    seq_len: Annotated[int | None, typer.Option(help="Sequence length; the context length when left out.")] = None,
    batch: Annotated[int, typer.Option(help="Batch size.")] = 1,
    dtype: Annotated[str | None, typer.Option(help=f"One of {', '.join(BYTES_PER_VALUE)}.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON: exact integers, nothing else.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    compare: Annotated[str | None, typer.Option(help="Set it beside gpt2 at the same sizes.", metavar="gpt2")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write shares against length and model size as a figure.")] = None,
) -> None:
    """Parameters, memory and forward FLOPs of a decoder, every matrix multiply listed."""
    if json and markdown:
        _refuse("--json and --markdown exclude each other; choose one")
    if compare is not None and compare not in OTHERS:
        _refuse(f"--compare {compare} is not known; choose {' or '.join(OTHERS)}")
    sizes = {
        "vocab_size": vocab_size,
        "context_length": context_length,
        "d_model": d_model,
        "num_layers": num_layers,
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "d_ff": d_ff,
        "tie_embeddings": tied,
    }
    try:
        shape, name, stated_dtype = _shape(
            model, handout, {key: size for key, size in sizes.items() if size is not None}
        )
        counted = tally(shape, batch, seq_len, dtype or stated_dtype)
        if plot is not None:
            from cs336_harness.cost.plot import plot_shares

            plot_shares(counted, name, handout or 2026, plot)
    except ValueError as error:
        _refuse(str(error))
    _show(counted, name, json=json, markdown=markdown, compare=compare is not None)


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
        return shape.replace(**sizes), f"{model} ({rule})", "float32"
    if handout is not None:
        raise ValueError(f"--handout chooses the d_ff of a preset; name one of {', '.join(PRESET_NAMES)} with it")
    if model is not None:
        return _shape_of_file(model, sizes)
    missing = [f"--{key.replace('_', '-')}" for key in _NEEDED if key not in sizes]
    if len(missing) == len(_NEEDED):
        raise ValueError(f"say which decoder: one of {', '.join(PRESET_NAMES)}, a config.json, or {' '.join(missing)}")
    if missing:
        raise ValueError(f"the decoder's sizes are not complete: add {' '.join(missing)}")
    return DecoderShape(**{"num_kv_heads": sizes["num_heads"], **sizes}), "decoder", "float32"


def _shape_of_file(model: str, sizes: dict[str, Any]) -> tuple[DecoderShape, str, str]:
    from cs336_harness.cost.huggingface import read_config

    path = Path(model)
    if path.is_dir() and (path / "config.json").is_file():
        path = path / "config.json"
    if not path.is_file():
        raise ValueError(f"{model} is neither a preset ({', '.join(PRESET_NAMES)}) nor a file")
    shape, dtype = read_config(path)
    return shape.replace(**sizes), str(path), dtype if dtype in BYTES_PER_VALUE else "float32"


def _show(counted: Tally, name: str, *, json: bool, markdown: bool, compare: bool) -> None:
    if json:
        from json import dumps

        typer.echo(dumps({**as_json(counted), **({"comparison": comparison(counted)} if compare else {})}, indent=2))
        return
    from cs336_harness.cost.account import markdown_report, print_report

    tables = comparison_tables(counted) if compare else None
    if markdown:
        typer.echo(markdown_report(counted, name, tables), nl=False)
    else:
        print_report(counted, name, tables)


def _refuse(message: str) -> None:
    typer.echo(f"cs336 account: {message}", err=True)
    raise typer.Exit(2)
