"""Where the book's repository and its pages are: what builds the pages says so, and no notebook holds it.

Launch links, and the line that installs the package, are made with the pages, for the repository that builds them:
`BOOK_REPOSITORY=owner/name`, or `GITHUB_REPOSITORY` in a workflow of GitHub, or else the one line `repository-code` of
CITATION.cff, which is there once the book has an address. Without any of them, no link leads to a repository.

`BOOK_VERSION` is the folder of the site that is built: a tag as `v0.4.0`, or `latest`. A tag's pages open the tag's
notebooks, and these install the tag's package; those of `latest` install the commit (`GITHUB_SHA`) that built them.
`BOOK_PAGES` is the site's address, where GitHub does not choose it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tools import ROOT

GITHUB = "https://github.com/"
CITATION = "CITATION.cff"
TAG = re.compile(r"v(\d+)\.(\d+)\.(\d+)")
LATEST = "latest"
SITE_BRANCH = "gh-pages"  # publish.yml keeps the site there, so services that open notebooks from GitHub find them


@dataclass(frozen=True)
class Address:
    """A repository of GitHub, `owner/name`; the version that is built, and its tag or commit; the address of the site,
    which ends in a slash."""

    slug: str
    version: str = LATEST
    revision: str = "main"
    site: str = ""

    @property
    def url(self) -> str:
        return GITHUB + self.slug

    @property
    def package(self) -> str:
        """What pip installs for a notebook of this version: the package of this version, not the newest."""
        return f"mhalib[widgets] @ git+{self.url}@{self.revision}"

    @property
    def pages(self) -> str:
        """Where the pages of this version are."""
        return f"{self.site}{self.version}/"


def pages_of(slug: str) -> str:
    """Where GitHub puts the pages of a repository."""
    owner, _, name = slug.partition("/")
    host = f"{owner.lower()}.github.io"
    return f"https://{host}/" if name.lower() == host else f"https://{host}/{name}/"


def cited(citation: str) -> str:
    """The repository, `owner/name`, in the text of CITATION.cff; empty where it names none."""
    found = re.search(rf"^repository-code: *[\"']?{GITHUB}([^\s\"'#]+)", citation, flags=re.MULTILINE)
    return found[1] if found else ""


def here(environment: Mapping[str, str] | None = None) -> Address | None:
    """The address for which pages are built now; `None` where nobody knows one.

    Raises:
        ValueError: what is given is no repository of GitHub, or no address of pages.
    """
    told = os.environ if environment is None else environment
    stored = cited((ROOT / CITATION).read_text(encoding="utf-8"))
    slug = told.get("BOOK_REPOSITORY", told.get("GITHUB_REPOSITORY", stored))
    if not slug:
        return None
    site, version = told.get("BOOK_PAGES", ""), told.get("BOOK_VERSION") or LATEST
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*/[\w.-]+", slug):
        raise ValueError(f"BOOK_REPOSITORY is a repository of GitHub, owner/name: not {slug!r}")
    if site and not re.fullmatch(r"https?://[^\s/]+(/\S*)?", site):
        raise ValueError(f"BOOK_PAGES is an address as https://owner.github.io/name/ : not {site!r}")
    if version != LATEST and not TAG.fullmatch(version):
        raise ValueError(f"BOOK_VERSION is {LATEST} or a tag as v0.4.0: not {version!r}")
    revision = version if version != LATEST else told.get("GITHUB_SHA") or "main"
    return Address(slug, version, revision, site.rstrip("/") + "/" if site else pages_of(slug))
