"""What generation keeps and computes: the cache of keys and values by length, and the FLOPs of the next token.

Imports no torch.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from cs336_harness.cost.matmuls import flops_by_term, list_matmuls
from cs336_harness.cost.tally import BYTES_PER_VALUE, Tally

POSITION_TERMS = ("attention_scores", "attention_values")
SHORTEST = 1024


@dataclasses.dataclass(frozen=True, slots=True)
class Cached:
    """The cache of a batch after ``length`` positions, and one more token with it.

    ``values`` are keys and values of every layer, 2·L·B·length·(KV·d_head) numbers; ``flops`` those of the next token
    of every sequence, which attends to ``length`` positions, itself included.
    """

    length: int
    values: int
    bytes: int
    flops: int


def cached(account: Tally, length: int) -> Cached:
    """The cache of an account's decoder, batch and dtype at a length."""
    shape, batch_size = account.shape, account.batch_size
    values = 2 * shape.num_layers * batch_size * length * shape.d_kv
    terms = flops_by_term(list_matmuls(shape, batch_size, 1))
    flops = sum(length * count if term in POSITION_TERMS else count for term, count in terms.items())
    return Cached(length, values, BYTES_PER_VALUE[account.dtype] * values, flops)


def cached_lengths(account: Tally) -> list[Cached]:
    """One position, the powers of two from 1024 on, the account's sequence length, and the whole context."""
    longest = max(account.shape.context_length, account.sequence_length)
    lengths = {1, account.shape.context_length, account.sequence_length}
    power = SHORTEST
    while power < longest:
        lengths.add(power)
        power *= 2
    return [cached(account, length) for length in sorted(lengths)]


def cache_json(account: Tally) -> list[dict[str, Any]]:
    """The cache by length for a program: exact integers."""
    return [dataclasses.asdict(row) for row in cached_lengths(account)]
