"""Windows: each token sees the last few before it, or a few on both sides; a cache keeps no more than these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from .._validate import require_count
from ..attention import Band, Cache, MultiHeadAttention, WindowCache
from ..attention.masks import Mask
from ..variants import MixtureOfBlocks, NativeSparseAttention, SparseAttention

_COUNT_PLACES = (SparseAttention, MixtureOfBlocks, NativeSparseAttention)

Windows = int | Sequence[int | None] | None
"""How many tokens each one sees, itself included: in all layers, or in each; `None` means all before it."""


def require_windows(window: Windows, two_sided: bool = False) -> Windows:
    """The windows, a list in place of a tuple. Raise unless each is `None` or a positive integer, odd to have two equal
    sides."""
    for number, one in enumerate(window if isinstance(window, (list, tuple)) else [window]):
        if one is not None:
            require_count(f"window[{number}]" if isinstance(window, (list, tuple)) else "window", one)
            if two_sided and one % 2 == 0:
                raise ValueError(f"window={one} must be odd: a token, and as many before it as behind it")
    return list(window) if isinstance(window, tuple) else window


def windows_of(window: Windows, num_layers: int) -> list[int | None]:
    """One for each layer; ValueError where there are more or fewer."""
    if not isinstance(window, (list, tuple)):
        return [window] * num_layers  # type: ignore[list-item]
    if len(window) != num_layers:
        raise ValueError(f"window={list(window)!r:.200} has {len(window)} entries, but num_layers={num_layers}")
    return list(window)


def new_cache(layer: MultiHeadAttention, window: int | None, max_tokens: int = 0) -> Cache:
    """An empty cache that keeps a window, where there is one and the layer's own cache would keep keys and values only.
    A layer with a pattern of its own counts its places in all tokens, and keeps them all."""
    keeps_more = type(layer).new_cache is not MultiHeadAttention.new_cache or isinstance(layer, _COUNT_PLACES)
    return layer.new_cache(max_tokens) if window is None or keeps_more else WindowCache(window, max_tokens)


def masks_of(
    windows: Sequence[int | None],
    start: int,
    caches: Sequence[Cache] | None,
    is_real: Tensor | None,
    two_sided: bool = False,
) -> list[Mask]:
    """What new tokens, of which the first is number `start` of its row, see in each layer. `is_real` (B, K) is `False`
    at padding, of all tokens; see `GPT.forward`. With `two_sided` half of a window is behind the token that sees it.
    Layers with one window and one kind of cache have one mask."""
    masks: dict[tuple[int | None, tuple[int, int, int] | None], Mask] = {}
    result = []
    for number, window in enumerate(windows):
        cache = None if caches is None else caches[number]
        held = (cache.num_held, cache.window, cache.sinks) if isinstance(cache, WindowCache) else None
        if (window, held) not in masks:
            masks[window, held] = _mask(window, start, held, is_real, two_sided)
        result.append(masks[window, held])
    return result


def _mask(
    window: int | None, start: int, held: tuple[int, int, int] | None, is_real: Tensor | None, two_sided: bool
) -> Mask:
    if held is not None:
        num_held, of_cache, sinks = held
        window = of_cache if window is None else min(window, of_cache)
        return _Cropped(Band(window - 1, offset=num_held), sinks, is_real)
    others = None if window is None else window - 1  # that a token sees besides itself
    half = None if others is None else others // 2
    band = Band(half, half) if two_sided else Band(others, 0, start)
    if is_real is None:
        return band
    num_tokens = is_real.shape[1]
    return band.matrix(num_tokens - start, num_tokens, device=is_real.device) & is_real[:, None, None]


def over_all(weights: list[Tensor], num_kvpairs: int, caches: Sequence[Cache] | None) -> list[Tensor]:
    """Weights (B, h, Q, at most K) of each layer -> (B, h, Q, K): tokens that a cache has dropped have weight 0."""
    result = []
    for number, one in enumerate(weights):
        dropped = num_kvpairs - one.shape[-1]
        if dropped:
            cache = caches[number] if caches is not None else None
            sinks = cache.sinks if isinstance(cache, WindowCache) else 0
            one = torch.cat([one[..., :sinks], pad(one[..., sinks:], (dropped, 0))], -1)
        result.append(one)
    return result


class _Cropped(NamedTuple):
    """A band, and the sinks before it, over what a `WindowCache` holds and the new tokens, whatever number of keys is
    spoken of."""

    band: Band
    sinks: int
    is_real: Tensor | None

    def matrix(
        self, num_queries: int, num_kvpairs: int | None = None, *, device: torch.device | str | None = None
    ) -> Tensor:
        """Boolean mask (Q, K), K of what is held and new, or (B, 1, Q, K) where there is padding."""
        num_kvpairs = self.band.offset + num_queries
        seen = self.band.matrix(num_queries, num_kvpairs, device=device)
        if self.sinks:
            past = Band(offset=self.band.offset).matrix(num_queries, num_kvpairs, device=device)
            seen[:, : self.sinks] = past[:, : self.sinks]
        if self.is_real is None:
            return seen
        dropped = self.is_real.shape[1] - num_kvpairs
        is_real = torch.cat([self.is_real[:, : self.sinks], self.is_real[:, self.sinks + dropped :]], 1)
        return seen & is_real[:, None, None]

    def check(self) -> None:
        self.band.check()

    def hides_nothing(self, num_queries: int, num_kvpairs: int) -> bool:
        num_kvpairs = self.band.offset + num_queries
        if self.sinks and num_queries == 1:  # what a cache holds, a single new token sees
            return self.is_real is None and num_kvpairs <= self.sinks + (self.band.before or 0) + 1
        return self.is_real is None and self.band.hides_nothing(num_queries, num_kvpairs)

    def is_causal(self) -> bool:
        return False
