"""The tools that make and check the book, in six rooms; none of them is in the package. See ARCHITECTURE.md."""

PACKAGES = ("mhalib", "mhalib_classroom")  # that one command installs
