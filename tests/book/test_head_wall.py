"""The head wall in the browser, with no kernel: it draws what Python carries, says it in words, and owns up to gaps."""

from __future__ import annotations

import base64
import io
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
import torch
from accessibility import serious_findings
from kernel import with_kernel
from pixels import of as of_canvas
from playwright.sync_api import Page, expect

from mhalib import causal_mask, style
from mhalib.widgets import HeadWall, _levels

pytestmark = [pytest.mark.browser, pytest.mark.instrument("mhalib/widgets/head_wall", "mhalib/measures/")]

ROOT = ".mhalib-head-wall"
TOKENS = "the cat sat on the mat".split()


def rows(*shape: int, seed: int = 5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(*shape, generator=generator, dtype=torch.float64)).softmax(-1)


def causal(*shape: int, seed: int = 5) -> torch.Tensor:
    weights = rows(*shape, seed=seed) * causal_mask(*shape[-2:])
    return weights / weights.sum(-1, keepdim=True)


WEIGHTS = causal(3, 4, 6, 6)
NUMBERS = {
    "induction": torch.tensor([[0.1, 0.9, 0.2, 0.3], [0.5, torch.nan, 0.7, 0.6], [0.05, 0.4, 0.8, 0.15]]),
    "entropy": torch.linspace(-1, 2, 12).reshape(3, 4),
}


def made(**options: Any) -> HeadWall:
    return HeadWall(WEIGHTS, TOKENS, causal=True, **{"numbers": NUMBERS, **options})


def gaps(monkeypatch: pytest.MonkeyPatch, fit: int = 2) -> None:
    """Room for the strongest keys of a few heads only."""
    monkeypatch.setattr(_levels, "DETAIL_LETTERS", fit * _levels.detail_letters(6, 5))


def voice(page: Page) -> str:
    return page.get_by_role("status").inner_text()


def pick(page: Page, name: str, value: str) -> None:
    page.locator(f"select[data-name={name}]").select_option(value)


def pixels(page: Page, where: str) -> np.ndarray:
    return of_canvas(page.locator(f"{ROOT}-{where} canvas"))


BLOCK = """(canvas, [layer, head, r, c, rows, columns]) => {
    const [height, width] = [canvas.height / 3, canvas.width / 4];
    const [down, across] = [(height - 2) / rows, (width - 2) / columns];
    const [x, y] = [head * width + 1 + c * across, layer * height + 1 + r * down];
    return [...canvas.getContext("2d").getImageData(x, y, across, down).data];
}"""


def block(page: Page, place: tuple[int, int], r: int, c: int, size: tuple[int, int] = (6, 6)) -> np.ndarray:
    """All pixels of one block of the head at a place of the wall, which has three layers of four heads."""
    found = page.locator(f"{ROOT}-picture canvas").evaluate(BLOCK, [*place, r, c, *size])
    return np.array(found).reshape(-1, 4)[:, :3]


def colour(share: float, head: int | None = None) -> np.ndarray:
    """Of a head's weights, or of numbers."""
    shades = matplotlib.colormaps["ink"] if head is None else style.head_map(head)
    return np.array(shades(float(share))[:3]) * 255


def order(page: Page) -> list[str]:
    return [str(cell.get_attribute("aria-label")) for cell in page.get_by_role("gridcell").all()]


def sentence(layer: int, head: int, query: int) -> str:
    """What has to be said of the strongest keys of a query."""
    row = WEIGHTS[layer, head, query, : query + 1]
    best = row.argsort(descending=True, stable=True)[:5]
    best = [int(key) for i, key in enumerate(best) if i == 0 or round(1000 * float(row[key])) > 0]
    share = 100 * float(row[best].sum())
    held = "this key holds" if len(best) == 1 else f"{len(best)} keys hold"
    first = f"{best[0]} {TOKENS[best[0]]} {float(row[best[0]]):.3f}"
    return f"{query} {TOKENS[query]} → {first}; {held} {share:.1f} % of the row."


def test_the_wall_has_the_colours_of_the_blocks(show: Callable) -> None:
    shown = show(made())
    for layer, head, r, c in [(0, 0, 0, 0), (0, 3, 5, 2), (1, 1, 4, 4), (2, 0, 3, 1), (2, 3, 5, 5)]:
        carried = round(61 * float(WEIGHTS[layer, head, r, c]) ** 0.5) / 61
        assert np.abs(block(shown.page, (layer, head), r, c) - colour(carried, head)).max() <= 3
    masked = block(shown.page, (2, 1), 1, 4)
    assert {tuple(one) for one in masked.tolist()} == {(128, 128, 128), (246, 246, 246)}
    assert shown.errors == []


def test_blocks_of_a_large_map_and_the_large_picture(show: Callable) -> None:
    weights = causal(3, 4, 50, 50)
    page = show(HeadWall(weights, causal=True, cells=10, head=2, layer=1, query=23)).page
    exact = [float(weights[1, 2, 20:25, 10:15].max()), float(weights[0, 3, 45:, 40:45].max())]
    found = [block(page, (1, 2), 4, 2, (10, 10)), block(page, (0, 3), 9, 8, (10, 10))]
    for one, value, head in zip(found, exact, (2, 3), strict=True):
        assert np.abs(one - colour(round(61 * value**0.5) / 61, head)).max() <= 3
    large = pixels(page, "map")
    side = large.shape[0] // 10
    assert np.abs(large[4 * side : 5 * side, 2 * side : 3 * side, :3] - found[0][0]).max() == 0
    expect(page.locator(f"{ROOT}-legend")).to_contain_text("each block is the largest of 5 × 5 weights")
    strip = page.locator(f"{ROOT}-strip")
    assert strip.evaluate("(one) => [one.style.top, one.style.height]") == ["40%", "10%"]


@pytest.mark.filterwarnings("ignore:.*sum to 1")
def test_what_is_no_weight_is_chequered_and_told(show: Callable) -> None:
    weights = WEIGHTS.clone()
    weights[1, 2, 3, 0] = torch.nan
    shown = show(HeadWall(weights, TOKENS, causal=True, numbers=NUMBERS))
    assert {tuple(one) for one in block(shown.page, (1, 2), 3, 0).tolist()} == {(213, 94, 0), (255, 255, 255)}
    expect(shown.page.locator(f"{ROOT}-warning")).to_contain_text("1 of 12 heads have what is no weight from 0 to 1.")


@pytest.mark.parametrize(("layer", "head", "query"), [(0, 0, 0), (1, 2, 3), (2, 3, 5)])
def test_a_choice_is_shown_large_and_in_words(show: Callable, layer: int, head: int, query: int) -> None:
    page = show(made()).page
    page.locator("input[data-name=query]").fill(str(query))
    page.get_by_role("gridcell", name=f"layer {layer}, head {head},").click()
    table = NUMBERS["induction"].flatten()
    number = table[4 * layer + head]
    rank = int((table > number).sum()) + 1
    expected = f"layer {layer}, head {head}, induction {number:.4f}, rank {rank} of 11. {sentence(layer, head, query)}"
    assert voice(page) == expected
    assert page.locator(f"{ROOT}-title").inner_text() == f"layer {layer}, head {head}"
    keys = page.get_by_role("region", name="strongest keys of the chosen query")
    row = WEIGHTS[layer, head, query]
    for line in keys.locator("tbody tr").all()[:-1]:
        key, token, weight = line.locator("th, td").all_inner_texts()
        assert (token, weight) == (TOKENS[int(key)], f"{float(row[int(key)]):.3f}")
    about = page.get_by_role("region", name="numbers of the chosen head").locator("tbody tr").last
    entropy = float(NUMBERS["entropy"][layer, head])
    place = 12 - (4 * layer + head)
    assert about.locator("th, td").all_inner_texts() == [
        "entropy",
        f"{entropy:.3f}".replace("-", "−"),
        f"{place} of 12",
    ]


def test_a_head_without_a_number_says_so(show: Callable) -> None:
    page = show(made(layer=1, head=1)).page
    assert voice(page).startswith("layer 1, head 1, induction no number, rank none. ")
    pick(page, "view", "number")
    assert {tuple(one) for one in block(page, (1, 1), 0, 0).tolist()} == {(213, 94, 0), (255, 255, 255)}
    expect(page.get_by_role("gridcell", selected=True)).to_have_text("no number")


def test_keys_walk_and_only_the_chosen_cell_is_on_the_way_of_tab(show: Callable) -> None:
    page = show(made()).page
    cell = page.get_by_role("gridcell")
    cell.first.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    expect(cell.nth(6)).to_be_focused()
    assert voice(page).startswith("layer 1, head 2,")
    assert page.locator("[role=gridcell][tabindex='0']").count() == 1
    expect(cell.nth(6)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("End")
    expect(cell.nth(11)).to_be_focused()
    page.keyboard.press("ArrowDown")  # there is nothing below
    expect(cell.nth(11)).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    assert voice(page).startswith("layer 1, head 2,")
    page.keyboard.press("Home")
    assert voice(page).startswith("layer 0, head 0,")
    pick(page, "layer", "2")
    pick(page, "head", "3")
    assert voice(page).startswith("layer 2, head 3,")
    expect(cell.nth(11)).to_have_attribute("tabindex", "0")


def test_the_number_fills_the_wall(show: Callable) -> None:
    page = show(made(view="number")).page
    low, high = 0.05, 0.9
    for place in [(0, 1), (1, 0), (2, 0)]:
        share = round(61 * (float(NUMBERS["induction"][place]) - low) / (high - low)) / 61
        assert np.abs(block(page, place, 2, 2) - colour(share)).max() <= 2
    expect(page.get_by_role("gridcell").nth(1)).to_have_text("0.9000")
    assert re.sub(r"\s+", " ", page.locator(f"{ROOT}-legend").inner_text()).startswith("0.0500 0.9000 induction, from")
    pick(page, "number", "entropy")
    expect(page.get_by_role("gridcell").nth(0)).to_have_text("−1.000")
    assert np.abs(block(page, (0, 0), 0, 0) - colour(0)).max() <= 1
    assert np.abs(block(page, (2, 3), 5, 5) - colour(1)).max() <= 1
    dark = page.get_by_role("gridcell").evaluate_all("all => all.map((one) => getComputedStyle(one).color)")
    assert (dark[0], dark[11]) == ("rgb(0, 0, 0)", "rgb(255, 255, 255)")
    pick(page, "view", "maps")
    expect(page.get_by_role("gridcell").nth(0)).to_have_text("")


def test_equal_numbers_have_one_colour(show: Callable) -> None:
    page = show(made(view="number", numbers={"same": torch.full((3, 4), 2.0)})).page
    assert np.abs(block(page, (1, 1), 0, 0) - block(page, (2, 3), 3, 3)).max() == 0


def test_heads_are_sorted_within_their_layer(show: Callable) -> None:
    page = show(made(layer=0, head=1)).page
    pick(page, "order", "highest")
    names = [one.split(", induction")[0] for one in order(page)]
    expected = [(0, 1), (0, 3), (0, 2), (0, 0), (1, 2), (1, 3), (1, 0), (1, 1), (2, 2), (2, 1), (2, 3), (2, 0)]
    assert names == [f"layer {layer}, head {head}" for layer, head in expected]
    expect(page.locator(f"{ROOT}-sorted")).to_have_text("induction: highest first")
    carried = round(61 * float(WEIGHTS[0, 3, 5, 0]) ** 0.5) / 61
    assert np.abs(block(page, (0, 1), 5, 0) - colour(carried, 3)).max() <= 3  # the picture moved with its head
    page.get_by_role("gridcell").nth(0).focus()
    page.keyboard.press("ArrowRight")
    assert voice(page).startswith("layer 0, head 3,")
    page.get_by_role("gridcell").nth(4).click()
    assert voice(page).startswith("layer 1, head 2,")
    pick(page, "order", "lowest")
    assert order(page)[7].startswith("layer 1, head 1, induction no number")
    assert order(page)[0].startswith("layer 0, head 0,")
    pick(page, "order", "model")
    assert [one.split(", induction")[0] for one in order(page)][:5] == [
        *(f"layer 0, head {head}" for head in range(4)),
        "layer 1, head 0",
    ]


def test_the_highest_or_lowest_are_framed_and_listed(show: Callable) -> None:
    page = show(made(marked=3)).page
    best = page.get_by_role("group", name="3 highest by induction")
    assert best.get_by_role("button").all_inner_texts() == [
        "layer 0, head 1: 0.9000",
        "layer 2, head 2: 0.8000",
        "layer 1, head 2: 0.7000",
    ]
    marked = page.locator(f"{ROOT}-marked")
    assert [one.get_attribute("data-place") for one in marked.all()] == ["1", "6", "10"]
    best.get_by_role("button").nth(1).click()
    assert voice(page).startswith("layer 2, head 2, ")
    expect(best.get_by_role("button").nth(1)).to_have_attribute("aria-pressed", "true")
    pick(page, "marked", "-5")
    lowest = page.get_by_role("group", name="5 lowest by induction").get_by_role("button")
    assert [text[-6:] for text in lowest.all_inner_texts()] == ["0.0500", "0.1000", "0.1500", "0.2000", "0.3000"]
    pick(page, "marked", "0")
    expect(page.get_by_role("group", name="by induction")).to_have_count(0)
    expect(marked).to_have_count(0)


def test_a_click_on_the_large_map_chooses_the_first_query_of_a_row(show: Callable) -> None:
    page = show(HeadWall(causal(3, 4, 50, 50), causal=True, cells=10)).page
    box = page.locator(f"{ROOT}-map canvas").bounding_box()
    assert box
    page.mouse.click(box["x"] + 20, box["y"] + 0.75 * box["height"])
    expect(page.locator("input[data-name=query]")).to_have_value("35")
    page.locator("input[data-name=query]").fill("99")
    assert voice(page) == "Not a whole number from 0 to 49: nothing is changed."


def test_without_strongest_keys_it_says_so_and_what_the_map_says(
    show: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    gaps(monkeypatch)
    page = show(made(detail=[(2, 3)])).page
    dots = page.locator(f"{ROOT}-detailed")
    assert [one.get_attribute("data-place") for one in dots.all()] == ["0", "11"]
    expect(page.locator(f"{ROOT}-legend")).to_contain_text("dot: strongest keys are stored")
    page.locator("input[data-name=query]").fill("4")
    page.get_by_role("gridcell", name="layer 1, head 0").click()
    row = WEIGHTS[1, 0, 4]
    words = (
        "The strongest keys of this head are not stored, only those of 2 of 12 heads, the ones with a dot. "
        f"Its map says: the largest weight of query 4 is about {(round(61 * float(row.max()) ** 0.5) / 61) ** 2:.2f}, "
        f"at key {int(row.argmax())}."
    )
    assert voice(page).endswith(words)
    assert page.locator(f"{ROOT}-lacking").inner_text() == words
    page.get_by_role("gridcell", name="layer 2, head 3").click()
    assert voice(page).endswith(sentence(2, 3, 4))
    expect(page.locator(f"{ROOT}-lacking")).to_have_count(0)


def test_the_map_alone_names_spans_of_queries_and_keys(show: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_levels, "DETAIL_LETTERS", 0)
    weights = torch.zeros(1, 1, 8, 8)
    weights[0, 0, :, 5] = 1
    weights[0, 0, 6:] = 0
    mask = torch.ones(8, 8, dtype=torch.bool)
    mask[6:] = False
    page = show(HeadWall(iter([weights[0]]), mask=mask, cells=3, pool="mean", query=4, numbers={})).page
    says = "not stored, only those of no head. Its map says: the largest mean weight of queries 3–5 is about"
    assert says in voice(page)
    assert voice(page).endswith("0.33, at keys 3–5.") or voice(page).endswith("0.34, at keys 3–5.")
    expect(page.locator("select[data-name=view], select[data-name=order]")).to_have_count(0)
    page.locator("input[data-name=query]").fill("7")
    assert voice(page).endswith("queries 6–7: every key is masked.")


@pytest.mark.filterwarnings("ignore:.*sum to 1")
def test_a_query_without_weights_says_so(show: Callable) -> None:
    weights = torch.ones(1, 1, 3, 3) / 3
    weights[0, 0, 1] = torch.nan
    weights[0, 0, 2] = 0
    page = show(HeadWall(weights, list("abc"), query=1)).page
    assert voice(page).endswith("1 b: no key has a weight from 0 to 1.")
    page.locator("input[data-name=query]").fill("2")
    assert voice(page).endswith("2 c → 0 a 0.000; this key holds nothing of the row.")


ACTIONS = """
    el.querySelector("[data-place='6']").click();
    const says = [said()];
    const { layer, head } = saved.at(-1);
    model.set("sent", SENT);  // as the kernel does
    says.push(said());
    for (const [name, value] of [["query", 5], ["view", "number"], ["marked", 2], ["number", "entropy"]]) {
        model.set(name, value);
        says.push(said());
    }
    const framed = el.querySelectorAll(".mhalib-head-wall-marked").length;
    el.querySelector("[data-place='3']").click();  // what was sent is another head's
    says.push(said());
    stop();
    return { says, saved: [layer, head], framed, left: Object.values(heard).flat().length };
"""


def test_follows_python_which_sends_what_is_asked_for(show: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    gaps(monkeypatch)
    wall = made()
    page = show(wall).page
    live = made()
    live.layer, live.head = 1, 2
    code = with_kernel("HeadWall", ACTIONS.replace("SENT", str(live.sent).replace("'", '"')))
    found = page.evaluate(code, {**wall.state(), "kept": True})
    start = "layer 1, head 2, induction 0.7000, rank 3 of 11. "
    asked = "The kernel has been asked for the strongest keys of this head. Its map says: the largest weight of query 0"
    assert found["says"][0].startswith(start + asked)
    assert found["says"][1:5] == [start + sentence(1, 2, 0), *[start + sentence(1, 2, 5)] * 3]
    assert found["says"][5] == f"layer 1, head 2, entropy 0.636, rank 6 of 12. {sentence(1, 2, 5)}"
    assert "The kernel has been asked for the strongest keys of this head." in found["says"][6]
    assert (found["saved"], found["framed"], found["left"]) == ([1, 2], 2, 0)


def test_starts_from_what_python_set(show: Callable) -> None:
    page = show(made(layer=2, head=1, query=3, view="number", number="entropy", order="lowest", marked=7)).page
    assert voice(page) == f"layer 2, head 1, entropy 1.455, rank 3 of 12. {sentence(2, 1, 3)}"
    values = {"view": "number", "number": "entropy", "order": "lowest", "marked": "7", "layer": "2", "head": "1"}
    assert {name: page.locator(f"select[data-name={name}]").input_value() for name in values} == values
    expect(page.locator(f"{ROOT}-marked")).to_have_count(7)


def test_svg_holds_the_picture_and_a_name_for_every_head(show: Callable, tmp_path: Path) -> None:
    page = show(made(marked=2, numbers={"<b>&\"'": NUMBERS["entropy"]})).page
    for view, name in (("maps", "heads-by-maps.svg"), ("number", None)):
        pick(page, "view", view)
        with page.expect_download() as caught:
            page.get_by_role("button", name="as SVG").click()
        assert name in (caught.value.suggested_filename, None)
        caught.value.save_as(tmp_path / "wall.svg")
        tree = ElementTree.parse(tmp_path / "wall.svg").getroot()
        titles = [one.text for one in tree.findall("{*}rect/{*}title")]
        assert titles == order(page)
        assert titles[4].startswith("layer 1, head 0, <b>&\"' 0.091")
        image = tree.find("{*}image")
        assert image is not None
        data = base64.b64decode(image.get("href").partition("base64,")[2])
        drawn = matplotlib.image.imread(io.BytesIO(data), format="png") * 255
        assert np.abs(drawn[..., :3] - pixels(page, "picture")[..., :3])[drawn[..., 3] > 0].max() < 1
        step = float(image.get("width")) / 4  # of three layers of four heads
        framed = [one for one in tree.findall("{*}rect") if one.find("{*}title") is not None]
        places = [(float(str(one.get("x"))), float(str(one.get("y")))) for one in framed]
        left, top = (float(str(image.get(part))) + 1 for part in ("x", "y"))
        assert places == [(left + step * (place % 4), top + step * (place // 4)) for place in range(12)]
        texts = [one.text for one in tree.findall("{*}text")]
        assert {"layer 2", "framed: the 2 highest by <b>&\"'"} <= set(texts)
        assert len([one for one in tree.findall("{*}rect") if one.get("stroke") == "#d55e00"]) == 2
    pick(page, "order", "highest")
    with page.expect_download() as caught:
        page.get_by_role("button", name="as SVG").click()
    assert "highest first" in caught.value.path().read_text(encoding="utf-8")


def test_hostile_and_foreign_tokens_are_text(show: Callable) -> None:
    tokens = [
        "</SCRIPT><img src=x onerror=window.PWN=1>",
        "\"'&<b>",
        "שלום",
        "👩\u200d👧",
        "x" * 10_000,
        "\x00\x1b\u202e",
    ]
    shown = show(HeadWall(rows(2, 3, 6, 6), tokens, numbers={tokens[0]: torch.rand(2, 3)}), width=390)
    for query in range(6):
        shown.page.locator("input[data-name=query]").fill(str(query))
    assert shown.page.evaluate("window.PWN") is None
    assert shown.page.locator("main img, main b").count() == 0
    assert "5 \\x00\\x1b\\u202e → " in voice(shown.page)
    shown.page.locator("input[data-name=query]").fill("2")
    assert "2 \u2068שלום\u2069 → " in voice(shown.page)  # the arrow keeps its way
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert shown.errors == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_fits_and_is_accessible(show: Callable, width: int, scheme: str) -> None:
    wide = HeadWall(rows(6, 12, 14, 14), view="number")
    shown = show(made(), wide, HeadWall(rows(2, 3, 1, 40)), width=width, color_scheme=scheme)
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
    assert serious_findings(shown.page) == []
    numbered = shown.page.get_by_role("grid").nth(1).get_by_role("gridcell").first
    size = float(numbered.evaluate("(one) => parseFloat(getComputedStyle(one).fontSize)"))
    assert (size > 9) == (width == 1280)  # no numbers where there is no room
    flat = shown.page.get_by_role("grid").nth(2).bounding_box()
    assert flat
    assert flat["height"] > flat["width"] / 6  # one query is not a hair
    assert len(shown.hosts) == 1
    assert shown.errors == []


def test_names_of_layers_and_heads_thin_out_where_there_is_no_room(show: Callable) -> None:
    page = show(HeadWall(np.full((32, 32, 2, 2), 0.5)), width=390).page
    named = page.locator(f"{ROOT}-heads > :not({ROOT}-unseen)").all_inner_texts()
    assert [text for text in named if text] == [str(i) for i in range(0, 32, 2)]
    page.set_viewport_size({"width": 1280, "height": 900})
    expect(page.locator(f"{ROOT}-heads > {ROOT}-unseen")).to_have_count(0)


def test_a_thousand_maps_are_drawn_once_and_then_one_at_a_time(show: Callable) -> None:
    """32 layers of 32 heads. What a choice draws is counted, for seconds are the machine's."""
    weights = np.broadcast_to(np.eye(48, dtype=np.float16)[None, None], (32, 32, 48, 48))
    shown = show(HeadWall(weights, numbers={"n": torch.arange(1024.0).reshape(32, 32)}))
    page = shown.page
    assert page.get_by_role("gridcell").count() == 1024
    page.evaluate(
        """() => {
            window.drawn = 0;
            const put = CanvasRenderingContext2D.prototype.putImageData;
            CanvasRenderingContext2D.prototype.putImageData = function (image, ...place) {
                window.drawn += image.width * image.height;
                return put.call(this, image, ...place);
            };
        }"""
    )
    page.get_by_role("gridcell").nth(700).click()
    assert voice(page).startswith("layer 21, head 28, n 700, rank 324 of 1024.")
    one = page.evaluate("window.drawn")
    assert 0 < one <= 2 * 320 * 320  # the large map, for layer and for head
    pick(page, "view", "number")
    assert page.evaluate("window.drawn") > 800 * 800
    assert shown.errors == []


def test_without_javascript_the_numbers_stand_in_a_table(show: Callable) -> None:
    page = show(made(), java_script_enabled=False).page
    assert page.locator("caption").inner_text() == "3 layers of 4 heads: induction"
    found = [row.locator("td").all_inner_texts() for row in page.locator("tbody tr").all()]
    assert found[1] == ["0.5000", "no number", "0.7000", "0.6000"]
