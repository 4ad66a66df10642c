"""``cs336 account --training`` and ``--cache``: numbers by closed forms, what fits, and tables that nothing cuts."""

import json
from fractions import Fraction
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from cs336_harness.commands.account import account
from cs336_harness.cost.activations import count_values, list_activations
from cs336_harness.cost.cache import cached, cached_lengths
from cs336_harness.cost.laws import SHAPES
from cs336_harness.cost.presets import preset
from cs336_harness.cost.tally import tally
from cs336_harness.cost.training import Training
from cs336_harness.cost.units import read_bytes, read_rate, read_share, readable_time
from cs336_harness.shapes import DecoderShape

_app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
_app.command()(account)


def said(*arguments: str, columns: int = 80) -> str:
    result = CliRunner().invoke(_app, list(arguments), env={"COLUMNS": str(columns), "NO_COLOR": "1"})
    assert result.exit_code == 0, result.stderr
    return result.stdout


def training_of(*arguments: str) -> dict[str, Any]:
    return json.loads(said(*arguments, "--json"))["training"]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("batch", [1, 3])
def test_the_activations_of_the_handout_s_list_by_closed_form(shape: DecoderShape, batch: int):
    """A block: 2BTD norms, BT(D + 2E) projections, 2BHT² scores and softmax, BTD values, BTD output, 3BTF and BTD."""
    time = 20
    rows, width, keys = batch * time, shape.d_model, shape.num_kv_heads * shape.d_head
    pairs = batch * shape.num_heads * time**2
    block = rows * (2 * width + width + 2 * keys + 2 * width + 3 * shape.d_ff + width) + 2 * pairs
    tail = rows * (width + 2 * shape.vocab_size)
    assert count_values(list_activations(shape, batch, time)) == shape.num_layers * block + tail


def test_flops_and_memory_of_a_step():
    step = training_of("gpt2-xl", "--training", "--batch", "2")
    forward, parameters = 2 * 3_516_769_894_400, 1_640_452_800
    head = 2 * 164_682_137_600
    assert step["flops"]["forward"] == forward
    assert step["flops"]["backward"] == 2 * forward
    assert step["flops"]["step_with_recomputation"] == 4 * forward - head
    assert step["flops"]["step_per_token"] == 3 * forward // 2048
    memory = step["memory_bytes"]
    assert memory["parameters"] == memory["gradients"] == 4 * parameters
    assert memory["optimizer_state"] == 8 * parameters
    assert memory["activations"] == 4 * sum(kept["values"] for kept in step["activations"])
    assert memory["peak"] == 16 * parameters + memory["activations"]
    assert step["memory_bytes_with_recomputation"]["peak"] < memory["peak"]


def test_moments_stay_in_float32_and_widen_with_the_parameters():
    for dtype, each, moment in (("bfloat16", 2, 4), ("float32", 4, 4), ("float64", 8, 8)):
        memory = Training(tally(preset("gpt2-small"), dtype=dtype)).memory()
        parameters = tally(preset("gpt2-small")).parameters
        assert (memory.gradients, memory.optimizer_state) == (each * parameters, 2 * moment * parameters)


@pytest.mark.parametrize("recomputation", [False, True])
def test_the_largest_batch_fits_and_one_more_does_not(recomputation: bool):
    available = 80 * 10**9
    shape = preset("gpt2-xl")
    largest = Training(tally(shape, batch_size=5)).largest_batch(available, recomputation=recomputation)
    peaks = [
        Training(tally(shape, batch_size=size)).memory(recomputation=recomputation).peak
        for size in (largest, largest + 1)
    ]
    assert peaks[0] <= available < peaks[1]
    assert Training(tally(shape)).largest_batch(10**9) == 0


def test_the_largest_batch_is_told_and_so_is_that_none_fits():
    assert "80 GB (74.51 GiB) holds a batch of 3; with recomputation a batch of 51." in " ".join(
        said("gpt2-xl", "--memory", "80GB").split()
    )
    assert "holds not one sequence; with recomputation not one sequence" in " ".join(
        said("gpt2-xl", "--memory", "8GiB").split()
    )


def test_time_follows_from_rate_and_mfu_and_the_mfu_from_a_step_s_time():
    """The handout's question: 400 000 steps of 1024 sequences at half of 19.5 TFLOP/s."""
    options = ("gpt2-xl", "--handout", "2025", "--batch", "1024", "--rate", "19.5T")
    time = training_of(*options, "--mfu", "50%", "--steps", "400000")["time"]
    flops = 3 * 1024 * 4_513_336_524_800
    assert time["step_seconds"] == pytest.approx(flops / 9.75e12)
    assert time["seconds"] == pytest.approx(400_000 * flops / 9.75e12)
    again = training_of(*options, "--step-seconds", str(time["step_seconds"]))["time"]
    assert again["mfu"] == pytest.approx(0.5)
    assert "400,000 steps" in said(*options, "--steps", "400000")
    assert "an MFU of 100 %" in said(*options)


@pytest.mark.parametrize("name", SHAPES)
def test_the_cache_and_the_next_token_by_closed_form(name: str):
    shape, batch, length = SHAPES[name], 3, 17
    counted = tally(shape, batch_size=batch, sequence_length=length, dtype="bfloat16")
    row = cached(counted, length)
    keys = shape.num_kv_heads * shape.d_head
    assert row.values == 2 * shape.num_layers * batch * length * keys
    assert row.bytes == 2 * row.values
    block = 4 * shape.d_model**2 + 4 * shape.d_model * keys + 6 * shape.d_model * shape.d_ff
    pairs = 4 * length * shape.d_model
    head = 2 * shape.d_model * shape.vocab_size
    assert row.flops == batch * (shape.num_layers * (block + pairs) + head)


def test_the_next_tokens_of_a_sequence_cost_its_forward_pass_without_the_half_that_the_mask_hides():
    counted = tally(SHAPES["gqa"], sequence_length=50)
    one_by_one = sum(cached(counted, length).flops for length in range(1, 51))
    pairs = counted.terms["attention_scores"] + counted.terms["attention_values"]
    assert one_by_one == counted.flops - pairs + Fraction(pairs * 51, 100)


def test_lengths_rise_to_the_context_and_hold_the_one_that_was_asked_for():
    lengths = [row.length for row in cached_lengths(tally(SHAPES["llama_3_8b"], sequence_length=3000))]
    assert lengths == [1, 1024, 2048, 3000, 4096, 8192]
    assert [row.length for row in cached_lengths(tally(SHAPES["mha"]))] == [1, 64]


WIDE = (
    "--vocab-size 256000 --context-length 131072 --d-model 16384 --num-layers 126 --num-heads 128 --num-kv-heads 8 "
    "--d-ff 53248"
)


@pytest.mark.parametrize(
    "arguments",
    [
        "gpt2-xl --training --batch 1024 --rate 312T --steps 400000",
        "gpt2-xl --cache",
        "gpt2-xl --compare gpt2",
        "gpt2-xl",
    ],
)
def test_tables_fit_into_eighty_columns(arguments: str):
    assert max(map(len, said(*arguments.split()).splitlines())) <= 80


@pytest.mark.parametrize("option", ["", "--training", "--cache", "--compare gpt2"])
def test_no_number_is_cut_however_large_the_decoder_or_narrow_the_terminal(option: str):
    for columns in (80, 40):
        out = said(*WIDE.split(), "--batch", "512", *option.split(), columns=columns)
        assert "…" not in out
    narrow, wide = (said(*WIDE.split(), *option.split(), columns=columns) for columns in (40, 200))
    numbers = [word for word in narrow.split() if word.count(",") >= 2]
    assert numbers
    assert set(numbers) <= set(wide.split())


def test_views_are_shown_together_and_in_place_of_the_usual_tables():
    out = said("gpt2-small", "--training", "--cache", "--compare", "gpt2")
    titles = (
        "FLOPs of one training step",
        "Memory of one training step",
        "Activations kept",
        "Key/value cache",
        "beside",
    )
    assert [out.index(title) for title in titles] == sorted(out.index(title) for title in titles)
    assert "Another sequence length" not in out
    assert "## Key/value cache" in said("gpt2-small", "--cache", "--markdown")
    keys = json.loads(said("gpt2-small", "--training", "--cache", "--json")).keys()
    assert {"training", "cache", "flops", "parameters"} <= keys


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("80GB", 80 * 10**9),
        ("24 GiB", 24 * 2**30),
        ("1.5TB", 15 * 10**11),
        ("512 MB", 512 * 10**6),
        ("9e10 bytes", 9 * 10**10),
    ],
)
def test_sizes_of_memory_are_read(text: str, size: int):
    assert read_bytes("--memory", text) == size


@pytest.mark.parametrize("text", ["", "80", "GB", "-1GB", "0GB", "80 GBB", "1e999GB", "80 iB", "٨GB GB", "nan GB"])
def test_what_is_no_size_is_refused(text: str):
    with pytest.raises(ValueError, match="--memory is"):
        read_bytes("--memory", text)


@pytest.mark.parametrize(
    ("text", "rate"),
    [("312T", 312 * 10**12), ("19.5e12", 195 * 10**11), ("989 TFLOP/s", 989 * 10**12), ("1.5PFLOPS", 15 * 10**14)],
)
def test_rates_are_read(text: str, rate: int):
    assert read_rate("--rate", text) == rate


def test_shares_are_read():
    assert read_share("--mfu", "50%") == read_share("--mfu", "0.5") == Fraction(1, 2)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (Fraction(1, 10**7), "0.1 µs"),
        (Fraction(1, 8), "125 ms"),
        (Fraction(90), "90 s"),
        (Fraction(600), "10 minutes"),
        (Fraction(36000), "10 hours"),
        (Fraction(86400 * 30), "30 days"),
        (Fraction(86400 * 730), "2 years"),
    ],
)
def test_times_are_told_in_the_unit_that_fits(seconds: Fraction, words: str):
    assert readable_time(seconds) == words
