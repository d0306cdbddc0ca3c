"""Weights carried between this book's layer, torch's, D2L's and that of The Annotated Transformer.

Every function copies: source and result share no memory. Device and dtype are kept. D2L and Harvard are reached
through state dicts, so that neither has to be installed.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from .._validate import require_tensor
from ..attention import MultiHeadAttention

D2L_NAMES = ("W_q", "W_k", "W_v", "W_o")
HARVARD_NAMES = ("linears.0", "linears.1", "linears.2", "linears.3")


def to_torch(layer: MultiHeadAttention) -> nn.MultiheadAttention:
    """A `torch.nn.MultiheadAttention` (batch first) that computes what `layer` does.

    Its masks mean the opposite: pass `key_padding_mask=~mask`. By default it averages the heads' weights:
    call it with `average_attn_weights=False` for (B, h, Q, K).

    Raises:
        ValueError: `query_size` is not `num_hiddens`, which torch's layer cannot express.
    """
    if layer.W_q.in_features != layer.num_hiddens:
        raise ValueError(
            f"torch.nn.MultiheadAttention needs queries of width num_hiddens={layer.num_hiddens}, "
            f"but query_size={layer.W_q.in_features}"
        )
    twin = nn.MultiheadAttention(
        layer.num_hiddens,
        layer.num_heads,
        dropout=layer.dropout,
        bias=layer.W_q.bias is not None,
        kdim=layer.W_k.in_features,
        vdim=layer.W_v.in_features,
        batch_first=True,
        device=layer.W_q.weight.device,
        dtype=layer.W_q.weight.dtype,
    )
    projections = (layer.W_q, layer.W_k, layer.W_v)
    with torch.no_grad():
        for target, projection in zip(_torch_weights(twin), projections, strict=True):
            target.copy_(projection.weight)
        twin.out_proj.weight.copy_(layer.W_o.weight)
        if layer.W_o.bias is not None:
            twin.in_proj_bias.copy_(torch.cat([projection.bias for projection in projections]))
            twin.out_proj.bias.copy_(layer.W_o.bias)
    return twin.train(layer.training)


def from_torch(twin: nn.MultiheadAttention) -> MultiHeadAttention:
    """This book's layer with the weights of torch's, which may have been made batch first or not.

    Raises:
        ValueError: `twin` was made with `add_bias_kv` or `add_zero_attn`, which this book's layer lacks.
    """
    if twin.bias_k is not None or twin.add_zero_attn:
        raise ValueError(
            "torch's layer adds a key of its own, which MultiHeadAttention cannot: "
            f"add_bias_kv={twin.bias_k is not None}, add_zero_attn={twin.add_zero_attn}"
        )
    layer = MultiHeadAttention(
        twin.embed_dim,
        twin.num_heads,
        twin.dropout,
        twin.in_proj_bias is not None,
        key_size=twin.kdim,
        value_size=twin.vdim,
    ).to(twin.out_proj.weight)
    projections = (layer.W_q, layer.W_k, layer.W_v)
    with torch.no_grad():
        for projection, source in zip(projections, _torch_weights(twin), strict=True):
            projection.weight.copy_(source)
        layer.W_o.weight.copy_(twin.out_proj.weight)
        if twin.in_proj_bias is not None:
            for projection, source in zip(projections, twin.in_proj_bias.chunk(3), strict=True):
                projection.bias.copy_(source)
            layer.W_o.bias.copy_(twin.out_proj.bias)
    return layer.train(twin.training)


def to_d2l(layer: MultiHeadAttention) -> dict[str, Tensor]:
    """The state dict of D2L's `MultiHeadAttention`. It hides with `valid_lens`, like this book's layer."""
    return _renamed(layer.state_dict(), D2L_NAMES, D2L_NAMES)


def from_d2l(state_dict: Mapping[str, Tensor], num_heads: int, dropout: float = 0.0) -> MultiHeadAttention:
    """This book's layer from the state dict of D2L's `MultiHeadAttention`, whose number of heads it does not hold.

    Raises:
        ValueError: an entry is missing, unknown or of the wrong shape, or `num_heads` does not divide D.
    """
    return _from_state_dict(state_dict, D2L_NAMES, num_heads, dropout)


def to_harvard(layer: MultiHeadAttention) -> dict[str, Tensor]:
    """The state dict of `MultiHeadedAttention` in The Annotated Transformer, whose layers always have biases.

    Raises:
        ValueError: the input widths of `layer` are not all `num_hiddens`.
    """
    state = layer.state_dict()
    for name in D2L_NAMES:
        if state[f"{name}.weight"].shape[1] != layer.num_hiddens:
            raise ValueError(
                f"The Annotated Transformer's layer needs inputs of width num_hiddens={layer.num_hiddens}, "
                f"but {name} takes {state[f'{name}.weight'].shape[1]}"
            )
        state.setdefault(f"{name}.bias", state[f"{name}.weight"].new_zeros(layer.num_hiddens))
    return _renamed(state, D2L_NAMES, HARVARD_NAMES)


def from_harvard(state_dict: Mapping[str, Tensor], num_heads: int, dropout: float = 0.0) -> MultiHeadAttention:
    """This book's layer from the state dict of The Annotated Transformer's `MultiHeadedAttention`.

    Raises:
        ValueError: an entry is missing, unknown or of the wrong shape, or `num_heads` does not divide D.
    """
    return _from_state_dict(state_dict, HARVARD_NAMES, num_heads, dropout)


def _torch_weights(twin: nn.MultiheadAttention) -> tuple[Tensor, ...]:
    """Query, key and value matrices: torch keeps one stack of three where the widths agree, else one each."""
    if twin.in_proj_weight is not None:
        return twin.in_proj_weight.chunk(3)
    return twin.q_proj_weight, twin.k_proj_weight, twin.v_proj_weight


def _renamed(state: Mapping[str, Tensor], old: tuple[str, ...], new: tuple[str, ...]) -> dict[str, Tensor]:
    return {
        f"{to}.{part}": state[f"{name}.{part}"].clone()
        for name, to in zip(old, new, strict=True)
        for part in ("weight", "bias")
        if f"{name}.{part}" in state
    }


def _from_state_dict(
    state_dict: Mapping[str, Tensor], names: tuple[str, ...], num_heads: int, dropout: float
) -> MultiHeadAttention:
    weights = [f"{name}.weight" for name in names]
    biases = [f"{name}.bias" for name in names]
    has_bias = any(key in state_dict for key in biases)
    expected = set(weights + biases if has_bias else weights)
    if set(state_dict) != expected:
        missing, unknown = sorted(expected - set(state_dict)), sorted(set(state_dict) - expected)
        raise ValueError(f"state_dict does not fit: missing {missing}, unknown {unknown}")
    for name in weights:
        require_tensor(name, state_dict[name], rank=2)
    q, k, v, o = (state_dict[name] for name in weights)
    layer = MultiHeadAttention(
        o.shape[0],
        num_heads,
        dropout,
        has_bias,
        query_size=q.shape[1],
        key_size=k.shape[1],
        value_size=v.shape[1],
    ).to(o)
    try:
        layer.load_state_dict(_renamed(state_dict, names, D2L_NAMES))
    except RuntimeError as error:
        raise ValueError(f"state_dict does not fit a layer of num_hiddens={o.shape[0]}: {error}") from error
    return layer
