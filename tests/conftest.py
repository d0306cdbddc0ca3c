"""What all tests share: which lines of the instruments' JavaScript ran in the browser."""

from js_coverage import pytest_sessionfinish, pytest_terminal_summary, pytest_testnodedown  # noqa: F401
