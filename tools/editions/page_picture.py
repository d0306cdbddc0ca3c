"""Photograph a built page for README: .github/page.png, at twice the density of a screen.

    python -m tools.editions.page_picture [--html _build/html]

The picture shows the table of contents and one figure of a chapter. It holds a hash of what these are made from, so
that a test can say that it is of today.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
from pathlib import Path

import nbformat
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from playwright.sync_api import sync_playwright

from tools import ROOT
from tools.notebooks import notebooks
from tools.pages import book_extension, chromium

PICTURE = ROOT / ".github/page.png"
CONTENTS = ROOT / "_toc.yml"
CHAPTER = notebooks.CHAPTERS / "06_per_head_heatmaps.ipynb"
FIGURE = f"{int(CHAPTER.stem[:2])}.1"
WIDTH, HEIGHT, DENSITY = 1280, 860, 1.5  # in the pixels of a page, and how many of the picture's are in one
ABOVE = 220  # pixels of the page that show over the figure
KEY = "made-from"


def made_from(contents: Path = CONTENTS, chapter: Path = CHAPTER) -> str:
    """A hash of the table of contents, and of the chapter's text, code and figures."""
    told = [contents.read_text(encoding="utf-8"), FIGURE]
    for cell in nbformat.read(chapter, as_version=4).cells:
        told += [cell.source, *(data[kind] for data, kind in notebooks.pictures(cell.get("outputs", [])))]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def stored(picture: Path = PICTURE) -> str:
    """The hash in a picture; empty where there is none."""
    with Image.open(picture) as image:
        return str(image.info.get(KEY, ""))


def photograph(html: Path) -> Image.Image:
    """The page as a reader sees it in a light room, with the figure in the middle.

    Raises:
        ValueError: the page is not built, or lacks the figure.
    """
    page_file = html / "chapters" / f"{CHAPTER.stem}.html"
    if not page_file.is_file():
        raise ValueError(f"{page_file} is not there: run  make book")
    with sync_playwright() as playwright:
        browser = chromium.launch(playwright)
        page = browser.new_page(
            viewport={"width": WIDTH, "height": HEIGHT},
            device_scale_factor=DENSITY,
            color_scheme="light",
            reduced_motion="reduce",
        )
        page.goto(page_file.resolve().as_uri())
        figure = page.locator(f"figure#{book_extension.figure_id(FIGURE)}")
        if figure.count() != 1:
            raise ValueError(
                f"{page_file.name} has no Figure {FIGURE}: name one that it has, in tools/editions/page_picture.py"
            )
        figure.locator("img.only-light").evaluate("image => { image.loading = 'eager'; return image.decode(); }")
        figure.evaluate(f"one => scrollTo(0, scrollY + one.getBoundingClientRect().top - {ABOVE})")
        page.wait_for_timeout(500)  # the contents on the right follow
        taken = page.screenshot(animations="disabled", caret="hide")
        browser.close()
    return Image.open(io.BytesIO(taken)).convert("RGB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--html", type=Path, default=ROOT / "_build/html", help="where the pages are built")
    arguments = parser.parse_args()
    try:
        image = photograph(arguments.html)
    except ValueError as error:
        parser.exit(2, f"{error}\n")
    text = PngInfo()
    text.add_text(KEY, made_from())
    image.quantize(256).save(PICTURE, pnginfo=text, optimize=True)
    print(f"{notebooks.here(PICTURE)}: {image.width} x {image.height}, {PICTURE.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
