"""Chapter 19: two changes to trained weights: average the heads of a group, and reorder the rows of each head."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw


def _projections(rng: random.Random) -> Iterator[Case]:
    """Of 4 to 42 heads; but for the first, columns too can be cut into as many parts as a group has heads."""
    rows = [[1.0], [2.0], [3.0], [5.0], [7.0], [6.0], [4.0], [9.0]]
    yield {"weight": torch.tensor(rows), "num_heads": 4, "num_groups": 2}
    drawn = apart(
        rng, 4, of=lambda g, shared, d, pieces: [g, shared, d, pieces, g * shared, g * shared * d, shared * pieces]
    )
    for num_groups, shared, head_dim, pieces in drawn:
        yield {
            "weight": draw(rng, num_groups * shared * head_dim, shared * pieces),
            "num_heads": num_groups * shared,
            "num_groups": num_groups,
        }


def _in_groups(weight: Tensor, num_heads: int, num_groups: int) -> Tensor:
    """(g, h/g, d, D_in)."""
    return weight.reshape(num_groups, num_heads // num_groups, -1, weight.shape[1])


def _pooled(weight: Tensor, num_heads: int, num_groups: int) -> Tensor:
    return _in_groups(weight, num_heads, num_groups).mean(1).flatten(0, 1)


pooled = Exercise(
    "pooled",
    chapter=19,
    title="average the heads of a group",
    reference=_pooled,
    cases=_projections,
    verified="four projections, of 4 to 12 heads in two to four groups; channel 0 is averaged with channel 0.",
    points=2,
    mistakes=[
        Mistake(
            "summed",
            "you summed the heads of a group. Average them, or keys and scores become h / g times as large.",
            lambda weight, num_heads, num_groups: _in_groups(weight, num_heads, num_groups).sum(1).flatten(0, 1),
        ),
        Mistake(
            "neighbouring rows",
            "you averaged neighbouring rows, which are different channels of the same head. Average channel 0 of one "
            "head with channel 0 of the next: rows that are d apart.",
            lambda weight, num_heads, num_groups: weight.unflatten(0, (-1, num_heads // num_groups)).mean(1),
        ),
        Mistake(
            "heads that are g apart",
            "you averaged heads i, i + g, i + 2g and so on. The heads of a group are neighbours: group 0 has heads 0 "
            "to h / g - 1.",
            lambda weight, num_heads, num_groups: (
                weight.unflatten(0, (num_heads // num_groups, num_groups, -1)).mean(0).flatten(0, 1)
            ),
        ),
        Mistake(
            "first head of each group",
            "you took the first head of each group and dropped the others. Average all heads of the group.",
            lambda weight, num_heads, num_groups: _in_groups(weight, num_heads, num_groups)[:, 0].flatten(0, 1),
        ),
        Mistake(
            "all heads, g times",
            "you averaged all h heads, so every group has the same keys. Average only the heads of the same group.",
            lambda weight, num_heads, num_groups: weight.unflatten(0, (num_heads, -1)).mean(0).repeat(num_groups, 1),
        ),
        Mistake(
            "all heads, once",
            "you averaged all h heads into one, which is multi-query attention. Keep one for each group: g * d rows.",
            lambda weight, num_heads, num_groups: weight.unflatten(0, (num_heads, -1)).mean(0),
        ),
        Mistake(
            "groups of g heads",
            "you averaged g heads at a time. `num_groups` is how many groups there are; each has h / g heads.",
            lambda weight, num_heads, num_groups: (
                weight.reshape(num_heads // num_groups, num_groups, -1, weight.shape[1]).mean(1).flatten(0, 1)
            ),
        ),
        Mistake(
            "channels of a head",
            "you averaged the d channels within each head. Average over the heads and keep the channels.",
            lambda weight, num_heads, num_groups: weight.unflatten(0, (num_heads, -1)).mean(1),
        ),
        Mistake(
            "over the groups",
            "you averaged over the groups: the first heads of all groups, then the second heads. Average over the "
            "heads of one group, and keep a head for each group.",
            lambda weight, num_heads, num_groups: _in_groups(weight, num_heads, num_groups).mean(0).flatten(0, 1),
        ),
        Mistake(
            "input columns",
            "you averaged columns, which belong to the input. In an `nn.Linear`, a head owns rows.",
            lambda weight, num_heads, num_groups: torch.stack(weight.chunk(num_heads // num_groups, 1)).mean(0),
        ),
    ],
)


def _rotary_rows(rng: random.Random) -> Iterator[Case]:
    yield {"weight": torch.arange(12.0)[:, None], "num_heads": 2}
    drawn = apart(rng, 3, smallest=3, of=lambda h, half, width: [h, width, 2 * half, 2 * half * h])
    for num_heads, half, width in drawn:
        yield {"weight": draw(rng, num_heads * 2 * half, width), "num_heads": num_heads}


def _two_halves(x: Tensor, dim: int) -> Tensor:
    """The even indices of an axis, then the odd ones."""
    even, odd = (torch.arange(first, x.shape[dim], 2) for first in (0, 1))
    return x.index_select(dim, torch.cat([even, odd]))


def _to_halves(weight: Tensor, num_heads: int) -> Tensor:
    return _two_halves(weight.unflatten(0, (num_heads, -1)), 1).flatten(0, 1)


to_halves = Exercise(
    "to_halves",
    chapter=19,
    given="nothing mended",
    title="move rotary pairs within each head",
    reference=_to_halves,
    cases=_rotary_rows,
    verified="four projections, of two to five heads; each head keeps its rows, the even ones first.",
    points=3,
    mistakes=[
        Mistake(
            "nothing mended",
            "the whole matrix is still reordered at once: the even rows of all heads come first, so heads get rows of "
            "other heads. Reorder the d rows of each head, and leave each head where it is.",
            lambda weight, num_heads: _two_halves(weight, 0),
        ),
        Mistake(
            "the way back",
            "each head keeps its rows, but this goes from halves to pairs. For d = 6, a head's old rows must come in "
            "the order 0, 2, 4, 1, 3, 5.",
            lambda weight, num_heads: weight.unflatten(0, (num_heads, 2, -1)).transpose(1, 2).flatten(0, 2),
        ),
        Mistake(
            "the way back, without heads",
            "this goes from halves to pairs, and across the whole matrix. Take every second row, head by head.",
            lambda weight, num_heads: weight.unflatten(0, (2, -1)).transpose(0, 1).flatten(0, 1),
        ),
        Mistake(
            "odd rows first",
            "in each head, the odd rows come first. Channel 2c goes to c, and channel 2c + 1 to c + d/2.",
            lambda weight, num_heads: _to_halves(weight.unflatten(0, (-1, 2)).flip(1).flatten(0, 1), num_heads),
        ),
        Mistake(
            "halves exchanged",
            "you exchanged the two halves of each head. Take every second row of a head.",
            lambda weight, num_heads: weight.unflatten(0, (num_heads, 2, -1)).flip(1).flatten(0, 2),
        ),
        Mistake(
            "first head only",
            "only head 0 was reordered. Every head has rotary pairs.",
            lambda weight, num_heads: torch.cat(
                [_two_halves(weight[: len(weight) // num_heads], 0), weight[len(weight) // num_heads :]]
            ),
        ),
        Mistake(
            "blocks of h rows",
            "you cut the matrix into blocks of `num_heads` rows. There are `num_heads` blocks, each of d rows.",
            lambda weight, num_heads: _two_halves(weight.unflatten(0, (-1, num_heads)), 1).flatten(0, 1),
        ),
        Mistake(
            "heads torn apart",
            "you exchanged heads and channels, so the rows of a head are no longer side by side. Heads stay where they "
            "are; after the split (h, d/2, 2), exchange the last two.",
            lambda weight, num_heads: weight.unflatten(0, (num_heads, -1, 2)).transpose(0, 2).flatten(0, 2),
        ),
        Mistake(
            "heads reordered",
            "you reordered the heads, the even ones first. Each head stays where it is; its rows move.",
            lambda weight, num_heads: _two_halves(weight.unflatten(0, (num_heads, -1)), 0).flatten(0, 1),
        ),
        Mistake(
            "input columns",
            "you reordered the columns, which belong to the input. A head's channels are rows of the matrix.",
            lambda weight, num_heads: _two_halves(weight, 1),
        ),
        Mistake("nothing moved", "the rows are where they were.", lambda weight, num_heads: weight.clone()),
    ],
)
