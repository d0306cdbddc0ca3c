"""A table that is sorted by the column of one's choice, with a bar behind each number, and one row in full."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any

import traitlets

from .._tokens import shown
from .._validate import as_list, require_choice, require_flag, require_kind, require_text
from ..drawings import PARTS
from ..measures.card import HeadCard
from ._drawn_layer import drawn_layer
from ._instrument import Instrument
from ._names import by_name, different_names

MOST_ROWS, MOST_COLUMNS = 1000, 40
IN_TABLE = 10
"""Rows that a reader without JavaScript sees."""


class SortableTable(Instrument):
    """A table whose rows are sorted by any column; the chosen row is told in full, with its rank in each column.

    Numbers are kept to three digits and have a bar, as long as the column's largest; rows without a number come last.
    What the reader chooses can be read and set: `sort`, the column ("" is the order in which the rows came), `falling`,
    and `row`, by its name.

    Args:
        rows: the names of the rows, all different.
        columns: by name, a number or a text for each row; NaN or `None` where there is none.
        beside: by name, such as "control", numbers that belong to those of a column: by column, one for each row. Only
            the chosen row shows them.
        about: by column, a sentence that says what it holds.
        caption: of the table.
        first: what the rows are, the header above their names.
        lit: for each row, the parts of `mhalib.drawings.PARTS` that are lit in the drawing of the layer below the
            table, each with the words beside it, as `mhalib.drawings.changed_steps` gives them. `None` draws nothing.
        sort, falling: the column to begin with, and whether its largest number, or last text, comes first.
        row: the one to begin with; `None` is the first as sorted.

    Raises:
        TypeError: a name is no string, a value neither a number nor a string.
        ValueError: rows or columns are none, too many or the same; a column or `lit` has another length; `beside`,
            `about`, `lit`, `sort` or `row` name what is not there.

    >>> table = SortableTable(["a", "b"], {"score": [0.25, 0.5]}, sort="score")
    >>> table.row
    'b'
    """

    script = "SortableTable"

    caption = traitlets.Unicode().tag(sync=True)
    first = traitlets.Unicode().tag(sync=True)
    rows = traitlets.List(traitlets.Unicode()).tag(sync=True)
    names = traitlets.List(traitlets.Unicode()).tag(sync=True)
    values: traitlets.List[Any] = traitlets.List().tag(sync=True)  # by column, then row: number, text or None
    beside: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)  # by name, by column
    about = traitlets.Dict().tag(sync=True)
    lit: traitlets.List[Any] = traitlets.List().tag(sync=True)  # by row, part -> the words beside it
    drawing: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)  # of the layer; empty where nothing is lit

    sort = traitlets.Unicode("").tag(sync=True)
    falling = traitlets.Bool(True).tag(sync=True)
    row = traitlets.Unicode().tag(sync=True)

    def __init__(
        self,
        rows: Sequence[str],
        columns: Mapping[str, Sequence[float | str | None]],
        *,
        beside: Mapping[str, Mapping[str, Sequence[float | None]]] | None = None,
        about: Mapping[str, str] | None = None,
        lit: Sequence[Mapping[str, Sequence[str]]] | None = None,
        caption: str = "",
        first: str = "row",
        sort: str = "",
        falling: bool = True,
        row: str | None = None,
        **kwargs: Any,
    ) -> None:
        names = different_names("rows", rows, MOST_ROWS)
        require_kind("columns", columns, Mapping)
        headers = different_names("columns", list(columns), MOST_COLUMNS)
        for name, text in (("caption", caption), ("first", first)):
            require_kind(name, text, str)
        require_flag("falling", falling)
        require_choice("sort", sort, ("", *headers))
        more: dict[str, dict[str, Any]] = {}
        for label, of in by_name("beside", beside or {}, None).items():
            numbers_of = by_name(f"beside[{label!r}]", of, headers)
            more[label] = {
                name: _column(f"beside[{label!r}][{name!r}]", numbers, len(names))
                for name, numbers in numbers_of.items()
            }
        told = by_name("about", about or {}, headers)
        for column, text in told.items():
            require_text(f"about[{column!r}]", text)
        super().__init__(
            caption=caption,
            first=first,
            rows=names,
            names=headers,
            values=[_column(f"columns[{name!r}]", given, len(names)) for name, given in columns.items()],
            beside=more,
            about=told,
            lit=[] if lit is None else _lit(lit, len(names)),
            drawing={} if lit is None else drawn_layer(),
            sort=sort,
            falling=falling,
            row="",
            **kwargs,
        )
        self.row = names[self.order()[0]] if row is None else row

    @classmethod
    def of_heads(cls, card: HeadCard, **settings: Any) -> SortableTable:
        """The card of a model's heads: a row for each head, (layer, head), and a column for each measure, with spread
        and control beside it.

        Args:
            card: what `mhalib.measures.head_card` returns.
            settings: as for the class.

        Raises:
            TypeError, ValueError: `card` is no card; as the class.
        """
        require_kind("card", card, HeadCard)
        beside = {"spread": card.spread, "control": card.control}
        return cls(
            [f"{head.layer}, {head.head}" for head in card.heads],
            {name: numbers.tolist() for name, numbers in card.values.items()},
            beside={label: {name: x.tolist() for name, x in of.items()} for label, of in beside.items() if any(of)},
            **{"first": "layer, head", "caption": f"{len(card.heads)} heads", **settings},
        )

    @traitlets.validate("sort", "row")
    def _there(self, proposal: Any) -> Any:
        name, value = proposal["trait"].name, proposal["value"]
        if value:
            require_choice(name, value, tuple(self.names if name == "sort" else self.rows))
        return value

    def state(self) -> dict[str, Any]:
        """The traits of its own; nothing is said of a drawing where nothing is lit."""
        return {name: value for name, value in super().state().items() if value or name not in {"lit", "drawing"}}

    def order(self) -> list[int]:
        """The rows' numbers as they stand now; rows of equal values keep their order."""
        every = range(len(self.rows))
        if not self.sort:
            return list(every)
        column = self.values[self.names.index(self.sort)]
        numbers, texts = ([i for i in every if isinstance(column[i], kind)] for kind in (float, str))
        ordered = (sorted(some, key=column.__getitem__, reverse=self.falling) for some in (numbers, texts))
        return [*chain(*ordered), *(i for i in every if column[i] is None)]

    def table(self) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
        """The first rows as sorted."""
        order = self.order()[:IN_TABLE]
        rows = [[self.rows[i], *(written(column[i]) for column in self.values)] for i in order]
        said = f", the first {len(order)} of {len(self.rows)}" if len(order) < len(self.rows) else ""
        by = f", sorted by {self.sort}" if self.sort else ""
        return f"{self.caption}{by}{said}", [self.first, *self.names], rows


def written(value: float | str | None) -> str:
    """A number to three digits, without a power of ten: 1234.5 is "1,230"."""
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{Decimal(repr(value)).normalize():,f}".replace("-", "−")


def _lit(given: Any, length: int) -> list[dict[str, list[str]]]:
    """For each row, part of the drawing -> the words beside it."""
    found = as_list("lit", given)
    if len(found) != length:
        raise ValueError(f"lit has {len(found)} entries, but there are {length} rows")
    parts = [by_name(f"lit[{r}]", of, PARTS) for r, of in enumerate(found)]
    return [{part: _texts(part, words) for part, words in of.items()} for of in parts]


def _texts(part: str, given: Any) -> list[str]:
    words = as_list(f"words beside {part!r}", given)
    for one in words:
        require_text(f"each of the words beside {part!r}", one)
    return [shown(one) for one in words]


def _column(name: str, given: Any, length: int) -> list[float | str | None]:
    """Numbers to three digits, texts, and None."""
    found = as_list(name, given)
    if len(found) != length:
        raise ValueError(f"{name} has {len(found)} values, but there are {length} rows")
    column: list[float | str | None] = []
    for one in found:
        if one is None or isinstance(one, str):
            column.append(one and shown(one))
        elif isinstance(one, bool) or not isinstance(one, (int, float)):
            raise TypeError(f"{name} must hold numbers, strings or None, got {type(one).__name__}")
        else:
            column.append(float(f"{one:.3g}") + 0.0 if math.isfinite(one) else None)
    return column
