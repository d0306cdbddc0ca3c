"""The number of a chapter, by its topic: by what its notebook is called behind its number."""

from __future__ import annotations

import functools
import json
from pathlib import Path

STEMS = Path(__file__).with_name("chapters.json")  # the notebooks' names, written by tools/teaching/exercises.py


@functools.cache
def numbers() -> dict[str, int]:
    """In the order of the book."""
    stems = sorted(json.loads(STEMS.read_text(encoding="utf-8")))
    return {stem[3:]: int(stem[:2]) for stem in stems}


def number_of(topic: str) -> int:
    """Of the chapter with this topic, such as "weighted_average".

    Raises:
        ValueError: the book has no such chapter.
    """
    if topic not in numbers():
        raise ValueError(f"topic={topic!r}: no notebook in chapters/ is called so; after a change:  make exercises")
    return numbers()[topic]
