"""How the figures of this book look: one face, one size of letters, one colour for each head, and zero is paper.

    from mhalib import style

    style.use()  # in a notebook: figures are drawn as SVG, sharp on every screen
    ax.plot(scores, color=style.head_colour(2))
    ax.imshow(weights, cmap=style.head_map(2), vmin=0, vmax=1)
    ax.imshow(scores, cmap="signed", vmin=-2, vmax=2)  # orange is negative, purple positive

The colours have names, so that a page can draw the same figure on a dark ground: tools/pages/figures.py exchanges them.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from cycler import cycler
from matplotlib.backends import backend_svg
from matplotlib.colors import Colormap, ListedColormap, to_hex, to_rgb
from matplotlib.path import Path
from matplotlib.transforms import Affine2D
from numpy.typing import NDArray

from ._colours import EVEN, colours_of, light_of, light_of_lab, luminance
from ._validate import require_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "FRAME",
    "HEADS",
    "INK",
    "KEY",
    "LINE",
    "MUTED",
    "ON_DARK",
    "ON_PALE",
    "PAPER",
    "QUERY",
    "TINTS",
    "VALUE",
    "WIDEST",
    "as_svg",
    "head_colour",
    "head_map",
    "head_stops",
    "stops",
    "use",
]

PAPER = "#ffffff"
"""The ground of a figure, and a weight of 0."""
INK = "#1c2430"
"""Letters, axes and what is to be read."""
MUTED = "#5b6675"
"""What stands behind: a control, chance, a line to compare with."""
LINE, FRAME = "#d5dbe3", "#97a1ae"
"""Lines of a grid, and the frame of a picture."""
ON_PALE, ON_DARK = "#020202", "#fefefe"
"""Letters on a pale and on a dark cell of a heat map. On a dark page they change places, as pale and dark cells do."""
HIDDEN, HATCH = "#eceef1", "#8b95a3"
"""A cell of a heat map that a mask hides, and the lines on it."""
HEADS = ("#1f6fb5", "#b86a00", "#1d8059", "#8a4fa3", "#b8413a", "#0e7c86", "#a8437c", "#6b6a1f")
"""The colours of head 0, head 1, ..., kept through the whole book. Head 8 begins anew."""
TINTS = ("#d3e4f4", "#f3ddbd", "#cde8db", "#e6d7ee", "#f4d5d2", "#cce6e9", "#f0d3e1", "#e3e2c4")
"""The same for a ground with black letters on it."""
QUERY, KEY, VALUE = HEADS[6], HEADS[5], HEADS[7]
"""The colours of queries, keys and values through the whole book: no colour of the first four heads."""
WIDEST = 5.1
"""Inches. A wider figure would be so small on a phone that its letters could not be read."""
HUES = (250.0, 62.0, 160.0, 315.0, 27.0, 205.0, 350.0, 108.0)  # of HEADS, in degrees of OKLCH
MOST = 300_000  # characters of an SVG; a figure of more is stored as a picture of points
SETTINGS: Any = {
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FRAME,
    "xtick.color": FRAME,
    "ytick.color": FRAME,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": LINE,
    "legend.edgecolor": LINE,
    "legend.framealpha": 1.0,
    "axes.prop_cycle": cycler(color=HEADS),
    "axes.titlesize": 11,
    "font.size": 10,
    "legend.fontsize": 10,
    "mathtext.fontset": "stix",  # as the formulas of the pages
    "image.cmap": "weights",
    "image.interpolation": "none",  # an SVG holds one point for each number, and the page enlarges it
    "figure.dpi": 100,
    "figure.constrained_layout.h_pad": 0.08,  # inches: a title is nearer to its own picture than to the one above
    "svg.hashsalt": "mhalib",
}


def head_colour(head: int) -> str:
    """The colour of a head, such as "#1f6fb5".

    Raises:
        TypeError, ValueError: `head` is no whole number from 0 on.
    """
    require_count("head", head, minimum=0)
    return HEADS[head % len(HEADS)]


def head_map(head: int) -> Colormap:
    """The colours of a head's weights: 0 is paper, 1 the darkest shade of the head's colour.

    All heads grow dark at the same rate, so one grey scale beside several of them states the weights of all.

    Raises:
        TypeError, ValueError: as `head_colour`.
    """
    require_count("head", head, minimum=0)
    return mpl.colormaps[f"head {head % len(HEADS)}"]


def letters_on(colour: Any) -> str:
    """Of the two colours for letters on a cell the one that can be read better on this colour, by WCAG's contrast."""
    return ON_PALE if luminance(light_of(to_rgb(colour))) > EVEN else ON_DARK


def stops(name: str, count: int = 33) -> list[str]:
    """`count` colours of a colour map as "#rrggbb", from 0 to 1, for pictures that a page draws itself."""
    return [to_hex(colour) for colour in mpl.colormaps[name](np.linspace(0.0, 1.0, count))]


def head_stops(count: int = 17) -> list[list[str]]:
    """The `stops` of each head's map, head 0 first."""
    return [stops(f"head {head}", count) for head in range(len(HEADS))]


def use() -> None:
    """Draw figures from here on in the book's style and, in a notebook, as SVG."""
    mpl.rcParams.update(SETTINGS)
    try:
        from IPython import get_ipython
    except ImportError:  # a script
        return
    shell = get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return
    import matplotlib.pyplot as plt
    from matplotlib.figure import Figure

    plt.switch_backend(mpl.get_backend())  # loads it: IPython then says how figures are shown, and says it only once
    formats = shell.display_formatter.formatters
    formats["image/svg+xml"].for_type(Figure, _svg_if_small)
    formats["image/png"].for_type(Figure, _png_if_large)


def as_svg(figure: Figure) -> str:
    """A figure as SVG: letters stay letters, formulas become outlines, and nothing in it tells when it was made."""
    shown = figure.canvas
    file = io.StringIO()
    try:
        _Canvas(figure).print_figure(file, format="svg", bbox_inches="tight", pad_inches=0.03)
    finally:
        figure.set_canvas(shown)
    text = file.getvalue()
    text = text[text.index("<svg") :]
    return compact(re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL))


def compact(svg: str) -> str:
    """The same drawing in fewer letters: places to a hundredth of a point, one name of a face in place of fifteen, no
    turns by nothing."""
    svg = re.sub(r'(?<=\s[dxy]=")[^"]*|translate\([^)]*\)', lambda places: _shorter(places[0]), svg)
    svg = re.sub(r"('DejaVu Sans'), [^;\"]*(sans-serif)", r"\1, \2", svg)
    svg = re.sub(r' transform="rotate\(-?0 [^)]*\)"', "", svg)
    return re.sub(r"\n\s*", "\n", svg)


def _shorter(places: str) -> str:
    """An outline, or where something stands, to a hundredth of a point."""
    return re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), places)


def _svg_if_small(figure: Figure) -> str | None:
    text = as_svg(figure) if figure.axes or figure.texts else ""
    return text if 0 < len(text) <= MOST else None


def _png_if_large(figure: Figure) -> bytes | None:
    """Twice as many points as a common screen shows, where an SVG would be too long."""
    if not figure.axes or len(as_svg(figure)) <= MOST:
        return None
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=200, bbox_inches="tight")
    return file.getvalue()


class _Renderer(backend_svg.RendererSVG):
    """Writes letters as letters, in the reader's own face, and formulas as outlines, in theirs."""

    def draw_text(
        self, gc: Any, x: float, y: float, s: str, prop: Any, angle: float, ismath: Any = False, mtext: Any = None
    ) -> None:
        with mpl.rc_context({"svg.fonttype": "path" if ismath else "none"}):
            super().draw_text(gc, x, y, s, prop, angle, ismath, mtext)

    def draw_quad_mesh(
        self,
        gc: Any,
        master_transform: Any,
        meshWidth: int,
        meshHeight: int,
        coordinates: Any,
        offsets: Any,
        offsetTrans: Any,
        facecolors: Any,
        antialiased: Any,
        edgecolors: Any,
    ) -> None:
        """A heat map as a picture of one point for each cell, with lines between them; others as matplotlib does."""
        x, y = coordinates[0, :, 0], coordinates[:, 0, 1]
        even = all(np.allclose(np.diff(ends), ends[1] - ends[0]) for ends in (x, y))
        upright = np.allclose(coordinates[..., 0], x) and np.allclose(coordinates[..., 1].T, y)
        if not (even and upright and len(facecolors) == meshWidth * meshHeight):
            super().draw_quad_mesh(
                gc, master_transform, meshWidth, meshHeight, coordinates, offsets, offsetTrans, facecolors, antialiased,
                edgecolors,
            )  # fmt: skip
            return
        left, low = master_transform.transform((x[0], y[0]))
        right, high = master_transform.transform((x[-1], y[-1]))
        cells = np.round(255 * facecolors.reshape(meshHeight, meshWidth, 4)).astype(np.uint8)
        place = Affine2D().scale(right - left, high - low)
        self.draw_image(gc, left, low, cells, place)
        if len(edgecolors):
            across = [[(start, low), (start, high)] for start in np.linspace(left, right, meshWidth + 1)]
            along = [[(left, start), (right, start)] for start in np.linspace(low, high, meshHeight + 1)]
            ends = np.array([*across, *along]).reshape(-1, 2)
            gc.set_foreground(ON_DARK)
            self.draw_path(gc, Path(ends, [Path.MOVETO, Path.LINETO] * (len(ends) // 2)), Affine2D())


class _Canvas(backend_svg.FigureCanvasSVG):
    def print_svg(self, filename: Any, *, bbox_inches_restore: Any = None, metadata: Any = None, **_: Any) -> None:
        plain = backend_svg.RendererSVG
        setattr(backend_svg, "RendererSVG", _Renderer)  # noqa: B010  (matplotlib has no other way to choose it)
        try:
            super().print_svg(filename, bbox_inches_restore=bbox_inches_restore, metadata=metadata)
        finally:
            setattr(backend_svg, "RendererSVG", plain)  # noqa: B010


def _shades(hue: float, colourful: float) -> Colormap:
    """A map from paper to dark in even steps of lightness, in one hue of OKLCH (Ottosson 2020)."""
    share = np.linspace(0.0, 1.0, 256)
    lightness = 1.0 - 0.62 * share  # the darkest still shows its hue
    chroma = (
        colourful * np.sin(np.pi * np.clip(0.12 * (share > 0) + 0.66 * share, 0.0, 1.0)) * np.minimum(1.0, 6 * share)
    )
    return ListedColormap(_srgb(lightness, chroma, np.radians(hue)))


def _srgb(lightness: NDArray[Any], chroma: NDArray[Any], hue: float) -> NDArray[Any]:
    """Colours (N, 3) from OKLCH; what no screen shows is cut to what it shows."""
    a, b = chroma * np.cos(hue), chroma * np.sin(hue)
    return colours_of(light_of_lab(np.stack([lightness, a, b], -1)))


def _register() -> None:
    if "signed" not in mpl.colormaps:  # -1 is the darkest orange, 0 paper, 1 the darkest purple
        orange, purple = (_shades(hue, 0.13)(np.linspace(0.0, 1.0, 128)) for hue in (62.0, 305.0))
        mpl.colormaps.register(ListedColormap(np.concatenate([orange[:0:-1], purple])), name="signed")
    maps = {f"head {head}": (hue, 0.15) for head, hue in enumerate(HUES)}
    maps |= {"weights": (235.0, 0.09), "kept": (160.0, 0.12), "lost": (27.0, 0.16), "ink": (250.0, 0.01)}
    for name, (hue, colourful) in maps.items():
        if name not in mpl.colormaps:
            mpl.colormaps.register(_shades(hue, colourful), name=name)


_register()
