"""Tables of numbers: what stands in them, and how long the bars are."""

from __future__ import annotations

import re

import pytest
from bs4 import BeautifulSoup

import mhalib

ROWS = {"first": (0.5, 1200), "second": (1.0, 300), "third": (0.0, 7)}
COLUMNS = {"share": ".2f", "count": ",d"}
BARS = {"share": 1, "count": 2400}


def shown(table: mhalib.tables.NumberTable) -> BeautifulSoup:
    return BeautifulSoup(table._repr_html_(), "html.parser")


def coloured(cell) -> list[tuple[float, float]]:
    """From where to where, in per cent, a cell has a colour that can be seen: read from its gradient, stop by stop."""
    stops = re.findall(r"(#\w+)((?: \d+%?)*)", cell.get("style", ""))
    found, at = [], 0.0
    for place, (colour, ends) in enumerate(stops):
        numbers = [float(one.strip("%")) for one in ends.split()]
        end = 100.0 if place == len(stops) - 1 else numbers[-1]
        if colour != "#0000" and end > at:
            found.append((at, end))
        at = max(at, end)
    return found


def test_a_row_for_each_name_and_numbers_as_they_are_to_be_written() -> None:
    table = shown(mhalib.number_table(ROWS, of="name", columns=COLUMNS, bars=BARS, caption="What <it> shows"))
    assert [one.text for one in table.select("th[scope=col]")] == ["name", "share", "count"]
    assert [one.text for one in table.select("th[scope=row]")] == ["first", "second", "third"]
    assert [one.text for one in table.select("td")] == ["0.50", "1,200", "1.00", "300", "0.00", "7"]
    assert table.caption.text == "What <it> shows"


def test_a_bar_is_as_long_as_its_number() -> None:
    table = shown(mhalib.number_table(ROWS, of="name", columns=COLUMNS, bars=BARS))
    assert [coloured(cell) for cell in table.select("td")] == [[(0, 50)], [(0, 50)], [(0, 100)], [(0, 12)], [], []]


def test_with_negative_numbers_bars_begin_in_the_middle() -> None:
    rows = {"a": ("−0.20 ± 0.10",), "b": ("+0.40 ± 0.05",), "c": ("+9.00 ± 0.05",)}
    table = mhalib.number_table(rows, of="name", columns=["lead"], bars={"lead": 0.4})
    assert [coloured(cell) for cell in shown(table).select("td")] == [[(25, 50)], [(50, 100)], [(50, 100)]]
    colours = [set(re.findall(r"#\w{6}", cell["style"])) for cell in shown(table).select("td")]
    assert colours[0] != colours[1] == colours[2]


def test_a_column_without_bars_has_none() -> None:
    table = shown(mhalib.number_table(ROWS, of="name", columns=COLUMNS, bars={"share": 1}))
    assert [bool(cell.get("style")) for cell in table.select("td")] == [True, False] * 3


def test_groups_have_a_heading_over_all_columns() -> None:
    table = mhalib.number_table({"one": ROWS, "two": ROWS}, of="name", columns=COLUMNS)
    groups = shown(table).select("th[scope=rowgroup]")
    assert [(one.text, one["colspan"]) for one in groups] == [("one", "3"), ("two", "3")]
    assert len(shown(table).select("th[scope=row]")) == 6


def test_printed_it_is_columns_of_text() -> None:
    table = mhalib.number_table({"some": ROWS}, of="name", columns=COLUMNS, bars=BARS, caption="What it shows")
    assert str(table).splitlines() == [
        "What it shows",
        "name    share  count",
        "some",
        "first    0.50  1,200",
        "second   1.00    300",
        "third    0.00      7",
    ]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"rows": [1, 2]}, TypeError, r"rows=\[1, 2\]"),
        ({"rows": {"a": (1,)}}, ValueError, r"rows\['a'\]=\(1,\) must have an entry for each of share, count"),
        ({"rows": {"a": (1, None)}}, TypeError, r"rows\['a'\] holds None"),
        ({"rows": {"a": (1, 0.5)}}, ValueError, r"columns\['count'\]=',d' writes no 0.5"),
        ({"columns": ["x", "x"]}, TypeError, r"columns=\['x', 'x'\] must be different headings"),
        ({"bars": {"other": 1}}, ValueError, r"bars has 'other', which is none of the columns share, count"),
        ({"bars": {"share": 0}}, ValueError, r"bars\['share'\]=0 must be a number over 0"),
        ({"of": 3}, TypeError, r"of must be a string"),
    ],
)
def test_what_makes_no_table_is_refused_by_name(changes: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        mhalib.number_table(**{"rows": ROWS, "of": "name", "columns": COLUMNS, "bars": BARS} | changes)
