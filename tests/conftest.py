"""What all tests share: which wait for the week's run, and which lines of the instruments' JavaScript ran."""

import functools
import os
from pathlib import Path

import pytest
from js_coverage import (  # noqa: F401
    pytest_sessionfinish,
    pytest_terminal_summary,
    pytest_testnodedown,
    pytest_unconfigure,
)


@functools.cache
def changed_on_this_branch() -> tuple[str, ...]:
    """The files that differ from where the branch began; none where git or the tools are missing."""
    try:
        from tools.development import quick

        return tuple(quick.changed_files(Path(__file__).parents[1]))
    except (ImportError, OSError, ValueError):
        return ()


OF_TOOLS = (
    "tools/",
    "tests/conftest.py",
    "tests/book/conftest.py",
    "requirements.txt",
    "pyproject.toml",
    "_config.yml",
)
"""What a test of a tool, on pages of its own making, is about beside its own file and what its mark names."""


def begins_of(item: pytest.Item) -> tuple[str, ...]:
    """How the paths begin that a test which waits is about; none if it is run for each commit."""
    if mark := item.get_closest_marker("weekly"):
        return mark.args
    if mark := item.get_closest_marker("tool"):
        return (*mark.args, *OF_TOOLS, item.nodeid.partition("::")[0])
    return ()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test with the mark `weekly` waits for the workflow `weekly.yml`, which sets MHALIB_TESTS=all, unless a file has
    changed whose path begins with an argument of the mark; one with the mark `tool`, unless a tool has."""
    if os.environ.get("MHALIB_TESTS") == "all":
        return
    for item in items:
        begins = begins_of(item)
        if begins and not any(name.startswith(begins) for name in changed_on_this_branch()):
            item.add_marker(pytest.mark.skip(reason="runs once a week: MHALIB_TESTS=all"))
