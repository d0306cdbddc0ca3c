"""A file that is replaced is whole: a full disk or a kill leaves what was there."""

import importlib
import os
from pathlib import Path

import nbformat
import pytest

from mhalib import _write
from mhalib.widgets import CostCalculator


@pytest.fixture
def full_disk(monkeypatch):
    """Two letters fit."""

    def full(self, text, **_):
        with open(self, "w", encoding="utf-8") as file:
            file.write(text[:2])
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_text", full)


def test_a_file_is_written_whole_or_not_at_all(tmp_path, full_disk):
    path = tmp_path / "kept"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="no space"):
        _write.write_whole(path, "new and longer")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_has_the_text_and_keeps_its_rights(tmp_path):
    path = tmp_path / "kept"
    path.write_bytes(b"old")
    path.chmod(0o640)
    _write.write_whole(path, "é\r\nx\ud800")
    assert path.read_bytes() == "é\r\nx\\ud800".encode()
    assert os.name != "posix" or path.stat().st_mode & 0o777 == 0o640


def test_an_instrument_is_saved_whole_or_not_at_all(tmp_path, full_disk):
    path = tmp_path / "costs.html"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="no space"):
        CostCalculator(8, 2).save_html(path)
    assert path.read_bytes() == b"old"


def test_a_link_is_written_through(tmp_path):
    (tmp_path / "file").write_text("old", encoding="ascii")
    (tmp_path / "link").symlink_to("file")
    _write.write_whole(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text(encoding="ascii") == "new"


def test_make_notebooks_leaves_a_chapter_whole_on_a_full_disk(tmp_path, full_disk, monkeypatch):
    """What was there before: 322,505 bytes of a chapter became unreadable."""
    notebooks = importlib.import_module("tools.notebooks.notebooks")
    path = tmp_path / "01_a.ipynb"
    notebook = nbformat.v4.new_notebook()
    path.write_bytes(nbformat.writes(notebook).encode())
    before = path.read_bytes()
    monkeypatch.setattr(notebooks, "execute", lambda *_: notebook)
    monkeypatch.setattr(notebooks, "given", lambda _: [path])
    monkeypatch.setattr("sys.argv", ["notebooks.py", str(path)])
    with pytest.raises(OSError, match="no space"):
        notebooks.main()
    assert path.read_bytes() == before


def rewritten(folder):
    """What a tool does with a file that was there before, and that file."""
    bench_page = importlib.import_module("tools.evidence.bench_page")
    page = folder / "speed.md"
    page.write_bytes(f"a\n{bench_page.BEGIN}\nb\n{bench_page.END}\n".encode())
    return page, lambda _: bench_page.rewrite(page, "new")


def frameworks_written(folder):
    frameworks = importlib.import_module("tools.evidence.frameworks.__main__")
    path = folder / "deviations.json"
    path.write_bytes(b"{}\n")

    def write(monkeypatch):
        monkeypatch.setattr(frameworks, "FILE", path)
        frameworks.write({})

    return path, write


def pictured(folder):
    notebooks = importlib.import_module("tools.notebooks.notebooks")
    path = folder / "front.svg"
    path.write_bytes(b"<svg/>")

    def store(monkeypatch):
        monkeypatch.setattr(notebooks, "front_picture", lambda _: "<svg>new</svg>")
        monkeypatch.setitem(notebooks.FRONT_PICTURES, "01_a", path)
        notebooks.store_front_picture(folder / "01_a.ipynb", None)

    return path, store


@pytest.mark.parametrize("made", [rewritten, frameworks_written, pictured])
def test_a_tool_leaves_whole_what_it_cannot_replace(made, tmp_path, full_disk, monkeypatch):
    path, write = made(tmp_path)
    before = path.read_bytes()
    with pytest.raises(OSError, match="no space"):
        write(monkeypatch)
    assert path.read_bytes() == before
