"""Print the built book as PDF in two volumes, _build/html/_downloads/attention-head-by-head-1.pdf and -2.pdf.

    python -m tools.editions.paper [--only NAME ...] [--to FOLDER] [--html FOLDER --toc FILE]

`VOLUMES` in `downloads.py` says which parts each holds. A link to a page of the other volume keeps its words alone.

Chromium prints one document that `single_page.py` makes of the pages: formulas, styles and links carry over.
`paper.css` sets the page. What varies by chapter, its running head, is a named page each. Page numbers in the text are
read from a first print, and set into the second; lines leave room for them, so that nothing moves.
"""

from __future__ import annotations

import functools
import html
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

import pikepdf
from bs4 import Tag
from playwright.sync_api import Page, sync_playwright

from tools import ROOT
from tools.editions import single_page
from tools.editions.single_page import Leaf
from tools.pages import catalogues, chromium, downloads
from tools.pages.downloads import Volume

STYLE = Path(__file__).with_name("paper.css")
COLUMN = 643  # CSS pixels: A4 less the margins of paper.css
LEAST = 9.3  # CSS pixels, 7 points: code whose lines are too long for the column at 8.5 gets smaller, down to this
PATIENCE = 540_000  # milliseconds, for the formulas of the whole book, and for its print
NUMBERS = """\
(pages) => {
  for (const link of document.querySelectorAll("a.contents-line, a.to-fold, a.from-fold")) {
    const page = pages[decodeURIComponent(link.hash.slice(1))];
    if (page) link.dataset.page = page;
  }
}
"""
SCRIPT = """\
async ([column, least]) => {
  await document.fonts.ready;
  const shrink = (inner, outer, least) => {
    const room = outer.clientWidth, needs = inner.scrollWidth;
    if (needs > room + 1) {
      const size = parseFloat(getComputedStyle(inner).fontSize);
      inner.style.fontSize = `${Math.max(least, size * (room - 2) / needs)}px`;
    }
  };
  for (const box of document.querySelectorAll("div.math")) {
    const formula = box.querySelector("math"), scale = (box.clientWidth - 4) / box.scrollWidth;
    if (formula && box.scrollWidth > box.clientWidth) {  // not by the size of its type, which has a least one
      const height = box.clientHeight * scale;
      Object.assign(formula.style, { width: "max-content", transformOrigin: "top left", transform: `scale(${scale})` });
      Object.assign(box.style, { height: `${height}px`, overflow: "hidden" });
    }
  }
  const code = [...document.querySelectorAll("pre")];
  for (const pre of code) pre.style.whiteSpace = "pre";
  const sizes = code.map((pre) => [pre.clientWidth, pre.scrollWidth, parseFloat(getComputedStyle(pre).fontSize)]);
  code.forEach((pre, place) => {
    const [room, needs, size] = sizes[place];
    pre.style.whiteSpace = "";
    const smaller = `${Math.max(least, (size * (room - 2)) / needs)}px`;
    if (needs > room + 1) pre.style.setProperty("font-size", smaller, "important");
  });
  for (const table of document.querySelectorAll("table"))
    for (let turn = 0; turn < 3; turn++) shrink(table, table.parentElement, 5.5);
  const wide = [...document.querySelectorAll("pre, table, math, img, svg")].filter(
    (one) => one.getBoundingClientRect().right > column + 2);
  return wide.map((one) => `${one.tagName} ${one.closest("article")?.id}: ${one.textContent.trim().slice(0, 60)}`);
}
"""


def in_quotes(text: str) -> str:
    """A string of CSS."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def named_pages(leaves: Sequence[Leaf]) -> str:
    """A named page for each chapter, its title in the running head; the chapter's first page goes without."""
    rules = []
    for leaf in leaves:
        rules.append(f"@page leaf-{leaf.name} {{ @top-left {{ content: {in_quotes(leaf.title)}; }} }}")
        rules.append(f'article[id="{leaf.name}"] {{ page: leaf-{leaf.name}; }}')
    return "\n".join(rules)


def cover(book: dict[str, str], edition: str, volume: str) -> str:
    logo = ROOT / "chapters/_static/logo.svg"
    title, _, rest = book["title"].partition(", ")
    return (
        f'<section id="cover">{logo.read_text(encoding="utf-8")}'
        f'<p class="book-title">{html.escape(title)}{"," if rest else ""}<br>{html.escape(rest)}</p>'
        f'<p class="book-volume">{html.escape(volume)}</p><p class="book-author">{html.escape(book["author"])}</p>'
        f'<p class="book-edition">{html.escape(edition)}</p></section>'
        f'<section id="imprint">{single_page.imprint(volume)}</section>'
    )


def contents(leaves: Sequence[Leaf]) -> str:
    """Parts and chapters; each line is a link, and ends in the number of its page."""
    lines = []
    for leaf in leaves:
        if leaf.part:
            lines.append(f'<p class="contents-part">{html.escape(leaf.part)}</p>')
        lines.append(
            f'<a class="contents-line" href="#{leaf.name}"><span class="contents-number">{leaf.number}</span>'
            f'<span class="contents-title">{html.escape(leaf.bare_title)}</span><span class="contents-dots"></span></a>'
        )
    return f'<section id="contents"><h1>Contents</h1><nav>{"".join(lines)}</nav></section>'


def opening(leaf: Leaf) -> None:
    """Set the chapter's number above its title, and the name of the part above that where one begins."""
    title = leaf.article.select_one(".was-h1")
    assert title is not None
    title.string = leaf.bare_title
    title["class"] = "chapter-title"
    if leaf.number:
        title.insert_before(single_page.element("p", leaf.number, {"class": "chapter-number"}))
    if leaf.part:
        leaf.article.insert(0, single_page.element("h1", leaf.part, {"class": "part-title"}))


def document(leaves: Sequence[Leaf], sheets: str, edition: str, volume: str) -> str:
    book = single_page.settings()
    body = []
    for leaf in leaves:
        leaf.article["id"] = leaf.name
        leaf.article["class"] = "bd-article leaf"
        body.append(str(leaf.article))
    return (
        f'<!doctype html><html lang="en" data-theme="light" data-mode="light"><head><meta charset="utf-8">'
        f"<title>{html.escape(book['title'])}. {html.escape(volume)}</title>{sheets}"
        f"<style>{STYLE.read_text(encoding='utf-8')}\n{named_pages(leaves)}</style></head>"
        f'<body class="paper">{cover(book, edition, volume)}{contents(leaves)}'
        f'<main class="bd-content">{"".join(body)}</main></body></html>'
    )


def sheets(folder: Path, leaves: Sequence[Leaf]) -> str:
    """The pages' own style sheets and scripts for instruments, each once."""
    found: dict[str, None] = {}
    for leaf in leaves:
        for tag in single_page.head(folder, leaf.name):
            found[str(tag)] = None
    return "".join(found).replace('"../', f'"../{folder.name}/')


def edition() -> str:
    """Which version of the book this is."""
    return f"Version {catalogues.version(ROOT)}, {single_page.now():%Y-%m-%d}"


def make(
    target: Path,
    folder: Path = single_page.HTML,
    only: Sequence[str] = (),
    toc: Path = ROOT / "_toc.yml",
    *,
    volume: Volume,
) -> list[str]:
    """Print the pages of a volume in `folder` to `target`; what is wider than the page is returned, in words."""
    names = [name for name in single_page.pages_of(toc, volume.parts) if not only or name in only]
    if not names:
        return []
    leaves = single_page.read(folder, toc, names)
    called = f"Volume {volume.number}: {volume.says}"
    head = sheets(folder, leaves)
    single_page.with_own_ids(leaves, lambda page, name: f"#{name or page}")
    in_part = False
    for leaf in leaves:
        in_part = in_part or bool(leaf.part)
        single_page.gather_folds(leaf)
        single_page.lower_headings(leaf.article, by=int(in_part))
        opening(leaf)
        for picture in leaf.article.find_all("img", src=True):
            show(picture, folder)
    work = folder.parent / "paper"
    work.mkdir(parents=True, exist_ok=True)
    source, printed = work / "book.html", work / "printed.pdf"
    source.write_text(document(leaves, head, edition(), called), encoding="utf-8")
    with sync_playwright() as playwright:
        browser = chromium.launch(playwright)
        page = browser.new_page(viewport={"width": COLUMN, "height": 900}, color_scheme="light")
        page.set_default_timeout(PATIENCE)
        page.emulate_media(media="print")
        page.goto(source.as_uri(), timeout=PATIENCE)
        wide = page.evaluate(SCRIPT, [COLUMN, LEAST])
        pages = print_out(page, printed)
        page.evaluate(NUMBERS, pages)
        if print_out(page, printed) != pages:
            raise RuntimeError(
                f"{source}: with page numbers set, pages moved: give .paged in {STYLE.name} a fixed width"
            )
        browser.close()
    finish(printed, target, leaves, called)
    return [f"wider than the page: {one}" for one in wide]


def show(picture: Tag, folder: Path) -> None:
    """Lead a picture to its file."""
    picture["src"] = str(picture["src"]).replace("../", f"../{folder.name}/", 1)
    picture.attrs.pop("loading", None)


def print_out(page: Page, to: Path) -> dict[str, int]:
    """Print; the number of the page, from 1 on, of each id that a link leads to."""
    page.pdf(path=to, prefer_css_page_size=True, print_background=True, outline=True, tagged=True)
    with pikepdf.open(to) as pdf:
        numbers = {one.objgen: number for number, one in enumerate(pdf.pages, start=1)}
        return {unquote(name[1:]): numbers[place[0].objgen] for name, place in pdf.Root.Dests.items()}


def finish(printed: Path, target: Path, leaves: Sequence[Leaf], volume: str) -> None:
    """Add what Chromium leaves out: author, subject and licences; and an outline that opens on parts and chapters."""
    book = single_page.settings()
    chapters = {leaf.bare_title: leaf.title for leaf in leaves}
    target.parent.mkdir(parents=True, exist_ok=True)
    with pikepdf.open(printed) as pdf:
        pdf.docinfo["/Author"] = book["author"]
        pdf.docinfo["/Subject"] = f"{volume}. {edition()}"
        with pdf.open_metadata() as about:
            about.load_from_docinfo(pdf.docinfo)  # or what this lacks is taken out of the other
            about["dc:rights"] = single_page.rights()
            about["xmpRights:WebStatement"] = single_page.LICENCE
        pdf.Root.PageMode = pikepdf.Name.UseOutlines
        for entry, depth in entries(pdf.Root.Outlines):
            if depth < 2 and str(entry.Title) in chapters:  # with its number
                entry.Title = pikepdf.String(chapters.pop(str(entry.Title)))
            if depth > 0 and "/Count" in entry:
                entry.Count = -abs(int(entry.Count))  # closed
        if chapters:
            raise RuntimeError(f"{printed}: not in the outline: {', '.join(chapters)}")
        pdf.save(target, object_stream_mode=pikepdf.ObjectStreamMode.generate)  # half the size


def entries(above: pikepdf.Object, depth: int = 0) -> Iterator[tuple[pikepdf.Object, int]]:
    """All entries of an outline, each with its depth."""
    entry = above.get("/First")
    while entry is not None:
        yield entry, depth
        yield from entries(entry, depth + 1)
        entry = entry.get("/Next")


if __name__ == "__main__":
    sys.exit(
        single_page.main(
            str(__doc__), {volume.file: functools.partial(make, volume=volume) for volume in downloads.VOLUMES}
        )
    )
