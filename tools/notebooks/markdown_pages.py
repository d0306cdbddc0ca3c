"""Read what stands in the book's Markdown pages: sections and tables. Needs the standard library only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

CHAPTERS = Path(__file__).resolve().parents[2] / "chapters"


@dataclass(frozen=True)
class Table:
    """A pipe table. `trail` holds the headings above it, from the page's title down."""

    trail: tuple[str, ...]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def cells(line: str) -> tuple[str, ...]:
    """`| a | b |` -> ("a", "b")."""
    return tuple(cell.strip() for cell in line.strip().strip("|").split("|"))


def tables(text: str) -> list[Table]:
    """All pipe tables of a page, in order."""
    found: list[Table] = []
    trail: list[str] = []
    block: list[str] = []
    for line in [*text.splitlines(), ""]:
        if heading := re.match(r"(#+) (.+)", line):
            trail = [*trail[: len(heading[1]) - 1], heading[2].strip()]
        if line.startswith("|"):
            block.append(line)
        elif block:
            if len(block) < 2:
                raise ValueError(f"under {' > '.join(trail)!r}: add the line |---| behind the header {block[0]!r}")
            header, _, *rows = map(cells, block)
            found.append(Table(tuple(trail), header, tuple(rows)))
            block = []
    return found


def code_names(cell: str) -> list[str]:
    """The names in backticks."""
    return re.findall(r"`([^`]+)`", cell)
