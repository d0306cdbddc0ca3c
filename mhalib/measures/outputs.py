"""What heads give, before W_o mixes it: kept as a model runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from ..attention import MultiHeadAttention
from .gates import WATCHERS, layers_of

Keep = Callable[[list[Tensor], Tensor], "Tensor | None"]


@contextmanager
def watched(layers: list[MultiHeadAttention], keep: Keep = list.append) -> Iterator[list[list[Tensor]]]:
    """What the heads of each layer give to W_o, (B, h, Q, d), for every call inside, whatever else is done to heads.

    `keep(calls, x)` adds x to the calls of its layer; what it returns, if not `None`, goes on to W_o instead.
    """
    outputs: list[list[Tensor]] = [[] for _ in layers]
    with ExitStack() as handles:
        for layer, calls in zip(layers, outputs, strict=True):
            handles.callback(layer.on_heads(partial(keep, calls), stage=WATCHERS).remove)
        yield outputs


@contextmanager
def head_outputs(model: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """`with head_outputs(model) as outputs:` keeps what each head gives to W_o in the last pass inside.

    Args:
        model: one of `mhalib.models`.

    Yields:
        a dict that is filled when the `with` ends: by kind of attention, one tensor per layer, (B, h, Q, d), without
        gradients. A pruned layer has the heads that are left, in the order of `layer.head_numbers`. Steps with caches
        are one pass, and their queries are joined. Kinds that did not run are not there.

    Raises:
        TypeError: the model is not one of `mhalib.models`.

    >>> from mhalib.models import GPT
    >>> model = GPT(10, 8, 2, num_layers=1)
    >>> with head_outputs(model) as outputs:
    ...     logits, _ = model(torch.tensor([[1, 2, 3]]))
    >>> outputs["decoder self"][0].shape
    torch.Size([1, 2, 3, 4])
    """
    by_kind = layers_of(model)
    layers = [layer for of_kind in by_kind.values() for layer in of_kind]
    found: dict[str, list[Tensor]] = {}
    with ExitStack() as handles:
        outputs = handles.enter_context(watched(layers, lambda calls, x: calls.append(x.detach())))
        calls_of = dict(zip(layers, outputs, strict=True))

        def begin(layer: MultiHeadAttention, start: int) -> None:
            if start == 0:
                calls_of[layer].clear()

        handles.enter_context(query_starts(model, layers, begin))
        yield found
    for kind, of_kind in by_kind.items():
        if all(calls_of[layer] for layer in of_kind):
            found[kind] = [torch.cat(calls_of[layer], 2) for layer in of_kind]


@contextmanager
def query_starts(
    model: nn.Module,
    layers: Collection[MultiHeadAttention],
    begin: Callable[[MultiHeadAttention, int], None] | None = None,
) -> Iterator[dict[MultiHeadAttention, int]]:
    """The place of the first query that each layer is given, in the pass that is under way: 0 without a cache.

    A layer of cross-attention does not know it, since its own cache holds the memory; the block around it does.
    `begin(layer, start)` is called before each pass through such a block.
    """
    starts = dict.fromkeys(layers, 0)

    def note(inside: list[MultiHeadAttention], block: nn.Module, given: tuple, named: dict) -> None:
        cache = named.get("cache")
        own = getattr(cache, "own", cache)
        for layer in inside:
            starts[layer] = 0 if own is None else len(own)
            if begin is not None:
                begin(layer, starts[layer])

    with ExitStack() as handles:
        for block in model.modules():
            inside = [part for part in block.children() if isinstance(part, MultiHeadAttention) and part in starts]
            if inside:
                handles.callback(block.register_forward_pre_hook(partial(note, inside), with_kwargs=True).remove)
        yield starts
