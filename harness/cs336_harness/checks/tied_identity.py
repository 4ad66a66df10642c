"""Tied identity through what is done to a model: state dicts, copies, dtypes, files, the meta device."""

from __future__ import annotations

import torch
from torch import Tensor

from cs336_harness.checks.comparing import taught
from cs336_harness.checks.registry import check, float32_alone
from cs336_harness.checks.tying import EMBEDDING, HEAD, build_tied, require_both_uses, require_one, tied_shape
from cs336_harness.subject.built_models import ASSEMBLY, BuiltModel, Load, build
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure

WITHOUT_FLOAT64 = ("mps",)
"""Kinds of devices that hold no float64."""

AFTER = ["tying.one_parameter", "tying.both_uses"]


def _require_values(model: BuiltModel, wanted: dict[str, Tensor], after: str) -> None:
    weights = model.weights()
    for name, weight in wanted.items():
        if not torch.equal(weight, weights[name]):
            raise CheckFailure(f"{after}, {name} does not have the values that were loaded", model.evidence())


def _require_still_tied_when_loaded(subject: Subject, how: Load) -> None:
    """A second tied model into which the first one's state dict is loaded has its values, and both uses follow."""
    source, target = build_tied(subject), build(subject, tied_shape())
    wanted = source.weights()
    after = f"after {target.load_state_of(source, how)}"
    require_one(target, after)
    _require_values(target, wanted, after)
    require_both_uses(target, after)


@check("tying.load_state_dict", task="transformer_lm", needs=ASSEMBLY, after=AFTER)
def load_state_dict(subject: Subject) -> None:
    """A tied model that loads its state dict is still tied, and has the values.

    Usually broken by a load that gives each name a Parameter of its own.
    """
    _require_still_tied_when_loaded(subject, "load_state_dict")


@check("tying.deepcopy", task="transformer_lm", needs=ASSEMBLY, after=AFTER)
def deepcopy(subject: Subject) -> None:
    """A deep copy of a tied model is tied in itself, and shares nothing with the original.

    Usually broken by a ``__deepcopy__`` or a stored reference that leaves one of the two uses with the original.
    """
    original = build_tied(subject)
    before = original.weights()
    model, after = original.deepcopy(), "after copy.deepcopy"
    require_one(model, after)
    _require_values(model, before, after)
    model.load({EMBEDDING: before[EMBEDDING] + 1})
    if not torch.equal(original.weights()[EMBEDDING], before[EMBEDDING]):
        raise CheckFailure(
            f"{after}, the copy's tied weight is still the original's; a correct copy has a Parameter of its own",
            model.evidence(),
        )
    require_both_uses(model, after)


@check("tying.pickle", task="transformer_lm", needs=ASSEMBLY, after=["tying.deepcopy"])
def pickle_round_trip(subject: Subject) -> None:
    """A tied model that goes through pickle, as ``torch.save(model)`` does, is still tied. One that cannot is skipped.

    Usually broken by a ``__getstate__`` or ``__setstate__`` that keeps each name by itself, or by a reference outside
    of the module that pickle does not follow.
    """
    model, after = build_tied(subject), "after a round trip through pickle"
    before = model.weights()
    try:
        copied = model.pickled()
    except CheckFailure as failure:
        if failure.__cause__ is not None:
            return  # a lambda or a class inside a function: it says so at once, and a state dict is the better way
        raise
    require_one(copied, after)
    _require_values(copied, before, after)
    require_both_uses(copied, after)


@check("tying.safetensors", task="transformer_lm", needs=ASSEMBLY, after=["tying.load_state_dict"])
def safetensors_round_trip(subject: Subject) -> None:
    """A tied model comes back from a safetensors file tied. The file holds the shared matrix under one name.

    That is what ``safetensors.torch.save_model`` writes. Usually broken by a load that then leaves the other name as it
    was.
    """
    _require_still_tied_when_loaded(subject, "safetensors")


@check(
    "tying.dtype",
    task="transformer_lm",
    needs=ASSEMBLY,
    after=AFTER,
    not_in=float32_alone("it goes from float32 to float64 and back"),
)
def dtype(subject: Subject) -> None:
    """``model.to(torch.float64)`` and back leaves a tied model tied.

    Usually broken by a conversion that replaces one of the two names. A model on a device that holds no float64 is
    moved to the CPU for it, and back.
    """
    model = build_tied(subject)
    home = model.device
    moved = home.type in WITHOUT_FLOAT64
    if moved:
        model = model.moved("cpu")
    for target in (torch.float64, torch.float32):
        model = model.cast(target)
        short = str(target).removeprefix("torch.")
        require_one(model, f"after .to(torch.{short})")
        weights = model.weights()
        for name in (EMBEDDING, HEAD):
            if weights[name].dtype != target:
                got = str(weights[name].dtype).removeprefix("torch.")
                raise CheckFailure(f"after .to(torch.{short}), {name} is {got}", model.evidence())
    if moved:
        model = model.moved(str(home))
    require_both_uses(model, "after .to(torch.float64) and back")


BY_ASSIGNMENT = (
    "PyTorch itself takes a model apart here that was tied by assignment (head.weight = embedding.weight);"
    " a model whose head owns no weight, and computes h @ E^T with the embedding, stays whole"
)


@check("tying.load_with_assign", task="transformer_lm", needs=ASSEMBLY, after=["tying.load_state_dict"], advisory=True)
def load_with_assign(subject: Subject) -> None:
    """Still tied after ``load_state_dict(state, assign=True)``, which puts a new Parameter under each name.

    A state dict from a file has two tensors for the two names, and so two Parameters come of it.
    """
    with taught(BY_ASSIGNMENT):
        _require_still_tied_when_loaded(subject, "assign")


@check("tying.load_one_name", task="transformer_lm", needs=ASSEMBLY, after=["tying.load_state_dict"], advisory=True)
def load_one_name(subject: Subject) -> None:
    """A tied model loads from a state dict that holds the shared matrix under one of its names, either of them.

    Checkpoints often leave the tied head out.
    """
    for how in build_tied(subject).ways_to_load_one_name():
        with taught(BY_ASSIGNMENT):
            _require_still_tied_when_loaded(subject, how)


@check("tying.meta_to_empty", task="transformer_lm", needs=ASSEMBLY, after=["tying.one_parameter"], advisory=True)
def meta_to_empty(subject: Subject) -> None:
    """Still tied when it goes over the meta device to the CPU by ``to_empty``; each name gets memory of its own there.

    That is how large models are made without memory for two copies.
    """
    with taught(BY_ASSIGNMENT):
        model = build(subject, tied_shape(), device="meta")
        require_one(model, "on the meta device")
        require_one(model.to_empty(), "after to_empty from the meta device")
