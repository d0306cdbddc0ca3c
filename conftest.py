"""What every run of pytest in this repository needs, in whatever folder it starts."""

from importlib.util import find_spec

pytest_plugins = ["schedule"]  # starts what takes longest first
if find_spec("nbval"):  # the library's tests do without
    pytest_plugins.append("nbval_statements")  # compares a notebook's outputs by the kind of statement they make
