"""Chapter 25: keys in eight bits, and keys that are turned once."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from mhalib.attention import rotate

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _keys(rng: random.Random) -> Iterator[Case]:
    """Tokens and heads of different sizes, and the largest number of a key often negative."""
    yield {"k": torch.tensor([[[[1.0, -2.54], [0.5, 0.2]]]])}
    for drawn in apart(rng, 4, largest=8):
        k = draw(rng, *drawn)
        for axis in range(3):
            shape = [1] * 4
            shape[axis] = k.shape[axis]
            k = k * (2.0 ** (torch.arange(k.shape[axis]) % 3)).view(shape)
        yield {"k": k - 0.3 * k.abs().amax(-1, keepdim=True)}


def _rounded(
    k: Tensor, dims: int | tuple[int, ...] = -1, most: float = 127, way: str = "round"
) -> tuple[Tensor, Tensor]:
    scales = k.abs().amax(dims, keepdim=True) / most
    quotients = k / scales
    codes = {"round": quotients.round, "cut": quotients.trunc, "down": quotients.floor}[way]()
    return codes.to(torch.int8), scales


def _signed(k: Tensor) -> tuple[Tensor, Tensor]:
    scales = k.amax(-1, keepdim=True) / 127
    return (k / scales).round().clamp(-127, 127).to(torch.int8), scales


rounded_keys = exercise(
    "rounded_keys",
    reference=_rounded,
    cases=_keys,
)


def _steps(rng: random.Random) -> Iterator[Case]:
    """Several new tokens, one, and several behind few."""
    one = torch.tensor([[[[1.0, 0.0]]]])
    yield {"q": one, "k": torch.tensor([[[[0.0, 1.0]]]]), "held": torch.cat([one, one], 2)}
    lengths = ((2, 7, 4), (1, 9, 8), (3, 5, 16))
    for (num_new, num_held, head_dim), drawn in zip(lengths, apart(rng, 2, smallest=11, largest=15), strict=True):
        batch_size, num_heads = drawn
        q, k = (draw(rng, batch_size, num_heads, num_new, head_dim) for _ in range(2))
        yield {"q": q, "k": k, "held": draw(rng, batch_size, num_heads, num_held, head_dim)}


def _scores(
    q: Tensor, k: Tensor, held: Tensor, *, query: int | None = None, key: int | None = None, old: bool = False
) -> Tensor:
    start = held.shape[2]
    if old:
        held = rotate(held)
    keys = torch.cat([held, rotate(k, start=start if key is None else key)], 2)
    return rotate(q, start=start if query is None else query) @ keys.mT


mended_rotary_step = exercise(
    "mended_rotary_step",
    reference=_scores,
    cases=_steps,
    switches=_scores,
)
