"""A chapter gets another number, with all that names it, and comes back."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tools.notebooks import move_chapter

STEMS = ["01_one", "02_two", "03_three", "04_four"]
TOC = """format: jb-book
parts:
  - caption: "Part I"
    chapters:
      - file: chapters/01_one
        title: 1 · One
      - file: chapters/02_two
        title: 2 · Two
  - caption: "Part II"
    chapters:
      - file: chapters/03_three
        title: 3 · Three
      - file: chapters/04_four
        title: 4 · Four
      - file: chapters/glossary
"""


@pytest.fixture
def house(tmp_path: Path) -> Path:
    files = {
        "_toc.yml": TOC,
        "chapters/moved.yml": "# Old addresses.\n00_two: 02_two\n",
        "CHANGELOG.md": "Chapter 2 is new.\n",
        "chapters/bibliography.md": "Vaswani: chapter 2 of their book, as in [ours](02_two.ipynb).\n",
        "tools/cards.py": 'CARDS = {"02_two": 3}\n',
    }
    files |= {f"chapters/{stem}.ipynb": f"Figure {number}.1\n" for number, stem in enumerate(STEMS, start=1)}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG 02_two \xff")
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


def contents(house: Path) -> dict[str, bytes]:
    """All files but the table of old addresses, which remembers each move."""
    subprocess.run(["git", "add", "-A"], cwd=house, check=True)
    listed = subprocess.run(["git", "ls-files"], cwd=house, check=True, capture_output=True, text=True).stdout
    return {name: (house / name).read_bytes() for name in listed.splitlines() if name != move_chapter.ADDRESSES}


def test_files_titles_and_order_move_and_come_back(house: Path) -> None:
    before = contents(house)
    assert move_chapter.move(house, 2, 4) == []
    moved = contents(house)
    names = [f"chapters/{stem}.ipynb" for stem in ("01_one", "02_three", "03_four", "04_two")]
    assert sorted(name for name in moved if re.match(r"chapters/\d", name)) == names
    assert [moved[name].decode() for name in names] == [f"Figure {number}.1\n" for number in range(1, 5)]
    toc = moved["_toc.yml"].decode()
    entries = [line.strip() for line in toc.splitlines() if "title" in line or "caption" in line]
    assert entries == [
        '- caption: "Part I"', "title: 1 · One", '- caption: "Part II"', "title: 2 · Three", "title: 3 · Four",
        "title: 4 · Two",
    ]  # fmt: skip
    assert moved["tools/cards.py"] == b'CARDS = {"04_two": 3}\n'
    assert moved["chapters/bibliography.md"] == b"Vaswani: chapter 2 of their book, as in [ours](04_two.ipynb).\n"
    assert (moved["CHANGELOG.md"], moved["picture.png"]) == (before["CHANGELOG.md"], before["picture.png"])
    move_chapter.move(house, 4, 2)
    back = contents(house)
    toc, old = (one.pop("_toc.yml").decode() for one in (back, before))
    assert back == before
    assert toc != old  # it is the first of part II now, whose number it took
    assert move_chapter.ENTRY.findall(toc) == move_chapter.ENTRY.findall(old)


def test_old_addresses_lead_to_where_the_chapters_are_now(house: Path) -> None:
    move_chapter.move(house, 2, 4)
    assert (house / "chapters/moved.yml").read_text("utf-8").startswith("# Old addresses.\n")
    names = {"02_two": "04_two", "03_three": "02_three", "04_four": "03_four"}
    assert move_chapter.addresses(house) == {"00_two": "04_two", **names}
    move_chapter.move(house, 4, 2)  # a name that a chapter has again is no old one
    assert move_chapter.addresses(house) == {
        "00_two": "02_two",
        "04_two": "02_two",
        "02_three": "03_three",
        "03_four": "04_four",
    }


def test_within_a_part_every_byte_comes_back(house: Path) -> None:
    before = contents(house)
    move_chapter.move(house, 3, 4)
    move_chapter.move(house, 4, 3)  # git has not been told of the first move
    assert contents(house) == before


def test_what_is_deleted_already_stops_nobody(house: Path) -> None:
    (house / "chapters/03_three.ipynb").unlink()
    move_chapter.move(house, 2, 4)
    assert sorted(path.stem for path in house.glob("chapters/*.ipynb")) == ["01_one", "03_four", "04_two"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see [chapter 2](02_two.ipynb#x) and chapter 3", "see [chapter 4](04_two.ipynb#x) and chapter 2"),
        ("[2 · Two](../chapters/02_two.ipynb)", "[4 · Two](../chapters/04_two.ipynb)"),
        ("[2 ways](01_one.ipynb)", "[2 ways](01_one.ipynb)"),  # not a number of its own
        ("| [3](03_three.ipynb) |", "| [2](02_three.ipynb) |"),
        ("[Chapters 1](01_one.ipynb) [to 3](03_three.ipynb)", "[Chapters 1](01_one.ipynb) [to 2](02_three.ipynb)"),
        ("chapters 1, 2 and 4", "chapters 1, 4 and 3"),
        ("Chapters 2, 3, and 4", "Chapters 4, 2, and 3"),
        ("the chapitre 2 et", "the chapitre 4 et"),
        ('"as in chapter\\n",\n    "3, heads', '"as in chapter\\n",\n    "2, heads'),
        ('"as in chapter "\n"3, heads', '"as in chapter "\n"2, heads'),
        ("# as in chapter\n# 3", "# as in chapter\n# 2"),
        ("Figure 2.3, Figures 2.1 and 3.10", "Figure 4.3, Figures 4.1 and 2.10"),
        ("chapter 22, Figure 12.2, chapter 2.5 is", "chapter 22, Figure 12.2, chapter 4.5 is"),
        ("02_two_more stays, 02_two.py moves", "02_two_more stays, 04_two.py moves"),
        ("2 chapters, 3 heads", "2 chapters, 3 heads"),
        ('"make results CHAPTERS=02"', '"make results CHAPTERS=04"'),
        ("`make results CHAPTERS=3 JOBS=2`, CHAPTERS=22", "`make results CHAPTERS=2 JOBS=2`, CHAPTERS=22"),
    ],
)
def test_what_names_a_chapter_names_it_anew(text: str, expected: str) -> None:
    new = move_chapter.renumbered(STEMS, 2, 4)
    assert new == {1: 1, 2: 4, 3: 2, 4: 3}
    assert move_chapter.with_numbers(text, STEMS, new) == (expected, [])


@pytest.mark.parametrize("text", ["chapters 1 to 3", "chapters 1–3", "[D2L](https://d2l.ai/x.html), chapter 2: scores"])
def test_what_a_person_has_to_read_is_left_and_said(text: str) -> None:
    made, doubtful = move_chapter.with_numbers(f"Here: {text} end", STEMS, {1: 1, 2: 4, 3: 2, 4: 3})
    assert made == f"Here: {text} end"
    assert len(doubtful) == 1
    assert text[-12:-3] in doubtful[0]


def test_a_chapter_that_is_not_there_is_named(house: Path) -> None:
    before = contents(house)
    for moved, to, message in ((9, 2, "moved=9 is no chapter: there are 1 to 4"), (2, 0, "to=0 is no chapter")):
        with pytest.raises(ValueError, match=message):
            move_chapter.move(house, moved, to)
    assert contents(house) == before
