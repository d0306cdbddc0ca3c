"""Chapter 9: positions by sines and by rotation."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw


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


sinusoidal_positions = Exercise(
    "sinusoidal_positions",
    chapter=9,
    title="the table of sines and cosines",
    reference=_table,
    cases=_tables,
    verified="four tables, of 3 to 12 positions: even columns are sines, odd ones cosines, and two neighbours share "
    "a rate.",
    points=2,
    mistakes=[
        Mistake(
            "a rate for each channel",
            "each channel has a rate of its own: you used the column's number in the exponent. Columns 2i and 2i + 1 "
            "share 10000^(-2i/D), or the product of two rows no longer depends on their distance alone.",
            _rate_for_each_channel,
        ),
        Mistake(
            "i for 2i",
            "the exponent is i/D here, for the pair number i. It is 2i/D: the rates must fall to nearly 1/10000.",
            _rates_of_pairs,
        ),
        Mistake(
            "rates that rise",
            "the rates grow from pair to pair: the minus in the exponent is missing. The first pair turns by one "
            "radian per position, each later one by less.",
            _rates_that_rise,
        ),
        Mistake(
            "sines and cosines swapped",
            "the cosines are in the even columns. Even columns, 0, 2, 4, ..., hold sines.",
            _swapped,
        ),
        Mistake(
            "halves",
            "all sines come first, then all cosines, as in some libraries. Here they take turns: sines in the even "
            "columns, cosines in the odd ones.",
            _halves,
        ),
        Mistake(
            "positions from 1",
            "your positions begin at 1. The first token has position 0: its row is 0, 1, 0, 1, ...",
            _from_one,
        ),
        Mistake("no cosines", "there are sines in the odd columns, too. They hold the cosines.", _sines_only),
    ],
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


rotate = Exercise(
    "rotate",
    chapter=9,
    title="turn pairs of channels by position",
    reference=_rotate,
    cases=_heads,
    verified="four sets of heads, with texts that begin at position 0 and later; neighbours 2i and 2i + 1 turn "
    "together, and lengths stay.",
    points=3,
    mistakes=[
        Mistake(
            "halves turned",
            "you turn channel i together with channel i + d/2, as many libraries do. In this book the neighbours 2i "
            "and 2i + 1 are a pair.",
            _rotate_halves,
        ),
        Mistake(
            "left as halves",
            "each pair is turned rightly, but the result is in another order: all first channels, then all second "
            "ones. Put each pair back side by side, with stack and flatten in place of cat.",
            _left_as_halves,
        ),
        Mistake(
            "start ignored",
            "the first token always has position 0: `start` has no effect. A model that writes with a cache would "
            "give each new word position 0.",
            lambda x, start: _rotate(x, 0),
        ),
        Mistake(
            "one position late",
            "your positions begin at start + 1. The first token has position `start`.",
            lambda x, start: _rotate(x, start + 1),
        ),
        Mistake(
            "turned backwards",
            "you turn by minus the angle: the sign of both sines is exchanged. The first channel is even * cos - "
            "odd * sin, the second even * sin + odd * cos.",
            lambda x, start: _turned(x, -_angles(x.shape[-2], x.shape[-1], start)),
        ),
        Mistake(
            "two minus signs",
            "both new channels have a minus. That is no rotation, and lengths change: the second one is "
            "even * sin + odd * cos.",
            _both_minus,
        ),
        Mistake(
            "overwritten",
            "the second channel is computed from the NEW first one: you overwrote it. Both need the old values.",
            _in_place,
        ),
        Mistake(
            "heads counted as tokens",
            "each HEAD has its own angle here, and all tokens of a head the same: you counted positions along the "
            "first axis. Tokens are the last axis but one.",
            _heads_are_tokens,
        ),
        Mistake(
            "a table added",
            "you added the sinusoidal table. Rotary positions add nothing: they turn each pair.",
            _a_table_added,
        ),
        Mistake(
            "cosines only",
            "you only multiply by the cosine. A turned channel also needs its partner, times the sine.",
            _cosines_only,
        ),
        Mistake(
            "i for 2i",
            "the exponent is i/d here, for the pair number i. It is 2i/d.",
            _rates_of_half,
        ),
    ],
)


def _channels(rng: random.Random) -> Iterator[Case]:
    yield {"x": torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])}
    for num_tokens, half in apart(rng, 2, smallest=3, largest=8, of=lambda N, half: [N, 2 * half]):
        yield {"x": draw(rng, num_tokens, 2 * half)}


pairs_to_halves = Exercise(
    "pairs_to_halves",
    chapter=9,
    title="from neighbours to halves",
    reference=lambda x: torch.cat([x[..., 0::2], x[..., 1::2]], -1),
    cases=_channels,
    verified="one vector and three tables: even channels first, then the odd ones.",
    points=2,
    mistakes=[
        Mistake(
            "the way back",
            "this goes from halves to neighbours. For d = 6 it puts the old channels in the order 0, 3, 1, 4, 2, 5; "
            "asked is 0, 2, 4, 1, 3, 5.",
            lambda x: _in_turn(*x.chunk(2, -1)),
        ),
        Mistake(
            "odd ones first",
            "the odd channels come first. Channel 0 stays where it is.",
            lambda x: torch.cat([x[..., 1::2], x[..., 0::2]], -1),
        ),
        Mistake(
            "halves exchanged",
            "you exchanged the two halves. Take every second channel.",
            lambda x: x.roll(x.shape[-1] // 2, -1),
        ),
        Mistake(
            "neighbours exchanged",
            "you exchanged the two channels of each pair. They must move to different halves.",
            lambda x: _in_turn(x[..., 1::2], x[..., 0::2]),
        ),
        Mistake(
            "rows reordered",
            "you reordered the first axis. The channels are the last one: x[..., 0::2].",
            lambda x: torch.cat([x[0::2], x[1::2]], 0),
        ),
        Mistake("nothing moved", "the channels are where they were.", lambda x: x.clone()),
    ],
)
