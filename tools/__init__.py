"""The tools that make and check the book, in six rooms; none of them is in the package. See ARCHITECTURE.md."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("mhalib", "mhalib_classroom")  # that one command installs
