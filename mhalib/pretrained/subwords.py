"""What a token covers of its text, so that tokens of any script can be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from .._validate import require_kind

BLANKS = {" ": "␣", "\n": "⏎", "\t": "⇥"}


def pieces(text: str, encoded: Any) -> tuple[str, ...]:
    """For each token the piece of text that it covers.

    A tokenizer's own names are made for machines: byte-level ones write "Ġthe" for a space and "the", and "æ", "Ĺ",
    "¥" for the three bytes of "日". Here these are "the", and "日(1/3)", "日(2/3)", "日(3/3)".

    - Blanks around a piece are left out. A blank elsewhere is "␣", "⏎" or "⇥".
    - A character that several tokens share has behind it which part of it a token holds.
    - A token that covers nothing, such as "[CLS]", keeps its name. One that the vocabulary lacks shows what it covers.

    Args:
        text: what was encoded.
        encoded: what `tokenizer.encode(text)` returned.

    Returns:
        N pieces; none is empty.

    Raises:
        TypeError: `text` is no string, or `encoded` not what a tokenizer returns.
        ValueError: an offset is outside the text.
    """
    require_kind("text", text, str)
    if not all(hasattr(encoded, name) for name in ("tokens", "offsets", "special_tokens_mask")):
        raise TypeError(f"encoded must be what tokenizer.encode returns, got {type(encoded).__name__}: {encoded!r:.80}")
    spans = [_without_blanks(text, *span) for span in encoded.offsets]
    shared = Counter(place for start, stop in spans for place in range(start, stop))
    seen: Counter[int] = Counter()
    found = []
    for token, (start, stop), is_special in zip(encoded.tokens, spans, encoded.special_tokens_mask, strict=True):
        letters = []
        for place in range(start, stop):
            seen[place] += 1
            part = f"({seen[place]}/{shared[place]})" if shared[place] > 1 else ""
            letters.append(_seen(text[place]) + part)
        found.append("".join(letters) or (token if is_special else _blank(text, start, token)))
    return tuple(found)


def _without_blanks(text: str, start: int, stop: int) -> tuple[int, int]:
    """The span less the blanks at its ends; all of it if there is nothing else."""
    if not 0 <= start <= stop <= len(text):
        raise ValueError(f"encoded has the offset {(start, stop)}, but text has {len(text)} characters")
    inner = text[start:stop].strip()
    if not inner:
        return start, stop
    start += text[start:stop].index(inner)
    return start, start + len(inner)


def _blank(text: str, stop: int, token: str) -> str:
    """The blank before `stop`, which a tokenizer trimmed off; else the token's name."""
    before: Sequence[str] = text[max(stop - 1, 0) : stop]
    return _seen(before[0]) if before and before[0].isspace() else token


def _seen(character: str) -> str:
    """The character; a blank as a sign for it."""
    return BLANKS.get(character, "␣" if character.isspace() else character)
