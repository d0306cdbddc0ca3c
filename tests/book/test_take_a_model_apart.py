"""Chapter 0 as a reader walks through it, by keyboard alone: each thing that the page says they will see."""

from __future__ import annotations

import re
from collections.abc import Callable

import book_text
import pytest
from playwright.sync_api import Page

from mhalib.widgets import LiveModel

pytestmark = [pytest.mark.browser, pytest.mark.instrument("mhalib/widgets/live_", "mhalib/live/", "chapters/00_")]

SENTENCE = "the clever fox sees my hungry young bear"
WORDS = SENTENCE.split()
QUESTS = ["the last witness", "one is enough", "one word too far", "a witness of your own"]
OWN = "the clever dog sees my hungry young bear"
ANSWERS = """() => [...document.querySelectorAll(".mhalib-live-model-answers tbody tr")]
    .map((row) => [...row.querySelectorAll("td")].map((one) => one.firstChild.textContent))"""
FOCUS = """([selector]) => document.activeElement.matches(selector)"""
PREVIOUS, NEXT, SUBJECT, VERB = range(4)


class Walk:
    """The instrument of the page, and the keys that a reader presses."""

    def __init__(self, page: Page) -> None:
        self.page = page
        page.wait_for_selector(".mhalib-live-model-answers td")
        self.plain = self.answers()

    def answers(self) -> list[list[str]]:
        return self.page.evaluate(ANSWERS)

    def changed(self) -> dict[tuple[str, int], str]:
        """The answers that are not as trained, by word and question."""
        pairs = zip(WORDS, self.plain, self.answers(), strict=True)
        return {(word, q): now[q] for word, was, now in pairs for q in range(4) if now[q] != was[q]}

    def tab_to(self, selector: str) -> None:
        """Press Tab until something that fits is reached."""
        for _ in range(60):
            self.page.keyboard.press("Tab")
            if self.page.evaluate(FOCUS, [selector]):
                return
        raise AssertionError(f"Tab does not reach {selector}")

    def flip(self, *heads: int) -> None:
        """Press the switches of these heads."""
        self.tab_to("[role=switch]")
        for head in heads:
            self.arrows_to("switch", head)
            self.page.keyboard.press("Space")

    def arrows_to(self, what: str, head: int) -> None:
        at = int(self.page.evaluate(f"document.activeElement.dataset.{what}")[-1])
        for _ in range(abs(head - at)):
            self.page.keyboard.press("ArrowRight" if head > at else "ArrowLeft")

    def choose(self, head: int) -> None:
        self.tab_to("[role=radio]")
        self.page.keyboard.press("Enter")
        self.arrows_to("head", head)

    def click(self, query: str, key: str) -> None:
        """Put the whole weight of a row of the large map into one cell."""
        self.tab_to("[role=gridcell]")
        self.page.keyboard.press("ArrowUp")
        at = self.page.evaluate("[document.activeElement.dataset.q, document.activeElement.dataset.k].map(Number)")
        to = [WORDS.index(query), WORDS.index(key)]
        for (one, other), names in zip(zip(at, to, strict=True), (("Up", "Down"), ("Left", "Right")), strict=True):
            for _ in range(abs(other - one)):
                self.page.keyboard.press(f"Arrow{names[other > one]}")
        self.page.keyboard.press("Enter")

    def undo_all(self) -> None:
        self.page.get_by_role("button", name="As trained").focus()
        self.page.keyboard.press("Enter")
        assert not self.changed()

    def done(self) -> list[bool]:
        return [text.endswith("Done.") for text in self.page.locator(".mhalib-live-model-quests li").all_inner_texts()]


@pytest.fixture
def walk(show: Callable) -> Walk:
    return Walk(show(LiveModel("reader", SENTENCE, compact=True, quests=QUESTS)).page)


def test_the_page_shows_what_is_walked_here() -> None:
    code = "\n".join(book_text.PAGES["00_take_a_model_apart"].code)
    assert code.count(f'sentence = "{SENTENCE}"') == 1
    assert [code.count(f"LiveModel({end}") for end in ('"reader", sentence', '\n    "reader",\n    sentence')] == [2, 1]
    (listed,) = re.findall(r"quests=\[(.*?)\]", code, re.DOTALL)
    assert re.findall('"(.*?)"', listed) == QUESTS


def test_without_head_2_it_forgets_the_verb(walk: Walk) -> None:
    walk.flip(2)
    verbs = [row[VERB] for row in walk.answers()]
    assert [word for word, verb in zip(WORDS, verbs, strict=True) if verb == "sees"] == ["fox"]
    assert "dog" in verbs
    assert [question for _, question in walk.changed()].count(VERB) == 7
    assert len(walk.changed()) == 8


def test_each_head_has_the_question_that_the_answer_says(walk: Walk) -> None:
    for head, question in ((0, SUBJECT), (1, NEXT), (3, PREVIOUS)):
        walk.flip(head)
        assert {q for _, q in walk.changed()} == {question}
        walk.undo_all()


def test_one_cell_of_head_0_changes_one_answer(walk: Walk) -> None:
    walk.choose(0)
    walk.click("hungry", "bear")
    assert walk.changed() == {("hungry", SUBJECT): "bear"}


def test_a_dark_cell_is_a_hint(walk: Walk) -> None:
    walk.flip(0)
    assert walk.changed()["sees", SUBJECT] == "likes"
    assert ("sees", PREVIOUS) not in walk.changed()  # head 3 looks at fox all the same


def test_the_quests_tick_themselves_off(walk: Walk) -> None:
    assert walk.done() == [False] * 4
    walk.flip(1, 2)
    assert walk.done() == [True, False, False, False]
    walk.undo_all()
    walk.flip(0, 1, 3)
    assert {row[VERB] for row in walk.answers()} == {"sees"}
    assert walk.done() == [True, True, False, False]
    walk.undo_all()
    walk.choose(3)
    walk.click("bear", "hungry")
    assert walk.changed() == {("bear", PREVIOUS): "hungry"}
    assert walk.done() == [True, True, True, False]
    walk.undo_all()
    walk.tab_to("input[type=text]")
    walk.page.keyboard.press("Control+A")
    walk.page.keyboard.type(OWN)
    walk.flip(0)
    assert [row[SUBJECT] for row in walk.answers()][WORDS.index("sees")] == "dog"
    assert walk.done() == [True, True, True, False]
    walk.flip(3)
    assert [row[SUBJECT] for row in walk.answers()][WORDS.index("sees")] == "likes"
    assert walk.done() == [True] * 4
