"""What attention costs: parameters, operations, memory of scores and caches, as functions of sizes and of a layer.

A multiplication and its addition count as two operations. Softmax, scaling and masks are left out: they are a few
operations for each score, where scores and averages take 4 d. Formulas are for self-attention without biases unless
they say otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from ._validate import require_count, require_divisible
from .attention import MultiHeadAttention


class Sizes(NamedTuple):
    """The sizes that costs depend on.

    num_hiddens: D.
    num_heads: h.
    num_kv_heads: heads with keys and values of their own; `None` means h.
    head_dim: d; `None` means D / h.
    """

    num_hiddens: int
    num_heads: int
    num_kv_heads: int | None = None
    head_dim: int | None = None

    @property
    def widths(self) -> tuple[int, int]:
        """How wide all queries of a token are together, h d, and all its keys, num_kv_heads d.

        Raises:
            TypeError, ValueError: a size is not a positive integer, or one does not divide the other.
        """
        for name in ("num_hiddens", "num_heads"):
            require_count(name, getattr(self, name))
        if self.head_dim is None:
            require_divisible("num_hiddens", self.num_hiddens, self.num_heads)
        d = self.num_hiddens // self.num_heads if self.head_dim is None else self.head_dim
        shared = self.num_heads if self.num_kv_heads is None else self.num_kv_heads
        require_count("head_dim", d)
        require_count("num_kv_heads", shared)
        if self.num_heads % shared:
            raise ValueError(f"num_heads={self.num_heads} is not divisible by num_kv_heads={shared}")
        return self.num_heads * d, shared * d


def parameters(sizes: Sizes, *, bias: bool = False) -> int:
    """Weights of W_q, W_k, W_v, W_o: 2 D h d + 2 D g d, with g = `num_kv_heads`; biases are h d + 2 g d + D more."""
    wide, shared = sizes.widths
    weights = 2 * sizes.num_hiddens * (wide + shared)
    return weights + (wide + 2 * shared + sizes.num_hiddens if bias else 0)


def pair_flops(sizes: Sizes, num_tokens: int, batch_size: int = 1) -> int:
    """Operations of scores and averages, where every token meets every token: 4 N² h d for each example."""
    _require(num_tokens=num_tokens, batch_size=batch_size)
    return batch_size * 4 * num_tokens**2 * sizes.widths[0]


def flops(sizes: Sizes, num_tokens: int, batch_size: int = 1) -> int:
    """Operations of a forward pass: 2 N for each weight of the projections, and `pair_flops`, for each example."""
    return batch_size * 2 * num_tokens * parameters(sizes) + pair_flops(sizes, num_tokens, batch_size)


def score_bytes(sizes: Sizes, num_tokens: int, batch_size: int = 1, bytes_per_number: int = 4) -> int:
    """Memory of the scores, where they are stored: B h N² numbers."""
    _require(num_tokens=num_tokens, batch_size=batch_size, bytes_per_number=bytes_per_number)
    require_count("num_heads", sizes.num_heads)
    return batch_size * sizes.num_heads * num_tokens**2 * bytes_per_number


def cache_bytes(sizes: Sizes, num_tokens: int, batch_size: int = 1, bytes_per_number: int = 4) -> int:
    """Memory of the keys and values that one layer keeps for writing on: 2 B N g d numbers."""
    _require(num_tokens=num_tokens, batch_size=batch_size, bytes_per_number=bytes_per_number)
    return 2 * batch_size * num_tokens * sizes.widths[1] * bytes_per_number


class Costs(NamedTuple):
    """What a layer has and one pass took: its weights, its operations, and what a cache would keep."""

    parameters: int
    flops: int
    cache_bytes: int


@torch.no_grad()
def measured(layer: MultiHeadAttention, x: Tensor) -> Costs:
    """The costs of a layer, a variant too, counted while it attends from `x` (B, N, D) to itself.

    Operations are those that torch's `FlopCounterMode` knows: products of matrices, in the layer and its kernels.
    """
    cache = layer.new_cache()
    with FlopCounterMode(display=False) as counter:
        layer(x, x, x, cache=cache)
    return Costs(sum(part.numel() for part in layer.parameters()), counter.get_total_flops(), cache.num_bytes)


def _require(**sizes: int) -> None:
    for name, size in sizes.items():
        require_count(name, size)
