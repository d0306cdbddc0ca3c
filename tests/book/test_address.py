"""The address of the book: it stands in one place, follows everywhere, and comes back byte for byte."""

from __future__ import annotations

import json
import os
import re
import shutil
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

HERE = address.stored((notebooks.ROOT / "_config.yml").read_text(encoding="utf-8"))
HTML = notebooks.ROOT / "_build/html/chapters"
THERE = address.Address("some-one/my.heads", "trunk", "https://some-one.github.io/my.heads/")
MOVED = ("README.md", "CITATION.cff", "pyproject.toml", "_config.yml", "chapters/bibliography.md")
PAGES = ("chapters/04_reshape_trick.ipynb", "exercises/04_reshape_trick.ipynb", "chapters/teaching.md")


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Some files of the book, in a folder of their own."""
    for name in (*MOVED, *PAGES):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy2(notebooks.ROOT / name, tmp_path / name)
    monkeypatch.setattr(notebooks, "ROOT", tmp_path)
    monkeypatch.setattr(notebooks, "CHAPTERS", tmp_path / "chapters")
    return [tmp_path / name for name in (*MOVED, *PAGES)]


def test_an_address_is_followed_everywhere_and_comes_back(copy: list[Path]) -> None:
    before = {path: path.read_bytes() for path in copy}
    changed = address.move(copy, HERE, THERE)
    assert set(changed) >= {*MOVED, *PAGES[:2]}
    for path in copy:
        assert HERE.slug.encode() not in path.read_bytes(), path.name
        assert HERE.pages.encode() not in path.read_bytes(), path.name
    assert notebooks.repository() == ("https://github.com/some-one/my.heads", "trunk")
    readme = copy[0].read_text(encoding="utf-8")
    assert THERE.pages in readme.splitlines()[0]
    assert "github.com/some-one/my.heads && cd my.heads\n" in readme
    assert readme.count("git+https://github.com/some-one/my.heads@trunk") == readme.count("git+") > 0
    assert "placeholder" not in readme
    for path in copy[5:7]:
        cells = nbformat.read(path, as_version=4)
        launch = notebooks.cell_with_tag(cells, "launch").source
        assert f"colab.research.google.com/github/some-one/my.heads/blob/trunk/{notebooks.here(path)}" in launch
        assert "git+https://github.com/some-one/my.heads@trunk\n" in notebooks.cell_with_tag(cells, "set-up").source
        badge = re.search(r"!\[[^]]{40,}\]\((\S+?)\)", launch)[1]
        assert (path.parent / badge).resolve() == notebooks.ROOT / "chapters/_static/open_in_colab.svg"
    address.move(copy, THERE, HERE)
    assert {path: path.read_bytes() for path in copy} == before


def test_every_file_that_names_the_address_is_moved() -> None:
    naming = [
        "git",
        "grep",
        "--cached",
        "-l",
        "-e",
        HERE.slug,
        "-e",
        HERE.pages,
        "--",
        ":!tests",
        ":!tools",
        ":!mhalib",
    ]
    listing = subprocess.run(naming, cwd=notebooks.ROOT, capture_output=True, text=True, check=True)
    moved = {notebooks.here(path) for path in address.files()}
    assert set(listing.stdout.split()) <= moved
    assert not {"mhalib/__init__.py", "package.json"} & moved


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("git+https://github.com/a/b", "git+https://github.com/some-one/my.heads"),
        (
            "https://colab.research.google.com/github/a/b/blob/x",
            "https://colab.research.google.com/github/some-one/my.heads/blob/x",
        ),
        ("https://mybinder.org/v2/gh/a/b/main", "https://mybinder.org/v2/gh/some-one/my.heads/main"),
        (
            "?repo=https%3A%2F%2Fgithub.com%2Fa%2Fb&branch",
            "?repo=https%3A%2F%2Fgithub.com%2Fsome-one%2Fmy.heads&branch",
        ),
        ("https://a.github.io/b/x.html", "https://some-one.github.io/my.heads/x.html"),
        ("github.com/a/b-two, a/b and data/b", "github.com/a/b-two, a/b and data/b"),
    ],
)
def test_only_addresses_are_moved(old: str, new: str) -> None:
    before = address.Address("a/b", "main", address.pages_of("a/b"))
    assert address.moved(old, before, THERE) == new
    assert address.moved(new, THERE, before) == old


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("heads", "", "main"), r"^REPO is a repository of GitHub.*'heads'"),
        (("a/b/c", "", "main"), r"^REPO .*'a/b/c'"),
        (("a/b", "a.github.io", "main"), r"^PAGES is an address.*'a.github.io'"),
        (("a/b", "", "no such"), r"^BRANCH .*'no such'"),
    ],
)
def test_what_is_no_address_is_refused(asked: tuple[str, str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        address.wanted(*asked)


def test_pages_are_where_github_puts_them() -> None:
    assert address.wanted("Some/heads", "", "main").pages == "https://some.github.io/heads/"
    assert address.wanted("some/Some.github.io", "", "main").pages == "https://some.github.io/"
    assert address.wanted("a/b", "https://heads.example", "main").pages == "https://heads.example/"


def test_while_there_is_no_address_no_link_leads_there(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"repository_url": "x", "launch_buttons": {}, "use_issues_button": True, "logo": {}}
    for url, left in ((notebooks.PLACEHOLDER, {"logo"}), ("https://github.com/a/b", set(options))):
        monkeypatch.setattr(notebooks, "repository", lambda url=url: (url, "main"))
        config = Config({"html_theme_options": dict(options), "html_baseurl": "https://a.github.io/b/"})
        config.add("html_theme_options", {}, "html", dict)
        config.add("html_baseurl", "", "html", str)
        book_online.leave_out_what_leads_nowhere(None, config)
        assert set(config.html_theme_options) == left
        assert bool(config.html_baseurl) == (url != notebooks.PLACEHOLDER)
        cells = notebooks.generated_cells(notebooks.CHAPTERS / "04_reshape_trick.ipynb")
        written = cells["launch"] + cells["exercise-launch"]
        assert ("http" in written) == (url != notebooks.PLACEHOLDER)
    assert (f"https://github.com/{HERE.slug}" == notebooks.PLACEHOLDER) == ("placeholder" in read_second_line())


def read_second_line() -> str:
    return (notebooks.ROOT / "README.md").read_text(encoding="utf-8").splitlines()[1]


def test_the_set_up_cell_says_what_to_do_where_there_is_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    source = notebooks.generated_cells(notebooks.CHAPTERS / "04_reshape_trick.ipynb")["set-up"]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"Upload the book's folder, or mount .*%pip install"):
        exec(re.sub(r"%pip install --quiet.*", "pass", source), {})


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


@pytest.mark.parametrize(("branch", "installed"), [("v0.3.0", "0.3.0"), ("v0.4.0", "0.4.0"), ("main", "0.4.0")])
def test_a_notebook_of_a_version_installs_that_version(
    copy: list[Path], releases: Path, tmp_path: Path, branch: str, installed: str
) -> None:
    """Asked of pip itself, which is given the set-up cell's command and a repository with two versions."""
    new = address.wanted("some-one/my.heads", "", branch)
    address.move(copy, HERE, new)
    for path in copy[5:7]:
        source = notebooks.cell_with_tag(nbformat.read(path, as_version=4), "set-up").source
        (command,) = re.findall(r"%pip install (.* git\+.*)", source)
        assert command.endswith(f"/some-one/my.heads{'' if branch == 'main' else '@' + branch}")
    into = tmp_path / "site"
    alone = ["--no-build-isolation", "--disable-pip-version-check", "--target", str(into)]
    fetched = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.{releases.as_uri()}.insteadOf"}
    fetched |= {"GIT_CONFIG_VALUE_0": "https://github.com/some-one/my.heads", "GIT_ALLOW_PROTOCOL": "file"}
    pip = [sys.executable, "-m", "pip", "install", *command.split(), *alone]
    subprocess.run(pip, check=True, capture_output=True, env={**os.environ, **fetched})
    assert [one.name for one in into.glob("*.dist-info")] == [f"mhalib-{installed}.dist-info"]
    address.move(copy, new, HERE)
    assert b"@" + branch.encode() not in copy[5].read_bytes()


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
    with chromium.serving(tmp_path / "site") as address:
        page.goto(address)
        page.wait_for_url(f"{address}latest/")
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
        assert ("og:image" in said) == ("og:url" in said) == (not notebooks.is_placeholder())
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
