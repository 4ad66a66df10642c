"""What transformers computes from a checkpoint folder beside what the oracle computes from the same weights.

A whole checkpoint is too much for a reference that takes one head and one query at a time in float64, so both get a
part that fits: the first layers, and the first rows of the vocabulary. Final norm and head follow as they are.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cs336_harness.checkpoint.folder import EMBEDDING, HEAD, Folder, open_folder
from cs336_harness.glue import interleave_pairs, llama_layer, to_llama
from cs336_harness.reference.oracle import Oracle
from cs336_harness.reference.tolerance import require_close, rounding_noise
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.failures import CannotJudgeError, CheckFailure

PARAMETERS = 250_000_000
"""How many of the layers' parameters are judged at most, but never less than one layer."""
TOKENS = 512
"""How many rows of the vocabulary."""
ROWS, TIME = 2, 6


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One of the two questions to a checkpoint, and what came of it."""

    id: str
    passed: bool
    message: str
    details: tuple[str, ...] = ()
    error_in_noise: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class CheckpointVerdict:
    """What a folder was found to be; ``part`` says which part of it was computed."""

    subject: str
    part: str
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return all(finding.passed for finding in self.findings)


def judge_checkpoint(path: Path) -> CheckpointVerdict:
    """The verdict on a checkpoint folder: are the weights those of its config, and are the logits the oracle's?

    Raises:
        CannotJudgeError: no such checkpoint, another architecture, or transformers is not installed.
    """
    folder = open_folder(path)
    transformers = _transformers(path)
    shape = part_of(folder.shape)
    whole = folder.shape
    layers = f"{shape.num_layers} of {whole.num_layers} layers"
    part = f"transformers {transformers.__version__}, {layers}, {shape.vocab_size} of {whole.vocab_size} tokens"
    faults = folder.faults()
    if faults:
        return CheckpointVerdict(
            str(path), part, (Finding("checkpoint.weights", False, faults[0], tuple(faults[1:6])),)
        )
    there = Finding("checkpoint.weights", True, "every weight is there, of the size that config.json says")
    return CheckpointVerdict(str(path), part, (there, _compare_logits(folder, shape, transformers)))


def part_of(shape: DecoderShape) -> DecoderShape:
    """The part of a decoder that fits: fewer layers, fewer tokens, every width as it is."""
    one_layer = sum(torch.Size(size).numel() for size in shape.layer_weight_shapes().values())
    layers = max(1, min(shape.num_layers, PARAMETERS // one_layer))
    return shape.replace(num_layers=layers, vocab_size=min(shape.vocab_size, TOKENS))


def _compare_logits(folder: Folder, shape: DecoderShape, transformers: Any) -> Finding:
    weights = _canonical(folder, shape)
    for name, weight in weights.items():
        if not weight.isfinite().all():
            return Finding("checkpoint.logits", False, f"{llama_layer(name)}.weight holds NaN or an infinity")
    draw = torch.Generator().manual_seed(0)
    token_ids = torch.randint(0, shape.vocab_size, (ROWS, min(TIME, shape.context_length)), generator=draw)

    def reference(weights: dict[str, Tensor]) -> Tensor:
        if shape.tie_embeddings:
            weights = {**weights, HEAD: weights[EMBEDDING]}
        return Oracle(shape).transformer_lm({name: weight.double() for name, weight in weights.items()}, token_ids)

    expected = reference(weights)
    noise = rounding_noise(reference, {"weights": weights}, expected)
    try:
        actual = _theirs(folder, shape, weights, token_ids, transformers)
        error = require_close("transformers", actual, expected, noise, ("row", "position", "token"))
    except CheckFailure as failure:
        evidence = failure.evidence
        return Finding("checkpoint.logits", False, failure.message, tuple(evidence.details), evidence.error_in_noise)
    return Finding("checkpoint.logits", True, f"logits equal the reference's: {error:.2g} × noise", (), error)


def _canonical(folder: Folder, shape: DecoderShape) -> dict[str, Tensor]:
    weights = {}
    for name in shape.weight_shapes():
        source = EMBEDDING if name == HEAD and shape.tie_embeddings else name
        theirs = f"{llama_layer(source)}.weight"
        weight = folder.read(theirs, shape.vocab_size if source in (EMBEDDING, HEAD) else None)
        heads = {"q_proj": shape.num_heads, "k_proj": shape.num_kv_heads}.get(name.split(".")[-2])
        weights[name] = weight if heads is None else interleave_pairs(weight, heads)
    return weights


def _theirs(
    folder: Folder, shape: DecoderShape, weights: dict[str, Tensor], token_ids: Tensor, transformers: Any
) -> Tensor:
    """Logits of transformers' own class for the folder's own config, with nothing changed but what makes it fit."""
    try:
        return _computed(folder, shape, weights, token_ids, transformers)
    except Exception as error:  # whatever transformers makes of a config that it cannot use
        reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        raise CannotJudgeError(f"{folder.path}: transformers {transformers.__version__} raised {reason}") from None


def _computed(
    folder: Folder, shape: DecoderShape, weights: dict[str, Tensor], token_ids: Tensor, transformers: Any
) -> Tensor:
    config = transformers.AutoConfig.from_pretrained(folder.path, local_files_only=True)
    config.num_hidden_layers, config.vocab_size, config.pad_token_id = shape.num_layers, shape.vocab_size, None
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[: shape.num_layers]
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    model.load_state_dict(to_llama(weights, shape.num_heads, shape.num_kv_heads))
    with torch.no_grad():
        return model(token_ids, use_cache=False).logits


def _transformers(path: Path) -> Any:
    try:
        import transformers  # ty: ignore[import-not-found]
    except ModuleNotFoundError:
        command = f"uv run --with transformers cs336 check --huggingface {path}"
        raise CannotJudgeError(
            f"a checkpoint is judged through transformers, which is not installed: `{command}`"
        ) from None
    return transformers
