"""Sparse patterns: each token looks at a few keys that are fixed in advance."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .._validate import require_attention, require_count
from ..attention import AllOf, AnyOf, Band, GlobalTokens, MultiHeadAttention, Strided, SymbolicMask, register
from ..attention.masks import Mask, is_symbolic


@register("sparse")
class SparseAttention(MultiHeadAttention):
    """Multi-head attention with a mask of its own, beside the one that it is given: a key must be let through by both.

    A key is let through by the layer's own mask if any of its three parts lets it through. The result is exactly that
    of multi-head attention with such a mask, and so is the time that it takes: a mask hides scores that are computed.
    `mhalib.attention.num_pairs` counts what a kernel could leave out; `attend_in_windows` leaves it out.

    Args:
        num_hiddens, num_heads, dropout, bias: as in `MultiHeadAttention`, like all others.
        window: keys nearer than this many tokens, on either side.
        stride: keys at a distance that is a multiple of this.
        num_global: the first tokens, which see all and are seen by all.

    Raises:
        TypeError, ValueError: an argument is not of this kind, or no part is chosen.

    Sources: Child et al. 2019 (strides), Beltagy et al. 2020 and Zaheer et al. 2020 (windows and global tokens).
    """

    looks_at_itself_only = True

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        window: int | None = None,
        stride: int | None = None,
        num_global: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__(num_hiddens, num_heads, dropout, bias, **settings)
        for name, number in (("window", window), ("stride", stride)):
            if number is not None:
                require_count(name, number)
        require_count("num_global", num_global, minimum=0)
        if window is None and stride is None and not num_global:
            raise ValueError("window=None, stride=None and num_global=0 hide everything: choose one at least")
        self.window, self.stride, self.num_global = window, stride, num_global

    def pattern(self, offset: int = 0) -> SymbolicMask:
        """The layer's own mask, for queries of which the first is at position `offset`."""
        parts: list[SymbolicMask] = []
        if self.window is not None:
            parts.append(Band(before=self.window - 1, after=self.window - 1, offset=offset))
        if self.stride is not None:
            parts.append(Strided(self.stride, offset))
        if self.num_global:
            parts.append(GlobalTokens(self.num_global, offset))
        return AnyOf(tuple(parts))

    def _join_masks(
        self, queries: Tensor, num_kvpairs: int, valid_lens: Tensor | None, mask: Mask | None
    ) -> Mask | None:
        num_queries = queries.shape[1]
        if num_queries > num_kvpairs:
            raise ValueError(f"patterns are for self-attention: {num_queries} queries, but {num_kvpairs} keys")
        given = super()._join_masks(queries, num_kvpairs, valid_lens, mask)
        own = self.pattern(num_kvpairs - num_queries)
        if own.hides_nothing(num_queries, num_kvpairs):
            return given
        if given is None:
            return own
        if is_symbolic(given):
            return AllOf((given, own))
        return given & own.matrix(num_queries, num_kvpairs, device=queries.device)


def attend_in_windows(q: Tensor, k: Tensor, v: Tensor, before: int) -> Tensor:
    """What `attend` with the mask Band(before=before) gives, without the scores that it hides.

    Queries are taken in blocks of `before` tokens, each with the keys of its own block and of the one before it: there
    are 2 N `before` scores in place of N².

    Args:
        q, k: (B, h, N, d).
        v: (B, h, N, d_v).
        before: how many keys before its own position a query sees, at least 1.

    Returns:
        output (B, h, N, d_v).

    Raises:
        TypeError, ValueError: an argument is not of this kind, or there are more or fewer keys than queries.
    """
    require_attention(q, k, v, None)
    require_count("before", before)
    num_tokens = q.shape[-2]
    if k.shape[-2] != num_tokens:
        raise ValueError(f"windows are for self-attention: {num_tokens} queries, but {k.shape[-2]} keys")
    num_blocks = max(1, math.ceil(num_tokens / before))
    missing = num_blocks * before - num_tokens
    q, k, v = (F.pad(x, (0, 0, 0, missing)).unflatten(-2, (num_blocks, before)) for x in (q, k, v))
    k, v = (torch.cat([F.pad(x, (0, 0, 0, 0, 1, 0))[..., :-1, :, :], x], -2) for x in (k, v))
    seen = Band(before=before, offset=before).matrix(before, 2 * before, device=q.device)
    seen = seen.repeat(num_blocks, 1, 1)
    seen[0, :, :before] = False  # before the first block there is none
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen).flatten(-3, -2)[..., :num_tokens, :]
