"""Questions that the reader answers first, deeper sections, and few bars, in a small book in a real browser."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
import small_book
from accessibility import serious_findings
from bs4 import BeautifulSoup
from playwright.sync_api import Browser, Page, expect

from tools.editions import single_page
from tools.notebooks import core_words, notebooks, predictions
from tools.pages import chromium, folds, predict

IN_A_SMALL_BOOK = pytest.mark.page("tests/book/small_book.py")
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="72pt" height="36pt"><rect width="72" height="36"/></svg>'
LANGUAGE = {"language_info": {"name": "python", "pygments_lexer": "ipython3"}}
FIELDS: list[dict[str, Any]] = [
    {"ask": "one head with $W_q$", "kind": "number", "printed": "number: {}", "within": 0.1},
    {"ask": "Which word?", "kind": "choice", "choices": ["muddy", "river"]},
]
SEVERAL = {"ask": "Who?", "kind": "several", "choices": ["a", "b", "c"], "answer": ["c", "a"]}
SEVERAL |= {"holds": "assert gone == 2"}
RESULTS = {(1, 1): ("fox", 4), (1, 0): ("cat", 2), (0, 1): ("cow", 1), (0, 0): ("dog", 0)}  # by places in CHOICES
CHOICES = ["x.T", "x"]
TRIED = "".join(
    "<tr>" + "".join(f"<td>{cell}</td>" for cell in (*chosen, *found)) + "</tr>" for chosen, found in RESULTS.items()
)
TRIED = f'<table class="predict-tried" hidden>{TRIED}</table>'
SHORT = {"ask": "x", "kind": "choice", "choices": CHOICES}
FIELDS[1] |= {"answer": "river", "holds": "`number: {}` < 0.6"}


def markdown(*paragraphs: str, **metadata: Any) -> nbformat.NotebookNode:
    return nbformat.v4.new_markdown_cell("\n\n".join(paragraphs), metadata=metadata)


def code(source: str, *tags: str, printed: str = "", picture: bool = False, html: str = "") -> nbformat.NotebookNode:
    outputs = [nbformat.v4.new_output("stream", text=printed)] if printed else []
    outputs += [nbformat.v4.new_output("execute_result", {"text/html": html}, execution_count=1)] if html else []
    outputs += [nbformat.v4.new_output("display_data", {"image/svg+xml": SVG})] if picture else []
    shown = {"code_prompt_show": f"Show {source}", "code_prompt_hide": "Hide it", "image": {"alt": "A black bar"}}
    return nbformat.v4.new_code_cell(source, outputs=outputs, metadata={"tags": [*tags], "mystnb": shown})


EXERCISE = (
    "def f(x):\n    # BEGIN SOLUTION\n    return x\n    # INSTEAD\n    # return -x\n    # END SOLUTION\n\n\nchecks.f(f)"
)
HINTS = "\n\n".join(
    f"<details><summary>Hint {number}</summary>\n\n{said}\n\n</details>"
    for number, said in enumerate(("Look at {0}.", "Look again."), start=1)
)
CELLS = [
    markdown("# Weighted average\n\nA hook that makes one read."),
    markdown("## Core\n\nFirst words: 75 % of 5 5 2 2, and `1 % 2 2`."),
    markdown("**Predict.** What will one head do?", predict=FIELDS),
    code("x = 1", "hide-cell", printed="number: 0.5"),
    code("draw()", "hide-cell", picture=True),
    markdown(
        "**Figure 1.1.** What to see.",
        "<details><summary>Answer: what it does</summary>\n\nIt adds.\n\n</details>",
        "The core goes on.",
    ),
    markdown("**Predict.** And two heads?"),
    code("y = 2", "hide-cell", printed="two: 2"),
    markdown(
        "**Predict.** And three?",
        predict=[{"ask": "open", "kind": "number"}, {"ask": "range", "kind": "number", "printed": "{} to {}, most *"}],
    ),
    code("three = 3", "hide-cell"),
    code("w = 2", "hide-cell", printed="3 to 1, most 2"),
    markdown("**Predict.** Who goes?", predict=[SEVERAL]),
    code("assert gone == 2", "hide-cell", printed="gone: a c"),
    markdown(
        "**Predict.** Which two?",
        predict=[{"ask": name, "kind": "choice", "choices": CHOICES} for name in ("gap 1", "gap 2")],
        tried="Yours says “{0}”, and {1} are right.",
    ),
    code("tried()", "hide-cell", html=TRIED),
    markdown("It goes on again."),
    code("z = 3", "hide-input"),
    code("show()", "hide-input", printed="shown: 3"),
    markdown(
        "## Why the root\n\n*Deeper.* You can use it without this.",
        "### Inside\n\nMore of it.",
        "## After\n\nCore again.",
    ),
    markdown(
        "## Exercises",
        "1. Count `4 b a l l .` and `"
        + "long" * 9
        + "`.\n\n   <details><summary>Answer</summary>\n\n   Four.\n\n   </details>",
        "### In code\n\nA checker compares.",
    ),
    markdown("#### First (`first`)\n\nWrite it.\n\n" + HINTS.format("one")),
    code(EXERCISE, "exercise", "hide-input", printed="Verified"),
    markdown("#### Second (`second`)\n\nWrite that.\n\n" + HINTS.format("two")),
    code(EXERCISE.replace("    # INSTEAD\n    # return -x\n", ""), "exercise", "hide-input", printed="Verified"),
    markdown("## Recap\n\n- All of it."),
]
for place, cell in enumerate(CELLS):
    cell.id = f"cell-{place}"


def build(folder: Path, cells: list[nbformat.NotebookNode]) -> subprocess.CompletedProcess[str]:
    """A book of a start page and one chapter, with all settings of the real one."""
    pages = small_book.sources(folder, "01_weighted_average", "Weighted average")
    (pages / "index.md").write_text("# A small book\n\n[First](01_weighted_average.ipynb)\n", encoding="utf-8")
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=LANGUAGE), pages / "01_weighted_average.ipynb")
    moved = "04_mathematics: 05_mathematics\n09_weighted_average: 01_weighted_average\n"
    (pages / "moved.yml").write_text(moved, encoding="utf-8")
    command = [sys.executable, "-m", "tools.pages.sphinx_book", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=notebooks.ROOT)


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("book")
    done = build(folder, CELLS)
    assert done.returncode == 0, done.stderr
    return folder / "_build/html"


@pytest.fixture(scope="module")
def soup(html: Path) -> BeautifulSoup:
    return BeautifulSoup((html / "chapters/01_weighted_average.html").read_text("utf-8"), "html.parser")


@pytest.fixture(scope="module")
def page_address(html: Path) -> Iterator[str]:
    with chromium.serving(html) as address:
        yield f"{address}chapters/01_weighted_average.html"


@pytest.fixture
def page(browser: Browser, page_address: str) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    shown = context.new_page()
    errors: list[str] = []
    shown.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    shown.on("pageerror", lambda error: errors.append(str(error)))
    shown.goto(page_address)
    yield shown
    context.close()
    assert errors == []


def parts(page: Page) -> SimpleNamespace:
    """The first question, its form, and what belongs to its answer."""
    box = page.locator("div.predict").first
    inside = [box.get_by_text("number: 0.5"), box.locator("figure.captioned"), box.get_by_text("It adds.")]
    show, look = (box.get_by_role("button", name=name) for name in (predict.SHOW, predict.LOOK))
    return SimpleNamespace(box=box, inside=inside, show=show, look=look, said=box.locator(".predict-said"))


@IN_A_SMALL_BOOK
@pytest.mark.browser
def test_one_press_opens_number_figure_and_text_and_shows_what_the_reader_said(page: Page) -> None:
    one = parts(page)
    for part in one.inside:
        expect(part).to_be_hidden()
    page.get_by_label("one head").fill("0,6")
    page.get_by_text("river", exact=True).click()
    one.show.click()
    for part in one.inside:
        expect(part).to_be_visible()
    number, word = one.said.locator("p").all_inner_texts()
    assert number.startswith("one head with ")
    assert number.endswith(": You said 0,6: well guessed. It is 0.5.")
    assert word == "Which word? You said “river”, and so it is."
    assert one.said.get_attribute("role") == "status"
    assert page.evaluate("document.activeElement.className") == "predict-opened"
    assert one.box.locator("details.hide").count() == 0
    expect(one.show).to_be_hidden()
    one.box.locator("summary").first.click()
    expect(one.inside[0]).to_be_hidden()
    expect(one.show).to_be_focused()


@IN_A_SMALL_BOOK
@pytest.mark.browser
def test_enter_opens_the_answer_too(page: Page) -> None:
    page.get_by_text("river", exact=True).click()
    page.get_by_label("one head").fill("0.6")
    page.keyboard.press("Enter")
    one = parts(page)
    expect(one.inside[1]).to_be_visible()
    assert "You said 0.6: well guessed." in one.said.inner_text()


@IN_A_SMALL_BOOK
@pytest.mark.browser
def test_a_half_filled_form_asks_for_the_rest_and_opens_without_it_only_on_demand(page: Page) -> None:
    one = parts(page)
    page.get_by_label("one head").fill("0.6")
    one.show.click()
    expect(one.box.locator(".predict-nudge")).to_have_text(predict.NUDGE)
    assert page.evaluate("document.activeElement.type") == "radio"
    expect(one.inside[0]).to_be_hidden()
    one.look.click()
    expect(one.inside[0]).to_be_visible()
    assert "You said 0.6: well guessed." in one.said.inner_text()
    assert "Which" not in one.said.inner_text()


@IN_A_SMALL_BOOK
@pytest.mark.browser
def test_where_a_number_is_asked_for_words_open_nothing(page: Page) -> None:
    one = parts(page)
    page.get_by_text("river", exact=True).click()
    for words in ("about half", "é", "<b>", "%"):
        page.get_by_label("one head").fill(words)
        one.show.click()
        expect(one.box.locator(".predict-nudge")).to_have_text(predict.NUMBER)
        expect(page.get_by_label("one head")).to_be_focused()
        expect(one.inside[0]).to_be_hidden()


@IN_A_SMALL_BOOK
@pytest.mark.browser
@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("0.5", "You said 0.5, and so it is."),
        ("50 %", "You said 50 %, and so it is."),
        ("1/2", "You said 1/2, and so it is."),
        ("0.61", "You said 0.61: too high. It is 0.5."),
        ("−0.5", "You said −0.5: too low. It is 0.5."),
        ("1,024", "You said 1,024: too high. It is 0.5."),
        ("about 0.5", "You said about 0.5, and so it is."),
        ("head 2 or so", "You said head 2 or so: too high. It is 0.5."),
        (".5", "You said .5, and so it is."),
    ],
)
def test_the_answer_says_whether_the_reader_was_right(page: Page, written: str, said: str) -> None:
    one = parts(page)
    assert "river" not in one.box.locator("form").evaluate("form => form.dataset.right")
    page.get_by_label("one head").fill(written)
    page.get_by_text("muddy", exact=True).click()
    one.show.click()
    number, word = one.said.locator("p").all_inner_texts()
    assert number.endswith(said)
    assert word == "Which word? You said “muddy”; the answer is “river”."


@IN_A_SMALL_BOOK
@pytest.mark.browser
def test_what_is_open_is_not_judged(page: Page) -> None:
    box = page.locator("div.predict").nth(2)
    box.get_by_role("textbox").first.fill("3 or so")
    box.get_by_role("textbox").last.fill("2")
    box.get_by_role("button", name=predict.SHOW).click()
    said = box.locator(".predict-said p").all_inner_texts()
    assert said == ["open: You said: 3 or so.", "range: You said 2: well guessed. It is 1 to 3."]


@IN_A_SMALL_BOOK
@pytest.mark.browser
@pytest.mark.parametrize(
    ("ticked", "said"),
    [
        ("ca", "You said “a, c”, and so it is."),
        ("b", "You said “b”; the answer is “a, c”."),
        ("ab", "You said “a, b”; the answer is “a, c”."),
    ],
)
def test_several_can_be_ticked(page: Page, ticked: str, said: str) -> None:
    box = page.locator("div.predict").nth(3)
    for letter in ticked:
        box.get_by_role("checkbox", name=letter).check()
    box.get_by_role("button", name=predict.SHOW).click()
    assert box.locator(".predict-said").inner_text().strip() == said


@IN_A_SMALL_BOOK
@pytest.mark.browser
def test_what_came_of_the_readers_own_choices_is_told_again_after_each_change(page: Page) -> None:
    box = page.locator("div.predict").nth(4)

    def choose(gap: int, place: int) -> None:
        box.get_by_role("group", name=f"gap {gap}").get_by_role("radio", name=CHOICES[place], exact=True).check()

    choose(1, 1)
    box.get_by_role("button", name=predict.LOOK).click()
    expect(box.locator(".predict-said p")).to_have_text(["gap 1: You said: x."])  # nothing comes of half a guess
    for places, (said, right) in RESULTS.items():
        for gap, place in enumerate(places, start=1):
            choose(gap, place)
        mine, *others = box.locator(".predict-said p").all_inner_texts()
        assert mine == f"Yours says “{said}”, and {right} are right."
        assert others == [f"gap {gap}: You said: {CHOICES[place]}." for gap, place in enumerate(places, start=1)]
    expect(box.locator("table.predict-tried")).to_be_hidden()


@IN_A_SMALL_BOOK
@pytest.mark.browser
def test_an_empty_guess_is_asked_for_once_and_may_be_left_out(page: Page) -> None:
    one = parts(page)
    one.show.click()
    expect(page.get_by_label("one head")).to_be_focused()
    expect(one.box.locator(".predict-nudge")).to_have_text(predict.NUDGE)
    expect(one.inside[0]).to_be_hidden()
    one.look.click()
    expect(one.inside[2]).to_be_visible()
    expect(one.said).to_be_hidden()


@IN_A_SMALL_BOOK
def test_the_code_of_an_answer_is_behind_one_word_at_its_end(soup: BeautifulSoup) -> None:
    (answer,) = [one for one in soup.select("div.predict-opened") if "3 to 1, most 2" in one.text]
    (word,) = answer.select("details.figure-code")
    assert word is answer.find_all(recursive=False)[-1]
    assert [cell.text.strip() for cell in word.select("div.cell_input")] == ["three = 3", "w = 2"]


@IN_A_SMALL_BOOK
def test_no_line_ends_inside_a_percentage_or_a_row_of_digits(soup: BeautifulSoup) -> None:
    said = soup.find(string=re.compile("First words"))
    assert said.text.startswith("First words: 75\u00a0% of 5\u00a05\u00a02\u00a02, and")
    assert said.parent.code.text == "1 % 2 2"


@IN_A_SMALL_BOOK
@pytest.mark.browser
def test_a_question_without_fields_is_one_bar(page: Page) -> None:
    box = page.locator("div.predict").nth(1)
    assert box.locator("form").count() == 0
    box.locator("summary").first.click()
    expect(box.get_by_text("two: 2")).to_be_visible()
    assert box.locator("details.hide").count() == 0


@IN_A_SMALL_BOOK
@pytest.mark.browser
def test_without_a_script_the_answer_is_a_fold_and_on_paper_it_is_open(browser: Browser, page_address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(page_address)
    box = page.locator("div.predict").first
    expect(box.locator("form")).to_be_hidden()
    box.locator("summary").first.click()
    expect(box.get_by_text("It adds.")).to_be_visible()
    context.close()
    page = browser.new_page()
    page.goto(page_address)
    page.emulate_media(media="print")
    expect(page.locator("div.predict form").first).to_be_hidden()
    for part in parts(page).inside:
        expect(part).to_be_visible()
    page.close()


@IN_A_SMALL_BOOK
@pytest.mark.browser
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390), ("light", 390), ("dark", 1280)])
def test_questions_fit_and_can_be_read(browser: Browser, page_address: str, scheme: Any, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page.goto(page_address)
    assert serious_findings(page) == []
    parts(page).look.click()
    page.locator("details.exercises-in-code > summary").click()
    assert serious_findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (markdown("**Predict.** What?\n\nMore.", predict=FIELDS), r"does not end in a paragraph \*\*Predict"),
        (markdown("**Predict.** What?", predict=[{"ask": "x", "kind": "word"}]), "one of number, choice"),
        (markdown("**Predict.** What?", predict=[{"ask": "x", "kind": "choice"}]), "two or more 'choices'"),
        (markdown("**Predict.** What?", predict=FIELDS, tried="{0}"), "each field of its question must be a choice"),
        (markdown("**Predict.** What?", tried="{0}"), "each field of its question must be a choice"),
    ],
)
def test_fields_are_checked(cell: nbformat.NotebookNode, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        predict.fields_of(cell)


@pytest.mark.tool
@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (markdown("**Predict.** What?"), "no answer is behind 'Predict. What"),
        (
            markdown("**Predict.** What?", predict=[{"ask": "x", "kind": "number", "printed": "x {}"}]),
            "printed nowhere",
        ),
        (
            markdown("**Predict.** What?", predict=[SHORT, SHORT], tried="{0}"),
            "has no table of the class predict-tried",
        ),
        (markdown("## Deep\n\n*Deeper.*"), r"nothing follows \*Deeper\.\*: say what the section gives"),
    ],
)
def test_a_question_that_cannot_be_answered_fails_the_build(
    tmp_path: Path, cell: nbformat.NotebookNode, message: str
) -> None:
    cell.id = "asked"
    done = build(tmp_path, [CELLS[0], cell, CELLS[3] if "table" in message else CELLS[15]])
    assert done.returncode != 0
    assert re.search(message, done.stderr), done.stderr


@IN_A_SMALL_BOOK
@pytest.mark.browser
def test_a_deeper_section_has_a_chip_in_the_page_and_in_its_contents(soup: BeautifulSoup, page: Page) -> None:
    (section,) = soup.select("section.deeper")
    assert section.h2.get_text().startswith("Why the root deeper")
    assert section.p.get_text() == "You can use it without this."
    assert section.select_one("section h3").get_text().startswith("Inside")
    assert [link.get_text() for link in soup.select("nav.page-toc a:has(.deeper-chip)")] == ["Why the root deeper"]
    for media in ("screen", "print"):
        page.emulate_media(media=media)
        assert page.evaluate("getComputedStyle(document.querySelector('section.deeper')).borderLeftWidth") == "3px"
        expect(page.locator("section.deeper h2 .deeper-chip")).to_be_visible()


@IN_A_SMALL_BOOK
@pytest.mark.browser
def test_the_code_of_what_is_printed_is_behind_a_word(page: Page) -> None:
    cell = page.locator("div.cell", has_text="shown: 3")
    assert cell.locator("details.hide").count() == 0
    expect(cell.get_by_text("shown: 3")).to_be_visible()
    both = cell.locator("div.cell_input")
    expect(both.first).to_be_hidden()
    cell.locator("summary").click()
    assert [one.inner_text().strip() for one in both.all()] == ["z = 3", "show()"]
    expect(both.last).to_be_visible()


def test_only_short_code_in_a_sentence_stays_on_one_line(soup: BeautifulSoup) -> None:
    kept = {code.get_text(): "short" in code["class"] for code in soup.select("#exercises p code")}
    assert kept == {"4 b a l l .": True, "long" * 9: False}


def test_what_leads_to_exercises_in_code_is_behind_their_bar_and_the_title_is_not(soup: BeautifulSoup) -> None:
    fold = soup.select_one("details.exercises-in-code")
    assert "A checker compares." in fold.get_text()
    assert fold.find_previous_sibling("h3").get_text().startswith("In code")


def test_a_page_has_few_bars(soup: BeautifulSoup) -> None:
    assert folds.bars(str(soup)) == ["Show y = 2", "Answer", "Two exercises in code, with hints and solutions"]


def test_an_exercise_has_one_fold_below_its_text_and_the_code_to_repair(soup: BeautifulSoup) -> None:
    first, second = soup.select("details.exercises-in-code section:has(> h4)")
    for section, hint in ((first, "Look at one."), (second, "Look at two.")):
        assert [fold.summary.get_text() for fold in section.find_all("details", recursive=False)] == [folds.SOLUTION]
        inside = section.select("details.solution details")
        assert [fold.summary.get_text().split("\n")[0] for fold in inside[:2]] == ["Hint 1", "Hint 2"]
        assert hint in inside[0].get_text()
        assert "Verified" in inside[2].get_text()
    assert "return -x" in first.select_one(f":scope > .{folds.TO_REPAIR} pre").get_text()


@IN_A_SMALL_BOOK
@pytest.mark.browser
@pytest.mark.parametrize(("anchor", "shown"), [("#second-second", "Write that."), ("#figure-1-1", "What to see.")])
def test_a_link_to_what_is_folded_opens_it(browser: Browser, page_address: str, anchor: str, shown: str) -> None:
    page = browser.new_page()
    page.goto(f"{page_address}{anchor}")
    expect(page.get_by_text(shown)).to_be_in_viewport()
    page.goto(page_address)  # Chromium does it by itself where it follows a link; our script does in any browser
    expect(page.get_by_text(shown)).to_be_hidden()
    page.evaluate(f"history.replaceState(null, '', '{anchor}'); dispatchEvent(new Event('hashchange'))")
    expect(page.get_by_text(shown)).to_be_in_viewport()
    page.close()


def test_on_paper_and_in_the_epub_each_exercise_stays_with_its_text(soup: BeautifulSoup) -> None:
    leaf = single_page.Leaf("01_weighted_average", "1 · First", BeautifulSoup(str(soup.article), "html.parser").article)
    single_page.gather_folds(leaf)
    assert "Write that." in leaf.article.select_one("section.opened-fold, #in-code").get_text()
    assert leaf.article.find("details") is None


@IN_A_SMALL_BOOK
@pytest.mark.browser
def test_an_old_address_leads_on_and_keeps_the_part_of_the_page(
    html: Path, browser: Browser, page_address: str
) -> None:
    page = browser.new_page()
    page.goto(page_address.replace("01_weighted", "09_weighted") + "#exercises")
    page.wait_for_url(f"{page_address}#exercises")
    expect(page.get_by_role("heading", name="Exercises")).to_be_visible()
    page.close()
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(page_address.replace("01_weighted", "09_weighted"))
    page.wait_for_url(page_address)
    context.close()
    names = {path.name for path in html.rglob("chapters/*.html")}
    assert {"01_weighted_average.html", "09_weighted_average.html"} <= names
    assert "05_mathematics.html" not in names  # the book has no such chapter
    left = BeautifulSoup((html / "chapters/09_weighted_average.html").read_text("utf-8"), "html.parser")
    assert left.select_one("link[rel=canonical]")["href"] == "01_weighted_average.html"
    assert left.select_one("meta[name=robots]")["content"] == "noindex"
    assert not (html / "_static/texts/chapters/09_weighted_average.js").exists()
    assert "09_weighted" not in (html / "searchindex.js").read_text("utf-8")


def test_words_of_core_and_deeper_are_told_apart() -> None:
    said = [cell.source for cell in CELLS if cell.cell_type == "markdown"]
    core = "Weighted average A hook that makes one read Core First words "
    core += "75 of 5 5 2 2 and 1 2 2 Predict What will one head do Figure 1.1 "
    core += "What to see The core goes on Predict And two heads Predict And three "
    core += "Predict Who goes Predict Which two It goes on again "
    core += "After Core again Recap All of it"
    deeper = "Why the root You can use it without this Inside More of it"
    assert core_words.count(said) == (len(core.split()), len(deeper.split()))
    more = ["```python\nno = 1\n```\n\n[two words](a.md#b) and $x + y$, <span>one</span>\n\n### Sources\n\nNone here."]
    assert core_words.count(["# T\n\n", *more]) == (1 + 4, 0)


ANSWERING = [
    markdown("**Predict.** What?"),
    code("assert changed == 0", printed="  a: 0.840 of  1,200\nspread 8 3 5\nb 96% to  98%"),
]


@pytest.mark.parametrize(
    ("field", "right"),
    [
        ({"printed": "a: {} of *"}, {"is": ["0.840"], "within": 0}),
        ({"printed": "a: {} of *", "times": 100, "within": 5}, {"is": ["84"], "within": 5}),
        ({"printed": "a: * of {}"}, {"is": ["1,200"], "within": 0}),
        ({"printed": "spread {} {} {}"}, {"is": ["3", "8"], "within": 0}),
        ({"printed": "spread * {} *"}, {"is": ["3"], "within": 0}),
        ({"printed": "b {} to {}"}, {"is": ["96", "98"], "within": 0}),
        ({"answer": "2", "holds": "`a: * of {}` / 600 == 2"}, {"is": ["2"], "within": 0}),
        ({"answer": "no", "choices": ["yes", "no"], "holds": "assert changed == 0"}, {"choices": [1]}),
        ({"answer": ["c", "a"], "choices": ["a", "b", "c"], "holds": "assert changed == 0"}, {"choices": [0, 2]}),
        ({"answer": ["c", "d"], "choices": ["a", "b", "c"]}, "is none of its 'choices'"),
        ({}, None),
        ({"printed": "a: {}"}, "printed nowhere behind the question"),
        ({"printed": "a"}, "has no {} in the place"),
        ({"answer": "2", "holds": "`a: {} of *` > 0.9"}, "does not hold: 0.840 > 0.9"),
        ({"answer": "2", "holds": "print()"}, "is no comparison of numbers"),
        ({"answer": "2"}, "does not hold"),
        ({"answer": "2", "holds": "assert changed == 1"}, "no cell of the page asserts this"),
        ({"answer": "no!", "choices": ["yes", "no"]}, "is none of its 'choices'"),
        ({"solution": "2"}, r"unknown \['solution'\]"),
    ],
)
def test_what_is_right_is_read_from_what_the_page_prints(field: dict[str, Any], right: Any) -> None:
    several = isinstance(field.get("answer"), list)
    given = {"ask": "x", "kind": ("several" if several else "choice") if "choices" in field else "number", **field}
    if not isinstance(right, str):
        assert predictions.right(given, ANSWERING, 0) == right
        return
    with pytest.raises(ValueError, match=right):
        predictions.right(given, ANSWERING, 0)


CHAPTERS = sorted(notebooks.CHAPTERS.glob("[0-9]*.ipynb"))


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_most_questions_of_a_chapter_know_their_answers(chapter: Path) -> None:
    cells = nbformat.read(chapter, as_version=4).cells
    asked = [(field, place) for place, cell in enumerate(cells) for field in cell.metadata.get("predict", ())]
    right = [predictions.right(field, cells, place) for field, place in asked]
    assert 2 * sum(one is not None for one in right) > len(right)


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_no_figure_gives_the_answer_below_its_question(chapter: Path) -> None:
    """An answer ends with a fold in the text behind its cells, or else with its last cell that is folded whole."""
    cells = nbformat.read(chapter, as_version=4).cells
    for place, cell in enumerate(cells):
        if not cell.source.rstrip().rpartition("\n\n")[2].startswith(f"**{predict.MARK}**"):
            continue
        behind = list(itertools.takewhile(lambda one: one.cell_type == "code", cells[place + 1 :]))
        texts = cells[place + 1 + len(behind)].source.split("\n\n")
        if texts[texts[0].startswith("**Figure ") and len(texts) > 1].startswith("<details"):
            continue
        shown = [one.metadata.get("tags", []) for one in behind if one.outputs]
        shown = [tags for tags in shown if "remove-cell" not in tags]
        assert "hide-cell" in shown[-1], cell.source[-100:]


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_the_core_of_a_chapter_is_short(chapter: Path) -> None:
    assert core_words.words_of(chapter).core <= core_words.CORE_AT_MOST


@pytest.mark.browser
@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_has_few_bars(chapter: Path, site: str) -> None:
    page = (notebooks.ROOT / f"_build/html/chapters/{chapter.stem}.html").read_text(encoding="utf-8")
    assert len(folds.bars(page)) <= folds.BARS_AT_MOST, folds.bars(page)
