"""Windows: each token sees the last few before it, and a cache keeps no more than these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from .._validate import require_count
from ..attention import Band, Cache, KeyValueCache, MultiHeadAttention
from ..attention.masks import Mask
from ..variants import MixtureOfBlocks, NativeSparseAttention, SparseAttention

_COUNT_PLACES = (SparseAttention, MixtureOfBlocks, NativeSparseAttention)

Windows = int | Sequence[int | None] | None
"""How many tokens each one sees, itself included: in all layers, or in each; `None` means all before it."""


def require_windows(window: Windows) -> None:
    """Raise unless each window is a positive integer or `None`."""
    for number, one in enumerate(window if isinstance(window, (list, tuple)) else [window]):
        if one is not None:
            require_count(f"window[{number}]" if isinstance(window, (list, tuple)) else "window", one)


def windows_of(window: Windows, num_layers: int) -> list[int | None]:
    """One for each layer; ValueError where there are more or fewer."""
    if not isinstance(window, (list, tuple)):
        return [window] * num_layers  # type: ignore[list-item]
    if len(window) != num_layers:
        raise ValueError(f"window={list(window)!r:.200} has {len(window)} entries, but num_layers={num_layers}")
    return list(window)


class WindowCache:
    """Keys and values of the last `window` - 1 tokens, which is all that a later token sees. `len` counts all tokens
    that were seen, so that positions go on.

    Args:
        window: how many tokens each one sees, itself included.
        max_tokens: for how many tokens memory is taken at first, but never for more than two windows.
    """

    def __init__(self, window: int, max_tokens: int = 0) -> None:
        self._window, self._seen = window, 0
        self._tokens = KeyValueCache(min(max_tokens, 2 * window))

    def __len__(self) -> int:
        return self._seen

    @property
    def num_held(self) -> int:
        """How many tokens a new one will meet in the cache."""
        return min(self._seen, self._window - 1)

    @property
    def held(self) -> tuple[Tensor, ...]:
        """What a new token will meet, (..., at most window - 1, width) each."""
        return _last(self._tokens.held, self.num_held)

    @property
    def num_bytes(self) -> int:
        """Memory of what is held."""
        return sum(part.numel() * part.element_size() for part in self.held)

    @property
    def num_bytes_taken(self) -> int:
        """Memory that is taken: up to two windows, so that tokens are moved once in a window and not at each step."""
        return self._tokens.num_bytes_taken

    def append(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Add tensors of new tokens, (..., K_new, width) each, and return these behind what was held."""
        met, tokens = self.num_held, self._tokens.append(*new)
        num_new = new[0].shape[-2]
        self._seen += num_new
        if len(self._tokens) >= 2 * self._window:
            kept, self._tokens = self.held, KeyValueCache(2 * self._window)
            self._tokens.append(*kept)
        return _last(tokens, met + num_new)

    def reorder(self, rows: Tensor) -> None:
        """Keep the examples `rows` (B_new,) of the batch, in that order: what a beam search needs."""
        self._tokens.reorder(rows)


def new_cache(layer: MultiHeadAttention, window: int | None, max_tokens: int = 0) -> Cache:
    """An empty cache that keeps a window, where there is one and the layer's own cache would keep keys and values only.
    A layer with a pattern of its own counts its places in all tokens, and keeps them all."""
    keeps_more = type(layer).new_cache is not MultiHeadAttention.new_cache or isinstance(layer, _COUNT_PLACES)
    return layer.new_cache(max_tokens) if window is None or keeps_more else WindowCache(window, max_tokens)


def masks_of(
    windows: Sequence[int | None], start: int, caches: Sequence[Cache] | None, is_real: Tensor | None
) -> list[Mask]:
    """What new tokens, of which the first is number `start` of its row, see in each layer. `is_real` (B, K) is `False`
    at padding, of all tokens; see `GPT.forward`. Layers with one window and one kind of cache have one mask."""
    masks: dict[tuple[int | None, int | None], Mask] = {}
    result = []
    for number, window in enumerate(windows):
        cache = None if caches is None else caches[number]
        num_held = cache.num_held if isinstance(cache, WindowCache) else None
        if (window, num_held) not in masks:
            masks[window, num_held] = _mask(window, start, num_held, is_real)
        result.append(masks[window, num_held])
    return result


def _mask(window: int | None, start: int, num_held: int | None, is_real: Tensor | None) -> Mask:
    before = None if window is None else window - 1
    if num_held is not None:
        return _Cropped(Band(before, offset=num_held), is_real)
    band = Band(before, offset=start)
    if is_real is None:
        return band
    num_tokens = is_real.shape[1]
    return band.matrix(num_tokens - start, num_tokens, device=is_real.device) & is_real[:, None, None]


def over_all(weights: list[Tensor], num_kvpairs: int) -> list[Tensor]:
    """Weights (B, h, Q, at most K) of each layer -> (B, h, Q, K): tokens that a cache has dropped have weight 0."""
    return [one if one.shape[-1] == num_kvpairs else pad(one, (num_kvpairs - one.shape[-1], 0)) for one in weights]


class _Cropped(NamedTuple):
    """A band over what a `WindowCache` holds and the new tokens, whatever number of keys is spoken of."""

    band: Band
    is_real: Tensor | None

    def matrix(
        self, num_queries: int, num_kvpairs: int | None = None, *, device: torch.device | str | None = None
    ) -> Tensor:
        """Boolean mask (Q, K), K of what is held and new, or (B, 1, Q, K) where there is padding."""
        num_kvpairs = self.band.offset + num_queries
        seen = self.band.matrix(num_queries, num_kvpairs, device=device)
        return seen if self.is_real is None else seen & self.is_real[:, None, None, -num_kvpairs:]

    def check(self) -> None:
        self.band.check()

    def hides_nothing(self, num_queries: int, num_kvpairs: int) -> bool:
        return self.is_real is None and self.band.hides_nothing(num_queries, self.band.offset + num_queries)

    def is_causal(self) -> bool:
        return False


def _last(tokens: tuple[Tensor, ...], number: int) -> tuple[Tensor, ...]:
    return tuple(part[..., part.shape[-2] - number :, :] for part in tokens)
