"""Chapter 18: importance, gates, and the removal of a head."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw


def _outputs_and_gradients(rng: random.Random) -> Iterator[Case]:
    products = [[[[1.0], [2.0]]], [[[3.0], [1.0]]]], [[[[2.0], [-3.0]]], [[[1.0], [2.0]]]]
    yield {"outputs": torch.tensor(products[0]), "gradients": torch.tensor(products[1])}
    for batch_size, num_heads, num_queries, head_dim in apart(rng, 4):
        shape = (batch_size, num_heads, num_queries, head_dim)
        yield {"outputs": draw(rng, *shape), "gradients": draw(rng, *shape)}


def _per_example(outputs: Tensor, gradients: Tensor) -> Tensor:
    return (outputs * gradients).sum((-2, -1)).abs().mean(0)


head_importance = Exercise(
    "head_importance",
    chapter=18,
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
        Mistake(
            "normalised by layer",
            "you divided by the length of the layer's scores. That is a second step, for comparing layers: leave it "
            "out here.",
            lambda outputs, gradients: torch.nn.functional.normalize(_per_example(outputs, gradients), dim=0),
        ),
    ],
)


def _parameters(rng: random.Random) -> Iterator[Case]:
    yield {"log_a": torch.tensor([-4.0, 0.0, 4.0])}
    for (num_heads,) in apart(rng, 1, smallest=4):
        yield {"log_a": torch.cat([torch.tensor([0.5]), draw(rng, num_heads - 1) * 3])}


def _gate(log_a: Tensor) -> Tensor:
    return (1.2 * log_a.sigmoid() - 0.1).clamp(0, 1)


hard_gate = Exercise(
    "hard_gate",
    chapter=18,
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
            "your gates leave [0, 1]: clip AFTER the stretching. Before it there is nothing to clip: a sigmoid lies "
            "between 0 and 1.",
            lambda log_a: 1.2 * log_a.sigmoid() - 0.1,
        ),
        Mistake(
            "0.1 added",
            "you added 0.1, which stretches to (0.1, 1.3). The interval begins at -0.1: add -0.1.",
            lambda log_a: (1.2 * log_a.sigmoid() + 0.1).clamp(0, 1),
        ),
        Mistake(
            "width 1.1",
            "you multiplied by 1.1. From -0.1 to 1.1 the width is 1.2.",
            lambda log_a: (1.1 * log_a.sigmoid() - 0.1).clamp(0, 1),
        ),
        Mistake(
            "no sigmoid",
            "you stretched and clipped log_a itself. Take its sigmoid first.",
            lambda log_a: (1.2 * log_a - 0.1).clamp(0, 1),
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
    chapter=18,
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
        Mistake(
            "open gates counted",
            "you counted the gates that are open without noise. With noise each may be open or shut: add the "
            "probabilities.",
            lambda log_a: int((_gate(log_a) > 0).sum()),
        ),
    ],
)


def _matrices(rng: random.Random) -> Iterator[Case]:
    numbers = 10.0 * torch.arange(4)[:, None] + torch.arange(4)  # row r, column c: 10 r + c
    yield {"W_v": numbers, "W_o": numbers + 100, "head": 0, "num_heads": 2}
    drawn = apart(rng, 2, smallest=3, of=lambda h, d: [h, d, h * d])
    for where, (num_heads, head_dim) in zip(("last", "middle", "first"), drawn, strict=True):
        num_hiddens = num_heads * head_dim
        heads = {"last": num_heads - 1, "middle": rng.randrange(1, num_heads - 1), "first": 0}
        yield {
            "W_v": draw(rng, num_hiddens, num_hiddens),
            "W_o": draw(rng, num_hiddens, num_hiddens),
            "head": heads[where],
            "num_heads": num_heads,
        }


def _kept(num_hiddens: int, heads: list[int], num_heads: int) -> Tensor:
    owner = torch.arange(num_hiddens) // (num_hiddens // num_heads)
    return ~torch.isin(owner, torch.tensor(heads))


def without_heads(W_v: Tensor, W_o: Tensor, heads: list[int], num_heads: int) -> tuple[Tensor, Tensor]:
    """Both without these heads, by the numbers that they have before anything is removed."""
    keep = _kept(len(W_o), heads, num_heads)
    return W_v[keep], W_o[:, keep]


def _keeping(which: Callable[[Tensor, int, int, int], Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    """Keep other rows and columns: which(numbers of all of them, head, num_heads, head_dim)."""

    def pruned(W_v: Tensor, W_o: Tensor, head: int, num_heads: int) -> tuple[Tensor, Tensor]:
        keep = which(torch.arange(len(W_o)), head, num_heads, len(W_o) // num_heads)
        return W_v[keep], W_o[:, keep]

    return pruned


prune = Exercise(
    "prune",
    chapter=18,
    title="remove a head from two matrices",
    reference=lambda W_v, W_o, head, num_heads: without_heads(W_v, W_o, [head], num_heads),
    cases=_matrices,
    parts=("W_v", "W_o"),
    verified="four layers, with the first head, one in the middle and the last removed: rows of W_v and columns of W_o "
    "are gone; what is left computes what it did.",
    points=2,
    mistakes=[
        Mistake(
            "rows and columns exchanged",
            "you removed columns of W_v and rows of W_o. Those are the layer's input and output, which stay as wide as "
            "they are. A head owns rows of W_v and columns of W_o.",
            lambda W_v, W_o, head, num_heads: (
                W_v[:, _kept(len(W_o), [head], num_heads)],
                W_o[_kept(len(W_o), [head], num_heads)],
            ),
        ),
        Mistake(
            "columns of W_v",
            "you removed columns of W_v: those read the input, which stays as wide as it is. A head owns rows.",
            lambda W_v, W_o, head, num_heads: (
                W_v[:, _kept(len(W_o), [head], num_heads)],
                W_o[:, _kept(len(W_o), [head], num_heads)],
            ),
        ),
        Mistake(
            "rows of W_o",
            "you removed rows of W_o: those make the layer's output, which stays as wide as it is. What W_o reads of a "
            "head are columns.",
            lambda W_v, W_o, head, num_heads: (
                W_v[_kept(len(W_o), [head], num_heads)],
                W_o[_kept(len(W_o), [head], num_heads)],
            ),
        ),
        Mistake(
            "set to 0",
            "you set the head's numbers to 0. The result is the same, but nothing is smaller or faster: remove them.",
            lambda W_v, W_o, head, num_heads: (
                W_v * _kept(len(W_o), [head], num_heads)[:, None],
                W_o * _kept(len(W_o), [head], num_heads),
            ),
        ),
        Mistake(
            "only this head kept",
            "you kept the head that was to go, and removed the others.",
            _keeping(lambda i, head, num_heads, head_dim: i // head_dim == head),
        ),
        Mistake(
            "only what stands before kept",
            "you kept only what stands before the head. The heads behind it stay, too: join both parts.",
            _keeping(lambda i, head, num_heads, head_dim: i // head_dim < head),
        ),
        Mistake(
            "only what stands behind kept",
            "you kept only what stands behind the head. The heads before it stay, too: join both parts.",
            _keeping(lambda i, head, num_heads, head_dim: i // head_dim > head),
        ),
        Mistake(
            "always the last head",
            "you removed the last head, whichever was to go. Head i owns the numbers i*d to (i+1)*d.",
            _keeping(lambda i, head, num_heads, head_dim: i // head_dim < num_heads - 1),
        ),
        Mistake(
            "h and d mixed up",
            "you removed the numbers head * h to (head + 1) * h. A head is d = D / h wide: take head * d to "
            "(head + 1) * d.",
            _keeping(lambda i, head, num_heads, head_dim: i // num_heads != head),
        ),
        Mistake(
            "one row, not a head",
            "you removed one row and one column. A head owns d of them, from head * d on.",
            _keeping(lambda i, head, num_heads, head_dim: i != head),
        ),
        Mistake(
            "every h-th row",
            "you removed every h-th row. A head owns rows that lie side by side, from head * d on.",
            _keeping(lambda i, head, num_heads, head_dim: i % num_heads != head),
        ),
    ],
)
