"""The calculator of models in the browser, with no kernel: it counts what Python counts, for both choices."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from accessibility import serious_findings
from playwright.sync_api import Page, expect

from mhalib.roofline import CHIPS, KERNELS
from mhalib.serving import ATTENTIONS, MODELS, PRECISIONS
from mhalib.widgets import ModelCalculator
from mhalib.widgets.model_calculator import ROWS, in_cells

pytestmark = [
    pytest.mark.browser,
    pytest.mark.instrument("mhalib/widgets/model_calculator", "mhalib/serving.py", "mhalib/roofline.py"),
]

RATHER_FULL = {"batch_size": 37, "num_tokens": 5000, "num_chips": 3}


def same(page: Page, calculator: ModelCalculator) -> bool:
    """Both columns: each number to twelve digits, and what is written letter by letter."""
    for place in (1, 2):
        cells = page.locator(f"td[data-value]:nth-child({place})").all()
        shown = [float(str(cell.get_attribute("data-value"))) for cell in cells]
        assert shown == pytest.approx(calculator.numbers(place), rel=1e-12)
        assert [cell.inner_text() for cell in cells] == in_cells(calculator.numbers(place))
    return True


@pytest.mark.parametrize("name", MODELS)
def test_counts_what_python_counts(show: Callable, name: str) -> None:
    """Every model with every attention, in every precision, with both kernels, on every machine that is left."""
    machines, attentions = list(CHIPS), list(ATTENTIONS)
    for i, precision in enumerate(PRECISIONS):
        first = {
            "model": name,
            "attention": attentions[i],
            "precision": precision,
            "machine": machines[i * 2 % len(machines)],
            "kernel": KERNELS[0],
        }
        other = attentions[(i + 4) % len(attentions)]
        second = {
            "kernel": KERNELS[1],
            "attention": other,
            "machine": machines[(i * 2 + 1) % len(machines)],
            **RATHER_FULL,
        }
        calculator = ModelCalculator(first, second)
        shown = show(calculator)
        assert same(shown.page, calculator)
        assert shown.errors == []
    last = ModelCalculator({"model": name, "machine": machines[8]}, {"machine": machines[9], "num_tokens": 100})
    assert same(show(last).page, last)


def test_every_control_changes_what_it_says(show: Callable) -> None:
    page = show(ModelCalculator()).page
    now: list[dict[str, object]] = [{}, {"batch_size": 64}]
    for place in (1, 2):
        for name, value in {"num_chips": 2, "batch_size": 5, "num_tokens": 777}.items():
            page.locator(f"input[data-name={name}_{place}]").fill(str(value))
            now[place - 1][name] = value
            now[1] = {"num_chips": 1, "batch_size": 64, "num_tokens": 8192, **now[1]}
            assert same(page, ModelCalculator(*now)), name
        shared = "a key for each head"
        chosen = {
            "model": "gpt-oss-20b",
            "attention": shared,
            "machine": "NVIDIA B300",
            "precision": "4 bits",
            "kernel": "stored",
        }
        for name, value in chosen.items():
            page.locator(f"select[data-name={name}_{place}]").select_option(value)
            now[place - 1][name] = value
            first = {
                "model": "LLaMA-3 8B",
                "attention": "its own",
                "machine": "NVIDIA H100 SXM",
                "precision": "16 bits",
                "kernel": "fused",
            }
            now[1] = {**first, **now[1]}
            assert same(page, ModelCalculator(*now)), name
    page.locator("input[data-name=batch_size_1]").fill("0")
    expect(page.get_by_role("status")).to_have_text(re.compile("^Not a whole number from 1 to 1,000,000"))


def test_it_is_worked_by_keys_and_says_what_comes_out(show: Callable) -> None:
    page = show(ModelCalculator({"model": "LLaMA-3 8B"}, {"precision": "8 bits"})).page
    said = page.get_by_role("status")
    expect(said).to_have_text(re.compile("^First: first token after 133 ms, then 4.80 ms each, 208 tokens per second"))
    page.get_by_role("group", name="second").get_by_label("model").focus()
    page.keyboard.press("Home")
    expect(page.locator("tbody[data-row=parameters] td").nth(1)).to_have_text("135 million")
    expect(page.locator("tbody[data-row=parameters] td").nth(0)).to_have_text("8.03 billion")


def test_what_does_not_fit_is_said(show: Callable) -> None:
    page = show(ModelCalculator({"model": "LLaMA-3 70B"}, {"num_chips": 2})).page
    cells = page.locator("tbody[data-row='of the memory'] td")
    assert cells.all_inner_texts() == ["180 %, too much", "89.9 %"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_fits_and_is_accessible(show: Callable, width: int, scheme: str) -> None:
    shown = show(ModelCalculator({"model": "DeepSeek-V3"}), width=width, color_scheme=scheme)
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
    frame = shown.page.get_by_role("region", name="numbers")
    assert frame.evaluate("frame => frame.scrollWidth - frame.clientWidth") == 0
    assert serious_findings(shown.page) == []
    assert len(shown.hosts) == 1


@pytest.mark.parametrize("width", [390, 1280])
def test_without_javascript_the_numbers_stand_in_a_table(show: Callable, width: int) -> None:
    calculator = ModelCalculator()
    page = show(calculator, width=width, java_script_enabled=False).page
    text = page.locator("table").inner_text()
    for place in (1, 2):
        assert all(cell in text for cell in in_cells(calculator.numbers(place)))
    assert all(formula in text for _, formula in ROWS)
    box = page.locator("table").bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= width
