"""The head explorer in the browser, with no kernel: every control changes what it says, and numbers equal Python's."""

from __future__ import annotations

import io
import itertools
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pixels
import pytest
import torch
from accessibility import serious_findings
from kernel import with_kernel
from matplotlib.colors import to_rgb
from PIL import Image
from playwright.sync_api import Locator, Page, expect

from mhalib import style
from mhalib.widgets import HeadExplorer, HeadWall

pytestmark = [pytest.mark.browser, pytest.mark.instrument("mhalib/widgets/head_explorer", "mhalib/measures/")]

QUERIES = ["the", "cat", "sat", "on", "mats"]
KEYS = ["die", "Katze", "saß", "auf", "den", "Matten", "."]
ROOT = ".mhalib-head-explorer"


def rows(*shape: int, seed: int = 5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(*shape, generator=generator, dtype=torch.float64)).softmax(-1)


LAYERS = [rows(2, 3, 5, 7, seed=layer) for layer in range(2)]


def explorer(**options: Any) -> HeadExplorer:
    return HeadExplorer(LAYERS, QUERIES, KEYS, **options)


def strongest(weights: torch.Tensor, query: int) -> str:
    """What the voice has to say of one head's row."""
    key = int(weights[query].argmax())
    return f"{QUERIES[query]} → {KEYS[key]} {weights[query, key]:.3f}"


def voice(page: Page) -> str:
    return page.get_by_role("status").inner_text()


def pick(page: Page, name: str, value: str) -> None:
    page.locator(f"select[data-name={name}]").select_option(value)


def picture(page: Page, head: int | str) -> np.ndarray:
    """The drawn pixels in the middle of each cell of one small picture."""
    where = "mean" if head == "mean" else f"heads > :nth-child({int(head) + 1})"
    return pixels.of(page.locator(f"{ROOT} .mhalib-head-explorer-{where} canvas"))


@pytest.mark.parametrize(("layer", "head", "example"), [(0, 0, 0), (1, 2, 1), (0, 1, 1)])
def test_layer_head_and_example_choose_what_is_said(show: Callable, layer: int, head: int, example: int) -> None:
    shown = show(explorer())
    for name, value in {"layer": layer, "head": head, "example": example}.items():
        pick(shown.page, name, str(value))
    expected = strongest(LAYERS[layer][example, head], 0)
    assert voice(shown.page) == f"layer {layer}, head {head}, example {example}: {expected}"
    assert shown.errors == []


def test_what_is_no_layer_is_chosen_by_its_name(show: Callable) -> None:
    shown = show(explorer(layers=("model", ["with norms", "without"])))
    menu = shown.page.get_by_label("model")
    expect(menu.locator("option")).to_have_text(["with norms", "without"])
    menu.select_option("1")
    expect(shown.page.get_by_text("without, head 0").first).to_be_visible()
    assert "layer" not in shown.page.locator(ROOT).inner_text()
    assert shown.errors == []


def test_table_and_sums_equal_pythons(show: Callable) -> None:
    made = explorer(layer=1, head=2, example=1)
    page = show(made).page
    page.get_by_text("numbers as a table").click()
    body = page.locator("details tbody tr")
    expect(body).to_have_count(5)
    found = [[cell.inner_text() for cell in row.locator("th, td").all()] for row in body.all()]
    assert found == [list(row) for row in made.table()[2]]
    assert page.locator(".mhalib-head-explorer-sums span").all_inner_texts() == ["1.000"] * 5
    pick(page, "head", "0")
    assert body.first.locator("td").first.inner_text() == f"{LAYERS[1][1, 0, 0, 0]:.3f}"


@pytest.mark.parametrize(
    ("words", "width", "narrow"),
    [(12 * ["name 20"], 390, True), (24 * ["o"], 390, True), (5 * ["o"], 390, False), (24 * ["name 20"], 1280, False)],
)
def test_all_keys_of_the_large_head_fit_the_page(show: Callable, words: list[str], width: int, narrow: bool) -> None:
    words, size = [*words[:-1], "z"], len(words)
    shown = show(HeadExplorer(torch.full((1, size, size), 1 / size), words), width=width)
    page = shown.page
    frame = page.get_by_role("region", name="large head")
    assert frame.evaluate("frame => frame.scrollWidth <= frame.clientWidth")
    box = frame.locator("canvas").bounding_box()
    assert box is not None
    assert box["height"] >= 24 * size  # rows are targets
    assert (box["width"] < box["height"]) == narrow
    names = [name.bounding_box() for name in frame.locator(".mhalib-head-explorer-keys span").all()]
    assert sum(name["width"] for name in names if name) == pytest.approx(box["width"], abs=1)
    page.mouse.click(box["x"] + box["width"] * (size - 0.5) / size, box["y"] + box["height"] * 1.5 / size)
    assert voice(page) == f"head 0: {words[1]} → z {1 / size:.3f}; locked: {words[1]}"
    assert shown.errors == []


@pytest.mark.parametrize(("words", "upright"), [(["i", "l", "j", "é"], True), (["i", "l", "j", "ab"], False)])
def test_keys_of_one_letter_stand_upright(show: Callable, words: list[str], upright: bool) -> None:
    """Turned by a quarter, an i is two dots."""
    page = show(HeadExplorer(torch.full((1, 4, 4), 0.25), words)).page
    modes = page.locator(".mhalib-head-explorer-keys span").evaluate_all(
        "all => all.map((one) => getComputedStyle(one).writingMode)"
    )
    assert modes == 4 * ["horizontal-tb" if upright else "vertical-rl"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_the_table_scrolls_below_its_caption_by_keys(show: Callable, scheme: str) -> None:
    words = [f"word number {i}" for i in range(12)]
    shown = show(HeadExplorer(torch.full((1, 12, 12), 1 / 12), words), width=390, color_scheme=scheme)
    page = shown.page
    page.get_by_text("numbers as a table").click()
    frame = page.get_by_role("region", name="numbers of the large head")
    caption, last, first = frame.locator("caption"), frame.locator("thead th").last, frame.locator("tbody th").first
    assert frame.evaluate("frame => frame.scrollWidth > frame.clientWidth + 100")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390

    def edges(part: Locator) -> tuple[float, float]:
        box = part.bounding_box()
        assert box is not None
        return box["x"], box["x"] + box["width"]

    def inside(part: Locator) -> bool:
        (left, right), (start, end) = edges(part), edges(frame)
        return start <= left and right <= end

    assert inside(caption)
    assert not inside(last)
    frame.focus()
    for _ in range(60):
        page.keyboard.press("ArrowRight")
    expect(last).to_be_in_viewport(ratio=1)
    page.wait_for_function(
        "frame => frame.scrollLeft + frame.clientWidth >= frame.scrollWidth - 1", arg=frame.element_handle()
    )
    assert inside(last)
    assert inside(caption)
    assert inside(first)  # whose row it is
    assert serious_findings(page) == []


def test_pictures_have_the_colours_of_the_weights(show: Callable) -> None:
    weights = torch.tensor([[[0.0, 1.0], [0.5, 0.5]], [[1.0, 0.0], [0.25, 0.75]]])
    page = show(HeadExplorer(weights, ["a", "b"])).page
    assert style.head_map(0)(1.0) != style.head_map(1)(1.0)
    for head in range(2):
        drawn = picture(page, head)
        side = drawn.shape[0] // 2
        for query in range(2):
            for key in range(2):
                middle = drawn[int((query + 0.5) * side), int((key + 0.5) * side), :3]
                expected = np.array(style.head_map(head)(float(weights[head, query, key]))[:3]) * 255
                assert np.abs(middle - expected).max() <= 2


def test_masked_looks_hatched_and_is_named(show: Callable) -> None:
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    weights = torch.ones(2, 4, 4).masked_fill(~mask, 0)
    weights = weights / weights.sum(-1, keepdim=True)
    mask[2] = False
    weights[:, 2] = torch.nan
    shown = show(HeadExplorer(weights, list("abcd"), mask=mask))
    drawn = picture(shown.page, 0)
    side = drawn.shape[0] // 4
    masked = {tuple(pixel) for pixel in drawn[:side, side : 2 * side, :3].reshape(-1, 3).tolist()}
    assert masked == {(128, 128, 128), (246, 246, 246)}
    shown.page.locator("[role=option][data-query='2']").click()
    assert voice(shown.page).startswith("head 0: c: every key is masked")
    shown.page.get_by_text("numbers as a table").click()
    cells = shown.page.locator("details tbody tr").first.locator("td")
    expect(cells).to_have_text(["1.000", *["masked"] * 3, "1.000"])


@pytest.mark.filterwarnings("ignore:.*sum to 1")
def test_a_query_without_weights_says_so(show: Callable) -> None:
    assert voice(show(HeadExplorer(torch.full((1, 2, 3), torch.nan))).page) == "head 0: 0: no weight from 0 to 1"


@pytest.mark.filterwarnings("ignore:.*sum to 1")
def test_what_is_no_weight_is_shown_as_such(show: Callable) -> None:
    weights = torch.tensor([[[torch.nan, torch.inf, -torch.inf, -0.5, 1.5, 0.25]]])
    shown = show(HeadExplorer(weights, ["q"], list("abcdef"), mixed=False))
    expect(shown.page.get_by_text("1 of 1 rows do not sum to 1.")).to_be_visible()
    assert voice(shown.page) == "head 0: q → f 0.250"
    shown.page.get_by_text("numbers as a table").click()
    cells = shown.page.locator("details tbody td")
    expect(cells).to_have_text(["NaN", "inf", "-inf", "< 0", "> 1", "0.250", "no number"])
    expect(shown.page.locator(".mhalib-head-explorer-legend")).to_contain_text("no number from 0 to 1")
    assert shown.errors == []


def test_a_query_is_marked_in_every_head(show: Callable) -> None:
    page = show(explorer()).page
    page.locator("[role=option][data-query='3']").hover()
    box = page.locator(".mhalib-head-explorer-grid canvas").bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 5.5 / 7, box["y"] + box["height"] * 3.5 / 5)
    assert page.locator(".mhalib-head-explorer-chosen[data-row='3']").count() == 3 + 1 + 1  # heads, mean, large
    assert voice(page).endswith(f"on → Matten {LAYERS[0][0, 0, 3, 5]:.3f}")
    mark = page.locator(".mhalib-head-explorer-tile .mhalib-head-explorer-chosen").first
    assert mark.evaluate("(one) => [one.style.top, one.style.height]") == ["60%", "20%"]


def test_locks_by_click_by_enter_and_escape(show: Callable) -> None:
    page = show(explorer()).page
    option = page.locator("[role=option]")
    option.nth(1).click()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.press("Home")
    assert voice(page).endswith("; locked: cat, on")
    chosen = [each.get_attribute("aria-selected") for each in option.all()]
    assert chosen == ["false", "true", "false", "true", "false"]
    assert page.locator(".mhalib-head-explorer-locked").count() == 2 * 5
    page.locator(".mhalib-head-explorer-grid canvas").click(position={"x": 5, "y": 5})
    assert "locked: cat, on, the" in voice(page)
    option.nth(1).click()
    assert voice(page).endswith("; locked: on, the")
    page.keyboard.press("Escape")
    assert "locked" not in voice(page)


def test_a_click_on_a_small_picture_makes_it_large(show: Callable) -> None:
    page = show(explorer()).page
    before = picture(page, 1)
    page.locator("[data-head='1']").click()
    assert voice(page).startswith("layer 0, head 1, example 0: ")
    expect(page.locator("select[data-name=head]")).to_have_value("1")
    expect(page.get_by_role("radio").nth(1)).to_have_attribute("aria-checked", "true")
    assert (picture(page, 1) == before).all()


def test_keyboard_walks_queries_keys_and_heads(show: Callable) -> None:
    page = show(explorer()).page
    page.get_by_role("radio").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("radio").nth(2)).to_be_focused()
    assert "head 2" in voice(page)
    assert page.locator("[role=radio][tabindex='0']").count() == 1
    page.locator("[role=option][tabindex='0']").focus()
    page.keyboard.press("End")
    assert voice(page).endswith(strongest(LAYERS[0][0, 2], 4))
    best = int(LAYERS[0][0, 2, 4].argmax())
    there = best - 1 if best else 1
    page.keyboard.press("ArrowLeft" if best else "ArrowRight")
    assert voice(page).endswith(f"mats → {KEYS[there]} {LAYERS[0][0, 2, 4, there]:.3f}")
    expect(page.locator("[role=option][data-query='4']")).to_be_focused()
    page.keyboard.press("Home" if best == 6 else "End")  # of the queries, not of the keys
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert voice(page).endswith(
        f"mats → {KEYS[max(best, 1) - (best == 6)]} {LAYERS[0][0, 2, 4, max(best, 1) - (best == 6)]:.3f}"
    )
    page.get_by_label("head 0 counts in the mean").focus()
    page.keyboard.press("ArrowRight")  # a box is no picture: the head stays
    assert "head 2" in voice(page)


def test_lines_are_the_weights_they_promise(show: Callable) -> None:
    page = show(explorer()).page
    page.locator("[role=option]").nth(2).click()
    page.keyboard.press("ArrowDown")
    for top, threshold in itertools.product((1, 3, 0), ("0.05", "0.25", "0")):
        pick(page, "top", str(top))
        pick(page, "threshold", threshold)
        expected = set()
        for query in (2, 3):
            row = LAYERS[0][0, 0, query]
            keys = [int(key) for key in row.argsort(descending=True) if round(float(row[key]), 3) >= float(threshold)]
            expected |= {f"{query} {key}" for key in keys[: top or None] if round(float(row[key]), 3) > 0}
        drawn = page.locator("svg line").evaluate_all(
            "all => all.map((one) => [one.dataset.pair, parseFloat(one.getAttribute('stroke-width'))])"
        )
        widths = dict(drawn)
        assert set(widths) == expected, (top, threshold)
        by_weight = sorted(widths, key=lambda pair: float(LAYERS[0][0, 0][tuple(map(int, pair.split()))]))
        assert [widths[pair] for pair in by_weight] == sorted(widths.values())


def test_a_head_switched_off_is_out_of_the_mean(show: Callable) -> None:
    page = show(explorer()).page
    said = page.locator(".mhalib-head-explorer-mean-said")

    def says(*heads: int) -> None:
        words, number = said.inner_text().rsplit(" ", 1)
        expected, exact = strongest(LAYERS[0][0, list(heads)].mean(0), 0).rsplit(" ", 1)
        assert words == expected
        assert abs(float(number) - float(exact)) < 0.0015

    says(0, 1, 2)
    before = picture(page, "mean")
    page.get_by_label("head 1 counts in the mean").uncheck()
    says(0, 2)
    expect(page.get_by_text("mean of 2 of 3")).to_be_visible()
    assert (picture(page, "mean") != before).any()
    assert page.locator(".mhalib-head-explorer-off [data-head='1']").count() == 1
    for head in (0, 2):
        page.get_by_label(f"head {head} counts in the mean").uncheck()
    expect(page.get_by_text("no head is on")).to_be_visible()
    page.get_by_label("head 2 counts in the mean").check()
    says(2)


def test_long_inputs_come_in_windows(show: Callable) -> None:
    weights = rows(4, 128, 100)
    shown = show(HeadExplorer(weights, [f"q{i}" for i in range(128)], [f"k{i}" for i in range(100)]))
    page = shown.page
    assert page.locator("[role=option]").count() == 24
    pick(page, "query", "120")
    pick(page, "key_start", "96")
    assert page.locator("[role=option]").all_inner_texts() == [f"q{i}" for i in range(120, 128)]
    assert page.locator(".mhalib-head-explorer-keys span").all_inner_texts() == ["k96", "k97", "k98", "k99"]
    page.get_by_text("numbers as a table").click()
    expect(page.locator("details tbody td").first).to_have_text(f"{weights[0, 120, 96]:.3f}")
    page.locator("[role=option][tabindex='0']").focus()
    page.keyboard.press("ArrowUp")
    expect(page.locator("[role=option][data-query='119']")).to_be_focused()
    assert page.locator("select[data-name=query]").input_value() == "96"
    for _ in range(100):  # along the keys, out of the window and on
        page.keyboard.press("ArrowRight")
    assert voice(page).endswith(f"q119 → k99 {weights[0, 119, 99]:.3f}")
    assert page.locator("select[data-name=key_start]").input_value() == "96"
    page.locator("[data-head='2']").click()
    page.locator("[role=option][data-query='100']").click()
    page.get_by_label("head 0 counts in the mean").uncheck()
    key = int(weights[2, 100].argmax())
    assert voice(page) == f"head 2: q100 → k{key} {weights[2, 100, key]:.3f}; locked: q100"
    assert (
        page.locator("[data-head='1'] .mhalib-head-explorer-chosen").get_attribute("style").startswith("top: 78.125%")
    )
    expect(page.get_by_text("mean of 3 of 4")).to_be_visible()
    page.keyboard.press("Escape")
    page.locator("[data-head='0']").click()
    page.locator("[role=option][data-query='119']").click()
    pick(page, "threshold", "0")
    key = int(weights[0, 119].argmax())
    assert f"q119 → k{key} {weights[0, 119, key]:.3f}" in voice(page)
    expect(page.get_by_text(re.compile("leaving this window: [123]"))).to_be_visible()
    assert shown.errors == []


def downloaded(page: Page, folder: Path) -> tuple[str, ElementTree.Element]:
    """What the button saves as SVG: the name that it suggests, and the picture."""
    with page.expect_download() as caught:
        page.get_by_role("button", name="download this head as SVG").click()
    caught.value.save_as(folder / "head.svg")
    return caught.value.suggested_filename, ElementTree.parse(folder / "head.svg").getroot()


def test_svg_holds_every_cell(show: Callable, tmp_path: Path) -> None:
    hostile = ["<b>&\"'", "</SCRIPT>", "שלום", "\x07", "😀"]
    page = show(HeadExplorer(LAYERS[0][0], hostile, KEYS, head=1)).page
    name, tree = downloaded(page, tmp_path)
    assert name == "head-1.svg"
    titles = [one.text for one in tree.findall("{*}rect/{*}title")]
    assert len(titles) == 5 * 7
    assert titles[0] == f"{hostile[0]} → die {LAYERS[0][0, 1, 0, 0]:.3f}"


@pytest.mark.filterwarnings("ignore:.*sum to 1")
def test_svg_tells_masked_and_odd_cells_apart(show: Callable, tmp_path: Path) -> None:
    weights = torch.tensor([[[0.0, 1.0, torch.nan]]])
    page = show(HeadExplorer(weights, ["q"], list("abc"), mask=torch.tensor([False, True, True]))).page
    _, tree = downloaded(page, tmp_path)
    cells = [one for one in tree.findall("{*}rect") if one.find("{*}title") is not None]
    assert [one.find("{*}title").text for one in cells] == ["q → a masked", "q → b 1.000", "q → c NaN"]
    assert cells[0].get("fill") == "url(#masked)"
    assert tree.find("{*}pattern").get("id") == "masked"
    assert "NaN" in [one.text for one in tree.findall("{*}text")]


def test_hostile_tokens_are_text(show: Callable) -> None:
    tokens = [
        "</SCRIPT><img src=x onerror=window.PWN=1>",
        "\"'&<b>",
        "שלום",
        "👩\u200d👧",
        "x" * 10_000,
        "\x00\x1b\u202e",
    ]
    shown = show(HeadExplorer(rows(2, 6, 6), tokens), width=390)
    shown.page.get_by_text("numbers as a table").click()
    shown.page.locator("[role=option]").first.click()
    expect(shown.page.locator("details tbody tr")).to_have_count(6)
    assert shown.page.evaluate("window.PWN") is None
    assert shown.page.locator("main img, main b").count() == 0
    assert shown.page.locator("[role=option]").nth(5).inner_text() == "\\x00\\x1b\\u2…"
    assert tokens[0][:20] in voice(shown.page)
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert shown.errors == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_fits_and_is_accessible(show: Callable, width: int, scheme: str) -> None:
    mask = torch.ones(5, 7, dtype=torch.bool)
    shown = show(explorer(mask=mask), HeadExplorer(rows(12, 40, 40)), width=width, color_scheme=scheme)
    shown.page.locator("[role=option]").first.click()
    shown.page.get_by_label("head 1 counts in the mean").first.uncheck()
    shown.page.get_by_text("numbers as a table").first.click()
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
    assert serious_findings(shown.page) == []
    assert len(shown.hosts) == 1
    assert shown.errors == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_dark_page_a_map_is_dark_and_its_strong_cells_are_bright(show: Callable, scheme: str) -> None:
    """As in the figures: where nothing is looked at, one sees the page's ground; the head's hue stays."""
    shown = show(HeadExplorer(torch.eye(4)[None]), HeadWall(np.eye(4)[None, None]), color_scheme=scheme)
    for root in (".mhalib-head-explorer-tile", ".mhalib-head-wall-picture"):
        picture = Image.open(io.BytesIO(shown.page.locator(f"{root} canvas").first.screenshot())).convert("RGB")
        width, height = picture.size
        strong, empty = (np.array(picture.getpixel((round(x * width), height // 8))) for x in (1 / 8, 5 / 8))
        assert (empty.mean() > strong.mean() + 60) == (scheme == "light")
        assert abs(int(empty.mean()) - (255 if scheme == "light" else 0)) < 12
        assert strong.argmax() == 2  # blue, in both


class Clock:
    """Seconds that the page's thread computes: what else the machine does is not counted."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.session = page.context.new_cdp_session(page)
        self.session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def now(self) -> float:
        metrics = self.session.send("Performance.getMetrics")["metrics"]
        return {one["name"]: one["value"] for one in metrics}["TaskDuration"]

    def reload(self) -> float:
        self.page.reload()
        return round(self.now(), 3)  # a new page counts from 0

    def cpu(self, act: Callable[[], object]) -> float:
        before = self.now()
        act()
        return round(self.now() - before, 3)


def test_twelve_layers_of_twelve_heads_are_soon_ready(show: Callable) -> None:
    mask = torch.ones(64, 64, dtype=torch.bool).tril()
    layers = [rows(12, 64, 64, seed=i).masked_fill(~mask, 0) for i in range(12)]
    layers = [layer / layer.sum(-1, keepdim=True) for layer in layers]
    large = HeadExplorer(layers, [f"token{i}" for i in range(64)], mask=mask)
    assert len(large._repr_mimebundle_()[0]["text/html"]) < 1_500_000
    shown = show(large)
    clock = Clock(shown.page)
    loads = [clock.reload() for _ in range(3)]
    controls = [clock.cpu(lambda layer=layer: pick(shown.page, "layer", str(layer))) for layer in (1, 2, 3)]
    print(f"CPU seconds until ready: {loads}, for another layer: {controls}")
    assert shown.page.get_by_role("radio").count() == 12
    assert min(loads) < 1
    assert min(controls) < 0.5
    pick(shown.page, "layer", "11")
    key = int(layers[11][0, 0].argmax())
    assert voice(shown.page) == f"layer 11, head 0: token0 → token{key} {layers[11][0, 0, key]:.3f}"


def test_starts_from_what_python_set(show: Callable) -> None:
    made = explorer()
    made.head, made.layer, made.query, made.locked, made.off, made.threshold, made.top = 2, 1, 3, [1], [0], 0.2, 2
    page = show(made).page
    assert voice(page) == f"layer 1, head 2, example 0: {strongest(LAYERS[1][0, 2], 3)}; locked: cat"
    assert not page.get_by_label("head 0 counts in the mean").is_checked()
    assert page.locator("select[data-name=threshold]").input_value() == "0.2"


ACTIONS = """
    const says = [said()];
    for (const [name, value] of [["head", 2], ["layer", 1], ["query", 4], ["locked", [0, 3]]]) {
        model.set(name, value);  // as the kernel does
        says.push(said());
    }
    el.querySelector("[data-head='1']").click();
    el.querySelector("[role=option][data-query='2']").click();
    const { head, query, locked } = saved.at(-1);
    stop();
    return { says, saved: [head, query, locked], left: Object.values(heard).flat().length };
"""


def test_follows_python_and_tells_python(show: Callable) -> None:
    made = explorer()
    page = show(made).page
    found = page.evaluate(with_kernel("HeadExplorer", ACTIONS), made.state())
    assert found["says"] == [
        f"layer 0, head 0, example 0: {strongest(LAYERS[0][0, 0], 0)}",
        f"layer 0, head 2, example 0: {strongest(LAYERS[0][0, 2], 0)}",
        f"layer 1, head 2, example 0: {strongest(LAYERS[1][0, 2], 0)}",
        f"layer 1, head 2, example 0: {strongest(LAYERS[1][0, 2], 4)}",
        f"layer 1, head 2, example 0: {strongest(LAYERS[1][0, 2], 4)}; locked: the, on",
    ]
    assert found["saved"] == [1, 2, [0, 3, 2]]
    assert found["left"] == 0  # nothing listens any more


def test_without_javascript_the_numbers_stand_in_a_table(show: Callable) -> None:
    page = show(explorer(head=1), java_script_enabled=False).page
    found = page.locator("tbody tr").nth(2).locator("td").all_inner_texts()
    assert found == [*(f"{weight:.3f}" for weight in LAYERS[0][0, 1, 2]), "1.000"]


def patch_colours(page: Page) -> np.ndarray:
    """The drawn picture: the colour in the middle of each patch of 4 by 4 screen squares, row by row."""
    drawn = pixels.of(page.locator(f"{ROOT}-under"))
    side = drawn.shape[1] // 3
    return drawn[side // 2 :: side, side // 2 :: side, :3].reshape(-1, 3)


def test_the_picture_lies_under_the_weights_of_the_chosen_query(show: Callable) -> None:
    """Two rows of three patches, of 2 by 2 pixels, behind one key that is no patch; in the head's own colour."""
    pictures = torch.zeros(2, 4, 6)
    pictures[1, :2, :2] = 1.0  # ink in the first patch of the second picture
    weights = torch.zeros(2, 1, 2, 7)
    weights[:, 0, 0, 0], weights[:, 0, 0, 6] = 0.75, 0.25
    weights[:, 0, 1, 1] = 1.0
    keys = ["class", *(f"patch {n}" for n in range(6))]
    shown = show(HeadExplorer(weights, ["a", "b"], keys, pictures=pictures, patch_size=2))
    page = shown.page
    blue = 255 * np.array(style.head_map(0)(0.74)[:3])
    assert np.abs(blue - 255 * np.array(to_rgb(style.head_colour(0)))).max() < 12
    white, full, half = [255, 255, 255], 0.15 * 255 + 0.85 * blue, 0.575 * 255 + 0.425 * blue
    assert np.abs(patch_colours(page) - [*[white] * 5, half]).max() <= 2
    page.locator("[role=option][data-query='1']").click()
    assert np.abs(patch_colours(page) - [full, *[white] * 5]).max() <= 2
    expect(page.locator(f"{ROOT}-under")).to_have_attribute("aria-label", "the picture of head 0, example 0, from b")
    pick(page, "example", "1")
    dark = 0.15 * 92 + 0.85 * blue
    assert np.abs(patch_colours(page) - [dark, *[white] * 5]).max() <= 2
    expect(page.locator(f"{ROOT}-lines, select[data-name=top], select[data-name=threshold]")).to_have_count(0)
    box = page.locator(f"{ROOT}-under").bounding_box()
    assert box
    page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + 0.9 * box["height"])
    assert voice(page) == "head 0, example 1: b → patch 5 0.000; locked: b"
    assert shown.errors == []


def test_without_a_picture_there_is_none(show: Callable) -> None:
    expect(show(explorer()).page.locator(f"{ROOT}-under")).to_have_count(0)


def mixed(*shape: int, seed: int = 5) -> torch.Tensor:
    """Weights some of which are below 0, and some above 1."""
    return rows(*shape, seed=seed) * torch.tensor([1.0, -2.0, 1.5, -0.5, 3.0, -1.0, 0.5], dtype=torch.float64)


def signed(number: float, digits: int = 3) -> str:
    return f"{number:.{digits}f}".replace("-", "−")


def furthest(weights: torch.Tensor, query: int) -> str:
    """What the voice has to say of a row of mixed weights: the one that is furthest from 0."""
    key = int(weights[query].abs().argmax())
    return f"{QUERIES[query]} → {KEYS[key]} {signed(float(weights[query, key]))}"


def test_mixed_weights_keep_their_signs_wherever_they_are_read(show: Callable) -> None:
    layers = [mixed(2, 3, 5, 7, seed=layer) for layer in range(2)]
    made = HeadExplorer(layers, QUERIES, KEYS, layer=1, head=2, example=1)
    shown = show(made)
    page = shown.page
    for query in range(5):
        page.locator("[role=option]").nth(query).click()
        page.keyboard.press("Escape")
        assert voice(page) == f"layer 1, head 2, example 1: {furthest(layers[1][1, 2], query)}"
    key = int(layers[1][1, 2, 4].abs().argmax())
    page.locator("[role=option][tabindex='0']").focus()
    page.keyboard.press("ArrowRight" if key < 6 else "ArrowLeft")
    beside = key + (1 if key < 6 else -1)
    assert voice(page).endswith(f"mats → {KEYS[beside]} {signed(float(layers[1][1, 2, 4, beside]))}")
    page.get_by_text("numbers as a table").click()
    body = page.locator("details tbody tr")
    expect(body).to_have_count(5)
    found = [[cell.inner_text() for cell in row.locator("th, td").all()] for row in body.all()]
    assert found == [list(row) for row in made.table()[2]]
    assert any(cell.startswith("−") for row in found for cell in row[1:-1])
    sums = [signed(float(row.sum())) for row in layers[1][1, 2]]
    assert page.locator(".mhalib-head-explorer-sums span").all_inner_texts() == sums
    assert "−" in "".join(sums)
    words, number = page.locator(".mhalib-head-explorer-mean-said").inner_text().rsplit(" ", 1)
    exact, value = furthest(layers[1][1].mean(0), 4).rsplit(" ", 1)
    assert words == exact
    assert abs(float(number.replace("−", "-")) - float(value.replace("−", "-"))) < 0.0015
    assert shown.errors == []


def test_mixed_weights_have_a_scale_with_two_sides_and_say_what_is_true_of_rows(show: Callable) -> None:
    weights = torch.tensor([[[0.0, 1.2, -0.6], [-1.2, 0.3, 0.6]]])
    page = show(HeadExplorer(weights, ["a", "b"], list("xyz"))).page
    legend = page.locator(".mhalib-head-explorer-legend > span").first
    assert re.sub(r"\s+", " ", legend.inner_text()).strip() == "−1.2 0 1.2"
    expect(
        page.get_by_text(
            "Mixed weights, from −1.200 to 1.200: purple above 0, orange below 0, in the large picture with a minus. "
            "Their rows need not sum to 1: sums run from −0.300 to 0.600."
        )
    ).to_be_visible()
    expect(page.get_by_text("do not sum to 1")).to_have_count(0)
    ends = """(bars) => bars.map((one) => [0, one.width - 1].map((x) =>
        [...one.getContext("2d").getImageData(x, 0, 1, 1).data].slice(0, 3)))"""
    below, above = legend.locator("canvas").evaluate_all(ends)
    assert below == [[0x61, 0x37, 0x07], [255, 255, 255]]
    assert above == [[255, 255, 255], [0x4D, 0x36, 0x65]]
    stops = {-1.2: 0x613707, -0.6: None, 0.0: 0xFFFFFF, 1.2: 0x4D3665}
    drawn = picture(page, 0)
    side = drawn.shape[0] // 2
    for query in range(2):
        for key in range(3):
            value = round(float(weights[0, query, key]), 3)
            red, green, blue = (int(part) for part in drawn[int((query + 0.2) * side), int((key + 0.2) * side), :3])
            if stops.get(value) is not None:
                assert (red << 16) + (green << 8) + blue == stops[value], value
            assert (blue > red) == (value > 0)
            assert (red > blue) == (value < 0)
    large = pixels.of(page.locator(f"{ROOT}-grid canvas"))[..., :3]
    side = large.shape[0] // 2
    plain = {
        tuple(int(part) for part in large[int(side * (q + 0.2)), int(side * (k + 0.2))]) for q, k in [(0, 2), (1, 0)]
    }
    minus = {
        tuple(int(part) for part in large[int(side * (q + 0.5)), int(side * (k + 0.5))]) for q, k in [(0, 2), (1, 0)]
    }
    assert minus == {(0, 0, 0), (255, 255, 255)}  # black on the lighter, white on the darker
    assert not minus & plain
    middle = large[side // 2, side // 2 + side]  # above 0: no minus
    assert tuple(int(part) for part in middle) == (0x4D, 0x36, 0x65)


def test_ordinary_weights_have_the_scale_they_had(show: Callable) -> None:
    page = show(explorer()).page
    legend = page.locator(".mhalib-head-explorer-legend > span").first
    assert re.sub(r"\s+", " ", legend.inner_text()).strip() == "0 1"
    expect(page.locator(".mhalib-head-explorer-legend")).not_to_contain_text("no number")
    expect(page.locator(f"{ROOT}-mixed, {ROOT}-mixed-said, {ROOT}-group, {ROOT}-gate, {ROOT}-gated")).to_have_count(0)
    expect(page.get_by_role("radio").first).not_to_have_attribute("aria-label", re.compile("."))


def test_lines_of_mixed_weights_tell_below_0_from_above(show: Callable) -> None:
    weights = mixed(3, 5, 7)
    page = show(HeadExplorer(weights, QUERIES, KEYS)).page
    page.locator("[role=option]").nth(2).click()
    page.keyboard.press("ArrowDown")
    pick(page, "top", "3")
    pick(page, "threshold", "0.1")
    expected = {}
    for query in (2, 3):
        row = weights[0, query]
        keys = [int(key) for key in row.abs().argsort(descending=True) if round(abs(float(row[key])), 3) >= 0.1][:3]
        expected |= {f"{query} {key}": float(row[key]) < 0 for key in keys}
    assert len(set(expected.values())) == 2
    drawn = page.locator("svg line").all()
    negative = {line.get_attribute("data-pair"): "negative" in line.get_attribute("class") for line in drawn}
    assert negative == expected
    dotted = page.locator("svg line.mhalib-head-explorer-negative").first
    assert dotted.evaluate("(one) => getComputedStyle(one).strokeDasharray") != "none"
    expect(page.get_by_text("Purple: above 0. Orange, dotted: below 0.")).to_be_visible()


def test_svg_of_mixed_weights_says_its_signs_and_its_scale(show: Callable, tmp_path: Path) -> None:
    weights = torch.tensor([[[-0.5, 2.0, torch.nan]]])
    with pytest.warns(UserWarning, match="sum to no number"):
        made = HeadExplorer(weights, ["q"], list("abc"))
    page = show(made).page
    _, tree = downloaded(page, tmp_path)
    cells = [one for one in tree.findall("{*}rect") if one.find("{*}title") is not None]
    assert [one.find("{*}title").text for one in cells] == ["q → a −0.500", "q → b 2.000", "q → c NaN"]
    assert cells[1].get("fill") == "rgb(77,54,101)"
    assert len(tree.findall("{*}rect")) == len(cells) + 1  # the minus
    texts = [one.text for one in tree.findall("{*}text")]
    assert "purple: above 0, orange: below 0; full at ±2.000" in texts
    assert "NaN" in texts
    assert voice(page) == "head 0: q → b 2.000"


def test_patches_below_0_are_orange_and_above_0_purple(show: Callable) -> None:
    weights = torch.zeros(1, 1, 6)
    weights[0, 0, 0], weights[0, 0, 5] = -1.0, 2.0
    page = show(HeadExplorer(weights, ["a"], pictures=torch.zeros(4, 6), patch_size=2)).page
    below = [0.15 * 255 + 0.85 * ink for ink in (217, 95, 2)]
    above = [0.15 * 255 + 0.85 * ink for ink in (124, 88, 164)]
    assert np.abs(patch_colours(page) - [below, *[[255] * 3] * 4, above]).max() <= 2
    expect(page.get_by_text("orange: below 0, full from ±1.000 on")).to_be_visible()


GROUPS = [None, [0, 0, 1]]


def test_heads_that_share_a_key_stand_under_one_bracket(show: Callable) -> None:
    page = show(explorer(groups=GROUPS, head=1)).page
    brackets = page.locator(f"{ROOT}-bracket")
    expect(brackets).to_have_count(0)  # the first layer shares nothing
    expect(page.get_by_role("radio", name="head 1", exact=True)).to_have_count(1)
    assert voice(page).startswith("layer 0, head 1, example 0: ")
    pick(page, "layer", "1")
    expect(brackets).to_have_text(["heads 0, 1 share key 0", "head 2 alone has key 1"])
    members = page.locator(f"{ROOT}-members")
    assert [one.locator("[role=radio]").count() for one in members.all()] == [2, 1]
    expect(page.get_by_role("radio", name="head 0, heads 0, 1 share key 0", exact=True)).to_have_count(1)
    expect(page.get_by_role("radio", name="head 2, head 2 alone has key 1", exact=True)).to_have_count(1)
    assert voice(page).startswith("layer 1, head 1, example 0, heads 0, 1 share key 0: ")
    page.get_by_role("radio").nth(1).focus()
    page.keyboard.press("ArrowRight")  # out of one group into the next
    expect(page.get_by_role("radio").nth(2)).to_be_focused()
    assert "head 2, example 0, head 2 alone has key 1: " in voice(page)
    pick(page, "layer", "0")
    expect(brackets).to_have_count(0)
    expect(page.get_by_role("radio")).to_have_count(3)


def test_groups_that_are_no_neighbours_are_named_all_the_same(show: Callable) -> None:
    page = show(HeadExplorer(rows(6, 5, 7), groups=[0, 1, 0, 1, 0, 1])).page
    expect(page.locator(f"{ROOT}-bracket")).to_have_text(["heads 0, 2, 4 share key 0", "heads 1, 3, 5 share key 1"] * 3)
    page = show(HeadExplorer(rows(6, 5, 7), groups=[0] * 5 + [1])).page
    expect(page.locator(f"{ROOT}-bracket")).to_have_text(["heads 0 to 4 share key 0", "head 5 alone has key 1"])


def test_gates_are_said_beside_each_head(show: Callable) -> None:
    gates = [torch.tensor([0.25, 1.0, 0.0]), torch.tensor([-0.5, 2.0, 1.0])]
    page = show(explorer(gates=gates)).page
    beside = page.locator(f"{ROOT}-gate")
    expect(beside).to_have_text(["gate 0.250", "gate 1.000", "gate 0.000"])
    bars = [one.evaluate("(one) => one.style.getPropertyValue('--gate')") for one in beside.all()]
    assert bars == ["0.25", "1", "0"]
    expect(page.get_by_role("radio", name="head 1, gate 1.000", exact=True)).to_have_count(1)
    assert voice(page).startswith("layer 0, head 0, example 0, gate 0.250: ")
    expect(page.locator(f"{ROOT}-sum-head")).to_have_text(["sum"])
    pick(page, "layer", "1")
    expect(beside).to_have_text(["gate −0.500", "gate 2.000", "gate 1.000"])
    assert voice(page).startswith("layer 1, head 0, example 0, gate −0.500: ")


def test_gates_of_each_query_follow_the_chosen_one(show: Callable) -> None:
    gates = torch.rand(2, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    made = explorer(gates=[gates, gates / 2], layer=1, example=1, head=2)
    page = show(made).page
    page.locator("[role=option]").nth(3).click()
    expect(page.locator(f"{ROOT}-gate")).to_have_text([f"gate {one / 2:.3f}" for one in gates[1, :, 3].tolist()])
    assert f"head 2, example 1, gate {gates[1, 2, 3] / 2:.3f}: on → " in voice(page)
    expect(page.locator(f"{ROOT}-sum-head")).to_have_text(["sum", "gate"])
    down = [f"{one / 2:.3f}" for one in gates[1, 2].tolist()]
    assert page.locator(f"{ROOT}-sums").nth(1).locator("span").all_inner_texts() == down
    page.get_by_text("numbers as a table").click()
    body = page.locator("details tbody tr")
    expect(body).to_have_count(5)
    found = [[cell.inner_text() for cell in row.locator("th, td").all()] for row in body.all()]
    assert found == [list(row) for row in made.table()[2]]
    expect(page.locator("details th[scope=col]").last).to_have_text("gate")
    pick(page, "example", "0")
    pick(page, "layer", "0")
    assert f"gate {gates[0, 2, 3]:.3f}: " in voice(page)
    page.keyboard.press("Escape")
    expect(page.get_by_text("gates of the chosen query")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_mixed_grouped_and_gated_heads_fit_and_are_accessible(show: Callable, width: int, scheme: str) -> None:
    gates = torch.rand(12, 7, dtype=torch.float64)
    made = HeadExplorer([mixed(12, 7, 7)] * 2, groups=[[0] * 8 + [1, 1, 2, 3], None], gates=gates, query=2)
    shown = show(made, explorer(groups=GROUPS, layer=1), width=width, color_scheme=scheme)
    wall = shown.page.get_by_role("region", name="all heads").first
    assert wall.evaluate("(one) => one.scrollWidth <= one.clientWidth")
    shown.page.locator("[role=option]").first.click()
    shown.page.get_by_text("numbers as a table").first.click()
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
    assert serious_findings(shown.page) == []
    assert shown.errors == []


def test_without_javascript_signs_groups_and_gates_stand_in_the_table(show: Callable) -> None:
    made = HeadExplorer(mixed(3, 5, 7), QUERIES, KEYS, groups=[0, 0, 1], gates=torch.tensor([0.5, 0.25, 1.0]), head=1)
    page = show(made, java_script_enabled=False).page
    text = page.locator("caption").inner_text()
    assert "whose rows need not sum to 1" in text
    assert "heads 0, 1 share key 0, head 2 alone has key 1" in text
    assert "gates 0.500, 0.250, 1.000" in text
    found = page.locator("tbody tr").nth(2).locator("td").all_inner_texts()
    assert found[:-1] == [signed(float(weight)) for weight in mixed(3, 5, 7)[1, 2]]


def test_a_token_written_from_right_to_left_leaves_the_arrow_alone(show: Callable) -> None:
    shown = show(HeadExplorer(torch.tensor([[[0.9, 0.1], [0.2, 0.8]]]), ["שלום", "b"]))
    assert voice(shown.page).endswith("\u2068שלום\u2069 → \u2068שלום\u2069 0.900")
    assert shown.errors == []
