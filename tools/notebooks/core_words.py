"""Count the words of chapters: of their core, and of the sections that are deeper.

    python -m tools.notebooks.core_words chapters/01_weighted_average.ipynb

The core is what a first reader reads: from the title to the bullets of the recap. Captions, tables and code within a
sentence count; formulas, code, what it prints, folds, exercises, *The same thing elsewhere* and *Sources* do not. A
section whose first paragraph begins with `*Deeper.*` is deeper, with all that is in it.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import nbformat

from tools.notebooks import notebooks

CORE_AT_MOST = 1500
NOT_COUNTED = {"Exercises", "The same thing elsewhere", "Sources"}
NOT_READ = {"launch", "exercise-launch", "exercise-text", "remove-cell", "hide-cell"}  # tags
MARK = "*Deeper.*"
HEADING = re.compile(r"^(?P<level>#{1,6}) +(?P<title>.+)$", re.MULTILINE)
FENCE = re.compile(r"^(`{3,}|:{3,}).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
FOLD = re.compile(r"<details\b(?:(?!<details\b).)*?</details>", re.DOTALL)  # the innermost first
FORMULA = re.compile(r"\$\$.+?\$\$|\$[^$\n]+?\$", re.DOTALL)
TAG = re.compile(r"<!--.*?-->|</?[a-zA-Z][^>]*>", re.DOTALL)
ADDRESS = re.compile(r"\]\([^)\s]*\)")
WORD = re.compile(r"\w+(?:['’.,-]\w+)*")


class Words(NamedTuple):
    """The words of a chapter."""

    core: int
    deeper: int


def read_once(text: str) -> str:
    """The words of Markdown that a reader reads, without folds, code, formulas, tags and addresses."""
    text = FENCE.sub("", text)
    while FOLD.search(text):
        text = FOLD.sub("", text)
    return ADDRESS.sub("]", TAG.sub("", FORMULA.sub(" ", text)))


def count(cells: Iterable[str]) -> Words:
    """The words of a chapter whose Markdown cells are given, in order."""
    text = "\n\n".join(map(read_once, cells))
    counted = {"core": 0, "deeper": 0}
    kind, level = "core", 0  # what the section is that is read, and the level of the heading where that began
    headings = list(HEADING.finditer(text))
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    for heading, end in zip(headings, ends, strict=True):
        own, body = len(heading["level"]), text[heading.end() : end]
        if kind == "core" or own <= level:
            marked = body.lstrip().startswith(MARK)
            kind = "none" if heading["title"].strip() in NOT_COUNTED else "deeper" if marked else "core"
            level = own
        if kind in counted:
            counted[kind] += len(WORD.findall(heading["title"])) + len(WORD.findall(body.replace(MARK, "", 1)))
    return Words(**counted)


def words_of(chapter: Path) -> Words:
    """The words of a chapter's notebook."""
    cells = nbformat.read(chapter, as_version=4).cells
    shown = [cell for cell in cells if not NOT_READ & set(cell.metadata.get("tags", []))]
    return count(cell.source for cell in shown if cell.cell_type == "markdown")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("chapters", nargs="*", type=Path, help="notebooks, all chapters if none is given")
    chosen = parser.parse_args(arguments).chapters or sorted(notebooks.CHAPTERS.glob("[0-9]*.ipynb"))
    print(f"{'chapter':34} {'core':>6} {'deeper':>6}")
    for chapter in chosen:
        print(f"{chapter.stem:34} {words_of(chapter).core:6} {words_of(chapter).deeper:6}")


if __name__ == "__main__":
    main()
