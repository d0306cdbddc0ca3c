"""Only what `pyproject.toml` cannot say: the repository's address, and the README that the package index shows.

The address stands in CITATION.cff alone. GitHub resolves README's relative links and pictures; the index does not. Here
they become addresses of this version's files on GitHub. All else is in `pyproject.toml`.
"""

import re
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent
PICTURES = (".png", ".svg", ".jpg", ".gif", ".webp")


def absolute(readme: str, repository: str, revision: str) -> str:
    """README with each relative link as an address at `repository`, https://github.com/owner/name."""
    raw = repository.replace("https://github.com/", "https://raw.githubusercontent.com/")

    def whole(link: re.Match[str]) -> str:
        target = link[2]
        if re.match(r"[a-z]+:|#|//", target):
            return link[0]
        if target.startswith("../../"):  # what GitHub has beside the files: releases
            return link[1] + repository + target.removeprefix("../..")
        is_picture = target.partition("#")[0].lower().endswith(PICTURES)
        return link[1] + (f"{raw}/{revision}/" if is_picture else f"{repository}/blob/{revision}/") + target

    fences = re.split(r"(^```.*?^```$)", readme, flags=re.MULTILINE | re.DOTALL)  # every second part is code
    fences[::2] = [re.sub(r"(\]\()([^)\s]+)", whole, part) for part in fences[::2]]
    return "".join(fences)


def repository() -> str:
    """The repository's address in CITATION.cff; empty while it has none."""
    citation = (HERE / "CITATION.cff").read_text(encoding="utf-8")
    found = re.search(r"^repository-code: *(https://github\.com/\S+)$", citation, flags=re.MULTILINE)
    return found[1] if found else ""


def described(address: str) -> str:
    """README as it is now, for the version that `mhalib/__init__.py` says; without an address, as it is."""
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    package = (HERE / "mhalib/__init__.py").read_text(encoding="utf-8")
    version = re.search(r'^__version__ = "([^"]+)"$', package, flags=re.MULTILINE)
    if not version:
        raise ValueError("mhalib/__init__.py has no __version__: put it back")
    return absolute(readme, address, f"v{version[1]}") if address else readme


if __name__ == "__main__":
    setup(
        long_description=described(repository()),
        long_description_content_type="text/markdown",
        project_urls={"Repository": repository()} if repository() else {},
    )
