"""What a layer says about itself and its arguments: their names, the usual names of their axes, h, g, d and D."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from types import CellType
from typing import Any

import torch
from torch import Tensor, nn

from .axes import Axes, Names
from .axis_rules import tensors_in

ATTRIBUTES = {
    "d": ("head_dim",),
    "g": ("num_kv_heads", "num_key_value_heads", "n_kv_heads"),
    "h": ("num_heads", "n_heads", "n_head", "nhead", "heads", "h"),
    "D": ("num_hiddens", "embed_dim", "d_model", "hidden_size", "n_embd"),
}


def unwrapped(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The layer below `functools.partial` and `torch.compile`, and all that it is called with."""
    while isinstance(layer, functools.partial):
        layer, args, kwargs = layer.func, (*layer.args, *args), {**layer.keywords, **kwargs}
    return getattr(layer, "_orig_mod", layer), args, kwargs


def modules_of(layer: Any) -> dict[str, nn.Module]:
    """The layer and those within it, by their paths; of a function, the layers that it names."""
    roots = {"": getattr(layer, "__self__", layer)}
    if inspect.isfunction(layer):
        used = dict(zip(layer.__code__.co_freevars, layer.__closure__ or (), strict=True))
        roots = {name: layer.__globals__.get(name) for name in layer.__code__.co_names}
        roots |= {name: cell.cell_contents for name, cell in used.items() if cell != CellType()}
    modules: dict[str, nn.Module] = {}
    for name, root in roots.items():
        for path, module in root.named_modules() if isinstance(root, nn.Module) else ():
            modules[f"{name}.{path}".strip(".")] = module
    return modules


def is_compiled(parts: Sequence[Any]) -> bool:
    """Whether one of them has gone through `torch.compile`."""
    marks = ("_orig_mod", "_compiled_call_impl", "_torchdynamo_orig_callable")
    return any(getattr(part, mark, None) is not None for part in parts for mark in marks)


def own_sizes(parts: Sequence[Any]) -> dict[str, int]:
    """h, g, d and D as a layer, or the layers within it, have them; not if they disagree. g, the number of heads with
    keys and values of their own, only where it is another than h."""
    sizes = {}
    for name, attributes in ATTRIBUTES.items():
        found = [getattr(part, "__dict__", {}).get(attribute) for part in parts for attribute in attributes]
        told = {size for size in found if isinstance(size, int) and size > 0}
        if len(told) == 1:
            sizes[name] = told.pop()
    if sizes.get("g") == sizes.get("h"):
        sizes.pop("g", None)
    return sizes


def tensor_arguments(layer: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Tensor arguments by the names that the layer gives them."""
    function = layer.forward if isinstance(layer, nn.Module) else layer
    try:
        signature = inspect.signature(function)
        given = signature.bind(*args, **kwargs).arguments
        for name, parameter in signature.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                given |= given.pop(name, {})
    except (TypeError, ValueError):  # no signature, or the call itself will raise
        given = {**{f"argument {i}": value for i, value in enumerate(args)}, **kwargs}
    tensors = {name: tensors_in((value,)) for name, value in given.items()}
    return {
        name if len(found) == 1 else f"{name}[{i}]": tensor
        for name, found in tensors.items()
        for i, tensor in enumerate(found)
    }


def axes_of_arguments(
    names: Names, arguments: Mapping[str, Tensor], axes: Mapping[str, str] | None, batch_first: bool
) -> dict[str, Axes]:
    """Axes of the arguments, as `axes` says or as they usually are. Tells `names` the sizes.

    Raises:
        TypeError: `axes` is no mapping from text to text.
        ValueError: it names an argument that is not there, or another number of axes than the tensor has.
    """
    axes = {} if axes is None else axes
    if not isinstance(axes, Mapping) or not all(isinstance(spec, str) for spec in axes.values()):
        raise TypeError(f'axes must be a mapping such as {{"x": "B N D"}}, got {type(axes).__name__}: {axes!r:.80}')
    if strangers := sorted(set(axes) - set(arguments), key=str):
        raise ValueError(f"axes names {strangers}, but the tensor arguments are {sorted(arguments)}")
    usual = dict(zip(arguments, _usual(list(arguments.values()), batch_first), strict=True))
    specs = {**axes, **{name: spec for name, spec in usual.items() if spec is not None and name not in axes}}
    words = {name: spec.replace(",", " ").split() for name, spec in specs.items()}
    for name, own in words.items():  # those that `axes` gives come first
        shape = tuple(arguments[name].shape)
        if len(own) != len(shape):
            raise ValueError(f"axes[{name!r}]={specs[name]!r} names {len(own)} axes, but the shape is {shape}")
        for word, size in zip(own, shape, strict=True):
            if size > 1:  # an axis of size 1 may stand for any size
                names.sizes.setdefault(word, size)
    return {
        name: tuple(names.whole(word, size) for word, size in zip(own, arguments[name].shape, strict=True))
        for name, own in words.items()
    }


def _usual(arguments: Sequence[Tensor], batch_first: bool) -> list[str | None]:
    """What the arguments of an attention layer usually are, from their number of axes, their order and identity."""
    real = [x for x in arguments if x.is_floating_point() and x.dim() in (3, 4)]
    itself = all(_is_same(x, real[0]) for x in real) or any(_is_same(x, real[0]) for x in real[1:])
    query, key = ("N", "N") if itself and real else ("Q", "K")
    specs: list[str | None] = []
    for x in arguments:
        if any(x is one for one in real):
            length = query if x is real[0] else key
            usual = f"B {length} D" if batch_first else f"{length} B D"
            specs.append(usual if x.dim() == 3 else f"B h {length} d")
        elif x.dtype == torch.bool:
            specs.append({2: _of_mask(x, real, batch_first, query, key), 4: f"B h {query} {key}"}.get(x.dim()))
        else:
            specs.append(None if x.is_floating_point() else {1: "B", 2: f"B {query}"}.get(x.dim()))
    return specs


def _of_mask(mask: Tensor, real: Sequence[Tensor], batch_first: bool, query: str, key: str) -> str | None:
    """(Q, K), or (B, K) as in torch's `key_padding_mask`; nothing if it could be both."""
    if not real or real[0].dim() == 4:
        return f"{query} {key}"
    batch, length = real[0].shape[:2] if batch_first else real[0].shape[1::-1]
    fitting = [name for name, size in ((query, length), ("B", batch)) if size == mask.shape[0]]
    return f"{fitting[0]} {key}" if len(fitting) == 1 else None


def _is_same(one: Tensor, other: Tensor) -> bool:
    return one is other or (one.data_ptr() == other.data_ptr() and one.shape == other.shape and one.numel() > 0)
