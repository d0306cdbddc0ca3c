"""CHANGELOG.md is true of the package, and a release is refused where it is not."""

from __future__ import annotations

import re

import pytest

import mhalib
from tools.editions import release
from tools.notebooks import notebooks

pytestmark = pytest.mark.tool

ONE = "# Changes\n\n## 0.2.0, 2026-02-01\n\n- Two.\n\n## 0.1.0, 2026-01-01\n\n- One.\n"
OPEN = ONE.replace("## 0.2.0", "## Unreleased\n\n- Three,\n  and more.\n\n## 0.2.0", 1)


def test_changelog_is_true() -> None:
    changelog = (notebooks.ROOT / release.CHANGELOG).read_text(encoding="utf-8")
    assert release.problems(changelog, mhalib.__version__) == []
    assert release.version_of((notebooks.ROOT / release.PACKAGE).read_text(encoding="utf-8")) == mhalib.__version__


@pytest.mark.parametrize(("changelog", "version"), [(ONE, "0.2.0"), (OPEN, "0.2.0"), (OPEN, "0.3.0")])
def test_a_true_changelog_has_no_problem(changelog: str, version: str) -> None:
    assert release.problems(changelog, version) == []


@pytest.mark.parametrize(
    ("changelog", "version", "said"),
    [
        (ONE, "0.3.0", "its newest section is 0.2.0, and mhalib/__init__.py says 0.3.0: add '## 0.3.0, YYYY-MM-DD'"),
        (ONE, "0.1.0", "its newest section is 0.2.0, and mhalib/__init__.py says 0.1.0"),
        (OPEN, "0.1.0", "its newest section is 0.2.0, and mhalib/__init__.py says 0.1.0"),
        (ONE.replace("0.1.0,", "0.10.0,"), "0.2.0", "'## 0.2.0, 2026-02-01' is above '## 0.10.0, 2026-01-01'"),
        (ONE.replace("2026-01-01", "2026-03-01"), "0.2.0", "is not newer: put the newest first"),
        (ONE.replace(", 2026-01-01", ""), "0.2.0", "'## 0.1.0' must be '## X.Y.Z, YYYY-MM-DD'"),
        (ONE.replace("2026-01-01", "2026-02-30").replace("2026-02-01", "2026-03-01"), "0.2.0", "no date of the"),
        (ONE.replace("- One.", "One."), "0.2.0", "'## 0.1.0, 2026-01-01' must hold a list"),
        (ONE.replace("- One.", ""), "0.2.0", "'## 0.1.0, 2026-01-01' must hold a list"),
        (ONE + "\n## Unreleased\n\n- Three.\n", "0.2.0", "'## Unreleased' is not the first section: move it up"),
        ("# Changes\n", "0.2.0", "no section has a number: add '## 0.2.0, YYYY-MM-DD'"),
        (ONE.removeprefix("# Changes\n"), "0.2.0", "begin it with '# Changes'"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_remedy(changelog: str, version: str, said: str) -> None:
    (found,) = release.problems(changelog, version)
    assert found.startswith("CHANGELOG.md: ")
    assert said in found


PACKAGE = '"""Text."""\n\n__version__ = "0.2.0"\n'


def test_the_notes_of_a_release_are_its_section() -> None:
    assert release.notes("v0.2.0", ONE, PACKAGE) == "- Two.\n"
    long = ONE.replace("- Two.", f"- Two.\n{release.ONE_BY_ONE}\n- A small thing.")
    assert release.notes("v0.2.0", long, PACKAGE) == "- Two.\n- CHANGELOG.md has it one by one.\n"


def test_this_release_s_notes_are_read_in_a_minute() -> None:
    changelog = (notebooks.ROOT / release.CHANGELOG).read_text(encoding="utf-8")
    package = (notebooks.ROOT / release.PACKAGE).read_text(encoding="utf-8")
    released = re.sub(r"^## Unreleased$", f"## {mhalib.__version__}, 2100-01-01", changelog, flags=re.MULTILINE)
    assert len(release.notes(f"v{mhalib.__version__}", released, package).split()) <= 300


@pytest.mark.parametrize(
    ("tag", "changelog", "package", "said"),
    [
        ("v0.1.0", ONE, PACKAGE, "mhalib/__init__.py says 0.2.0, so its tag is v0.2.0, not v0.1.0"),
        ("0.2.0", ONE, PACKAGE, "so its tag is v0.2.0, not 0.2.0"),
        ("v0.2.0", OPEN, PACKAGE, "CHANGELOG.md: its first section is '## Unreleased': give it number and date"),
        ("v0.3.0", ONE, PACKAGE.replace("0.2", "0.3"), "CHANGELOG.md: its newest section is 0.2.0"),
        ("v0.2.0", ONE, "", "mhalib/__init__.py has no line"),
    ],
)
def test_a_release_that_is_not_true_is_refused(tag: str, changelog: str, package: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        release.notes(tag, changelog, package)


CITED = "title: a\nversion: 0.2.0\nrepository-code: https://github.com/some-one/my.heads\n"


@pytest.mark.parametrize(
    ("citation", "tested", "said"),
    [
        (CITED, "0.2.0", []),
        (CITED.replace("0.2.0", "0.1.0"), "0.2.0", ["CITATION.cff has no line  version: 0.2.0"]),
        (CITED.replace("repository", "# repository"), "0.2.0", ["CITATION.cff names no repository"]),
        (CITED.replace("some-one/my.heads", ""), "0.2.0", ["CITATION.cff names no repository"]),
        (CITED, "0.1.0", ["tools/evidence/records/main.json is of 0.1.0"]),
    ],
)
def test_a_release_has_an_address_and_a_test_run_of_its_own(citation: str, tested: str, said: list[str]) -> None:
    found = release.lacking(citation, f'{{"version": "{tested}"}}', "0.2.0")
    assert len(found) == len(said)
    assert all(one.startswith(words) for one, words in zip(found, said, strict=True))
