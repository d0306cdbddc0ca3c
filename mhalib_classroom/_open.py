"""`mhalib open`: a chapter's page, served on this machine, or its notebook in JupyterLab."""

from __future__ import annotations

import argparse
import functools
import http.server
import importlib.util
import shutil
import signal
import subprocess
import sys
import webbrowser
from pathlib import Path
from typing import Any

CLONE = "the book is not here: run this in the folder of its repository, or name that with --book"


def found_book(named: Path | None) -> Path:
    """The one that is named, or this installation's clone, or one above where we are, or the wheel mhalib_book.

    Raises:
        ValueError: it is none.
    """
    wheel = importlib.util.find_spec("mhalib_book")
    packed = [Path(str(wheel.origin)).parent] if wheel else []
    places = [named] if named else [Path(__file__).resolve().parents[1], Path.cwd(), *Path.cwd().parents, *packed]
    for place in places:
        if (place / "_toc.yml").is_file() and (place / "chapters").is_dir():
            return place.resolve()
    raise ValueError(f"{named} is not the folder of the book's repository" if named else CLONE)


def chapter_file(book: Path, chapter: str) -> Path:
    """The notebook of a chapter, by its number; `ValueError` if there is none."""
    numbers = {int(path.name[:2]): path for path in sorted((book / "chapters").glob("[0-9][0-9]_*.ipynb"))}
    if not chapter.isdecimal() or int(chapter) not in numbers:
        raise ValueError(f"there is no chapter {chapter}: the book has {min(numbers)} to {max(numbers)}")
    return numbers[int(chapter)]


def open_book(given: argparse.Namespace) -> None:
    book = found_book(given.book)
    notebook = chapter_file(book, given.chapter) if given.chapter else book / "chapters"
    html = book / "_build/html"
    page = html / "chapters" / f"{notebook.stem if given.chapter else 'index'}.html"
    if given.lab or not page.is_file():
        if importlib.util.find_spec("jupyterlab") is None:
            raise ValueError(
                "no pages are built, and JupyterLab is not installed:  make book  does both in a clone, and "
                "pip install jupyterlab  the second anywhere"
            )
        if book.name == "mhalib_book":  # what is installed is nobody's to write into
            if not given.chapter:
                raise ValueError("name a chapter, as in  mhalib open 0 : without a clone there is no start page")
            notebook = Path(notebook.name) if Path(notebook.name).exists() else Path(shutil.copy2(notebook, "."))
        options = ["--no-browser"] if given.no_browser else []
        if subprocess.run([sys.executable, "-m", "jupyterlab", str(notebook), *options], check=False).returncode:
            raise ValueError("JupyterLab stopped with an error: its last lines above say which")
        return
    handler = functools.partial(Quiet, directory=str(html))
    with http.server.ThreadingHTTPServer(("127.0.0.1", given.port), handler) as server:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background, a shell has it ignored
        address = f"http://127.0.0.1:{server.server_port}/{page.relative_to(html).as_posix()}"
        print(f"{address}   (stop with Ctrl-C)", flush=True)
        if not given.no_browser:
            webbrowser.open(address)
        server.serve_forever()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, and prints nothing for each."""

    def log_message(self, *_: Any) -> None: ...
