"""Where what was projected once is kept while a model writes."""

from __future__ import annotations

from typing import Any

from ..models import GPT, DecoderCache
from ..models._base import EncoderDecoder, require_caches


def caches_for(model: GPT | EncoderDecoder, given: Any, use_cache: bool = True, max_tokens: int = 0) -> Any:
    """Where keys and values are kept: `given`, or new ones with memory for `max_tokens`, or `None` for nowhere."""
    if not use_cache:
        if given is not None:
            raise ValueError("caches cannot be given with use_cache=False")
        return None
    if given is None:
        return model.new_caches(max_tokens)
    require_caches(given, len(model.decoder.layers), None if isinstance(model, GPT) else DecoderCache)
    for number, cache in enumerate(given):
        held = max(map(len, cache)) if isinstance(cache, DecoderCache) else len(cache)
        if held:
            raise ValueError(f"caches[{number}] must be empty, but holds {held} tokens")
    return given
