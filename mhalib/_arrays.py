"""What the plots are given, as numpy arrays: tensors and arrays of any device and dtype, checked by name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ._validate import require_tensor

Array = torch.Tensor | NDArray[np.floating]
Mask = torch.Tensor | NDArray[np.bool_]


def whole_numbers(name: str, value: object) -> NDArray[np.int64]:
    """`value` as a matrix of integers; `ValueError` if a number in it is not whole."""
    table = real_array(name, value, rank=2)
    if (table != table.round()).any():
        raise ValueError(f"{name} must hold whole numbers, got {table[table != table.round()][0]}")
    return table.astype(np.int64)


def real_array(name: str, value: object, rank: int | tuple[int, ...]) -> NDArray[np.float64]:
    """`value` as an array of real numbers with one of the given ranks, wherever it was stored."""
    if isinstance(value, torch.Tensor):
        _require_readable(name, value)
        value = value.detach().to("cpu", torch.float64).numpy()
    elif not isinstance(value, np.ndarray):
        raise TypeError(f"{name} must be a torch.Tensor or numpy.ndarray, got {type(value).__name__}")
    ranks = (rank,) if isinstance(rank, int) else rank
    if value.ndim not in ranks:
        wanted = " or ".join(str(r) for r in ranks)
        raise ValueError(f"{name} must have {wanted} axes, got shape {value.shape}")
    if value.size == 0:
        raise ValueError(f"{name} is empty: shape {value.shape}")
    if value.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got {value.dtype}")
    return value.astype(np.float64)


def _require_readable(name: str, value: torch.Tensor) -> None:
    require_tensor(name, value)
    if value.is_meta:
        raise ValueError(f"{name} is on the device meta: it has no numbers")
    if value.is_complex():
        raise TypeError(f"{name} must hold real numbers, got {value.dtype}")


def seen_cells(mask: Mask | None, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """The mask in full: `True` for every cell that may be attended to."""
    if mask is None:
        return np.ones(shape, dtype=bool)
    if isinstance(mask, torch.Tensor):
        _require_readable("mask", mask)
    array = mask.detach().cpu().numpy() if isinstance(mask, torch.Tensor) else np.asarray(mask)
    if array.dtype != bool:
        raise TypeError(f"mask must be boolean (True = may attend), got {array.dtype}")
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(f"mask has shape {array.shape}, which does not broadcast to {shape}") from None


def require_length(name: str, value: Sequence[object], length: int) -> None:
    """Raise `ValueError` unless `value` has `length` entries."""
    if len(value) != length:
        raise ValueError(f"{name} has {len(value)} entries, but the weights need {length}")
