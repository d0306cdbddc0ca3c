"""The address of the book: no notebook holds it; what builds the pages says it, and links and set-up cells follow."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from bs4 import BeautifulSoup, SoupStrainer
from playwright.sync_api import Browser, expect
from sphinx.config import Config

from tools.development import links
from tools.editions import versions
from tools.notebooks import address, notebooks
from tools.pages import book_extension, book_online, chromium

HTML = notebooks.ROOT / "_build/html/chapters"
THERE = address.Address("some-one/my.heads", "v0.3.0", "v0.3.0", "https://some-one.github.io/my.heads/")
GIVEN = {"BOOK_REPOSITORY": "some-one/my.heads"}
CHAPTER, OWN = notebooks.CHAPTERS / "09_shape_checks.ipynb", notebooks.ROOT / "exercises/09_shape_checks.ipynb"


def test_no_file_holds_an_address() -> None:
    """CITATION.cff will, and it alone. Names of owners who do not exist may be taken by anybody."""
    asked = ["git", "grep", "-lE", r"head-by-head/|head-by-head\.github|head-by-head%2F|github\.com/(owner|OWNER)/"]
    found = subprocess.run(
        [*asked, "--", ":!tests", ":!CHANGELOG.md"], cwd=notebooks.ROOT, capture_output=True, text=True
    )
    assert set(found.stdout.split()) <= {"CITATION.cff", "tools/editions/release.py", "setup.py"}
    installs = [
        "git",
        "grep",
        "-nE",
        r"pip install[^`]*(git\+|[ \"]mhalib\b(\[\w+\])?[\"`]?$)",
        "--",
        "*.ipynb",
        "*.md",
    ]
    found = subprocess.run([*installs, ":!CHANGELOG.md"], cwd=notebooks.ROOT, capture_output=True, text=True)
    assert found.stdout == "", "nobody is told to install by a name that anybody could take"


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (GIVEN, ("some-one/my.heads", "latest", "main", "https://some-one.github.io/my.heads/")),
        ({"GITHUB_REPOSITORY": "A/a.github.io"}, ("A/a.github.io", "latest", "main", "https://a.github.io/")),
        (GIVEN | {"GITHUB_REPOSITORY": "a/b", "GITHUB_SHA": "c0ffee"}, (*THERE.slug.split(), "latest", "c0ffee", None)),
        (GIVEN | {"GITHUB_SHA": "c0ffee", "BOOK_VERSION": "v0.3.0"}, (THERE.slug, "v0.3.0", "v0.3.0", None)),
        (GIVEN | {"BOOK_PAGES": "https://a.example/b"}, (THERE.slug, "latest", "main", "https://a.example/b/")),
    ],
)
def test_what_builds_the_pages_says_the_address(told: dict[str, str], expected: tuple[str | None, ...]) -> None:
    now = address.here(told)
    for value, wanted in zip((now.slug, now.version, now.revision, now.site), expected, strict=True):
        assert wanted in (None, value)


def test_without_that_the_citation_says_it_or_nobody() -> None:
    assert address.here({"BOOK_REPOSITORY": ""}) is None
    assert address.cited("title: a\n# repository-code: https://github.com/a/b\n") == ""
    for written in ("https://github.com/a/b", '"https://github.com/a/b"', "https://github.com/a/b # ours"):
        assert address.cited(f"title: a\nrepository-code: {written}\n") == "a/b"


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"BOOK_REPOSITORY": "a/b/c"}, r"^BOOK_REPOSITORY is a repository of GitHub.*'a/b/c'"),
        (GIVEN | {"BOOK_PAGES": "a.github.io"}, r"^BOOK_PAGES is an address.*'a.github.io'"),
        (GIVEN | {"BOOK_VERSION": "0.3.0"}, r"^BOOK_VERSION is latest or a tag.*'0.3.0'"),
    ],
)
def test_what_is_no_address_is_refused(told: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        address.here(told)


def test_a_version_s_page_opens_its_notebook_and_installs_its_package() -> None:
    for path in (CHAPTER, OWN):
        stored, written = notebooks.generated_cells(path), notebooks.generated_cells(path, THERE)
        assert "http" not in "".join(stored.values())
        copy = f"github/some-one/my.heads/blob/gh-pages/v0.3.0/notebooks/{notebooks.here(path)}"
        assert f"colab.research.google.com/{copy}" in written["launch"]
        assert (
            f"mybinder.org/v2/gh/some-one/my.heads/v0.3.0?urlpath=lab/tree/{notebooks.here(path)}" in written["launch"]
        )
        first, *rest = written["set-up"].splitlines()
        assert first == '%pip install -q "mhalib[widgets] @ git+https://github.com/some-one/my.heads@v0.3.0" einops'
        assert stored["set-up"].splitlines()[1:] == rest
        assert stored["set-up"].startswith('# %pip install -q -e "..[widgets]" einops')
        badge = re.search(r"!\[[^]]{40,}\]\((\S+?)\)", written["launch"])[1]
        assert (path.parent / badge).resolve() == notebooks.ROOT / "chapters/_static/open_in_colab.svg"
    assert (
        f"gh-pages/v0.3.0/notebooks/{notebooks.here(OWN)}"
        in notebooks.generated_cells(CHAPTER, THERE)["exercise-launch"]
    )


def test_what_colab_opens_has_no_outputs_and_leads_to_the_pages() -> None:
    before = nbformat.read(CHAPTER, as_version=4)
    notebook = notebooks.launched(CHAPTER, THERE)
    assert [cell.outputs for cell in notebook.cells if cell.cell_type == "code" and cell.outputs] == []
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert "](https://some-one.github.io/my.heads/v0.3.0/chapters/" in text
    assert not re.search(r"\]\((?:\.\./chapters/)?\w+\.(?:ipynb|md)", text)
    assert any(cell.get("outputs") for cell in before.cells)
    assert nbformat.read(CHAPTER, as_version=4) == before


def test_while_there_is_no_address_no_link_leads_there(monkeypatch: pytest.MonkeyPatch) -> None:
    buttons = {"use_repository_button": True, "use_issues_button": True}
    for slug, added in (("", {}), ("a/b", {"repository_url": "https://github.com/a/b", **buttons})):
        monkeypatch.setenv("BOOK_REPOSITORY", slug)
        config = Config({"html_theme_options": {"logo": {}}, "html_baseurl": ""})
        config.add("html_theme_options", {}, "html", dict)
        config.add("html_baseurl", "", "html", str)
        book_online.lead_to_the_repository(None, config)
        assert config.html_theme_options == {"logo": {}, **added}
        assert config.html_baseurl == ("https://a.github.io/b/" if slug else "")


def builder(outdir: Path, language: str = "en") -> SimpleNamespace:
    """What the extension asks of Sphinx."""
    return SimpleNamespace(
        env=SimpleNamespace(doc2path=lambda name: str(notebooks.ROOT / f"{name}.ipynb")),
        outdir=str(outdir),
        builder=SimpleNamespace(format="html"),
        config=SimpleNamespace(language=language),
    )


@pytest.mark.parametrize("slug", ["", "some-one/my.heads"])
def test_pages_have_the_address_and_put_what_colab_opens_beside_them(
    slug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOOK_REPOSITORY", slug)
    monkeypatch.setenv("BOOK_VERSION", "v0.3.0")
    before = CHAPTER.read_text(encoding="utf-8")
    source = [before]
    book_online.write_address(builder(tmp_path), "chapters/09_shape_checks", source)
    book_online.write_launched(builder(tmp_path / "fr", "fr"), None)
    book_online.write_launched(builder(tmp_path / "failed"), ValueError())
    book_online.write_launched(builder(tmp_path), None)
    written = sorted(path.relative_to(tmp_path / "notebooks") for path in tmp_path.rglob("*.ipynb"))
    if not slug:
        assert source == [before]
        assert written == []
        return
    cells = nbformat.reads(source[0], as_version=4)
    assert "@v0.3.0" in notebooks.cell_with_tag(cells, "set-up").source
    assert "colab.research.google.com" in notebooks.cell_with_tag(cells, "launch").source
    all_of_them = [path for folder in ("chapters", "exercises") for path in (notebooks.ROOT / folder).glob("*.ipynb")]
    assert written == sorted(path.relative_to(notebooks.ROOT) for path in all_of_them)
    for path in written:
        text = (tmp_path / "notebooks" / path).read_text(encoding="utf-8")
        assert text.count("%pip install -q") == 1, path
        assert '%pip install -q \\"mhalib[widgets] @ git+https://github.com/some-one/my.heads@v0.3.0' in text, path
    assert sum((tmp_path / "notebooks" / path).stat().st_size for path in written) < 3_120_000


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def releases(tmp_path: Path) -> Path:
    """A repository whose package was at 0.3.0 when it got the tag v0.3.0, and is at 0.4.0 today."""
    folder = tmp_path / "releases"
    folder.mkdir()
    git(folder, "init")
    for version in ("0.3.0", "0.4.0"):
        module = f"from setuptools import setup\nsetup(name='mhalib', version='{version}', py_modules=[])\n"
        (folder / "setup.py").write_text(module, encoding="utf-8")
        git(folder, "add", "setup.py")
        git(folder, "commit", "-m", version)
        git(folder, "tag", f"v{version}")
    return folder


@pytest.mark.parametrize(("revision", "installed"), [("v0.3.0", "0.3.0"), ("v0.4.0", "0.4.0"), ("main", "0.4.0")])
def test_a_notebook_of_a_version_installs_that_version(
    releases: Path, tmp_path: Path, revision: str, installed: str
) -> None:
    """Asked of pip itself, which is given the set-up cell's command and a repository with two versions."""
    set_up = notebooks.generated_cells(CHAPTER, address.Address("some-one/my.heads", revision, revision))["set-up"]
    (package,) = re.findall(r'%pip install -q "(.*?)"', set_up)
    into = tmp_path / "site"
    alone = ["--no-build-isolation", "--no-deps", "--disable-pip-version-check", "--target", str(into)]
    fetched = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.{releases.as_uri()}.insteadOf"}
    fetched |= {"GIT_CONFIG_VALUE_0": "https://github.com/some-one/my.heads", "GIT_ALLOW_PROTOCOL": "file"}
    pip = [sys.executable, "-m", "pip", "install", package, *alone]
    subprocess.run(pip, check=True, capture_output=True, env={**os.environ, **fetched})
    assert [one.name for one in into.glob("*.dist-info")] == [f"mhalib-{installed}.dist-info"]


def build(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "index.html").write_text(text, encoding="utf-8")
    (folder / "sitemap.xml").write_text(f"<!-- {text} -->", encoding="utf-8")
    return folder


def test_a_site_keeps_each_version_and_leads_to_the_newest_tag(tmp_path: Path) -> None:
    whole = tmp_path / "site"
    steps = [
        ("latest", "latest"),
        ("v0.9.0", "stable"),
        ("v0.10.0", "stable"),
        ("v0.9.1", "stable"),
        ("latest", "stable"),
    ]
    for number, (version, first) in enumerate(steps):
        assert versions.canonical(whole, version) == first
        assert versions.put(whole, version, build(tmp_path / "pages", f"{version} {number}"), "https://a.b/c/") == first
    texts = {folder.name: (folder / "index.html").read_text() for folder in whole.iterdir() if folder.is_dir()}
    assert texts == {
        "latest": "latest 4",
        "v0.9.0": "v0.9.0 1",
        "v0.10.0": "v0.10.0 2",
        "v0.9.1": "v0.9.1 3",
        "stable": "v0.10.0 2",
    }
    menu = json.loads((whole / book_online.VERSIONS).read_text())
    assert [one["version"] for one in menu] == ["latest", "v0.10.0", "v0.9.1", "v0.9.0"]
    assert [one["url"] for one in menu if one.get("preferred")] == ["https://a.b/c/v0.10.0/"]
    assert 'url=stable/"' in (whole / "index.html").read_text()
    assert "content=\"default-src 'none'\"><title>" in (whole / "index.html").read_text().replace("\n", "")
    assert (whole / "sitemap.xml").read_text() == "<!-- v0.10.0 2 -->"


def test_a_site_leads_to_the_pages_of_a_language_that_it_has(tmp_path: Path) -> None:
    pages = build(tmp_path / "pages", "<title>The book</title>")
    versions.put(tmp_path / "site", "latest", pages, "https://a.b/c/")
    assert not (tmp_path / "site/fr").exists()
    build(pages / "fr", "<title>Le livre</title>")
    versions.put(tmp_path / "site", "latest", pages, "https://a.b/c/")
    said = (tmp_path / "site/fr/index.html").read_text(encoding="utf-8")
    assert 'url=../latest/fr/"' in said
    assert 'href="https://a.b/c/latest/fr/"' in said
    assert '<html lang="fr">' in said
    assert "Le livre se trouve" in said


def test_a_page_and_its_translation_lead_to_each_other() -> None:
    assert book_online.same_page("chapters/x", "en", ["fr"]) == {"fr": "../fr/chapters/x.html"}
    assert book_online.same_page("chapters/x", "fr", ["fr"]) == {"en": "../../chapters/x.html"}
    assert book_online.same_page("search", "fr", ["fr"]) == {"en": "../search.html"}
    assert book_online.same_page("chapters/x", "en", []) == {}


@pytest.mark.parametrize(("language", "below"), [("en", ""), ("fr", "fr/")])
def test_search_engines_are_told_the_page_in_each_language(
    language: str, below: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOOK_LANGUAGES", "fr")
    monkeypatch.setenv("BOOK_VERSION", "latest")
    monkeypatch.setenv("BOOK_CANONICAL", "stable")
    config = SimpleNamespace(language=language, html_baseurl="https://a.b/c/", html_theme_options={}, html_sidebars={})
    app, context = SimpleNamespace(config=config), {}
    book_online.choose_version(app, config)
    book_online.offer_languages(app, config)
    book_online.switch_languages(app, "chapters/x", "page.html", context, None)
    assert config.html_baseurl == f"https://a.b/c/stable/{below}"
    assert config.html_theme_options["article_header_end"][0] == "language-switch.html"
    assert 'hreflang="en" href="https://a.b/c/stable/chapters/x.html"' in context["metatags"]
    assert 'hreflang="fr" href="https://a.b/c/stable/fr/chapters/x.html"' in context["metatags"]
    ((code, name, _),) = context["same_page"]
    assert (code, name) == (("fr", "Français") if language == "en" else ("en", "English"))


@pytest.mark.browser
def test_the_site_s_own_page_leads_on_under_its_policy(tmp_path: Path, browser: Browser) -> None:
    versions.put(tmp_path / "site", "latest", build(tmp_path / "pages", "<title>The book</title>"), "https://a.b/c/")
    page, said = browser.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    with chromium.serving(tmp_path / "site") as site:
        page.goto(site)
        page.wait_for_url(f"{site}latest/")
        expect(page).to_have_title("The book")
    assert [text for text in said if "Content Security Policy" in text] == []
    page.close()


@pytest.mark.parametrize("version", ["main", "0.3.0", "v0.3", "../v0.3.0"])
def test_a_version_is_a_tag_or_latest(tmp_path: Path, version: str) -> None:
    with pytest.raises(ValueError, match=r"^VERSION is latest or a tag"):
        versions.put(tmp_path / "site", version, build(tmp_path / "pages", ""), "https://a.b/")
    with pytest.raises(ValueError, match=r"holds no built pages: run  make book"):
        versions.put(tmp_path / "site", "latest", tmp_path / "nothing", "https://a.b/")


READ = SoupStrainer(["meta", "figure"])


def test_every_page_says_what_it_is_about_and_every_card_is_one_of_its_figures() -> None:
    for path in sorted(notebooks.CHAPTERS.glob("[0-9]*.ipynb")):
        page = BeautifulSoup((HTML / f"{path.stem}.html").read_text(encoding="utf-8"), "html.parser", parse_only=READ)
        said = {one.get("property") or one.get("name"): one["content"] for one in page.select("meta[content]")}
        assert 60 < len(said["description"]) <= 200, path.stem
        assert said["description"] == said["og:description"]
        assert not re.search("make lab|Colab|Binder", said["description"]), path.stem
        assert ("og:image" in said) == ("og:url" in said) == (address.here() is not None)
        card = book_online.card_of(path.stem)
        assert page.select_one(f"figure#{book_extension.figure_id(card)} img"), card


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    links_of_a = '<a href="b/c.html#here">1</a><a href="b/c.html#there">2</a><img src="x.png"><a href="#me" id="me">'
    links_of_c = '<a href="../a.html?q=1#me">3</a><a href="https://a.b/x">4</a><a href="../b%20c.html">5</a>'
    (tmp_path / "a.html").write_text(links_of_a, encoding="utf-8")
    (tmp_path / "b/d e.html").touch()
    (tmp_path / "b/c.html").write_text(f'<p id="here">{links_of_c}<a href="d%20e.html">6</a>', encoding="utf-8")
    assert links.leading_nowhere(tmp_path) == [
        "a.html: b/c.html#there: no such place in the page",
        "a.html: x.png: no such file",
        "b/c.html: ../b%20c.html: no such file",
    ]


def test_no_link_within_the_book_leads_nowhere() -> None:
    assert links.leading_nowhere(HTML.parent) == []
