"""Sinks: a head may keep part of its weight, in place of handing all of it out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from .._validate import require_flag, require_number
from ..attention import MultiHeadAttention, register


@register("sinks")
class SinkAttention(MultiHeadAttention):
    """Each head has a number of its own beside the scores, a sink: it takes its share in the softmax, and has no value.

    The weights of a row are e^s / (e^z + Σ e^s), with the head's sink z. They sum to less than 1, and a head with
    nothing to say can write next to nothing. With z = 0, as a layer begins, that is "softmax-off-by-one"; towards −∞ it
    is the usual softmax. torch's fused kernel has no sinks: the weights are always made.

    Args:
        num_hiddens, num_heads, dropout, bias: as in `MultiHeadAttention`, like all others.
        sink: where each head's sink begins.
        learned: whether sinks are learned, or stay.

    Raises:
        TypeError, ValueError: an argument is not of this kind.

    Sources: OpenAI 2025, gpt-oss, in its program; Miller 2023, Attention is off by one, for z = 0.
    """

    rows_sum_to_one = False

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        sink: float = 0.0,
        learned: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__(num_hiddens, num_heads, dropout, bias, **settings)
        require_number("sink", sink)
        require_flag("learned", learned)
        self.sinks = nn.Parameter(torch.full((self.num_heads,), float(sink)), requires_grad=bool(learned))

    def softmax(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Scores (B, h, Q, K) -> weights whose rows sum to less than 1, 0 where `mask` is False."""
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        sinks = self.sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:-1], 1)
        return torch.cat([scores, sinks], -1).softmax(-1)[..., :-1]

    def keep_heads(self, heads: Iterable[int]) -> None:
        """As in `MultiHeadAttention`; a sink goes with its head."""
        heads = list(heads)
        super().keep_heads(heads)
        self.sinks = nn.Parameter(self.sinks.detach()[heads], self.sinks.requires_grad)
