"""A few thousand words of plain English, written for this book: about animals by a river, and about heads."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import torch
from torch import Tensor

from .._validate import require_text
from ._vocabulary import Vocabulary

HELD_OUT_EVERY = 10


@cache
def prose() -> tuple[str, str]:
    """The text in lower case, in two parts: to learn from, and unseen. A line is a paragraph; every tenth is unseen."""
    text = (files("mhalib.data") / "prose.txt").read_text(encoding="utf-8").lower()
    paragraphs = [line for line in text.splitlines() if line]
    parts: tuple[list[str], list[str]] = ([], [])
    for number, paragraph in enumerate(paragraphs):
        parts[number % HELD_OUT_EVERY == HELD_OUT_EVERY - 1].append(paragraph)
    train, unseen = ("\n".join(part) + "\n" for part in parts)
    return train, unseen


@cache
def letters() -> Vocabulary:
    """The characters of the text, space and line break among them, as words of one character."""
    return Vocabulary(sorted(set("".join(prose()))))


def encode_letters(text: str) -> Tensor:
    """Text -> (N,) ids in `letters()`; capitals do not matter.

    Raises:
        TypeError: `text` is no string.
        ValueError: a character does not occur in the book's text.
    """
    require_text("text", text)
    known = letters().ids
    unknown = sorted(set(text.lower()) - set(known))
    if unknown:
        raise ValueError(f"text holds {unknown}, which are not in mhalib.data.letters().words")
    return torch.tensor([known[letter] for letter in text.lower()], dtype=torch.long)


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
