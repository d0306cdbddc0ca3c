"""What several variants ask of their settings, and of a layer that they are made from."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .._validate import as_list, require_count, require_kind
from ..attention import MultiHeadAttention

NORMS_OF_HEADS = ("layer", "rms")
"""The norms that queries and keys may have."""


def norm_of_head(kind: str | None, width: int, eps: float | None = None) -> nn.Module:
    """A norm over `width` channels, with gains and no biases; `None` means none."""
    if kind is None:
        return nn.Identity()
    if kind == "layer":
        return nn.LayerNorm(width, bias=False, eps=1e-5 if eps is None else eps)
    return nn.RMSNorm(width, eps=1e-6 if eps is None else eps)


def refuse(settings: dict[str, Any], why: str, **only: object) -> None:
    """Raise ValueError where a setting has another value than the only one that the variant can have."""
    for name, value in only.items():
        given = settings.get(name, value)
        if given != value:
            raise ValueError(f"{name}={given!r:.80} cannot be: {why}")


def sizes_of(layer: MultiHeadAttention) -> dict[str, Any]:
    """What a layer of the same sizes is made with; keys that heads share and positions are left to whoever makes it."""
    return {
        "num_hiddens": layer.num_hiddens,
        "num_heads": layer.num_heads,
        "dropout": layer.dropout,
        "bias": layer.W_v.bias is not None,
        "out_bias": layer.W_o.bias is not None,
        "query_size": layer.query_size,
        "key_size": layer.key_size,
        "value_size": layer.value_size,
        "head_dim": layer.head_dim,
        "value_dim": layer.value_dim,
        "scale": layer.scale,
    }


def plain(layer: object, *, rotary: bool = True, grouped: bool = True) -> None:
    """Raise unless `layer` is multi-head attention and no variant (TypeError), and without rotary positions or shared
    keys where those cannot be kept (ValueError)."""
    require_kind("layer", layer, MultiHeadAttention)
    assert isinstance(layer, MultiHeadAttention)
    if layer.is_variant:
        raise TypeError(f"layer is a {type(layer).__name__}, a variant: only multi-head attention can be turned")
    if not rotary and layer.positions is not None:
        raise ValueError("layer has rotary positions, which the other layer cannot keep")
    if not grouped and layer.num_kv_heads != layer.num_heads:
        raise ValueError(f"layer has num_kv_heads={layer.num_kv_heads}, but the other layer needs {layer.num_heads}")


def largest(x: Tensor, number: int) -> Tensor:
    """Boolean, shaped like x (..., K): which are the `number` largest of their row. -inf is never among them."""
    best = x.topk(min(number, x.shape[-1]), -1).indices
    return torch.zeros_like(x, dtype=torch.bool).scatter(-1, best, True) & (x > -torch.inf)


def as_pair(name: str, numbers: object) -> tuple[int, int]:
    """Two positive integers; TypeError or ValueError otherwise."""
    pair = as_list(name, numbers)
    if len(pair) != 2:
        raise ValueError(f"{name}={pair!r:.80} must be two numbers")
    for number in pair:
        require_count(name, number)
    return int(pair[0]), int(pair[1])
