"""README's moving picture: of today's model, sharp, small, and it moves."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
import numpy as np
import pytest
from PIL import Image

from tools.editions import page_picture
from tools.notebooks import notebooks


def test_the_picture_is_of_today() -> None:
    assert page_picture.stored() == page_picture.made_from(), (
        ".github/heads.gif shows an older model: run  make book  and  python -m tools.editions.page_picture"
    )


def test_it_is_sharp_small_and_in_readme() -> None:
    with Image.open(page_picture.PICTURE) as image:
        assert image.width >= 1000
        assert image.info["loop"] == 0
    assert page_picture.PICTURE.stat().st_size <= 400_000
    assert "](.github/heads.gif)" in (notebooks.ROOT / "README.md").read_text(encoding="utf-8")


def test_it_tells_its_story() -> None:
    """Each head is off and on again: after its switch the table is another one, and then the first one again."""
    with Image.open(page_picture.PICTURE) as image:
        frames = []
        for number in range(image.n_frames):
            image.seek(number)
            frames.append((image.convert("RGB"), image.info["duration"]))
    told = sum(duration for _, duration in frames)
    assert 4_000 <= told <= 15_000
    held = [frame for frame, duration in frames if duration > 500]
    assert len(held) == 1 + 2 * len(page_picture.STORY)
    table = (0, 150, held[0].width, 420)
    first, *others = [np.asarray(frame.crop(table)) for frame in held]
    changed = [int((first != one).any(-1).sum()) for one in others]
    for off, on in zip(changed[::2], changed[1::2], strict=True):
        assert off > 20 * on


@pytest.mark.parametrize("what", ["text", "sentence"])
def test_another_sentence_makes_it_old_and_another_text_does_not(tmp_path: Path, what: str) -> None:
    chapter = tmp_path / "a.ipynb"
    shutil.copy2(page_picture.CHAPTER, chapter)
    notebook = nbformat.read(chapter, as_version=4)
    assert page_picture.made_from(chapter) == page_picture.made_from()
    if what == "text":
        notebook.cells[3].source += " More."
    else:
        cell = next(cell for cell in notebook.cells if page_picture.CALL in cell.source)
        cell.source = cell.source.replace("fox", "bear")
    nbformat.write(notebook, chapter)
    assert (page_picture.made_from(chapter) != page_picture.made_from()) == (what == "sentence")


def test_a_page_that_is_not_built_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"00_take_a_model_apart.html is not there: run  make book"):
        page_picture.photograph(tmp_path)
