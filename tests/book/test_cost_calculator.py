"""The cost calculator in the browser, with no kernel: it counts what Python counts, and says what does not divide."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from accessibility import serious_findings
from playwright.sync_api import Page, expect

from mhalib.widgets import CostCalculator
from mhalib.widgets.cost_calculator import SETTINGS_OF

pytestmark = [
    pytest.mark.browser,
    pytest.mark.instrument("mhalib/widgets/cost_calculator", "mhalib/costs.py", "mhalib/variants/"),
]


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


def test_every_field_changes_what_it_says(show: Callable) -> None:
    sizes = {"num_hiddens": 96, "num_heads": 12, "num_kv_heads": 4, "num_layers": 3, "num_tokens": 50, "batch_size": 5}
    shown = show(CostCalculator(**sizes))
    for name in sizes:
        sizes[name] = {"num_hiddens": 48, "num_heads": 8, "num_kv_heads": 2}.get(name, 7)
        shown.page.locator(f"input[data-name={name}]").fill(str(sizes[name]))
        assert amounts(shown.page) == CostCalculator(**sizes).costs(), name


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


def test_what_is_no_size_is_marked_and_changes_nothing(show: Callable) -> None:
    page = show(CostCalculator()).page
    field = page.locator("input[data-name=num_layers]")
    for num_tokens, entered in enumerate(["", "0", "-3", "2.5", "99999999"], start=7):
        before = amounts(page)
        field.fill(entered)
        assert field.get_attribute("aria-invalid") is not None, entered
        assert amounts(page) == before, entered
        expect(page.get_by_role("status")).to_have_text("Not a whole number from 1 to 1,000: nothing is changed.")
        page.locator("input[data-name=num_tokens]").fill(str(num_tokens))  # drawn anew: all fields say what is counted
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


def both(page: Page) -> dict[str, tuple[int, int, str]]:
    """The exact numbers of multi-head attention and of the variant, and their ratio, as far as they are shown."""
    found = {}
    for row in page.locator("tr[data-cost]:visible").all():
        cells = row.locator("td")
        exact = [int(cells.nth(i).locator("div").inner_text().replace(",", "")) for i in range(2)]
        found[row.get_attribute("data-cost")] = (exact[0], exact[1], cells.nth(2).inner_text())
    return found


def expected(calculator: CostCalculator) -> dict[str, tuple[int, int, str]]:
    ratios = {name: (2000 * own + plain) // (2 * plain) for name, (plain, own) in calculator.comparison().items()}
    return {name: (*pair, f"{ratios[name] / 1000:.3f}") for name, pair in calculator.comparison().items()}


SIZES = {"num_hiddens": 96, "num_heads": 12, "num_layers": 3, "num_tokens": 50, "batch_size": 5}
OTHER = {  # another value than is filled in
    "num_kv_heads": 2,
    "latent_size": 13,
    "rotary_size": 0,
    "absorbed": True,
    "shared_size": 17,
    "overlap": 4,
    "num_shared": 5,
    "num_chosen": 2,
    "rank": 5,
    "per_channel": True,
}


@pytest.mark.parametrize("variant", SETTINGS_OF)
def test_a_variant_is_counted_beside_multi_head_attention_as_python_counts(show: Callable, variant: str) -> None:
    shown = show(CostCalculator(**SIZES, variant="multi-head"))
    page = shown.page
    assert both(page) == expected(CostCalculator(**SIZES, variant="multi-head"))
    page.get_by_label("variant", exact=True).select_option(variant)
    assert both(page) == expected(CostCalculator(**SIZES, variant=variant))
    expect(page.get_by_role("status")).to_have_text(re.compile(f"^{variant}: .* of the parameters of multi-head"))
    expect(page.get_by_role("columnheader", name=variant).first).to_be_visible()
    settings = {}
    for name in SETTINGS_OF[variant]:
        settings[name] = OTHER[name]
        field = page.locator(f"[data-name={name}]")
        expect(field).to_be_visible()
        if isinstance(OTHER[name], bool):
            field.select_option("1")
        else:
            field.fill(str(OTHER[name]))
        if variant != "mixture" or len(settings) == 2:
            assert both(page) == expected(CostCalculator(**SIZES, variant=variant, **settings)), name
    for name in set(OTHER) - set(SETTINGS_OF[variant]):
        expect(page.locator(f"[data-name={name}]")).to_be_hidden()
    sizes = {**SIZES, "num_hiddens": 2 * 96, "num_tokens": 7, "batch_size": 2, "num_layers": 5}
    for name, value in sizes.items():
        page.locator(f"input[data-name={name}]").fill(str(value))
    page.get_by_label("bytes per number").select_option("4")
    filled = {"latent_size": 16, "rotary_size": 4, "shared_size": 48} | settings
    assert both(page) == expected(CostCalculator(**sizes, bytes_per_number=4, variant=variant, **filled))
    assert shown.errors == []


def test_the_parts_of_a_formula_are_the_layers(show: Callable) -> None:
    from mhalib.costs import variant_parts

    page = show(CostCalculator(**SIZES, variant="multi-head")).page
    for variant in SETTINGS_OF:
        page.get_by_label("variant", exact=True).select_option(variant)
        cells = page.locator(".mhalib-cost-calculator-own tbody tr td:last-child").all_inner_texts()
        found = [int(cell.rpartition("= ")[2].replace(",", "")) for cell in cells]
        choice = CostCalculator(**SIZES, variant=variant).choice()
        assert found == list(variant_parts(choice, 96, 12)[:4]), variant


def test_counts_of_a_variant_stay_exact_beyond_doubles(show: Callable) -> None:
    sizes = {"num_hiddens": 65_536, "num_heads": 1024, "num_tokens": 10_000_000, "batch_size": 1_000_000}
    calculator = CostCalculator(**sizes, variant="composed")
    assert both(show(calculator).page) == expected(calculator)
    calculator = CostCalculator(512, 16, variant="multi-query")
    shown = both(show(calculator).page)
    assert shown == expected(calculator)
    assert shown["cache_bytes_per_token"][2] == "0.063"


@pytest.mark.parametrize(
    ("variant", "fields", "said"),
    [
        ("grouped", {"num_kv_heads": 5}, "h = 12 is not divisible by g = 5: some heads would have no keys."),
        ("latent", {"rotary_size": 3}, "r = 3 is odd: rotary positions turn pairs."),
        ("mixture", {"num_shared": 13}, "s = 13 heads are always on, but there are h = 12."),
        ("mixture", {"num_chosen": 12}, "k = 12 cannot be chosen of h − s = 11 heads: take 1 or more of them."),
        ("mixture", {"num_chosen": 0}, "k = 0 cannot be chosen of h − s = 11 heads: take 1 or more of them."),
        ("mixture", {"num_shared": 12}, "k = 6 cannot be chosen of h − s = 0 heads."),
        ("differential", {"num_hiddens": 36}, "D = 36 is not divisible by 2 h = 24: each head needs two queries."),
        ("talking", {"num_hiddens": 100}, re.compile("D = 100 is not divisible by h = 12")),
    ],
)
def test_explains_what_a_variant_refuses(
    show: Callable, variant: str, fields: dict[str, int], said: str | re.Pattern[str]
) -> None:
    page = show(CostCalculator(**SIZES, variant=variant)).page
    for name, value in fields.items():
        page.locator(f"input[data-name={name}]").fill(str(value))
    expect(page.get_by_role("status")).to_have_text(said)
    expect(page.locator("tr[data-cost]:visible")).to_have_count(0)
    page.get_by_label("variant", exact=True).select_option("multi-head")
    if "num_hiddens" not in fields:  # another variant's settings are no matter
        expect(page.locator("tr[data-cost]:visible")).to_have_count(3)
    calculator = CostCalculator(**SIZES, variant=variant)
    for name, value in fields.items():
        setattr(calculator, name, value)
    with pytest.raises(ValueError, match=r"divisible|even|beyond|only|there are|at least"):
        calculator.comparison()


def test_without_a_variant_there_is_nothing_to_choose(show: Callable) -> None:
    page = show(CostCalculator()).page
    expect(page.locator("[data-name=variant], [data-name=rank], .mhalib-cost-calculator-own")).to_have_count(0)
    expect(page.locator("select")).to_have_count(1)
    expect(page.locator("tr[data-cost]")).to_have_count(4)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_comparison_fits_and_is_accessible(show: Callable, width: int, scheme: str) -> None:
    gpt_3 = {"num_hiddens": 12_288, "num_heads": 96, "num_layers": 96, "num_tokens": 2048}
    shown = show(CostCalculator(**gpt_3, variant="mixture"), width=width, color_scheme=scheme)
    for variant in ("latent", "composed", "mixture"):
        shown.page.get_by_label("variant", exact=True).select_option(variant)
        assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
        inside = shown.page.locator(".mhalib-cost-calculator-both")
        assert inside.evaluate("(one) => one.scrollWidth <= one.clientWidth")
    assert serious_findings(shown.page) == []
    shown.page.get_by_label("variant", exact=True).focus()
    shown.page.keyboard.press("Home")
    expect(shown.page.get_by_role("status")).to_have_text(re.compile("^multi-head: 1.000 of the parameters"))
    assert shown.errors == []


def test_a_comparison_stands_in_a_table_without_javascript(show: Callable) -> None:
    calculator = CostCalculator(variant="latent")
    text = show(calculator, java_script_enabled=False).page.locator("table").inner_text()
    for plain, own, ratio in expected(calculator).values():
        assert f"{plain:,}" in text
        assert f"{own:,}" in text
        assert ratio in text


@pytest.mark.parametrize("choice", ["entmax", {"name": "multi-head", "num_kv_heads": 2}])
def test_a_kind_without_a_formula_is_counted_for_its_sizes(show: Callable, choice: str | dict) -> None:
    calculator = CostCalculator(96, 12, variant=choice)
    shown = show(calculator)
    assert shown.errors == []
    assert both(shown.page) == expected(calculator)
    assert shown.page.locator("input[data-name=num_hiddens], select[data-name=variant]").count() == 0
    shown.page.locator("input[data-name=num_tokens]").fill("77")
    assert both(shown.page) == expected(CostCalculator(96, 12, num_tokens=77, variant=choice))
    assert shown.errors == []
