"""The command `mhalib`: what it writes and serves, and that it says in one line what is wrong."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import nbformat
import pytest
import tomllib
from test_open_a_model import PAIR, write

from mhalib import widgets
from mhalib.attention.registry import KINDS
from mhalib_classroom import _open, checks, command
from mhalib_classroom.grade import __main__ as grader
from tools.editions import book_wheel
from tools.notebooks import notebooks

RUN = [sys.executable, "-m", "mhalib_classroom.command"]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_is_installed_by_its_name() -> None:
    project = tomllib.loads((notebooks.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"] == {"mhalib": "mhalib_classroom.command:main"}
    assert len((notebooks.ROOT / "mhalib_classroom/command.py").read_text(encoding="utf-8").splitlines()) <= 200


@pytest.mark.parametrize("asked", [[], *([name] for name in command.COMMANDS), ["grade"]])
def test_help_is_there_and_quick(asked: list[str], capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main([*asked, "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith(f"usage: {' '.join(['mhalib', *asked])} ")
    assert asked or all(name in said for name in (*command.COMMANDS, "grade"))


def test_help_needs_neither_torch_nor_the_classroom() -> None:
    asked = "import sys; from mhalib_classroom import command; command.parser(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, cwd=notebooks.ROOT)
    assert not {"torch", "mhalib_classroom.checks", "mhalib_classroom.grade"} & set(done.stdout.split())


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("", "mhalib: the following arguments are required: COMMAND"),
        ("opne 5", "mhalib: argument COMMAND: invalid choice: 'opne'"),
        ("open 99", "mhalib open: there is no chapter 99: the book has 0 to 37"),
        ("open five", "mhalib open: there is no chapter five: the book has 0 to 37"),
        ("open --book .", "mhalib open: . is not the folder of the book's repository"),
        ("exercises --chapter 0", "mhalib exercises: 00_take_a_model_apart has no exercises in code"),
        ("exercises --out /dev/null/a", "mhalib exercises: /dev/null/a: Not a directory"),
        ("exercises --install mhalib", "mhalib exercises: --install='mhalib' is no wheel and no address of one"),
        ("exercises --install a$b", "mhalib exercises: --install='a$b' is no wheel and no address of one"),
        ("look nothing", "mhalib look: source='nothing' is neither a folder"),
        ("look ./nothing", "mhalib look: there is no ./nothing: name a folder"),
        ("look nothing.gguf", "mhalib look: there is no nothing.gguf: name a folder"),
        ("instrument price", "mhalib instrument: argument name: invalid choice: 'price'"),
        ("instrument cost --set heads=3", "mhalib instrument: --set heads=3: write NAME=VALUE, with one of num_hidd"),
        ("instrument cost --set num_heads=7", "mhalib instrument: num_hiddens=512 is not divisible by num_heads=7"),
        ("instrument cost --set num_heads=many", "mhalib instrument: num_heads must be an integer"),
        ("instrument cost --html no/such/folder.html", "mhalib instrument: path='no/such/folder.html' is a folder, or"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    asked: str, said: str, elsewhere: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "PATIENCE", 60)
    try:
        code = command.main(asked.split())
    except SystemExit as ended:
        code = ended.code
    told = capsys.readouterr()
    assert (code, told.out) == (2, "")
    assert told.err.startswith(said)
    assert told.err.count("\n") == 1
    assert list(elsewhere.iterdir()) in ([], [elsewhere / "exercises"])


def test_exercises_are_the_book_s_and_nobody_s_work_is_overwritten(
    elsewhere: Path, capsys: pytest.CaptureFixture
) -> None:
    assert command.main(["exercises"]) == 0
    own = sorted((notebooks.ROOT / "exercises").glob("*.ipynb"))
    written = sorted((elsewhere / "exercises").glob("*.ipynb"))
    assert [path.read_bytes() for path in written] == [path.read_bytes() for path in own]
    written[3].write_text("my work", encoding="utf-8")
    assert command.main(["exercises"]) == 2
    assert "may be somebody's work: name another folder with --out" in capsys.readouterr().err
    assert written[3].read_text(encoding="utf-8") == "my work"


@pytest.mark.parametrize(
    ("what", "line"),
    [
        (
            "https://a.example/mhalib-0.4.0-py3-none-any.whl",
            "mhalib[widgets] @ https://a.example/mhalib-0.4.0-py3-none-any.whl",
        ),
        ("./mhalib-0.4.0-py3-none-any.whl", "./mhalib-0.4.0-py3-none-any.whl[widgets]"),
    ],
)
def test_exercises_install_what_a_teacher_says(what: str, line: str, elsewhere: Path) -> None:
    assert command.main(["exercises", "--chapter", "4", "--chapter", "9", "--out", "week", "--install", what]) == 0
    names = [path.name for path in sorted((elsewhere / "week").iterdir())]
    assert names == ["04_reshape_trick.ipynb", "09_shape_checks.ipynb"]
    for name, more in zip(names, ("", " einops"), strict=True):
        notebook, own = (
            nbformat.read(folder / name, as_version=4) for folder in (elsewhere / "week", notebooks.ROOT / "exercises")
        )
        first, rest = notebooks.cell_with_tag(notebook, "set-up").source.split("\n", 1)
        assert first == f'%pip install -q "{line}"{more}'
        assert notebooks.cell_with_tag(own, "set-up").source.split("\n", 1)[1] == rest
        assert "mhalib" not in notebooks.cell_with_tag(notebook, "launch").source
        text = "".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
        assert "make lab" not in text
        assert "](.." not in text  # who was handed this has no clone
        assert f"the chapter {own.cells[0].source.splitlines()[0].partition(': ')[2]}" in text
        code = [[cell for cell in one.cells if cell.cell_type == "code"] for one in (notebook, own)]
        assert [a.id for a, b in zip(*code, strict=True) if a != b] == [notebooks.cell_with_tag(own, "set-up").id]


@pytest.mark.parametrize(
    ("name", "words"), [("cost", "CostCalculator"), ("roofline", "Roofline"), ("playground", ""), ("reshape", "")]
)
def test_an_instrument_is_one_file(name: str, words: str, elsewhere: Path) -> None:
    assert command.main(["instrument", name]) == 0
    page = (elsewhere / f"{name}.html").read_text(encoding="utf-8")
    assert words in page
    assert "Content-Security-Policy" in page


def test_an_instrument_is_set(elsewhere: Path) -> None:
    asked = ["instrument", "cost", "--out", "a.html", "--set", "num_heads=16", "--set", "variant=grouped"]
    assert command.main([*asked, "--set", "num_kv_heads=4"]) == 0
    page = (elsewhere / "a.html").read_text(encoding="utf-8")
    assert "num_heads=16" in page
    assert "num_kv_heads=4" in page


def test_all_heads_of_a_checkpoint_are_drawn(elsewhere: Path, capsys: pytest.CaptureFixture) -> None:
    (elsewhere / "model").mkdir()
    write("gpt2", elsewhere / "model")
    assert command.main(["look", "model", "--text", PAIR.replace("{John|Anna}", "John"), "--offline"]) == 0
    assert capsys.readouterr().out == "2 layers of 6 heads in heads.html\n"
    page = (elsewhere / "heads.html").read_text(encoding="utf-8")
    assert "Heads of model" in page
    assert "weight on previous" in page


def test_grading_is_the_grader_s_own_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grader, "main", lambda words, prog: (words, prog))
    assert command.main(["grade", "week1", "--chapter", "4", "--help"]) == (
        ["week1", "--chapter", "4", "--help"],
        "mhalib grade",
    )


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A clone with one chapter, whose page is built."""
    for name in ("chapters", "_build/html/chapters"):
        (tmp_path / "book" / name).mkdir(parents=True)
    (tmp_path / "book/_toc.yml").touch()
    (tmp_path / "book/chapters/05_a.ipynb").touch()
    for name in ("05_a", "index"):
        (tmp_path / f"book/_build/html/chapters/{name}.html").write_text(f"page {name}", encoding="utf-8")
    return tmp_path / "book"


@pytest.mark.skipif(sys.platform == "win32", reason="interrupts are others there")
@pytest.mark.parametrize(("chapter", "page"), [("5", "05_a"), ("05", "05_a"), (None, "index")])
def test_a_chapter_is_served_on_this_machine_until_it_is_stopped(book: Path, chapter: str | None, page: str) -> None:
    asked = [*RUN, "open", *([chapter] if chapter else []), "--no-browser", "--book", str(book)]
    with subprocess.Popen(
        asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=notebooks.ROOT
    ) as served:
        address = served.stdout.readline().split()[0]
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(address) as answer:
            assert answer.read() == f"page {page}".encode()
        served.send_signal(signal.SIGINT)
        assert served.wait(30) == 0
        assert served.stderr.read() == ""


def test_a_port_that_cannot_be_is_one_line(book: Path, capsys: pytest.CaptureFixture) -> None:
    assert command.main(["open", "--no-browser", "--book", str(book), "--port", "70000"]) == 2
    assert capsys.readouterr().err == "mhalib open: bind(): port must be 0-65535.\n"


def lab_is_played(monkeypatch: pytest.MonkeyPatch, code: int = 0) -> list[list[str]]:
    """What is run in JupyterLab's place, which ends with this code."""
    ran: list[list[str]] = []
    played = lambda asked, check: ran.append(asked) or subprocess.CompletedProcess(asked, code)  # noqa: E731
    monkeypatch.setattr(_open.subprocess, "run", played)
    return ran


def test_a_lab_that_does_not_start_is_no_success(
    book: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """As root JupyterLab refuses, and a script went on as if it had run."""
    lab_is_played(monkeypatch, 1)
    assert command.main(["open", "5", "--lab", "--book", str(book)]) == 2
    assert capsys.readouterr().err.startswith("mhalib open: JupyterLab stopped with an error")


def test_without_pages_it_is_the_notebook_in_jupyterlab(
    book: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    ran = lab_is_played(monkeypatch)
    assert command.main(["open", "5", "--lab", "--book", str(book)]) == 0
    (book / "_build/html/chapters/05_a.html").unlink()
    assert command.main(["open", "5", "--no-browser", "--book", str(book)]) == 0
    lab = [sys.executable, "-m", "jupyterlab", str(book / "chapters/05_a.ipynb")]
    assert ran == [lab, [*lab, "--no-browser"]]
    monkeypatch.setattr(_open.importlib.util, "find_spec", lambda _: None)
    assert command.main(["open", "5", "--book", str(book)]) == 2
    assert "JupyterLab is not installed: make book does both" in capsys.readouterr().err


def test_the_book_is_found_from_within_it_and_else_asked_for(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _open.found_book(None) == notebooks.ROOT
    monkeypatch.setattr(_open, "__file__", str(book.parent / "site-packages/mhalib_classroom/_open.py"))
    monkeypatch.chdir(book / "chapters")
    assert _open.found_book(None) == book.resolve()
    monkeypatch.chdir(book.parent)
    with pytest.raises(ValueError, match="the book is not here"):
        _open.found_book(None)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip has put the book's own wheel."""
    folder = tmp_path_factory.mktemp("site")
    wheel = book_wheel.build(folder / "dist")
    assert wheel.stat().st_size < 1_000_000
    assert wheel.read_bytes() == book_wheel.build(folder / "again").read_bytes()
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-compile",
        "--target",
        str(folder / "x"),
    ]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True)
    return folder / "x"


def test_a_wheel_of_the_book_is_found_where_there_is_no_clone(
    installed: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = next(installed.glob("*.dist-info/METADATA")).read_text(encoding="utf-8")
    assert "Requires-Dist" not in metadata  # pip would look for mhalib by name
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.setattr(_open, "__file__", str(elsewhere / "mhalib_classroom/_open.py"))
    assert command.main(["exercises", "--chapter", "4"]) == 0
    own = notebooks.ROOT / "exercises/04_reshape_trick.ipynb"
    assert nbformat.read(elsewhere / "exercises" / own.name, as_version=4) == nbformat.read(own, as_version=4)
    ran = lab_is_played(monkeypatch)
    for _ in range(2):
        assert command.main(["open", "4"]) == 0
        (elsewhere / own.name).write_text("my work", encoding="utf-8")
    assert command.main(["open"]) == 2  # it opened the installed folder itself
    assert ran == [[sys.executable, "-m", "jupyterlab", own.name]] * 2
    assert (elsewhere / own.name).read_text(encoding="utf-8") == "my work"


def test_who_waits_is_told_for_what(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(command, "PATIENCE", 0.05)
    with command.waiting("reading it"):
        time.sleep(0.2)
    assert capsys.readouterr().err.startswith("reading it")
    monkeypatch.setattr(command, "PATIENCE", 60)
    with command.waiting("reading it"):
        pass
    assert capsys.readouterr().err == ""


def test_readme_s_numbers_are_counted() -> None:
    readme = (notebooks.ROOT / "README.md").read_text(encoding="utf-8")
    chapters = list(notebooks.CHAPTERS.glob("[0-9][0-9]_*.ipynb"))
    instruments = [
        one for one in vars(widgets).values() if isinstance(one, type) and issubclass(one, widgets.Instrument)
    ]
    counted = (
        f"{len(chapters)} chapters · {len(checks.EXERCISES)} exercises that know your mistake · {len(KINDS)} kinds of"
    )
    assert counted in readme
    assert f" · {len(instruments) - 1} instruments." in readme
    assert all(f"](chapters/{path.name})" in readme for path in chapters)


def test_readme_quotes_the_checker() -> None:
    said = (notebooks.ROOT / "mhalib_classroom/checks/reshape_trick.md").read_text(encoding="utf-8")
    readme = (notebooks.ROOT / "README.md").read_text(encoding="utf-8")
    quoted = readme.partition("It says: *")[2].partition(".*")[0]
    assert len(quoted) > 80
    assert quoted in " ".join(said.split())


def test_readme_s_commands_are_commands(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = (notebooks.ROOT / "README.md").read_text(encoding="utf-8")
    lines = [line.split(" #")[0].split()[1:] for line in readme.splitlines() if line.startswith("mhalib ")]
    assert {line[0] for line in lines} == {*command.COMMANDS, "grade"}
    for line in lines:
        if line[0] != "grade":
            given = command.parser().parse_args(line)
            assert line[0] != "exercises" or not (notebooks.ROOT / given.out).exists()  # in a clone, exercises is
