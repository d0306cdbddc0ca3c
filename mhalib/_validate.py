"""Checks on arguments that several modules share. Every message names the argument and its value."""

from __future__ import annotations

import numbers

import torch


def require_tensor(name: str, value: object, rank: int | None = None) -> None:
    """Raise unless `value` is a tensor (TypeError) with `rank` axes (ValueError)."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}: {value!r:.80}")
    if rank is not None and value.dim() != rank:
        raise ValueError(f"{name} must have {rank} axes, got shape {tuple(value.shape)}")


def require_count(name: str, value: object, minimum: int = 1) -> None:
    """Raise unless `value` is an integer (TypeError) of at least `minimum` (ValueError)."""
    if isinstance(value, bool) or not isinstance(value, (numbers.Integral, torch.SymInt)):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}: {value!r:.80}")
    if value < minimum:
        raise ValueError(f"{name}={value} must be at least {minimum}")


def require_probability(name: str, value: object) -> None:
    """Raise unless `value` is a number (TypeError) in [0, 1] (ValueError)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number in [0, 1], got {type(value).__name__}: {value!r:.80}")
    if not 0 <= value <= 1:
        raise ValueError(f"{name}={value} must lie in [0, 1]")


def require_divisible(width_name: str, width: int, num_heads: int) -> None:
    """Raise ValueError unless `num_heads` divides `width`, as heads of equal width need."""
    if width % num_heads:
        raise ValueError(f"{width_name}={width} is not divisible by num_heads={num_heads}")
