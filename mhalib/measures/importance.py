"""How much a head matters to a loss, without switching it off."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from .._validate import require_choice, require_flag, require_function
from ..attention import MultiHeadAttention
from .cells import result_dtype
from .gates import layers_of
from .outputs import watched

MODES = ("example", "token")


def head_importance(
    model: nn.Module,
    batches: Iterable[Any],
    loss: Callable[[nn.Module, Any], Tensor],
    mode: str = "example",
    *,
    normalise: bool = False,
) -> dict[str, Tensor]:
    """How steeply the loss changes with a gate on each head: the mean over examples of |∂L/∂gate_h| at gate 1.

    With Att_h, what head h found before W_o, and t running over the queries of an example,

    mode="example": |Σ_t Att_htᵀ ∂L/∂Att_ht|, the paper's formula: the derivative by one gate for the whole example.
    mode="token":   Σ_t |Att_htᵀ ∂L/∂Att_ht|, what the authors' code computes: a gate for each query. Contributions of
    opposite sign do not cancel, so it is never smaller. (Their code divides by the number of tokens, not of examples,
    which is the same factor for all heads of a kind.)

    It is a slope, not what the loss would lose: a head that is saturated, or that another can replace, may have a
    small one or a large one for other reasons.

    Args:
        model: one of `mhalib.models`; it is put into evaluation mode for the time being, its gradients stay as they
            are.
        batches: whatever `loss` takes.
        loss: `loss(model, batch)` calls the model and returns the loss of each example, (B,): not their mean, of which
            no absolute value per example can be taken.
        mode: "example" or "token".
        normalise: divide each layer by the root of its sum of squares, as Michel et al. do before they compare heads
            of different layers, after Molchanov et al. 2017. A layer of zeros stays so.

    Returns:
        by kind of attention, (layers, h), at least 0. h counts the heads the layers were made with; one that is pruned
        or switched off has 0.

    Raises:
        TypeError: the model is not one of `mhalib.models`.
        ValueError: `mode` is unknown, there is no batch, or `loss` does not return one number per example.

    Source: Michel et al. 2019, section 4.1, equation 2.
    """
    require_function("loss", loss)
    require_choice("mode", mode, MODES)
    require_flag("normalise", normalise)
    if isinstance(batches, str) or not isinstance(batches, Iterable) or getattr(batches, "ndim", 1) == 0:
        raise TypeError(f"batches must be several batches, got {type(batches).__name__}: {batches!r:.80}")
    layers = layers_of(model)
    places = [(kind, number, layer) for kind, of_kind in layers.items() for number, layer in enumerate(of_kind)]
    sums = {
        kind: torch.zeros(
            len(of_kind),
            max(layer.num_heads_made for layer in of_kind),
            dtype=result_dtype(of_kind[0].W_o.weight.dtype),
            device=of_kind[0].W_o.weight.device,
        )
        for kind, of_kind in layers.items()
    }
    num_examples = 0
    was_training = model.training
    model.eval()
    try:
        for batch in batches:
            with torch.enable_grad(), watched([layer for *_, layer in places], _keep_with_slope) as outputs:
                losses = loss(model, batch)
                num_examples += _count_examples(losses, outputs)
                flat = [x for seen in outputs for x in seen]
                slopes = iter(torch.autograd.grad(losses.sum(), flat, allow_unused=True))
            for (kind, number, layer), seen in zip(places, outputs, strict=True):
                pairs: list[tuple[Tensor, Tensor | None]] = [(x.detach(), next(slopes)) for x in seen]
                if pairs and layer.num_heads:
                    values = _per_example(pairs, layer, mode)
                    sums[kind][number, list(layer.head_numbers)] += values.sum(0).to(sums[kind])
    finally:
        model.train(was_training)
    if not num_examples:
        raise ValueError("batches holds no example")
    means = {kind: total / num_examples for kind, total in sums.items()}
    return {kind: nn.functional.normalize(mean, dim=1) for kind, mean in means.items()} if normalise else means


def _keep_with_slope(calls: list[Tensor], x: Tensor) -> Tensor:
    """Keep x so that a gradient can be asked for it, and let that go on."""
    calls.append(x if x.requires_grad else x.detach().requires_grad_())
    return calls[-1]


def _count_examples(losses: Tensor, outputs: list[list[Tensor]]) -> int:
    batch_sizes = {len(x) for seen in outputs for x in seen}
    if not isinstance(losses, Tensor) or {tuple(losses.shape)} != {(size,) for size in batch_sizes}:
        got = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise ValueError(
            f"loss must return one number per example, (B,), and let the model see each example once: got {got}, "
            f"and the model saw batches of {sorted(batch_sizes)}"
        )
    if not losses.requires_grad:
        raise ValueError("loss returned numbers without a gradient: it must not run under torch.no_grad")
    return len(losses)


def _per_example(seen: list[tuple[Tensor, Tensor | None]], layer: MultiHeadAttention, mode: str) -> Tensor:
    """(B, h). A layer that is called several times, as in decoding step by step, has all its calls' queries."""
    products = [(x * slope).sum(-1) for x, slope in seen if slope is not None]  # (B, h, Q)
    if not products:
        return seen[0][0].new_zeros(len(seen[0][0]), layer.num_heads)
    joined = torch.cat(products, -1)
    return joined.sum(-1).abs() if mode == "example" else joined.abs().sum(-1)
