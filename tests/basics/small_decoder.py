"""One small shape for the tests of the owned decoder, with every size another number."""

import torch
from torch import Tensor

from cs336_basics.config import TransformerConfig

CONFIG = TransformerConfig(
    vocab_size=31, context_length=12, d_model=24, num_layers=2, num_heads=6, num_kv_heads=2, d_ff=40, rope_theta=300.0
)


def seeded(seed: int = 0) -> torch.Generator:
    """A generator of its own, so that no test moves the global one."""
    return torch.Generator().manual_seed(seed)


def token_ids(*shape: int) -> Tensor:
    """Token ids of CONFIG's vocabulary, the same on every call."""
    return torch.randint(CONFIG.vocab_size, shape, generator=seeded(1))


def assert_near(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    """Same shape and dtype, and nowhere further apart than the tolerance. (torch.testing takes a second to import.)"""
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    distance = (actual - expected).abs().max().item()
    assert distance <= tolerance, f"{distance:.3g} apart, tolerance {tolerance:.3g}"
