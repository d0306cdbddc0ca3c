"""Layers that hand something on to the next layers of their model, such as keys, or values of the first layer."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..attention import Cache, MultiHeadAttention
from ..attention.masks import Mask


class HandsOn(MultiHeadAttention):
    """Multi-head attention whose steps may read and write `self.handed_on` while a pass is under way.

    The stack of a model makes an empty dict for each of its passes and carries it from layer to layer, upwards. A kind
    writes under names of its own, such as "first values", and reads what layers below have written. Outside a model the
    dict is empty: a kind that needs something from below must do without it there, or say so.

    Args:
        sizes, settings: as in `MultiHeadAttention`.

    Sources of two uses: Brandon et al. 2024, Reducing Transformer Key-Value Cache Size with Cross-Layer Attention; Zhou
    et al. 2024, Value Residual Learning.
    """

    handed_on: dict[str, Any]
    """What layers below have written in the pass that is under way."""

    def __init__(self, *sizes: Any, **settings: Any) -> None:
        super().__init__(*sizes, **settings)
        self.handed_on = {}

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        valid_lens: Tensor | None = None,
        *,
        mask: Mask | None = None,
        need_weights: bool = True,
        cache: Cache | None = None,
        handed_on: dict[str, Any] | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """As in `MultiHeadAttention`, with `handed_on`, the dict that the stack carries; `None` is an empty one."""
        self.handed_on = {} if handed_on is None else handed_on
        try:
            return super().forward(queries, keys, values, valid_lens, mask=mask, need_weights=need_weights, cache=cache)
        finally:
            self.handed_on = {}
