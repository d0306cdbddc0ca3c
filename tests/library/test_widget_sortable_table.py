"""A table that can be sorted: what it keeps, how it stands, and what it refuses."""

import math

import pytest
import torch
import traitlets

from mhalib import drawings, layer_drawing
from mhalib.measures import head_card
from mhalib.models import GPT
from mhalib.widgets import SortableTable
from mhalib.widgets.sortable_table import written

COLUMNS = {"score": [0.25, math.nan, 0.5, 0.5], "kind": ["b", None, "a", "c"]}
ROWS = ["one", "two", "three", "four"]


def table(**settings):
    return SortableTable(ROWS, COLUMNS, **settings)


@pytest.mark.parametrize(
    ("sort", "falling", "order"),
    [
        ("", True, [0, 1, 2, 3]),
        ("score", True, [2, 3, 0, 1]),
        ("score", False, [0, 2, 3, 1]),
        ("kind", True, [3, 0, 2, 1]),
        ("kind", False, [2, 0, 3, 1]),
    ],
)
def test_rows_stand_by_a_column_and_what_is_empty_comes_last(sort, falling, order):
    made = table(sort=sort, falling=falling)
    assert made.order() == order
    assert made.row == ROWS[order[0]]
    assert [row[0] for row in made.table()[2]] == [ROWS[i] for i in order]


def test_numbers_come_before_texts_in_one_column():
    assert SortableTable(["a", "b", "c"], {"x": ["n/a", 1, 2.0]}, sort="x").order() == [2, 1, 0]


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234.5, "1,230"), (0.00012345, "0.000123"), (-0.5, "−0.5"), (0.0, "0"), (12, "12"), (None, "–"), ("a<b", "a<b")],
)
def test_a_number_is_told_to_three_digits_without_a_power(value, text):
    (kept,) = SortableTable(["r"], {"x": [value]}).values[0]
    assert written(kept) == text


def test_a_long_table_says_how_much_of_it_stands_there():
    long = SortableTable([str(i) for i in range(30)], {"x": list(range(30))}, caption="heads", sort="x")
    caption, header, rows = long.table()
    assert caption == "heads, sorted by x, the first 10 of 30"
    assert header == ["row", "x"]
    assert [row[0] for row in rows] == [str(i) for i in range(29, 19, -1)]


def test_the_card_of_heads_has_spread_and_control_beside_it():
    model = GPT(10, 8, 2, num_layers=2)
    card = head_card(model, torch.tensor([[1, 2, 1, 2], [3, 4, 3, 4]]), measures=["written", "zero"])
    made = SortableTable.of_heads(card, sort="zero")
    assert made.rows == ["0, 0", "0, 1", "1, 0", "1, 1"]
    assert made.names == ["written", "zero"]
    assert made.row == "{1}, {2}".format(*card.ranked("zero")[0])
    assert set(made.beside) == {"spread", "control"}
    assert made.beside["control"]["zero"] == pytest.approx(card.control["zero"].tolist(), rel=5e-3)
    assert set(SortableTable.of_heads(head_card(model, torch.ones(2, 3).long(), control=False)).beside) == {"spread"}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"rows": []}, ValueError, "rows must be 1 to 1000 different names, got 0"),
        ({"rows": ["a", "a", "b", "c"]}, ValueError, "got 4, 3 different"),
        ({"rows": [1, 2, 3, 4]}, TypeError, "each of rows must be a string"),
        ({"columns": [1]}, TypeError, "columns must be a Mapping"),
        ({"columns": {"x": [1]}}, ValueError, r"columns\['x'\] has 1 values, but there are 4 rows"),
        ({"columns": {"x": [1, 2, 3, True]}}, TypeError, "numbers, strings or None, got bool"),
        ({"beside": {"control": {"z": [1] * 4}}}, ValueError, "a key of beside"),
        ({"beside": {"control": {"score": [1]}}}, ValueError, r"beside\['control'\]\['score'\] has 1 values"),
        ({"about": {"z": "text"}}, ValueError, "a key of about='z'"),
        ({"about": {"kind": 3}}, TypeError, r"about\['kind'\] must be a string"),
        ({"lit": [{}]}, ValueError, "lit has 1 entries, but there are 4 rows"),
        ({"lit": [{"mix": ()}, {}, {}, {}]}, ValueError, r"a key of lit\[0\]='mix' must be one of"),
        ({"lit": [{"scores": [3]}, {}, {}, {}]}, TypeError, "each of the words beside 'scores'"),
        ({"lit": [{"scores": "score"}, {}, {}, {}]}, TypeError, "words beside 'scores'"),
        ({"sort": "z"}, ValueError, "sort='z' must be one of"),
        ({"row": "five"}, ValueError, "row='five' must be one of"),
        ({"falling": 1}, TypeError, "falling"),
        ({"caption": None}, TypeError, "caption must be a str"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(change, error, message):
    given = {"rows": ROWS, "columns": COLUMNS} | change
    with pytest.raises(error, match=message):
        SortableTable(given.pop("rows"), given.pop("columns"), **given)


def test_a_choice_that_is_not_there_is_refused_later_too():
    made = table()
    with pytest.raises((ValueError, traitlets.TraitError), match="row='five'"):
        made.row = "five"
    assert made.row == "one"


def test_the_drawing_below_is_the_book_s_and_what_is_lit_is_told():
    lit = [{}, {"scores": ("mix_scores", "score"), "softmax": ()}, {}, {}]
    made = table(lit=lit)
    assert made.lit[1] == {"scores": ["mix_scores", "score"], "softmax": []}
    drawn = made.drawing
    figure = layer_drawing()
    assert len(drawn["paths"]) == len(figure.patches) + len(figure.lines) + sum(
        getattr(text, "arrow_patch", None) is not None for text in figure.texts
    )
    words = {said: parts for parts, said, *_ in drawn["letters"]}
    assert set(words) == {"words, as lists of numbers", "Wq", "Wk", "Wv", "Wo", *(f"head {i}" for i in range(4))}
    assert words["Wq"] == ["project"]
    assert words["head 0"] == []
    for part in drawings.PARTS:
        boxes = [path for parts, path, fill, _ in drawn["paths"] if part in parts and path.endswith("z")]
        assert len(boxes) == {"project": 4, "split": 12, "merge": 4, "output": 1}.get(part, 4), part
    assert table().drawing == {}
