"""Chapter 4: what a layer costs, and the whole layer."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from mhalib.costs import Sizes, cache_bytes, pair_flops, parameters

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart
from ._layer import LAYER_MISTAKES, forward, layer_inputs


def _numbers(*names: str) -> Callable[[random.Random], Iterator[Case]]:
    """Distinct sizes under these names, with `num_hiddens` a multiple of `num_heads`, and that of `num_kv_heads`."""

    def cases(rng: random.Random) -> Iterator[Case]:
        drawn = apart(
            rng,
            5,
            largest=9,
            of=lambda layers, tokens, d, g, shared: [layers, tokens, d, g, shared, g * shared, g * shared * d],
        )
        for number, (num_layers, num_tokens, head_dim, num_kv_heads, shared) in enumerate(drawn):
            case: Case = {
                "num_layers": num_layers,
                "num_tokens": num_tokens,
                "num_hiddens": num_kv_heads * shared * head_dim,
                "num_heads": num_kv_heads * shared,
                "num_kv_heads": num_kv_heads,
                "bias": number != 1,
            }
            yield {name: case[name] for name in names}

    return cases


count_weights = Exercise(
    "count_weights",
    chapter=4,
    is_prediction=True,
    title="how many weights a layer has",
    reference=lambda num_hiddens, num_heads, bias: parameters(Sizes(num_hiddens, num_heads), bias=bias),
    cases=_numbers("num_hiddens", "num_heads", "bias"),
    verified="three sizes of layer, with biases and without. The number of heads does not matter.",
    mistakes=[
        Mistake(
            "times the number of heads",
            "you multiplied by the number of heads. The heads share out the D columns of each projection; they do not "
            "get D each.",
            lambda num_hiddens, num_heads, bias: num_heads * (4 * num_hiddens**2 + 4 * num_hiddens * bias),
        ),
        Mistake(
            "without W_o",
            "you counted three projections. There is a fourth, W_o, which mixes the heads.",
            lambda num_hiddens, num_heads, bias: 3 * num_hiddens**2 + 3 * num_hiddens * bias,
        ),
        Mistake(
            "biases forgotten",
            "right without biases. With them, each of the four projections has D more.",
            lambda num_hiddens, num_heads, bias: 4 * num_hiddens**2,
        ),
        Mistake(
            "biases always",
            "right with biases. This layer has none where `bias` is False.",
            lambda num_hiddens, num_heads, bias: 4 * num_hiddens**2 + 4 * num_hiddens,
        ),
        Mistake(
            "one head only",
            "you counted the projections of one head, (D, d), but for W_o; there are h heads.",
            lambda num_hiddens, num_heads, bias: 4 * num_hiddens * (num_hiddens // num_heads) + 4 * num_hiddens * bias,
        ),
    ],
)


count_flops = Exercise(
    "count_flops",
    chapter=4,
    is_prediction=True,
    title="operations of scores and weighted sums",
    reference=lambda num_tokens, num_hiddens, num_heads: pair_flops(Sizes(num_hiddens, num_heads), num_tokens),
    cases=_numbers("num_tokens", "num_hiddens", "num_heads"),
    verified="three sizes. A multiplication and its addition count as two; projections and softmax are left out.",
    points=2,
    mistakes=[
        Mistake(
            "scores only",
            "you counted the scores. The weighted sum of the values costs as much again.",
            lambda num_tokens, num_hiddens, num_heads: 2 * num_tokens**2 * num_hiddens,
        ),
        Mistake(
            "multiplications only",
            "you counted multiplications. Each has an addition beside it, which counts too: twice as many.",
            lambda num_tokens, num_hiddens, num_heads: num_tokens**2 * num_hiddens,
        ),
        Mistake(
            "times the number of heads",
            "you multiplied by the number of heads. Each of the h heads has a width of D / h, so h cancels.",
            lambda num_tokens, num_hiddens, num_heads: 4 * num_tokens**2 * num_hiddens * num_heads,
        ),
        Mistake(
            "one head only",
            "you counted one head, of width d. There are h of them.",
            lambda num_tokens, num_hiddens, num_heads: 4 * num_tokens**2 * (num_hiddens // num_heads),
        ),
        Mistake(
            "the projections' cost",
            "N * D * D is what a projection costs. Here every token meets every token.",
            lambda num_tokens, num_hiddens, num_heads: 4 * num_tokens * num_hiddens**2,
        ),
    ],
)


_CACHE = ("num_layers", "num_tokens", "num_hiddens", "num_heads", "num_kv_heads")


cache_numbers = Exercise(
    "cache_numbers",
    chapter=4,
    is_prediction=True,
    title="numbers in a cache of keys and values",
    reference=lambda num_layers, num_tokens, num_hiddens, num_heads, num_kv_heads: (
        num_layers * cache_bytes(Sizes(num_hiddens, num_heads, num_kv_heads), num_tokens, bytes_per_number=1)
    ),
    cases=_numbers(*_CACHE),
    verified="three sizes, in all of which heads share keys and values.",
    points=2,
    mistakes=[
        Mistake(
            "keys only",
            "you counted the keys. As many values are kept.",
            lambda num_layers, num_tokens, num_hiddens, num_heads, num_kv_heads: (
                num_layers * num_tokens * num_kv_heads * (num_hiddens // num_heads)
            ),
        ),
        Mistake(
            "every head",
            "you counted keys and values for every head, or gave the few a width of D / num_kv_heads. Only "
            "num_kv_heads "
            "of them have their own, and a key is as wide as the query that it meets, D / num_heads.",
            lambda num_layers, num_tokens, num_hiddens, num_heads, num_kv_heads: (
                2 * num_layers * num_tokens * num_hiddens
            ),
        ),
        Mistake(
            "one layer",
            "you counted one layer; each keeps its own keys and values.",
            lambda num_layers, num_tokens, num_hiddens, num_heads, num_kv_heads: (
                2 * num_tokens * num_kv_heads * (num_hiddens // num_heads)
            ),
        ),
        Mistake(
            "weights, too",
            "you counted all pairs of tokens. Weights are computed and thrown away; keys and values are kept.",
            lambda num_layers, num_tokens, num_hiddens, num_heads, num_kv_heads: num_layers * num_heads * num_tokens**2,
        ),
    ],
)


multi_head = Exercise(
    "multi_head",
    chapter=4,
    title="the whole layer, from four matrices",
    reference=forward,
    cases=layer_inputs,
    verified="a small layer and three with sizes that all differ; the numbers are those of "
    "`mhalib.MultiHeadAttention`.",
    points=3,
    mistakes=LAYER_MISTAKES,
)
