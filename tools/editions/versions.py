"""Put the built pages of one version into the site, beside those of other versions.

    python -m tools.editions.versions SITE VERSION [--pages _build/html]

SITE is a folder with one folder for each version: `v0.3.0` for a tag, `latest` for the main branch. `stable` is a copy
of the highest tag. The site's own page leads to `stable`, or to `latest` while there is no tag. The site's address is
that of tools/notebooks/address.py. Running it again with the same pages changes nothing.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from urllib.parse import urljoin

from tools import ROOT
from tools.notebooks import address, notebooks
from tools.notebooks.address import LATEST, TAG
from tools.pages.book_online import VERSIONS

STABLE = "stable"
LEADS_ON = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'">
<title>Attention, Head by Head</title>
<meta http-equiv="refresh" content="0; url={folder}/">
<link rel="canonical" href="{address}">
<p>The book is at <a href="{folder}/">{folder}/</a>.</p>
</html>
"""


def tags(site: Path) -> list[str]:
    """The versions that are there and are tags, the newest first."""
    found = [folder.name for folder in site.iterdir() if folder.is_dir() and TAG.fullmatch(folder.name)]
    return sorted(found, key=lambda name: [int(part) for part in TAG.fullmatch(name).groups()], reverse=True)  # type: ignore[union-attr]


def canonical(site: Path, version: str) -> str:
    """The folder that search engines shall show, once `version` is in the site."""
    has_tag = TAG.fullmatch(version) is not None or (site.is_dir() and bool(tags(site)))
    return STABLE if has_tag else LATEST


def _replace(source: Path, target: Path) -> None:
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(".buildinfo*", ".doctrees"))


def put(site: Path, version: str, pages: Path, online: str) -> str:
    """Put `pages` into the site as `version`, and write what all versions share. Returns the folder to read first.

    Raises:
        ValueError: the version is no tag and not `latest`, or no pages are built.
    """
    if version != LATEST and not TAG.fullmatch(version):
        raise ValueError(f"VERSION is {LATEST} or a tag as v0.3.0, not {version!r}")
    if not (pages / "index.html").is_file():
        raise ValueError(f"{notebooks.here(pages)} holds no built pages: run  make book  first")
    site.mkdir(parents=True, exist_ok=True)
    _replace(pages, site / version)
    released = tags(site)
    first = STABLE if released else LATEST
    if released:
        _replace(site / released[0], site / STABLE)
    menu: list[dict[str, str | bool]] = [{"version": tag, "name": tag} for tag in released]
    if released:
        menu[0] |= {"name": f"{released[0]}, stable", "preferred": True}
    if (site / LATEST).is_dir():
        menu.insert(0, {"version": LATEST, "name": "latest, not released"})
    for entry in menu:
        entry["url"] = urljoin(online, f"{entry['version']}/")
    (site / VERSIONS).write_text(json.dumps(menu, indent=1) + "\n", encoding="utf-8")
    leads_on = LEADS_ON.format(folder=first, address=urljoin(online, f"{first}/"))
    (site / "index.html").write_text(leads_on, encoding="utf-8")
    (site / "robots.txt").write_text(f"User-agent: *\nSitemap: {urljoin(online, 'sitemap.xml')}\n", encoding="utf-8")
    if (site / first / "sitemap.xml").is_file():
        shutil.copy2(site / first / "sitemap.xml", site)
    (site / ".nojekyll").touch()  # GitHub would leave out the folders that begin with _
    return first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path)
    parser.add_argument("version")
    parser.add_argument("--pages", type=Path, default=ROOT / "_build/html")
    parser.add_argument("--say", action="store_true", help="only print the folder that search engines shall show")
    arguments = parser.parse_args()
    if arguments.say:
        print(canonical(arguments.site, arguments.version))
        return
    try:
        now = address.here()
        if now is None:
            raise ValueError("the book has no address: set BOOK_REPOSITORY=owner/name, as a workflow of GitHub does")
        first = put(arguments.site, arguments.version, arguments.pages, now.site)
    except ValueError as error:
        parser.exit(2, f"{error}\n")
    print(f"{arguments.version} is in {arguments.site.name}; {now.site} leads to {first}/")


if __name__ == "__main__":
    main()
