"""The completion criterion's own question: prefix logits of a built model, tied and untied, as the suffix changes."""

from __future__ import annotations

import torch

from cs336_harness.assembly import ASSEMBLY, build
from cs336_harness.checks.judging import same_numbers
from cs336_harness.checks.registry import check
from cs336_harness.failures import CheckFailure
from cs336_harness.inputs import make_weights
from cs336_harness.interventions import FLOW_SHAPE, SEED, base_ids, replacement_ids
from cs336_harness.subject import Subject

SHAPE = FLOW_SHAPE.replace(num_heads=6, num_kv_heads=2)


@check(
    "information_flow.changed_suffix_of_a_model",
    task="transformer_lm",
    needs=ASSEMBLY,
    cases={"untied": False, "tied": True},
    after=["configuration.model_builds", "information_flow.changed_suffix[ordinary]"],
)
def changed_suffix_of_a_model(subject: Subject, case: bool) -> None:
    """Other tokens after a position leave every logit of a built GQA model up to it where it was, tied and untied.

    Every cut of a full context. Usually broken by a mask that ``run_transformer_lm`` makes and the model does not, or
    by a tied model that is put together in another way than the untied one.
    """
    shape = SHAPE.replace(tie_embeddings=case)
    time = shape.context_length
    model = build(subject, shape, make_weights(shape, SEED))
    token_ids = base_ids(shape, time)
    whole = model.logits(token_ids)
    for cut in range(1, time):
        replaced = torch.cat([token_ids[:, :cut], replacement_ids(shape, token_ids, "ordinary", cut)[:, cut:]], dim=1)
        prefix = model.logits(replaced)[:, :cut]
        if not same_numbers(whole[:, :cut], prefix):
            moved = (prefix - whole[:, :cut]).abs().amax(dim=-1)
            row, position = divmod(int(moved.argmax()), cut)
            raise CheckFailure(
                f"the {'tied' if case else 'untied'} model's logits at row {row}, position {position} move by"
                f" {float(moved.max()):.3g} when the tokens from position {cut} on are replaced; in a correct decoder"
                " no later token has a part in them",
                model.evidence(token_ids),
            )
