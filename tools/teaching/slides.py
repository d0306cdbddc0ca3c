"""Slides of a chapter, made from its built page: no second copy of its text, figures or formulas.

    python -m tools.teaching.slides [_build/html]

writes _downloads/slides/NN_topic.html for each chapter. What is on a slide follows from the page:

- The title, and the hook's question with the sentence before it; the aims; at the end the recap.
- Each core section gives a slide for each thing to look at: a figure with the first sentence of its caption, a
  formula, an instrument, a short piece of code, a table. Above it are the section's sentences that hold bold words;
  the first slide of a section without such a sentence has the section's first one. A section with none of these has no
  slide; sections marked *deeper* have none either.
- Each *Predict* question is a slide. The answer, with its figure, comes at the next key.
- At most 15 slides: what is left out first is code, then a section's further figures, the last ones first.
"""

from __future__ import annotations

import argparse
import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bs4 import BeautifulSoup, Tag

from mhalib._write import write_whole
from tools import ROOT
from tools.teaching.closed_page import HERE, closed_page, is_older
from tools.teaching.slide_parts import (
    classes_of,
    code_html,
    figure_html,
    inner,
    instrument_html,
    key_sentences,
    listed,
    plain,
    printed,
    sentences,
    table_html,
    within,
)

FOLDER = "_downloads/slides"
MOST = 15  # slides of a deck
SHORTEST = 40  # letters of a sentence that has a slide of its own
CODE = re.compile(r"<pre>.*?</pre>", re.DOTALL)
NOT_SHOWN = {"exercises", "recap"}  # nor is what is deeper, or to be looked up


class Slide(NamedTuple):
    """One slide: its words and what is to be seen, as HTML; `worth` says what is dropped first, the least."""

    heading: str
    anchor: str
    words: list[str]
    shown: str
    worth: int
    beside: bool = False  # words left, picture right


def question(predict: Tag, heading: str, anchor: str) -> Slide:
    """The slide of a *Predict* question."""
    paragraphs = [inner(part) for part in predict.find_all("p", recursive=False)]
    asked = [re.sub(r"^<strong>Predict\.</strong>\s*", "", text) for text in paragraphs]
    choices = [inner(label) for label in predict.select("label span")]
    words = [f"<p class='key'>{' '.join(asked)}</p>"]
    if 1 < len(choices) < 8:
        words.append(f"<p class='choices'>{' · '.join(choices)}</p>")
    answer = predict.select_one("details.predict-answer")
    if not answer:
        return Slide(heading, anchor, words, "", 3)
    summary = answer.find("summary")
    said = inner(summary) if isinstance(summary, Tag) else ""
    opened = answer.select(".predict-opened > p, .predict-opened > ul > li > p")
    text = [inner(part) for part in opened if not part.get("class")]
    told = " ".join(within(sentences(text[0]), 170)) if text else printed(answer)
    name = "Answer" if said.startswith("Show ") else said
    words.append(f"<p class='answer later'>{name}</p><div class='later'>{told}</div>")
    figure = answer.select_one("figure.captioned")
    shown, high = figure_html(figure) if figure else ("", False)
    if not shown:
        words = [f"<div class='large'>{''.join(words)}</div>"]
    return Slide(heading, anchor, words, f"<div class='later figure'>{shown}</div>" if shown else "", 3, high)


def blocks(section: Tag) -> Iterator[Tag]:
    """The parts of a section and of its core subsections, in order."""
    for part in section.find_all(True, recursive=False):
        if part.name == "section":
            if "deeper" not in classes_of(part) and part.get("id") not in NOT_SHOWN:
                yield from blocks(part)
        else:
            yield part


def section_slides(section: Tag, name: str) -> list[Slide]:
    """The slides of one core section."""
    title = section.find("h2")
    assert isinstance(title, Tag)
    heading, anchor = inner(title), str(section.get("id"))
    paragraphs = [part for part in section.find_all("p", recursive=False) if part.get_text(strip=True)]
    opening = within(sentences(inner(paragraphs[0])), 120)[:2] if paragraphs else []
    made: list[Slide] = []
    words: list[str] = []
    lead: list[str] = []  # the sentence before a list

    def add(shown: str, worth: int, beside: bool = False) -> None:
        said = within(words) or ([] if made else opening)
        made.append(Slide(heading, anchor, [f"<p class='key'>{one}</p>" for one in said], shown, worth, beside))
        words.clear()

    for part in blocks(section):
        classes = classes_of(part)
        if "predict" in classes:
            made.append(question(part, heading, anchor))
        elif part.name == "p":
            words += key_sentences(part)
            lead = sentences(inner(part))[-1:]
        elif (figure := part.select_one("figure.captioned")) and part.name != "details":
            shown, high = figure_html(figure)
            add(shown, 1 if any("<figure" in one.shown for one in made) else 3, high)
        elif "math" in classes:
            formula = f'<div class="formula">{inner(part)}</div>'
            if not words and made and made[-1].shown.startswith('<div class="formula">'):
                made[-1] = made[-1]._replace(shown=made[-1].shown + formula)
            else:
                add(formula, 2)
        elif part.select_one(".mhalib-instrument"):
            add(instrument_html(part, name), 3)
        elif "cell" in classes and (shown := code_html(part)):
            words[:] = words or within(lead, 160) if made else words
            add(shown, 0)
            lead = []
        elif part.name in ("ul", "ol") and 1 < len(items := part.find_all("li", recursive=False)) < 6:
            words[:] = words or [one for one in lead if plain(one).endswith(":")]
            add(listed(items), 1)
        elif (part.name == "table" or "pst-scrollable-table-container" in classes) and (shown := table_html(part)):
            add(shown, 1)
    if len(plain(" ".join(words))) > SHORTEST:  # a sentence at the end, alone
        made.append(Slide(heading, anchor, [f"<p class='key alone'>{one}</p>" for one in within(words, 200)], "", 1))
    return made


def hook(page: Tag) -> str:
    """The hook's last question with what leads to it, or its bold sentence."""
    said: list[str] = []
    for part in page.select(":scope > p, :scope > [class*=highlight-] pre"):
        if part.get_text(strip=True).startswith("After this page"):
            break
        if part.name == "p":
            said += sentences(inner(part))
        elif said:  # code belongs to the sentence that introduces it
            said[-1] += f"<pre>{html.escape(part.get_text().rstrip())}</pre>"
    asks = [i for i, one in enumerate(said) if "?" in plain(one)[-3:]] or [
        i for i, one in enumerate(said) if "<strong>" in one
    ]
    last = asks[-1] if asks else 0
    first = last
    while first > 0 and len(plain(CODE.sub("", " ".join(said[first - 1 : last + 1])))) <= 230:
        first -= 1
    return " ".join(said[first : last + 1])


def chosen(slides: list[Slide], most: int) -> list[Slide]:
    """At most so many: the least worth go first, of those the last."""
    kept = list(slides)
    while len(kept) > most:
        least = min(slide.worth for slide in kept)
        kept.pop(max(i for i, slide in enumerate(kept) if slide.worth == least))
    return kept


def deck(text: str, name: str) -> str:
    """The slides of a built page as one HTML file."""
    soup = BeautifulSoup(text, "lxml")
    for place, instrument in enumerate(soup.select(".mhalib-instrument"), 1):
        instrument["data-number"] = str(place)
    page = soup.select_one("article > section")
    assert isinstance(page, Tag), name
    heading = page.find("h1")
    assert isinstance(heading, Tag)
    title, number = inner(heading), int(name[:2])
    aims = page.find("ul", recursive=False)
    recap = page.select_one("#recap > ul")
    sections = [one for one in page.find_all("section", recursive=False) if one.get("id") not in NOT_SHOWN]
    core = [one for one in sections if "deeper" not in classes_of(one)]
    head = BeautifulSoup("".join(map(str, page.find_all("div", recursive=False))), "lxml")
    content = [Slide(title, "", [], instrument_html(head, name), 3)] if head.select_one(".mhalib-instrument") else []
    content += [slide for section in core for slide in section_slides(section, name)]
    ends = []
    if isinstance(aims, Tag):
        ends.append(Slide("After this you can", "", [listed(aims.find_all("li", recursive=False), 5)], "", 9))
    last = [Slide("Recap", "recap", [listed(recap.find_all("li", recursive=False), 5)], "", 9)] if recap else []
    slides = [*ends, *chosen(content, MOST - 1 - len(ends) - len(last)), *last]
    words = f'<p class="book">Attention, Head by Head · {number}</p><h1>{title}</h1>'
    words += f'<div class="question">{hook(page)}</div>'
    figure = head.select_one("figure.captioned") or page.select_one("figure.opening")
    opening = re.sub("<figcaption.*?</figcaption>", "", figure_html(figure)[0]) if figure else ""
    body = f'<div class="body"><div class="words">{words}</div>{opening}</div>'
    parts = [one_slide(1, body, name, plain(title), "", len(slides) + 1, "opening beside" if opening else "opening")]
    for place, slide in enumerate(slides, 2):
        said = f'<div class="words">{"".join(slide.words)}</div>' if slide.words else ""
        body = f'<h2>{slide.heading}</h2><div class="body">{said}{slide.shown}</div>'
        side = "beside" if slide.beside and said else ""
        parts.append(one_slide(place, body, name, plain(title), slide.anchor, len(slides) + 1, side))
    return closed_page(f"{plain(title)}: slides", "\n".join(parts), "slides")


def one_slide(place: int, body: str, name: str, title: str, anchor: str, count: int, classes: str) -> str:
    where = f"../../chapters/{name}.html{f'#{anchor}' if anchor else ''}"
    buttons = (("-1", "back", "‹"), ("1", "on", "›"))
    foot = "".join(
        [
            f'<span class="title">{html.escape(title)} · <a href="{where}">on the page</a></span>',
            f"<span>{place} / {count}</span>",
            *(
                f'<button type="button" data-step="{n}" aria-label="{name}">{sign}</button>'
                for n, name, sign in buttons
            ),
        ]
    )
    inside = f'<div class="inner">{body}</div><div class="foot">{foot}</div>'
    return f'<section class="slide {classes}" id="s{place}">{inside}</section>'


def write(folder: Path) -> list[Path]:
    """Write the decks of all chapters in a built book."""
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    made = []
    for page in sorted((folder / "chapters").glob("[0-9][0-9]_*.html")):
        text = page.read_text(encoding="utf-8")
        if "<article" not in text:  # the address that a chapter had before
            continue
        made.append(folder / FOLDER / page.name)
        if is_older(made[-1], page, *HERE.glob("slide*")):
            write_whole(made[-1], deck(text, page.stem))
    return made


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "_build/html")
    print(f"{len(write(parser.parse_args().folder))} decks in {FOLDER}")
