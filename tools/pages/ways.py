"""Sphinx extension: ways through the book, for an evening, a weekend, or all of it.

    ```{ways}
    ```

lists them on the start page, each as a list of its pages with minutes. Below the core of each of these pages, above its
exercises, stands what comes next on each way; a script (ways_script.js) shows only the one that the reader is on, and
ticks pages off, on the reader's own machine; the theme's own links at the foot then lead along the way, too, and a
button leaves it. Who presses *Start here* and has chosen no way walks the first, the evening. The script shuts what is
marked *deeper*, behind its heading, for everybody
but on the whole way: the minutes are those of the cores. The ways are data: chapters/ways.yml.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import yaml
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from tools import ROOT
from tools.pages import book_map, catalogues

WAYS = ROOT / "chapters/ways.yml"
WHOLE = "whole"
"""The way that has every chapter, and no minutes."""
ALL_OPEN = f"?way={WHOLE}"
"""What an address ends in, so that the sections marked *deeper* are open."""
ABOUT = {
    "minutes": "about {} minutes in all",
    "hours": "about {} hours in all",
}
NEXT, END, LABEL = "Next:", "You have come to its end.", "Where to go on"
LEAVE = "Leave this way"
READ = "read:"  # of a page, for who hears its box
PHRASES = (*ABOUT.values(), NEXT, END, LABEL, LEAVE, READ)  # locale/*/LC_MESSAGES/book.po has them
EXERCISES = '<section id="exercises">'


class Way(NamedTuple):
    """A way: its name in addresses, what readers see, and its pages with their minutes."""

    name: str
    title: str
    says: str
    pages: dict[str, int]

    def minutes(self) -> int:
        """Of all its pages, rounded to five."""
        return 5 * round(sum(self.pages.values()) / 5)

    def lasts(self, say: Callable[[str], str]) -> str:
        """In words, from two hours on in hours and halves."""
        if self.minutes() < 120:
            return say(ABOUT["minutes"]).format(self.minutes())
        halves = round(self.minutes() / 30)
        return say(ABOUT["hours"]).format(f"{halves // 2}{'½' * (halves % 2)}")


def ways() -> list[Way]:
    """All ways, the shortest first.

    Raises:
        ValueError: a way has a page that is no chapter.
    """
    stems = book_map.titles().keys()
    found = []
    for name, told in yaml.safe_load(WAYS.read_text(encoding="utf-8")).items():
        pages = told.get("pages") or dict.fromkeys(stems, 0)
        if unknown := sorted(pages.keys() - stems):
            raise ValueError(f"chapters/ways.yml, {name}: {unknown[0]!r} is no chapter: mend its name")
        found.append(Way(name, told["title"], told["says"], pages))
    return found


def titles(language: str) -> dict[str, str]:
    """The title of each chapter in a language, by its file's name."""
    known = book_map.titles()
    return {stem: catalogues.title_of(language, f"chapters/{stem}", title) for stem, title in known.items()}


def said() -> list[str]:
    """All words that are written on pages, for translators."""
    return [*PHRASES, *(words for way in ways() for words in (way.title, way.says))]


def listed(way: Way, known: Mapping[str, str], say: Callable[[str], str]) -> str:
    """A way as the start page lists it, with the titles that are known."""
    lines = []
    for stem, minutes in way.pages.items():
        time = f' <span class="minutes">{minutes} min</span>' if minutes else ""
        link = f'<a href="{stem}.html?way={way.name}">{html.escape(known[stem])}</a>'
        lines.append(f'<li data-page="{stem}">{link}{time}</li>')
    about = f', <span class="minutes">{html.escape(way.lasts(say))}</span>' if way.minutes() else ""
    return (
        f'<details class="way" data-way="{way.name}"><summary>{html.escape(say(way.title))}{about}</summary>'
        f"<p>{html.escape(say(way.says))}</p>"
        f'<ul data-read="{html.escape(say(READ), quote=True)}">{"".join(lines)}</ul></details>'
    )


def next_on(stem: str, found: Iterable[Way], known: Mapping[str, str], say: Callable[[str], str]) -> str:
    """What comes next behind a chapter, on each of the ways found that leads through it."""
    lines = []
    for way in found:
        if stem not in way.pages:
            continue
        pages = list(way.pages)
        place = pages.index(stem) + 1
        if place < len(pages):
            after = pages[place]
            said = f'{html.escape(say(NEXT))} <a href="{after}.html?way={way.name}">{html.escape(known[after])}</a>'
        else:
            said = html.escape(say(END))
        hidden = " hidden" if way.name == WHOLE else ""  # without a script, the theme's own link leads there
        passes = " data-passes" if way.minutes() else ""  # it passes over what is deeper
        here = f"<strong>{html.escape(say(way.title))}, {place}/{len(pages)}.</strong>"
        before = pages[place - 2] if place > 1 else ""
        back = f' data-back="{before}.html?way={way.name}" data-title="{html.escape(known[before])}"' if before else ""
        lines.append(f'<p data-way="{way.name}"{passes}{hidden}{back}>{here} {said}</p>')
    if not lines:
        return ""
    label = html.escape(say(LABEL), quote=True)
    leave = f' data-leave="{html.escape(say(LEAVE), quote=True)}"'
    return f'<nav class="next-on-way" aria-label="{label}" data-page="{stem}"{leave}>{"".join(lines)}</nav>'


def prepare(app: Sphinx) -> None:
    """Read the ways once, and write on every chapter where each goes on: below its core, above its exercises."""
    found, known, say = ways(), titles(app.config.language), catalogues.phrases(app.config.language)
    made = {stem: next_on(stem, found, known, say) for stem in known}

    def add_next(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
        stem = page.rpartition("/")[2]
        if stem in made and "body" in context:
            before, exercises, after = context["body"].partition(EXERCISES)
            context["body"] = before + made[stem] + exercises + after

    app.connect("html-page-context", add_next)


class WaysList(SphinxDirective):
    """The ways, at the place of the directive."""

    def run(self) -> list[nodes.Node]:
        for path in (WAYS, ROOT / "_toc.yml"):
            self.env.note_dependency(str(path))
        try:
            found = ways()
        except ValueError as error:
            raise self.error(str(error)) from error
        known, say = titles(self.config.language), catalogues.phrases(self.config.language)
        lists = "".join(listed(way, known, say) for way in found)
        return [nodes.raw("", f'<div class="ways">{lists}</div>', format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("ways", WaysList)
    app.connect("builder-inited", prepare)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
