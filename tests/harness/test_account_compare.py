"""``cs336 account --compare gpt2``: the published totals of GPT-2, and tables whose rows sum, at any sizes."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from cs336_harness.commands.account import account
from cs336_harness.cost.beside_gpt2 import comparison, comparison_tables, parameters_by_component
from cs336_harness.cost.gpt2 import list_gpt2_matmuls, list_gpt2_weights
from cs336_harness.cost.matmuls import count_flops, count_parameters, flops_by_term
from cs336_harness.cost.presets import preset
from cs336_harness.cost.tally import tally
from cs336_harness.shapes import DecoderShape

PUBLISHED = {
    "gpt2-small": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
}
ODD = DecoderShape(
    vocab_size=101,
    context_length=13,
    d_model=24,
    num_layers=5,
    num_heads=6,
    num_kv_heads=2,
    d_ff=80,
    tie_embeddings=True,
)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_listed_weights_are_those_of_the_published_checkpoints(name: str) -> None:
    assert count_parameters(list_gpt2_weights(preset(name))) == PUBLISHED[name]


def test_a_gpt2_by_hand() -> None:
    """D 2, one layer, V 3, P 5: every weight and multiply of it, written out."""
    shape = DecoderShape(vocab_size=3, context_length=5, d_model=2, num_layers=1, num_heads=1, num_kv_heads=1, d_ff=7)
    attention, feed_forward = (2 * 6 + 6) + (2 * 2 + 2), (2 * 8 + 8) + (8 * 2 + 2)
    assert parameters_by_component(list_gpt2_weights(shape)) == {
        "token_embeddings": 6,
        "positions": 10,
        "attention": attention,
        "feed_forward": feed_forward,
        "norms": 3 * (2 + 2),
        "lm_head": 0,
    }
    assert flops_by_term(list_gpt2_matmuls(shape, 1, 4)) == {
        "attention_projections": 2 * 4 * 2 * 6 + 2 * 4 * 2 * 2,
        "attention_scores": 2 * 4 * 2 * 4,
        "attention_values": 2 * 4 * 4 * 2,
        "feed_forward": 2 * (2 * 4 * 2 * 8),
        "lm_head": 2 * 4 * 2 * 3,
    }


@pytest.mark.parametrize("shape", [preset("gpt2-xl"), ODD], ids=["xl", "odd"])
def test_the_parts_sum_and_differ_where_the_architectures_do(shape: DecoderShape) -> None:
    numbers = comparison(tally(shape, batch_size=3))
    for side in numbers.values():
        assert sum(side["parameters"]["components"].values()) == side["parameters"]["total"]
        assert sum(side["flops"]["terms"].values()) == side["flops"]["total"]
    gpt2, own = numbers["gpt2"], numbers["decoder"]
    D, E, L = shape.d_model, shape.d_kv, shape.num_layers
    apart = {
        name: own["parameters"]["components"][name] - count for name, count in gpt2["parameters"]["components"].items()
    }
    assert apart == {
        "token_embeddings": 0,
        "positions": -shape.context_length * D,
        "attention": L * (2 * D * E - 2 * D * D - 4 * D),
        "feed_forward": L * (3 * D * shape.d_ff - 8 * D * D - 5 * D),
        "norms": -(2 * L + 1) * D,
        "lm_head": 0 if shape.tie_embeddings else shape.vocab_size * D,
    }
    assert count_flops(list_gpt2_matmuls(shape, 3, shape.context_length)) == gpt2["flops"]["total"]
    for part in comparison_tables(tally(shape)):
        assert part.total is not None
        assert len({len(part.columns), len(part.total), *map(len, part.rows)}) == 1


def run(*arguments: str) -> tuple[int, str, str]:
    app = typer.Typer()
    app.command()(account)
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "140"})
    return result.exit_code, result.stdout, result.stderr


def test_the_command_sets_both_side_by_side() -> None:
    code, shown, _ = run("gpt2-small", "--tied", "--compare", "gpt2")
    assert code == 0
    assert [line.split()[:4] for line in shown.splitlines() if line.strip().startswith("total")] == [
        ["total", "124,439,808", "123,551,232", "-888,576"],
        ["total", "291,648,307,200", "291,648,307,200", "0"],
    ]
    assert "This decoder has as many FLOPs as GPT-2." in shown
    assert "2048" not in shown.splitlines()[-1]
    _, markdown, _ = run("gpt2-small", "--tied", "--compare", "gpt2", "--markdown")
    assert "| **total** | **124,439,808** | **123,551,232** | **-888,576** |  |" in markdown
    _, printed, _ = run("gpt2-small", "--tied", "--compare", "gpt2", "--json")
    assert json.loads(printed)["comparison"]["gpt2"]["parameters"]["total"] == 124_439_808
    _, alone, _ = run("gpt2-small", "--json")
    assert "comparison" not in json.loads(alone)


def test_another_name_is_refused() -> None:
    assert run("gpt2-small", "--compare", "bert") == (
        2,
        "",
        "cs336 account: --compare bert is not known; choose gpt2\n",
    )
