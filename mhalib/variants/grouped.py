"""Keys and values that heads share: how a layer comes to share them, and how LLaMA's rotary pairs are told apart."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from .._validate import require_choice, require_count
from ..attention import MultiHeadAttention, RotaryPositions
from ..attention.positions import PAIRS
from ._settings import plain, sizes_of

ROUNDS = 5
"""How often the mean of a group is taken anew while its heads are turned towards it."""


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


def align_heads(layer: MultiHeadAttention, num_groups: int) -> MultiHeadAttention:
    """The same function, with the channels of each head turned so that the keys and values of a group are as alike as
    can be. What `group_heads` then averages has more to do with each other.

    A head's queries and keys may be turned together, and its values together with its columns of W_o: no score and no
    output changes. The turns are found by orthogonal Procrustes problems, each head against the mean of its group.
    With rotary positions only values are turned.

    Args:
        layer: multi-head attention without shared keys.
        num_groups: how many groups of neighbouring heads there are; divides h.

    Raises:
        TypeError: `layer` is no `MultiHeadAttention`, or a variant.
        ValueError: the number does not divide h, or heads share keys.

    Sources: Schönemann 1966 for the turns; Jin et al. 2024, Align Attention Heads Before Merging Them.
    """
    plain(layer, grouped=False)
    require_count("num_groups", num_groups)
    if layer.num_heads % num_groups:
        raise ValueError(f"num_groups={num_groups} does not divide the {layer.num_heads} heads of the layer")
    new = copy.deepcopy(layer)
    with torch.no_grad():
        for heads in torch.arange(layer.num_heads).chunk(num_groups):
            if layer.positions is None:
                _turn_alike(new, heads.tolist(), "k")
            _turn_alike(new, heads.tolist(), "v")
    return new


def _turn_alike(layer: MultiHeadAttention, heads: list[int], what: str) -> None:
    """Turn the keys of these heads, and their queries too, or their values, and W_o back, towards their mean."""
    projection = layer.W_k if what == "k" else layer.W_v
    own = {head: layer.head_slices(head) for head in heads}
    for step in range(ROUNDS):
        rows = {head: projection.weight[getattr(own[head], what)] for head in heads}
        goal = torch.stack(list(rows.values())).mean(0) if step else rows[heads[0]].clone()
        for head in heads:
            left, _, right = torch.linalg.svd(goal.double() @ rows[head].double().mT)
            turn = (left @ right).to(goal)
            turned = [(projection, getattr(own[head], what))]
            if what == "k":
                turned.append((layer.W_q, own[head].q))
            else:
                layer.W_o.weight[:, own[head].o] = layer.W_o.weight[:, own[head].o] @ turn.mT
            for one, at in turned:
                for part in one.parameters():
                    part[at] = turn @ part[at]


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
    width = layer.positions.width or layer.head_dim
    new.positions = RotaryPositions(pairs, layer.positions.base, layer.positions.width, layer.positions.scaling)
    if pairs != layer.positions.pairs:
        order = torch.arange(width).view(-1, 2).T.flatten()  # 0 2 4 … 1 3 5 …
        if pairs == "interleaved":
            order = order.argsort()
        order = torch.cat([order, torch.arange(width, layer.head_dim)])
        with torch.no_grad():
            for projection, heads in ((new.W_q, new.num_heads), (new.W_k, new.num_kv_heads)):
                for part in projection.parameters():
                    part.copy_(_reordered(part, heads, order))
    return new


def _reordered(rows: Tensor, num_heads: int, order: Tensor) -> Tensor:
    """The rows (heads * d, ...) of a projection, those of each head in another order."""
    return rows.unflatten(0, (num_heads, -1))[:, order].flatten(0, 1)
