"""The figures of our own built pages, by what `make look` finds.

The pages whose source changed are looked at, eight of them where it is more, and two others; with
MHALIB_LOOK=all, as once a week in the workflow `look.yml`, all of them.
"""

from __future__ import annotations

import functools
import os
import random
import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatch

import book_text
import pytest
from playwright.sync_api import Browser
from waiting import changed_on_this_branch

from tools.development import look_figures
from tools.development.look_figures import Finding
from tools.notebooks import notebooks
from tools.pages import build
from tools.pages.ways import ALL_OPEN

pytestmark = pytest.mark.browser

HELD = ("cut", "squeezed", "small", "contrast", "slab")
"""What holds for each figure of the book; the other checks are for eyes."""
ALL = sorted(path.relative_to(notebooks.ROOT).with_suffix("").as_posix() for path in book_text.toc())
IS_WHOLE = os.environ.get("MHALIB_LOOK") == "all"
SAMPLE = 2
MOST = 8
"""Of changed pages: what changes more of them at once is in what they share."""


def chosen(changed: Iterable[str]) -> list[str]:
    """What to look at when these files changed: `MOST` of their pages, and a sample of all that stays the same."""
    names = {name.rpartition(".")[0] for name in changed if any(fnmatch(name, pattern) for pattern in build.PAGES)}
    pages = sorted(names & set(ALL))
    if len(pages) > MOST:
        pages = random.Random(" ".join(pages)).sample(pages, MOST)
    return sorted({*pages, *random.Random(36).sample(ALL, SAMPLE)})


PAGES = ALL if IS_WHOLE else chosen(changed_on_this_branch())


@pytest.fixture(scope="session")
def looked_at(browser: Browser, site: str) -> Callable[[str], list[Finding]]:
    """What is found on one of our pages, looked at once."""

    @functools.cache
    def look(name: str) -> list[Finding]:
        return look_figures.look_at(browser, f"{site}{name}.html{ALL_OPEN}", name).findings

    return look


@pytest.mark.parametrize("name", PAGES)
def test_figures_are_whole_legible_and_dark_in_the_dark(name: str, looked_at: Callable[[str], list[Finding]]) -> None:
    assert [str(one) for one in looked_at(name) if one.check in HELD] == []


def test_what_is_held_is_a_check_of_the_tool() -> None:
    assert set(HELD) <= set(look_figures.CHECKS)


def test_pages_that_changed_are_looked_at_and_always_some_others() -> None:
    usual = chosen([])
    assert len(usual) == SAMPLE
    assert usual == chosen(["mhalib/plots.py", "README.md", "chapters/gone.ipynb"])
    other = next(name for name in ALL if name not in usual)
    assert chosen([f"{other}.ipynb"]) == sorted([*usual, other])
    many = [f"{name}.ipynb" for name in ALL]
    assert MOST <= len(chosen(many)) <= MOST + SAMPLE
    assert chosen(many) == chosen(many[::-1])
    assert all(re.match(r"chapters/\w+$", name) for name in ALL)
