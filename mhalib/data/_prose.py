"""Prose to learn from: seven books of the King James Bible of 1611, about 100,000 words.

Genesis, Ruth, the two books of Samuel, Proverbs, Ecclesiastes and Jonah, from Debian's package `bible-kjv-text` 4.38,
whose copyright file says that the copyright of the text has expired. Verse numbers and headings are left out; a line is
a verse, and an empty line separates chapters. In the United Kingdom alone, printing this translation is reserved to the
Crown by letters patent.
"""

from __future__ import annotations

import lzma
from functools import cache
from importlib.resources import files

import torch
from torch import Tensor

from .._validate import require_text
from ._vocabulary import Vocabulary

HELD_OUT_EVERY = 10


@cache
def prose() -> tuple[str, str]:
    """The text in two parts: to learn from, and unseen. Chapters are separated by an empty line; every tenth is unseen.

    The source and its terms are in the docstring of the module, `mhalib/data/_prose.py`: seven books of the King James
    Bible of 1611.
    """
    text = lzma.decompress((files("mhalib.data") / "prose.txt.xz").read_bytes()).decode("ascii")
    parts: tuple[list[str], list[str]] = ([], [])
    for number, chapter in enumerate(text.strip("\n").split("\n\n")):
        parts[number % HELD_OUT_EVERY == HELD_OUT_EVERY - 1].append(chapter)
    train, unseen = ("\n\n".join(part) + "\n" for part in parts)
    return train, unseen


@cache
def letters() -> Vocabulary:
    """The characters of the text, space and line break among them, as words of one character."""
    return Vocabulary(sorted(set("".join(prose()))))


def encode_letters(text: str) -> Tensor:
    """Text -> (N,) ids in `letters()`; a capital is another character than its small letter.

    Raises:
        TypeError: `text` is no string.
        ValueError: a character does not occur in the book's text.
    """
    require_text("text", text)
    known = letters().ids
    unknown = sorted(set(text) - set(known))
    if unknown:
        raise ValueError(f"text holds {unknown}, which are not in mhalib.data.letters().words")
    return torch.tensor([known[letter] for letter in text], dtype=torch.long)


def decode_letters(tokens: Tensor) -> str:
    """(N,) ids -> text; errors as in `Vocabulary.decode`."""
    return "".join(letters().decode(tokens))


def longest_copy(text: str, source: str) -> str:
    """The longest run of characters of `text` that stands in `source` too, the first of several.

    >>> longest_copy("the boat ran", "a fox ran over the boards")
    'the boa'
    """
    require_text("text", text)
    require_text("source", source)
    best = ""
    for start in range(len(text)):
        while start + len(best) < len(text) and text[start : start + len(best) + 1] in source:
            best = text[start : start + len(best) + 1]
    return best
