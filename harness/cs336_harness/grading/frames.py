"""What goes over the pipe: frames of bounded length, a JSON header and tensors as safetensors. Never pickle.

The same on both ends, and each end takes the other for hostile: lengths are read before anything is, plain tensors and
plain values alone are made of what arrives, and whatever else a value is comes across as the name of its type.
"""

from __future__ import annotations

import ctypes
import functools
import json
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from cs336_harness.subject.text import clean

LONGEST_HEADER = 4 << 20
LONGEST_BODY = 64 << 20
DEEPEST = 40
MOST_DIGITS = 60

_LENGTHS = struct.Struct(">II")

_CODES = {
    torch.float32: "F32",
    torch.float64: "F64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""The dtypes that cross the pipe, with their names in the safetensors format."""

DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in _CODES}
"""The same, by PyTorch's names."""


class BrokenFrame(Exception):
    """What arrived is no frame, too long, or holds what no frame may hold."""


class Other:
    """Stands for a value that does not cross the pipe: ``type(value).__name__`` is the name of its type."""


@functools.lru_cache(maxsize=256)
def _other(name: str) -> type[Other]:
    return type(clean(name, 60) or "object", (Other,), {})


def send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    """Writes one message: a dict of plain values, tensors, and dicts, lists and tuples of these."""
    tensors: dict[str, Tensor] = {}
    header = json.dumps(_packed(dict(message), tensors, 0)).encode()
    body = _written(tensors) if tensors else b""
    if len(header) > LONGEST_HEADER or len(body) > LONGEST_BODY:
        raise BrokenFrame(f"an answer of {len(header) + len(body)} bytes is too long")
    connection.sendall(_LENGTHS.pack(len(header), len(body)) + header + body)


def receive(connection: socket.socket, until: float | None = None) -> dict[str, Any] | None:
    """Reads one message; None when the other end has closed. :class:`BrokenFrame` when it is none.

    ``TimeoutError`` when it is not there by ``until`` (``time.monotonic``), however slowly its bytes trickle in.
    """
    start = _exactly(connection, _LENGTHS.size, until)
    if start is None:
        return None
    header_length, body_length = _LENGTHS.unpack(start)
    if header_length > LONGEST_HEADER or body_length > LONGEST_BODY:
        raise BrokenFrame(f"an answer of {header_length + body_length} bytes is too long")
    header, body = _exactly(connection, header_length, until), _exactly(connection, body_length, until)
    if header is None or body is None:
        return None
    try:
        tensors = safetensors.torch.load(bytes(body)) if body_length else {}
        message = _unpacked(json.loads(header), tensors, 0)
    except BrokenFrame:
        raise
    except Exception as error:  # whatever the bytes make the parsers raise
        raise BrokenFrame(f"an answer is no frame ({type(error).__name__})") from None
    if not isinstance(message, dict):
        raise BrokenFrame("an answer is no message")
    return message


def _written(tensors: Mapping[str, Tensor]) -> bytes:
    """The tensors, contiguous and on the CPU, in the safetensors format, which its library reads at the other end.

    Its library also writes, at several times the cost: half of what judging through the pipe took beside the judging.
    """
    header: dict[str, Any] = {}
    parts, offset = [], 0
    for name, tensor in tensors.items():
        part = ctypes.string_at(tensor.data_ptr(), tensor.nbytes)
        offsets = [offset, offset := offset + len(part)]
        header[name] = {"dtype": _CODES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": offsets}
        parts.append(part)
    text = json.dumps(header).encode()
    return b"".join((struct.pack("<Q", len(text)), text, *parts))


def _exactly(connection: socket.socket, length: int, until: float | None) -> bytearray | None:
    buffer = bytearray(length)
    view, filled = memoryview(buffer), 0
    while filled < length:
        if until is not None:
            connection.settimeout(max(1e-3, until - time.monotonic()))
        try:
            read = connection.recv_into(view[filled:])
        except ConnectionError:
            return None
        if read == 0:
            return None
        filled += read
    return buffer


def _packed(value: Any, tensors: dict[str, Tensor], depth: int) -> Any:
    if depth > DEEPEST:
        return {"other": "deeply nested value"}
    kind = type(value)
    if value is None or kind is bool or kind is float:
        return value
    if kind is str:
        return value.encode("utf-8", "replace").decode()
    if kind is int:
        return value if abs(value) < 2**53 else {"int": str(value) if abs(value) < 10**MOST_DIGITS else "0"}
    if isinstance(value, Tensor):
        return _packed_tensor(value, tensors)
    if kind is torch.dtype:
        return {"dtype": str(value).removeprefix("torch.")}
    if kind is list or kind is tuple:
        return {"list" if kind is list else "tuple": [_packed(each, tensors, depth + 1) for each in value]}
    if isinstance(value, Mapping) and all(type(name) is str for name in value):
        return {"dict": [[name, _packed(value[name], tensors, depth + 1)] for name in value]}
    return {"other": type(value).__name__}


def _packed_tensor(value: Tensor, tensors: dict[str, Tensor]) -> Any:
    if type(value) not in (Tensor, torch.nn.Parameter) or value.layout != torch.strided:
        return {"other": type(value).__name__}
    if value.is_meta or value.dtype not in _CODES:
        dtype = str(value.dtype).removeprefix("torch.")
        return {"meta": [dtype, list(value.shape)]} if value.is_meta else {"other": f"Tensor of {dtype}"}
    name = str(len(tensors))
    tensors[name] = value.detach().to("cpu").contiguous().resolve_neg()
    return {"tensor": name}


def _unpacked(value: Any, tensors: Mapping[str, Tensor], depth: int) -> Any:
    if depth > 2 * DEEPEST:
        raise BrokenFrame("an answer is too deeply nested")
    if type(value) is not dict:
        if isinstance(value, list):
            raise BrokenFrame("an answer holds what no frame holds")
        return value  # of JSON: None, a bool, a number, a string
    if len(value) == 1:
        ((kind, inner),) = value.items()
        if isinstance(inner, list):
            return _unpacked_list(kind, inner, tensors, depth)
        if isinstance(inner, str):
            if kind == "tensor":
                return tensors[inner]
            if kind == "int" and len(inner) <= MOST_DIGITS + 1:
                return int(inner)
            if kind == "dtype":
                return DTYPES.get(inner, inner)
            if kind == "other":
                return _other(inner)()
    raise BrokenFrame("an answer holds what no frame holds")


def _unpacked_list(kind: str, inner: list[Any], tensors: Mapping[str, Tensor], depth: int) -> Any:
    match kind:
        case "dict":
            return {str(name): _unpacked(each, tensors, depth + 1) for name, each in inner}
        case "list":
            return [_unpacked(each, tensors, depth + 1) for each in inner]
        case "tuple":
            return tuple(_unpacked(each, tensors, depth + 1) for each in inner)
        case "meta":
            dtype, sizes = inner
            return torch.empty([int(size) for size in sizes], dtype=DTYPES[dtype], device="meta")
    raise BrokenFrame("an answer holds what no frame holds")
