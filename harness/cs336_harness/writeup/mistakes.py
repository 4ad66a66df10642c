"""The usual mistakes of a written answer, each as the exact number that it produces.

A mistake changes the ledger (a term forgotten, counted twice, counted at another size) or the unit (GiB called GB). A
wrong number is compared with what each mistake, and each pair, would have given; nothing is measured by nearness.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from fractions import Fraction

from cs336_harness.cost.presets import nearest_multiple_of_64
from cs336_harness.writeup.ledger import BLOCK, FEED_FORWARD, PROJECTIONS, Ledger
from cs336_harness.writeup.numbers import BYTES, FLOPS, PARAMETERS, SHARE

_BOTH = frozenset((PARAMETERS, BYTES, FLOPS, SHARE))
_WEIGHTS = frozenset((PARAMETERS, BYTES))
_WORK = frozenset((FLOPS, SHARE))


@dataclasses.dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake: how it reads after "this is the count ...", what it applies to, and what it does to a ledger.

    ``usual`` marks the ones that published answers make most; they are named even on few digits.
    """

    name: str
    phrase: str
    dimensions: frozenset[str]
    change: Callable[[Ledger], Ledger]
    usual: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Slip:
    """A mistake of unit or of factor: the right number times ``factor``."""

    name: str
    phrase: str
    factor: Fraction
    usual: bool = False


def ledger_mistakes(ledger: Ledger) -> list[Mistake]:
    """The mistakes that change what is counted, the likeliest first."""
    return [*_forgotten(ledger), *_counted_wrong(ledger), *_added(ledger), *_other_sizes(ledger), *_only_a_part()]


def slips(dimension: str, unit: str, ledger: Ledger, bytes_per_value: int, scope: str) -> Iterator[Slip]:
    """The mistakes of unit and factor that a number of this dimension and unit may hold."""
    if dimension == BYTES:
        for other in (2, 8, 1, 4):
            if other != bytes_per_value:
                each = f"{other} byte{'s' if other > 1 else ''}"
                phrase = f"at {each} per {_FLOATS[bytes_per_value]}, which has {bytes_per_value}"
                yield Slip(f"bytes-{other}", phrase, Fraction(other, bytes_per_value), usual=other == 2)
        power = "kMGTP".find(unit[0]) + 1 if unit[:1] in ("k", "K", "M", "G", "T", "P") and unit[-1] == "B" else 0
        if power and unit[1] == "i":
            factor = Fraction(1024**power, 1000**power)
            yield Slip("gb-as-gib", f"in {unit[0]}B but written as {unit}", factor, usual=True)
        elif power:
            factor = Fraction(1000**power, 1024**power)
            yield Slip("gib-as-gb", f"in {unit[0].upper()}iB but written as {unit}", factor, usual=True)
        yield Slip("bits", "in bits, not bytes", Fraction(8))
        yield Slip("training", "with gradients and both AdamW moments added", Fraction(4))
        yield Slip("gradients", "with gradients added", Fraction(2))
    if dimension == FLOPS:
        yield Slip("macs", "in multiply-adds (MACs), not FLOPs: each is two", Fraction(1, 2), usual=True)
        yield Slip("four-per-multiply-add", "with four FLOPs per multiply-add, not two", Fraction(2))
        yield Slip("training", "of forward and backward pass together (three times the forward pass)", Fraction(3))
        tokens = ledger.batch_size * ledger.sequence_length
        yield Slip("per-token", "of one token, not of the whole sequence", Fraction(1, tokens))
    if dimension in (PARAMETERS, BYTES, FLOPS):
        yield Slip("thousand-too-large", "a thousand times too large: a slip of the unit", Fraction(1000), usual=True)
        yield Slip(
            "thousand-too-small", "a thousand times too small: a slip of the unit", Fraction(1, 1000), usual=True
        )
    if scope == "layer" and ledger.layers > 1:
        yield Slip("all-blocks", f"of all {ledger.layers} blocks, not of one", Fraction(ledger.layers))


_FLOATS = {8: "float64", 4: "float32", 2: "16-bit float", 1: "8-bit float"}


def _without(*components: str) -> Callable[[Ledger], Ledger]:
    gone = dict.fromkeys(components, 0)

    def change(ledger: Ledger) -> Ledger:
        return dataclasses.replace(ledger, parameters=ledger.parameters | gone, flops=ledger.flops | gone)

    return change


def _scaled(factor: Fraction, *components: str) -> Callable[[Ledger], Ledger]:
    def change(ledger: Ledger) -> Ledger:
        def scale(costs: dict[str, int]) -> dict[str, int]:
            return {name: int(cost * factor) if name in components else cost for name, cost in costs.items()}

        return dataclasses.replace(ledger, parameters=scale(ledger.parameters), flops=scale(ledger.flops))

    return change


def _plus(**parameters: int) -> Callable[[Ledger], Ledger]:
    def change(ledger: Ledger) -> Ledger:
        # A component that another mistake forgot has no bias either.
        grown = {
            name: ledger.parameters.get(name, 0) + more
            for name, more in parameters.items()
            if ledger.parameters.get(name)
        }
        return ledger.changed(PARAMETERS, **grown)

    return change


def _forgotten(ledger: Ledger) -> Iterator[Mistake]:
    output = _without("output_proj")
    yield Mistake("no-output-projection", "without the output projections", _BOTH, output, usual=True)
    phrase = "without the four attention projections"
    yield Mistake("no-projections", phrase, _BOTH, _without(*PROJECTIONS), usual=True)
    yield Mistake("no-key-value", "without the key and value projections", _BOTH, _without("k_proj", "v_proj"))
    yield Mistake("no-t2", "without the two T² terms", _WORK, _without("scores", "values"), usual=True)
    yield Mistake("one-t2", "without one of the two T² terms", _WORK, _without("values"), usual=True)
    yield Mistake("no-head-multiply", "without the head", _WORK, _without("lm_head"), usual=True)
    if ledger.shape.tie_embeddings:
        phrase = "without the tied vocabulary matrix, which counts once and not never"
        yield Mistake("tied-counted-never", phrase, _WEIGHTS, _without("token_embeddings"), usual=True)
        twice = _with_head(ledger)
        phrase = "with the tied vocabulary matrix counted twice"
        yield Mistake("tied-counted-twice", phrase, _WEIGHTS, twice, usual=True)
    else:
        phrase = "without the head (or without the embedding: they are equally large), as if the two were tied"
        yield Mistake("one-vocabulary-matrix", phrase, _WEIGHTS, _without("lm_head"), usual=True)
        phrase = "without the embedding and the head"
        yield Mistake("no-vocabulary", phrase, _WEIGHTS, _without("lm_head", "token_embeddings"))
    phrase = "with two feed-forward matrices, not the three of SwiGLU"
    yield Mistake("two-matrix-feed-forward", phrase, _BOTH, _without("w3"), usual=True)
    yield Mistake("one-matrix-feed-forward", "with one feed-forward matrix, not three", _BOTH, _without("w2", "w3"))
    norms = _without("ln1", "ln2", "ln_final")
    yield Mistake("no-norms", "without the gains of the norms", _WEIGHTS, norms, usual=True)
    yield Mistake("no-final-norm", "without the final norm", _WEIGHTS, _without("ln_final"))
    yield Mistake("no-block-norms", "without the two norms of each block", _WEIGHTS, _without("ln1", "ln2"))
    yield Mistake("one-block-norm", "with one norm per block, not two", _WEIGHTS, _without("ln2"))


def _counted_wrong(ledger: Ledger) -> Iterator[Mistake]:
    heads = Fraction(ledger.shape.num_heads)
    doubled = _scaled(Fraction(2), "scores")
    yield Mistake("t2-doubled", "with one of the two T² terms counted twice", _WORK, doubled, usual=True)
    both = _scaled(Fraction(2), "scores", "values")
    yield Mistake("both-t2-doubled", "with both T² terms counted twice", _WORK, both)
    phrase = (
        "with the T² terms halved (for the causal mask, or a factor of two is missing); the whole score matrix counts"
    )
    yield Mistake("causal-half", phrase, _WORK, _scaled(Fraction(1, 2), "scores", "values"), usual=True)
    if heads > 1:
        phrase = "with d_model channels in every head of the T² terms, not d_head"
        yield Mistake("full-width-heads", phrase, _WORK, _scaled(heads, "scores", "values"))
        yield Mistake("one-head", "with one head only in the T² terms", _WORK, _scaled(1 / heads, "scores", "values"))
        phrase = "with full-width projections for every head; the heads share d_model channels"
        yield Mistake("projections-per-head", phrase, _BOTH, _scaled(heads, *PROJECTIONS))
    group = Fraction(ledger.shape.num_heads, ledger.shape.num_kv_heads)
    if group > 1:
        phrase = "with K and V projections as wide as Q: GQA counted as MHA"
        yield Mistake("gqa-as-mha", phrase, _BOTH, _scaled(group, "k_proj", "v_proj"), usual=True)
        phrase = "with the T² terms shrunk to the key/value heads; every query head still meets every position"
        yield Mistake("t2-at-kv-heads", phrase, _WORK, _scaled(1 / group, "scores", "values"))
    last = _scaled(Fraction(1, ledger.sequence_length), "lm_head")
    yield Mistake("head-at-last-position", "with the head applied to the last position only", _WORK, last)


def _added(ledger: Ledger) -> Iterator[Mistake]:
    shape = ledger.shape
    positions = shape.context_length * shape.d_model
    phrase = "with learned positions counted (context_length x d_model); rotary positions have none"
    yield Mistake("learned-positions", phrase, _WEIGHTS, _plus(token_embeddings=positions), usual=True)
    attention = {"q_proj": shape.d_model, "k_proj": shape.d_kv, "v_proj": shape.d_kv, "output_proj": shape.d_model}
    feed_forward = {"w1": shape.d_ff, "w3": shape.d_ff, "w2": shape.d_model}
    norms = dict.fromkeys(("ln1", "ln2", "ln_final"), shape.d_model)
    linear = attention | feed_forward
    for name, where, biases in (
        ("biases", "every projection and feed-forward matrix", linear),
        ("biases-and-norms", "every projection, feed-forward matrix and norm", linear | norms),
        ("attention-biases", "the attention projections", attention),
        ("feed-forward-biases", "the feed-forward matrices", feed_forward),
        ("norm-biases", "the norms", norms),
        (
            "qkv-biases",
            "the query, key and value projections",
            {k: v for k, v in attention.items() if k != "output_proj"},
        ),
        ("head-bias", "the head", {"lm_head": shape.vocab_size}),
        ("all-biases", "every layer, norms and head included", linear | norms | {"lm_head": shape.vocab_size}),
    ):
        usual = name in ("biases", "biases-and-norms")
        yield Mistake(name, f"with biases counted on {where}; this decoder has none", _WEIGHTS, _plus(**biases), usual)
    phrase = "with the embedding look-up counted as a matrix multiply"
    tokens = ledger.batch_size * ledger.sequence_length
    multiply = {"token_embeddings": 2 * tokens * shape.vocab_size * shape.d_model}
    yield Mistake("look-up", phrase, _WORK, lambda books: books.changed(FLOPS, **multiply), usual=True)


def _other_sizes(ledger: Ledger) -> Iterator[Mistake]:
    shape = ledger.shape
    width = shape.d_model
    rules = {
        4 * width: "4 x d_model",
        nearest_multiple_of_64(8 * width, 3): "the multiple of 64 nearest to 8/3 d_model",
        -(-8 * width // 192) * 64: "8/3 d_model rounded up to a multiple of 64",
        8 * width // 192 * 64: "8/3 d_model rounded down to a multiple of 64",
        8 * width // 3: "8/3 d_model",
        -(-8 * width // 3): "8/3 d_model rounded up",
    }
    for d_ff, rule in rules.items():
        if d_ff and d_ff != shape.d_ff:
            phrase = f"with d_ff {d_ff} ({rule}), not the stated {shape.d_ff}"
            usual = d_ff in (4 * width, nearest_multiple_of_64(8 * width, 3))
            yield Mistake(f"d-ff-{d_ff}", phrase, _BOTH, _scaled(Fraction(d_ff, shape.d_ff), *FEED_FORWARD), usual)
    if shape.d_ff != 4 * width:
        wide, narrow = _scaled(Fraction(4 * width, shape.d_ff), *FEED_FORWARD), _without("w3")
        phrase = "with the original GPT-2's feed-forward (two matrices, 4 x d_model wide)"
        yield Mistake("gpt2-feed-forward", phrase, _BOTH, lambda books: narrow(wide(books)), usual=True)
    for layers in (1, ledger.layers - 1, ledger.layers + 1):
        if 0 < layers != ledger.layers:
            phrase = "of a single block" if layers == 1 else f"with {layers} blocks, not {ledger.layers}"
            yield Mistake(
                f"layers-{layers}", phrase, _BOTH, lambda books, n=layers: dataclasses.replace(books, layers=n)
            )
    tokens = 2 * ledger.batch_size * ledger.sequence_length
    phrase = "by the rule 2 x parameters x tokens, which leaves out the T² terms and counts the embedding"
    yield Mistake("two-n", phrase, _WORK, lambda books: _two_n(books, tokens))


def _only_a_part() -> Iterator[Mistake]:
    everything = BLOCK | {"token_embeddings", "ln_final", "lm_head"}
    yield Mistake("feed-forward-alone", "of the feed-forward alone", _BOTH, _without(*everything - FEED_FORWARD))
    yield Mistake("projections-alone", "of the attention projections alone", _BOTH, _without(*everything - PROJECTIONS))
    phrase = "of the blocks alone, without embedding, head and final norm"
    yield Mistake("blocks-alone", phrase, _WEIGHTS, _without("token_embeddings", "ln_final", "lm_head"))


def _with_head(ledger: Ledger) -> Callable[[Ledger], Ledger]:
    matrix = ledger.shape.vocab_size * ledger.shape.d_model
    return lambda books: books.changed(PARAMETERS, lm_head=matrix)


def _two_n(ledger: Ledger, tokens: int) -> Ledger:
    flops = {name: tokens * count for name, count in ledger.parameters.items()}
    norms = ledger.layers * (flops["ln1"] + flops["ln2"]) + flops["ln_final"]
    return dataclasses.replace(ledger, flops=flops | {"token_embeddings": flops["token_embeddings"] + norms})
