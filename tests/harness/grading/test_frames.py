"""The pipe: what crosses it comes out as it went in, and what is no frame is refused before it is used."""

import json
import socket
import struct
from typing import Any

import pytest
import torch

from cs336_harness.grading import frames


def through(message: dict[str, Any]) -> Any:
    one, other = socket.socketpair()
    with one, other:
        frames.send(one, message)
        return frames.receive(other)


def sent(data: bytes) -> Any:
    one, other = socket.socketpair()
    with one, other:
        one.sendall(data)
        one.shutdown(socket.SHUT_WR)
        return frames.receive(other)


def frame(header: Any, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack(">II", len(text), len(body)) + text + body


def test_plain_values_and_tensors_come_out_as_they_went_in() -> None:
    message = {
        "numbers": [1, -2.5, True, None, 2**80, float("inf")],
        "sizes": (3, 4),
        "nested": {"tensor": {"list": torch.arange(6).view(2, 3)}},
        "dtype": torch.bfloat16,
        "half": torch.ones(2, 0, dtype=torch.bfloat16),
        "text": "é\n",
    }
    back = through(message)
    assert back["numbers"] == message["numbers"]
    assert back["sizes"] == (3, 4)
    assert torch.equal(back["nested"]["tensor"]["list"], message["nested"]["tensor"]["list"])
    assert back["dtype"] is torch.bfloat16
    assert back["half"].shape == (2, 0)
    assert back["half"].dtype == torch.bfloat16
    assert back["text"] == "é\n"


def test_every_dtype_and_layout_of_a_plain_tensor_comes_out_as_it_went_in() -> None:
    complex_numbers = torch.randn(3, 4, dtype=torch.complex64)
    tensors = [torch.arange(24).view(2, 3, 4).to(dtype) for dtype in frames.DTYPES.values()]
    tensors += [each.mT[..., 1:] for each in tensors]  # not contiguous, not at the start of its memory
    tensors += [torch.tensor(2.5), torch.ones(2).expand(3, 2), complex_numbers.conj().imag, torch.empty(0, 3)]
    tensors += [torch.nn.Parameter(torch.ones(2))]
    for given, back in zip(tensors, through({"all": tensors})["all"], strict=True):
        assert back.dtype == given.dtype
        assert torch.equal(back, given)


class Lying(torch.Tensor):
    pass


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (torch.ones(2).as_subclass(Lying), "Lying"),
        (torch.nn.Linear(1, 1), "Linear"),
        (lambda: None, "function"),
        ({1: 2}, "dict"),
        (torch.ones(2, dtype=torch.complex64), "Tensor of complex64"),
        (torch.ones(2, 2).to_sparse(), "Tensor"),
    ],
)
def test_whatever_else_a_value_is_comes_across_as_the_name_of_its_type(value: Any, name: str) -> None:
    back = through({"value": value})["value"]
    assert isinstance(back, frames.Other)
    assert type(back).__name__ == name


def test_a_value_that_holds_itself_comes_across_cut_off() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert through({"value": endless}) is not None


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">II", 1 << 31, 0),
        struct.pack(">II", 2, (64 << 20) + 1) + b"{}",
        frame(b"no json"),
        frame(b"[" * 100_000),
        frame({"pickle": "x"}),
        frame({"dict": [["a", {"tensor": "0"}]]}),
        frame({"dict": [["a", {"tensor": "0"}]]}, b"\xff" * 40),
        frame({"dict": [["a", {"int": "9" * 5000}]]}),
        frame({"dict": "no pairs"}),
        frame({"list": []}),
        frame(7),
        frame({"dict": [["a", {"meta": ["float99", [2]]}]]}),
    ],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(frames.BrokenFrame):
        sent(data)


@pytest.mark.parametrize("data", [b"", b"\0\0", frame({"dict": []})[:-1]])
def test_an_end_in_the_middle_is_an_end(data: bytes) -> None:
    assert sent(data) is None
