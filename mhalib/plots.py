"""Pictures of attention weights. Rows are queries, columns are keys; every function returns Axes and shows nothing.

A weight of 0 is paper, and 1 is dark, in even steps of lightness, so it reads in grey and with every kind of colour
vision; the colour says which head it is. Cells that a mask hides are hatched: hidden is not the same as a weight of 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
import torch
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, ListedColormap, Normalize
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from . import style
from ._arrays import Array, Mask, real_array, require_length, seen_cells, whole_numbers
from ._labels import clean_labels, columns, heading, set_fonts, words
from ._validate import (
    LARGEST,
    as_list,
    require_count,
    require_flag,
    require_kind,
    require_number,
    require_positive,
    require_text,
)
from .measures import HeadCard

COLOUR_MAP = "weights"
"""From paper, 0, to dark: matplotlib's name of the colours of weights, which `mhalib.style` gives it."""
DPI = 100
"""Dots per inch of the figures that the functions here open."""
_GAP = 0.15
"""Inches between two heads side by side."""
HIDDEN_STYLE: dict[str, Any] = {"facecolor": style.HIDDEN, "hatch": "////", "edgecolor": style.HATCH, "linewidth": 0.0}
"""How a cell is drawn that the mask hides."""
MARK_STYLE: dict[str, Any] = {"fill": False, "edgecolor": "#d1495b", "linewidth": 2.5}
"""How a cell or a row is framed that a plot points out."""
OWNER_COLOURS = style.TINTS
"""One colour for each head that owns a number, a tint of the head's own; black can be read on all of them."""


def head_heatmap(
    weights: Array,
    *,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    mask: Mask | None = None,
    vmax: float = 1.0,
    title: str | None = None,
    colorbar: bool = True,
    annotate: bool = False,
    head: int | None = None,
    colours: str = COLOUR_MAP,
    ax: Axes | None = None,
) -> Axes:
    """Draw one head as a seaborn heatmap.

    Args:
        weights: (Q, K).
        queries, keys: names of rows and columns; `None` numbers them. Equal names need not be unique.
        mask: boolean (Q, K), `True` = may attend; the other cells are hatched.
        vmax: the weight that is drawn darkest; 0 is drawn lightest.
        title: goes above the picture.
        colorbar: draw the scale beside it.
        annotate: write each weight into its cell, with two digits.
        head: which head it is, for its colour; `None` takes `colours`.
        colours: matplotlib's name of a colour map, as in `score_grid`.
        ax: where to draw; `None` makes a figure.

    Raises:
        TypeError, ValueError: an argument has the wrong type, rank or length, `vmax` is not positive, or no colour map
            has this name.
    """
    table = real_array("weights", weights, rank=2)
    queries = clean_labels("queries", queries, table.shape[0])
    keys = clean_labels("keys", keys, table.shape[1])
    seen = seen_cells(mask, table.shape)
    require_positive("vmax", vmax)
    title = heading(title)
    require_flag("colorbar", colorbar)
    require_flag("annotate", annotate)
    palette = _palette(colours) if head is None else style.head_map(head)
    if ax is None:
        beside = (1.3 if colorbar else 0.5) + _label_length(queries)
        cell = min(0.36, (style.WIDEST - beside) / table.shape[1])
        size = (beside + cell * table.shape[1], 0.8 + cell * table.shape[0] + _label_length(keys))
        ax = plt.subplots(figsize=size, dpi=DPI, layout="constrained")[1]
    _hatch(ax, seen)
    sns.heatmap(
        table,
        mask=~seen,
        vmin=0.0,
        vmax=vmax,
        cmap=palette,
        square=True,
        linewidths=0.5,
        linecolor="white",
        annot=annotate,
        fmt=".2f",
        cbar=colorbar,
        cbar_kws={"label": "attention weight", "shrink": 0.8},
        xticklabels=False,
        yticklabels=False,
        ax=ax,
    )
    for text in ax.texts:  # seaborn writes in white on shades that are too pale for it
        text.set_color(style.letters_on(palette(float(text.get_text()) / vmax)))
        text.set_text(_written(text.get_text(), table.shape[1]))
    for spine in ax.spines.values():  # where weights of 0 end, since they are paper
        spine.set(visible=True, edgecolor=style.FRAME, linewidth=0.8)
    ax.set_xticks(np.arange(len(keys)) + 0.5, keys, rotation=0 if max(map(len, keys)) < 3 else 90)
    ax.set_yticks(np.arange(len(queries)) + 0.5, queries, rotation=0)
    set_fonts([*ax.get_xticklabels(), *ax.get_yticklabels()])
    ax.set(xlabel="key", ylabel="query", title=title)
    return ax


def head_heatmaps(
    weights: Array,
    *,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    mask: Mask | None = None,
    titles: Sequence[str] | None = None,
    vmax: float = 1.0,
    ncols: int | None = None,
    ax: Sequence[Axes] | NDArray[np.object_] | None = None,
) -> list[Axes]:
    """Draw every head with `head_heatmap` in its own colour, all on one scale, which one grey bar states.

    Seaborn redraws the whole figure for each head; for more than a dozen use `head_wall`.

    Args:
        weights: (h, Q, K), one example.
        queries, keys, vmax: as in `head_heatmap`.
        mask: boolean, `True` = may attend, broadcastable to (h, Q, K).
        titles: one for each head; `None` numbers them from 0.
        ncols: heads in one row of the figure; `None` chooses.
        ax: one Axes for each head, in a sequence or a grid; `None` makes a figure.

    Returns:
        The h Axes, in the order of the heads.

    Raises:
        TypeError, ValueError: as in `head_heatmap`.
    """
    table = real_array("weights", weights, rank=3)
    num_heads, num_queries, num_kvpairs = table.shape
    query_space = _label_length(clean_labels("queries", queries, num_queries))  # an error comes before a figure is made
    key_space = _label_length(clean_labels("keys", keys, num_kvpairs))
    seen = seen_cells(mask, table.shape)
    require_positive("vmax", vmax)
    titles = [f"head {i}" for i in range(num_heads)] if titles is None else as_list("titles", titles)
    require_length("titles", titles, num_heads)
    titles = [words("each title", each) for each in titles]
    if ax is None:
        side_by_side, cell = _columns(num_heads, ncols, num_kvpairs, style.WIDEST - query_space - 0.3)
        panel = cell * num_kvpairs + _GAP, cell * num_queries + 0.45 + key_space
        axes = _grid(num_heads, side_by_side, panel, query_space + 0.3)
    else:
        side_by_side = num_heads
        axes = list(ax.flat) if isinstance(ax, np.ndarray) else as_list("ax", ax)
    for each in axes:
        require_kind("each of ax", each, Axes)
    require_length("ax", axes, num_heads)
    for i, one in enumerate(axes):
        head_heatmap(
            table[i],
            queries=queries,
            keys=keys,
            mask=seen[i],
            vmax=vmax,
            title=titles[i],
            colorbar=False,
            head=i,
            ax=one,
        )
        place = one.get_subplotspec()
        if ax is None and place is not None and not place.is_first_col():
            one.set(ylabel="", yticks=[])
        if ax is None and i + side_by_side < num_heads:  # another head below it
            one.set(xlabel="")
    _shared_colorbar(axes, vmax)
    return axes


def head_wall(
    weights: Array,
    *,
    vmax: float = 1.0,
    titles: bool = True,
    title: str | None = None,
    marked: Sequence[tuple[int, int]] = (),
    ax: Axes | None = None,
) -> Axes:
    """Draw many heads at once as one picture, each in its own colour: layers from top to bottom, heads from left to
    right, no token names.

    One call to `imshow` for all of them: 72 heads take less time than four seaborn heatmaps.

    Args:
        weights: (layers, h, Q, K), or (h, Q, K) for one layer; one example.
        vmax: the weight that is drawn darkest.
        titles: number the heads along the bottom and the layers along the left.
        title: goes above the picture.
        marked: (layer, head) of the heads that get a frame.
        ax: where to draw; `None` makes a figure.

    Raises:
        TypeError, ValueError: an argument has the wrong type or rank, `vmax` is not positive, or a marked head is not
            there.
    """
    table = real_array("weights", weights, rank=(3, 4))
    require_positive("vmax", vmax)
    layers = table[None] if table.ndim == 3 else table
    num_layers, num_heads, num_queries, num_kvpairs = layers.shape
    require_flag("titles", titles)
    title = heading(title)
    for pair in as_list("marked", marked):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"marked must hold pairs (layer, head), got {pair!r:.80}")
        for number in pair:
            require_count("each number in marked", number, minimum=-LARGEST)
    for layer, head in marked:
        if not (0 <= layer < num_layers and 0 <= head < num_heads):
            raise ValueError(f"marked holds {(layer, head)}, but there are {num_layers} layers of {num_heads} heads")
    gap = max(1, round(0.08 * max(num_queries, num_kvpairs)))
    spaced = np.pad(layers, ((0, 0), (0, 0), (0, gap), (0, gap)), constant_values=np.nan)
    mosaic = spaced.transpose(0, 2, 1, 3).reshape(num_layers * (num_queries + gap), -1)[:-gap, :-gap]
    if ax is None:
        width = min(style.WIDEST - 1.1, 1.0 + 1.1 * num_heads)
        size = (width + 1.0, 0.8 + width * mosaic.shape[0] / mosaic.shape[1])
        ax = plt.subplots(figsize=size, dpi=DPI, layout="constrained")[1]
    scale = Normalize(0.0, vmax)
    whose = np.arange(mosaic.shape[1]) // (num_kvpairs + gap)  # the head of each column
    coloured = np.concatenate([style.head_map(i)(scale(mosaic[:, whose == i])) for i in range(num_heads)], axis=1)
    ax.imshow(coloured)
    ax.figure.colorbar(ScalarMappable(scale, "ink"), ax=ax, label="attention weight", shrink=0.8, pad=0.02)
    ax.set(xticks=[], yticks=[], title=title, xlabel="head (keys within)", ylabel="layer (queries within)")
    if titles:
        head_centres = np.arange(num_heads) * (num_kvpairs + gap) + (num_kvpairs - 1) / 2
        layer_centres = np.arange(num_layers) * (num_queries + gap) + (num_queries - 1) / 2
        ax.set_xticks(head_centres, [str(i) for i in range(num_heads)])
        ax.set_yticks(layer_centres, [str(i) for i in range(num_layers)])
        ax.tick_params(length=0)
    ax.set_facecolor(style.LINE)  # between the heads: paper is a weight of 0
    for spine in ax.spines.values():
        spine.set_color(style.LINE)
    for layer, head in marked:
        corner = (head * (num_kvpairs + gap) - 0.5, layer * (num_queries + gap) - 0.5)
        ax.add_patch(Rectangle(corner, num_kvpairs, num_queries, clip_on=False, **MARK_STYLE))
    return ax


def score_grid(
    scores: Array,
    *,
    title: str | None = None,
    label: str = "score",
    vmin: float = 0.0,
    vmax: float | None = None,
    annotate: bool = True,
    layers: Sequence[str] | None = None,
    colours: str = COLOUR_MAP,
    ax: Axes | None = None,
) -> Axes:
    """Draw one number for each head of a model: layers from top to bottom, heads from left to right.

    Args:
        scores: (layers, h); NaN for a head without a score, such as one that was removed: its cell is hatched.
        title: goes above the picture.
        label: says what the colours are, beside the scale.
        vmin, vmax: the scores that are drawn lightest and darkest; `None` takes the largest score.
        annotate: write each score into its cell, with two digits.
        layers: names of the rows; `None` numbers them.
        colours: matplotlib's name of a colour map; `"kept"` and `"lost"` are those of what a removed head leaves and
            takes.
        ax: where to draw; `None` makes a figure.

    Raises:
        TypeError, ValueError: an argument has the wrong type, rank or length, no head has a score, `vmin` is not
            below `vmax`, or no colour map has this name.
    """
    table = real_array("scores", scores, rank=2)
    num_layers, num_heads = table.shape
    names = clean_labels("layers", layers, num_layers)
    scored = ~np.isnan(table)
    if not scored.any():
        raise ValueError("scores holds no number")
    title = heading(title)
    label = words("label", label)
    require_flag("annotate", annotate)
    require_number("vmin", vmin)
    vmax = float(table[scored].max()) if vmax is None else vmax
    require_number("vmax", vmax)
    if not vmin < vmax:
        raise ValueError(f"vmin={vmin:g} must be below vmax={vmax:g}")
    palette = _palette(colours)
    if ax is None:
        size = (min(style.WIDEST, 1.8 + 0.52 * num_heads + _label_length(names)), 1.1 + 0.42 * num_layers)
        ax = plt.subplots(figsize=size, dpi=DPI, layout="constrained")[1]
    _hatch(ax, scored)
    image = ax.pcolormesh(table, cmap=palette, vmin=vmin, vmax=vmax, edgecolors="white", linewidth=0.5)
    ax.figure.colorbar(image, ax=ax, label=label, pad=0.02)
    drawn = np.asarray(image.cmap(image.norm(table)))
    for row, column in np.argwhere(scored & annotate):
        colour = style.letters_on(drawn[row, column])
        text = _written(f"{table[row, column]:.2f}", num_heads)
        ax.text(column + 0.5, row + 0.5, text, ha="center", va="center", color=colour)
    ax.set_xticks(np.arange(num_heads) + 0.5, [str(i) for i in range(num_heads)])
    ax.set_yticks(np.arange(num_layers) + 0.5, names, rotation=0)
    set_fonts(ax.get_yticklabels())
    ax.tick_params(length=0)
    ax.set(ylim=(num_layers, 0), xlabel="head", ylabel="layer", title=title)
    return ax


def number_grid(
    numbers: torch.Tensor | NDArray[np.integer],
    owners: torch.Tensor | NDArray[np.integer],
    *,
    title: str | None = None,
    xlabel: str = "",
    ylabel: str = "",
    digits: int = 1,
    ax: Axes | None = None,
) -> Axes:
    """Write each number of a matrix into its cell, on the colour of whoever owns it: to follow numbers by eye.

    Args:
        numbers: integers (R, C).
        owners: integers (R, C), such as the head that a number belongs to; each has one of eight colours.
        title, xlabel, ylabel: as in matplotlib.
        digits: numbers are padded with zeros to this length.
        ax: where to draw; `None` makes a figure.

    Raises:
        TypeError, ValueError: the shapes differ, are not matrices, or an owner is not in 0..7.
    """
    table, colours = whole_numbers("numbers", numbers), whole_numbers("owners", owners)
    if colours.shape != table.shape:
        raise ValueError(f"owners has shape {colours.shape}, but numbers has {table.shape}")
    if colours.min() < 0 or colours.max() >= len(OWNER_COLOURS):
        raise ValueError(f"owners must lie in 0..{len(OWNER_COLOURS) - 1}, got {colours.min()}..{colours.max()}")
    title = heading(title)
    xlabel = words("xlabel", xlabel)
    ylabel = words("ylabel", ylabel)
    require_count("digits", digits)
    num_rows, num_columns = table.shape
    if ax is None:
        size = (min(style.WIDEST, 0.11 * (digits + 2) * num_columns + 0.6), 0.3 * num_rows + 0.9)
        ax = plt.subplots(figsize=size, dpi=DPI, layout="constrained")[1]
    ax.imshow(colours, cmap=ListedColormap(OWNER_COLOURS), vmin=-0.5, vmax=len(OWNER_COLOURS) - 0.5, aspect="auto")
    for row, column in np.ndindex(num_rows, num_columns):
        ax.text(column, row, f"{table[row, column]:0{digits}d}", ha="center", va="center", color=style.ON_PALE)
    ax.set_xticks(np.arange(num_columns + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(num_rows + 1) - 0.5, minor=True)
    ax.grid(which="minor", color=style.ON_DARK, linewidth=1.5)
    ax.tick_params(which="minor", length=0)
    ax.set(xticks=range(num_columns), yticks=range(num_rows), title=title, xlabel=xlabel, ylabel=ylabel)
    return ax


def head_card(card: HeadCard, *, ax: Axes | None = None) -> Axes:
    """Draw a card of heads as a table: a row for each head, a column for each measure, in the card's own numbers.

    A column's shades go from paper, at most 0 or no number, to dark, the column's largest; so shades of two columns are
    not to be compared. Numbers are written where there are at most 32 heads.

    Args:
        card: from `mhalib.measures.head_card`.
        ax: where to draw; `None` makes a figure.

    Raises:
        TypeError, ValueError: it is no card, or one without measures.
    """
    require_kind("card", card, HeadCard)
    if not card.values:
        raise ValueError("card has no measures")
    table = torch.stack(list(card.values.values()), 1).double().cpu()
    shades = (table.nan_to_num() / table.nan_to_num().amax(0).clamp(min=1e-12)).clamp(min=0).numpy()
    num_heads, num_measures = table.shape
    if ax is None:
        size = (min(style.WIDEST, 1.0 + 0.62 * num_measures), 1.3 + 0.24 * min(num_heads, 32))
        ax = plt.subplots(figsize=size, dpi=DPI, layout="constrained")[1]
    palette = _palette(COLOUR_MAP)
    ax.imshow(shades, vmin=0.0, vmax=1.0, cmap=palette, aspect="auto")
    if num_heads <= 32:
        for (row, column), shade in np.ndenumerate(shades):
            number, colour = float(table[row, column]), style.letters_on(palette(float(shade)))
            written = "–" if math.isnan(number) else f"{number:.2f}"
            ax.text(column, row, written, ha="center", va="center", color=colour, size=8)
        ax.set_yticks(range(num_heads), [f"{head.layer}, {head.head}" for head in card.heads])
    else:
        starts = [row for row, head in enumerate(card.heads) if head.head == card.heads[0].head]
        ax.set_yticks(starts, [f"layer {card.heads[row].layer}" for row in starts])
    ax.set_xticks(range(num_measures), list(card.values), rotation=60, ha="left", rotation_mode="anchor")
    ax.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
    ax.set_ylabel("layer, head")
    return ax


def _columns(num_heads: int, ncols: int | None, num_kvpairs: int, width: float) -> tuple[int, float]:
    """How many heads stand side by side on `width` inches, no row nearly empty, and how wide a cell then is."""

    def cell(side_by_side: int) -> float:
        return min(0.30, (width / side_by_side - _GAP) / num_kvpairs)

    if ncols is None:
        fitting = [n for n in range(1, num_heads + 1) if cell(n) >= 0.17]
        at_most = max(fitting, default=1)
        ncols = math.ceil(num_heads / math.ceil(num_heads / at_most))
    require_count("ncols", ncols)
    return ncols, max(0.05, cell(ncols))


def _grid(num_heads: int, ncols: int, panel: tuple[float, float], beside: float) -> list[Axes]:
    """Axes for the heads on a new figure."""
    nrows = math.ceil(num_heads / ncols)
    size = (max(3.9, panel[0] * ncols + beside), panel[1] * nrows + 0.9)  # what the bar says needs 3.9
    figure, grid = plt.subplots(nrows, ncols, figsize=size, dpi=DPI, layout="constrained", squeeze=False)
    for unused in grid.flat[num_heads:]:
        figure.delaxes(unused)
    return list(grid.flat[:num_heads])


def _written(number: str, num_columns: int) -> str:
    """A number as a cell has space for it: among more than eight columns, 0.25 is .25."""
    return re.sub(r"\b0\.", ".", number) if num_columns > 8 else number


def _label_length(labels: list[str]) -> float:
    """Inches that the names of the rows need, or those of the columns, which stand upright."""
    return 0.3 + 0.085 * max(map(columns, labels))


def _shared_colorbar(axes: list[Axes], vmax: float) -> None:
    scale = ScalarMappable(Normalize(0.0, vmax), "ink")
    bar = axes[0].figure.colorbar(scale, ax=axes, location="bottom", shrink=0.8, aspect=30, pad=0.02)
    bar.set_label(f"attention weight, one scale for all heads: 0 to {vmax:g}")


def _palette(colours: str) -> Colormap:
    require_text("colours", colours)
    if colours not in mpl.colormaps:
        raise ValueError(f"colours={colours!r} is no colour map that matplotlib knows")
    return mpl.colormaps[colours]


def _hatch(ax: Axes, seen: NDArray[np.bool_]) -> None:
    """Hatch the hidden cells, neighbours of one row as one piece: an SVG of a causal mask is then ten times as short.

    A heatmap's cell (row, column) covers x from column and y from row, one unit each.
    """
    for row, hidden in enumerate(~seen):
        ends = np.flatnonzero(np.diff(hidden, prepend=False, append=False))
        for start, end in ends.reshape(-1, 2).tolist():
            ax.add_patch(Rectangle((start, row), end - start, 1, **HIDDEN_STYLE))
