"""Readings of a block and of a model: the factor on every branch, which weight acts how often, which layer comes when.

Shapes: T positions, D = d_model, L layers, V = vocab_size; the stream is (T, D).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from cs336_harness.defects import Place
from cs336_harness.diagnosis.readings.components import rows_of_tokens
from cs336_harness.diagnosis.readings.reading import ROUNDING, Reading, differ, factor, number, reference, span, table
from cs336_harness.diagnosis.readings.self_attention import SIZE, layer_weights, logits_of, model_weights, stream_of
from cs336_harness.reference.weights import make_weights, normal
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.calling import Subject

SHAPE = DecoderShape(
    vocab_size=29, context_length=12, d_model=24, num_layers=1, num_heads=3, num_kv_heads=3, d_ff=64, rope_theta=100.0
)
TIME = 4


@functools.cache
def random_layer() -> Mapping[str, Tensor]:
    """Random weights that neither read the last channel nor write to it; gains of 1 ± 0.5."""
    weights = {name.removeprefix("layers.0."): weight for name, weight in make_weights(SHAPE, 21).items()}
    layer = {name: weights[name].clone() for name in SHAPE.layer_weight_shapes()}
    for name, weight in layer.items():
        if name.endswith(("output_proj.weight", "w2.weight")):
            weight[-1] = 0
    return layer


def _tokens() -> Tensor:
    tokens = 0.5 * SIZE * normal(TIME, SHAPE.d_model, seed=22)
    tokens[:, -1] = SIZE
    return tokens


def _stream(subject: Subject, name: str, tokens: Tensor, **changed: Tensor) -> Tensor | None:
    layer = {**random_layer(), **{key.replace("__", ".") + ".weight": weight for key, weight in changed.items()}}
    return stream_of(subject, name, SHAPE, [layer], tokens)


NO_ATTENTION = {"attn__output_proj": torch.zeros(SHAPE.d_model, SHAPE.d_model)}
NO_FEED_FORWARD = {"ffn__w2": torch.zeros(SHAPE.d_model, SHAPE.d_ff)}
BRANCHES = {
    "attention": (
        NO_FEED_FORWARD,
        "ln1",
        Place.RESIDUAL,
        ("attn.v_proj", "attn.output_proj", "attn.q_proj", "attn.k_proj"),
    ),
    "the feed-forward": (NO_ATTENTION, "ln2", Place.RESIDUAL, ("ffn.w1", "ffn.w2", "ffn.w3")),
}
ONCE = ("ln1", "ln2", "attn.v_proj", "attn.output_proj", "ffn.w2", "ffn.w3")
"""Weights that a branch is proportional to where nothing else varies."""


def read_branches(subject: Subject, name: str) -> Reading | None:
    """The stream's own factor, what each sublayer adds, and how often each of its weights acts."""
    tokens = _tokens()
    exact = tokens.to(torch.float64)
    bare = _stream(subject, name, tokens, **NO_ATTENTION, **NO_FEED_FORWARD)
    if bare is None:
        return None
    if differ(bare, exact):
        scale = factor(bare, exact)
        if scale is None:
            return _normed_stream(bare, exact)
        what = "is lost" if abs(scale) < ROUNDING else f"comes out {number(scale)} times"
        return Reading(f"with both sublayers at zero the stream {what}, must come out unchanged", Place.RESIDUAL)
    for branch, (others_off, norm, place, inside) in BRANCHES.items():
        found = _branch(subject, name, branch, others_off, norm, place, inside)
        if found is not None:
            return found
    return _order(subject, name, tokens)


def _normed_stream(bare: Tensor, exact: Tensor) -> Reading | None:
    sizes = [float(stream[0].square().mean().sqrt()) for stream in (exact, bare)]
    if not sizes[1] < 0.1 * sizes[0]:
        return None
    text = (
        f"with both sublayers at zero the stream's root mean square goes from {number(sizes[0])} to {number(sizes[1])}"
    )
    return Reading(f"{text}, must stay: a norm lies in the residual path", Place.RESIDUAL)


def _beside_the_embedding(subject: Subject, name: str, branch: str, own: float, place: Place) -> Reading:
    """In a model, what a sublayer adds is measured against the embedding: the two cannot be told apart."""
    text = f"beside the embedding, what {branch} adds is {number(own)} times what it must be"
    both = f": either the embedding is {number(1 / own)} times too large, or the branch is scaled" if own else ""
    return Reading(text + both, Place.EMBEDDING if own else place)


def _branch(
    subject: Subject,
    name: str,
    branch: str,
    others_off: Mapping[str, Tensor],
    norm: str,
    place: Place,
    inside: tuple[str, ...],
) -> Reading | None:
    tokens = _tokens()[:1]  # one token: attention hands its value over
    exact = tokens.to(torch.float64)

    def added(who: Subject, given: Tensor = tokens, **changed: Tensor) -> Tensor | None:
        stream = _stream(who, name, given, **others_off, **changed)
        return None if stream is None else stream - given.to(torch.float64)

    read, right = added(subject), added(reference())
    if read is None or right is None or not differ(read, right, 5 * ROUNDING):
        return None
    if float(read.abs().max()) < 1e-4 * float(exact.abs().max()):
        return Reading(f"{branch} alone adds nothing to the stream", place)
    own = factor(read, right)
    if own is not None and name not in ("run_transformer_block",):
        return _beside_the_embedding(subject, name, branch, own, place)
    if own is not None:
        return Reading(f"{branch}'s output is added {number(own)} times, must be added once", place)
    where = {"ln1": Place.FIRST_NORM, "ln2": Place.SECOND_NORM}[norm]
    here = Place.ATTENTION if norm == "ln1" else Place.FEED_FORWARD
    gain = random_layer()[f"{norm}.weight"]
    larger, expected = added(subject, 10 * tokens), added(reference(), 10 * tokens)
    if larger is not None and expected is not None and not differ(expected, right, 0.05) and differ(larger, read, 0.05):
        grown = float(larger.norm() / read.norm())
        text = f"a stream 10 times larger makes what {branch} adds {number(grown)} times larger, must leave it as it is"
        return Reading(f"{text}: there is no norm in front", where)
    explained = _gain(subject, added, norm, branch, where)
    if explained is not None:
        return explained
    flipped = added(subject, **{norm: gain.flip(0)})
    if flipped is not None and not differ(flipped, read, 1e-5):
        return Reading(f"{norm}.weight has no effect on what {branch} adds", where)
    for weight in (norm, *inside):
        full = f"{weight}.weight"
        doubled = added(subject, **{weight.replace(".", "__"): 2 * random_layer()[full]})
        spot = where if weight == norm else here
        times = None if doubled is None else factor(doubled, read)
        if times is not None and weight in ONCE[2:] and abs(times - 2) > 0.02:
            if abs(times - 1) < 0.02:
                text = f"doubling {full} leaves what {branch} adds as it was, must double it: a norm lies behind"
                return Reading(text, Place.RESIDUAL)
            text = f"doubling {full} makes what {branch} adds {number(times)} times as large, must double it"
            return Reading(text, spot)
    return None


def _gain(
    subject: Subject, added: Callable[..., Tensor | None], norm: str, branch: str, where: Place
) -> Reading | None:
    """Whether gains of one, or the other norm's gains, explain a branch."""
    other = "ln2" if norm == "ln1" else "ln1"
    gain, others = random_layer()[f"{norm}.weight"], random_layer()[f"{other}.weight"]
    read = added(subject)
    explained = {
        f"{branch} gets gains of one in place of {norm}.weight": torch.ones_like(gain),
        f"{branch} gets the gains of {other}, must get those of {norm}": others,
        f"{norm}.weight is applied twice in front of {branch}": gain * gain,
    }
    for text, gains in explained.items():
        right = added(reference(), **{norm: gains})
        if read is not None and right is not None and not differ(read, right, 5 * ROUNDING):
            return Reading(text, where)
    return None


def _order(subject: Subject, name: str, tokens: Tensor) -> Reading | None:
    """Whether the feed-forward sees what attention added."""
    small = tokens.clone()
    small[:, :-1] *= 0.01
    both, attention, feed_forward = (
        _stream(subject, name, small, **off) for off in ({}, NO_FEED_FORWARD, NO_ATTENTION)
    )
    right = _stream(reference(), name, small)
    if both is None or attention is None or feed_forward is None or right is None or not differ(both, right, 1e-4):
        return None
    exact = small.to(torch.float64)
    alone, after = feed_forward - exact, both - attention
    if not differ(after, alone, 1e-3):
        return Reading(
            "the feed-forward reads the stream in front of attention, must read the one behind it", Place.RESIDUAL
        )
    return None


# The model around its layers


def read_layer_order(subject: Subject, name: str) -> Reading | None:
    """Which layer comes when: each layer adds one to a counter, and writes what the counter was into a channel.

    The counter is kept by the feed-forwards, then by the attentions; only what both say is true of the layers.
    """
    for layers in (3, 11):
        shape = SHAPE.replace(num_layers=layers)
        counted = {
            "feed-forward": _counted(subject, name, shape, [_counting_feed_forward(shape, n) for n in range(layers)]),
            "attention": _counted(subject, name, shape, [_counting_attention(shape, n) for n in range(layers)]),
        }
        found = {what: None if seen is None else _order_of_layers(*seen, "layer") for what, seen in counted.items()}
        if found["feed-forward"] == found["attention"]:
            if found["attention"] is not None:
                return found["attention"]
            continue
        for what, seen in counted.items():
            if seen is not None and found[what] is not None:
                return _order_of_layers(*seen, f"{what} sublayer")
    return None


PRIVATE, COUNTER = SHAPE.d_model - 1, SHAPE.d_model - 2
"""The channel that the norm's divisor comes from, and the one that counts."""

UNIT = 0.001 * SIZE
"""One on the counter: so small that it leaves the norm as it is."""


def _counted(
    subject: Subject, name: str, shape: DecoderShape, made: list[dict[str, Tensor]]
) -> tuple[list[float], float] | None:
    """What the counter was when each layer ran, and how often any ran."""
    token = torch.zeros(1, shape.d_model)  # one token: attention hands its value over
    token[0, PRIVATE], token[0, COUNTER] = SIZE, UNIT
    stream = stream_of(subject, name, shape, made, token)
    if stream is None:
        return None
    return (stream[0, : shape.num_layers] / UNIT).tolist(), float(stream[0, COUNTER] / UNIT) - 1


def _counting_feed_forward(shape: DecoderShape, layer: int) -> dict[str, Tensor]:
    root, gate = shape.d_model**0.5, float(torch.nn.functional.silu(torch.tensor(10.0)))
    w1, w2, w3 = (torch.zeros(size) for size in ((64, 24), (24, 64), (64, 24)))
    w1[:2, PRIVATE] = 10 / root
    w3[0, COUNTER], w3[1, PRIVATE] = 1 / root, 1 / root
    w2[layer, 0], w2[COUNTER, 1] = SIZE / gate, UNIT / gate
    return layer_weights(shape, ffn__w1=w1, ffn__w2=w2, ffn__w3=w3)


def _counting_attention(shape: DecoderShape, layer: int) -> dict[str, Tensor]:
    """Every head does the same, so that it does not matter which head is where."""
    root, heads = shape.d_model**0.5, range(0, shape.d_model, shape.d_model // shape.num_heads)
    values, back = (torch.zeros(shape.d_model, shape.d_model) for _ in range(2))
    for first in heads:
        values[first, COUNTER], values[first + 1, PRIVATE] = 1 / root, 1 / root
        back[layer, first], back[COUNTER, first + 1] = SIZE / len(heads), UNIT / len(heads)
    return layer_weights(shape, attn__v_proj=values, attn__output_proj=back)


def _order_of_layers(counted: list[float], ran: float, what: str) -> Reading | None:
    layers = len(counted)
    if all(abs(count - (layer + 1)) < 0.3 for layer, count in enumerate(counted)) and abs(ran - layers) < 0.3:
        return None
    if any(abs(count - round(count)) > 0.15 for count in (*counted, ran)) or not 0 <= ran < 3 * layers:
        return None
    absent = [layer for layer, count in enumerate(counted) if count < 0.5]
    if len(absent) == layers:  # nothing that any of them adds arrives: no matter of the layers
        return None
    if absent:
        used = [layer for layer in range(layers) if layer not in absent]
        text = f"of {layers} {what}s, {what} {', '.join(map(str, absent))} is never used"
        twice = f"; {round(ran)} run, with the weights of {what} {', '.join(map(str, used))}" if used else ""
        return Reading(text + twice, Place.LAYERS)
    ranks = [round(count) for count in counted]
    if sorted(ranks) == list(range(1, layers + 1)):
        order = [ranks.index(rank + 1) for rank in range(layers)]
        return Reading(
            f"the {what}s run in the order {', '.join(map(str, order))}, must run in the order 0 to {layers - 1}",
            Place.LAYERS,
        )
    return Reading(f"of {layers} {what}s, {number(ran)} {what} runs were counted, must be {layers}", Place.LAYERS)


def read_ends(subject: Subject, name: str) -> Reading | None:
    """Embedding, final norm and head of a model whose sublayers all add zeros."""
    shape = SHAPE
    zeros = layer_weights(shape)
    weights = make_weights(shape, 23)
    ids = torch.arange(shape.vocab_size)[:, None][:12].T.repeat(2, 1)

    def logits(who: Subject, **changed: Tensor) -> Tensor | None:
        given = {name: weights[name] for name in ("token_embeddings.weight", "ln_final.weight", "lm_head.weight")}
        given["token_embeddings.weight"] = 50 * given["token_embeddings.weight"]
        given |= {f"layers.0.{key}": weight for key, weight in zeros.items()}
        given |= {key + ".weight": weight for key, weight in changed.items()}
        return logits_of(who, name, shape, given, ids)

    read, right = logits(subject), logits(reference())
    moved = _places(subject, name)
    if moved is not None or read is None or right is None or not differ(read, right):
        return moved
    found = _one_matrix(logits, subject) or _logits(read, right) or _end(read) or _head(logits, subject)
    found = found or _final_norm(subject, name) or _embedding(subject, name)
    return found or UNREADABLE


UNREADABLE = Reading("embedding, final norm or head are wrong already", Place.POST_PROCESSING, vague=True)
"""Nothing behind it can be read: every other reading of a model goes through the head."""


def _logits(read: Tensor, right: Tensor) -> Reading | None:
    scale = factor(read, right)
    if scale is not None:
        return Reading(f"every logit is {number(scale)} times what it must be", Place.HEAD)
    moved = read - right
    wrong = (moved.abs() > ROUNDING * right.abs().max()).flatten(0, 1)
    if bool((wrong == wrong[:1]).all()) and int(wrong[0].sum()) <= 3 and right.shape[-1] > 6:
        tokens = wrong[0].nonzero().flatten().tolist()
        first = read[..., tokens[0]].flatten()
        value = number(float(first[0])) + (
            " at every position" if not differ(first, first[:1].expand_as(first)) else ""
        )
        text = f"the logit of token {span(tokens)} is wrong ({value}), those of all other tokens are right"
        return Reading(text, Place.POST_PROCESSING)
    if not differ(moved, moved[:1, :1, :1].expand_as(moved), 1e-2):
        return Reading(f"{number(float(moved[0, 0, 0]))} is added to every logit", Place.POST_PROCESSING)
    if not differ(moved, moved[:1, :1].expand_as(moved), 1e-2):
        return Reading("the same numbers are added to the logits of every position: the head has a bias", Place.HEAD)
    if not differ(moved, moved[..., :1].expand_as(moved), 1e-2):
        return Reading(
            f"all logits of a position are moved by one number ({number(float(moved[0, 0, 0]))} at position 0)",
            Place.POST_PROCESSING,
        )
    by_token = _by_token(read, right)
    if by_token is not None:
        return by_token
    kept = (moved.abs() <= ROUNDING * right.abs().max()).sum(-1)
    if bool((kept > 0).all()) and int(kept.max()) < right.shape[-1] and bool((kept == kept[0, 0]).all()):
        other = float(read[moved.abs() > ROUNDING * float(right.abs().max())][0])
        few, all_of_them = int(kept[0, 0]), right.shape[-1]
        text = f"{few} logits of each position are right, the other {all_of_them - few} are not"
        return Reading(f"{text}: one is {number(other)}", Place.POST_PROCESSING)
    return None


def read_layer_shares(subject: Subject, name: str) -> Reading | None:
    """How much of what each layer adds reaches the end, beside the embedding."""
    layers = 3
    shape = SHAPE.replace(num_layers=layers)
    made = [_writing_feed_forward(shape, layer) for layer in range(layers)]
    token = torch.zeros(1, shape.d_model)
    token[0, PRIVATE] = SIZE
    stream = stream_of(subject, name, shape, made, token)
    if stream is None:
        return None
    shares = stream[0, :layers] / UNIT
    right = torch.ones_like(shares)
    if not differ(shares, shares[:1].expand_as(shares)):  # all alike: no matter of the layers
        return None
    first = int(((shares - 1).abs() > ROUNDING).nonzero()[0])
    text = f"of {layers} layers, what layer {first} adds is {number(float(shares[first]))} times what it must be"
    falling = torch.tensor([(layers - layer) / layers for layer in range(layers)], dtype=torch.float64)
    cause = ": as when the mean or the sum of all layers' outputs goes on, not the last one" * (
        not differ(shares, falling)
    )
    lines = table("layer", range(layers), right.tolist(), shares.tolist())
    return Reading(f"{text}, beside the embedding{cause}", Place.LAYERS, lines)


def _writing_feed_forward(shape: DecoderShape, layer: int) -> dict[str, Tensor]:
    """Adds one unit to the layer's own channel."""
    root, gate = shape.d_model**0.5, float(torch.nn.functional.silu(torch.tensor(10.0)))
    w1, w2, w3 = (torch.zeros(size) for size in ((64, 24), (24, 64), (64, 24)))
    w1[0, PRIVATE], w3[0, PRIVATE], w2[layer, 0] = 10 / root, 1 / root, UNIT / gate
    return layer_weights(shape, ffn__w1=w1, ffn__w2=w2, ffn__w3=w3)


def _by_token(read: Tensor, right: Tensor) -> Reading | None:
    """The logits of each token multiplied by a number of its own."""
    times = (read * right).sum((0, 1)) / right.square().sum((0, 1))
    if differ(read, times * right, 1e-3):
        return None
    lengths = 1 / make_weights(SHAPE, 23)["lm_head.weight"].to(torch.float64).norm(dim=-1)
    cause = ": that is 1 / the length of the token's row of lm_head.weight" * (not differ(times, lengths))
    text = f"the logit of token 0 is {number(float(times[0]))} times what it must be, that of token 1"
    return Reading(f"{text} {number(float(times[1]))} times, and so on{cause}", Place.HEAD)


PLACES: dict[str, Callable[[list[int]], list[int]]] = {
    "each position has those of the position before": lambda ids: [max(t - 1, 0) for t in range(len(ids))],
    "each position has those of the position before, the first those of the last": lambda ids: [
        t - 1 if t else len(ids) - 1 for t in range(len(ids))
    ],
    "each position has those of the next": lambda ids: [min(t + 1, len(ids) - 1) for t in range(len(ids))],
    "each position has those of the next, the last those of the first": lambda ids: [
        (t + 1) % len(ids) for t in range(len(ids))
    ],
    "the positions are reversed": lambda ids: list(range(len(ids)))[::-1],
    "the positions are sorted by token id": lambda ids: sorted(range(len(ids)), key=ids.__getitem__),
    "every position has those of the last": lambda ids: [len(ids) - 1] * len(ids),
    "every position has those of the first": lambda ids: [0] * len(ids),
}
"""Whose logits may stand at each position, by the token ids."""


def _places(subject: Subject, name: str) -> Reading | None:
    """Whether a position has another one's logits; no two tokens are alike, and the sublayers add nothing."""
    ids = [7, 2, 19, 0, 11, 5]
    weights = {"layers.0." + key: weight for key, weight in layer_weights(SHAPE).items()}
    ends = ("token_embeddings.weight", "ln_final.weight", "lm_head.weight")
    weights |= {key: weight for key, weight in make_weights(SHAPE, 23).items() if key in ends}
    given = torch.tensor([ids, ids])
    read, right = (logits_of(who, name, SHAPE, weights, given) for who in (subject, reference()))
    if read is None or right is None:
        return None
    apart = torch.cdist(read[0], right[0])
    nearest = apart.argmin(1).tolist()
    if nearest == list(range(len(ids))) or differ(read[0], right[0, nearest]):
        return None
    rule = next((rule for rule, of in PLACES.items() if of(ids) == nearest), None)
    text = f"of the logits, position {next(t for t, s in enumerate(nearest) if s != t)} has those that belong to"
    text += f" position {next(s for t, s in enumerate(nearest) if s != t)}" + (f": {rule}" if rule else "")
    lines = table("position", range(len(ids)), range(len(ids)), nearest)
    return Reading(text, Place.POST_PROCESSING, lines)


def _end(read: Tensor) -> Reading | None:
    """What the head reads where the sublayers add nothing, x being the embedding: logits (B, T, V)."""
    weights = {name: weight.to(torch.float64) for name, weight in make_weights(SHAPE, 23).items()}
    x = 50 * weights["token_embeddings.weight"][: read.shape[1]]
    gain, head = weights["ln_final.weight"], weights["lm_head.weight"]

    def ln_final(stream: Tensor) -> Tensor:
        return stream / (stream.square().mean(-1, keepdim=True) + 1e-5).sqrt() * gain

    forms = {
        "x": x,
        "ln_final(x) + x": ln_final(x) + x,
        "ln_final(ln_final(x))": ln_final(ln_final(x)),
        "ln_final(x) + ln_final(x)": 2 * ln_final(x),
        "ln_final(ln_final(x) + x)": ln_final(ln_final(x) + x),
        "ln_final(x) - x": ln_final(x) - x,
    }
    for form, stream in forms.items():
        if not differ(read, (stream @ head.T).expand_as(read)):
            text = f"where x is what the last layer leaves, the head reads {form}, must read ln_final(x)"
            return Reading(text, Place.FINAL_NORM)
    return None


def _one_matrix(logits: Callable[..., Tensor | None], subject: Subject) -> Reading | None:
    """Whether an untied model uses one vocabulary matrix for both: the one that was loaded last."""
    read, weights = logits(subject), make_weights(SHAPE, 23)
    table, head = weights["token_embeddings.weight"], weights["lm_head.weight"]
    for lost, used, right in (
        ("token_embeddings.weight", "lm_head.weight", logits(reference(), token_embeddings=head)),
        ("lm_head.weight", "token_embeddings.weight", logits(reference(), lm_head=50 * table)),
    ):
        if read is not None and right is not None and not differ(read, right):
            text = f"{lost} has no effect, {used} is used in its place: embedding and head are one Parameter"
            return Reading(f"{text}, must be two where the model is not tied", Place.TYING)
    return None


def _head(logits: Callable[..., Tensor | None], subject: Subject) -> Reading | None:
    read = logits(subject)
    gain = make_weights(SHAPE, 23)["ln_final.weight"]
    explained = {
        "ln_final.weight is applied twice": gain * gain,
        "ln_final.weight has no effect: gains of one are used": torch.ones_like(gain),
        "ln_final.weight acts as 1 + ln_final.weight": 1 + gain,
    }
    for text, gains in explained.items():
        right = logits(reference(), ln_final=gains)
        if read is not None and right is not None and not differ(read, right):
            return Reading(text, Place.FINAL_NORM)
    return None


def _final_norm(subject: Subject, name: str) -> Reading | None:
    """Whether the size of the embedding reaches the logits."""
    tokens = 0.5 * SIZE * normal(SHAPE.vocab_size, SHAPE.d_model, seed=24)
    ids = torch.arange(4)[None].repeat(2, 1)
    once, ten_times = (
        logits_of(subject, name, SHAPE, model_weights(SHAPE, [layer_weights(SHAPE)], size * tokens), ids)
        for size in (1, 10)
    )
    if once is None or ten_times is None or differ(ten_times, 10 * once, 0.1):
        return None
    return Reading(
        "a stream 10 times larger gives logits 10 times larger, must leave them as they are: there is no final norm",
        Place.FINAL_NORM,
    )


def _embedding(subject: Subject, name: str) -> Reading | None:
    """Which row each token gets, off a model whose head is the identity."""
    tokens = 0.5 * SIZE * normal(SHAPE.vocab_size, SHAPE.d_model, seed=24)
    tokens[:, -1] = SIZE
    ids = torch.arange(SHAPE.vocab_size)[:, None]
    logits = logits_of(subject, name, SHAPE, model_weights(SHAPE, [layer_weights(SHAPE)], tokens), ids)
    if logits is None:
        return None
    read, exact = logits[:, 0, : SHAPE.d_model], tokens.to(torch.float64)
    size = read.square().mean(-1, keepdim=True).sqrt().clamp_min(1e-9)
    unit = exact / exact.square().mean(-1, keepdim=True).sqrt()
    return rows_of_tokens(read / size, unit)
