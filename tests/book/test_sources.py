"""What the chapters cite is in references.bib, what is there is cited, and the book says how to cite it."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import notebooks
import pytest
import yaml
from book_text import CHAPTERS, PAGES, Text
from pybtex.database import parse_file, parse_string

import mhalib

BIB = parse_file(str(notebooks.CHAPTERS / "references.bib")).entries
URLS = {entry.fields["url"].rstrip("/") for entry in BIB.values()}
PAPERS = ("arxiv.org", "aclanthology.org", "openreview.net", "transformer-circuits.pub", "nlp.seas.harvard.edu")
PAPERS += ("d2l.ai", "proceedings.mlr.press", "proceedings.neurips.cc", "papers.nips.cc", "jmlr.org", "doi.org")
PAPERS += ("jstor.org",)
CITED = re.findall(r"\{cite:t\}`([^`]+)`", PAGES["bibliography"].prose)


def unknown_papers(text: Text) -> list[str]:
    """Links to papers under a page's "Sources" that no entry of references.bib has. Of D2L, any page will do."""
    _, _, sources = text.prose.partition("### Sources")
    links = re.findall(r"\]\((https?://[^)\s]+)\)", sources)
    papers = [link.rstrip("/") for link in links if urlsplit(link).netloc.removeprefix("www.") in PAPERS]
    return [link for link in papers if link not in URLS and urlsplit(link).netloc != "d2l.ai"]


@pytest.mark.parametrize("text", CHAPTERS, ids=lambda text: text.name)
def test_every_paper_a_chapter_names_is_in_the_bibliography(text: Text) -> None:
    assert unknown_papers(text) == [], "add an entry to chapters/references.bib and a line to chapters/bibliography.md"


def test_a_paper_without_an_entry_is_found() -> None:
    sources = "### Sources\n\n- [a](https://arxiv.org/abs/1706.03762)\n- [b](https://arxiv.org/abs/9999.00000)"
    assert unknown_papers(Text("page", (sources,))) == ["https://arxiv.org/abs/9999.00000"]


def test_every_entry_is_cited_once_with_a_reason() -> None:
    assert sorted(CITED) == sorted(BIB)
    for line in re.findall(r"^- \{cite:t\}.*$", PAGES["bibliography"].prose, flags=re.MULTILINE):
        assert len(line.split("`: ")[1].split()) >= 6, line


@pytest.mark.parametrize("key", BIB)
def test_entry_is_complete(key: str) -> None:
    entry = BIB[key]
    assert entry.fields["title"]
    assert entry.persons["author"]
    assert re.match(r"https://\S+$", entry.fields["url"])
    if year := entry.fields.get("year"):
        assert year.rstrip("ab") in key


def test_no_work_stands_twice() -> None:
    assert len(URLS) == len(BIB)
    assert len({entry.fields["title"].lower() for entry in BIB.values()}) == len(BIB)


def citation_on_the_page(page: str) -> dict[str, str]:
    (entry,) = parse_string(re.search(r"```bibtex\n(.*?)```", page, flags=re.DOTALL)[1], "bibtex").entries.values()
    return {**entry.fields, "author": " ".join(entry.persons["author"][0].last_names)}


def test_citation_of_the_book_agrees_everywhere() -> None:
    on_page = citation_on_the_page(PAGES["bibliography"].markdown[0])
    citation = yaml.safe_load((notebooks.ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    config = yaml.safe_load((notebooks.ROOT / "_config.yml").read_text(encoding="utf-8"))
    names = {on_page["author"].strip("{}"), citation["authors"][0]["name"], config["author"]}
    assert len({on_page["title"], citation["title"], config["title"]}) == 1
    assert len(names) == 1
    assert len({on_page["version"], str(citation["version"]), mhalib.__version__}) == 1
    assert len({on_page["url"], citation["repository-code"], config["repository"]["url"]}) == 1
    assert len({on_page["year"], str(citation["date-released"])[:4], config["copyright"]}) == 1
    assert f"{on_page['url']}/blob/{config['repository']['branch']}/CITATION.cff" in PAGES["bibliography"].prose
