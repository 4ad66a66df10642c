"""The completion criterion's own question: prefix logits of a built model, tied and untied, as the suffix changes."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from cs336_harness.checks.registry import check
from cs336_harness.reference.answers import from_run_to_run
from cs336_harness.reference.hidden_inputs import cached
from cs336_harness.reference.influence import InfluenceMap, map_from_calls
from cs336_harness.reference.interventions import SEED, base_ids, flow_shape, replacement_ids
from cs336_harness.reference.oracle import Oracle
from cs336_harness.reference.tolerance import TOLERANCE_IN_NOISE, rounding_noise
from cs336_harness.reference.weights import make_weights
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.built_models import ASSEMBLY, BuiltModel, build
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure


@check(
    "information_flow.changed_suffix_of_a_model",
    task="transformer_lm",
    needs=ASSEMBLY,
    cases={"untied": False, "tied": True},
    after=["configuration.model_builds", "information_flow.changed_suffix[ordinary]"],
)
def changed_suffix_of_a_model(subject: Subject, case: bool) -> float:
    """Other tokens after a position leave every logit of a built GQA model up to it where it was, tied and untied.

    Every cut of a full context. Only rounding is allowed: a mask after the softmax that is then renormalised is
    correct, and its sums do hold the later tokens. Usually broken by a mask that ``run_transformer_lm`` makes and the
    model does not, or by a tied model that is put together in another way than the untied one.
    """
    shape = flow_shape(num_heads=6, num_kv_heads=2, tie_embeddings=case)
    time = shape.context_length
    model = build(subject, shape, make_weights(shape, SEED))
    token_ids = base_ids(shape, time)
    whole = model.logits(token_ids)
    noise = _noise(shape)
    worst = 0.0
    for cut in range(1, time):
        replaced = torch.cat([token_ids[:, :cut], replacement_ids(shape, token_ids, "ordinary", cut)[:, cut:]], dim=1)
        moved = (model.logits(replaced)[:, :cut] - whole[:, :cut]).abs().amax(dim=-1)
        worst = max(worst, float(moved.max()) / noise)
        if worst > TOLERANCE_IN_NOISE:
            row, position = divmod(int(moved.argmax()), cut)
            evidence = model.evidence(token_ids)
            evidence.error_in_noise = worst
            evidence.influence = picture = _influence(model, token_ids, whole, noise)
            evidence.details = picture.picture()
            raise CheckFailure(
                f"the {'tied' if case else 'untied'} model's logits at row {row}, position {position} move by"
                f" {float(moved.max()):.3g} when the tokens from position {cut} on are replaced; in a correct decoder"
                " no later token has a part in them",
                evidence,
            )
    return worst


def _influence(model: BuiltModel, token_ids: Tensor, whole: Tensor, noise: float) -> InfluenceMap:
    """Which token moves which logits of the model: each replaced alone, in every row."""
    changed, tokens = [], range(token_ids.shape[1])
    for token in tokens:
        ids = token_ids.clone()
        ids[:, token] = replacement_ids(model.shape, token_ids, "ordinary", token)[:, token]
        changed.append(model.logits(ids))
    return map_from_calls(whole, changed, tokens, noise, ("above",))


@cached
@from_run_to_run
def _noise(shape: DecoderShape) -> float:
    """The rounding noise of the model's logits, measured on the first row."""
    oracle, token_ids = Oracle(shape), base_ids(shape, shape.context_length)[:1]
    weights = {name: weight.to(torch.float64) for name, weight in make_weights(shape, SEED).items()}

    def reference(weights: Mapping[str, Tensor]) -> Tensor:
        return oracle.transformer_lm(weights, token_ids)

    return rounding_noise(reference, {"weights": weights}, reference(weights))
