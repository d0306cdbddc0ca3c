"""A port of the layer, and the bugs that ports have.

Repairs of weights and of a mask that went from one framework to another.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw, own_sizes
from ._markdown import exercises_of

exercise = exercises_of(globals())


HIDDEN = -1e30
BUGS = ("none", "split", "mask", "scale", "axis", "empty row")


def _attended(
    queries: Tensor, keys: Tensor, values: Tensor, lens: Tensor, num_heads: int, *, bugs: Collection[str] = ()
) -> Tensor:
    """(B, Q, D), (B, K, D) twice, (B,), h -> heads side by side (B, Q, D); bugs: of `BUGS`, or as they are below."""

    def split(x: Tensor) -> Tensor:
        if "split" in bugs:
            return x.reshape(len(x), num_heads, x.shape[1], -1)
        return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)

    q, k, v = split(queries), split(keys), split(values)
    width = 1 if "scale" in bugs else queries.shape[-1] if "scale_of_D" in bugs else q.shape[-1]
    seen = torch.arange(k.shape[2]) < lens[:, None, None, None]
    seen = ~seen if "mask" in bugs else seen
    scores = q @ k.mT / math.sqrt(width)
    axis = 2 if "axis" in bugs else 1 if "axis_of_heads" in bugs else 3
    weights = scores.masked_fill(~seen, -torch.inf if "empty row" in bugs else HIDDEN).softmax(axis)
    if not {"empty row", "mean"} & {*bugs}:
        weights = weights.masked_fill(~seen, 0)
    found = weights @ v
    return found.reshape(queries.shape) if "merge" in bugs else found.transpose(1, 2).flatten(2)


def _port(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    W_q: Tensor,
    W_k: Tensor,
    W_v: Tensor,
    W_o: Tensor,
    valid_lens: Tensor,
    num_heads: int,
    **bugs: bool,
) -> Tensor:
    """(B, Q, D), (B, K, D) twice, (D, D) four times, (B,), h -> (B, Q, D)."""
    if "transpose" in bugs:
        W_q, W_k, W_v = W_q.T, W_k.T, W_v.T
    if "values_before_keys" in bugs:
        keys, values = values, keys
    names = [name.replace("empty_row", "empty row") for name in bugs]
    found = _attended(queries @ W_q.T, keys @ W_k.T, values @ W_v.T, valid_lens, num_heads, bugs=names)
    return found @ (W_o if {"transpose", "output"} & {*bugs} else W_o.T)


def _layers(rng: random.Random) -> Iterator[Case]:
    drawn = apart(rng, 5, largest=8, of=lambda B, Q, more, h, d: [B, Q, more, h, d, 1 + more, h * d])
    for batch_size, num_queries, more, num_heads, head_dim in ([1, 2, 2, 2, 1], *drawn):
        num_kvpairs, D = 1 + more, num_heads * head_dim
        lens = [rng.randint(2, num_kvpairs - 1), 0, *rng.choices(range(1, num_kvpairs + 1), k=batch_size)]
        matrices = {name: draw(rng, D, D) / math.sqrt(D) * 1.5 for name in ("W_q", "W_k", "W_v", "W_o")}
        yield {
            "queries": draw(rng, batch_size, num_queries, D),
            "keys": draw(rng, batch_size, num_kvpairs, D),
            "values": draw(rng, batch_size, num_kvpairs, D),
            **matrices,
            "valid_lens": torch.tensor(lens[:batch_size]),
            "num_heads": num_heads,
        }


ported_layer = exercise(
    "ported_layer",
    reference=_port,
    cases=_layers,
    switches=_port,
)


@own_sizes("the layers of ported_layer, each with two bugs")
def _ports(rng: random.Random) -> Iterator[Case]:
    layers = list(_layers(rng))[1:]
    for number, bug in enumerate(rng.sample(BUGS, len(BUGS))):
        layer = layers[number % len(layers)]
        case = {name: layer[name] for name in ("queries", "keys", "values")}
        case |= {"lens": layer["valid_lens"], "num_heads": layer["num_heads"]}
        yield {**case, "found": _attended(*case.values(), bugs=[bug])}


def _same(one: Tensor, other: Tensor, equal_nan: bool = False) -> bool:
    return torch.allclose(one, other, rtol=1e-3, atol=1e-4, equal_nan=equal_nan)


def _named(*given: Any) -> str:
    *inputs, found = given
    return next(bug for bug in BUGS if _same(_attended(*inputs, bugs=[bug]), found, equal_nan=True))


def _without_nan(*given: Any) -> str | None:
    *inputs, found = given
    return next((bug for bug in BUGS if _same(_attended(*inputs, bugs=[bug]), found)), None)


def _nan_as_zero(*given: Any) -> str | None:
    *inputs, found = given
    ports = ((bug, _attended(*inputs, bugs=[bug]).nan_to_num()) for bug in BUGS)
    return next((bug for bug, port in ports if _same(port, found.nan_to_num())), None)


named_bug = exercise(
    "named_bug",
    reference=_named,
    cases=_ports,
)


def _matrices(rng: random.Random) -> Iterator[Case]:
    first = torch.arange(16.0).view(4, 4)
    yield {"W_q": first, "W_o": 100 + first, "num_heads": 2}
    for num_heads, head_dim in apart(rng, 2, 4, largest=6, of=lambda h, d: [h, d, h * d]):
        D = num_heads * head_dim
        yield {"W_q": draw(rng, D, D), "W_o": draw(rng, D, D), "num_heads": num_heads}


def _kernels(W_q: Tensor, W_o: Tensor, num_heads: int) -> tuple[Tensor, Tensor]:
    D = len(W_q)
    return W_q.T.reshape(D, num_heads, -1), W_o.T.reshape(num_heads, -1, D)


def _plain(W_q: Tensor, W_o: Tensor, num_heads: int) -> tuple[Tensor, Tensor]:
    return _kernels(W_q.T, W_o.T, num_heads)


def _interleaved(W_q: Tensor, W_o: Tensor, num_heads: int) -> tuple[Tensor, Tensor]:
    D = len(W_q)
    return W_q.T.reshape(D, -1, num_heads).mT, W_o.T.reshape(-1, num_heads, D).transpose(0, 1)


mended_kernels = exercise(
    "mended_kernels",
    reference=_kernels,
    cases=_matrices,
)


def _rows(rng: random.Random) -> Iterator[Case]:
    yield {
        "scores": torch.tensor([[[1.0, 0.0, 2.0], [0.0, 3.0, 1.0]]]),
        "mask": torch.tensor([[True, True, False], [False, False, False]]),
    }
    for num_heads, num_queries, num_kvpairs in apart(rng, 3, smallest=3):
        mask = draw(rng, num_queries, num_kvpairs) > 0
        mask[0], mask[1], mask[2, 0], mask[2, 1] = True, False, True, False
        yield {"scores": 2 * draw(rng, num_heads, num_queries, num_kvpairs), "mask": mask}


def _weights(scores: Tensor, mask: Tensor, hidden: float = HIDDEN, axis: int = -1) -> Tensor:
    return scores.masked_fill(~mask, hidden).softmax(axis)


mended_rows = exercise(
    "mended_rows",
    reference=lambda scores, mask: _weights(scores, mask) * mask,
    cases=_rows,
)
