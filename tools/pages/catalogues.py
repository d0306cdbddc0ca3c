"""The book in other languages: update the catalogues in locale/, and list what is translated, stale or missing.

    python -m tools.pages.catalogues fr                               # bring the catalogues of French up to date
    python -m tools.pages.catalogues fr --begin 02_masks                # begin a page
    python -m tools.pages.catalogues fr --list  # what is stale or missing, from the catalogues alone
    python -m tools.pages.catalogues fr --to-do left.json  # the same as a file, in which to translate
    python -m tools.pages.catalogues fr --fill left.json   # takes over what was translated in it

Sphinx collects the passages of all pages, and sphinx-intl takes them over into `locale/fr/LC_MESSAGES`, for the pages
that have a catalogue there. A passage that changed keeps its old translation, marked as fuzzy: it is stale until
someone mends it and removes the mark. `make book LANGUAGE=fr` builds the pages. Code is never translated.

A file of `--to-do` is a list of passages, each with its page, its `text`, what `was` its translation before it changed,
and an empty `is`. `--fill` takes each `is` that has words, where formulas, code and links are those of the text.
"""

from __future__ import annotations

import argparse
import datetime
import difflib
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import nbformat
import yaml
from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po
from sphinx_intl.basic import update
from sphinx_intl.catalog import dump_po, load_po

from mhalib._write import write_whole
from tools import ROOT
from tools.pages import sphinx_book

LOCALE = ROOT / "locale"
FURNITURE = "book"  # the catalogue of what the book's own tools write on every page
INSTRUMENTS = "instruments"  # and of the words of instruments
LAUNCHES = {"launch", "exercise-launch"}  # tags of cells that hold the repository's address: no catalogue holds it
SHOWN = 5  # problems of a page, where the list was not asked for
SIMILAR = 0.6
LINE = 110  # characters of a line in a catalogue
FIXED = re.compile(  # what a translation must hold as it is, as often as the text does
    r"\$[^$]+\$"  # formulas
    r"|`[^`]+`"  # code
    r"|(?<=\]\()[^)\s]+(?=\))"  # where links lead
    r"|</?\w[^>]*>"  # HTML
)
FRAMES = re.compile(  # of a page in Markdown: its metadata, directives and targets, of which Sphinx hands over no words
    r"\A---\n.*?\n---\n|^```\{.*?^```$|^:{3,}.*?$|^:[\w-]+:.*?$|^\([\w-]+\)=$", re.DOTALL | re.MULTILINE
)
DISPLAYED = re.compile(r"\$\$.*?\$\$", re.DOTALL)


def folder(language: str) -> Path:
    return LOCALE / language / "LC_MESSAGES"


def languages() -> list[str]:
    """The languages that have a catalogue."""
    return sorted(path.name for path in LOCALE.iterdir() if folder(path.name).is_dir()) if LOCALE.is_dir() else []


def read(language: str, page: str) -> Catalog | None:
    """The catalogue of a page, such as chapters/01_weighted_average; `None` where it has none."""
    path = folder(language) / f"{page}.po"
    if not path.exists():
        return None
    with path.open("rb") as file:
        return read_po(file, locale=language)


def phrases(language: str) -> Callable[[str], str]:
    """Translates what the tools write on pages; a phrase that the catalogue lacks stays English."""
    catalogue = read(language, FURNITURE)
    found = {str(one.id): str(one.string) for one in catalogue or () if one.id and one.string and not one.fuzzy}
    return lambda english: found.get(english, english)


def title_of(language: str, page: str, title: str) -> str:
    """A page's title, with its number where it has one, in a language; in English where it is not translated."""
    number, dot, bare = title.rpartition(" · ")
    found = {str(one.id): str(one.string) for one in read(language, page) or () if one.string and not one.fuzzy}
    return found.get(title, f"{number}{dot}{found.get(bare, bare)}")


def begun(language: str) -> list[str]:
    """The pages that have a catalogue."""
    paths = sorted(folder(language).rglob("*.po"))
    names = (path.relative_to(folder(language)).with_suffix("").as_posix() for path in paths)
    return [name for name in names if name not in (FURNITURE, INSTRUMENTS)]


def source(page: str, root: Path = ROOT) -> Path | None:
    """The file of a page, or `None` where the book has none."""
    return next((path for path in (root / f"{page}.ipynb", root / f"{page}.md") if path.exists()), None)


def words_of(page: Path) -> list[str]:
    """All words of a page that can be translated: its text, and the words on folds and of alt texts."""
    if page.suffix == ".md":
        listed = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
        captions = [part["caption"] for part in listed["parts"]] if page.stem == Path(listed["root"]).name else []
        return [FRAMES.sub("", page.read_text(encoding="utf-8")), *captions]
    notebook = nbformat.read(page, as_version=4)
    said = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            launches = LAUNCHES & set(cell.metadata.get("tags", []))
            said += [line for line in cell.source.splitlines() if line.startswith("#")] if launches else [cell.source]
        shown = cell.metadata.get("mystnb", {})
        said += [shown[key] for key in ("code_prompt_show", "code_prompt_hide") if key in shown]
        said += [shown["image"]["alt"]] if "image" in shown else []
        said += [
            words for field in cell.metadata.get("predict", ()) for words in (field["ask"], *field.get("choices", ()))
        ]
        said += [cell.metadata["tried"]] if "tried" in cell.metadata else []
    return said


def one_line(text: str) -> str:
    return " ".join(text.split())


def needs_words(passage: str) -> bool:
    """Whether anything in a passage is to be translated: more than formulas, code and links."""
    return re.search(r"[^\W\d_]{2}", FIXED.sub(" ", passage)) is not None


def in_phrases(language: str, text: str) -> str:
    """A text with each phrase of the tools' own catalogue exchanged, the longest first."""
    say = phrases(language)
    known = [str(one.id) for one in read(language, FURNITURE) or () if one.id]
    for phrase in sorted(known, key=len, reverse=True):
        text = text.replace(phrase, say(phrase))
    return text


def fixed(passage: str) -> list[str]:
    """The formulas, code, addresses and HTML of a passage, sorted."""
    return sorted(FIXED.findall(passage))


def stale(catalogue: Catalog, left: Sequence[str]) -> dict[str, str]:
    """For passages without a translation: that of the passage which they were before they changed.

    The catalogue names it where it was brought up to date since. Where it was not, the most similar passage is taken,
    if it is as similar as sphinx-intl asks for.
    """
    known = {str(one.id): str(one.string) for one in catalogue if one.id and one.string}
    found = {}
    for text in left:
        (before, *_) = [text] if text in known else [*difflib.get_close_matches(text, known, 1, SIMILAR), ""]
        if before and needs_words(before):
            found[text] = known[before]
    return found


@dataclass(frozen=True)
class Standing:
    """How a page's catalogue compares with the page: passages of each sort."""

    page: str
    translated: int
    stale: list[str]  # the passage changed after it was translated
    missing: list[str]  # in the catalogue, without a translation
    gone: list[str]  # translated, but not on the page any more
    unlike: list[str]  # formulas, code or links differ from the passage's
    new: list[str]  # on the page, but not in the catalogue: run the tool

    @property
    def problems(self) -> list[str]:
        sorts = {"stale": self.stale, "not translated": self.missing, "not on the page any more": self.gone}
        sorts |= {"formulas, code or links differ": self.unlike, "not in the catalogue yet": self.new}
        return [f"{sort}: {passage[:90]!r}" for sort, passages in sorts.items() for passage in passages]


def standing(page: str, catalogue: Catalog, words: Iterable[str]) -> Standing:
    """Hold a catalogue against the words of its page, without building anything."""
    said = [one_line(DISPLAYED.sub(" ", text)) for text in words]
    everything = "\n".join(said)
    messages = [(str(message.id), str(message.string), message.fuzzy) for message in catalogue if message.id]
    there = [text for text, _, _ in messages if text in everything or text in MADE]
    left = everything
    for text in sorted(there, key=len, reverse=True):
        left = re.sub(rf"(?<!\w){re.escape(text)}(?!\w)", " ", left)  # "no", but not in "know"
    left = re.sub(r"\[\]\([^)]*\)|</?\w+>|```\w.*?```", " ", left)  # Sphinx hands over no code
    return Standing(
        page,
        sum(bool(other) and not fuzzy for _, other, fuzzy in messages),
        [text for text, other, fuzzy in messages if fuzzy and other],
        [text for text, other, _ in messages if not other],
        [text for text, other, _ in messages if other and text not in there],
        [text for text, other, fuzzy in messages if other and not fuzzy and fixed(text) != fixed(other)],
        [one_line(line) for line in re.split(r"\n| {2,}", left) if re.search(r"[A-Za-z]{3}", line)],
    )


MADE = {  # words on a page that its notebook does not hold
    "Code to repair:",
    *("Show a solution, and what the checker says", "Hide the solution"),
    *("Show how this page installs what it needs in Colab", "Hide how this page installs what it needs"),
    *("Show the code", "Hide the code"),
}


def collect(root: Path, target: Path) -> None:
    """Have Sphinx write the passages of all pages into `target`."""
    settings = {"gettext_compact": False, "gettext_location": False, "project": title(root), "version": version(root)}
    doctrees = target.with_name("doctrees")
    done = sphinx_book.sphinx_build(root, target, "gettext", more=settings, quiet=True, doctrees=doctrees)
    if done != 0:
        raise RuntimeError(f"Sphinx could not collect the passages: {done}")


def title(root: Path) -> str:
    return str(yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))["title"])


def version(root: Path) -> str:
    """The version that a translation is of: `0.3.0+` where the text has changed since 0.3.0."""
    headings = re.findall(r"^## ([^\s,]+)", (root / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    newest = next(heading for heading in headings if heading != "Unreleased")
    return newest if headings[0] == newest else f"{newest}+"


def bring_up_to_date(language: str, pages: Sequence[str], root: Path = ROOT) -> None:
    """Take over the passages of these pages; translations stay, and those of changed passages become stale."""
    with tempfile.TemporaryDirectory() as name:
        passages, chosen = Path(name) / "all", Path(name) / "chosen"
        collect(root, passages)
        for page in pages:
            (chosen / page).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(passages / f"{page}.pot", chosen / f"{page}.pot")
        update(str(LOCALE), str(chosen), (language,), line_width=LINE, jobs=1)
    for page in pages:
        path = folder(language) / f"{page}.po"
        catalogue = load_po(str(path))
        catalogue.obsolete.clear()  # what no page says any more: git has it
        dump_po(str(path), catalogue, line_width=LINE)


def all_standings(language: str) -> list[Standing]:
    """How each catalogue of a language compares with its page."""
    found = []
    for page in begun(language):
        catalogue, path = read(language, page), source(page)
        if catalogue is not None:
            found.append(standing(page, catalogue, words_of(path) if path else ()))
    return found


def to_do(language: str) -> list[dict[str, str]]:
    """The passages of all catalogues that are stale or have no translation."""
    found = []
    for page in begun(language):
        for one in read(language, page) or ():
            if one.id and (one.fuzzy or not one.string):
                found.append({"page": page, "text": str(one.id), "was": str(one.string), "is": ""})
    return found


def filled(language: str, file: Path) -> int:
    """Take over what was translated in a file of `to_do`, and date the catalogues; the number of passages.

    Raises:
        ValueError: a page or a passage is in no catalogue, or formulas, code or links differ from the text's. Nothing
            is written then.
    """
    with_words = [one for one in json.loads(file.read_text(encoding="utf-8")) if one["is"].strip()]
    catalogues = {}
    for page in dict.fromkeys(one["page"] for one in with_words):
        path = folder(language) / f"{page}.po"
        if page not in begun(language):
            raise ValueError(f"{page}: there is no {path.name}")
        catalogues[path] = load_po(str(path))
    for one in with_words:
        message = catalogues[folder(language) / f"{one['page']}.po"].get(one["text"])
        if message is None:
            raise ValueError(f"{one['page']}: its catalogue has no passage {one['text'][:60]!r}")
        if fixed(one["text"]) != fixed(one["is"]):
            raise ValueError(f"{one['page']}: formulas, code or links differ: {one['text'][:60]!r}")
        message.string = one["is"]
        message.flags.discard("fuzzy")
    for path, catalogue in catalogues.items():
        catalogue.revision_date = datetime.datetime.now(datetime.timezone.utc)
        catalogue.project, catalogue.version = title(ROOT), version(ROOT)
        dump_po(str(path), catalogue, line_width=LINE)
    return len(with_words)


def of_checkers(language: str) -> Standing | None:
    """What checkers say in the chapters that are begun; `None` where they do not speak the language."""
    from mhalib_classroom import _language, checks

    if language not in _language.languages():
        return None
    sentences = _language.sentences(language)
    said: dict[int, list[str]] = {}
    for one in checks.EXERCISES.values():
        messages = (mistake.message for mistake in one.mistakes)
        said.setdefault(one.chapter, []).extend([one.title, one.verified, *one.parts, *messages])
    missing = [[text for text in texts if sentences.phrase(text) is None] for texts in said.values()]
    pairs = zip(missing, said.values(), strict=True)
    left = [text for texts, all_texts in pairs if 2 * len(texts) < len(all_texts) for text in texts]
    return Standing("checkers", len(sentences.known), [], left, [], [], [])


def build(language: str, root: Path = ROOT) -> int:
    """Build the book in a language into _build/html-fr, every page anew; the exit status."""
    settings = {"language": language, "locale_dirs": [str(root / "locale")], "gettext_compact": False}
    target, doctrees = root / f"_build/html-{language}", root / f"_build/.doctrees-{language}"
    return sphinx_book.sphinx_build(root, target, more=settings, strict=True, everything=True, doctrees=doctrees)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("language", help="such as fr, zh_CN")
    parser.add_argument("--begin", nargs="+", default=[], metavar="PAGE", help="pages that get a catalogue now")
    parser.add_argument("--list", action="store_true", help="only list what is stale or missing")
    parser.add_argument("--to-do", type=Path, metavar="FILE", help="write that as JSON, to translate in it")
    parser.add_argument("--fill", type=Path, metavar="FILE", help="take over what was translated in such a file")
    asked = parser.parse_args(given)
    if not re.fullmatch(r"[a-z]{2,3}(_[A-Z]{2})?", asked.language):
        parser.error(f"{asked.language!r} is no language: give two letters, such as fr, or zh_CN")
    if asked.to_do:
        left = to_do(asked.language)
        write_whole(asked.to_do, json.dumps(left, indent=1, ensure_ascii=False) + "\n")
        print(f"{len(left)} passages in {asked.to_do}")
        return 0
    if asked.fill:
        try:
            print(f"{filled(asked.language, asked.fill)} passages taken over")
        except (ValueError, OSError) as error:
            parser.error(str(error))
    elif not asked.list:
        pages = sorted({*begun(asked.language), *(f"chapters/{Path(page).stem}" for page in asked.begin)})
        if not pages:
            parser.error(f"locale has no page in {asked.language!r}: name one, --begin 01_weighted_average")
        if unknown := [
            page for page in pages if not any((ROOT / f"{page}{end}").exists() for end in (".ipynb", ".md"))
        ]:
            parser.error(f"the book has no page {unknown[0]}")
        bring_up_to_date(asked.language, pages)
    checkers = of_checkers(asked.language)
    for one in [*all_standings(asked.language), *([checkers] if checkers else [])]:
        print(f"{one.page}: {one.translated} passages translated, {len(one.problems)} to look at")
        for problem in one.problems[: None if asked.list else SHOWN]:
            print(f"  {problem}")
        if len(one.problems) > SHOWN and not asked.list:
            print("  and more: --list shows them all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
