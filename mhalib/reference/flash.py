"""What FlashAttention-2, -3 and -4 changed, each as a simulation that counts, in a few readable lines.

Nothing here is fast. `in_order` counts what the order of two loops costs; `schedule` says who computes when;
`in_8_bits` and `spread` show where digits are lost; `lazy_pass` and `exp2_polynomial` save work beside the products.

Sources: Dao 2023 and Shah et al. 2024 (the abstracts), Zadouri et al. 2026 (the abstract, and `softmax.py` and
`utils.py` of their program).
"""

from __future__ import annotations

import math
from itertools import product as pairs
from typing import NamedTuple

import torch
from torch import Tensor

from mhalib._validate import require_choice, require_count


class Counts(NamedTuple):
    """moved: numbers read from the large memory or written to it. factors: multiplications of averages so far."""

    moved: int
    factors: int


def in_order(q: Tensor, k: Tensor, v: Tensor, size: int, *, outside: str) -> tuple[Tensor, Counts]:
    """Attention of one head in tiles, with either loop outside: q (Q, d), k (K, d), v (K, d_v) -> (Q, d_v), Counts.

    outside: "keys", as in the first FlashAttention: a block of keys stays, all queries come by, and for each tile their
        averages so far are fetched, weighed, divided and written back. "queries", as in FlashAttention-2: a block of
        queries stays, and its sums with it; they are divided once.

    Raises: ValueError – another loop, or a size below 1.
    """
    require_choice("outside", outside, ("keys", "queries"))
    require_count("size", size)
    (Q, d), (K, d_v), by_keys = q.shape, v.shape, outside == "keys"
    largest, total, found = q.new_full((Q, 1), -math.inf), q.new_zeros(Q, 1), q.new_zeros(Q, d_v)
    queries, keys = ([slice(at, min(at + size, n)) for at in range(0, n, size)] for n in (Q, K))
    order = [(rows, cols) for cols, rows in pairs(keys, queries)] if by_keys else pairs(queries, keys)
    moved = factors = 0
    stays = None
    for rows, cols in order:
        of_queries, of_keys = (rows.stop - rows.start) * d, (cols.stop - cols.start) * (d + d_v)
        moved += of_queries if by_keys else of_keys  # what comes by
        if stays != (stays := cols if by_keys else rows):
            moved += of_keys if by_keys else of_queries
        scores = q[rows] @ k[cols].T / math.sqrt(d)
        new = torch.maximum(largest[rows], scores.amax(1, keepdim=True))
        correction, terms = (largest[rows] - new).exp(), (scores - new).exp()
        before = correction * total[rows]
        total[rows], largest[rows] = before + terms.sum(1, keepdim=True), new
        if by_keys:  # an average is kept: weighed by its old total, divided by the new one
            moved += 2 * (found[rows].numel() + 2 * len(found[rows]))
            factors += 2 * found[rows].numel()
            found[rows] = (before * found[rows] + terms @ v[cols]) / total[rows]
        else:
            factors += found[rows].numel()
            found[rows] = correction * found[rows] + terms @ v[cols]
    if by_keys:
        return found, Counts(moved, factors)
    return found / total, Counts(moved + Q * (d_v + 1), factors + Q * d_v)  # output and log-sum-exp, written once


class Task(NamedTuple):
    """A unit, "products" or "exponentials", works for `group` from cycle `start` to `end`."""

    group: int
    unit: str
    start: int
    end: int


def schedule(num_groups: int, num_tiles: int, *, product: int, softmax: int) -> list[Task]:
    """Who computes when, if groups of threads share a unit for products and one for exponentials.

    Each group takes `num_tiles` tiles. A tile is q kᵀ, its softmax, and w v, one after the other: `product`, `softmax`
    and again `product` cycles. A unit serves one group at a time; whoever can begin first begins (a rule of ours).

    Raises: ValueError – a count below 1.
    """
    for name, count in (("groups", num_groups), ("tiles", num_tiles)):
        require_count(f"num_{name}", count)
    steps = [("products", product), ("exponentials", softmax), ("products", product)] * num_tiles
    free, ready, done = {"products": 0, "exponentials": 0}, [0] * num_groups, [0] * num_groups
    tasks: list[Task] = []
    while len(tasks) < num_groups * len(steps):
        waiting = [group for group in range(num_groups) if done[group] < len(steps)]
        start, _, group = min((max(ready[g], free[steps[done[g]][0]]), done[g], g) for g in waiting)
        unit, cycles = steps[done[group]]
        free[unit] = ready[group] = start + cycles
        done[group] += 1
        tasks.append(Task(group, unit, start, start + cycles))
    return tasks


def in_8_bits(x: Tensor, rows: int | None = None) -> Tensor:
    """x (N, d) rounded to 8 bits, float8_e4m3fn, with a scale for each `rows` rows, or one for all; in x's format."""
    blocks = x.split(rows or len(x))
    scales = [448 / block.abs().amax().clamp(min=1e-30) for block in blocks]  # the format ends at 448
    rounded = [(scale * block).to(torch.float8_e4m3fn) for scale, block in zip(scales, blocks, strict=True)]
    return torch.cat([block.to(x.dtype) / scale for scale, block in zip(scales, rounded, strict=True)])


def spread(d: int) -> Tensor:
    """(d, d): random signs, then Hadamard's rotation. Applied to queries and keys, it leaves all scores as they were.

    A channel that is large in a few places becomes a little of every channel.

    Raises: ValueError – d is not a power of 2.
    """
    if d < 1 or d & (d - 1):
        raise ValueError(f"d={d} is not a power of 2")
    rotation = torch.ones(1, 1, dtype=torch.float64)
    while len(rotation) < d:
        rotation = torch.cat([torch.cat([rotation, rotation], 1), torch.cat([rotation, -rotation], 1)])
    return (torch.randint(2, (d, 1)) * 2 - 1) * rotation / math.sqrt(d)


def lazy_pass(scores: Tensor, values: Tensor, size: int, threshold: float) -> tuple[Tensor, int]:
    """Softmax averages in one pass that corrects a row only if its largest score rose by more than `threshold`.

    scores (Q, K), values (K, d_v) -> averages (Q, d_v), and how many rows were corrected after the first of their
    tiles of `size` keys. A row that is not corrected goes on subtracting the same number: its terms may reach
    exp(threshold), in the sum and in the total, so nothing changes but the last digits.
    """
    base, corrected = scores[:, :size].amax(1, keepdim=True), 0
    total = found = torch.zeros(())
    for tile, part in zip(scores.split(size, 1), values.split(size), strict=True):
        largest = tile.amax(1, keepdim=True)
        new = torch.where(largest > base + threshold, largest, base)
        corrected += int((new > base).sum())
        correction, terms = (base - new).exp(), (tile - new).exp()
        total = correction * total + terms.sum(1, keepdim=True)
        found = correction * found + terms @ part
        base = new
    return found / total, corrected


def exp2_polynomial(x: Tensor, degree: int = 3) -> Tensor:
    """2**x, from a shift of the exponent and a polynomial, for units without an exponential.

    The whole part of x changes a float's exponent and nothing else. For the rest, 0 <= f < 1, 2**f is a polynomial
    that begins with 1; its coefficients are fitted here, to the relative error at Chebyshev's points.
    """
    require_count("degree", degree)
    points = (1 - torch.cos(math.pi * (torch.arange(64, dtype=torch.float64) + 0.5) / 64))[:, None] / 2
    powers, exact = points ** torch.arange(1, degree + 1), points.exp2()
    fitted = torch.linalg.lstsq(powers / exact, (exact - 1) / exact).solution[:, 0].tolist()
    rest, value = x - x.floor(), torch.zeros_like(x)
    for coefficient in reversed(fitted):
        value = (value + coefficient) * rest
    return torch.ldexp(1 + value, x.floor().int())
