"""The tokens that an instrument shows: one list for all examples, or one for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._arrays import require_length
from .._tokens import shown
from .._validate import as_list

MAX_TOKEN = 200


def token_lists(name: str, tokens: Sequence[Any] | None, num_examples: int, length: int) -> list[list[str]]:
    """One list of tokens for all examples, or one for each, cleaned so that every character can be seen.

    Raises:
        TypeError, ValueError: `tokens` is no list, or one string, mixes tokens and lists, or has another length.
    """
    if tokens is None:
        return [[str(i) for i in range(length)]]
    if isinstance(tokens, str):
        raise TypeError(f"{name} must be a sequence of strings, got one string: {tokens!r:.80}")
    tokens = as_list(name, tokens)
    nested = [isinstance(each, (list, tuple)) for each in tokens]
    if any(nested) and not all(nested):
        raise TypeError(f"{name} mixes tokens and lists of tokens")
    if nested and all(nested):
        if len(tokens) != num_examples:
            raise ValueError(f"{name} has {len(tokens)} lists of tokens, but there are {num_examples} examples")
        lists = list(tokens)
    else:
        lists = [tokens]
    for each in lists:
        require_length(name, each, length)
    return [[visible(str(token)) for token in each] for each in lists]


def visible(token: str) -> str:
    """Control characters as their codes; at most 200 characters; a name for a token of nothing but spaces."""
    if not token.strip(" "):
        return "␣" * min(len(token), 8) or "(empty)"
    cut = token if len(token) <= MAX_TOKEN else token[: MAX_TOKEN - 1] + "…"
    return shown(cut)
