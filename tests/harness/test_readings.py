"""Readings: what is measured of a fault that nobody listed is true, and stands in its failure."""

import itertools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from unlisted import UNLISTED
from unlisted import subject_of as unlisted_subject
from variations import Variation, VariationAdapters, VariationModel

from cs336_harness.defects import Place, all_defects, subject_of
from cs336_harness.diagnosis.readings import READERS, reading_of
from cs336_harness.diagnosis.readings.gradients import CUTS, _expected
from cs336_harness.diagnosis.readings.reading import differ, span, table
from cs336_harness.reference.oracle_adapters import NORM_EPS, OracleAdapters
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.calling import Subject

READ = {
    "A window of six positions": ("mask", "query 15 sees the keys 10 to 15, must see 0 to 15"),
    "The first three positions see each other": ("mask", "query 1 sees the keys 0 to 2, must see 0, 1"),
    "Position 2 sees position 4": ("mask", "query 2 sees the keys 0 to 2, 4, must see 0 to 2"),
    "The second position is seen by itself only": ("mask", "query 15 sees the keys 0, 2 to 15, must see 0 to 15"),
    "Scores divided by a temperature of 1.1": ("attention", "scores are multiplied by 0.321, must be by 0.354 ="),
    "Scores divided by the root of the number of queries": (
        "attention",
        "scores are divided by the root of the number of queries, sqrt(6) here, must be divided by sqrt(8)",
    ),
    "The values alone split into heads as (d h), so that each head has every third channel": (
        "heads",
        "head 0's values are made with rows 0, 3, 6, … of v_proj, must be made with rows 0 to 19 of v_proj",
    ),
    "Scores divided by the root of the number of keys": (
        "attention",
        "scores are divided by the root of the number of keys, sqrt(9) here, must be divided by sqrt(8)",
    ),
    "Pairs with a wavelength of more than 8192 positions turned at an eighth of their rate, as in Llama 3.1": (
        "positions",
        "with theta 500000, pair 3 turns by 6.65e-06 rad per position, must be 5.32e-05; the faster pairs 0 to 2",
    ),
    "The mask of the first row used for every row": (
        "mask",
        "row 1 of a batch is masked by row 0's mask, must be by its own",
    ),
    "The first layer's attention reads the stream as it is": (
        "residual",
        "in layer 0 alone, attention reads x, must read ln1(x); layer 1 is right",
    ),
    "Hidden scores filled with the smallest score of all rows and heads": (
        "mask",
        ", the smallest score of all, must be minus infinity",
    ),
    "Scores divided once more by the root of the number of query heads that share a key/value head": (
        "attention",
        "with 6 query heads over 3 KV heads scores are multiplied by 0.354, must be by 0.5 = 1 / sqrt(4), the size of"
        " one head (0.289 over 2, 0.204 over 1): there is a factor 1 / sqrt(heads per KV head) too much",
    ),
    "With grouped heads, scores divided once more by the root of the number of key/value heads": (
        "attention",
        "(0.354 over 2): there is a factor 1 / sqrt(KV heads) too much",
    ),
    "Scores clamped to one": ("attention", "large scores are cut off"),
    "A penalty for distance added to the scores": ("attention", "each step of distance between query and key lowers"),
    "Hidden scores filled with -5": ("mask", "its score is -5, must be minus infinity"),
    "The values' mean over the channels subtracted": ("attention", "query 0 gets (-0.2, 0.8, -0.2, -0.2, -0.2)"),
    "The last head silent": ("heads", "head 2 of 3 gives zeros"),
    "Each head's output written where the next one's belongs": ("heads", "where head 0's output belongs lies head 2's"),
    "An eps of 1e-3 in every norm": ("norm", "eps is 0.001, must be 1e-05"),
    "The largest channel stands for the root mean square": ("norm", "that is the largest magnitude of the row"),
    "Positions halved, as in position interpolation": ("positions", "every pair turns by 0.5 times the angle"),
    "Twice the theta that was asked for": ("positions", "the angles are those of theta = 200, and theta is 100"),
    "Angles in degrees": ("positions", "every pair turns by 0.0175 times the angle"),
    "SiLU with half of x in the sigmoid": ("feed-forward", "the activation is z sigmoid(0.5 z), must be z sigmoid(z)"),
    "The gate squared": ("feed-forward", "is (z sigmoid(z))², must be z sigmoid(z)"),
    "A bias of 0.01 in every linear layer": ("linear", "an input of zeros gives 0.01, must give 0"),
    "The stream damped to nine tenths around each sublayer": ("residual", "the stream comes out 0.81 times"),
    "Half of each sublayer's output added": ("residual", "attention's output is added 0.5 times, must be added once"),
    "The second layer's weights replaced by the first one's": ("layer order or count", "layer 1 is never used"),
    "The last layer first, all others after it": ("layer order or count", "run in the order 2, 0, 1"),
    "The rows of odd tokens negated in the model": ("embedding", "token 1 gets -1 times row 1"),
    "The final norm's gain squared": ("final norm", "ln_final.weight is applied twice"),
    "The gains of ln1 alone forgotten in the model": (
        "norm before attention (ln1)",
        "attention gets gains of one in place of ln1.weight",
    ),
    "The gains of ln2 alone forgotten in the model": (
        "norm before feed-forward (ln2)",
        "the feed-forward gets gains of one in place of ln2.weight",
    ),
    "Attention's output added to what the feed-forward reads, behind its norm": (
        "residual",
        "the feed-forward reads ln2(h) + a, must read ln2(h)",
    ),
    "The feed-forward reads ln2 of what attention read": (
        "residual",
        "the feed-forward reads ln2(ln1(x)), must read ln2(h)",
    ),
    "Attention's output added once more at the end of the block": (
        "residual",
        "the block gives h + a + f, must give h + f",
    ),
    "Each block's input added to its output once more, in the model's loop": (
        "residual",
        "around the blocks: the stream goes on with x + block(x), must go on with block(x)",
    ),
    "Values made of the stream, queries and keys of its norm": (
        "residual",
        "attention reads ln1(x) for queries and keys, x for values, must read ln1(x)",
    ),
    "The mean of all layers' outputs goes to the final norm": (
        "layer order or count",
        "as when the mean or the sum of all layers' outputs goes on, not the last one",
    ),
    "Rows of the embedding shortened to a length of 0.1": ("embedding", "to the length 0.1, must get it as it is"),
    "Sines of the next position beside the cosines of this one": (
        "positions",
        "the cosines are right, the sines are those of position t + 1",
    ),
    "Inside a block the exponents of theta divided by d_model": (
        "positions",
        "the exponent of theta is -2i / d_model, must be -2i / d_head",
    ),
    "SiLU of the sum of w1 x and w3 x": ("feed-forward", "what w2 gets is silu(a + b) · b, must be silu(a) · b"),
    "The norm divides by torch.std": ("norm", "the standard deviation of the row as torch.std gives it"),
    "The logit of token 0 set to -1e9": (
        "post-processing",
        "the logit of token 0 is wrong (-1e+09 at every position), those of all other tokens are right",
    ),
    "The keys of the first head made with the query projection": (
        "heads",
        "head 0's keys are made with rows 0 to 19 of q_proj, must be made with rows 0 to 19 of k_proj;"
        " of the heads 0 to 2, 1 and 2 are right",
    ),
    "Token ids taken modulo 16": ("embedding", "id 16 gets row 0, must get row 16"),
    "The output projection applied twice": ("attention", "output_proj is applied twice; it must be applied once"),
    "Two neighbours turned as for one position": ("positions", "the positions 0 to 5 are turned as (0, 0, 1, 1, 2, 2)"),
    "The values of each head are the keys of the next": (
        "heads",
        "head 0's values are made with rows 20 to 39 of k_proj, must be made with rows 0 to 19 of v_proj",
    ),
    "Attention reads the stream added to its norm": ("residual", "attention reads ln1(x) + x, must read ln1(x)"),
    "The scores of each head multiplied by its number plus one": (
        "attention",
        "in head 1, scores are multiplied by 0.447, must be by 0.224 = 1 / sqrt(20)",
    ),
    "Keys brought to length one": ("attention", "keys twice as large leave the scores as they are, must double them"),
    "The root of the gain in its place": ("norm", "a gain g acts as sqrt(g), must act as g"),
    "The token ids sorted in the model": ("post-processing", "the positions are sorted by token id"),
    "Each position's logits one position late, the first ones twice": (
        "post-processing",
        "each position has those of the position before",
    ),
    "The head reads the final norm's input too": (
        "final norm",
        "the head reads ln_final(x) + x, must read ln_final(x)",
    ),
    "Each head attends to the values of the next one": (
        "heads",
        "head 0's values are made with rows 20 to 39 of v_proj, must be made with rows 0 to 19 of v_proj",
    ),
    "Queries turned as for the next position": (
        "positions",
        "every head's queries are turned as for position t + 1, must be turned as for position t",
    ),
    "The first channel of a pair overwritten before the second one is made of it": (
        "positions",
        "channel 0 is overwritten before channel 1 is made of it",
    ),
    "The softmax taken twice": ("attention", "the softmax is taken twice"),
    "The feed-forward's input added to its output": ("feed-forward", "the feed-forward gives its input, must give 0"),
    "An eps that is a lower limit and is not added": (
        "norm",
        "eps is a lower limit: the divisor is sqrt(max(mean(x²), eps))",
    ),
    "The last token id wraps around to 0": (
        "embedding",
        "with 7 rows, id 6 gets row 0, must get row 6; the ids 0 to 5 are right: ids are taken modulo vocab_size - 1",
    ),
    "The rows of the head brought to length one": ("head", "that is 1 / the length of the token's row of lm_head"),
    "Logits divided by 0.7": ("head", "every logit is 1.43 times what it must be"),
    "A constant added to all logits": ("post-processing", "0.1 is added to every logit"),
    "All but the five best logits set to -1e4": ("post-processing", "5 logits of each position are right"),
}
"""Name of an unlisted fault -> place and words of its reading."""


@pytest.mark.parametrize("name", READ)
def test_a_fault_that_nobody_listed_is_measured(name: str) -> None:
    place, words = READ[name]
    found = next(filter(None, (reading_of(unlisted_subject(name), program) for program in READERS)))
    assert words in found.text
    assert str(found.place) == place
    assert not found.vague


def test_every_unlisted_fault_of_the_arithmetic_is_measured() -> None:
    assert len(READ) >= 0.85 * len(UNLISTED)


def test_which_kv_head_each_query_head_reads() -> None:
    names = [name for name, defect in all_defects().items() if "kv_head_of" in defect.overridden()]
    assert names
    for name in names:
        found = reading_of(subject_of(all_defects()[name]), "built")
        assert found is not None, name
        assert "of the KV heads" in found.text, name
        assert ": query head h reads KV head" in found.text, name


class OnePairSlow(Variation):
    def angles(self, positions: Tensor, d_head: int, theta: float) -> Tensor:
        factors = torch.ones(d_head // 2)
        factors[2:3] = 0.5
        return super().angles(positions, d_head, theta) * factors


class Still(Variation):
    def angles(self, positions: Tensor, d_head: int, theta: float) -> Tensor:
        return torch.zeros_like(super().angles(positions, d_head, theta))


class Backwards(Variation):
    def angles(self, positions: Tensor, d_head: int, theta: float) -> Tensor:
        return -super().angles(positions, d_head, theta)


class MoreThanARadian(Variation):
    def angles(self, positions: Tensor, d_head: int, theta: float) -> Tensor:
        return super().angles(positions, d_head, theta) * torch.tensor([1.0, 3.7, 1.0, 1.0])


ANGLES: dict[type[Variation], str] = {
    OnePairSlow: "pair 2 turns by 0.05 rad per position, must be 0.1",
    Still: "no pair turns with the position",
    Backwards: "every pair turns by the right angle in the opposite direction",
    MoreThanARadian: "pair 1 turns by 1.17 rad per position (give or take whole turns of 2π), must be 0.316",
}


@pytest.mark.parametrize("broken", ANGLES)
def test_the_angle_of_each_pair_is_read(broken: type[Variation]) -> None:
    found = reading_of(Subject(VariationAdapters(broken()), broken.__name__), "run_rope")
    assert found is not None
    assert ANGLES[broken] in found.text
    assert len(found.table) == 3


class SublayersReversed:
    """One of the two sublayers takes the layers' weights from the last to the first, the other does not."""

    def __init__(self, prefix: str) -> None:
        self.prefix, self.right = prefix, VariationAdapters(Variation())

    def run_transformer_lm(self, num_layers: int, weights: dict[str, Tensor], **rest: Any) -> Tensor:
        def own(name: str) -> str:
            _, layer, *inner = name.split(".")
            return f"layers.{num_layers - 1 - int(layer)}.{'.'.join(inner)}" if inner[0] == self.prefix else name

        given = {name: weights[own(name) if name.startswith("layers.") else name] for name in weights}
        return self.right.run_transformer_lm(num_layers=num_layers, weights=given, **rest)


@pytest.mark.parametrize(("prefix", "what"), [("ffn", "feed-forward sublayer"), ("attn", "attention sublayer")])
def test_only_what_both_sublayers_do_is_said_of_the_layers(prefix: str, what: str) -> None:
    found = reading_of(Subject(SublayersReversed(prefix), prefix), "run_transformer_lm")
    assert found is not None
    assert found.text == f"the {what}s run in the order 2, 1, 0, must run in the order 0 to 2"


def test_nothing_is_read_of_a_subject_that_only_raises_or_gives_no_numbers() -> None:
    class Raises:
        def __getattr__(self, name: str) -> Any:
            def entry_point(*args: Any, **kwargs: Any) -> Any:
                raise RecursionError("nothing works here")

            return entry_point

    class GivesNaN:
        def run_silu(self, in_features: Tensor) -> Tensor:
            return in_features * torch.nan

    assert [reading_of(Subject(Raises(), "raises"), name) for name in READERS] == [None] * len(READERS)
    assert reading_of(Subject(GivesNaN(), "NaN"), "run_silu") is None


def test_positions_are_told_as_spans() -> None:
    assert span([]) == "none"
    assert span([0, 1]) == "0, 1"
    assert span([0, 2, 3, 4, 9]) == "0, 2 to 4, 9"


def test_every_place_where_a_gradient_may_be_cut_is_told_apart() -> None:
    gradients = [_expected(what) for what in ("", *CUTS)]
    for first, second in itertools.combinations(gradients, 2):
        assert any(differ(first[name], second[name], 1e-3) for name in first)


class AttentionDetached(VariationModel):
    """What attention reads is detached, in the built model alone."""

    def forward(self, token_ids: Tensor) -> Tensor:
        return Detaching().transformer_lm(self.shape, self.named(), token_ids)


class Detaching(Variation):
    def block(self, x: Tensor, weights: Mapping[str, Tensor], heads: tuple[int, int], theta: float) -> Tensor:
        without = {**weights, "ffn.w2.weight": torch.zeros_like(weights["ffn.w2.weight"])}
        x = x + super().block(x.detach(), without, heads, theta) - x.detach()
        return super().block(
            x, {**weights, "attn.output_proj.weight": 0 * weights["attn.output_proj.weight"]}, heads, theta
        )


def test_where_a_gradient_is_cut_is_read() -> None:
    class Adapters(VariationAdapters):
        def get_transformer_lm(self, **sizes: Any) -> VariationModel:
            return AttentionDetached(self.variation, DecoderShape(norm_eps=NORM_EPS, **sizes))

    found = reading_of(Subject(Adapters(Variation()), "detached"), "gradients")
    assert found is not None
    assert found.text.startswith("the gradient is cut at the stream that attention reads")
    assert reading_of(Subject(VariationAdapters(Variation()), "right"), "gradients") is None


class SiluBackward(torch.autograd.Function):
    """SiLU whose backward forgets the product rule."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * torch.sigmoid(*ctx.saved_tensors)


class OwnBackward(Variation):
    def silu(self, x: Tensor) -> Tensor:
        return SiluBackward.apply(x)


class DenominatorDetached(Variation):
    def softmax(self, x: Tensor, dim: int) -> Tensor:
        powers = torch.exp(x - x.amax(dim, keepdim=True).detach())
        return powers / powers.sum(dim, keepdim=True).detach()


@pytest.mark.parametrize(
    ("variation", "at"),
    [(OwnBackward(), "the sigmoid in SiLU"), (DenominatorDetached(), "the denominator of attention")],
)
def test_a_backward_of_ones_own_is_told_beside_detach(variation: Variation, at: str) -> None:
    found = reading_of(Subject(VariationAdapters(variation), "cut"), "gradients")
    assert found is not None
    assert found.text.startswith(f"the gradient is cut at {at}")
    assert "a backward of your own (torch.autograd.Function)" in found.text


@pytest.mark.parametrize(
    ("last", "words"),
    [
        ("lm_head.weight", "token_embeddings.weight has no effect, lm_head.weight is used in its place"),
        ("token_embeddings.weight", "lm_head.weight has no effect, token_embeddings.weight is used in its place"),
    ],
)
def test_one_vocabulary_matrix_for_both_is_read_off_an_untied_model(last: str, words: str) -> None:
    right = OracleAdapters()
    both = ("token_embeddings.weight", "lm_head.weight")

    def run_transformer_lm(weights: dict[str, Tensor], **others: Any) -> Tensor:
        return right.run_transformer_lm(weights={**weights, **dict.fromkeys(both, weights[last])}, **others)

    found = reading_of(Subject(SimpleNamespace(run_transformer_lm=run_transformer_lm), "tied"), "run_transformer_lm")
    assert found is not None
    assert found.text.startswith(words)
    assert found.place is Place.TYING


def test_a_table_fits_a_terminal() -> None:
    lines = table("key", range(40), [0.123] * 40, [-1.234] * 40)
    assert max(map(len, lines)) <= 80 - 8
    assert all(line.endswith("…") for line in lines)
