"""Turn heads down, or off, without touching the model: a gate stands between a head and W_o."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .._validate import as_list, require_tensor
from ..attention import MultiHeadAttention

PATCHES, MEANS, GATES, WATCHERS = -2, -1, 0, 1
"""Stages of `MultiHeadAttention.on_heads`: what is done to a head's output first, and what later, however the `with`s
are nested."""


class Head(NamedTuple):
    """Where a head is in a model: `Head("cross", 1, 3)` is head 3 of layer 1's cross-attention."""

    kind: str
    layer: int
    head: int


def layers_of(model: nn.Module) -> dict[str, list[MultiHeadAttention]]:
    """The attention layers of a model of `mhalib.models`, by kind, in the order and under the names of its weights.

    Raises:
        TypeError: the model does not say which layers it has.
    """
    own = getattr(model, "attention_layers", None)
    if own is None:
        raise TypeError(f"model must be one of mhalib.models, got {type(model).__name__}")
    return own()


def heads_of(model: nn.Module) -> list[Head]:
    """Every head of the model. Where heads were pruned, the others keep the numbers they were made with."""
    return [
        Head(kind, number, head)
        for kind, layers in layers_of(model).items()
        for number, layer in enumerate(layers)
        for head in layer.head_numbers
    ]


def as_heads(heads: object) -> list[Head]:
    """A list of heads, from any iterable of triples.

    Raises:
        TypeError: it is a single head, or no iterable of heads.
    """
    if isinstance(heads, Head):
        raise TypeError(f"heads must be a list of heads, got one head: write [{heads}]")
    listed = as_list("heads", heads)
    for head in listed:
        if not isinstance(head, tuple) or len(head) != 3:
            raise TypeError(f"heads must hold heads, (kind, layer, head), got {type(head).__name__}: {head!r:.80}")
    return [Head(*head) for head in listed]


def marked(model: nn.Module, heads: Iterable[Head]) -> dict[str, list[Tensor]]:
    """Which heads of each layer are among `heads`, by kind one boolean tensor (h,) per layer.

    Raises:
        TypeError, ValueError: as `as_heads`, or the model has no such head.
    """
    layers = layers_of(model)
    marks = {kind: [torch.zeros(layer.num_heads, dtype=torch.bool) for layer in layers[kind]] for kind in layers}
    known = set(heads_of(model))
    for head in as_heads(heads):
        if head not in known:
            raise ValueError(f"heads holds {tuple(head)}, which the model does not have")
        kind, layer, number = head
        marks[kind][layer][layers[kind][layer].head_numbers.index(number)] = True
    return marks


@contextmanager
def gated(model: nn.Module, gates: Mapping[str, Iterable[Tensor | None]]) -> Iterator[None]:
    """Inside `with gated(model, gates)`, what each head found is multiplied by its gate before W_o mixes the heads.

    Args:
        model: one of `mhalib.models`.
        gates: for a kind of attention, one tensor per layer (or `None`): (h,), the same for all; (B, h), per example;
            or (B, Q, h), per query. A gate may ask for a gradient. Kinds that are not named stay as they are. A pruned
            layer takes gates for the heads that are left, in the order of `layer.head_numbers`. Gates are brought to
            the type and the device of what they multiply.

    Raises:
        TypeError: `gates` is no mapping to lists, or a gate is no tensor.
        ValueError: a kind, or the number of layers, is not the model's, or a gate does not end in the number of heads;
            inside the `with`, a gate is for another number of examples or queries than the model is given.
    """
    if not isinstance(gates, Mapping):
        raise TypeError(f"gates must be a mapping from kinds to gates, got {type(gates).__name__}: {gates!r:.80}")
    layers = layers_of(model)
    with ExitStack() as handles:
        for kind, of_kind in gates.items():
            if kind not in layers:
                raise ValueError(f"gates name the kind {kind!r}, but the model has {list(layers)}")
            of_kind = as_list(f"gates[{kind!r}]", of_kind)
            if len(of_kind) != len(layers[kind]):
                raise ValueError(f"gates[{kind!r}] has {len(of_kind)} entries for {len(layers[kind])} layers")
            for number, (layer, gate) in enumerate(zip(layers[kind], of_kind, strict=True)):
                if gate is not None:
                    handles.callback(_install(f"gates[{kind!r}][{number}]", layer, gate).remove)
        yield


def switched_off(
    model: nn.Module, heads: Iterable[Head], means: Mapping[str, Iterable[Tensor]] | None = None
) -> AbstractContextManager[None]:
    """`with switched_off(model, [Head("cross", 1, 3)]):` those heads contribute nothing, or only their mean.

    Args:
        model: one of `mhalib.models`.
        heads: which.
        means: `None` sets what these heads find to 0. Else it is set to the head's mean, the same for all queries
            (mean ablation): for each kind that `heads` names, one tensor per layer, (h, d), as `head_means` makes them.
            They are brought to the type and the device of what they replace.

    Raises:
        TypeError: `heads` is not a list of heads, or `means` no mapping to lists of tensors.
        ValueError: the model has no such head, or `means` does not fit the model.
    """
    layers = layers_of(model)
    off = marked(model, heads)
    if means is None:
        return gated(model, {kind: [(~of_layer).float() for of_layer in off[kind]] for kind in layers})
    if not isinstance(means, Mapping):
        raise TypeError(f"means must be a mapping from kinds to means, got {type(means).__name__}: {means!r:.80}")
    named = [kind for kind, of_kind in off.items() if any(of_layer.any() for of_layer in of_kind)]
    checked = {kind: _means_of_kind(means, kind, layers[kind]) for kind in named}
    return _replaced(
        [
            (layer, of_layer, mean)
            for kind, of_kind in checked.items()
            for layer, of_layer, mean in zip(layers[kind], off[kind], of_kind, strict=True)
        ]
    )


def _means_of_kind(means: Mapping[str, Iterable[Tensor]], kind: str, layers: list[MultiHeadAttention]) -> list[Tensor]:
    """The means of one kind's layers. Raises what `switched_off` says."""
    if kind not in means:
        raise ValueError(f"heads names the kind {kind!r}, but means has {list(means)}")
    of_kind = as_list(f"means[{kind!r}]", means[kind])
    if len(of_kind) != len(layers):
        raise ValueError(f"means[{kind!r}] has {len(of_kind)} entries for {len(layers)} layers")
    for number, (layer, mean) in enumerate(zip(layers, of_kind, strict=True)):
        name, needed = f"means[{kind!r}][{number}]", (layer.num_heads, layer.value_dim)
        require_tensor(name, mean)
        if mean.shape != needed:
            raise ValueError(f"{name} has shape {tuple(mean.shape)}, but needs {needed}")
    return of_kind


@contextmanager
def _replaced(places: list[tuple[MultiHeadAttention, Tensor, Tensor]]) -> Iterator[None]:
    """Inside, the heads of each layer that are off, (h,), give their mean, (h, d), for every query."""

    def replace(off: Tensor, mean: Tensor) -> Callable[[Tensor], Tensor]:
        def apply(outputs: Tensor) -> Tensor:
            return torch.where(off.to(outputs.device)[:, None, None], mean.to(outputs)[:, None], outputs)

        return apply

    with ExitStack() as handles:
        for layer, off, mean in places:
            if off.any():
                handles.callback(layer.on_heads(replace(off, mean), stage=MEANS).remove)
        yield


def _install(name: str, layer: MultiHeadAttention, gate: Tensor) -> torch.utils.hooks.RemovableHandle:
    require_tensor(name, gate)
    num_heads = layer.num_heads
    if gate.shape[-1:] != (num_heads,) or gate.dim() > 3:
        raise ValueError(
            f"{name} has shape {tuple(gate.shape)}, but needs ({num_heads},), (B, {num_heads}) or (B, Q, {num_heads})"
        )
    factors = gate.mT[..., None] if gate.dim() == 3 else torch.atleast_2d(gate)[..., None, None]

    def apply_gate(outputs: Tensor) -> Tensor:
        given = {"examples": (factors.shape[0], outputs.shape[0]), "queries": (factors.shape[2], outputs.shape[2])}
        for what, (of_gate, of_layer) in given.items():
            if of_gate not in (1, of_layer):
                raise ValueError(
                    f"{name} has shape {tuple(gate.shape)}, {of_gate} {what}, but the layer is given {of_layer}"
                )
        return outputs * factors.to(outputs)

    return layer.on_heads(apply_gate, stage=GATES)
