"""Check every link of the built pages that leads to another of them, to a place in one, or to a file.

    python -m tools.development.links [FOLDER]

Lists those that lead nowhere, and fails if there is one. Links to other hosts are asked weekly, by the workflow
links.yml.
"""

from __future__ import annotations

import argparse
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tqdm import tqdm

from tools import ROOT

NOT_READ = ("_static", "_sources")  # no pages of ours


class Page(HTMLParser):
    """The places of a page that a link can lead to, and where its own links lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" or (name == "name" and tag == "a"):
                self.places.add(value or "")
            elif name in ("href", "src"):
                self.links.append(value or "")


def leading_nowhere(folder: Path) -> list[str]:
    """Each link of the pages in `folder` that leads to none of its files or places, as `page: link`."""
    root = folder.resolve()
    files = [path for path in sorted(root.rglob("*.html")) if not {*NOT_READ} & {*path.relative_to(root).parts}]
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in tqdm(files, unit="page", disable=None)}
    wrong = []
    for path, page in pages.items():
        for link in dict.fromkeys(page.links):
            address = urlsplit(link)
            if address.scheme or address.netloc:
                continue
            target = (path.parent / unquote(address.path)).resolve() if address.path else path
            target = target / "index.html" if target.is_dir() else target
            place = unquote(address.fragment)
            if not target.is_file():
                wrong.append(f"{path.relative_to(root)}: {link}: no such file")
            elif place and target in pages and place not in pages[target].places:
                wrong.append(f"{path.relative_to(root)}: {link}: no such place in the page")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "_build/html")
    wrong = leading_nowhere(parser.parse_args().folder)
    print("\n".join(wrong) or "every link within the book leads somewhere")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
