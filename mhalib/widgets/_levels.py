"""How the head wall carries large maps: all of them pooled to cells of 6 bits, and of some heads the strongest keys.

A cell is one letter of base64. Codes up to `TOP` are weights on a scale of roots: code c is the weight (c / TOP)², so
that small weights are told apart, too. Two codes are left: no cell of the block is seen, and a block with what is no
weight.
"""

from __future__ import annotations

import base64
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._codes import LEVELS, ORDINARY, Cells, Table, as_base64, coded

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
TOP, MASKED, ODD = 61, 62, 63
NONE = 65_535  # in a list of strongest keys: there is no further one; a share of nothing
MAP_LETTERS = 600_000
DETAIL_LETTERS = 400_000
MOST_CELLS = 32
SLACK = 0.5 / LEVELS
Codes = NDArray[np.uint8]


class Grid(NamedTuple):
    """A map of Q by K weights in blocks of `tall` by `wide`; the last ones may be smaller."""

    rows: int
    columns: int
    tall: int
    wide: int


def grid_of(num_queries: int, num_keys: int, cells: int) -> Grid:
    """Blocks of equal sides, at most `cells` of them down and across."""
    tall, wide = math.ceil(num_queries / cells), math.ceil(num_keys / cells)
    return Grid(math.ceil(num_queries / tall), math.ceil(num_keys / wide), tall, wide)


def cells_that_fit(num_maps: int) -> int:
    """How many cells down and across, so that all maps fit into `MAP_LETTERS`."""
    return max(1, min(MOST_CELLS, math.isqrt(MAP_LETTERS // num_maps)))


def pooled(table: Table, seen: Cells, grid: Grid, pool: str) -> Codes:
    """The codes of one head's blocks: of the largest weight that is seen, or of their mean.

    Args:
        table: (Q, K).
        seen: (Q, K), True where a key may be attended to.
        pool: "max" or "mean".

    Returns:
        (rows, columns) of `grid`.
    """
    down, across = np.arange(0, table.shape[0], grid.tall), np.arange(0, table.shape[1], grid.wide)

    def blocks(cells: NDArray[np.generic], how: np.ufunc) -> NDArray[np.generic]:
        return how.reduceat(how.reduceat(cells, across, axis=1), down, axis=0)

    odd = seen & ~((table >= -SLACK) & (table <= 1 + SLACK))  # NaN is neither
    fine = seen & ~odd
    values = blocks(np.where(fine, table, 0.0), np.maximum if pool == "max" else np.add).astype(np.float64)
    if pool == "mean":
        values = values / np.maximum(blocks(fine.astype(np.int64), np.add).astype(np.float64), 1)
    codes: Codes = np.rint(TOP * np.sqrt(values.clip(0, 1))).astype(np.uint8)
    codes[~blocks(seen, np.logical_or).astype(bool)] = MASKED
    codes[blocks(odd, np.logical_or).astype(bool)] = ODD
    return codes


def lettered(codes: Codes) -> str:
    """Codes as text, one letter each."""
    return np.frombuffer(LETTERS.encode("ascii"), np.uint8)[codes].tobytes().decode("ascii")


def codes_of(letters: str) -> Codes:
    """The codes that `lettered` wrote, one after the other."""
    places = np.zeros(128, np.uint8)
    places[list(LETTERS.encode("ascii"))] = np.arange(len(LETTERS))
    codes: Codes = places[np.frombuffer(letters.encode("ascii"), np.uint8)]
    return codes


def weights_of(codes: Codes) -> Table:
    """The weights that codes stand for, and NaN where they stand for none."""
    return np.where(codes > TOP, np.nan, (codes / TOP) ** 2)


def strongest_keys(table: Table, seen: Cells, count: int) -> str:
    """The strongest keys of each query of one head, and what share of the row they hold.

    Args:
        table: (Q, K).
        seen: (Q, K).
        count: how many keys of each query; fewer where others have a weight below 0.0005.

    Returns:
        base64 of 16-bit numbers: for each query, `count` times a key and its weight in thousandths, then the share in
        thousandths. `NONE` fills up.
    """
    fine = seen & (table >= -SLACK) & (table <= 1 + SLACK)
    weights = np.where(fine, table, -1.0)
    keys = np.argsort(-weights, axis=-1, kind="stable")[:, :count]
    found = np.take_along_axis(weights, keys, axis=-1)
    codes = coded(found.clip(0), ORDINARY)
    kept = (found >= -SLACK) & ((codes > 0) | (np.arange(keys.shape[1]) == 0))
    held = np.where(kept, found, 0.0).sum(-1)
    sums = np.where(fine, table, 0.0).sum(-1)
    some = kept.any(-1) & (sums > 0)
    share = np.where(some, np.rint(LEVELS * held / np.where(some, sums, 1.0)).clip(0, LEVELS), NONE)
    pairs = np.stack([np.where(kept, keys, NONE), np.where(kept, codes, NONE)], axis=-1)
    filled = np.full((len(table), count, 2), NONE)
    filled[:, : keys.shape[1]] = pairs
    return as_base64(np.concatenate([filled.reshape(len(table), -1), share[:, None]], axis=1).astype("<u2"))


def keys_of(detail: str, count: int) -> tuple[NDArray[np.int64], Table]:
    """What `strongest_keys` wrote: keys (Q, count), -1 where there is none, and (Q, count + 1) their weights and the
    share of the row, NaN where there is none."""
    rows = np.frombuffer(base64.b64decode(detail), "<u2").astype(np.int64).reshape(-1, 2 * count + 1)
    keys, numbers = rows[:, : 2 * count : 2], np.concatenate([rows[:, 1 : 2 * count : 2], rows[:, -1:]], axis=1)
    return np.where(keys == NONE, -1, keys), np.where(numbers == NONE, np.nan, numbers / LEVELS)


def detail_letters(num_queries: int, count: int) -> int:
    """How many letters `strongest_keys` takes."""
    return 4 * math.ceil(2 * num_queries * (2 * count + 1) / 3)
