"""Attention drawn on the picture that is attended to."""

from __future__ import annotations

import math

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb

from . import style
from ._arrays import Array, real_array
from ._labels import heading
from ._validate import require_positive

VEIL = "#007d8c"  # no head's colour, and no grey
"""The veil of weights that are no head's, such as a mean: told from every grey by all kinds of colour vision."""


def attention_on_picture(
    image: Array,
    weights: Array,
    *,
    vmax: float = 1.0,
    title: str | None = None,
    head: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a picture in grey, and on each of its patches a veil: the more weight, the denser.

    Args:
        image: (height, width), 0 is paper and 1 is ink.
        weights: (N,) one for each square patch, row by row from the top left, as `mhalib.models.patches` has them.
        vmax: the weight whose veil is densest; a weight of 0 has none.
        title: goes above the picture.
        head: which head it is, for the colour of its veil; `None` takes `VEIL`.
        ax: where to draw; `None` makes a figure.

    Raises:
        TypeError, ValueError: a shape or `vmax` is not of this kind, or N squares do not tile the picture.
    """
    picture, share = real_array("image", image, rank=2), real_array("weights", weights, rank=1)
    require_positive("vmax", vmax)
    title = heading(title)
    colour = VEIL if head is None else style.head_colour(head)
    height, width = picture.shape
    side = math.isqrt(height * width // max(len(share), 1))
    if not side or side * side * len(share) != height * width or height % side or width % side:
        raise ValueError(
            f"weights has {len(share)} numbers, but so many squares do not tile a {height} by {width} image"
        )
    if ax is None:
        ax = plt.subplots(figsize=(0.25 * width + 0.4, 0.25 * height + 0.6), layout="constrained")[1]
    ax.imshow(picture, cmap="gray_r", vmin=0.0, vmax=1.6)  # ink stays lighter than black, so that the veil is seen
    veil = np.empty((height // side, width // side, 4))
    veil[..., :3] = to_rgb(colour)
    veil[..., 3] = 0.85 * np.clip(share / vmax, 0.0, 1.0).reshape(veil.shape[:2])
    ax.imshow(veil, extent=(-0.5, width - 0.5, height - 0.5, -0.5), interpolation="none")
    ax.set(xticks=[], yticks=[], title=title)
    return ax
