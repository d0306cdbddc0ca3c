"""Which layers the references and converters know."""

from __future__ import annotations

from ..attention import MultiHeadAttention


def require_known(name: str, layer: object) -> None:
    """Raise TypeError unless `layer` is a `MultiHeadAttention` whose steps are its own."""
    if not isinstance(layer, MultiHeadAttention):
        raise TypeError(f"{name} must be a MultiHeadAttention, got {type(layer).__name__}: {layer!r:.80}")
    if layer.is_variant:
        raise TypeError(f"{name} is a {type(layer).__name__}, a variant whose steps are not known here")


def require_no_turning(name: str, layer: MultiHeadAttention, other: str) -> None:
    """Raise ValueError if the layer has positions of its own, which `other` lacks."""
    if layer.positions is not None:
        raise ValueError(f"{name} turns its queries and keys by their positions, which {other} does not")
