"""Run the tests and the notebooks that a change affects, and no others.

    python -m tools.development.quick [--text] [--base REV] [--list]

A change is what differs from where your branch left REV: commits, the working tree, new files. REV is what main
follows in the repository it came from, or, where it follows nothing, the last commit. Where nothing differs, as in a
fresh clone of main, the change is that of the last commit. affected.py finds out what that affects. Of a test that is
affected by pages alone, only what its name says is about those pages is run, and nothing that is marked `tool`: such a
test makes its own pages. `--text` runs only what reads the words of the changed pages, which needs no built book and
takes seconds: `make quick` begins with it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tools import ROOT
from tools.development import affected
from tools.pages import build

EVERYTHING = ("requirements.txt", "pyproject.toml")  # no name in the code leads to them
BUILT = "_build/html/chapters/page.html"  # any built page
TEXT = (  # tests with a case for each page, which read its source and execute nothing
    "tests/book/test_notebooks.py",
    "tests/book/test_results.py",
    "tests/book/test_glossary.py",
    "tests/book/test_sources.py",
)
RUN = ("-n", "2", "--dist", "loadfile", "--nbval", "--nbval-current-env")


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip() or "nothing in common"
        raise ValueError(f"git {' '.join(arguments)}: {said}: name a commit or a branch with --base")
    return done.stdout


def changed_files(root: Path, base: str = "") -> list[str]:
    """What differs from where HEAD left `base`, in commits, in the working tree and in files that git does not know.

    Without a `base`, and where nothing differs, it is what the last commit changed, and a merge brought to its branch.
    """
    last = not base
    if last:
        try:
            base = git(root, "rev-parse", "--abbrev-ref", "main@{upstream}").strip()
        except ValueError:
            base = "HEAD"
    start = git(root, "merge-base", base, "HEAD").strip()
    listed = git(root, "diff", "--name-only", "--no-renames", "-z", start)
    listed += git(root, "ls-files", "--others", "--exclude-standard", "-z")
    if not listed and last and git(root, "rev-list", "--max-count=2", "HEAD").count("\n") == 2:
        listed = git(root, "diff", "--name-only", "--no-renames", "-z", "HEAD^")
    return sorted(set(filter(None, listed.split("\0"))))


def is_page(name: str) -> bool:
    return any(Path(name).match(pattern) for pattern in build.PAGES)


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
    found, made = affected.Affected(root), Plan()
    if set(changed) & set(EVERYTHING):
        made.whole = set(found.reached)
    for name in changed:
        if is_page(name):
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


def of_text(changed: list[str]) -> list[str]:
    """pytest's arguments for the text tests of the changed pages; none where no page changed."""
    pages = [Path(name).stem for name in changed if is_page(name)]
    return [*TEXT, "-m", "not tool", "-k", " or ".join(pages)] if pages else []


def run(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=ROOT, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="", help="what your change is compared with")
    parser.add_argument("--text", action="store_true", help="only what reads the words of the changed pages")
    parser.add_argument("--list", action="store_true", help="only say what would be run")
    given = parser.parse_args()
    try:
        changed = changed_files(ROOT, given.base)
        made = Plan() if given.text else plan(ROOT, changed)
    except ValueError as error:
        parser.error(str(error))
    if given.text:
        arguments = of_text(changed)
        return run("-q", *arguments) if arguments else 0
    for name in changed:
        print(f"changed   {name}")
    for path in made.paths:
        note = f"  (of {', '.join(sorted(made.pages))})" if path in made.of_pages and path.suffix == ".py" else ""
        print(f"affected  {path.relative_to(ROOT).as_posix()}{note}")
    if given.list or not made.paths:
        print(f"{len(changed)} files changed, {len(made.paths)} files with tests affected", flush=True)
        return 0
    names = {path: path.relative_to(ROOT).as_posix() for path in made.paths}
    options = ["--pages", ",".join(sorted(made.pages)), "--of-pages", ",".join(names[path] for path in made.of_pages)]
    return run(*RUN, "-p", "tools.development.quick", *options, *names.values())


if __name__ == "__main__":
    sys.exit(main())
