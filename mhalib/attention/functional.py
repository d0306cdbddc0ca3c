"""Multi-head attention as pure functions on tensors.

A public function checks its arguments, then calls the core of the same name with an underscore. A layer checks what
it is given once, and calls the cores.
"""

from __future__ import annotations

from torch import Tensor

from .._validate import (
    require_attention,
    require_count,
    require_divisible,
    require_flag,
    require_mask,
    require_probability,
    require_scale,
    require_scores,
    require_tensor,
)
from . import kernels


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """(B, N, D) -> (B, h, N, d): head i gets columns i*d to (i+1)*d of every token. A view: no number moves."""
    require_tensor("x", x, rank=3)
    require_count("num_heads", num_heads)
    require_divisible("x.shape[-1]", x.shape[-1], num_heads)
    return _split_heads(x, num_heads, x.shape[-1] // num_heads)


def _split_heads(x: Tensor, num_heads: int, head_dim: int) -> Tensor:
    return x.unflatten(-1, (num_heads, head_dim)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """(B, h, N, d) -> (B, N, D): the inverse of `split_heads`, the heads of a token side by side again."""
    require_tensor("x", x, rank=4)
    return _merge_heads(x)


def _merge_heads(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


def transpose_qkv(x: Tensor, num_heads: int) -> Tensor:
    """(B, N, D) -> (B*h, N, d): D2L's form of `split_heads`; example b, head i lands in row b*h + i.

    Source: Zhang et al., Dive into Deep Learning, section 11.5 (the function of that name there).
    """
    return split_heads(x, num_heads).flatten(0, 1)


def transpose_output(x: Tensor, num_heads: int) -> Tensor:
    """(B*h, N, d) -> (B, N, D): the inverse of `transpose_qkv`."""
    require_tensor("x", x, rank=3)
    require_count("num_heads", num_heads)
    require_divisible("x.shape[0]", x.shape[0], num_heads)
    return merge_heads(x.unflatten(0, (x.shape[0] // num_heads, num_heads)))


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    need_weights: bool = True,
    *,
    scale: float | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Scaled dot-product attention: softmax(q kᵀ / √d) v, for all heads at once.

    Args:
        q: (B, h, Q, d). Any axes may stand before the last two, or none; k and v have the same ones.
        k: (B, h, K, d).
        v: (B, h, K, d_v).
        mask: boolean, `True` = may attend, broadcastable to (B, h, Q, K).
        dropout: probability with which a weight is dropped on its way to the output, always applied:
            a layer passes 0 when it does not train.
        need_weights: `False` takes torch's fused kernel, which never stores the weights.
        scale: what scores are multiplied by; `None` means 1/√d.

    Returns:
        output (B, h, Q, d_v), and weights (B, h, Q, K) before dropout, or `None`. Rows of weights sum to 1;
        a query that may attend to nothing has weights 0 and output 0.

    With `need_weights` scores have the type of q: in float16 and bfloat16 they are rounded to it before the softmax,
    while the fused kernel keeps them in float32.

    With `need_weights` the score of a hidden key does not matter, be it infinite or NaN. The fused kernel adds -inf to
    scores, so that a key that is not finite spoils its result even where it is hidden; a value that is not finite
    spoils both, because 0 times NaN is NaN.

    Raises:
        TypeError, ValueError: shapes, dtypes or devices do not fit.

    Source: Vaswani et al. 2017, equation 1.
    """
    require_attention(q, k, v, mask)
    require_probability("dropout", dropout)
    require_flag("need_weights", need_weights)
    require_scale(scale)
    if not need_weights:
        return kernels.fused(q, k, v, mask, dropout, scale), None
    weights = kernels.weights(q, k, mask, scale)
    return kernels.average(weights, v, dropout), weights


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the last axis that gives 0 where `mask` is False, and a row of zeros where all of it is.

    Args:
        scores: (..., Q, K), floating-point.
        mask: boolean, `True` = may attend, broadcastable to `scores`.

    What stands at a hidden place does not matter, be it infinite or NaN.

    Raises:
        TypeError, ValueError: an argument is no tensor of this kind, or they do not fit.
    """
    require_scores(scores)
    require_mask(mask, scores.shape, scores.device)
    return kernels.softmax_(scores.clone(), mask)
