"""Put the built pages of one version into the site, beside those of other versions.

    python -m tools.editions.versions SITE VERSION [--pages _build/html]

SITE is a folder with one folder for each version: `v0.3.0` for a tag, `latest` for the main branch. `stable` is a copy
of the highest tag. The site's own page leads to `stable`, or to `latest` while there is no tag; its page `fr/` leads to
the French pages there, which are in a folder `fr` of PAGES. The site's address is that of tools/notebooks/address.py.
Running it again with the same pages changes nothing.
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
from tools.pages import catalogues
from tools.pages.book_online import VERSIONS

AT = "The book is at"  # locale/*/LC_MESSAGES/book.po has it
STABLE = "stable"
LEADS_ON = """\
<!doctype html>
<html lang="{language}">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'">
<title>Attention, Head by Head</title>
<meta http-equiv="refresh" content="0; url={folder}/">
<link rel="canonical" href="{address}">
<p>{says} <a href="{folder}/">{folder}/</a>.</p>
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


def _lead_on(place: Path, folder: str, online: str, language: str) -> None:
    place.mkdir(exist_ok=True)
    says = catalogues.phrases(language)(AT)
    to = urljoin(online, f"{folder}/")
    page = LEADS_ON.format(language=language, says=says, folder=folder, address=to)
    (place / "index.html").write_text(page, encoding="utf-8")


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
    _lead_on(site, first, online, "en")
    for language in catalogues.languages():
        if (site / first / language / "index.html").is_file():
            _lead_on(site / language, f"../{first}/{language}", urljoin(online, f"{language}/"), language)
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
