"""What checkers say, in another language: exchanged at the very end, where a student reads it.

So no check, no point and no teacher's table depends on it. `checks/fr.po`, which any editor for gettext opens, holds
the sentences; one that it lacks stays English. In it `{value}` stands for what is kept as it is, and `{PHRASE}` for a
phrase that has an entry of its own.
"""

from __future__ import annotations

import ast
import functools
import gettext
import os
import re
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parent / "checks"
FIELD = re.compile(r"\{(\w+)\}")
SHAPE = " of shape ("
_chosen: list[str] = []


def language(name: str) -> None:
    """Have checkers and feedback speak a language from here on, whatever the variable `MHALIB_LANGUAGE` says.

    Args:
        name: "en", or what there are sentences of: "fr".

    Raises:
        ValueError: there are none of this language.
    """
    if name not in (known := languages()):
        raise ValueError(f"language={name!r}: checkers speak {' and '.join(known)}")
    _chosen[:] = [name]


def languages() -> list[str]:
    """Those that checkers speak."""
    return ["en", *sorted(path.stem for path in FOLDER.glob("*.po"))]


def spoken() -> str:
    """The language that is chosen, or the environment's: `fr` for `MHALIB_LANGUAGE=fr_CA.UTF-8`, too."""
    wanted = _chosen[0] if _chosen else re.split("[_.-]", os.environ.get("MHALIB_LANGUAGE", ""))[0].lower()
    return wanted if wanted in languages() else "en"


def say(message: str) -> str:
    """What a checker says, in the language that is chosen, as far as that has its sentences."""
    return message if (name := spoken()) == "en" else sentences(name).gettext(message)


@functools.cache
def sentences(name: str) -> Sentences:
    return Sentences((FOLDER / f"{name}.po").read_text(encoding="utf-8"))


class Sentences(gettext.NullTranslations):
    """The sentences of a catalogue. (`gettext` itself reads compiled ones alone, and knows no values in a sentence.)"""

    def __init__(self, catalogue: str) -> None:
        super().__init__()
        self.known = dict(entries(catalogue))
        self.forms = [(_pieces(one), _form(one), other) for one, other in self.known.items() if FIELD.search(one)]

    def gettext(self, message: str) -> str:
        """Line by line, and a line that is not known as a whole sentence by sentence."""
        return "\n".join(self.known.get(line) or self._parts(line) for line in message.split("\n"))

    def phrase(self, text: str) -> str | None:
        """A phrase that has an entry, or whose form has one; `None` where it has none."""
        if text in self.known:
            return self.known[text]
        for pieces, form, other in self.forms:
            found = form.fullmatch(text) if all(piece in text for piece in pieces) else None
            if found and (values := self._values(found)) is not None:
                return other.format_map(values)
        larger = text[:1].upper() + text[1:]
        said = self.phrase(larger) if larger != text else None
        return said and said[0].lower() + said[1:]

    def _values(self, found: re.Match[str]) -> dict[str, str] | None:
        """What stands in a form's fields, phrases exchanged; `None` if one of these is not known."""
        values = {}
        for name, value in found.groupdict().items():
            said = self.phrase(value) if name.isupper() else value
            if said is None:
                return None
            values[name] = said
        return values

    def _parts(self, line: str) -> str:
        parts = line.split(". ")
        said = [self.phrase(part) for part in parts]
        if None in said and (whole := self.phrase(line)):
            return whole  # a form of several sentences, or with a value that holds ". "
        if None in said and line.startswith("    "):  # a call, with the shapes of what it is given
            return line.replace(SHAPE, self.known.get(SHAPE, SHAPE))
        return ". ".join(other or part for other, part in zip(said, parts, strict=True))


def entries(catalogue: str) -> Iterator[tuple[str, str]]:
    """English and translation of each entry that has both and is not marked as fuzzy."""
    for block in catalogue.split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith(("msg", '"'))]
        both = "\n".join(lines).removeprefix("msgid ").split("\nmsgstr ")
        if len(both) == 2 and not re.search("^#,.*fuzzy", block, re.MULTILINE):
            one, other = (ast.literal_eval(f"({half})") for half in both)
            if one and other:
                yield one, other


def _pieces(english: str) -> list[str]:
    """What stands between the fields of a form: a text without it needs no closer look."""
    return [piece for piece in FIELD.split(english)[::2] if piece]


def _form(english: str) -> re.Pattern[str]:
    """What reads a sentence with values in it."""
    pieces = FIELD.split(english)
    made = [_field(piece) if place % 2 else re.escape(piece) for place, piece in enumerate(pieces)]
    return re.compile("".join(made))


def _field(name: str) -> str:
    """`{n}` is a number, `{name}` one word, and all else anything."""
    kind = r"[-+.\de]+" if re.fullmatch(r"[nm]\d?", name) else r"\S+?" if re.fullmatch(r"name\d?", name) else ".+?"
    return f"(?P<{name}>{kind})"
