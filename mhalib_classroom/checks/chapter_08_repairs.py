"""Chapter 8: a repair of a decoder's masks."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from mhalib.attention import causal_mask

from ._exercise import Case
from ._inputs import apart
from ._markdown import exercises_of

exercise = exercises_of(globals())


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
