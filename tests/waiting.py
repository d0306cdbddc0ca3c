"""Which tests wait for the week, by their marks and by what has changed."""

import functools
import os
from pathlib import Path

import pytest


@functools.cache
def changed_on_this_branch() -> tuple[str, ...]:
    """The files that differ from where the branch began; none where git or the tools are missing."""
    try:
        from tools.development import quick

        return tuple(quick.changed_files(Path(__file__).parents[1]))
    except (ImportError, OSError, ValueError):
        return ()


OF_TESTS = ("tests/conftest.py", "tests/waiting.py", "tests/book/conftest.py", "requirements.txt")
OF_PAGES = (
    "tools/pages/",
    "mhalib/widgets/",
    "mhalib/live/",
    "chapters/_static/",
    "_config.yml",
    "_toc.yml",
    *OF_TESTS,
)
"""What any built page comes from, beside its own source."""
WAITING = {
    "weekly": (),
    "tool": ("tools/", "pyproject.toml", "_config.yml", *OF_TESTS),
    "page": OF_PAGES,
    "instrument": OF_PAGES,
    "grader": ("mhalib_classroom/grade/", *OF_TESTS),
}
"""By mark: how the paths begin that all tests with this mark are about, beside those that a mark itself names."""


def begins_of(item: pytest.Item) -> tuple[str, ...]:
    """How the paths begin that a test which waits is about; none if it is run for each commit."""
    of_marks = [(*WAITING[mark.name], *mark.args) for mark in item.iter_markers() if mark.name in WAITING]
    return sum(of_marks, (item.nodeid.partition("::")[0],)) if of_marks else ()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test with a mark of `WAITING` waits for the workflow `weekly.yml`, which sets MHALIB_TESTS=all, unless a file
    has changed that it is about: its own, or one whose path begins as the mark or `WAITING` says."""
    if os.environ.get("MHALIB_TESTS") == "all":
        return
    for item in items:
        begins = begins_of(item)
        if begins and not any(name.startswith(begins) for name in changed_on_this_branch()):
            item.add_marker(pytest.mark.skip(reason="runs once a week: MHALIB_TESTS=all"))
