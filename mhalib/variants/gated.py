"""Gated output: each token turns each head up or down before W_o."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from .._validate import require_flag
from ..attention import MultiHeadAttention, register
from ..attention.heads import reduced


@register("gated")
class GatedAttention(MultiHeadAttention):
    """What each head found is multiplied by sigmoid(x W_gate), a number for each head or each of its channels.

    x is the layer's input of the queries. With W_gate = 0 every gate is 1/2: the layer is then multi-head attention
    with half of W_o.

    Args:
        num_hiddens, num_heads, dropout, bias: as in `MultiHeadAttention`, like all others. W_gate has no bias.
        per_channel: whether each of a head's channels has a gate, or one gate serves the head.

    Raises:
        TypeError, ValueError: an argument is not of this kind.

    Source: Qiu et al. 2025, Gated attention for large language models, section 3, position G1.
    """

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        per_channel: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(num_hiddens, num_heads, dropout, bias, **settings)
        require_flag("per_channel", per_channel)
        self.per_channel = bool(per_channel)
        self.W_gate = nn.Linear(self.query_size, self.num_heads * self._gates_per_head(), bias=False)

    def gates(self, queries: Tensor) -> Tensor:
        """The layer's input (B, Q, query_size) -> gates (B, h, Q, 1), or (B, h, Q, value_dim) with `per_channel`."""
        gates: Tensor = self.W_gate(queries).sigmoid()
        return gates.unflatten(-1, (self.num_heads, self._gates_per_head())).transpose(1, 2)

    def gate(self, outputs: Tensor, queries: Tensor) -> Tensor:
        """(B, h, Q, value_dim) -> (B, h, Q, value_dim)."""
        return outputs * self.gates(queries)

    def keep_heads(self, heads: Iterable[int]) -> None:
        """As in `MultiHeadAttention`; a gate goes with its head."""
        heads, width = list(heads), self._gates_per_head()
        super().keep_heads(heads)
        self.W_gate = reduced(self.W_gate, [slice(head * width, (head + 1) * width) for head in heads], 0)

    def _gates_per_head(self) -> int:
        return self.value_dim if self.per_channel else 1
