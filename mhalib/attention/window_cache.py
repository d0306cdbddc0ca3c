"""A cache of the last tokens, and of the first few."""

from __future__ import annotations

import torch
from torch import Tensor

from .._validate import require_count
from .cache import KeyValueCache, require_tokens_held


class WindowCache:
    """Keys and values of the last `window` - 1 tokens, which is all that a later token sees, and of the first `sinks`.
    `len` counts all tokens that were seen, so that positions go on: they are counted in the text, not in the cache.

    A ring of memory with a window's tokens would hand them over out of order. This takes an eighth more: it is filled
    to its end, then what is held is moved to its beginning: a step copies about eight tokens, and the sinks.
    What `append` returned is written over later. Models give the masks that belong to it.

    Args:
        window: how many tokens each one sees, itself included, beside the sinks.
        max_tokens: for how many tokens memory is taken at first, but never for more than the cache will hold.
        sinks: how many of the first tokens stay. A text with padding before it has it there.

    Raises:
        TypeError, ValueError: an argument is not of this kind.

    Source of the sinks: Xiao et al. 2024, who count positions in the cache.
    """

    def __init__(self, window: int, max_tokens: int = 0, *, sinks: int = 0) -> None:
        require_count("window", window)
        require_count("max_tokens", max_tokens, minimum=0)
        require_count("sinks", sinks, minimum=0)
        self.window, self.sinks = window, sinks
        self._seen = self._valid = 0  # tokens in all, and how many at the end of `_tokens` are not dropped
        self._room = sinks + window + max(8, window // 8)
        self._tokens = KeyValueCache(min(max_tokens, self._room))
        self._is_full_size = max_tokens >= self._room

    def __len__(self) -> int:
        return self._seen

    @property
    def num_held(self) -> int:
        """How many tokens a new one will meet in the cache."""
        return min(self._seen, self.sinks + self.window - 1)

    @property
    def held(self) -> tuple[Tensor, ...]:
        """What a new token will meet, (..., at most sinks + window - 1, width) each, in the order of the text."""
        valid = _last(self._tokens.held, self._valid)
        return valid if self.num_held == self._valid else self._kept(valid, self.num_held)

    @property
    def num_bytes(self) -> int:
        """Memory of what is held."""
        return sum(part.numel() * part.element_size() for part in self.held)

    @property
    def num_bytes_taken(self) -> int:
        """Memory that is taken: an eighth of a window more than what can be held, or eight tokens."""
        return self._tokens.num_bytes_taken

    def append(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Add tensors of new tokens, (..., K_new, width) each, and return these behind what was held."""
        num_new = self._tokens.check(new)
        self._drop()
        if self._valid + num_new > self._room:  # a long prompt: it is handed on whole, and not kept whole
            held = self.held if self._valid else tuple(part[..., :0, :] for part in new)
            tokens = tuple(torch.cat([old, part], -2) for old, part in zip(held, new, strict=True))
            self._seen += num_new
            self._begin_anew(self._kept(tokens, min(self._seen, self._room)))
            return tokens
        stop = len(self._tokens) + num_new
        if stop > self._room or (2 * len(self._tokens) > self._room and not self._is_full_size):
            self._begin_anew(self.held)
        appended = self._tokens.append(*new)
        self._seen, self._valid = self._seen + num_new, self._valid + num_new
        return _last(appended, self._valid)

    def reorder(self, rows: Tensor) -> None:
        """Keep the examples `rows` (B_new,) of the batch, in that order: what a beam search needs."""
        self._tokens.reorder(rows)

    def crop(self, num_tokens: int) -> None:
        """Forget all but the first `num_tokens` tokens. Of a call of `append` an eighth of a window of tokens can be
        taken back, or eight.

        Raises:
            TypeError, ValueError: it is no number of tokens from 0 to what was seen, or what the next token would see
                has been dropped.
        """
        require_tokens_held(num_tokens, self._seen)
        left = self._valid - (self._seen - num_tokens)
        if left < min(num_tokens, self.sinks + self.window - 1):
            raise ValueError(f"num_tokens={num_tokens}, but of what these would see the cache has dropped some")
        self._tokens.crop(len(self._tokens) - (self._seen - num_tokens))
        self._seen, self._valid = num_tokens, left

    def _kept(self, tokens: tuple[Tensor, ...], number: int) -> tuple[Tensor, ...]:
        """So many of tokens in order, with the sinks in front: the sinks, and the last of the others."""
        if not self.sinks:
            return _last(tokens, number)
        first = min(self.sinks, number)
        return tuple(torch.cat([part[..., :first, :], *_last((part,), number - first)], -2) for part in tokens)

    def _drop(self) -> None:
        """Drop what no later token sees: the sinks are written over the last of what goes."""
        num_dropped = self._valid - self.num_held
        if num_dropped and self.sinks:
            if torch.is_grad_enabled():
                return self._begin_anew(self.held)
            for part in _last(self._tokens.held, self._valid):
                part[..., num_dropped : num_dropped + self.sinks, :] = part[..., : self.sinks, :].clone()
        self._valid = self.num_held
        return None

    def _begin_anew(self, held: tuple[Tensor, ...]) -> None:
        """Move what is held to the beginning of memory of its own."""
        self._tokens, self._is_full_size = KeyValueCache(self._room), True
        self._tokens.append(*held)
        self._valid = len(self._tokens)


def _last(tokens: tuple[Tensor, ...], number: int) -> tuple[Tensor, ...]:
    return tuple(part[..., part.shape[-2] - number :, :] for part in tokens)
