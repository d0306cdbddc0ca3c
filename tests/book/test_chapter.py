"""`make chapter`: what it makes passes the tests of conventions, in a copied repository; what it refuses, it names."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from book_text import TEXTS, Text

from tools.notebooks import chapter, notebooks

pytestmark = pytest.mark.tool

CONVENTIONS = ("notebooks", "figures", "glossary", "notation", "sources", "results")
ASKED = [f"tests/book/test_{name}.py" for name in CONVENTIONS]
OF_ALL = "every_notebook_is_in_the_book or every_page_is_in_the_book"


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The files of the repository, without pictures and exercises."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=notebooks.ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listing.stdout.split("\0")):
        source = notebooks.ROOT / name
        if source.is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, tmp_path / name)
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.weekly("tools/notebooks/", "tests/book/test_chapter.py", "_toc.yml", "chapters/index.md", *ASKED)
def test_a_new_chapter_passes_the_conventions_tests(copied: Path) -> None:
    """Number, name and title go where all look for them; the text is left to be written."""
    number = chapter.next_number()
    stem = f"{number:02d}_rotary_positions"
    before = yaml.safe_load((copied / "_toc.yml").read_text(encoding="utf-8"))
    made = run(copied, "-m", "tools.notebooks.chapter", "rotary_positions", "Rotary: {what} turns?")
    assert made.returncode == 0, made.stdout + made.stderr
    toc = yaml.safe_load((copied / "_toc.yml").read_text(encoding="utf-8"))
    (part,) = (part for part in toc["parts"] if part["chapters"][-1]["file"] == f"chapters/{stem}")
    assert part["chapters"].pop() == {"file": f"chapters/{stem}", "title": f"{number} · Rotary: {{what}} turns?"}
    assert toc == before
    index = (copied / "chapters/index.md").read_text(encoding="utf-8")
    line = re.escape(f"{number}. [Rotary: {{what}} turns?]({stem}.ipynb): TO WRITE")
    assert re.search(rf"^{number - 1}\. .*\n{line}", index, re.MULTILINE)
    assert re.search(rf"^{number - 1}: .*\n{number}: 0 \d+\n```", index, re.MULTILINE)

    assert stem in json.loads((copied / chapter.NAMES).read_text(encoding="utf-8"))

    options = ("-q", "-p", "no:cacheprovider", "-k", f"{stem} or {OF_ALL}")
    found = run(copied, "-m", "pytest", *options, *ASKED)
    assert found.returncode == 0, found.stdout
    assert int(re.search(r"(\d+) passed", found.stdout)[1]) >= 20, found.stdout

    again = run(copied, "-m", "tools.notebooks.chapter", "rotary_positions", "Another title")
    assert again.returncode == 2
    assert again.stderr == (
        f"chapters/{stem}.ipynb has the name 'rotary_positions' already: give another NAME, or edit that page\n"
    )


@pytest.mark.parametrize(
    ("name", "title", "said"),
    [
        ("", "A title", "chapters/NAME.ipynb cannot be made, for NAME is missing: make chapter NAME="),
        ("topic", "", "chapters/topic.ipynb cannot be made, for TITLE is missing: make chapter NAME="),
        ("topic", "  ", "chapters/topic.ipynb cannot be made, for TITLE is missing: make chapter NAME="),
        ("A-Topic", "A title", "chapters/A-Topic.ipynb cannot be made, for NAME='A-Topic' is not made of"),
        ("15_topic", "A title", "NAME='15_topic' is not made of lower-case letters"),
        ("a/b", "A title", "NAME='a/b' is not made of"),
        ("topic", "two\nlines", "TITLE='two\\nlines' is not one line"),
        ("reshape_trick", "A title", "chapters/04_reshape_trick.ipynb has the name 'reshape_trick' already: give"),
        ("glossary", "A title", "chapters/glossary.md has the name 'glossary' already: give another NAME"),
        ("topic", "The reshape trick", "chapters/04_reshape_trick.ipynb has the title 'The reshape trick' already"),
    ],
)
def test_a_refusal_names_the_file_and_the_remedy(name: str, title: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        chapter.make(name, title)


@pytest.mark.parametrize("name", ["_toc.yml", "chapters/index.md"])
def test_a_list_without_chapters_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "chapters").mkdir()
    for module in (notebooks, chapter):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(notebooks, "CHAPTERS", tmp_path / "chapters")
    for each in ("_toc.yml", "chapters/index.md"):
        shutil.copy(Path(chapter.__file__).parents[2] / each, tmp_path / each)
    (tmp_path / name).write_text("nothing\n", encoding="utf-8")
    with pytest.raises(ValueError, match=rf"^{re.escape(name)} lists no chapter with a number: put one back"):
        chapter.make("topic", "A title")
    assert list(tmp_path.rglob("*.ipynb")) == []


def unwritten(text: Text) -> bool:
    return any(chapter.TO_WRITE in each for each in text.markdown)


def test_no_page_of_the_book_is_left_to_be_written() -> None:
    assert [text.name for text in TEXTS if unwritten(text)] == []
    assert unwritten(Text("new", tuple(one for one in chapter.SKELETON if isinstance(one, str))))
