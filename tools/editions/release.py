"""Hold a tag against the package's version, CHANGELOG.md and the repository's address, and write the release's notes.

    python -m tools.editions.release v0.4.0 [--notes FILE]

CHANGELOG.md begins with `# Changes`. Its sections are `## 0.3.0, 2026-11-21`, the newest first, each with a list of
what is new; above them may be `## Unreleased`. A release's notes are what stands above the line `ONE_BY_ONE` of its
section: what is below it is for whoever looks something up. Needs the standard library only.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from tools import ROOT

CHANGELOG, PACKAGE, CITATION = "CHANGELOG.md", "mhalib/__init__.py", "CITATION.cff"
RECORD = "tools/evidence/records/main.json"
TITLE, UNRELEASED = "# Changes\n", "Unreleased"
ONE_BY_ONE = "- *One by one, from here on:*"
HEADING = re.compile(r"(?P<version>\d+\.\d+\.\d+), (?P<date>\d{4}-\d\d-\d\d)")


@dataclass(frozen=True)
class Section:
    """What stands behind one `## `: its heading, and its text."""

    heading: str
    text: str

    @property
    def version(self) -> str:
        found = HEADING.fullmatch(self.heading)
        return found["version"] if found else ""

    @property
    def date(self) -> str:
        found = HEADING.fullmatch(self.heading)
        return found["date"] if found else ""


def sections(changelog: str) -> list[Section]:
    """All sections, in order."""
    parts = re.split(r"^## (.*)\n", changelog, flags=re.MULTILINE)[1:]
    return [Section(heading, text.strip()) for heading, text in zip(parts[::2], parts[1::2], strict=True)]


def version_of(package: str) -> str:
    """The version in the text of mhalib/__init__.py."""
    found = re.search(r'^__version__ = "([^"]+)"$', package, flags=re.MULTILINE)
    if found is None:
        raise ValueError(f'{PACKAGE} has no line  __version__ = "X.Y.Z" : put it back')
    return found[1]


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def _is_date(text: str) -> bool:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def problems(changelog: str, version: str) -> list[str]:
    """What is wrong with the text of CHANGELOG.md for a package of this version, each with its remedy."""
    found = [] if changelog.startswith(TITLE) else [f"begin it with {TITLE.strip()!r}"]
    all_of_them = sections(changelog)
    numbered = [section for section in all_of_them if section.version]
    for place, section in enumerate(all_of_them):
        if section.heading == UNRELEASED and place > 0:
            found.append(f"'## {UNRELEASED}' is not the first section: move it up")
        elif section.heading != UNRELEASED and not section.version:
            found.append(f"'## {section.heading}' must be '## X.Y.Z, YYYY-MM-DD' or '## {UNRELEASED}'")
        elif section.date and not _is_date(section.date):
            found.append(f"'## {section.heading}' has no date of the calendar: give the day of the release")
        lines = section.text.splitlines()
        if not lines or not all(re.match(r"- \S|  \S", line) for line in lines) or not lines[0].startswith("- "):
            found.append(f"'## {section.heading}' must hold a list, of lines that begin with '- ' or go on")
    for newer, older in itertools.pairwise(numbered):
        if _numbers(newer.version) <= _numbers(older.version) or newer.date < older.date:
            found.append(f"'## {newer.heading}' is above '## {older.heading}', and is not newer: put the newest first")
    if not numbered:
        found.append(f"no section has a number: add '## {version}, YYYY-MM-DD'")
    elif numbered[0].version != version and (
        all_of_them[0].heading != UNRELEASED or _numbers(numbered[0].version) > _numbers(version)
    ):
        found.append(
            f"its newest section is {numbered[0].version}, and {PACKAGE} says {version}: "
            f"add '## {version}, YYYY-MM-DD' or '## {UNRELEASED}' above it, or correct the version"
        )
    return [f"{CHANGELOG}: {each}" for each in found]


def notes(tag: str, changelog: str, package: str) -> str:
    """What the release of this tag says.

    Raises:
        ValueError: the tag is not the package's version, or CHANGELOG.md is not true of it.
    """
    version = version_of(package)
    if tag != f"v{version}":
        raise ValueError(f"{PACKAGE} says {version}, so its tag is v{version}, not {tag}: correct the one or the other")
    if found := problems(changelog, version):
        raise ValueError("\n".join(found))
    (newest, *_) = sections(changelog)
    if newest.version != version:
        raise ValueError(f"{CHANGELOG}: its first section is '## {newest.heading}': give it number and date of {tag}")
    minute, _, rest = newest.text.partition(ONE_BY_ONE)
    return minute.rstrip() + (f"\n- {CHANGELOG} has it one by one.\n" if rest else "\n")


def lacking(citation: str, record: str, version: str) -> list[str]:
    """What a release of this version lacks: an address in the text of CITATION.cff, without which it leads nowhere, and
    a record of a whole test run of its own."""
    found = [] if f"\nversion: {version}\n" in citation else [f"has no line  version: {version}"]
    if not re.search(r"^repository-code: https://github\.com/[\w.-]+/[\w.-]+$", citation, flags=re.MULTILINE):
        found.append("names no repository: write the line  repository-code: https://github.com/owner/name")
    named = [f"{CITATION} {each}" for each in found]
    if (tested := json.loads(record)["version"]) != version:
        named.append(f"{RECORD} is of {tested}: run  make test , then  python -m tools.evidence.run_record")
    return named


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tag", help="vX.Y.Z")
    parser.add_argument("--notes", type=Path, help="where to write what CHANGELOG.md says of this version")
    given = parser.parse_args()
    try:
        read = [(ROOT / name).read_text(encoding="utf-8") for name in (CHANGELOG, PACKAGE, CITATION, RECORD)]
        text = notes(given.tag, read[0], read[1])
        if found := lacking(read[2], read[3], version_of(read[1])):
            raise ValueError("\n".join(found))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    if given.notes:
        given.notes.write_text(text, encoding="utf-8")
    print(f"{given.tag}: {CHANGELOG}, {PACKAGE} and {CITATION} agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
