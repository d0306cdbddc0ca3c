"""A cache for kinds that have to know something of the tokens in it beside their keys and values."""

from __future__ import annotations

from torch import Tensor

from ..attention import KeyValueCache


class NotedCache(KeyValueCache):
    """Keys and values, or what stands for them, and in `notes` whatever else a kind keeps of each token.

    Who appends to one appends to the other: they are reordered and cropped together.
    """

    def __init__(self, max_tokens: int = 0) -> None:
        super().__init__(max_tokens)
        self.notes = KeyValueCache(max_tokens)

    @property
    def num_bytes(self) -> int:
        return super().num_bytes + self.notes.num_bytes

    @property
    def num_bytes_taken(self) -> int:
        return super().num_bytes_taken + self.notes.num_bytes_taken

    def reorder(self, rows: Tensor) -> None:
        super().reorder(rows)
        self.notes.reorder(rows)

    def crop(self, num_tokens: int) -> None:
        super().crop(num_tokens)
        self.notes.crop(num_tokens)


def as_noted(cache: object, what: str) -> NotedCache:
    """The cache; ValueError unless it keeps notes, without which `what` would know nothing of the tokens in it."""
    if not isinstance(cache, NotedCache):
        raise ValueError(f"{what} need a cache from the layer's own new_cache, got {type(cache).__name__}")
    return cache
