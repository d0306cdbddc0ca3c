"""The start page's links to the book on paper and for readers: only to what is there.

`html_with_links` sets them into a start page. The build does so (`book_extension.py`), and so do `paper.py` and
`ebook.py` when they have written a file, so that nothing need be built again.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pikepdf

FOLDER = "_downloads"
NAME = "attention-head-by-head"
EPUB = f"{FOLDER}/{NAME}.epub"


class Volume(NamedTuple):
    """A volume on paper: its file in the built book, and the parts that it holds, by the words before their titles."""

    number: int
    parts: tuple[str, ...]
    says: str

    @property
    def file(self) -> str:
        return f"{FOLDER}/{NAME}-{self.number}.pdf"


VOLUMES = (  # what is looked up and not read, the pages of the package, is on none: it stays on screens
    Volume(1, ("", "Part I", "Part II", "Part III"), "Parts I to III"),
    Volume(2, ("Part IV", "Part V", "Part VI", "Reference"), "Parts IV to VI, and reference"),
)
START = "chapters/index.html"
OURS = re.compile(r'<p class="downloads">.*?</p>\n', re.DOTALL)
BEFORE = re.compile(r'<section id="the-map">')


def links(html: Path) -> str:
    """A paragraph with a link to each file in the built book `html`, its size and pages; empty where there is none."""
    found = []
    for volume in VOLUMES:
        if (html / volume.file).exists():
            with pikepdf.open(html / volume.file) as pdf:
                pages = len(pdf.pages)
            link = f'<a href="../{volume.file}">PDF, volume {volume.number}</a>'
            found.append(f"{link}: {volume.says} ({pages} pages, {megabytes(html / volume.file)})")
    if (html / EPUB).exists():
        found.append(f'<a href="../{EPUB}">EPUB</a> for e-readers ({megabytes(html / EPUB)})')
    return f'<p class="downloads"><strong>Take it along.</strong> {"; ".join(found)}</p>\n' if found else ""


def megabytes(file: Path) -> str:
    return f"{file.stat().st_size / 1e6:.1f} MB"


def html_with_links(page: str, said: str) -> str:
    """The start page with the paragraph before its map, in place of an earlier one; `ValueError` without a map."""
    page = OURS.sub("", page)
    if said and not BEFORE.search(page):
        raise ValueError(f"{START}: no section 'The map', before which the links to PDF and EPUB would be")
    return BEFORE.sub(lambda found: said + found[0], page, count=1)


def update(html: Path) -> None:
    """Write the links into the built start page."""
    page = html / START
    page.write_text(html_with_links(page.read_text(encoding="utf-8"), links(html)), encoding="utf-8")
