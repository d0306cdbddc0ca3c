"""What the chapters cite is in references.bib, what is there is cited, and the book says how to cite it."""

from __future__ import annotations

import json
import re
from urllib.parse import urlsplit

import pytest
import tomllib
import yaml
from book_text import CHAPTERS, PAGES, Text
from pybtex.database import parse_file, parse_string

import mhalib
from tools.notebooks import notebooks

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
    assert len({on_page["year"], str(citation["date-released"])[:4], config["copyright"]}) == 1
    assert "[CITATION.cff](../CITATION.cff)" in PAGES["bibliography"].prose


def test_zenodo_is_told_what_the_citation_says() -> None:
    """Zenodo reads .zenodo.json alone where there is one; version and day it takes from the release."""
    citation = yaml.safe_load((notebooks.ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    told = json.loads((notebooks.ROOT / ".zenodo.json").read_text(encoding="utf-8"))
    assert [each["name"] for each in told["creators"]] == [each["name"] for each in citation["authors"]]
    assert re.sub(r"</?p>", "", told["description"]) == citation["abstract"]
    assert {key: told[key] for key in ("title", "keywords", "license")} == {
        key: citation[key] for key in ("title", "keywords", "license")
    }
    assert {"version", "publication_date", "doi"} & set(told) == set()


def test_the_citation_has_what_its_format_asks_for() -> None:
    citation = yaml.safe_load((notebooks.ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors", "abstract", "keywords"} <= set(citation)
    book = citation["preferred-citation"]
    assert {"type", "title", "authors"} <= set(book)
    for key in ("title", "authors", "version"):
        assert book[key] == citation[key], key
    assert book["year"] == citation["date-released"].year


def test_text_and_code_have_their_licences_apart() -> None:
    read = {name: (notebooks.ROOT / name).read_text(encoding="utf-8") for name in ("LICENSE", "LICENSE-text")}
    citation = yaml.safe_load((notebooks.ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    config = yaml.safe_load((notebooks.ROOT / "_config.yml").read_text(encoding="utf-8"))
    project = tomllib.loads((notebooks.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (citation["license"], project["license"], project["license-files"]) == ("MIT", "MIT", ["LICENSE"])
    assert citation["preferred-citation"]["license"] == "CC-BY-4.0"
    assert read["LICENSE"].startswith("MIT License")
    assert "https://creativecommons.org/licenses/by/4.0/legalcode" in read["LICENSE-text"]
    holder = f"Copyright (c) {config['copyright']} {config['author']}"
    assert all(holder in text for text in read.values())
    for said in (config["html"]["extra_footer"], PAGES["bibliography"].prose):
        assert "https://creativecommons.org/licenses/by/4.0/" in said
        assert "MIT" in said
