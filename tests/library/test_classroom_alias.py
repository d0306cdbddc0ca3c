"""The classroom's name until 0.3, which course notebooks that were handed out still have."""

import subprocess
import sys

import pytest

OLD = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    {said}
assert checks.__name__ == "mhalib_classroom.checks", checks
assert [str(one.message) for one in caught if one.category is FutureWarning] == [
    "mhalib.classroom is the package mhalib_classroom now: import it from there"
], caught
"""


@pytest.mark.parametrize(
    "said",
    [
        "from mhalib.classroom import checks",
        "import mhalib.classroom.checks as checks",
        "import mhalib; checks = mhalib.classroom.checks",
    ],
)
def test_the_old_name_is_the_new_package_and_says_so(said):
    subprocess.run([sys.executable, "-W", "error::DeprecationWarning", "-c", OLD.format(said=said)], check=True)
