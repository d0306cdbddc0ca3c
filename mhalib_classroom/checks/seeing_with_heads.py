"""Pictures cut into patches."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from mhalib.models import patches as right_patches

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _images(rng: random.Random) -> Iterator[Case]:
    yield {"images": torch.arange(16.0).reshape(1, 4, 4), "patch_size": 2}
    for batch_size, rows, columns, patch_size in apart(
        rng, 4, of=lambda B, rows, columns, p: [B, rows, columns, p, rows * p, columns * p]
    ):
        yield {"images": draw(rng, batch_size, rows * patch_size, columns * patch_size), "patch_size": patch_size}


patches = exercise(
    "patches",
    reference=right_patches,
    cases=_images,
)


def _coloured(rng: random.Random) -> Iterator[Case]:
    yield {"images": torch.arange(16.0).reshape(1, 2, 2, 4), "patch_size": 2}
    drawn = apart(
        rng, 5, of=lambda B, channels, rows, columns, p: [B, channels, rows, columns, p, rows * p, columns * p]
    )
    for batch_size, channels, rows, columns, patch_size in drawn:
        images = draw(rng, batch_size, channels, rows * patch_size, columns * patch_size)
        yield {"images": images, "patch_size": patch_size}


def _colour_patches(images: Tensor, patch_size: int) -> Tensor:
    return torch.cat([right_patches(channel, patch_size) for channel in images.unbind(1)], -1)


def _cut(images: Tensor, patch_size: int) -> Tensor:
    """(B, channels, rows, columns, patch_size, patch_size)."""
    return images.unfold(2, patch_size, patch_size).unfold(3, patch_size, patch_size)


mended_patches = exercise(
    "mended_patches",
    reference=_colour_patches,
    cases=_coloured,
)
