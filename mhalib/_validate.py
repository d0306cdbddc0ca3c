"""Checks on arguments that several modules share. Every message names the argument and its value."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

LARGEST = 2**63 - 1  # of what torch counts with


def require_tensor(name: str, value: object, rank: int | None = None) -> None:
    """Raise unless `value` is a tensor (TypeError) with `rank` axes (ValueError)."""
    if not isinstance(value, torch.Tensor):
        how = f"; torch.as_tensor({name}) makes one" if isinstance(value, np.ndarray) else ""
        shown = " ".join(repr(value).split())  # an array's lines as one
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}: {shown:.80}{how}")
    if value.is_nested:
        raise TypeError(f"{name} is a nested tensor: pad it, and give valid_lens")
    if value.layout is torch.sparse_coo or value.layout is torch.sparse_csr:
        raise TypeError(f"{name} is a sparse tensor: give {name}.to_dense()")
    if rank is not None and value.dim() != rank:
        raise ValueError(f"{name} must have {rank} axes, got shape {tuple(value.shape)}")


def require_count(name: str, value: object, minimum: int = 1) -> None:
    """Raise unless `value` is an integer (TypeError) of at least `minimum` (ValueError)."""
    if isinstance(value, torch.Tensor) and torch.jit.is_tracing():  # type: ignore[attr-defined]
        return  # a size in a traced graph
    if isinstance(value, bool) or not isinstance(value, (numbers.Integral, torch.SymInt)):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}: {value!r:.80}")
    if value < minimum:
        raise ValueError(f"{name}={value} must be at least {minimum}")
    if not isinstance(value, torch.SymInt) and value > LARGEST:  # type: ignore[operator]
        raise ValueError(f"{name}={value} must be at most {LARGEST}")


def require_at_most(name: str, value: int, most: int) -> None:
    """Raise ValueError if a number is too large."""
    if value > most:
        raise ValueError(f"{name}={value} must be at most {most}")


def require_flag(name: str, value: object) -> None:
    """Raise TypeError unless `value` is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {type(value).__name__}: {value!r:.80}")


def require_text(name: str, value: object) -> None:
    """Raise TypeError unless `value` is a string."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, got {type(value).__name__}: {value!r:.80}")


def require_title(title: object) -> None:
    """Raise TypeError unless `title` is a string or `None`."""
    if title is not None:
        require_text("title", title)


def require_function(name: str, value: object) -> None:
    """Raise TypeError unless `value` can be called."""
    if not callable(value):
        raise TypeError(f"{name} must be a function, got {type(value).__name__}: {value!r:.80}")


def require_kind(name: str, value: object, kind: type | tuple[type, ...]) -> None:
    """Raise TypeError unless `value` is an object of the class `kind`, or of one of these classes."""
    if not isinstance(value, kind):
        kinds = " or ".join(one.__name__ for one in (kind if isinstance(kind, tuple) else (kind,)))
        raise TypeError(f"{name} must be a {kinds}, got {type(value).__name__}: {value!r:.80}")


def as_list(name: str, value: object) -> list[Any]:
    """`value` as a list; TypeError if it is text, a tensor without axes, or nothing that has entries."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable) or getattr(value, "ndim", 1) == 0:
        raise TypeError(f"{name} must be a list, got {type(value).__name__}: {value!r:.80}")
    if isinstance(value, type):
        raise TypeError(f"{name} must be a list, got the class {value.__name__}")
    return list(value)


def as_path(name: str, value: object) -> Path:
    """`value` as a path; TypeError if it is neither a string nor a path, ValueError if it names nothing."""
    if not isinstance(value, (str, Path)):
        raise TypeError(f"{name} must be a string or a Path, got {type(value).__name__}: {value!r:.80}")
    if not Path(value).name:
        raise ValueError(f"{name}={str(value)!r} is not the name of a file")
    return Path(value)


def require_device(name: str, device: object) -> None:
    """Raise unless `device` is `None` or names a device (TypeError) that is here (ValueError)."""
    if device is None or isinstance(device, torch.device):
        return
    if not isinstance(device, str):
        raise TypeError(f"{name} must be a torch.device or its name, got {type(device).__name__}: {device!r:.80}")
    if device.partition(":")[0] == "mps" and not torch.backends.mps.is_available():
        raise ValueError(f"{name}={device!r} cannot be used here: torch finds no Apple GPU")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{name}={device!r} cannot be used here: {reason}") from error


def require_seed(name: str, value: object) -> None:
    """Raise unless `value` is an integer (TypeError) from 0 on (ValueError)."""
    require_count(name, value, minimum=0)


def require_values(name: str, x: Tensor) -> None:
    """Raise ValueError if the numbers of `x` cannot be read: on the device "meta" there are none."""
    if x.is_meta:
        raise ValueError(f"{name} is on the device meta, where tensors have shapes and no values")


def require_integers(name: str, x: Tensor) -> None:
    """Raise TypeError unless the tensor `x` holds integers."""
    if x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
        raise TypeError(f"{name} must hold integers, got {x.dtype}")


def seen_extremes(x: Tensor) -> tuple[int, int] | None:
    """The smallest and the largest of integers; `None` where there are none, or where nobody can look at values: in a
    graph, on the device "meta", under `vmap`."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or not x.numel():  # type: ignore[attr-defined]
        return None
    try:
        smallest, largest = (int(edge) for edge in x.aminmax())
    except RuntimeError:  # under vmap, and on the device "meta"
        return None
    return smallest, largest


def require_probability(name: str, value: object) -> None:
    """Raise unless `value` is a number (TypeError) in [0, 1] (ValueError)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number in [0, 1], got {type(value).__name__}: {value!r:.80}")
    if not 0 <= value <= 1:
        raise ValueError(f"{name}={value} must lie in [0, 1]")


def require_divisible(width_name: str, width: int, num_heads: int) -> None:
    """Raise ValueError unless `num_heads` divides `width`, as heads of equal width need; both are counts."""
    if width % num_heads:
        raise ValueError(f"{width_name}={width} is not divisible by num_heads={num_heads}")


def require_scale(scale: object) -> None:
    """Raise unless `scale` is `None` or a number (TypeError), positive and finite (ValueError)."""
    if scale is None:
        return
    require_positive("scale", scale)


def require_number(name: str, value: object) -> None:
    """Raise unless `value` is a number (TypeError), and finite (ValueError)."""
    require_real(name, value)
    if not -LARGEST <= value <= LARGEST and not (isinstance(value, float) and math.isfinite(value)):  # type: ignore[operator]
        raise ValueError(f"{name}={value} must be finite")


def require_real(name: str, value: object) -> None:
    """Raise TypeError unless `value` is a real number, be it infinite or NaN."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}: {value!r:.80}")


def require_positive(name: str, value: object) -> None:
    """Raise unless `value` is a number (TypeError), positive and finite (ValueError)."""
    require_real(name, value)
    if not 0 < value < math.inf:  # type: ignore[operator]
        raise ValueError(f"{name}={value} must be positive and finite")
    require_number(name, value)


def require_width(name: str, x: object, width: int) -> None:
    """Raise unless `x` is a tensor (TypeError) of shape (B, N, width) (ValueError)."""
    require_tensor(name, x, rank=3)
    if x.shape[-1] != width:  # type: ignore[attr-defined]
        raise ValueError(f"{name} has width {x.shape[-1]}, but the layer was made for {width}")  # type: ignore[attr-defined]


def require_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise ValueError unless `value` is one of `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}={value!r:.80} must be one of {tuple(choices)}")


def require_scores(scores: object) -> None:
    """Raise TypeError unless `scores` is a tensor of floating-point numbers."""
    require_tensor("scores", scores)
    if not scores.is_floating_point():  # type: ignore[attr-defined]
        raise TypeError(f"scores must hold floating-point numbers, got {scores.dtype}")  # type: ignore[attr-defined]


def require_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> None:
    """Raise unless q (..., Q, d), k (..., K, d), v (..., K, d_v) and the mask fit each other."""
    for name, x in {"q": q, "k": k, "v": v}.items():
        require_tensor(name, x)
        if x.dim() < 2:
            raise ValueError(f"{name} needs at least 2 axes, got shape {tuple(x.shape)}")
        if not x.is_floating_point():
            raise TypeError(f"{name} must hold floating-point numbers, got {x.dtype}")
        if x.dtype != q.dtype:
            raise TypeError(f"{name} is {x.dtype}, but q is {q.dtype}")
        if x.device != q.device:
            raise ValueError(f"{name} is on {x.device}, but q is on {q.device}")
        if x.shape[:-2] != q.shape[:-2]:
            raise ValueError(f"{name} has leading axes {tuple(x.shape[:-2])}, but q has {tuple(q.shape[:-2])}")
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q and k must have one width to be compared: q has {q.shape[-1]}, k has {k.shape[-1]}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"each key needs a value: {k.shape[-2]} keys, {v.shape[-2]} values")
    if mask is not None:
        require_mask(mask, (*q.shape[:-1], k.shape[-2]), q.device)


def require_mask(mask: Tensor, weights_shape: tuple[int, ...], device: torch.device) -> None:
    """Raise unless `mask` is boolean (TypeError), on `device`, and broadcasts to `weights_shape` (ValueError)."""
    require_tensor("mask", mask)
    if mask.dtype != torch.bool:
        raise TypeError(f"mask must be boolean (True = may attend), got {mask.dtype}")
    if mask.device != device:
        raise ValueError(f"mask is on {mask.device}, but the scores are on {device}")
    last = weights_shape[max(len(weights_shape) - mask.dim(), 0) :]  # the axes that the mask names
    fits = len(last) == mask.dim() and all(have in (1, want) for have, want in zip(mask.shape, last, strict=True))
    if not fits:
        raise ValueError(f"mask has shape {tuple(mask.shape)}, which does not broadcast to {tuple(weights_shape)}")
