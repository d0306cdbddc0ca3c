"""The EPUB of a small book, by our own reading of the standard; `make epub` in the workflow asks epubcheck, too."""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import pytest
import small_book
from fontTools.ttLib import TTFont
from test_paper import run

from tools.editions import ebook, single_page
from tools.pages import downloads

pytestmark = [pytest.mark.browser, pytest.mark.tool]
XHTML, OPF, MATH = (
    "{http://www.w3.org/1999/xhtml}",
    "{http://www.idpf.org/2007/opf}",
    "{http://www.w3.org/1998/Math/MathML}",
)
NOT_IN_HTML5 = {"border", "align", "valign", "cellpadding", "bgcolor"}


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the EPUB, in their order."""
    html: Path = small_book.write(tmp_path_factory.mktemp("book"))
    run("ebook", html)
    with zipfile.ZipFile(html / downloads.EPUB) as made:
        first = made.infolist()[0]
        assert (first.filename, first.compress_type) == ("mimetype", zipfile.ZIP_STORED)
        return {name: made.read(name) for name in made.namelist()}


@pytest.fixture(scope="module")
def trees(book: dict[str, bytes]) -> dict[str, ElementTree.Element]:
    """Each file of XML; one that is not well formed is an error here."""
    return {
        name: ElementTree.fromstring(text) for name, text in book.items() if name.endswith((".xhtml", ".opf", ".xml"))
    }


def test_the_list_of_files_is_what_is_there(book: dict[str, bytes], trees: dict[str, ElementTree.Element]) -> None:
    assert book["mimetype"] == b"application/epub+zip"
    listed = {item.get("href"): item for item in trees["EPUB/package.opf"].iter(f"{OPF}item")}
    there = {name.removeprefix("EPUB/") for name in book if name.startswith("EPUB/")}
    assert there == listed.keys() | {"package.opf"}
    for name, item in listed.items():
        if name.endswith(".xhtml"):
            tree = trees[f"EPUB/{name}"]
            properties = set((item.get("properties") or "").split())
            assert ("mathml" in properties) == (tree.find(f".//{MATH}math") is not None)
            assert ("svg" in properties) == (tree.find(".//{http://www.w3.org/2000/svg}svg") is not None)
    fonts = re.findall(r'url\("([^"]+)"\)', book["EPUB/style.css"].decode())
    assert fonts
    assert set(fonts) <= {name for name, item in listed.items() if item.get("media-type") == "font/woff2"}
    assert all(ord("√") in TTFont(io.BytesIO(book[f"EPUB/{font}"])).getBestCmap() for font in fonts)
    order = [item.get("idref") for item in trees["EPUB/package.opf"].iter(f"{OPF}itemref")]
    assert order == ["cover", "imprint", "nav", *(f"page-{page}" for page in small_book.PAGES)]
    facts = book["EPUB/package.opf"].decode()
    assert re.search(r'<meta property="dcterms:modified">\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ</meta>', facts)
    assert all(f"<dc:{name}" in facts for name in ("identifier", "title", "language", "creator"))
    assert "></dc:" not in facts  # epubcheck: a book without an address names no source, and not an empty one


def test_a_library_finds_publisher_day_and_licence(book: dict[str, bytes]) -> None:
    facts, imprint = book["EPUB/package.opf"].decode(), book["EPUB/imprint.xhtml"].decode()
    assert "<dc:publisher>The Head by Head authors</dc:publisher>" in facts
    day = re.search(r"<dc:date>(\d{4}-\d\d-\d\d)</dc:date>", facts)
    assert day is not None
    assert f'<meta property="dcterms:modified">{day[1]}T' in facts
    assert f"<dc:rights>{single_page.rights()}</dc:rights>" in facts
    assert single_page.LICENCE in imprint
    assert "Permission is hereby granted" in imprint


def test_links_and_pictures_are_there(book: dict[str, bytes], trees: dict[str, ElementTree.Element]) -> None:
    ids = {name: [tag.get("id") for tag in tree.iter() if tag.get("id")] for name, tree in trees.items()}
    links = 0
    for name, tree in trees.items():
        assert len(ids[name]) == len(set(ids[name]))
        for tag in tree.iter():
            address = tag.get("href") or tag.get("src")
            if not address or urlsplit(address).scheme or name.endswith(".opf"):
                continue
            parts = urlsplit(address)
            target = posixpath.join("EPUB", parts.path) if parts.path else name
            assert target in book
            assert not parts.fragment or unquote(parts.fragment) in ids[target]
            links += tag.tag == f"{XHTML}a"
    assert links >= 20  # the contents' 9, of pages 3, of folds 10
    text = b"".join(body for name, body in book.items() if name.endswith(".xhtml")).decode()
    assert "genindex" not in text
    assert "install me" not in text
    assert "A weekend" not in text  # a way through the pages on a screen


def test_what_is_seen_has_words(trees: dict[str, ElementTree.Element]) -> None:
    page = trees["EPUB/01_first.xhtml"]
    assert [picture.get("alt") for picture in page.iter(f"{XHTML}img")] == ["Four squares & a line"]
    formulas = [formula.get("alttext") for formula in page.iter(f"{MATH}math")]
    assert formulas[0] == "d = D/h"
    assert len(formulas) == 2
    assert [formula.get("display") for formula in page.iter(f"{MATH}math")] == [None, "block"]
    assert all(tag.tag.startswith(MATH) for formula in page.iter(f"{MATH}math") for tag in formula.iter())


def test_a_page_holds_what_xhtml_may_hold(trees: dict[str, ElementTree.Element]) -> None:
    for tree in trees.values():
        links = [one for one in tree.iter() if one.tag.endswith("}a")]
        assert all(one.get("href") for one in links)  # what leads out of the book is a link no more
    for tree in trees.values():
        for tag in tree.iter():
            assert not NOT_IN_HTML5 & tag.attrib.keys()
            assert tag.tag.rpartition("}")[2] not in {"script", "details", "summary", "input", "button"}
    page = trees["EPUB/01_first.xhtml"]
    code = ["".join(one.itertext()) for one in page.iter(f"{XHTML}pre")]
    assert code[0].splitlines() == ["if 1 < 2:", small_book.WIDE]
    assert [one.text for one in page.iter(f"{XHTML}td")] == ["a", "1", "0.25"]
    assert trees["EPUB/index.xhtml"].find(".//{http://www.w3.org/2000/svg}svg").get("viewBox") == "0 0 60 30"


def test_two_bitmaps_of_a_figure_that_are_alike_share_no_id(tmp_path: Path) -> None:
    bitmap = '<image xlink:href="data:," id="image0a51" width="9"/>'
    (tmp_path / "one.svg").write_text(f'<svg><g id="axes_1">{bitmap}{bitmap}</g></svg>', encoding="utf-8")
    written = ebook.picture_bytes(tmp_path / "one.svg").decode()
    assert re.findall(r'\bid="(\w+)"', written) == ["axes_1"]
    assert written.count('xlink:href="data:,"') == written.count('width="9"') == 2


def test_the_contents_have_parts_chapters_and_sections(trees: dict[str, ElementTree.Element]) -> None:
    said = [" ".join("".join(item.itertext()).split()) for item in trees["EPUB/nav.xhtml"].iter(f"{XHTML}li")]
    part = next(one for one in said if one.startswith("Part I · Begin"))
    assert "1 · A first chapter" in part
    assert "Sums & scores" in said
    assert "Hints and answers" in said
