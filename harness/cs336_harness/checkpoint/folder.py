"""What a checkpoint folder says and holds: ``config.json``, and weights in safetensors, in one file or in shards."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from cs336_harness.cost.huggingface import read_config
from cs336_harness.glue import llama_layer
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.failures import CannotJudgeError

FAMILIES = ("llama", "mistral")
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
EMBEDDING, HEAD = "token_embeddings.weight", "lm_head.weight"
TABLE = "rotary_emb.inv_freq"
"""Ends the name of a table that old checkpoints carry along; it follows from theta."""


@dataclasses.dataclass(frozen=True, slots=True)
class Folder:
    """A checkpoint: its shape, with theta and eps, and which file holds which of its tensors."""

    path: Path
    shape: DecoderShape
    files: dict[str, str]

    def faults(self) -> list[str]:
        """What is missing, left over or of another size than ``config.json`` says, a line each."""
        expected = {f"{llama_layer(name)}.weight": size for name, size in self.shape.weight_shapes().items()}
        embedding, head = (f"{llama_layer(name)}.weight" for name in (EMBEDDING, HEAD))
        needed = set(expected) - ({head} if self.shape.tie_embeddings else set())
        lines = [f"{name} is missing" for name in expected if name in needed and name not in self.files]
        for name in self.files:
            if name.endswith(TABLE):
                continue
            if name not in expected:
                lines.append(f"{name} is left over: a decoder of these sizes has no such weight")
            elif self.size_of(name) != expected[name]:
                lines.append(f"{name} has the shape {self.size_of(name)}, config.json says {expected[name]}")
        if self.shape.tie_embeddings and head in self.files and not lines and not self._same(embedding, head):
            lines.append(f"{head} and {embedding} hold different numbers, and tie_word_embeddings is true")
        return lines

    def size_of(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, read from the file's header."""
        with safe_open(self.path / self.files[name], framework="pt") as opened:
            return tuple(opened.get_slice(name).get_shape())

    def read(self, name: str, rows: int | None = None) -> Tensor:
        """A tensor, or its first ``rows``, as float32."""
        with safe_open(self.path / self.files[name], framework="pt") as opened:
            return opened.get_slice(name)[:rows].to(torch.float32)

    def _same(self, one: str, other: str) -> bool:
        return torch.equal(self.read(one), self.read(other))


def open_folder(path: Path) -> Folder:
    """The checkpoint in a folder.

    Raises:
        CannotJudgeError: a file is missing or damaged, or the config describes another architecture.
    """
    if not (path / "config.json").is_file():
        raise CannotJudgeError(
            f"{path} holds no config.json; give the folder of a checkpoint: config.json and {WEIGHTS}"
        )
    try:
        shape, _ = read_config(path / "config.json")
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        if config["model_type"] not in FAMILIES:
            raise ValueError(f"{path}: model_type is {config['model_type']!r}")
        if type(shape) is not DecoderShape:
            raise ValueError(f"{path}: the model has biases or a head size of its own")
        shape = shape.replace(rope_theta=_theta(config), norm_eps=_number(config, "rms_norm_eps", 1e-6))
        return Folder(path, shape, _files(path))
    except ValueError as error:
        raise CannotJudgeError(f"{error}; the reference here is a plain decoder of the Llama family") from None
    except (SafetensorError, OSError) as error:
        raise CannotJudgeError(f"{path}: its safetensors cannot be read: {error}") from None


def _theta(config: dict[str, Any]) -> float:
    for key in ("rope_parameters", "rope_scaling"):
        scaling = config.get(key) or {}
        kind = scaling.get("rope_type") or scaling.get("type") or "default"
        if kind != "default":
            raise ValueError(f"{key} is of the type {kind!r}: scaled positions")
    return _number(config.get("rope_parameters") or config, "rope_theta", 10000.0)


def _number(values: dict[str, Any], key: str, default: float) -> float:
    value = values.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ValueError(f"{key} is {value!r}; it must be a positive number")
    return float(value)


def _files(path: Path) -> dict[str, str]:
    if (path / INDEX).is_file():
        try:
            placed = json.loads((path / INDEX).read_text(encoding="utf-8"))["weight_map"].items()
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError(f"{path / INDEX} is no index of shards: a JSON object with a weight_map") from None
        files = {str(name): str(file) for name, file in placed}
        outside = next((file for file in files.values() if Path(file).name != file), None)
        if outside is not None:
            raise ValueError(f"{path / INDEX} names {outside!r}; a shard lies in the folder itself")
        return files
    if not (path / WEIGHTS).is_file():
        pickled = next(path.glob("*.bin"), None)
        also = "" if pickled is None else f"; {pickled.name} is a pickle, which is never opened: save safetensors"
        raise ValueError(f"{path} holds neither {WEIGHTS} nor {INDEX}{also}")
    with safe_open(path / WEIGHTS, framework="pt") as opened:
        return dict.fromkeys(opened.keys(), WEIGHTS)
