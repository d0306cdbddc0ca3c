"""Which cells of a pattern are real, and averages over the rows that are."""

from __future__ import annotations

import torch
from torch import Tensor

from .._validate import require_flag, require_mask, require_tensor
from ..attention import causal_mask, padding_mask


def real_cells(
    query_lens: Tensor,
    num_queries: int,
    key_lens: Tensor | None = None,
    num_kvpairs: int | None = None,
    *,
    causal: bool = False,
) -> Tensor:
    """Where a real query may look at a real key: the `mask` that measures take.

    Args:
        query_lens: (B,) how many queries are real.
        num_queries: Q, padding included.
        key_lens: (B,) how many keys are real; `None` for self-attention, where they are the queries.
        num_kvpairs: K; `None` means as many as queries.
        causal: whether a query sees no key behind its own place.

    Returns:
        Boolean mask, (B, 1, Q, K).

    Raises:
        TypeError, ValueError: a length is not an integer from 0 to Q, or K; there are not as many of both.

    >>> real_cells(torch.tensor([2]), 3, causal=True)[0, 0].int()
    tensor([[1, 0, 0],
            [1, 1, 0],
            [0, 0, 0]], dtype=torch.int32)
    """
    require_tensor("query_lens", query_lens, rank=1)
    num_kvpairs = num_queries if num_kvpairs is None else num_kvpairs
    key_lens = query_lens if key_lens is None else key_lens
    require_tensor("key_lens", key_lens, rank=1)
    if len(key_lens) != len(query_lens):
        raise ValueError(f"key_lens has {len(key_lens)} entries, but query_lens has {len(query_lens)}")
    require_flag("causal", causal)
    cells = padding_mask(query_lens, num_queries).mT & padding_mask(key_lens, num_kvpairs)
    return cells & causal_mask(num_queries, num_kvpairs, device=cells.device) if causal else cells


def real_weights(weights: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The weights as float64, 0 outside the mask, and the mask in full: both (B, h, Q, K).

    Raises:
        TypeError, ValueError: they do not fit, a weight inside the mask is negative or not finite, a head has no row.
    """
    require_tensor("weights", weights, rank=4)
    if not weights.is_floating_point():
        raise TypeError(f"weights must hold floating-point numbers, got {weights.dtype}")
    if mask is None:
        cells = torch.ones(weights.shape, dtype=torch.bool, device=weights.device)
    else:
        require_mask(mask, weights.shape, weights.device)
        cells = mask.expand(weights.shape)
    inside = weights.detach().double().masked_fill(~cells, 0.0)
    wrong = inside[~((inside >= 0) & inside.isfinite())]
    if wrong.numel():
        raise ValueError(
            f"weights must be finite and not negative inside the mask, got {wrong[0].item()}: are heads mixed?"
        )
    if not cells.any(-1).any(-1).any(0).all():
        raise ValueError(f"no query of some head has a key to look at: weights {tuple(weights.shape)} with this mask")
    return inside, cells


def require_sums(weights: Tensor, inside: Tensor) -> None:
    """Raise ValueError if a row sums to more than 1 inside the mask: then heads were mixed after the softmax.

    `weights` are as given, for their type: rows of float16 and bfloat16 sum to 1 less exactly.
    """
    largest = float(inside.sum(-1).amax()) if inside.numel() else 0.0
    if largest > 1 + (1e-3 if weights.dtype in (torch.float32, torch.float64) else 3e-2):
        raise ValueError(
            f"rows of weights must sum to 1, as those of a layer with rows_sum_to_one do: one sums to {largest:.4g}"
        )


def mean_over_rows(values: Tensor, rows: Tensor, reason: str, dtype: torch.dtype) -> Tensor:
    """(B, h, Q) -> (h,): the mean of the values of all `rows`, boolean (B, h, Q). `ValueError` if a head has none."""
    counts = rows.sum((0, 2))
    if not counts.all():
        raise ValueError(reason)
    return (values.masked_fill(~rows, 0.0).sum((0, 2)) / counts).to(result_dtype(dtype))


def result_dtype(dtype: torch.dtype) -> torch.dtype:
    """float32, or float64 for weights of float64."""
    return torch.promote_types(dtype, torch.float32)


def maxima(inside: Tensor, cells: Tensor) -> Tensor:
    """(B, h, Q): the key with the largest weight inside the mask, the first of several; 0 in a row without a key."""
    return inside.masked_fill(~cells, -1.0).argmax(-1)
