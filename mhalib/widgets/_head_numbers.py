"""What the head wall says of heads in numbers: whole numbers in a unit that four digits of the largest need."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._arrays import real_array
from .._tokens import shown
from .._validate import require_kind, require_text

MOST_PLACES = 9


class HeadNumber(NamedTuple):
    """One number of each head.

    name: as it is shown.
    units: a whole number for each head, layer by layer, `None` where there is none.
    places: digits behind the point; a unit is 10 to the power of -places.
    """

    name: str
    units: list[int | None]
    places: int

    def written(self, index: int) -> str:
        """The number of a head as it is shown."""
        units = self.units[index]
        return "no number" if units is None else in_digits(units, self.places)

    def highest(self) -> list[int]:
        """The heads that have a number, the highest first; of equals, in the model's order."""
        have = [(-units, index) for index, units in enumerate(self.units) if units is not None]
        return [index for _, index in sorted(have)]


def in_digits(units: int, places: int) -> str:
    """Units as a number."""
    return f"{units / 10**places:.{places}f}".replace("-", "−")


def head_number(name: str, table: NDArray[np.float64]) -> HeadNumber:
    """The numbers (L, h) in units; NaN and what is not finite is no number."""
    finite = np.isfinite(table)
    largest = float(np.abs(table[finite]).max(initial=0.0))
    places = min(MOST_PLACES, max(0, 3 - math.floor(math.log10(largest)))) if largest else 3
    units = [round(float(one) * 10**places) if math.isfinite(one) else None for one in table.ravel()]
    return HeadNumber(shown(name[:100]), units, places)


def checked_numbers(numbers: object) -> dict[str, NDArray[np.float64]]:
    """The tables (L, h) by name, all of one shape.

    Raises:
        TypeError, ValueError: `numbers` is not of this kind.
    """
    require_kind("numbers", numbers, Mapping)
    found: dict[str, NDArray[np.float64]] = {}
    for name, given in numbers.items():  # type: ignore[attr-defined]
        require_text("each name of numbers", name)
        if not name.strip():
            raise ValueError(f"numbers has the name {name!r}, which cannot be read")
        found[name] = _one_table(f"numbers[{name!r}]", given)
        first = next(iter(found))
        if found[name].shape != found[first].shape:
            raise ValueError(
                f"numbers[{name!r}] has shape {found[name].shape}, but numbers[{first!r}] has {found[first].shape}"
            )
        if float(np.abs(np.nan_to_num(found[name], posinf=0.0, neginf=0.0)).max()) > 1e9:
            raise ValueError(f"numbers[{name!r}] holds a number beyond 1e9: divide by a larger unit")
    return found


def _one_table(name: str, given: Any) -> NDArray[np.float64]:
    if not isinstance(given, (list, tuple)):
        return real_array(name, given, rank=2)
    if not given:
        raise ValueError(f"{name} is an empty list: it needs the numbers of at least one layer")
    rows = [real_array(f"{name}[{i}]", row, rank=1) for i, row in enumerate(given)]
    for i, row in enumerate(rows):
        if row.shape != rows[0].shape:
            raise ValueError(f"{name}[{i}] has {len(row)} heads, but {name}[0] has {len(rows[0])}")
    return np.stack(rows)
