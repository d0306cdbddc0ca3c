"""What all tests share: which wait for the week's run, and which lines of the instruments' JavaScript ran."""

from js_coverage import (  # noqa: F401
    pytest_sessionfinish,
    pytest_terminal_summary,
    pytest_testnodedown,
    pytest_unconfigure,
)
from waiting import pytest_collection_modifyitems  # noqa: F401
