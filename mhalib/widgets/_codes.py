"""How the head explorer carries weights: thousandths in base64, and signs for what is no weight."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

LEVELS = 1000
BITS = 10
SUM_SLACK = 0.01
NOTHING = {False: -(2**15), True: -(2**31)}  # what a row sums to that sums to no number
Counts = NDArray[np.int64]
Table = NDArray[np.float64]
Cells = NDArray[np.bool_]


class Signs(NamedTuple):
    """Codes up to `top` are thousandths; those above are signs, in this order."""

    top: int
    words: tuple[str, ...]

    def word(self, code: int) -> str:
        """A code as it is shown."""
        return written(code) if code <= self.top else self.words[code - self.top - 1]


ORDINARY = Signs(LEVELS, ("NaN", "inf", "-inf", "< 0", "> 1"))
"""Weights from 0 to 1, in 10 bits."""
MIXED = Signs(32 * LEVELS, ("NaN", "inf", "-inf", "< −32", "> 32"))
"""Weights with a sign, in 16 bits."""


def written(code: int) -> str:
    """Thousandths as a number with three digits."""
    return f"{code / LEVELS:.3f}".replace("-", "−")


def coded(table: Table, signs: Signs) -> Counts:
    """Thousandths, or the sign of what is none."""
    top = signs.top
    bounds = 2 * top / LEVELS
    codes = (np.nan_to_num(table, nan=0.0, posinf=bounds, neginf=-bounds).clip(-bounds, bounds) * LEVELS).round()
    codes = codes.astype(np.int64)
    below, above = codes < (0 if signs is ORDINARY else -top), codes > top
    for sign, where in ((4, below), (5, above), (1, np.isnan(table)), (2, table == np.inf), (3, table == -np.inf)):
        codes[where] = top + sign
    return codes


def is_mixed(table: Table, seen: Cells) -> bool:
    """Whether a weight that is seen is below 0 or above 1, to 3 digits."""
    found = table[np.broadcast_to(seen, table.shape) & np.isfinite(table)]
    return bool(found.size) and bool(found.min() < -0.5 / LEVELS or found.max() > 1 + 0.5 / LEVELS)


def span(codes: Counts, sums: Table, seen: Cells) -> list[int]:
    """What the scale of mixed weights says, in thousandths: where it ends on both sides, the smallest and the largest
    weight, and of the rows' sums."""
    found = codes[np.broadcast_to(seen, codes.shape) & (codes <= MIXED.top)]
    low, high = (int(found.min()), int(found.max())) if found.size else (0, 0)
    largest = max(-low, high, 1)
    step = 10 if largest < LEVELS else LEVELS // 10
    totals = sums[np.isfinite(sums) & np.broadcast_to(seen.any(-1), sums.shape)]
    ends = [round(float(end) * LEVELS) for end in ((totals.min(), totals.max()) if totals.size else (0, 0))]
    return [-(-largest // step) * step, low, high, *ends]


def packed(codes: Counts, signs: Signs) -> str:
    """Ordinary: 10 bits each, lowest first, and a byte more, so that two bytes can be read wherever a code begins.
    Mixed: 16 bits each."""
    if signs is MIXED:
        return as_base64(codes.astype("<i2"))
    bits = (codes.reshape(-1, 1) >> np.arange(BITS)) & 1
    return as_base64(np.append(np.packbits(bits.astype(np.uint8), bitorder="little"), np.uint8(0)))


def coded_sums(sums: Table, signs: Signs) -> str:
    """Thousandths in 16 bits, at most 32.767; of mixed weights, in 32. The lowest number is for what is no number."""
    mixed = signs is MIXED
    most = -NOTHING[mixed] - 1
    whole = np.nan_to_num(sums * LEVELS, nan=0.0, posinf=0.0, neginf=0.0).clip(-most, most).round()
    return as_base64(np.where(np.isfinite(sums), whole, NOTHING[mixed]).astype("<i4" if mixed else "<i2"))


def carried(state: Mapping[str, Any], name: str) -> NDArray[np.float64]:
    """The weights ("packed") or the rows' sums ("sums") that the state of an explorer carries, with codes of signs."""
    data, mixed = base64.b64decode(state[name]), bool(state.get("span"))
    if name == "sums":
        return np.frombuffer(data, "<i4" if mixed else "<i2") / LEVELS
    if mixed:
        return np.frombuffer(data, "<i2") / LEVELS
    count = int(np.prod(state["sizes"]))
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
    codes: Counts = bits[: count * BITS].reshape(count, BITS).astype(np.int64) @ (1 << np.arange(BITS))
    return codes / LEVELS


def as_base64(array: NDArray[Any]) -> str:
    return base64.b64encode(array.tobytes()).decode("ascii")


def note(table: Table, sums: Table, seen: Cells, signs: Signs) -> str:
    """What is odd about the weights, in a sentence for each oddity."""
    return in_sentences(*oddities(table, sums, seen, signs), sums.size, signs)


def oddities(table: Table, sums: Table, seen: Cells, signs: Signs) -> tuple[int, int]:
    """How many rows do not sum to what they should, and how many masked cells have a weight."""
    blind = ~seen.any(axis=-1) & (np.nan_to_num(sums) == 0)  # a query that sees no key has 0 or NaN to show
    fits = np.isfinite(sums) if signs is MIXED else np.abs(sums - 1) <= SUM_SLACK
    leaks = ~seen & (np.abs(table) >= 0.5 / LEVELS)  # NaN is not
    return int((~fits & ~blind).sum()), int(leaks.sum())


def in_sentences(wrong: int, leaks: int, num_rows: int, signs: Signs) -> str:
    """Oddities as they are told."""
    found = []
    if wrong:
        sums_to = "sum to no number" if signs is MIXED else "do not sum to 1"
        found.append(f"{wrong:,} of {num_rows:,} rows {sums_to}.")
    if leaks:
        found.append(f"{leaks:,} masked cells have a weight other than 0.")
    return " ".join(found)
