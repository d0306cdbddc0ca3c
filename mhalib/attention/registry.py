"""Which attention a model uses, told by a name and settings that fit into a JSON file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from .._validate import require_text
from .layer import MultiHeadAttention

Kind = TypeVar("Kind", bound=type[MultiHeadAttention])

KINDS: dict[str, type[MultiHeadAttention]] = {"multi-head": MultiHeadAttention}
"""Every layer that can be chosen, by its name."""


def register(name: str) -> Callable[[Kind], Kind]:
    """`@register("talking heads")` above a subclass of `MultiHeadAttention` lets models choose it by that name.

    Raises:
        TypeError: what stands below is no such subclass.
        ValueError: the name is taken by another class.
    """

    require_text("name", name)

    def add(kind: Kind) -> Kind:
        if not (isinstance(kind, type) and issubclass(kind, MultiHeadAttention)):
            raise TypeError(f"{kind!r} is not a subclass of MultiHeadAttention")
        taken = KINDS.get(name)
        if taken is not None and (taken.__module__, taken.__qualname__) != (kind.__module__, kind.__qualname__):
            raise ValueError(f"name={name!r} is taken by {taken.__qualname__}")
        KINDS[name] = kind
        return kind

    return add


def kind_of(choice: str | Mapping[str, Any]) -> type[MultiHeadAttention]:
    """The class that `make_attention` makes a layer of.

    Raises:
        TypeError, ValueError: `choice` is neither a name nor a mapping with one, or there is no such layer.
    """
    return _chosen(choice)[0]


def _chosen(choice: str | Mapping[str, Any]) -> tuple[type[MultiHeadAttention], dict[str, Any]]:
    """The class, and the settings."""
    if isinstance(choice, str):
        choice = {"name": choice}
    if not isinstance(choice, Mapping):
        raise TypeError(f"attention must be a name or a mapping, got {type(choice).__name__}: {choice!r:.80}")
    settings = dict(choice)
    name = settings.pop("name", None)
    strange = [key for key in settings if not isinstance(key, str)]
    if strange:
        raise TypeError(f"attention={choice!r:.200} must map from texts, got {strange[0]!r}")
    if not isinstance(name, str) or name not in KINDS:
        raise ValueError(f"attention={choice!r:.200} must name one of {sorted(KINDS)}")
    return KINDS[name], settings


def make_attention(
    choice: str | Mapping[str, Any], num_hiddens: int, num_heads: int, **arguments: Any
) -> MultiHeadAttention:
    """The layer of that name.

    Args:
        choice: a name in `KINDS`, or a mapping with that "name" and settings of the layer beside it, such as
            {"name": "multi-head", "num_kv_heads": 2}.
        num_hiddens: D.
        num_heads: h.
        arguments: others that whoever makes the layer gives, such as `bias`; what `choice` says counts more.

    Raises:
        TypeError, ValueError: `choice` is not of this kind, there is no such layer, or it refuses its settings.
    """
    kind, settings = _chosen(choice)
    try:
        return kind(num_hiddens, num_heads, **{**arguments, **settings})
    except TypeError as error:
        if "unexpected keyword" not in str(error):
            raise
        raise TypeError(f"attention={choice!r:.200}: {error}") from error
