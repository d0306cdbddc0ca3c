"""What the book's experiments gave in several runs, each from a seed of its own: one small file for each chapter.

`make results` makes the files from the chapters' own cells. They say with which seeds, versions and device.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from .._validate import require_text

__all__ = ["Results", "read"]

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Results:
    """The numbers of one chapter. `results["name"]` holds one for each seed, in the order of `seeds`."""

    chapter: str
    seeds: tuple[int, ...]
    device: str
    versions: dict[str, str]
    values: dict[str, tuple[float, ...]]

    def __getitem__(self, name: str) -> tuple[float, ...]:
        if name not in self.values:
            raise KeyError(f"{self.chapter} has no result {name!r}, but {', '.join(self.values)}")
        return self.values[name]

    def median(self, name: str) -> float:
        """The middle of what the seeds gave."""
        return median(self[name])

    def spread(self, name: str, digits: int = 2) -> str:
        """Mean, least and largest over the seeds: `"0.93 (0.91 to 0.95)"`."""
        found = self[name]
        return f"{fmean(found):.{digits}f} ({min(found):.{digits}f} to {max(found):.{digits}f})"


def read(chapter: str) -> Results:
    """The results of the chapter of this name, such as `"03_why_more_than_one_head"`.

    Raises:
        TypeError, ValueError: it is no string, or there is no such file.
    """
    require_text("chapter", chapter)
    path = FOLDER / f"{chapter}.json"
    if not path.is_file():
        known = ", ".join(sorted(each.stem for each in FOLDER.glob("*.json"))) or "none"
        raise ValueError(f"chapter={chapter!r} has no results; there are: {known}")
    stored = json.loads(path.read_text(encoding="utf-8"))
    values = {name: tuple(found) for name, found in stored["values"].items()}
    return Results(chapter, tuple(stored["seeds"]), stored["device"], stored["versions"], values)
