"""Show what a person would notice: figures, the first screens of pages, formulas, and what changed: `make look`.

    python -m tools.development.look [--pages NAME ...] [--html FOLDER] [--against FOLDER_OR_ZIP] [--out FOLDER]

A name is that of a page, as 07_per_head_heatmaps, or the number of a chapter; without names, all pages are looked at.
In --out: `findings.txt`, a line for each thing that is wrong with a figure or a page; `pages.txt`, the pages in
numbers; `index.html` with all contact sheets, which are for eyes. With --against, only pages that differ from that
build are looked at, and `changed` holds what differs: before, now, and the difference in red.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright
from tqdm import tqdm

from tools.development import formula_ink, look_changed, look_figures, look_formulas, look_pages, look_sheets
from tools.development.look_browser import DESKTOP, HEIGHTS, MODES, NIGHT, PHONE, opened, resize
from tools.development.look_changed import Look
from tools.development.look_figures import Seen
from tools.development.look_pages import Top
from tools.development.look_sheets import Tile
from tools.development.page_weight import HTML, PackingHandler
from tools.pages import chromium
from tools.pages.ways import ALL_OPEN

OUT = HTML.parent / "look"
PARTS = ("changed", "figures", "formulas", "pages")
TALL = 1100  # pixels that the first screens of a page take on their sheet


def pages_of(html: Path, names: Sequence[str]) -> list[str]:
    """The pages of a build that are meant by these names, or all of them.

    Raises:
        ValueError: there is no such page, or no build.
    """
    there = [path.relative_to(html).with_suffix("").as_posix() for path in sorted(html.glob("chapters/*.html"))]
    if not there:
        raise ValueError(f"{html} has no built book: run  make book  first")
    found = []
    for name in names:
        wanted = f"chapters/{int(name):02}_" if name.isdigit() else f"chapters/{Path(name).stem}"
        fits = [page for page in there if page.startswith(wanted) and (name.isdigit() or page == wanted)]
        if not fits:
            raise ValueError(f"{name!r} is no page of {html}: there are {', '.join(Path(one).name for one in there)}")
        found += fits
    return found or there


def look_at(browser: Browser, site: str, page: str) -> Look:
    """All of one page: its top at three widths, then its figures in all modes, where folds are opened."""
    look = Look(page, Seen(page), Top(page))
    for scheme in ("light", "dark"):
        with opened(browser, f"{site}{page}.html{ALL_OPEN}", scheme) as tab:
            for width in HEIGHTS if scheme == "light" else ():
                resize(tab, width)
                look_pages.see(tab, width, look.top)
            for mode in (mode for mode in MODES if mode.scheme == scheme):
                resize(tab, mode.width)
                look.figures.figures[mode] = look_figures.figures(browser, tab)
    return look


def sheets(look: Look, out: Path) -> None:
    """The contact sheets of a page: its first screens, and its figures in three modes."""
    stem = look.page.removeprefix("chapters/")
    tops = [Tile(f"{width} px", one, scale=TALL / len(one)) for width, one in look.top.screens.items()]
    look_sheets.sheet(f"{look.page}: the first two screens", tops, out / f"pages/{stem}.png")
    for mode in (DESKTOP, NIGHT, PHONE):
        figures = look.figures.figures[mode]
        said = {one.name: [f"{f.check}: {f.said}" for f in look.figures.of(one, mode)] for one in figures}
        if figures:
            tiles = [Tile(one.name, one.seen, said[one.name]) for one in figures]
            path = out / f"figures/{stem}-{mode.width}-{mode.scheme}.png"
            look_sheets.sheet(f"{look.page}, {mode}", tiles, path)


def look_through(browser: Browser, html: Path, pages: Iterable[str], out: Path) -> tuple[list[str], list[str]]:
    """Look at pages and write their sheets; the findings, and the lines of the table."""
    findings, lines = [], [look_pages.HEAD]
    with chromium.serving(html, PackingHandler) as site:
        for page in tqdm(list(pages), unit="page", disable=None):
            look = look_at(browser, site, page)
            sheets(look, out)
            findings += [*map(str, look.figures.findings), *look.top.findings]
            lines.append(look.top.line)
    return findings, lines


def look_for_changes(browser: Browser, before: Path, html: Path, pages: Sequence[str], out: Path) -> list[str]:
    """Put what differs from another build beside it; a line for each picture."""
    found = []
    differ = look_changed.that_differ(before, html, list(pages))
    print(f"{len(differ)} of {len(pages)} pages are not byte by byte as they were")
    with chromium.serving(before, PackingHandler) as old_site, chromium.serving(html, PackingHandler) as site:
        for page in tqdm(differ, unit="page", disable=None):
            known = (before / f"{page}.html").is_file()
            old = look_at(browser, old_site, page) if known else None
            changes = look_changed.compare(old, look_at(browser, site, page))
            look_changed.sheets(changes, page, out / "changed")
            found += changes.lines
    return found


def summary(findings: Iterable[str]) -> list[str]:
    """How many findings there are of each check and mode, where lines name both."""
    counts = Counter(tuple(line.split(": ")[2:4]) for line in findings if line.count(": ") > 3)
    return [f"{check:10} {mode:12} {many:5}" for (mode, check), many in sorted(counts.items())]


def run(asked: argparse.Namespace) -> None:
    """Do what was asked for; the sheets of an earlier run go."""
    pages = pages_of(asked.html, asked.pages)
    for part in PARTS:
        shutil.rmtree(asked.out / part, ignore_errors=True)
    asked.out.mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = chromium.launch(playwright)
        if asked.against:
            before = look_changed.unpacked(asked.against, Path(folder))
            findings = look_for_changes(browser, before, asked.html, pages, asked.out)
        else:
            findings, lines = look_through(browser, asked.html, pages, asked.out)
        browser.close()
    if not asked.against and not asked.pages and formula_ink.MATHJAX.exists():
        findings += look_formulas.sheets(asked.out / "formulas")
    (asked.out / "findings.txt").write_text("\n".join([*findings, ""]), encoding="utf-8")
    (asked.out / "pages.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")
    look_sheets.index(asked.out, findings)
    print(*summary(findings), f"{len(findings)} findings; open  {asked.out / 'index.html'}", sep="\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", nargs="*", default=[], help="as 07_per_head_heatmaps, or 7")
    parser.add_argument("--html", type=Path, default=HTML, help="the folder of the built pages")
    parser.add_argument("--against", type=Path, help="another build, as a folder or a zip: only what differs is shown")
    parser.add_argument("--out", type=Path, default=OUT, help="where the sheets go")
    start = time.monotonic()
    try:
        run(parser.parse_args())
    except ValueError as error:
        parser.error(str(error))
    print(f"{time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
