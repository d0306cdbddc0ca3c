"""Only what `pyproject.toml` cannot say: the README that the package index shows.

GitHub resolves README's relative links and pictures; the index does not. Here they become addresses of this version's
files on GitHub. All else is in `pyproject.toml`.
"""

import re
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent
PICTURES = (".png", ".svg", ".jpg", ".gif")


def absolute(readme: str, repository: str, revision: str) -> str:
    """README with each relative link as an address at `repository`, https://github.com/owner/name."""
    raw = repository.replace("https://github.com/", "https://raw.githubusercontent.com/")

    def whole(link: re.Match[str]) -> str:
        target = link[2]
        if re.match(r"[a-z]+:|#|//", target):
            return link[0]
        is_picture = target.partition("#")[0].lower().endswith(PICTURES)
        return link[1] + (f"{raw}/{revision}/" if is_picture else f"{repository}/blob/{revision}/") + target

    fences = re.split(r"(^```.*?^```$)", readme, flags=re.MULTILINE | re.DOTALL)  # every second part is code
    fences[::2] = [re.sub(r"(\]\()([^)\s]+)", whole, part) for part in fences[::2]]
    return "".join(fences)


def described() -> str:
    """README as it is now, for the version that `mhalib/__init__.py` says."""
    project, package = ((HERE / name).read_text(encoding="utf-8") for name in ("pyproject.toml", "mhalib/__init__.py"))
    repository = re.search(r'^Repository = "([^"]+)"$', project, flags=re.MULTILINE)
    version = re.search(r'^__version__ = "([^"]+)"$', package, flags=re.MULTILINE)
    if not repository or not version:
        raise ValueError("pyproject.toml names no Repository, or mhalib/__init__.py no __version__: put it back")
    return absolute((HERE / "README.md").read_text(encoding="utf-8"), repository[1], f"v{version[1]}")


if __name__ == "__main__":
    setup(long_description=described(), long_description_content_type="text/markdown")
