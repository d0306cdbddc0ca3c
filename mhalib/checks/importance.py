"""Exercises on which heads matter: chapter 14."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake, draw, sizes


def _outputs_and_gradients(rng: random.Random) -> Iterator[Case]:
    for _ in range(4):
        batch_size, num_heads, num_queries, head_dim = sizes(rng, 4)
        shape = (batch_size, num_heads, num_queries, head_dim)
        yield {"outputs": draw(rng, *shape), "gradients": draw(rng, *shape)}


def _per_example(outputs: Tensor, gradients: Tensor) -> Tensor:
    return (outputs * gradients).sum((-2, -1)).abs().mean(0)


head_importance = Exercise(
    "head_importance",
    chapter=14,
    title="importance of each head, as Michel et al. define it",
    reference=_per_example,
    cases=_outputs_and_gradients,
    verified="four batches: the product is summed over tokens and channels, made positive per example, then averaged.",
    points=2,
    mistakes=[
        Mistake(
            "per token",
            "you took the absolute value per token. Michel's code does that; their paper takes it per example, after "
            "the sum over its tokens. The exercise asks for the paper's.",
            lambda outputs, gradients: (outputs * gradients).sum(-1).abs().sum(-1).mean(0),
        ),
        Mistake(
            "absolute value last",
            "you averaged over the examples before you took the absolute value, so examples cancel each other.",
            lambda outputs, gradients: (outputs * gradients).sum((-2, -1)).mean(0).abs(),
        ),
        Mistake(
            "absolute value first",
            "you took the absolute value of every product. Inside an example, products of different signs do cancel: "
            "they stand for one gate.",
            lambda outputs, gradients: (outputs * gradients).abs().sum((-2, -1)).mean(0),
        ),
        Mistake(
            "no absolute value",
            "importance has no sign: a head whose removal would lower the loss matters, too.",
            lambda outputs, gradients: (outputs * gradients).sum((-2, -1)).mean(0),
        ),
        Mistake(
            "gradient alone",
            "you used the gradient alone. How much the loss changes when a head is removed depends on what the head "
            "puts out: multiply the two.",
            lambda outputs, gradients: gradients.sum((-2, -1)).abs().mean(0),
        ),
        Mistake(
            "summed over the examples",
            "you added up the examples; average them, so that the size of the set does not matter.",
            lambda outputs, gradients: (outputs * gradients).sum((-2, -1)).abs().sum(0),
        ),
    ],
)


def _parameters(rng: random.Random) -> Iterator[Case]:
    yield {"log_a": torch.tensor([-4.0, 0.0, 4.0])}
    for num_heads in sizes(rng, 3, smallest=3):
        yield {"log_a": draw(rng, num_heads) * 3}


def _gate(log_a: Tensor) -> Tensor:
    return (1.2 * log_a.sigmoid() - 0.1).clamp(0, 1)


hard_gate = Exercise(
    "hard_gate",
    chapter=14,
    title="a hard-concrete gate without noise",
    reference=_gate,
    cases=_parameters,
    verified="four sets of parameters, among them gates that are shut and gates that are open, exactly.",
    mistakes=[
        Mistake(
            "not stretched",
            "this is the plain sigmoid, which never reaches 0 or 1: stretch it to (-0.1, 1.1), then clip.",
            lambda log_a: log_a.sigmoid(),
        ),
        Mistake(
            "not clipped",
            "the stretched value leaves [0, 1]: clip it.",
            lambda log_a: 1.2 * log_a.sigmoid() - 0.1,
        ),
        Mistake(
            "with the temperature",
            "you divided by the temperature 0.33. It belongs to training, where there is noise; without noise the gate "
            "is taken without it.",
            lambda log_a: (1.2 * (log_a / 0.33).sigmoid() - 0.1).clamp(0, 1),
        ),
        Mistake(
            "rounded",
            "you rounded to 0 or 1. Gates between are possible, and are used as they are.",
            lambda log_a: (_gate(log_a) > 0.5).float(),
        ),
    ],
)


def _is_open(log_a: Tensor) -> Tensor:
    return (log_a - 0.33 * math.log(0.1 / 1.1)).sigmoid().sum()


open_gates = Exercise(
    "open_gates",
    chapter=14,
    title="the expected number of gates that are not 0",
    reference=_is_open,
    cases=_parameters,
    verified="four sets of parameters.",
    mistakes=[
        Mistake(
            "mean",
            "this is the mean probability. The penalty is the expected number: add.",
            lambda log_a: _is_open(log_a) / len(log_a),
        ),
        Mistake(
            "probability above a half",
            "you left out the shift -0.33 ln(0.1 / 1.1): this is the sum of sigmoids, not of the probabilities that a "
            "gate is not 0.",
            lambda log_a: log_a.sigmoid().sum(),
        ),
        Mistake(
            "shift of the wrong sign",
            "the shift has the wrong sign: the probability of an open gate is larger than the sigmoid, not smaller.",
            lambda log_a: (log_a + 0.33 * math.log(0.1 / 1.1)).sigmoid().sum(),
        ),
        Mistake(
            "gates added",
            "you added the gates' values. A gate of 0.1 is open as much as one of 0.9: count the probabilities of not "
            "being 0.",
            lambda log_a: _gate(log_a).sum(),
        ),
    ],
)


def _matrices(rng: random.Random) -> Iterator[Case]:
    for _ in range(3):
        num_heads, head_dim = sizes(rng, 2, smallest=3, largest=6)
        num_hiddens = num_heads * head_dim
        yield {
            "W_v": draw(rng, num_hiddens, num_hiddens),
            "W_o": draw(rng, num_hiddens, num_hiddens),
            "head": rng.randrange(1, num_heads),
            "num_heads": num_heads,
        }


def _kept(num_hiddens: int, head: int, num_heads: int) -> Tensor:
    own = torch.arange(num_hiddens) // (num_hiddens // num_heads)
    return own != head


def _without_head(W_v: Tensor, W_o: Tensor, head: int, num_heads: int) -> tuple[Tensor, Tensor]:
    keep = _kept(len(W_o), head, num_heads)
    return W_v[keep], W_o[:, keep]


prune = Exercise(
    "prune",
    chapter=14,
    title="remove a head from two matrices",
    reference=_without_head,
    cases=_matrices,
    parts=("W_v", "W_o"),
    verified="three layers: rows of W_v and columns of W_o are gone; what is left computes what it did.",
    points=2,
    mistakes=[
        Mistake(
            "columns of W_v",
            "you removed columns of W_v: those read the input, which stays as wide as it is. A head owns rows.",
            lambda W_v, W_o, head, num_heads: (
                W_v[:, _kept(len(W_o), head, num_heads)],
                W_o[:, _kept(len(W_o), head, num_heads)],
            ),
        ),
        Mistake(
            "rows of W_o",
            "you removed rows of W_o: those make the layer's output, which stays as wide as it is. What W_o reads of a "
            "head are columns.",
            lambda W_v, W_o, head, num_heads: (
                W_v[_kept(len(W_o), head, num_heads)],
                W_o[_kept(len(W_o), head, num_heads)],
            ),
        ),
        Mistake(
            "set to 0",
            "you set the head's numbers to 0. The result is the same, but nothing is smaller or faster: remove them.",
            lambda W_v, W_o, head, num_heads: (
                W_v * _kept(len(W_o), head, num_heads)[:, None],
                W_o * _kept(len(W_o), head, num_heads),
            ),
        ),
        Mistake(
            "only this head kept",
            "you kept the head that was to go, and removed the others.",
            lambda W_v, W_o, head, num_heads: (
                W_v[~_kept(len(W_o), head, num_heads)],
                W_o[:, ~_kept(len(W_o), head, num_heads)],
            ),
        ),
        Mistake(
            "one row, not a head",
            "you removed one row and one column. A head owns d of them, from head * d on.",
            lambda W_v, W_o, head, num_heads: (
                W_v[torch.arange(len(W_v)) != head],
                W_o[:, torch.arange(len(W_o)) != head],
            ),
        ),
        Mistake(
            "every h-th row",
            "you removed every h-th row. A head owns rows that lie side by side, from head * d on.",
            lambda W_v, W_o, head, num_heads: (
                W_v[torch.arange(len(W_v)) % num_heads != head],
                W_o[:, torch.arange(len(W_o)) % num_heads != head],
            ),
        ),
    ],
)
