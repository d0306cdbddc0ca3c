"""Which worker runs which tests, and when: a plugin of pytest, for `-n 2 --dist loadfile`.

A file stays on one worker, so that what its tests share is made once. Only the pages' tests are dealt out page by page.
Notebooks start first, so that the workers end together on what is short; xdist's own `loadfile` begins with the files
of most tests, and a chapter of 90 seconds has few. A table of each file's own seconds would save 3 of 2,200.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.scheduler import LoadFileScheduling

PAGES = "tests/book/test_pages.py"
PAGE = re.compile(r"\[(?P<page>.+?)(?:-(?:light|dark)-\d+)?\]$")
A_NOTEBOOK, A_PAGE, A_TEST = 25.0, 5.0, 0.05  # about how many seconds each takes; the order is what counts


def unit(nodeid: str) -> str:
    """What stays together: the tests of a file, and of the pages' tests those of one page."""
    file, _, test = nodeid.partition("::")
    page = PAGE.search(test) if file == PAGES else None
    return f"{file}::{page['page']}" if page else file


def seconds(name: str, num_tests: int) -> float:
    """About how long a unit takes."""
    if "::" in name:
        return A_PAGE
    return A_NOTEBOOK if name.endswith(".ipynb") else A_TEST * num_tests


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class LongestFirst(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit(nodeid)

        def _assign_work_unit(self, node: Any) -> None:
            longest = max(self.workqueue, key=lambda name: seconds(name, len(self.workqueue[name])))
            self.workqueue.move_to_end(longest, last=False)
            super()._assign_work_unit(node)

    return LongestFirst(config, log)
