"""How torch's operations pass the names of axes on. The result of one that is not listed gets no names."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .axes import NUMBER, Axes, Axis, Factor, broadcast, differ, fixed, is_known, numbers, piece, regroup, unknown

PRODUCTS = {"mm", "bmm", "addmm", "baddbmm"}
MAKERS = {"new_zeros", "new_ones", "new_full", "new_empty"}  # results that have nothing of the tensor but its type
FUSED = ("scaled_dot_product", "multi_head_attention", "transformer_encoder_layer", "flash_attn", "efficient_attention")


SOFTMAX = {"softmax", "_softmax", "_safe_softmax", "log_softmax", "_log_softmax"}
SAME = SOFTMAX | {"clone", "_to_copy", "native_dropout", "native_layer_norm"}
SAME |= {"masked_fill_", "zero_", "fill_", "bernoulli_", "uniform_", "normal_", "tril", "triu", "cumsum"}
SAME |= {f"{name}_like" for name in ("empty", "zeros", "ones", "full", "rand", "randn")}
SAME |= {"_native_multi_head_attention", "_transformer_encoder_layer_fwd"}


def is_fused(operation: str) -> bool:
    """Whether the operation does scores, softmax and average in one go, so that nobody can look inside."""
    return any(part in operation for part in FUSED)


def follow(
    operation: str,
    args: Sequence[Any],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    operands: Sequence[Axes],
    pointwise: bool,
) -> list[Axes]:
    """Axes of each output.

    Args:
        operation: the name in torch's namespace aten.
        args: what it was called with.
        inputs, operands: the tensors among them, and their axes.
        outputs: what it returned.
        pointwise: whether it works number by number.
    """
    shapes = [tuple(output.shape) for output in outputs]
    rule = RULES.get(operation)
    result: list[Axes] = []
    if not inputs or operation in MAKERS:
        return [unknown(shape) for shape in shapes]
    if operation.startswith("_scaled_dot_product") and not operation.endswith("backward"):
        result = [(*operands[0][:-1], operands[2][-1])]
    elif rule is not None and operands[0] and 0 not in itertools.chain(*shapes):
        result = rule(args, operands, shapes)
    elif pointwise:
        result = [broadcast(operands, shapes[0])]
    result += [numbers(shape) for shape in shapes[len(result) :]]
    return [_fitting(axes, shape) for axes, shape in zip(result, shapes, strict=True)]


def _fitting(axes: Axes, shape: tuple[int, ...]) -> Axes:
    """The axes, unless they are not as many or not as long as the shape says: a rule that errs must not name."""
    fits = tuple(math.prod(factor.size for factor in axis) for axis in axes) == shape
    return axes if fits else numbers(shape)


def meetings(operation: str, operands: Sequence[Axes], pointwise: bool) -> list[tuple[Axis, Axis]]:
    """Pairs of axes that the operation takes to be the same, although they come from different places."""
    pairs: list[tuple[Axis, Axis]] = []
    if operation in PRODUCTS:
        a, b = operands[-2:]
        pairs = [(a[-1], b[-2]), *zip(a[:-2], b[:-2], strict=True)]
    elif pointwise and operation != "copy_":
        pairs = [
            pair
            for one, other in itertools.combinations(operands, 2)
            for pair in zip(reversed(one), reversed(other), strict=False)
        ]
    return [pair for pair in pairs if differ(*pair)]


def weight_axes(shape: Sequence[int], width: int | None, stacked: bool, sizes: Mapping[str, int]) -> Axes:
    """Axes of a layer's weight: one as long as D is D, of projections one as long as all heads of a kind together is
    these heads, and of stacked projections one that holds several of D."""
    unit = Factor("D", width or 1)
    heads = {
        sizes[kind] * sizes["d"]: (Factor(kind, sizes[kind]), Factor("D", sizes["d"]))
        for kind in ("h", "g")
        if stacked and unit.size > 1 and kind in sizes and min(sizes[kind], sizes.get("d", 0)) > 1
    }
    return tuple(
        (unit,)
        if size == unit.size > 1
        else heads[size]
        if size in heads
        else (Factor(NUMBER, size // unit.size), unit)
        if stacked and unit.size > 1 and size > 1 and not size % unit.size
        else numbers([size])[0]
        for size in shape
    )


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors in nested tuples, lists and dicts, in order. Sparse and nested ones have no strides: left out."""
    if isinstance(value, torch.Tensor):
        return [value] if value.layout == torch.strided and not value.is_nested else []
    if isinstance(value, dict):
        value = tuple(value.values())
    return [result for item in value for result in tensors_in(item)] if isinstance(value, (tuple, list)) else []


Rule = Callable[[Sequence[Any], Sequence[Axes], Sequence[tuple[int, ...]]], list[Axes]]


def _argument(args: Sequence[Any], index: int, default: Any) -> Any:
    return args[index] if len(args) > index else default


def _view(args: Sequence[Any], operands: Sequence[Axes], shapes: Sequence[tuple[int, ...]]) -> list[Axes]:
    return [regroup(operands[0], shapes[0])]


def _same(args: Sequence[Any], operands: Sequence[Axes], shapes: Sequence[tuple[int, ...]]) -> list[Axes]:
    return [operands[0]]


def _flip(args: Sequence[Any], operands: Sequence[Axes], shapes: Sequence[tuple[int, ...]]) -> list[Axes]:
    return [tuple(reversed(operands[0]))]


def _transpose(args: Sequence[Any], operands: Sequence[Axes], shapes: Sequence[tuple[int, ...]]) -> list[Axes]:
    axes = list(operands[0])
    one, other = args[1:3]
    axes[one], axes[other] = axes[other], axes[one]
    return [tuple(axes)]


def _permute(args: Sequence[Any], operands: Sequence[Axes], shapes: Sequence[tuple[int, ...]]) -> list[Axes]:
    return [tuple(operands[0][i] for i in args[1])]


def _expand(args: Sequence[Any], operands: Sequence[Axes], shapes: Sequence[tuple[int, ...]]) -> list[Axes]:
    axes = ((),) * (len(shapes[0]) - len(operands[0])) + operands[0]
    return [tuple(axis or numbers([size])[0] for axis, size in zip(axes, shapes[0], strict=True))]


def _repeat(args: Sequence[Any], operands: Sequence[Axes], shapes: Sequence[tuple[int, ...]]) -> list[Axes]:
    axes = ((),) * (len(args[1]) - len(operands[0])) + operands[0]
    return [tuple((*numbers([times])[0], *axis) for axis, times in zip(axes, args[1], strict=True))]


def _slice(args: Sequence[Any], operands: Sequence[Axes], shapes: Sequence[tuple[int, ...]]) -> list[Axes]:
    dim, step = _argument(args, 1, 0), _argument(args, 4, 1)
    whole = math.prod(factor.size for factor in operands[0][dim])
    start = range(whole)[slice(_argument(args, 2, None), None)].start  # counted from the front
    return [_narrow(operands[0], dim, start, shapes[0][dim], step)]


def _narrow(axes: Axes, dim: int, start: int, size: int, step: int = 1) -> Axes:
    if size == 1:
        return fixed(axes, dim, start)
    return tuple(piece(axis, start, size, step) if i == dim % len(axes) else axis for i, axis in enumerate(axes))


def _split(args: Sequence[Any], operands: Sequence[Axes], shapes: Sequence[tuple[int, ...]]) -> list[Axes]:
    dim = _argument(args, 2, 0)
    starts = itertools.accumulate((shape[dim] for shape in shapes), initial=0)
    return [_narrow(operands[0], dim, start, shape[dim]) for start, shape in zip(starts, shapes, strict=False)]


def _without(axes: Axes, dim: int, index: int) -> Axes:
    dim %= len(axes)
    rest = fixed(axes, dim, index)
    return (*rest[:dim], *rest[dim + 1 :])


def _select(args: Sequence[Any], operands: Sequence[Axes], shapes: Sequence[tuple[int, ...]]) -> list[Axes]:
    dim, index = args[1:3]
    whole = math.prod(factor.size for factor in operands[0][dim])
    return [_without(operands[0], dim, index % whole)]


def _unbind(args: Sequence[Any], operands: Sequence[Axes], shapes: Sequence[tuple[int, ...]]) -> list[Axes]:
    return [_without(operands[0], _argument(args, 1, 0), index) for index in range(len(shapes))]


def _onto(args: Sequence[Any], operands: Sequence[Axes], shapes: Sequence[tuple[int, ...]]) -> list[Axes]:
    """`copy_`: what was in the memory before does not matter."""
    return [broadcast(operands[1:], shapes[0])]


def _reduce(args: Sequence[Any], operands: Sequence[Axes], shapes: Sequence[tuple[int, ...]]) -> list[Axes]:
    rank = len(operands[0])
    dims = _argument(args, 1, None)
    dims = [dims] if isinstance(dims, int) else dims or range(rank)
    gone = {dim % rank for dim in dims}
    kept = len(shapes[0]) == rank
    return [tuple(() if i in gone else axis for i, axis in enumerate(operands[0]) if kept or i not in gone)]


def _product(args: Sequence[Any], operands: Sequence[Axes], shapes: Sequence[tuple[int, ...]]) -> list[Axes]:
    a, b = operands[-2:]  # addmm and baddbmm have the summand first
    return [(*a[:-1], b[-1])]


def _is_next(one: Factor, other: Factor) -> bool:
    stride, root = one.stride, one.root
    return other == Factor(root, other.size, stride, one.start + one.size * stride) and is_known((one,))


def _cat(args: Sequence[Any], operands: Sequence[Axes], shapes: Sequence[tuple[int, ...]]) -> list[Axes]:
    """Pieces of one axis, in their old order, are that axis; anything else is new."""
    axes, dim = list(operands[0]), _argument(args, 1, 0)
    pieces = [one[dim][0] for one in operands if len(one) == len(axes) and len(one[dim]) == 1]
    follows = [_is_next(one, other) for one, other in itertools.pairwise(pieces)]
    if len(pieces) == len(operands) and all(follows):
        axes[dim] = (replace(pieces[0], size=shapes[0][dim]),)
    else:
        axes[dim] = numbers([shapes[0][dim]])[0]
    return [tuple(axes)]


def _stack(args: Sequence[Any], operands: Sequence[Axes], shapes: Sequence[tuple[int, ...]]) -> list[Axes]:
    """A new axis before others, which keep their names if all pieces have them."""
    dim = _argument(args, 1, 0) % len(shapes[0])
    first, new = operands[0], numbers([len(operands)])
    return [(*first[:dim], *new, *first[dim:])] if set(operands) == {first} else []


RULES: dict[str, Rule] = {
    **dict.fromkeys(("view", "_unsafe_view", "_reshape_alias", "squeeze", "unsqueeze"), _view),
    **dict.fromkeys(SAME, _same),
    **dict.fromkeys(("sum", "mean", "amax", "any", "all"), _reduce),
    **dict.fromkeys(PRODUCTS, _product),
    **dict.fromkeys(("split", "split_with_sizes"), _split),
    "select": _select,
    "unbind": _unbind,
    "copy_": _onto,
    "t": _flip,
    "transpose": _transpose,
    "permute": _permute,
    "expand": _expand,
    "repeat": _repeat,
    "slice": _slice,
    "cat": _cat,
    "stack": _stack,
}
