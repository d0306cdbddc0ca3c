"""Chapter 22: the difference of two maps, and the number by which the second is multiplied."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw


def _two_maps(rng: random.Random) -> Iterator[Case]:
    yield {"scores": torch.tensor([[[1.0, 2.0, 0.0]], [[0.0, 0.0, 1.0]]]), "second": 0.5}
    for num_heads, num_queries, num_kvpairs in apart(rng, 3, largest=9, of=lambda h, Q, K: [2 * h, Q, K]):
        yield {"scores": 2 * draw(rng, 2 * num_heads, num_queries, num_kvpairs), "second": rng.uniform(0.2, 0.8)}


def _maps(scores: Tensor) -> tuple[Tensor, Tensor]:
    weights = scores.softmax(-1)
    return weights[0::2], weights[1::2]


def _difference(scores: Tensor, second: float) -> Tensor:
    first, other = _maps(scores)
    return first - second * other


differential_weights = Exercise(
    "differential_weights",
    chapter=22,
    title="subtract one map from another",
    reference=_difference,
    cases=_two_maps,
    verified="four sets of scores, of one to nine heads; rows sum to 1 minus the second map's weight.",
    mistakes=[
        Mistake(
            "softmax of the difference",
            "you subtracted the scores and took one softmax. Its weights are all positive, and nothing is cancelled. "
            "Each map has a softmax of its own; subtract the weights.",
            lambda scores, second: (scores[0::2] - second * scores[1::2]).softmax(-1),
        ),
        Mistake(
            "on the first map",
            "you multiplied the first map. The number belongs to the second one, which is subtracted.",
            lambda scores, second: second * _maps(scores)[0] - _maps(scores)[1],
        ),
        Mistake(
            "maps exchanged",
            "you subtracted the first map from the second.",
            lambda scores, second: _maps(scores)[1] - second * _maps(scores)[0],
        ),
        Mistake(
            "added",
            "you added the second map. Subtract it.",
            lambda scores, second: _difference(scores, -second),
        ),
        Mistake(
            "halves",
            "you took the first h maps and the last h. Here the two maps of a head are neighbours: 2i and 2i + 1.",
            lambda scores, second: (
                scores.softmax(-1)[: len(scores) // 2] - second * scores.softmax(-1)[len(scores) // 2 :]
            ),
        ),
        Mistake(
            "no softmax",
            "you subtracted scores, and there is no softmax. Each map has one of its own; subtract the weights.",
            lambda scores, second: scores[0::2] - second * scores[1::2],
        ),
        Mistake(
            "both multiplied",
            "you multiplied the whole difference, so rows sum to 0. The number belongs to the second map only.",
            lambda scores, second: second * _difference(scores, 1.0),
        ),
        Mistake(
            "inside the softmax",
            "you multiplied the second scores, before their softmax. That makes the second map flatter. Multiply its "
            "weights.",
            lambda scores, second: scores[0::2].softmax(-1) - (second * scores[1::2]).softmax(-1),
        ),
        Mistake(
            "not multiplied",
            "you subtracted the whole second map, so rows sum to 0. Multiply it first.",
            lambda scores, second: _difference(scores, 1.0),
        ),
        Mistake(
            "between the two",
            "you also multiplied the first map, by 1 minus the number. The first map is left as it is.",
            lambda scores, second: (1 - second) * _maps(scores)[0] - second * _maps(scores)[1],
        ),
        Mistake(
            "divided by the sum",
            "you divided by the sum of the row, so that it is 1 again. Rows sum to 1 minus the number.",
            lambda scores, second: _difference(scores, second) / (1 - second),
        ),
        Mistake(
            "negative weights removed",
            "you set negative weights to 0. They stay: a head may subtract what it finds.",
            lambda scores, second: _difference(scores, second).clamp(min=0),
        ),
        Mistake(
            "over the queries",
            "your softmax runs over the queries. It runs over the keys, the last axis.",
            lambda scores, second: scores.softmax(-2)[0::2] - second * scores.softmax(-2)[1::2],
        ),
    ],
)


def _vectors(rng: random.Random) -> Iterator[Case]:
    yield {
        "q1": torch.tensor([1.0, 0.0]),
        "k1": torch.tensor([0.5, 2.0]),
        "q2": torch.tensor([0.0, 1.0]),
        "k2": torch.tensor([1.0, -0.5]),
        "start": 0.2,
    }
    for (head_dim,) in apart(rng, 1, smallest=3, largest=8):
        q1, k1, q2, k2 = (draw(rng, head_dim) / 2 for _ in range(4))
        yield {"q1": q1, "k1": k1, "q2": q2, "k2": k2, "start": rng.uniform(0.2, 0.8)}


second_weight = Exercise(
    "second_weight",
    chapter=22,
    title="the number that multiplies the second map",
    reference=lambda q1, k1, q2, k2, start: (q1 @ k1).exp() - (q2 @ k2).exp() + start,
    cases=_vectors,
    verified="four sets of vectors; with equal pairs the number is `start`.",
    mistakes=[
        Mistake(
            "start forgotten",
            "`start` is missing: with equal pairs the two powers cancel, and `start` must be left.",
            lambda q1, k1, q2, k2, start: (q1 @ k1).exp() - (q2 @ k2).exp(),
        ),
        Mistake(
            "pairs exchanged",
            "you subtracted the first power from the second.",
            lambda q1, k1, q2, k2, start: (q2 @ k2).exp() - (q1 @ k1).exp() + start,
        ),
        Mistake(
            "no exponential",
            "you subtracted the products themselves. Each is an exponent.",
            lambda q1, k1, q2, k2, start: q1 @ k1 - q2 @ k2 + start,
        ),
        Mistake(
            "exponential of the difference",
            "you took one exponential of the difference. Take one of each product, then subtract.",
            lambda q1, k1, q2, k2, start: (q1 @ k1 - q2 @ k2).exp() + start,
        ),
        Mistake(
            "sum of exponentials",
            "you took the exponential of each channel and then the sum. Sum first: a scalar product, then its "
            "exponential.",
            lambda q1, k1, q2, k2, start: (q1 * k1).exp().sum() - (q2 * k2).exp().sum() + start,
        ),
        Mistake(
            "wrong pairs",
            "you multiplied q1 by q2 and k1 by k2. A query's vector is multiplied by its key's: q1 by k1, q2 by k2.",
            lambda q1, k1, q2, k2, start: (q1 @ q2).exp() - (k1 @ k2).exp() + start,
        ),
        Mistake(
            "crossed pairs",
            "you multiplied q1 by k2 and q2 by k1. The pairs are q1 and k1, q2 and k2.",
            lambda q1, k1, q2, k2, start: (q1 @ k2).exp() - (q2 @ k1).exp() + start,
        ),
        Mistake(
            "powers added",
            "you added the second power. Subtract it.",
            lambda q1, k1, q2, k2, start: (q1 @ k1).exp() + (q2 @ k2).exp() + start,
        ),
        Mistake(
            "start subtracted",
            "you subtracted `start`. Add it: with equal pairs it is what is left.",
            lambda q1, k1, q2, k2, start: (q1 @ k1).exp() - (q2 @ k2).exp() - start,
        ),
        Mistake(
            "scaled",
            "you divided the products by the root of the width, as scores are. These products are not scaled.",
            lambda q1, k1, q2, k2, start: (q1 @ k1 / len(q1) ** 0.5).exp() - (q2 @ k2 / len(q2) ** 0.5).exp() + start,
        ),
        Mistake(
            "start multiplied",
            "you multiplied by `start`. It is added, so that training begins at it.",
            lambda q1, k1, q2, k2, start: ((q1 @ k1).exp() - (q2 @ k2).exp()) * start,
        ),
    ],
)
