"""The book's one drawing of multi-head attention, the same on every page, with the part lit that the page is about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation
from numpy.typing import NDArray

from . import style
from ._arrays import Array, real_array
from ._validate import as_list, require_at_most, require_count, require_flag
from .attention import MultiHeadAttention, kind_of
from .variants import SparseAttention

__all__ = ["PARTS", "changed_steps", "comes_with", "layer_drawing"]

PARTS = ("project", "split", "scores", "mask", "softmax", "average", "merge", "output")
"""The parts that can be lit, in the order in which `MultiHeadAttention` computes them."""
NUM_HEADS = 4
STEPS = {  # part: what is beside it, its sizes, and its height in the drawing
    "project": ("three matrices make\nqueries, keys, values", "(N, D)", 1.55),
    "split": ("cut into heads", "(h, N, d)", 2.75),
    "scores": ("scores: query · key / √d", "(h, N, N)", 4.75),
    "mask": ("mask: hide some words", "(h, N, N)", 4.75),
    "softmax": ("softmax: rows sum to 1", "(h, N, N)", 4.75),
    "average": ("weights times values", "(h, N, d)", 6.2),
    "merge": ("side by side again", "(N, D)", 7.15),
    "output": ("a last matrix mixes\nthe heads", "(N, D)", 8.15),
}
HEIGHTS = sorted({height for *_, height in STEPS.values()})
COMES = {part: 1 + HEIGHTS.index(height) for part, (*_, height) in STEPS.items()}
"""At which step of the growing drawing a part is there."""
STEPS_OF = {  # step of the pass: the part of the drawing in which it is
    "project": "project",
    "project_with_cache": "project",
    "score": "scores",
    "added": "scores",
    "mix_scores": "scores",
    "softmax": "softmax",
    "mix_weights": "softmax",
    "average": "average",
    "gate": "average",
    "merge": "merge",
}
PALE = 0.22
LEFT, RIGHT = 0.0, 6.0
"""Where the drawing begins and ends; the words are right of it."""
CUT, MAP, HEAD = 3.0, (4.15, 5.35), (5.95, 6.45)
"""Heights: of the upper edge of what is cut into heads, of the maps, and of what the heads bring back."""
STEP, SIDE, PAST = 1.55, 1.1, 0.14
"""How far a head is from the next, how wide its map is, and how far right of it its values go by."""


def layer_drawing(
    lit: str | Sequence[str] = PARTS,
    *,
    maps: Array | None = None,
    sizes: bool = False,
    head: int | None = None,
    in_steps: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw a layer of four heads, from its words at the bottom to its output at the top.

    What is not lit is pale, and has no words beside it. Queries, keys, values and heads have the book's colours.

    Args:
        lit: a part of `PARTS`, or several.
        maps: (4, N, N) weights of the four heads, drawn where the heads are; `None` draws four empty squares.
        sizes: write the shapes, (N, D) and so on, beside the words.
        head: the one head that is lit and has ways that lead to it; `None` is all four.
        in_steps: name what is drawn "from-1" to "from-6", by the step with which it comes: then the book's pages can
            let the drawing grow.
        ax: where to draw; `None` makes a figure.

    Returns:
        The Axes, whose x goes from 0 to 6 in the drawing and beyond it in the words.

    Raises:
        TypeError, ValueError: `lit` names something else, or `maps` is not of this shape.
    """
    parts = (lit,) if isinstance(lit, str) else tuple(as_list("lit", lit))
    if unknown := [part for part in parts if part not in PARTS]:
        raise ValueError(f"lit={unknown[0]!r} is no part of the layer: there are {', '.join(PARTS)}")
    require_flag("sizes", sizes)
    require_flag("in_steps", in_steps)
    if head is not None:
        require_count("head", head, 0)
        require_at_most("head", head, NUM_HEADS - 1)
    heads = range(NUM_HEADS) if head is None else (head,)
    weights = None if maps is None else real_array("maps", maps, rank=3)
    if weights is not None and (len(weights) != NUM_HEADS or weights.shape[1] != weights.shape[2]):
        raise ValueError(f"maps has the shape {tuple(weights.shape)}: ({NUM_HEADS}, N, N) is wanted")
    if ax is None:
        ax = plt.subplots(figsize=(style.WIDEST, 5.3), layout="constrained")[1]
    given = {id(artist) for artist in _artists(ax)}
    _inputs(ax, parts)
    _heads(ax, parts, weights, heads)
    _outputs(ax, parts)
    _words(ax, parts, sizes)
    if not in_steps:
        for artist in _artists(ax):
            if id(artist) not in given:
                artist.set_gid(None)
    ax.set(xlim=(-0.1, 10.4), ylim=(-0.25, 8.75))
    ax.set_axis_off()
    return ax


def changed_steps(choice: str | Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The steps in which a kind of attention differs from multi-head attention, by the part of the drawing that they
    are in.

    They are read off the class: methods that it replaces; `num_kv_heads`, where heads share keys; `pattern`, where a
    kind has a mask of its own; `forward`, where a state stands in for all between projections and merge.

    Args:
        choice: a name in `mhalib.attention.KINDS`, or a mapping with that "name" and settings, as in `make_attention`.

    Returns:
        By part of `PARTS`, in their order, the names of the steps. A part without a name belongs to the one before it.

    Raises:
        TypeError, ValueError: there is no such kind.

    >>> changed_steps("talking")
    {'scores': ('mix_scores',), 'softmax': ('mix_weights',)}
    """
    kind, plain = kind_of(choice), MultiHeadAttention
    found: dict[str, tuple[str, ...]] = {}
    for step, part in STEPS_OF.items():
        if getattr(kind, step) is not getattr(plain, step):
            found[part] = (*found.get(part, ()), step)
    if isinstance(choice, Mapping) and choice.get("num_kv_heads") is not None:
        found["project"] = (*found.get("project", ()), "num_kv_heads")
    if issubclass(kind, SparseAttention):
        found["mask"] = ("pattern",)
    if kind.keeps_state:
        found |= {"scores": ("forward",), "mask": (), "softmax": (), "average": found.get("average", ())}
    return {part: found[part] for part in PARTS if part in found}


@contextmanager
def comes_with(ax: Axes, step: int) -> Iterator[None]:
    """Of a drawing that comes about step by step: what is drawn within comes with this step, arrows too.

    Each artist gets the name "from-3", say, by which the book's pages cut the figure into its steps.

    Args:
        ax: where it is drawn.
        step: from 1 on.

    Raises:
        TypeError, ValueError: `step` is no number of a step.

    >>> figure, ax = plt.subplots()
    >>> with comes_with(ax, 2):
    ...     arrow = ax.annotate("", (0, 0), (1, 1), arrowprops={})
    >>> arrow.get_gid(), arrow.arrow_patch.get_gid(), ax.patch.get_gid()
    ('from-2', 'from-2', None)
    """
    require_count("step", step)
    before = {id(one) for one in _artists(ax)}
    yield
    for one in _artists(ax):
        if id(one) not in before:
            one.set_gid(f"from-{step}")


def _artists(ax: Axes) -> list[Any]:
    """What is drawn in the Axes, arrows one by one."""
    every: list[Any] = ax.get_children()
    return [*every, *(one.arrow_patch for one in every if isinstance(one, Annotation) and one.arrow_patch)]


def _box(ax: Axes, corner: tuple[float, float], size: tuple[float, float], colour: str, *, is_lit: bool) -> None:
    """A box in a colour, pale where it is not lit."""
    ax.add_patch(
        Rectangle(corner, *size, facecolor=colour, edgecolor=style.PAPER, lw=0.8, alpha=1.0 if is_lit else PALE)
    )


def _stripes(ax: Axes, corner: tuple[float, float], size: tuple[float, float], *, is_lit: bool) -> None:
    """A box cut into the colours of the heads."""
    for head in range(NUM_HEADS):
        left = corner[0] + head * size[0] / NUM_HEADS
        _box(ax, (left, corner[1]), (size[0] / NUM_HEADS, size[1]), style.head_colour(head), is_lit=is_lit)


def _edge(head: int, *, is_lit: bool) -> dict[str, Any]:
    """The edge of a box that belongs to a head."""
    return {"edgecolor": style.head_colour(head), "lw": 2.0} if is_lit else {"edgecolor": style.LINE, "lw": 1.0}


def _letter(ax: Axes, x: float, y: float, text: str, *, is_lit: bool) -> None:
    """Letters on a box: paper on a lit one, ink on a pale one; a formula's are larger, for its index's sake."""
    size = 13 if text.startswith("$") else 10
    ax.text(x, y, text, ha="center", va="center", color=style.PAPER if is_lit else style.INK, size=size)


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float], *, is_lit: bool) -> None:
    colour = style.INK if is_lit else style.FRAME
    ax.annotate(
        "", end, start, arrowprops={"arrowstyle": "-|>", "lw": 1.0, "color": colour, "shrinkA": 0, "shrinkB": 0}
    )


def _inputs(ax: Axes, parts: Sequence[str]) -> None:
    """The words, the three matrices, and the cut into heads."""
    is_lit = "project" in parts
    _box(ax, (LEFT, 0.0), (RIGHT, 0.45), style.INK, is_lit=is_lit)
    _letter(ax, RIGHT / 2, 0.22, "words, as lists of numbers", is_lit=is_lit)
    for index, (name, colour) in enumerate(zip("qkv", (style.QUERY, style.KEY, style.VALUE), strict=True)):
        left = LEFT + 2.1 * index
        with comes_with(ax, COMES["project"]):
            _arrow(ax, (left + 0.9, 0.5), (left + 0.9, 1.1), is_lit=is_lit)
            _box(ax, (left, 1.15), (1.8, 0.8), colour, is_lit=is_lit)
            _letter(ax, left + 0.9, 1.55, f"$W_{name}$", is_lit=is_lit)
        with comes_with(ax, COMES["split"]):
            _arrow(ax, (left + 0.9, 2.0), (left + 0.9, 2.45), is_lit="split" in parts)
            _stripes(ax, (left, 2.5), (1.8, 0.5), is_lit="split" in parts)


def _heads(ax: Axes, parts: Sequence[str], weights: NDArray[np.float64] | None, followed: Sequence[int]) -> None:
    """The four heads: a map of weights each, made from its queries and keys, and what it brings back of its values."""
    for head in range(NUM_HEADS):
        with comes_with(ax, COMES["scores"]):
            _map(ax, parts, None if weights is None else weights[head], head, is_followed=head in followed)
        with comes_with(ax, COMES["average"]):
            _average(ax, parts, head, is_followed=head in followed)


def _map(ax: Axes, parts: Sequence[str], weights: NDArray[np.float64] | None, head: int, *, is_followed: bool) -> None:
    """A head's map, and the ways from its queries and keys."""
    is_lit = is_followed and bool({"scores", "mask", "softmax"} & set(parts))
    left, (low, high) = LEFT + STEP * head, MAP
    if is_followed:
        for index, target in enumerate((left + SIDE * 0.3, left + SIDE * 0.7)):
            _way(ax, head, [(_cut_x(index, head), CUT + 0.04), (target, low - 0.04)], is_lit=is_lit)
    if weights is not None:
        extent = (left, left + SIDE, low, high)
        ax.imshow(weights, cmap=style.head_map(head), vmin=0, vmax=1, extent=extent, aspect="auto", zorder=1)
    ax.add_patch(Rectangle((left, low), SIDE, high - low, fill=False, zorder=2, **_edge(head, is_lit=is_lit)))


def _average(ax: Axes, parts: Sequence[str], head: int, *, is_followed: bool) -> None:
    """What a head brings back, and the ways from its map and its values."""
    is_lit = is_followed and "average" in parts
    left, (low, high), (foot, top) = LEFT + STEP * head, MAP, HEAD
    if is_followed:
        past = left + SIDE + PAST
        _way(ax, head, [(_cut_x(2, head), CUT + 0.04), (past, low - 0.1), (past, foot - 0.04)], is_lit=is_lit)
    _way(ax, head, [(left + SIDE / 2, high + 0.04), (left + SIDE / 2, foot - 0.04)], is_lit=is_lit)
    tint = style.TINTS[head] if is_lit else style.PAPER
    ax.add_patch(Rectangle((left, foot), STEP - 0.2, top - foot, facecolor=tint, **_edge(head, is_lit=is_lit)))
    middle = left + (STEP - 0.2) / 2
    ax.text(middle, (foot + top) / 2 - 0.02, f"head {head}", ha="center", va="center", color=style.INK, size=10)


def _cut_x(index: int, head: int) -> float:
    """Where a head's queries (0), keys (1) or values (2) are."""
    return LEFT + 2.1 * index + 1.8 * (head + 0.5) / NUM_HEADS


def _way(ax: Axes, head: int, points: Sequence[tuple[float, float]], *, is_lit: bool) -> None:
    """A line in the head's colour with an arrow at its end, pale where it is not lit."""
    colour = style.head_colour(head)
    alpha = 1.0 if is_lit else PALE
    if len(points) > 2:
        ax.plot(*zip(*points[:-1], strict=True), color=colour, lw=1.1, alpha=alpha, solid_capstyle="round")
    arrow = {"arrowstyle": "-|>", "lw": 1.1, "color": colour, "alpha": alpha, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", points[-1], points[-2], arrowprops=arrow)


def _outputs(ax: Axes, parts: Sequence[str]) -> None:
    """What the heads brought back, side by side, and the last matrix."""
    with comes_with(ax, COMES["merge"]):
        for head in range(NUM_HEADS):
            end = LEFT + RIGHT * (2 * head + 1) / (2 * NUM_HEADS)
            _arrow(ax, (LEFT + STEP * head + 0.67, HEAD[1] + 0.05), (end, 6.85), is_lit="merge" in parts)
        _stripes(ax, (LEFT, 6.9), (RIGHT, 0.5), is_lit="merge" in parts)
    with comes_with(ax, COMES["output"]):
        _arrow(ax, (RIGHT / 2, 7.45), (RIGHT / 2, 7.75), is_lit="output" in parts)
        _box(ax, (LEFT + 1.5, 7.8), (3.0, 0.7), style.INK, is_lit="output" in parts)
        _letter(ax, RIGHT / 2, 8.15, "$W_o$", is_lit="output" in parts)


def _words(ax: Axes, parts: Sequence[str], sizes: bool) -> None:
    """What the lit parts do, beside them; parts at the same height share their lines."""
    beside: dict[float, list[str]] = {}
    for part in PARTS:
        if part in parts:
            beside.setdefault(STEPS[part][2], []).append(part)
    for height, together in beside.items():
        lines = [STEPS[part][0] for part in together]
        if sizes:
            lines.append(STEPS[together[0]][1])
        with comes_with(ax, COMES[together[0]]):
            ax.text(RIGHT + 0.35, height, "\n".join(lines), va="center", ha="left", size=10)
