"""Chapter 19: keys and values that heads share, and scores of latents."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw


def _keys(rng: random.Random) -> Iterator[Case]:
    yield {"k": torch.tensor([[[[1.0], [2.0]], [[3.0], [4.0]]]]), "num_heads": 4}
    drawn = apart(
        rng, 5, of=lambda g, shared, B, K, d: [g, shared, B, K, d, g * shared]
    )  # a group is never as large as there are groups
    for num_kv_heads, shared, batch_size, num_kvpairs, head_dim in drawn:
        yield {"k": draw(rng, batch_size, num_kv_heads, num_kvpairs, head_dim), "num_heads": num_kv_heads * shared}


def _for_heads(k: Tensor, num_heads: int) -> Tensor:
    return k[:, torch.arange(num_heads) * k.shape[1] // num_heads]


def _repeated(k: Tensor, num_heads: int, dim: int) -> Tensor:
    return k.repeat_interleave(num_heads // k.shape[1], dim)


keys_for_heads = Exercise(
    "keys_for_heads",
    chapter=19,
    title="give every head the keys of its group",
    reference=_for_heads,
    cases=_keys,
    verified="four batches, with two to four heads of keys for 4 to 12 heads; the heads of a group are neighbours.",
    mistakes=[
        Mistake(
            "repeat",
            "you wrote the groups one after another, again and again, so head i gets the keys of group i % g. The "
            "heads of a group are neighbours: head i gets group i * g // h, as `repeat_interleave` writes them.",
            lambda k, num_heads: k.repeat(1, num_heads // k.shape[1], 1, 1),
        ),
        Mistake(
            "first group only",
            "every head got the keys of group 0, and the other groups are lost. That is right only for g = 1.",
            lambda k, num_heads: k[:, :1].expand(-1, num_heads, -1, -1),
        ),
        Mistake(
            "mean of all groups",
            "every head got the mean of all groups. Each head needs the keys of its own group, unchanged.",
            lambda k, num_heads: k.mean(1, keepdim=True).expand(-1, num_heads, -1, -1),
        ),
        Mistake(
            "tokens repeated, right shape",
            "you repeated each token, and a reshape then made the shape right. Head 0 now sees the first tokens "
            "several times and the last ones never: put the new axis behind the groups, not behind the tokens.",
            lambda k, num_heads: _repeated(k, num_heads, 2).reshape(len(k), num_heads, *k.shape[2:]),
        ),
        Mistake(
            "tokens repeated",
            "you repeated each token, along axis 2. The heads are axis 1.",
            lambda k, num_heads: _repeated(k, num_heads, 2),
        ),
        Mistake(
            "texts repeated",
            "you wrote each group's tokens several times in a row, along axis 2. The heads are axis 1.",
            lambda k, num_heads: k.repeat(1, 1, num_heads // k.shape[1], 1),
        ),
        Mistake(
            "examples repeated",
            "you repeated the examples of the batch, axis 0. The heads are axis 1.",
            lambda k, num_heads: _repeated(k, num_heads, 0),
        ),
        Mistake(
            "channels repeated",
            "you repeated the channels, the last axis. Keys stay as wide as queries; the heads are axis 1.",
            lambda k, num_heads: _repeated(k, num_heads, 3),
        ),
        Mistake(
            "no axis given",
            "without an axis `repeat_interleave` flattens the tensor first and repeats each number. The heads are "
            "axis 1.",
            lambda k, num_heads: k.repeat_interleave(num_heads // k.shape[1]),
        ),
        Mistake(
            "h times each",
            "you repeated each group h times, which makes g * h heads. A group has h / g heads.",
            lambda k, num_heads: k.repeat_interleave(num_heads, 1),
        ),
        Mistake(
            "nothing repeated",
            "there are still g heads here. Each of the h heads needs keys to compare its queries with.",
            lambda k, num_heads: k,
        ),
    ],
)


def _memories(rng: random.Random) -> Iterator[Case]:
    shapes = [(3, 2, 6, 4)]
    drawn = apart(rng, 4, largest=9, of=lambda layers, g, shared, d: [layers, g, shared, d, g * shared])
    shapes += [(layers, g, g * shared, d) for layers, g, shared, d in drawn]
    for number, (num_layers, num_kv_heads, num_heads, head_dim) in enumerate(shapes):
        per_token = 2 * num_layers * num_kv_heads * head_dim
        fitting = rng.randint(200, 900) if number else 10
        yield {
            "num_numbers": per_token * fitting + rng.randint(per_token // 2 + 1, per_token * 3 // 4),
            "num_layers": num_layers,
            "num_heads": num_heads,
            "num_kv_heads": num_kv_heads,
            "head_dim": head_dim,
        }


tokens_that_fit = Exercise(
    "tokens_that_fit",
    chapter=19,
    title="how many tokens a cache has room for",
    reference=lambda num_numbers, num_layers, num_heads, num_kv_heads, head_dim: (
        num_numbers // (2 * num_layers * num_kv_heads * head_dim)
    ),
    cases=_memories,
    verified="four models whose heads share keys and values, with room for 10 to 900 tokens.",
    mistakes=[
        Mistake(
            "keys only",
            "you counted the keys alone. A cache keeps as many values: one token takes twice as many numbers.",
            lambda num_numbers, num_layers, num_heads, num_kv_heads, head_dim: (
                num_numbers // (num_layers * num_kv_heads * head_dim)
            ),
        ),
        Mistake(
            "every head",
            "you counted keys and values for all h heads. Only `num_kv_heads` have their own; the others share them.",
            lambda num_numbers, num_layers, num_heads, num_kv_heads, head_dim: (
                num_numbers // (2 * num_layers * num_heads * head_dim)
            ),
        ),
        Mistake(
            "one head",
            "you counted one head of keys and values, as in multi-query attention. Here there are `num_kv_heads`.",
            lambda num_numbers, num_layers, num_heads, num_kv_heads, head_dim: (
                num_numbers // (2 * num_layers * head_dim)
            ),
        ),
        Mistake(
            "one layer",
            "you counted one layer. Each layer keeps keys and values of its own.",
            lambda num_numbers, num_layers, num_heads, num_kv_heads, head_dim: (
                num_numbers // (2 * num_kv_heads * head_dim)
            ),
        ),
        Mistake(
            "one number per key",
            "you counted keys and values, not their numbers. Each of them is a vector of `head_dim` numbers.",
            lambda num_numbers, num_layers, num_heads, num_kv_heads, head_dim: (
                num_numbers // (2 * num_layers * num_kv_heads)
            ),
        ),
        Mistake(
            "a group's heads",
            "you counted h / g heads of keys and values. That is how many heads share one; there are g of them.",
            lambda num_numbers, num_layers, num_heads, num_kv_heads, head_dim: (
                num_numbers // (2 * num_layers * (num_heads // num_kv_heads) * head_dim)
            ),
        ),
        Mistake(
            "rounded up",
            "you rounded up, or to the nearest number. The last token does not fit completely: round down.",
            lambda num_numbers, num_layers, num_heads, num_kv_heads, head_dim: (
                num_numbers // (2 * num_layers * num_kv_heads * head_dim) + 1
            ),
        ),
        Mistake(
            "a fraction of a token",
            "your number has a fraction. Tokens fit completely or not at all: round down, with //.",
            lambda num_numbers, num_layers, num_heads, num_kv_heads, head_dim: (
                num_numbers / (2 * num_layers * num_kv_heads * head_dim)
            ),
        ),
        Mistake(
            "numbers per token",
            "this is how many numbers one token takes. How many tokens can share `num_numbers`?",
            lambda num_numbers, num_layers, num_heads, num_kv_heads, head_dim: 2 * num_layers * num_kv_heads * head_dim,
        ),
    ],
)


def _latents(rng: random.Random) -> Iterator[Case]:
    yield {
        "q": torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]]]),
        "up": torch.tensor([[[1.0, 0.0, 2.0], [0.0, 1.0, 0.0]], [[0.0, 1.0, 0.0], [2.0, 0.0, 1.0]]]),
        "latents": torch.tensor([[1.0, 0.0, 1.0], [0.0, 2.0, 0.0]]),
    }
    for num_heads, num_queries, num_kvpairs, head_dim, width in apart(
        rng, 5, largest=9, of=lambda h, Q, K, d, width: [h, Q, K, d, width, h * d]
    ):
        yield {
            "q": draw(rng, num_heads, num_queries, head_dim),
            "up": draw(rng, num_heads, head_dim, width),
            "latents": draw(rng, num_kvpairs, width),
        }


def _scores(q: Tensor, up: Tensor, latents: Tensor) -> Tensor:
    return q @ up @ latents.T / math.sqrt(q.shape[-1])


absorbed_scores = Exercise(
    "absorbed_scores",
    chapter=19,
    title="compare queries with latents",
    reference=_scores,
    cases=_latents,
    verified="four sets of heads; the scores are those of the keys that you did not have to make.",
    points=2,
    mistakes=[
        Mistake(
            "scale of the latents",
            "you divided by the square root of the latents' width. The scores are those of queries and keys, "
            "which have d channels: divide by the square root of d.",
            lambda q, up, latents: q @ up @ latents.T / math.sqrt(up.shape[-1]),
        ),
        Mistake(
            "scale of all heads",
            "you divided by the square root of h * d, the width of all heads. One head's queries have d channels.",
            lambda q, up, latents: q @ up @ latents.T / math.sqrt(len(q) * q.shape[-1]),
        ),
        Mistake(
            "no scale",
            "the scores are not scaled: divide by the square root of d.",
            lambda q, up, latents: q @ up @ latents.T,
        ),
        Mistake(
            "divided by d",
            "you divided by d itself. Divide by its square root.",
            lambda q, up, latents: q @ up @ latents.T / q.shape[-1],
        ),
        Mistake(
            "up reshaped",
            "you reshaped `up` to (h, width, d). That keeps the order in memory and mixes rows with columns; "
            "to exchange two axes, transpose.",
            lambda q, up, latents: _scores(q, up.reshape(len(up), up.shape[2], up.shape[1]).mT, latents),
        ),
        Mistake(
            "one matrix for all heads",
            "every head used the matrix of head 0. Each head makes keys of its own from the same latents.",
            lambda q, up, latents: _scores(q, up[:1], latents),
        ),
        Mistake(
            "heads in another order",
            "the heads' matrices are in the opposite order: head 0 used the last one. Head i uses up[i].",
            lambda q, up, latents: _scores(q, up.flip(0), latents),
        ),
        Mistake(
            "heads summed",
            "you summed over the heads. Each head has scores of its own: keep h in the result.",
            lambda q, up, latents: _scores(q, up, latents).sum(0),
        ),
        Mistake(
            "keys by queries",
            "your result is (h, K, Q). Rows are queries and columns are keys: (h, Q, K).",
            lambda q, up, latents: _scores(q, up, latents).mT,
        ),
        Mistake(
            "weights",
            "these are the weights, after the softmax. Return the scores before it.",
            lambda q, up, latents: _scores(q, up, latents).softmax(-1),
        ),
    ],
)
