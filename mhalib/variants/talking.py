"""Talking heads: scores and weights of a head are sums over all heads."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .._validate import require_choice, require_flag
from ..attention import MultiHeadAttention, register


@register("talking")
class TalkingHeads(MultiHeadAttention):
    """Heads exchange scores before the softmax, and weights after it.

    Head m's scores are sum_n P_scores[n, m] * (head n's scores), and so with `P_weights` after the softmax. The weights
    that are returned are what multiplies the values: rows of them need not sum to 1, and may be negative.

    Args:
        num_hiddens, num_heads, dropout, bias: as in `MultiHeadAttention`, like all of its others.
        init: "identity", where the layer begins as multi-head attention, or "normal", with deviation 1/√h.
        mix_bias: whether a number of each head is added to its mixed weights, of the keys that it may see; it begins at
            0. One added to scores would change nothing, since a softmax takes it out again.

    Raises:
        TypeError, ValueError: an argument is not of this kind.

    Sources: Shazeer et al. 2020, Talking-heads attention, section 4; as many heads of keys and of values as of scores.
    Touvron et al. 2021, Going deeper with image transformers, for `mix_bias`.
    """

    rows_sum_to_one = False

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        init: str = "identity",
        mix_bias: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(num_hiddens, num_heads, dropout, bias, **settings)
        require_choice("init", init, ("identity", "normal"))
        require_flag("mix_bias", mix_bias)
        h = self.num_heads
        start = torch.eye if init == "identity" else lambda n: torch.randn(n, n) * n**-0.5
        self.P_scores, self.P_weights = nn.Parameter(start(h)), nn.Parameter(start(h))
        self.mix_bias = nn.Parameter(torch.zeros(h)) if mix_bias else None

    def mix_scores(self, scores: Tensor, queries: Tensor, keys: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """(B, h, Q, K) -> (B, h, Q, K)."""
        return torch.einsum("bnqk,nm->bmqk", scores, self.P_scores)

    def mix_weights(self, weights: Tensor, queries: Tensor, keys: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """(B, h, Q, K) -> (B, h, Q, K)."""
        mixed = torch.einsum("bnqk,nm->bmqk", weights, self.P_weights)
        if self.mix_bias is None:
            return mixed
        bias = self.mix_bias[:, None, None]
        return mixed + (bias if mask is None else bias * mask)
