"""Chapter 14: pictures cut into patches."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from mhalib.models import patches as right_patches

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw


def _images(rng: random.Random) -> Iterator[Case]:
    yield {"images": torch.arange(16.0).reshape(1, 4, 4), "patch_size": 2}
    for batch_size, rows, columns, patch_size in apart(
        rng, 4, of=lambda B, rows, columns, p: [B, rows, columns, p, rows * p, columns * p]
    ):
        yield {"images": draw(rng, batch_size, rows * patch_size, columns * patch_size), "patch_size": patch_size}


patches = Exercise(
    "patches",
    chapter=14,
    title="cut pictures into patches",
    reference=right_patches,
    cases=_images,
    verified="four batches of pictures that are not square; patches row by row, and inside a patch pixels row by row.",
    mistakes=[
        Mistake(
            "wrong pairs joined",
            "you split both axes and joined them again in the pairs that they came from: this is the picture, as it "
            "was. Swap two axes in between, so that the two axes of a patch stand together.",
            lambda images, patch_size: images.clone(),
        ),
        Mistake(
            "straight reshape",
            "you reshaped straight: a `patch` is now a piece of one or two rows of the picture. Split both axes, then "
            "bring the two axes of a patch together.",
            lambda images, patch_size: images.reshape(len(images), -1, patch_size**2),
        ),
        Mistake(
            "column by column",
            "the patches are in the order of columns: the second one should be to the right of the first.",
            lambda images, patch_size: (
                right_patches(images.mT, patch_size).unflatten(-1, (patch_size, patch_size)).mT.flatten(-2)
            ),
        ),
        Mistake(
            "patches transposed",
            "the patches are in the right order, but each is transposed: pixels column by column.",
            lambda images, patch_size: (
                right_patches(images, patch_size).unflatten(-1, (patch_size, patch_size)).mT.flatten(-2)
            ),
        ),
        Mistake(
            "patches not flattened",
            "each patch is still a square; flatten its two axes.",
            lambda images, patch_size: right_patches(images, patch_size).unflatten(-1, (patch_size, patch_size)),
        ),
        Mistake(
            "a column for each patch",
            "each patch is a column of your result; it should be a row.",
            lambda images, patch_size: right_patches(images, patch_size).mT,
        ),
    ],
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


mended_patches = Exercise(
    "mended_patches",
    chapter=14,
    given="nothing mended",
    title="mend the patches of coloured pictures",
    reference=_colour_patches,
    cases=_coloured,
    verified="four batches of pictures with several channels, not square: a patch holds all channels of one square.",
    points=2,
    mistakes=[
        Mistake(
            "nothing mended",
            "the axes are (B, channels, rows, columns, patch_size, patch_size), and the reshape reads them in this "
            "order: a patch now holds one channel of several squares. The axis of the channels must stand behind those "
            "of rows and columns.",
            lambda images, patch_size: _cut(images, patch_size).reshape(
                len(images), -1, images.shape[1] * patch_size**2
            ),
        ),
        Mistake(
            "channels behind rows only",
            "the channels must stand behind the rows AND the columns of patches.",
            lambda images, patch_size: (
                _cut(images, patch_size).transpose(1, 2).reshape(len(images), -1, images.shape[1] * patch_size**2)
            ),
        ),
        Mistake(
            "channels last",
            "each patch holds the right numbers, but the channels of one pixel stand together. The text asks for one "
            "channel after the other.",
            lambda images, patch_size: _cut(images, patch_size).permute(0, 2, 3, 4, 5, 1).flatten(3).flatten(1, 2),
        ),
        Mistake(
            "column by column",
            "the patches are in the order of columns: the second one should be to the right of the first.",
            lambda images, patch_size: _cut(images, patch_size).permute(0, 3, 2, 1, 4, 5).flatten(3).flatten(1, 2),
        ),
        Mistake(
            "straight reshape",
            "you reshaped the picture straight: a `patch` is now a piece of some rows.",
            lambda images, patch_size: images.reshape(len(images), -1, images.shape[1] * patch_size**2),
        ),
        Mistake(
            "patches transposed",
            "the patches are in the right order, but each is transposed: pixels column by column.",
            lambda images, patch_size: _cut(images, patch_size).permute(0, 2, 3, 1, 5, 4).flatten(3).flatten(1, 2),
        ),
    ],
)
