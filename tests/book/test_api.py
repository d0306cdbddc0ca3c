"""The pages of the API: an entry for each public name, and each leads to a page that explains it."""

from __future__ import annotations

import copy
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import book_text
import nbformat
import pytest
from bs4 import BeautifulSoup, Tag
from served import HTML

import mhalib
from tools.notebooks import address, notebooks
from tools.pages import api, api_examples

API_PAGES = [text for name, text in book_text.PAGES.items() if name.startswith("api")]
MODULES = sorted(
    {f"mhalib.{found.name}" for found in pkgutil.iter_modules(mhalib.__path__) if found.name[0] != "_"}
    - {"mhalib.classroom"}
    | {"mhalib_classroom.checks", "mhalib_classroom.grade"}
)


def names(module: str) -> set[str]:
    """Those that the table of tools/pages/api.py has."""
    return {full.rpartition(".")[2] for full in api.PAGE_OF if full.rpartition(".")[0] == module}


@pytest.fixture(scope="module")
def built() -> dict[str, tuple[Tag, Tag]]:
    """The built entries: full name -> signature and text."""
    if not (HTML / "chapters/api.html").exists():
        pytest.fail("there is no built book to test: run  make book  first")
    pages = [BeautifulSoup((HTML / f"chapters/{text.name}.html").read_bytes(), "html.parser") for text in API_PAGES]
    return {one["id"]: (one, one.find_next_sibling("dd")) for page in pages for one in page.select("dl.py > dt[id]")}


def test_every_public_module_has_its_names_in_the_table_and_on_one_page() -> None:
    assert sorted(api.CHAPTERS) == MODULES
    asked = re.findall(r"^```\{api\} (\S+)\n```$", "\n".join(text.markdown[0] for text in API_PAGES), re.MULTILINE)
    assert sorted(asked) == MODULES


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_has_an_entry_and_every_entry_a_name(module: str) -> None:
    assert names(module) == api.public_names(module), "tools/pages/api.py says which chapter builds a name"


def test_every_name_stands_once_in_the_table() -> None:
    listed = [
        f"{module}.{one.partition('=')[0]}"
        for module, pages in api.CHAPTERS.items()
        for page in pages.values()
        for one in page.split()
    ]
    assert sorted(listed) == sorted(set(listed))


def test_names_of_the_package_itself_are_modules_or_have_entries_elsewhere() -> None:
    homes = {name: f"mhalib.{home}.{name}" for name, home in mhalib._HOMES.items()}
    assert set(homes.values()) <= set(api.PAGE_OF)
    for name, full in homes.items():
        assert getattr(mhalib, name) is getattr(importlib.import_module(full.rpartition(".")[0]), name)


@pytest.mark.parametrize("full", api.PAGE_OF)
def test_an_entry_leads_to_a_page_that_names_it(full: str) -> None:
    page, word = api.PAGE_OF[full]
    assert page in book_text.PAGES, f"there is no page {page}"
    assert not page.startswith("api")
    text = book_text.PAGES[page]
    name = full.rpartition(".")[2]
    exact = 0 if word == name else re.IGNORECASE
    assert re.search(rf"\b{word}\b", "\n".join(text.markdown + text.code), exact), f"{page} says no {word!r}"


def test_every_name_is_built_with_its_docstring_and_its_chapter(built: dict[str, tuple[Tag, Tag]]) -> None:
    assert set(api.PAGE_OF) <= set(built)
    for full, (page, _) in api.PAGE_OF.items():
        text = built[full][1]
        assert text.select(f'a[href^="{page}.html"]'), full
        said = text.get_text().strip()
        assert said, full
        assert not re.match(r"(Chapter \d+|Page): ", said), f"{full} has no docstring"


def test_nothing_is_built_that_is_not_public(built: dict[str, tuple[Tag, Tag]]) -> None:
    known = {*api.PAGE_OF}
    assert {one for one in built if one not in known and one.rpartition(".")[0] not in known} == set()


def test_an_entry_shows_signature_shapes_errors_and_source(built: dict[str, tuple[Tag, Tag]]) -> None:
    head, entry = built["mhalib.attention.attend"]
    signature = re.sub(r"\s+", " ", head.get_text())
    assert "mask: Tensor | None = None" in signature
    assert "tuple[Tensor, Tensor | None]" in signature
    text = re.sub(r"\s+", " ", entry.get_text())
    for part in (
        "Parameters: q – (B, h, Q, d).",
        "Returns: output",
        "Raises: TypeError, ValueError –",
        "Source: Vaswani",
    ):
        assert part in re.sub(r" ?: ?", ": ", text), part
    linked = entry.select('a[href$="mhalib/attention/functional.py"]')
    assert bool(linked) == (address.here() is not None)
    assert "mhalib/attention/functional.py" in text
    assert "mhalib.attend" in text


IMPORTED = re.compile(r"^from mhalib[\w.]* import (\w[\w, ]+)$|^from mhalib[\w.]* import \(([\w,\s]+)\)$", re.MULTILINE)


def test_what_chapters_call_has_an_example_of_theirs(built: dict[str, tuple[Tag, Tag]]) -> None:
    chapters = {path.stem: "\n".join(api_examples.code_cells(path)) for path in notebooks.CHAPTERS.glob("*.ipynb")}
    used = set()
    for code in chapters.values():
        names = {name for line in IMPORTED.findall(code) for name in re.findall(r"\w+", " ".join(line))}
        used |= {name for name in names if re.search(rf"(?<!import )\b{name}\(", code)}
        used |= set(re.findall(r"\bmhalib\.(\w+)\(", code))
    assert len(used) > 100
    without = set()
    for full in api.PAGE_OF:
        name = full.rpartition(".")[2]
        examples = built[full][1].select("div.highlight-python")
        without |= {full} if name in used and not examples else set()
        for code in (one.get_text().strip() for one in examples):
            assert re.search(rf"\b{name}\b", code), full
            assert any(one.issuperset(code.split()) for one in (set(code.split()) for code in chapters.values())), full
    assert without == set()


def test_a_use_is_preferred_that_calls_on_the_page_that_builds_a_name(tmp_path: Path) -> None:
    pages = {
        "01_a": ["attend\nattend(q, k, v)", "x = [\n    mhalib.attend(q,\n        k, v)\n]"],
        "02_b": ["attend(q)"],
    }
    for page, sources in pages.items():
        cells = [nbformat.v4.new_code_cell("from mhalib import attend")]
        cells += [nbformat.v4.new_code_cell(source) for source in sources]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / f"{page}.ipynb")
    full = "mhalib.attention.attend"
    assert api_examples.example_of(full, "02_b", tmp_path) == ("attend(q)", "02_b")
    assert api_examples.example_of(full, "01_a", tmp_path) == ("attend(q, k, v)", "01_a")
    assert api_examples.example_of(full, "09_c", tmp_path) == ("attend(q)", "02_b")
    assert api_examples.example_of("mhalib.attention.rotate", "01_a", tmp_path) is None


def test_no_docstring_leaves_traces_of_markup(built: dict[str, tuple[Tag, Tag]]) -> None:
    for full, (_, entry) in built.items():
        assert not entry.select(".system-message, .problematic"), full
        text = copy.copy(entry)
        assert not [
            one for one in text.select("dl.field-list li") if one.get_text().strip(" –\n") == one.strong.get_text()
        ], full
        for code in text.select("code, pre"):
            code.extract()
        assert not re.search(r"`|:py:|\*\*\S+\*\*", text.get_text()), full


def test_every_checker_stands_in_the_table_of_exercises() -> None:
    page = (HTML / "chapters/api_data.html").read_bytes()
    rows = BeautifulSoup(page, "html.parser").select("#checkers-of-the-exercises table tbody tr")
    listed = {code.get_text(): int(row.td.get_text().split(":")[0]) for row in rows for code in row.select("code")}
    assert listed == api.exercises()


@pytest.mark.parametrize(
    ("docstring", "written"),
    [
        ("takes `attend`", "takes :py:obj:`attend <mhalib.attention.attend>`"),
        ("see `mhalib.plots.head_wall`.", "see :py:obj:`mhalib.plots.head_wall <mhalib.plots.head_wall>`."),
        ("`None` means |x|", r"``None`` means \|x\|"),
        ("``a | b`` and :py:obj:`x`", "``a | b`` and :py:obj:`x`"),
    ],
)
def test_names_in_docstrings_become_links_or_code(docstring: str, written: str) -> None:
    assert api.literal(docstring, "mhalib.attention") == written


def test_the_layers_entry_has_the_methods_of_its_base_which_has_none() -> None:
    assert "HeadsOfLayer" not in api.public_names("mhalib.attention")
    shown = [name for name in ("MultiHeadAttention", "Band") if "inherited" in api.entry("mhalib.attention", name)]
    assert shown == ["MultiHeadAttention"]
    assert "inherited" not in api.entry("mhalib.variants", "TalkingHeads")


def test_public_names_without_all_are_what_the_module_defines() -> None:
    assert "GPT" not in api.public_names("mhalib.decoding")  # imported
    assert {"greedy", "sample"} <= api.public_names("mhalib.decoding")
    assert {"FOLDER", "load"} <= api.public_names("mhalib.saved")
    assert not any(name.startswith("_") for module in MODULES for name in api.public_names(module))
    assert inspect.ismodule(importlib.import_module("mhalib.saved"))
