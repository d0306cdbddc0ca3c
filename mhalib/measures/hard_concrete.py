"""Gates that training can close for good: a relaxed count of open heads that has a gradient."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .._validate import require_count, require_number

TEMPERATURE = 0.33
LOW, HIGH = -0.1, 1.1


class HardConcreteGate(nn.Module):
    """One gate for each head of a layer, drawn anew in training, exactly 0 or 1 with some probability.

    In training, with u uniform on (0, 1),

        g = clip(1.2 σ((ln u - ln(1 - u) + log_a) / 0.33) - 0.1, 0, 1);

    in evaluation, with no random numbers and no temperature, g = clip(1.2 σ(log_a) - 0.1, 0, 1). In training, the
    probability that a gate is not 0 is σ(log_a - 0.33 ln(0.1 / 1.1)).

    Voita et al. evaluate with hard gates too, 1 where `log_a` is positive and else 0; these are not here. What their
    heads do when they are shut for good, `mhalib.measures.prune_heads` shows: prune those whose gate is 0.

    Add `rate * gate.penalty()` to the loss of a model that runs inside `mhalib.gated(model, {kind: [gate(), ...]})`.

    Args:
        num_heads: h.
        log_a: where all gates start. At 2, a gate is open with probability 0.94, and 0.96 in evaluation.

    Raises:
        TypeError, ValueError: `num_heads` is not a positive integer, or `log_a` not a finite number.

    Sources: Louizos et al. 2018 for the distribution; Voita et al. 2019, section 6, for heads, and their code for the
    temperature 0.33 and the limits -0.1 and 1.1.
    """

    def __init__(self, num_heads: int, log_a: float = 2.0) -> None:
        super().__init__()
        require_count("num_heads", num_heads)
        require_number("log_a", log_a)
        self.num_heads = num_heads
        self.log_a = nn.Parameter(torch.full((num_heads,), float(log_a)))

    def forward(self, batch_size: int | None = None) -> Tensor:
        """Gates from 0 to 1, for `mhalib.gated`.

        Args:
            batch_size: B, to draw gates for each example; `None` draws one set for all, as Voita et al. do. Two calls
                in training draw twice.

        Returns:
            (h,), or (B, h).
        """
        shape: tuple[int, ...] = (self.num_heads,)
        if batch_size is not None:
            require_count("batch_size", batch_size)
            shape = (batch_size, self.num_heads)
        logits = self.log_a.expand(shape)
        if self.training:
            u = torch.rand(shape, device=logits.device, dtype=logits.dtype)  # 0 closes the gate: ln 0 does no harm
            logits = (u.log() - (1 - u).log() + logits) / TEMPERATURE
        return (logits.sigmoid() * (HIGH - LOW) + LOW).clamp(0, 1)

    @property
    def open_probability(self) -> Tensor:
        """(h,): the probability that a gate of training is not 0."""
        return (self.log_a - TEMPERATURE * math.log(-LOW / HIGH)).sigmoid()

    def penalty(self) -> Tensor:
        """How many gates are expected to be open, from 0 to h: what is to be small. Without axes, with a gradient."""
        return self.open_probability.sum()

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}"
