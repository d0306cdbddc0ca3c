"""The glossary: every link to a term finds it, every chapter uses it, and each term stands once, in its place."""

from __future__ import annotations

import re

import pytest
from book_text import CHAPTERS, PAGES, TEXTS, Text

from tools.notebooks import notebooks

TERMS = re.findall(r"^## (.+)$", PAGES["glossary"].prose, flags=re.MULTILINE)
MIN_LINKS = 2


def anchor(heading: str) -> str:
    """What myst, GitHub and Jupyter make of a heading: lower case, hyphens for spaces."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def glossary_links(text: Text) -> list[str]:
    """Anchors of the glossary to which a page links; the glossary itself writes `(#term)`."""
    own = r"\]\(#([^)]*)\)" if text.name == "glossary" else r"\]\(glossary\.md#([^)]*)\)"
    return re.findall(own, text.prose)


def lost(text: Text) -> set[str]:
    return set(glossary_links(text)) - set(map(anchor, TERMS))


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.name)
def test_every_link_finds_its_term(text: Text) -> None:
    assert lost(text) == set()


def test_a_link_to_no_term_is_found() -> None:
    assert lost(Text("page", ("a [head](glossary.md#head), a [hat](glossary.md#hat)",))) == {"hat"}


@pytest.mark.parametrize("text", CHAPTERS, ids=lambda text: text.name)
def test_every_chapter_links_to_the_glossary(text: Text) -> None:
    assert len(glossary_links(text)) >= MIN_LINKS, "link words like this: [head](glossary.md#head)"


def test_terms_are_in_order_and_stand_once() -> None:
    assert sorted(set(TERMS), key=str.lower) == TERMS
    assert len({*map(anchor, TERMS)}) == len(TERMS) >= 35


def test_every_term_says_where_it_is_taught() -> None:
    entries = PAGES["glossary"].prose.split("\n## ")[1:]
    for entry in entries:
        chapters = re.findall(r"\[chapter (\d+)\]\((\d\d)_\w+\.ipynb\)", entry)
        assert chapters, entry
        assert all(int(number) == int(file) for number, file in chapters)
        assert len(entry.split()) < 90, entry


def test_contributing_says_how_to_link() -> None:
    assert "(glossary.md#" in (notebooks.ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
