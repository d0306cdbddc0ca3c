"""Questions that `make look` asks of pixels: arrays of shape (height, width, 3), from 0 to 255."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw

from mhalib import _colours

Picture = np.ndarray
"""(height, width, 3), uint8."""
ALIKE = 12  # of 255: what a browser's rounding may differ by
TILE = 16  # pixels: a picture is empty or not by tiles of this size


def luminance(colours: np.ndarray) -> np.ndarray:
    """(..., 3) -> (...): the relative luminance of WCAG, from 0 for black to 1 for white."""
    return _colours.luminance(_colours.light_of(np.asarray(colours, dtype=float) / 255))


def contrast(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The contrast of WCAG between colours, from 1 to 21."""
    bright, dark = luminance(one), luminance(other)
    return (np.maximum(bright, dark) + 0.05) / (np.minimum(bright, dark) + 0.05)


def border(picture: Picture, width: int = 3) -> np.ndarray:
    """(n, 3): the pixels along the four edges."""
    inner = picture[width:-width]
    parts = (picture[:width], picture[-width:], inner[:, :width], inner[:, -width:])
    return np.concatenate([part.reshape(-1, 3) for part in parts])


def ground(picture: Picture) -> np.ndarray:
    """(3,): the most frequent colour along the edges."""
    colours, counts = np.unique(border(picture), axis=0, return_counts=True)
    return colours[counts.argmax()]


def empty_share(picture: Picture) -> float:
    """How much of the picture its largest rectangle takes that shows nothing but the ground."""
    rows, columns = (size // TILE for size in picture.shape[:2])
    if not rows or not columns:
        return 0.0
    differs = np.abs(picture[: rows * TILE, : columns * TILE].astype(int) - ground(picture)).max(axis=-1) > ALIKE
    empty = ~differs.reshape(rows, TILE, columns, TILE).any(axis=(1, 3))
    return largest_rectangle(empty) / empty.size


def largest_rectangle(cells: np.ndarray) -> int:
    """The size of the largest rectangle of true cells in a matrix of truths."""
    largest = 0
    heights = np.zeros(cells.shape[1], dtype=int)
    for row in cells:
        heights = (heights + 1) * row
        for height in np.unique(heights[heights > 0]):
            run = longest_run(heights >= height)
            largest = max(largest, int(height) * run)
    return largest


def longest_run(truths: np.ndarray) -> int:
    """How many true values come after one another at most."""
    ends = np.flatnonzero(np.diff(np.concatenate([[0], truths.astype(int), [0]])))
    return int((ends[1::2] - ends[::2]).max(initial=0))


def within(corners: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """(height, width): which pixels lie in the polygon with these corners, each x and y."""
    mask = Image.new("1", (shape[1], shape[0]))
    ImageDraw.Draw(mask).polygon([(float(x), float(y)) for x, y in corners], fill=1)
    return np.array(mask)


def lettering_contrast(with_words: Picture, without: Picture, corners: np.ndarray) -> float:
    """How well words stand out from a tenth of what lies behind them, the worst tenth.

    The colour of the words is that of the pixels in their box that change most when the words are hidden.
    """
    inside = within(corners, with_words.shape)
    shown, behind = with_words[inside], without[inside]
    if not len(shown):
        return 1.0
    change = np.abs(shown.astype(int) - behind).sum(axis=-1)
    if change.max() <= ALIKE:
        return 1.0
    ink = np.median(shown[change >= 0.8 * change.max()], axis=0)
    return float(np.quantile(contrast(ink, behind), 0.1))


def padded(picture: Picture, height: int, width: int) -> Picture:
    """The picture at the upper left of a larger one that is grey."""
    large = np.full((height, width, 3), 128, dtype=np.uint8)
    large[: picture.shape[0], : picture.shape[1]] = picture
    return large


def difference(before: Picture, now: Picture) -> tuple[float, Picture]:
    """The share of pixels that differ, and today's picture, pale, with what differs in red."""
    height, width = (max(one, other) for one, other in zip(before.shape[:2], now.shape[:2], strict=True))
    one, other = padded(before, height, width), padded(now, height, width)
    differs = np.abs(one.astype(int) - other).max(axis=-1) > ALIKE
    drawn = (255 - (255 - other) // 4).astype(np.uint8)
    drawn[differs] = (210, 0, 40)
    return float(differs.mean()), drawn
