"""Token names that can be drawn: any script, any length, no surprise."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib import font_manager
from matplotlib.cbook import is_math_text
from matplotlib.mathtext import MathTextParser
from matplotlib.text import Text

from ._tokens import legible
from ._validate import as_list, require_text

MAX_LENGTH = 14
"""Characters of a token that are shown; a longer one ends in an ellipsis."""

DEFAULT_FONT = "DejaVu Sans"
"""Comes with matplotlib."""

FALLBACK_FONTS = (
    "Noto Sans CJK JP",
    "Noto Sans Devanagari",
    "Noto Sans Arabic",
    "Noto Sans Hebrew",
    "Noto Sans Thai",
    "Noto Sans Symbols2",
    "Arial Unicode MS",
    "Hiragino Sans",
    "Microsoft YaHei",
    "Segoe UI Symbol",
)


def clean_labels(name: str, labels: Sequence[str] | None, length: int) -> list[str]:
    """Names for `length` rows or columns; `None` numbers them.

    Long names are shortened, `$` is not read as mathematics, and a character that no font here can draw
    (a control character, or a script without a font) is spelt as its code, such as \\u65e5.

    Raises:
        TypeError: `labels` is one string.
        ValueError: there are not `length` of them.
    """
    if labels is None:
        return [str(i) for i in range(length)]
    if isinstance(labels, str):
        raise TypeError(f"{name} must be a sequence of strings, got one string: {labels!r:.80}")
    labels = as_list(name, labels)
    if len(labels) != length:
        raise ValueError(f"{name} has {len(labels)} entries, but the weights need {length}")
    return [legible(str(label), MAX_LENGTH, _can_be_drawn).replace("$", r"\$") for label in labels]


def words(name: str, text: object) -> str:
    """A text for matplotlib: what stands between two `$` is mathematics, where it is any that can be drawn, and else
    text. TypeError if `text` is no string."""
    require_text(name, text)
    assert isinstance(text, str)
    if is_math_text(text):
        try:
            MathTextParser("path").parse(text)
        except ValueError:
            return text.replace("$", r"\$")
    return text


def heading(title: object) -> str:
    """As `words`, for the title of a picture, which may be `None`."""
    return "" if title is None else words("title", title)


def columns(label: str) -> int:
    """How many letters wide a label is; a Chinese, Japanese or Korean character is as wide as two."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in label)


def set_fonts(texts: Sequence[Text]) -> None:
    """Let matplotlib look a character up in the installed fallback fonts when the first font lacks it."""
    families = [*plt.rcParams["font.family"], DEFAULT_FONT, *_installed_fallbacks()]
    for text in texts:
        text.set_fontfamily(families)


def _can_be_drawn(character: str) -> bool:
    return character == " " or (character.isprintable() and ord(character) in _drawable())


@functools.cache
def _installed_fallbacks() -> tuple[str, ...]:
    installed = {font.name for font in font_manager.fontManager.ttflist}
    return tuple(family for family in FALLBACK_FONTS if family in installed)


@functools.cache
def _drawable() -> frozenset[int]:
    """Codes of all characters that the default font or a fallback can draw."""
    families = [DEFAULT_FONT, *_installed_fallbacks()]
    fonts = [font_manager.get_font(font_manager.findfont(family)) for family in families]
    return frozenset().union(*(font.get_charmap() for font in fonts))
