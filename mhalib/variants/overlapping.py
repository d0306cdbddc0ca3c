"""Overlapping heads: each head sees some channels of its neighbours."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from .._validate import require_count
from ..attention import HeadSlices, MultiHeadAttention, register
from ._settings import refuse


@register("overlapping")
class OverlappingAttention(MultiHeadAttention):
    """Head i gets the channels i*d - o to (i+1)*d + o of queries, keys and values, where zeros stand beyond the ends.

    The scale stays 1/√d. W_o reads h * (d + 2o) channels, 2ohD more weights than multi-head attention has.

    Args:
        num_hiddens, num_heads, dropout, bias: as in `MultiHeadAttention`.
        overlap: o, channels on either side; with 0 the layer is multi-head attention, and beyond d a head reaches past
            its neighbours. `None` means the layer's number in its model, counted from 0, as the authors propose, but
            at most d, and 1 outside a model.
        layer_number: given by models.
        settings: as in `MultiHeadAttention`, but for `num_kv_heads` and `value_dim`.

    Raises:
        TypeError, ValueError: an argument is not of this kind.

    Source: Zhang et al. 2024, Improving vision transformers by overlapping heads in multi-head self-attention.
    """

    takes_layer_number = True

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        overlap: int | None = None,
        layer_number: int = 1,
        **settings: Any,
    ) -> None:
        refuse(
            settings, "overlapping heads have keys and values as wide as their own", num_kv_heads=None, value_dim=None
        )
        super().__init__(num_hiddens, num_heads, dropout, bias, **settings)
        require_count("layer_number", layer_number, minimum=0)
        overlap = min(layer_number, self.head_dim) if overlap is None else overlap
        require_count("overlap", overlap, minimum=0)
        self.overlap = int(overlap)
        self._scale_given = self.scale
        self.value_dim = self.head_dim + 2 * self.overlap
        self.W_o = nn.Linear(self.num_heads * self.value_dim, self.num_hiddens, bias=self.W_o.bias is not None)

    def project(self, queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, h, Q, d + 2o), k and v (B, h, K, d + 2o)."""
        return self._widened(self.W_q(queries)), self._widened(self.W_k(keys)), self._widened(self.W_v(values))

    def _widened(self, x: Tensor) -> Tensor:
        """(B, N, h * d) -> (B, h, N, d + 2o)."""
        windows = F.pad(x, (self.overlap, self.overlap)).unfold(-1, self.value_dim, self.head_dim)
        return windows.transpose(1, 2)

    def head_slices(self, head: int) -> HeadSlices:
        """As in `MultiHeadAttention`; rows of W_q, W_k and W_v belong to neighbours, too."""
        slices = super().head_slices(head)
        end = self.num_heads * self.head_dim
        rows = slice(max(0, head * self.head_dim - self.overlap), min(end, (head + 1) * self.head_dim + self.overlap))
        return slices._replace(q=rows, k=rows, v=rows)
