"""Which tests wait for the week, by their marks and by what has changed."""

import functools
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = {path.parent.name for path in ROOT.glob("tools/*/__init__.py")}


@functools.cache
def changed_on_this_branch() -> tuple[str, ...]:
    """The files that differ from where the branch began; none where git or the tools are missing."""
    try:
        from tools.development import quick

        return tuple(quick.changed_files(ROOT))
    except (ImportError, OSError, ValueError):
        return ()


OF_TESTS = ("tests/conftest.py", "tests/waiting.py", "requirements.txt")
OF_PAGES = ("tools/pages/", "chapters/_static/", "_config.yml", "_toc.yml", *OF_TESTS)
"""What any built page comes from, beside its own source; of instruments each wakes on one page for each commit."""
OF_INSTRUMENTS = (
    *(f"mhalib/widgets/{name}" for name in ("_", "host.js", "shared.", "sentences.js")),
    "tools/pages/chromium.py",
    *OF_TESTS,
)
"""What all instruments share."""
WAITING = {
    "weekly": (),
    "about": OF_TESTS,
    "tool": ("tools/__init__.py", "pyproject.toml", "_config.yml", *OF_TESTS),
    "page": OF_PAGES,
    "instrument": OF_INSTRUMENTS,
    "grader": ("mhalib_classroom/grade/", *OF_TESTS),
    "package": ("mhalib/", "mhalib_classroom/", "pyproject.toml", *OF_TESTS),
}
"""By mark: how the paths begin that all tests with this mark are about, beside those that a mark itself names, its file
of tests, and the conftest.py beside that."""
NAMED = re.compile(r"\btools(?:\.|/| import )([a-z]+)\b")
IMPORTED = re.compile(r"^ *(?:from|import) tools(?:\.| import )([a-z]+)\b", re.MULTILINE)


@functools.cache
def rooms_used(room: str) -> frozenset[str]:
    """A room of the tools, and those that it imports, directly or not: they import in one direction only."""
    texts = [path.read_text("utf-8") for path in (ROOT / "tools" / room).glob("*.py")]
    imported = {name for text in texts for name in IMPORTED.findall(text)} - {room}
    return frozenset({room}).union(*map(rooms_used, imported & ROOMS))


@functools.cache
def rooms_of(test: str) -> frozenset[str]:
    """The rooms of the tools that a file of tests reaches: those that it names, and what they use."""
    return frozenset().union(*map(rooms_used, ROOMS.intersection(NAMED.findall((ROOT / test).read_text("utf-8")))))


def about(mark: pytest.Mark, own: str) -> tuple[str, ...]:
    """How the paths begin that a test of this file is about by a mark."""
    rooms = rooms_of(own) if mark.name == "tool" else ()
    return (
        own,
        f"{own.rpartition('/')[0]}/conftest.py",
        *WAITING[mark.name],
        *mark.args,
        *(f"tools/{room}/" for room in rooms),
    )


def waits(item: pytest.Item) -> bool:
    """Whether one of the marks says so: no file has changed that it is about, nor the test's own."""
    changed = changed_on_this_branch()
    own = item.nodeid.partition("::")[0]
    begins = [about(mark, own) for mark in item.iter_markers() if mark.name in WAITING]
    return any(not any(name.startswith(one) for name in changed) for one in begins)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test with a mark of `WAITING` waits for the workflow `weekly.yml`, which sets MHALIB_TESTS=all, unless a file
    has changed that it is about: its own, or one whose path begins as the mark or `WAITING` says. Of several marks each
    must have such a file."""
    if os.environ.get("MHALIB_TESTS") == "all":
        return
    for item in items:
        if waits(item):
            item.add_marker(pytest.mark.skip(reason="runs once a week: MHALIB_TESTS=all"))
