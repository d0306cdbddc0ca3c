"""Figures as SVG for the PDF: kept where they show what the stored picture shows, and then taken."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import nbformat
import paper
import pytest
import vectors
from bs4 import BeautifulSoup
from nbclient import NotebookClient

pytestmark = pytest.mark.tool
DRAW = "import matplotlib.pyplot as plt\n\nfigure, axes = plt.subplots(figsize=(2, 2))\naxes.plot([1, 2, 0]);"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("drawn") / "one.ipynb"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(DRAW)])
    NotebookClient(notebook, timeout=60).execute()
    nbformat.write(notebook, path)
    return path


def stored(path: Path) -> bytes:
    (_, data), *others = vectors.pictures(nbformat.read(path, as_version=4))
    assert not others
    return base64.b64decode(data["image/png"])


def test_a_figure_is_drawn_as_svg_and_stands_on_paper(drawn: Path, tmp_path: Path) -> None:
    assert vectors.draw(drawn, tmp_path / "vectors") == (1, 1)
    name = hashlib.sha256(stored(drawn)).hexdigest()
    (vector,) = (tmp_path / "vectors").iterdir()
    assert vector.name == f"{name}.svg"
    assert "<svg" in vector.read_text(encoding="utf-8")
    images = tmp_path / "html/_images"
    images.mkdir(parents=True)
    (images / f"{name}.png").write_bytes(stored(drawn))
    picture = BeautifulSoup(f'<img src="../_images/{name}.png">', "html.parser").img
    assert picture is not None
    (tmp_path / "html/chapters").mkdir()
    paper.show(picture, tmp_path / "html")
    assert picture["src"] == f"../vectors/{name}.svg"


def test_another_picture_keeps_the_place_it_has(drawn: Path, tmp_path: Path) -> None:
    """Another machine's arithmetic may draw what the page's numbers do not say."""
    other = nbformat.read(drawn, as_version=4)
    other.cells[0].source = DRAW.replace("[1, 2, 0]", "[0, 1, 2]")
    path = tmp_path / "other.ipynb"
    nbformat.write(other, path)
    assert vectors.draw(path, tmp_path / "vectors") == (0, 1)
    assert list((tmp_path / "vectors").iterdir()) == []
