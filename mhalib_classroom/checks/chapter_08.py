"""Chapter 8: the masks and shapes of a decoder."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from mhalib.attention import causal_mask, padding_mask

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart


def _lens_and_length(rng: random.Random) -> Iterator[Case]:
    yield {"valid_lens": torch.tensor([2, 3]), "num_tokens": 3}
    for batch_size, num_tokens in apart(rng, 2, smallest=3, largest=8):
        lens = [1] + [rng.randint(1, num_tokens) for _ in range(batch_size - 1)]
        yield {"valid_lens": torch.tensor(lens), "num_tokens": num_tokens}


def _triangle(num_tokens: int, diagonal: int) -> Tensor:
    return torch.ones(num_tokens, num_tokens, dtype=torch.bool).tril(diagonal)


def _both(valid_lens: Tensor, num_tokens: int) -> Tensor:
    return padding_mask(valid_lens, num_tokens) & causal_mask(num_tokens)


decoder_mask = Exercise(
    "decoder_mask",
    chapter=8,
    title="hide padding and future together",
    reference=_both,
    cases=_lens_and_length,
    verified="four batches; a key is seen only if it is real and not later, shape (B, 1, N, N).",
    mistakes=[
        Mistake(
            "or",
            "you joined the masks by `or`: a key is seen if it is real OR in the past, so the future leaks. Both must "
            "allow: `and`.",
            lambda valid_lens, num_tokens: padding_mask(valid_lens, num_tokens) | causal_mask(num_tokens),
        ),
        Mistake(
            "future only",
            "the padding is not hidden.",
            lambda valid_lens, num_tokens: causal_mask(num_tokens).expand(len(valid_lens), 1, -1, -1),
        ),
        Mistake(
            "padding only",
            "the future is not hidden.",
            lambda valid_lens, num_tokens: padding_mask(valid_lens, num_tokens).expand(-1, -1, num_tokens, -1),
        ),
        Mistake(
            "either, not both",
            "`^` is true where either mask allows, but not both. Both must allow: `&`.",
            lambda valid_lens, num_tokens: padding_mask(valid_lens, num_tokens) ^ causal_mask(num_tokens),
        ),
        Mistake(
            "inverted",
            "True marks what is hidden here. True must mean: may attend.",
            lambda valid_lens, num_tokens: ~_both(valid_lens, num_tokens),
        ),
        Mistake(
            "hides itself",
            "no token sees itself here, and the first one sees nothing. A token may see itself: leave the diagonal in.",
            lambda valid_lens, num_tokens: padding_mask(valid_lens, num_tokens) & _triangle(num_tokens, -1),
        ),
        Mistake(
            "one token ahead",
            "each token sees the next one, which it should foretell: the triangle is one diagonal too large.",
            lambda valid_lens, num_tokens: padding_mask(valid_lens, num_tokens) & _triangle(num_tokens, 1),
        ),
        Mistake(
            "one padded key",
            "one padded key is seen: with a length of n, the keys 0 to n - 1 are real. Compare with <, not <=.",
            lambda valid_lens, num_tokens: (
                (torch.arange(num_tokens) <= valid_lens[:, None, None, None]) & causal_mask(num_tokens)
            ),
        ),
        Mistake(
            "padded queries hidden",
            "you hid padded queries, the rows. Padded keys, the columns, are what nobody may look at.",
            lambda valid_lens, num_tokens: padding_mask(valid_lens, num_tokens).mT & causal_mask(num_tokens),
        ),
        Mistake(
            "future of the keys",
            "the triangle is the wrong one: this hides the past.",
            lambda valid_lens, num_tokens: padding_mask(valid_lens, num_tokens) & causal_mask(num_tokens).mT,
        ),
        Mistake(
            "added",
            "you added the masks: they became numbers, 0, 1 and 2. Join booleans by &.",
            lambda valid_lens, num_tokens: padding_mask(valid_lens, num_tokens).int() + causal_mask(num_tokens).int(),
        ),
        Mistake(
            "no axis for the heads",
            "the values are right, but (B, N, N) broadcasts against (B, h, N, N) as if examples were heads. Keep an "
            "axis of size 1 for the heads.",
            lambda valid_lens, num_tokens: _both(valid_lens, num_tokens)[:, 0],
        ),
    ],
)


def _cross_shapes(rng: random.Random) -> Iterator[Case]:
    drawn = apart(rng, 5, 4, largest=9, of=lambda B, Q, K, h, d: [B, Q, K, h, d, h * d])
    for batch_size, num_queries, num_kvpairs, num_heads, head_dim in drawn:
        yield {
            "target_shape": (batch_size, num_queries, num_heads * head_dim),
            "memory_shape": (batch_size, num_kvpairs, num_heads * head_dim),
            "num_heads": num_heads,
        }


def _in_another_order(
    target_shape: tuple[int, ...], memory_shape: tuple[int, ...], num_heads: int, order: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    weights = (target_shape[0], num_heads, target_shape[1], memory_shape[1])
    return target_shape, tuple(weights[axis] for axis in order)


cross_shapes = Exercise(
    "cross_shapes",
    chapter=8,
    is_prediction=True,
    title="shapes of a cross-attention's output and weights",
    reference=lambda target_shape, memory_shape, num_heads: (
        target_shape,
        (target_shape[0], num_heads, target_shape[1], memory_shape[1]),
    ),
    cases=_cross_shapes,
    parts=("the shape of the output", "the shape of the weights"),
    verified="four pairs of sequences with different lengths.",
    mistakes=[
        Mistake(
            "output as long as the memory",
            "the output has a row for each query, so it is as long as the target, not as the memory.",
            lambda target_shape, memory_shape, num_heads: (
                memory_shape,
                (target_shape[0], num_heads, target_shape[1], memory_shape[1]),
            ),
        ),
        Mistake(
            "weights transposed",
            "rows of the weights are queries, from the target; columns are keys, from the memory.",
            lambda target_shape, memory_shape, num_heads: (
                target_shape,
                (target_shape[0], num_heads, memory_shape[1], target_shape[1]),
            ),
        ),
        Mistake(
            "square weights",
            "the weights are not square here: queries come from the target, keys from the memory.",
            lambda target_shape, memory_shape, num_heads: (
                target_shape,
                (target_shape[0], num_heads, target_shape[1], target_shape[1]),
            ),
        ),
        Mistake(
            "heads averaged",
            "the weights are per head in this book: an axis h is missing.",
            lambda target_shape, memory_shape, num_heads: (
                target_shape,
                (target_shape[0], target_shape[1], memory_shape[1]),
            ),
        ),
        *(
            Mistake(
                f"weights as {', '.join('BhQK'[axis] for axis in order)}",
                "the weights are (B, h, Q, K), in this order: each head of each example has its matrix.",
                partial(_in_another_order, order=order),
            )
            for order in ((0, 2, 1, 3), (0, 2, 3, 1), (1, 0, 2, 3))
        ),
    ],
)
