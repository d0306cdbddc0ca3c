"""The book's drawing of the layer as shapes for an instrument, read off the figure that `layer_drawing` makes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation

from .. import style
from ..drawings import PARTS, RIGHT, STEPS, layer_drawing

WIDTH, HEIGHT = 1040, 875
"""Of the drawing and the words beside it, in hundredths of the figure's units."""
NAMED = {style.INK: "ink", style.PAPER: "", **dict.fromkeys(style.TINTS, "")}


@cache
def drawn_layer() -> dict[str, Any]:
    """What an instrument needs to draw the layer.

    Returns:
        `size`; `beside`, by part the place of the words beside it; `paths`, each with the parts that light it, what is
        drawn, and the colours that fill it and line it, "ink" or "" for none; and `letters`, each with the parts that
        light what is behind it, what is written, and its middle.
    """
    pale, *lit = (_shapes(parts) for parts in ((), *((part,) for part in PARTS)))
    drawn: dict[str, list[Any]] = {"paths": [], "letters": []}
    for kind, shapes in pale.items():
        for index, (told, look) in enumerate(shapes):
            looks = [each[kind][index][1] for each in lit]
            parts = [part for part, one in zip(PARTS, looks, strict=True) if one != look]
            strong = next((one for one in looks if one != look), look)
            colours = [NAMED.get(one, one) for one in strong[:2]] if kind == "paths" else []
            drawn[kind].append([parts, *told, *colours])
    beside = {part: [_x(RIGHT + 0.35), _y(STEPS[part][2])] for part in PARTS}
    return {"size": [WIDTH, HEIGHT], "beside": beside, **drawn}


Shapes = list[tuple[list[Any], tuple[Any, ...]]]


def _shapes(parts: Sequence[str]) -> dict[str, Shapes]:
    """Each shape of the figure with these parts lit: what it is, and its look, of a path two colours first."""
    ax = layer_drawing(parts, ax=Figure().subplots())
    return {"paths": [*_boxes(ax), *_ways(ax)], "letters": _letters(ax)}


def _boxes(ax: Axes) -> Shapes:
    found: Shapes = []
    for box in ax.patches:
        assert isinstance(box, Rectangle)
        (x, y), width, height = box.get_xy(), box.get_width(), box.get_height()
        fill = to_hex(box.get_facecolor()) if box.get_fill() else ""
        path = f"M{_x(x)},{_y(y)}h{_x(width)}v{_x(-height)}h{_x(-width)}z"
        found.append(([path], (fill, to_hex(box.get_edgecolor()), box.get_alpha())))
    return found


def _ways(ax: Axes) -> Shapes:
    """Lines, and arrows with a point of their own."""
    found: Shapes = []
    for line in ax.lines:
        path = "M" + "L".join(f"{_x(x)},{_y(y)}" for x, y in np.asarray(line.get_xydata()).tolist())
        found.append(([path], ("", to_hex(line.get_color()), line.get_alpha())))
    for text in ax.texts:
        if isinstance(text, Annotation) and text.arrow_patch is not None:
            (x, y), (left, foot) = text.xy, text.xyann
            path = f"M{_x(left)},{_y(foot)}L{_x(x)},{_y(y)}m-7,11l7,-11l7,11"
            found.append(([path], ("", to_hex(text.arrow_patch.get_edgecolor()), text.arrow_patch.get_alpha())))
    return found


def _letters(ax: Axes) -> Shapes:
    """What is written in the drawing; the words beside it are the instrument's."""
    found: Shapes = []
    for text in ax.texts:
        (x, y), said = text.get_position(), text.get_text().translate(str.maketrans("", "", "$_"))
        if said and x <= RIGHT:
            found.append(([said, _x(x), _y(y)], (to_hex(str(text.get_color())),)))
    return found


def _x(x: float) -> int:
    return round(100 * x)


def _y(y: float) -> int:
    return round(HEIGHT - 100 * y - 20)
