"""What a layer is given, checked before the first product: its sizes, its inputs, and who may attend to whom.

A layer checks its arguments once, here, and calls kernels that check nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, fx

from .._validate import (
    require_choice,
    require_count,
    require_divisible,
    require_flag,
    require_mask,
    require_positive,
    require_probability,
    require_scale,
    require_tensor,
)
from .cache import Cache, require_cache
from .kernels import autocasts
from .masks import Band, Mask, is_symbolic, padding_mask
from .positions import ROTARY, Scaling, require_rotary_width, require_scaling

if TYPE_CHECKING:
    from .layer import MultiHeadAttention


def sizes_of_heads(num_hiddens: int, num_heads: int, **given: int | None) -> dict[str, int]:
    """The sizes of a layer, with what `None` stands for in their place.

    Args:
        num_hiddens: D.
        num_heads: h; divides D, unless `head_dim` is given.
        given: query_size, key_size, value_size, head_dim, value_dim and num_kv_heads, as in `MultiHeadAttention`.

    Returns:
        these six, and num_hiddens and num_heads.

    Raises:
        TypeError, ValueError: a size is not a positive integer, or one does not divide the other.
    """
    require_count("num_hiddens", num_hiddens)
    require_count("num_heads", num_heads)
    head_dim = given["head_dim"]
    if head_dim is None:
        require_divisible("num_hiddens", num_hiddens, num_heads)
        head_dim = num_hiddens // num_heads
    usual = dict.fromkeys(("query_size", "key_size", "value_size"), num_hiddens)
    usual |= {"head_dim": head_dim, "value_dim": head_dim, "num_kv_heads": num_heads}
    sizes = {name: usual[name] if size is None else size for name, size in given.items()}
    for name, size in sizes.items():
        require_count(name, size)
    if num_heads % sizes["num_kv_heads"]:
        raise ValueError(f"num_heads={num_heads} is not divisible by num_kv_heads={sizes['num_kv_heads']}")
    return {name: int(size) for name, size in {"num_hiddens": num_hiddens, "num_heads": num_heads, **sizes}.items()}


def require_settings(dropout: object, bias: object, out_bias: object, scale: object) -> None:
    """Raise unless `dropout` is in [0, 1], `scale` a positive number or `None`, and the others are flags, the second of
    them or `None` (TypeError, ValueError)."""
    require_probability("dropout", dropout)
    require_scale(scale)
    require_flag("bias", bias)
    if out_bias is not None:
        require_flag("out_bias", out_bias)


def require_rotary(positions: str, head_dim: int, base: float, width: int | None, scaling: Scaling | None) -> None:
    """Raise unless `positions` is known and its settings fit heads of width `head_dim` (TypeError, ValueError)."""
    require_choice("positions", positions, ("none", *ROTARY))
    require_positive("rotary_base", base)
    if positions in ROTARY and width is None and head_dim % 2:
        raise ValueError(f"rotary positions need an even head_dim, got {head_dim}")
    if width is not None:
        require_rotary_width("rotary_dim", width, head_dim)
        if width % 2:
            raise ValueError(f"rotary positions need an even rotary_dim, got {width}")
    require_scaling("rotary_scaling", scaling)
    for name, given in (("rotary_dim", width), ("rotary_scaling", scaling)):
        if given is not None and positions not in ROTARY:
            raise ValueError(f"{name}={given!r:.80} cannot be: positions={positions!r} turns nothing")


def check_inputs(
    layer: MultiHeadAttention,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    need_weights: bool = True,
    cache: Cache | None = None,
    mask: Mask | None = None,
) -> None:
    """Raise unless queries (B, Q, query_size), keys (B, K, key_size) and values (B, K, value_size) fit the layer and
    each other, a `Band` counts what is held, and the other two are a flag and a cache (TypeError, ValueError).

    Under torch.fx, whose stand-ins have neither type nor size, nothing is checked.
    """
    if need_weights is not True and need_weights is not False:
        require_flag("need_weights", need_weights)
    if cache is not None:
        require_cache("cache", cache)
    if isinstance(queries, fx.Proxy):
        return
    if cache and isinstance(mask, Band) and not mask.offset and mask != Band(None, None) and keys.shape[1]:
        raise ValueError(f"mask={mask} begins at the first of {len(cache)} cached tokens: give offset={len(cache)}")
    weight: object = layer.W_o.weight
    checked = None
    for name, x, own_width in (
        ("queries", queries, layer.query_size),
        ("keys", keys, layer.key_size),
        ("values", values, layer.value_size),
    ):
        if x is None or x is not checked:  # self-attention gives one tensor three times
            if type(x) is not Tensor or x.dim() != 3 or x.is_nested or x.layout is not torch.strided:
                require_tensor(name, x, rank=3)  # which says what is wrong, if anything is
            if isinstance(weight, Tensor):  # a quantized projection has none
                if x.device != weight.device:
                    raise ValueError(f"{name} is on {x.device}, but the layer's weights are on {weight.device}")
                if x.dtype != weight.dtype and not autocasts(x.device.type):
                    raise TypeError(f"{name} is {x.dtype}, but the layer's weights are {weight.dtype}")
            if x.shape[0] != queries.shape[0]:
                raise ValueError(f"{name} holds {x.shape[0]} examples, but queries holds {queries.shape[0]}")
            checked = x
        if x.shape[2] != own_width:
            raise ValueError(f"{name} has width {x.shape[2]}, but the layer was made for {own_width}")
    if values is not keys and keys.shape[1] != values.shape[1]:
        raise ValueError(f"each key needs a value: {keys.shape[1]} keys, {values.shape[1]} values")
    if layer.positions is not None and queries.shape[1] != keys.shape[1]:
        raise ValueError(
            f"rotary positions are for self-attention: {queries.shape[1]} queries, but {keys.shape[1]} keys"
        )


class Allowed(NamedTuple):
    """Which query may attend to which key, as both ways of computing attention take it.

    matrix: boolean, broadcastable to (B, h, Q, K), `True` = may attend; `None` where each may attend to all.
    is_causal: whether it is the causal one, of which torch's kernel needs no matrix; it may then be `None`, too.
    """

    matrix: Tensor | None = None
    is_causal: bool = False


ALL = Allowed()


def resolve(mask: Mask | None, queries: Tensor, num_kvpairs: int, needs_matrix: bool) -> Allowed:
    """A mask as kernels take it, for `queries` (B, Q, width); a causal one is made a matrix only if need be."""
    if not is_symbolic(mask):
        return Allowed(mask)
    is_causal = mask.is_causal()
    if is_causal and not needs_matrix:
        return Allowed(is_causal=True)
    return Allowed(mask.matrix(queries.shape[1], num_kvpairs, device=queries.device), is_causal)


def join_masks(
    layer: MultiHeadAttention, queries: Tensor, num_kvpairs: int, valid_lens: Tensor | None, mask: Mask | None
) -> Mask | None:
    """One mask that allows what `valid_lens` and `mask` both allow; a symbolic one stays so as long as it can.

    Raises:
        TypeError, ValueError: one of them is not of this kind, or does not fit `queries` (B, Q, width) and K.
    """
    batch_size, num_queries = queries.shape[:2]
    if is_symbolic(mask):
        mask.check()
        mask = None if mask.hides_nothing(num_queries, num_kvpairs) else mask
    elif mask is not None and not isinstance(mask, fx.Proxy):
        require_tensor("mask", mask)
        if mask.dim() == 3:
            raise ValueError(
                f"mask has three axes, {tuple(mask.shape)}, and does not say which is missing: "
                "write mask[:, None] for one matrix per example, mask[None] for one per head"
            )
        require_mask(mask, (batch_size, layer.num_heads, num_queries, num_kvpairs), queries.device)
    if valid_lens is None:
        return mask
    real = padding_mask(valid_lens, num_kvpairs)
    if valid_lens.shape not in ((batch_size,), (batch_size, num_queries)):
        raise ValueError(
            f"valid_lens has shape {tuple(valid_lens.shape)}, but needs ({batch_size},) for each example "
            f"or ({batch_size}, {num_queries}) for each query"
        )
    if real.device != queries.device:
        raise ValueError(f"valid_lens is on {real.device}, but queries is on {queries.device}")
    matrix = resolve(mask, queries, num_kvpairs, needs_matrix=True).matrix
    return real if matrix is None else real & matrix


def takes_mask(step: Callable[..., Tensor]) -> bool:
    """Whether `mix_scores` or `mix_weights`, as a variant has written it, has an argument `mask`."""
    parameters = inspect.signature(step).parameters.values()
    return any(one.name == "mask" or one.kind is one.VAR_KEYWORD for one in parameters)
