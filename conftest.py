"""What every run of pytest in this repository needs, in whatever folder it starts."""

pytest_plugins = (
    "nbval_statements",  # compares a notebook's outputs by the kind of statement they make
    "schedule",  # starts what takes longest first
)
