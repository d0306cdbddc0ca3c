"""Tokens as text that can be read, in tables and pictures."""

from __future__ import annotations

from collections.abc import Callable


def is_seen(character: str) -> bool:
    """Whether a browser shows something for it, or joins others with it."""
    return character.isprintable() or character == "\u200d"


def spelt(token: str, can_be_shown: Callable[[str], bool] = is_seen) -> list[str]:
    """Its characters; one that cannot be shown is spelt as its code, such as \\u65e5."""
    return [one if can_be_shown(one) else one.encode("unicode_escape").decode() for one in token]


def shown(text: str) -> str:
    """The whole text, spelt."""
    return "".join(spelt(text))


def legible(token: str, most: int, can_be_shown: Callable[[str], bool] = is_seen) -> str:
    """The token, spelt in at most `most` letters: what is long ends in an ellipsis, and no code is cut in two."""
    drawn = spelt(token[: most + 1], can_be_shown)
    if sum(map(len, drawn)) <= most:
        return "".join(drawn)
    while sum(map(len, drawn)) >= most:
        drawn.pop()
    return "".join(drawn) + "…"
