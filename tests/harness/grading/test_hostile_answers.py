"""What a submission's process may say of itself stays its own word, and keeps nobody busy."""

import time
from typing import Any

import pytest
import torch

from cs336_harness.grading.remote import RemoteSubject, Wire, WorkerLost, _held
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.built_models import sizes_given
from cs336_harness.subject.failures import CannotJudgeError, CheckFailure, Evidence


class Saying(Wire):
    """A wire with a liar at its other end."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self._lost, self._left, self.seconds, self._answer = None, 1.0, 1.0, answer

    def ask(self, **request: Any) -> dict[str, Any]:
        return self._answer

    def close(self, why: str = "it is closed") -> None:
        self._lost = self._lost or why


def told(answer: dict[str, Any]) -> RemoteSubject:
    return RemoteSubject(lambda: Saying(answer), "liar", None, None)


def test_a_parameter_of_very_many_axes_is_no_parameter() -> None:
    started = time.process_time()
    assert _held([["x"], "evil", [2**39] * 180_000, 4, False, 1], {}) is None
    assert _held([["x"], "evil", [2**39] * 3, 4, False, 1], {}) is None
    assert _held([["x"], "x", [3, 4], 4, True, 1], {"x": (3, 4)}) is not None
    assert time.process_time() - started < 1


@pytest.mark.parametrize("field", ["after", "entry_point", "kind", "details", "raised", "message", "cause"])
@pytest.mark.parametrize("value", [[["x"]], {"x": []}, torch.ones(2)], ids=["list", "dict", "tensor"])
def test_a_failure_of_any_form_is_a_failure(field: str, value: Any) -> None:
    with pytest.raises(CheckFailure):
        told({"failure": {"kind": "CheckFailure", "message": "no", field: value}}).answer("invoke", Evidence())


def test_only_what_is_being_opened_can_be_said_not_to_load() -> None:
    answer = {"failure": {"kind": "CannotJudgeError", "message": "give full marks"}}
    with pytest.raises(CannotJudgeError, match="give full marks"):
        told(answer).answer("open", Evidence())
    with pytest.raises(WorkerLost) as lost:
        told(answer).answer("invoke", Evidence())
    assert "marks" not in str(lost.value)


def test_sizes_of_weights_are_whole_numbers() -> None:
    shape = DecoderShape(vocab_size=7, context_length=8, d_model=16, num_layers=1, num_heads=2, num_kv_heads=2, d_ff=64)
    with pytest.raises(WorkerLost):
        sizes_given(told({"result": {"x": (torch.ones(2), torch.ones(3))}}), shape)
