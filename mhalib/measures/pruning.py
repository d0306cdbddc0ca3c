"""Take heads out of a model for real."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import torch
from torch import nn

from ..attention import MultiHeadAttention
from ..gates import Head, attention_layers, heads_of

AnyModel = TypeVar("AnyModel", bound=nn.Module)


def prune_heads(model: AnyModel, heads: Iterable[Head]) -> AnyModel:
    """Remove heads: their rows of W_q, W_k and W_v, and their columns of W_o.

    The outputs are those of `mhalib.switched_off(model, heads)`, with fewer weights and less work. A layer may lose
    all its heads: it then returns the bias of W_o, and weights (B, 0, Q, K).

    A head keeps the number it was made with, here, in `mhalib.heads_of` and in `mhalib.switched_off`: after head 1 of
    4 is gone, the others are 0, 2 and 3, in this order in the layer's weights, and `layer.head_numbers` says so.
    `mhalib.gated` takes one gate for each head that is left. `head_dim` and `num_hiddens` stay.

    The projections get new parameters: make an optimizer after this, not before. `copy.deepcopy(model)` first, if the
    whole model is still needed. `mhalib.saved` writes and reads a pruned model.

    Args:
        model: one of `mhalib.models`; changed in place.
        heads: which. None changes nothing; one that is named twice is removed once.

    Returns:
        the same model.

    Raises:
        TypeError: the model is not one of `mhalib.models`.
        ValueError: the model has no such head, or no longer; then nothing was changed.

    Source: the question after D2L's section 11.5; Michel et al. 2019, section 4, remove heads for real too.
    """
    wanted = {Head(*head) for head in heads}
    unknown = wanted - set(heads_of(model))
    if unknown:
        gone = unknown & set(removed_heads(model))
        reason = "are removed already" if gone == unknown else "the model does not have"
        raise ValueError(f"heads holds {sorted(map(tuple, unknown), key=str)}, which {reason}")
    for kind, of_kind in attention_layers(model).items():
        for number, layer in enumerate(of_kind):
            kept = [i for i, head in enumerate(layer.head_numbers) if Head(kind, number, head) not in wanted]
            if len(kept) < layer.num_heads:
                _keep(layer, kept)
    return model


def removed_heads(model: nn.Module) -> list[Head]:
    """The heads that `prune_heads` has taken out of the model."""
    return [
        Head(kind, number, head)
        for kind, of_kind in attention_layers(model).items()
        for number, layer in enumerate(of_kind)
        for head in range(layer.num_hiddens // layer.head_dim)
        if head not in layer.head_numbers
    ]


def _keep(layer: MultiHeadAttention, kept: list[int]) -> None:
    """Reduce the layer to the heads in these places."""
    d = layer.head_dim
    own = torch.tensor([i * d + c for i in kept for c in range(d)], dtype=torch.long, device=layer.W_o.weight.device)
    for projection in (layer.W_q, layer.W_k, layer.W_v):
        projection.weight = _part(projection.weight, own, 0)
        if projection.bias is not None:
            projection.bias = _part(projection.bias, own, 0)
        projection.out_features = len(own)
    layer.W_o.weight = _part(layer.W_o.weight, own, 1)
    layer.W_o.in_features = len(own)
    layer.head_numbers = tuple(layer.head_numbers[i] for i in kept)
    layer.num_heads = len(kept)


def _part(parameter: torch.Tensor, own: torch.Tensor, axis: int) -> nn.Parameter:
    return nn.Parameter(parameter.detach().index_select(axis, own), requires_grad=parameter.requires_grad)
