"""Queries and keys that are normalised in each head, so that scores cannot grow without limit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from .._validate import require_choice, require_flag, require_positive
from ..attention import MultiHeadAttention, register
from ._settings import NORMS_OF_HEADS, norm_of_head


@register("qk-norm")
class QKNormAttention(MultiHeadAttention):
    """The d channels of each query and of each key are normalised before the scores, and scaled by learned gains.

    Rotary positions turn what is normalised, and the cache keeps keys that are normalised and turned. With gains of
    1, as the layer begins, a query and a key have length √d at most, so no score exceeds √d in size.

    Args:
        num_hiddens, num_heads, dropout, bias: as in `MultiHeadAttention`, like all others.
        norm: "layer" subtracts the mean of the d channels and divides by their standard deviation, as in ViT-22B;
            "rms" only divides by their root mean square, as in Qwen3. All heads share their d gains, one set for
            queries and one for keys; there is no bias.
        norm_eps: what is added to a variance or mean square; `None` means 1e-5 with "layer" and 1e-6 with "rms".
        together: whether a token's h · d channels are normalised as one, as in OLMo 2, with a gain for each. Then a
            long query of one head makes those of the others shorter, and no head can be removed.

    Raises:
        TypeError, ValueError: an argument is not of this kind.

    Sources: Henry et al. 2020, Query-Key Normalization for Transformers, which divides by the length; Dehghani et al.
    2023, Scaling Vision Transformers to 22 Billion Parameters, section 2, with layer norm; OLMo Team 2024, 2 OLMo 2
    Furious, for `together`.
    """

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        norm: str = "layer",
        norm_eps: float | None = None,
        together: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(num_hiddens, num_heads, dropout, bias, **settings)
        require_choice("norm", norm, NORMS_OF_HEADS)
        if norm_eps is not None:
            require_positive("norm_eps", norm_eps)
        require_flag("together", together)
        self.together = bool(together)
        widths = (self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim)
        width_q, width_k = widths if together else (self.head_dim, self.head_dim)
        self.norm_q = norm_of_head(norm, width_q, norm_eps)
        self.norm_k = norm_of_head(norm, width_k, norm_eps)

    def project(self, queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, h, Q, d), k (B, num_kv_heads, K, d), both normalised, and v (B, num_kv_heads, K, value_dim)."""
        q, k, v = super().project(queries, keys, values)
        return self._normed(self.norm_q, q).to(v.dtype), self._normed(self.norm_k, k).to(v.dtype), v

    def _normed(self, norm: nn.Module, x: Tensor) -> Tensor:
        """(B, h, N, d) -> the same, each head's channels normalised, or those of all heads together."""
        if not self.together:
            return norm(x)  # type: ignore[no-any-return]
        return norm(x.transpose(1, 2).flatten(2)).unflatten(2, (-1, self.head_dim)).transpose(1, 2)  # type: ignore[no-any-return]

    def keep_heads(self, heads: Iterable[int]) -> None:
        """As in `MultiHeadAttention`; the gains belong to no head, and stay. Heads that are normalised together stay,
        too (TypeError)."""
        if self.together:
            raise TypeError("QKNormAttention with together=True mixes heads, and does not say how to remove heads")
        super().keep_heads(heads)
