"""The planes of the attention playground: points under a mouse, a finger and the keyboard, against torch in float64."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable

import pytest
import torch
from accessibility import serious_findings
from playwright.sync_api import Locator, Page, expect
from test_attention_playground import DARK, VOICE, assert_equal, expected, unfold

from mhalib import causal_mask, style
from mhalib.widgets import AttentionPlayground, style_sheet

pytestmark = [pytest.mark.browser, pytest.mark.instrument("mhalib/widgets/attention_playground", "mhalib/attention/")]

SIDE, MARGIN = 320, 26  # of a drawing, in its own units
PLANES = "[class$=-planes] svg"


def handle(page: Page, name: str) -> Locator:
    return page.get_by_role("slider", name=name, exact=True)


def pixels(page: Page, plane: int = 0) -> float:
    """How many pixels of the screen are 1 in a plane."""
    width = page.locator(PLANES).nth(plane).bounding_box()["width"]
    ticks = page.locator(PLANES).nth(plane).locator("[class$=-grid] text").all_text_contents()
    reach = max(float(tick.replace("−", "-")) for tick in ticks)
    return width / SIDE * (SIDE / 2 - MARGIN) / reach


def middle(point: Locator) -> tuple[float, float]:
    box = point.locator("circle").first.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def drag(page: Page, name: str, right: float, up: float, plane: int = 0) -> None:
    """By the mouse, so far as the plane's numbers say, gripped a little beside the middle."""
    x, y = middle(handle(page, name))
    far = pixels(page, plane)
    page.mouse.move(x + 3, y - 2)
    page.mouse.down()
    page.mouse.move(x + 3 + right * far / 2, y - 2 - up * far)
    page.mouse.move(x + 3 + right * far, y - 2 - up * far)
    page.mouse.up()


def value(page: Page, name: str, channel: int) -> float:
    return float(page.get_by_label(f"{name}, channel {channel}").input_value())


def test_a_dragged_query_and_a_dragged_key_change_weights_and_output_at_once(show: Callable) -> None:
    shown = show(AttentionPlayground())
    page = shown.page
    unfold(page)
    drag(page, "query of cat", 1.5, -1.0)
    assert [value(page, "q of cat", c) for c in (0, 1)] == [1.5, 0.5]
    expect(page.locator(VOICE)).to_have_text("query cat: most weight on cat, 0.56.")
    drag(page, "key of down", 1.0, -0.5)
    assert [value(page, "k of down", c) for c in (0, 1)] == [1.5, 0.5]
    drag(page, "value of the", -2, 0.7, plane=1)
    assert [value(page, "v of the", c) for c in (0, 1)] == [-1, 1.7]
    assert_equal(page)
    assert shown.errors == []


def test_a_query_that_lies_on_a_key_can_be_pulled_away(show: Callable) -> None:
    rows = [[1.0, 1.0], [-1.0, 0.0]]
    page = show(AttentionPlayground(["a", "b"], rows, rows, rows, query=0)).page
    unfold(page)
    drag(page, "query of a", -0.5, -0.5)
    assert [value(page, f"{name} of a", c) for name in "qk" for c in (0, 1)] == [0.5, 0.5, 1, 1]


def test_many_drags_give_what_attend_gives(show: Callable) -> None:
    page = show(AttentionPlayground(mask="causal", query=3)).page
    unfold(page)
    dice = random.Random(0)
    for _ in range(15):
        name = dice.choice(["query of down", *(f"key of {token}" for token in ("the", "cat", "sat", "down"))])
        drag(page, name, dice.uniform(-4, 4), dice.uniform(-4, 4))
        assert_equal(page, causal_mask(4))
    held = page.locator(".mhalib [data-cell]").evaluate_all("all => all.map((one) => Number(one.value))")
    assert all(abs(number) <= 20 and round(number, 1) == number for number in held)  # clamped to the plane, in tenths


def test_while_a_point_is_held_the_plane_stays_and_at_the_edge_it_grows(show: Callable) -> None:
    page = show(AttentionPlayground()).page
    unfold(page)
    before = pixels(page)
    x, y = middle(handle(page, "query of cat"))
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y - 20 * before)
    assert value(page, "q of cat", 1) == 3
    assert pixels(page) == before
    page.mouse.up()
    assert pixels(page) < before  # room for more
    page.get_by_label("q of cat, channel 1").fill("70")
    assert pixels(page) < before / 20


def test_a_finger_drags_a_point_and_the_page_stays(show: Callable) -> None:
    page = show(AttentionPlayground(), width=390, has_touch=True, is_mobile=True).page
    unfold(page)
    page.add_style_tag(content="main { padding-bottom: 3000px }")
    finger = page.context.new_cdp_session(page)
    handle(page, "key of sat").scroll_into_view_if_needed()
    x, y = middle(handle(page, "key of sat"))
    before, far = page.evaluate("scrollY"), pixels(page)
    for kind, moved in (("touchStart", 0.0), ("touchMove", 0.5), ("touchMove", 1.0), ("touchEnd", None)):
        points = [] if moved is None else [{"x": x, "y": y + 2 * moved * far}]
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    expect(page.get_by_label("k of sat, channel 1")).to_have_value("0")
    assert value(page, "k of sat", 0) == 0
    assert page.evaluate("scrollY") == before
    assert_equal(page)


def test_each_plane_is_one_tab_stop_and_keys_do_all(show: Callable) -> None:
    shown = show(AttentionPlayground())
    page, keys = shown.page, shown.page.keyboard
    unfold(page)
    page.get_by_role("radio", checked=True).focus()
    keys.press("Tab")
    expect(handle(page, "query of cat")).to_be_focused()
    keys.press("ArrowRight")
    keys.press("Shift+ArrowDown")
    assert [value(page, "q of cat", c) for c in (0, 1)] == [0.1, 0.5]
    expect(handle(page, "query of cat")).to_have_attribute("aria-valuetext", "(0.1, 0.5)")
    expect(page.locator(VOICE)).to_contain_text("query cat: most weight on sat")
    keys.press("PageDown")
    keys.press("PageDown")
    expect(handle(page, "key of cat")).to_be_focused()
    keys.press("Shift+ArrowLeft")
    keys.press("ArrowUp")
    assert [value(page, "k of cat", c) for c in (0, 1)] == [1, -0.4]
    keys.press("Tab")
    expect(handle(page, "value of the")).to_be_focused()
    keys.press("End")
    expect(handle(page, "value of down")).to_be_focused()
    keys.press("ArrowDown")
    assert value(page, "v of down", 1) == -1.1
    keys.press("Shift+Tab")
    expect(handle(page, "key of cat")).to_be_focused()  # where the plane was left
    keys.press("PageUp")
    expect(handle(page, "key of the")).to_be_focused()
    for _ in range(101):
        keys.press("Shift+ArrowRight")
    assert value(page, "k of the", 0) == 100
    assert_equal(page)
    assert page.locator(f"{PLANES} [tabindex='0']").count() == 2
    assert shown.errors == []


def test_the_area_of_a_disc_is_its_weight(show: Callable) -> None:
    page = show(AttentionPlayground(query=2)).page
    unfold(page)
    weights = expected(page)[1][2]
    for plane in (0, 1):
        radii = (
            page.locator(PLANES)
            .nth(plane)
            .locator("[class$=-disc]")
            .evaluate_all("all => all.map(c => +c.getAttribute('r'))")
        )
        torch.testing.assert_close(torch.tensor(radii, dtype=torch.float64) ** 2 / 900, weights)
    texts = page.locator(PLANES).first.locator("[class$=-above] text").all_text_contents()
    assert texts == [
        "sat asks",
        *(f"{name} {w:.2f}" for name, w in zip(["the", "cat", "sat", "down"], weights.tolist(), strict=True)),
    ]


def test_what_the_mask_hides_has_no_disc_and_says_so(show: Callable) -> None:
    page = show(AttentionPlayground(mask="causal")).page
    assert page.locator(PLANES).first.locator("[class$=-disc]").count() == 2
    expect(handle(page, "key of sat")).to_have_attribute("aria-valuetext", "(0, 2), hidden")
    expect(handle(page, "key of cat")).to_have_attribute("aria-valuetext", "(2, −0.5), weight 0.37")
    texts = page.locator(PLANES).first.locator("[class$=-above] text").all_text_contents()
    assert texts[3:] == ["sat ✕", "down ✕"]


def test_the_star_is_where_the_output_is_within_the_values(show: Callable) -> None:
    page = show(AttentionPlayground(query=3)).page
    unfold(page)
    output = expected(page)[0][3]
    drawing = page.locator(PLANES).nth(1)
    place = drawing.locator("[class$=-star]").get_attribute("transform")
    found = torch.tensor([float(x) for x in re.findall(r"[-\d.]+", place)], dtype=torch.float64)
    one = pixels(page, 1) / drawing.bounding_box()["width"] * SIDE
    torch.testing.assert_close((found - SIDE / 2) / torch.tensor([one, -one]), output, atol=1e-6, rtol=0)
    corners = drawing.locator("[class$=-hull]").get_attribute("points").split()
    assert len(corners) == 3  # (1, 1) lies on the edge from (3, 0) to (0, 2) or inside


def test_each_key_drops_onto_the_line_of_the_query(show: Callable) -> None:
    """Where it lands has the same dot product with the query as the key itself. A query of 0 has no line."""
    page = show(AttentionPlayground(query=1)).page
    unfold(page)
    drawing = page.locator(PLANES).first
    ends = drawing.locator("[class$=-stem]").evaluate_all(
        "all => all.map((one) => ['x1', 'y1', 'x2', 'y2'].map((name) => +one.getAttribute(name)))"
    )
    one = pixels(page, 0) / drawing.bounding_box()["width"] * SIDE
    found = (torch.tensor(ends, dtype=torch.float64).view(-1, 2, 2) - SIDE / 2) / torch.tensor([one, -one])
    keys, feet = found.unbind(1)
    query = torch.tensor([value(page, "q of cat", c) for c in (0, 1)], dtype=torch.float64)
    assert len(keys) == 4
    torch.testing.assert_close(feet @ query, keys @ query, atol=1e-6, rtol=0)
    torch.testing.assert_close(feet[:, 0] * query[1], feet[:, 1] * query[0], atol=1e-6, rtol=0)
    drag(page, "query of cat", *(-query).tolist())
    assert drawing.locator("[class$=-stem]").count() == 0


def test_the_query_that_is_drawn_is_the_chosen_one_and_reset_brings_all_back(show: Callable) -> None:
    page = show(AttentionPlayground()).page
    unfold(page)

    def seen() -> list[str]:
        return page.locator(f"{PLANES} [role=slider]").evaluate_all(
            "all => all.map((one) => [one.getAttribute('transform'), one.ariaLabel, one.ariaValueText].join())"
        )

    before = seen()
    page.get_by_role("radio", name="down").check()
    drag(page, "query of down", 0.5, 0)
    assert value(page, "q of down", 0) == 0
    page.get_by_role("button", name="reset").click()
    assert seen() == before


@pytest.mark.parametrize(("width", "value_width", "count"), [(2, 2, 2), (2, 1, 1), (2, 3, 1), (3, 2, 0)])
def test_planes_are_drawn_of_two_numbers_only(show: Callable, width: int, value_width: int, count: int) -> None:
    rows, values = [[1.0] * width] * 3, [[2.0] * value_width] * 3
    page = show(AttentionPlayground(list("abc"), rows, rows, values)).page
    assert page.locator(PLANES).count() == count
    assert page.locator("details").count() == (count > 0)
    if not count:
        expect(page.locator("[data-stage=weights]")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 760])
def test_fits_a_screen_and_is_accessible_before_it_is_unfolded(show: Callable, width: int, scheme: str) -> None:
    shown = show(AttentionPlayground(), width=width, color_scheme=scheme)
    page = shown.page
    if scheme == "dark":
        page.add_style_tag(content=DARK)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".mhalib").bounding_box()["height"] < (750 if width == 760 else 1300)
    sizes = page.locator(f"{PLANES} [role=slider] circle:first-child").evaluate_all(
        "all => all.map(c => c.getBoundingClientRect().width)"
    )
    assert min(sizes) >= 24  # the least that a finger is asked to hit
    assert serious_findings(page) == []
    assert shown.errors == []


def test_query_and_values_have_the_colours_of_the_figure() -> None:
    css = style_sheet("AttentionPlayground")
    for name, colour in {"q": style.QUERY, "k": style.KEY, "v": style.VALUE}.items():
        assert re.search(rf"--{name}: color-mix\(in srgb, {colour} \d+%, var\(--ink\)\)", css)


CROWDED = [[1.0, 0.4], [4.1, 0.8], [1.6, 0.5], [-2.6, -1.5], [-4.8, 0.9], [-0.6, -1.4]]


@pytest.mark.parametrize("temperature", [1, 10])
def test_each_name_is_nearest_to_its_own_point_or_tied_to_it_by_a_line(show: Callable, temperature: float) -> None:
    """Chapter 1's keys: three of them lie beside the arrow. No two names cover each other."""
    words = ["clever", "fox", "sees", "hungry", "young", "bear"]
    page = show(AttentionPlayground(words, [[2.8, 1.9]] * 6, CROWDED, CROWDED, temperature=temperature)).page
    names, points = page.evaluate("""() => {
        const box = (one) => { const at = one.getBoundingClientRect(); return [at.left, at.right, at.top, at.bottom]; };
        const plane = document.querySelector('[class$=-planes] svg');
        const names = [...plane.querySelectorAll('text[class$="-k"]')].map((one) => {
            const before = one.previousElementSibling;
            return [one.textContent, box(one), /leader/.test(before ? before.getAttribute('class') : '')];
        });
        const points = [...plane.querySelectorAll('[data-kind=k]')];
        return [names, points.map((one) => [one.getAttribute('aria-label'), box(one.querySelector('circle'))])];
    }""")
    assert len(names) == len(points) == 6
    pixel = page.locator(PLANES).first.bounding_box()["width"] / SIDE
    weights = [float((name.split()[1:] or [0])[0]) for name, *_ in names]  # a weight of 0 is not written
    discs = [30 * math.sqrt(weight) * pixel for weight in weights]
    for place, (name, box, is_tied) in enumerate(names):
        gaps = {label: gap(box, point) - discs[k] for k, (label, point) in enumerate(points)}
        nearest = min(gaps, key=gaps.__getitem__)
        assert is_tied or name.split()[0] in nearest, (name, gaps)
        for other, its, _ in names[:place]:
            covered = min(box[1], its[1]) - max(box[0], its[0]), min(box[3], its[3]) - max(box[2], its[2])
            assert min(covered) < 6, (name, other)


def gap(one: list[float], other: list[float]) -> float:
    """Between two boxes: left, right, top, bottom."""
    return math.hypot(max(one[0] - other[1], other[0] - one[1], 0), max(one[2] - other[3], other[2] - one[3], 0))
