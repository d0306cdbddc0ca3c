"""Chapter 9: positions by sines and by rotation."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _rates(width: int, base: float = 10000.0) -> Tensor:
    return base ** (-torch.arange(0, width, 2) / width)


def _angles(num_tokens: int, width: int, start: int = 0, base: float = 10000.0) -> Tensor:
    return torch.arange(start, start + num_tokens)[:, None] * _rates(width, base)


def _in_turn(first: Tensor, second: Tensor) -> Tensor:
    """Columns of both, one after the other."""
    return torch.stack([first, second], -1).flatten(-2)


def _tables(rng: random.Random) -> Iterator[Case]:
    yield {"num_tokens": 3, "num_hiddens": 4}
    for num_tokens, half in apart(rng, 2, smallest=5, largest=12, of=lambda N, half: [N, 2 * half]):
        yield {"num_tokens": num_tokens, "num_hiddens": 2 * half}


def _table(num_tokens: int, num_hiddens: int) -> Tensor:
    angles = _angles(num_tokens, num_hiddens)
    return _in_turn(angles.sin(), angles.cos())


def _rate_for_each_channel(num_tokens: int, num_hiddens: int) -> Tensor:
    angles = torch.arange(num_tokens)[:, None] * 10000.0 ** (-torch.arange(num_hiddens) / num_hiddens)
    return _in_turn(angles[:, 0::2].sin(), angles[:, 1::2].cos())


def _rates_of_pairs(num_tokens: int, num_hiddens: int) -> Tensor:
    """The exponent i / D, where it should be 2i / D."""
    angles = torch.arange(num_tokens)[:, None] * 10000.0 ** (-torch.arange(num_hiddens // 2) / num_hiddens)
    return _in_turn(angles.sin(), angles.cos())


def _rates_that_rise(num_tokens: int, num_hiddens: int) -> Tensor:
    angles = torch.arange(num_tokens)[:, None] / _rates(num_hiddens)
    return _in_turn(angles.sin(), angles.cos())


def _swapped(num_tokens: int, num_hiddens: int) -> Tensor:
    angles = _angles(num_tokens, num_hiddens)
    return _in_turn(angles.cos(), angles.sin())


def _halves(num_tokens: int, num_hiddens: int) -> Tensor:
    angles = _angles(num_tokens, num_hiddens)
    return torch.cat([angles.sin(), angles.cos()], -1)


def _from_one(num_tokens: int, num_hiddens: int) -> Tensor:
    angles = _angles(num_tokens, num_hiddens, start=1)
    return _in_turn(angles.sin(), angles.cos())


def _sines_only(num_tokens: int, num_hiddens: int) -> Tensor:
    angles = _angles(num_tokens, num_hiddens)
    return _in_turn(angles.sin(), angles.sin())


sinusoidal_positions = exercise(
    "sinusoidal_positions",
    reference=_table,
    cases=_tables,
)


def _heads(rng: random.Random) -> Iterator[Case]:
    yield {"x": draw(rng, 1, 2, 4), "start": 1}
    starts = (0, rng.randint(2, 9), rng.randint(20, 90))
    drawn = apart(rng, 3, smallest=3, of=lambda h, N, half: [h, N, 2 * half])
    for start, (num_heads, num_tokens, half) in zip(starts, drawn, strict=True):
        yield {"x": draw(rng, num_heads, num_tokens, 2 * half), "start": start}


def _turned(x: Tensor, angles: Tensor) -> Tensor:
    cos, sin = angles.cos(), angles.sin()
    even, odd = x[..., 0::2], x[..., 1::2]
    return _in_turn(even * cos - odd * sin, even * sin + odd * cos)


def _rotate(x: Tensor, start: int) -> Tensor:
    return _turned(x, _angles(x.shape[-2], x.shape[-1], start))


def _rotate_halves(x: Tensor, start: int) -> Tensor:
    angles = _angles(x.shape[-2], x.shape[-1], start)
    first, second = x.chunk(2, -1)
    return torch.cat([first * angles.cos() - second * angles.sin(), first * angles.sin() + second * angles.cos()], -1)


def _left_as_halves(x: Tensor, start: int) -> Tensor:
    angles = _angles(x.shape[-2], x.shape[-1], start)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.cat([even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos()], -1)


def _both_minus(x: Tensor, start: int) -> Tensor:
    angles = _angles(x.shape[-2], x.shape[-1], start)
    even, odd = x[..., 0::2], x[..., 1::2]
    return _in_turn(even * angles.cos() - odd * angles.sin(), odd * angles.cos() - even * angles.sin())


def _in_place(x: Tensor, start: int) -> Tensor:
    """The second channel is computed from the first one's new value."""
    angles = _angles(x.shape[-2], x.shape[-1], start)
    even, odd = x[..., 0::2], x[..., 1::2]
    even = even * angles.cos() - odd * angles.sin()
    return _in_turn(even, even * angles.sin() + odd * angles.cos())


def _heads_are_tokens(x: Tensor, start: int) -> Tensor:
    return _rotate(x.transpose(0, 1), start).transpose(0, 1)


def _a_table_added(x: Tensor, start: int) -> Tensor:
    angles = _angles(x.shape[-2], x.shape[-1], start)
    return x + _in_turn(angles.sin(), angles.cos())


def _cosines_only(x: Tensor, start: int) -> Tensor:
    angles = _angles(x.shape[-2], x.shape[-1], start)
    return x * _in_turn(angles.cos(), angles.cos())


def _rates_of_half(x: Tensor, start: int) -> Tensor:
    """The exponent i / d, where it should be 2i / d."""
    rates = 10000.0 ** (-torch.arange(x.shape[-1] // 2) / x.shape[-1])
    return _turned(x, torch.arange(start, start + x.shape[-2])[:, None] * rates)


rotate = exercise(
    "rotate",
    reference=_rotate,
    cases=_heads,
)


def _channels(rng: random.Random) -> Iterator[Case]:
    yield {"x": torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])}
    for num_tokens, half in apart(rng, 2, smallest=3, largest=8, of=lambda N, half: [N, 2 * half]):
        yield {"x": draw(rng, num_tokens, 2 * half)}


pairs_to_halves = exercise(
    "pairs_to_halves",
    reference=lambda x: torch.cat([x[..., 0::2], x[..., 1::2]], -1),
    cases=_channels,
)
