"""The hunt for a mistake, in Chromium: a strike is judged as Python would, by mouse and by keys, on a phone, too."""

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


def cells(page: Page) -> list[list[str]]:
    """By check, what the table says of each mistake: `?` is not known yet."""
    rows = "all => all.map((row) => [...row.cells].slice(1, -1).map((cell) => cell.textContent))"
    return page.locator(".mhalib tbody tr").evaluate_all(rows)


def test_checks_clear_suspects_until_one_is_left(show: Callable) -> None:
    shown = show(hunt())
    page = shown.page
    expect(voice(page)).to_have_text("Broken layer 1 of 7. Which check first?")
    assert names_of_columns(page) == MISTAKES
    assert struck(page) == marked(page) == []
    press(page, "split")
    expect(voice(page)).to_have_text("Run a check first.")
    press(page, "rows sum to 1")
    expect(voice(page)).to_have_text("rows sum to 1 passes. Whom does that clear? Press each name.")
    press(page, "softmax")
    said = "softmax is cleared: it would have failed rows sum to 1. 6 left: which check next?"
    expect(voice(page)).to_have_text(said)
    press(page, "equals a loop")
    press(page, "clear for me")
    expect(voice(page)).to_have_text("Nobody is cleared, 6 left.")
    press(page, "nothing but ones")
    press(page, "merge")
    expect(voice(page)).to_have_text("merge is cleared: it would have failed nothing but ones.")
    press(page, "scale")
    said = "scale stays: it would pass nothing but ones, too. Only those that would fail are cleared."
    expect(voice(page)).to_have_text(said)
    expect(page.get_by_text("Found:")).to_have_text("Found: 0 of 7. Struck wrongly: 1.")
    assert struck(page) == ["softmax, cleared", "merge, cleared"]
    press(page, "clear for me")
    expect(voice(page)).to_have_text("2 cleared, 3 left.")
    assert struck(page) == [f"{name}, cleared" for name in ("split", "swap", "softmax", "merge")]
    assert [name for name in names_of_columns(page) if "," in name] == struck(page)
    assert marked(page) == []
    press(page, "alone")
    press(page, "mask")
    expect(voice(page)).to_have_text("mask is cleared: it would have passed alone.")
    press(page, "scale")
    expect(voice(page)).to_have_text("Only repeat is left, after 4 checks.")
    assert marked(page) == ["repeat"]
    expect(page.locator("td.mhalib-mistake-hunt-result")).to_have_text(["passes", "", "", "fails", "passes", "fails"])
    expect(page.get_by_text("Found:")).to_have_text("Found: 1 of 7, after 4 checks. Struck wrongly: 1.")
    assert shown.errors == []


@pytest.mark.parametrize("layer", range(7))
def test_pressed_or_set_in_python_a_page_shows_what_python_says(show: Callable, layer: int) -> None:
    made = hunt(layer=layer)
    pressed = show(made).page
    for run in ([], [2], [2, 4, 0], [2, 4, 0, 1, 3, 5]):
        for c in run[len(made.done) :]:
            press(pressed, made.checks[c])
        if run:
            press(pressed, "clear for me")
        made.done = run
        made.struck = [m for m, name in enumerate(MISTAKES) if name not in made.left()]
        reports = ["passes" if made.passes(check) else "fails" for check in made.checks]
        drawn = show(made).page
        for page in (pressed, drawn):
            said = page.locator("td.mhalib-mistake-hunt-result").all_inner_texts()
            assert said == [report if c in run else "" for c, report in enumerate(reports)]
            assert [name for name in MISTAKES if f"{name}, cleared" not in struck(page)] == made.left()
            assert marked(page) == (made.left() if len(made.left()) == 1 else [])
        assert cells(drawn) == cells(pressed)


def test_a_cell_is_known_once_its_suspect_was_tried_and_stays_known(show: Callable) -> None:
    page = show(hunt()).page
    assert cells(page) == [["?"] * 7] * 6
    press(page, "alone")
    assert cells(page) == [["?"] * 7] * 6
    press(page, "mask")  # rightly: the layer fails, and this one would have passed
    press(page, "swap")  # wrongly
    alone = ["?", "catches", "?", "?", "does not catch", "?", "?"]
    assert cells(page) == [["?"] * 7] * 3 + [alone] + [["?"] * 7] * 2
    press(page, "next layer")
    assert cells(page)[3] == alone
    press(page, "other padding")
    press(page, "clear for me")
    assert cells(page)[3] == alone
    assert cells(page)[2] == ["catches", "catches", "?", "catches", "catches", "?", "?"]
    press(page, "rows sum to 1")
    press(page, "clear for me")
    expect(voice(page)).to_have_text("Only softmax is left, after 2 checks.")  # so this one's are known, too
    assert cells(page)[0] == ["does not catch"] * 5 + ["catches", "does not catch"]
    assert cells(page)[2] == ["catches" if name in CATCHES["other padding"] else "does not catch" for name in MISTAKES]


def test_cells_are_filled_where_a_check_catches_a_mistake_and_pale_where_it_is_cleared(show: Callable) -> None:
    page = show(hunt(done=[0, 3, 4], struck=[0, 1, 2, 4, 5, 6])).page
    expect(voice(page)).to_have_text("Only repeat is left, after 3 checks.")
    fills = page.locator(".mhalib tbody tr").evaluate_all(
        "all => all.map((row) => [...row.cells].slice(1, -1).map((cell) => getComputedStyle(cell).backgroundColor))"
    )
    nothing, full = "rgba(0, 0, 0, 0)", fills[3][3]
    assert "/" not in full
    pale = full.replace(")", " / 0.22)")
    for c, ((_, caught), row) in enumerate(zip(CATCHES.items(), fills, strict=True)):
        shade = {name: full if name == "repeat" else pale for name in MISTAKES}
        assert row == [shade[name] if name in caught and c in (0, 3, 4) else nothing for name in MISTAKES]


def test_a_strike_that_no_check_clears_does_not_count(show: Callable) -> None:
    """Whoever sent it: here swap, which `alone` catches as it does the culprit."""
    page = show(hunt(done=[3], struck=[0, 1])).page
    assert struck(page) == ["split, cleared"]


def test_the_next_layer_and_the_same_one_again_begin_without_checks(show: Callable) -> None:
    page = show(hunt(layer=5)).page
    expect(voice(page)).to_have_text("Broken layer 6 of 7. Which check first?")
    press(page, "other padding")
    press(page, "clear for me")
    expect(voice(page)).to_have_text("3 cleared, 4 left.")
    press(page, "start again")
    expect(voice(page)).to_have_text("Broken layer 6 of 7. Which check first?")
    assert struck(page) == []
    press(page, "other padding")
    press(page, "merge")
    press(page, "next layer")
    expect(voice(page)).to_have_text("Broken layer 7 of 7. Which check first?")
    assert struck(page) == page.locator("td.mhalib-mistake-hunt-result:not(:empty)").all_inner_texts() == []
    press(page, "next layer")
    expect(voice(page)).to_have_text("Broken layer 1 of 7. Which check first?")
    press(page, "alone")
    press(page, "clear for me")
    expect(voice(page)).to_have_text("5 cleared, 2 left.")


def test_the_score_says_which_layers_are_found_and_after_how_many_checks(show: Callable) -> None:
    page = show(hunt()).page
    score = page.get_by_text("Found:")
    expect(score).to_have_count(0)

    def find(*checks: str) -> None:
        for name in checks:
            press(page, name)
        press(page, "clear for me")

    find("rows sum to 1", "nothing but ones", "alone")
    expect(score).to_have_text("Found: 1 of 7, after 3 checks. Struck wrongly: 0.")
    press(page, "start again")
    find("nothing but ones", "alone")
    expect(voice(page)).to_have_text("Only repeat is left, after 2 checks.")  # (of a layer found before)
    expect(score).to_have_text("Found: 1 of 7, after 3 checks. Struck wrongly: 0.")
    press(page, "next layer")
    press(page, "rows sum to 1")
    press(page, "softmax")
    press(page, "softmax")
    expect(score).to_have_text("Found: 1 of 7, after 3 checks. Struck wrongly: 2.")
    press(page, "clear for me")
    expect(score).to_have_text("Found: 2 of 7, after 3, 1 checks. Struck wrongly: 2.")


def test_a_check_is_run_once_and_stays_where_the_keys_are(show: Callable) -> None:
    page = show(MistakeHunt({"one": ["a"], "two": ["a", "b"]}, ["a", "b", "c"])).page
    one = page.get_by_role("button", name="one")
    expect(one).to_have_attribute("aria-disabled", "false")
    for _ in range(4):
        page.keyboard.press("Tab")
    expect(one).to_be_focused()
    page.keyboard.press("Enter")
    said = "one fails. Whom does that clear? Press each name."
    expect(voice(page)).to_have_text(said)
    expect(one).to_be_focused()
    expect(one).to_have_attribute("aria-disabled", "true")
    expect(one).to_have_css("opacity", "1")
    page.keyboard.press("Enter")
    expect(voice(page)).to_have_text(said)
    page.keyboard.press("Shift+Tab")
    c = page.locator(".mhalib-mistake-hunt-name").last
    page.keyboard.press("Space")
    expect(c).to_be_focused()
    said = "c is cleared: it would have passed one."
    expect(voice(page)).to_have_text(said)
    expect(c).to_have_attribute("aria-disabled", "true")
    page.keyboard.press("Space")
    expect(voice(page)).to_have_text(said)
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Space")
    expect(voice(page)).to_have_text("Only a is left, after 1 check.")


def test_mistakes_that_no_check_tells_apart_stay_together(show: Callable) -> None:
    made = MistakeHunt({"one": ["a"], "two": []}, ["a", "b", "c"], layer=1)
    page = show(made).page
    press(page, "one")
    press(page, "a")
    expect(voice(page)).to_have_text("a is cleared: it would have failed one. 2 left: which check next?")
    press(page, "two")
    expect(voice(page)).to_have_text("No check tells those apart that are left.")
    assert marked(page) == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_it_fits_and_is_accessible(show: Callable, width: int, scheme: str) -> None:
    """All seven columns and the last one are seen on a phone, where cells are about 24 px wide; 40 px elsewhere."""
    page = show(hunt(), width=width, color_scheme=scheme).page
    before = page.locator(".mhalib table").bounding_box()
    for name in ("rows sum to 1", "mask", "nothing but ones", "mask", "alone", "repeat", "clear for me"):
        press(page, name)
        assert page.locator(".mhalib table").bounding_box() == before  # nothing moves under the finger
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".mhalib-frame").evaluate("one => one.scrollWidth <= one.clientWidth")
    assert before is not None
    assert before["width"] <= (358 if width == 390 else 520)
    widths = page.locator(".mhalib-mistake-hunt-catches").evaluate_all("all => all.map((one) => one.offsetWidth)")
    least, most = (23, 26) if width == 390 else (38, 44)
    assert least <= min(widths) <= max(widths) <= most
    heights = page.locator(".mhalib table button").evaluate_all("all => all.map((one) => one.offsetHeight)")
    assert min(heights) >= 24
    assert serious_findings(page) == []


def test_what_a_colour_says_stays_where_the_system_chooses_colours(show: Callable) -> None:
    page = show(hunt(done=[3, 4, 5], struck=[0, 1, 2, 4, 5, 6]), forced_colors="active").page
    assert marked(page) == ["repeat"]
    shades = []
    for row, column in ((4, 3), (5, 2), (5, 3)):  # not caught, of a cleared suspect, of the one that is left
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
    assert page.locator(".mhalib tbody button").first.inner_text() == evil
    titles = page.locator(".mhalib tr button").evaluate_all("all => all.map((one) => one.title)")
    assert titles == [evil, "Of objects.", "", evil, ""]
    press(page, "constructor")
    page.locator(".mhalib tbody button").first.click()
    press(page, "b")
    expect(voice(page)).to_have_text(f"b is cleared: it would have passed {evil}.")
    press(page, "clear for me")
    expect(voice(page)).to_have_text(f"Only {evil} is left, after 2 checks.")
    assert shown.errors == []


def test_it_speaks_french_where_its_page_does(show: Callable) -> None:
    """Every phrase of the instrument has its French one; names stay as they are."""
    catalogue = catalogues.read("fr", catalogues.INSTRUMENTS)
    assert catalogue is not None
    words = book_language.words_script({str(one.id): str(one.string) for one in catalogue if one.id})
    page = show(MistakeHunt({**CATCHES, "all but one": MISTAKES[1:]}, MISTAKES, order=ORDER)).page
    page.evaluate(words)
    heads = page.locator(".mhalib th[scope=col]")
    expect(heads.first).to_have_text("tests")
    expect(heads.last).to_have_text("cette couche")
    results = page.locator("td.mhalib-mistake-hunt-result:not(:empty)")
    score = page.locator(".mhalib-row span")
    next_one = "restants\u00a0: quel test ensuite\u00a0?"
    for name, said in (
        ("", "Couche fautive 1 sur 7. Quel test d’abord\u00a0?"),
        ("split", "Lancez d’abord un test."),
        ("all but one", "all but one échoue. Qui cela innocente-t-il\u00a0? Appuyez sur chaque nom."),
        ("swap", "swap reste\u00a0: all but one échouerait aussi. Seuls ceux qui réussiraient sont innocentés."),
        ("split", f"split est innocenté\u00a0: all but one aurait réussi. 6 {next_one}"),
        ("rows sum to 1", "rows sum to 1 réussit. Qui cela innocente-t-il\u00a0? Appuyez sur chaque nom."),
        ("merge", "merge reste\u00a0: rows sum to 1 réussirait aussi. Seuls ceux qui échoueraient sont innocentés."),
        ("softmax", f"softmax est innocenté\u00a0: rows sum to 1 aurait échoué. 5 {next_one}"),
        ("alone", "alone échoue. Qui cela innocente-t-il\u00a0? Appuyez sur chaque nom."),
        ("scale", "scale est innocenté\u00a0: alone aurait réussi."),
        ("innocenter pour moi", "2 innocentés, 2 restants."),
        ("innocenter pour moi", "Personne n’est innocenté, 2 restants."),
        ("nothing but ones", "nothing but ones réussit. Qui cela innocente-t-il\u00a0? Appuyez sur chaque nom."),
        ("swap", "Il ne reste que repeat, après 4 tests."),
        ("couche suivante", "Couche fautive 2 sur 7. Quel test d’abord\u00a0?"),
        ("nothing but ones", "nothing but ones échoue. Qui cela innocente-t-il\u00a0? Appuyez sur chaque nom."),
        ("repeat", "repeat est innocenté\u00a0: nothing but ones aurait réussi."),
        ("recommencer", "Couche fautive 2 sur 7. Quel test d’abord\u00a0?"),
        ("rows sum to 1", "rows sum to 1 échoue. Qui cela innocente-t-il\u00a0? Appuyez sur chaque nom."),
        ("innocenter pour moi", "Il ne reste que softmax, après 1 test."),
    ):
        if name:
            press(page, name)
        expect(voice(page)).to_have_text(said)
    expect(heads.nth(1)).to_have_text("split, innocenté")
    expect(results).to_have_text(["échoue"])
    expect(score).to_have_text("Trouvées\u00a0: 2 sur 7, après 4, 1 tests. Innocentés à tort\u00a0: 2.")
    expect(page.locator(".mhalib-mistake-hunt-catches").first).to_have_text("attrape")
    expect(page.get_by_text("n’attrape pas").first).to_be_attached()
    alike = show(MistakeHunt({"one": ["a"]}, ["a", "b", "c"], layer=1)).page
    alike.evaluate(words)
    press(alike, "one")
    press(alike, "a")
    expect(voice(alike)).to_have_text("Aucun test ne distingue ceux qui restent.")
