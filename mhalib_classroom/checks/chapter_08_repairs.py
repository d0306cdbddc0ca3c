"""Chapter 8: a repair of a decoder's masks."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from mhalib.attention import causal_mask

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart


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


mended_masks = Exercise(
    "mended_masks",
    chapter=8,
    given="nothing mended",
    title="mend the masks of a decoder",
    reference=_both_masks,
    cases=_two_lengths,
    parts=("the mask of the self-attention", "the mask of the cross-attention"),
    verified="four batches of pairs: the target hides its own padding and future, and of the source only its padding.",
    points=2,
    mistakes=[
        Mistake(
            "nothing mended",
            "the cross-attention still hides the source's tokens by the target's lengths. Its keys come from the "
            "source: whose padding must it not see?",
            lambda source_lens, target_lens, num_sources, num_targets: (
                _self_mask(target_lens, num_targets),
                _real(target_lens, num_sources),
            ),
        ),
        Mistake(
            "lengths exchanged",
            "the cross-attention is right now, but the self-attention took the source's lengths: its keys are those of "
            "the target.",
            lambda source_lens, target_lens, num_sources, num_targets: (
                _self_mask(source_lens, num_targets),
                _real(source_lens, num_sources),
            ),
        ),
        Mistake(
            "both wrong",
            "now both masks take the wrong lengths: each attention hides the padding of its own keys.",
            lambda source_lens, target_lens, num_sources, num_targets: (
                _self_mask(source_lens, num_targets),
                _real(target_lens, num_sources),
            ),
        ),
        Mistake(
            "future seen",
            "the cross-attention is right, but the self-attention no longer hides the future.",
            lambda source_lens, target_lens, num_sources, num_targets: (
                _real(target_lens, num_targets).expand(-1, -1, num_targets, -1),
                _real(source_lens, num_sources),
            ),
        ),
        Mistake(
            "target's padding seen",
            "the cross-attention is right, but the self-attention no longer hides the target's padding.",
            lambda source_lens, target_lens, num_sources, num_targets: (
                causal_mask(num_targets).expand(len(target_lens), 1, -1, -1),
                _real(source_lens, num_sources),
            ),
        ),
        Mistake(
            "or",
            "the self-attention joins its two masks by `or`: both must allow, so `and`.",
            lambda source_lens, target_lens, num_sources, num_targets: (
                _real(target_lens, num_targets) | causal_mask(num_targets),
                _real(source_lens, num_sources),
            ),
        ),
        Mistake(
            "source hidden by the future",
            "the cross-attention hides the source's later words. They are all known: only what the decoder writes has "
            "a future.",
            lambda source_lens, target_lens, num_sources, num_targets: (
                _self_mask(target_lens, num_targets),
                _real(source_lens, num_sources) & torch.ones(num_targets, num_sources, dtype=torch.bool).tril(),
            ),
        ),
        Mistake(
            "queries hidden",
            "the cross-attention's mask hides rows, the target's padding as queries. Hide keys: columns.",
            lambda source_lens, target_lens, num_sources, num_targets: (
                _self_mask(target_lens, num_targets),
                _real(target_lens, num_targets).mT,
            ),
        ),
        Mistake(
            "nothing of the source hidden",
            "the cross-attention sees the source's padding.",
            lambda source_lens, target_lens, num_sources, num_targets: (
                _self_mask(target_lens, num_targets),
                torch.ones(len(source_lens), 1, 1, num_sources, dtype=torch.bool),
            ),
        ),
    ],
)
