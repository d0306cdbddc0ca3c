"""Give a chapter another number: rename its files and those of the chapters between, and mend what names them.

    make move FROM=7 TO=12  # or python -m tools.notebooks.move_chapter 7 12

Chapter 7 becomes chapter 12, and 8 to 12 become 7 to 11. In all files that git does not ignore, but the changelog, it
mends

- file names, 07_per_head_heatmaps, in paths and in texts;
- chapters/moved.yml, by which old addresses of pages lead on to the new ones;
- _toc.yml: the order, and the numbers in titles;
- "chapter 7", "chapters 7, 8 and 12", "Figure 7.3", "Table 7.1", "Exercise 7.2", also in French and across lines,
  and a number at the start of a link to its chapter.

What it cannot know is printed, for you to read: ranges, as "chapters 1 to 18", and chapters of other books. Afterwards
`make exercises` writes the tables anew; build the book and run the tests. A chapter comes into the part of the book
where the chapter was whose number it takes; moved back within its part, every byte is what it was,
but for the addresses.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from mhalib._write import write_whole
from tools import ROOT

ENTRY = re.compile(r"^ *- file: chapters/(?P<stem>(?P<number>\d\d)_\w+)\n *title: .*\n", re.MULTILINE)
ADDRESSES = "chapters/moved.yml"  # old names of chapters, and the new ones
KEPT = (  # of the past, of other books, and examples
    "CHANGELOG.md",
    "chapters/references.bib",
    ADDRESSES,
    "tools/notebooks/move_chapter.py",
    "tests/book/test_move_chapter.py",
)
OF_OTHERS = "chapters/bibliography.md"  # its chapters are those of other books, its links are ours
SPACE = r'(?:[\s\u00a0]|\\n",\s*"|"\n"|\n# )+'  # lines of prose are texts in a notebook and in a catalogue
WORDS = r"[Cc]hapters?|[Cc]hapitres?"
NUMBERED = r"Figures?|Tables?|Tableaux?|Exercises?|Exercices?"
LISTED = rf"(?:,{SPACE}and|,|{SPACE}and|{SPACE}or|{SPACE}et|{SPACE}ou)"
RANGE = rf"(?:{SPACE}to{SPACE}|{SPACE}à{SPACE}|[-–])"
JOINED = rf"(?:(?:to|and|or|à|et|ou){SPACE})?"  # before a number that is a link: [Chapters 20](…) [to 23](…)
MENTION = re.compile(rf"\b(?:{WORDS}){SPACE}\d+(?:(?:{LISTED}{SPACE}|{RANGE})\d+\b(?!\.\d))*")
PLACE = re.compile(rf"\b(?:{NUMBERED}){SPACE}\d+\.\d+(?:(?:{LISTED}{SPACE}|{RANGE})\d+\.\d+)*")
COMMAND = re.compile(r"(?<=\bCHAPTERS=)\d+\b")  # that makes a page's results, as the page and their file say it
IN_A_RANGE = re.compile(RANGE + r"\d")
OF_ANOTHER_BOOK = re.compile(r"\)[,:] $")  # a chapter that follows a link to somewhere else


def renumbered(stems: Sequence[str], moved: int, to: int) -> dict[int, int]:
    """New numbers by old ones, where chapter `moved` becomes chapter `to`, of `stems` as 07_per_head_heatmaps.

    Raises:
        ValueError: there is no such chapter, or none has the number `to`.
    """
    numbers = [int(stem[:2]) for stem in stems]
    for name, number in (("moved", moved), ("to", to)):
        if number not in numbers:
            raise ValueError(f"{name}={number} is no chapter: there are {min(numbers)} to {max(numbers)}")
    order = [number for number in numbers if number != moved]
    order.insert(numbers.index(to), moved)
    return dict(zip(order, numbers, strict=True))


def with_order(toc: str, moved: int, to: int) -> str:
    """The table of contents with the entry of chapter `moved` where that of `to` is: behind it, or before it."""
    entries = {int(found["number"]): found for found in ENTRY.finditer(toc)}
    entry, neighbour = entries[moved], entries[to]
    if moved == to:
        return toc
    place = neighbour.end() if to > moved else neighbour.start()
    first, last = sorted([(entry.start(), entry.end(), ""), (place, place, entry[0])])
    return toc[: first[0]] + first[2] + toc[first[1] : last[0]] + last[2] + toc[last[1] :]


def with_names(text: str, stems: Sequence[str], new: Mapping[int, int]) -> str:
    """A text, or a path, that has the chapters' files by their new names."""
    names = {stem: f"{new[int(stem[:2])]:02d}{stem[2:]}" for stem in stems}
    return re.sub(rf"\b(?:{'|'.join(stems)})\b", lambda found: names[found[0]], text)


def with_numbers(text: str, stems: Sequence[str], new: Mapping[int, int]) -> tuple[str, list[str]]:
    """A text that names the chapters by their new numbers, and the mentions in it that a person has to read."""
    doubtful = []

    def link(found: re.Match[str]) -> str:
        old = int(found["stem"][:2])
        moved = f"[{found['joined']}{new[old]}{found['rest']}{found['stem']}"
        return moved if int(found["number"]) == old else found[0]

    text = re.sub(
        rf"\[(?P<joined>{JOINED})(?P<number>\d+)\b(?P<rest>[^\]\n]*\]\([\w./]*)(?P<stem>{'|'.join(stems)})\b",
        link,
        text,
    )
    text = with_names(text, stems, new)

    def mention(found: re.Match[str]) -> str:
        if IN_A_RANGE.search(found[0]) or OF_ANOTHER_BOOK.search(text, max(0, found.start() - 3), found.start()):
            doubtful.append(" ".join(text[max(0, found.start() - 40) : found.end() + 20].split()))
            return found[0]
        return re.sub(r"\d+", lambda number: str(new.get(int(number[0]), number[0])), found[0])

    def place(found: re.Match[str]) -> str:
        return re.sub(r"\d+(?=\.\d)", lambda number: str(new.get(int(number[0]), number[0])), found[0])

    text = MENTION.sub(mention, text)
    text = COMMAND.sub(lambda number: str(new.get(int(number[0]), number[0])).zfill(len(number[0])), text)
    return PLACE.sub(place, text), doubtful


def addresses(root: Path) -> dict[str, str]:
    """Where the chapters are now, by the names that they had before: `04_mathematics` to `05_mathematics`."""
    return dict(yaml.safe_load((root / ADDRESSES).read_text(encoding="utf-8")) or {})


def with_moves(text: str, names: Mapping[str, str]) -> str:
    """The table of addresses after a move: `names` are the new names of all chapters by those that they had."""
    comment = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
    moved = {old: names.get(now, now) for old, now in (yaml.safe_load(text) or {}).items()}
    moved |= {old: now for old, now in names.items() if old != now}
    return comment + "".join(f"{old}: {now}\n" for old, now in sorted(moved.items()) if old not in names.values())


def move(root: Path, moved: int, to: int) -> list[str]:
    """Move a chapter of the repository at `root`; returns the mentions that are left as they were, each with its file.

    Raises:
        ValueError: as `renumbered`.
    """
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    contents = root / "_toc.yml"
    toc = contents.read_text(encoding="utf-8")
    stems = [found["stem"] for found in ENTRY.finditer(toc)]
    new = renumbered(stems, moved, to)
    toc = re.sub(r"(?<=title: )\d+(?= · )", lambda found: str(new[int(found[0])]), with_order(toc, moved, to))
    write_whole(contents, toc)
    names = {stem: f"{new[int(stem[:2])]:02d}{stem[2:]}" for stem in stems}
    write_whole(root / ADDRESSES, with_moves((root / ADDRESSES).read_text(encoding="utf-8"), names))
    left: list[str] = []
    renamed: list[tuple[Path, Path]] = []
    for name in filter(None, listed.split("\0")):
        path = root / name
        if not path.is_file():  # deleted, and git has not been told
            continue
        try:
            text = path.read_bytes().decode("utf-8")
        except UnicodeDecodeError:  # a picture
            text = ""
        made, doubtful = text, list[str]()
        if name == OF_OTHERS:
            made = with_names(text, stems, new)
        elif name not in KEPT:
            made, doubtful = with_numbers(text, stems, new)
        left += [f"{name}: {mention}" for mention in doubtful]
        if made != text:
            write_whole(path, made)
        renamed_to = with_names(name, stems, new)
        if renamed_to != name:
            renamed.append((path, root / renamed_to))
    for path, target in renamed:  # all of them first, as one takes the name of the next
        path.rename(_aside(target))
    for _, target in renamed:
        _aside(target).rename(target)
    return left


def _aside(path: Path) -> Path:
    return path.with_name(path.name + ".moved")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("moved", type=int, help="the chapter's number")
    parser.add_argument("to", type=int, help="the number that it shall have")
    chosen = parser.parse_args(arguments)
    try:
        left = move(ROOT, chosen.moved, chosen.to)
    except ValueError as error:
        parser.error(str(error))
    print(
        "\n".join([*left, f"{len(left)} mentions are left as they were: read them, then build the book and test it."])
    )


if __name__ == "__main__":
    main()
