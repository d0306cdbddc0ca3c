"""Contact sheets of `make look`: pictures in rows, each under its name, what was found below it in red."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from tools.development.look_pixels import Picture

GAP, LINE, SIZE = 16, 18, 14  # pixels
PAPER, GREY, INK, RED = (246, 246, 246), (120, 120, 120), (20, 20, 20), (190, 0, 30)
WIDEST = 2600
INDEX = """\
<!doctype html><html lang="en"><head><meta charset="utf-8"><title>What a reader sees</title>
<style>body {{ font: 15px system-ui; margin: 2rem; }} pre {{ overflow-x: auto; }} img {{ max-width: 100%;
border: 1px solid #bbb; }}</style></head><body><h1>What a reader sees</h1>
<p>{count} findings, in <a href="findings.txt">findings.txt</a>; pages in numbers in <a href="pages.txt">pages.txt</a>.
Whoever closes an issue has looked at all sheets of what changed.</p>
{sheets}</body></html>
"""
SHEET = '<details><summary><a href="{path}">{path}</a></summary><img loading="lazy" src="{path}" alt=""></details>'


@dataclass
class Tile:
    """A picture on a sheet."""

    name: str
    picture: Picture
    said: Sequence[str] = ()
    scale: float = 1.0

    def image(self) -> Image.Image:
        """The picture under its name, and over what was found."""
        drawn = Image.fromarray(self.picture)
        width, height = (max(round(size * self.scale), 1) for size in drawn.size)
        drawn = drawn.resize((width, height), Image.Resampling.LANCZOS)
        width = max(drawn.width, 300)
        lines = [line for one in self.said for line in textwrap.wrap(one, width // 8)]
        whole = Image.new("RGB", (width, LINE + drawn.height + LINE * len(lines) + 4), PAPER)
        pen, font = ImageDraw.Draw(whole), ImageFont.load_default(SIZE)
        pen.text((0, 0), self.name, INK, font)
        whole.paste(drawn, (0, LINE))
        for place, line in enumerate(lines):
            pen.text((0, LINE + drawn.height + 2 + LINE * place), line, RED, font)
        return whole


def sheet(title: str, tiles: Iterable[Tile], path: Path) -> None:
    """Write one sheet, in rows with as many tiles as fit."""
    rows: list[list[Image.Image]] = []
    for image in (tile.image() for tile in tiles):
        if not rows or sum(one.width + GAP for one in rows[-1]) + image.width > WIDEST:
            rows.append([])
        rows[-1].append(image)
    write(title, rows, path)


def table(title: str, rows: Iterable[Iterable[Tile]], path: Path) -> None:
    """Write one sheet with these rows."""
    write(title, [[tile.image() for tile in row] for row in rows], path)


def write(title: str, rows: Sequence[Sequence[Image.Image]], path: Path) -> None:
    """Paste images in rows onto paper, under a title."""
    width = max(sum(one.width + GAP for one in row) for row in rows) + GAP
    heights = [max(one.height for one in row) + GAP for row in rows]
    whole = Image.new("RGB", (width, sum(heights) + 2 * LINE + GAP), PAPER)
    ImageDraw.Draw(whole).text((GAP, GAP), title, GREY, ImageFont.load_default(SIZE + 4))
    top = 2 * LINE + GAP
    for row, height in zip(rows, heights, strict=True):
        left = GAP
        for image in row:
            whole.paste(image, (left, top))
            left += image.width + GAP
        top += height
    path.parent.mkdir(parents=True, exist_ok=True)
    whole.save(path, compress_level=1)


def index(folder: Path, findings: Sequence[str]) -> None:
    """The page that shows all sheets of a folder."""
    paths = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.png"))]
    shown = "\n".join(SHEET.format(path=html.escape(path, quote=True)) for path in paths)
    (folder / "index.html").write_text(INDEX.format(count=len(findings), sheets=shown), encoding="utf-8")


def beside(before: Picture | None, now: Picture | None) -> tuple[Picture, Picture]:
    """Both pictures, a small grey one for what is not there."""
    grey = np.full((40, 120, 3), 200, dtype=np.uint8)
    return (grey if before is None else before), (grey if now is None else now)
