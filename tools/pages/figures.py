"""Sphinx extension: each figure of a notebook as two files, one for a page's light colours and one for its dark ones.

Notebooks store a figure as SVG on white paper (mhalib.style), and so do pages: a `{figure}` whose `:figclass:` is
`themed`. A page shows it in its own face and on its own ground:
in the dark, every colour becomes as light as it was dark. So does each cell of a heat map, as in a live model beside
it: a weight of 0 is the ground, and the more weight, the farther a cell is from it.
The theme's classes `only-light` and `only-dark` choose; a browser loads the other file only when it is asked for.
A file, and not SVG in the page: it comes when it is near, it is loaded once, and ids of two figures cannot meet.

Behind a caption are links to the figure for a lecturer's slides: as PNG, which a second process draws while pages are
written, and as SVG, which is the light page's file.
"""

from __future__ import annotations

import base64
import colorsys
import html
import io
import os
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import matplotlib
import numpy as np
import resvg_py
from docutils import nodes
from matplotlib.colors import to_rgb
from numpy.typing import NDArray
from PIL import Image
from sphinx.application import Sphinx

from mhalib import style
from mhalib._colours import EVEN, colours_of, lab_of_light, light_of, light_of_lab, luminance
from tools.pages import catalogues, steps

FACE = "-apple-system, BlinkMacSystemFont, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"  # the theme's own
THEMED = "themed"
"""The class of a page's own figure that `mhalib.style` wrote."""
FILES = "_downloads/figures"
"""Where a built book has its figures as PNG."""
GROUND = "#121212"
"""The theme's ground in the dark."""
COLOUR = re.compile(r"#[0-9a-f]{6}\b")
FONT = re.compile(r"font-family: 'DejaVu Sans'[^;\"]*")
PICTURE = re.compile(r"<image\b[^>]*>", re.DOTALL)
POINTS = re.compile(r"(?<=data:image/png;base64,)[A-Za-z0-9+/=\s]+")
IN_THE_DARK = {
    style.PAPER: GROUND,
    style.INK: "#e6eaf0",
    style.MUTED: "#9aa6b5",
    style.LINE: "#37414d",
    style.FRAME: "#5f6b79",
    style.ON_PALE: "#fefefe",
    style.ON_DARK: style.ON_PALE,  # also the lines between cells
    style.HIDDEN: "#1f242b",
    style.HATCH: "#5f6b79",
    **dict(
        zip(
            style.HEADS,
            ("#6ab7ff", "#f5b04c", "#5fd3a3", "#d29bea", "#ff8f87", "#4fd0dc", "#f28cc6", "#cdcb63"),
            strict=True,
        )
    ),
}
"""What becomes of the colours that have a name; letters on cells change places. Others keep their hue, and become as
light as they were dark."""


def lit(svg: str) -> str:
    """A stored figure as a light page shows it: in the page's face."""
    return FONT.sub(lambda _: f"font-family: {FACE}", svg)


def darkened(svg: str) -> str:
    """A stored figure as a dark page shows it."""
    parts = PICTURE.split(lit(svg))
    pictures = [*(POINTS.sub(lambda points: cells_in_the_dark(points[0]), one) for one in PICTURE.findall(svg)), ""]
    made = [COLOUR.sub(lambda found: in_the_dark(found[0]), part) for part in parts]
    made[0] = made[0].replace("<svg", f'<svg fill="{IN_THE_DARK[style.INK]}"', 1)  # matplotlib leaves black unsaid
    return "".join(part + picture for part, picture in zip(made, pictures, strict=True))


def in_the_dark(colour: str) -> str:
    """A colour "#rrggbb" on a dark ground: of the same hue, and as far from the ground as it was from paper."""
    if colour in IN_THE_DARK:
        return IN_THE_DARK[colour]
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    hue, lightness, saturation = colorsys.rgb_to_hls(red, green, blue)
    made = colorsys.hls_to_rgb(hue, 0.09 + 0.86 * (1 - lightness), 0.85 * saturation)
    return "#" + "".join(f"{round(255 * part):02x}" for part in made)


def cells_in_the_dark(png: str) -> str:
    """The points of a heat map, as base64, on a dark ground."""
    with Image.open(io.BytesIO(base64.b64decode(png))) as picture:
        points = np.asarray(picture.convert("RGBA"))
    made, file = points.copy(), io.BytesIO()
    made[..., :3] = turned(points[..., :3])
    Image.fromarray(made).save(file, format="png")
    return base64.b64encode(file.getvalue()).decode()


def turned(colours: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Colours (..., 3) of cells with the same hue in OKLab (Ottosson 2020), and as light as they were dark.

    Paper becomes the ground. The luminance at which white and black letters can be read equally well stays, so that
    letters on cells, white in place of black and black in place of white, can be read as well as before.
    """
    light = light_of(colours / 255)
    ground = float(luminance(light_of(to_rgb(GROUND))))
    lab, lightness = lab_of_light(light), np.cbrt(luminance(light))
    from_paper, from_ground = np.cbrt([1.0, EVEN, 0.047]), np.cbrt([ground, EVEN, 0.51])  # to the most weight of a map
    wanted = np.interp(-lightness, -from_paper, from_ground) ** 3
    lab[..., 0], lab[..., 1:] = np.cbrt(wanted), 1.3 * lab[..., 1:]
    light = light_of_lab(lab)
    for _ in range(4):  # what no screen shows is cut, and made up for
        light = np.clip(light * (wanted / np.maximum(luminance(light), 1e-9))[..., None], 0.0, 1.0)
    made: NDArray[np.uint8] = np.round(255 * colours_of(light)).astype(np.uint8)
    return made


def pair_figures(app: Sphinx, doctree: nodes.document) -> None:
    """Give each figure of a notebook its two files, before Sphinx collects what it copies."""
    for image in list(doctree.findall(nodes.image)):
        around = {name for up in above(image) for name in up.get("classes", ())}
        if not image["uri"].endswith(".svg") or not around & {"cell_output", THEMED}:
            continue
        if "cell_output" in around:
            stored = Path(app.srcdir) / image["uri"].lstrip("/")
            folder = stored.parent
        else:
            stored, folder = Path(app.env.relfn2path(image["uri"])[1]), Path(app.doctreedir)
        svg = stored.read_text(encoding="utf-8")
        last = steps.count(svg)
        pair = []
        for name, made in (("light", lit), ("dark", darkened)):
            file = folder / f"{stored.stem}-{name}.svg"
            for step in range(1, last):
                step_file(file, step).write_text(made(steps.at_step(svg, step)), encoding="utf-8")
            file.write_text(made(steps.at_step(svg, last) if last > 1 else svg), encoding="utf-8")
            one = image.deepcopy()
            one["uri"] = "/" + os.path.relpath(file, app.srcdir).replace(os.sep, "/")
            one["classes"] = [*image["classes"], f"only-{name}"]
            pair.append(one)
        image.parent.replace(image, pair)


def step_file(file: Path, step: int) -> Path:
    """Where an earlier step of a figure stands, beside the file of its last."""
    return file.with_name(f"{file.stem}-{step}.svg")


def as_png(svg: Path, png: Path, zoom: float = 3.0) -> None:
    """Write a figure as PNG, three times as large as on the page, for who reads no SVG: previews of links, slides."""
    fonts = Path(matplotlib.get_data_path(), "fonts/ttf")
    drawn = resvg_py.svg_to_bytes(
        svg_path=str(svg),
        dpi=96.0,
        zoom=zoom,
        font_dirs=[str(fonts)],
        skip_system_fonts=True,
        sans_serif_family="DejaVu Sans",
    )
    png.write_bytes(bytes(drawn))


def above(node: nodes.Node) -> list[nodes.Element]:
    """All that a node is in, from near to far."""
    found = []
    while node.parent is not None:
        node = node.parent
        found.append(node)
    return found


def frame_figures(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """A frame around each figure of a notebook, the light and the dark file in one."""
    for output in list(doctree.findall(nodes.container)):
        if "cell_output" not in output["classes"]:
            continue
        images = [child for child in output.children if isinstance(child, nodes.image)]
        for image in images:
            if "only-dark" in image["classes"]:
                continue
            after = output.children[output.index(image) + 1 :][:1]
            pair = [image, *(one for one in after if "only-dark" in getattr(one, "attributes", {}).get("classes", ()))]
            frame = nodes.container("", classes=["output", "figure-frame"])
            output.insert(output.index(image), frame)
            for one in pair:
                output.remove(one)
                frame += one


def captioned(doctree: nodes.document) -> Iterator[nodes.Element]:
    """The figures of a page that have a caption."""
    return doctree.findall(lambda node: "captioned" in getattr(node, "attributes", {}).get("classes", ()))


def offer_files(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Links to each captioned figure as PNG and SVG, before the word that shows its code."""
    if app.builder.name != "html":
        return
    up = "../" * docname.count("/")
    for figure in captioned(doctree):
        light = next((one for one in figure.findall(nodes.image) if "only-light" in one["classes"]), None)
        number = next(figure.findall(nodes.strong), None)
        if light is None or number is None:
            continue
        name = figure["ids"][0]
        svg, png = Path(app.srcdir, light["uri"].lstrip("/")), Path(app.outdir, FILES, f"{name}.png")
        draw(app, svg, png)
        of = f'<span class="in-words">: {html.escape(number.astext().rstrip("."))}</span>'
        files = (("PNG", f"{FILES}/{png.name}"), ("SVG", f"_images/{svg.name}"))
        links = (f'<a href="{up}{file}" download="{name}.{kind.lower()}">{kind}{of}</a>' for kind, file in files)
        legend = next(figure.findall(nodes.legend), None)
        if legend is None:
            legend = nodes.legend()
            figure += legend
        between = " · " if legend.children else ""
        legend.insert(
            0, nodes.raw("", f'<span class="figure-files">{" · ".join(links)}{between}</span>', format="html")
        )


def offer_steps(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Copy the steps before the last beside the figures that a reader can save, and tell steps_script.js of them."""
    if app.builder.name != "html":
        return
    say, folder = catalogues.phrases(app.config.language), Path(app.outdir, FILES)
    for figure in captioned(doctree):
        pair = [one for one in figure.findall(nodes.image) if {"only-light", "only-dark"} & {*one["classes"]}]
        files = [Path(app.srcdir, one["uri"].lstrip("/")) for one in pair]
        number = next(figure.findall(nodes.strong), None)
        if not files or number is None:
            continue
        whole = files[0].read_text(encoding="utf-8")
        last = steps.count(whole)
        if last == 1:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        name = figure["ids"][0]
        for theme, file in zip(("light", "dark"), files, strict=True):
            for step in range(1, last):
                shutil.copyfile(step_file(file, step), step_file(folder / f"{name}-{theme}.svg", step))
        drawn = [*(step_file(files[0], step).read_text(encoding="utf-8") for step in range(1, last)), whole]
        names = [steps.name_of(svg, say) for svg in drawn]
        told = {
            "files": "../" * docname.count("/") + f"{FILES}/{name}",
            "steps": str(last),
            "opens": "1" if steps.loses(drawn[0]) else str(last),
            "play": say(steps.PLAY),
            "pause": say(steps.PAUSE),
            "step": say(steps.STEP),
            "choose": say(steps.CHOOSE).replace("{figure}", number.astext().rstrip(".")),
        }
        if all(names):
            told["names"] = "\n".join(names)
        data = "".join(f' data-{key}="{html.escape(value, quote=True)}"' for key, value in told.items())
        pair[-1].parent += nodes.raw("", f'<div class="figure-steps"{data}></div>', format="html")


def draw(app: Sphinx, svg: Path, png: Path) -> None:
    """Have a second process draw a figure, where what is there is older: a page's writer need not wait."""
    if png.exists() and png.stat().st_mtime > svg.stat().st_mtime:
        return
    png.parent.mkdir(parents=True, exist_ok=True)
    state = app.__dict__
    if "figures_drawn" not in state:
        state["figures_painter"], state["figures_drawn"] = ProcessPoolExecutor(1, get_context("spawn")), []
    state["figures_drawn"].append(state["figures_painter"].submit(as_png, svg, png, 2.0))


def end_drawing(app: Sphinx, exception: Exception | None) -> None:
    """Wait for what is still to be drawn; what went wrong there is an error here."""
    if "figures_painter" in app.__dict__:
        with app.__dict__.pop("figures_painter"):
            for drawn in app.__dict__.pop("figures_drawn"):
                drawn.result()


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-read", pair_figures, priority=400)  # Sphinx collects pictures at 500
    app.connect("doctree-resolved", frame_figures, priority=400)  # before captions are moved
    app.connect("doctree-resolved", offer_files, priority=600)  # behind captions, with the word that shows code
    app.connect("doctree-resolved", offer_steps, priority=650)
    app.connect("build-finished", end_drawing)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
