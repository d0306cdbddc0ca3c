"""The hunt for a mistake, in Chromium: checks clear suspects as in Python, by mouse and by keys, on a phone, too."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from accessibility import serious_findings
from PIL import Image
from playwright.sync_api import Locator, Page, expect

from mhalib.widgets import MistakeHunt
from tools.pages import book_language, catalogues

pytestmark = [
    pytest.mark.browser,
    pytest.mark.instrument("mhalib/widgets/mistake_hunt", "locale/fr/LC_MESSAGES/instruments.po"),
]

MISTAKES = ["split", "swap", "scale", "repeat", "mask", "softmax", "merge"]
CATCHES = {
    "rows sum to 1": ["softmax"],
    "other order": ["split", "softmax"],
    "other padding": ["split", "swap", "repeat", "mask"],
    "alone": ["swap", "repeat"],
    "nothing but ones": ["split", "swap", "softmax", "merge"],
    "equals a loop": MISTAKES,
}
ORDER = ["repeat", "softmax", "split", "swap", "scale", "mask", "merge"]


def hunt(**settings: object) -> MistakeHunt:
    return MistakeHunt(CATCHES, MISTAKES, order=ORDER, caption="Who?", **settings)  # type: ignore[arg-type]


def voice(page: Page) -> Locator:
    return page.locator(".mhalib-voice")


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def names_of_columns(page: Page) -> list[str]:
    """As screen readers say them."""
    return page.locator(".mhalib th[scope=col]").evaluate_all("all => all.map((one) => one.textContent)")[1:-1]


def struck(page: Page) -> list[str]:
    """The suspects whose names are struck out."""
    return page.locator(".mhalib-mistake-hunt-name").evaluate_all(
        "all => all.filter((one) => getComputedStyle(one).textDecorationLine === 'line-through')"
        ".map((one) => one.textContent)"
    )


def marked(page: Page) -> list[str]:
    """The suspects whose names are bold and framed."""
    return page.locator(".mhalib th[scope=col]").evaluate_all(
        "all => all.map((one) => [one.textContent, getComputedStyle(one)])"
        ".filter(([, style]) => style.fontWeight === '700' && style.outlineStyle === 'solid').map(([name]) => name)"
    )


def test_checks_clear_suspects_until_one_is_left(show: Callable) -> None:
    shown = show(hunt())
    page = shown.page
    expect(voice(page)).to_have_text("Layer 1 of 7 is broken. Which check first?")
    assert names_of_columns(page) == MISTAKES
    assert struck(page) == marked(page) == []
    press(page, "rows sum to 1")
    expect(voice(page)).to_have_text("rows sum to 1 passes: 1 cleared, 6 left.")
    press(page, "equals a loop")
    expect(voice(page)).to_have_text("equals a loop fails: nobody is cleared, 6 left.")
    press(page, "nothing but ones")
    expect(voice(page)).to_have_text("nothing but ones passes: 3 cleared, 3 left.")
    assert struck(page) == ["split", "swap", "softmax", "merge"]
    assert names_of_columns(page) == [f"{name}, cleared" if name in struck(page) else name for name in MISTAKES]
    assert marked(page) == []
    press(page, "alone")
    expect(voice(page)).to_have_text("Only repeat is left, after 4 checks.")
    assert marked(page) == ["repeat"]
    expect(page.locator("td.mhalib-mistake-hunt-result")).to_have_text(["passes", "", "", "fails", "passes", "fails"])
    assert shown.errors == []


@pytest.mark.parametrize("layer", range(7))
def test_pressed_or_set_in_python_a_page_shows_what_python_says(show: Callable, layer: int) -> None:
    made = hunt(layer=layer)
    pressed = show(made).page
    for run in ([], [2], [2, 4, 0], [2, 4, 0, 1, 3, 5]):
        for c in run[len(made.done) :]:
            press(pressed, made.checks[c])
        made.done = run
        reports = ["passes" if made.passes(check) else "fails" for check in made.checks]
        drawn = show(made).page
        for page in (pressed, drawn):
            said = page.locator("td.mhalib-mistake-hunt-result").all_inner_texts()
            assert said == [report if c in run else "" for c, report in enumerate(reports)]
            assert [name for name in MISTAKES if name not in struck(page)] == made.left()
            assert marked(page) == (made.left() if len(made.left()) == 1 else [])
        assert voice(drawn).inner_text() == voice(pressed).inner_text()


def test_cells_are_filled_where_a_check_catches_a_mistake_and_pale_where_it_is_cleared(show: Callable) -> None:
    page = show(hunt(done=[3])).page
    fills = page.locator(".mhalib tbody tr").evaluate_all(
        "all => all.map((row) => [...row.cells].slice(1, -1).map((cell) => getComputedStyle(cell).backgroundColor))"
    )
    texts = page.locator(".mhalib tbody tr").evaluate_all(
        "all => all.map((row) => [...row.cells].slice(1, -1).map((cell) => cell.textContent))"
    )
    nothing, pale, full = "rgba(0, 0, 0, 0)", fills[5][0], fills[5][1]
    assert "/" not in full
    assert pale == full.replace(")", " / 0.22)")
    for (_, caught), row, said in zip(CATCHES.items(), fills, texts, strict=True):
        shade = {name: full if name in ("swap", "repeat") else pale for name in MISTAKES}
        assert row == [shade[name] if name in caught else nothing for name in MISTAKES]
        assert said == ["catches" if name in caught else "" for name in MISTAKES]


def test_the_next_layer_and_the_same_one_again_begin_without_checks(show: Callable) -> None:
    page = show(hunt(layer=5)).page
    expect(voice(page)).to_have_text("Layer 6 of 7 is broken. Which check first?")
    press(page, "other padding")
    expect(voice(page)).to_have_text("other padding fails: 3 cleared, 4 left.")
    press(page, "start again")
    expect(voice(page)).to_have_text("Layer 6 of 7 is broken. Which check first?")
    assert struck(page) == []
    press(page, "other padding")
    press(page, "next layer")
    expect(voice(page)).to_have_text("Layer 7 of 7 is broken. Which check first?")
    assert struck(page) == page.locator("td.mhalib-mistake-hunt-result:not(:empty)").all_inner_texts() == []
    press(page, "next layer")
    expect(voice(page)).to_have_text("Layer 1 of 7 is broken. Which check first?")
    press(page, "alone")
    expect(voice(page)).to_have_text("alone fails: 5 cleared, 2 left.")


def test_the_score_says_which_layers_are_found_and_after_how_many_checks(show: Callable) -> None:
    page = show(hunt()).page
    score = page.get_by_text("Found:")
    expect(score).to_have_count(0)
    for name in ("rows sum to 1", "nothing but ones", "alone"):
        press(page, name)
    expect(score).to_have_text("Found: 1 of 7; checks: 3.")
    press(page, "start again")
    press(page, "nothing but ones")
    press(page, "alone")
    expect(voice(page)).to_have_text("Only repeat is left, after 2 checks.")  # (of a layer found before)
    expect(score).to_have_text("Found: 1 of 7; checks: 3.")
    press(page, "next layer")
    press(page, "rows sum to 1")
    expect(score).to_have_text("Found: 2 of 7; checks: 3, 1.")


def test_a_check_is_run_once_and_stays_where_the_keys_are(show: Callable) -> None:
    page = show(MistakeHunt({"one": ["a"], "two": ["a", "b"]}, ["a", "b", "c"])).page
    one = page.get_by_role("button", name="one")
    expect(one).to_have_attribute("aria-disabled", "false")
    page.keyboard.press("Tab")
    expect(one).to_be_focused()
    page.keyboard.press("Enter")
    said = "Only a is left, after 1 check."
    expect(voice(page)).to_have_text(said)
    expect(one).to_be_focused()
    expect(one).to_have_attribute("aria-disabled", "true")
    expect(one).to_have_css("opacity", "1")
    page.keyboard.press("Enter")
    expect(voice(page)).to_have_text(said)
    for _ in range(3):
        page.keyboard.press("Tab")
    page.keyboard.press("Space")
    expect(voice(page)).to_have_text("Layer 2 of 3 is broken. Which check first?")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Space")
    expect(voice(page)).to_have_text("two fails: 1 cleared, 2 left.")


def test_mistakes_that_no_check_tells_apart_stay_together(show: Callable) -> None:
    made = MistakeHunt({"one": ["a"], "two": []}, ["a", "b", "c"], layer=1)
    page = show(made).page
    press(page, "one")
    expect(voice(page)).to_have_text("one passes: 1 cleared, 2 left.")
    press(page, "two")
    expect(voice(page)).to_have_text("two passes: nobody is cleared, 2 left. No check tells them apart.")
    assert marked(page) == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_it_fits_and_is_accessible(show: Callable, width: int, scheme: str) -> None:
    """All seven columns and the last one are seen on a phone, where cells are about 24 px wide; 40 px elsewhere."""
    page = show(hunt(), width=width, color_scheme=scheme).page
    before = page.locator(".mhalib table").bounding_box()
    for name in ("rows sum to 1", "nothing but ones", "alone"):
        press(page, name)
    assert page.locator(".mhalib table").bounding_box() == before  # nothing moves under the finger
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".mhalib-frame").evaluate("one => one.scrollWidth <= one.clientWidth")
    assert before is not None
    assert before["width"] <= (358 if width == 390 else 520)
    cells = page.locator(".mhalib-mistake-hunt-catches").evaluate_all("all => all.map((one) => one.offsetWidth)")
    least, most = (23, 26) if width == 390 else (38, 44)
    assert least <= min(cells) <= max(cells) <= most
    heights = page.locator(".mhalib tbody button").evaluate_all("all => all.map((one) => one.offsetHeight)")
    assert min(heights) >= 24
    assert serious_findings(page) == []


def test_what_a_colour_says_stays_where_the_system_chooses_colours(show: Callable) -> None:
    page = show(hunt(done=[3, 4]), forced_colors="active").page
    assert marked(page) == ["repeat"]
    shades = []
    for row, column in ((4, 3), (5, 2), (5, 3)):  # empty, of a cleared suspect, of the one that is left
        cell = page.locator(".mhalib tbody tr").nth(row).locator("td").nth(column)
        picture = Image.open(io.BytesIO(cell.screenshot())).convert("L")
        shades.append(picture.getpixel((picture.width // 2, picture.height // 2)))
    assert shades[0] - 30 > shades[1] > shades[2] + 100


def test_names_are_text_whoever_wrote_them(show: Callable) -> None:
    evil = "<img src=x onerror=alert(1)>"
    about = {evil: evil, "toString": "Of objects."}
    made = MistakeHunt({evil: [evil], "constructor": []}, [evil, "toString", "b"], caption=evil, about=about)
    shown = show(made)
    page = shown.page
    assert page.locator(".mhalib img").count() == 0
    assert page.locator(".mhalib button").first.inner_text() == evil
    titles = page.locator(".mhalib tr :is(th[scope=col], button)").evaluate_all("all => all.map((one) => one.title)")
    assert titles == ["", evil, "Of objects.", "", "", evil, ""]
    press(page, "constructor")
    press(page, evil)
    expect(voice(page)).to_have_text(f"Only {evil} is left, after 2 checks.")
    assert shown.errors == []


def test_it_speaks_french_where_its_page_does(show: Callable) -> None:
    """Every phrase of the instrument has its French one; names stay as they are."""
    catalogue = catalogues.read("fr", catalogues.INSTRUMENTS)
    assert catalogue is not None
    words = book_language.words_script({str(one.id): str(one.string) for one in catalogue if one.id})
    alike = show(MistakeHunt({"one": ["a"]}, ["a", "b", "c"], layer=1)).page
    alike.evaluate(words)
    press(alike, "one")
    expect(voice(alike)).to_have_text("one réussit\u00a0: 1 innocenté, 2 restants. Aucun test ne les distingue.")
    page = show(MistakeHunt({**CATCHES, "all but one": MISTAKES[1:]}, MISTAKES, order=ORDER)).page
    page.evaluate(words)
    heads = page.locator(".mhalib th[scope=col]")
    expect(heads.first).to_have_text("tests")
    expect(heads.last).to_have_text("cette couche")
    expect(page.locator(".mhalib-mistake-hunt-catches").first).to_have_text("attrape")
    results = page.locator("td.mhalib-mistake-hunt-result:not(:empty)")
    for name, said in (
        ("", "La couche 1 sur 7 est fautive. Quel test d’abord\u00a0?"),
        ("rows sum to 1", "rows sum to 1 réussit\u00a0: 1 innocenté, 6 restants."),
        ("equals a loop", "equals a loop échoue\u00a0: personne n’est innocenté, 6 restants."),
        ("nothing but ones", "nothing but ones réussit\u00a0: 3 innocentés, 3 restants."),
        ("other order", "other order réussit\u00a0: personne n’est innocenté, 3 restants."),
        ("alone", "Il ne reste que repeat, après 5 tests."),
        ("couche suivante", "La couche 2 sur 7 est fautive. Quel test d’abord\u00a0?"),
        ("rows sum to 1", "Il ne reste que softmax, après 1 test."),
        ("recommencer", "La couche 2 sur 7 est fautive. Quel test d’abord\u00a0?"),
        ("all but one", "all but one échoue\u00a0: 1 innocenté, 6 restants."),
        ("alone", "alone réussit\u00a0: 2 innocentés, 4 restants."),
    ):
        if name:
            press(page, name)
        expect(voice(page)).to_have_text(said)
    expect(heads.nth(1)).to_have_text("split, innocenté")
    expect(results).to_have_text(["réussit", "échoue"])
