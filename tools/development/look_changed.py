"""What a reader sees otherwise than in another build of the book, for `make look AGAINST=...`: picture by picture."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tools.development import links, look_sheets
from tools.development.look_browser import MODES
from tools.development.look_figures import Seen
from tools.development.look_pages import Top
from tools.development.look_pixels import Picture, difference
from tools.development.look_sheets import Tile

LEAST = 0.0005  # of the pixels: what counts as another picture
FILES = (".css", ".gif", ".jpg", ".js", ".png", ".svg", ".webp", ".woff", ".woff2")
ROWS = 4  # on one sheet


@dataclass
class Look:
    """All that was seen of one page."""

    page: str
    figures: Seen
    top: Top

    def pictures(self) -> dict[str, Picture]:
        """What is compared, by name: its first screens at each width, and each figure in each mode."""
        screens = {f"first screens, {width} light": screen for width, screen in self.top.screens.items()}
        shown = [(mode, one) for mode in MODES for one in self.figures.figures.get(mode, [])]
        return screens | {f"{one.name}, {mode}": one.seen for mode, one in shown}


@dataclass
class Changes:
    """What differs of a page: rows of its sheet, and a line for each."""

    rows: list[list[Tile]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


def unpacked(build: Path, folder: Path) -> Path:
    """The folder of a build's pages: `build` itself, one within it, or what its zip holds, unpacked into `folder`.

    Raises:
        ValueError: there are no built pages in it.
    """
    if build.is_file() and zipfile.is_zipfile(build):
        with zipfile.ZipFile(build) as packed:
            packed.extractall(folder)
        build = folder
    starts = sorted(build.rglob("chapters/index.html"), key=lambda path: len(path.parts))
    if not starts:
        raise ValueError(f"AGAINST={str(build)!r} holds no chapters/index.html: name a folder or a zip of a build")
    return starts[0].parents[1]


def fingerprint(html: Path, page: str) -> str:
    """A hash of a page and of all files that it shows, or nothing where the build has no such page."""
    path = html / f"{page}.html"
    if not path.is_file():
        return ""
    text = path.read_text(encoding="utf-8")
    named = {unquote(urlsplit(link).path) for link in links.Page(text).links if not urlsplit(link).netloc}
    files = sorted((path.parent / name).resolve() for name in named if name.endswith(FILES))
    hashes = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.is_file()]
    return hashlib.sha256("\n".join([text, *hashes]).encode()).hexdigest()


def that_differ(before: Path, now: Path, pages: list[str]) -> list[str]:
    """Of these pages, those that are not byte by byte as they were."""
    return [page for page in pages if fingerprint(before, page) != fingerprint(now, page)]


def compare(before: Look | None, now: Look) -> Changes:
    """Each picture of a page beside what it was, where they differ; `before` is `None` for a new page."""
    old, new = before.pictures() if before else {}, now.pictures()
    found = Changes()
    for name in dict.fromkeys([*new, *old]):
        one, other = old.get(name), new.get(name)
        if one is None or other is None:
            said = "it is new" if one is None else "it is gone"
            shown = look_sheets.beside(one, other)
            tiles = [Tile("before", shown[0]), Tile(f"now: {name}: {said}", shown[1])]
        else:
            share, drawn = difference(one, other)
            if share < LEAST:
                continue
            said = f"{share:.1%} of it differs"
            tiles = [Tile("before", one), Tile(f"now: {name}", other), Tile(said, drawn)]
        scale = 0.5 if name.startswith("first screens") else 1.0
        found.rows.append([Tile(tile.name, tile.picture, scale=scale) for tile in tiles])
        found.lines.append(f"{now.page}: {name}: changed: {said}")
    return found


def sheets(changes: Changes, page: str, folder: Path) -> None:
    """The sheets of a page: before, now, and what differs in red."""
    stem = page.removeprefix("chapters/")
    for place in range(0, len(changes.rows), ROWS):
        path = folder / f"{stem}-{place // ROWS + 1}.png"
        look_sheets.table(f"{page}: before, now, what differs", changes.rows[place : place + ROWS], path)
