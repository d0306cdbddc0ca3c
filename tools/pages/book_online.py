"""Sphinx extension: what the pages need to be found, previewed and told apart by version where they are read online.

Where the book has no address, links to its repository are left out; else they are made here, for the repository that
builds the pages, and so are the notebooks that Colab opens (see tools/notebooks/address.py). The environment variable
BOOK_VERSION names the folder of the site that is built, as `v0.4.0` or `latest`: the pages then have a menu of
versions. BOOK_CANONICAL names the folder that search engines shall show, `stable` if nothing is said.
BOOK_LANGUAGES, as `fr`, names the languages whose pages are put into a folder of that name below the English ones: each
page then has a switch in its head that leads to the same page there, and back.
"""

from __future__ import annotations

import html
import os
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import nbformat
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config

from mhalib._write import write_whole
from tools import ROOT
from tools.notebooks import address, notebooks
from tools.pages import catalogues, figures
from tools.pages.book_extension import figure_id
from tools.pages.theme_words import SIDEBAR

VERSIONS = "versions.json"  # beside the versions' folders; tools/editions/versions.py writes it
NAMES = {"en": "English", "fr": "Français"}  # of languages, in themselves
SHORTEST, LONGEST = 60, 200  # letters of a description; search engines cut off more
ON_LAUNCH = "SageMaker Studio Lab"
FRONT_PICTURE = "_static/encoder_heads.svg"
CARDS = {
    "01_weighted_average": 2,
    "04_reshape_trick": 3,
    "11_positions": 2,
    "14_small_gpt": 2,
    "15_induction_circuit": 3,
    "16_seeing_with_heads": 4,
    "27_bake_off": 4,
    "30_never_write_the_scores": 3,
    "35_open_a_model_you_know": 3,
}  # the figure of a chapter's card, where the first is not the best


def card_of(chapter: str) -> str:
    """The number of the figure that previews of links to a chapter show: of 16_seeing_with_heads, 14.4."""
    return f"{int(chapter[:2])}.{CARDS.get(chapter, 1)}"


def lead_to_the_repository(app: Sphinx, config: Config) -> None:
    """Give the pages their repository and their site; without one, no button leads there, and no address is
    canonical."""
    now = address.here()
    if now is not None:
        buttons = {"use_repository_button": True, "use_issues_button": True}
        config.html_theme_options |= {"repository_url": now.url, **buttons}
    config.html_baseurl = now.site if now else ""


def write_address(app: Sphinx, docname: str, source: list[str]) -> None:
    """Give a notebook's page its launch links, and its set-up the line that installs the package of this version."""
    now, path = address.here(), Path(app.env.doc2path(docname))
    if now and path.suffix == ".ipynb" and ROOT in path.parents:
        notebook = notebooks.with_generated(path, nbformat.reads(source[0], as_version=4), now)
        source[0] = nbformat.writes(notebook)


def write_launched(app: Sphinx, exception: Exception | None) -> None:
    """Put what Colab and others open beside the pages: each notebook with the line that installs the package."""
    now = address.here()
    if now is None or exception or app.builder.format != "html" or app.config.language != "en":
        return
    for path in [one for folder in ("chapters", "exercises") for one in sorted((ROOT / folder).glob("*.ipynb"))]:
        target = Path(app.outdir, notebooks.LAUNCHED, path.relative_to(ROOT))
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, nbformat.writes(notebooks.launched(path, now)).rstrip("\n") + "\n")


def choose_version(app: Sphinx, config: Config) -> None:
    """Give the pages their canonical address, and a menu of versions if they are one of several."""
    version, below = os.environ.get("BOOK_VERSION", ""), "" if config.language == "en" else f"{config.language}/"
    if not version or not config.html_baseurl:
        config.html_baseurl += below if config.html_baseurl else ""
        return
    config.html_theme_options["switcher"] = {
        "json_url": urljoin(config.html_baseurl, VERSIONS),
        "version_match": version,
    }
    config.html_theme_options["check_switcher"] = False  # the file is made after the pages
    config.html_sidebars = {"**": [*SIDEBAR[:-1], "version-switcher.html", SIDEBAR[-1]]}
    config.html_baseurl = urljoin(config.html_baseurl, os.environ.get("BOOK_CANONICAL", "stable") + f"/{below}")


def offered() -> list[str]:
    """The languages, besides English, that this book is published in."""
    return os.environ.get("BOOK_LANGUAGES", "").split()


def offer_languages(app: Sphinx, config: Config) -> None:
    """Put the switch into the head of each page, if the book is published in other languages."""
    if offered():
        config.html_theme_options["article_header_end"] = ["language-switch.html", "article-header-buttons.html"]


def same_page(page: str, language: str, languages: Sequence[str]) -> dict[str, str]:
    """Where a page is in the other languages, by their codes, relative to itself in this one."""
    up = "../" * (page.count("/") + (language != "en"))
    others = (code for code in ("en", *languages) if code != language)
    return {code: f"{up}{'' if code == 'en' else f'{code}/'}{page}.html" for code in others}


def switch_languages(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Tell templates/language-switch.html where this page is in other languages, and search engines, too."""
    language, languages = app.config.language, offered()
    if not languages:
        return
    context["same_page"] = [(code, NAMES[code], to) for code, to in same_page(page, language, languages).items()]
    if base := app.config.html_baseurl:
        english = base if language == "en" else base.removesuffix(f"{language}/")
        tags = []
        for code in ("en", *languages):
            to = html.escape(urljoin(english, f"{'' if code == 'en' else f'{code}/'}{page}.html"), quote=True)
            tags.append(f'<link rel="alternate" hreflang="{code}" href="{to}" />')
        context["metatags"] = context.get("metatags", "") + "\n".join(tags) + "\n"


def description(doctree: nodes.document, language: str) -> str:
    """The first paragraph of a page's own text, behind boxes and the one on where to run it, cut behind a word."""
    launches = (ON_LAUNCH, catalogues.in_phrases(language, notebooks.LAUNCH_HERE).partition("`")[0])
    for paragraph in doctree.findall(nodes.paragraph):
        text = paragraph.astext()
        is_own = not isinstance(paragraph.parent, nodes.Admonition) and not any(words in text for words in launches)
        if is_own and len(text) > SHORTEST:
            return textwrap.shorten(text, LONGEST, placeholder=" …")
    return ""


def card(doctree: nodes.document, page: str) -> tuple[str, str]:
    """The picture that stands for a page, relative to the book's root, and what it shows: a figure of the page."""
    figures = [one for one in doctree.findall(nodes.figure) if "captioned" in one["classes"]]
    chapter = re.search(r"/(\d\d_\w+)", page)
    best = figure_id(card_of(chapter[1])) if chapter else ""
    chosen = [one for one in figures if best in one["ids"]] or figures
    for image in (image for figure in chosen for image in figure.findall(nodes.image)):
        return f"_images/{Path(image['uri']).name}", image.get("alt", "")
    return FRONT_PICTURE, "A wall of 72 small heatmaps: each head of an encoder, reading one sentence"


def drawn(app: Sphinx, picture: str) -> str:
    """The PNG of a picture that is to be drawn as one when all files are written: previews of links show no SVG."""
    path = Path(picture)
    if path.suffix != ".svg":
        return picture
    app.__dict__.setdefault("book_cards", set()).add(picture)
    return path.with_suffix(".png").as_posix()


def draw_cards(app: Sphinx, exception: Exception | None) -> None:
    if exception is None and app.builder.format == "html":
        for picture in sorted(app.__dict__.get("book_cards", ())):
            svg = Path(app.outdir, picture)
            figures.as_png(svg, svg.with_suffix(".png"))


def describe(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Write what search engines and previews of links say of a page into its head."""
    if doctree is None:
        return
    said = {"og:type": "article", "og:title": context["title"], "og:site_name": app.config.html_title}
    text = description(doctree, app.config.language)
    if text:
        said["og:description"] = text
    if app.config.html_baseurl:
        picture, alt = card(doctree, page)
        picture = drawn(app, picture)
        said["og:url"] = urljoin(app.config.html_baseurl, app.builder.get_target_uri(page))
        said |= {"og:image": urljoin(app.config.html_baseurl, picture), "og:image:alt": alt}
    tags = [f'<meta property="{name}" content="{html.escape(one, quote=True)}" />' for name, one in said.items()]
    if text:
        tags.append(f'<meta name="description" content="{html.escape(text, quote=True)}" />')
    if "og:image" in said:
        tags.append('<meta name="twitter:card" content="summary_large_image" />')
    context["metatags"] = context.get("metatags", "") + "\n".join(tags) + "\n"


def sitemap(addresses: list[str]) -> str:
    """A list of pages as search engines read it (https://www.sitemaps.org/protocol.html)."""
    lines = [f"  <url><loc>{html.escape(address)}</loc></url>" for address in addresses]
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n'
    return head + "\n".join(lines) + "\n</urlset>\n"


def write_sitemap(app: Sphinx, exception: Exception | None) -> None:
    if exception is None and app.builder.format == "html" and app.config.html_baseurl:
        pages = [app.builder.get_target_uri(page) for page in sorted(app.env.found_docs)]
        written = sitemap([urljoin(app.config.html_baseurl, page) for page in pages])
        (Path(app.outdir) / "sitemap.xml").write_text(written, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", lead_to_the_repository, priority=700)  # behind Jupyter Book
    app.connect("config-inited", choose_version, priority=710)
    app.connect("config-inited", offer_languages, priority=720)
    app.connect("source-read", write_address, priority=300)  # before book_language, which translates the links
    app.connect("html-page-context", describe)
    app.connect("html-page-context", switch_languages)
    app.connect("build-finished", write_sitemap)
    app.connect("build-finished", draw_cards)
    app.connect("build-finished", write_launched)
    return {"parallel_read_safe": True, "parallel_write_safe": False}  # remembers which cards to draw
