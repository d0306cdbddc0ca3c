"""Slides, quizzes and instruments alone: what a teacher takes from the book."""

from __future__ import annotations

import itertools
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from bs4 import BeautifulSoup
from playwright.sync_api import Browser, Page, expect
from served import HTML

from tools import ROOT
from tools.pages import kit
from tools.teaching import embeds, quiz_files, quizzes, slides
from tools.teaching.quiz_files import QTI, categories, item, moodle
from tools.teaching.quiz_text import WITH, filled, read, values
from tools.teaching.slide_parts import sentences, within

ALL = quizzes.quizzes()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    opened = browser.new_page()
    yield opened
    opened.close()


QUESTION = """\
# A quiz

## Sums

*With* n = 2, 3

What is {= n} and {= n}?

- [x] {= 2 * n}
  Twice {= n}.
- [ ] {= n}
  That is one of them.
- [ ] {= n * n + 1}
  That is `n * n + 1`, <b>not</b> a sum.
- [ ] none
  It is a number.
"""


def test_every_chapter_has_five_questions_and_enough_with_variants() -> None:
    assert [quiz.topic for quiz in ALL] == list(quizzes.chapters())
    assert {len(quiz.questions) for quiz in ALL} == {5}
    with_variants = [variants for quiz in ALL for variants in quiz.questions if len(variants) > 1]
    page = (ROOT / "chapters/teaching.md").read_text(encoding="utf-8")
    assert f"In {len(with_variants)} questions the numbers vary" in page
    for variants in with_variants:
        assert len({(one.text, one.answers) for one in variants}) == len(variants), variants[0].name


ON_PAPER = {
    ("all_targets_at_once", "How many projections"): "{= N * (N + 1) // 2:,}",
    ("counting", "When scores cost as much"): "{= 2 * D:,}",
    ("heads_composed_anew", "The sum of a row"): "{= 1 - l:.1f}",
    ("looking_at_fewer_words", "Sparsemax by hand"): "{= (2 - s) / 2:.2f}",
    ("heads_that_talk", "What mixing costs"): "{= 2 * h * h * N * N:,}",
    ("many_devices", "What a ring sends"): "{= 2 * (G - 1) * M // G:,}",
    ("many_devices", "What a process holds"): "{= max(1, g // G)}",
    ("the_whole_layer", "How many parameters"): "{= 4 * D * D:,}",
    ("the_whole_layer", "Operations"): "{= 4 * N * N * D:,}",
    ("never_write_the_scores", "The memory of scores"): "{= 4 * h * N * N / 1e9:,.0f} GB",
    ("never_write_the_scores", "Tiles under a causal mask"): "{= n * (n + 1) // 2:,}",
    ("open_a_model_you_know", "Which part grows"): "{= 2 * L * h * N * N / 1e9:.2f} GB",
    ("reshape_trick", "The row of a head"): "{= b * h + i}",
    ("seeing_with_heads", "How many tokens"): "{= (s // p) ** 2 + 1}",
    ("sharing_keys_and_values", "The cache of a word"): "{= 2 * 2 * 128 * g * L * N / 2**20:,.0f} MiB",
    ("three_uses", "The shape of a map"): "({= m}, {= n})",
    ("token_by_token", "The balance"): "{= D * (1 + h // g):,}",
    ("weighted_average", "How far from zero"): "{= round(d**0.5)}",
    ("which_heads_matter", "What a cut saves"): "{= 4 * D * d:,}",
    ("why_more_than_one_head", "What does not grow"): "{= 4 * D * D:,}",
}
"""What a teacher works out by hand where the package computes the answer."""


@pytest.mark.parametrize(("topic", "title"), ON_PAPER)
def test_an_answer_of_the_package_is_the_one_on_paper(topic: str, title: str) -> None:
    [quiz] = [one for one in ALL if one.topic == topic]
    [variants] = [some for some in quiz.questions if some[0].title == title]
    source = (quizzes.SOURCES / f"{topic}.md").read_text(encoding="utf-8").partition(f"## {title}\n")[2]
    [given] = WITH.findall(source.partition("\n## ")[0])
    right = [one.text for variant in variants for one in variant.answers if one.is_right]
    assert right == [filled(ON_PAPER[topic, title], row) for row in values(given)]


def test_a_right_answer_does_not_give_itself_away_by_its_place() -> None:
    places = [[one.is_right for one in first.answers].index(True) for quiz in ALL for first, *_ in quiz.questions]
    assert all(25 <= places.count(place) <= 60 for place in range(4)), [places.count(place) for place in range(4)]


def test_an_expression_is_computed_for_each_variant(tmp_path: Path) -> None:
    (tmp_path / "sums.md").write_text(QUESTION, encoding="utf-8")
    first, second = read(tmp_path / "sums.md").questions[0]
    assert (first.text, second.text) == ("What is 2 and 2?", "What is 3 and 3?")
    assert [one.text for one in first.answers if one.is_right] == ["4"]
    assert [one.text for one in second.answers if one.is_right] == ["6"]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("- [ ] none", "- [x] none", "one answer is right"),
        ("- [ ] none\n  It is a number.\n", "", "four answers"),
        ("  It is a number.\n", "", "four answers"),
        ("- [ ] none", "- [ ] {= n}", "two answers are the same with {'n': 2}"),
        ("n = 2, 3", "n = 2, 3; m = 1", "equally many numbers"),
    ],
)
def test_a_bad_question_is_refused_by_name(tmp_path: Path, before: str, after: str, said: str) -> None:
    (tmp_path / "sums.md").write_text(QUESTION.replace(before, after), encoding="utf-8")
    with pytest.raises(ValueError, match=r"sums\.md, question 1, 'Sums'") as error:
        read(tmp_path / "sums.md")
    assert said in str(error.value)


@pytest.mark.parametrize("quiz", ALL, ids=[quiz.topic for quiz in ALL])
def test_moodle_and_qti_say_what_the_file_says(quiz: quizzes.Quiz) -> None:
    questions = list(itertools.chain(*quiz.questions))
    asked = ElementTree.fromstring(moodle(categories(quiz))).findall("question[@type='multichoice']")
    assert len(asked) == len(questions)
    for element, question in zip(asked, questions, strict=True):
        fractions = [answer.get("fraction") for answer in element.findall("answer")]
        assert fractions == ["100" if answer.is_right else "0" for answer in question.answers]
        assert all(answer.findtext("feedback/text") for answer in element.findall("answer"))
    space = {"q": QTI}
    for question in questions:
        root = ElementTree.fromstring(item(question))
        right = root.findtext("q:responseDeclaration/q:correctResponse/q:value", namespaces=space)
        choices = [one.get("identifier") for one in root.findall(".//q:simpleChoice", space)]
        assert choices == ["A", "B", "C", "D"]
        assert question.answers[choices.index(right)].is_right
        assert [one.get("identifier") for one in root.findall("q:modalFeedback", space)] == choices


def test_html_in_a_question_stays_text(tmp_path: Path) -> None:
    (tmp_path / "weighted_average.md").write_text(QUESTION, encoding="utf-8")
    shown = quiz_files.page(read(tmp_path / "weighted_average.md"))
    assert "&lt;b&gt;not&lt;/b&gt;" in shown
    assert "<code>n * n + 1</code>" in shown


def test_an_exam_is_drawn_by_its_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = [quizzes.exam([3, 4, 5], 8, seed) for seed in (7, 7, 8)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len({re.sub(r"[a-h]$", "", one.name) for one in drawn[0]}) == 8
    quizzes.main(["exam", "--chapters", "3", "4", "--questions", "6", "--out", str(tmp_path)])
    with zipfile.ZipFile(tmp_path / "exam.zip") as package:
        assert len(package.namelist()) == 7
    assert (tmp_path / "exam.html").read_text(encoding="utf-8").count('class="variant"') == 6
    with pytest.raises(SystemExit):
        quizzes.main(["exam", "--chapters", "3", "--questions", "6", "--out", str(tmp_path)])
    assert "--questions 6: chapters [3] have 5" in capsys.readouterr().err


def test_sentences_are_cut_outside_of_elements() -> None:
    text = "One <em>and. Two</em> end. Vaswani et al. 2017 say so. <strong>Three.</strong> Four?"
    assert sentences(text) == [
        "One <em>and. Two</em> end.",
        "Vaswani et al. 2017 say so.",
        "<strong>Three.</strong>",
        "Four?",
    ]
    assert sentences("96 are wrong. (The rest is luck. It was asked.) So?") == [
        "96 are wrong.",
        "(The rest is luck. It was asked.)",
        "So?",
    ]
    assert within(["a" * 9, "b" * 9, "c"], 12) == ["a" * 9]


def test_each_deck_has_at_most_fifteen_slides_and_none_of_prose() -> None:
    made = list((HTML / slides.FOLDER).glob("*.html"))
    assert len(made) == len(quizzes.chapters())
    for path in made:
        found = BeautifulSoup(path.read_text(encoding="utf-8"), "lxml").select(".slide")
        assert 5 <= len(found) <= slides.MOST, path.name
        for slide in found:
            seen = slide.select_one("figure, .formula, iframe, pre, table, ul, .answer, .alone, h1")
            assert seen, f"{path.name} {slide['id']}: nothing but words"
            assert len(" ".join(part.get_text() for part in slide.select(".words"))) < 900, f"{path.name} {slide['id']}"


def test_code_that_a_hook_announces_is_on_the_first_slide() -> None:
    soup = BeautifulSoup((HTML / "chapters/04_reshape_trick.html").read_text(encoding="utf-8"), "lxml")
    said = slides.hook(soup.select_one("article > section"))
    assert "write it:<pre>x.reshape(B, N, h, d).transpose(1, 2)  # one way\n" in said


@pytest.mark.parametrize("name", list(quizzes.chapters().values()))
def test_no_slide_is_overfull(page: Page, name: str) -> None:
    page.set_viewport_size({"width": 1280, "height": 720})
    page.goto((HTML / slides.FOLDER / f"{name}.html").as_uri())
    assert (
        page.evaluate(
            """() => [...document.querySelectorAll('.slide .inner, .slide pre, .slide .formula')].filter((box) =>
            box.scrollHeight > box.clientHeight + 1 || box.scrollWidth > box.clientWidth + 1
        ).map((box) => box.closest('.slide').id)"""
        )
        == []
    )
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_keys_turn_slides_and_an_answer_comes_first(page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 720})
    page.goto((HTML / slides.FOLDER / "04_reshape_trick.html").as_uri())
    asked = page.evaluate("[...document.querySelectorAll('.slide')].findIndex((s) => s.querySelector('.later'))")
    for _ in range(asked):
        page.keyboard.press("ArrowRight")
    answer = page.locator(".slide.now .later").first
    assert not answer.is_visible()
    page.keyboard.press("ArrowRight")
    assert answer.is_visible()
    page.keyboard.press("ArrowRight")
    assert page.locator(".slide.now").get_attribute("id") == f"s{asked + 2}"


def test_pages_link_their_kit_and_each_instrument_alone() -> None:
    text = (HTML / "chapters/04_reshape_trick.html").read_text(encoding="utf-8")
    for folder in (slides.FOLDER, quizzes.FOLDER):
        assert f'href="../{folder}/04_reshape_trick.html"' in text
    for path in (HTML / "chapters").glob("*.html"):
        text = path.read_text(encoding="utf-8")
        for number in range(1, text.count('class="mhalib-instrument"') + 1):
            name = f"{embeds.FOLDER}/{embeds.file_name(path.stem, number)}"
            assert f'href="../{name}"' in text
            assert (HTML / name).is_file()
    assert f'<a href="../{slides.FOLDER}/00_take_a_model_apart.html">slides&nbsp;0</a>' in (
        HTML / f"{kit.TEACHING}.html"
    ).read_text(encoding="utf-8")


def named(row: str) -> set[int]:
    """The chapters whose slides, quiz or notebook a row of a plan names."""
    found = {int(number) for _, number in kit.NAMED.findall(row)}
    for numbers in re.findall(r"\bnotebooks? (\d+(?:(?:, | and )\d+)*)|\bof (\d\d)\b", row):
        found |= {int(number) for number in re.findall(r"\d+", " ".join(numbers))}
    return found


def test_a_plan_s_week_names_slides_and_exercises_of_the_chapters_that_it_reads() -> None:
    """Chapters get other numbers; what is no link is not moved with them."""
    text = (ROOT / f"{kit.TEACHING}.md").read_text(encoding="utf-8")
    rows = [row for row in text.splitlines() if row.startswith("|") and kit.NAMED.search(row) and ".ipynb" in row]
    assert len(rows) > 20
    for row in rows:
        assert named(row) <= {int(number) for number in re.findall(r"\((\d\d)_\w+\.ipynb\)", row)}, row


def test_an_instrument_alone_is_alive_and_says_how_to_embed_it(page: Page) -> None:
    file = HTML / embeds.FOLDER / embeds.file_name("00_take_a_model_apart", 1)
    page.goto(file.as_uri())
    page.get_by_role("switch").first.wait_for()
    assert f'src="{file.as_uri()}"' in page.locator("footer pre").inner_text()


def test_the_link_to_a_live_model_alone_takes_along_what_was_done_to_it(page: Page) -> None:
    page.goto((HTML / "chapters/00_take_a_model_apart.html").as_uri())
    live = page.locator(".mhalib-instrument").first
    live.get_by_role("switch", name="head 2").click()
    said = live.locator(".mhalib-live-model-answers").inner_text()
    assert said.split("\n")[1].endswith("finds sees")  # a wrong verb, and the right one struck out
    page.get_by_role("link", name="Open it alone").first.click()
    expect(page.get_by_role("switch", name="head 2")).not_to_be_checked()
    assert page.locator(".mhalib-live-model-answers").inner_text() == said
