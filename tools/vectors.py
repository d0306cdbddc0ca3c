"""Draw the chapters' figures once more, as SVG, for the PDF: into _build/vectors.

    python tools/vectors.py [NOTEBOOK ...]

Notebooks store PNG: small, and what GitHub and Colab show. On paper, lines and letters are sharper as vectors.
So chapters are executed again, and each figure is drawn as PNG and as SVG. The SVG is kept where the new PNG shows what
the stored one shows, under the name that the build gives to that. Where another machine's arithmetic draws another
picture, the stored one remains. `paper.py` takes what is in the folder.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import nbformat
import notebooks
import numpy as np
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image

VECTORS = notebooks.ROOT / "_build/vectors"
LARGEST = 1_000_000  # bytes; beyond, a picture of so many cells is as sharp as it need be
SAME = 2.0  # of 255: the mean difference of pixels up to which two pictures show the same
BOTH = "%config InlineBackend.figure_formats = ['png', 'svg']"


def pictures(notebook: NotebookNode) -> Iterator[tuple[int, dict[str, str]]]:
    """Each output that holds a PNG, with the number of its cell."""
    for number, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                yield number, output["data"]


def shows_the_same(one: bytes, other: bytes) -> bool:
    """Whether two PNGs are of one size and differ by no more than the edges of letters do."""
    if one == other:
        return True
    first, second = (np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), dtype=float) for png in (one, other))
    return first.shape == second.shape and float(np.abs(first - second).mean()) <= SAME


def draw(path: Path, folder: Path = VECTORS) -> tuple[int, int]:
    """Execute a notebook and keep its figures as SVG; how many were kept, of how many."""
    stored = nbformat.read(path, as_version=4)
    drawn = nbformat.read(path, as_version=4)
    drawn.cells.insert(0, nbformat.v4.new_code_cell(BOTH))
    settings = {"metadata": {"path": str(path.parent)}}
    NotebookClient(drawn, timeout=notebooks.CELL_TIMEOUT, resources=settings).execute()
    del drawn.cells[0]
    folder.mkdir(parents=True, exist_ok=True)
    kept = total = 0
    for (number, before), (again, now) in zip(pictures(stored), pictures(drawn), strict=True):
        total += 1
        png, vector = base64.b64decode(before["image/png"]), now.get("image/svg+xml", "")
        same = number == again and shows_the_same(png, base64.b64decode(now["image/png"]))
        if same and 0 < len(vector) <= LARGEST:
            (folder / f"{hashlib.sha256(png).hexdigest()}.svg").write_text(vector, encoding="utf-8")
            kept += 1
    return kept, total


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", type=Path, help="all chapters, where none is named")
    chosen = parser.parse_args(arguments).notebooks
    for path in notebooks.given(chosen) if chosen else sorted(notebooks.CHAPTERS.glob("*.ipynb")):
        kept, total = draw(path)
        print(f"{notebooks.here(path)}: {kept} of {total} figures as SVG")
    return 0


if __name__ == "__main__":
    sys.exit(main())
