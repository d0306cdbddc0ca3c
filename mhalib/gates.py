"""Turn heads down, or off, without touching the model: a gate stands between a head and W_o."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .attention import MultiHeadAttention


class Head(NamedTuple):
    """Where a head is in a model: `Head("cross", 1, 3)` is head 3 of layer 1's cross-attention."""

    kind: str
    layer: int
    head: int


def attention_layers(model: nn.Module) -> dict[str, list[MultiHeadAttention]]:
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
        for kind, layers in attention_layers(model).items()
        for number, layer in enumerate(layers)
        for head in layer.head_numbers
    ]


@contextmanager
def gated(model: nn.Module, gates: Mapping[str, Iterable[Tensor | None]]) -> Iterator[None]:
    """Inside `with gated(model, gates)`, what each head found is multiplied by its gate before W_o mixes the heads.

    Args:
        model: one of `mhalib.models`.
        gates: for a kind of attention, one tensor per layer (or `None`): (h,), the same for all; (B, h), per example;
            or (B, Q, h), per query. A gate may ask for a gradient. Kinds that are not named stay as they are. A pruned
            layer takes gates for the heads that are left, in the order of `layer.head_numbers`.

    Raises:
        ValueError: a kind, or the number of layers, is not the model's, or a gate does not end in the number of heads.
    """
    layers = attention_layers(model)
    with ExitStack() as hooks:
        for kind, of_kind in gates.items():
            if kind not in layers:
                raise ValueError(f"gates name the kind {kind!r}, but the model has {list(layers)}")
            of_kind = list(of_kind)
            if len(of_kind) != len(layers[kind]):
                raise ValueError(f"gates[{kind!r}] has {len(of_kind)} entries for {len(layers[kind])} layers")
            for layer, gate in zip(layers[kind], of_kind, strict=True):
                if gate is not None:
                    hooks.callback(_install(layer, gate).remove)
        yield


def switched_off(model: nn.Module, heads: Iterable[Head]) -> AbstractContextManager[None]:
    """`with switched_off(model, [Head("cross", 1, 3)]):` those heads contribute nothing.

    Raises:
        ValueError: the model has no such head.
    """
    layers = attention_layers(model)
    gates = {
        kind: [torch.ones(layer.num_heads, device=layer.W_o.weight.device) for layer in of_kind]
        for kind, of_kind in layers.items()
    }
    known = set(heads_of(model))
    for head in heads:
        if Head(*head) not in known:
            raise ValueError(f"heads holds {tuple(head)}, which the model does not have")
        kind, layer, number = head
        gates[kind][layer][layers[kind][layer].head_numbers.index(number)] = 0.0
    return gated(model, gates)


def _install(layer: MultiHeadAttention, gate: Tensor) -> torch.utils.hooks.RemovableHandle:
    if gate.shape[-1:] != (layer.num_heads,) or gate.dim() > 3:
        raise ValueError(
            f"a gate has shape {tuple(gate.shape)}, but needs ({layer.num_heads},), (B, {layer.num_heads}) "
            f"or (B, Q, {layer.num_heads})"
        )
    wide = gate.repeat_interleave(layer.head_dim, -1)  # a head owns head_dim columns side by side
    wide = wide[:, None] if wide.dim() == 2 else wide

    def apply_gate(_: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        return (inputs[0] * wide,)

    return layer.W_o.register_forward_pre_hook(apply_gate)
