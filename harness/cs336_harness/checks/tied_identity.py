"""Tied identity through what is done to a model: state dicts, copies, dtypes, files, the meta device."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from cs336_harness.checks.comparing import taught
from cs336_harness.checks.registry import check
from cs336_harness.checks.tying import EMBEDDING, HEAD, TIED, build_tied, require_both_uses, require_one
from cs336_harness.subject.built_models import ASSEMBLY, BuiltModel, build, live_parameters
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure

WITHOUT_FLOAT64 = ("mps",)
"""Kinds of devices that hold no float64."""

AFTER = ["tying.one_parameter", "tying.both_uses"]


def _again(model: BuiltModel, module: nn.Module) -> BuiltModel:
    """The model as it is after something was done to it: its Parameters are asked for anew."""
    return BuiltModel(model.subject, TIED, module, live_parameters(model.subject, TIED, module))


def _require_values(model: BuiltModel, source: BuiltModel, after: str) -> None:
    for name, parameter in source.parameters.items():
        if not torch.equal(parameter, model.parameters[name]):
            raise CheckFailure(f"{after}, {name} does not have the values that were loaded", model.evidence())


def _loaded(subject: Subject, after: str, load: Callable[[nn.Module, dict[str, Tensor]], Any]) -> BuiltModel:
    """A second tied model into which the first one's state dict was loaded."""
    source, target = build_tied(subject), build(subject, TIED)
    state = source.module.state_dict()
    subject.run(after.removeprefix("after "), lambda: load(target.module, state), evidence=target.evidence())
    model = _again(target, target.module)
    require_one(model, after)
    _require_values(model, source, after)
    return model


@check("tying.load_state_dict", task="transformer_lm", needs=ASSEMBLY, after=AFTER)
def load_state_dict(subject: Subject) -> None:
    """A tied model that loads its state dict is still tied, and has the values.

    Usually broken by a load that gives each name a Parameter of its own.
    """
    after = "after load_state_dict"
    model = _loaded(subject, after, lambda module, state: module.load_state_dict(state))
    require_both_uses(model, after)


@check("tying.deepcopy", task="transformer_lm", needs=ASSEMBLY, after=AFTER)
def deepcopy(subject: Subject) -> None:
    """A deep copy of a tied model is tied in itself, and shares nothing with the original.

    Usually broken by a ``__deepcopy__`` or a stored reference that leaves one of the two uses with the original.
    """
    original = build_tied(subject)
    copied = subject.run("copy.deepcopy", lambda: copy.deepcopy(original.module), evidence=original.evidence())
    model = _again(original, copied)
    after = "after copy.deepcopy"
    require_one(model, after)
    if model.parameters[EMBEDDING] is original.parameters[EMBEDDING]:
        raise CheckFailure(
            f"{after}, the copy's tied weight is still the original's; a correct copy has a Parameter of its own",
            model.evidence(),
        )
    require_both_uses(model, after)


@check("tying.safetensors", task="transformer_lm", needs=ASSEMBLY, after=["tying.load_state_dict"])
def safetensors_round_trip(subject: Subject) -> None:
    """A tied model comes back from a safetensors file tied. The file holds the shared matrix under one name.

    That is what ``safetensors.torch.save_model`` writes. Usually broken by a load that then leaves the other name as it
    was.
    """
    after = "after a round trip through safetensors"

    def load(module: nn.Module, state: dict[str, Tensor]) -> None:
        kept = {name: tensor.contiguous() for name, tensor in _one_name_each(state).items()}
        plain = {name: tensor for name, tensor in kept.items() if not tensor.is_complex()}
        read = safetensors.torch.load(safetensors.torch.save(plain))
        module.load_state_dict({**kept, **read}, strict=False)

    require_both_uses(_loaded(subject, after, load), after)


def _one_name_each(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The state dict with each storage under its first name in the alphabet, as safetensors keeps it."""
    seen: set[tuple[int, torch.Size]] = set()
    kept = {}
    for name in sorted(state):
        key = (state[name].data_ptr(), state[name].shape)
        if key not in seen or state[name].numel() == 0:
            kept[name] = state[name]
        seen.add(key)
    return kept


@check("tying.dtype", task="transformer_lm", needs=ASSEMBLY, after=AFTER)
def dtype(subject: Subject) -> None:
    """``model.to(torch.float64)`` and back leaves a tied model tied.

    Usually broken by a conversion that replaces one of the two names. A model on a device that holds no float64 is
    moved to the CPU for it, and back.
    """
    model = build_tied(subject)
    evidence = model.evidence()
    home = model.parameters[EMBEDDING].device
    moved = home.type in WITHOUT_FLOAT64
    if moved:
        module = subject.run('model.to("cpu")', lambda: model.module.to("cpu"), evidence=evidence)
        model = _again(model, module)
    for target in (torch.float64, torch.float32):
        module = subject.run("model.to(dtype)", functools.partial(model.module.to, target), evidence=evidence)
        model = _again(model, module)
        short = str(target).removeprefix("torch.")
        require_one(model, f"after .to(torch.{short})")
        for name in (EMBEDDING, HEAD):
            if model.parameters[name].dtype != target:
                got = str(model.parameters[name].dtype).removeprefix("torch.")
                raise CheckFailure(f"after .to(torch.{short}), {name} is {got}", evidence)
    if moved:
        module = subject.run("model.to(device)", functools.partial(model.module.to, home), evidence=evidence)
        model = _again(model, module)
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
    after = "after load_state_dict(assign=True)"

    def load(module: nn.Module, state: dict[str, Tensor]) -> None:
        separate = {name: tensor.clone() for name, tensor in state.items()}
        module.load_state_dict(separate, assign=True)

    with taught(BY_ASSIGNMENT):
        require_both_uses(_loaded(subject, after, load), after)


@check("tying.load_one_name", task="transformer_lm", needs=ASSEMBLY, after=["tying.load_state_dict"], advisory=True)
def load_one_name(subject: Subject) -> None:
    """A tied model loads from a state dict that holds the shared matrix under one of its names, either of them.

    Checkpoints often leave the tied head out.
    """
    source = build_tied(subject)
    state = source.module.state_dict()
    shared = source.parameters[EMBEDDING].data_ptr()
    names = [name for name, tensor in state.items() if tensor.data_ptr() == shared]
    for name in names:
        after = f"after load_state_dict with {name} alone of the two vocabulary names"

        def load(module: nn.Module, state: dict[str, Tensor], name: str = name) -> None:
            module.load_state_dict({key: state[key] for key in state if key == name or key not in names})

        with taught(BY_ASSIGNMENT):
            require_both_uses(_loaded(subject, after, load), after)


@check("tying.meta_to_empty", task="transformer_lm", needs=ASSEMBLY, after=["tying.one_parameter"], advisory=True)
def meta_to_empty(subject: Subject) -> None:
    """Still tied after being built on the meta device and brought to the CPU by ``to_empty``.

    That is how large models are made without memory for two copies; each name gets memory of its own there.
    """

    with taught(BY_ASSIGNMENT):
        with torch.device("meta"):
            model = build(subject, TIED)
        require_one(model, "on the meta device")
        evidence = model.evidence()
        module = subject.run("model.to_empty", lambda: _to_empty(model.module), evidence=evidence)
        require_one(_again(model, module), "after to_empty from the meta device")


def _to_empty(module: nn.Module) -> nn.Module:
    """``module.to_empty(device="cpu")``. PyTorch's own goes by ``empty_like``, which imports sympy on meta."""
    if type(module).to_empty is not nn.Module.to_empty:
        return module.to_empty(device="cpu")
    return module._apply(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu"))
