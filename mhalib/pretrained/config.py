"""What a config.json says, read entry by entry: a wrong entry is named with its value."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ELSEWHERE = 'through="transformers" runs models that read one text and return their attention weights'
"""What a refusal ends with."""
LAYERS = {
    *("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    *("encoder_layers", "decoder_layers", "num_decoder_layers"),
    *("num_experts", "num_local_experts", "n_routed_experts"),
}
MOST_LAYERS, MOST = 1000, 2**24
"""More layers, or experts, and larger numbers, than any model has: a config.json that claims more is not believed."""


class Config:
    """A config.json, or another `file` that errors name. Each method reads one entry; an entry that is missing or null
    has the value `usual`."""

    def __init__(self, told: Mapping[str, Any], file: str = "config.json") -> None:
        self.told, self.file = told, file

    def get(self, key: str, usual: Any = None) -> Any:
        """What stands there."""
        value = self.told.get(key)
        return usual if value is None else value

    def count(self, key: str, usual: int | None = None, minimum: int = 1) -> int:
        """An integer of at least `minimum`, and no larger than those of models are."""
        value = self.get(key, usual)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise ValueError(f"{key}={value!r:.80} in {self.file} must be an integer of at least {minimum}")
        self._require_at_most(MOST_LAYERS if key in LAYERS else MOST, key, value)
        return value

    def _require_at_most(self, most: int, key: str, value: int) -> None:
        if value > most:
            raise ValueError(f"{key}={value!r:.80} in {self.file} is more than any model has: at most {most:,}")

    def number(self, key: str, usual: float) -> float:
        """A positive number."""
        value = self.get(key, usual)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise ValueError(f"{key}={value!r:.80} in {self.file} must be a positive number")
        return float(value)

    def pair(self, key: str, usual: int | None = None) -> tuple[int, int]:
        """Height and width: two integers of at least 1, or one for both."""
        value = self.get(key, usual)
        both = list(value) if isinstance(value, (list, tuple)) else [value, value]
        if len(both) != 2 or any(isinstance(one, bool) or not isinstance(one, int) or one < 1 for one in both):
            raise ValueError(f"{key}={value!r:.80} in {self.file} must be one integer of at least 1, or two")
        self._require_at_most(MOST, key, max(both))
        return both[0], both[1]

    def flag(self, key: str, usual: bool) -> bool:
        """True or False."""
        value = self.get(key, usual)
        if not isinstance(value, bool):
            raise ValueError(f"{key}={value!r:.80} in {self.file} must be true or false")
        return value

    def part(self, key: str) -> Config:
        """An object within; an empty one where it is missing."""
        value = self.get(key, {})
        if not isinstance(value, Mapping):
            raise ValueError(f"{key}={value!r:.80} in {self.file} must be an object")
        return Config(value, self.file)

    def require(self, **needed: object) -> None:
        """Raise ValueError where an entry is there and has another value than the only one that our blocks have."""
        for key, value in needed.items():
            has = self.get(key, value)
            if has != value:
                raise ValueError(f"{key}={has!r:.80} in {self.file}: our blocks need {value!r}; {ELSEWHERE}")


def read_config(path: Path) -> dict[str, Any]:
    """The object in a config.json.

    Raises:
        ValueError: the file is damaged, or holds no object.
    """
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"path={str(path)!r} is damaged: {error}") from error
    if not isinstance(told, dict):
        raise ValueError(f"path={str(path)!r} must hold an object, got {type(told).__name__}")
    return told
