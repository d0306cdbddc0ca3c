"""Keys and values that layers share: one layer makes them, and the next ones read them."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor, nn

from .._validate import require_count, require_flag
from ..attention import Cache, register
from ..attention.functional import _split_heads
from .handing import HandsOn

_NAME = "keys and values"


@register("cross-layer")
class CrossLayerAttention(HandsOn):
    """Multi-head attention that makes keys and values in some layers only; others read those of the last one below that
    made them, and have neither W_k nor W_v. The cache of a layer that reads holds nothing.

    With `num_layers_per_key` = 2, every second layer makes them. A list of kinds, one for each layer, may say it
    otherwise by `makes_keys`: the upper half of a model may read what one layer made, as in YOCO.

    Args:
        num_hiddens, num_heads, dropout, bias: as in `MultiHeadAttention`, like all others.
        num_layers_per_key: layers that one layer's keys and values serve, its own included.
        makes_keys: whether this layer makes keys and values; `None` means as its number says.
        layer_number: of the layer in its model, from 0; models give it.

    Raises:
        TypeError, ValueError: an argument is not of this kind; a layer that reads finds nothing below it.

    Sources: Brandon et al. 2024, Reducing Transformer Key-Value Cache Size with Cross-Layer Attention; Sun et al. 2024,
    You Only Cache Once, for one layer that makes keys for all above it.
    """

    takes_layer_number = True

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        num_layers_per_key: int = 2,
        makes_keys: bool | None = None,
        layer_number: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__(num_hiddens, num_heads, dropout, bias, **settings)
        require_count("num_layers_per_key", num_layers_per_key)
        require_count("layer_number", layer_number, minimum=0)
        if makes_keys is not None:
            require_flag("makes_keys", makes_keys)
        self.num_layers_per_key = int(num_layers_per_key)
        self.makes_keys = layer_number % num_layers_per_key == 0 if makes_keys is None else bool(makes_keys)
        if not self.makes_keys:
            self.W_k, self.W_v = cast(nn.Linear, None), cast(nn.Linear, None)

    def project_with_cache(
        self, queries: Tensor, keys: Tensor, values: Tensor, cache: Cache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, h, Q, d), and k and v of this layer, or of the last one below that made them."""
        if self.makes_keys:
            q, k, v = super().project_with_cache(queries, keys, values, cache)
            self.handed_on[_NAME] = k, v
            return q, k, v
        if _NAME not in self.handed_on:
            raise ValueError("makes_keys=False: the layer reads keys and values from below, and none has made any")
        q = _split_heads(self.W_q(queries), self.num_heads, self.head_dim)
        q = self.place(q, 0 if cache is None else len(cache))
        if cache is not None:
            cache.append(q[:, :1, :, :0])  # counts tokens, and keeps nothing of them
        return q, *self.handed_on[_NAME]
