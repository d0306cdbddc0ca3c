"""Weights that do not compete, or not for all: a sigmoid, and a softmax that may be 0, in the softmax's place."""

from __future__ import annotations

import torch
from torch import Tensor

from ..attention import MultiHeadAttention, register


@register("sigmoid")
class SigmoidAttention(MultiHeadAttention):
    """sigmoid(score − log n) in the place of the softmax, n the number of keys that a query may see.

    No key's weight depends on another's, and rows sum to anything up to n. With equal scores of 0 the sum is about 1,
    as the softmax's is.

    Args: as `MultiHeadAttention`. Source: Ramapuram et al. 2024, Theory, analysis, and best practices for sigmoid
    self-attention, section 3.
    """

    rows_sum_to_one = False

    def softmax(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Scores (B, h, Q, K) -> weights from 0 to 1, 0 where `mask` is False."""
        seen = torch.full_like(scores[..., :1], scores.shape[-1]) if mask is None else mask.sum(-1, keepdim=True)
        weights = (scores - seen.clamp(min=1).to(scores.dtype).log()).sigmoid()
        return weights if mask is None else weights.masked_fill(~mask, 0.0)


@register("softpick")
class SoftpickAttention(MultiHeadAttention):
    """relu(e^s − 1) / Σ |e^s − 1| in the place of the softmax: scores of 0 and below get a weight of exactly 0.

    A head that finds nothing can return nothing: there is no need for a sink.

    Args: as `MultiHeadAttention`. Source: Zuhri et al. 2025, Softpick: no attention sink, no massive activations.
    """

    rows_sum_to_one = False

    def softmax(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Scores (B, h, Q, K) -> weights from 0 to 1, 0 where `mask` is False."""
        if mask is not None:
            scores = scores.masked_fill(~mask, 0.0)  # e^0 − 1 is 0
        largest = scores.amax(-1, keepdim=True).clamp(min=0)
        shifted = (scores - largest).exp() - (-largest).exp()
        return shifted.relu() / shifted.abs().sum(-1, keepdim=True).clamp(min=1e-30)
