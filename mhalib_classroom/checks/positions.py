"""Positions by sines and by rotation."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


Exponents = Callable[[Tensor, int], Tensor]
"""Of channels' numbers and their width: what 10000 is raised to."""


def _of_pairs(channels: Tensor, width: int) -> Tensor:
    return -(channels - channels % 2) / width


def _angles(
    num_tokens: int,
    width: int,
    start: int = 0,
    exponents: Exponents = _of_pairs,
    by: Callable[[Tensor, Tensor], Tensor] = torch.mul,
) -> Tensor:
    """(N, width): neighbours 2i and 2i + 1 have the same angle."""
    rates = 10000.0 ** exponents(torch.arange(width), width)
    return by(torch.arange(start, start + num_tokens)[:, None], rates)


def _in_turn(first: Tensor, second: Tensor) -> Tensor:
    """Columns of both, one after the other."""
    return torch.stack([first, second], -1).flatten(-2)


def _tables(rng: random.Random) -> Iterator[Case]:
    yield {"num_tokens": 3, "num_hiddens": 4}
    for num_tokens, half in apart(rng, 2, smallest=5, largest=12, of=lambda N, half: [N, 2 * half]):
        yield {"num_tokens": num_tokens, "num_hiddens": 2 * half}


def _side_by_side(first: Tensor, second: Tensor) -> Tensor:
    return torch.cat([first, second], -1)


def _table(
    num_tokens: int,
    num_hiddens: int,
    *,
    exponents: Exponents = _of_pairs,
    by: Callable[[Tensor, Tensor], Tensor] = torch.mul,
    first: int = 0,
    waves: tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]] = (torch.sin, torch.cos),
    joined: Callable[[Tensor, Tensor], Tensor] = _in_turn,
) -> Tensor:
    angles = _angles(num_tokens, num_hiddens, first, exponents, by)
    return joined(waves[0](angles[:, 0::2]), waves[1](angles[:, 1::2]))


sinusoidal_positions = exercise(
    "sinusoidal_positions",
    reference=_table,
    cases=_tables,
    switches=_table,
)


def _heads(rng: random.Random) -> Iterator[Case]:
    yield {"x": draw(rng, 1, 2, 4), "start": 1}
    starts = (0, rng.randint(2, 9), rng.randint(20, 90))
    drawn = apart(rng, 3, smallest=3, of=lambda h, N, half: [h, N, 2 * half])
    for start, (num_heads, num_tokens, half) in zip(starts, drawn, strict=True):
        yield {"x": draw(rng, num_heads, num_tokens, 2 * half), "start": start}


def _rotate(
    x: Tensor,
    start: int,
    *,
    exponents: Exponents = _of_pairs,
    first: Callable[[int], int] = lambda start: start,
    halves: bool = False,
    joined: Callable[[Tensor, Tensor], Tensor] = _in_turn,
    signs: tuple[int, int] = (1, 1),
    overwritten: bool = False,
) -> Tensor:
    """signs: of the sines in the first and in the second channel of each pair."""
    angles = _angles(x.shape[-2], x.shape[-1], first(start), exponents)[:, 0::2]
    cos, sin = angles.cos(), angles.sin()
    one, other = x.chunk(2, -1) if halves else (x[..., 0::2], x[..., 1::2])
    turned = one * cos - signs[0] * other * sin
    return joined(turned, signs[1] * (turned if overwritten else one) * sin + other * cos)


def _heads_are_tokens(x: Tensor, start: int) -> Tensor:
    return _rotate(x.transpose(0, 1), start).transpose(0, 1)


def _one_product_each(x: Tensor, start: int) -> Tensor:
    angles = _angles(x.shape[-2], x.shape[-1], start)[:, 0::2]
    return _in_turn(x[..., 0::2] * angles.cos(), x[..., 1::2] * angles.sin())


rotate = exercise(
    "rotate",
    reference=_rotate,
    cases=_heads,
    switches=_rotate,
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
