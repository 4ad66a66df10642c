"""A decoder on disk: safetensors, with the config in the file's metadata. Nothing is ever unpickled."""

import os
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from cs336_basics.attention import Attention, scaled_dot_product_attention
from cs336_basics.config import TransformerConfig
from cs336_basics.transformer import TransformerLM


def save(model: TransformerLM, path: str | Path) -> None:
    """Write the model's weights and config to ``path``; a tied model writes its vocabulary matrix once.

    The file appears whole or not at all: it is written beside ``path`` and then takes its place.
    """
    path = Path(path)
    weights = {name: weight.contiguous() for name, weight in model.state_dict().items()}
    unfinished = path.with_name(path.name + ".unfinished")
    save_file(weights, unfinished, metadata={"config": model.config.to_json()})
    os.replace(unfinished, path)


def load(
    path: str | Path, attention: Attention = scaled_dot_product_attention, device: torch.device | str = "cpu"
) -> TransformerLM:
    """The model that ``save`` wrote to ``path``, in the dtype that it had, on ``device``.

    Raises:
        ValueError: the file is no safetensors file, is damaged, or carries no config.
    """
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            metadata = file.metadata() or {}
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is not a readable safetensors file: {error}") from None
    if "config" not in metadata:
        raise ValueError(
            f"{path} carries no config in its metadata; load reads what cs336_basics.checkpoint.save wrote"
        )
    model = TransformerLM(TransformerConfig.from_json(metadata["config"]), attention, device="meta")
    model.load_state_dict(weights, assign=True)
    return model
