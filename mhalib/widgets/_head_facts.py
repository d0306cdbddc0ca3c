"""What the head explorer says of heads beside their weights: which share keys, and how far each is turned up."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._arrays import Array, real_array
from .._validate import as_list, require_count
from ._codes import LEVELS, written


def checked_groups(groups: object, num_layers: int, num_heads: int) -> list[list[int]]:
    """The key of each head: one list for all layers, or one for each, empty where heads share none.

    Raises:
        TypeError, ValueError: `groups` is not of this kind.
    """
    if groups is None:
        return []
    given = as_list("groups", _plain(groups))
    if not any(one is None or isinstance(one, (list, tuple, range)) for one in given):
        return [_one_group("groups", given, num_heads)]
    if len(given) != num_layers:
        raise ValueError(f"groups has {len(given)} lists, but there are {num_layers} layers")
    return [[] if one is None else _one_group(f"groups[{i}]", one, num_heads) for i, one in enumerate(given)]


def _one_group(name: str, given: object, num_heads: int) -> list[int]:
    keys = as_list(name, given)
    if len(keys) != num_heads:
        raise ValueError(f"{name} has {len(keys)} entries, but there are {num_heads} heads: say which key each has")
    for i, key in enumerate(keys):
        require_count(f"{name}[{i}]", key, minimum=0)
    return [int(key) for key in keys]


def checked_gates(
    gates: object, num_layers: int, num_examples: int, num_heads: int, num_queries: int
) -> tuple[list[int], list[int]]:
    """The gates in thousandths, a number for each layer (or one for all), example, head and query, and how many
    examples and queries they tell apart.

    Raises:
        TypeError, ValueError: `gates` is not of this kind.
    """
    if gates is None:
        return [], []
    per_layer = isinstance(gates, (list, tuple)) and not all(isinstance(one, numbers.Real) for one in gates)
    given = list(gates) if per_layer else [gates]  # type: ignore[call-overload]
    if per_layer and len(given) != num_layers:
        raise ValueError(f"gates has {len(given)} entries, but there are {num_layers} layers")
    names = [f"gates[{i}]" for i in range(len(given))] if per_layer else ["gates"]
    tables = [_one_gate(*each) for each in zip(names, given, strict=True)]
    fits = [(num_heads,), (num_heads, num_queries), (num_examples, num_heads, num_queries)]
    for name, table in zip(names, tables, strict=True):
        if table.shape not in fits:
            wanted = ", ".join(map(str, fits[:2]))
            raise ValueError(f"{name} has shape {table.shape}, but the weights need {wanted} or {fits[2]}")
        if table.shape != tables[0].shape:
            raise ValueError(f"{name} has shape {table.shape}, but {names[0]} has {tables[0].shape}")
        if not np.isfinite(table).all():
            raise ValueError(f"{name} holds {table[~np.isfinite(table)][0]}: a gate must be finite")
    rank = tables[0].ndim
    whole = np.stack(tables).clip(-1e6, 1e6) * LEVELS
    sizes = [num_examples if rank == 3 else 1, num_queries if rank > 1 else 1]
    return [int(one) for one in whole.round().ravel()], sizes


def _one_gate(name: str, given: Any) -> NDArray[np.float64]:
    if isinstance(given, (list, tuple)):
        try:
            given = np.asarray(given)
        except ValueError:
            raise ValueError(f"{name} has rows of different lengths: {given!r:.80}") from None
        if given.dtype.kind not in "fiub":
            raise TypeError(f"{name} must hold real numbers, got {given.dtype}")
    table: NDArray[np.float64] = real_array(name, given, rank=(1, 2, 3))
    return table


def sharing(keys: Sequence[int], head: int) -> str:
    """Which heads share the key of `head`, in words; nothing where each head has its own."""
    if len(set(keys)) == len(keys):
        return ""
    heads = [one for one, key in enumerate(keys) if key == keys[head]]
    if len(heads) == 1:
        return f"head {head} alone has key {keys[head]}"
    all_between = len(heads) > 3 and heads[-1] - heads[0] == len(heads) - 1
    shown = f"{heads[0]} to {heads[-1]}" if all_between else ", ".join(map(str, heads))
    return f"heads {shown} share key {keys[head]}"


def all_sharing(keys: Sequence[int]) -> list[str]:
    """`sharing` of each group, once."""
    return [text for text in dict.fromkeys(sharing(keys, head) for head in range(len(keys))) if text]


def gate_of(gates: Array | NDArray[Any] | Sequence[int], index: int) -> str:
    """A gate as it is shown."""
    return written(int(gates[index % len(gates)]))


def _plain(groups: object) -> object:
    """Arrays and tensors as lists."""
    return groups.tolist() if hasattr(groups, "tolist") else groups
