"""What all instruments share: one render function in JavaScript, and two hosts for it.

Live, an instrument is an ipywidget: its traits can be read, set and linked from Python. Its output carries `text/html`,
too: a table of the numbers for readers without JavaScript, and the state as JSON. A script of the book's pages finds
that and draws the same picture from it, with no kernel.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import anywidget

from .._tokens import shown
from .._validate import as_path, require_text, require_title
from .._write import write_whole

FOLDER = Path(__file__).parent
SHARED = FOLDER / "shared.js"
HOST = FOLDER / "host.js"
SENTENCES = FOLDER / "sentences.js"
PAGE_STYLE = """:root { color-scheme: light dark; }
body { font-family: system-ui, sans-serif; margin: 1rem auto; max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.2rem; }
.mhalib-instrument { overflow-x: auto; }
"""
"""What a page of its own has beside the style of the instruments: the system's colours, and a margin."""
COMMENT = re.compile(r"^[ \t]*/\*(?:(?!\*/).)*\*/[ \t]*$|^// @ts-check$|/\*\* @[^\n]*?\*/ ?", re.DOTALL | re.MULTILINE)
"""Comments that have lines of their own, and types."""


class Instrument(anywidget.AnyWidget):
    """Base of the instruments. A subclass names its JavaScript function and says what its table holds."""

    script: ClassVar[str] = ""
    needs: ClassVar[tuple[Path, ...]] = ()
    """Files of JavaScript that only this instrument needs. A page loads such an instrument as a script of its own."""
    known: ClassVar[list[str]] = []
    needed: ClassVar[dict[str, tuple[Path, ...]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "script" in cls.__dict__:  # not the class that ipywidgets makes of each instance
            Instrument.known.append(cls.script)
            Instrument.needed[cls.script] = cls.needs
            cls._esm = source(cls.script) + f"\nexport default {{ render: {cls.script} }};\n"
        super().__init_subclass__(**kwargs)

    def state(self) -> dict[str, Any]:
        """What the page needs to draw the instrument: the traits of its own that are synchronised."""
        return {name: getattr(self, name) for name in self.state_names()}

    @classmethod
    def state_names(cls) -> list[str]:
        """The names of these traits, sorted."""
        inherited = {*anywidget.AnyWidget.class_trait_names(sync=True), "_esm", "_css", "_anywidget_id"}
        return sorted(set(cls.class_trait_names(sync=True)) - inherited)

    def results(self) -> dict[str, str]:
        """What a sentence on the page may say of the instrument as it is now, by name; `tell` in its JavaScript says
        the same."""
        return {}

    def table(self) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
        """Caption, header and rows of the table that says the same in numbers."""
        raise NotImplementedError

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        return {**data, "text/plain": self._described(), "text/html": self._html()}, metadata

    def save_html(self, path: str | Path, *, title: str | None = None) -> None:
        """Write the instrument, as it is now, to one HTML file that needs no kernel and no network.

        The file holds the styles, the script and the numbers. Its policy (Content-Security-Policy) lets a browser run
        this one script, known by its hash, and load nothing: a token that looks like code stays text.

        Args:
            path: of the file, which is replaced if it exists.
            title: of the page; `None` takes the class and the caption of its table.

        Raises:
            TypeError: `path` is no path, `title` is no string.
            ValueError: `path` is a folder, or in one that does not exist.

        >>> CostCalculator(512, 8).save_html("costs.html")  # doctest: +SKIP
        """
        path = as_path("path", path)
        require_title(title)
        if path.is_dir() or not path.parent.is_dir():
            raise ValueError(f"path={str(path)!r} is a folder, or in one that does not exist")
        text = whole_page(self._html() + self._beside(), self.script, title or self._described())
        write_whole(path, text)

    def _beside(self) -> str:
        """What a file of its own must hold beside the instrument, as HTML."""
        return ""

    def _described(self) -> str:
        return f"{type(self).__name__}: {self.table()[0]}"

    def _html(self) -> str:
        caption, header, rows = self.table()
        heads = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in header)
        body = "".join(
            f'<tr><th scope="row">{html.escape(first)}</th>'
            + "".join(f"<td>{html.escape(cell)}</td>" for cell in rest)
            + "</tr>"
            for first, *rest in rows
        )
        return (
            f'<div class="mhalib-instrument" data-script="{self.script}"><table>'
            f"<caption>{html.escape(caption)}</caption><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
            f'<script type="application/json">{as_json(self.state())}</script></div>'
        )


def as_json(state: dict[str, Any]) -> str:
    """JSON that no HTML parser can misread: no `<`, `>` or `&` is left in it."""
    text = json.dumps(state, ensure_ascii=True, allow_nan=False, separators=(",", ":"), sort_keys=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def script_file(script: str) -> Path:
    """Where the JavaScript of one instrument stands: HeadExplorer in head_explorer.js."""
    return FOLDER / f"{re.sub('(?<=.)(?=[A-Z])', '_', script).lower()}.js"


def style_sheet(*names: str) -> str:
    """The style that instruments share, and the own styles of these, or of all: HeadExplorer's is in head_explorer.css.

    A page may have it more than once, as JupyterLab has for each instrument; then each must be of all, or what they
    share, given again, would come after the own style of an earlier one, and win.

    Raises:
        TypeError: a name is no string.
        ValueError: there is no such instrument.
    """
    _require_known(names)
    shared = SHARED.with_suffix(".css")
    own = [script_file(name).with_suffix(".css") for name in names] or sorted({*FOLDER.glob("*.css")} - {shared})
    return "\n".join(file.read_text(encoding="utf-8") for file in (shared, *own))


def scripts(*names: str) -> list[Path]:
    """The files of one script, in the order in which a page needs them: of these instruments, or of those in the script
    that all pages load."""
    needed = [file for name in names or common() for file in (*Instrument.needed[name], script_file(name))]
    return [SHARED, *dict.fromkeys(needed), HOST, *([] if names else [SENTENCES])]


def common() -> list[str]:
    """The instruments in the script that all pages load. The others are a script of their own, for their pages."""
    return [name for name in Instrument.known if not Instrument.needed[name]]


def joinable(file: Path) -> str:
    """A module's JavaScript as it stands in one scope with the others, line by line: without `import`, `export`, types
    and the comments that have lines of their own, which no browser needs.

    The files are ES modules, for the tools that check them. A page that is opened from a disk loads no modules, and
    anywidget wants one text. So they are joined here, which needs no Node, and their top names must differ.

    Raises:
        ValueError: a line imports or exports in another way than `import { a, b } from "./file.js";`, or from
            "../live/file.js", and `export` in front of a function, a constant or a class.
    """
    imported = r'^import \{ \w+(?:, \w+)* \} from "(?:\.|\.\./live)/\w+\.js";$'
    text = re.sub(imported, "", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    text = re.sub(r"^export (?=(?:function|const|class) )", "", text, flags=re.MULTILINE)
    text = COMMENT.sub(lambda found: "\n" * found[0].count("\n"), text)
    if wrong := re.search(r"^(?:import|export)\b.*", text, re.MULTILINE):
        raise ValueError(
            f"{file.name} cannot be joined with the others because of {wrong[0]!r}: write "
            'import { a, b } from "./file.js"; in one line, or export in front of a function, const or class'
        )
    return text


def source(script: str) -> str:
    """The shared functions and those of one instrument, as one piece of JavaScript."""
    return _joined(scripts(script)[:-1])


def page_script(*names: str) -> str:
    """The one script of a static page: shared functions, instruments, and the host that wakes them.

    Args:
        names: of the instruments, such as "HeadExplorer"; without one, those that need no file of their own, and the
            numbers in the page's sentences.

    Raises:
        TypeError: a name is no string.
        ValueError: there is no such instrument.
    """
    _require_known(names)
    woken = f"wake({{ {', '.join(names or common())} }})"
    call = woken if names else f"wakeSentences({woken})"
    return f'(() => {{\n"use strict";\n{_joined(scripts(*names))}\n{call};\n}})();\n'


def _require_known(names: Sequence[str]) -> None:
    """Raise TypeError or ValueError for what names no instrument."""
    for name in names:
        require_text("each name", name)
        if name not in Instrument.known:
            raise ValueError(f"names has {name!r}, but the instruments are {', '.join(Instrument.known)}")


def whole_page(body: str, script: str, title: str) -> str:
    """An HTML file that holds all it needs, under a policy that runs and loads nothing else."""
    style = style_sheet(script) + PAGE_STYLE
    code = page_script(script)
    policy = (
        f"default-src 'none'; script-src '{_hash(code)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    heading = html.escape(shown(title))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{heading}</title>\n'
        f"<style>{style}</style>\n</head>\n<body>\n<main>\n<h1>{heading}</h1>\n{body}\n</main>\n"
        f"<script>{code}</script>\n</body>\n</html>\n"
    )


def _hash(text: str) -> str:
    """How a policy names a script or a style that stands in the page.

    Raises:
        ValueError: the text would end its element, or is changed by a parser, so that the browser would see another.
    """
    if wrong := re.search(r"</(?:script|style)|<!--|\r|\0", text, re.IGNORECASE):
        raise ValueError(f"a script or style cannot stand in a page because of {wrong[0]!r}")
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"


def _joined(files: Sequence[Path]) -> str:
    return "\n".join(map(joinable, files))


Instrument._css = style_sheet()  # once for all of them, which inherit it
