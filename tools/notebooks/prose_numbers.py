"""Numbers in the prose of a chapter, and where each comes from.

A number with a decimal point or a percent sign in a Markdown cell speaks of a run unless something else is said. It
must be printed in the same section (a part of the page from one `##` heading to the next; the page's first part, its
exercises and its recap may quote any of it), be a setting in that section's code, or be named in the cell's metadata:

    {"numbers": {"0.997": "results: 03_why_more_than_one_head.nonlinear", "0.84": "page: 13_translator",
                 "17.5 %": "paper: Michel et al. 2019, figure 3", "0.25": "given: a quarter of four keys",
                 "0.42": "run: exercise 2, seed 10"}}

`results:` and `page:` are looked up; `paper:`, `given:` (arithmetic, numbers that the reader is to imagine) and `run:`
(what whoever wrote the answer to an exercise got when doing it) are not.
Formulas, code and links are not prose. A number that a reader can drag, or that follows one, is held by sentences.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tools.notebooks import statements

SOURCES = ("results", "page", "paper", "given", "run")
WHOLE_PAGE = ("Recap", "Exercises", "In code", "The same thing elsewhere", "Sources")
NOT_PROSE = re.compile(
    r"^(?P<fence>`{3,}|~{3,}).*?^(?P=fence)|\$\$.+?\$\$|\$[^$\n]+\$|`[^`\n]*`|\]\([^)]*\)|https?://\S+|"
    r"<span class=\"(?:drag|follows)\"[^<>]*>[^<>]*</span>|<[^<>\n]+>|"
    r"arXiv:\S+|\b\d{4}\.\d{4,5}\b|\bFigures? \d+\.\d+(?: (?:and|to) \d+\.\d+)?",
    re.MULTILINE | re.DOTALL,
)
CLAIM = re.compile(r"(?<![\w.])[-−+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\w])(?!\.\d)(?: ?%)?")


def claims(markdown: str) -> list[str]:
    """The numbers with a decimal point or a percent sign, as they are written."""
    prose = NOT_PROSE.sub(" ", markdown)
    return [found for found in CLAIM.findall(prose) if "." in found or "%" in found]


def value(claim: str) -> tuple[float, float]:
    """A written number and half a unit of its last digit: "91 %" is (0.91, 0.005)."""
    scale = 0.01 if "%" in claim else 1.0
    digits = claim.rstrip(" %").replace(",", "").replace("−", "-").lstrip("+")
    places = len(digits.partition(".")[2])
    return scale * float(digits), scale * 0.5 * 10.0**-places


def printed(texts: Iterable[str]) -> set[float]:
    """All numbers in these texts; a percentage counts as its share of one, and as it is written."""
    found: set[float] = set()
    for text in texts:
        for number in statements.parted(text.replace("\n", " ; "))[1]:
            found |= {number.value, number.value / 100} if number.percent else {number.value}
    return found


def holds(claim: str, numbers: Iterable[float]) -> bool:
    """Whether the claim is one of the numbers, rounded as it is written; signs are prose's to choose."""
    target, slack = value(claim)
    return any(abs(abs(target) - abs(number)) <= slack * (1 + 1e-9) + 1e-12 for number in numbers)


def sections(cells: Sequence[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The cells of each part of a page, with its heading: "" for what comes before the first `##`."""
    heading = ""
    found: list[dict[str, Any]] = []
    for cell in cells:
        if cell["cell_type"] == "markdown":
            parts = re.split(r"^(?=## )", cell["source"], flags=re.MULTILINE)
            for i, part in enumerate(parts):
                if i > 0 or part.startswith("## "):
                    yield heading, found
                    heading, found = part.removeprefix("## ").partition("\n")[0].strip(), []
                if part.strip():
                    found.append({**cell, "source": part})
        else:
            found.append(cell)
    yield heading, found


def outputs(cells: Iterable[dict[str, Any]]) -> list[str]:
    """All that the code cells print."""
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    kinds = ("stdout", "text/plain", "text/html")
    return [statements.texts(cell["outputs"]).get(kind, "") for cell in code for kind in kinds]


def unaccounted(
    cells: Sequence[dict[str, Any]],
    page_numbers: Callable[[str], set[float]],
    results: Callable[[str], Iterable[float]],
) -> list[str]:
    """A sentence for each number in the prose of a notebook that is not where it is said to be."""
    whole = printed(outputs(cells))
    found, used = [], set()
    for heading, part in sections(cells):
        everywhere = heading in ("", *WHOLE_PAGE)
        code = [cell["source"] for cell in part if cell["cell_type"] == "code"]
        near = (whole if everywhere else printed(outputs(part))) | printed(code)
        for cell in part:
            if cell["cell_type"] != "markdown":
                continue
            named = cell.get("metadata", {}).get("numbers", {})
            for claim in claims(cell["source"]):
                used.add((str(cell.get("id")), claim))
                if claim not in named:
                    if not holds(claim, near):
                        found.append(
                            f"{claim} under {heading or 'the title'!r}: printed nowhere in this section: "
                            "print it there, or name its source in the metadata"
                        )
                    continue
                kind, _, where = named[claim].partition(":")
                where = where.strip()
                if kind not in SOURCES or not where:
                    found.append(f"{claim}: source {named[claim]!r} must begin with one of {', '.join(SOURCES)}")
                elif kind == "page" and not holds(claim, page_numbers(where)):
                    found.append(f"{claim}: not printed on page {where}: correct the number")
                elif kind == "results" and not holds(claim, results(where)):
                    found.append(f"{claim}: not in the results {where}: correct the number")
    for cell in cells:
        for claim in cell.get("metadata", {}).get("numbers", {}):
            if (str(cell.get("id")), claim) not in used:
                found.append(f"{claim}: named in the metadata of {cell.get('id')}, but not in its text: drop it there")
    return found
