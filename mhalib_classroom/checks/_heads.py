"""Splits and merges of heads, right and wrong, that the exercises and mistakes of chapters 4 to 7 are made of."""

from __future__ import annotations

from torch import Tensor


def straight_split(x: Tensor, num_heads: int) -> Tensor:
    """(B, N, D) -> (B, h, N, d) by one reshape: the wrong one."""
    return x.reshape(len(x), num_heads, x.shape[1], -1)


def straight_merge(x: Tensor) -> Tensor:
    """(B, h, N, d) -> (B, N, D) by one reshape: the wrong one."""
    return x.reshape(len(x), x.shape[2], -1)


def interleaved_split(x: Tensor, num_heads: int) -> Tensor:
    """(B, N, D) -> (B, h, N, d) where column c is of head c % h: also wrong."""
    return x.unflatten(-1, (-1, num_heads)).permute(0, 3, 1, 2)


def interleaved_merge(x: Tensor) -> Tensor:
    """(B, h, N, d) -> (B, N, D), the way back from `interleaved_split`."""
    return x.permute(0, 2, 3, 1).flatten(2)


def merge_folded_head_first(x: Tensor, num_heads: int) -> Tensor:
    """(h*B, N, d) -> (B, N, D) where row i*B + b is head i of example b: right."""
    return x.unflatten(0, (num_heads, -1)).permute(1, 2, 0, 3).flatten(2)
