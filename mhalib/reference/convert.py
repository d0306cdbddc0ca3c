"""Weights carried between this book's layer, torch's, D2L's and that of The Annotated Transformer.

Every function copies: source and result share no memory. Device and dtype are kept. D2L and Harvard are reached
through state dicts, so that neither has to be installed.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from .._validate import require_kind, require_probability, require_tensor
from ..attention import MultiHeadAttention
from ._known import require_known, require_no_turning
from .arrays import BIASES, MATRICES, Arrays, require_arrays

D2L_NAMES = ("W_q", "W_k", "W_v", "W_o")
HARVARD_NAMES = ("linears.0", "linears.1", "linears.2", "linears.3")


def to_torch(layer: MultiHeadAttention) -> nn.MultiheadAttention:
    """A `torch.nn.MultiheadAttention` (batch first) that computes what `layer` does.

    Its masks mean the opposite: pass `key_padding_mask=~mask`. By default it averages the heads' weights:
    call it with `average_attn_weights=False` for (B, h, Q, K).

    Heads that share keys and values get copies of them. Torch's heads fill the width D: where those of `layer` do not,
    as after pruning, heads of zeros stand behind them, whose weights are even and whose output is 0.

    Raises:
        TypeError: `layer` is no `MultiHeadAttention`, or a variant of it.
        ValueError: torch's layer cannot express it: `query_size` is not D, heads are wider than D or do not divide it,
            values have another width than keys, the scale is another than 1/√d, or positions are rotary.
    """
    require_known("layer", layer)
    require_no_turning("layer", layer, "torch.nn.MultiheadAttention")
    D, d = layer.num_hiddens, layer.head_dim
    if layer.query_size != D:
        raise ValueError(
            f"torch.nn.MultiheadAttention needs queries of width num_hiddens={D}, but query_size={layer.query_size}"
        )
    if layer.value_dim != d or D % d or layer.num_heads * d > D:
        raise ValueError(
            f"torch.nn.MultiheadAttention needs heads that fill num_hiddens={D}, but layer has {layer.num_heads} heads "
            f"with head_dim={d} and value_dim={layer.value_dim}"
        )
    _require_usual_scale(layer, "torch.nn.MultiheadAttention")
    twin = nn.MultiheadAttention(
        D,
        D // d,
        dropout=layer.dropout,
        bias=layer.W_q.bias is not None or layer.W_o.bias is not None,
        kdim=layer.key_size,
        vdim=layer.value_size,
        batch_first=True,
        device=layer.W_o.weight.device,
        dtype=layer.W_o.weight.dtype,
    )
    slices = [layer.head_slices(head) for head in range(layer.num_heads)]
    with torch.no_grad():
        for part in twin.parameters():
            part.zero_()
        rows = {name: [getattr(one, name[-1]) for one in slices] for name in ("W_q", "W_k", "W_v")}
        for place, (name, target) in enumerate(zip(rows, _torch_weights(twin), strict=True)):
            projection = getattr(layer, name)
            for head, own in enumerate(rows[name]):
                target[head * d : (head + 1) * d] = projection.weight[own]
                if projection.bias is not None:
                    twin.in_proj_bias[place * D + head * d : place * D + (head + 1) * d] = projection.bias[own]
        twin.out_proj.weight[:, : layer.num_heads * d] = layer.W_o.weight
        if layer.W_o.bias is not None:
            twin.out_proj.bias.copy_(layer.W_o.bias)
    return twin.train(layer.training)


def from_torch(twin: nn.MultiheadAttention) -> MultiHeadAttention:
    """This book's layer with the weights of torch's, which may have been made batch first or not.

    Raises:
        ValueError: `twin` was made with `add_bias_kv` or `add_zero_attn`, which this book's layer lacks.
    """
    if not isinstance(twin, nn.MultiheadAttention):
        raise TypeError(f"twin must be a torch.nn.MultiheadAttention, got {type(twin).__name__}: {twin!r:.80}")
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
    """The state dict of D2L's `MultiHeadAttention`. It hides with `valid_lens`, like this book's layer.

    Raises:
        TypeError: `layer` is no `MultiHeadAttention`, or a variant of it.
        ValueError: D2L's layer cannot express it: heads share keys and values, are not D / h wide or have another
            scale, or positions are rotary.
    """
    _require_usual(layer, "D2L's layer")
    state = layer.state_dict()
    if any(f"{name}.bias" in state for name in D2L_NAMES):  # D2L's projections have all of them, or none
        for name in D2L_NAMES:
            state.setdefault(f"{name}.bias", state[f"{name}.weight"].new_zeros(layer.num_hiddens))
    return _renamed(state, D2L_NAMES, D2L_NAMES)


def from_d2l(state_dict: Mapping[str, Tensor], num_heads: int, dropout: float = 0.0) -> MultiHeadAttention:
    """This book's layer from the state dict of D2L's `MultiHeadAttention`, whose number of heads it does not hold.

    Raises:
        ValueError: an entry is missing, unknown or of the wrong shape, or `num_heads` does not divide D.
    """
    return _from_state_dict(state_dict, D2L_NAMES, num_heads, dropout)


def to_harvard(layer: MultiHeadAttention) -> dict[str, Tensor]:
    """The state dict of `MultiHeadedAttention` in The Annotated Transformer, whose layers always have biases.

    Raises:
        TypeError: `layer` is no `MultiHeadAttention`, or a variant of it.
        ValueError: that layer cannot express it: the input widths are not all `num_hiddens`, heads share keys and
            values, are not D / h wide or have another scale, or positions are rotary.
    """
    _require_usual(layer, "The Annotated Transformer's layer")
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


def to_arrays(layer: MultiHeadAttention) -> Arrays:
    """The weights of `layer` as NumPy arrays, which every other framework takes; see `Arrays`.

    Raises:
        TypeError: `layer` is no `MultiHeadAttention`, or a variant of it.
        ValueError: the arrays cannot express it: the input widths are not all `num_hiddens`, heads share keys and
            values, are not D / h wide or have another scale, or positions are rotary.
    """
    _require_usual(layer, "a layer of other frameworks")
    found = {}
    for name, bias in zip(MATRICES, BIASES, strict=True):
        projection = getattr(layer, name)
        if projection.weight.shape[1] != layer.num_hiddens:
            raise ValueError(
                f"arrays are (D, D) with D = num_hiddens={layer.num_hiddens}, but {name} takes "
                f"{projection.weight.shape[1]}"
            )
        found[name] = projection.weight.detach().cpu().numpy().copy()
        if projection.bias is not None:
            found[bias] = projection.bias.detach().cpu().numpy().copy()
    return found


def from_arrays(arrays: Mapping[str, np.ndarray], num_heads: int, dropout: float = 0.0) -> MultiHeadAttention:
    """This book's layer with these weights, in their dtype.

    Args:
        arrays: what `Arrays` describes.
        num_heads: h, which the arrays do not say.
        dropout: of the layer that is made.

    Raises:
        TypeError: `arrays` is no mapping, or an entry is no array of floating-point numbers.
        ValueError: an entry is missing, unknown or of the wrong shape, or `num_heads` does not divide D.
    """
    require_probability("dropout", dropout)
    D, has_bias = require_arrays(arrays, num_heads)
    layer = MultiHeadAttention(D, num_heads, dropout, has_bias).to(torch.from_numpy(arrays["W_o"].copy()))
    with torch.no_grad():
        for name, bias in zip(MATRICES, BIASES, strict=True):
            projection = getattr(layer, name)
            projection.weight.copy_(torch.from_numpy(arrays[name].copy()))
            if has_bias:
                projection.bias.copy_(torch.from_numpy(arrays[bias].copy()))
    return layer


def _require_usual(layer: MultiHeadAttention, other: str) -> None:
    """Raise unless the layer is h heads that are D / h wide, each with its own keys and values, and nothing more."""
    require_known("layer", layer)
    require_no_turning("layer", layer, other)
    _require_usual_scale(layer, other)
    widths = (layer.num_heads * layer.head_dim, layer.num_heads * layer.value_dim)
    if widths != (layer.num_hiddens, layer.num_hiddens) or layer.num_kv_heads != layer.num_heads:
        raise ValueError(
            f"{other} needs {layer.num_heads} heads that fill num_hiddens={layer.num_hiddens}, but layer has "
            f"head_dim={layer.head_dim}, value_dim={layer.value_dim} and num_kv_heads={layer.num_kv_heads}"
        )


def _require_usual_scale(layer: MultiHeadAttention, other: str) -> None:
    if layer.scale != layer.head_dim**-0.5:
        raise ValueError(f"{other} divides scores by the root of head_dim={layer.head_dim}, but scale={layer.scale}")


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
    require_kind("state_dict", state_dict, Mapping)
    weights = [f"{name}.weight" for name in names]
    biases = [f"{name}.bias" for name in names]
    has_bias = any(key in state_dict for key in biases)
    expected = set(weights + biases if has_bias else weights)
    if set(state_dict) != expected:
        missing, unknown = sorted(expected - set(state_dict)), sorted(set(state_dict) - expected, key=str)
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
