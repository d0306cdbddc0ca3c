"""The worked example in the browser: its numbers are Python's, its film ends at the sum, its fields change it all."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from accessibility import serious_findings
from playwright.sync_api import Page, expect

from mhalib.widgets import WorkedExample

pytestmark = [pytest.mark.browser, pytest.mark.instrument("mhalib/widgets/worked_example")]
LINES = ".mhalib-worked-example-lines li"
SCENE = ".mhalib-worked-example-scene svg"


def last_line(made: WorkedExample) -> str:
    numbers = made.results()["output"]
    first, second = numbers.strip("()").split(", ")
    return f"Add up: {made.asking} gets {numbers}, which is {first} {made.given[0]} and {second} {made.given[1]}."


@pytest.mark.parametrize("seed", range(3))
def test_the_page_computes_what_python_does(show: Callable, seed: int) -> None:
    rng = random.Random(seed)
    examples = []
    for _ in range(8):
        names = ["one", "two", "three"][: rng.choice([2, 3])]
        rows = [[round(rng.uniform(-3, 3), 1) for _ in range(2)] for _ in range(2 * len(names) + 1)]
        scale, seen = rng.random() < 0.5, [True, *(rng.random() < 0.7 for _ in names[1:])]
        made = WorkedExample(
            names, rows[0], rows[1 : len(names) + 1], rows[len(names) + 1 :], seen=seen, scale=scale, step=5
        )
        examples.append(made)
    shown = show(*examples)
    assert shown.page.locator(".mhalib").count() == len(examples)
    for i, made in enumerate(examples):
        root = shown.page.locator(".mhalib").nth(i)
        expect(root.locator(LINES).last).to_have_text(last_line(made))
        for word, weight, sees in zip(made.words, made.weights.tolist(), made.seen, strict=True):
            expect(root.locator(LINES).nth(3)).to_contain_text(f"{word} {weight:.2f}" if sees else f"{word} hidden")
    assert shown.errors == []


def test_a_step_shows_its_picture_and_the_sentences_so_far(show: Callable) -> None:
    page: Page = show(WorkedExample(step=0), reduced_motion="reduce").page
    for step in range(6):
        expect(page.locator(f"{SCENE}[data-step='{step}']")).to_have_count(1)
        assert page.locator(f"{LINES}:visible").count() == step + 1
        words = page.locator(f"{SCENE} text").evaluate_all("all => all.map((one) => one.textContent)")
        assert ("= 2" in words) == (step >= 1)
        assert ("e^2 = 7.39" in words) == (step == 2)
        assert ("weight 0.88" in words) == (step >= 3)
        assert ("= (0.88, 0.00)" in words) == (step >= 4)
        assert ("(0.88, 0.12)" in words) == (step == 5)
        page.get_by_text("next →").click(force=step == 5)  # the last time it is disabled
    page.get_by_text("← back").click()
    expect(page.locator(f"{SCENE}[data-step='4']")).to_have_count(1)


def test_the_sum_is_seen_at_first_with_the_button_that_plays_how_it_came_above_it(show: Callable) -> None:
    page: Page = show(WorkedExample()).page
    expect(page.locator(f"{SCENE}[data-step='5']")).to_have_count(1)
    play, scene = (page.locator(one).bounding_box() for one in ("button:has-text('play')", SCENE))
    assert play is not None
    assert scene is not None
    assert play["y"] + play["height"] <= scene["y"] < play["y"] + 2 * play["height"]


def test_the_film_plays_to_the_end_stops_and_plays_again(show: Callable) -> None:
    page: Page = show(WorkedExample()).page
    page.clock.install()
    page.get_by_text("▶ play").click()
    expect(page.locator(f"{SCENE}[data-step='0']")).to_have_count(1)
    page.clock.run_for(1000)
    expect(page.locator(f"{SCENE}[data-step='1']")).to_have_count(1)
    assert page.locator(f"{SCENE} [data-kind=q]").count() == 3  # the query, and a copy on its way to each key
    page.get_by_text("stop").click()
    page.clock.run_for(10_000)
    expect(page.locator(f"{SCENE}[data-step='1']")).to_have_count(1)
    page.get_by_text("▶ play").click()
    page.clock.run_for(12_000)
    expect(page.locator(f"{SCENE}[data-step='5']")).to_have_count(1)
    page.get_by_text("▶ play").click()
    expect(page.locator(f"{SCENE}[data-step='0']")).to_have_count(1)


def test_a_press_of_next_lets_the_query_fly_too(show: Callable) -> None:
    page: Page = show(WorkedExample(step=0)).page
    page.get_by_text("next →").click()
    assert page.locator(f"{SCENE} [data-kind=q]").count() == 3  # the query, and a copy on its way to each key


def test_each_field_changes_its_own_number(show: Callable) -> None:
    made = WorkedExample(step=5, choices=["scale", "mask"])
    page: Page = show(made).page
    fields = {
        "query of hungry, noun": lambda x: setattr(made, "q", [x, made.q[1]]),
        "query of hungry, early": lambda x: setattr(made, "q", [made.q[0], x]),
        "key of fox, early": lambda x: setattr(made, "k", [[made.k[0][0], x], made.k[1]]),
        "key of bear, noun": lambda x: setattr(made, "k", [made.k[0], [x, made.k[1][1]]]),
        "value of bear, fox": lambda x: setattr(made, "v", [made.v[0], [x, made.v[1][1]]]),
    }
    for number, (label, change) in enumerate(fields.items(), 2):
        page.get_by_label(label).fill(str(number / 2))
        change(number / 2)
        expect(page.locator(LINES).last).to_have_text(last_line(made))
    page.get_by_label("divide by √2").check()
    made.scale = True
    expect(page.locator(LINES).last).to_have_text(last_line(made))
    page.get_by_label("hungry may look at fox").uncheck()
    made.seen = [False, True]
    expect(page.locator(LINES).last).to_have_text(last_line(made))
    page.get_by_label("hungry may look at bear").uncheck()
    expect(page.locator(LINES).last).to_have_text("Every word is hidden: weights and output are 0.")
    page.get_by_label("key of fox, noun").fill("1000")
    expect(page.locator(".mhalib-voice")).to_contain_text("Not a number from −100 to 100")
    page.get_by_text("reset").click()
    expect(page.locator(LINES).last).to_have_text(last_line(WorkedExample()))


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_it_fits_and_is_accessible(show: Callable, width: int, scheme: str) -> None:
    shown = show(WorkedExample(step=5, choices=["scale", "mask"]), width=width, color_scheme=scheme)
    assert serious_findings(shown.page) == []
    assert shown.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert shown.errors == []


MAPS = ([[1, 0], [0, 1]], [[1, 0], [0, 1]])


def layer(**more: Any) -> WorkedExample:
    """Two heads: one looks at what stands before *bites*, the other at what stands after it."""
    names = {"asking": "bites", "asked": ["before", "after"], "given": ["dog", "man"]}
    return WorkedExample(
        ["dog", "man"], [3, 0], *MAPS, second=([0, 3], *MAPS), W_o=[[1, 0, -1, 0], [0, 1, 0, -1]], **names, **more
    )


def test_with_a_second_head_two_pictures_more_show_what_w_o_makes_of_both(show: Callable) -> None:
    made = layer(step=0)
    shown = show(made, reduced_motion="reduce")
    page: Page = shown.page
    expect(page.locator(SCENE)).to_have_count(3)
    for step in range(8):
        assert page.locator(f"{LINES}:visible").count() == step + 1
        words = page.locator(f"{SCENE} text").evaluate_all("all => all.map((one) => one.textContent)")
        assert words.count("weight 0.95") == (2 if step >= 3 else 0)
        assert ("(0.95, 0.05)" in words) == ("(0.05, 0.95)" in words) == (step >= 5)
        assert words.count("0.95") == (2 if step >= 6 else 0)
        assert ("− 1·0.95" in words) == ("= −0.91" in words) == (step == 7)
        page.get_by_text("next →").click(force=step == 7)
    expect(page.locator(LINES).last).to_contain_text("dog 0.91, man −0.91")
    assert made.results()["output"] == "(0.91, −0.91)"
    made.W_o = [[1, 0, 1, 0], [0, 1, 0, 1]]
    assert made.results()["output"] == "(1.00, 1.00)"
    page.get_by_label("W_o of dog, head 1, dog").fill("1")
    page.get_by_label("W_o of man, head 1, man").fill("1")
    expect(page.locator(LINES).last).to_contain_text("dog 1.00, man 1.00")
    page.get_by_text("reset").click()
    expect(page.locator(LINES).last).to_contain_text("dog 0.91, man −0.91")
    swap, words = page.get_by_text("swap the words"), page.locator(f"{SCENE} .mhalib-worked-example-word")
    for order, result in ((["man", "dog"], "dog −0.91, man 0.91"), (["dog", "man"], "dog 0.91, man −0.91")):
        swap.click()
        expect(page.locator(LINES).last).to_contain_text(result)
        assert words.all_text_contents()[:2] == order
    swap.click()
    page.get_by_text("reset").click()
    expect(page.locator(LINES).last).to_contain_text("dog 0.91, man −0.91")
    assert words.all_text_contents()[:2] == ["dog", "man"]
    assert shown.errors == []


def test_the_film_of_two_heads_plays_to_w_o(show: Callable) -> None:
    page: Page = show(layer(step=5)).page
    page.clock.install()
    page.get_by_text("▶ play").click()
    page.clock.run_for(1000)
    expect(page.locator(f"{LINES}:visible")).to_have_count(7)
    page.clock.run_for(3000)
    expect(page.locator(f"{LINES}:visible")).to_have_count(8)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_two_heads_fit_and_are_accessible(show: Callable, width: int, scheme: str) -> None:
    shown = show(layer(), width=width, color_scheme=scheme)
    assert serious_findings(shown.page) == []
    assert shown.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert shown.errors == []


def test_a_second_head_and_w_o_go_together_and_w_o_has_two_rows_of_four() -> None:
    with pytest.raises(ValueError, match="second and W_o go together"):
        WorkedExample(W_o=[[1, 0, 1, 0], [0, 1, 0, 1]])
    with pytest.raises(ValueError, match="second and W_o go together"):
        WorkedExample(second=([1, 1], *MAPS))
    with pytest.raises(ValueError, match=r"W_o has shape \(2, 2\), but must have \(2, 4\)"):
        WorkedExample(second=([1, 1], *MAPS), W_o=[[1, 0], [0, 1]])
    with pytest.raises(ValueError, match="second has 2 parts"):
        WorkedExample(second=MAPS, W_o=[[1, 0, 1, 0], [0, 1, 0, 1]])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cannot be changed with a second head"):
        layer(choices=["mask"])
    _, heading, rows = layer().table()
    assert heading[0] == "head"
    assert rows[-1] == ("W_o", "(0, 1, 0, -1)", "", "", "", "−0.91")
