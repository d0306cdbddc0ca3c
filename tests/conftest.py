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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test with the mark `weekly` waits for the workflow `weekly.yml`, which sets MHALIB_TESTS=all, unless a file has
    changed whose path begins with an argument of the mark."""
    if os.environ.get("MHALIB_TESTS") == "all":
        return
    for item in items:
        mark = item.get_closest_marker("weekly")
        if mark and not any(name.startswith(mark.args) for name in changed_on_this_branch()):
            item.add_marker(pytest.mark.skip(reason="runs once a week: MHALIB_TESTS=all"))
