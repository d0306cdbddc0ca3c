"""What several variants ask of their settings, and of a layer that they are made from."""

from __future__ import annotations

from typing import Any

from .._validate import require_kind
from ..attention import MultiHeadAttention


def refuse(settings: dict[str, Any], why: str, **only: object) -> None:
    """Raise ValueError where a setting has another value than the only one that the variant can have."""
    for name, value in only.items():
        given = settings.get(name, value)
        if given != value:
            raise ValueError(f"{name}={given!r:.80} cannot be: {why}")


def plain(layer: object, *, positions: str = "any", grouped: bool = True) -> None:
    """Raise unless `layer` is multi-head attention and no variant (TypeError), and without rotary positions or shared
    keys where those cannot be kept (ValueError)."""
    require_kind("layer", layer, MultiHeadAttention)
    assert isinstance(layer, MultiHeadAttention)
    if layer.is_variant:
        raise TypeError(f"layer is a {type(layer).__name__}, a variant: only multi-head attention can be turned")
    if positions == "none" and layer.positions is not None:
        raise ValueError("layer has rotary positions, which the other layer cannot keep")
    if not grouped and layer.num_kv_heads != layer.num_heads:
        raise ValueError(f"layer has num_kv_heads={layer.num_kv_heads}, but the other layer needs {layer.num_heads}")
