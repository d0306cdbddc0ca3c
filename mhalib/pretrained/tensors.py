"""A model of ours with a checkpoint's weights, told which of their tensors makes each of ours."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from ..attention import MultiHeadAttention
from ..models import Model

Change = Callable[[Tensor, MultiHeadAttention], Tensor]
"""Makes our tensor of theirs, told the layer that it may belong to."""
Made = TypeVar("Made", bound=Model)


def unchanged(tensor: Tensor, layer: MultiHeadAttention) -> Tensor:
    """Ours is theirs."""
    return tensor


class Origin(NamedTuple):
    """Where a tensor of ours comes from.

    names: of theirs. A checkpoint may hold the same tensor under several of them.
    change: makes ours of it.
    """

    names: tuple[str, ...]
    change: Change = unchanged


class Told(NamedTuple):
    """What a family says of one checkpoint.

    origin: where one of our tensors, by its name, comes from. Those that are one parameter have all their names.
    instead: tensors that stand for those of the checkpoint, by their names there.
    unused: patterns of tensors that hold nothing learned.
    """

    origin: Callable[[str], Origin]
    instead: dict[str, Tensor]
    unused: tuple[str, ...]


def as_origin(told: str | Origin) -> Origin:
    """Where ours comes from; without a word about how it is made, it is theirs."""
    return Origin((told,)) if isinstance(told, str) else told


def multiplied(tensors: Mapping[str, Tensor], factors: Mapping[str, float | Tensor]) -> dict[str, Tensor]:
    """Maps and norms whose results are multiplied, made larger in their place, in float32: of each the name, without
    its ".weight" and ".bias", and the factor, one for all rows or one for each."""
    return {
        name: (tensors[name].float().movedim(0, -1) * factor).movedim(-1, 0)
        for part, factor in factors.items()
        for name in (f"{part}.weight", f"{part}.bias")
        if name in tensors  # or it is named when it is looked for
    }


def filled(
    model: Made, told: Told, tensors: Mapping[str, Tensor], dtype: torch.dtype, device: torch.device | str
) -> Made:
    """The model with a checkpoint's weights, in evaluation mode. One tensor after the other is read.

    Args:
        model: on the device "meta", without memory.
        told: where our tensors come from.
        tensors: what the files of weights hold.
        dtype: of the model.
        device: where it is put.

    Raises:
        ValueError: a tensor is missing, has another shape than the config says, or belongs to nothing that the config
            speaks of; or what is one parameter has two values.
    """
    tensors = ChainMap(told.instead, cast("dict[str, Tensor]", tensors))  # only read
    origins, layer = _by_parameter(model, told.origin), next(iter(model.attention_layers().values()))[0]
    found = {own: [name for name in one.names if name in tensors] for own, one in origins.items()}
    missing = sorted(origins[own].names[0] for own, names in found.items() if not names)
    if missing:
        raise ValueError(f"the checkpoint lacks {len(missing)} tensors of the model, such as {missing[:3]}")
    others = sorted(tensors.keys() - {name for names in found.values() for name in names})
    others = [key for key in others if not any(re.search(pattern, key) for pattern in told.unused)]
    if others:
        raise ValueError(
            f"the checkpoint holds {len(others)} tensors that the model of config.json has no place for, such as "
            f"{others[:3]}"
        )
    state: dict[str, Tensor] = {}
    for own, names in found.items():
        theirs, wanted = _one_of(tensors, names), model.get_parameter(own)
        made = _made(origins[own].change, theirs, layer)
        if made is None or made.shape != wanted.shape:
            raise ValueError(
                f"the checkpoint holds {names[0]!r} with shape {tuple(theirs.shape)}, "
                f"of which config.json does not make {own!r} with shape {tuple(wanted.shape)}"
            )
        state[own] = made.to(device, dtype, copy=True).contiguous()
    first = _first_places(model)
    model.load_state_dict({own: state[first[own]] for own in first}, assign=True)
    return model.eval()


def _first_places(model: Model) -> dict[str, str]:
    """The name of each parameter -> the first name of the same parameter."""
    named = list(model.named_parameters(remove_duplicate=False))
    first: dict[int, str] = {}
    for own, parameter in named:
        first.setdefault(id(parameter), own)
    return {own: first[id(parameter)] for own, parameter in named}


def _by_parameter(model: Model, origin: Callable[[str], Origin]) -> dict[str, Origin]:
    """Each parameter's first name -> its origin, under all names that it has in the checkpoint."""
    found: dict[str, Origin] = {}
    for own, first in _first_places(model).items():
        one = origin(own)
        known = found.get(first)
        found[first] = one if known is None else Origin(tuple(dict.fromkeys(known.names + one.names)), known.change)
    return found


def _one_of(tensors: Mapping[str, Tensor], names: list[str]) -> Tensor:
    """The tensor that has these names. Raises ValueError if they are several."""
    found = tensors[names[0]]
    for name in names[1:]:
        if not torch.equal(found, tensors[name]):
            raise ValueError(
                f"the checkpoint holds {names[0]!r} and {name!r} with different numbers, but config.json makes them one"
            )
    return found


def _made(change: Change, theirs: Tensor, layer: MultiHeadAttention) -> Tensor | None:
    """Our tensor of theirs; `None` where theirs has a shape of which none can be made."""
    try:
        return change(theirs, layer)
    except (RuntimeError, IndexError):
        return None
