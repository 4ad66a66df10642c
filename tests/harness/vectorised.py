"""The oracle with its attention vectorised: as right, and quick enough to be broken many times over."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from cs336_harness.checks import all_checks
from cs336_harness.reference.oracle import LayerWeights, Oracle
from cs336_harness.reference.oracle_adapters import OracleAdapters, OracleModel
from cs336_harness.subject.calling import Subject
from cs336_harness.verdict.suite import Result, Suite


class Vectorised(Oracle):
    """The steps that a broken subject overrides: the mask, the weights, and what is done with the values."""

    def embed_tokens(self, weights: Mapping[str, Tensor], token_ids: Tensor) -> Tensor:
        self.token_ids = token_ids
        return super().embed_tokens(weights, token_ids)

    def mask(self, time: int) -> Tensor:
        """(..., T, T), True meaning attend; any leading axes are those of rows and heads."""
        return torch.ones(time, time, dtype=torch.bool).tril()

    def attention(self, scores: Tensor, mask: Tensor) -> Tensor:
        """(rows, heads, T, T) to the same."""
        return torch.softmax(scores.masked_fill(~mask, -torch.inf), -1)

    def merge(self, heads: Tensor) -> Tensor:
        """(rows, heads, T, d_head) to (rows, T, D)."""
        return heads.transpose(1, 2).flatten(2)

    def self_attention(self, x: Tensor, weights: LayerWeights, positions: Tensor | None, theta: float | None) -> Tensor:
        heads, groups = self.shape.num_heads, self.shape.num_kv_heads
        projections = (self.project_queries, self.project_keys, self.project_values)
        queries, keys, values = (
            project(x, weights).unflatten(-1, (number, -1)).transpose(-2, -3)
            for project, number in zip(projections, (heads, groups, groups), strict=True)
        )
        if theta is not None and positions is not None:
            queries, keys = self.rotate_queries(queries, positions, theta), self.rotate_keys(keys, positions, theta)
        shared = [self.kv_head_of(head, heads, groups) for head in range(heads)]
        keys, values = keys[..., shared, :, :], values[..., shared, :, :]
        scores = queries @ keys.transpose(-1, -2) * self.score_scale(queries.shape[-1])
        merged = self.merge(self.attention(scores, self.mask(x.shape[-2])) @ values)
        return self.project_output(merged, weights)


def subject_of(oracle: type[Oracle], model: type[OracleModel] = OracleModel) -> Subject:
    """An oracle class as a float32 subject."""
    adapters = OracleAdapters(oracle, torch.float32)
    adapters.model_class = model
    return Subject(adapters, oracle.__name__)


def replaced(subject: Subject, **functions: Any) -> Subject:
    """The subject with some of its entry points replaced."""
    for name, function in functions.items():
        setattr(subject.module, name, function)
    return subject


def result_of(check_id: str, subject: Subject) -> Result:
    """What becomes of one check. Failed, and not blocked, it is the first to fail of all that it builds on."""
    return Suite(subject, diagnose=False).result(all_checks()[check_id])
