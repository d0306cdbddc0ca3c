"""Multi-token attention: scores of neighbouring queries and keys count together, before the softmax."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .._validate import require_count
from ..attention import Cache, KeyValueCache, MultiHeadAttention, register
from ..attention.cache import require_tokens_held
from ._settings import as_pair


@register("multi-token")
class MultiTokenAttention(MultiHeadAttention):
    """A score becomes a weighted sum of the scores around it: of this query and those just before it, with this key and
    its neighbours on both sides. So a head can ask for a place where two things stand close together.

    Each head has a kernel of its own, `kernel_size` of queries times keys. Scores that the mask hides enter as 0: no
    mask can be got round this way. With `head_group` above 1, weights are mixed, too: head m of
    a group takes sum_n W_n · heads[n, m]. Both begin as identities, where the layer is multi-head attention.

    A query needs the scores of the queries before it. So the cache keeps, beside keys and values, the latest
    kernel_size[0] - 1 rows of scores.

    Args:
        num_hiddens, num_heads, dropout, bias: as in `MultiHeadAttention`, like all others.
        kernel_size: of the kernel: queries, the present one and those before it; and keys, an odd number.
        head_group: so many heads that are neighbours mix their weights; divides h. 1 is none.

    Raises:
        TypeError, ValueError: an argument is not of this kind; a cache is not from the layer's `new_cache`.

    Source: Golovneva et al. 2025, Multi-Token Attention, section 3, and the authors' program, without its norms.
    """

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        kernel_size: Iterable[int] = (6, 11),
        head_group: int = 1,
        **settings: Any,
    ) -> None:
        super().__init__(num_hiddens, num_heads, dropout, bias, **settings)
        queries, keys = as_pair("kernel_size", kernel_size)
        if not keys % 2:
            raise ValueError(f"kernel_size={(queries, keys)} needs an odd number of keys, as many on either side")
        require_count("head_group", head_group)
        if self.num_heads % head_group:
            raise ValueError(f"num_heads={self.num_heads} is not divisible by head_group={head_group}")
        self.kernel_size, self.head_group = (queries, keys), int(head_group)
        self.rows_sum_to_one = head_group == 1
        kernels = torch.zeros(self.num_heads, queries, keys)
        kernels[:, -1, keys // 2] = 1
        self.kernels = nn.Parameter(kernels)
        self.heads: nn.Parameter | None = None
        if head_group > 1:
            self.heads = nn.Parameter(torch.eye(head_group).repeat(self.num_heads // head_group, 1, 1))

    def note_keys(self, keys: Tensor, cache: Cache | None) -> Any:
        """The cache, from which `mix_scores` takes the rows of earlier queries, and which it gives the new ones."""
        if cache is not None and not isinstance(cache, MultiTokenCache):
            raise ValueError(f"multi-token attention needs a cache from its own new_cache, not {type(cache).__name__}")
        return cache

    def mix_scores(self, scores: Tensor, queries: Tensor, keys: Any, *, mask: Tensor | None = None) -> Tensor:
        """(B, h, Q, K) -> (B, h, Q, K)."""
        before, width = self.kernel_size[0] - 1, self.kernel_size[1]
        rows = scores if mask is None else scores.masked_fill(~mask, 0.0)
        if isinstance(keys, MultiTokenCache):
            rows = keys.after_earlier(rows, before)
        missing = before + scores.shape[2] - rows.shape[2]
        rows = F.pad(rows, (width // 2, width // 2, missing, 0))
        return F.conv2d(rows, self.kernels[:, None].to(rows.dtype), groups=self.num_heads)

    def mix_weights(self, weights: Tensor, queries: Tensor, keys: Any, *, mask: Tensor | None = None) -> Tensor:
        """(B, h, Q, K) -> (B, h, Q, K)."""
        if self.heads is None:
            return weights
        groups = weights.unflatten(1, (-1, self.head_group))
        return torch.einsum("bgnqk,gnm->bgmqk", groups, self.heads.to(weights.dtype)).flatten(1, 2)

    def keep_heads(self, heads: Iterable[int]) -> None:
        """As in `MultiHeadAttention`; a kernel goes with its head. Heads that mix their weights stay (TypeError)."""
        if self.heads is not None:
            raise TypeError("MultiTokenAttention with head_group > 1 mixes heads, and does not say how to remove heads")
        heads = list(heads)
        super().keep_heads(heads)
        self.kernels = nn.Parameter(self.kernels.detach()[heads], self.kernels.requires_grad)

    def new_cache(self, max_tokens: int = 0) -> Cache:
        """An empty cache, which keeps also the latest rows of scores."""
        return MultiTokenCache(max_tokens)


class MultiTokenCache(KeyValueCache):
    """Keys and values, and in `rows` the latest queries' scores, 0 where they were hidden, (B, h, at most c - 1, K)."""

    def __init__(self, max_tokens: int = 0) -> None:
        super().__init__(max_tokens)
        self.rows: Tensor | None = None

    @property
    def num_bytes(self) -> int:
        return super().num_bytes + self._bytes_of_rows

    @property
    def num_bytes_taken(self) -> int:
        return super().num_bytes_taken + self._bytes_of_rows

    @property
    def _bytes_of_rows(self) -> int:
        return 0 if self.rows is None else self.rows.numel() * self.rows.element_size()

    def after_earlier(self, rows: Tensor, before: int) -> Tensor:
        """New rows (B, h, Q, K) behind the earlier ones, to which the new keys were hidden; the latest are kept."""
        if self.rows is not None:
            earlier = F.pad(self.rows, (0, rows.shape[3] - self.rows.shape[3]))
            rows = torch.cat([earlier, rows], 2)
        self.rows = rows[:, :, max(0, rows.shape[2] - before) :].clone()
        return rows

    def crop(self, num_tokens: int) -> None:
        """Refused, unless nothing goes: the rows that the tokens before would need were dropped."""
        require_tokens_held(num_tokens, len(self))
        if num_tokens != len(self):
            raise TypeError(
                f"a MultiTokenCache cannot forget the last {len(self) - num_tokens} tokens: scores before them are gone"
            )

    def reorder(self, rows: Tensor) -> None:
        super().reorder(rows)
        if self.rows is not None:
            self.rows = self.rows[rows.long()]
