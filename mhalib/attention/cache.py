"""What a layer has projected once and need not project again."""

from __future__ import annotations

from typing import NoReturn, Protocol

import torch
from torch import Tensor

from .._validate import require_count, require_integers, require_tensor, seen_extremes


class Cache(Protocol):
    """What a layer needs of a cache. `MultiHeadAttention.new_cache` makes one that fits the layer.

    `len` counts the tokens that are held. A layer decides what it keeps of them: keys and values, or a latent that
    both are made from; the token's axis is the one before the last.
    """

    def __len__(self) -> int: ...

    def append(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Add tensors of new tokens, (..., K_new, width) each, and return all that is held, (..., K, width) each."""
        ...

    def reorder(self, rows: Tensor) -> None:
        """Keep the examples `rows` (B_new,) of the batch, in that order: what a beam search needs."""
        ...

    def crop(self, num_tokens: int) -> None:
        """Forget all but the first `num_tokens` tokens: what speculation needs, when drafts are refused."""
        ...

    @property
    def num_bytes(self) -> int:
        """Memory of what is held."""
        ...


def require_cache(name: str, cache: object) -> None:
    """Raise TypeError unless `cache` can do what a layer needs of one."""
    if isinstance(cache, type) or not all(hasattr(cache, part) for part in ("append", "reorder", "__len__")):
        raise TypeError(f"{name} must come from new_cache, got {type(cache).__name__}: {cache!r:.80}")


class KeyValueCache:
    """Keys and values of the tokens that one layer has seen, or whatever else it keeps of them. `len` counts tokens.

    Decoding token by token, a layer with a cache projects each token once. A cache belongs to one layer and one batch.

    Memory is taken ahead: as much as `max_tokens` says, or else twice what is held whenever that is full, so that a
    token is not copied at each step. Where gradients are recorded, each step copies instead.

    Args:
        max_tokens: for how many tokens memory is taken at first; more still fit.
    """

    def __init__(self, max_tokens: int = 0) -> None:
        require_count("max_tokens", max_tokens, minimum=0)
        self._max_tokens = max_tokens
        self._length = 0
        self._rooms: tuple[Tensor, ...] = ()

    def __len__(self) -> int:
        return self._length

    @property
    def held(self) -> tuple[Tensor, ...]:
        """What is held, (..., K, width) each: k and v of most layers. Empty before the first token."""
        return tuple(room[..., : self._length, :] for room in self._rooms)

    @property
    def num_bytes(self) -> int:
        """Memory of what is held; what is taken ahead does not count."""
        return sum(part.numel() * part.element_size() for part in self.held)

    @property
    def num_bytes_taken(self) -> int:
        """Memory that is taken: what is held, and the room ahead of it."""
        return sum(room.numel() * room.element_size() for room in self._rooms)

    def append(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Add k and v, (B, h, K_new, d) each, or other tensors whose tokens stand on the axis before the last.

        Returns:
            all that is held, (B, h, K, d) each.

        Raises:
            ValueError: they are not equally many tokens, or of another batch or layer than what is held.
        """
        num_new = self.check(new)
        stop = self._length + num_new
        if not self._rooms:
            self._rooms = tuple(_enlarged(part[..., :0, :], max(stop, self._max_tokens)) for part in new)
        if torch.is_grad_enabled():  # what autograd has kept of earlier tokens may not be written over
            self._rooms = tuple(torch.cat([old, part], -2) for old, part in zip(self.held, new, strict=True))
        else:
            if stop > self._rooms[0].shape[-2]:
                self._rooms = tuple(_enlarged(old, max(stop, 2 * self._length)) for old in self.held)
            for room, part in zip(self._rooms, new, strict=True):
                room[..., self._length : stop, :] = part
        self._length = stop
        return self.held

    @property
    def extend(self) -> NoReturn:
        """The name of `append` up to version 0.3."""
        raise AttributeError("extend is called append now")

    def reorder(self, rows: Tensor) -> None:
        """Keep the examples `rows` (B_new,) of the batch, in that order: what a beam search needs."""
        self._rooms = _reordered(self._rooms, rows)

    def crop(self, num_tokens: int) -> None:
        """Forget all but the first `num_tokens` tokens. Their memory stays taken, and is written over next.

        Raises:
            TypeError, ValueError: it is no number of tokens from 0 to what is held.
        """
        require_tokens_held(num_tokens, self._length)
        if any(room.requires_grad for room in self._rooms):  # nothing may be written over what autograd has kept
            self._rooms = tuple(room[..., :num_tokens, :] for room in self._rooms)
        self._length = num_tokens

    def check(self, new: tuple[Tensor, ...]) -> int:
        """How many tokens are new; TypeError or ValueError unless `append` takes them."""
        for part in new:
            require_tensor("new", part)
            if part.dim() < 2:
                raise ValueError(f"new tensors need an axis of tokens and one more, got shape {tuple(part.shape)}")
        lengths = {part.shape[-2] for part in new}
        if len(lengths) != 1:
            raise ValueError(f"a token has one of each: got {[part.shape[-2] for part in new]} of them")
        if self._rooms:
            fits = len(new) == len(self._rooms) and all(
                part.shape[:-2] == room.shape[:-2] and part.shape[-1] == room.shape[-1]
                for part, room in zip(new, self._rooms, strict=True)
            )
            if not fits:
                raise ValueError(
                    f"new tensors have the shapes {[tuple(part.shape) for part in new]}, but the cache holds "
                    f"{[tuple(part.shape) for part in self.held]}: a cache serves one layer and one batch"
                )
        return lengths.pop()


class QuantisedCache:
    """A `KeyValueCache` that keeps 8-bit integers. It fits every layer whose own cache is a `KeyValueCache`,
    and is refused by kinds that note more than keys and values.

    Each vector, a key or a value of one token and head, is divided by a scale of its own, max|x| / 127 in the type of
    what came in, and rounded. What `append` returns is codes times scales, in this type, too: no number is off by more
    than half the scale that is held and the rounding of the product. In float32 that is half the scale; in float16 0.6
    and in bfloat16 1 of it, at most. No gradient passes.

    Args:
        max_tokens: for how many tokens memory is taken at first; more still fit.
    """

    def __init__(self, max_tokens: int = 0) -> None:
        self._held = KeyValueCache(max_tokens)

    def __len__(self) -> int:
        return len(self._held)

    @property
    def held(self) -> tuple[Tensor, ...]:
        """Codes, int8 and (..., K, width) each, and then as many scales, (..., K, 1) each."""
        return self._held.held

    @property
    def num_bytes(self) -> int:
        """Memory of codes and scales: a byte for each number, and a scale in the numbers' own type for each vector."""
        return self._held.num_bytes

    @property
    def num_bytes_taken(self) -> int:
        """Memory that is taken: what is held, and the room ahead of it."""
        return self._held.num_bytes_taken

    def append(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Round k and v, (B, h, K_new, d) each, add them, and return what all that is held stands for.

        Raises:
            TypeError: they are not floating-point numbers.
            ValueError: as `KeyValueCache.append`.
        """
        for part in new:
            require_tensor("new", part)
            if not part.is_floating_point():
                raise TypeError(f"new must hold floating-point numbers, got {part.dtype}")
            if part.dim() and not part.shape[-1]:
                raise ValueError(f"new has shape {tuple(part.shape)}: a vector without numbers has no scale")
        with torch.no_grad():
            both = [quantised(part) for part in new]
            held = self._held.append(*(codes for codes, _ in both), *(scales for _, scales in both))
            return tuple(codes * scales for codes, scales in zip(held[: len(new)], held[len(new) :], strict=True))

    def reorder(self, rows: Tensor) -> None:
        """Keep the examples `rows` (B_new,) of the batch, in that order: what a beam search needs."""
        self._held.reorder(rows)

    def crop(self, num_tokens: int) -> None:
        """Forget all but the first `num_tokens` tokens, as `KeyValueCache.crop`."""
        self._held.crop(num_tokens)


class StateCache:
    """States that a layer keeps in place of its tokens, of one size for any number of them. `len` counts tokens seen.

    It is made by `new_cache` of a layer with `keeps_state`, and belongs to that layer and one batch.
    """

    def __init__(self) -> None:
        self._seen = 0
        self._states: tuple[Tensor, ...] = ()

    def __len__(self) -> int:
        return self._seen

    @property
    def held(self) -> tuple[Tensor, ...]:
        """The states, (B, ...) each. Empty before the first token."""
        return self._states

    @property
    def num_bytes(self) -> int:
        """Memory of what is held."""
        return sum(state.numel() * state.element_size() for state in self._states)

    @property
    def num_bytes_taken(self) -> int:
        """The same: nothing is taken ahead."""
        return self.num_bytes

    def replace(self, num_new: int, *states: Tensor) -> None:
        """Hold other states, (B, ...) each, after `num_new` more tokens.

        Raises:
            TypeError, ValueError: an argument is not of this kind, or shapes are not those of what is held.
        """
        require_count("num_new", num_new, minimum=0)
        for state in states:
            require_tensor("states", state)
            if not state.dim():
                raise ValueError("states need an axis of examples, got shape ()")
        if self._states and [state.shape for state in states] != [state.shape for state in self._states]:
            raise ValueError(
                f"states have the shapes {[tuple(state.shape) for state in states]}, but the cache holds "
                f"{[tuple(state.shape) for state in self._states]}: a cache serves one layer and one batch"
            )
        self._seen, self._states = self._seen + num_new, states

    def append(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Refused: a layer that appends keeps tokens, and needs another cache."""
        raise TypeError("a StateCache keeps no tokens: this layer needs a cache from its own new_cache")

    def reorder(self, rows: Tensor) -> None:
        """Keep the examples `rows` (B_new,) of the batch, in that order: what a beam search needs."""
        self._states = _reordered(self._states, rows)

    def crop(self, num_tokens: int) -> None:
        """Refused: a state cannot take a token back. To begin anew, take a new cache."""
        require_tokens_held(num_tokens, self._seen)
        if num_tokens != self._seen:
            raise TypeError(
                f"a StateCache cannot forget the last {self._seen - num_tokens} tokens: their states are gone"
            )


def require_tokens_held(num_tokens: object, num_held: int) -> None:
    """Raise unless it is a number (TypeError) of tokens that a cache holds (ValueError)."""
    require_count("num_tokens", num_tokens, minimum=0)
    if num_tokens > num_held:  # type: ignore[operator]
        raise ValueError(f"num_tokens={num_tokens}, but the cache holds {num_held}")


def quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    """Codes (..., width) from -127 to 127, int8, and scales (..., 1): x is about codes * scales.

    A vector of zeros has the scale 0. In float16 no other scale is below 6e-8, where its numbers end, and no two are
    closer than that: a vector below 0.008 may get one that is a little larger than max|x| / 127.
    """
    wide = torch.promote_types(x.dtype, torch.float32)  # a quotient in bfloat16 is no better than a whole number
    largest = x.abs().amax(-1, keepdim=True).to(wide)
    scales = (largest / 127).to(x.dtype)
    limits = torch.finfo(x.dtype)
    too_small = largest > 127.5 * scales.to(wide)  # rounded down, so far that 127 of them do not reach
    scales = scales + too_small.to(x.dtype) * (limits.smallest_normal * limits.eps)  # the next number
    below = scales * (1 - limits.eps)
    scales = scales.where((127 * scales).isfinite(), below)  # rounded up, the largest number would become infinite
    quotients = x.to(wide) / scales.where(scales > 0, 1)
    return quotients.round().clamp(-127, 127).to(torch.int8), scales


def _reordered(held: tuple[Tensor, ...], rows: Tensor) -> tuple[Tensor, ...]:
    """The examples `rows` of each tensor; TypeError or ValueError where there are no such."""
    require_tensor("rows", rows, rank=1)
    require_integers("rows", rows)
    rows = rows.long()
    extremes = seen_extremes(rows)
    batch_size = held[0].shape[0] if held else 0
    if held and extremes is not None and not 0 <= extremes[0] <= extremes[1] < batch_size:
        raise ValueError(f"rows holds {extremes[0]} to {extremes[1]}, but the cache holds {batch_size} examples")
    return tuple(part[rows] for part in held)


def _enlarged(held: Tensor, num_tokens: int) -> Tensor:
    """A tensor with room for `num_tokens` that begins with what is held."""
    room = held.new_empty((*held.shape[:-2], num_tokens, held.shape[-1]))
    room[..., : held.shape[-2], :] = held.detach()
    return room
