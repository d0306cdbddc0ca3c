"""How much one operation of torch computes, and how many bytes it moves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

MAKES = {"empty", "empty_strided"}  # memory that is taken, and nothing written
LOOKUPS = {"embedding", "index", "index_select", "gather"}
OVERWRITES = {"copy_", "zero_", "fill_", "uniform_", "normal_", "bernoulli_", "random_", "exponential_"}


def flops(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
    """What torch's `FlopCounterMode` counts of one call: products of matrices and convolutions, 0 of all else."""
    formula = flop_registry.get(func._overloadpacket)
    return 0 if formula is None else int(formula(*args, **kwargs, out_val=result))


def moved(func: Any, name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], in_place: bool) -> int:
    """Bytes that an operation reads and writes: each input once and each output once. A view moves nothing.

    Args:
        func: the operation, and
        name: its name in torch's namespace aten.
        inputs: the tensors that it was given, without memory for the results.
        outputs: what it returned.
        in_place: whether it writes into memory that it was given.
    """
    if torch.Tag.inplace_view in func.tags:
        return 0
    given = {_storage(tensor) for tensor in inputs}
    if inputs and not in_place and all(_storage(tensor) in given for tensor in outputs):
        return 0  # a view
    if name.removesuffix("_like").removeprefix("new_") in MAKES:
        return 0
    written = sum(map(_bytes, outputs))
    if name.endswith("_like") or name.startswith("new_"):
        return written
    if name in LOOKUPS:
        return 2 * written + sum(_bytes(tensor) for tensor in inputs[1:])  # a table's numbers, and where they stand
    read = inputs[1:] if name in OVERWRITES else inputs
    places = {(_storage(x), x.storage_offset(), tuple(x.shape), x.stride()): _bytes(x) for x in read}
    return written + sum(places.values())


def _bytes(tensor: Tensor) -> int:
    """Of the numbers in a tensor, where one that a view repeats counts once."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return math.prod(size for size, stride in pairs if stride or not size) * tensor.element_size()


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
