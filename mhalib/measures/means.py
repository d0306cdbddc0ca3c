"""What heads find on average: what a head gives under mean ablation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .._validate import require_function, require_tensor
from .cells import result_dtype
from .gates import layers_of
from .outputs import watched


@torch.no_grad()
def head_means(
    model: nn.Module, batches: Iterable[Any], run: Callable[[nn.Module, Any], Mapping[str, Tensor] | None]
) -> dict[str, list[Tensor]]:
    """What each head finds on average, before W_o mixes the heads: what `switched_off` takes for mean ablation.

    A head that always gives its mean m adds the constant vector W_o_i m, W_o_i being its columns of W_o; so it can be
    removed for real, and the vector added to the bias of W_o.

    Args:
        model: one of `mhalib.models`; it is put into evaluation mode for the time being.
        batches: whatever `run` takes.
        run: `run(model, batch)` calls the model, and returns which queries count, boolean (B, Q) for each kind of
            attention: padding should not. Of a kind that it does not name all count, and so do all for `None`.

    Returns:
        by kind of attention, one tensor per layer, (h, d): the mean over all queries that count in all examples. A
        pruned layer has the heads that are left, in the order of `layer.head_numbers`.

    Raises:
        TypeError: the model is not one of `mhalib.models`, `batches` cannot be iterated, or `run` is no function or
            returns something else.
        ValueError: what `run` returns names a kind that the model does not have, or has another shape than the
            queries, or no query counts.
    """
    require_function("run", run)
    if isinstance(batches, str) or not isinstance(batches, Iterable) or getattr(batches, "ndim", 1) == 0:
        raise TypeError(f"batches must be several batches, got {type(batches).__name__}: {batches!r:.80}")
    layers = layers_of(model)
    places = [(kind, number, layer) for kind, of_kind in layers.items() for number, layer in enumerate(of_kind)]
    means: dict[str, list[Tensor]] = {kind: [] for kind in layers}
    sums: list[Tensor | float] = [0.0] * len(places)
    counts = [0] * len(places)
    was_training = model.training
    model.eval()
    try:
        for batch in batches:
            with watched([layer for *_, layer in places]) as outputs:
                real = _counted(run(model, batch), layers)
            for index, ((kind, *_), calls) in enumerate(zip(places, outputs, strict=True)):
                for x in calls:
                    queries = _queries(x, kind, real)
                    sums[index] = sums[index] + queries.to(result_dtype(x.dtype)).sum(0)
                    counts[index] += len(queries)
    finally:
        model.train(was_training)
    for (kind, number, layer), total, count in zip(places, sums, counts, strict=True):
        if not count and layer.num_heads:
            raise ValueError(f"batches holds no query that counts for {kind!r}, layer {number}")
        means[kind].append(torch.as_tensor(total).expand(layer.num_heads, layer.value_dim) / max(count, 1))
    return means


def _queries(outputs: Tensor, kind: str, real: Mapping[str, Tensor]) -> Tensor:
    """(B, h, Q, d) -> (queries that count, h, d)."""
    queries = outputs.movedim(1, 2)
    if kind not in real:
        return queries.flatten(0, 1)
    where = real[kind].to(outputs.device)
    if where.shape != queries.shape[:2]:
        raise ValueError(
            f"run returned shape {tuple(where.shape)} for {kind!r}, whose queries are {tuple(queries.shape[:2])}"
        )
    return queries[where]


def _counted(counted: object, layers: Mapping[str, object]) -> Mapping[str, Tensor]:
    """Which queries count, by kind, as `run` returned it. Raises what `head_means` says."""
    if counted is None:
        return {}
    if not isinstance(counted, Mapping):
        raise TypeError(f"run must return a mapping or None, got {type(counted).__name__}: {counted!r:.80}")
    for kind, where in counted.items():
        if kind not in layers:
            raise ValueError(f"run returned the kind {kind!r}, but the model has {list(layers)}")
        require_tensor(f"run's {kind!r}", where, rank=2)
        if where.dtype != torch.bool:
            raise TypeError(f"run's {kind!r} must be boolean, got {where.dtype}")
    return counted
