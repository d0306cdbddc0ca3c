"""The attention playground in the browser, with no kernel: every control, against torch in float64."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from accessibility import serious_findings
from playwright.sync_api import Page, expect

from mhalib import attend, causal_mask
from mhalib.widgets import AttentionPlayground, source

pytestmark = [pytest.mark.browser, pytest.mark.instrument("mhalib/widgets/attention_playground", "mhalib/attention/")]

HOSTILE = [
    "</SCRIPT><img src=x onerror=window.PWN=1>",
    "\"'&amp;<b>",
    "שלום עולם",
    "👩‍👩‍👧😀",
    "x" * 10_000,
    "a\x00\u202eb\ud800\n",
]
VOICE = ".mhalib-voice"
DARK = """:root { color-scheme: dark; --pst-color-text-base: #ced6dd; --pst-color-surface: #222832;
--pst-color-border: #48566b } body { background: #14181e }"""


@pytest.fixture
def show(show: Callable) -> Callable:
    """The tables of numbers unfolded, where planes stand in front of them."""

    def open_page(*instruments: AttentionPlayground, **options: Any) -> Any:
        shown = show(*instruments, **options)
        unfold(shown.page)
        return shown

    return open_page


def unfold(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")


def numbers(page: Page, stage: str) -> torch.Tensor:
    """The exact numbers behind the cells of one stage."""
    rows = page.locator(f"[data-stage={stage}] tbody tr").all()
    cells = [[td.get_attribute("data-value") for td in row.locator("td[data-value]").all()] for row in rows]
    return torch.tensor([[float(cell) for cell in row] for row in cells], dtype=torch.float64)


def texts(page: Page, stage: str, row: int) -> list[str]:
    return page.locator(f"[data-stage={stage}] tbody tr").nth(row).locator("td").all_inner_texts()


def fields(page: Page, name: str) -> torch.Tensor:
    """What stands in the fields of q, k or v."""
    rows = page.locator("[data-stage=vectors] tbody tr").all()
    return torch.tensor(
        [[float(x.input_value()) for x in row.locator(f"td[data-vector={name}] input").all()] for row in rows],
        dtype=torch.float64,
    )


def expected(page: Page, mask: torch.Tensor | None = None, factor: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    output, weights = attend(fields(page, "q") * factor, fields(page, "k"), fields(page, "v"), mask=mask)
    assert weights is not None
    return output, weights


def assert_equal(page: Page, mask: torch.Tensor | None = None, factor: float = 1.0) -> None:
    output, weights = expected(page, mask, factor)
    torch.testing.assert_close(numbers(page, "weights"), weights, atol=1e-6, rtol=0)
    torch.testing.assert_close(numbers(page, "output"), output, atol=1e-6, rtol=0)


@pytest.mark.parametrize("sizes", [(4, 2, 2), (6, 3, 1), (2, 3, 3)])
def test_random_changes_give_what_attend_gives(show: Callable, sizes: tuple[int, int, int]) -> None:
    num_tokens, width, value_width = sizes
    zeros = [[0.0] * width] * num_tokens
    shown = show(AttentionPlayground(list("abcdef")[:num_tokens], zeros, zeros, [[0.0] * value_width] * num_tokens))
    page, dice = shown.page, random.Random(0)
    for field in page.locator("[data-stage=vectors] input").all():
        field.fill(str(round(dice.uniform(-3, 3), 3)))
    assert fields(page, "q").unique().numel() > num_tokens  # the changes arrived
    assert_equal(page)
    page.get_by_label("mask", exact=True).select_option("causal")
    assert_equal(page, causal_mask(num_tokens))
    page.get_by_label("mask", exact=True).select_option("valid length")
    for valid in range(num_tokens + 1):
        page.get_by_label("valid length").fill(str(valid))
        assert_equal(page, (torch.arange(num_tokens) < valid).expand(num_tokens, num_tokens))
    page.get_by_label("mask", exact=True).select_option("none")
    page.get_by_label("divide by √d").uncheck()
    assert_equal(page, factor=math.sqrt(width))
    page.get_by_label("temperature").fill("0.3")
    assert_equal(page, factor=math.sqrt(width) / 0.3)
    page.get_by_label("divide by √d").check()
    assert_equal(page, factor=1 / 0.3)
    page.get_by_label("mask", exact=True).select_option("causal")
    assert_equal(page, causal_mask(num_tokens), factor=1 / 0.3)
    assert shown.errors == []


def test_opens_with_the_traits_of_python(show: Callable) -> None:
    torch.manual_seed(0)
    given = AttentionPlayground(
        ["a", "b", "c"],
        *(torch.randn(3, 3) for _ in "qkv"),
        scale=False,
        temperature=2.5,
        mask="valid length",
        valid_len=2,
        query=2,
    )
    page = show(given).page
    torch.testing.assert_close(numbers(page, "weights"), given.weights, atol=1e-6, rtol=0)
    torch.testing.assert_close(numbers(page, "output"), given.output, atol=1e-6, rtol=0)
    expect(page.get_by_label("divide by √d")).not_to_be_checked()
    expect(page.get_by_label("temperature")).to_have_value("2.5")
    expect(page.get_by_label("valid length")).to_have_value("2")
    expect(page.get_by_role("radio", name="c")).to_be_checked()
    scores = torch.tensor(given.q) @ torch.tensor(given.k).T / 2.5
    torch.testing.assert_close(numbers(page, "scores"), scores.double(), atol=1e-6, rtol=0)


def test_great_scores_do_not_overflow(show: Callable) -> None:
    big = [[100.0, 100.0], [-100.0, -100.0], [100.0, 99.0]]
    given = AttentionPlayground(["a", "b", "c"], big, big, big, temperature=0.01, query=0)
    page = show(given).page
    torch.testing.assert_close(numbers(page, "weights"), given.weights, atol=1e-6, rtol=0)
    assert "NaN" not in page.locator("main").inner_text()


def test_hidden_cells_are_signs_and_rows_sum_to_one(show: Callable) -> None:
    page = show(AttentionPlayground(mask="causal")).page
    assert [text.split()[0] for text in texts(page, "mask", 1)] == ["✓", "✓", "✕", "✕"]
    first, second, *hidden, total = texts(page, "weights", 1)
    assert [text.split() for text in hidden] == [["✕", "hidden"]] * 2
    assert (first, second, total) == ("0.63", "0.37", "1.00")


def test_nothing_to_see_gives_zero_and_says_so(show: Callable) -> None:
    page = show(AttentionPlayground(mask="valid length", valid_len=0)).page
    expect(page.locator(VOICE)).to_have_text("query cat: nothing to see, so its weights and its output are 0.")
    assert numbers(page, "output").tolist() == [[0.0, 0.0]] * 4
    assert texts(page, "weights", 2)[-1] == "0: sees nothing"
    assert "nothing to sum" in page.locator("[class$=-sum]").inner_text()


def test_the_chosen_query_is_marked_in_all_stages_and_its_sum_written_out(show: Callable) -> None:
    page = show(AttentionPlayground()).page
    expect(page.locator(VOICE)).to_have_text("query cat: most weight on sat, 0.65.")
    assert page.locator("[class$=-sum]").inner_text().split("\n") == [
        "output of cat",
        "0.08·v(the) + 0.05·v(cat) + 0.65·v(sat) + 0.23·v(down)",
        "= 0.08·(1, 1) + 0.05·(3, 0) + 0.65·(0, 2) + 0.23·(1, −1)",
        "= (0.44, 1.15)",
    ]
    for stage, query in [("weights", 0), ("output", 2), ("vectors", 3), ("scores", 1), ("mask", 0)]:
        page.locator(f"[data-stage={stage}] tbody tr").nth(query).locator("th").click()
        marked = page.locator("tr[aria-current=true]")
        assert marked.count() == 5
        assert all(text.startswith(["the", "cat", "sat", "down"][query]) for text in marked.all_inner_texts())
        expect(page.get_by_role("radio").nth(query)).to_be_checked()
    expect(page.locator(VOICE)).to_have_text("query the: most weight on cat, 0.55.")


def test_the_voice_knows_ties_and_loners(show: Callable) -> None:
    zeros = [[0.0, 0.0]] * 3
    page = show(AttentionPlayground(["a", "b", "a"], zeros, zeros, zeros, query=0)).page
    expect(page.locator(VOICE)).to_have_text("query a (0): the same weight on all 3 it sees, 0.33.")
    page.get_by_label("mask", exact=True).select_option("causal")
    expect(page.locator(VOICE)).to_have_text("query a (0): sees only a (0), weight 1.00.")
    page.get_by_label("mask", exact=True).select_option("none")
    page.get_by_label("q of b, channel 0").fill("1")
    page.get_by_label("k of b, channel 0").fill("-5")
    page.get_by_role("radio").nth(1).check()
    expect(page.locator(VOICE)).to_have_text("query b: most weight on a (0) and a (2), 0.49 each.")


def test_the_keyboard_is_enough(show: Callable) -> None:
    page = show(AttentionPlayground()).page
    keys = page.keyboard
    seen = set()
    for _ in range(60):
        keys.press("Tab")
        here = page.evaluate(
            "document.activeElement.dataset.name ?? document.activeElement.dataset.cell ?? document.activeElement.type"
        )
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert here is None or outline != "none"
        seen.add(here)
    assert {"scale", "temperature", "mask", "button", "radio", "q-0-0", "v-3-1"} <= seen
    page.get_by_role("radio", checked=True).focus()
    keys.press("ArrowDown")
    expect(page.locator(VOICE)).to_have_text("query sat: most weight on cat, 0.56.")
    page.get_by_label("q of sat, channel 0").focus()
    keys.press("ArrowUp")
    expect(page.get_by_label("q of sat, channel 0")).to_have_value("1.6")
    assert_equal(page)
    page.get_by_label("divide by √d").focus()
    keys.press("Space")
    assert_equal(page, factor=math.sqrt(2))


def test_what_is_no_number_is_marked_and_changes_nothing(show: Callable) -> None:
    shown = show(AttentionPlayground())
    page = shown.page
    drawn = page.locator("[data-stage=weights], [data-stage=output]")
    before = drawn.all_inner_texts()
    for label in ("k of cat, channel 1", "v of the, channel 0", "temperature"):
        field = page.get_by_label(label)
        value = field.input_value()
        for entered in ("", "e", "-", "1e999", "101", "-100.5"):
            field.fill("")
            if entered in ("e", "-"):
                field.press(entered)
            elif entered:  # at once: 1, 10 and -100 are numbers on the way
                field.evaluate("(x, v) => { x.value = v; x.dispatchEvent(new Event('input')); }", entered)
            assert field.get_attribute("aria-invalid") == "true", (label, entered)
            assert drawn.all_inner_texts() == before, (label, entered)
            assert "nothing is changed" in page.locator(VOICE).inner_text()
            page.get_by_role("button", name="reset").click()
            expect(field).to_have_value(value)
            assert field.get_attribute("aria-invalid") is None
    assert shown.errors == []


def test_a_length_is_a_whole_number_up_to_the_tokens(show: Callable) -> None:
    page = show(AttentionPlayground(mask="valid length", valid_len=3)).page
    before, field = numbers(page, "weights"), page.get_by_label("valid length")
    for entered in ("", "5", "-1", "1.5"):
        field.fill(entered)
        assert field.get_attribute("aria-invalid") == "true", entered
        assert torch.equal(numbers(page, "weights"), before), entered
        field.fill("3")
        assert field.get_attribute("aria-invalid") is None


def test_reset_goes_back_to_the_start(show: Callable) -> None:
    page = show(AttentionPlayground(mask="causal", temperature=2)).page
    before = page.locator("main").inner_text()
    page.get_by_label("q of cat, channel 0").fill("-2")
    page.get_by_label("v of sat, channel 1").fill("7")
    page.get_by_label("temperature").fill("0.5")
    page.get_by_label("divide by √d").uncheck()
    page.get_by_label("mask", exact=True).select_option("valid length")
    page.get_by_label("valid length").fill("1")
    page.get_by_role("radio").nth(3).check()
    assert page.locator("main").inner_text() != before
    page.get_by_role("button", name="reset").click()
    assert page.locator("main").inner_text().replace("Back at the start. ", "") == before
    expect(page.get_by_label("q of cat, channel 0")).to_have_value("0")
    assert_equal(page, causal_mask(4), factor=1 / 2)
    page.get_by_label("q of cat, channel 0").fill("-2")  # the start itself was not changed
    page.get_by_role("button", name="reset").click()
    expect(page.get_by_label("q of cat, channel 0")).to_have_value("0")


def test_a_token_without_letters_has_a_name(show: Callable) -> None:
    page = show(AttentionPlayground(["", "b"], [[1.0, 0.0]] * 2, [[1.0, 0.0]] * 2, [[1.0]] * 2)).page
    assert page.get_by_role("radio").first.locator("..").inner_text() == "(empty)"


def test_no_control_that_does_nothing(show: Callable) -> None:
    page = show(AttentionPlayground()).page
    expect(page.get_by_label("valid length")).to_be_hidden()
    page.get_by_label("mask", exact=True).select_option("valid length")
    expect(page.get_by_label("valid length")).to_be_visible()


def test_hostile_tokens_are_text(show: Callable) -> None:
    rows = [[1.0, 0.0]] * 6
    shown = show(AttentionPlayground(HOSTILE, rows, rows, rows), width=390)
    page = shown.page
    assert page.evaluate("window.PWN") is None
    assert page.locator("img, main b b, main script:not([type])").count() == 0
    heads = page.locator("[data-stage=weights] tbody th").all_inner_texts()
    assert heads[:5] == ["</SCRIPT><img…", "\"'&amp;<b>", "שלום עולם", "👩‍👩‍👧😀", "xxxxxxxxxxxxx…"]
    assert heads[5] == r"a\u0000\u202e…"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert shown.errors == []


LIVE = """(state) => {
  const heard = {}, saved = [];
  window.model = {
    get: (name) => state[name],
    set(name, value) { state[name] = value; saved.push(name); for (const f of heard[name] || []) f(); },
    save_changes() { saved.push("saved"); },
    on(event, f) { (heard[event.slice(7)] ??= []).push(f); },
    off(event, f) { heard[event.slice(7)] = heard[event.slice(7)].filter((each) => each !== f); },
    saved, heard,
  };
}"""


def test_live_it_follows_python_and_writes_back(show: Callable) -> None:
    """The host of a notebook: the traits change from outside, and the reader's choice is saved."""
    given = AttentionPlayground()
    shown = show()
    page = shown.page
    page.evaluate(LIVE, given.state())
    body = source("AttentionPlayground") + "\nreturn AttentionPlayground;"
    page.evaluate(
        f"() => {{ const el = document.createElement('div'); document.querySelector('main').append(el);"
        f"window.quit = (() => {{ {body} }})()({{ model, el }}); }}"
    )
    unfold(page)
    page.get_by_label("q of the, channel 1").fill("2.5")
    assert page.evaluate("model.get('q')[0]") == [1, 2.5]
    assert page.evaluate("model.saved") == ["q", "saved"]
    page.evaluate("model.set('v', [[9, 9], [9, 9], [9, 9], [9, 9]])")
    torch.testing.assert_close(numbers(page, "output"), torch.full((4, 2), 9.0, dtype=torch.float64))
    expect(page.get_by_label("v of down, channel 1")).to_have_value("9")
    page.evaluate(
        "model.set('mask', 'causal'); model.set('query', 3); model.set('temperature', 2); model.set('scale', false)"
    )
    expect(page.get_by_label("mask", exact=True)).to_have_value("causal")
    expect(page.get_by_role("radio", name="down")).to_be_checked()
    assert_equal(page, causal_mask(4), factor=math.sqrt(2) / 2)
    page.evaluate("model.set('tokens', ['w', 'x', 'y', 'z'])")
    expect(page.locator(VOICE)).to_contain_text("query z:")
    page.evaluate("quit()")
    assert page.evaluate("Object.values(model.heard).flat().length") == 0
    assert shown.errors == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_fits_and_is_accessible(show: Callable, width: int, scheme: str) -> None:
    shown = show(AttentionPlayground(mask="causal"), width=width, color_scheme=scheme)
    page = shown.page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if scheme == "dark":  # what the book's dark theme sets
        page.add_style_tag(content=DARK)
    assert serious_findings(page) == []
    assert len(shown.hosts) == 1
    assert shown.errors == []


def test_six_tokens_fit_a_phone(show: Callable) -> None:
    rows = [[-1.25, 0.5, 2.0]] * 6
    page = show(AttentionPlayground(list("abcdef"), rows, rows, rows), width=390).page
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_without_javascript_the_numbers_stand_in_a_table(show: Callable) -> None:
    given = AttentionPlayground(mask="causal")
    page = show(given, java_script_enabled=False).page
    assert "mask: causal" in page.locator("caption").inner_text()
    cells = page.locator("tbody tr").nth(1).locator("td").all_inner_texts()
    assert cells[:3] == ["(0, 1.5)", "(2, -0.5)", "(3, 0)"]
    assert cells[3:7] == [*(f"{w:.4f}" for w in given.weights[1, :2].tolist()), "hidden", "hidden"]
    assert page.locator("tbody th[scope=row]").all_inner_texts() == ["the", "cat", "sat", "down"]
