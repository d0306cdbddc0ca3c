"""Gated output: each token turns each head up or down before W_o."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from .._validate import require_choice, require_flag
from ..attention import MultiHeadAttention, register
from ..attention.heads import reduced
from ._settings import NORMS_OF_HEADS, norm_of_head

STARTS = ("usual", "multi-head")
"""How a gated layer may begin."""


@register("gated")
class GatedAttention(MultiHeadAttention):
    """What each head found is multiplied by sigmoid(x W_gate), a number for each head or each of its channels.

    x is the layer's input of the queries. With W_gate = 0 every gate is 1/2: the layer is then multi-head attention
    with half of W_o. With gates for channels, norms of queries and keys and shared keys it is the attention of
    Qwen3-Next, whose program has W_q and W_gate in one matrix.

    Args:
        num_hiddens, num_heads, dropout, bias: as in `MultiHeadAttention`, like all others. W_gate has no bias.
        per_channel: whether each of a head's channels has a gate, or one gate serves the head.
        init: "usual" lets W_gate begin by chance, as linear maps do; "multi-head" begins with W_gate = 0 and W_o
            doubled, so that the layer begins as multi-head attention with W_o as it was drawn.
        norm: the norm of queries and keys, "layer" or "rms", as in `QKNormAttention`; `None` means none.

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
        init: str = "usual",
        norm: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(num_hiddens, num_heads, dropout, bias, **settings)
        require_flag("per_channel", per_channel)
        require_choice("init", init, STARTS)
        if norm is not None:
            require_choice("norm", norm, NORMS_OF_HEADS)
        self.per_channel = bool(per_channel)
        self.W_gate = nn.Linear(self.query_size, self.num_heads * self._gates_per_head(), bias=False)
        self.norm_q, self.norm_k = (norm_of_head(norm, self.head_dim) for _ in range(2))
        if init == "multi-head":
            with torch.no_grad():
                self.W_gate.weight.zero_()
                self.W_o.weight.mul_(2)

    def project(self, queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, h, Q, d) and k (B, num_kv_heads, K, d), normed if the layer has norms, and v."""
        q, k, v = super().project(queries, keys, values)
        return self.norm_q(q).to(v.dtype), self.norm_k(k).to(v.dtype), v

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
