"""A deed on talking heads: mix them by other matrices than the trained ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from .._validate import require_kind, require_tensor
from ..attention import MultiHeadAttention
from ..variants.talking import TalkingHeads
from .gates import layers_of

STEPS = {"scores": "mix_scores", "weights": "mix_weights"}
"""Where heads talk, and the step of a layer that does it."""


@contextmanager
def mixed(model: nn.Module, matrices: Mapping[tuple[str, int], Mapping[str, Tensor]]) -> Iterator[None]:
    """`with mixed(model, {("decoder self", 1): {"scores": torch.eye(4)}}):` the heads of that layer talk as you say.

    The model's own matrices are not touched, so that they get no gradient inside.

    Args:
        model: one of `mhalib.models` with talking heads.
        matrices: for each layer, (kind of attention, its number), a matrix (h, h) in place of `P_scores` under
            "scores", of `P_weights` under "weights", or both. Row n, column m says how much of head n goes to head m:
            with the identity, heads do not talk. They are brought to the type and the device of what they mix.

    Raises:
        TypeError: `matrices` is no mapping from layers to mappings to tensors.
        ValueError: the model has no such layer, or its heads do not talk, or a matrix is not (h, h) or holds what is
            not finite.

    >>> from mhalib.models import GPT
    >>> model, tokens = GPT(10, 8, 2, num_layers=1, attention="talking").eval(), torch.tensor([[1, 2, 3]])
    >>> with mixed(model, {("decoder self", 0): {"weights": torch.tensor([[1.0, 0.0], [0.0, -1.0]])}}):
    ...     _, weights = model(tokens, need_weights=True)
    >>> weights["decoder self"][0].sum(-1)[0, :, 0].round().tolist()  # head 1 subtracts what it finds
    [1.0, -1.0]
    """
    with ExitStack() as handles:
        for layer, name, matrix in _checked(model, matrices):
            handles.callback(_restored(layer, name))
            setattr(layer, name, _mixing(matrix))
        yield


def _mixing(matrix: Tensor) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The step of a layer that mixes scores or weights (B, h, Q, K) by this matrix."""

    def mix(x: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
        return torch.einsum("bnqk,nm->bmqk", x, matrix.to(x))

    return mix


def _restored(layer: MultiHeadAttention, name: str) -> Callable[[], None]:
    """What gives a layer back the step that it has now: its class's, or one of its own."""
    if name in layer.__dict__:
        before = layer.__dict__[name]
        return lambda: setattr(layer, name, before)
    return lambda: delattr(layer, name)


def _checked(model: nn.Module, matrices: object) -> list[tuple[TalkingHeads, str, Tensor]]:
    """Each layer that is changed, which step of it, and by what. Raises what `mixed` says."""
    require_kind("matrices", matrices, Mapping)
    layers = layers_of(model)
    found = []
    for where, of_layer in matrices.items():  # type: ignore[attr-defined]
        name = f"matrices[{where!r:.80}]"
        if not (isinstance(where, tuple) and len(where) == 2 and where[0] in layers):
            raise ValueError(f"matrices names {where!r:.80}, but needs (kind, layer), with a kind of {list(layers)}")
        kind, number = where
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(layers[kind]):
            raise ValueError(f"matrices names {where!r:.80}, but the layers are 0 to {len(layers[kind]) - 1}")
        layer = layers[kind][number]
        if not isinstance(layer, TalkingHeads):
            raise ValueError(f"matrices names {where!r:.80}, but the heads of this {type(layer).__name__} do not talk")
        require_kind(name, of_layer, Mapping)
        for step, matrix in of_layer.items():
            if step not in STEPS:
                raise ValueError(f"{name} has {step!r:.80}, but known are {', '.join(STEPS)}")
            require_tensor(f"{name}[{step!r}]", matrix, rank=2)
            size = (layer.num_heads, layer.num_heads)
            if matrix.shape != size or not matrix.isfinite().all():
                shown = tuple(matrix.shape)
                raise ValueError(f"{name}[{step!r}] has shape {shown}, but must be {size}, and finite")
            found.append((layer, STEPS[step], matrix))
    return found
