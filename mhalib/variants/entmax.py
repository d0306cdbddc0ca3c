"""Weights that are exactly 0 for most keys: entmax in the place of the softmax."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from .._validate import require_flag, require_number, require_scores
from ..attention import MultiHeadAttention, register


def entmax(scores: Tensor, alpha: float | Tensor = 1.5) -> Tensor:
    """The distribution p over the last axis that maximises p · scores plus Tsallis' entropy of order alpha.

    p_i is [(alpha - 1) scores_i - tau] to the power 1 / (alpha - 1), 0 where that bracket is negative, with the tau at
    which they sum to 1. alpha = 2 is sparsemax; towards 1 it becomes the softmax. Gradients are exact, for alpha, too.

    Args:
        scores: (..., K), floating-point; -inf gives 0. A row of -inf alone gives a row of 0.
        alpha: above 1 and at most 2; a number, or a tensor that broadcasts to (..., 1).

    Raises:
        TypeError, ValueError: an argument is not of this kind.

    Sources: Martins and Astudillo 2016, sparsemax; Peters, Niculae and Martins 2019, section 3; Correia, Niculae and
    Martins 2019, proposition 1, for the gradient of alpha.
    """
    require_scores(scores)
    if scores.dim() == 0 or not scores.shape[-1]:
        raise ValueError(f"scores needs an axis of keys, and one key at least, got shape {tuple(scores.shape)}")
    if isinstance(alpha, Tensor):
        _require_alpha(alpha, scores)
    else:
        require_number("alpha", alpha)
        if not 1 < alpha <= 2:
            raise ValueError(f"alpha={alpha} must be above 1 and at most 2")
        alpha = scores.new_tensor(float(alpha))
    result: Tensor = _Entmax.apply(scores, alpha)
    return result


def _require_alpha(alpha: Tensor, scores: Tensor) -> None:
    """Raise unless `alpha` holds real numbers (TypeError), and one for each row of `scores` at most (ValueError)."""
    if not alpha.is_floating_point():
        raise TypeError(f"alpha must hold floating-point numbers, got {alpha.dtype}")
    rows = (*scores.shape[:-1], 1)
    fits = alpha.dim() <= len(rows) and all(
        size in (1, row) for size, row in zip(reversed(alpha.shape), reversed(rows), strict=False)
    )
    if not fits or alpha.device != scores.device:
        raise ValueError(
            f"alpha has shape {tuple(alpha.shape)} on {alpha.device}, but scores need {rows} on {scores.device}"
        )


class _Entmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, alpha: Tensor) -> Tensor:
        alpha = alpha.to(scores.dtype)
        sees = (scores > -torch.inf).any(-1, keepdim=True)
        top = scores.amax(-1, keepdim=True).masked_fill(~sees, 0.0)
        scaled = (scores - top) * (alpha - 1)
        low, high = scaled.new_full(top.shape, -1.0), torch.zeros_like(top)
        # the largest is 0, so that tau = -1 gives it all and more, and tau = 0 nothing
        for _ in range(8 - round(math.log2(torch.finfo(scores.dtype).eps))):  # each halves what is left between them
            middle = (low + high) / 2
            too_low = _powers(scaled - middle, alpha).sum(-1, keepdim=True) >= 1
            low, high = torch.where(too_low, middle, low), torch.where(too_low, high, middle)
        weights = _powers(scaled - low, alpha).masked_fill(~sees, 0.0)
        weights = weights / weights.sum(-1, keepdim=True).masked_fill(~sees, 1.0)
        ctx.save_for_backward(weights, alpha)
        return weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None]:
        (gradient,) = gradients
        weights, alpha = ctx.saved_tensors
        seen = weights > 0
        slopes = torch.where(seen, weights.clamp_min(1e-30) ** (2 - alpha), torch.zeros_like(weights))
        total = slopes.sum(-1, keepdim=True).clamp_min(1e-30)
        of_scores = slopes * (gradient - (gradient * slopes).sum(-1, keepdim=True) / total)
        if not ctx.needs_input_grad[1]:
            return of_scores, None
        share = slopes / total
        surprise = torch.where(seen, -weights * weights.clamp_min(1e-30).log(), torch.zeros_like(weights))
        change = (weights - share) / (alpha - 1) ** 2
        change = change + (surprise - share * surprise.sum(-1, keepdim=True)) / (alpha - 1)
        return of_scores, (gradient * change).sum_to_size(alpha.shape)


def _powers(x: Tensor, alpha: Tensor) -> Tensor:
    return x.clamp_min(0.0) ** (1 / (alpha - 1))


@register("entmax")
class EntmaxAttention(MultiHeadAttention):
    """Multi-head attention whose weights are `entmax` of the scores, each head with an alpha of its own.

    alpha = 1 + sigmoid(alpha_logits) lies between the softmax's 1 and sparsemax's 2.

    Args:
        num_hiddens, num_heads, dropout, bias: as in `MultiHeadAttention`, like all others.
        alpha: above 1 and below 2, where each head begins.
        learned: whether alpha is learned, or stays.

    Raises:
        TypeError, ValueError: an argument is not of this kind.

    Source: Correia, Niculae and Martins 2019, Adaptively sparse transformers, section 4.
    """

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        alpha: float = 1.5,
        learned: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__(num_hiddens, num_heads, dropout, bias, **settings)
        require_number("alpha", alpha)
        if not 1 < alpha < 2:
            raise ValueError(f"alpha={alpha} must be above 1 and below 2")
        require_flag("learned", learned)
        logit = torch.logit(torch.tensor(alpha - 1.0))
        self.alpha_logits = nn.Parameter(logit.expand(self.num_heads).clone(), requires_grad=bool(learned))

    @property
    def alphas(self) -> Tensor:
        """Each head's alpha, (h,)."""
        return 1 + self.alpha_logits.sigmoid()

    def softmax(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Scores (B, h, Q, K) -> weights, 0 where `mask` is False, and elsewhere, too."""
        if not scores.shape[-1]:  # no keys
            return scores
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        return entmax(scores, self.alphas[:, None, None])

    def keep_heads(self, heads: Iterable[int]) -> None:
        """As in `MultiHeadAttention`; an alpha goes with its head."""
        heads = list(heads)
        super().keep_heads(heads)
        self.alpha_logits = nn.Parameter(self.alpha_logits.detach()[heads], self.alpha_logits.requires_grad)
