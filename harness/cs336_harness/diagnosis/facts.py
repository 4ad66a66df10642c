"""Experiments that are a few lines of code: what a built model is, what it refuses, what the closed forms give.

Each is kept as the text that a learner can paste, and run from that text, so that what is shown is what was tried.
"""

from __future__ import annotations

import functools
from typing import Any

from cs336_harness.contract import ENTRY_POINTS, FLOP_TERMS
from cs336_harness.defects import Place
from cs336_harness.diagnosis.observing import Experiment
from cs336_harness.diagnosis.snippets import model_code
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import AbsentEntryPoint

SIZES = (
    "sizes = dict(vocab_size=13, context_length=6, d_model=12, num_layers=1,",
    "             num_heads=3, num_kv_heads=3, d_ff=64)",
)
BUILD = (
    *SIZES,
    "sizes |= dict(rope_theta=100.0, tie_embeddings={tied})",
    "model = get_transformer_lm(**sizes)",
    "weights = get_transformer_lm_weights(model)",
)
FILL = (
    "torch.manual_seed(0)",
    "with torch.no_grad():",
    "    for name in sorted(weights):",
    "        weights[name].copy_(torch.rand(weights[name].shape) - 0.3)",
)
TOKENS = "tokens = torch.tensor([[1, 7, 4, 0]])"
LOSS = "(model(tokens) * torch.arange(13).cos()).sum().backward()"


def entry_points_of(code: tuple[str, ...]) -> list[str]:
    """The entry points that a piece of code calls."""
    text = "\n".join(code)
    return [name for name in ENTRY_POINTS if f"{name}(" in text]


def fact(name: str, what: str, place: Place, *code: str) -> Experiment:
    """An experiment from its text; the last line is the expression that is looked at."""
    needed = entry_points_of(code)

    def run(subject: Subject) -> Any:
        for entry_point in needed:
            if subject.state(entry_point) != "filled":
                raise AbsentEntryPoint(entry_point, subject.name)
        return subject.evaluate(name, code, needed)

    return Experiment(name, what, run, place, code=code)


def _built(tied: bool) -> tuple[str, ...]:
    return tuple(line.format(tied=tied) for line in BUILD)


ONE_OBJECT = 'weights["lm_head.weight"] is weights["token_embeddings.weight"]'
BOTH = ('table = weights["token_embeddings.weight"]', 'head = weights["lm_head.weight"]')
COUNT = "sum(weight.numel() for weight in model.parameters())"
AGAIN = (
    "weights = get_transformer_lm_weights(model)",
    "with torch.no_grad():",
    '    weights["token_embeddings.weight"].mul_(2)',
    "model(tokens)",
)


@functools.cache
def tying() -> tuple[Experiment, ...]:
    """What the two vocabulary weights are, tied and untied, and what becomes of them."""
    here = Place.TYING
    tied, untied = _built(True), _built(False)
    filled = (*tied, *FILL, TOKENS)
    look = ("weights = get_transformer_lm_weights(model)", ONE_OBJECT)
    return (
        fact("tied: one object", "in whether tied weights are one object", here, *tied, ONE_OBJECT),
        fact("untied: two objects", "in whether untied weights are two objects", here, *untied, ONE_OBJECT),
        fact(
            "tied: one storage",
            "in whether tied weights share memory",
            here,
            *tied,
            *BOTH,
            "table.data_ptr() == head.data_ptr()",
        ),
        fact(
            "tied: equal at first",
            "in whether tied weights begin equal",
            here,
            *tied,
            *BOTH,
            "torch.equal(table, head)",
        ),
        fact("tied: count", "in how many parameters a tied model owns", here, *tied, COUNT),
        fact("untied: count", "in how many parameters an untied model owns", here, *untied, COUNT),
        fact("tied: logits", "in the logits of a tied model", here, *filled, "model(tokens)"),
        fact("untied: logits", "in the logits of an untied model", here, *untied, *FILL, TOKENS, "model(tokens)"),
        fact(
            "tied: gradient",
            "in the shared weight's gradient",
            here,
            *filled,
            LOSS,
            'weights["token_embeddings.weight"].grad',
        ),
        fact(
            "tied: step",
            "after an optimiser step",
            here,
            *filled,
            LOSS,
            "with torch.no_grad():",
            "    for weight in model.parameters():",
            "        weight.sub_(0.001 * weight.grad if weight.grad is not None else 0)",
            "model(tokens)",
        ),
        fact("tied: load", "after load_state_dict", here, *filled, "model.load_state_dict(model.state_dict())", *look),
        fact(
            "tied: deepcopy", "after copy.deepcopy", here, *filled, "import copy", "model = copy.deepcopy(model)", *look
        ),
        fact("tied: dtype", "after .to(torch.float64)", here, *filled, "model = model.to(torch.float64)", *look),
        fact(
            "tied: deepcopy, changed",
            "after copy.deepcopy and a change",
            here,
            *filled,
            "import copy",
            "model = copy.deepcopy(model)",
            *AGAIN,
        ),
    )


@functools.cache
def gradients() -> tuple[Experiment, ...]:
    """The gradients of a built model."""
    return tuple(
        fact(
            f"untied: gradient of {name}",
            f"in the gradient of {name}",
            Place.CONFIGURATION,
            *_built(False),
            *FILL,
            TOKENS,
            LOSS,
            f'weights["{name}"].grad',
        )
        for name in ("token_embeddings.weight", "layers.0.attn.q_proj.weight", "layers.0.ffn.w1.weight")
    )


def _refusal(name: str, what: str, changes: str) -> Experiment:
    return fact(
        name,
        f"in what happens with {what}",
        Place.CONFIGURATION,
        *SIZES,
        f"sizes |= dict({changes})",
        "sizes |= dict(rope_theta=100.0, tie_embeddings=False)",
        "try:",
        "    get_transformer_lm(**sizes)",
        '    result = "accepted"',
        "except Exception as error:",
        "    result = type(error).__name__",
        "result",
    )


def _length(name: str, what: str, time: int) -> Experiment:
    return fact(
        name,
        f"in what happens with {what}",
        Place.CONFIGURATION,
        *_built(False),
        "try:",
        f"    result = tuple(model(torch.ones(1, {time}, dtype=torch.int64)).shape)",
        "except Exception as error:",
        "    result = type(error).__name__",
        "result",
    )


@functools.cache
def configuration() -> tuple[Experiment, ...]:
    """What each size does, and which sizes are refused."""
    here = Place.CONFIGURATION
    sizes = (
        "sizes |= dict(d_model=24, num_heads=6, num_kv_heads=2)",
        "sizes |= dict(d_ff=40, num_layers=2, vocab_size=101)",
    )
    made = (
        *SIZES,
        *sizes,
        "sizes |= dict(rope_theta=100.0, tie_embeddings=False)",
        "model = get_transformer_lm(**sizes)",
        "weights = get_transformer_lm_weights(model)",
    )
    looked_at = ("token_embeddings.weight", "layers.1.attn.k_proj.weight", "layers.1.ffn.w1.weight", "lm_head.weight")
    return (
        *(fact(name, f"in the size of {name}", here, *made, f'tuple(weights["{name}"].shape)') for name in looked_at),
        fact("names", "in how many weights there are", here, *made, "len(weights)"),
        fact(
            "live",
            "in whether the weights that are returned are the model's own",
            here,
            *_built(False),
            "with torch.no_grad():",
            '    weights["lm_head.weight"].zero_()',
            "model(torch.ones(1, 2, dtype=torch.int64)).abs().max().item()",
        ),
        fact(
            "dtype",
            "in the dtype of the logits",
            here,
            *_built(False),
            "model(torch.ones(1, 2, dtype=torch.int64)).dtype",
        ),
        fact(
            "theta",
            "in whether rope_theta changes anything",
            here,
            *SIZES,
            "sizes |= dict(tie_embeddings=False)",
            "results = []",
            "for theta in (100.0, 10000.0):",
            "    model = get_transformer_lm(**sizes, rope_theta=theta)",
            "    weights = get_transformer_lm_weights(model)",
            *(f"    {line}" for line in FILL),
            "    results.append(model(torch.tensor([[1, 7, 4, 0]])))",
            "torch.equal(*results)",
        ),
        _refusal("heads", "a d_model of 10 and 3 heads", "d_model=10"),
        _refusal("kv heads", "6 heads over 4", "num_heads=6, num_kv_heads=4"),
        _refusal("odd heads", "a head of 5 channels", "d_model=15"),
        _refusal("zero layers", "no layers", "num_layers=0"),
        _refusal("zero vocabulary", "an empty vocabulary", "vocab_size=0"),
        _refusal("negative width", "a negative d_ff", "d_ff=-64"),
        _refusal("huge", "a huge model of sizes that do not fit", "vocab_size=10**12, d_model=10**6 + 1"),
        _length("full", "an input that fills the context", 6),
        _length("longer", "an input one longer than the context", 7),
    )


CALL = model_code(1, 3, 1, 1)
"""Up to the token ids, then five lines: the call in four, and its result."""
SECOND_INPUT = fact(
    "get_transformer_lm: second input",
    "for a second input of the same shape",
    Place.INFORMATION_FLOW,
    *_built(False),
    *FILL,
    "with torch.no_grad():",
    "    model(torch.tensor([[1, 7, 4, 0]]))",
    "    logits = model(torch.tensor([[2, 2, 9, 5]]))",
    "logits",
)

MODEL_SIDE_EFFECTS = (
    SECOND_INPUT,
    fact(
        "run_transformer_lm: weights untouched",
        "in which weights it leaves other than it found them",
        Place.INFORMATION_FLOW,
        *CALL[:-5],
        "before = {name: weight.clone() for name, weight in weights.items()}",
        *CALL[-5:-1],
        "kept = {n for n, w in weights.items() if torch.equal(w, before[n])}",
        "sorted(set(before) - kept)",
    ),
    fact(
        "run_transformer_lm: ids untouched",
        "in whether the token ids are left as they were",
        Place.INFORMATION_FLOW,
        *CALL[:-1],
        "tokens.tolist()",
    ),
    fact(
        "run_transformer_lm: default dtype",
        "in the default dtype that it leaves behind",
        Place.INFORMATION_FLOW,
        *CALL[:-1],
        "torch.get_default_dtype()",
    ),
    fact(
        "run_transformer_lm: grad mode",
        "in whether gradients are still on behind it",
        Place.INFORMATION_FLOW,
        *CALL[:-1],
        "torch.is_grad_enabled()",
    ),
)

SOFTMAX_SIDE_EFFECTS = fact(
    "run_softmax: input untouched",
    "in whether its input is left as it was",
    Place.ATTENTION,
    "x = torch.tensor([[0.0, 1.0], [2.0, 5.0]])",
    "run_softmax(x, -1)",
    "x.tolist()",
)

SIDE_EFFECTS = (
    SECOND_INPUT,
    fact(
        "get_transformer_lm: train and eval",
        "in whether train and eval agree",
        Place.INFORMATION_FLOW,
        *_built(False),
        "tokens = torch.tensor([[1, 7, 4, 0]])",
        "torch.manual_seed(0)",
        "trained, evaluated = model.train()(tokens), model.eval()(tokens)",
        "torch.equal(trained, evaluated)",
    ),
    fact(
        "get_transformer_lm: random numbers",
        "in whether the forward draws random numbers",
        Place.INFORMATION_FLOW,
        *_built(False),
        "before = torch.get_rng_state()",
        "model(torch.ones(1, 4, dtype=torch.int64))",
        "torch.equal(before, torch.get_rng_state())",
    ),
    fact(
        "get_transformer_lm: ids untouched",
        "in whether the token ids are left as they were",
        Place.INFORMATION_FLOW,
        *_built(False),
        "tokens = torch.tensor([[1, 7, 4, 0]])",
        "model(tokens)",
        "tokens.tolist()",
    ),
)

COUNTED = "    vocab_size=101, d_model=48, num_layers=3,"


@functools.cache
def parameter_count() -> tuple[Experiment, ...]:
    """The closed form of parameters, with grouped heads and without, tied and untied."""
    return tuple(
        fact(
            f"run_parameter_count: {kv} key/value heads, {'tied' if tied else 'untied'}",
            f"for 6 heads over {kv}, {'tied' if tied else 'untied'}",
            Place.ACCOUNTING,
            "count = run_parameter_count(",
            COUNTED,
            f"    num_heads=6, num_kv_heads={kv}, d_ff=128, tie_embeddings={tied})",
            "count",
        )
        for kv in (6, 2)
        for tied in (False, True)
    )


@functools.cache
def forward_flops() -> tuple[Experiment, ...]:
    """The closed forms of FLOPs, term by term."""
    return tuple(
        fact(
            f"run_forward_flops: {term}, {kv} key/value heads",
            f"in {term} for 6 heads over {kv}",
            Place.ACCOUNTING,
            "flops = run_forward_flops(",
            "    batch_size=3, sequence_length=5,",
            COUNTED,
            f"    num_heads=6, num_kv_heads={kv}, d_ff=128)",
            f'int(flops["{term}"])',
        )
        for kv in (6, 2)
        for term in FLOP_TERMS
    )
