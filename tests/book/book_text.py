"""The words of the book for the tests that read them: pages in the order of _toc.yml, as Markdown and code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import nbformat
import yaml

from tools.notebooks import notebooks


@dataclass(frozen=True)
class Text:
    """One page. `markdown` and `code` hold the sources of its cells; a Markdown page is one cell."""

    name: str
    markdown: tuple[str, ...]
    code: tuple[str, ...] = ()

    @property
    def prose(self) -> str:
        """All Markdown, without what stands in fenced blocks."""
        return re.sub(r"^(`{3,}).*?^\1", "", "\n\n".join(self.markdown), flags=re.MULTILINE | re.DOTALL)


def read(path: Path) -> Text:
    if path.suffix == ".md":
        return Text(path.stem, (path.read_text(encoding="utf-8"),))
    cells = nbformat.read(path, as_version=4).cells
    kinds = {kind: tuple(cell.source for cell in cells if cell.cell_type == kind) for kind in ("markdown", "code")}
    return Text(path.stem, kinds["markdown"], kinds["code"])


def formulas(text: str) -> list[str]:
    """What stands between dollars, outside code."""
    plain = re.sub(r"`[^`\n]*`", "", text)
    return [one or two for one, two in re.findall(r"\$\$(.+?)\$\$|\$([^$\n]+?)\$", plain, flags=re.DOTALL)]


def toc() -> list[Path]:
    """The files of the book, in order, the start page first."""
    listed = yaml.safe_load((notebooks.ROOT / "_toc.yml").read_text(encoding="utf-8"))
    names = [listed["root"], *(chapter["file"] for part in listed["parts"] for chapter in part["chapters"])]
    stems = [notebooks.ROOT / name for name in names]
    return [next(filter(Path.exists, (Path(f"{stem}.md"), Path(f"{stem}.ipynb")))) for stem in stems]


TEXTS = [read(path) for path in toc()]
CHAPTERS = [text for text in TEXTS if text.code]
PAGES = {text.name: text for text in TEXTS}
