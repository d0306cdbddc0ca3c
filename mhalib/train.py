"""One short training loop for the small models of the book."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ._validate import require_count


def fit(model: nn.Module, loss: Callable[[], Tensor], steps: int = 400, largest_rate: float = 0.02) -> Tensor:
    """Train `model` in place and leave it in evaluation mode.

    AdamW, with a learning rate that rises to `largest_rate` over the first third of the steps and falls after it.

    Args:
        model: whose parameters are trained.
        loss: draws a batch, applies the model to it and returns a loss without axes.
        steps: how often that is done.
        largest_rate: the highest learning rate.

    Returns:
        (steps,) the losses, on the CPU.

    Raises:
        TypeError, ValueError: `steps` is not an integer of at least 1, or `largest_rate` is not positive.
    """
    require_count("steps", steps)
    if not largest_rate > 0:
        raise ValueError(f"largest_rate={largest_rate} must be positive")
    model.train()
    optimizer = torch.optim.AdamW(model.parameters())
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, largest_rate, steps)
    losses = []
    for _ in range(steps):
        value = loss()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        rates.step()
        losses.append(value.detach())
    model.eval()
    return torch.stack(losses).cpu()
