"""The classroom's name until version 0.3. It is the package `mhalib_classroom` now, and this name goes with 0.5."""

import importlib
import sys
import warnings

warnings.warn("mhalib.classroom is the package mhalib_classroom now: import it from there", FutureWarning, stacklevel=2)
for _room in ("", ".checks", ".grade"):
    sys.modules[__name__ + _room] = importlib.import_module(f"mhalib_classroom{_room}")
