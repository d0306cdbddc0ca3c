"""Chapter 25: keys in eight bits, and keys that are turned once."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from mhalib.attention import rotate

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw


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


rounded_keys = Exercise(
    "rounded_keys",
    chapter=25,
    title="round keys to eight bits",
    reference=_rounded,
    cases=_keys,
    verified="four sets of keys, whose tokens and heads differ in size: each has a scale of its own.",
    parts=("codes", "scales"),
    points=2,
    mistakes=[
        Mistake(
            "a scale for each channel",
            "you took the largest number over the tokens, axis 2: one scale for each channel. It changes when a larger "
            "key comes, and all codes before it would be wrong. Take it over the channels, the last axis.",
            lambda k: _rounded(k, -2),
        ),
        Mistake(
            "a scale for all heads",
            "all heads of a token have one scale. A head with small keys then gets few codes: give each head its own.",
            lambda k: _rounded(k, (1, 3)),
        ),
        Mistake(
            "a scale for all tokens",
            "all tokens of a head have one scale. It changes when a larger key comes, and a small key gets few codes.",
            lambda k: _rounded(k, (2, 3)),
        ),
        Mistake(
            "one scale",
            "all keys of all texts have one scale. Each key, of one token and one head, needs its own.",
            lambda k: _rounded(k, (0, 1, 2, 3)),
        ),
        Mistake(
            "signed maximum",
            "you took the largest number without its absolute value. Where the largest is negative, it does not fit "
            "between -127 and 127 and is cut off.",
            _signed,
        ),
        Mistake(
            "128",
            "you divided by 128. The largest number then gets the code 128, which int8 does not have: on most "
            "machines it becomes -128, and the largest number of a key changes its sign. Divide by 127.",
            lambda k: _rounded(k, -1, 128),
        ),
        Mistake(
            "cut off",
            "you cut off what is behind the point, as `.to(torch.int8)` does. Errors are then up to a whole scale, and "
            "all towards 0: round first.",
            lambda k: _rounded(k, -1, 127, "cut"),
        ),
        Mistake(
            "rounded down",
            "you rounded down. Errors are then up to a whole scale, and every key is a little too small: round to the "
            "nearest.",
            lambda k: _rounded(k, -1, 127, "down"),
        ),
        Mistake(
            "scales turned round",
            "your scales are 127 divided by the largest number. The codes are right, but codes times scales is to be "
            "the key again: return the largest number divided by 127.",
            lambda k: (_rounded(k)[0], 127 / k.abs().amax(-1, keepdim=True)),
        ),
        Mistake(
            "largest numbers as scales",
            "you returned the largest numbers, without dividing by 127. Codes times scales must be the key again.",
            lambda k: (_rounded(k)[0], k.abs().amax(-1, keepdim=True)),
        ),
        Mistake(
            "axis lost",
            "the scales have no last axis, (B, h, K). Keep it, with `keepdim=True`, so that codes times scales works.",
            lambda k: (_rounded(k)[0], k.abs().amax(-1) / 127),
        ),
    ],
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


mended_rotary_step = Exercise(
    "mended_rotary_step",
    chapter=25,
    given="nothing mended",
    title="mend a step with rotary positions",
    reference=_scores,
    cases=_steps,
    verified="four steps, of one new token and several: old keys stay as they are, new ones come behind them.",
    points=3,
    mistakes=[
        Mistake(
            "nothing mended",
            "old keys are still turned a second time, and new queries have the positions of the first tokens.",
            lambda q, k, held: rotate(q) @ rotate(torch.cat([held, k], 2)).mT,
        ),
        Mistake(
            "old keys twice",
            "old keys were turned before they were stored, and you turned them again: the key at position t now stands "
            "at 2t. Leave them as they are.",
            lambda q, k, held: _scores(q, k, held, old=True),
        ),
        Mistake(
            "positions from 0",
            "the new tokens have the positions 0, 1, ... again. Their distances to each other are right, those to the "
            "old tokens are not. The first new token has as many tokens before it as the cache holds.",
            lambda q, k, held: _scores(q, k, held, query=0, key=0),
        ),
        Mistake(
            "queries from 0",
            "the new keys are where they should be, but the new queries have the positions 0, 1, ...",
            lambda q, k, held: _scores(q, k, held, query=0),
        ),
        Mistake(
            "keys from 0",
            "the new queries are where they should be, but the new keys have the positions 0, 1, ...",
            lambda q, k, held: _scores(q, k, held, key=0),
        ),
        Mistake(
            "one too far",
            "the new tokens are one position too far from the old ones. Positions start at 0, so behind n tokens comes "
            "position n.",
            lambda q, k, held: _scores(q, k, held, query=held.shape[2] + 1, key=held.shape[2] + 1),
        ),
        Mistake(
            "behind the new tokens",
            "you counted the new tokens, too: the first of them has only the old ones before it.",
            lambda q, k, held: _scores(q, k, held, query=held.shape[2] + k.shape[2], key=held.shape[2] + k.shape[2]),
        ),
        Mistake(
            "one too near",
            "the new tokens are one position too near to the old ones: the first of them has the position of the last "
            "old one.",
            lambda q, k, held: _scores(q, k, held, query=held.shape[2] - 1, key=held.shape[2] - 1),
        ),
        Mistake(
            "new key not turned",
            "you stored the new keys without turning them. The next step takes them as they are, and would compare a "
            "turned query with them.",
            lambda q, k, held: rotate(q, start=held.shape[2]) @ torch.cat([held, k], 2).mT,
        ),
        Mistake(
            "queries not turned",
            "the queries are not turned. A score depends on the distance only if both are.",
            lambda q, k, held: q @ torch.cat([held, rotate(k, start=held.shape[2])], 2).mT,
        ),
        Mistake(
            "new keys first",
            "the new keys are before the old ones. A mask, and the values, expect them behind.",
            lambda q, k, held: rotate(q, start=held.shape[2]) @ torch.cat([rotate(k, start=held.shape[2]), held], 2).mT,
        ),
    ],
)
