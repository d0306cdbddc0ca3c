"""Dynamically composed heads: each token says how heads exchange scores and weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .._validate import require_count, require_flag
from ..attention import Cache, MultiHeadAttention, register
from ._noted import NotedCache, as_noted


class Composition(nn.Module):
    """What tokens say of how heads are composed, before or after the softmax, from one side.

    A token's input x gives `rank` pairs of vectors over heads, [w1, w2] = GELU(x W_1) W_2, of which w1 is divided by
    its root mean square over the heads, and a gate tanh(x W_gate) for each head.

    Args:
        width: of x.
        num_heads: h.
        rank: R, how many pairs.

    Raises:
        TypeError, ValueError: a size is not a positive integer.
    """

    def __init__(self, width: int, num_heads: int, rank: int = 2) -> None:
        super().__init__()
        for name, number in (("width", width), ("num_heads", num_heads), ("rank", rank)):
            require_count(name, number)
        self.num_heads, self.rank = int(num_heads), int(rank)
        hidden = 2 * rank * num_heads
        self.W_1 = nn.Parameter(torch.randn(width, hidden) * (2 / (width + hidden)) ** 0.5)
        self.W_2 = nn.Parameter(
            torch.randn(hidden, hidden) * 0.02 / ((2 * num_heads * rank) ** 0.5 * (num_heads + rank))
        )
        self.W_gate = nn.Parameter(torch.randn(width, num_heads) * 0.05 * (2 / (num_heads + width)) ** 0.5)

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, width) -> (B, N, 2R + 1, h): R vectors w1, R vectors w2, gates."""
        pairs = (F.gelu(x @ self.W_1) @ self.W_2).unflatten(-1, (2 * self.rank, self.num_heads))
        first, second = pairs.split(self.rank, -2)
        first = first * (first.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt()
        return torch.cat([first, second, (x @ self.W_gate).tanh()[..., None, :]], -2)


@register("composed")
class ComposedAttention(MultiHeadAttention):
    """Heads exchange scores before the softmax and weights after it, in a way that each query and each key chooses.

    For a query t and a key s, with a[m] the score or weight of head m:

        a[m] + sum_r (sum_n a[n] w1_t[r, n]) w2_t[r, m] + sum_r (sum_n a[n] w1_s[r, n]) w2_s[r, m]
             + a[m] gate_t[m] + a[m] gate_s[m]

    where each side and each of the two places has a `Composition` of its own. Scores are composed before the mask.
    Composed weights are neither normalised nor all positive. With every W_2 and W_gate 0, the layer is multi-head
    attention. It has 20hD + 64h² weights more, with rank 2. `static` adds sum_n a[n] S[n, m] in both places, with
    matrices S that are the same for all tokens and begin at 0.

    Args:
        num_hiddens, num_heads, dropout, bias: as in `MultiHeadAttention`, like all others.
        rank: R of the compositions.
        by_keys: whether keys have a say, or only queries.
        static: whether there are matrices S.

    Raises:
        TypeError, ValueError: an argument is not of this kind.

    Source: Xiao et al. 2024, Improving transformers with dynamically composable multi-head attention, sections 2 and 3,
    and the authors' program.
    """

    rows_sum_to_one = False

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        rank: int = 2,
        by_keys: bool = True,
        static: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(num_hiddens, num_heads, dropout, bias, **settings)
        require_count("rank", rank)
        require_flag("by_keys", by_keys)
        require_flag("static", static)
        self.rank, self.by_keys = int(rank), bool(by_keys)
        sides = {"query": self.query_size, **({"key": self.key_size} if by_keys else {})}
        self.before = nn.ModuleDict({side: Composition(size, self.num_heads, rank) for side, size in sides.items()})
        self.after = nn.ModuleDict({side: Composition(size, self.num_heads, rank) for side, size in sides.items()})

        h = self.num_heads
        self.S_before, self.S_after = (nn.Parameter(torch.zeros(h, h)) if static else None for _ in range(2))

    def note_keys(self, keys: Tensor, cache: Cache | None) -> Tensor:
        """What keys say of both places, (B, K, 2, 2R + 1, h); with a cache, of the keys in it, too."""
        if not self.by_keys:
            return keys
        noted = torch.stack([self.before["key"](keys), self.after["key"](keys)], 2)
        if cache is None:
            return noted
        (held,) = as_noted(cache, "heads composed by keys").notes.append(noted.flatten(2))
        return held.unflatten(2, noted.shape[2:])

    def mix_scores(self, scores: Tensor, queries: Tensor, keys: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """(B, h, Q, K) -> (B, h, Q, K)."""
        of_keys = keys[:, :, 0] if self.by_keys else None
        return self._composed(scores, self.S_before, self.before["query"](queries), of_keys)

    def mix_weights(self, weights: Tensor, queries: Tensor, keys: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """(B, h, Q, K) -> (B, h, Q, K)."""
        of_keys = keys[:, :, 1] if self.by_keys else None
        return self._composed(weights, self.S_after, self.after["query"](queries), of_keys)

    def _composed(self, a: Tensor, static: Tensor | None, of_queries: Tensor, of_keys: Tensor | None) -> Tensor:
        """(B, h, Q, K), with (h, h), (B, Q, 2R + 1, h) and (B, K, 2R + 1, h)."""
        result = a if static is None else a + torch.einsum("bnqk,nm->bmqk", a, static)
        for said, token in ((of_queries, "q"), (of_keys, "k")):
            if said is None:
                continue
            first, second, gate = said.split([self.rank, self.rank, 1], 2)
            shared = torch.einsum(f"bnqk,b{token}rn->brqk", a, first)
            result = result + torch.einsum(f"brqk,b{token}rm->bmqk", shared, second)
            by_token = gate[:, :, 0].mT[..., None] if token == "q" else gate[:, :, 0].mT[:, :, None]
            result = result + a * by_token
        return result

    def new_cache(self, max_tokens: int = 0) -> Cache:
        """An empty cache, which keeps also what keys say."""
        return NotedCache(max_tokens) if self.by_keys else super().new_cache(max_tokens)
