"""Tables of numbers with a bar behind each, for what would else be a wall of printed digits."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ._validate import require_text

__all__ = ["NumberTable", "number_table"]

POSITIVE, NEGATIVE = "#0072b240", "#d55e0040"  # a quarter opaque: the text keeps its contrast in light and dark
NUMBER = re.compile(r"[-+−]?\d[\d,]*(?:\.\d+)?")
Cell = float | str


@dataclass(frozen=True)
class NumberTable:
    """A table, which a notebook shows with its bars; printed, it is columns of text.

    Fields:
        columns: the headings, the first of them that of the rows' names.
        rows: name and entries of each row, as text; a row without entries is the name of those below it.
        bars: column -> the number at which its bar fills the entry.
        caption: what the table shows; may be empty.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    bars: Mapping[str, float]
    caption: str = ""

    def __repr__(self) -> str:
        full = [row for row in (self.columns, *self.rows) if len(row) > 1]
        widths = [max(map(len, column)) for column in zip(*full, strict=True)]
        lines = [self.caption] if self.caption else []
        for row in (self.columns, *self.rows):
            lines.append("  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        caption = f"<caption>{html.escape(self.caption)}</caption>\n" if self.caption else ""
        head = "".join(f'<th scope="col">{html.escape(one)}</th>' for one in self.columns)
        body = "\n".join(self._html_of(row) for row in self.rows)
        return (
            f'<div class="number-table"><table>\n{caption}<thead><tr>{head}</tr></thead>\n'
            f"<tbody>\n{body}\n</tbody></table></div>"
        )

    def _html_of(self, row: tuple[str, ...]) -> str:
        if len(row) == 1:
            return f'<tr><th scope="rowgroup" colspan="{len(self.columns)}">{html.escape(row[0])}</th></tr>'
        signed = {name for place, name in enumerate(self.columns) if place and self._has_negative(place)}
        cells = "".join(
            f"<td{_bar(text, self.bars[name], name in signed) if name in self.bars else ''}>{html.escape(text)}</td>"
            for name, text in zip(self.columns[1:], row[1:], strict=True)
        )
        return f'<tr><th scope="row">{html.escape(row[0])}</th>{cells}</tr>'

    def _has_negative(self, place: int) -> bool:
        return any(_value_of(row[place]) < 0 for row in self.rows if len(row) > 1)


def number_table(
    rows: Mapping[str, Sequence[Cell]] | Mapping[str, Mapping[str, Sequence[Cell]]],
    *,
    of: str,
    columns: Mapping[str, str] | Sequence[str],
    bars: Mapping[str, float] | None = None,
    caption: str = "",
) -> NumberTable:
    """A table of numbers, each with a bar behind it where `bars` names its column.

    Args:
        rows: name -> entries, numbers or finished texts; or name of a group -> such rows.
        of: the heading of the rows' names.
        columns: the headings; or heading -> how its numbers are written, such as `".2f"`.
        bars: heading -> the number at which the bar is as long as the entry. A text's bar is as long as the first
            number in it says. In a column with negative numbers, bars begin in the middle.
        caption: what the table shows.

    Raises:
        ValueError: a row has not one entry for each column, `bars` names no column, or a bar has no length.
        TypeError: `rows` is no mapping, `columns` no headings, or an entry neither a number nor a text.
    """
    require_text("of", of)
    require_text("caption", caption)
    formats = _formats(columns)
    full = _full(bars, formats)
    if not isinstance(rows, Mapping) or not rows:
        raise TypeError(f"rows={rows!r:.80} must be a mapping from names to entries, with at least one row")
    made: list[tuple[str, ...]] = []
    for name, entries in rows.items():
        if isinstance(entries, Mapping):
            made.append((str(name),))
            made += [_written(inner, each, formats) for inner, each in entries.items()]
        else:
            made.append(_written(name, entries, formats))
    return NumberTable((of, *formats), tuple(made), full, caption)


def _formats(columns: object) -> dict[str, str]:
    """Heading -> how its numbers are written."""
    if isinstance(columns, Mapping):
        found = dict(columns)
    elif isinstance(columns, Sequence) and not isinstance(columns, (str, bytes)):
        found = {name: "" for name in columns if isinstance(name, str)}
    else:
        found = {}
    texts = all(isinstance(one, str) for pair in found.items() for one in pair)
    if not found or not texts or len(found) != len(columns):  # type: ignore[arg-type]
        raise TypeError(f"columns={columns!r:.80} must be different headings, or a mapping from them to formats")
    return found


def _full(bars: object, formats: Mapping[str, str]) -> dict[str, float]:
    """Heading -> the number at which its bar is full."""
    if not isinstance(bars, Mapping | None):
        raise TypeError(f"bars={bars!r:.80} must be a mapping from headings to numbers")
    for name, full in (bars or {}).items():
        if name not in formats:
            raise ValueError(f"bars has {name!r:.80}, which is none of the columns {', '.join(formats)}")
        if isinstance(full, bool) or not (isinstance(full, (int, float)) and 0 < full < math.inf):
            raise ValueError(f"bars[{name!r:.80}]={full!r:.80} must be a number over 0")
    return dict(bars or {})


def _written(name: object, entries: object, formats: Mapping[str, str]) -> tuple[str, ...]:
    """A row as text."""
    if isinstance(entries, str) or not isinstance(entries, Sequence) or len(entries) != len(formats):
        raise ValueError(f"rows[{name!r:.80}]={entries!r:.80} must have an entry for each of {', '.join(formats)}")
    row = [str(name)]
    for entry, (heading, how) in zip(entries, formats.items(), strict=True):
        if isinstance(entry, bool) or not isinstance(entry, (int, float, str)):
            raise TypeError(f"rows[{name!r:.80}] holds {entry!r:.80}, which is neither a number nor a text")
        try:
            row.append(entry if isinstance(entry, str) else format(entry, how))
        except ValueError as error:
            raise ValueError(f"columns[{heading!r:.80}]={how!r:.80} writes no {entry!r:.80}: {error}") from None
    return tuple(row)


def _value_of(text: str) -> float:
    """The first number in a text; 0 where it has none."""
    found = NUMBER.search(text)
    return float(found[0].replace(",", "").replace("−", "-")) if found else 0.0


def _bar(text: str, full: float, signed: bool) -> str:
    """The style of an entry whose bar is as long as its number; to both sides of the middle where `signed`."""
    share = max(-1.0, min(1.0, _value_of(text) / full))
    colour = NEGATIVE if share < 0 else POSITIVE
    if signed:
        low, high = sorted((50, round(50 + 50 * share)))
        stops = f"#0000 {low}%,{colour} 0 {high}%,#0000 0"
    else:
        stops = f"{colour} {round(100 * share)}%,#0000 0"
    return f' style="background:linear-gradient(90deg,{stops})"'
