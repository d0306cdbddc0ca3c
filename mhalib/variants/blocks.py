"""Heads that read few blocks of keys: a block's mean key says whether the block is worth reading."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .._validate import require_count
from ..attention import Band, MultiHeadAttention, register
from ..attention.masks import Mask
from ._settings import largest


class _InBlocks(MultiHeadAttention):
    """What both kinds share: tokens are counted in blocks of `block_size`, from the first key on."""

    looks_at_itself_only = True
    block_size: int

    def _join_masks(
        self, queries: Tensor, num_kvpairs: int, valid_lens: Tensor | None, mask: Mask | None
    ) -> Mask | None:
        if queries.shape[1] > num_kvpairs:
            raise ValueError(f"blocks are for self-attention: {queries.shape[1]} queries, but {num_kvpairs} keys")
        return super()._join_masks(queries, num_kvpairs, valid_lens, mask)

    def _in_blocks(self, x: Tensor, missing: float) -> Tensor:
        """(..., K) -> (..., blocks, block_size); `missing` fills the last one."""
        return F.pad(x, (0, -x.shape[-1] % self.block_size), value=missing).unflatten(-1, (-1, self.block_size))

    def _own_block(self, scores: Tensor) -> Tensor:
        """Boolean (Q, blocks): in which block each query stands."""
        num_queries, num_kvpairs = scores.shape[-2:]
        places = torch.arange(num_kvpairs - num_queries, num_kvpairs, device=scores.device)
        blocks = torch.arange(-(-num_kvpairs // self.block_size), device=scores.device)
        return places[:, None] // self.block_size == blocks

    def _tokens_of(self, kept: Tensor, num_kvpairs: int) -> Tensor:
        """Boolean (..., blocks) -> (..., K)."""
        return kept.repeat_interleave(self.block_size, -1)[..., :num_kvpairs]


@register("blocks")
class MixtureOfBlocks(_InBlocks):
    """Each head of each query reads `num_chosen` blocks of keys: its own block, and those whose mean key it likes best.

    A block's mean is taken over the keys that the query may see; the score of a mean key is the mean of the scores, so
    nothing is learned beyond multi-head attention. This layer computes all scores and then hides most: it has the
    outputs of a kernel that reads few blocks, and not its speed; `numbers_read` counts what such a kernel reads.

    Args:
        num_hiddens, num_heads, dropout, bias: as in `MultiHeadAttention`, like all others.
        block_size: tokens in a block. Blocks are counted from the first key, padding included.
        num_chosen: blocks that a query reads, its own among them.

    Raises:
        TypeError, ValueError: an argument is not of this kind; there are more queries than keys.

    Source: Lu et al. 2025, MoBA: Mixture of Block Attention for Long-Context LLMs, section 2, and the authors' program.
    """

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        block_size: int = 16,
        num_chosen: int = 3,
        **settings: Any,
    ) -> None:
        super().__init__(num_hiddens, num_heads, dropout, bias, **settings)
        require_count("block_size", block_size)
        require_count("num_chosen", num_chosen)
        self.block_size, self.num_chosen = int(block_size), int(num_chosen)

    def chosen(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Scores (B, h, Q, K) -> boolean (B, h, Q, K): keys in blocks that each query reads, hidden or not."""
        seen = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask.expand_as(scores)
        sums = self._in_blocks(scores.masked_fill(~seen, 0.0), 0.0).sum(-1)
        counts = self._in_blocks(seen.to(scores.dtype), 0.0).sum(-1)
        means = (sums / counts.clamp_min(1)).masked_fill(counts == 0, -torch.inf)
        means = means.masked_fill(self._own_block(scores) & (counts > 0), torch.inf)
        return self._tokens_of(largest(means, self.num_chosen), scores.shape[-1])

    def softmax(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Scores (B, h, Q, K) -> weights, 0 in blocks that are not chosen."""
        kept = self.chosen(scores, mask)
        return super().softmax(scores, kept if mask is None else kept & mask)

    def numbers_read(self, num_tokens: int) -> int:
        """How many kept numbers the newest of `num_tokens` tokens needs: the mean keys of full blocks, and keys and
        values of those that are chosen, for each head."""
        require_count("num_tokens", num_tokens)
        blocks = (num_tokens - 1) // self.block_size
        read = min(num_tokens, self.num_chosen * self.block_size)
        return self.num_kv_heads * blocks * self.head_dim + self.num_heads * read * (self.head_dim + self.value_dim)


@register("native-sparse")
class NativeSparseAttention(_InBlocks):
    """Three maps for each head, and a gate for each: blocks read as their mean, a few blocks read key by key, a window.

    - *compressed*: a softmax over the blocks of which a query sees every token; a block's key and value are means.
    - *chosen*: the blocks that got most weight there, summed over the heads that share keys, and the query's own block.
    - *window*: the latest `window` tokens.

    sigmoid(x W_gate) gives each query three gates for each head, and the maps are added, each times its gate. A mean of
    values is a sum over tokens, so one map (B, h, Q, K) says all; its rows do not sum to 1. The three maps share keys
    and values here. As in `MixtureOfBlocks`, scores are computed that a kernel would leave out.

    Args:
        num_hiddens, num_heads, dropout, bias: as in `MultiHeadAttention`, like all others. W_gate has a bias.
        block_size: tokens in a block. Blocks are counted from the first key, padding included.
        num_chosen: blocks that are read key by key, the query's own among them.
        window: tokens, its own included, that a query always sees.

    Raises:
        TypeError, ValueError: an argument is not of this kind; there are more queries than keys.

    Source: Yuan et al. 2025, Native Sparse Attention, section 3, with means for the paper's small network, as in the
    program of flash-linear-attention.
    """

    rows_sum_to_one = False

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        block_size: int = 16,
        num_chosen: int = 3,
        window: int = 32,
        **settings: Any,
    ) -> None:
        super().__init__(num_hiddens, num_heads, dropout, bias, **settings)
        for name, number in (("block_size", block_size), ("num_chosen", num_chosen), ("window", window)):
            require_count(name, number)
        self.block_size, self.num_chosen, self.window = int(block_size), int(num_chosen), int(window)
        self.W_gate = nn.Linear(self.query_size, 3 * self.num_heads)

    def gates(self, queries: Tensor) -> Tensor:
        """The layer's input (B, Q, query_size) -> gates (B, 3, h, Q): of the compressed map, the chosen, the window."""
        gates: Tensor = self.W_gate(queries).sigmoid()
        return gates.unflatten(-1, (3, self.num_heads)).permute(0, 2, 3, 1)

    def softmax(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Scores (B, h, Q, K) -> the three maps (B, 3h, Q, K), the compressed ones first."""
        num_queries, num_kvpairs = scores.shape[-2:]
        seen = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask.expand_as(scores)
        whole = self._in_blocks(seen, False).all(-1)
        means = self._in_blocks(scores.masked_fill(~seen, 0.0), 0.0).mean(-1)
        of_blocks = super().softmax(means, whole)
        compressed = self._tokens_of(of_blocks / self.block_size, num_kvpairs)

        own = self._own_block(scores)
        worth = self._over_groups(of_blocks).masked_fill(~self._over_groups(whole), -torch.inf)
        kept = self._tokens_of(largest(worth.masked_fill(own, torch.inf), self.num_chosen), num_kvpairs)
        chosen = super().softmax(scores.clone(), kept & seen)

        near = Band(self.window - 1, self.window - 1, offset=num_kvpairs - num_queries)
        near_by = near.matrix(num_queries, num_kvpairs, device=scores.device)
        return torch.cat([compressed, chosen, super().softmax(scores.clone(), near_by & seen)], 1)

    def mix_weights(self, weights: Tensor, queries: Tensor, keys: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """(B, 3h, Q, K) -> (B, h, Q, K)."""
        gates = self.gates(queries)[..., None].to(weights.dtype)
        return (weights.unflatten(1, (3, self.num_heads)) * gates).sum(1)

    def _over_groups(self, x: Tensor) -> Tensor:
        """(B, h, Q, blocks) -> the same, with the sum over the heads that share keys in the place of each."""
        groups = x.unflatten(1, (self.num_kv_heads, -1)).sum(2, keepdim=True, dtype=x.dtype)
        return groups.expand(-1, -1, self.num_heads // self.num_kv_heads, -1, -1).flatten(1, 2)

    def numbers_read(self, num_tokens: int) -> int:
        """How many kept numbers the newest of `num_tokens` tokens needs: mean keys and values of full blocks, keys and
        values of the chosen blocks, and of the window."""
        require_count("num_tokens", num_tokens)
        read = num_tokens // self.block_size + min(num_tokens, self.num_chosen * self.block_size)
        return (read + min(num_tokens, self.window)) * self.num_kv_heads * (self.head_dim + self.value_dim)
