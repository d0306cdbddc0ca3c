"""Soft-capping: no score leaves the interval from −cap to cap."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .._validate import require_positive
from ..attention import MultiHeadAttention, register


@register("soft-cap")
class SoftCapAttention(MultiHeadAttention):
    """Each score s becomes cap · tanh(s / cap), before the mask: small ones hardly change, none exceeds `cap`.

    Args:
        num_hiddens, num_heads, dropout, bias: as in `MultiHeadAttention`, like all others.
        cap: the largest size of a score, above 0; Gemma 2 takes 50.

    Raises:
        TypeError, ValueError: an argument is not of this kind.

    Source: Gemma Team 2024, Gemma 2, section 2.
    """

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        cap: float = 50.0,
        **settings: Any,
    ) -> None:
        super().__init__(num_hiddens, num_heads, dropout, bias, **settings)
        require_positive("cap", cap)
        self.cap = float(cap)

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        """q (B, h, Q, d) and k (B, h, K, d) -> scores (B, h, Q, K) from −cap to cap."""
        return (super().score(q, k) / self.cap).tanh() * self.cap
