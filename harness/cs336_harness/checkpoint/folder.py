"""What a checkpoint folder says and holds: ``config.json``, and weights in safetensors, in one file or in shards."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Generator
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
FLOATS = ("F64", "F32", "BF16", "F16")
"""How safetensors calls the numbers of a checkpoint that is not quantised."""
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
EMBEDDING, HEAD = "token_embeddings.weight", "lm_head.weight"
TABLE = "rotary_emb.inv_freq"
"""Ends the name of a table that old checkpoints carry along; it follows from theta."""
PLAIN = "the reference here is a plain decoder of the Llama family"


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
            elif self.dtype_of(name) not in FLOATS:
                known = ", ".join(FLOATS)
                lines.append(f"{name} holds {self.dtype_of(name)} numbers; weights that are not quantised hold {known}")
        if self.shape.tie_embeddings and head in self.files and not lines and not self._same(embedding, head):
            lines.append(f"{head} and {embedding} hold different numbers, and tie_word_embeddings is true")
        return lines

    def size_of(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, read from the file's header."""
        with _opened(self.path / self.files[name]) as tensors:
            return tuple(tensors.get_slice(name).get_shape())

    def dtype_of(self, name: str) -> str:
        """The dtype of a tensor as the file's header calls it."""
        with _opened(self.path / self.files[name]) as tensors:
            return str(tensors.get_slice(name).get_dtype())

    def read(self, name: str, rows: int | None = None) -> Tensor:
        """A tensor, or its first ``rows``, as float32."""
        with _opened(self.path / self.files[name]) as tensors:
            return tensors.get_slice(name)[:rows].to(torch.float32)

    def _same(self, one: str, other: str) -> bool:
        return torch.equal(self.read(one), self.read(other))


@contextlib.contextmanager
def _opened(file: Path) -> Generator[Any]:
    """The tensors of a file, in a ``with`` statement; :class:`CannotJudgeError` where it is none or lacks one."""
    try:
        with safe_open(file, framework="pt") as tensors:
            yield tensors
    except (SafetensorError, OSError) as error:
        raise CannotJudgeError(
            f"{file} cannot be read as safetensors ({error}); download it again: a file that was cut short and a"
            " pointer of Git LFS look like this"
        ) from None


def open_folder(path: Path) -> Folder:
    """The checkpoint in a folder.

    Raises:
        CannotJudgeError: a file is missing or damaged, or the config describes another architecture.
    """
    file = path / "config.json"
    if not file.is_file():
        found = "holds no config.json" if path.is_dir() else "is a file" if path.exists() else "does not exist"
        on_the_hub = f" (of the Hub: `hf download {path} --local-dir FOLDER` first)" if _is_hub_name(path) else ""
        raise CannotJudgeError(
            f"{path} {found}; give the folder of a checkpoint: config.json and {WEIGHTS}{on_the_hub}"
        )
    try:
        _require_family(file)
        shape, dtype = read_config(file)
        if dtype is not None and not isinstance(getattr(torch, dtype, None), torch.dtype):
            raise ValueError(f"{file}: dtype is {dtype!r}, which PyTorch does not have; 'float32' is one")
        config = json.loads(file.read_text(encoding="utf-8"))
        if type(shape) is not DecoderShape:
            raise ValueError(f"{file}: the model has biases or a head size of its own, and {PLAIN}")
        shape = shape.replace(rope_theta=_theta(file, config), norm_eps=_number(file, config, "rms_norm_eps", 1e-6))
        return Folder(path, shape, _files(path))
    except ValueError as error:
        raise CannotJudgeError(str(error)) from None


def _is_hub_name(path: Path) -> bool:
    """Whether it may be the name of a model on the Hugging Face Hub: an owner and a model, and nothing here."""
    return re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", path.as_posix()) is not None and not path.parent.exists()


def _require_family(file: Path) -> None:
    """ValueError where a config that can be read is of another family."""
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return  # read_config says what is wrong with it
    if isinstance(config, dict) and config.get("model_type") not in FAMILIES:
        given = f"is {config['model_type']!r}" if "model_type" in config else "is missing"
        raise ValueError(
            f"{file}: model_type {given}; what is judged is one of {', '.join(FAMILIES)}: others have what the"
            " reference here lacks, such as biases, or norms on queries and keys"
        )


def _theta(file: Path, config: dict[str, Any]) -> float:
    for key in ("rope_parameters", "rope_scaling"):
        scaling = config.get(key) or {}
        if not isinstance(scaling, dict):
            raise ValueError(f"{file}: {key} is {scaling!r}; it must be an object or null")
        kind = scaling.get("rope_type") or scaling.get("type") or "default"
        if kind != "default":
            raise ValueError(f"{file}: {key} is of the type {kind!r}, which scales positions, and {PLAIN}")
    return _number(file, config.get("rope_parameters") or config, "rope_theta", 10000.0)


def _number(file: Path, values: dict[str, Any], key: str, default: float) -> float:
    value = values.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ValueError(f"{file}: {key} is {value!r}; it must be a positive number")
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
        missing = next((file for file in files.values() if not (path / file).is_file()), None)
        if missing is not None:
            raise ValueError(f"{path / INDEX} names {missing}, which is not there; download every shard")
        return files
    if not (path / WEIGHTS).is_file():
        pickled = next(path.glob("*.bin"), None)
        also = "" if pickled is None else f"; {pickled.name} is a pickle, which is never opened: save safetensors"
        raise ValueError(f"{path} holds neither {WEIGHTS} nor {INDEX}{also}")
    with _opened(path / WEIGHTS) as tensors:
        return dict.fromkeys(tensors.keys(), WEIGHTS)
