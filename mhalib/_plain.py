"""Tensors and plain values in one file, of which nothing can be executed, as it could of a pickle: safetensors, and how
they belong together as JSON in its header."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

KEY, DEEPEST = "mhalib", 50


def packed(value: Any) -> bytes:
    """Dictionaries, lists, tuples, numbers, texts and tensors. One tensor in several places is stored once.

    Raises:
        TypeError: there is something else in it.
    """
    tensors: dict[str, Tensor] = {}
    names: dict[tuple[Any, ...], str] = {}

    def told(one: Any) -> Any:
        if one is None or type(one) in (bool, int, float, str):
            return one
        if isinstance(one, Tensor):
            whose = (one.data_ptr(), one.shape, one.stride(), one.dtype, one.device) if one.numel() else (id(one),)
            name = names.setdefault(whose, str(len(names)))
            if name not in tensors:
                tensors[name] = one.detach().to("cpu", copy=True).contiguous()
            return {"tensor": name}
        if isinstance(one, Mapping):
            return {"dict": [[told(key), told(each)] for key, each in one.items()]}
        if isinstance(one, (list, tuple)):
            return {type(one).__name__: [told(each) for each in one]}
        raise TypeError(f"{type(one).__name__} cannot be stored without a pickle: {one!r:.80}")

    return save(tensors, {KEY: json.dumps(told(value))})


def unpacked(content: bytes) -> Any:
    """What `packed` was given, on the CPU.

    Raises:
        ValueError, or what safetensors raises: it is something else.
    """
    length = int.from_bytes(content[:8], "little")
    if not 0 < length <= len(content) - 8:
        raise ValueError("the header is longer than the file")
    header = json.loads(content[8 : 8 + length])
    tensors = load(content)

    def made(one: Any, depth: int = 0) -> Any:
        if depth > DEEPEST:
            raise ValueError("nested too deep")
        if not isinstance(one, dict):
            if one is None or isinstance(one, (bool, int, float, str)):
                return one
            raise ValueError(f"not a value: {one!r:.80}")
        ((kind, held),) = one.items()
        if kind == "tensor":
            return tensors[held]
        if kind == "dict":
            return {made(key, depth + 1): made(each, depth + 1) for key, each in held}
        if kind in ("list", "tuple", "Size"):
            parts = [made(each, depth + 1) for each in held]
            return parts if kind == "list" else torch.Size(parts) if kind == "Size" else tuple(parts)
        raise ValueError(f"not a value: {one!r:.80}")

    return made(json.loads(header["__metadata__"][KEY]))
