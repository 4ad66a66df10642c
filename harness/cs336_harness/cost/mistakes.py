"""The mistakes that people make when they account for a decoder, each written down once, as a change of the ledger.

The fault dictionary (what ``run_parameter_count`` and ``run_forward_flops`` get wrong) and the written answer (what a
number in prose gets wrong) both take them from here. The likelier ones stand first. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from cs336_harness.cost.ledger import (
    ATTENTION,
    BLOCK,
    BLOCK_NORMS,
    BYTES,
    EVERYTHING,
    FEED_FORWARD,
    FLOPS,
    LAYER,
    NORMS,
    PARAMETERS,
    POSITION_PAIRS,
    PROJECTIONS,
    VOCABULARY,
    Ledger,
)
from cs336_harness.cost.mistake import BOTH, WEIGHTS, WORK, Mistake, Slip
from cs336_harness.cost.presets import nearest_multiple_of_64

_PARAMETERS = frozenset((PARAMETERS,))
_FLOPS = frozenset((FLOPS,))
_IN_CODE = _PARAMETERS | _FLOPS
_VECTORS = "Which weights of the decoder are vectors?"
_BIASES = "What does a linear layer of this decoder own beside its matrix?"
_WIDTH = "How wide is the feed-forward by the configuration that you state?"
_TWO_PRODUCTS = "Two products in attention grow with the square of the length: which do you count?"


def _half(ledger: Ledger) -> Ledger:
    return ledger.scaled(Fraction(1, 2), *POSITION_PAIRS)


def _with_tied_head(ledger: Ledger) -> Ledger:
    if not ledger.shape.tie_embeddings:
        return ledger
    return ledger.with_parameters(lm_head=ledger.shape.vocab_size * ledger.shape.d_model)


def _tied_never(ledger: Ledger) -> Ledger:
    return ledger.without("token_embeddings") if ledger.shape.tie_embeddings else ledger


def _untied_once(ledger: Ledger) -> Ledger:
    return ledger if ledger.shape.tie_embeddings else ledger.without("lm_head")


def _look_up(ledger: Ledger) -> Ledger:
    return ledger.with_flops(token_embeddings=2 * ledger.tokens * ledger.shape.vocab_size * ledger.shape.d_model)


def _group(ledger: Ledger) -> Fraction:
    return Fraction(ledger.shape.num_heads, ledger.shape.num_kv_heads)


def _all_flops(ledger: Ledger, factor: Fraction) -> Ledger:
    return ledger.with_flops(**{name: int(cost * factor) for name, cost in ledger.flops.items()})


def _two_per_parameter(ledger: Ledger) -> Ledger:
    flops = {name: 2 * ledger.tokens * ledger.parameters.get(name, 0) for name in EVERYTHING}
    # Norms are no multiply, so a count of FLOPs asks for none of theirs: they go where the embedding goes.
    flops["token_embeddings"] += 2 * ledger.tokens * ledger.amount(PARAMETERS, NORMS)
    return ledger.with_flops(**flops | dict.fromkeys(NORMS, 0))


def _plus(ledger: Ledger, more: dict[str, int]) -> Ledger:
    # A component that another mistake forgot has no bias either.
    counted = {name: ledger.parameters[name] + extra for name, extra in more.items() if ledger.parameters.get(name)}
    return ledger.with_parameters(**counted)


def _biases(ledger: Ledger, of: frozenset[str]) -> Ledger:
    shape = ledger.shape
    sizes = dict.fromkeys(("q_proj", "output_proj", "w2", "ln1", "ln2", "ln_final"), shape.d_model)
    sizes |= {"k_proj": shape.d_kv, "v_proj": shape.d_kv, "w1": shape.d_ff, "w3": shape.d_ff}
    sizes["lm_head"] = shape.vocab_size
    return _plus(ledger, {name: size for name, size in sizes.items() if name in of})


_LINEAR = PROJECTIONS | FEED_FORWARD


def _forgotten() -> Iterator[Mistake]:
    yield Mistake(
        name="output-projection-forgotten",
        phrase="without the output projections",
        explanation="Three projections are counted for attention; the output projection is the fourth.",
        hint="How many projections belong to attention?",
        change=lambda ledger: ledger.without("output_proj"),
        prose=BOTH,
        code=_IN_CODE,
        usual=True,
    )
    yield Mistake(
        name="projections-forgotten",
        phrase="without the four attention projections",
        explanation="The four projections of attention cost nothing in this count.",
        hint="Where do queries, keys and values come from?",
        change=lambda ledger: ledger.without(*PROJECTIONS),
        prose=BOTH,
        code=_FLOPS,
        usual=True,
    )
    yield Mistake(
        name="key-and-value-projections-forgotten",
        phrase="without the key and value projections",
        explanation="The key and value projections cost nothing in this count.",
        hint="Queries have a projection of their own; do keys and values have one?",
        change=lambda ledger: ledger.without("k_proj", "v_proj"),
        prose=BOTH,
    )
    yield Mistake(
        name="scores-and-values-forgotten",
        phrase="without the two T² terms",
        explanation="Queries times keys and weights times values cost nothing in this count.",
        hint="Which two products of attention multiply no weight?",
        change=lambda ledger: ledger.without(*POSITION_PAIRS),
        prose=WORK,
        usual=True,
    )
    yield Mistake(
        name="scores-forgotten",
        phrase="without one of the two T² terms",
        explanation="Queries times keys costs nothing in this count.",
        hint=_TWO_PRODUCTS,
        change=lambda ledger: ledger.without("scores"),
        code=_FLOPS,  # a written total cannot tell it from the next one
    )
    yield Mistake(
        name="values-forgotten",
        phrase="without one of the two T² terms",
        explanation="Weights times values costs nothing in this count.",
        hint=_TWO_PRODUCTS,
        change=lambda ledger: ledger.without("values"),
        prose=WORK,
        code=_FLOPS,
        usual=True,
    )
    yield Mistake(
        name="head-forgotten",
        phrase="without the head",
        explanation="The head costs nothing in this count; it is multiplied in every forward pass, tied or not.",
        hint="Tying saves a matrix; does it save the multiplication?",
        change=lambda ledger: ledger.with_flops(lm_head=0),
        prose=WORK,
        code=_FLOPS,
        usual=True,
    )
    yield Mistake(
        name="tied-head-counted",
        phrase="with the tied vocabulary matrix counted twice",
        explanation="The head is counted although it is tied: the shared matrix is in the sum twice.",
        hint="How many vocabulary matrices does a tied decoder own?",
        change=_with_tied_head,
        prose=WEIGHTS,
        code=_PARAMETERS,
        usual=True,
    )
    yield Mistake(
        name="untied-head-forgotten",
        phrase="without the head (or without the embedding: they are equally large), as if the two were tied",
        explanation="The head is never counted, not even when it has a matrix of its own.",
        hint="How many vocabulary matrices does an untied decoder own?",
        change=_untied_once,
        prose=WEIGHTS,
        code=_PARAMETERS,
        usual=True,
    )
    yield Mistake(
        name="embedding-subtracted-twice",
        phrase="without the tied vocabulary matrix, which counts once and not never",
        explanation=(
            "When tied, the vocabulary matrix is taken off a sum that holds it once already: it is not counted at all."
        ),
        hint="Is the sum that you subtract from already free of the doubled matrix?",
        change=_tied_never,
        prose=WEIGHTS,
        code=_PARAMETERS,
        usual=True,
    )
    yield Mistake(
        name="embedding-forgotten",
        phrase="without the embedding",
        explanation="The embedding is not counted, tied or untied.",
        hint="A look-up costs no FLOPs; does its table cost memory?",
        change=lambda ledger: ledger.without("token_embeddings"),
        code=_PARAMETERS,  # in one written number it is one of the two before it
    )
    yield Mistake(
        name="vocabulary-forgotten",
        phrase="without the embedding and the head",
        explanation="Neither the embedding nor the head is counted.",
        hint="What does a decoder own outside its blocks?",
        change=lambda ledger: ledger if ledger.shape.tie_embeddings else ledger.without(*VOCABULARY),
        prose=WEIGHTS,
    )
    yield Mistake(
        name="two-matrix-feed-forward",
        phrase="with two feed-forward matrices, not the three of SwiGLU",
        explanation="Two matrices are counted for the feed-forward; SwiGLU has three.",
        hint="How many matrices does SwiGLU have?",
        change=lambda ledger: ledger.without("w3"),
        prose=BOTH,
        code=_IN_CODE,
        usual=True,
    )
    yield Mistake(
        name="one-matrix-feed-forward",
        phrase="with one feed-forward matrix, not three",
        explanation="One matrix is counted for the feed-forward; SwiGLU has three.",
        hint="How many matrices does SwiGLU have?",
        change=lambda ledger: ledger.without("w2", "w3"),
        prose=BOTH,
    )
    yield Mistake(
        name="norms-forgotten",
        phrase="without the gains of the norms",
        explanation="No norm's gain is counted: 2 · num_layers + 1 vectors of d_model are missing.",
        hint=_VECTORS,
        change=lambda ledger: ledger.without(*NORMS),
        prose=WEIGHTS,
        code=_PARAMETERS,
        usual=True,
    )
    yield Mistake(
        name="final-norm-forgotten",
        phrase="without the final norm",
        explanation="The final norm's gain is not counted: d_model is missing.",
        hint="How many norms stand outside the layers?",
        change=lambda ledger: ledger.without("ln_final"),
        prose=WEIGHTS,
        code=_PARAMETERS,
    )
    yield Mistake(
        name="block-norms-forgotten",
        phrase="without the two norms of each block",
        explanation="The two norms of each block are not counted: 2 · num_layers vectors of d_model are missing.",
        hint=_VECTORS,
        change=lambda ledger: ledger.without(*BLOCK_NORMS),
        prose=WEIGHTS,
    )
    yield Mistake(
        name="one-norm-per-layer",
        phrase="with one norm per block, not two",
        explanation="One norm is counted for each layer; there are two.",
        hint="How many norms does one layer own?",
        change=lambda ledger: ledger.without("ln2"),
        prose=WEIGHTS,
        code=_PARAMETERS,
    )


def _counted_wrong() -> Iterator[Mistake]:
    yield Mistake(
        name="multiply-add-as-one",
        phrase="in multiply-adds (MACs), not FLOPs: each is two",
        explanation=(
            "A multiply-add is counted as one operation (MACs); the convention here is two FLOPs, so every term is "
            "half of what it must be."
        ),
        hint="A dot product of length k: how many multiplications, and how many additions?",
        change=lambda ledger: _all_flops(ledger, Fraction(1, 2)),
        prose=_FLOPS,
        code=_FLOPS,
        usual=True,
    )
    yield Mistake(
        name="multiply-add-as-four",
        phrase="with four FLOPs per multiply-add, not two",
        explanation="Every multiply-add is counted as four operations: the factor of two is in the count twice.",
        hint="A dot product of length k: how many multiplications, and how many additions?",
        change=lambda ledger: _all_flops(ledger, Fraction(2)),
        prose=_FLOPS,
    )
    yield Mistake(
        name="of-training",
        phrase="of forward and backward pass together (three times the forward pass)",
        explanation=(
            "Three times the forward pass is counted, as for a training step; the question is the forward pass alone."
        ),
        hint="Which passes do you count: forward, or forward and backward?",
        change=lambda ledger: _all_flops(ledger, Fraction(3)),
        prose=_FLOPS,
        code=_FLOPS,
    )
    yield Mistake(
        name="of-one-token",
        phrase="of one token, not of the whole sequence",
        explanation="The FLOPs of one position are counted; a forward pass computes every position of every sequence.",
        hint="How many positions does one forward pass compute?",
        change=lambda ledger: _all_flops(ledger, Fraction(1, ledger.tokens)),
        prose=_FLOPS,
    )
    yield Mistake(
        name="one-row",
        phrase="of one sequence, not of the batch",
        explanation="The batch size has no effect: one row is counted, however many there are.",
        hint="What changes when the batch doubles?",
        change=lambda ledger: _all_flops(ledger, Fraction(1, ledger.batch_size)),
        prose=_FLOPS,
        code=_FLOPS,
    )
    yield Mistake(
        name="scores-counted-twice",
        phrase="with one of the two T² terms counted twice",
        explanation="One of the two products of attention is counted twice.",
        hint=_TWO_PRODUCTS,
        change=lambda ledger: ledger.scaled(2, "scores"),
        prose=WORK,
        usual=True,
    )
    yield Mistake(
        name="scores-and-values-counted-twice",
        phrase="with both T² terms counted twice",
        explanation="Both products of attention are counted twice.",
        hint=_TWO_PRODUCTS,
        change=lambda ledger: ledger.scaled(2, *POSITION_PAIRS),
        prose=WORK,
    )
    yield Mistake(
        name="causal-half",
        phrase=(
            "with the T² terms halved (for the causal mask, or a factor of two is missing); the whole score matrix "
            "counts"
        ),
        explanation=(
            "The two products of attention are halved because the mask hides half of the scores; the convention here "
            "counts them whole."
        ),
        hint="Does a dense multiply skip the scores that the mask will hide?",
        change=_half,
        prose=WORK,
        code=_FLOPS,
        usual=True,
    )
    yield Mistake(
        name="scores-at-full-width",
        phrase="with d_model channels in every head of the T² terms, not d_head",
        explanation=(
            "Each head's two products are counted over d_model channels instead of d_head: both terms are num_heads "
            "times too large."
        ),
        hint="How long is the dot product of one score: d_model, or d_head?",
        change=lambda ledger: ledger.scaled(ledger.shape.num_heads, *POSITION_PAIRS),
        prose=WORK,
        code=_FLOPS,
    )
    yield Mistake(
        name="scores-of-one-head",
        phrase="with one head only in the T² terms",
        explanation="The two products of attention are counted for one head; every query head takes its own.",
        hint="How many heads take scores of their own?",
        change=lambda ledger: ledger.scaled(Fraction(1, ledger.shape.num_heads), *POSITION_PAIRS),
        prose=WORK,
    )
    yield Mistake(
        name="scores-linear-in-time",
        phrase="with T² terms that grow with T; there are T² scores",
        explanation="The two products of attention grow with T; there are T² scores.",
        hint="How many scores does a sequence of T positions have?",
        steps=("Double the sequence length: the two products of attention must grow fourfold.",),
        change=lambda ledger: ledger.scaled(Fraction(1, ledger.sequence_length), *POSITION_PAIRS),
        prose=WORK,
        code=_FLOPS,
    )
    yield Mistake(
        name="projections-per-head",
        phrase="with full-width projections for every head; the heads share d_model channels",
        explanation="Every head gets projections as wide as the model; all heads together are d_model channels wide.",
        hint="How many channels does one head have?",
        change=lambda ledger: ledger.scaled(ledger.shape.num_heads, *PROJECTIONS),
        prose=BOTH,
    )
    yield Mistake(
        name="grouped-heads-counted-in-full",
        phrase="with K and V projections as wide as Q: GQA counted as MHA",
        explanation=(
            "k_proj and v_proj are counted as (d_model, d_model) although there are fewer key/value heads than query "
            "heads."
        ),
        hint="How many rows do k_proj and v_proj have when key/value heads are fewer than query heads?",
        change=lambda ledger: ledger.scaled(_group(ledger), "k_proj", "v_proj"),
        prose=BOTH,
        code=_IN_CODE,
        usual=True,
    )
    yield Mistake(
        name="grouped-heads-shrink-scores",
        phrase="with the T² terms shrunk to the key/value heads; every query head still meets every position",
        explanation=(
            "Scores and values are counted for each key/value head; every query head takes its own, shared keys or not."
        ),
        hint="Key/value heads are shared; how many query heads still take their own scores?",
        change=lambda ledger: ledger.scaled(1 / _group(ledger), *POSITION_PAIRS),
        prose=WORK,
        code=_FLOPS,
    )
    yield Mistake(
        name="head-at-last-position",
        phrase="with the head applied to the last position only",
        explanation="The head is counted at the last position only; a forward pass computes logits at every position.",
        hint="At how many positions does training need logits?",
        change=lambda ledger: ledger.with_flops(lm_head=ledger.flops["lm_head"] // ledger.sequence_length),
        prose=WORK,
    )
    yield Mistake(
        name="head-in-every-layer",
        phrase="with the head counted once for every layer; it comes once, at the end",
        explanation="The head is counted once for every layer; it comes once, at the end.",
        hint="How often is the head multiplied in one forward pass?",
        change=lambda ledger: ledger.with_flops(lm_head=ledger.layers * ledger.flops["lm_head"]),
        prose=WORK,
        code=_FLOPS,
    )


def _added() -> Iterator[Mistake]:
    yield Mistake(
        name="learned-positions",
        phrase="with learned positions counted (context_length x d_model); rotary positions have none",
        explanation="A table of learned positions is counted; rotary positions have no parameters.",
        hint="What does RoPE learn?",
        change=lambda ledger: _plus(ledger, {"token_embeddings": ledger.shape.context_length * ledger.shape.d_model}),
        prose=WEIGHTS,
        usual=True,
    )
    yield Mistake(
        name="biases-counted",
        phrase="with biases counted on every projection and feed-forward matrix; this decoder has none",
        explanation="A bias is counted for every linear layer in the blocks; this decoder has none.",
        hint=_BIASES,
        change=lambda ledger: _biases(ledger, _LINEAR),
        prose=WEIGHTS,
        code=_PARAMETERS,
        usual=True,
    )
    for name, where, of in (
        ("linear-and-norm", "every projection, feed-forward matrix and norm", _LINEAR | NORMS),
        ("attention", "the attention projections", PROJECTIONS),
        ("feed-forward", "the feed-forward matrices", FEED_FORWARD),
        ("norm", "the norms", NORMS),
        ("query-key-value", "the query, key and value projections", PROJECTIONS - {"output_proj"}),
        ("head", "the head", frozenset(("lm_head",))),
        ("all", "every layer, norms and head included", _LINEAR | NORMS | {"lm_head"}),
    ):
        yield Mistake(
            name=f"{name}-biases-counted",
            phrase=f"with biases counted on {where}; this decoder has none",
            explanation=f"Biases are counted on {where}; this decoder has none.",
            hint=_BIASES,
            change=lambda ledger, of=of: _biases(ledger, of),
            prose=WEIGHTS,
            usual=name == "linear-and-norm",
        )
    yield Mistake(
        name="embedding-counted",
        phrase="with the embedding look-up counted as a matrix multiply",
        explanation=(
            "The embedding is counted as a matrix multiply, which doubles the head's term; a look-up multiplies "
            "nothing."
        ),
        hint="How many multiplications does it take to copy a row out of a table?",
        change=_look_up,
        prose=WORK,
        code=_FLOPS,
        usual=True,
    )


_D_FF_RULES = {
    "4-d-model": ("4 x d_model", lambda width: 4 * width),
    "nearest-64": (
        "the multiple of 64 nearest to 8/3 d_model",
        lambda width: nearest_multiple_of_64(8 * width, 3),
    ),
    "up-to-64": ("8/3 d_model rounded up to a multiple of 64", lambda width: -(-8 * width // 192) * 64),
    "down-to-64": ("8/3 d_model rounded down to a multiple of 64", lambda width: 8 * width // 192 * 64),
    "eight-thirds": ("8/3 d_model", lambda width: 8 * width // 3),
    "eight-thirds-up": ("8/3 d_model rounded up", lambda width: -(-8 * width // 3)),
}


def _d_ff(rule: str, width: int) -> int | None:
    """d_ff by a rule; None where an earlier rule gives the same."""
    earlier: set[int] = set()
    for name, (_, size) in _D_FF_RULES.items():
        if name == rule:
            return size(width) if size(width) and size(width) not in earlier else None
        earlier.add(size(width))
    return None


def _at_d_ff(ledger: Ledger, d_ff: int | None) -> Ledger:
    return ledger.scaled(Fraction(d_ff, ledger.shape.d_ff), *FEED_FORWARD) if d_ff else ledger


def _gpt2_feed_forward(ledger: Ledger) -> Ledger:
    width = 4 * ledger.shape.d_model
    return ledger if ledger.shape.d_ff == width else _at_d_ff(ledger, width).without("w3")


def _other_sizes() -> Iterator[Mistake]:
    for name, (rule, _) in _D_FF_RULES.items():

        def size(width: int, name: str = name) -> int | None:
            return _d_ff(name, width)

        yield Mistake(
            name=f"d-ff-{name}",
            phrase=f"with d_ff {{d_ff}} ({rule}), not the stated {{ledger.shape.d_ff}}",
            explanation=f"The feed-forward is counted at {rule}, and not at the stated d_ff.",
            hint=_WIDTH,
            change=lambda ledger, size=size: _at_d_ff(ledger, size(ledger.shape.d_model)),
            d_ff=size,
            prose=BOTH,
            usual=name in ("4-d-model", "nearest-64"),
        )
    yield Mistake(
        name="gpt2-feed-forward",
        phrase="with the original GPT-2's feed-forward (two matrices, 4 x d_model wide)",
        explanation="GPT-2's feed-forward is counted, two matrices of 4 x d_model; this one is SwiGLU, with three.",
        hint="How many matrices does SwiGLU have, and how wide are they?",
        change=_gpt2_feed_forward,
        prose=BOTH,
        usual=True,
    )
    yield Mistake(
        name="one-layer",
        phrase="of a single block",
        explanation="The blocks are counted once, however many layers there are.",
        hint="By which number is the cost of one block multiplied?",
        change=lambda ledger: ledger.with_layers(1),
        prose=BOTH,
        code=_IN_CODE,
    )
    yield Mistake(
        name="one-layer-too-few",
        phrase="with one block fewer than the stated {ledger.layers}",
        explanation="One block is missing.",
        hint="By which number is the cost of one block multiplied?",
        change=lambda ledger: ledger if ledger.layers == 2 else ledger.with_layers(ledger.layers - 1),
        prose=BOTH,
    )
    yield Mistake(
        name="one-layer-too-many",
        phrase="with one block more than the stated {ledger.layers}",
        explanation="One block is counted too many.",
        hint="By which number is the cost of one block multiplied?",
        change=lambda ledger: ledger.with_layers(ledger.layers + 1),
        prose=BOTH,
    )
    yield Mistake(
        name="two-per-parameter-and-token",
        phrase="by the rule 2 x parameters x tokens, which leaves out the T² terms and counts the embedding",
        explanation="The rule of thumb 2 x parameters x tokens leaves out the T² terms and counts the embedding.",
        hint="Which multiplies have no weight, and which weight has no multiply?",
        change=_two_per_parameter,
        prose=WORK,
    )


def _only_a_part() -> Iterator[Mistake]:
    for name, what, part, prose in (
        ("feed-forward-alone", "the feed-forward alone", FEED_FORWARD, BOTH),
        ("projections-alone", "the attention projections alone", PROJECTIONS, BOTH),
        ("attention-alone", "attention alone", ATTENTION, BOTH),
        ("blocks-alone", "the blocks alone, without embedding, head and final norm", BLOCK, WEIGHTS),
    ):
        yield Mistake(
            name=name,
            phrase=f"of {what}",
            explanation=f"What is counted is {what}.",
            hint="Which parts of the decoder have you added up?",
            change=lambda ledger, part=part: ledger.without(*EVERYTHING - part),
            prose=prose,
        )


MISTAKES: dict[str, Mistake] = {
    mistake.name: mistake
    for kind in (_forgotten, _counted_wrong, _added, _other_sizes, _only_a_part)
    for mistake in kind()
}
"""Every mistake in what is counted, by name."""


def mistakes_in(dimension: str) -> list[Mistake]:
    """The mistakes that a written number of this dimension can show, those of published answers first.

    For a share or a ratio, ask for what is counted in it: parameters or FLOPs.
    """
    return sorted(
        (mistake for mistake in MISTAKES.values() if dimension in mistake.prose), key=lambda mistake: not mistake.usual
    )


_FLOATS = {8: "float64", 4: "float32", 2: "16-bit float", 1: "8-bit float"}
_THOUSAND = "Count the digits: is it thousands, millions, billions or trillions?"


def slips(dimension: str, unit: str, ledger: Ledger, bytes_per_value: int, scope: str) -> Iterator[Slip]:
    """The mistakes of unit and factor that a number of this dimension and unit may hold.

    ``unit`` is the unit as written, "GB" or "GiB" or "", for it tells which of the two was meant.
    """
    if dimension == BYTES:
        yield from _slips_of_memory(unit, bytes_per_value)
    if dimension in (PARAMETERS, BYTES, FLOPS):
        for name, factor in (("large", Fraction(1000)), ("small", Fraction(1, 1000))):
            phrase = f"a thousand times too {name}: a slip of the unit"
            yield Slip(name=f"thousand-too-{name}", phrase=phrase, hint=_THOUSAND, factor=factor, usual=True)
    if scope == LAYER and ledger.layers > 1:
        yield Slip(
            name="all-blocks",
            phrase=f"of all {ledger.layers} blocks, not of one",
            hint="Is the number asked for one block, or for all?",
            factor=Fraction(ledger.layers),
        )


def _slips_of_memory(unit: str, bytes_per_value: int) -> Iterator[Slip]:
    hint = "How many bytes does one number take in the stated precision?"
    for other in (2, 8, 1, 4):
        if other != bytes_per_value:
            each = f"{other} byte{'s' if other > 1 else ''}"
            phrase = f"at {each} per {_FLOATS[bytes_per_value]}, which has {bytes_per_value}"
            factor = Fraction(other, bytes_per_value)
            yield Slip(name=f"bytes-{other}", phrase=phrase, hint=hint, factor=factor, usual=other == 2)
    power = "kMGTP".find(unit[0].replace("K", "k")) + 1 if unit.endswith("B") else 0
    powers = "1 GB is 10⁹ bytes and 1 GiB 2³⁰: which did you divide by?"
    if power and unit[1] == "i":
        factor = Fraction(1024**power, 1000**power)
        phrase = f"in {unit[0]}B but written as {unit}"
        yield Slip(name="gb-as-gib", phrase=phrase, hint=powers, factor=factor, usual=True)
    elif power:
        factor = Fraction(1000**power, 1024**power)
        phrase = f"in {unit[0].upper()}iB but written as {unit}"
        yield Slip(name="gib-as-gb", phrase=phrase, hint=powers, factor=factor, usual=True)
    yield Slip(name="bits", phrase="in bits, not bytes", hint="How many bits has a byte?", factor=Fraction(8))
    loaded = "The question is what it takes to load the model; what else does training keep?"
    yield Slip(
        name="of-training-state",
        phrase="with gradients and both AdamW moments added",
        hint=loaded,
        factor=Fraction(4),
    )
    yield Slip(name="gradients-added", phrase="with gradients added", hint=loaded, factor=Fraction(2))
