"""What a config.json says, read entry by entry: a wrong entry is named with its value."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ELSEWHERE = 'through="transformers" runs models that read one text and return their attention weights'
"""What a refusal ends with."""


class Config:
    """A config.json. Each method reads one entry; an entry that is missing or null has the value `usual`."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self.told = told

    def get(self, key: str, usual: Any = None) -> Any:
        """What stands there."""
        value = self.told.get(key)
        return usual if value is None else value

    def count(self, key: str, usual: int | None = None, minimum: int = 1) -> int:
        """An integer of at least `minimum`."""
        value = self.get(key, usual)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise ValueError(f"{key}={value!r:.80} in config.json must be an integer of at least {minimum}")
        return value

    def number(self, key: str, usual: float) -> float:
        """A positive number."""
        value = self.get(key, usual)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise ValueError(f"{key}={value!r:.80} in config.json must be a positive number")
        return float(value)

    def flag(self, key: str, usual: bool) -> bool:
        """True or False."""
        value = self.get(key, usual)
        if not isinstance(value, bool):
            raise ValueError(f"{key}={value!r:.80} in config.json must be true or false")
        return value

    def require(self, **needed: object) -> None:
        """Raise ValueError where an entry is there and has another value than the only one that our blocks have."""
        for key, value in needed.items():
            has = self.get(key, value)
            if has != value:
                raise ValueError(f"{key}={has!r:.80} in config.json: our blocks need {value!r}; {ELSEWHERE}")


def read_config(path: Path) -> dict[str, Any]:
    """The object in a config.json.

    Raises:
        ValueError: the file is damaged, or holds no object.
    """
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"path={str(path)!r} is damaged: {error}") from error
    if not isinstance(told, dict):
        raise ValueError(f"path={str(path)!r} must hold an object, got {type(told).__name__}")
    return told
