"""What `make quick` runs after a change: nothing that it touches is left out, and of the rest little is run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import Mock

import pytest

from tools.development import affected, quick
from tools.notebooks import notebooks

pytest_plugins = ["pytester"]

FILES = {
    "conftest.py": 'pytest_plugins = ("tools.development.a_plugin",)',
    "requirements.txt": "torch",
    "README.md": "words",
    "mhalib/__init__.py": "from . import data\nfrom .masks import causal\nfrom .layers import Layer\n",
    "mhalib/masks.py": "def causal(): return _made()\ndef _made(): return 1\n",
    "mhalib/layers.py": "from .masks import causal\nclass Layer:\n    def forward(self): return causal()\n",
    "mhalib_classroom/grade/__init__.py": "",
    "mhalib_classroom/grade/worker.py": "print('works')",
    "mhalib/data/__init__.py": "from .texts import read\nTABLE = {}\nglobals().update(TABLE)\n",
    "mhalib/data/texts.py": "from pathlib import Path\ndef read(): return Path(__file__).with_suffix('.txt')\n",
    "mhalib/data/texts.txt": "words",
    "mhalib/plots.py": "def draw(): pass\n",
    "tools/development/a_plugin.py": "def pytest_configure(): pass\n",
    "tools/notebooks/chapters.py": 'from pathlib import Path\nROOT = Path(".")\nCHAPTERS = ROOT / "chapters"\n',
    "tests/book/conftest.py": (
        "import pytest\nfrom tools.notebooks import chapters\nHTML = chapters.ROOT / '_build/html'\n"
        "@pytest.fixture\ndef site(): return HTML\n@pytest.fixture\ndef page(site): return site\n"
    ),
    "tests/book/test_site.py": "def test_site(page): pass\n",
    "tests/book/test_words.py": "from tools.notebooks import chapters\ndef test_words(): chapters.CHAPTERS\n",
    "tests/book/test_readme.py": "def test_readme(): open('README.md')\n",
    "tests/library/test_masks.py": "from mhalib import causal\ndef test_causal(): causal()\n",
    "tests/library/test_layers.py": "import mhalib\ndef test_layer(): mhalib.Layer()\n",
    "tests/library/test_texts.py": "import mhalib\ndef test_texts(): mhalib.data.read()\n",
    "tests/library/test_table.py": "from mhalib import data\ndef test_table(): data.made_at_run_time\n",
    "tests/library/test_grade.py": "def test_grade(): run('python', '-m', 'mhalib_classroom.grade.worker')\n",
    "tests/library/test_plots.py": "import mhalib.plots as p\ndef test_plots(): p.draw()\n",
    "tests/library/shared.py": "from mhalib.plots import draw\ndef three(): draw()\n",
    "tests/library/test_shared.py": "import shared\ndef test_shared(): shared.three()\n",
}
CHAPTERS = {"01_masks": "%pip install x\nfrom mhalib.masks import causal\ncausal()", "02_none": "print(1)"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "chapters").mkdir()
    for name, code in CHAPTERS.items():
        cells = [
            {"cell_type": "markdown", "source": "import ("},
            {"cell_type": "code", "source": code.splitlines(True)},
        ]
        (tmp_path / f"chapters/{name}.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    return tmp_path


def names(paths: set[Path]) -> set[str]:
    return {path.stem for path in paths}


@pytest.mark.parametrize(
    ("changed", "touches"),
    [
        ("mhalib/masks.py", "test_masks test_layers 01_masks"),  # by name, through another module, in a chapter
        ("mhalib/layers.py", "test_layers"),
        ("mhalib/plots.py", "test_plots test_shared"),
        ("mhalib/data/texts.py", "test_texts test_table"),
        ("mhalib/data/texts.txt", "test_texts test_table"),
        ("mhalib_classroom/grade/worker.py", "test_grade"),
        ("mhalib/__init__.py", "test_masks test_layers"),
        ("tests/library/test_masks.py", "test_masks"),
        ("tests/library/shared.py", "test_shared"),
        ("tests/book/conftest.py", "test_site test_words test_readme"),
        ("tools/notebooks/chapters.py", "test_site test_words"),
        ("chapters/02_none.ipynb", "02_none test_words"),
        ("_build/html/index.html", "test_site"),
        ("README.md", "test_readme"),
        ("LICENSE", ""),
        ("tests/library/test_gone.py", ""),
    ],
)
def test_what_a_file_touches(root: Path, changed: str, touches: str) -> None:
    assert names(affected.Affected(root).by(changed)) == set(touches.split())


@pytest.mark.parametrize("changed", ["conftest.py", "tools/development/a_plugin.py"])
def test_what_all_tests_use_touches_all(root: Path, changed: str) -> None:
    found = affected.Affected(root)
    assert found.by(changed) == set(found.reached)


def test_pages_touch_the_built_pages_and_only_their_own_tests(root: Path) -> None:
    made = quick.plan(root, ["chapters/02_none.ipynb", "mhalib/plots.py"])
    assert names(made.whole) == {"test_plots", "test_shared"}
    assert names(made.of_pages) == {"02_none", "test_words", "test_site"}
    assert made.pages == {"02_none"}
    assert names(quick.plan(root, ["_config.yml"]).whole) == {"test_site"}
    made = quick.plan(root, ["requirements.txt", "chapters/02_none.ipynb"])
    assert made.whole == set(affected.Affected(root).reached)
    assert made.of_pages == set()
    assert quick.plan(root, []).paths == []


@pytest.mark.parametrize(
    ("nodeid", "expected"),
    [
        ("test_pages.py::test_fits[chapters/09_shape_checks-light-390]", False),
        ("test_pages.py::test_fits[chapters/04_reshape_trick-light-390]", True),
        ("test_notebooks.py::test_is_small[04_reshape_trick]", True),
        ("test_notebooks.py::test_is_small[09_shape_checks]", False),
        ("test_05_reshape_trick.py::test_all", False),
        ("test_pages.py::test_links[09_shape_checks to 04_reshape_trick]", False),
    ],
)
def test_what_is_about_another_page(nodeid: str, expected: bool) -> None:
    assert quick.is_of_another_page(nodeid, {"09_shape_checks"}, {"09_shape_checks", "04_reshape_trick"}) == expected


def test_a_test_of_a_tool_is_left_out_where_only_pages_changed() -> None:
    def item(nodeid: str, marker: str = "") -> Mock:
        return Mock(nodeid=nodeid, get_closest_marker=lambda name: name == marker or None)

    options, left_out = {"--pages": "09_shape_checks", "--of-pages": "tests/a.py"}, []
    hook = Mock(pytest_deselected=lambda items: left_out.extend(items))
    items = [item("tests/a.py::one", "tool"), item("tests/a.py::two"), item("tests/b.py::three", "tool")]
    tool_of_pages, *rest = items
    quick.pytest_collection_modifyitems(Mock(getoption=options.get, hook=hook), items)
    assert (left_out, items) == ([tool_of_pages], rest)


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text, encoding="utf-8")


def test_a_change_is_commits_and_edits_and_new_files(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    git(there, "init", "-q", "-b", "main")
    for name in ("same", "committed", "edited", "removed", "a name", "later"):
        write(there, name, "old")
    write(there, ".gitignore", "ignored")
    git(there, "add", "-A")
    git(there, "commit", "-qm", "first")
    assert quick.changed_files(there) == []  # there is no commit before
    git(tmp_path, "clone", "-q", "there", "here")
    write(there, "later", "new")  # what others did since is no change of mine
    git(there, "commit", "-qam", "second")
    git(here, "fetch", "-q")
    git(here, "checkout", "-qb", "mine")
    write(here, "committed", "new")
    git(here, "commit", "-qam", "mine")
    for name in ("edited", "ignored", "added", "a name"):
        write(here, name, "new")
    (here / "removed").unlink()
    assert quick.changed_files(here) == ["a name", "added", "committed", "edited", "removed"]
    assert quick.changed_files(here, "HEAD") == ["a name", "added", "edited", "removed"]
    with pytest.raises(ValueError, match="merge-base no-such-thing HEAD"):
        quick.changed_files(here, "no-such-thing")


@pytest.mark.parametrize("arguments", [(), ("--depth", "2")], ids=["whole", "as a workflow clones"])
def test_in_a_fresh_clone_the_change_is_that_of_the_last_commit(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    git(there, "init", "-q", "-b", "main")
    for name in ("first", "second", "main"):
        write(there, name, "new")
        git(there, "add", "-A")
        git(there, "commit", "-qm", name)
        if name == "first":
            git(there, "branch", "mine")
    git(there, "checkout", "-q", "mine")
    write(there, "third", "new")
    git(there, "add", "-A")
    git(there, "commit", "-qm", "third")
    git(there, "checkout", "-q", "main")
    git(there, "merge", "-q", "--no-ff", "-m", "merge", "mine")
    git(tmp_path, "clone", "-q", *arguments, there.as_uri(), "here")
    assert quick.changed_files(here) == ["third"]  # what the merge brought to main
    assert quick.changed_files(here, "HEAD") == []
    write(here, "mine", "new")
    assert quick.changed_files(here) == ["mine"]


EACH_PAGE = """
import pytest
@pytest.mark.parametrize("page", ["09_shape_checks", "glossary", "mine"])
def test_page(page): pass
"""


@pytest.mark.tool
def test_the_tests_of_other_pages_are_left_out(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(notebooks.ROOT))
    pytester.makepyfile(test_pages=EACH_PAGE, test_whole=EACH_PAGE)
    options = [
        "-p",
        "tools.development.quick",
        "--pages",
        "glossary",
        "--of-pages",
        "test_pages.py",
        "-p",
        "no:cacheprovider",
    ]
    ran = pytester.runpytest_subprocess(*options)
    ran.assert_outcomes(passed=5, deselected=1)


def test_the_command_gives_pytest_a_plugin_that_is_there(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, ...]] = []
    monkeypatch.setattr(quick, "ROOT", root)
    monkeypatch.setattr(quick, "changed_files", lambda root, base: ["chapters/02_none.ipynb"])
    monkeypatch.setattr(quick, "run", lambda *arguments: ran.append(arguments) or 0)
    monkeypatch.setattr(sys, "argv", ["quick"])
    assert quick.main() == 0
    [arguments] = ran
    assert find_spec(arguments[arguments.index("-p") + 1]) is not None
    assert arguments[-3:] == ("chapters/02_none.ipynb", "tests/book/test_site.py", "tests/book/test_words.py")


def test_the_text_of_changed_pages_is_read_first() -> None:
    *files, _, _, _, pages = quick.of_text(["mhalib/plots.py", "chapters/02_none.ipynb", "chapters/glossary.md"])
    assert pages == "02_none or glossary"
    assert quick.of_text(["mhalib/plots.py"]) == []
    for name in files:  # each has a case for each page, and none opens a browser
        source = (notebooks.ROOT / name).read_text(encoding="utf-8")
        assert re.search(r"ids=lambda (text: text\.name|path: path\.stem)", source), name
        assert "playwright" not in source
    before, after = (notebooks.ROOT / "Makefile").read_text(encoding="utf-8").split("quick --text")
    assert "quick: $(READY) ##" in before
    assert after.index(" lint book") < after.index("tools.development.quick")


@pytest.fixture(scope="module")
def book() -> affected.Affected:
    return affected.Affected(notebooks.ROOT)


@pytest.mark.tool
@pytest.mark.parametrize(
    ("changed", "among", "not_among"),
    [
        ("mhalib/attention/layer.py", "test_attention test_reference 04_reshape_trick", "test_glossary test_plots"),
        ("mhalib/measures/roles.py", "test_measures_roles 18_what_heads_look_at", "test_attention test_pages"),
        ("mhalib/widgets/head_explorer.js", "test_head_explorer test_live_lab", "test_attention test_grade"),
        ("mhalib_classroom/grade/worker.py", "test_grade", "test_attention 04_reshape_trick"),
        ("mhalib/weights/translator.safetensors", "test_saved_translator", "test_attention test_pages"),
        (
            "chapters/09_shape_checks.ipynb",
            "09_shape_checks test_notebooks test_notation",
            "test_grade 04_reshape_trick",
        ),
        (quick.BUILT, "test_pages test_exercises", "test_head_explorer test_attention"),
        ("tests/js_coverage.py", "test_head_explorer", "test_attention"),
        ("tools/teaching/exercises.py", "test_exercises", "test_attention"),
    ],
)
def test_what_files_of_the_book_touch(book: affected.Affected, changed: str, among: str, not_among: str) -> None:
    """What must be among it, and what must not."""
    found = names(book.by(changed))
    assert set(among.split()) <= found
    assert not set(not_among.split()) & found
