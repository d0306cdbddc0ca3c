"""What Windows does differently, as far as another system can see it."""

import sys

import pytest

from mhalib_classroom.grade import Limits, bubblewrap, no_sandbox


@pytest.mark.parametrize("launcher", [bubblewrap, no_sandbox])
def test_the_grader_says_at_once_that_it_needs_another_system(launcher, monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(FileNotFoundError, match=r"grade in Linux, for example in WSL"):
        launcher(Limits())
