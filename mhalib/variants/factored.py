"""Tensor products: queries, keys and values are means of a few products, a number for each head times a vector."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .._validate import require_count
from ..attention import Cache, MultiHeadAttention, register
from ._settings import refuse


@register("tensor-product")
class TensorProductAttention(MultiHeadAttention):
    """Head i's key of a token is the mean over r of a_r[i] · b_r: `rank` vectors b_r that all heads share, and numbers
    a_r[i] of its own, both made from the token. Values are made so, too, and queries with `query_rank` products.

    The cache keeps a and b: rank · (h + d) numbers for the key of a token, and as many for its value. Rotary positions
    turn the vectors before they are kept. Heads cannot be removed, since they share what they are made of.

    Args:
        num_hiddens, num_heads, dropout, bias: as in `MultiHeadAttention`, like all others.
        rank: products for a key, and for a value.
        query_rank: products for a query.
        settings: as in `MultiHeadAttention`, but for `num_kv_heads`.

    Raises:
        TypeError, ValueError: an argument is not of this kind.

    Source: Zhang et al. 2025, Tensor Product Attention Is All You Need, section 3.
    """

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        rank: int = 2,
        query_rank: int = 6,
        **settings: Any,
    ) -> None:
        refuse(settings, "a tensor product has keys and values for each head", num_kv_heads=None)
        super().__init__(num_hiddens, num_heads, dropout, bias, **settings)
        require_count("rank", rank)
        require_count("query_rank", query_rank)
        self.rank, self.query_rank = int(rank), int(query_rank)
        for name, products, size, width in (
            ("W_q", query_rank, self.query_size, self.head_dim),
            ("W_k", rank, self.key_size, self.head_dim),
            ("W_v", rank, self.value_size, self.value_dim),
        ):
            setattr(self, name, nn.Linear(size, products * (self.num_heads + width), bias=bias))

    def project_with_cache(
        self, queries: Tensor, keys: Tensor, values: Tensor, cache: Cache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, h, Q, d), k (B, h, K, d) and v (B, h, K, value_dim); what is kept are the factors of k and v."""
        start = 0 if cache is None else len(cache)
        of_queries = self._factors(self.W_q(queries), self.query_rank)
        of_keys = self._factors(self.W_k(keys), self.rank)
        of_values = self._factors(self.W_v(values), self.rank)
        kept: tuple[Tensor, ...] = (of_keys[0], self.place(of_keys[1], start), *of_values)
        if cache is not None:
            kept = cache.append(*kept)
        q = _joined(of_queries[0], self.place(of_queries[1], start))
        return q, _joined(kept[0], kept[1]), _joined(kept[2], kept[3])

    def _factors(self, x: Tensor, products: int) -> tuple[Tensor, Tensor]:
        """(B, N, products · (h + d)) -> numbers (B, products, N, h) and vectors (B, products, N, d)."""
        parts = x.split([products * self.num_heads, x.shape[-1] - products * self.num_heads], -1)
        numbers, vectors = (part.unflatten(-1, (products, -1)).transpose(1, 2) for part in parts)
        return numbers, vectors


def _joined(numbers: Tensor, vectors: Tensor) -> Tensor:
    """(B, products, N, h) and (B, products, N, d) -> their mean product, (B, h, N, d)."""
    return torch.einsum("brnh,brnd->bhnd", numbers, vectors) / numbers.shape[1]
