"""The whole model against the slow oracle, at shapes that no snapshot has: logits, and the gradient of every
weight."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from cs336_harness.checks.comparing import LOGITS, taught
from cs336_harness.checks.registry import Param, check
from cs336_harness.checks.whole_model import Case, reference_gradients, reference_logits
from cs336_harness.reference.figures import by_weight
from cs336_harness.reference.hidden_inputs import more
from cs336_harness.reference.interventions import model_call
from cs336_harness.reference.sample_calls import Arguments
from cs336_harness.reference.tolerance import TOLERANCE_IN_NOISE, require_close
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.built_models import ASSEMBLY, BuiltModel, build
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import AbsentArgument, CheckFailure, ConclusiveFailure, Evidence

SMALL = DecoderShape(
    vocab_size=37,
    context_length=16,
    d_model=24,
    num_layers=2,
    num_heads=3,
    num_kv_heads=3,
    d_ff=64,
)
TWO_HEADS = SMALL.replace(d_model=32, num_heads=2, num_kv_heads=2)
FOUR_HEADS = SMALL.replace(d_model=32, num_heads=4, num_kv_heads=4)
GQA = SMALL.replace(num_heads=6, num_kv_heads=2)
MQA = SMALL.replace(d_model=30, num_kv_heads=1)

THETA = "in a correct decoder the rope_theta that is given reaches every layer"
LAYER_ORDER = "in a correct decoder layer 10 follows layer 9; sorted as text, 10 comes before 2"

UNTIED_MHA = {
    "one-layer": Case(SMALL.replace(num_layers=1), 3, 6, "in a correct decoder one layer alone is a model too"),
    "eleven-layers": Case(TWO_HEADS.replace(num_layers=11), 1, 3, LAYER_ORDER),
    "batch-1": Case(SMALL, 1, 7, "in a correct decoder a batch of one row keeps its axis and its numbers"),
    "theta-100": Case(SMALL.replace(num_layers=1, rope_theta=100.0), 1, 16, THETA),
    "theta-500000": Case(SMALL.replace(num_layers=1, rope_theta=500000.0), 1, 16, THETA),
    "odd-width": Case(
        SMALL.replace(d_model=30), 2, 5, "in a correct decoder the widths are the given ones, powers of two or not"
    ),
    "past-256": Case(
        SMALL.replace(d_model=32, num_heads=1, num_kv_heads=1, num_layers=1, context_length=260),
        1,
        260,
        "in a correct decoder positions and angles are float32 at least: bfloat16 counts to 256 and no further",
    ),
}
"""Shapes that every adapters file can be asked for: as many key/value heads as query heads, a head with its own
weight."""

BUILT = {
    "mha": Case(
        FOUR_HEADS.replace(num_layers=3, rope_theta=100.0),
        2,
        5,
        "a correct get_transformer_lm passes every size and the theta on, and its model ends in raw logits",
    ),
    "mha-tied": Case(
        FOUR_HEADS.replace(num_layers=1, tie_embeddings=True),
        3,
        5,
        "in a correct decoder the tied head is the embedding table itself, used as it is in both places",
    ),
    "gqa-6-over-2": Case(
        GQA, 2, 4, "in a correct decoder query heads 0, 1, 2 read key/value head 0, and heads 3, 4, 5 read head 1"
    ),
    "gqa-6-over-2-tied": Case(
        GQA.replace(num_layers=1, tie_embeddings=True, rope_theta=500000.0),
        2,
        5,
        "in a correct decoder tying and grouped heads have nothing to do with one another",
    ),
    "mqa": Case(MQA, 3, 4, "in a correct decoder all query heads read the one key/value head"),
    "mqa-one-token": Case(
        MQA.replace(num_layers=1), 2, 1, "in a correct decoder no axis of size one goes: one token, one key/value head"
    ),
    "mqa-eleven-layers": Case(TWO_HEADS.replace(num_layers=11, num_kv_heads=1), 1, 4, LAYER_ORDER),
}
"""Shapes that are asked for through ``get_transformer_lm``."""

AFTER_SNAPSHOTS = (
    "assembly.transformer_lm",
    "assembly.transformer_lm_truncated_input",
    "assembly.transformer_lm_full_context",
    "assembly.transformer_lm_one_token",
    "components.rope_far_positions[theta_500000]",  # slow pairs, which no snapshot has
)
PAST_256 = ("information_flow.every_token_arrives_past_256", "information_flow.changed_suffix_past_256")
"""What says more of a mask than numbers do."""

VOCABULARY = ("token_embeddings.weight", "lm_head.weight")


@check(
    "slow_oracle.logits",
    task="transformer_lm",
    needs=["run_transformer_lm"],
    after=AFTER_SNAPSHOTS,
    cases={name: Param(case, after=PAST_256 if name == "past-256" else ()) for name, case in UNTIED_MHA.items()},
)
def logits(subject: Subject, case: Case) -> float:
    """Raw logits at other depths, widths, lengths and thetas than the snapshots have.

    Usually broken by layer names sorted as text, by a theta or a width that is written into the code, or by rotary
    tables in half precision, which go wrong past position 256.
    """
    case = case.hidden()
    call = model_call(case.shape, case.token_ids(), case.weights())
    expected, noise = reference_logits(case)
    with taught(case.lesson):
        actual = subject.call("run_transformer_lm", shape=tuple(expected.shape), **call)
        evidence = Evidence(entry_point="run_transformer_lm", arguments=call)
        return require_close(f"run_transformer_lm ({case})", actual, expected, noise, LOGITS, evidence)


GROUPED = {
    "gqa-6-over-2": Case(
        GQA.replace(num_layers=1),
        2,
        5,
        "in a correct decoder num_kv_heads counts key/value heads, 2 here, and query heads 0, 1, 2 read the first",
    ),
    "mqa": Case(MQA.replace(num_layers=1), 3, 4, "in a correct decoder all query heads read the one key/value head"),
}
"""Shapes that are asked for through a ``run_transformer_lm`` that takes ``num_kv_heads``."""


def _built_logits(*cases: str) -> list[str]:
    return [f"slow_oracle.built_logits[{case}]" for case in cases]


@check(
    "slow_oracle.grouped_logits",
    task="grouped_query_attention",
    needs=["run_transformer_lm"],
    after=[*AFTER_SNAPSHOTS, *_built_logits("gqa-6-over-2", "mqa")],
    cases=GROUPED,
)
def grouped_logits(subject: Subject, case: Case) -> float:
    """Raw logits with fewer key/value heads than query heads, of a ``run_transformer_lm`` that takes ``num_kv_heads``.

    Nobody has to take it: without it in the signature this is skipped. Usually broken by key/value heads tiled
    (0, 1, 0, 1) in place of repeated (0, 0, 1, 1), or by a count of key/value heads taken for the size of a group.
    """
    if not subject.takes("run_transformer_lm", "num_kv_heads"):
        raise AbsentArgument("run_transformer_lm", "num_kv_heads")
    case = case.hidden()
    call: Arguments = {
        **model_call(case.shape, case.token_ids(), case.weights()),
        "num_kv_heads": case.shape.num_kv_heads,
    }
    expected, noise = reference_logits(case)
    with taught(case.lesson):
        actual = subject.call("run_transformer_lm", shape=tuple(expected.shape), **call)
        evidence = Evidence(entry_point="run_transformer_lm", arguments=call)
        return require_close(f"run_transformer_lm ({case})", actual, expected, noise, LOGITS, evidence)


BUILT_AFTER = {
    "mha": [],
    "mha-tied": _built_logits("mha"),
    "gqa-6-over-2": _built_logits("mha"),
    "gqa-6-over-2-tied": _built_logits("mha", "mha-tied", "gqa-6-over-2"),
    "mqa": _built_logits("mha", "gqa-6-over-2"),
    "mqa-one-token": _built_logits("mha", "mqa"),
    "mqa-eleven-layers": _built_logits("mha", "mqa"),
}
"""Which built models the logits of each come after."""


@check(
    "slow_oracle.built_logits",
    task="transformer_lm",
    needs=ASSEMBLY,
    after=[*AFTER_SNAPSHOTS, "information_flow.train_and_eval"],
    cases={name: Param(case, after=BUILT_AFTER[name]) for name, case in BUILT.items()},
)
def built_logits(subject: Subject, case: Case) -> float:
    """Raw logits of the model that get_transformer_lm builds, with the reference's weights: MHA, GQA, MQA, tied or
    not.

    Usually broken by key/value heads tiled (0, 1, 0, 1) in place of repeated (0, 0, 1, 1), by heads and heads per
    group exchanged, by a scale that only the tied model has, or by a theta that the assembly does not pass on.
    """
    case = case.hidden()
    token_ids = case.token_ids()
    expected, noise = reference_logits(case)
    model = build(subject, case.shape, case.weights())
    actual = model.logits(token_ids)
    with taught(case.lesson):
        what = f"the built model ({case})"
        return require_close(what, actual, expected, noise, LOGITS, model.evidence(token_ids))


@check(
    "slow_oracle.gradients",
    task="transformer_lm",
    needs=ASSEMBLY,
    cases={
        name: Param(
            case,
            after=[
                *_built_logits(name),
                "information_flow.gradient_leak",
                "slow_oracle.gradient_of_repeated_ids",
                *(["slow_oracle.gradients[mha]"] if name != "mha" else []),
                *(["tying.gradients"] if name.endswith("tied") else []),
            ],
        )
        for name, case in BUILT.items()
        if case.time > 1  # a single token attends to itself whatever queries and keys are: they have no gradient
    },
)
def gradients(subject: Subject, case: Case) -> float:
    """The gradient of every weight of a built model, back-propagated from a weighted sum of its logits.

    Usually broken by ``detach``, ``.data`` or ``no_grad`` inside the forward pass, by a weight that is copied on its
    way, or by an operation in place that autograd does not see. Gradients under two names of a tied model are added:
    whether they are one Parameter is what the tying checks say.
    """
    case = case.hidden()
    return judge_gradients(subject, case, *reference_gradients(case))


class RepeatedIds(Case):
    """An input in which id 7 occurs four times, id 3 twice, and others once."""

    def hidden(self) -> Case:
        """This case at another vocabulary, where a secret hides the inputs."""
        shape = self.shape.replace(vocab_size=self.shape.vocab_size + more("vocab_size", 9))
        return dataclasses.replace(self, shape=shape)

    def token_ids(self) -> Tensor:
        """Token ids (2, 5)."""
        return torch.tensor([[7, 7, 3, 9, 7], [3, 7, 11, 1, 0]])


REPEATED = RepeatedIds(SMALL.replace(num_layers=1), 2, 5)


@check(
    "slow_oracle.gradient_of_repeated_ids",
    task="transformer_lm",
    needs=ASSEMBLY,
    after=[*_built_logits("mha"), "information_flow.gradient_leak"],
)
def gradient_of_repeated_ids(subject: Subject) -> None:
    """A token id that occurs several times has the gradients of all its places in its row of the embedding, added.

    Usually broken by ``scale_grad_by_freq``, which divides by the count, or by a look-up that keeps one of them.
    """
    case = REPEATED.hidden()
    name, token_ids = VOCABULARY[0], case.token_ids()
    expected, relative_noise = reference_gradients(case)
    model = build(subject, case.shape, case.weights())
    given = model.gradients(token_ids, [case.direction()], [name])
    gradient = given[0][name] if given else None
    if gradient is None:
        return  # that there is none is said by the check of all gradients
    allowed = TOLERANCE_IN_NOISE * relative_noise * float(expected[name].abs().max())
    wrong = (gradient - expected[name]).abs().amax(dim=1) > allowed
    counts = token_ids.flatten().bincount(minlength=len(wrong))
    if bool(wrong[counts > 1].any()) and not bool(wrong[counts <= 1].any()):
        row = int((wrong & (counts > 1)).nonzero()[0])
        factor = float((gradient[row].double() * expected[name][row]).sum() / expected[name][row].square().sum())
        evidence = model.evidence(token_ids)
        evidence.actual, evidence.expected = gradient, expected[name]
        evidence.noise, evidence.axes = allowed / TOLERANCE_IN_NOISE, ("token", "channel")
        raise ConclusiveFailure(
            f"the gradient of {name} is wrong for token ids that occur more than once: that of id {row}, which occurs"
            f" {int(counts[row])} times, is {factor:.3g} times the right one (scale_grad_by_freq divides by the count);"
            " in a correct embedding the gradients of all places are added",
            evidence,
        )


def judge_gradients(subject: Subject, case: Case, expected: Mapping[str, Tensor], relative_noise: float) -> float:
    """The error in noise of a built model's gradients against ``expected``, by canonical name.

    ``relative_noise`` is that of :func:`cs336_harness.checks.whole_model.reference_gradients`.
    """
    model = build(subject, case.shape, case.weights())
    actual = _gradients(model, case, expected)
    errors, wrong = [0.0], dict[str, CheckFailure]()
    for name, gradient in actual.items():
        wanted = expected[name]
        noise = relative_noise * float(wanted.abs().max())
        axes = ("token", "channel") if name in VOCABULARY else ("output channel", "input channel")
        try:
            errors.append(require_close(f"the gradient of {name}", gradient, wanted, noise, axes))
        except CheckFailure as failure:
            wrong[name] = failure
    if wrong:
        name, failure = next(iter(wrong.items()))
        evidence = model.evidence(case.token_ids())
        evidence.details = [
            f"wrong: the gradients of {_several(wrong, actual)}",
            f"right: the gradients of {_several([n for n in actual if n not in wrong], actual) or 'no weight'}",
            *failure.evidence.details,
        ]
        evidence.error_in_noise = failure.evidence.error_in_noise
        evidence.actual, evidence.expected = actual[name], expected[name]
        evidence.noise, evidence.axes = failure.evidence.noise, failure.evidence.axes
        evidence.figures["gradients"] = by_weight(actual, expected, wrong)
        raise CheckFailure(_gradient_message(name, len(wrong), actual[name], expected[name], case), evidence)
    return max(errors)


def _several(names: Iterable[str], every: Iterable[str]) -> str:
    """Names of weights, a whole layer as one word."""
    chosen, whole = list(names), dict[str, list[str]]()
    for name in every:
        if name.startswith("layers."):
            whole.setdefault(name.split(".")[1], []).append(name)
    full = {layer for layer, own in whole.items() if set(own) <= set(chosen)}
    words = [f"all weights of layer {name.split('.')[1]}" if name.split(".")[1] in full else name for name in chosen]
    return ", ".join(dict.fromkeys(words))


def _gradients(model: BuiltModel, case: Case, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The subject's gradients by canonical name; of a tied model, one under the embedding's name."""
    token_ids = case.token_ids()
    found = model.gradients(token_ids, [case.direction()])
    if found is None:
        raise CheckFailure(
            f"the logits of the built model ({case}) carry no gradient, so it cannot be trained; in a correct decoder"
            " nothing in the forward pass is detached or run under no_grad",
            model.evidence(token_ids),
        )
    parts = found[0]
    if case.shape.tie_embeddings:
        table, head = parts["token_embeddings.weight"], parts.pop("lm_head.weight")
        if head is not None and model.inventory().tied != "one":
            parts["token_embeddings.weight"] = head if table is None else table + head
    gradients = {name: gradient for name, gradient in parts.items() if gradient is not None}
    lost = [name for name in parts if name not in gradients]
    if lost:
        which = f"{lost[0]} gets" if len(lost) == 1 else f"{lost[0]} and {len(lost) - 1} more get"
        evidence = model.evidence(token_ids)
        evidence.details = [f"no gradient: {name}" for name in lost]
        evidence.figures["gradients"] = by_weight(parts, expected, lost)
        raise CheckFailure(
            f"{which} no gradient in the built model ({case}): the forward pass does not use"
            f" {'this Parameter, or uses it' if len(lost) == 1 else 'these Parameters, or uses them'} detached; in a"
            " correct decoder every weight takes part in the logits and learns",
            evidence,
        )
    return gradients


def _gradient_message(name: str, count: int, gradient: Tensor, wanted: Tensor, case: Case) -> str:
    factor = float((gradient.double() * wanted).sum() / (wanted * wanted).sum())
    rest = float((gradient.double() - factor * wanted).norm() / wanted.norm())
    if float(gradient.abs().max()) == 0:
        wrong = "zero"
    elif rest < 1e-3:
        wrong = f"{factor:.3g} times the right one"
    else:
        wrong = "wrong"
    more = "" if count == 1 else f" (and {count - 1} more are wrong)"
    rows = (gradient.double() - wanted).abs().amax(-1) > 1e-3 * float(wanted.abs().max())
    if count == 1 and name in VOCABULARY and not bool(gradient[rows].any()) and 0 < int(rows.sum()) < len(rows) // 2:
        which = ", ".join(map(str, rows.nonzero().flatten().tolist()))
        one = int(rows.sum()) == 1
        return (
            f"the gradient of {name} is zero in row{'' if one else 's'} {which} and right in all others ({case}), so"
            f" {'this token never learns' if one else 'these tokens never learn'}: does padding_idx leave a row out, or"
            " a line of yours clear it? In a correct decoder the row of every token that occurs has a gradient"
        )
    return (
        f"the gradient of {name} is {wrong}{more} ({case}): where the logits are right, something on the way from it to"
        " them is detached, cut off or counted twice; in a correct decoder autograd sees every operation, once"
    )


def judge_random_shape(subject: Subject, case: Case) -> None:
    """Logits of any valid shape, and the gradients where the subject builds models; the message says how to make it
    again.

    A shape of as many key/value heads as query heads, untied, goes through ``run_transformer_lm``.
    """
    again = f"reproduce with judge_random_shape(subject, {case!r})"
    with taught(again):
        if case.shape.num_kv_heads == case.shape.num_heads and not case.shape.tie_embeddings:
            logits(subject, case)
        if all(subject.has(name) for name in ASSEMBLY):
            built_logits(subject, case)
            if case.time > 1:
                gradients(subject, case)
