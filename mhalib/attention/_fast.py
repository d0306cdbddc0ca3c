"""How attention is computed, quickly and in little memory: what stands behind the formulas of `functional`.

An array of (B, h, Q, K) numbers is what attention costs, and to fill a new one takes longer than to change an old one.
So what works on scores may write over them; a name that ends in an underscore does.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F


def fused(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, scale: float | None, is_causal: bool = False
) -> Tensor:
    """Torch's kernel, which never stores the weights. A head of k and v may serve several of q, in equal groups."""
    if mask is not None and mask.dim() < 2:
        mask = torch.atleast_2d(mask)  # the kernel takes no mask of shape (K,) or ()
    if mask is not None and mask.dim() == 3 and q.dim() == 4:
        mask = mask[None]  # with three axes it would store all scores
    grouped = q.dim() == 4 and k.shape[1] != q.shape[1]
    one_query = (
        grouped and q.shape[2] == 1 and not is_causal and (mask is None or mask.dim() < 3 or mask.shape[-3] == 1)
    )
    if one_query:  # the heads of a group become rows of one product: each key is read once, not once for each head
        products = k.shape[1] * _products_of_a_group(q, k)
        q = q.reshape(q.shape[0], products, q.shape[1] // products, q.shape[3])
    found = F.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=mask,
        dropout_p=dropout,
        is_causal=is_causal,
        scale=scale,
        enable_gqa=q.dim() == 4 and k.shape[1] != q.shape[1],
    )
    return found.flatten(1, 2)[:, :, None] if one_query else found


def fused_with(
    q: Tensor, k: Tensor, v: Tensor, added: Tensor, mask: Tensor | None, dropout: float, scale: float | None
) -> Tensor:
    """Torch's kernel, with numbers (h, Q, K) that are added to the scores. A row that sees nothing finds 0."""
    added = added.expand(q.shape[1], q.shape[2], k.shape[2])
    if mask is None:
        return fused(q, k, v, added, dropout, scale)
    row_sees = mask.any(-1, keepdim=True)  # something, that is
    all_rows_see = _surely_all(row_sees)
    added = torch.where(mask, added, -math.inf)
    if all_rows_see:
        return fused(q, k, v, added, dropout, scale)
    found = fused(q, k, v, torch.where(row_sees, added, 0.0), dropout, scale)
    return found.masked_fill(~row_sees, 0.0)


def _products_of_a_group(q: Tensor, k: Tensor) -> int:
    """Into how many products the heads of a group are cut. A CPU's kernel gives each product to one thread, so one for
    each group would leave threads without work where examples and groups are few."""
    group = q.shape[1] // k.shape[1]
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or not q.is_cpu:  # type: ignore[attr-defined]
        return 1
    wanted = torch.get_num_threads()
    enough = (cut for cut in range(1, group) if group % cut == 0 and q.shape[0] * k.shape[1] * cut >= wanted)
    return next(enough, group)


def scores(q: Tensor, k: Tensor, scale: float | None) -> Tensor:
    """(..., Q, d) and (..., K, d) -> (..., Q, K), times `scale`, or divided by √d."""
    return scaled(q, scale) @ in_rows(k).mT


def scaled(x: Tensor, scale: float | None) -> Tensor:
    """x (..., d) times `scale`, or divided by √d, in one piece."""
    copy = x.clone(memory_format=torch.contiguous_format)
    return copy.div_(math.sqrt(x.shape[-1])) if scale is None else copy.mul_(scale)


def average(weights: Tensor, v: Tensor, dropout: float) -> Tensor:
    """(..., Q, K) and (..., K, d_v) -> (..., Q, d_v), each weight dropped with probability `dropout`."""
    kept = F.dropout(weights, dropout) if dropout else weights
    return kept @ in_rows(v)


def in_rows(x: Tensor) -> Tensor:
    """x (..., K, d) as a batched product reads it quickly, copied only if need be.

    It copies an operand whose matrices are not one behind the other at equal distances, and the keys, which it reads
    by columns, are copied faster by rows. Of a cache, the tokens that are held lie so, before room for more: at a step
    of decoding, a copy of all of them would take longer than all else.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or torch.is_grad_enabled():  # type: ignore[attr-defined]
        return x.contiguous()
    leading = [(size, step) for size, step in zip(x.shape[:-2], x.stride()[:-2], strict=True) if size != 1]
    one_distance = all(step == n * inner for (_, step), (n, inner) in pairwise(leading))
    return x if one_distance and x.stride()[-2:] == (x.shape[-1], 1) else x.contiguous()


def softmax_(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the last axis, 0 where `mask` is False.

    A row of -inf has no softmax: 0/0. Such a row is filled with 0 before the softmax and zeroed after it, so that no
    NaN arises, neither in the result nor on the way back through its gradient.
    """
    if mask is None:
        return _plain_softmax_(scores)
    row_sees = mask.any(-1, keepdim=True)  # something, that is
    all_rows_see = _surely_all(row_sees)
    scores.masked_fill_(~mask, -math.inf)
    if not all_rows_see:
        scores.masked_fill_(~row_sees, 0.0)
    weights = _plain_softmax_(scores)
    del scores
    return weights if all_rows_see else weights.masked_fill(~row_sees, 0.0)


def _plain_softmax_(scores: Tensor) -> Tensor:
    """Softmax over the last axis, in the memory of `scores` itself where no gradient will ask for it."""
    in_graph = torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined]
    if not (in_graph or torch.is_grad_enabled() or torch.is_autocast_enabled(scores.device.type)):
        try:
            return torch.softmax(scores, -1, out=scores)
        except RuntimeError:  # vmap and forward-mode differentiation have no such softmax
            pass
    return scores.softmax(-1)


def _surely_all(flags: Tensor) -> bool:
    """Whether all `flags` are set and it costs nothing to know: a GPU would stop for it, a graph cannot look."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or not flags.is_cpu:  # type: ignore[attr-defined]
        return False
    try:
        return bool(flags.all())
    except RuntimeError:  # vmap
        return False
