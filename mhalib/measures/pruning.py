"""Take heads out of a model for real."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from torch import nn

from .gates import Head, as_heads, heads_of, layers_of

AnyModel = TypeVar("AnyModel", bound=nn.Module)


def prune_heads(model: AnyModel, heads: Iterable[Head]) -> AnyModel:
    """Remove heads: their rows of W_q, W_k and W_v, and their columns of W_o, see `MultiHeadAttention.keep_heads`.

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
        TypeError: the model is not one of `mhalib.models`, `heads` is not a list of heads, or a layer is a variant
            whose heads cannot be taken apart.
        ValueError: the model has no such head, or no longer; then nothing was changed.

    Source: the question after D2L's section 11.5; Michel et al. 2019, section 4, remove heads for real too.
    """
    wanted = set(as_heads(heads))
    unknown = wanted - set(heads_of(model))
    if unknown:
        gone = unknown & set(removed_heads(model))
        reason = "are removed already" if gone == unknown else "the model does not have"
        raise ValueError(f"heads holds {sorted(map(tuple, unknown), key=str)}, which {reason}")
    for kind, of_kind in layers_of(model).items():
        for number, layer in enumerate(of_kind):
            kept = [i for i, head in enumerate(layer.head_numbers) if Head(kind, number, head) not in wanted]
            if len(kept) < layer.num_heads:
                layer.keep_heads(kept)
    return model


def removed_heads(model: nn.Module) -> list[Head]:
    """The heads that `prune_heads` has taken out of the model."""
    return [
        Head(kind, number, head)
        for kind, of_kind in layers_of(model).items()
        for number, layer in enumerate(of_kind)
        for head in range(layer.num_heads_made)
        if head not in layer.head_numbers
    ]
