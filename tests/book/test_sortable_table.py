"""The table that can be sorted, in Chromium: the same order as Python's, one row in full, keys, and spoken changes."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from accessibility import serious_findings
from playwright.sync_api import Page, expect

from mhalib.drawings import changed_steps
from mhalib.widgets import SortableTable
from mhalib.widgets.sortable_table import written

pytestmark = [pytest.mark.browser, pytest.mark.instrument("mhalib/widgets/sortable_table", "mhalib/measures/card.py")]


def drawn(seed: int) -> SortableTable:
    rng = random.Random(seed)
    kinds = [lambda: rng.uniform(-1, 1), lambda: rng.choice("abcd"), lambda: rng.randrange(3), lambda: None]
    columns = {f"column {c}": [rng.choice([kinds[c], kinds[3]])() for _ in range(30)] for c in range(3)}
    rows = [f"row {r}" for r in range(30)]
    beside = {"control": {"column 0": [rng.random() for _ in rows]}}
    return SortableTable(rows, columns, beside=beside, about={"column 1": "A letter."}, caption="Thirty rows")


def stands(page: Page) -> list[list[str]]:
    return page.locator(".mhalib-sortable-table-frame tbody tr").evaluate_all(
        "all => all.map((row) => [...row.cells].map((cell) => cell.textContent))"
    )


@pytest.mark.parametrize("seed", range(3))
def test_each_order_is_pythons(show: Callable, seed: int) -> None:
    made = drawn(seed)
    page = show(made).page
    for name in made.names:
        for falling in (True, False):  # a second press turns it
            page.get_by_role("button", name=name).click()
            made.sort, made.falling = name, falling
            wanted = [[made.rows[i], *(written(column[i]) for column in made.values)] for i in made.order()]
            assert stands(page) == wanted
            head = page.locator("th[aria-sort]")
            expect(head).to_have_attribute("aria-sort", "descending" if falling else "ascending")
            said = f"Sorted by {name}, {'largest' if falling else 'smallest'} first"
            expect(page.locator(".mhalib-voice")).to_have_text(said + (": A letter." if name == "column 1" else "."))


def test_a_row_is_told_in_full_and_arrows_go_on(show: Callable) -> None:
    made = SortableTable(["a", "b", "c"], {"x": [1.0, 3.0, 2.0]}, beside={"control": {"x": [0.1, None, 0.2]}})
    shown = show(made)
    card = shown.page.locator(".mhalib-sortable-table-card")
    expect(card.locator("tbody tr")).to_have_text("x10.13 of 3")
    shown.page.get_by_role("button", name="x", exact=True).click()
    shown.page.get_by_role("button", name="c", exact=True).click()
    expect(card.locator("caption")).to_have_text("row c")
    shown.page.keyboard.press("ArrowUp")
    expect(card.locator("tbody tr")).to_have_text("x3–1 of 3")
    expect(shown.page.get_by_role("button", name="b", exact=True)).to_be_focused()
    shown.page.keyboard.press("End")
    expect(card.locator("caption")).to_have_text("row a")
    shown.page.keyboard.press("ArrowDown")  # there is none below
    expect(card.locator("caption")).to_have_text("row a")
    assert shown.errors == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_steps_of_the_chosen_row_are_lit_in_the_drawing(show: Callable, width: int, scheme: str) -> None:
    kinds = ["multi-head", "talking", "delta", "collaborative"]
    made = SortableTable(kinds, {"x": [1, 2, 3, 4]}, lit=[changed_steps(kind) for kind in kinds])
    shown = show(made, width=width, color_scheme=scheme)
    drawing = shown.page.get_by_role("img", name="The drawing of the layer")
    pale = drawing.locator(".mhalib-sortable-table-pale")
    beside = drawing.locator(".mhalib-sortable-table-beside")
    all_paths = drawing.locator("path").count()
    expect(pale).to_have_count(all_paths)
    for kind, words, lit in (
        ("talking", ["mix_scores", "mix_weights"], 4 + 8),
        ("delta", ["gate", "forward"], 4 + 8 + 4 + 8 + 4),  # maps and ways to them; values, and ways past them
        ("collaborative", ["project", "project_with_cache"], 4 + 3),
    ):
        shown.page.get_by_role("button", name=kind).click()
        expect(beside).to_have_text(words)
        expect(pale).to_have_count(all_paths - lit)
        boxes = [beside.nth(i).bounding_box() for i in range(len(words))]
        assert boxes[0]["y"] + boxes[0]["height"] <= boxes[1]["y"] + 1 or kind == "delta"
        assert all(box["x"] + box["width"] <= width for box in boxes)
    assert serious_findings(shown.page) == []
    assert shown.errors == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_it_fits_and_is_accessible(show: Callable, width: int, scheme: str) -> None:
    columns = {f"a long name of column {c}": [c / 7, -c, 1e6 * c] for c in range(9)}
    page = show(SortableTable(["x", "y", "z"], columns), width=width, color_scheme=scheme).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert serious_findings(page) == []
