"""Masks. In this book a mask is boolean, `True` = may attend, and broadcasts to (B, h, Q, K)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor

from .._validate import require_count, require_device, require_integers, require_tensor, seen_extremes

if TYPE_CHECKING:
    from typing_extensions import TypeIs


def padding_mask(valid_lens: Tensor, num_kvpairs: int) -> Tensor:
    """Let each query see only the first `valid_lens` keys; the rest is padding.

    Args:
        valid_lens: integers in 0..K. (B,): one length for each example; (B, Q): one for each query.
        num_kvpairs: K, the number of keys, padding included.

    Returns:
        Boolean mask, (B, 1, 1, K) or (B, 1, Q, K): the 1s stand for the heads and queries that share it.

    Raises:
        TypeError: `valid_lens` is not a tensor of integers.
        ValueError: it has the wrong rank, or a length is negative or larger than K.

    >>> padding_mask(torch.tensor([3, 1]), 4)[:, 0, 0].int()
    tensor([[1, 1, 1, 0],
            [1, 0, 0, 0]], dtype=torch.int32)
    """
    require_tensor("valid_lens", valid_lens)
    require_count("num_kvpairs", num_kvpairs, minimum=0)
    require_integers("valid_lens", valid_lens)
    if valid_lens.dim() not in (1, 2):
        raise ValueError(f"valid_lens must have shape (B,) or (B, Q), got {tuple(valid_lens.shape)}")
    extremes = seen_extremes(valid_lens)
    if extremes is not None:
        smallest, largest = extremes
        if smallest < 0:
            raise ValueError(f"valid_lens must not be negative, got {smallest}")
        if largest > num_kvpairs:
            raise ValueError(f"valid_lens holds {largest}, but there are only num_kvpairs={num_kvpairs} keys")
    lens = valid_lens[:, None] if valid_lens.dim() == 1 else valid_lens
    return torch.arange(num_kvpairs, device=valid_lens.device) < lens[:, None, :, None]


def causal_mask(
    num_queries: int, num_kvpairs: int | None = None, *, offset: int = 0, device: torch.device | str | None = None
) -> Tensor:
    """Let the query at position `offset + i` see the keys 0 .. `offset + i`: the past and itself.

    Args:
        num_queries: Q.
        num_kvpairs: K; `None` means as many as queries.
        offset: position of the first query. 0 is what `scaled_dot_product_attention(is_causal=True)` does;
            K - Q is what decoding with a cache needs, where the queries are the newest tokens.
        device: where the mask is made.

    Returns:
        Boolean mask, (Q, K).

    >>> causal_mask(3).int()
    tensor([[1, 0, 0],
            [1, 1, 0],
            [1, 1, 1]], dtype=torch.int32)
    """
    return Band(offset=offset).matrix(num_queries, num_kvpairs, device=device)


class Band(NamedTuple):
    """A mask that is a range around the diagonal, known without its matrix.

    The query at position p = offset + i may see the keys p - before .. p + after; `None` means without end. With
    `before=None` and `after=0` it is causal, and the fused kernel then needs no matrix. Layers and models take it
    where they take a mask; `matrix` makes one.

    before: how many keys before its own position a query may see. A sliding window of w tokens is `before=w - 1`.
    after: how many behind it.
    offset: position of the first query; see `causal_mask`.

    Source of the window: Beltagy et al. 2020, Longformer, section 3.1.
    """

    before: int | None = None
    after: int | None = 0
    offset: int = 0

    def matrix(
        self, num_queries: int, num_kvpairs: int | None = None, *, device: torch.device | str | None = None
    ) -> Tensor:
        """Boolean mask, (Q, K); `None` for K means as many keys as queries.

        Raises:
            TypeError, ValueError: a number is no integer, or negative.

        >>> Band(before=1).matrix(3).int()
        tensor([[1, 0, 0],
                [1, 1, 0],
                [0, 1, 1]], dtype=torch.int32)
        """
        num_kvpairs = num_queries if num_kvpairs is None else num_kvpairs
        require_count("num_queries", num_queries, minimum=0)
        require_count("num_kvpairs", num_kvpairs, minimum=0)
        self.check()
        require_device("device", device)
        allowed = torch.ones(num_queries, num_kvpairs, dtype=torch.bool, device=device)
        if self.after is not None:
            allowed = allowed.tril(self.offset + self.after)
        if self.before is not None:
            allowed = allowed.triu(self.offset - self.before)
        return allowed

    def check(self) -> None:
        """Raise unless each number is an integer (TypeError) and not negative (ValueError)."""
        require_count("offset", self.offset, minimum=0)
        for name, reach in (("before", self.before), ("after", self.after)):
            if reach is not None:
                require_count(name, reach, minimum=0)

    def hides_nothing(self, num_queries: int, num_kvpairs: int) -> bool:
        """Whether each query may see each key, as the newest token may of all that a cache holds."""
        reaches_last = self.after is None or self.offset + self.after >= num_kvpairs - 1
        reaches_first = self.before is None or self.offset + num_queries - 1 <= self.before
        return reaches_last and reaches_first

    def is_causal(self) -> bool:
        """Whether it is what `scaled_dot_product_attention` calls `is_causal`: all the past, from position 0 on."""
        return self == Band()


class SymbolicMask(Protocol):
    """A mask that is known without its matrix: a `Band`, `Strided`, `GlobalTokens`, or several of them together."""

    def matrix(
        self, num_queries: int, num_kvpairs: int | None = None, *, device: torch.device | str | None = None
    ) -> Tensor: ...
    def check(self) -> None: ...
    def hides_nothing(self, num_queries: int, num_kvpairs: int) -> bool: ...
    def is_causal(self) -> bool: ...


Mask = Tensor | SymbolicMask
"""What layers and models take as a mask."""


def is_symbolic(mask: object) -> TypeIs[SymbolicMask]:
    """Whether `mask` is known without its matrix."""
    return isinstance(mask, Band) or (not isinstance(mask, Tensor) and hasattr(type(mask), "hides_nothing"))
