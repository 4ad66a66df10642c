"""What training a decoder costs: FLOPs and memory of one step of AdamW, the largest batch, time. Imports no torch."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

from cs336_harness.cost.activations import (
    Activation,
    count_values,
    list_activations,
    list_activations_recomputed,
)
from cs336_harness.cost.tally import BYTES_PER_VALUE, Tally
from cs336_harness.cost.units import readable, readable_time

BACKWARD_PER_FORWARD = 2
"""Each multiply of the forward pass makes two of its size: the gradient of its input and that of its weight."""

ADAMW_FLOPS = 14
"""Operations of one step on one parameter: 3 for the first moment (β₁m + (1 - β₁)g), 4 for the second, 5 for the step
(root, plus ε, quotient, times rate, difference), 2 for the decay."""

STATE_BYTES = 4
"""A moment of AdamW is kept in float32, or in the parameters' dtype where that is wider."""


@dataclasses.dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that one training step needs at once."""

    parameters: int
    gradients: int
    optimizer_state: int
    activations: int

    @property
    def fixed(self) -> int:
        """What no batch size changes."""
        return self.parameters + self.gradients + self.optimizer_state

    @property
    def peak(self) -> int:
        """All of it."""
        return self.fixed + self.activations


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What is asked about training: the largest batch in ``memory`` bytes; the time of a step, and of ``steps``, on a
    machine of ``rate`` FLOP/s of which the model uses a share of ``mfu``. None is not asked.
    """

    memory: int | None = None
    rate: Fraction | None = None
    mfu: Fraction = Fraction(1)
    steps: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Training:
    """One step of AdamW on the batch of an account."""

    account: Tally

    @property
    def forward(self) -> int:
        """FLOPs of the forward pass."""
        return self.account.flops

    @property
    def backward(self) -> int:
        """FLOPs of the backward pass."""
        return BACKWARD_PER_FORWARD * self.forward

    @property
    def recomputed(self) -> int:
        """FLOPs of computing every block once more; the head is not computed again."""
        return sum(multiply.flops for multiply in self.account.matmuls if multiply.per_layer)

    @property
    def step(self) -> int:
        """FLOPs of the model in one step: forward and backward."""
        return self.forward + self.backward

    @property
    def update(self) -> int:
        """FLOPs of AdamW itself."""
        return ADAMW_FLOPS * self.account.parameters

    @property
    def tokens(self) -> int:
        """Tokens of one step."""
        return self.account.batch_size * self.account.sequence_length

    def activations(self, *, recomputation: bool = False) -> list[Activation]:
        """What is kept of the forward pass."""
        listing = list_activations_recomputed if recomputation else list_activations
        return listing(self.account.shape, self.account.batch_size, self.account.sequence_length)

    def memory(self, *, recomputation: bool = False) -> Memory:
        """Bytes by what they hold."""
        each = BYTES_PER_VALUE[self.account.dtype]
        parameters = self.account.parameters
        kept = count_values(self.activations(recomputation=recomputation))
        return Memory(each * parameters, each * parameters, 2 * max(each, STATE_BYTES) * parameters, each * kept)

    def largest_batch(self, available: int, *, recomputation: bool = False) -> int:
        """The most sequences whose step fits into so many bytes; 0 when none does."""
        memory = self.memory(recomputation=recomputation)
        return max(0, (available - memory.fixed) * self.account.batch_size // memory.activations)

    def seconds(self, rate: Fraction, mfu: Fraction) -> Fraction:
        """Seconds of one step on a machine of ``rate`` FLOP/s of which the model uses a share of ``mfu``."""
        return self.step / (rate * mfu)

    def mfu(self, rate: Fraction, seconds: Fraction) -> Fraction:
        """The share of a machine's ``rate`` that a step of so many seconds uses (model FLOPs utilisation).

        Raises:
            ValueError: it is more than the machine can do.
        """
        share = self.step / (rate * seconds)
        if share > 1:
            used = readable(round(self.step / seconds), "FLOP/s")
            raise ValueError(
                f"a step of {readable_time(seconds)} takes {used}, more than the {readable(round(rate), 'FLOP/s')} of "
                "the rate; check the two"
            )
        return share


def training_json(training: Training, plan: Plan) -> dict[str, Any]:
    """A training step for a program: exact integers, units in the names; rates and times are floats."""
    said: dict[str, Any] = {
        "flops": {
            "forward": training.forward,
            "backward": training.backward,
            "step": training.step,
            "recomputed": training.recomputed,
            "step_with_recomputation": training.step + training.recomputed,
            "adamw_update": training.update,
            "step_per_token": training.step // training.tokens,
        },
        "memory_bytes": _memory_json(training.memory()),
        "memory_bytes_with_recomputation": _memory_json(training.memory(recomputation=True)),
        "activations": [
            {"name": kept.name, "shape": list(kept.shape), "count": kept.count, "values": kept.values}
            for kept in training.activations()
        ],
    }
    if plan.memory is not None:
        said["largest_batch"] = {
            "memory_bytes": plan.memory,
            "sequences": training.largest_batch(plan.memory),
            "sequences_with_recomputation": training.largest_batch(plan.memory, recomputation=True),
        }
    if plan.rate is not None:
        step = training.seconds(plan.rate, plan.mfu)
        said["time"] = {"flops_per_second": float(plan.rate), "mfu": float(plan.mfu), "step_seconds": float(step)}
        if plan.steps is not None:
            said["time"] |= {"steps": plan.steps, "seconds": float(plan.steps * step)}
    return said


def _memory_json(memory: Memory) -> dict[str, int]:
    return {**dataclasses.asdict(memory), "peak": memory.peak}
