"""Film the live model of chapter 0 for README: .github/heads.gif, a head switched off and on again.

    python -m tools.editions.page_picture [--html _build/html]

A pointer goes to the switch of a head, and what the model says changes at once. The picture holds a hash of what these
are made from, so that a test can say that it is of today.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
from pathlib import Path

import nbformat
import numpy as np
from PIL import Image, ImageDraw
from playwright.sync_api import Locator, Page, sync_playwright

from mhalib.widgets import page_script, style_sheet, weights_script
from tools import ROOT
from tools.notebooks import notebooks
from tools.pages import chromium

PICTURE = ROOT / ".github/heads.gif"
CHAPTER = notebooks.CHAPTERS / "00_take_a_model_apart.ipynb"
MODEL, CALL = "reader", "LiveModel("
LIVE = ".mhalib-live-model[data-settled]"
WIDTH, HEIGHT, DENSITY = 1280, 900, 1.5  # in the pixels of a page, and how many of the picture's are in one
COLOURS = 256
STORY = (2, 0)  # heads that are switched off, one after the other
STILL, STEP = 1800, 60  # milliseconds that a state is shown, and a step of the pointer
STEPS = 8
POINTER = ((0, 0), (0, 17), (4, 13), (7, 20), (10, 19), (7, 12), (12, 12))  # an arrow, in the pixels of a page


def made_from(chapter: Path = CHAPTER) -> str:
    """A hash of the model: its scripts, its style, its weights, and the cell that shows it."""
    cells = nbformat.read(chapter, as_version=4).cells
    shown = next(cell.source for cell in cells if cell.cell_type == "code" and CALL in cell.source)
    told = [shown, page_script("LiveModel"), style_sheet("LiveModel"), weights_script(MODEL), *map(str, STORY)]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def stored(picture: Path = PICTURE) -> str:
    """The hash in a picture; empty where there is none."""
    with Image.open(picture) as image:
        return bytes(image.info.get("comment", b"")).decode("ascii", "replace")


def with_pointer(image: Image.Image, x: float, y: float) -> Image.Image:
    """A copy of a picture with a pointer, whose tip is at a place of the page."""
    drawn = image.copy()
    arrow = [((x + across) * DENSITY, (y + down) * DENSITY) for across, down in POINTER]
    ImageDraw.Draw(drawn).polygon(arrow, fill="black", outline="white", width=2)
    return drawn


def taken(live: Locator) -> Image.Image:
    return Image.open(io.BytesIO(live.screenshot(animations="disabled", caret="hide"))).convert("RGB")


def middle(part: Locator, whole: Locator) -> tuple[float, float]:
    """Where the middle of a part of the model is, in the model's own pixels."""
    box, around = part.bounding_box(), whole.bounding_box()
    assert box
    assert around
    return box["x"] - around["x"] + box["width"] / 2, box["y"] - around["y"] + box["height"] / 2


def film(page: Page) -> list[tuple[Image.Image, int]]:
    """The frames, each with the milliseconds that it is shown: heads are switched off and on again by a pointer."""
    live = page.locator(LIVE).first
    live.wait_for(timeout=60_000)
    now = taken(live)
    at = (0.62 * now.width / DENSITY, 0.92 * now.height / DENSITY)
    frames = [(with_pointer(now, *at), STILL)]
    for head in STORY:
        switch = live.locator("[data-switch]").nth(head)
        goal = middle(switch, live)
        for step in range(1, STEPS + 1):
            part = (step / STEPS) ** 2 * (3 - 2 * step / STEPS)  # it starts and ends slowly
            frames.append((with_pointer(now, *(a + (b - a) * part for a, b in zip(at, goal, strict=True))), STEP))
        for shown in (STILL, STILL // 2):  # off, and on again
            switch.click()
            page.mouse.move(0, 0)
            page.wait_for_timeout(800)  # until all that follows has been drawn
            now, at = taken(live), middle(switch, live)
            frames.append((with_pointer(now, *at), shown))
    return frames


def photograph(html: Path) -> list[tuple[Image.Image, int]]:
    """The frames of the built page, as a reader sees it in a light room.

    Raises:
        ValueError: the page is not built.
    """
    page_file = html / "chapters" / f"{CHAPTER.stem}.html"
    if not page_file.is_file():
        raise ValueError(f"{page_file} is not there: run  make book")
    with sync_playwright() as playwright:
        browser = chromium.launch(playwright)
        size = {"width": WIDTH, "height": HEIGHT}
        look = {"color_scheme": "light", "reduced_motion": "reduce"}
        page = browser.new_page(viewport=size, device_scale_factor=DENSITY, **look)  # type: ignore[arg-type]
        page.goto(page_file.resolve().as_uri())
        frames = film(page)
        browser.close()
    return frames


def store(frames: list[tuple[Image.Image, int]], picture: Path = PICTURE) -> None:
    """Write the frames as one GIF with a hash of what they are made from.

    All share one palette, to which each colour counts once: by how often they occur, the heads' colours would be greys.
    """
    sizes = {image.size for image, _ in frames}
    whole = Image.new("RGB", (max(width for width, _ in sizes), max(height for _, height in sizes)), "white")
    held = [np.asarray(image, np.uint32).reshape(-1, 3) for image, shown in frames if shown > STEP]
    seen = np.unique(np.concatenate(held) @ np.array([1 << 16, 1 << 8, 1], np.uint32))
    each = np.stack([seen >> 16, seen >> 8 & 255, seen & 255], -1).astype(np.uint8)
    colours = Image.fromarray(each[None]).quantize(COLOURS, kmeans=2)
    drawn = []
    for image, _ in frames:
        canvas = whole.copy()
        canvas.paste(image)
        drawn.append(canvas.quantize(palette=colours, dither=Image.Dither.NONE))
    times = [milliseconds for _, milliseconds in frames]
    made = made_from().encode("ascii")
    drawn[0].save(picture, save_all=True, append_images=drawn[1:], duration=times, loop=0, comment=made, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--html", type=Path, default=ROOT / "_build/html", help="where the pages are built")
    arguments = parser.parse_args()
    try:
        frames = photograph(arguments.html)
    except ValueError as error:
        parser.exit(2, f"{error}\n")
    store(frames)
    width, height = frames[0][0].size
    print(f"{notebooks.here(PICTURE)}: {width} x {height}, {PICTURE.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
