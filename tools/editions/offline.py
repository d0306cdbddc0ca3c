"""Pack the built book and its notebooks into one zip that needs no network: `make offline`.

    python -m tools.editions.offline [--html _build/html] [--to _build/attention-head-by-head.zip]

The zip holds `book`, which a browser opens from the disk, the search with it; `notebooks`, with the package, the
exercises and what they need, pinned; and OFFLINE.txt, which says how to fetch those packages beforehand, as a
wheelhouse. The same files give the same zip.
"""

from __future__ import annotations

import argparse
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import tomllib  # type: ignore[import-not-found]  # Python 3.11 has it

from tools import PACKAGES, ROOT
from tools.notebooks import notebooks

HTML = ROOT / "_build/html"
NAME = "attention-head-by-head"
NOTEBOOKS = (
    "chapters/*.ipynb",
    "chapters/_static/*.svg",
    "exercises/*.ipynb",
    *(f"{package}/**/*" for package in PACKAGES),
    "pyproject.toml",
    "setup.py",
    "CITATION.cff",
    "README.md",
    "LICENSE",
)
UNUSED = (
    *(f"_static/vendor/*/*/{folder}" for folder in ("css", "js", "webfonts")),
    "_static/mathjax",
    "_static/locales",
    ".buildinfo",
    ".doctrees",
    "__pycache__",
)
"""What Sphinx copies and no finished page asks for, and what it keeps for itself."""
BESIDE = ("jupyterlab", "ipykernel")  # what opens and runs notebooks
LONG_AGO = (1980, 1, 1, 0, 0, 0)
NOTE = """\
Attention, Head by Head, without a network

Read
    Open  book/index.html  in a browser. Search and instruments work from the disk.

Run the notebooks
    On a machine with a network, with the same system and the same Python (3.11 to 3.14) as where you will run them:

        cd notebooks
        python -m pip download -r requirements.txt -d wheelhouse
        python -m pip wheel --no-deps . -w wheelhouse

    The first takes about 500 MB with torch for processors alone, which on Linux takes a line more:
        --extra-index-url https://download.pytorch.org/whl/cpu
    Carry the folder  notebooks  over, and there:

        python -m venv .venv
        .venv/bin/pip install --no-index --find-links wheelhouse -r requirements.txt mhalib
        .venv/bin/jupyter lab chapters

    On Windows the last two begin with  .venv\\Scripts\\ .
"""


def needs(root: Path) -> list[str]:
    """What the package and the notebooks' set-up cells ask for, and a lab, as requirements.txt pins them.

    Raises:
        ValueError: one of them has no pin.
    """
    lines = (root / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pins = {found[1].lower(): found[0] for line in lines if (found := re.match(r"([\w.-]+)==[^\s#]+", line))}
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    package = [*project["dependencies"], *project["optional-dependencies"]["widgets"]]
    asked = [re.split(r"[<>=!~ ]", one, maxsplit=1)[0] for one in package]
    names = sorted({*BESIDE, *asked, *(name for names in notebooks.OWN_NEEDS.values() for name in names)})
    if missing := [name for name in names if name not in pins]:
        raise ValueError(f"requirements.txt has no pin for {missing}: give it one")
    return [pins[name] for name in names]


def contents(root: Path, html: Path) -> Iterator[tuple[str, bytes]]:
    """Every file of the zip, by its name there."""
    yield "OFFLINE.txt", NOTE.encode()
    yield "notebooks/requirements.txt", "\n".join([*needs(root), ""]).encode()
    for pattern in NOTEBOOKS:
        for file in sorted(root.glob(pattern)):
            if file.is_file() and "__pycache__" not in file.parts:
                yield f"notebooks/{file.relative_to(root).as_posix()}", file.read_bytes()
    for file in sorted(html.rglob("*")):
        name = file.relative_to(html)
        if file.is_file() and not any(Path(*name.parts[: len(Path(one).parts)]).match(one) for one in UNUSED):
            yield f"book/{name.as_posix()}", file.read_bytes()


def pack(root: Path, html: Path, target: Path) -> int:
    """Write the zip; how many files it holds."""
    target.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in contents(root, html):
            entry = zipfile.ZipInfo(f"{NAME}/{name}", LONG_AGO)
            entry.compress_type = zipfile.ZIP_STORED if name.endswith((".png", ".woff2")) else zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            packed.writestr(entry, data)
            count += 1
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--html", type=Path, default=HTML, help="the folder of the built pages")
    parser.add_argument("--to", type=Path, default=ROOT / f"_build/{NAME}.zip", help="the zip to write")
    asked = parser.parse_args()
    if not (asked.html / "search.html").exists():
        sys.exit(f"{asked.html} has no built book: run  make book  first")
    count = pack(ROOT, asked.html, asked.to)
    print(f"{asked.to}: {count} files, {asked.to.stat().st_size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
