"""The kernels of attention: scores, softmax and average, computed quickly and in little memory.

An array of (B, h, Q, K) numbers is what attention costs, and filling a new one takes longer than changing an old one.
So what works on scores may write over them; a function whose name ends in an underscore does.

`fused` is torch's kernel, which never stores the weights. `weights` stores them and has a hand-written backward pass:
the one that autograd derives from scores and softmax is right, but holds all scores beside all weights, and in the
backward pass the gradient of all scores beside that of all weights. Here the softmax is written over the scores, and
gradients of scores exist for a few heads at a time.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

SMALL = 2**18  # bytes of scores up to which autograd's backward pass is faster, since it runs without Python


def in_graph(x: Tensor) -> bool:
    """Whether a graph is recorded, by torch.compile, torch.jit or torch.fx, so that nobody may look at numbers."""
    is_recorded = torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined]
    return is_recorded or not isinstance(x, Tensor)  # torch.fx gives a stand-in


def scores(q: Tensor, k: Tensor, scale: float | None) -> Tensor:
    """(..., Q, d) and (..., K, d) -> (..., Q, K), times `scale`, or divided by √d."""
    return scaled(q, scale) @ in_rows(k).mT


def scaled(x: Tensor, scale: float | None) -> Tensor:
    """x (..., d) times `scale`, or divided by √d, contiguous."""
    copy = x.clone(memory_format=torch.contiguous_format)
    return copy.div_(math.sqrt(x.shape[-1])) if scale is None else copy.mul_(scale)


def in_rows(x: Tensor) -> Tensor:
    """x (..., K, d) as a batched product reads it quickly, copied only if need be.

    A product copies an operand whose matrices do not follow each other at equal distances, and the keys, which it reads
    by columns, are copied faster by rows. A cache holds its tokens so, with space for more behind them: at a step of
    decoding, a copy of all of them would take longer than all else.
    """
    if torch.is_grad_enabled() or in_graph(x):
        return x.contiguous()
    if x.stride()[-2:] != (x.shape[-1], 1):
        return x.contiguous()
    distance = None
    for size, step in zip(reversed(x.shape[:-2]), reversed(x.stride()[:-2]), strict=True):
        if size != 1:
            if distance is not None and step != distance:
                return x.contiguous()
            distance = size * step
    return x


def softmax_(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the last axis of scores (..., Q, K), 0 where `mask` is False; in their memory where no gradient asks
    for them.

    A row of -inf has no softmax: 0/0. Such a row is filled with 0 before the softmax and zeroed after it, so that no
    NaN arises, neither in the result nor in the backward pass.
    """
    all_rows_see = True
    if mask is not None:
        row_sees = mask.any(-1, keepdim=True)  # something, that is
        all_rows_see = _surely_all(row_sees)
        scores.masked_fill_(~mask, -math.inf)
        if not all_rows_see:
            scores.masked_fill_(~row_sees, 0.0)
    if torch.is_grad_enabled() or _is_steered(scores):
        weights = scores.softmax(-1)
    else:
        try:
            weights = torch.softmax(scores, -1, out=scores)
        except RuntimeError:  # vmap and forward-mode derivatives have no such softmax
            weights = scores.softmax(-1)
    del scores
    return weights if all_rows_see else weights.masked_fill(~row_sees, 0.0)


def weights(q: Tensor, k: Tensor, mask: Tensor | None, scale: float | None) -> Tensor:
    """Softmax of the scores of q (..., Q, d) with k (..., K, d), 0 where `mask` is False: (..., Q, K).

    Numbers and gradients are those of `scores` and `softmax_`, bit for bit; of a single matrix, to rounding.
    """
    q, k = scaled(q, scale), in_rows(k)
    if torch.is_grad_enabled() and _saves_memory(q, k):
        try:
            return _Weights.apply(q, k, mask)
        except RuntimeError:  # vmap and forward-mode derivatives need the formulas themselves
            pass
    # scores have no name, so that their memory is free again, or used again, as soon as can be
    return softmax_(q @ k.mT, mask)


def average(weights: Tensor, v: Tensor, dropout: float) -> Tensor:
    """(..., Q, K) and (..., K, d_v) -> (..., Q, d_v), each weight dropped with probability `dropout`."""
    if dropout:
        weights = F.dropout(weights, dropout)
    return weights @ in_rows(v)


def fused(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, scale: float | None, is_causal: bool = False
) -> Tensor:
    """Torch's kernel, which never stores the weights. A head of k and v may serve several of q, in equal groups.

    With `is_causal`, `mask` is the causal one or `None`, and the kernel takes no matrix. It has no forward-mode
    derivative: where one is asked for, the formulas are taken.
    """
    is_traced = not isinstance(q, Tensor)  # by torch.fx, which knows no sizes
    if not is_traced and q.dim() == 4 and q.shape[1] == 0:  # all heads pruned: torch 2.11's kernels die of it, or raise
        return q @ k.mT @ v
    mask = None if is_causal else mask
    if isinstance(mask, Tensor) and mask.dim() < 2:
        mask = torch.atleast_2d(mask)  # the kernel takes no mask of shape (K,) or ()
    if isinstance(mask, Tensor) and mask.dim() == 3 and q.dim() == 4:
        mask = mask[None]  # with three axes it would store all scores
    is_grouped = is_traced or (q.dim() == 4 and bool(k.shape[1] != q.shape[1]))
    if is_grouped and not (is_traced or is_causal) and q.shape[2] == 1 and _is_one_for_all_heads(mask):
        # the heads of a group become rows of one product: each key is read once, not once for each head
        products = k.shape[1] * _products_of_a_group(q, k)
        rows = q.reshape(q.shape[0], products, q.shape[1] // products, q.shape[3])
        return _torchs_kernel(rows, k, v, mask, dropout, scale, False, products != k.shape[1]).flatten(1, 2)[:, :, None]
    return _torchs_kernel(q, k, v, mask, dropout, scale, is_causal, is_grouped)


def fused_with(
    q: Tensor, k: Tensor, v: Tensor, added: Tensor, mask: Tensor | None, dropout: float, scale: float | None
) -> Tensor:
    """Torch's kernel, with numbers (h, Q, K) that are added to the scores. A row that sees nothing gets 0."""
    added = added.expand(q.shape[1], q.shape[2], k.shape[2])
    if mask is None:
        return fused(q, k, v, added, dropout, scale)
    row_sees = mask.any(-1, keepdim=True)  # something, that is
    all_rows_see = _surely_all(row_sees)
    added = torch.where(mask, added, -math.inf)
    if all_rows_see:
        return fused(q, k, v, added, dropout, scale)
    output = fused(q, k, v, torch.where(row_sees, added, 0.0), dropout, scale)
    return output.masked_fill(~row_sees, 0.0)


def _torchs_kernel(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    dropout: float,
    scale: float | None,
    is_causal: bool,
    is_grouped: bool,
) -> Tensor:
    try:
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=is_causal, scale=scale, enable_gqa=is_grouped
        )
    except NotImplementedError:  # it has no forward-mode derivative, and the formulas have one
        pass
    if is_grouped:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    if is_causal:
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
    if mask is None or mask.dtype == torch.bool:
        return average(weights(q, k, mask, scale), v, dropout)
    return average(softmax_(scores(q, k, scale) + mask, None), v, dropout)  # numbers that are added


def _is_one_for_all_heads(mask: Tensor | None) -> bool:
    return mask is None or mask.dim() < 3 or mask.shape[-3] == 1


def _products_of_a_group(q: Tensor, k: Tensor) -> int:
    """How many products the heads of a group are cut into. A CPU's kernel gives each product to one thread, so one for
    each group would leave threads without work where examples and groups are few."""
    group = q.shape[1] // k.shape[1]
    if in_graph(q) or not q.is_cpu:
        return 1
    wanted = torch.get_num_threads()
    enough = (cut for cut in range(1, group) if group % cut == 0 and q.shape[0] * k.shape[1] * cut >= wanted)
    return next(enough, group)


def _surely_all(flags: Tensor) -> bool:
    """Whether all `flags` are set and it costs nothing to know: a GPU would stop for it, a graph cannot look."""
    if in_graph(flags) or not flags.is_cpu:
        return False
    try:
        return bool(flags.all())
    except RuntimeError:  # vmap
        return False


def autocasts(device_type: str) -> bool:
    """Whether autocast chooses types on devices such as "cpu". It knows nothing of some, such as "meta"."""
    return torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type)


def _is_steered(x: Tensor) -> bool:
    """Whether a compiler, a trace or autocast decides how `x` is worked on."""
    is_recorded = torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined]
    if is_recorded or not isinstance(x, Tensor):
        return True
    kind = x.device.type  # as `autocasts`, without a call more in each pass
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def _saves_memory(q: Tensor, k: Tensor) -> bool:
    """Whether the hand-written backward pass serves: scores are large, no key serves several heads, as in absorbed
    latent attention, and autograd alone watches: no graph, no autocast, no tensor that is more than its numbers."""
    return (
        type(q) is type(k) is Tensor
        and (q.requires_grad or k.requires_grad)
        and q.itemsize * math.prod(q.shape[:-1]) * k.shape[-2] > SMALL
        and q.shape[:-2] == k.shape[:-2]
        and not _is_steered(q)
    )


class _Weights(torch.autograd.Function):
    """The softmax of scaled q with k, which needs no array but the weights themselves, neither here nor in the backward
    pass."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:  # type: ignore[override]
        weights = softmax_(q @ k.mT, mask)
        ctx.save_for_backward(q, k, mask, weights)
        return weights

    @staticmethod
    def backward(ctx: Any, d_weights: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        q, k, mask, weights = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody differentiates the gradient, too
            d_q, d_k = _differentiable(q, k, mask, d_weights)
        else:
            d_q, d_k = _gradients(q, k, weights, d_weights)
        wants_q, wants_k, _ = ctx.needs_input_grad
        return d_q if wants_q else None, d_k if wants_k else None, None


def _differentiable(q: Tensor, k: Tensor, mask: Tensor | None, d_weights: Tensor) -> tuple[Tensor, ...]:
    """Gradients of scaled q (..., Q, d) and of k (..., K, d) that have gradients themselves."""
    q, k = (x.view_as(x).requires_grad_() for x in (q, k))  # which may be one tensor
    return torch.autograd.grad(softmax_(q @ k.mT, mask), (q, k), d_weights, create_graph=True)


def _gradients(q: Tensor, k: Tensor, weights: Tensor, d_weights: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of scaled q (..., Q, d) and of k (..., K, d), from those of their weights (..., Q, K), a few heads at a
    time."""
    number = math.prod(weights.shape[:-2])
    queries, keys, weights, d_weights = (x.reshape(number, *x.shape[-2:]) for x in (q, k, weights, d_weights))
    at_once = max(1, -(-number // 8) if weights.is_cpu else number)
    buffer = torch.empty_like(weights[:at_once])
    d_queries, d_keys = torch.empty_like(queries), torch.empty_like(keys.mT, memory_format=torch.contiguous_format)
    for first in range(0, number, at_once):
        some = slice(first, first + at_once)
        d_scores = torch.ops.aten._softmax_backward_data.out(
            d_weights[some], weights[some], -1, weights.dtype, grad_input=buffer[: number - first]
        )
        torch.bmm(d_scores, keys[some], out=d_queries[some])
        torch.bmm(queries[some].mT, d_scores, out=d_keys[some])
    return d_queries.view_as(q), d_keys.mT.view_as(k)
