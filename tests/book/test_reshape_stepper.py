"""The reshape stepper in the browser, with no kernel: each stage has torch's shape, strides, order and memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from accessibility import serious_findings
from playwright.sync_api import Page, expect

import mhalib
from mhalib import widgets
from mhalib.widgets import ReshapeStepper

pytestmark = [
    pytest.mark.browser,
    pytest.mark.instrument("mhalib/widgets/reshape_stepper", "mhalib/attention/heads.py"),
]

SIZES = [
    (2, 3, 6, 3),
    (2, 5, 12, 3),
    (3, 2, 4, 4),
    (1, 4, 6, 2),
    (2, 1, 6, 3),
    (3, 5, 7, 1),
    (1, 1, 1, 1),
    (3, 5, 12, 4),
]
PICTURE = '[role=region][aria-label="the array"]'
STRIPS = "[data-part=memory] > div"


def word(number: int) -> str:
    return f"{number:04d}"


DRAWN = """() => {
    const cells = (one) => [...one.querySelectorAll("[data-cell]")].map(
        (each) => [each.firstChild.textContent, Number(each.dataset.position)]);
    const current = document.querySelector("tr[aria-current]");
    return {
        code: document.querySelector("code").innerText,
        facts: Object.fromEntries([...document.querySelectorAll("[data-fact]")].map(
            (one) => [one.dataset.fact, one.innerText])),
        picture: cells(document.querySelector(`PICTURE`)),
        strips: [...document.querySelectorAll("STRIPS")].map(cells),
        row: [...current.querySelectorAll("td")].map((one) => one.textContent),
        stage: current.dataset.stage,
        said: document.querySelector(".mhalib-voice").innerText,
    };
}""".replace("PICTURE", PICTURE).replace("STRIPS", STRIPS)


def cells(page: Page, where: str) -> list[tuple[str, int]]:
    """Number and position in memory of the cells, in the order in which they are drawn."""
    found = (
        page.locator(where)
        .locator("[data-cell]")
        .evaluate_all("all => all.map((one) => [one.firstChild.textContent, Number(one.dataset.position)])")
    )
    return [tuple(each) for each in found]


def fact(page: Page, name: str) -> str:
    return page.locator(f"[data-fact={name}]").inner_text()


def go_to(page: Page, step: int) -> None:
    page.get_by_role("slider").fill(str(step))


def open_question(page: Page) -> None:
    page.get_by_text("a question about folded").click()


def status(page: Page) -> Any:
    return page.locator(".mhalib-voice")


def positions(array: torch.Tensor) -> torch.Tensor:
    """Where each number lies in the array's memory, asked of torch."""
    size = array.untyped_storage().nbytes() // array.element_size()
    return torch.arange(size).as_strided(array.shape, array.stride(), array.storage_offset())


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize(("B", "N", "D", "h"), SIZES)
def test_every_stage_is_torchs(show: Callable, B: int, N: int, D: int, h: int, skip: bool) -> None:
    chosen = B * N * D // 2
    stepper = ReshapeStepper(B, N, D, h, skip_permute=skip, cell=chosen)
    shown = show(stepper)
    page = shown.page
    stages = stepper.stages()
    number = stages[0].array.flatten()[chosen]
    for step, stage in enumerate(stages):
        go_to(page, step)
        array = stage.array
        shape, strides = tuple(array.shape), tuple(array.stride())
        where = positions(array)
        drawn = page.evaluate(DRAWN)
        assert drawn["code"] == stage.code
        memory = "the first array" if step == 0 else "copy" if stage.copied else "a view: memory stays"
        assert drawn["facts"]["shape"] == f"({stage.axes}) = {shape}"
        assert drawn["facts"]["strides"] == str(strides)
        assert drawn["facts"]["memory"] == memory
        in_order = zip(map(word, array.flatten().tolist()), where.flatten().tolist(), strict=True)
        assert drawn["picture"] == list(map(list, in_order))
        flat = torch.empty(B * N * D, dtype=array.dtype)
        flat[where.flatten()] = array.flatten()
        assert drawn["strips"][-1] == [[word(value), place] for place, value in enumerate(flat.tolist())]
        assert len(drawn["strips"]) == 1 + stage.copied
        index = (array == number).nonzero().squeeze(0).tolist()
        place = where[tuple(index)].item()
        assert drawn["row"] == [stage.code, str(shape), str(strides), memory, f"{stage.name}{index}", str(place)]
        assert drawn["stage"] == stage.name
        assert drawn["said"].endswith(f"is {stage.name}{index}, position {sum_of(index, strides)} = {place}.")
    assert shown.errors == []


def sum_of(index: list[int], strides: tuple[int, ...]) -> str:
    return " + ".join(f"{i}·{stride}" for i, stride in zip(index, strides, strict=True))


def test_a_copy_shows_the_strip_before_and_after(show: Callable) -> None:
    page = show(ReshapeStepper(step=3)).page
    before, after = ([value for value, _ in cells(page, f"{STRIPS}:nth-child({i})")] for i in (1, 2))
    assert before == sorted(before)
    assert after != before
    assert sorted(after) == before


def test_one_example_is_a_view_and_the_picture_says_so(show: Callable) -> None:
    page = show(ReshapeStepper(batch_size=1, step=3)).page
    expect(page.get_by_text("With one example, B = 1, there is nothing to fold over")).to_be_visible()
    assert fact(page, "memory") == "a view: memory stays"


def test_buttons_and_slider_move_between_the_ends(show: Callable) -> None:
    page = show(ReshapeStepper()).page
    previous, following = page.get_by_role("button", name="previous"), page.get_by_role("button", name="next")
    expect(previous).to_be_disabled()
    for step in range(1, 7):
        following.click()
        expect(page.get_by_role("slider")).to_have_value(str(step))
        expect(status(page)).to_contain_text(f"Step {step + 1} of 7")
    expect(following).to_be_disabled()
    expect(following).to_be_focused()  # the keyboard stays where it was
    following.press("Enter")
    expect(status(page)).to_contain_text("Step 7 of 7")
    previous.click()
    expect(status(page)).to_contain_text("Step 6 of 7")
    page.get_by_role("slider").press("ArrowLeft")
    expect(status(page)).to_contain_text("Step 5 of 7")
    spoken = page.get_by_role("slider").get_attribute("aria-valuetext")
    assert spoken == "step 5 of 7: heads = folded.reshape(B, h, N, d)"


@pytest.mark.parametrize("skip", [False, True])
def test_the_compact_form_shows_five_steps_of_one_example_and_neither_strides_nor_what_a_wrong_split_does(
    show: Callable, skip: bool
) -> None:
    stepper = ReshapeStepper(2, 5, 12, 3, skip_permute=skip, cell=103, compact=True)
    page = show(stepper).page
    x = stepper.stages()[0].array
    wanted = {  # by torch, without the fold; a picture lists the rows of each matrix
        "x": x[1],
        "cut": x[1],
        "split": x[1].reshape(3, 5, 4) if skip else torch.stack(x[1].split(4, -1)),
        "rows": x[1],
        "back": x[1],
    }
    for step, (name, array) in enumerate(wanted.items()):
        go_to(page, step)
        expect(status(page)).to_contain_text(f"Step {step + 1} of 5")
        expect(status(page)).to_contain_text(f"is {name}[")
        assert [number for number, _ in cells(page, PICTURE)] == [word(number) for number in array.flatten().tolist()]
        assert page.locator("[data-fact]").evaluate_all("all => all.map((one) => one.dataset.fact)") == ["shape"]
    assert page.locator(STRIPS).count() == 0
    assert page.locator(".mhalib").get_by_text("stride").count() == 0
    expect(page.get_by_text("Causal attention")).to_be_hidden()
    expect(page.get_by_role("button", name="next")).to_be_disabled()


def test_a_chosen_cell_is_marked_in_every_stage_and_in_the_strip(show: Callable) -> None:
    page = show(ReshapeStepper()).page
    page.locator(PICTURE).get_by_text("1203", exact=True).click()
    for step in range(7):
        go_to(page, step)
        pressed = page.locator("[data-cell][aria-pressed=true]")
        assert set(pressed.locator("span").all_inner_texts()) == {"1203"}
        assert pressed.count() == 1 + page.locator(STRIPS).count()
        expect(status(page)).to_contain_text("1203 (example 1, token 2, channel 3, head 1)")
    page.locator(STRIPS).last.locator("[data-position='7']").click()
    expect(status(page)).to_contain_text("0101 (example 0, token 1, channel 1, head 0)")


def test_the_keyboard_walks_the_cells(show: Callable) -> None:
    page = show(ReshapeStepper()).page
    page.locator(PICTURE).locator("[tabindex='0']").focus()
    for key, expected in [
        ("ArrowRight", "0001"),
        ("ArrowDown", "0101"),
        ("ArrowLeft", "0100"),
        ("ArrowUp", "0000"),
        ("ArrowUp", "0000"),
        ("End", "1205"),
        ("Home", "0000"),
    ]:
        page.keyboard.press(key)
        focused = page.evaluate("document.activeElement.firstChild.textContent")
        assert focused == expected
        expect(status(page)).to_contain_text(f"{expected} (example")
    assert page.locator(f"{PICTURE} [tabindex='0']").count() == 1
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('[data-part=memory]') !== null")
    for key, expected in [("ArrowDown", "0100"), ("ArrowRight", "0101"), ("End", "1205"), ("ArrowDown", "1205")]:
        page.keyboard.press(key)
        expect(status(page)).to_contain_text(f"{expected} (example")
    assert page.evaluate("document.activeElement.closest('[data-part=memory]') !== null")


@pytest.mark.parametrize(
    ("name", "value"), [("batch_size", 3), ("num_tokens", 5), ("num_hiddens", 12), ("num_heads", 2)]
)
def test_every_size_changes_what_it_says(show: Callable, name: str, value: int) -> None:
    page = show(ReshapeStepper(step=2)).page
    page.locator(f"input[data-name={name}]").fill(str(value))
    array = ReshapeStepper(**{name: value}).stages()[2].array
    assert fact(page, "shape") == f"(B, h, N, d) = {tuple(array.shape)}"
    assert [number for number, _ in cells(page, PICTURE)] == [word(number) for number in array.flatten().tolist()]


def test_a_new_size_keeps_the_chosen_number_where_it_still_exists(show: Callable) -> None:
    page = show(ReshapeStepper(cell=(1 * 3 + 2) * 6 + 3)).page
    expect(status(page)).to_contain_text("1203")
    page.locator("input[data-name=num_tokens]").fill("5")
    page.locator("input[data-name=num_hiddens]").fill("9")
    expect(status(page)).to_contain_text("1203")
    page.locator("input[data-name=batch_size]").fill("1")
    expect(status(page)).to_contain_text("0203")


def test_explains_what_does_not_divide(show: Callable) -> None:
    shown = show(ReshapeStepper(step=3))
    page = shown.page
    for D in range(1, 13):
        for h in range(1, 5):
            page.locator("input[data-name=num_hiddens]").fill(str(D))
            page.locator("input[data-name=num_heads]").fill(str(h))
            if D % h:
                expect(status(page)).to_contain_text(f"D = {D} is not divisible by h = {h}")
                expect(page.locator(PICTURE)).to_be_hidden()
            else:
                assert f"{2 * h}, 3, {D // h}" in fact(page, "shape")
                expect(page.locator(PICTURE)).to_be_visible()
    assert shown.errors == []


def test_what_is_no_size_is_marked_and_changes_nothing(show: Callable) -> None:
    page = show(ReshapeStepper()).page
    before = cells(page, PICTURE)
    field = page.locator("input[data-name=num_hiddens]")
    for entered in ("", "0", "-3", "2.5", "13", "1e9"):
        field.fill(entered)
        assert field.get_attribute("aria-invalid") is not None, entered
        assert cells(page, PICTURE) == before, entered
        field.fill("6")
        assert field.get_attribute("aria-invalid") is None


@pytest.mark.parametrize(("N", "h"), [(1, 3), (3, 1)])
def test_with_one_head_or_one_token_skipping_is_no_mistake(show: Callable, N: int, h: int) -> None:
    page = show(ReshapeStepper(2, N, 6, h, step=2, skip_permute=True)).page
    expect(page.get_by_text("that is the right split")).to_be_visible()
    assert page.get_by_text("✗ of ").count() == 0
    go_to(page, 6)
    assert page.get_by_text("proves nothing").count() == 0


def test_skipping_the_permute_mixes_the_rows_at_equal_shape(show: Callable) -> None:
    page = show(ReshapeStepper(step=2)).page
    shape, right = fact(page, "shape"), cells(page, PICTURE)
    assert page.get_by_text("✗ of ").count() == 0
    page.get_by_label("skip the transpose").check()
    assert fact(page, "shape") == shape
    assert cells(page, PICTURE) != right
    assert page.get_by_text("✗ of 0, 1, 2").count() == 6
    go_to(page, 6)
    expect(page.get_by_text("a round trip proves nothing")).to_be_visible()
    page.get_by_label("skip the transpose").uncheck()
    expect(page.get_by_text("Causal attention")).to_be_hidden()


def outputs_that_change(token: int, N: int, D: int, h: int, wrong_split: bool, wrong_merge: bool) -> list[int]:
    """Measured with attention itself, in double precision."""
    generator = torch.Generator().manual_seed(0)
    before = torch.randn(2, N, D, generator=generator, dtype=torch.float64)
    after = before.clone()
    after[:, token] += torch.randn(D, generator=generator, dtype=torch.float64)

    def attended(x: torch.Tensor) -> torch.Tensor:
        q = x.reshape(2, h, N, D // h) if wrong_split else mhalib.split_heads(x, h)
        output, _ = mhalib.attend(q, q, q, mhalib.causal_mask(N))
        return output.reshape(2, N, D) if wrong_merge else mhalib.merge_heads(output)

    return ((attended(after) - attended(before)).abs().amax((0, 2)) > 1e-12).nonzero().flatten().tolist()


@pytest.mark.parametrize(
    ("N", "D", "h"), [(3, 6, 3), (5, 12, 3), (5, 12, 4), (4, 8, 2), (2, 12, 4), (3, 4, 1), (1, 6, 3)]
)
def test_the_damage_is_what_attention_measures(show: Callable, N: int, D: int, h: int) -> None:
    page = show(ReshapeStepper(2, N, D, h, skip_permute=True)).page
    for split in ("right", "wrong"):
        for merge in ("right", "wrong"):
            row = page.get_by_role("row", name=f"split {split}, merge {merge}").locator("td").all_inner_texts()
            first, last = (
                outputs_that_change(token, N, D, h, split == "wrong", merge == "wrong") for token in (0, N - 1)
            )
            leaks, short = min(last) < N - 1, len(first) < N
            verdict = "✗ the future leaks" if leaks else "✗ cannot look back" if short else "as it should be"
            assert row == [", ".join(map(str, first)), ", ".join(map(str, last)), verdict], (split, merge)


@pytest.mark.parametrize(("B", "N", "h"), [(2, 3, 3), (3, 5, 4), (3, 2, 2), (1, 3, 3), (2, 1, 3)])
def test_lengths_are_torchs_and_wrong_ones_are_marked(show: Callable, B: int, N: int, h: int) -> None:
    page = show(ReshapeStepper(B, N, 12, h, step=3)).page
    lens = torch.tensor([max(1, N - b) for b in range(B)])
    right, wrong = lens.repeat_interleave(h).tolist(), lens.repeat(h).tolist()

    def row(name: str) -> list[str]:
        return page.get_by_role("row", name=name).locator("td").all_inner_texts()

    assert row(f"repeat_interleave({h})") == list(map(str, right))
    assert row(f"repeat({h})") == [f"{w}" if w == r else f"✗ {w}" for w, r in zip(wrong, right, strict=True)]
    if right == wrong:
        expect(page.get_by_text("this batch cannot show the mistake")).to_be_visible()
    go_to(page, 2)
    expect(page.get_by_text("valid_lens")).to_be_hidden()


ANSWERS = {  # neighbours are told different things, so that what was said before is not taken for what is said now
    "": "is no row",
    "3": "order h·B",
    "-1": "is no row",
    "5": "counted from 0",
    "NaN": "“\u2068NaN\u2069” is no row",
    "6": "There is no row 6",
    "</SCRIPT><img src=x onerror=window.PWN=1>": "“\u2068</SCRIPT><img src=x onerror=window.PWN=1\u2069”",
    "0": "Row 0 holds example 0, head 0",
    "'\"&amp;\u202e אב 🙂\x07": "'\"&amp;\u202e אב 🙂",
    "9" * 10_000: "is no row",
    "4": "Right: row 1·3 + 1 = 4",
}


def test_an_answer_is_judged_by_the_mistake_made(show: Callable) -> None:
    shown = show(ReshapeStepper())
    page = shown.page
    open_question(page)
    feedback = page.locator("[data-part=feedback]")
    for answer, words in ANSWERS.items():
        page.get_by_label("which row of folded holds example b = 1, head 1").fill(answer)
        page.get_by_role("button", name="check").click()
        expect(feedback).to_contain_text(words)
        expect(feedback.locator("img")).to_have_count(0)
        assert len(feedback.inner_text()) < 200
        assert page.evaluate("window.PWN") is None
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    assert shown.errors == []


@pytest.mark.parametrize(("B", "N", "D", "h"), SIZES)
def test_show_me_chooses_the_row_that_torch_has_there(show: Callable, B: int, N: int, D: int, h: int) -> None:
    page = show(ReshapeStepper(B, N, D, h, skip_permute=True)).page
    open_question(page)
    page.get_by_role("button", name="show me").click()
    row = int(page.locator("[data-part=feedback]").inner_text().split(" = ")[1].split(":")[0])
    asked = page.locator("form label").inner_text()
    b, head = map(int, re.search(r"b = (\d), head (\d)", asked).groups())
    d = D // h
    stages = ReshapeStepper(B, N, D, h).stages()
    assert torch.equal(stages[3].array[row], stages[0].array[b, :, head * d : (head + 1) * d])
    chosen = f"{word(1000 * b + head * d)}: example {b}, token 0, channel {head * d}, head {head}; folded[{row}, 0, 0]"
    expect(page.locator(f"{PICTURE} [aria-pressed=true]")).to_have_attribute("aria-label", chosen)
    if B > 1 and h > 1 and (B, h) != (2, 2):
        assert row != head * B + b  # else the question cannot tell the two orders apart


def test_all_rows_are_asked_for_in_turn_the_telling_one_first(show: Callable) -> None:
    """b=1, head 2 of 3 stands in row 5 in the order h·B as well, so the first question is another."""
    page = show(ReshapeStepper()).page
    open_question(page)
    asked, feedback = page.locator("form label"), page.locator("[data-part=feedback]")
    found = []
    for _ in range(7):
        b, head = map(int, re.search(r"b = (\d), head (\d)", asked.inner_text()).groups())
        found.append((b, head))
        page.locator("form input").fill(str(3 * b + head))
        page.keyboard.press("Enter")
        expect(feedback).to_contain_text(f"Right: row {b}·3 + {head} = {3 * b + head}.")
        page.get_by_role("button", name="another question").click()
        expect(feedback).to_be_empty()
        expect(page.locator("form input")).to_be_focused()
        expect(page.locator("form input")).to_have_value("")
    assert found[:2] == [(1, 1), (1, 2)]
    assert found[6] == found[0]
    assert set(found) == {(b, head) for b in range(2) for head in range(3)}


def test_an_answer_does_not_outlive_its_question(show: Callable) -> None:
    page = show(ReshapeStepper()).page
    open_question(page)
    page.locator("form input").fill("4")
    page.get_by_role("button", name="check").click()
    page.get_by_label("heads h").fill("2")
    expect(page.locator("[data-part=feedback]")).to_be_empty()


def test_a_head_has_its_colour_and_its_number(show: Callable) -> None:
    page = show(ReshapeStepper(num_heads=3)).page
    found = page.locator(f"{PICTURE} [data-cell]").evaluate_all(
        "all => all.map((one) => [one.style.getPropertyValue('--owner'), one.querySelector('small').textContent])"
    )
    assert found == [[mhalib.plots.OWNER_COLOURS[c // 2], f"h{c // 2}"] for _ in range(6) for c in range(6)]


HOST = """
(() => {
  const calls = [];
  const heard = new Map();
  const model = {
    get: (name) => window.state[name],
    set(name, value) {
      calls.push([name, value]);
      window.state[name] = value;
      (heard.get(name) || []).forEach((f) => f());
    },
    save_changes() { calls.push("saved"); },
    on(event, f) { const name = event.slice(7); heard.set(name, [...(heard.get(name) || []), f]); },
    off(event, f) { const name = event.slice(7); heard.set(name, heard.get(name).filter((g) => g !== f)); },
  };
  window.calls = calls; window.model = model; window.heard = heard;
})()
"""


def test_a_live_model_is_followed_written_to_and_left(browser: Any) -> None:
    """As in JupyterLab: the module that anywidget gets, with a model whose traits Python sets."""
    page = browser.new_page()
    stepper = ReshapeStepper()
    page.evaluate("(state) => { window.state = state; }", stepper.state())
    page.evaluate(HOST)
    source = widgets.source("ReshapeStepper")
    start = """
    window.place = document.createElement("div");
    document.body.append(window.place);
    window.stop = ReshapeStepper({ model: window.model, el: window.place });
    """
    page.evaluate(f"() => {{ {source}\n{start} }}")
    for name, value in {"step": 3, "num_tokens": 4, "cell": 9, "skip_permute": True}.items():
        page.evaluate("([name, value]) => model.set(name, value)", [name, value])
    assert fact(page, "shape") == "(B·h, N, d) = (6, 4, 2)"
    expect(page.get_by_label("tokens N")).to_have_value("4")
    expect(page.get_by_role("slider")).to_have_value("3")
    expect(page.get_by_label("skip the transpose")).to_be_checked()
    expect(status(page)).to_contain_text("0103")
    page.evaluate("calls.length = 0")
    page.get_by_role("button", name="next").click()
    page.get_by_label("skip the transpose").uncheck()
    page.locator(f"{PICTURE} [data-cell='5']").click()
    page.get_by_label("examples B").fill("1")
    written = [["step", 4], ["skip_permute", False], ["cell", 5], ["batch_size", 1], ["cell", 5]]
    calls = page.evaluate("calls")
    assert [call for call in calls if call != "saved"] == written
    assert calls.count("saved") == 4
    assert calls[-1] == "saved"
    page.evaluate("stop()")
    assert page.evaluate("[...heard.values()].every((all) => all.length === 0)")
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("sizes", [(2, 3, 6, 3, 0, False), (2, 3, 6, 3, 3, True), (3, 5, 12, 4, 3, False)])
def test_fits_and_is_accessible(show: Callable, width: int, scheme: str, sizes: tuple[Any, ...]) -> None:
    shown = show(ReshapeStepper(*sizes), width=width, color_scheme=scheme)
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
    assert serious_findings(shown.page) == []
    assert len(shown.hosts) == 1
    assert shown.errors == []


def test_forced_colours_keep_the_chosen_cell_and_the_heads_number(show: Callable) -> None:
    page = show(ReshapeStepper(), forced_colors="active").page
    colour = "one => getComputedStyle(one).backgroundColor"
    chosen = page.locator(f"{PICTURE} [aria-pressed=true]").evaluate(colour)
    assert chosen != page.locator(f"{PICTURE} [aria-pressed=false]").first.evaluate(colour)
    page.locator("h1").evaluate("one => one.setAttribute('style', 'forced-color-adjust: none; background: Highlight')")
    assert chosen == page.locator("h1").evaluate(colour)
    expect(page.locator(f"{PICTURE} small").first).to_be_visible()


def test_touch_chooses(show: Callable) -> None:
    page = show(ReshapeStepper(), width=390, has_touch=True).page
    page.locator(PICTURE).get_by_text("1102", exact=True).tap()
    expect(status(page)).to_contain_text("1102")


def test_without_javascript_the_numbers_stand_in_a_table(show: Callable) -> None:
    page = show(ReshapeStepper(), java_script_enabled=False).page
    text = page.locator("table").inner_text()
    for stage in ReshapeStepper().stages():
        assert stage.code in text
        assert str(tuple(stage.array.stride())) in text
    assert "0000 0001 0100 0101 0200 0201 0002" in text


def test_on_a_wide_page_array_and_strip_are_side_by_side_and_button_and_strip_on_one_screen(show: Callable) -> None:
    page = show(ReshapeStepper(1, 4, 8, 2, step=2)).page
    picture, memory, following = (
        page.locator(one).bounding_box() for one in (PICTURE, "[data-part=memory]", "button:has-text('next')")
    )
    assert picture is not None
    assert memory is not None
    assert following is not None
    assert memory["x"] >= picture["x"] + picture["width"]
    assert max(memory["y"] + memory["height"], picture["y"] + picture["height"]) - following["y"] < 500
    for name in ("a question about folded", "all steps"):
        assert page.locator("details", has_text=name).get_attribute("open") is None
