"""Public snapshots: inputs, weights and expected outputs as safetensors, made by the oracle from a recipe.

A recipe is a name, an entry point and a seeded function that makes the arguments; the file is what the recipe gave when
it was last written. Reading never recomputes anything; it checks the digest, so that a damaged or edited file is named
and not compared against.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from cs336_harness.places import FIXTURES, HOME
from cs336_harness.reference.oracle_adapters import OracleAdapters
from cs336_harness.reference.tolerance import rounding_noise
from cs336_harness.subject.failures import CannotJudgeError

PRODUCER = "cs336_harness.oracle, float64"
UPDATE = "uv run pytest --snapshot-update"


@dataclasses.dataclass(frozen=True, slots=True)
class Recipe:
    """How a snapshot is made. ``arguments`` are seeded; a dict argument may live in another file (``weights_file``)."""

    name: str
    entry_point: str
    arguments: Callable[[], dict[str, Any]]
    weights_file: str | None = None
    weights_prefix: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """One call with its expected result (float64) and the rounding noise of that result."""

    name: str
    entry_point: str
    arguments: dict[str, Any]
    expected: Tensor
    noise: float


class SnapshotError(CannotJudgeError):
    """A fixture is missing, damaged or edited. The text is one clear line that says what to do."""


def path_of(name: str) -> Path:
    """The file of a snapshot or a weights file."""
    return FIXTURES / f"{name}.safetensors"


def digest(tensors: dict[str, Tensor], metadata: dict[str, str]) -> str:
    """SHA-256 over every tensor's name, dtype, shape and bytes, and over the metadata (its own entry left out)."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    for key in sorted(metadata):
        if key != "digest":
            total.update(f"{key}={metadata[key]}\n".encode())
    return total.hexdigest()


def save(name: str, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Writes a fixture with its digest, through a temporary file: an interrupted write leaves the old one."""
    FIXTURES.mkdir(exist_ok=True)
    metadata = {**metadata, "digest": digest(tensors, metadata)}
    unfinished = path_of(name).with_suffix(".tmp")
    save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, unfinished, metadata)
    unfinished.chmod(0o644)
    unfinished.replace(path_of(name))


def load(name: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a fixture whose digest holds; :class:`SnapshotError` otherwise."""
    path = path_of(name)
    if not path.exists():
        raise SnapshotError(f"the snapshot fixtures/{path.name} is missing; {_remedy(f'write it with `{UPDATE}`')}")
    try:
        with safe_open(path, "pt") as file:
            metadata = dict(file.metadata() or {})
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no mapping)
    except (SafetensorError, OSError) as error:
        raise SnapshotError(f"fixtures/{path.name} is damaged ({error}); {_remedy('restore it with git')}") from None
    if metadata.get("digest") != digest(tensors, metadata):
        raise SnapshotError(
            f"fixtures/{path.name} does not match its own digest: it was damaged or edited;"
            f" {_remedy(f'restore it with git, or write it again with `{UPDATE}`')}"
        )
    return tensors, metadata


def _remedy(in_a_clone: str) -> str:
    return "install cs336-harness again" if HOME is None else in_a_clone


def read(name: str) -> Snapshot:
    """A snapshot from its file."""
    tensors, metadata = load(name)
    arguments: dict[str, Any] = json.loads(metadata["scalars"])
    arguments |= {key.removeprefix("in."): tensor for key, tensor in tensors.items() if key.startswith("in.")}
    if "weights_file" in metadata:
        weights, _ = load(metadata["weights_file"])
        prefix = metadata["weights_prefix"]
        arguments["weights"] = {
            key.removeprefix(prefix): tensor for key, tensor in weights.items() if key.startswith(prefix)
        }
    return Snapshot(name, metadata["entry_point"], arguments, tensors["expected"], float(metadata["noise"]))


def made(recipe: Recipe, arguments: dict[str, Any]) -> Snapshot:
    """A snapshot of some arguments, computed by the oracle."""
    reference = getattr(OracleAdapters(), recipe.entry_point)
    expected = reference(**arguments)
    noise = rounding_noise(reference, arguments, expected)
    return Snapshot(recipe.name, recipe.entry_point, arguments, expected, noise)


def write(recipe: Recipe) -> None:
    """Makes a snapshot from its recipe and the oracle, and writes it (with the weights file that it names)."""
    arguments = recipe.arguments()
    snapshot = made(recipe, arguments)
    scalars = {key: value for key, value in arguments.items() if isinstance(value, int | float | str)}
    metadata = {
        "entry_point": recipe.entry_point,
        "scalars": json.dumps(scalars),
        "noise": repr(snapshot.noise),
        "producer": PRODUCER,
    }
    if recipe.weights_file is not None:
        metadata |= {"weights_file": recipe.weights_file, "weights_prefix": recipe.weights_prefix}
    inputs = {f"in.{key}": value for key, value in arguments.items() if isinstance(value, Tensor)}
    save(recipe.name, {**inputs, "expected": snapshot.expected}, metadata)
