"""Give the book its address: where its repository is, and where its pages are read.

    python -m tools.notebooks.address OWNER/NAME [--pages URL] [--branch NAME]

The address stands in _config.yml. This writes it there, and follows it everywhere else: links and set-up cells of the
notebooks, README, the package's metadata, the citation. Given the placeholder, it takes all of it back. Without
`--pages`, the pages are where GitHub puts those of that repository.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import nbformat
import yaml

from mhalib._write import write_whole
from tools import ROOT
from tools.notebooks import notebooks

GITHUB = "https://github.com/"
TEXT = {".md", ".toml", ".cff", ".yml", ".yaml", ".json", ".ipynb", ".txt", ".po", ""}
LEFT_OUT = ("tests/", "tools/", "mhalib", "package")  # none of them holds the address, and tests name others
NOTE = (
    "> **No address yet.** `{slug}` is a placeholder: links to it lead nowhere. Use the folder that you were given; "
    "`make address REPO=owner/name` sets yours, everywhere.\n"
)


@dataclass(frozen=True)
class Address:
    """A repository of GitHub, `owner/name`, its branch, and the address of its pages, which ends in a slash."""

    slug: str
    branch: str
    pages: str

    @property
    def name(self) -> str:
        return self.slug.partition("/")[2]


def stored(config: str) -> Address:
    """The address in the text of _config.yml.

    Raises:
        ValueError: it has no address of the repository or of the pages.
    """
    settings = yaml.safe_load(config)
    try:
        repository, pages = settings["repository"], settings["html"]["baseurl"]
        return Address(repository["url"].removeprefix(GITHUB), repository["branch"], pages)
    except (KeyError, TypeError):
        raise ValueError("_config.yml lacks repository.url, repository.branch or html.baseurl: put it back") from None


def pages_of(slug: str) -> str:
    """Where GitHub puts the pages of a repository."""
    owner, _, name = slug.partition("/")
    host = f"{owner.lower()}.github.io"
    return f"https://{host}/" if name.lower() == host else f"https://{host}/{name}/"


def wanted(slug: str, pages: str, branch: str) -> Address:
    """What somebody asks for, checked.

    Raises:
        ValueError: one of the three is none.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*/[\w.-]+", slug):
        raise ValueError(f"REPO is a repository of GitHub, as in  make address REPO=owner/name : not {slug!r}")
    if pages and not re.fullmatch(r"https?://[^\s/]+(/\S*)?", pages):
        raise ValueError(f"PAGES is an address, as in  PAGES=https://owner.github.io/name/ : not {pages!r}")
    if not re.fullmatch(r"[\w./-]+", branch):
        raise ValueError(f"BRANCH is the name of a branch, as in  BRANCH=main : not {branch!r}")
    return Address(slug, branch, pages.rstrip("/") + "/" if pages else pages_of(slug))


def moved(text: str, old: Address, new: Address) -> str:
    """`text` with every address of the repository, plain, quoted for a URL or of a launcher, and of its pages."""
    slug, quoted = re.escape(old.slug), re.escape(old.slug.replace("/", "%2F"))
    text = text.replace(old.pages, new.pages)
    text = re.sub(rf"((?:github\.com|/github|/gh)/){slug}(?![\w-])", rf"\g<1>{new.slug}", text)
    return re.sub(rf"(github\.com%2F){quoted}(?![\w-])", rf"\g<1>{new.slug.replace('/', '%2F')}", text)


def moved_config(text: str, old: Address, new: Address) -> str:
    text = moved(text, old, new)
    return text.replace(f"\n  branch: {old.branch}\n", f"\n  branch: {new.branch}\n", 1)


def moved_readme(text: str, old: Address, new: Address) -> str:
    """README clones into a folder of the repository's name, and installs the package as notebooks do; its second line
    says while there is none."""
    text = moved(text, old, new).replace(f"&& cd {old.name}\n", f"&& cd {new.name}\n")
    url = GITHUB + new.slug
    text = text.replace(notebooks.package(url, old.branch), notebooks.package(url, new.branch))
    return with_note(text, new.slug)


def with_note(readme: str, slug: str) -> str:
    """README's text with the note on the placeholder as its second line, or without it."""
    title, _, rest = readme.partition("\n")
    rest = rest.removeprefix(NOTE.format(slug=notebooks.PLACEHOLDER.removeprefix(GITHUB)))
    return f"{title}\n{NOTE.format(slug=slug) if GITHUB + slug == notebooks.PLACEHOLDER else ''}{rest}"


OWN_WAY: dict[str, Callable[[str, Address, Address], str]] = {"_config.yml": moved_config, "README.md": moved_readme}


def files() -> list[Path]:
    """The texts of the repository that may hold the address."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    names = [name for name in listing.stdout.decode().split("\0") if name and not name.startswith(LEFT_OUT)]
    return [path for path in map(ROOT.joinpath, names) if path.suffix in TEXT and path.is_file()]


def move(paths: Iterable[Path], old: Address, new: Address) -> list[str]:
    """Write the new address into the texts, then the cells that follow from it; the names of what changed."""
    paths = sorted(paths, key=lambda path: path.name != "_config.yml")  # the cells are made from it
    changed = []
    for path in paths:
        before = path.read_bytes()
        name = notebooks.here(path)
        text = OWN_WAY.get(name, moved)(before.decode(), old, new)
        write_whole(path, text)
        if path.suffix == ".ipynb" and path.parent.name in ("chapters", "exercises"):
            notebook = notebooks.with_generated(path, nbformat.reads(text, as_version=4))
            write_whole(path, nbformat.writes(notebook).rstrip("\n") + "\n")
        if path.read_bytes() != before:
            changed.append(name)
    return changed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", metavar="OWNER/NAME")
    parser.add_argument("--pages", default="", metavar="URL", help="where the book is read")
    parser.add_argument("--branch", default="main", metavar="NAME")
    arguments = parser.parse_args()
    try:
        new = wanted(arguments.repository, arguments.pages, arguments.branch)
        changed = move(files(), stored((ROOT / "_config.yml").read_text(encoding="utf-8")), new)
    except ValueError as error:
        parser.exit(2, f"{error}\n")
    print(f"{GITHUB}{new.slug}, branch {new.branch}; pages at {new.pages}: {len(changed)} files changed")


if __name__ == "__main__":
    main()
