"""Every size that is ignored, every misfit that is taken and everything done to the logits fails one check."""

import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from broken import RIGHT, broken, failures, results
from torch import Tensor, nn
from variations import COVERING, Variation, VariationAdapters, VariationModel

from cs336_harness.checks import all_checks
from cs336_harness.checks.raw_logits import not_raw
from cs336_harness.reference.oracle_adapters import NORM_EPS, refuse_sizes_that_do_not_fit
from cs336_harness.reference.weights import normal
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.calling import Subject

FINE = Variation()
Shapes = Callable[[DecoderShape], DecoderShape]


def assembled(
    model: Callable[[DecoderShape], nn.Module] = lambda shape: VariationModel(FINE, shape),
    refuse: Callable[[DecoderShape], None] = refuse_sizes_that_do_not_fit,
    weights: Callable[[Any], Any] = VariationModel.named,
) -> Any:
    """A subject that builds its models so, after refusing sizes so."""

    def get_transformer_lm(**sizes: Any) -> nn.Module:
        shape = DecoderShape(norm_eps=NORM_EPS, **sizes)
        refuse(shape)
        return model(shape)

    return broken(get_transformer_lm=get_transformer_lm, get_transformer_lm_weights=weights)


def computing(shape_used: Shapes) -> Any:
    """Models with the right weights, which compute as if they had another shape."""

    class Other(VariationModel):
        def forward(self, token_ids: Tensor) -> Tensor:
            return self.variation.transformer_lm(shape_used(self.shape), self.named(), token_ids)

    return assembled(lambda shape: Other(FINE, shape))


def ignoring(field: str, value: int) -> Any:
    """Models of one value of a size, whatever is asked."""
    return assembled(lambda shape: VariationModel(FINE, shape.replace(**{field: value})))


grouped_by_two = assembled(
    lambda shape: VariationModel(FINE, shape.replace(num_kv_heads=2) if shape.num_kv_heads == 3 else shape)
)


def rounding(field: str, value: int) -> Any:
    """Models that take another value in place of one of a size."""
    instead = {"d_ff": 128, "d_model": 96, "vocab_size": 128, "num_kv_heads": 6, "num_layers": 1}[field]

    def replaced(shape: DecoderShape) -> DecoderShape:
        return shape.replace(**{field: instead}) if getattr(shape, field) == value else shape

    return assembled(lambda shape: VariationModel(FINE, replaced(shape)))


class Biased(VariationModel):
    def __init__(self, shape: DecoderShape) -> None:
        super().__init__(FINE, shape)
        self.bias = nn.Parameter(torch.zeros(shape.d_model))


def in_half(model: VariationModel) -> dict[str, Tensor]:
    return {name: nn.Parameter(weight.detach().clone()) for name, weight in model.named().items()}


def refusing(but: str, otherwise: Callable[[str], None] = lambda message: None) -> Callable[[DecoderShape], None]:
    """Refuses what does not fit, but for a reason in which this is said."""

    def refuse(shape: DecoderShape) -> None:
        try:
            refuse_sizes_that_do_not_fit(shape)
        except ValueError as error:
            if but not in str(error):
                raise
            otherwise(str(error))

    return refuse


def assertion(message: str) -> None:
    raise AssertionError(message)


def only_negative(shape: DecoderShape) -> None:
    if all(size != 0 for size in shape.model_arguments().values() if size is not False):
        refuse_sizes_that_do_not_fit(shape)


def only_zero(shape: DecoderShape) -> None:
    if shape.num_layers > 0:
        refuse_sizes_that_do_not_fit(shape)


def theta_unseen(shape: DecoderShape) -> None:
    refuse_sizes_that_do_not_fit(shape.replace(rope_theta=1.0))


def limited(limit: Callable[[int], int], message: str, error: type[Exception] = ValueError) -> Any:
    """Models that take so many tokens, and otherwise raise with this message."""

    class Limited(VariationModel):
        def forward(self, token_ids: Tensor) -> Tensor:
            time, most = token_ids.shape[1], limit(self.shape.context_length)
            if time > most:
                raise error(message.format(time=time, most=most))
            return self.variation.transformer_lm(self.shape.replace(context_length=10**6), self.named(), token_ids)

    return assembled(lambda shape: Limited(FINE, shape))


def finishing(finish: Callable[[Tensor], Tensor]) -> Any:
    """Models that do something to their logits."""

    class Finishing(VariationModel):
        def forward(self, token_ids: Tensor) -> Tensor:
            return finish(super().forward(token_ids))

    return assembled(lambda shape: Finishing(FINE, shape))


VIOLATORS: list[tuple[str, Any, str]] = [
    ("model_builds", assembled(lambda shape: nn.Linear(2, 2), weights=lambda _: {}), "no entry of the name token_emb"),
    ("model_builds", assembled(weights=in_half), "not in model.parameters"),
    ("model_builds", finishing(lambda logits: logits[:, -1:]), r"returned shape \(3, 1, 23\)"),
    ("model_builds", finishing(torch.Tensor.double), "are float64; they must be float32"),
    ("no_other_parameters", assembled(Biased), r"trains bias of shape \(24,\)"),
    *(
        (f"{field}_counts", ignoring(field, value), f"ignores {field}: {value} and .* give the same weights")
        for field, value in (("num_layers", 2), ("d_ff", 64), ("d_model", 24), ("vocab_size", 23))
    ),
    *(
        (f"other_size[{field}]", rounding(field, value), f"with {field} {value}.*: .* has the shape")
        for field, value in (("d_ff", 100), ("d_model", 48), ("vocab_size", 29), ("num_kv_heads", 3))
    ),
    ("other_size[num_layers]", rounding("num_layers", 3), "with num_layers 3: .*has no entry of the name layers.1"),
    ("num_kv_heads_counts", grouped_by_two, "ignores num_kv_heads: 2 and 3 give the same weights"),
    (
        "num_heads_counts",
        computing(lambda s: s.replace(num_heads=6, num_kv_heads=2) if s.num_heads == 3 else s),
        "ignores num_heads: 6 and 3",
    ),
    ("rope_theta_counts", computing(lambda s: s.replace(rope_theta=100.0)), "ignores rope_theta: 100 and 10000"),
    (
        "refuses[heads_that_do_not_divide]",
        assembled(refuse=refusing("multiple of num_heads", assertion)),
        "AssertionError for d_model 12000001",
    ),
    (
        "refuses[kv_heads_that_do_not_divide]",
        assembled(refuse=refusing("multiple of num_kv_heads")),
        "for num_kv_heads 400",
    ),
    ("refuses[odd_head_size]", assembled(refuse=refusing("head size")), "an even head size"),
    (
        "refuses[zero]",
        assembled(refuse=only_negative),
        "get_transformer_lm makes weights for vocab_size 0; a correct one raises ValueError before any weight exists",
    ),
    (
        "refuses[negative]",
        assembled(refuse=only_zero),
        "makes weights for num_layers -2; .*every size must be positive",
    ),
    ("full_context", limited(lambda most: most - 1, "{time} of {most}"), "must take 13 tokens: .*13 of 12"),
    ("longer_than_context", limited(lambda most: 10**6, ""), "takes 14 tokens, more than its context_length 13"),
    ("longer_than_context", limited(lambda most: most, "too long"), "does not say 14 and 13: too long"),
    ("longer_than_context", limited(lambda most: most, "", IndexError), "with IndexError; a correct decoder raises"),
]


@pytest.mark.parametrize(("name", "module", "message"), VIOLATORS, ids=[name for name, _, _ in VIOLATORS])
def test_a_wrong_configuration_fails_one_check(name: str, module: Any, message: str) -> None:
    failed = failures(module, "configuration")
    assert list(failed) == [f"configuration.{name}"], failed
    assert re.search(message, failed[f"configuration.{name}"]), failed


FINISHES: list[tuple[Callable[[Tensor], Tensor], str]] = [
    (lambda logits: logits.softmax(-1), "sums to one"),
    (lambda logits: logits.log_softmax(-1), "log-sum-exp"),
    (lambda logits: 2 * torch.tanh(logits / 2), "capped, near 2"),
    (lambda logits: logits - logits.mean(-1, keepdim=True), "centred"),
    (lambda logits: logits.bfloat16().float(), "bfloat16 number"),
    (lambda logits: logits.half().float(), "float16 number"),
    (lambda logits: logits + 0.5, "a bias is added"),
]


@pytest.mark.parametrize(("finish", "message"), FINISHES)
def test_logits_that_are_not_raw_are_told_what_was_done_to_them(
    finish: Callable[[Tensor], Tensor], message: str
) -> None:
    def run_transformer_lm(**arguments: Any) -> Tensor:
        return finish(RIGHT.run_transformer_lm(**arguments))

    for module, entry_point in (
        (finishing(finish), "get_transformer_lm"),
        (broken(run_transformer_lm=run_transformer_lm), "run_transformer_lm"),
    ):
        checked = ("configuration", "assembly") if "sums" in message else ("configuration.raw_logits", "assembly")
        failed = failures(module, *checked)
        assert list(failed) == [f"configuration.raw_logits[{entry_point}]"]
        assert message in failed[f"configuration.raw_logits[{entry_point}]"]


@pytest.mark.parametrize("error", [ValueError, AssertionError])
def test_a_decoder_that_is_particular_about_its_d_ff_passes(error: type[Exception]) -> None:
    def refuse(shape: DecoderShape) -> None:
        refuse_sizes_that_do_not_fit(shape)
        if shape.d_ff % 64 or not 2 * shape.d_model <= shape.d_ff <= 3 * shape.d_model:
            raise error(f"d_ff {shape.d_ff} does not go with d_model {shape.d_model}")

    assert not failures(assembled(refuse=refuse), "configuration")


def test_raw_logits_of_any_size_are_raw() -> None:
    for scale in (1e-3, 1.0, 1e3):
        logits = normal(2, 3, 23, seed=1, std=scale)
        assert not_raw(logits, logits * 64) is None


def theta_of_its_own(rope_theta: float, **rest: Any) -> Tensor:
    return RIGHT.run_transformer_lm(rope_theta=10000.0, **rest)


def test_a_theta_that_is_not_passed_on_is_named() -> None:
    failed = failures(broken(run_transformer_lm=theta_of_its_own), "configuration", "assembly")
    assert list(failed) == ["configuration.run_rope_theta"]
    assert "does not pass rope_theta on: 10000 and 10" in failed["configuration.run_rope_theta"]


class Careless(Variation):
    """Takes whatever it is given: long inputs, any id that indexes, and no tokens with an error of PyTorch's."""

    def transformer_lm(self, shape: DecoderShape, weights: Mapping[str, Tensor], token_ids: Tensor) -> Tensor:
        if token_ids.shape[1] == 0:
            raise IndexError("max(): Expected reduction dim to have non-zero size")
        within = token_ids.clamp(-shape.vocab_size, shape.vocab_size - 1) % shape.vocab_size
        return super().transformer_lm(shape.replace(context_length=10**6), weights, within)


def test_what_the_course_leaves_open_is_advisory() -> None:
    careless = broken(run_transformer_lm=VariationAdapters(Careless()).run_transformer_lm)
    told = {
        "configuration.run_longer_than_context": "takes 14 tokens, more than its context_length 13",
        "configuration.token_ids_outside": "takes the token id -1 with vocab_size 23 without a word",
        "configuration.no_tokens": "when there are no tokens",
    }
    advisory = failures(careless, "configuration", outcome="advisory")
    assert set(advisory) == set(told)
    for name, message in told.items():
        assert message in advisory[name]
    assert not failures(careless, "configuration", "assembly")
    refused = failures(assembled(refuse=theta_unseen), "configuration", outcome="advisory")
    assert list(refused) == ["configuration.refuses_theta"]
    assert "get_transformer_lm makes weights for rope_theta 0; a correct one" in refused["configuration.refuses_theta"]


def test_a_refusal_costs_nothing() -> None:
    """Every misfit is refused by a model that would need petabytes; the correct variation passes, and makes nothing."""
    judged = results(VariationAdapters(COVERING["fused"]), "configuration")
    assert {result.outcome for result in judged.values()} == {"passed"}


def test_a_model_without_the_weights_of_its_layers_is_told_so_once_and_not_for_each_size() -> None:
    def outside(model: Any) -> dict[str, Any]:
        return {name: weight for name, weight in model.named().items() if not name.startswith("layers.")}

    failed = failures(assembled(weights=outside), "configuration")
    assert list(failed) == ["configuration.model_builds"]
    assert "layers.0" in failed["configuration.model_builds"]


def test_a_warning_of_sizes_that_nobody_else_asks_for_is_not_shown() -> None:
    """PyTorch warns of tensors without elements, and the learner did not make any."""

    def model(shape: DecoderShape) -> nn.Module:
        raise NotImplementedError

    def refuse(shape: DecoderShape) -> None:
        nn.Linear(shape.d_model % 2, 0)
        raise ValueError("no")

    check = all_checks()["configuration.refuses[zero]"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check(Subject(assembled(model, refuse), "subject")) is None


def test_every_configuration_check_has_a_violator_here() -> None:
    tested = {name for name, _, _ in VIOLATORS} | {
        "run_rope_theta",
        "raw_logits[get_transformer_lm]",
        "raw_logits[run_transformer_lm]",
        "run_longer_than_context",
        "token_ids_outside",
        "no_tokens",
        "refuses_theta",
    }
    tested |= {"fresh_weights", "fresh_layers", "ids_of_any_layout"}  # test_fresh_models.py
    every = {name for name, check in all_checks().items() if check.group == "configuration"}
    assert {f"configuration.{name}" for name in tested} == every
