"""Whose notebook a file is: names as file systems, Moodle, Canvas and Blackboard write them."""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from ._table import harmless

DOWNLOADS = {
    "Moodle": re.compile(  # folders, or files
        r"(?P<student>(?:(?!_attempt_\d)[^/])+?)_(?P<number>\d+)_assignsubmission_(?:file|onlinetext)[_/].+"
    ),
    "Blackboard": re.compile(  # files
        r"[^_/]*_(?!LATE_\d+_\d+_)(?P<student>[^/]+?)(?P<number>)_attempt_(?P<when>\d{4}(?:-\d\d){5})[^/]*"
    ),
    "Canvas": re.compile(r"(?P<student>[^_/]+)_(?P<late>LATE_)?(?P<number>\d+)_\d+_[^/]+"),  # files
}
_SIGN = re.compile(r" \([0-9a-f]{8,64}\)\Z")
_LATIN = str.maketrans(  # letters of Cyrillic and of Greek that are drawn as a Latin one
    "АВЕЅІЈКМНОРСТУХԚԜаеѕіјорсухһԁԛԝΑΒΕΖΗΙΚΜΝΟΡΤΥΧαικνορυϲϳ",
    "ABESIJKMHOPCTYXQWaesijopcyxhdqwABEZHIKMNOPTYXaikvopucj",
)
_BLANK = "\N{HANGUL JUNGSEONG FILLER}\N{HANGUL CHOSEONG FILLER}\N{BRAILLE PATTERN BLANK}\N{REPLACEMENT CHARACTER}"


def text_of(path: PurePath) -> str:
    """A path as a class list has it: with composed letters, also from a system that takes them apart."""
    return unicodedata.normalize("NFC", os.fsencode(path.as_posix()).decode(errors="replace"))


@dataclass(frozen=True)
class Owner:
    """Whose a file is. name: the student's; key: what says that two are the same; system: which wrote that name into
    the file's, and so the time, too; empty if none did."""

    name: str
    key: Hashable
    system: str = ""


def student_of(path: PurePath, pattern: re.Pattern[str] | None) -> Owner:
    """Whose the file of a path below the folder of submissions is.

    The name is what `pattern` finds, see `named`. Without a pattern, or where that finds nothing, it is what Moodle,
    Blackboard and Canvas write, and else the first folder, or the file without its suffix.

    Blackboard writes "assignment_user_attempt_time", and either name may have a "_". The user's begins behind the first
    one: part of the assignment's may stay before it, but no two users of an assignment become one.
    """
    text = text_of(path)
    found = named(text, pattern) if pattern is not None else None
    if found is not None:
        name, end = found
        return Owner(name, name, _writer(text, end))
    for system, known in DOWNLOADS.items():
        match = known.fullmatch(text)
        if match is not None:
            return Owner(match["student"], (match["student"], match["number"]), system)
    first = PurePath(path.parts[0])
    first = first.with_suffix("") if first.suffix.lower() == ".ipynb" else first
    return Owner(text_of(first), os.fsencode(first))


def unpacked_into(paths: Sequence[PurePath]) -> tuple[PurePath, str]:
    """The folder that a whole download was unpacked into, and the system that wrote the names in it; no folder and an
    empty text where there is none.

    Only where all that was handed in is named so, and of several students: a student, too, can name files as a system
    does, and others' names.
    """
    depths = min((len(path.parts) for path in paths), default=0)
    if any(known.fullmatch(text_of(path)) for path in paths for known in DOWNLOADS.values()):
        return PurePath(), ""
    for depth in range(1, depths):
        (base, *others) = {PurePath(*path.parts[:depth]) for path in paths}
        texts = [text_of(path.relative_to(base)) for path in paths] if not others else []
        for system, known in DOWNLOADS.items():
            found = [match["student"] for match in map(known.fullmatch, texts) if match]
            if len(found) == len(texts) and len({*found}) > 1:
                return base, system
    return PurePath(), ""


def crowded(paths: Iterable[PurePath]) -> list[str]:
    """What is to be told of folders that count as one student's, and hold what a system names as several students'."""
    found: dict[tuple[str, str], set[str]] = {}
    for path in paths:
        if student_of(path, None).system or len(path.parts) < 2:
            continue
        owner = student_of(PurePath(*path.parts[1:]), None)
        found.setdefault((path.parts[0], owner.system), set()).add(owner.name)
    return [
        f"{text_of(PurePath(first))!r} counts as one student, but files in it have the names that {system} gives those "
        f"of {len(names)} students: if it is a download, grade that folder"
        for (first, system), names in found.items()
        if system and len(names) > 1
    ]


def named(text: str, pattern: re.Pattern[str]) -> tuple[str, int] | None:
    """The name that a pattern finds in a path, and where it ends: the group "student", or else the first group that
    finds something, or without groups all that is found. `None` if that is nothing."""
    found = pattern.search(text)
    if found is None:
        return None
    groups: Sequence[int | str] = range(1, pattern.groups + 1) or [0]
    if "student" in pattern.groupindex:
        groups = ["student"]
    return next(((found[one], found.end(one)) for one in groups if (found[one] or "").strip()), None)


def _writer(text: str, end: int) -> str:
    """Which system wrote the student's name that ends there in a path: what stands behind it is the student's."""
    end -= text.rfind("/") + 1
    for system, known in DOWNLOADS.items():
        match = known.fullmatch(text.rpartition("/")[2])
        if match is not None and match.start("student") < end <= match.end("number"):
            return system
    return ""


def told_apart(names: Sequence[str], keys: Sequence[Hashable]) -> list[str]:
    """The names; those that look alike and have different keys get a sign of their own behind them."""
    named = list(names)
    for digits in (8, 16, 32, 64):  # for a name may have been made to look like one that has a sign already
        looks = Counter(look for look, _ in {(_look(name), key) for name, key in zip(named, keys, strict=True)})
        for place, name in enumerate(named):
            if looks[_look(name)] > 1:
                named[place] = f"{name} ({hashlib.sha256(repr(keys[place]).encode()).hexdigest()[:digits]})"
    return named


def alike(students: Iterable[str]) -> list[str]:
    """What is to be told of students whose names look alike: `told_apart` has given each a sign."""
    looks: dict[str, set[str]] = {}
    for student in students:
        looks.setdefault(_look(_SIGN.sub("", student)), set()).add(student)
    several = [sorted(names) for names in looks.values() if len(names) > 1]
    return [f"These names look alike, and are of {len(names)} students: {'; '.join(names[:9])}" for names in several]


def _look(name: str) -> str:
    """The name without what cannot be seen, with one form of each letter and blank: a Cyrillic A is an A."""
    apart = unicodedata.normalize("NFKD", harmless(name)).translate(_LATIN)
    plain = unicodedata.normalize("NFKC", apart)
    seen = (letter for letter in plain if unicodedata.category(letter) not in ("Cf", "Mn", "Me"))
    return " ".join("".join(" " if letter in _BLANK else letter for letter in seen).split())
