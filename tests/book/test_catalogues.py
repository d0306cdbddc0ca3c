"""The book in other languages: catalogues that fit their pages, formulas and code left alone, stale passages found."""

from __future__ import annotations

import io
import json
import re
from datetime import datetime, timezone
from pathlib import Path

import pytest
import yaml
from babel.messages.catalog import Catalog
from babel.messages.pofile import write_po
from bs4 import BeautifulSoup
from docutils import nodes
from docutils.utils import new_document
from playwright.sync_api import Browser
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

from tools.notebooks import notebooks
from tools.pages import book_language, catalogues

ALL = [(language, page) for language in catalogues.languages() for page in catalogues.begun(language)]
LEFT_ALONE = re.compile(
    r"`[^`]*`|\$[^$]+\$|\]\([^)]*\)|</?\w[^>]*>|\{[^}]*\}|:::.*|```.*?```", re.DOTALL
)  # code, formulas, links
PLAIN_SPACE = re.compile(r" [;:?!»]|« ")  # French sets these signs apart by a space where no line may break
OLD = "An average of all values, weighted by $w$: see `attend`."
NEW = "An average of all the values, weighted by $w$: see `attend`."
OTHER = "Une moyenne de toutes les valeurs, pondérée par $w$ : voir `attend`."


def standing(language: str, page: str) -> catalogues.Standing:
    catalogue, path = catalogues.read(language, page), catalogues.source(page)
    assert path is not None, f"locale/{language} has a catalogue of {page}, which the book has not: remove it"
    return catalogues.standing(page, catalogue, catalogues.words_of(path))


def test_there_is_a_translation() -> None:
    assert ("fr", "chapters/01_weighted_average") in ALL


@pytest.mark.parametrize(("language", "page"), ALL)
def test_a_catalogue_is_about_its_page(language: str, page: str) -> None:
    """Who mends an English sentence need not know French: the page shows it as stale. But it must not drift far."""
    found = standing(language, page)
    outside = len(found.new) + len(found.gone)
    assert outside <= 0.1 * found.translated, f"run  make catalogues LANGUAGE={language}"


@pytest.mark.parametrize(("language", "page"), ALL)
def test_formulas_code_and_links_are_those_of_the_text(language: str, page: str) -> None:
    assert standing(language, page).unlike == []


@pytest.mark.parametrize(("language", "page"), [one for one in ALL if one[0] == "fr"])
def test_a_french_line_never_breaks_before_a_sign_that_stands_apart(language: str, page: str) -> None:
    said = [message for message in catalogues.read(language, page) if message.id and not message.fuzzy]
    texts = [LEFT_ALONE.sub("x", message.string) for message in said]
    assert not [text for text in texts if PLAIN_SPACE.search(text)]


@pytest.mark.parametrize(("language", "page"), ALL)
def test_a_catalogue_keeps_nothing_that_its_page_says_no_more(language: str, page: str) -> None:
    assert not catalogues.read(language, page).obsolete


@pytest.mark.parametrize(
    ("text", "broken"),
    [("Pourquoi ?", True), ("Pourquoi\u00a0?", False), ("un « mot\u00a0»", True), ("voir `x[: 2]` et $a : b$", False)],
)
def test_a_plain_space_before_a_sign_is_seen(text: str, broken: bool) -> None:
    assert bool(PLAIN_SPACE.search(LEFT_ALONE.sub("x", text))) == broken


@pytest.mark.parametrize(("language", "page"), ALL)
def test_a_translation_says_when_it_was_made_and_of_which_version(language: str, page: str) -> None:
    catalogue = catalogues.read(language, page)
    assert catalogue.version[0].isdigit()
    assert not isinstance(catalogue.revision_date, str), "PO-Revision-Date is not filled in"


@pytest.mark.parametrize("language", catalogues.languages())
def test_what_the_tools_write_is_translated(language: str) -> None:
    from tools.pages import book_language, deeper, finish, folds, page_head, predict, ways

    say = catalogues.phrases(language)
    for phrase in (
        *book_language.PHRASES,
        *deeper.PHRASES,
        *finish.PHRASES,
        *folds.PHRASES,
        *page_head.PHRASES,
        *predict.PHRASES,
        *ways.said(),
        "From one run of the code. If you run it, yours will differ.",
        "Another run may differ by ",
    ):
        assert say(phrase) != phrase
    banner = say(book_language.TRANSLATED).format(date="2026-01-01", version="9.8.7", now=7654, all=8765)
    assert all(part in banner for part in ("2026-01-01", "9.8.7", "7654", "8765"))


@pytest.mark.parametrize("language", catalogues.languages())
def test_cells_with_the_address_are_translated_whatever_it_is(language: str) -> None:
    links = {"colab": "c", "binder": "b", "studio_lab": "s", "static": "f"}
    exercise = notebooks.EXERCISE_LAUNCH.format(notebook="n", colab=", or [in Colab](c)")
    for said in (notebooks.LAUNCH.format(**links), notebooks.LAUNCH_HERE, exercise):
        other = catalogues.in_phrases(language, said)
        for words in (
            "Open in",
            "Or run",
            " or [",
            "Run this",
            "The first cell",
            "A checker",
            "Work in",
            "Here, hints",
        ):
            assert words not in other
        assert catalogues.fixed(said) == catalogues.fixed(other)


def test_make_book_builds_another_language_only_where_there_is_a_catalogue(capsys, monkeypatch) -> None:
    from tools.pages import build

    monkeypatch.setattr("sys.argv", ["build.py", "--language", "xx"])
    with pytest.raises(SystemExit):
        build.main()
    assert "locale/ has fr" in capsys.readouterr().err


def catalogue(*messages) -> Catalog:
    made = Catalog(locale="fr")
    for text, other, *flags in messages:
        made.add(text, other, flags=flags)
    return made


@pytest.mark.tool
@pytest.mark.parametrize(
    ("messages", "words", "found"),
    [
        ([(OLD, OTHER)], [OLD], {}),
        ([(OLD, OTHER, "fuzzy")], [OLD], {"stale": [OLD], "translated": 0}),
        ([(OLD, "")], [OLD], {"missing": [OLD], "translated": 0}),
        ([(OLD, OTHER)], [NEW], {"gone": [OLD], "new": [NEW]}),
        ([(OLD, OTHER.replace("$w$", "$v$"))], [OLD], {"unlike": [OLD]}),
        ([(OLD, OTHER.replace("`attend`", "attend"))], [OLD], {"unlike": [OLD]}),
        ([(OLD, OTHER)], [OLD + "\n\n$$x = y$$\n\n---\n"], {}),
        ([(OLD, OTHER)], [OLD + "\n\n```python\nall_code = 1\n```\n"], {}),
        ([(OLD, OTHER)], [f"- {OLD}\n- A second one."], {"new": ["- A second one."]}),
        ([(OLD, OTHER), ("no", "non")], [OLD, "- no", "He knows."], {"translated": 2, "new": ["He knows."]}),
    ],
)
def test_what_does_not_fit_is_found(messages, words, found) -> None:
    expected = {"translated": 1, "stale": [], "missing": [], "gone": [], "unlike": [], "new": []} | found
    assert vars(catalogues.standing("page", catalogue(*messages), words)) == {"page": "page", **expected}


@pytest.mark.tool
def test_a_changed_passage_is_shown_with_its_old_translation() -> None:
    """Whether or not the catalogue was brought up to date since; what is nothing like it gets none."""
    other = "The softmax of a row of scores."
    assert catalogues.stale(catalogue((OLD, OTHER)), [NEW, other]) == {NEW: OTHER}
    assert catalogues.stale(catalogue((NEW, OTHER, "fuzzy")), [NEW]) == {NEW: OTHER}
    assert catalogues.stale(catalogue((NEW, "")), [NEW]) == {}


@pytest.mark.tool
def test_what_is_left_is_translated_in_one_file(tmp_path: Path, monkeypatch, capsys) -> None:
    """What has words is taken over, and nothing else changes; one mistake, and nothing is."""
    path = tmp_path / "fr/LC_MESSAGES/chapters/page.po"
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        write_po(file, catalogue((OLD, OTHER, "fuzzy"), ("Weights", ""), ("Heads", ""), ("One", "Un")), width=110)
    before = path.read_bytes()
    monkeypatch.setattr(catalogues, "LOCALE", tmp_path)
    left = tmp_path / "left.json"
    assert catalogues.main(["fr", "--to-do", str(left)]) == 0
    told = json.loads(left.read_text(encoding="utf-8"))
    assert [(one["text"], one["was"]) for one in told] == [(OLD, OTHER), ("Weights", ""), ("Heads", "")]

    def fill(**words: str) -> int:
        left.write_text(json.dumps([one | {"is": words.get(one["text"][:2], "")} for one in told]), encoding="utf-8")
        return catalogues.filled("fr", left)

    with pytest.raises(ValueError, match="formulas, code or links differ"):
        fill(We="Poids", An=OTHER.replace("$w$", "$v$"))
    assert path.read_bytes() == before
    assert fill(An=OTHER, We="Poids") == 2
    now = catalogues.read("fr", "chapters/page")
    assert {one.id: (one.string, one.fuzzy) for one in now if one.id} == {
        OLD: (OTHER, False),
        "Weights": ("Poids", False),
        "Heads": ("", False),
        "One": ("Un", False),
    }
    assert (now.version, now.revision_date.date()) == (
        catalogues.version(catalogues.ROOT),
        datetime.now(timezone.utc).date(),
    )
    told[1]["text"] = "Wests"
    with pytest.raises(ValueError, match="its catalogue has no passage 'Wests'"):
        fill(We="Ouests")
    with pytest.raises(SystemExit):
        catalogues.main(["fr", "--fill", str(left)])
    assert "no passage" in capsys.readouterr().err


@pytest.mark.tool
@pytest.mark.filterwarnings("ignore")
def test_a_page_shows_a_changed_passage_in_english_and_beside_it_what_was_its_translation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Built by Sphinx, from a catalogue that was not brought up to date since the passage changed."""
    source, folder = tmp_path / "source", tmp_path / "locale/fr/LC_MESSAGES"
    source.mkdir()
    folder.mkdir(parents=True)
    (source / "index.md").write_text(f"# Weights\n\n{NEW}\n", encoding="utf-8")
    with (folder / "index.po").open("wb") as file:
        write_po(file, catalogue(("Weights", "Poids"), (OLD, OTHER.replace("`attend`", "[`attend`](index.md)"))))
    monkeypatch.setattr(catalogues, "LOCALE", tmp_path / "locale")
    settings = {
        "extensions": ["tools.pages.formulas", "myst_parser", "tools.pages.book_language"],
        "root_doc": "index",
        "language": "fr",
    }
    settings |= {"myst_enable_extensions": ["dollarmath"], "locale_dirs": [str(tmp_path / "locale")]}
    said = io.StringIO()
    with docutils_namespace():
        arguments = (str(tmp_path / "html"), str(tmp_path / "doctrees"), "html", settings)
        Sphinx(str(source), None, *arguments, status=None, warning=said).build()
    page = BeautifulSoup((tmp_path / "html/index.html").read_text("utf-8"), "html.parser")
    assert page.select_one("h1").get_text().startswith("Poids")
    (english,) = page.select("p[lang=en]")
    assert english.get_text().startswith("An average of all the values")
    (stale,) = page.select(".stale-translation")
    assert stale.find_previous_sibling() == english
    older = stale.select("p")[-1]
    assert older.get_text().startswith("Une moyenne de toutes les valeurs, pondérée par w")
    assert older.select_one("math")
    assert older.select_one("a code").get_text() == "attend"
    assert said.getvalue() == ""


@pytest.mark.tool
def test_the_frames_of_a_page_in_markdown_are_no_words_and_its_parts_are(tmp_path: Path) -> None:
    page = tmp_path / "index.md"
    page.write_text(
        f"---\na: b\n---\n\n# Weights\n\n::::{{grid}} 1\n:gutter: 3\n(target)=\n{OLD}\n::::\n\n```{{ways}}\n```\n",
        encoding="utf-8",
    )
    page_words, *captions = catalogues.words_of(page)
    said = set(page_words.replace("{", " ").replace(":", " ").split())
    assert not {"---", "grid", "gutter", "ways", "(target)="} & said
    assert captions[0].startswith("Part I · ")


@pytest.mark.tool
@pytest.mark.parametrize(
    ("html", "said"),
    [
        ("<details><summary>Answer</summary>", ["Answer"]),
        ("<div><details class='way'><summary>An evening</summary>", []),
    ],
)
def test_folds_of_the_texts_own_are_translated_and_not_those_of_tools(html: str, said: list[str]) -> None:
    from tools.pages import book_language

    assert book_language.Summary(nodes.raw("", html, format="html")).said() == said


@pytest.mark.tool
@pytest.mark.parametrize(("text", "needed"), [("`x.mT`", False), ("$\\text{softmax}(x)$", False), ("`x` of", True)])
def test_formulas_and_code_alone_are_not_to_be_translated(text: str, needed: bool) -> None:
    assert catalogues.needs_words(text) == needed


def test_the_table_of_contents_is_translated() -> None:
    """Parts by the start page's catalogue, titles by each page's own; a page without one keeps its title."""
    assert (
        catalogues.title_of("fr", "chapters/00_take_a_model_apart", "0 · Take a model apart")
        == "0 · Démonter un modèle"
    )
    assert catalogues.title_of("fr", "chapters/nothing", "9 · Nothing") == "9 · Nothing"
    assert catalogues.title_of("en", "chapters/00_take_a_model_apart", "0 · Take") == "0 · Take"
    parts = yaml.safe_load((notebooks.ROOT / "_toc.yml").read_text(encoding="utf-8"))["parts"]
    other = [catalogues.title_of("fr", "chapters/index", part["caption"]) for part in parts]
    assert all(one != part["caption"] for one, part in zip(other, parts, strict=True))


def test_the_start_page_s_button_is_the_phrase_that_is_translated() -> None:
    from tools.pages import book_language

    assert book_language.START in (notebooks.CHAPTERS / "index.md").read_text(encoding="utf-8")


def test_a_workflow_builds_each_language() -> None:
    workflow = yaml.safe_load((notebooks.ROOT / ".github/workflows/languages.yml").read_text(encoding="utf-8"))
    runs = "\n".join(step.get("run", "") for step in workflow["jobs"]["build"]["steps"])
    assert "make book LANGUAGE=" in runs
    assert workflow["jobs"]["build"]["strategy"]["matrix"]["language"] == catalogues.languages()


def test_the_site_is_published_in_each_language() -> None:
    """Built before the links are checked and the pages put beside those of other versions."""
    workflow = yaml.safe_load((notebooks.ROOT / ".github/workflows/publish.yml").read_text(encoding="utf-8"))
    runs = "\n".join(step.get("run", "") for step in workflow["jobs"]["build"]["steps"])
    assert f"export BOOK_LANGUAGES={' '.join(catalogues.languages())}\n" in runs
    places = [runs.index("export BOOK_LANGUAGES="), runs.index("make book\n")]
    places += [runs.index(f"mv _build/html-{language} _build/html/{language}") for language in catalogues.languages()]
    places += [runs.index("tools.development.links"), runs.index('tools.editions.versions "$SITE"')]
    assert places == sorted(places)
    assert all(f"make book LANGUAGE={language}\n" in runs for language in catalogues.languages())


@pytest.mark.parametrize("language", catalogues.languages())
def test_a_page_is_described_by_its_own_text(language: str) -> None:
    from tools.pages import book_language, book_online

    own = "Une couche d’attention donne à chaque requête une moyenne pondérée des valeurs."
    page = new_document("page")
    page += book_language.box("Traduction", "Traduit du texte anglais : 177 passages sur 177 sont à jour ici.", "note")
    page += nodes.paragraph("", catalogues.in_phrases(language, notebooks.LAUNCH_HERE).replace("`", ""))
    page += nodes.paragraph("", own)
    assert book_online.description(page, language) == own


@pytest.mark.parametrize("language", catalogues.languages())
def test_words_of_instruments_have_the_values_of_the_english_ones(language: str) -> None:
    catalogue = catalogues.read(language, catalogues.INSTRUMENTS)
    assert catalogue is not None
    assert f"chapters/{catalogues.INSTRUMENTS}" not in catalogues.begun(language)
    for one in catalogue:
        values = [sorted(re.findall(r"\{\w+\}", str(text))) for text in (one.id, one.string)]
        assert values[0] == values[1], one.id


@pytest.mark.parametrize("language", catalogues.languages())
def test_words_of_instruments_are_those_of_their_scripts(language: str) -> None:
    """What a script does not say any more is removed, or mended: a reader would see English."""
    files = [*(catalogues.ROOT / "mhalib/widgets").glob("*.*"), catalogues.ROOT / "mhalib/data/_sentences.py"]
    files += [catalogues.ROOT / "chapters/00_take_a_model_apart.ipynb"]
    said = "".join(path.read_text(encoding="utf-8") for path in files if path.suffix in (".js", ".py", ".ipynb"))
    words = {word for one in catalogues.read(language, catalogues.INSTRUMENTS) or () for word in _words(str(one.id))}
    assert {word for word in words if word not in said} == set()


def _words(phrase: str) -> list[str]:
    return re.findall(r"[A-Za-z]{3,}", re.sub(r"\{\w+\}", " ", phrase))


def test_words_of_instruments_are_exchanged_as_they_are_drawn(browser: Browser) -> None:
    """Phrases, values in them, labels, and what comes later; a model's words and what the catalogue lacks stay."""
    script = book_language.words_script(
        {"Undo": "Annuler", "head {n}": "tête {n}", "{HEAD} is off.": "{HEAD} : éteinte."}
    )
    page = browser.new_page()
    page.set_content(
        '<p>Undo</p><div class="mhalib-instrument"><button aria-label="head 2">Undo</button><b> head 1 is off. Go. </b>'
        "<i>fox</i><select><option>head 3</option></select><u></u></div>"
    )
    page.add_script_tag(content=script)
    page.evaluate("() => { document.querySelector('u').textContent = 'Undo'; }")
    page.wait_for_function("document.querySelector('u').textContent === 'Annuler'")
    page.evaluate("() => document.querySelector('button').setAttribute('aria-label', 'head 4')")
    page.wait_for_function("document.querySelector('button').ariaLabel === 'tête 4'")
    page.evaluate("() => { document.querySelector('u').textContent = 'head 5 · 10⁻²³'; }")
    page.wait_for_function("document.querySelector('u').textContent === 'tête 5 · 10⁻²³'")
    assert page.inner_text("p") == "Undo"
    assert page.inner_text("b").strip() == "tête 1 : éteinte. Go."
    assert page.inner_text("i") == "fox"
    assert page.inner_text("option") == "tête 3"
    assert page.input_value("select") == "head 3"
    page.close()
