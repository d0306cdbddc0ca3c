"""Deeds on heads: give them the pattern of another input, a weight that was moved, the output of another run.

Each is a context manager, undone when its `with` ends. They nest, and beside `gated` and `switched_off` they act in one
order, whatever the nesting. A head's weights are those that `rows` sets; else those of `frozen`; else its own. What it
then gives to W_o is patched, then replaced by its mean, then gated. Of two deeds of one kind, the inner one counts.

Weights that a model returns are the changed ones, and without `need_weights` the heads still use them. With caches,
queries keep the places that they have in the whole sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from .._validate import as_list, require_count, require_kind, require_tensor
from ..attention import MultiHeadAttention
from ..attention.masks import causal_mask, is_symbolic
from ..attention.positions import Positions
from .gates import PATCHES, Head, heads_of, layers_of, marked
from .outputs import query_starts

FROZEN, ROWS = -2, -1
"""Stages of `MultiHeadAttention.on_weights`."""
SMALLEST_SUM = 1e-9
"""A row of weights that sums to this or less is not divided by its sum."""


class _Place(NamedTuple):
    """A layer, which of its heads (h,) get something, and what: a tensor, called `name` in errors."""

    kind: str
    layer: MultiHeadAttention
    heads: Tensor
    given: Tensor
    name: str


def frozen(
    model: nn.Module, weights: Mapping[str, Iterable[Tensor]], heads: Iterable[Head] | None = None
) -> AbstractContextManager[None]:
    """`with frozen(model, weights):` heads keep the pattern of another input, and only their values are new.

    Where the other input has a query, the head takes its row of weights: keys that it may not see are left out, and the
    rest is divided by its sum. Keys that the other input does not have get 0. A query that it does not have, or whose
    row has no weight on a key that may be seen, keeps the weights that the head computes.

    Of a kind that mixes weights, such as talking heads, the weights are those after mixing, as the model returns them.
    Their rows need not sum to 1 (`rows_sum_to_one`), so they are not divided: only what may not be seen becomes 0.

    Args:
        model: one of `mhalib.models`.
        weights: as models return them with `need_weights=True`: by kind of attention, one tensor per layer, (B, h, Q,
            K), or (1, h, Q, K), the same for all examples. They are brought to the type and the device of the model's.
        heads: which; `None` means all heads of the kinds that `weights` has.

    Raises:
        TypeError: `weights` is no mapping to lists of tensors, or `heads` is not a list of heads.
        ValueError: the model has no such kind or head, or `weights` does not fit the model or holds what is not finite;
            inside the `with`, weights are for another number of examples.

    >>> from mhalib.models import GPT
    >>> model, tokens = GPT(10, 8, 2, num_layers=1), torch.tensor([[1, 2, 3]])
    >>> _, weights = model(tokens, need_weights=True)
    >>> with frozen(model, weights):
    ...     _, others = model(tokens + 4, need_weights=True)
    >>> torch.allclose(others["decoder self"][0], weights["decoder self"][0])
    True
    """
    return _weights_from(model, _places(model, "weights", weights, heads))


def patched(
    model: nn.Module, outputs: Mapping[str, Iterable[Tensor]], heads: Iterable[Head] | None = None
) -> AbstractContextManager[None]:
    """`with patched(model, outputs):` heads give to W_o what they gave in another run, for the queries that it had.

    Weights that the model returns are the heads' own: they are computed, and what they find is not used.

    Args:
        model: one of `mhalib.models`.
        outputs: as `head_outputs` keeps them: for a kind of attention, one tensor per layer, (B, h, Q, d), or (1, h, Q,
            d), the same for all examples. They are brought to the type and the device of what they replace.
        heads: which; `None` means all heads of the kinds that `outputs` has.

    Raises:
        TypeError: `outputs` is no mapping to lists of tensors, or `heads` is not a list of heads.
        ValueError: the model has no such kind or head, or `outputs` does not fit the model or holds what is not finite;
            inside the `with`, outputs are for another number of examples.

    >>> from mhalib.measures import head_outputs
    >>> from mhalib.models import GPT
    >>> model, tokens = GPT(10, 8, 2, num_layers=1), torch.tensor([[1, 2, 3]])
    >>> with head_outputs(model) as outputs:
    ...     _ = model(tokens)
    >>> with patched(model, outputs, [Head("decoder self", 0, 1)]), head_outputs(model) as others:
    ...     _ = model(tokens + 4)
    >>> same = others["decoder self"][0] == outputs["decoder self"][0]
    >>> same.all(-1).all(-1)  # of each head
    tensor([[False,  True]])
    """
    return _outputs_from(model, _places(model, "outputs", outputs, heads))


@contextmanager
def rows(model: nn.Module, weights: Mapping[Head, Mapping[int, Tensor]]) -> Iterator[None]:
    """`with rows(model, {Head("cross", 1, 3): {0: weights}}):` that head looks where you say, with query 0.

    Keys that the query may not see are left out, and the rest is divided by its sum, so that the row sums to 1 in every
    kind of attention. Rows hold for all examples, and wait for queries that an input does not have.

    Args:
        model: one of `mhalib.models`.
        weights: for each head, by query, counted from 0, a row of weights (K,), at least 0. With fewer keys than the
            input has, the others get 0; with more, these count as keys that may not be seen.

    Raises:
        TypeError: `weights` is no mapping from heads to mappings from queries to tensors.
        ValueError: the model has no such head, or a row is not (K,), holds what is not finite or below 0, or sums to 0;
            inside the `with`, a row has no weight on a key that its query may see.

    >>> from mhalib.models import GPT
    >>> model, tokens = GPT(10, 8, 2, num_layers=1), torch.tensor([[1, 2, 3]])
    >>> with rows(model, {Head("decoder self", 0, 1): {1: torch.tensor([3.0, 1.0, 4.0])}}):
    ...     _, changed = model(tokens, need_weights=True)
    >>> changed["decoder self"][0][0, 1, 1].tolist()  # what comes later is left out
    [0.75, 0.25, 0.0]
    """
    require_kind("weights", weights, Mapping)
    layers = layers_of(model)
    marked(model, weights)  # raises where a head is not the model's
    by_layer: dict[tuple[str, int], dict[Head, Mapping[int, Tensor]]] = {}
    for head, of_head in weights.items():
        head = Head(*head)
        _require_rows(head, of_head)
        by_layer.setdefault(head[:2], {})[head] = of_head
    places = {layers[kind][number]: (kind, of_layer) for (kind, number), of_layer in by_layer.items()}
    with ExitStack() as handles:
        starts = handles.enter_context(query_starts(model, places))
        for layer, (kind, of_layer) in places.items():
            handles.callback(layer.on_weights(_setting(kind, layer, of_layer, starts), stage=ROWS).remove)
        yield


@contextmanager
def without_positions(model: nn.Module) -> Iterator[None]:
    """`with without_positions(model):` no token knows its place: learned and sinusoidal vectors are not added, and
    rotary positions do not turn.

    What else tells places stays: masks, and kinds of attention that compare them, such as "relative". Keys that a cache
    holds already keep their positions.

    Args:
        model: one of `mhalib.models`.

    Raises:
        TypeError: the model is not one of `mhalib.models`.
        ValueError: it has no such positions.

    >>> from mhalib.models import BERT
    >>> model, tokens = BERT(10, 8, 2, num_layers=1).eval(), torch.tensor([[1, 2, 3]])
    >>> with without_positions(model):
    ...     there, back = model(tokens)[0], model(tokens.flip(1))[0]
    >>> torch.allclose(there, back.flip(1), atol=1e-6)
    True
    """
    turning = [layer for of_kind in layers_of(model).values() for layer in of_kind if layer.positions is not None]
    tables = [part for part in model.modules() if isinstance(part, Positions) and not part.acts_in_heads]
    tables = [table for table in tables if type(table) is not Positions]
    if not (turning or tables):
        raise ValueError(
            f"model={type(model).__name__} has no positions: neither vectors that are added nor rotary ones"
        )
    with ExitStack() as handles:
        for table in tables:
            handles.callback(table.register_forward_hook(lambda _, given, result: given[0]).remove)
        for layer in turning:
            handles.callback(setattr, layer, "positions", layer.positions)
            layer.positions = None
        yield


@contextmanager
def without_future(model: nn.Module) -> Iterator[None]:
    """`with without_future(model):` a causal mask is in the encoder, too: each of its tokens sees itself and those
    before it. What else hides keys goes on hiding them.

    Args:
        model: one of `mhalib.models`.

    Raises:
        TypeError: the model is not one of `mhalib.models`.
        ValueError: it has no encoder's self-attention.

    >>> from mhalib.models import BERT
    >>> model, tokens = BERT(10, 8, 2, num_layers=1).eval(), torch.tensor([[1, 2, 3]])
    >>> with without_future(model):
    ...     weights = model(tokens, need_weights=True)[1]["encoder self"][0]
    >>> (weights[0, 0] > 0).int()
    tensor([[1, 0, 0],
            [1, 1, 0],
            [1, 1, 1]], dtype=torch.int32)
    """
    layers = layers_of(model).get("encoder self")
    if not layers:
        raise ValueError(f"model={type(model).__name__} has no self-attention of an encoder")

    def hide(
        _: nn.Module, given: tuple[Tensor, ...], named: dict[str, Any]
    ) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
        queries, mask = given[0], named.get("mask")
        past = causal_mask(queries.shape[1], device=queries.device)
        if is_symbolic(mask):
            mask = mask.matrix(*past.shape, device=queries.device)
        return given, named | {"mask": past if mask is None else mask & past}

    with ExitStack() as handles:
        for layer in layers:
            handles.callback(layer.register_forward_pre_hook(hide, with_kwargs=True).remove)
        yield


@contextmanager
def _weights_from(model: nn.Module, places: list[_Place]) -> Iterator[None]:
    """Inside, heads take weights (B or 1, h, Q', K') that are given, where these reach."""
    with ExitStack() as handles:
        starts = handles.enter_context(query_starts(model, [place.layer for place in places]))

        def freeze(place: _Place) -> Callable[[Tensor, Tensor | None], Tensor]:
            def apply(weights: Tensor, mask: Tensor | None) -> Tensor:
                start = starts[place.layer]
                _require_examples(place, weights)
                found = _cut(place.given.to(weights), 2, start, weights.shape[2])
                found = _cut(found, 3, _first_key(place.kind, start, weights), weights.shape[3])
                found = found if mask is None else found.masked_fill(~mask, 0.0)
                if place.layer.rows_sum_to_one:
                    total = found.sum(-1, keepdim=True)
                    usable = total > SMALLEST_SUM
                    found = found / torch.where(usable, total, 1.0)
                else:
                    usable = _reached(place, start, weights)
                return torch.where(usable & place.heads.to(weights.device)[:, None, None], found, weights)

            return apply

        for place in places:
            handles.callback(place.layer.on_weights(freeze(place), stage=FROZEN).remove)
        yield


@contextmanager
def _outputs_from(model: nn.Module, places: list[_Place]) -> Iterator[None]:
    """Inside, heads give outputs (B or 1, h, Q', d) that are given, for the queries that these have."""
    with ExitStack() as handles:
        starts = handles.enter_context(query_starts(model, [place.layer for place in places]))

        def patch(place: _Place) -> Callable[[Tensor], Tensor]:
            def apply(outputs: Tensor) -> Tensor:
                start = starts[place.layer]
                _require_examples(place, outputs)
                found = _cut(place.given.to(outputs), 2, start, outputs.shape[2])
                usable = _reached(place, start, outputs)
                return torch.where(usable & place.heads.to(outputs.device)[:, None, None], found, outputs)

            return apply

        for place in places:
            handles.callback(place.layer.on_heads(patch(place), stage=PATCHES).remove)
        yield


def _setting(
    kind: str,
    layer: MultiHeadAttention,
    of_layer: Mapping[Head, Mapping[int, Tensor]],
    starts: Mapping[MultiHeadAttention, int],
) -> Callable[[Tensor, Tensor | None], Tensor]:
    """What sets rows of one layer's weights, as `rows` says."""

    def apply(weights: Tensor, mask: Tensor | None) -> Tensor:
        changed, start = weights.clone(), starts[layer]
        first_key = _first_key(kind, start, weights)
        for head, of_head in of_layer.items():
            for query, row in of_head.items():
                if not start <= query < start + weights.shape[2]:
                    continue
                at = (slice(None), layer.head_numbers.index(head.head), query - start)
                own = _cut(row[None].to(weights), 1, first_key, weights.shape[3])
                seen = own if mask is None else own * mask.expand(weights.shape)[at]  # (B, K), or (1, K)
                total = seen.sum(-1, keepdim=True)
                if not (total > SMALLEST_SUM).all():
                    of_row = f"weights[{head}][{query}]={row.tolist()!r:.80}"
                    raise ValueError(f"{of_row} has no weight on a key that the query may see")
                changed[at] = seen / total
        return changed

    return apply


def _cut(x: Tensor, axis: int, start: int, length: int) -> Tensor:
    """`length` entries of an axis from `start` on; those that it does not have are 0."""
    start = min(start, x.shape[axis])
    x = x.narrow(axis, start, min(length, x.shape[axis] - start))
    missing = length - x.shape[axis]
    return pad(x, [0] * (2 * (x.dim() - 1 - axis)) + [0, missing]) if missing else x


def _first_key(kind: str, start: int, weights: Tensor) -> int:
    """The place of the first key that weights (B, h, Q, K) have a column for: a cache of a window drops earlier ones.
    Of a memory no key is dropped."""
    return 0 if kind == "cross" else start + weights.shape[2] - weights.shape[3]


def _reached(place: _Place, start: int, x: Tensor) -> Tensor:
    """Which queries of x (B, h, Q, ·) what is given has: boolean (Q, 1)."""
    return (torch.arange(start, start + x.shape[2], device=x.device) < place.given.shape[2])[:, None]


def _require_examples(place: _Place, x: Tensor) -> None:
    if len(place.given) not in (1, len(x)):
        raise ValueError(
            f"{place.name} has shape {tuple(place.given.shape)}, {len(place.given)} examples, but the layer is given "
            f"{len(x)}"
        )


def _require_rows(head: Head, of_head: object) -> None:
    """Raise what `rows` says of one head."""
    require_kind(f"weights[{head}]", of_head, Mapping)
    for query, row in of_head.items():  # type: ignore[attr-defined]
        require_count(f"a query of weights[{head}]", query, minimum=0)
        name = f"weights[{head}][{query}]"
        require_tensor(name, row, rank=1)
        if not row.isfinite().all() or (row < 0).any() or not row.any():
            raise ValueError(f"{name}={row.tolist()!r:.80} must be finite, at least 0, and not 0 everywhere")


def _places(
    model: nn.Module, name: str, given: Mapping[str, Iterable[Tensor]], heads: Iterable[Head] | None
) -> list[_Place]:
    """Where heads get something, and what. Raises what `frozen` and `patched` say."""
    require_kind(name, given, Mapping)
    layers = layers_of(model)
    for kind in given:
        if kind not in layers:
            raise ValueError(f"{name} names the kind {kind!r}, but the model has {list(layers)}")
    marks = marked(model, [head for head in heads_of(model) if head.kind in given] if heads is None else heads)
    places = []
    for kind, of_kind in marks.items():
        if not any(of_layer.any() for of_layer in of_kind):
            continue
        if kind not in given:
            raise ValueError(f"heads names the kind {kind!r}, but {name} has {list(given)}")
        tensors = as_list(f"{name}[{kind!r}]", given[kind])
        if len(tensors) != len(layers[kind]):
            raise ValueError(f"{name}[{kind!r}] has {len(tensors)} entries for {len(layers[kind])} layers")
        for number, (layer, of_layer, tensor) in enumerate(zip(layers[kind], of_kind, tensors, strict=True)):
            if of_layer.any():
                place = _Place(kind, layer, of_layer, tensor, f"{name}[{kind!r}][{number}]")
                _require_given(place, None if name == "weights" else layer.value_dim)
                places.append(place)
    return places


def _require_given(place: _Place, width: int | None) -> None:
    """Raise unless what is given has the heads of its layer, the width where there is one, and finite numbers."""
    given, num_heads = place.given, place.layer.num_heads
    require_tensor(place.name, given, rank=4)
    if given.shape[1] != num_heads or width not in (None, given.shape[3]):
        needed = f"(B, {num_heads}, Q, {'K' if width is None else width})"
        raise ValueError(f"{place.name} has shape {tuple(given.shape)}, but needs {needed}")
    if not given.isfinite().all():
        raise ValueError(f"{place.name} holds numbers that are not finite")
