"""Numbers in sentences: what is stored is computed, in Python and in the browser, and a reader can drag it."""

from __future__ import annotations

import html
import itertools
import math
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import nbformat
import pytest
import torch
from accessibility import serious_findings
from playwright.sync_api import Browser, Locator, Page, expect
from served import HTML, StrictHandler
from test_attention_playground import DARK

from mhalib.attention import rotate
from mhalib.widgets import AttentionPlayground, CostCalculator
from tools.notebooks import notebooks, prose_numbers, sentences
from tools.pages import chromium
from tools.pages.ways import ALL_OPEN

PATHS = sorted(notebooks.CHAPTERS.glob("*.ipynb"))
CELLS = {path.stem: nbformat.read(path, as_version=4).cells for path in PATHS}
SENTENCES = {
    name: [block for cell in cells if cell.cell_type == "markdown" for block in sentences.blocks(cell.source)]
    for name, cells in CELLS.items()
}
PAGES = [name for name, found in SENTENCES.items() if found]


def drag(of: str, trait: str, text: str) -> str:
    return f'<span class="drag" data-of="{of}" data-trait="{trait}">{text}</span>'


def follows(of: str, value: str, text: str) -> str:
    return f'<span class="follows" data-of="{of}" data-value="{value}">{text}</span>'


WEIGHT = (
    f"At {drag('AttentionPlayground', 'temperature', '1')}: {follows('AttentionPlayground', 'largest weight', '0.65')}"
)
LAYER = (
    f"{drag('layer', 'D', '256')} {drag('layer', 'h', '8')} {drag('layer', 'N', '128')} {follows('layer', 'd', '32')}"
)


@pytest.mark.parametrize("name", CELLS)
def test_each_number_that_is_stored_is_what_is_computed(name: str) -> None:
    assert sentences.unconfirmed(CELLS[name]) == []


def test_the_chapters_have_sentences_that_answer() -> None:
    assert set(PAGES) >= {"06_the_whole_layer", "08_scale_temperature_dropout", "28_counting"}
    whole = [
        block for found in SENTENCES.values() for block in found if {span.kind for span in block} == {"drag", "follows"}
    ]
    assert len(whole) >= 6


def test_the_score_of_a_rotation_is_the_layer_s() -> None:
    arrows = torch.tensor([1.0, 0.0] * 4, dtype=torch.float64).expand(201, 8)
    turned = rotate(arrows)
    for t, j in ((7, 5), (0, 200), (131, 131), (13, 64)):
        found = sentences.FORMULAS["rotation"].results({"t": t, "j": j})
        assert float(found["score"].replace("−", "-")) == pytest.approx(float(turned[t] @ turned[j]) / 8**0.5, abs=6e-4)
        for pair, shown in enumerate(found["apart"].split(", ")):
            hands = [math.atan2(turned[n, 2 * pair + 1], turned[n, 2 * pair]) for n in (t, j)]
            apart = math.degrees(abs(hands[0] - hands[1])) % 360
            assert abs(float(shown[:-1]) - min(apart, 360 - apart)) < 0.51


def page_of(markdown: str) -> list[dict]:
    """The cells of a page: a text, and the playground."""
    output = {"data": AttentionPlayground()._repr_mimebundle_()[0]}
    return [{"cell_type": "markdown", "source": markdown}, {"cell_type": "code", "source": "", "outputs": [output]}]


@pytest.mark.parametrize(
    ("markdown", "said"),
    [
        (WEIGHT.replace("0.65", "0.66"), "stored '0.66', computed '0.65'"),
        (WEIGHT.replace(">1<", ">2<"), "stored '2', computed '1'"),
        (WEIGHT.replace("temperature", "heat"), "there is no such name among"),
        (WEIGHT.replace('"temperature"', '"mask"'), "there is no such name among"),
        (WEIGHT.replace("largest weight", "smallest weight"), "no such name among largest weight, output"),
        (WEIGHT.replace("AttentionPlayground", "CostCalculator"), "no such instrument with results on the page"),
        (LAYER.replace(">32<", ">64<"), "stored '64', computed '32'"),
        (LAYER.replace('"h"', '"g"'), "the variables are D, h, N"),
        (LAYER.replace("256", "many"), "the variables are D, h, N"),
        (LAYER.replace("256", "131,072"), "D is outside its bounds (1, 65536)"),
        (follows("layer", "d", "2"), "computed '1'"),
    ],
)
def test_a_number_that_is_not_computed_is_named(markdown: str, said: str) -> None:
    assert sentences.unconfirmed(page_of(WEIGHT + "\n\n" + LAYER)) == []
    found = sentences.unconfirmed(page_of(markdown))
    assert found
    assert said in found[0]


@pytest.mark.parametrize(
    "markdown",
    [
        LAYER.replace(' data-trait="D"', ""),
        LAYER.replace(' data-trait="D"', ' data-trait="D" onclick="alert(1)"'),
        LAYER.replace(">256<", "><b>256</b><"),
        LAYER.replace("</span>", ""),
    ],
)
def test_a_span_that_cannot_be_read_raises(markdown: str) -> None:
    with pytest.raises(ValueError, match=r"a span of class drag has|is not written as one span"):
        sentences.unconfirmed(page_of(markdown))


def test_the_numbers_of_a_sentence_are_its_own() -> None:
    two = LAYER + "\n\n" + LAYER.replace("256", "512").replace("32", "64")
    assert [len(block) for block in sentences.blocks(two)] == [4, 4]
    assert [len(block) for block in sentences.blocks("- " + LAYER + "\n- " + LAYER)] == [4, 4]
    assert sentences.unconfirmed(page_of(two)) == []


def test_a_number_below_zero_has_the_minus_of_the_page() -> None:
    """As it was: −2 could not be read, and Python wrote a hyphen."""
    assert [sentences.written(value) for value in (-2, -0.5, -2048, -0.0001)] == ["−2", "−0.5", "−2,048", "−0"]
    below = sentences.FORMULAS["average"].results({"w": 75, "f": -2})["winners"]
    sentence = f"{drag('average', 'w', '75')} {drag('average', 'f', '−2')} {follows('average', 'winners', below)}"
    assert sentences.unconfirmed(page_of(sentence)) == []
    (found,) = sentences.unconfirmed(page_of(sentence.replace("−2", "-2")))
    assert found.endswith("stored '-2', computed '−2'")
    assert "outside its bounds (-4, 4)" in sentences.unconfirmed(page_of(sentence.replace("−2", "−5")))[0]


def test_they_need_no_second_account_among_the_numbers_of_prose() -> None:
    assert prose_numbers.claims(f"{WEIGHT} and 0.99") == ["0.99"]


@pytest.fixture
def read(show: Callable) -> Callable[..., SimpleNamespace]:
    """Opens paragraphs, and instruments below them."""

    def open_page(*paragraphs: str, below: tuple = (), **options: object) -> SimpleNamespace:
        text = "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
        prose = SimpleNamespace(_repr_mimebundle_=lambda: ({"text/html": text}, {}))
        return show(prose, *below, **options)

    return open_page


def number(page: Page, name: str) -> Locator:
    return page.locator("span.drag").and_(page.get_by_role("slider", name=name, exact=True))


def drawn_at(page: Page, selector: str, attribute: str) -> list[float]:
    """An attribute of all that a selector finds."""
    read = "(all, name) => all.map((one) => Number(one.getAttribute(name)))"
    return page.locator(selector).evaluate_all(read, attribute)


def pull(page: Page, span: Locator, pixels: float) -> None:
    box = span.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + pixels / 2, y + 40)
    page.mouse.move(x + pixels, y)
    page.mouse.up()


@pytest.mark.browser
def test_a_dragged_number_moves_the_instrument_and_what_follows_it(read: Callable) -> None:
    given = AttentionPlayground()
    shown = read(WEIGHT, below=(given,))
    page, heat = shown.page, number(shown.page, "temperature")
    pull(page, heat, 41)
    expect(heat).to_have_text("2")
    given.temperature = 2.0
    expect(page.locator("span.follows")).to_have_text(given.results()["largest weight"])
    expect(page.get_by_label("temperature", exact=True).last).to_have_value("2")
    pull(page, heat, -300)
    expect(heat).to_have_text("0.01")
    expect(heat).to_have_attribute("aria-valuenow", "0.01")
    page.locator("input[data-name=temperature]").fill("0.5")  # the other way round
    expect(heat).to_have_text("0.5")
    given.temperature = 0.5
    expect(page.locator("span.follows")).to_have_text(given.results()["largest weight"])
    assert shown.errors == []


@pytest.mark.browser
def test_the_keyboard_moves_a_number_within_the_bounds_of_the_field(read: Callable) -> None:
    page = read(WEIGHT, below=(AttentionPlayground(temperature=99.95),)).page
    heat = number(page, "temperature")
    page.keyboard.press("Tab")
    expect(heat).to_be_focused()
    assert heat.evaluate("one => getComputedStyle(one).outlineStyle") == "solid"
    for key, text in (("ArrowRight", "100"), ("ArrowUp", "100"), ("ArrowLeft", "99.9"), ("ArrowDown", "99.8")):
        page.keyboard.press(key)
        expect(heat).to_have_text(text)
    assert [heat.get_attribute(f"aria-value{end}") for end in ("min", "max", "now")] == ["0.01", "100", "99.8"]
    page.keyboard.press("Control+ArrowLeft")
    expect(heat).to_have_text("99.8")
    for key, text in (("Home", "0.01"), ("End", "100"), ("PageDown", "99"), ("PageUp", "100"), ("End", "100")):
        page.keyboard.press(key)
        expect(heat).to_have_text(text)


@pytest.mark.browser
def test_a_size_is_doubled_and_halved_and_a_small_one_is_counted(read: Callable) -> None:
    sizes = " ".join(
        drag("CostCalculator", trait, text) for trait, text in (("num_tokens", "1,024"), ("num_heads", "12"))
    )
    seen = drag("AttentionPlayground", "valid_len", "2")
    given = (CostCalculator(), AttentionPlayground(mask="valid length", valid_len=2))
    page = read(sizes + seen, below=given).page
    tokens, heads = number(page, "tokens N"), number(page, "heads h")
    pull(page, tokens, 49)
    expect(tokens).to_have_text("4,096")
    heads.focus()
    for text in ("6", "3", "3"):
        page.keyboard.press("ArrowLeft")
        expect(heads).to_have_text(text)
    length = number(page, "valid length")
    length.focus()
    for text in ("3", "4", "4"):
        page.keyboard.press("ArrowRight")
        expect(length).to_have_text(text)


@pytest.mark.browser
def test_a_finger_drags_a_number_and_the_page_stays(read: Callable) -> None:
    shown = read(LAYER, width=390, has_touch=True, is_mobile=True)
    page, wide = shown.page, number(shown.page, "width D")
    page.add_style_tag(content="main { padding: 300px 100px 3000px }")
    wide.scroll_into_view_if_needed()
    box, before = wide.bounding_box(), page.evaluate("scrollY")
    x, y = box["x"] + 4, box["y"] + 8
    finger = page.context.new_cdp_session(page)
    for kind, right, down in (("touchStart", 0, 0), ("touchMove", 10, 30), ("touchMove", 50, 60), ("touchEnd", 0, 0)):
        points = [] if kind == "touchEnd" else [{"x": x + right, "y": y + down}]
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    expect(wide).to_have_text("1,024")
    assert page.evaluate("scrollY") == before
    assert shown.errors == []


@pytest.mark.browser
def test_formulas_give_in_the_browser_what_they_give_in_python(read: Callable) -> None:
    cases = [("scores", {"d": d}) for d in (1, 2, 16, 50, 64, 256, 1000, 1024)]
    cases += [("average", {"w": w, "f": f}) for w in (0, 29, 50, 75, 100) for f in (-4, 0, 2)]
    cases += [("rotation", {"t": t, "j": j}) for t, j in itertools.product((0, 1, 7, 63, 100, 200), (0, 5, 63, 199))]
    cases += [("passes", {"N": N}) for N in (1, 2, 1000, 65_536)]
    sizes = itertools.product((1, 256, 4096, 65_536), (1, 3, 8), (1, 128, 2048, 1_048_576))
    cases += [("layer", dict(zip("DhN", each, strict=True))) for each in sizes]
    paragraphs, wanted = [], []
    for name, values in cases:
        results = sentences.FORMULAS[name].results(values)
        dragged = " ".join(drag(name, trait, sentences.written(value)) for trait, value in values.items())
        paragraphs.append(dragged + " ".join(follows(name, each, "?") for each in results))
        wanted += list(results.values())
    shown = read(*paragraphs)
    assert shown.page.locator("span.follows").all_inner_texts() == wanted
    assert shown.errors == []


@pytest.mark.browser
def test_clocks_follow_the_dragged_positions(read: Callable) -> None:
    """The angle between the hands is said and drawn."""
    sentence = f"{drag('rotation', 't', '7')} {drag('rotation', 'j', '5')} {follows('rotation', 'apart', '?')}"
    shown = read(sentence)
    drawn = shown.page.locator(".mhalib-clocks svg")
    expect(drawn).to_have_count(4)
    tip = shown.page.locator(".mhalib-clock-query").first
    for steps, angle in ((0, 7), (1, 8)):
        for _ in range(steps):
            number(shown.page, "position of the query").press("ArrowRight")
        assert float(tip.get_attribute("x2") or 9) == pytest.approx(0.97 * math.sin(angle), abs=1e-3)
        assert float(tip.get_attribute("y2") or 9) == pytest.approx(-0.97 * math.cos(angle), abs=1e-3)
    expect(shown.page.locator("span.follows")).to_have_text("172°, 17°, 2°, 0°")
    below = [one.split("\n") for one in drawn.evaluate_all("(all) => all.map(({ textContent }) => textContent)")]
    rates = ("57°", "5.7°", "0.57°", "0.057°")
    told = ("172°", "17°", "2°", "0°")
    assert below == [[f"{angle}{rate} a position"] for angle, rate in zip(told, rates, strict=True)]
    assert shown.errors == []


@pytest.mark.browser
@pytest.mark.parametrize("places", [(7, 5), (5, 7), (60, 3), (3, 60), (4, 4), (4, 0), (5, 0)])
def test_the_angle_that_is_told_is_shaded(read: Callable, places: tuple[int, int]) -> None:
    """The smaller one between the hands."""
    query, key = map(str, places)
    sentence = f"{drag('rotation', 't', query)} {drag('rotation', 'j', key)} {follows('rotation', 'apart', '?')}"
    drawn = read(sentence).page.locator(".mhalib-clocks path")
    for rate, path in zip((1, 0.1, 0.01, 0.001), drawn.all(), strict=True):
        numbers = [float(one) for one in re.findall(r"-?[\d.]+", path.get_attribute("d") or "")]
        ends = [complex(numbers[2], numbers[3]), complex(numbers[-2], numbers[-1])]
        wanted = [0.5 * complex(math.sin(place * rate), -math.cos(place * rate)) for place in places]
        apart = (places[0] - places[1]) * rate % (2 * math.pi)
        if apart <= math.pi:  # the arc, drawn clockwise, begins at the key
            wanted.reverse()
        assert ends == pytest.approx(wanted, abs=2e-3)
        assert numbers[7] == 0  # not the larger of the two arcs


@pytest.mark.browser
def test_clocks_say_the_smaller_angle(read: Callable) -> None:
    sentence = f"{drag('rotation', 't', '10')} {drag('rotation', 'j', '5')} {follows('rotation', 'apart', '?')}"
    page = read(sentence).page
    expect(page.locator("span.follows")).to_have_text("74°, 29°, 3°, 0°")
    expect(page.locator(".mhalib-clocks svg")).to_have_count(4)


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1280])
def test_shares_move_along_their_lines(read: Callable, width: int) -> None:
    """The man is in the middle, then where the dog is, then beyond it, and last where the cat is."""
    sentence = f"{drag('average', 'w', '75')} {drag('average', 'f', '2')} {follows('average', 'winners', '?')}"
    shown = read(sentence, width=width)
    page, weight = shown.page, number(shown.page, "weight of the first noun, in percent")
    for keys, first, second in (("", 75, 25), ("25 ArrowLeft", 50, 50), ("2 PageDown", 30, 70), ("1 End", 100, 0)):
        for _ in range(int(keys.split()[0]) if keys else 0):
            weight.press(keys.split()[1])
        expect(page.locator("span.follows")).to_contain_text(
            f"dog bites man: dog {first / 100:.2f}, man {second / 100:.2f}"
        )
        at = {noun: drawn_at(page, f".mhalib-share-{noun}", "cx") for noun in ("cat", "dog", "man")}
        start, end = (drawn_at(page, ".mhalib-shares line", name)[0] for name in ("x1", "x2"))
        shares = {noun: [100 * (x - start) / (end - start) for x in found] for noun, found in at.items()}
        assert shares["cat"] == [0, 0]
        assert shares["dog"] == pytest.approx([first, second])
        assert shares["man"] == pytest.approx([second, first])
        for word in page.locator(".mhalib-shares text").all():  # none is cut off
            word, whole = word.bounding_box(), page.locator(".mhalib-shares").bounding_box()
            assert whole["x"] <= word["x"] < word["x"] + word["width"] <= whole["x"] + whole["width"]
            assert word["height"] >= 10
    read_size = "one => parseFloat(getComputedStyle(one).fontSize) * one.getScreenCTM().a"
    assert page.locator(".mhalib-shares text").first.evaluate(read_size) >= 12
    boxes = [word.bounding_box() for word in page.locator(".mhalib-shares text").all()]
    for one, other in itertools.combinations(boxes, 2):  # no two lie on each other
        beside = one["x"] + one["width"] <= other["x"] or other["x"] + other["width"] <= one["x"]
        assert beside or one["y"] + one["height"] <= other["y"] or other["y"] + other["height"] <= one["y"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert shown.errors == []


@pytest.mark.browser
def test_a_straight_line_rings_one_of_its_ends(read: Callable) -> None:
    """The ring is where the slope is highest, and the sentence says so: with three nouns apart, never in the middle."""
    sentence = f"{drag('average', 'w', '75')} {drag('average', 'f', '4')} {follows('average', 'winners', '?')}"
    shown = read(sentence)
    page, factor = shown.page, number(shown.page, "factor of the readout")
    for f in range(4, -5, -1):
        expect(factor).to_have_text(str(f).replace("-", "−"))
        heights = drawn_at(page, ".mhalib-share-score", "cy")  # cat, man, dog, for each of two sentences
        ends = drawn_at(page, ".mhalib-shares line", "y1")[1::2], drawn_at(page, ".mhalib-shares line", "y2")[1::2]
        rings = page.locator(".mhalib-share-wins").evaluate_all("all => all.map(one => one.dataset.noun)")
        told = page.locator("span.follows").inner_text()
        wanted = []
        for i, (first, last) in enumerate(zip(*ends, strict=True)):
            cat, man, dog = (first + share * (last - first) for share in ((0, 0.25, 0.75), (0, 0.75, 0.25))[i])
            assert heights[3 * i : 3 * i + 3] == pytest.approx([cat, man, dog])
            highest = min(cat, man, dog)  # y grows downwards
            wanted += [noun for noun, y in (("cat", cat), ("man", man), ("dog", dog)) if y == highest]
        assert rings == wanted == (["dog", "man"] if f > 0 else ["cat", "cat"] if f else 2 * ["cat", "man", "dog"])
        assert re.findall(r"(\w+) wins", told) == (wanted if f else [])
        assert told.count("a tie") == (0 if f else 2)
        factor.press("ArrowLeft")
    assert shown.errors == []


@pytest.mark.browser
def test_a_factor_below_zero_wakes_and_counts_up(read: Callable) -> None:
    sentence = f"{drag('average', 'w', '75')} {drag('average', 'f', '−2')} {follows('average', 'winners', '?')}"
    page = read(sentence).page
    factor = number(page, "factor of the readout")
    expect(factor).to_have_attribute("aria-valuenow", "-2")
    expect(page.locator("span.follows")).to_contain_text("cat 0, cat wins")
    factor.press("ArrowRight")
    expect(factor).to_have_text("−1")


COUNT_WRITTEN = """() => {
    window.written = [];
    const tell = (all) => window.written.push(...all.map(({ target }) => target.textContent));
    const told = document.querySelector("span.follows");
    new MutationObserver(tell).observe(told, { childList: true, characterData: true, subtree: true });
}"""


@pytest.mark.browser
def test_what_is_still_so_is_not_told_again(read: Callable) -> None:
    """A screen reader reads out whatever is written into a live region, changed or not."""
    sentence = f"{drag('average', 'w', '75')} {drag('average', 'f', '4')} {follows('average', 'winners', '?')}"
    shown = read(sentence)
    page, factor = shown.page, number(shown.page, "factor of the readout")
    expect(page.locator("span.follows")).to_have_attribute("aria-live", "polite")
    page.evaluate(COUNT_WRITTEN)
    for f, news in ((3, 0), (2, 0), (1, 0), (0, 1), (-1, 2), (-2, 2)):
        factor.press("ArrowLeft")
        expect(factor).to_have_text(str(f).replace("-", "−"))
        assert len(page.evaluate("window.written")) == news
    assert page.locator(".mhalib-shares").count() == 1  # which was drawn anew each time
    assert shown.errors == []


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_discs_stay_apart_from_their_outlines_in_forced_colours(read: Callable, scheme: str) -> None:
    """The book's own background may be the colour of what is forced upon the outlines."""
    sentence = f"{drag('average', 'w', '75')} {drag('average', 'f', '2')} {follows('average', 'winners', '?')}"
    page = read(sentence, forced_colors="active", color_scheme=scheme).page
    outline = "white" if scheme == "dark" else "black"
    colours = f"color-scheme: light dark; --pst-color-background: {outline}"
    page.add_style_tag(content=f":root {{ {colours} }} body {{ background: canvas }}")
    seen = "one => [getComputedStyle(one).fill, getComputedStyle(one).stroke]"
    fill, stroke = page.locator(".mhalib-share-cat").first.evaluate(seen)
    ground = page.locator("body").evaluate("one => getComputedStyle(one).backgroundColor")
    assert fill == ground != stroke
    fills = {page.locator(f".mhalib-share-{noun}").first.evaluate(seen)[0] for noun in ("cat", "man", "dog")}
    assert len(fills) == 3


@pytest.mark.browser
def test_results_of_instruments_are_the_same_in_the_browser(read: Callable) -> None:
    vectors = [[-3.0, 0.004], [100.0, -99.0], [0.0, -0.001]]
    makes = [
        lambda: AttentionPlayground(list("abc"), vectors, vectors, [[-2000.0 / 21, 0.0], [1.0, 100.0], [-0.001, 5.0]]),
        lambda: AttentionPlayground(list("ab"), [[0, 0]] * 2, [[0, 0]] * 2, [[-0.001, -0.006]] * 2),
        lambda: CostCalculator(8, 1, num_tokens=707),  # its scores have 999,698 bytes
        lambda: CostCalculator(12_288, 96, num_layers=96, num_tokens=2048),
        lambda: CostCalculator(8, 2, num_layers=1, num_tokens=3, bytes_per_number=1),
        lambda: CostCalculator(65_536, 1024, num_layers=1000, num_tokens=10_000_000, batch_size=1_000_000),
    ]
    for make in makes:
        given = make()
        name, results = type(given).__name__, given.results()
        page = read(" ".join(follows(name, each, "?") for each in results), below=(given,)).page
        assert page.locator("span.follows").all_inner_texts() == list(results.values())


@pytest.mark.browser
def test_sizes_that_do_not_divide_have_no_results(read: Callable) -> None:
    text = drag("CostCalculator", "num_heads", "12") + follows("CostCalculator", "parameters", "28.3 million")
    page = read(text, below=(CostCalculator(num_layers=12),)).page
    page.locator("input[data-name=num_heads]").fill("7")
    expect(page.locator("span.drag")).to_have_text("7")
    expect(page.locator("span.follows")).to_have_text("–")
    assert CostCalculator.results(CostCalculator()) != {}


@pytest.mark.browser
def test_each_sentence_has_its_own_numbers_and_tells_them_to_screen_readers(read: Callable) -> None:
    page = read(LAYER, LAYER, WEIGHT, below=(AttentionPlayground(),)).page
    first = number(page, "heads h").first
    first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("span.follows").all_inner_texts() == ["16", "32", "0.65"]
    assert number(page, "heads h").all_inner_texts() == ["16", "8"]
    live = [one.get_attribute("aria-live") for one in page.locator("span.follows").all()]
    assert live == ["polite", "polite", None]  # the playground speaks for itself


@pytest.mark.browser
def test_what_cannot_be_read_stays_a_plain_number(read: Callable) -> None:
    bad = [
        drag("layer", "constructor", "3"),
        drag("layer", "D", "many") + follows("layer", "d", "1"),
        drag("constructor", "D", "3") + follows("constructor", "d", "3"),
        drag("NotYetMade", "D", "3"),
        follows("AttentionPlayground", "toString", "3"),
        drag("AttentionPlayground", "tokens", "3"),
    ]
    shown = read(*bad, WEIGHT, below=(AttentionPlayground(),))
    assert shown.page.locator("p [role=slider]").count() == 1
    assert shown.page.locator("p").all_inner_texts()[:6] == ["3", "many1", "33", "3", "3", "3"]
    assert shown.errors == []


@pytest.mark.browser
def test_without_javascript_it_is_the_stored_number(read: Callable) -> None:
    page = read(WEIGHT, below=(AttentionPlayground(),), java_script_enabled=False).page
    assert page.locator("p").first.inner_text() == "At 1: 0.65"
    assert page.locator("span.drag").evaluate("one => getComputedStyle(one).cursor") == "auto"


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_is_accessible(read: Callable, width: int, scheme: str) -> None:
    shown = read(LAYER, WEIGHT, below=(AttentionPlayground(),), width=width, color_scheme=scheme)
    if scheme == "dark":
        shown.page.add_style_tag(content=DARK + "p { color: var(--pst-color-text-base) }")
    assert serious_findings(shown.page) == []
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.fixture(scope="module")
def strict_site() -> Iterator[str]:
    """The built book under `script-src 'self'`."""
    with chromium.serving(HTML, StrictHandler) as address:
        yield address


@pytest.mark.browser
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.page(f"chapters/{name}.", "mhalib/widgets/")) for name in PAGES]
)
def test_all_wake_on_the_built_page_and_say_what_is_stored(browser: Browser, strict_site: str, name: str) -> None:
    page = browser.new_page()
    page.goto(f"{strict_site}chapters/{name}.html{ALL_OPEN}")
    spans = [span for block in SENTENCES[name] for span in block]
    assert page.locator("span.drag, span.follows").all_inner_texts() == [html.unescape(span.text) for span in spans]
    assert page.locator("span.drag[role=slider], span.follows[data-awake]").count() == len(spans)
    page.close()


@pytest.mark.browser
def test_the_plane_of_chapter_1_is_near_the_top_and_fits_a_screen(browser: Browser, strict_site: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{strict_site}chapters/01_weighted_average.html")
    section = page.locator("section#six-words-in-a-plane")
    assert section.evaluate("one => [...document.querySelectorAll('article section section')].indexOf(one)") <= 2
    assert section.locator(".mhalib").bounding_box()["height"] < 800
    page.close()
