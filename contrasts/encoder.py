"""An encoder of this decoder's own modules: the same weights and blocks, and attention that looks both ways."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from cs336_basics.attention import Attention, scaled_dot_product_attention
from cs336_basics.config import TransformerConfig
from cs336_basics.transformer import TransformerLM
from cs336_harness.checks import all_checks
from cs336_harness.cost.tables import ReportTable
from cs336_harness.reference.influence import LEGEND, InfluenceMap
from cs336_harness.reference.interventions import FLOW_SHAPE, base_ids, influence
from cs336_harness.subject.calling import Subject
from cs336_harness.verdict.suite import Suite

TIME = 8
CHECKS = (
    "assembly.transformer_lm_one_token",
    "assembly.transformer_lm",
    "information_flow.repeated_calls",
    "information_flow.prefix_equivalence[short]",
)


def bidirectional(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
    """Attention of an encoder: whoever asks for the causal triangle does not get it."""
    return scaled_dot_product_attention(Q, K, V, mask)


ATTENTIONS: dict[str, Attention] = {"decoder": scaled_dot_product_attention, "encoder": bidirectional}


def subject_of(name: str) -> Subject:
    """The decoder here or its encoder, known to the harness by ``run_transformer_lm`` alone."""

    def run_transformer_lm(weights: dict[str, Tensor], in_indices: Tensor, **sizes: Any) -> Tensor:
        model = TransformerLM(TransformerConfig(**sizes), ATTENTIONS[name], device="meta")
        return torch.func.functional_call(model, weights, (in_indices,))

    return Subject(SimpleNamespace(run_transformer_lm=run_transformer_lm), name)


def influence_map(name: str) -> InfluenceMap:
    """Which token moves which position's logits."""
    return influence(subject_of(name), FLOW_SHAPE, base_ids(FLOW_SHAPE, TIME), "ordinary", range(TIME))


def maps_side_by_side() -> str:
    """The decoder's map beside the encoder's, in letters, with the legend."""
    header, *decoder = influence_map("decoder").picture()
    _, *encoder = influence_map("encoder").picture()
    letters = len(decoder) - len(LEGEND)
    lines = ["  decoder         encoder"]
    lines += [f"{left:16}{right}" for left, right in zip(decoder[:letters], encoder, strict=False)]
    return "\n".join([*lines, "", header, *LEGEND])


def check_table() -> ReportTable:
    """What the harness says of both, given the same weights."""
    suites = {name: Suite(subject_of(name), diagnose=False) for name in ATTENTIONS}
    checks = all_checks()
    rows = [
        (check, *("passed" if suite.result(checks[check]).failure is None else "failed" for suite in suites.values()))
        for check in CHECKS
    ]
    return ReportTable("One suite on both", ("<check", "<decoder", "<encoder"), rows, None, "")
