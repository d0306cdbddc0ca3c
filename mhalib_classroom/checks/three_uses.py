"""The masks and shapes of a decoder.

A repair of a decoder's masks.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from mhalib.attention import causal_mask, padding_mask

from ._exercise import Case
from ._inputs import apart
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _lens_and_length(rng: random.Random) -> Iterator[Case]:
    yield {"valid_lens": torch.tensor([2, 3]), "num_tokens": 3}
    for batch_size, num_tokens in apart(rng, 2, smallest=3, largest=8):
        lens = [1] + [rng.randint(1, num_tokens) for _ in range(batch_size - 1)]
        yield {"valid_lens": torch.tensor(lens), "num_tokens": num_tokens}


def _triangle(num_tokens: int, diagonal: int) -> Tensor:
    return torch.ones(num_tokens, num_tokens, dtype=torch.bool).tril(diagonal)


def _both(valid_lens: Tensor, num_tokens: int) -> Tensor:
    return padding_mask(valid_lens, num_tokens) & causal_mask(num_tokens)


decoder_mask = exercise(
    "decoder_mask",
    reference=_both,
    cases=_lens_and_length,
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


cross_shapes = exercise(
    "cross_shapes",
    reference=lambda target_shape, memory_shape, num_heads: (
        target_shape,
        (target_shape[0], num_heads, target_shape[1], memory_shape[1]),
    ),
    cases=_cross_shapes,
)


def _two_lengths(rng: random.Random) -> Iterator[Case]:
    for batch_size, num_targets, num_sources in ([2, 2, 3], *apart(rng, 3, largest=8)):
        yield {
            "source_lens": torch.tensor([rng.randint(1, num_sources) for _ in range(batch_size - 1)] + [num_sources]),
            "target_lens": torch.tensor([rng.randint(1, num_targets) for _ in range(batch_size - 1)] + [1]),
            "num_sources": num_sources,
            "num_targets": num_targets,
        }


def _real(lens: Tensor, num_tokens: int) -> Tensor:
    """Like `padding_mask`, but lengths may be those of the other sequence: too long."""
    return torch.arange(num_tokens) < lens[:, None, None, None]


def _self_mask(target_lens: Tensor, num_targets: int) -> Tensor:
    return _real(target_lens, num_targets) & causal_mask(num_targets)


def _both_masks(source_lens: Tensor, target_lens: Tensor, num_sources: int, num_targets: int) -> tuple[Tensor, Tensor]:
    return _self_mask(target_lens, num_targets), _real(source_lens, num_sources)


mended_masks = exercise(
    "mended_masks",
    reference=_both_masks,
    cases=_two_lengths,
)
