"""Weights that are kept, and the way back from them by hand.

What autograd derives from scores and softmax is right, but it holds all scores beside all weights, and on its way back
the gradient of all scores beside that of all weights. Here the softmax is written over the scores, and gradients of
scores exist for a few heads at a time.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from . import _fast

SMALL = 2**18  # bytes of scores up to which the formulas are faster, since Python takes no part in their way back


def weights(q: Tensor, k: Tensor, mask: Tensor | None, scale: float | None) -> Tensor:
    """Softmax of the scores of q (..., Q, d) with k (..., K, d), 0 where `mask` is False: (..., Q, K).

    Numbers and gradients are those of `scores` and `softmax_`, bit for bit.
    """
    scaled, k = _fast.scaled(q, scale), _fast.in_rows(k)
    del q
    num_bytes = scaled.itemsize * math.prod(scaled.shape[:-1]) * k.shape[-2]
    shared = k.shape[:-2] != scaled.shape[:-2]  # one key for several heads, as in absorbed latent attention
    if num_bytes > SMALL and not shared and _autograd_alone_watches(scaled, k):
        try:
            return _Weights.apply(scaled, k, mask)
        except RuntimeError:  # vmap and forward-mode differentiation need the formulas themselves
            pass
    return _by_formulas(scaled, k, mask)


def _by_formulas(scaled: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    # scores have no name, so that their memory is free again, or used again, as soon as can be
    return _fast.softmax_(scaled @ k.mT, mask)


def _autograd_alone_watches(q: Tensor, k: Tensor) -> bool:
    """No compiler, no autocast, no tensor that is more than its numbers."""
    kind = q.device.type
    in_graph = torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined]
    return (
        not in_graph
        and torch.is_grad_enabled()
        and (q.requires_grad or k.requires_grad)
        and type(q) is type(k) is Tensor
        and not (torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind))
    )


class _Weights(torch.autograd.Function):
    """`_by_formulas`, which needs no array but the weights themselves, neither here nor on the way back."""

    @staticmethod
    def forward(ctx: Any, scaled: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:  # type: ignore[override]
        found = _by_formulas(scaled, k, mask)
        ctx.save_for_backward(scaled, k, mask, found)
        return found

    @staticmethod
    def backward(ctx: Any, d_weights: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        scaled, k, mask, found = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody differentiates the gradient, too
            d_scaled, d_k = _differentiable(scaled, k, mask, d_weights)
        else:
            d_scaled, d_k = _gradients(scaled, k, found, d_weights)
        wants_q, wants_k, _ = ctx.needs_input_grad
        return d_scaled if wants_q else None, d_k if wants_k else None, None


def _differentiable(scaled: Tensor, k: Tensor, mask: Tensor | None, d_weights: Tensor) -> tuple[Tensor, ...]:
    queries, keys = (x.view_as(x).requires_grad_() for x in (scaled, k))  # which may be one tensor
    return torch.autograd.grad(_by_formulas(queries, keys, mask), (queries, keys), d_weights, create_graph=True)


def _gradients(scaled: Tensor, k: Tensor, weights: Tensor, d_weights: Tensor) -> tuple[Tensor, Tensor]:
    """Those of scaled queries and of keys, from those of their weights, a few heads at a time."""
    number = math.prod(weights.shape[:-2])
    queries, keys, weights, d_weights = (x.reshape(number, *x.shape[-2:]) for x in (scaled, k, weights, d_weights))
    at_once = max(1, -(-number // 8) if weights.is_cpu else number)
    room = torch.empty_like(weights[:at_once])
    d_queries, d_keys = torch.empty_like(queries), torch.empty_like(keys.mT, memory_format=torch.contiguous_format)
    for first in range(0, number, at_once):
        some = slice(first, first + at_once)
        d_scores = torch.ops.aten._softmax_backward_data.out(
            d_weights[some], weights[some], -1, weights.dtype, grad_input=room[: number - first]
        )
        torch.bmm(d_scores, keys[some], out=d_queries[some])
        torch.bmm(queries[some].mT, d_scores, out=d_keys[some])
    return d_queries.view_as(scaled), d_keys.mT.view_as(k)
