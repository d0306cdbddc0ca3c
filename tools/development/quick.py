"""Run the tests and the notebooks that a change touches, and no others.

    python -m tools.development.quick [--base REV] [--list]

A change is what differs from where your branch left REV: commits, the working tree, new files. REV is what main
follows in the repository it came from, or, where it follows nothing, the last commit. touched.py finds out what
that touches. Of a test that is touched by pages alone, only what its name says is about those pages is run, and nothing
that is marked `tool`: such a test makes its own pages.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tools.development import touched
from tools.pages import build

ROOT = Path(__file__).resolve().parents[2]
EVERYTHING = ("requirements.txt", "pyproject.toml")  # no name in the code leads to them
BUILT = "_build/html/chapters/page.html"  # any built page
RUN = ("-n", "2", "--dist", "loadfile", "--nbval", "--nbval-current-env")


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip() or "nothing in common"
        raise ValueError(f"git {' '.join(arguments)}: {said}: name a commit or a branch with --base")
    return done.stdout


def changed_files(root: Path, base: str = "") -> list[str]:
    """What differs from where HEAD left `base`, in commits, in the working tree and in files that git does not know."""
    if not base:
        try:
            base = git(root, "rev-parse", "--abbrev-ref", "main@{upstream}").strip()
        except ValueError:
            base = "HEAD"
    start = git(root, "merge-base", base, "HEAD").strip()
    listed = git(root, "diff", "--name-only", "--no-renames", "-z", start)
    listed += git(root, "ls-files", "--others", "--exclude-standard", "-z")
    return sorted(set(filter(None, listed.split("\0"))))


@dataclass
class Plan:
    """What to run: whole files, and files of which only the tests of `pages` count."""

    whole: set[Path] = field(default_factory=set)
    of_pages: set[Path] = field(default_factory=set)
    pages: set[str] = field(default_factory=set)

    @property
    def paths(self) -> list[Path]:
        return sorted(self.whole | self.of_pages)


def plan(root: Path, changed: list[str]) -> Plan:
    found, made = touched.Touched(root), Plan()
    if set(changed) & set(EVERYTHING):
        made.whole = set(found.reached)
    for name in changed:
        if any(Path(name).match(pattern) for pattern in build.PAGES):
            made.pages.add(Path(name).stem)
            made.of_pages |= found.by(name) | found.by(BUILT)
        else:
            made.whole |= found.by(name)
            if any(fnmatch(name, pattern.replace("**/", "")) for pattern in build.SHARED):
                made.whole |= found.by(BUILT)
    made.of_pages -= made.whole
    return made


def is_of_another_page(nodeid: str, pages: set[str], known: set[str]) -> bool:
    """Whether what stands in brackets behind a test's name names pages, and none of `pages`."""
    named = set(re.findall(r"[\w.]+", nodeid.partition("[")[2])) & known
    return bool(named) and not named & pages


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--pages", default="", help="of the tests in --of-pages, only those of these pages")
    parser.addoption("--of-pages", default="", help="files, with commas between them")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    pages, files = (set(config.getoption(name).split(",")) for name in ("--pages", "--of-pages"))
    known = {path.stem for pattern in build.PAGES for path in ROOT.glob(pattern)} | {"search", "genindex"}
    left_out = [
        item
        for item in items
        if item.nodeid.partition("::")[0] in files
        and (is_of_another_page(item.nodeid, pages, known) or item.get_closest_marker("tool"))
    ]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="", help="what your change is compared with")
    parser.add_argument("--list", action="store_true", help="only say what would be run")
    given = parser.parse_args()
    try:
        changed = changed_files(ROOT, given.base)
        made = plan(ROOT, changed)
    except ValueError as error:
        parser.error(str(error))
    for name in changed:
        print(f"changed   {name}")
    for path in made.paths:
        note = f"  (of {', '.join(sorted(made.pages))})" if path in made.of_pages and path.suffix == ".py" else ""
        print(f"touched   {path.relative_to(ROOT).as_posix()}{note}")
    if given.list or not made.paths:
        print(f"{len(changed)} files changed, {len(made.paths)} files with tests touched", flush=True)
        return 0
    names = {path: path.relative_to(ROOT).as_posix() for path in made.paths}
    options = ["--pages", ",".join(sorted(made.pages)), "--of-pages", ",".join(names[path] for path in made.of_pages)]
    command = [sys.executable, "-m", "pytest", *RUN, "-p", "quick", *options, *names.values()]
    here = os.pathsep.join(filter(None, [str(ROOT / "tools"), os.environ.get("PYTHONPATH")]))
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": here}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
