"""The cost calculator in the browser, with no kernel: it counts what Python counts, and says what does not divide."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from accessibility import serious_findings
from playwright.sync_api import Page, expect

from mhalib.widgets import CostCalculator

pytestmark = pytest.mark.browser


def amounts(page: Page) -> dict[str, int]:
    """The exact numbers of the table."""
    rows = page.locator("tr[data-cost]")
    return {
        row.get_attribute("data-cost"): int(row.locator("td").nth(1).inner_text().replace(",", ""))
        for row in rows.all()
    }


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"num_hiddens": 12_288, "num_heads": 96, "num_layers": 96, "num_tokens": 2048, "batch_size": 32},
        {
            "num_hiddens": 100,
            "num_heads": 5,
            "num_kv_heads": 1,
            "num_layers": 1,
            "num_tokens": 7,
            "bytes_per_number": 4,
        },
        {"num_tokens": 10_000_000, "batch_size": 1_000_000},  # more than a double holds exactly
    ],
)
def test_counts_what_python_counts(show: Callable, sizes: dict[str, int]) -> None:
    calculator = CostCalculator(**sizes)
    shown = show(calculator)
    assert amounts(shown.page) == calculator.costs()
    assert shown.errors == []


@pytest.mark.parametrize("name", ["num_hiddens", "num_heads", "num_kv_heads", "num_layers", "num_tokens", "batch_size"])
def test_every_field_changes_what_it_says(show: Callable, name: str) -> None:
    shown = show(
        CostCalculator(num_hiddens=96, num_heads=12, num_kv_heads=4, num_layers=3, num_tokens=50, batch_size=5)
    )
    sizes = {"num_hiddens": 96, "num_heads": 12, "num_kv_heads": 4, "num_layers": 3, "num_tokens": 50, "batch_size": 5}
    sizes[name] = {"num_hiddens": 48, "num_heads": 8, "num_kv_heads": 2}.get(name, 7)
    shown.page.locator(f"input[data-name={name}]").fill(str(sizes[name]))
    assert amounts(shown.page) == CostCalculator(**sizes).costs()


def test_bytes_change_memory_only(show: Callable) -> None:
    shown = show(CostCalculator())
    shown.page.locator("select").select_option("4")
    assert amounts(shown.page) == CostCalculator(bytes_per_number=4).costs()


def test_explains_what_does_not_divide(show: Callable) -> None:
    page = show(CostCalculator(num_hiddens=100, num_heads=5)).page
    page.locator("input[data-name=num_kv_heads]").fill("1")
    page.locator("input[data-name=num_heads]").fill("6")
    expect(page.get_by_role("status")).to_have_text(re.compile("D = 100 is not divisible by h = 6"))
    expect(page.locator("tr[data-cost]").first).to_be_hidden()
    page.locator("input[data-name=num_heads]").fill("4")
    expect(page.locator("tr[data-cost]").first).to_be_visible()
    page.locator("input[data-name=num_kv_heads]").fill("3")
    expect(page.get_by_role("status")).to_have_text("h = 4 is not divisible by g = 3: some heads would have no keys.")
    expect(page.locator("tr[data-cost]").first).to_be_hidden()


@pytest.mark.parametrize("entered", ["", "0", "-3", "2.5", "99999999"])
def test_what_is_no_size_is_marked_and_changes_nothing(show: Callable, entered: str) -> None:
    page = show(CostCalculator()).page
    before = amounts(page)
    field = page.locator("input[data-name=num_layers]")
    field.fill(entered)
    assert field.get_attribute("aria-invalid") is not None
    assert amounts(page) == before
    expect(page.get_by_role("status")).to_have_text("Not a whole number from 1 to 1,000: nothing is changed.")
    page.locator("input[data-name=num_tokens]").fill("7")  # drawn anew: all fields say what is counted
    expect(field).to_have_value("12")
    assert field.get_attribute("aria-invalid") is None


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_fits_and_is_accessible(show: Callable, width: int, scheme: str) -> None:
    shown = show(CostCalculator(), width=width, color_scheme=scheme)
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
    assert serious_findings(shown.page) == []
    assert len(shown.hosts) == 1


def test_without_javascript_the_numbers_stand_in_a_table(show: Callable) -> None:
    page = show(CostCalculator(num_hiddens=100, num_heads=5), java_script_enabled=False).page
    costs = CostCalculator(num_hiddens=100, num_heads=5).costs()
    text = page.locator("table").inner_text()
    assert all(f"{amount:,}" in text for amount in costs.values())
