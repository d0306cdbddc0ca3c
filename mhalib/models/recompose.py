"""A model with its heads composed in another way, its other weights kept."""

from __future__ import annotations

import copy
from collections.abc import Callable

from .._validate import require_function, require_kind
from ..attention import MultiHeadAttention
from ._base import Model
from .description import Choices


def recomposed(
    model: Model,
    attention: Choices,
    convert: Callable[[MultiHeadAttention], MultiHeadAttention],
) -> Model:
    """A copy of a model, each of whose attention layers is what `convert` makes of it.

    The new model's settings name the new layers, so that it can be written, read and made anew.

    Args:
        model: left as it is.
        attention: what the new layers are called, as in `Description`, with their settings:
            {"name": "multi-head", "num_kv_heads": 2}.
        convert: from a layer to one of that kind, such as `mhalib.variants.group_heads` with a number of heads.

    Raises:
        TypeError, ValueError: an argument is not of this kind, `convert` refuses a layer, or what it makes is not what
            `attention` says.
    """
    require_kind("model", model, Model)
    require_function("convert", convert)
    changed = copy.deepcopy(model)
    for module in list(changed.modules()):
        for name, part in list(module.named_children()):
            if isinstance(part, MultiHeadAttention):
                setattr(module, name, _converted(part, convert))
    new = type(model)(**model.settings_with(attention))
    for old, made in zip(_layers(changed), _layers(new), strict=True):
        if type(old) is not type(made) or _shapes(old) != _shapes(made):
            raise ValueError(f"convert makes {_told(old)}, but attention={attention!r:.200} says {_told(made)}")
    new.load_state_dict(changed.state_dict())
    first = next(model.parameters())
    return new.to(first).train(model.training)


def _converted(
    layer: MultiHeadAttention, convert: Callable[[MultiHeadAttention], MultiHeadAttention]
) -> MultiHeadAttention:
    made = convert(layer)
    require_kind("what convert returns", made, MultiHeadAttention)
    return made


def _layers(model: Model) -> list[MultiHeadAttention]:
    return [layer for of_kind in model.attention_layers().values() for layer in of_kind]


def _shapes(layer: MultiHeadAttention) -> dict[str, tuple[int, ...]]:
    return {name: tuple(part.shape) for name, part in layer.state_dict().items()}


def _told(layer: MultiHeadAttention) -> str:
    return f"{type(layer).__name__}({layer.extra_repr()})"
