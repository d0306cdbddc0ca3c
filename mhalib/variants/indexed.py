"""Latent attention whose queries read few tokens, which a small indexer chooses."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .._validate import require_count, require_kind
from ..attention import Cache, register
from ..attention.masks import Mask
from ..attention.positions import rotary_positions
from ._noted import NotedCache, as_noted
from ._settings import largest
from .latent import LatentAttention


@register("indexed")
class IndexedAttention(LatentAttention):
    """Each query reads the `num_chosen` tokens with the largest index, the same ones in all heads.

    The index of query t and token s is sum_a w_a(t) · ReLU(q_a(t) · k(s)) / √index_size, with `index_heads` small
    queries q_a, one key k for all of them, normed, and weights w(t) that may be negative. Queries are made from the
    latent of the queries, if there is one. With rotary positions, the first `rotary_size` channels of q and k are
    turned, in halves. The cache holds latents, turned keys, and the indexer's keys.

    A choice has no slope: from the output, no gradient reaches the indexer. It learns from `index_loss`, to put its
    shares where the heads put their weights. This layer computes all scores and hides most; `numbers_read` counts what
    a kernel would read.

    Args:
        num_hiddens, num_heads, dropout, bias: as in `LatentAttention`, like all others.
        num_chosen: tokens that a query reads; `None` is all of them, and may be set at any time.
        index_heads, index_size: how many queries the indexer has, and how wide they are.

    Raises:
        TypeError, ValueError: an argument is not of this kind, or `index_size` is below `rotary_size`.

    Source: DeepSeek-AI 2025, DeepSeek-V3.2-Exp, section 1, and its program as of 17 November 2025.
    """

    learns_apart = ("index_q", "index_k", "index_norm", "index_weights")

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        num_chosen: int | None = 64,
        index_heads: int = 4,
        index_size: int = 16,
        **settings: Any,
    ) -> None:
        super().__init__(num_hiddens, num_heads, dropout, bias, **settings)
        if num_chosen is not None:
            require_count("num_chosen", num_chosen)
        require_count("index_heads", index_heads)
        require_count("index_size", index_size)
        if index_size < self.rotary_size:
            raise ValueError(f"index_size={index_size} is below rotary_size={self.rotary_size}, which are turned")
        self.num_chosen = None if num_chosen is None else int(num_chosen)
        self.index_heads, self.index_size = int(index_heads), int(index_size)
        self.index_q = nn.Linear(self.query_latent_size or self.query_size, index_heads * index_size, bias=False)
        self.index_k = nn.Linear(self.key_size, index_size, bias=False)
        self.index_norm = nn.LayerNorm(index_size, eps=1e-6)
        self.index_weights = nn.Linear(self.query_size, index_heads, bias=False)
        self.index_positions = None
        if self.rotary_size:
            base, scaling = settings.get("rotary_base", 10000.0), settings.get("rotary_scaling")
            self.index_positions = rotary_positions("rotary-halves", base, self.rotary_size, scaling)

    def note_keys(self, keys: Tensor, cache: Cache | None) -> Tensor:
        """The indexer's keys (B, K, index_size), turned; with a cache, of the tokens in it, too."""
        notes = None if cache is None else as_noted(cache, "an indexer's queries").notes
        start = 0 if notes is None else len(notes)
        noted = self._turned(self.index_norm(self.index_k(keys))[:, None], start)[:, 0]
        return noted if notes is None else notes.append(noted)[0]

    def index(self, queries: Tensor, noted: Tensor) -> Tensor:
        """The layer's input (B, Q, query_size) and what `note_keys` gave, (B, K, index_size) -> index (B, Q, K)."""
        latent = self.W_q[:2](queries) if isinstance(self.W_q, nn.Sequential) else queries
        q = self.index_q(latent.detach()).unflatten(-1, (self.index_heads, self.index_size)).transpose(1, 2)
        q = self._turned(q, noted.shape[1] - queries.shape[1])
        each = (q @ noted[:, None].mT).relu() * self.index_size**-0.5  # (B, index_heads, Q, K)
        weights = self.index_weights(queries.detach()).mT[..., None] * self.index_heads**-0.5
        return (weights * each).sum(1)

    def mix_scores(self, scores: Tensor, queries: Tensor, keys: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """(B, h, Q, K) -> the same, with -inf for tokens that are not chosen."""
        if self.num_chosen is None:
            return scores
        index = self.index(queries, keys)[:, None].detach()
        if mask is not None:
            index = index.masked_fill(~mask, -torch.inf)
        return scores.masked_fill(~largest(index, self.num_chosen), -torch.inf)

    def index_loss(self, x: Tensor, valid_lens: Tensor | None = None, *, mask: Mask | None = None) -> Tensor:
        """How far the indexer is from the heads: the mean over queries of KL(p ‖ softmax(index)), where p is the mean
        over the heads of their weights when they read all tokens. A gradient goes to the indexer alone.

        Args:
            x: (B, N, D), the layer's input.
            valid_lens, mask: as in `forward`; a mask must be the same for all heads.

        Returns:
            a number, in nats.

        Raises:
            TypeError, ValueError: as `forward`; or the layer is split over processes.
        """
        require_kind("x", x, Tensor)
        if self.is_split:
            raise ValueError("the layer is split over processes: the indexer learns from the weights of all heads")
        x, chosen = x.detach(), self.num_chosen
        self.num_chosen = None
        try:
            with torch.no_grad():
                weights = self(x, x, x, valid_lens, mask=mask)[1]
        finally:
            self.num_chosen = chosen
        assert weights is not None
        heads = weights.mean(1)
        index = self.index(x, self.note_keys(x, None))
        shares = index.masked_fill(heads == 0, -1e9).log_softmax(-1)
        divergence = torch.where(heads > 0, heads * (heads.clamp_min(1e-30).log() - shares), 0.0).sum(-1)
        return divergence.mean()

    def new_cache(self, max_tokens: int = 0) -> Cache:
        """An empty cache, which keeps also the indexer's keys."""
        return NotedCache(max_tokens)

    def numbers_read(self, num_tokens: int) -> int:
        """How many kept numbers the newest of `num_tokens` tokens needs: the indexer's keys of all, and the latents and
        turned keys of those that are chosen."""
        require_count("num_tokens", num_tokens)
        read = num_tokens if self.num_chosen is None else min(num_tokens, self.num_chosen)
        return num_tokens * self.index_size + read * (self.latent_size + self.rotary_size)

    def _turned(self, x: Tensor, start: int) -> Tensor:
        """(B, h, N, index_size), of which the first channels have positions, if the layer has."""
        return x if self.index_positions is None else self.index_positions.turn(x, start)
