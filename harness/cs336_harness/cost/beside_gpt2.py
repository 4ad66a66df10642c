"""A decoder beside GPT-2 at the same sizes: parameters by component, FLOPs by term, what makes the difference."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cs336_harness.contract import FLOP_TERMS
from cs336_harness.cost.gpt2 import COMPONENTS, component, list_gpt2_matmuls, list_gpt2_weights
from cs336_harness.cost.matmuls import Weight, count_flops, count_parameters, flops_by_term
from cs336_harness.cost.tables import ReportTable
from cs336_harness.cost.tally import Tally
from cs336_harness.cost.units import grouped

_WHY = {
    "token_embeddings": "VD in both",
    "positions": "PD learned rows; rotations have no parameters",
    "attention": "4D² + 4D with biases; 2D² + 2DE without, E channels of key heads",
    "feed_forward": "8D² + 5D: two matrices, 4D wide, biases; 3DF: three matrices",
    "norms": "a gain and a bias each; a gain",
    "lm_head": "GPT-2's head is its embedding; an untied one is VD more",
    "attention_projections": "8BTD²; fewer key/value heads make it 4BTD² + 4BTDE",
    "attention_scores": "2BT²D: every query head meets every position in both",
    "attention_values": "2BT²D in both",
    "feed_forward_flops": "16BTD²; 6BTDF",
    "lm_head_flops": "2BTDV, tied or not",
}


def parameters_by_component(weights: Iterable[Weight]) -> dict[str, int]:
    """Parameters of a list of weights under the six names of ``COMPONENTS``."""
    components = dict.fromkeys(COMPONENTS, 0)
    for weight in weights:
        components[component(weight)] += weight.parameters
    return components


def comparison(account: Tally) -> dict[str, Any]:
    """The account of a decoder and that of GPT-2 at its sizes, as exact integers."""
    weights = list_gpt2_weights(account.shape)
    matmuls = list_gpt2_matmuls(account.shape, account.batch_size, account.sequence_length)
    return {
        "gpt2": {
            "parameters": {"total": count_parameters(weights), "components": parameters_by_component(weights)},
            "flops": {"total": count_flops(matmuls), "terms": flops_by_term(matmuls)},
        },
        "decoder": {
            "parameters": {
                "total": account.parameters,
                "components": parameters_by_component(account.weights),
            },
            "flops": {"total": account.flops, "terms": account.terms},
        },
    }


def comparison_tables(account: Tally) -> list[ReportTable]:
    """Parameters and FLOPs side by side."""
    numbers = comparison(account)
    gpt2, own = numbers["gpt2"], numbers["decoder"]
    parameters = _table(
        "Parameters beside GPT-2's", "component", gpt2["parameters"], own["parameters"], COMPONENTS, "components", ""
    )
    flops = _table("Forward FLOPs beside GPT-2's", "term", gpt2["flops"], own["flops"], FLOP_TERMS, "terms", "_flops")
    return [parameters, flops]


def _table(
    title: str,
    what: str,
    gpt2: dict[str, Any],
    own: dict[str, Any],
    names: tuple[str, ...],
    part: str,
    suffix: str,
) -> ReportTable:
    rows = [
        (name, *_numbers(gpt2[part][name], own[part][name]), _WHY.get(name + suffix, _WHY.get(name, "")))
        for name in names
    ]
    total = ("total", *_numbers(gpt2["total"], own["total"]), "")
    counted = "FLOPs" if suffix else "parameters"
    below = f"This decoder has {own['total'] / gpt2['total']:.4g} times GPT-2's {counted}."
    if own["total"] == gpt2["total"]:
        below = f"This decoder has as many {counted} as GPT-2."
    return ReportTable(title, (f"<{what}", "GPT-2", "this decoder", "difference", "<what"), rows, total, below)


def _numbers(gpt2: int, own: int) -> tuple[str, str, str]:
    return grouped(gpt2), grouped(own), f"{own - gpt2:+,}" if own != gpt2 else "0"
