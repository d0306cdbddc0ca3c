"""Keys and values that heads share: how a layer comes to share them, and how LLaMA's rotary pairs are told apart."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from .._validate import require_choice, require_count
from ..attention import MultiHeadAttention, RotaryPositions
from ..attention.positions import PAIRS
from ._settings import plain, sizes_of


def group_heads(layer: MultiHeadAttention, num_kv_heads: int) -> MultiHeadAttention:
    """A layer in which groups of heads share keys and values: the means of what they had.

    Args:
        layer: multi-head attention, whose heads may share some already.
        num_kv_heads: how many keys and values are left; divides those that `layer` has.

    Raises:
        TypeError: `layer` is no `MultiHeadAttention`, or a variant.
        ValueError: the number does not divide those there are, or heads were removed.

    Source: Ainslie et al. 2023, GQA, section 2.1: of three ways to begin, the mean did best after some more training.
    """
    plain(layer)
    require_count("num_kv_heads", num_kv_heads)
    if layer.num_heads != layer.num_heads_made:
        raise ValueError(
            f"layer has {layer.num_heads} of its {layer.num_heads_made} heads: group before removing heads"
        )
    if layer.num_kv_heads % num_kv_heads:
        raise ValueError(f"num_kv_heads={num_kv_heads} does not divide the {layer.num_kv_heads} of the layer")
    new = MultiHeadAttention(**sizes_of(layer), num_kv_heads=num_kv_heads)
    new.positions = layer.positions
    new.to(layer.W_o.weight).train(layer.training)
    with torch.no_grad():
        for name in ("W_q", "W_o"):
            getattr(new, name).load_state_dict(getattr(layer, name).state_dict())
        for name in ("W_k", "W_v"):
            for part, old in getattr(layer, name).named_parameters():
                rows = old.unflatten(0, (num_kv_heads, layer.num_kv_heads // num_kv_heads, -1))
                getattr(getattr(new, name), part).copy_(rows.mean(1).flatten(0, 1))
    return new


def exchange_pairs(layer: MultiHeadAttention, pairs: str) -> MultiHeadAttention:
    """The same function with the other pairs of rotary positions: channels of queries and keys change places.

    Meta's LLaMA turns the channels 2i and 2i + 1 together, Hugging Face's i and i + d/2: weights of one give nonsense
    in the other, without an error.

    Args:
        layer: multi-head attention with rotary positions.
        pairs: "interleaved" or "halves", what the new layer has.

    Raises:
        TypeError: `layer` is no `MultiHeadAttention`, or a variant.
        ValueError: it has no rotary positions, or `pairs` is unknown.
    """
    plain(layer)
    require_choice("pairs", pairs, PAIRS)
    if layer.positions is None:
        raise ValueError("layer has no rotary positions")
    new = copy.deepcopy(layer)
    new.positions = RotaryPositions(pairs, layer.positions.base)
    if pairs != layer.positions.pairs:
        order = torch.arange(layer.head_dim).view(-1, 2).T.flatten()  # 0 2 4 … 1 3 5 …
        if pairs == "interleaved":
            order = order.argsort()
        with torch.no_grad():
            for projection, heads in ((new.W_q, new.num_heads), (new.W_k, new.num_kv_heads)):
                for part in projection.parameters():
                    part.copy_(_reordered(part, heads, order))
    return new


def _reordered(rows: Tensor, num_heads: int, order: Tensor) -> Tensor:
    """The rows (heads * d, ...) of a projection, those of each head in another order."""
    return rows.unflatten(0, (num_heads, -1))[:, order].flatten(0, 1)
