"""The built pages as one book: articles in the order of `_toc.yml`, for paper (`paper.py`) and e-readers (`ebook.py`).

What only a screen can do is taken out of an article: links to headings, the picture in small under the hook, the cell
that installs the package in Colab, buttons. Folds are opened. `with_own_ids` makes the ids of an article unique in the
book, and leads the links between pages to them; `gather_folds` moves what was folded to the end of its article, and
leaves links to it.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import html as markup
import os
import posixpath
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml
from bs4 import BeautifulSoup, Tag

from tools import ROOT
from tools.notebooks import address
from tools.pages import catalogues, downloads

HTML = ROOT / "_build/html"
SCREEN_ONLY = (
    "a.headerlink, p.downloads, p.kit, p.embed, figure.opening, div.tag_set-up, a.front-start, button.copybtn, "
    "noscript, img.only-dark, form.predict-form, div.predict-said, span.figure-files, nav.next-on-way"
)
SYMBOLS = ("math", "code", "em", "i")
ONE_LETTER_WORDS = ("a", "à", "y")  # of English and French
POINTS_TO_IDS = ("aria-labelledby", "aria-describedby", "aria-controls", "for", "headers")


Make = Callable[[Path, Path, Sequence[str], Path], list[str]]


@dataclass
class Leaf:
    """One page of the book. `part` is the caption above it in `_toc.yml`, where a part begins; else empty."""

    name: str
    title: str
    article: Tag
    part: str = ""

    @property
    def number(self) -> str:
        """`7` of `7 · What a heatmap proves`; empty for pages that are no chapters."""
        found = re.match(r"(\d+) · ", self.title)
        return found[1] if found else ""

    @property
    def bare_title(self) -> str:
        return self.title.removeprefix(f"{self.number} · ")


def listed(toc: Path) -> list[tuple[str, str, str]]:
    """Name, title (empty where the page has the only one) and part of each page of `_toc.yml`, in order."""
    settings = yaml.safe_load(toc.read_text(encoding="utf-8"))
    found = [(posixpath.basename(settings["root"]), "", "")]
    for part in settings["parts"]:
        for place, chapter in enumerate(part["chapters"]):
            caption = "" if place else part["caption"]
            found.append((posixpath.basename(chapter["file"]), chapter.get("title", ""), caption))
    return found


def settings() -> dict[str, str]:
    """Title and author of the book, from `_config.yml`; `url` and `pages` are empty where it has no address."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    found = {key: config[key] for key in ("title", "author", "copyright")}
    online = address.here()
    return found | {"url": online.url if online else "", "pages": online.pages if online else ""}


def now() -> datetime.datetime:
    """When the book is made: SOURCE_DATE_EPOCH, where it is set, for the same bytes from the same pages."""
    return datetime.datetime.fromtimestamp(
        int(os.environ.get("SOURCE_DATE_EPOCH") or time.time()), tz=datetime.timezone.utc
    )


RIGHTS = "Text and figures: CC BY 4.0, {}. Code: MIT licence."
LICENCE = "https://creativecommons.org/licenses/by/4.0/"


def rights() -> str:
    """The licences, in a line, as files say it of themselves."""
    return RIGHTS.format(LICENCE)


def imprint(volume: str = "") -> str:
    """What a book says of itself behind its title: version, day, licences, and how it is cited.

    It has no number of a bookseller's or a library's, for it has been given none. The MIT licence is printed whole,
    since it asks to be in every copy of the code, and the cells are code.
    """
    book, made, version = settings(), now(), catalogues.version(ROOT)
    title = book["title"] + (f". {volume}" if volume else "")
    day = f"{made.day} {made:%B %Y}"
    where = f" {book['pages']}" if book["pages"] else ""
    author = book["author"]
    plus = " The plus says that the text has changed since that version." if version.endswith("+") else ""
    entry = [
        "@book{headbyhead,",
        f"  title     = {{{{{book['title']}}}}},",
        f"  author    = {{{{{author}}}}},",
        f"  year      = {{{made.year}}},",
        f"  version   = {{{version}}},",
        *([f"  url       = {{{book['pages']}}},"] if book["pages"] else []),
        "}",
    ]
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8").split("\n\n")
    paragraphs = [
        f"<strong>{markup.escape(title)}</strong><br/>{markup.escape(author)}",
        f"Version {version}, made on {day}.{plus}"
        + (f" The newest is at {markup.escape(book['pages'])}" if book["pages"] else ""),
        f"Copyright © {book['copyright']} {markup.escape(author)}.",
        "<strong>Text and figures</strong> are under the licence <em>Creative Commons Attribution 4.0 "
        "International</em>, "
        f'CC BY 4.0: <a href="{LICENCE}">{LICENCE}</a>. You may copy, share and change them, also for money, if you '
        f"name “{markup.escape(author)}” and the title of the book, link to it and to the licence, and say what you "
        "changed. They come without any warranty.",
        "<strong>Code</strong>, in the cells and wherever it is printed here, is under the MIT licence:",
    ]
    cite = markup.escape(f"{author}. {book['title']}. Version {version}, {made.year}.{where}")
    return (
        "".join(f"<p>{one}</p>" for one in paragraphs)
        + "".join(f'<p class="small">{markup.escape(" ".join(one.split()))}</p>' for one in licence)
        + f"<p><strong>To cite the book:</strong> {cite}</p><pre>{markup.escape(chr(10).join(entry))}</pre>"
    )


def read(html: Path = HTML, toc: Path = ROOT / "_toc.yml", only: Iterable[str] = ()) -> list[Leaf]:
    """The pages of the built book, or those named in `only`. `FileNotFoundError` where a page is not built."""
    wanted = set(only)
    known = listed(toc)
    if unknown := wanted - {name for name, _, _ in known}:
        raise ValueError(f"{sorted(unknown)} not in {toc.name}")
    leaves = []
    for name, title, part in known:
        if wanted and name not in wanted:
            continue
        page = html / f"chapters/{name}.html"
        if not page.exists():
            raise FileNotFoundError(f"{page} is not there: run  make book  first")
        soup = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
        article = soup.select_one("article.bd-article")
        if article is None or article.h1 is None:
            raise ValueError(f"{page}: no article with a title")
        for gone in article.select(SCREEN_ONLY):
            gone.decompose()
        leaves.append(Leaf(name, title or article.h1.get_text(), article.extract(), part))
    return leaves


def pages_of(toc: Path, parts: Sequence[str]) -> list[str]:
    """The pages of `_toc.yml` in these parts, each named by what is before its title, as `Part I`."""
    found, part = [], ""
    for name, _, begins in listed(toc):
        part = begins.partition(" · ")[0] or part
        if part in parts:
            found.append(name)
    return found


def head(html: Path, name: str) -> list[Tag]:
    """The style sheets of a built page, and the script of its instruments, as tags; addresses as in the page."""
    soup = BeautifulSoup((html / f"chapters/{name}.html").read_text(encoding="utf-8"), "html.parser")
    return [
        tag.extract()
        for tag in soup.select("head link[rel=stylesheet], head script")
        if tag.name == "link" or "instruments" in str(tag)
    ]


def with_own_ids(leaves: list[Leaf], address: Callable[[str, str], str]) -> None:
    """Put the page's name before each id, and lead links there.

    `address(page, id)` is what a link to a page of this book becomes; the id is empty for the page as a whole. Links to
    files that are no pages of it lose their link and keep their words; so do links to an id that is not there.
    """
    ids = {leaf.name: {tag["id"] for tag in leaf.article.find_all(id=True)} for leaf in leaves}
    for leaf in leaves:
        for tag in leaf.article.find_all(id=True):
            tag["id"] = own_id(leaf.name, str(tag["id"]))
        for key in POINTS_TO_IDS:
            for tag in leaf.article.select(f"[{key}]"):
                value = tag[key]
                words = value if isinstance(value, list) else str(value).split()
                tag[key] = " ".join(own_id(leaf.name, word) for word in words)
        for link in leaf.article.find_all("a", href=True):
            parts = urlsplit(str(link["href"]))
            if parts.scheme or parts.netloc:
                continue
            page = posixpath.basename(parts.path).removesuffix(".html") if parts.path else leaf.name
            target = unquote(parts.fragment)
            is_page = page in ids and (not parts.path or parts.path.endswith(".html"))
            if not is_page or (target and target not in ids[page]):
                # a file beside the pages, or a page of another volume; in a drawing, a group keeps what is drawn
                link.name = "g" if link.find_parent("svg") else "span"
                link.attrs = {"class": link.get_attribute_list("class")}
            else:
                link["href"] = address(page, own_id(page, target) if target else "")


def own_id(page: str, name: str) -> str:
    return f"{page}--{name}"


def summary_of(fold: Tag) -> str:
    """What is written on a fold, as a heading: `Show how Figure 7.2 is drawn` -> `How Figure 7.2 is drawn`.

    A symbol keeps its case: `f need not be a dot product` says something of f.
    """
    summary = fold.find("summary", recursive=False)
    if summary is None:
        return "Details"
    said = summary.select_one("p.collapsed, span.in-words") or summary
    words = " ".join(said.get_text(" ").split()).removeprefix(": ").removeprefix("Show ")
    marked = said.find(SYMBOLS)
    begins = isinstance(marked, Tag) and words.startswith(" ".join(marked.get_text(" ").split()))
    first = words.partition(" ")[0]
    is_symbol = begins or (len(first) == 1 and first not in ONE_LETTER_WORDS)
    return words if is_symbol else words[:1].upper() + words[1:]


def belongs_to(fold: Tag) -> Tag | None:
    """Where on its page a fold is: the words of the heading above it, and its number in a list of exercises."""
    heading = fold.find_previous(re.compile("^h[1-6]$"))
    if heading is None:
        return None
    said = copy.copy(heading)
    said.name, said.attrs = "span", {}
    item = fold.find_parent("li")
    if item is not None and item.parent is not None and item.parent.name == "ol":
        place = item.parent.find_all("li", recursive=False).index(item)
        said.append(f", {int(str(item.parent.get('start', '1'))) + place}")
    return said


def open_folds(article: Tag) -> None:
    """Open each fold where it is; what was written on it becomes a line above it."""
    for fold in article.find_all("details"):
        words = summary_of(fold)
        if summary := fold.find("summary", recursive=False):
            summary.decompose()
        fold.name = "div"
        fold.attrs = {key: value for key, value in fold.attrs.items() if key == "id"}
        fold["class"] = "opened-fold"
        line = element("p", words, {"class": "fold-title"})
        fold.insert(0, line)


def gather_folds(leaf: Leaf) -> None:
    """Move the folds of a page to two sections at its end, hints and answers, and code; a link stays in their place.

    An aside (a card that opens) stays where it is, and a fold within a fold stays in it.
    """
    soup = BeautifulSoup("", "html.parser")
    for bar in leaf.article.select("details.exercises-in-code"):  # each exercise stays, and folds its own solution
        if summary := bar.find("summary", recursive=False):
            summary.decompose()
        bar.unwrap()
    ends: dict[str, list[Tag]] = {"Hints and answers": [], "Code behind the pictures": []}
    line: Tag | None = None
    outer = [fold for fold in leaf.article.find_all("details") if fold.find_parent("details") is None]
    kept = [fold for fold in outer if "sd-dropdown" not in classes(fold)]
    for place, fold in enumerate(kept, start=1):
        cell = fold.find_parent("div", class_="cell")
        is_code = "head-fold" in classes(fold) or (cell is not None and "tag_hide-input" in classes(cell))
        target, origin = own_id(leaf.name, f"fold-{place}"), own_id(leaf.name, f"from-fold-{place}")
        above = belongs_to(fold)
        link = soup.new_tag("a", attrs={"href": f"#{target}", "id": origin, "class": "to-fold"})
        link.string = summary_of(fold)
        before = previous_block(fold if cell is None or is_code else cell)
        if not is_code and line is not None and before is line:
            line.append(link)
        else:
            line = soup.new_tag("p", attrs={"class": "fold-links"})
            line.append(link)
            fold.insert_before(line)
            if not is_code and cell is not None:
                cell.insert_before(line.extract())
        entry = soup.new_tag("div", attrs={"class": "gathered", "id": target})
        title = soup.new_tag("p", attrs={"class": "gathered-title"})
        back = soup.new_tag("a", attrs={"href": f"#{origin}", "class": "from-fold"})
        back.string = summary_of(fold)
        title.append(back)
        if above is not None:
            title.extend([" · ", above])
        entry.append(title)
        if summary := fold.find("summary", recursive=False):
            summary.decompose()
        holder = soup.new_tag("div", attrs={"class": " ".join(classes(cell)) if cell is not None else "words"})
        holder.extend(list(fold.contents))
        entry.append(holder)
        ends["Code behind the pictures" if is_code else "Hints and answers"].append(entry)
        fold.decompose()
        if cell is not None and not cell.find(True):
            cell.decompose()
    for heading, entries in ends.items():
        if entries:
            slug = heading.split()[0].lower()
            section = soup.new_tag("section", attrs={"id": own_id(leaf.name, f"end-{slug}"), "class": f"end {slug}"})
            title = soup.new_tag("h2")
            title.string = heading
            section.append(title)
            section.extend(entries)
            leaf.article.append(section)
    open_folds(leaf.article)


def previous_block(tag: Tag) -> Tag | None:
    """The element directly before this one, if only space is between."""
    for before in tag.previous_siblings:
        if isinstance(before, Tag):
            return before
        if str(before).strip():
            return None
    return None


def lower_headings(article: Tag, by: int = 1) -> None:
    """Make each heading one of a lower rank where a part is above; its class, `was-h1`, says what it was."""
    for heading in article.find_all(re.compile("^h[1-6]$")):
        heading["class"] = " ".join([*classes(heading), f"was-{heading.name}"])
        heading.name = f"h{min(6, int(heading.name[1]) + by)}"


def classes(tag: Tag) -> list[str]:
    return [str(one) for one in tag.get_attribute_list("class") if one]


def element(name: str, text: str = "", attributes: dict[str, str] | None = None) -> Tag:
    """A new element."""
    made = BeautifulSoup("", "html.parser").new_tag(name, attrs=attributes or {})
    if text:
        made.string = text
    return made


def main(about: str, files: Mapping[str, Make]) -> int:
    """The command of a tool that makes files of the built pages.

    Args:
        about: the tool's docstring.
        files: by their names in the folder of the pages, what makes each. It is told the file, the folder of the pages,
            the names of those that are wanted, and the file of their order; returns what is to be said of them.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=(), metavar="NAME", help="pages, such as 07_per_head_heatmaps")
    parser.add_argument("--html", type=Path, default=HTML, help="the built pages")
    parser.add_argument("--toc", type=Path, default=ROOT / "_toc.yml", help="their order and titles")
    parser.add_argument("--to", type=Path, help="the folder to write to, in place of the pages' downloads")
    chosen = parser.parse_args()
    for name, make in files.items():
        target = chosen.to / posixpath.basename(name) if chosen.to else chosen.html / name
        started = time.monotonic()
        for line in make(target, chosen.html, chosen.only, chosen.toc):
            print(line)
        if target.exists():
            print(f"{target}: {downloads.megabytes(target)}, {time.monotonic() - started:.0f} s")
    if not chosen.to:
        downloads.update(chosen.html)
    return 0
