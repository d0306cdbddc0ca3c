"""Values through a pipe: JSON and the raw bytes of tensors. Nothing that is read is executed, as pickle would be.

This file is also used inside the sandbox, where the package is not: it imports nothing of it.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator
from typing import Any

import torch

LARGEST_HEADER, LARGEST_BODY, DEEPEST, MOST_AXES = 1 << 20, 64 << 20, 20, 16
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    )
}


def encode(value: Any, blobs: list[bytes], depth: int = 0) -> Any:
    """A value as JSON; what it holds of tensors is appended to `blobs`.

    Raises:
        TypeError: it is of a kind that does not travel; it nests too deep.
    """
    if depth > DEEPEST:
        raise TypeError("a value that is nested too deep cannot be sent")
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, torch.Tensor):
        name = str(value.dtype).removeprefix("torch.")
        if name not in _DTYPES:
            raise TypeError(f"a tensor of {value.dtype} cannot be sent")
        flat = value.detach().to("cpu").contiguous().reshape(-1)
        blobs.append(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
        return {"tensor": [name, list(value.shape)]}
    if isinstance(value, (list, tuple)):
        return {"list" if isinstance(value, list) else "tuple": [encode(one, blobs, depth + 1) for one in value]}
    if isinstance(value, dict):
        return {"dict": [[str(key), encode(one, blobs, depth + 1)] for key, one in value.items()]}
    if hasattr(value, "dtype") and hasattr(value, "item") and getattr(value, "size", 0) == 1:  # a number of numpy
        return encode(value.item(), blobs, depth + 1)
    kind = type(value).__name__
    if kind == "NotInTheGrader":
        raise TypeError("the result was made by mhalib, which the grader does not have: use torch")
    raise TypeError(
        f"a result of type {kind} cannot be sent to the grader: make it a torch tensor, a number or a tuple"
    )


def decode(value: Any, blobs: Iterator[bytes], depth: int = 0) -> Any:
    """What `encode` has made; `ValueError` for anything else."""
    if depth > DEEPEST:
        raise ValueError("nested too deep")
    if value is None or type(value) in (bool, int, float, str):
        return value
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError("not a value")
    ((kind, held),) = value.items()
    if kind == "float" and held in ("inf", "-inf", "nan"):
        return float(held)
    if kind == "tensor":
        return _decode_tensor(str(held[0]), held[1], next(blobs))
    if kind in ("list", "tuple") and isinstance(held, list):
        parts = [decode(one, blobs, depth + 1) for one in held]
        return parts if kind == "list" else tuple(parts)
    if kind == "dict" and isinstance(held, list):
        return {str(key): decode(one, blobs, depth + 1) for key, one in held}
    raise ValueError("not a value")


def _decode_tensor(name: str, shape: Any, raw: bytes) -> torch.Tensor:
    if name not in _DTYPES or len(shape) > MOST_AXES:
        raise ValueError("not a tensor")
    if not all(type(length) is int and 0 <= length <= LARGEST_BODY for length in shape):
        raise ValueError("not a tensor")
    count, dtype = math.prod(shape), _DTYPES[name]
    if count * dtype.itemsize != len(raw):
        raise ValueError("not as many numbers as its shape says")
    if not count:
        return torch.empty(shape, dtype=dtype)
    if dtype == torch.bool and raw.strip(b"\0\1"):
        raise ValueError("not booleans")
    return torch.frombuffer(bytearray(raw), dtype=dtype).reshape(shape)


def pack(message: dict[str, Any], blobs: list[bytes]) -> bytes:
    """One frame: two lengths, the header, the bytes of tensors."""
    header = json.dumps({**message, "blobs": [len(blob) for blob in blobs]}).encode()
    body = b"".join(blobs)
    if len(header) > LARGEST_HEADER or len(body) > LARGEST_BODY:
        raise TypeError("the result is too large to be sent to the grader")
    return struct.pack(">II", len(header), len(body)) + header + body


def unpack(read: Callable[[int], bytes]) -> tuple[dict[str, Any], Iterator[bytes]]:
    """The next frame; `read(n)` returns n bytes or raises. `ValueError` for what is no frame."""
    header_length, body_length = struct.unpack(">II", read(8))
    if header_length > LARGEST_HEADER or body_length > LARGEST_BODY:
        raise ValueError("the frame is too large")
    message = json.loads(read(header_length))
    if not isinstance(message, dict):
        raise ValueError("not a message")
    lengths = message.pop("blobs")
    body = read(body_length)
    blobs, start = [], 0
    for length in lengths:
        if type(length) is not int or length < 0:
            raise ValueError("not a length")
        blobs.append(body[start : start + length])
        start += length
    if start != body_length:
        raise ValueError("not as many bytes as announced")
    return message, iter(blobs)
