"""Sparse patterns: masks that are known without their matrix, beside `Band`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .._validate import require_count, require_device
from .masks import SymbolicMask, is_symbolic


def num_pairs(mask: SymbolicMask, num_queries: int, num_kvpairs: int | None = None) -> int:
    """How many pairs of a query and a key a symbolic mask lets through.

    Raises:
        TypeError, ValueError: `mask` is not symbolic, a size is not an integer or negative.

    What a kernel that leaves out all others would compute; one that computes all and hides them computes Q * K.

    >>> from mhalib import Band
    >>> num_pairs(Band(), 4), num_pairs(Band(before=1), 4)
    (10, 7)
    """
    _check_masks((mask,))
    return int(mask.matrix(num_queries, num_kvpairs).sum())


class Strided(NamedTuple):
    """A mask that lets a query see the keys whose distance is a multiple of `stride`, before it and behind it.

    stride: the distance.
    offset: position of the first query.

    Source: Child et al. 2019, Generating long sequences with sparse transformers, section 4.3; their strided pattern is
    `AllOf((Band(), AnyOf((Band(before=stride - 1), Strided(stride)))))`.
    """

    stride: int
    offset: int = 0

    def matrix(
        self, num_queries: int, num_kvpairs: int | None = None, *, device: torch.device | str | None = None
    ) -> Tensor:
        """Boolean mask, (Q, K).

        >>> Strided(2).matrix(4).int()
        tensor([[1, 0, 1, 0],
                [0, 1, 0, 1],
                [1, 0, 1, 0],
                [0, 1, 0, 1]], dtype=torch.int32)
        """
        return _distances(self, num_queries, num_kvpairs, self.offset, device) % self.stride == 0

    def check(self) -> None:
        """Raise unless both numbers are integers (TypeError) and not too small (ValueError)."""
        require_count("stride", self.stride)
        require_count("offset", self.offset, minimum=0)

    def hides_nothing(self, num_queries: int, num_kvpairs: int) -> bool:
        """Whether each query may see each key."""
        return self.stride == 1

    def is_causal(self) -> bool:
        """False: it lets a query see keys behind it."""
        return False


class GlobalTokens(NamedTuple):
    """A mask that lets the first `num_tokens` tokens see all and be seen by all, and hides the rest.

    num_tokens: how many tokens are global.
    offset: position of the first query.

    Together with a window it is `AnyOf((GlobalTokens(1), Band(before=w, after=w)))`.

    Sources: Beltagy et al. 2020, Longformer, section 3.1; Zaheer et al. 2020, BigBird, section 2.
    """

    num_tokens: int
    offset: int = 0

    def matrix(
        self, num_queries: int, num_kvpairs: int | None = None, *, device: torch.device | str | None = None
    ) -> Tensor:
        """Boolean mask, (Q, K).

        >>> GlobalTokens(1).matrix(3).int()
        tensor([[1, 1, 1],
                [1, 0, 0],
                [1, 0, 0]], dtype=torch.int32)
        """
        distances = _distances(self, num_queries, num_kvpairs, self.offset, device)
        keys = torch.arange(distances.shape[1], device=distances.device)
        return (keys < self.num_tokens) | (distances + keys < self.num_tokens)

    def check(self) -> None:
        """Raise unless both numbers are integers (TypeError) and not negative (ValueError)."""
        require_count("num_tokens", self.num_tokens, minimum=0)
        require_count("offset", self.offset, minimum=0)

    def hides_nothing(self, num_queries: int, num_kvpairs: int) -> bool:
        """Whether each query may see each key."""
        return self.num_tokens >= min(num_kvpairs, self.offset + num_queries)

    def is_causal(self) -> bool:
        """False: its tokens see what is behind them."""
        return False


class AnyOf(NamedTuple):
    """A mask that lets through what any of `masks` does."""

    masks: tuple[SymbolicMask, ...]

    def matrix(
        self, num_queries: int, num_kvpairs: int | None = None, *, device: torch.device | str | None = None
    ) -> Tensor:
        """Boolean mask, (Q, K)."""
        self.check()
        return _joined(torch.logical_or, self.masks, num_queries, num_kvpairs, device)

    def check(self) -> None:
        """Raise unless each is a symbolic mask (TypeError) with sound numbers, and there is one (ValueError)."""
        _check_masks(self.masks)

    def hides_nothing(self, num_queries: int, num_kvpairs: int) -> bool:
        """Whether one of them lets all through."""
        return any(mask.hides_nothing(num_queries, num_kvpairs) for mask in self.masks)

    def is_causal(self) -> bool:
        """Whether it is one causal mask."""
        return len(self.masks) == 1 and self.masks[0].is_causal()


class AllOf(NamedTuple):
    """A mask that lets through what all of `masks` do."""

    masks: tuple[SymbolicMask, ...]

    def matrix(
        self, num_queries: int, num_kvpairs: int | None = None, *, device: torch.device | str | None = None
    ) -> Tensor:
        """Boolean mask, (Q, K)."""
        self.check()
        return _joined(torch.logical_and, self.masks, num_queries, num_kvpairs, device)

    def check(self) -> None:
        """Raise unless each is a symbolic mask (TypeError) with sound numbers, and there is one (ValueError)."""
        _check_masks(self.masks)

    def hides_nothing(self, num_queries: int, num_kvpairs: int) -> bool:
        """Whether all of them let all through."""
        return all(mask.hides_nothing(num_queries, num_kvpairs) for mask in self.masks)

    def is_causal(self) -> bool:
        """Whether it is one causal mask."""
        return len(self.masks) == 1 and self.masks[0].is_causal()


def _distances(
    mask: SymbolicMask, num_queries: int, num_kvpairs: int | None, offset: int, device: torch.device | str | None
) -> Tensor:
    """(Q, K): how far each key is before each query."""
    num_kvpairs = num_queries if num_kvpairs is None else num_kvpairs
    require_count("num_queries", num_queries, minimum=0)
    require_count("num_kvpairs", num_kvpairs, minimum=0)
    mask.check()
    require_device("device", device)
    queries = torch.arange(offset, offset + num_queries, device=device)
    return queries[:, None] - torch.arange(num_kvpairs, device=device)


def _check_masks(masks: object) -> None:
    if not isinstance(masks, tuple):
        raise TypeError(f"masks must be a tuple, got {type(masks).__name__}: {masks!r:.80}")
    if not masks:
        raise ValueError("masks is empty: give one at least")
    for number, mask in enumerate(masks):
        if not is_symbolic(mask):
            raise TypeError(f"mask {number} must be a symbolic one, got {type(mask).__name__}: {mask!r:.80}")
        mask.check()


def _joined(
    join: Callable[[Tensor, Tensor], Tensor],
    masks: tuple[SymbolicMask, ...],
    num_queries: int,
    num_kvpairs: int | None,
    device: torch.device | str | None,
) -> Tensor:
    first, *others = (mask.matrix(num_queries, num_kvpairs, device=device) for mask in masks)
    for other in others:
        first = join(first, other)
    return first
