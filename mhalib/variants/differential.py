"""Differential attention: a head is the difference of two maps."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from .._validate import require_count, require_flag, require_number
from ..attention import HeadSlices, MultiHeadAttention, register
from ..attention.functional import _split_heads
from ._settings import refuse


@register("differential")
class DifferentialAttention(MultiHeadAttention):
    """Head i has two queries and two keys, of width d, and one value, of width 2d; its weights are those of the first
    pair minus lambda times those of the second.

    lambda = exp(lambda_q1 · lambda_k1) - exp(lambda_q2 · lambda_k2) + lambda_init, the same for all heads. What a head
    found is divided by its root mean square, times a learned vector, and multiplied by 1 - lambda_init.

    Rows of the weights that are returned sum to 1 - lambda, and some are negative. With as many weights as multi-head
    attention with 2h heads, the layer has h.

    Args:
        num_hiddens, num_heads, dropout, bias: as in `MultiHeadAttention`; D is divisible by 2h unless `head_dim` is
            given.
        lambda_init: `None` means 0.8 - 0.6 exp(-0.3 * layer_number).
        layer_number: the layer's number in its model, from 0; given by models.
        normalise: whether what a head found is normalised and scaled. Without it, and with lambda = 0, the layer is
            multi-head attention with values of width 2d.
        settings: as in `MultiHeadAttention`, but for `value_dim`. With `num_kv_heads`, the pairs are those of the
            authors' program: both maps of a head may then share a key.

    Raises:
        TypeError, ValueError: an argument is not of this kind.

    Source: Ye et al. 2024, Differential transformer, section 2, and the authors' program (of its first version).
    """

    rows_sum_to_one = False
    takes_layer_number = True
    lambda_q1: nn.Parameter
    lambda_k1: nn.Parameter
    lambda_q2: nn.Parameter
    lambda_k2: nn.Parameter

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        lambda_init: float | None = None,
        layer_number: int = 0,
        normalise: bool = True,
        **settings: Any,
    ) -> None:
        refuse(settings, "values of differential attention are twice as wide as queries", value_dim=None)
        require_count("num_hiddens", num_hiddens)
        require_count("num_heads", num_heads)
        require_count("layer_number", layer_number, minimum=0)
        require_flag("normalise", normalise)
        if settings.get("head_dim") is None:
            if num_hiddens % (2 * num_heads):
                raise ValueError(f"num_hiddens={num_hiddens} is not divisible by 2 * num_heads={2 * num_heads}")
            settings["head_dim"] = num_hiddens // num_heads // 2
        super().__init__(num_hiddens, num_heads, dropout, bias, **settings, value_dim=2 * settings["head_dim"])
        if lambda_init is None:
            lambda_init = 0.8 - 0.6 * math.exp(-0.3 * layer_number)
        require_number("lambda_init", lambda_init)
        self.lambda_init = float(lambda_init)
        self.W_q = nn.Linear(self.query_size, 2 * self.num_heads * self.head_dim, bias=bias)
        self.W_k = nn.Linear(self.key_size, 2 * self.num_kv_heads * self.head_dim, bias=bias)
        for name in ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"):
            self.register_parameter(name, nn.Parameter(0.1 * torch.randn(self.head_dim)))
        self.norm = nn.RMSNorm(self.value_dim, eps=1e-5) if normalise else None

    @property
    def second_weight(self) -> Tensor:
        """Lambda, by which the second map is multiplied."""
        first = (self.lambda_q1 * self.lambda_k1).sum().exp()
        second = (self.lambda_q2 * self.lambda_k2).sum().exp()
        return first - second + self.lambda_init

    def project(self, queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, 2h, Q, d), k (B, 2 num_kv_heads, K, d) and v (B, num_kv_heads, K, 2d)."""
        return (
            _split_heads(self.W_q(queries), 2 * self.num_heads, self.head_dim),
            _split_heads(self.W_k(keys), 2 * self.num_kv_heads, self.head_dim),
            _split_heads(self.W_v(values), self.num_kv_heads, self.value_dim),
        )

    def _for_each_head(self, x: Tensor) -> Tensor:
        """Keys (B, 2 num_kv_heads, K, d) or values -> as many as the 2h or h that look at them."""
        return x.repeat_interleave(self.num_heads // self.num_kv_heads, 1)

    def softmax(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Scores (B, 2h, Q, K) -> weights; a mask of one matrix per head counts for both of its maps."""
        if mask is not None and mask.dim() > 2 and mask.shape[-3] == self.num_heads > 1:
            mask = mask.repeat_interleave(2, -3)
        return super().softmax(scores, mask)

    def mix_weights(self, weights: Tensor, queries: Tensor, keys: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """(B, 2h, Q, K) -> (B, h, Q, K)."""
        return weights[:, 0::2] - self.second_weight * weights[:, 1::2]

    def gate(self, outputs: Tensor, queries: Tensor) -> Tensor:
        """(B, h, Q, 2d) -> (B, h, Q, 2d)."""
        return outputs if self.norm is None else self.norm(outputs) * (1 - self.lambda_init)

    def head_slices(self, head: int) -> HeadSlices:
        """As in `MultiHeadAttention`; a head's rows of W_q and W_k are those of both its maps."""
        slices, d = super().head_slices(head), self.head_dim
        group = self.num_heads // self.num_kv_heads
        first, last = (2 * head) // group, (2 * head + 1) // group
        return slices._replace(q=slice(2 * head * d, 2 * (head + 1) * d), k=slice(first * d, (last + 1) * d))
