"""Make one EPUB 3 of the built book, _build/html/_downloads/attention-head-by-head.epub.

    python -m tools.editions.ebook [--only NAME ...] [--to FOLDER] [--html FOLDER --toc FILE]

The pages come from `single_page.py`. Formulas are MathML, as in the pages: it grows
with the reader's type, takes its colours at night, is read aloud and searched; the TeX is in `alttext`. Instruments are
their tables. Folds are at the end of each chapter, with links there and back, as few readers can fold.
`epubcheck FILE` holds the result against the standard.

Sphinx' own EPUB builder was tried on this book: epubcheck finds 326 errors and two pages that are no XML, both pictures
of each pair are shown, folds stay closed, and links go to `.html`.
"""

from __future__ import annotations

import datetime
import html
import re
import sys
import uuid
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from bs4 import Tag
from bs4.formatter import HTMLFormatter
from playwright.sync_api import sync_playwright

import mhalib
from tools import ROOT
from tools.editions import single_page
from tools.editions.single_page import Leaf
from tools.pages import chromium, downloads

STYLE = Path(__file__).with_name("ebook.css")
FONT = ROOT / "chapters/_static/stix-two-math.woff2"  # its brackets grow: a book's own do not
COVER = (1200, 1697)  # pixels
STYLED = {"k", "kn", "kc", "kd", "c", "c1", "cm", "sd"}  # what ebook.css sets apart in code
OF_SVG = {"viewbox": "viewBox", "preserveaspectratio": "preserveAspectRatio"}  # the parser of HTML knows no capitals
NOT_IN_XHTML = ("border", "align", "valign", "data-script", "data-awake", "role", "tabindex")
GONE = "script, style, .mhalib-instrument script, svg:not(.book-map), input, button, .sd-summary-state-marker"
PLAIN = HTMLFormatter(
    entity_substitution=lambda text: html.escape(text, quote=False),
    void_element_close_prefix="/",
    empty_attributes_are_booleans=False,
)
NAME_OF_BITMAP = re.compile(rb'(<image\b[^>]*?) id="image[0-9a-f]+"')  # which nothing asks for
CONTAINER = (
    '<?xml version="1.0" encoding="utf-8"?>\n<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" '
    'version="1.0"><rootfiles><rootfile full-path="EPUB/package.opf" media-type="application/oebps-package+xml"/>'
    "</rootfiles></container>"
)


def drawn_cover() -> bytes:
    """The cover, as a picture."""
    with sync_playwright() as playwright:
        browser = chromium.launch(playwright)
        page = browser.new_page(viewport={"width": COVER[0], "height": COVER[1]})
        page.set_content(cover_page(inline=True))
        cover = page.screenshot()
        browser.close()
    return cover


def readable(leaf: Leaf) -> None:
    """Leave what an XHTML file of an EPUB may hold."""
    article = leaf.article
    for gone in article.select(GONE):
        gone.decompose()
    for label in article.select(".sd-tab-set > label"):
        label.name, label.attrs = "p", {"class": "tab"}
    for span in article.select("pre span"):
        if not STYLED.intersection(single_page.classes(span)):
            span.unwrap()
    for tag in [article, *article.find_all(True)]:
        for key in NOT_IN_XHTML:
            tag.attrs.pop(key, None)
        if tag.name == "math":
            tag["xmlns"] = "http://www.w3.org/1998/Math/MathML"
        elif tag.name == "svg":
            tag["xmlns"] = "http://www.w3.org/2000/svg"
            tag.attrs = {OF_SVG.get(key, key): value for key, value in tag.attrs.items()}
        elif tag.name == "img":
            tag["src"] = "images/" + str(tag["src"]).rsplit("/", 1)[-1]
            tag.attrs = {key: tag[key] for key in ("src", "alt") if key in tag.attrs}
    number_title(leaf)


def number_title(leaf: Leaf) -> None:
    """`7 · What a heatmap proves`, below the name of the part where one begins."""
    assert leaf.article.h1 is not None
    leaf.article.h1.string = leaf.title
    if leaf.part:
        leaf.article.insert(0, single_page.element("p", leaf.part, {"class": "part"}))


def xhtml(title: str, body: str, kind: str = "") -> str:
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html>\n<html xmlns="http://www.w3.org/1999/xhtml" '
        'xmlns:epub="http://www.idpf.org/2007/ops" lang="en" xml:lang="en"><head><meta charset="utf-8"/>'
        f'<title>{html.escape(title)}</title><link rel="stylesheet" type="text/css" href="style.css"/></head>'
        f"<body{kind}>{body}</body></html>"
    )


def cover_page(inline: bool) -> str:
    """The cover: as a page for the browser to draw, or for the book, which shows the picture."""
    book = single_page.settings()
    if not inline:
        alt = html.escape(f"Cover: {book['title']}", quote=True)
        return xhtml("Cover", f'<p class="cover"><img src="cover.png" alt="{alt}"/></p>', ' epub:type="cover"')
    logo = (ROOT / "chapters/_static/logo.svg").read_text(encoding="utf-8")
    title, _, rest = book["title"].partition(", ")
    return (
        '<!doctype html><body style="margin: 0; background: #12395b; color: #fff; font-family: sans-serif">'
        f'<div style="padding: 300px 150px"><div style="width: 330px">{logo}</div>'
        f'<p style="font-size: 120px; font-weight: bold; line-height: 1.15; margin: 170px 0 0">{html.escape(title)}'
        f"{',<br>' if rest else ''}{html.escape(rest)}</p>"
        f'<p style="font-size: 46px; margin: 90px 0 0">{html.escape(book["author"])}</p></div>'
    )


def navigation(leaves: Sequence[Leaf]) -> str:
    """The table of contents: parts, chapters, and their sections."""
    lines, inside = [], False
    for leaf in leaves:
        if leaf.part:
            lines.append(f"{'</ol></li>' if inside else ''}<li><span>{html.escape(leaf.part)}</span><ol>")
            inside = True
        sections = [(section.get("id"), section.h2) for section in leaf.article.select("section:has(> h2)")]
        inner = "".join(
            f'<li><a href="{leaf.name}.xhtml#{name}">{html.escape(words(heading))}</a></li>'
            for name, heading in sections
            if name and heading is not None
        )
        below = f"<ol>{inner}</ol>" if inner else ""
        lines.append(f'<li><a href="{leaf.name}.xhtml">{html.escape(leaf.title)}</a>{below}</li>')
    ends = "</ol></li>" if inside else ""
    body = f'<nav epub:type="toc" role="doc-toc"><h1>Contents</h1><ol>{"".join(lines)}{ends}</ol></nav>'
    return xhtml("Contents", body)


def words(heading: Tag) -> str:
    """A heading as plain text; of a formula, its TeX."""
    parts = []
    for piece in heading.descendants:
        if isinstance(piece, Tag):
            if piece.name == "math":
                parts.append(str(piece["alttext"]))
        elif piece.find_parent("math") is None:
            parts.append(str(piece))
    return " ".join("".join(parts).split())


def package(leaves: Sequence[Leaf], pictures: Iterable[str], changed: datetime.datetime) -> str:
    """The list of files, their order, and what is known of the book."""
    book = single_page.settings()
    source = f"<dc:source>{html.escape(book['url'])}</dc:source>" if book["url"] else ""
    name = uuid.uuid5(uuid.NAMESPACE_URL, f"{book['url']} {mhalib.__version__}")
    items = [
        '<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>',
        '<item id="cover" href="cover.xhtml" media-type="application/xhtml+xml"/>',
        '<item id="imprint" href="imprint.xhtml" media-type="application/xhtml+xml"/>',
        '<item id="cover-image" href="cover.png" media-type="image/png" properties="cover-image"/>',
        '<item id="style" href="style.css" media-type="text/css"/>',
        f'<item id="font" href="{FONT.name}" media-type="font/woff2"/>',
    ]
    for leaf in leaves:
        found = [kind for kind, tag in (("mathml", "math"), ("svg", "svg")) if leaf.article.find(tag)]
        properties = f' properties="{" ".join(found)}"' if found else ""
        items.append(
            f'<item id="page-{leaf.name}" href="{leaf.name}.xhtml" media-type="application/xhtml+xml"{properties}/>'
        )
    items += [
        f'<item id="picture-{place}" href="images/{picture}" media-type="image/{kind_of(picture)}"/>'
        for place, picture in enumerate(sorted(pictures))
    ]
    order = "".join(f'<itemref idref="page-{leaf.name}"/>' for leaf in leaves)
    facts = {
        "accessMode": ("textual", "visual"),
        "accessModeSufficient": ("textual",),
        "accessibilityFeature": ("alternativeText", "MathML", "structuralNavigation", "tableOfContents"),
        "accessibilityHazard": ("none",),
        "accessibilitySummary": ("Pictures have texts, formulas are MathML with their TeX, instruments are tables.",),
    }
    told = "".join(
        f'<meta property="schema:{key}">{html.escape(value)}</meta>'
        for key, values in facts.items()
        for value in values
    )
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<package xmlns="http://www.idpf.org/2007/opf" version="3.0" '
        'unique-identifier="name" xml:lang="en"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f'<dc:identifier id="name">urn:uuid:{name}</dc:identifier><dc:title>{html.escape(book["title"])}</dc:title>'
        f"<dc:creator>{html.escape(book['author'])}</dc:creator><dc:language>en</dc:language>"
        f"<dc:publisher>{html.escape(book['author'])}</dc:publisher><dc:date>{changed:%Y-%m-%d}</dc:date>"
        f"<dc:rights>{html.escape(single_page.rights())}</dc:rights>{source}"
        f'<meta property="dcterms:modified">{changed:%Y-%m-%dT%H:%M:%SZ}</meta>'
        f'<meta name="cover" content="cover-image"/>{told}</metadata><manifest>{"".join(items)}</manifest>'
        f'<spine><itemref idref="cover"/><itemref idref="imprint"/><itemref idref="nav"/>{order}</spine></package>'
    )


def kind_of(picture: str) -> str:
    suffix = picture.rpartition(".")[2].lower()
    return {"svg": "svg+xml", "jpg": "jpeg"}.get(suffix, suffix)


def picture_bytes(source: Path) -> bytes:
    """A picture's file. An SVG by matplotlib names each bitmap by its content, twice where two are alike."""
    content = source.read_bytes()
    return NAME_OF_BITMAP.sub(rb"\1", content) if source.suffix == ".svg" else content


def make(
    target: Path, folder: Path = single_page.HTML, only: Sequence[str] = (), toc: Path = ROOT / "_toc.yml"
) -> list[str]:
    """Write the pages in `folder` as an EPUB to `target`; there is nothing to say of it."""
    leaves = single_page.read(folder, toc, only)
    single_page.with_own_ids(leaves, lambda page, name: f"{page}.xhtml#{name}" if name else f"{page}.xhtml")
    pictures: dict[str, Path] = {}
    for leaf in leaves:
        single_page.gather_folds(leaf)
        for picture in leaf.article.find_all("img", src=True):
            source = folder / "chapters" / str(picture["src"])
            pictures[source.name] = source
    cover = drawn_cover()
    for leaf in leaves:
        readable(leaf)
    changed = single_page.now()
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w") as book:

        def write(name: str, data: str | bytes, method: int = zipfile.ZIP_DEFLATED) -> None:
            entry = zipfile.ZipInfo(name, changed.timetuple()[:6])
            entry.external_attr = 0o644 << 16
            book.writestr(entry, data, method, compresslevel=9)

        write("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        write("META-INF/container.xml", CONTAINER)
        write("EPUB/package.opf", package(leaves, pictures, changed))
        write("EPUB/nav.xhtml", navigation(leaves))
        write("EPUB/cover.xhtml", cover_page(inline=False))
        write("EPUB/cover.png", cover)
        imprint = f"<section><h1>Imprint</h1>{single_page.imprint()}</section>"
        write("EPUB/imprint.xhtml", xhtml("Imprint", imprint, ' epub:type="copyright-page"'))
        write("EPUB/style.css", STYLE.read_bytes())
        write(f"EPUB/{FONT.name}", FONT.read_bytes())
        for leaf in leaves:
            write(f"EPUB/{leaf.name}.xhtml", xhtml(leaf.title, leaf.article.decode(formatter=PLAIN)))
        for name, source in sorted(pictures.items()):
            write(f"EPUB/images/{name}", picture_bytes(source))
    return []


if __name__ == "__main__":
    sys.exit(single_page.main(str(__doc__), {downloads.EPUB: make}))
