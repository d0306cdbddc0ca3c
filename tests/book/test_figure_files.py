"""A stored figure becomes two files, for a light page and a dark one: what changes in them, and what must not."""

from __future__ import annotations

import base64
import colorsys
import io
import os
import re
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import matplotlib as mpl
import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
from bs4 import BeautifulSoup
from docutils import nodes
from matplotlib.colors import to_hex
from numpy.typing import NDArray
from PIL import Image
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

import mhalib
from mhalib import style
from tools.pages import figures, finish

SVG = "{http://www.w3.org/2000/svg}"
HREF = "{http://www.w3.org/1999/xlink}href"
COLOUR = re.compile(r"#[0-9a-f]{6}\b")
READ = (style.INK, style.MUTED)  # letters are written in these
SEEN = (*style.HEADS, style.FRAME)  # lines, dots and bars


def light(colour: str) -> float:
    """Relative luminance, as WCAG 2 defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    less, more = sorted((light(one), light(other)))
    return (more + 0.05) / (less + 0.05)


def drawn() -> str:
    """A heat map with a number on each cell, a hidden cell, a formula, a line, and words on the paper."""
    weights = [[0.1, 0.9, 0.0], [1.0, 0.4, 0.2]]
    with plt.rc_context(style.SETTINGS):
        figure, (left, right) = plt.subplots(2, 1, figsize=(3, 4))
        mhalib.head_heatmap(np.array(weights), annotate=True, colorbar=False, head=2, ax=left)
        right.plot([0, 1], [0, 1], color=style.head_colour(1))
        right.text(0.2, 0.8, "on the paper", color=style.MUTED)
        right.set(title="$q^T k$", xticks=[], yticks=[])
        return style.as_svg(figure)


@pytest.fixture(scope="module")
def svg() -> str:
    return drawn()


def letters(svg: str) -> dict[str, str]:
    """What is written, and in which colour."""
    found = {}
    for text in ElementTree.fromstring(svg).iter(f"{SVG}text"):
        colour = re.search(r"fill: (#\w+)", text.get("style", ""))
        found["".join(text.itertext())] = colour[1] if colour else ""
    return found


@pytest.mark.parametrize("colour", SEEN)
def test_lines_are_seen_on_both_grounds(colour: str) -> None:
    assert contrast(figures.in_the_dark(colour), figures.GROUND) >= 3
    assert contrast(colour, style.PAPER) >= (3 if colour in style.HEADS else 2.5)


@pytest.mark.parametrize("colour", READ)
def test_letters_are_read_on_both_grounds(colour: str) -> None:
    assert contrast(figures.in_the_dark(colour), figures.GROUND) >= 4.5
    assert contrast(colour, style.PAPER) >= 4.5


@pytest.mark.parametrize("name", ["HEADS", "TINTS"])
def test_heads_keep_their_hue_and_differ_from_each_other_in_the_dark(name: str) -> None:
    colours = getattr(style, name)
    made = [figures.in_the_dark(colour) for colour in colours]
    assert len({*made}) == len(colours)
    for colour, dark in zip(colours, made, strict=True):
        hues = [colorsys.rgb_to_hls(*(int(one[i : i + 2], 16) / 255 for i in (1, 3, 5)))[0] for one in (colour, dark)]
        apart = abs(hues[0] - hues[1])
        assert min(apart, 1 - apart) < 0.05, f"{colour} becomes {dark}"


def test_a_colour_without_a_name_is_as_far_from_the_ground_as_it_was_from_paper() -> None:
    greys = [f"#{level:02x}{level:02x}{level:02x}" for level in range(0, 256, 15)]
    made = [light(figures.in_the_dark(grey)) for grey in greys[:-1]]  # the last is paper
    assert made == sorted(made, reverse=True)
    assert contrast(figures.in_the_dark("#000000"), figures.GROUND) > 12
    assert figures.in_the_dark(style.PAPER) == figures.GROUND
    for unnamed in ("#cc3311", "#117733", "#332288", "#222222"):  # each can be read on paper
        assert contrast(unnamed, style.PAPER) >= 4.5
        assert contrast(figures.in_the_dark(unnamed), figures.GROUND) >= 4.5


def test_both_files_hold_the_same_figure_but_for_its_colours(svg: str) -> None:
    ours = figures.lit(svg)
    dark = figures.darkened(svg)
    assert ours != dark
    same = re.sub(r'(?<=<svg) fill="#\w+"', "", dark)
    ours_bare, dark_bare = (figures.POINTS.sub("", COLOUR.sub("", one)) for one in (ours, same))
    assert dark_bare == ours_bare
    for one in (ours, dark):
        names = {element.get("id") for element in ElementTree.fromstring(one).iter()}
        used = set(re.findall(r"url\(#([^)]+)\)", one)) | set(re.findall(r'href="#([^"]+)"', one))
        assert used
        assert used <= names
        assert "DejaVu" not in " ".join(re.findall(r"font-family: ([^;]*)", one))


def cells(svg: str) -> list[NDArray[np.uint8]]:
    """The points of each heat map, (rows, columns, 3)."""
    hrefs = [image.get(HREF) for image in ElementTree.fromstring(svg).iter(f"{SVG}image")]
    files = [io.BytesIO(base64.b64decode(href.partition("base64,")[2])) for href in hrefs if href]
    return [np.asarray(Image.open(file).convert("RGB")) for file in files]


def test_a_heat_map_is_turned_on_a_dark_page_and_so_are_the_letters_on_it(svg: str) -> None:
    light_page, dark_page = figures.lit(svg), figures.darkened(svg)
    for before, after in zip(cells(light_page), cells(dark_page), strict=True):
        assert before.shape == after.shape
        far = (255 - before.astype(int)).sum(-1)  # from paper
        assert np.corrcoef(far.flatten(), after.astype(int).sum(-1).flatten())[0, 1] > 0.9
    before, after = letters(svg), letters(dark_page)
    on_cells = {word for word in before if re.fullmatch(r"\d\.\d\d", word)}
    assert {before[word] for word in on_cells} == {style.ON_PALE, style.ON_DARK}
    for word in on_cells:
        assert after[word] == {style.ON_PALE: "#fefefe", style.ON_DARK: style.ON_PALE}[before[word]]
    assert after["on the paper"] != before["on the paper"] == style.MUTED
    assert after["query"] == figures.in_the_dark(style.INK)


@pytest.mark.parametrize("name", [*(f"head {i}" for i in range(8)), "weights", "kept", "lost", "ink", "signed"])
def test_letters_on_cells_are_read_on_both_grounds_and_zero_is_the_ground(name: str) -> None:
    shades = mpl.colormaps[name](np.linspace(0, 1, 256))[:, :3]
    made = figures.turned(np.round(255 * shades).astype(np.uint8))
    for before, after in zip(shades, made, strict=True):
        letter, dark = style.letters_on(before), to_hex(after / 255)
        assert contrast(letter, to_hex(before)) >= 4.4
        assert contrast(figures.in_the_dark(letter), dark) >= 4.4
    if name != "signed":
        assert to_hex(made[0] / 255) == figures.GROUND
        brightness = [light(to_hex(one / 255)) for one in made]
        assert min(np.diff(brightness)) > -0.005  # a greater weight is no darker
        assert brightness[-1] > 0.4


def test_the_bytes_of_a_picture_are_no_colours() -> None:
    """Base64 has no '#'; a picture by another name may."""
    picture = '<image xlink:href="data:image/svg+xml,#1f6fb5" width="1"/>'
    made = figures.darkened(f'<svg><path style="stroke: #1f6fb5"/>{picture}<path style="fill: #1f6fb5"/></svg>')
    assert picture in made
    assert made.count("#6ab7ff") == 2


def test_a_formula_without_a_colour_of_its_own_is_light_in_the_dark(svg: str) -> None:
    """matplotlib leaves black unsaid: what has no fill takes that of the whole."""
    whole = ElementTree.fromstring(figures.darkened("<svg xmlns='http://www.w3.org/2000/svg'><path d='M0 0'/></svg>"))
    assert contrast(whole.get("fill") or "#000000", figures.GROUND) > 12
    assert "fill" not in ElementTree.fromstring(figures.lit(svg)).attrib


def page_of(tmp_path: Path, *uris: str, classes: str = "cell_output") -> nodes.section:
    (tmp_path / "drawn").mkdir()
    output = nodes.container(classes=[classes])
    for uri in uris:
        if uri.endswith(".svg"):
            (tmp_path / uri).write_text(drawn(), encoding="utf-8")
        output += nodes.image(uri=f"/{uri}", alt=f"what {uri} shows", classes=["wide"])
    return nodes.section("", output)


def test_a_figure_becomes_a_pair_in_one_frame(tmp_path: Path) -> None:
    page = page_of(tmp_path, "drawn/a.svg", "drawn/b.svg", "drawn/c.png")
    figures.pair_figures(SimpleNamespace(srcdir=tmp_path), page)
    figures.frame_figures(SimpleNamespace(), page, "page")
    frames = [child for child in page[0].children if "figure-frame" in child["classes"]]
    assert [[image["uri"] for image in frame] for frame in frames] == [
        ["/drawn/a-light.svg", "/drawn/a-dark.svg"],
        ["/drawn/b-light.svg", "/drawn/b-dark.svg"],
        ["/drawn/c.png"],
    ]
    assert len(page[0].children) == 3
    for frame in frames[:2]:
        assert [image["classes"] for image in frame] == [["wide", "only-light"], ["wide", "only-dark"]]
        assert {image["alt"] for image in frame} == {f"what {frame[0]['uri'][1:].replace('-light', '')} shows"}
    stored = drawn()
    assert (tmp_path / "drawn/b-light.svg").read_text(encoding="utf-8") == figures.lit(stored)
    assert (tmp_path / "drawn/b-dark.svg").read_text(encoding="utf-8") == figures.darkened(stored)


def test_a_picture_that_no_cell_drew_is_left_alone(tmp_path: Path) -> None:
    page = page_of(tmp_path, "drawn/map.svg", classes="a paragraph")
    figures.pair_figures(SimpleNamespace(srcdir=tmp_path), page)
    figures.frame_figures(SimpleNamespace(), page, "page")
    assert [image["uri"] for image in page.findall(nodes.image)] == ["/drawn/map.svg"]
    assert not list(page.findall(nodes.container))[1:]


@pytest.mark.tool("mhalib/")
def test_a_page_has_both_files_of_each_figure_and_says_twice_what_it_shows(tmp_path: Path, svg: str) -> None:
    output = nbformat.v4.new_output("display_data", data={"image/svg+xml": svg, "text/plain": "<Figure>"})
    told = {"mystnb": {"image": {"alt": "A heat map above a line."}}}
    cells = [
        nbformat.v4.new_markdown_cell("# A page"),
        *(nbformat.v4.new_code_cell(f"draw({n})", outputs=[output], metadata=told, execution_count=n) for n in (1, 2)),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "index.ipynb")
    settings = {"extensions": ["myst_nb", "tools.pages.figures"], "nb_execution_mode": "off", "html_theme": "basic"}
    out = tmp_path / "out"
    with docutils_namespace():
        Sphinx(tmp_path, None, out, tmp_path / "trees", "html", confoverrides=settings, status=None).build()
    page = BeautifulSoup((out / "index.html").read_bytes(), "html.parser")
    frames = page.select("div.figure-frame")
    assert len(frames) == 2
    for frame in frames:
        pair = frame.select("img")
        assert [image["class"] for image in pair] == [["only-light"], ["only-dark"]]
        assert [image["alt"] for image in pair] == ["A heat map above a line."] * 2
        files = [(out / image["src"]).read_text(encoding="utf-8") for image in pair]
        assert files == [figures.lit(svg).strip(), figures.darkened(svg).strip()]


def captioned(tmp_path: Path, docname: str) -> tuple[SimpleNamespace, nodes.section]:
    """A page with a figure that has a caption and code behind a word, and one with a caption alone."""
    page = page_of(tmp_path, "drawn/a.svg", "drawn/b.svg")
    app = SimpleNamespace(srcdir=tmp_path, outdir=tmp_path / "out", builder=SimpleNamespace(name="html"))
    figures.pair_figures(app, page)
    figures.frame_figures(app, page, docname)
    for number, frame in enumerate(
        page.findall(lambda one: "figure-frame" in getattr(one, "attributes", {}).get("classes", ())), 1
    ):
        said = nodes.caption("", "", nodes.strong("", f"Figure 7.{number}."), nodes.Text(" Two maps."))
        figure = nodes.figure("", classes=["captioned"], ids=[f"figure-7-{number}"])
        frame.parent.replace(frame, figure)
        figure += [frame, said]
    first = next(page.findall(nodes.figure))
    first += nodes.legend("", nodes.raw("", "<details>code</details>", format="html"))
    return app, page


def test_a_caption_ends_with_the_figure_as_png_as_svg_and_its_code(tmp_path: Path) -> None:
    app, page = captioned(tmp_path, "chapters/07_maps")
    figures.offer_files(app, page, "chapters/07_maps")
    figures.end_drawing(app, None)
    legends = ["".join(raw.astext() for raw in legend) for legend in page.findall(nodes.legend)]
    assert [BeautifulSoup(one, "html.parser").get_text() for one in legends] == [
        "PNG: Figure 7.1 · SVG: Figure 7.1 · code",
        "PNG: Figure 7.2 · SVG: Figure 7.2",
    ]
    links = BeautifulSoup(legends[0], "html.parser").find_all("a")
    assert [(link["href"], link["download"]) for link in links] == [
        ("../_downloads/figures/figure-7-1.png", "figure-7-1.png"),
        ("../_images/a-light.svg", "figure-7-1.svg"),
    ]
    with Image.open(tmp_path / "out/_downloads/figures/figure-7-1.png") as png:
        size, corner = png.size, png.convert("RGBA").getpixel((2, 2))
    width, height = finish.size_of(tmp_path / "drawn/a-light.svg")
    assert [round(side / 2) for side in size] == [width, height]  # twice as many pixels as on the page
    assert corner == (255, 255, 255, 255)  # on slides of any colour


def test_a_figure_is_drawn_again_only_where_it_changed(tmp_path: Path) -> None:
    app, page = captioned(tmp_path, "index")
    figures.offer_files(app, page, "index")
    figures.end_drawing(app, None)
    png = app.outdir / figures.FILES / "figure-7-1.png"
    png.write_bytes(b"kept")
    figures.draw(app, tmp_path / "drawn/a-light.svg", png)
    assert "figures_painter" not in vars(app)
    os.utime(png, (1, 1))
    figures.draw(app, tmp_path / "drawn/a-light.svg", png)
    figures.end_drawing(app, None)
    assert png.read_bytes().startswith(b"\x89PNG")


def test_what_goes_wrong_with_a_drawing_stops_the_build(tmp_path: Path) -> None:
    app = SimpleNamespace()
    (tmp_path / "bad.svg").write_text("no picture", encoding="utf-8")
    figures.draw(app, tmp_path / "bad.svg", tmp_path / "bad.png")
    with pytest.raises(ValueError, match="unknown token"):
        figures.end_drawing(app, None)
