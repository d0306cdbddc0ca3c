"""A file for each instrument of the built book, to be shown in a frame: `<iframe src=".../06_topic-1.html">`.

Nothing is executed again: the instrument stands in its page as a table and its state, and the book's own scripts wake
it here as they do there. `save_html` makes a file that needs no other.
"""

from __future__ import annotations

import html
from pathlib import Path

from bs4 import BeautifulSoup, Tag

from mhalib._write import write_whole
from tools.teaching.closed_page import HERE, closed_page, is_older

FOLDER = "_downloads/instruments"
SCRIPTS = {"LiveModel": "live"}  # the others are in the script of all pages


def file_name(page: str, number: int) -> str:
    """Of the instrument with this number, from 1, on a page: `07_per_head_heatmaps-1.html`."""
    return f"{page}-{number}.html"


def one_file(instrument: Tag, page: str, number: int) -> str:
    script = SCRIPTS.get(str(instrument["data-script"]), "instruments")
    loads = (
        '<link rel="stylesheet" href="../../_static/instruments.css">\n'
        f'<script defer src="../../_static/{script}.js"></script>\n'
    )
    caption = instrument.find("caption")
    title = caption.get_text() if caption else page
    line = html.escape(f'<iframe src="{file_name(page, number)}" width="720" height="640" loading="lazy"></iframe>')
    where = f'<a href="../../chapters/{page}.html">Attention, Head by Head</a>'
    body = (
        f"<main>{instrument}</main>\n<footer><p>From {where}, CC BY 4.0. To show it in a page or on slides, copy:</p>"
        f"<pre>{line}</pre></footer>"
    )
    return closed_page(title, body, "embeds", scripts=loads)


def write(folder: Path) -> list[Path]:
    """Write the files of the instruments on pages that are newer; these files."""
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    made = []
    for page in sorted((folder / "chapters").glob("*.html")):
        text = page.read_text(encoding="utf-8")
        if 'class="mhalib-instrument"' not in text:
            continue
        if not is_older(folder / FOLDER / file_name(page.stem, 1), page, *HERE.glob("embeds.*")):
            continue
        found = BeautifulSoup(text, "lxml").select(".mhalib-instrument")
        for number, instrument in enumerate(found, 1):
            made.append(folder / FOLDER / file_name(page.stem, number))
            write_whole(made[-1], one_file(instrument, page.stem, number))
    return made
