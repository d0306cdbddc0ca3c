"""Texts of different lengths in one batch: what is padding, who sees what, and where tokens stand."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .._validate import require_tensor, seen_extremes
from ..attention import Band
from ..attention.masks import Mask


def only_real(is_real: Tensor | None, x: Tensor) -> Tensor | None:
    """The mask that hides padding of a source, vectors (B, K, D), from all."""
    if is_real is None:
        return None
    require_tensor("memory", x, rank=3)
    require_real_tokens(is_real, x, 0, "source_is_real")
    return is_real[:, None, None]


def places_of(name: str, tokens: Tensor, is_real: Tensor, start: int = 0) -> Tensor:
    """Where tokens (B, N) stand, counted from the first real one, of which `start` are not among them: (B, N). Errors
    call the tokens by `name`; the tokens of a model with one text have the name ""."""
    require_tensor(name or "tokens", tokens, rank=2)
    require_real_tokens(is_real, tokens, start, f"{name}_is_real" if name else "is_real")
    return (is_real.long().cumsum(1)[:, start:] - 1).clamp(min=0)


def without_padding(
    band: Band, is_real: Tensor | None, tokens: Tensor, start: int, name: str = ""
) -> tuple[Mask, Tensor | None]:
    """What tokens (B, N), of which the first is number `start` of its row, see, and their places as in `places_of`.
    Without `is_real` it is what `band` says, and `None`: their places in the row."""
    if is_real is None:
        return band, None
    places = places_of(name, tokens, is_real, start)
    seen = band.matrix(tokens.shape[1], start + tokens.shape[1], device=tokens.device)
    return seen & is_real[:, None, None], places


def require_real_tokens(is_real: object, tokens: Tensor, start: int, name: str = "is_real") -> None:
    """Raise unless `is_real` is a boolean tensor (TypeError) of shape (B, start + N), on the device of `tokens`, and
    has no padding between the real tokens of a text (ValueError)."""
    require_tensor(name, is_real, rank=2)
    assert isinstance(is_real, Tensor)
    if is_real.dtype != torch.bool:
        raise TypeError(f"{name} must be boolean, got {is_real.dtype}")
    wanted = (tokens.shape[0], start + tokens.shape[1])
    if tuple(is_real.shape) != wanted:
        raise ValueError(f"{name} has shape {tuple(is_real.shape)}, but tokens and caches make it {wanted}")
    if is_real.device != tokens.device:
        raise ValueError(f"{name} is on {is_real.device}, but tokens is on {tokens.device}")
    begins = is_real & ~nn.functional.pad(is_real, (1, 0))[:, :-1]
    extremes = seen_extremes(begins.sum(1))
    if extremes is not None and extremes[1] > 1:
        raise ValueError(f"{name} has padding between the real tokens of a text: it must be before or behind them")
