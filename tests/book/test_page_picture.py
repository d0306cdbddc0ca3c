"""README's picture of a page: of today's contents and chapter, and sharp."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import nbformat
import pytest
import yaml
from PIL import Image

from tools.editions import page_picture
from tools.notebooks import notebooks


def test_the_picture_is_of_today() -> None:
    assert page_picture.stored() == page_picture.made_from(), (
        ".github/page.png shows an older book: run  make book  and  python -m tools.editions.page_picture"
    )


def test_it_is_sharp_and_in_readme() -> None:
    with Image.open(page_picture.PICTURE) as image:
        assert image.size == (1920, 1290)
        assert len(image.convert("RGB").getcolors(1 << 24)) > 100  # not an empty page
    assert page_picture.PICTURE.stat().st_size < 400_000
    assert "](.github/page.png)" in (notebooks.ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("what", ["title", "chapter", "text", "figure"])
def test_another_title_text_or_figure_makes_it_old(tmp_path: Path, what: str) -> None:
    contents, chapter = tmp_path / "_toc.yml", tmp_path / "a.ipynb"
    shutil.copy2(page_picture.CONTENTS, contents)
    shutil.copy2(page_picture.CHAPTER, chapter)
    before = page_picture.made_from(contents, chapter)
    assert before == page_picture.made_from()
    told, notebook = contents.read_text(encoding="utf-8"), nbformat.read(chapter, as_version=4)
    if what == "title":
        told = told.replace("5 · ", "5 · All about ")
    elif what == "chapter":
        told = re.sub(r"      - file: .*\n        title: .*\n", "", told, count=1)
        assert len(yaml.safe_load(told)["parts"][0]["chapters"]) == 7
    elif what == "text":
        notebook.cells[3].source += " More."
    else:
        data, kind = next(one for cell in notebook.cells for one in notebooks.pictures(cell.get("outputs", [])))
        data[kind] = data[kind][:-8]
    contents.write_text(told, encoding="utf-8")
    nbformat.write(notebook, chapter)
    assert page_picture.made_from(contents, chapter) != before


def test_a_page_that_is_not_built_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"06_per_head_heatmaps.html is not there: run  make book"):
        page_picture.photograph(tmp_path)
