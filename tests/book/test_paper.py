"""The PDF of a small book: outline, contents, running heads, links, folds, and that nothing is cut."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import pikepdf
import pypdf
import pytest
import small_book
from bs4 import BeautifulSoup
from playwright.sync_api import Browser

from conftest import NO_BROWSER
from mhalib.widgets import style_sheet
from tools.editions import paper, single_page
from tools.notebooks import notebooks
from tools.pages import book_extension, catalogues, chromium, downloads

pytestmark = [pytest.mark.browser, pytest.mark.tool]


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_book.write(tmp_path_factory.mktemp("book"))


@pytest.fixture(scope="module")
def volumes(html: Path) -> list[pypdf.PdfReader]:
    assert "wider than the page" not in run("paper", html)
    return [pypdf.PdfReader(html / volume.file) for volume in downloads.VOLUMES]


@pytest.fixture(scope="module")
def pdf(volumes: list[pypdf.PdfReader]) -> pypdf.PdfReader:
    return volumes[0]


def run(tool: str, html: Path) -> str:
    """What a tool prints; a process of its own, for Playwright runs once in each."""
    command = [sys.executable, "-m", f"tools.editions.{tool}", "--html", str(html)]
    command += ["--toc", str(html.parent / "_toc.yml")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120, cwd=notebooks.ROOT)
    if chromium.NO_BROWSER in done.stderr:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(NO_BROWSER)
    assert done.returncode == 0, done.stderr
    return done.stdout


def text_of(page: pypdf.PageObject) -> str:
    return " ".join(unicodedata.normalize("NFKC", page.extract_text()).split())  # letters, not ligatures


def place_of(pdf: pypdf.PdfReader, words: str) -> int:
    """The number of the page with these words, from 1 on, past cover, imprint and contents."""
    return next(number for number, page in enumerate(pdf.pages, 1) if number > 3 and words in text_of(page))


def titles(outline: list, depth: int = 0) -> list[tuple[int, str]]:
    found = []
    for entry in outline:
        found += titles(entry, depth + 1) if isinstance(entry, list) else [(depth, entry.title)]
    return found


def test_the_outline_has_parts_chapters_and_sections(pdf: pypdf.PdfReader) -> None:
    outline = titles(pdf.outline)
    assert [title for depth, title in outline if depth == 0] == ["Contents", "A small book", "Part I · Begin"]
    assert (1, "1 · A first chapter") in outline
    assert (2, "Sums & scores") in outline
    assert (2, "Hints and answers") in outline
    assert (1, "2 · A second chapter") in outline


def test_the_contents_name_each_chapter_with_its_page(pdf: pypdf.PdfReader) -> None:
    listed = dict(re.findall(r"\d (A \w+ chapter) (\d+)", text_of(pdf.pages[2])))
    first, second = place_of(pdf, "each head is narrow"), place_of(pdf, "nothing is left")
    assert listed == {"A first chapter": str(first), "A second chapter": str(second)}
    assert second > first + 1


def test_each_page_has_its_chapter_and_its_number_above(pdf: pypdf.PdfReader) -> None:
    second = place_of(pdf, "nothing is left")
    for number, page in enumerate(pdf.pages, 1):
        said = text_of(page)
        if number == 1:
            assert said.startswith("Attention, Head by Head")
        else:
            head = (
                "MIT"
                if number == 2
                else "Contents"
                if number == 3
                else "2 · A second chapter"
                if number == second
                else ""
            )
            head = head or ("A small book" if number < place_of(pdf, "each head is narrow") else "1 · A first chapter")
            assert head in said
            assert re.search(rf"\b{number}\b", said)


def test_two_volumes_hold_what_is_read(volumes: list[pypdf.PdfReader]) -> None:
    """And neither the pages of the package; a link to the other volume is its words."""
    first, second = (" ".join(text_of(page) for page in volume.pages) for volume in volumes)
    assert "It is in a volume of its own; see the sums." in second
    assert "volume of its own" not in first
    assert "nothing is left" not in second
    assert "Look it up" not in first + second
    assert "Volume 1: Parts I to III" in text_of(volumes[0].pages[0])
    assert "Volume 2: Parts IV to VI, and reference" in text_of(volumes[1].pages[0])
    assert [title for depth, title in titles(volumes[1].outline) if depth == 0] == ["Contents", "Part IV · Go on"]


def test_every_page_of_the_real_book_is_in_one_volume_or_of_the_package() -> None:
    printed = [
        name for volume in downloads.VOLUMES for name in single_page.pages_of(notebooks.ROOT / "_toc.yml", volume.parts)
    ]
    left = {name for name, _, _ in single_page.listed(notebooks.ROOT / "_toc.yml")} - set(printed)
    assert len(printed) == len(set(printed))
    assert left
    assert all(name.startswith("api") for name in left)


def test_a_symbol_at_a_sentences_start_keeps_its_case(volumes: list[pypdf.PdfReader]) -> None:
    whole = " ".join(text_of(page) for page in volumes[1].pages)
    assert "f need not be a dot product" in whole
    assert "F need" not in whole


def test_a_circle_of_the_map_that_leads_to_the_other_volume_is_drawn_all_the_same(html: Path) -> None:
    toc = html.parent / "_toc.yml"
    leaves = single_page.read(html, toc, single_page.pages_of(toc, downloads.VOLUMES[0].parts))
    single_page.with_own_ids(leaves, lambda page, name: f"#{name or page}")
    drawing = leaves[0].article.svg
    assert {circle.parent.name for circle in drawing.find_all("circle")} == {"svg", "g"}
    assert drawing.find("a") is None


def test_the_imprint_says_version_day_licences_and_how_to_cite(
    volumes: list[pypdf.PdfReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    for volume in volumes:
        said = text_of(volume.pages[1])
        for words in (
            f"Version {catalogues.version(notebooks.ROOT)}, made on ",
            "creativecommons.org/licenses/by/4.0/",
            "The above copyright notice and this permission notice shall be included",
            "@book{headbyhead",
        ):
            assert words in said
        assert not re.search(r"ISBN|doi", said, re.IGNORECASE)
        about = volume.xmp_metadata
        assert "CC BY 4.0" in about.dc_rights["x-default"]
        assert about.dc_title["x-default"] == volume.metadata.title
        assert volume.metadata.title.startswith("Attention, Head by Head")
        assert about.dc_creator == [volume.metadata.author] == [single_page.settings()["author"]]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1796000000")
    assert "made on 30 November 2026" in single_page.imprint()
    monkeypatch.setenv("BOOK_REPOSITORY", "")
    assert "github" not in single_page.imprint()
    monkeypatch.setenv("BOOK_REPOSITORY", "some-one/heads")
    assert "https://some-one.github.io/heads/" in single_page.imprint()


def test_code_is_of_eight_and_a_half_points_and_longer_lines_are_smaller(pdf: pypdf.PdfReader) -> None:
    sizes: dict[str, float] = {}

    def note(text: str, page: list, matrix: list, _: dict, size: float) -> None:
        for words in ("solve_it", "number_3"):
            if words in text.replace("\xa0", " "):
                sizes[words] = size * abs(matrix[0] * page[0])

    for page in pdf.pages:
        page.extract_text(visitor_text=note)
    assert sizes["solve_it"] == pytest.approx(8.5, abs=0.1)
    assert 0.75 * paper.LEAST - 0.1 <= sizes["number_3"] < 8.4


def test_the_ways_through_the_pages_stay_on_the_screen(pdf: pypdf.PdfReader) -> None:
    assert "A weekend" not in "".join(map(text_of, pdf.pages))


def test_links_lead_somewhere(pdf: pypdf.PdfReader) -> None:
    targets, outside = [], []
    for page in pdf.pages:
        for note in page.get("/Annots", []):
            note = note.get_object()
            if "/Dest" in note:
                targets.append(note["/Dest"])
            elif note.get("/A", {}).get("/S") == "/GoTo":
                targets.append(note["/A"]["/D"])
            elif "/A" in note:
                outside.append(note["/A"]["/URI"])
    assert len(targets) >= 14  # contents 3, index 2, folds 5 there and 5 back, Figure 1.1
    assert {str(target) for target in targets} <= pdf.named_destinations.keys()
    assert {"01_first--sums", "01_first--figure-1-1"} <= {str(target).removeprefix("/") for target in targets}
    assert set(outside) == {"https://example.org/paper", single_page.LICENCE}


def test_folds_are_at_the_chapters_end_with_their_pages(pdf: pypdf.PdfReader) -> None:
    whole = " ".join(text_of(page) for page in pdf.pages)
    answers, page = whole.index("Hints and answers"), place_of(pdf, "There are four heads")
    assert whole.index("Paragraph 59") < answers < whole.index("There are four heads")
    assert whole.index("There are four heads") < whole.index("solve_it()") < whole.index("Code behind the pictures")
    assert whole.index("Code behind the pictures") < whole.index("draw_the_figure()")
    assert f"Answer p. {page}" in whole
    assert f"Hint 1 p. {page} Hint 2 p. {page} A solution p. {page}" in whole
    assert "install me" not in whole


def test_pages_are_a4_and_fonts_are_embedded(pdf: pypdf.PdfReader) -> None:
    whole = " ".join(text_of(page) for page in pdf.pages)
    assert "# its end" in whole
    assert "w39v39" in whole  # the wide formula's end: what is cut has no text in the PDF
    for page in pdf.pages[1:]:
        assert [round(float(side) / 72 * 25.4) for side in page.mediabox[2:]] == [210, 297]
        for font in page["/Resources"].get("/Font", {}).values():
            font = font.get_object()
            if font["/Subtype"] != "/Type3":  # those hold their glyphs themselves
                inner = font["/DescendantFonts"][0].get_object() if "/DescendantFonts" in font else font
                assert any(key.startswith("/FontFile") for key in inner["/FontDescriptor"])


def test_the_start_page_links_what_was_made(html: Path, pdf: pypdf.PdfReader) -> None:
    page = (html / downloads.START).read_text(encoding="utf-8")
    said = f"PDF, volume 1</a>: Parts I to III ({len(pdf.pages)} pages, 0."
    assert f'<a href="../{downloads.VOLUMES[0].file}">{said}' in page
    assert f'<a href="../{downloads.VOLUMES[1].file}">PDF, volume 2</a>' in page
    assert page.index('class="downloads"') < page.index('id="the-map"')
    downloads.update(html)
    assert (html / downloads.START).read_text(encoding="utf-8") == page


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("Show how it is drawn", "How it is drawn"),
        ("a solution", "A solution"),
        ("f need not be a dot product", "f need not be a dot product"),
        ('Show <math alttext="d_v"><msub><mi>d</mi><mi>v</mi></msub></math> by head', "d v by head"),
        ("<code>softmax</code> in two lines", "softmax in two lines"),
        ("the width <em>d</em>", "The width d"),
    ],
)
def test_a_folds_words_begin_large_and_symbols_keep_their_case(written: str, said: str) -> None:
    fold = BeautifulSoup(f"<details><summary>{written}</summary></details>", "html.parser").details
    assert single_page.summary_of(fold) == said


def test_a_start_page_without_files_has_no_links() -> None:
    page = '<p>x</p><section id="the-map">'
    assert downloads.html_with_links(page, "") == page
    with pytest.raises(ValueError, match="no section 'The map'"):
        downloads.html_with_links("<p>x</p>", '<p class="downloads">PDF</p>\n')


def test_one_page_printed_from_the_browser_shows_all(html: Path, browser: Browser) -> None:
    page = browser.new_page(color_scheme="dark", viewport={"width": 640, "height": 900})
    page.goto((html / "chapters/01_first.html").as_uri())
    page.locator("html").evaluate("html => html.dataset.theme = 'dark'")
    page.emulate_media(media="print")
    assert page.get_by_text("There are four heads.").evaluate("one => one.checkVisibility()")
    assert page.get_by_text("install me").bounding_box() is None
    assert all(page.locator("pre").evaluate_all("all => all.map(one => one.scrollWidth <= one.clientWidth + 1)"))
    ink = page.locator("body").evaluate("one => getComputedStyle(one).getPropertyValue('--pst-color-text-base')")
    assert ink == "#111"
    title = page.locator("h1").first
    assert title.evaluate("one => getComputedStyle(one, '::before').content") == '"1 · "'
    page.close()


def test_a_long_table_to_sort_is_printed_in_part_and_its_bars_are_drawings(browser: Browser) -> None:
    """All 342 rows of chapter 21's two tables, with each bar as a picture, were 58 of a volume's 69 MB."""
    cell = '<td class="mhalib-number" style="--share: 40%">0.4</td>'
    rows = "".join(f'<tr><th scope="row">row {n}.</th>{cell * 5}</tr>' for n in range(1, 41))
    frame = '<div class="mhalib-instrument"><div class="mhalib-frame mhalib-sortable-table-frame"><table><tbody>{}'
    page = browser.new_page(viewport={"width": paper.COLUMN, "height": 900})
    styles = "".join(f"<style>{text}</style>" for text in (style_sheet(), paper.STYLE.read_text(encoding="utf-8")))
    page.set_content(f"{styles}<body class='paper'>{frame.format(rows)}")
    printed = io.BytesIO(page.pdf(print_background=True))
    page.close()
    said = " ".join(text_of(one) for one in pypdf.PdfReader(printed).pages)
    assert "row 30." in said
    assert "row 31." not in said
    assert "the first 30 rows" in said
    with pikepdf.open(printed) as pdf:
        streams = [one for one in pdf.objects if isinstance(one, pikepdf.Stream)]
        assert not [one for one in streams if one.get("/Subtype") == "/Image"]


def test_the_build_numbers_chapters_for_paper() -> None:
    context = {"body": '<section id="a"><h1>A</h1><section id="b"><h2>B</h2></section></section>'}
    book_extension.number_chapter(None, "chapters/07_per_head_heatmaps", "page.html", context, None)
    assert '<section id="a"><h1 data-chapter="7">A</h1><section id="b">' in context["body"]
