"""Masks. In this book a mask is boolean, `True` = may attend, and broadcasts to (B, h, Q, K)."""

from __future__ import annotations

import torch
from torch import Tensor

from ._validate import require_count, require_tensor


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
    if valid_lens.is_floating_point() or valid_lens.is_complex() or valid_lens.dtype == torch.bool:
        raise TypeError(f"valid_lens must hold integers, got {valid_lens.dtype}")
    if valid_lens.dim() not in (1, 2):
        raise ValueError(f"valid_lens must have shape (B,) or (B, Q), got {tuple(valid_lens.shape)}")
    if not torch.compiler.is_compiling() and valid_lens.numel():  # a compiled graph cannot look at values
        smallest, largest = (int(edge) for edge in valid_lens.aminmax())
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
    num_kvpairs = num_queries if num_kvpairs is None else num_kvpairs
    require_count("num_queries", num_queries, minimum=0)
    require_count("num_kvpairs", num_kvpairs, minimum=0)
    require_count("offset", offset, minimum=0)
    return torch.ones(num_queries, num_kvpairs, dtype=torch.bool, device=device).tril(offset)
