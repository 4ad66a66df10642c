"""The pages show what ``python -m contrasts`` makes, and say what is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from contrasts import encoder, gpt2, initialisation
from contrasts.__main__ import main
from contrasts.pages import BLOCKS, DOCS, Block
from cs336_harness.commands.account import account
from cs336_harness.cost.gpt2 import list_gpt2_matmuls, list_gpt2_weights
from cs336_harness.cost.matmuls import count_flops
from cs336_harness.cost.presets import preset
from cs336_harness.cost.tally import tally

SLOW = "residual stream"
QUICK = [block for block in BLOCKS if block.name not in (SLOW, "minilm")]


@pytest.mark.parametrize("block", QUICK, ids=lambda block: block.name)
def test_a_page_shows_what_is_made(block: Block) -> None:
    assert block.shown() == block.make()


@pytest.mark.slow
def test_the_residual_stream_is_what_is_made() -> None:
    block = next(block for block in BLOCKS if block.name == SLOW)
    assert block.shown() == block.make()


def test_shallow_rows_of_the_residual_stream() -> None:
    """What the slow test does at every depth."""
    shown = next(block for block in BLOCKS if block.name == SLOW).shown()
    for row in initialisation.initialisation_table(depths=(2,)).rows:
        assert f"| {' | '.join(row)} |" in shown


def test_what_the_page_says_of_the_residual_stream() -> None:
    shown = next(block for block in BLOCKS if block.name == SLOW).shown()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown.splitlines()[2:]]
    growth = {(rule, int(layers)): float(ratio) for rule, layers, *_, ratio in rows}
    assert {round(growth["nanoGPT", depth], 1) for depth in initialisation.DEPTHS} == {1.1}
    assert (round(growth["CS336", 48], 1), round(growth["CS336", 12])) == (6.7, 3)
    for rule in ("CS336", "0.02 everywhere"):
        assert growth[rule, 48] / growth[rule, 12] == pytest.approx(2, rel=0.15)


def test_a_page_without_its_block_says_so() -> None:
    with pytest.raises(ValueError, match=r"docs/GPT2\.md has no block <!-- maps -->"):
        Block("maps", "GPT2.md", str).shown()


def test_writing_a_page_again_changes_nothing() -> None:
    for block in QUICK[:2]:
        assert block.written() == block.path.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_command_prints_every_table_and_draws_the_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--plot", str(tmp_path / "stream.png")]) == 0
    printed = capsys.readouterr().out
    assert all(block.shown() in printed for block in BLOCKS if block.available())
    assert (tmp_path / "stream.png").read_bytes().startswith(b"\x89PNG")
    assert main(["--plot", str(tmp_path / "no" / "stream.png")]) == 2
    assert capsys.readouterr().err.startswith("contrasts: [Errno 2]")


def test_the_command_on_the_page_makes_its_tables() -> None:
    page = (DOCS / "GPT2.md").read_text(encoding="utf-8")
    command = re.search(r"`uv run cs336 account ([^`]+)`", page)
    assert command is not None
    app = typer.Typer()
    app.command()(account)
    made = CliRunner().invoke(app, [*command[1].split(), "--markdown"]).stdout
    for block in QUICK[:2]:
        assert block.shown() in made


def test_as_many_flops_with_a_key_head_for_each_query_head() -> None:
    shape = preset("gpt2-small")
    same = count_flops(list_gpt2_matmuls(shape, 1, shape.context_length))
    assert tally(shape).flops == same == 291_648_307_200
    assert f"{same:,}" in (DOCS / "GPT2.md").read_text(encoding="utf-8")
    assert 3 * shape.d_ff == 8 * shape.d_model


def test_the_small_gpt2_owns_the_listed_weights() -> None:
    shape = gpt2.SHAPE.replace(num_layers=2, context_length=11)
    model = gpt2.GPT2(shape, torch.Generator().manual_seed(0))
    listed = {weight.name: (weight.shape, weight.count) for weight in list_gpt2_weights(shape)}
    found: dict[str, tuple[tuple[int, ...], int]] = {}
    for name, weight in model.named_parameters():
        kind = re.sub(r"^h\.\d+\.", "", name)
        kind = f"{kind}.weight" if kind in ("wte", "wpe") else kind
        found[kind] = (tuple(weight.shape), found.get(kind, ((), 0))[1] + 1)
    assert found == listed


def test_what_the_page_says_of_positions() -> None:
    answers = gpt2.position_dependence()
    moved, repeated, one_layer, three_layers = answers.values()
    for question in (moved, repeated):
        assert question["GPT-2"] > 0.1
        assert max(question["this decoder"], question["no positions"]) < gpt2.NOTHING
    assert one_layer["no positions"] < gpt2.NOTHING < 0.01 < three_layers["no positions"]
    assert min(one_layer["this decoder"], one_layer["GPT-2"]) > 0.01


def test_the_encoder_is_the_decoder_for_one_token_and_for_the_last_position() -> None:
    """With two layers the last position differs too, though it may see everything: the earlier ones have looked on."""
    config = {"vocab_size": 31, "context_length": 9, "d_model": 24, "num_heads": 3, "d_ff": 64}
    token_ids = torch.tensor([[5, 1, 30, 0]])
    for layers, equal in ((1, True), (2, False)):
        built = encoder.TransformerConfig(**config, num_layers=layers)
        decoder = encoder.TransformerLM(built, generator=torch.Generator().manual_seed(1)).double()
        both_ways = encoder.TransformerLM(built, encoder.bidirectional).double()
        both_ways.load_state_dict(decoder.state_dict())
        apart = (decoder(token_ids) - both_ways(token_ids)).detach().abs().amax(-1)[0]
        assert (float(apart[-1]) < 1e-12) is equal
        assert float(apart[0]) > 1e-3
        assert torch.equal(decoder(token_ids[:, :1]), both_ways(token_ids[:, :1]))
