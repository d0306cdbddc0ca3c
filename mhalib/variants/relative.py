"""Relative positions as in T5: a learned number for each distance and head, added to the scores."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from .._validate import require_count, require_flag, require_tensor
from ..attention import MultiHeadAttention, register


def distance_buckets(
    distances: Tensor, num_buckets: int = 32, max_distance: int = 128, one_sided: bool = False
) -> Tensor:
    """Which number belongs to a distance, the key's place less the query's: integers of any shape -> the same shape.

    Half of the buckets are for keys behind the query, the other half for itself and those before it; with `one_sided`
    all are for the latter, and keys behind it share bucket 0 with itself. Of n buckets of a side, the first n/2 hold a
    single distance each. The others grow with the logarithm of the distance, up to `max_distance`; the last one holds
    all that are farther. The first one behind the query would be for distance 0, and is never used.

    Args:
        distances: integers.
        num_buckets: at least 2, or 4 if both sides have their own; even.
        max_distance: above the number of buckets that hold a single distance.
        one_sided: whether all buckets are for keys before the query.

    Raises:
        TypeError, ValueError: an argument is not of this kind.

    Source: Raffel et al. 2020, section 2.1, and the code of T5, which rounds in float32.
    """
    require_tensor("distances", distances)
    if distances.is_floating_point() or distances.is_complex() or distances.dtype == torch.bool:
        raise TypeError(f"distances must hold integers, got {distances.dtype}")
    num_of_a_side, num_single = _sizes(num_buckets, max_distance, one_sided)
    distances = distances.long()
    away = (-distances).clamp(min=0) if one_sided else distances.abs()
    share = torch.log(away.clamp(min=1).float() / num_single) / math.log(max_distance / num_single)
    grown = num_single + (share * (num_of_a_side - num_single)).long()
    buckets = torch.where(away < num_single, away, grown.clamp(max=num_of_a_side - 1))
    return buckets if one_sided else buckets + (distances > 0) * num_of_a_side


def _sizes(num_buckets: int, max_distance: int, one_sided: bool) -> tuple[int, int]:
    """How many buckets a side has, and how many of these hold a single distance. Raises where these cannot be."""
    require_flag("one_sided", one_sided)
    require_count("num_buckets", num_buckets, minimum=2 if one_sided else 4)
    require_count("max_distance", max_distance)
    num_of_a_side = num_buckets if one_sided else num_buckets // 2
    if num_buckets % 2:
        raise ValueError(f"num_buckets={num_buckets} must be even")
    num_single = num_of_a_side // 2
    if max_distance <= num_single:
        raise ValueError(f"max_distance={max_distance} must be above {num_single}, the buckets of a single distance")
    return num_of_a_side, num_single


@register("relative")
class RelativeAttention(MultiHeadAttention):
    """Head i's score of a key at distance n gets `distance_scores[bucket(n), i]` added, after it is scaled.

    Nothing else tells the layer where tokens stand, so padding before a text changes nothing in it. T5 has scale=1.0
    and no biases.

    Args:
        num_hiddens, num_heads, dropout, bias: as in `MultiHeadAttention`, like all others.
        num_buckets, max_distance, one_sided: as in `distance_buckets`. A decoder's layers are one-sided.
        own: whether each layer of a model learns numbers of its own; otherwise all have those of the first, as in T5.

    Raises:
        TypeError, ValueError: an argument is not of this kind; in a pass, there are more queries than keys.

    Source: Raffel et al. 2020, Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer,
    section 2.1; distances as such: Shaw et al. 2018, Self-Attention with Relative Position Representations.
    """

    looks_at_itself_only = True

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        num_buckets: int = 32,
        max_distance: int = 128,
        one_sided: bool = False,
        own: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(num_hiddens, num_heads, dropout, bias, **settings)
        _sizes(num_buckets, max_distance, one_sided)
        require_flag("own", own)
        self.num_buckets, self.max_distance, self.one_sided = int(num_buckets), int(max_distance), one_sided
        self.shared_by_layers = () if own else ("distance_scores",)
        self.distance_scores = nn.Parameter(torch.randn(self.num_buckets, self.num_heads) * 0.3)

    def added(self, num_queries: int, num_kvpairs: int) -> Tensor:
        """What is added to the scores of all examples, (h, Q, K); the last query is the last key's token.

        Raises:
            ValueError: there are more queries than keys.
        """
        require_count("num_queries", num_queries, minimum=0)
        require_count("num_kvpairs", num_kvpairs, minimum=0)
        if num_queries > num_kvpairs:
            raise ValueError(f"distances are for self-attention: {num_queries} queries, but {num_kvpairs} keys")
        table = self.distance_scores[:, list(self.head_numbers)]
        if not num_kvpairs:
            return table.new_zeros(self.num_heads, num_queries, 0)
        distances = torch.arange(1 - num_kvpairs, max(num_queries, 1), device=table.device)
        of_each = table[distance_buckets(distances, self.num_buckets, self.max_distance, self.one_sided)].T
        # the row of the last query begins with the longest distance, that of each query before it one later
        return of_each.unfold(1, num_kvpairs, 1)[:, :num_queries].flip(1)

    def keep_heads(self, heads: Iterable[int]) -> None:
        """As in `MultiHeadAttention`; the numbers, which other layers may have too, stay."""
        super().keep_heads(heads)
