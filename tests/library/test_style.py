"""The look of figures, asked of what is stored: the text of the SVG, the pixels in it, and what a kernel keeps."""

from __future__ import annotations

import base64
import io
import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import matplotlib as mpl
import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from nbclient import NotebookClient

from mhalib import _colours, head_heatmap, style

SVG = "{http://www.w3.org/2000/svg}"
HREF = "{http://www.w3.org/1999/xlink}href"
MAPS = [f"head {i}" for i in range(8)] + ["weights", "kept", "lost", "ink"]


def drawn(figure):
    """The tree of a figure's SVG."""
    return ET.fromstring(style.as_svg(figure))


def texts(tree):
    return ["".join(text.itertext()) for text in tree.iter(f"{SVG}text")]


def pixels(tree):
    """(rows, columns, 4) of the one picture in an SVG, from 0 to 1."""
    (image,) = tree.iter(f"{SVG}image")
    _, data = image.get(HREF).split("base64,")
    return mpl.image.imread(io.BytesIO(base64.b64decode(data)), format="png")


def linear(colours):
    """Light from sRGB, by the standard IEC 61966-2-1."""
    colours = np.asarray(colours, dtype=float)
    return np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)


def oklab(colours):
    """Björn Ottosson's space forward, from its two published matrices; the module under test goes backward."""
    to_cones = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    to_lab = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    return np.cbrt(linear(colours) @ to_cones.T) @ to_lab.T


def test_oklab_is_the_published_one_and_leads_back():
    colours = np.random.default_rng(0).random((100, 3))
    lab = _colours.lab_of_light(_colours.light_of(colours))
    np.testing.assert_allclose(lab, oklab(colours), atol=1e-6)
    np.testing.assert_allclose(_colours.colours_of(_colours.light_of_lab(lab)), colours, atol=1e-6)


@pytest.mark.parametrize("name", MAPS)
def test_a_weight_of_0_is_paper_and_1_is_dark(name):
    first, last = mpl.colormaps[name](0.0), mpl.colormaps[name](1.0)
    np.testing.assert_allclose(first[:3], to_rgb(style.PAPER), atol=1e-6)
    assert oklab([last[:3]])[0, 0] < 0.4


def test_the_darkest_shades_of_two_heads_can_be_told_apart():
    darkest = oklab([style.head_map(i)(1.0)[:3] for i in range(8)])
    apart = np.linalg.norm(darkest[:, None] - darkest, axis=-1)
    assert apart[~np.eye(8, dtype=bool)].min() > 0.045


def test_zero_is_paper_in_a_signed_map_whose_halves_are_equally_light():
    lightness = oklab(mpl.colormaps["signed"](np.linspace(0, 1, 255))[:, :3])[:, 0]
    assert lightness.argmax() == 127
    np.testing.assert_allclose(mpl.colormaps["signed"](0.5)[:3], to_rgb(style.PAPER), atol=1e-6)
    np.testing.assert_allclose(lightness, lightness[::-1], atol=0.03)


def test_every_map_is_equally_light_at_each_weight_and_grows_dark_in_even_steps():
    share = np.linspace(0, 1, 52)
    lightness = np.array([oklab(mpl.colormaps[name](share)[:, :3])[:, 0] for name in MAPS])
    assert np.ptp(lightness, axis=0).max() < 0.03  # what no screen shows is cut
    steps = -np.diff(lightness, axis=1)
    assert steps.min() > 0.6 * steps.mean()
    assert steps.max() < 1.5 * steps.mean()


def test_heads_have_eight_colours_that_differ_and_each_map_and_tint_is_of_its_head():
    assert len({style.head_colour(i) for i in range(8)}) == 8
    assert [style.head_colour(8 + i) for i in range(8)] == list(style.HEADS)
    for i in range(8):
        hue = {}
        for kind, colour in {
            "line": style.head_colour(i),
            "tint": style.TINTS[i],
            "map": style.head_map(i)(0.5)[:3],
        }.items():
            _, a, b = oklab([to_rgb(colour)])[0]
            hue[kind] = np.degrees(np.arctan2(b, a))
        for one, other in pairwise([*hue.values(), hue["line"]]):
            assert abs((one - other + 180) % 360 - 180) < 20, (i, hue)
        assert style.head_map(i) == style.head_map(8 + i)


@pytest.mark.parametrize("colour", [*style.HEADS, style.INK, style.MUTED])
def test_what_is_drawn_or_written_on_paper_can_be_read(colour):
    light = np.dot([0.2126, 0.7152, 0.0722], linear(to_rgb(colour)))
    assert 1.05 / (light + 0.05) > 4.0


@pytest.mark.parametrize(("head", "error"), [(-1, ValueError), (1.5, TypeError), ("0", TypeError), (True, TypeError)])
@pytest.mark.parametrize("function", [style.head_colour, style.head_map])
def test_what_is_no_head_has_no_colour(function, head, error):
    with pytest.raises(error, match="head"):
        function(head)


def test_stops_are_the_colours_of_the_map():
    stops = style.stops("lost", 3)
    np.testing.assert_allclose(
        [to_rgb(one) for one in stops], mpl.colormaps["lost"]([0.0, 0.5, 1.0])[:, :3], atol=0.002
    )
    assert len(style.stops("head 3")) == 33


def test_the_colours_of_lines_are_those_of_the_heads():
    with mpl.rc_context(style.SETTINGS):
        figure, ax = plt.subplots()
        lines = [ax.plot([0, i])[0].get_color() for i in range(8)]
    assert lines == list(style.HEADS)
    assert figure.number in plt.get_fignums()


def test_one_figure_is_one_text_whenever_it_is_drawn():
    def make():
        ax = head_heatmap(torch.eye(3), title="again")
        ax.plot([0, 1], [0, 1], clip_on=True)
        ax.fill_between([0, 1], [0, 1], hatch="//")
        return style.as_svg(ax.figure)

    with mpl.rc_context(style.SETTINGS):
        first, second = make(), make()
    assert first == second
    assert "<metadata" not in first
    assert "dc:date" not in first


def test_letters_stay_letters_and_a_formula_is_drawn():
    figure, ax = plt.subplots()
    ax.set(title="naïve words", xlabel="$\\sqrt{d}$", xticks=[], yticks=[])
    tree = drawn(figure)
    assert texts(tree) == ["naïve words"]
    uses = [use.get(HREF) for use in tree.iter(f"{SVG}use")]
    assert uses
    there = {path.get("id") for path in tree.iter(f"{SVG}path")}
    assert {use.removeprefix("#") for use in uses} <= there


@pytest.mark.parametrize("shape", [(2, 3), (7, 5), (1, 4)])
def test_a_heat_map_is_one_picture_of_a_point_for_each_cell(shape):
    torch.manual_seed(0)
    weights = torch.rand(shape)
    seen = torch.rand(shape) < 0.7
    ax = head_heatmap(weights, mask=seen, head=2, colorbar=False)
    cells = pixels(drawn(ax.figure))
    assert cells.shape == (*shape, 4)
    expected = style.head_map(2)(weights.numpy())
    np.testing.assert_allclose(cells[seen.numpy()], expected[seen.numpy()], atol=0.5 / 255 + 1e-6)
    assert (cells[~seen.numpy()][:, 3] == 0).all()  # nothing is drawn over the hatched cells


def test_the_picture_is_where_the_cells_are():
    weights = torch.eye(4)
    ax = head_heatmap(weights, colorbar=False)
    ax.figure.canvas.draw()
    (image,) = drawn(ax.figure).iter(f"{SVG}image")
    corners = ax.transData.transform([(0, 0), (4, 4)]) * 72 / ax.figure.dpi
    assert image.get("transform") is not None
    scale = [float(number) for number in re.findall(r"matrix\(([^)]*)\)", image.get("transform"))[0].split()]
    size = float(image.get("width")) * scale[0], float(image.get("height")) * abs(scale[3])
    np.testing.assert_allclose(size, abs(corners[1] - corners[0]), atol=0.5)


def test_cells_of_uneven_size_are_drawn_one_by_one_as_matplotlib_does():
    figure, ax = plt.subplots()
    ax.pcolormesh([0, 1, 3], [0, 1], [[0.2, 0.8]])
    assert not list(drawn(figure).iter(f"{SVG}image"))


def test_drawing_leaves_the_figure_and_matplotlib_as_they_were():
    figure, _ = plt.subplots()
    canvas, renderer = figure.canvas, mpl.backends.backend_svg.RendererSVG
    size = figure.get_size_inches().copy()
    style.as_svg(figure)
    assert figure.canvas is canvas
    assert mpl.backends.backend_svg.RendererSVG is renderer
    assert (figure.get_size_inches() == size).all()


def test_an_error_while_drawing_leaves_them_as_they_were_too():
    figure, ax = plt.subplots()
    canvas, renderer = figure.canvas, mpl.backends.backend_svg.RendererSVG
    ax.set_title("$\\nosuchthing$")
    with pytest.raises(ValueError, match="nosuchthing"):
        style.as_svg(figure)
    assert figure.canvas is canvas
    assert mpl.backends.backend_svg.RendererSVG is renderer


@pytest.mark.parametrize("colour", [*(style.head_map(5)(x)[:3] for x in np.linspace(0, 1, 21)), "#ffffff", "#000000"])
def test_letters_on_a_cell_have_the_better_contrast(colour):
    def contrast(one, other):
        dark, light = sorted(np.dot([0.2126, 0.7152, 0.0722], linear(to_rgb(each))) for each in (one, other))
        return (light + 0.05) / (dark + 0.05)

    assert contrast(style.letters_on(colour), colour) > 4.4


def in_a_kernel(*sources):
    """The outputs of each cell, run by a kernel as a reader's Jupyter runs it."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    return [cell.outputs for cell in notebook.cells]


@pytest.mark.about("mhalib/style.py")
def test_a_notebook_stores_a_figure_as_svg_and_a_heavy_one_as_a_picture():
    _, small, heavy, empty = in_a_kernel(
        "import matplotlib.pyplot as plt\nfrom mhalib import style\nstyle.use()",
        "figure, ax = plt.subplots()\nlines = ax.plot([1, 2])",
        "figure, ax = plt.subplots()\ndots = ax.scatter(range(9000), range(9000))",
        "figure = plt.figure()",
    )
    kinds = [{kind for output in outputs for kind in output.get("data", {})} for outputs in (small, heavy, empty)]
    assert kinds == [{"image/svg+xml", "text/plain"}, {"image/png", "text/plain"}, {"text/plain"}]
    tree = ET.fromstring(small[0]["data"]["image/svg+xml"])
    assert "1.0" in texts(tree)
    assert style.HEADS[0] in small[0]["data"]["image/svg+xml"]


def test_a_stored_figure_names_one_face_and_turns_nothing_by_nothing():
    figure, ax = plt.subplots()
    ax.set(title="word", xlabel="other", ylabel="turned")
    text = style.as_svg(figure)
    plt.close(figure)
    assert set(re.findall(r"font-family: ([^;\"]*)", text)) == {"'DejaVu Sans', sans-serif"}
    assert re.findall(r"rotate\((-?\d+)", text) == ["-90"]
    assert style.compact(text) == text
