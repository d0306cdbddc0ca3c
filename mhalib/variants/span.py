"""Adaptive span: each head learns how far back it looks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from .._validate import require_count, require_positive
from ..attention import MultiHeadAttention, register


@register("span")
class SpanAttention(MultiHeadAttention):
    """Head i's weights are multiplied by clamp((ramp + span_i - distance) / ramp, 0, 1), and divided by their sum.

    The distance is that of a query to a key before it; keys behind it are hidden by the mask. Beyond span_i + ramp
    tokens a head has no weights, so that it needs neither scores nor cache there. `span_loss` times a small number,
    added to a training's loss, makes spans short.

    Args:
        num_hiddens, num_heads, dropout, bias: as in `MultiHeadAttention`, like all others.
        max_span: the longest span that a head can learn.
        ramp: tokens over which the weights go down to 0.
        begin: share of `max_span` at which spans begin.

    Raises:
        TypeError, ValueError: an argument is not of this kind.

    Source: Sukhbaatar et al. 2019, Adaptive attention span in transformers, section 2.2.
    """

    looks_at_itself_only = True

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        max_span: int = 64,
        ramp: float = 8.0,
        begin: float = 1.0,
        **settings: Any,
    ) -> None:
        super().__init__(num_hiddens, num_heads, dropout, bias, **settings)
        require_count("max_span", max_span)
        require_positive("ramp", ramp)
        require_positive("begin", begin)
        if begin > 1:
            raise ValueError(f"begin={begin} must be at most 1")
        self.max_span, self.ramp = int(max_span), float(ramp)
        self.span_shares = nn.Parameter(torch.full((self.num_heads,), float(begin)))

    @property
    def spans(self) -> Tensor:
        """Each head's span in tokens, (h,)."""
        return self.span_shares.clamp(0, 1) * self.max_span

    @property
    def span_loss(self) -> Tensor:
        """The mean span, as a share of the longest."""
        mean = self.span_shares.clamp(0, 1).mean()
        return mean.full_tensor() if self.is_split else mean  # type: ignore[attr-defined, no-any-return]

    def softmax(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Scores (B, h, Q, K) -> weights; the last query is the last key's token."""
        num_queries, num_kvpairs = scores.shape[-2:]
        if num_queries > num_kvpairs:
            raise ValueError(f"spans are for self-attention: {num_queries} queries, but {num_kvpairs} keys")
        places = torch.arange(num_kvpairs, device=scores.device)
        distances = places[num_kvpairs - num_queries :, None] - places
        kept = ((self.ramp + self.spans[:, None, None] - distances.clamp_min(0)) / self.ramp).clamp(0, 1)
        inside = kept > 0
        mask = inside if mask is None else mask & inside
        # the logarithm of a share is added, not the share multiplied: one softmax then does the rest
        shares = torch.where(inside, kept, torch.ones_like(kept)).log()
        return super().softmax(scores + shares.to(scores.dtype), mask.expand(scores.shape))

    def keep_heads(self, heads: Iterable[int]) -> None:
        """As in `MultiHeadAttention`; a span goes with its head."""
        heads = list(heads)
        super().keep_heads(heads)
        self.span_shares = nn.Parameter(self.span_shares.detach()[heads], self.span_shares.requires_grad)
