"""The command `mhalib`: opens the book, hands out its exercises, grades them, and draws a checkpoint's heads.

It is thin: each command calls what a chapter or the teacher's page calls. Errors are one line, with the exit code 2.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import mhalib
from mhalib._write import write_whole

from ._hand_out import handed_out
from ._open import chapter_file, found_book, open_book

INSTRUMENTS = {  # name: class, and what it takes where nothing is said
    "cost": ("CostCalculator", {"num_hiddens": 512, "num_heads": 8}),
    "playground": ("AttentionPlayground", {}),
    "reshape": ("ReshapeStepper", {"batch_size": 2, "num_tokens": 3, "num_hiddens": 6, "num_heads": 3}),
    "roofline": ("Roofline", {"num_hiddens": 4096, "num_heads": 32}),
}
SENTENCE = "The fox did not cross the road, because it was too tired."
PATIENCE = 2.0  # seconds until somebody who waits is told for what


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def parser() -> Parser:
    whole = Parser("mhalib", description="See what each head does: the book, its exercises, and heads of your own.")
    whole.add_argument("-V", "--version", action="version", version=f"mhalib {mhalib.__version__}")
    commands = whole.add_subparsers(dest="command", metavar="COMMAND", required=True, title="commands")
    whole.epilog = "mhalib COMMAND --help says more of each."

    def add(name: str, says: str, *parents: Parser) -> argparse.ArgumentParser:
        return commands.add_parser(name, parents=parents, help=says, description=f"{says[0].upper()}{says[1:]}.")

    book = Parser(add_help=False)
    book.add_argument("--book", type=Path, metavar="FOLDER", help="a clone of the book's repository; default: found")

    one = add("open", "read a chapter, in the browser or in JupyterLab", book)
    one.add_argument("chapter", nargs="?", help="its number; default: the start page")
    one.add_argument("--lab", action="store_true", help="the notebook in JupyterLab, also where pages are built")
    one.add_argument("--port", type=int, default=0, help="of the pages on this machine; default: any that is free")
    one.add_argument("--no-browser", action="store_true", help="only say the address")

    one = add("exercises", "write the students' notebooks, to work in or to hand out", book)
    one.add_argument("--out", type=Path, default=Path("exercises"), metavar="FOLDER", help="default: exercises")
    one.add_argument("--chapter", type=int, action="append", help="only this one's; may be repeated")
    one.add_argument("--install", metavar="WHAT", help="what the first cell has pip install: a wheel, or its address")

    commands.add_parser("grade", add_help=False, help="grade a folder of notebooks: see mhalib grade --help")

    one = add("look", "draw all heads of a checkpoint into one HTML file")
    one.add_argument("model", help="a folder, a .gguf file, minilm, smollm2-135m, or owner/name on the hub")
    one.add_argument("--text", default=SENTENCE, help=f"what it reads; default: {SENTENCE}")
    one.add_argument(
        "--html", "--out", type=Path, default=Path("heads.html"), metavar="FILE", help="default: heads.html"
    )
    one.add_argument(
        "--revision", metavar="COMMIT", help="of a name on the hub: its page has them under Files, History"
    )
    one.add_argument("--offline", action="store_true", help="fetch nothing")

    one = add("instrument", "write an instrument as one HTML file")
    one.add_argument("name", choices=INSTRUMENTS)
    one.add_argument("--html", "--out", type=Path, metavar="FILE", help="default: NAME.html")
    one.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="num_heads=12, say; may be repeated"
    )
    return whole


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say what takes time, once it has taken two seconds; on a terminal, how long it has taken until now."""
    done, start = threading.Event(), time.monotonic()

    def tell() -> None:
        if not done.wait(PATIENCE) and not sys.stderr.isatty():
            print(f"{what} ...", file=sys.stderr, flush=True)
            return
        while not done.wait(PATIENCE):
            print(f"\r{what}: {time.monotonic() - start:.0f} s", end="", file=sys.stderr, flush=True)
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def write_exercises(given: argparse.Namespace) -> None:
    """Copies of the book's own; a file that is there stays, for it may be somebody's work."""
    book = found_book(given.book)
    notebooks = [chapter_file(book, str(one)).name for one in given.chapter or ()]
    wanted = [book / "exercises" / name for name in notebooks] or sorted((book / "exercises").glob("*.ipynb"))
    if missing := [path.name for path in wanted if not path.is_file()]:
        raise ValueError(f"{missing[0].removesuffix('.ipynb')} has no exercises in code")
    given.out.mkdir(parents=True, exist_ok=True)
    targets = {path: given.out / path.name for path in wanted}
    if there := [str(target) for target in targets.values() if target.exists()]:
        raise ValueError(f"{there[0]} is there, and may be somebody's work: name another folder with --out")
    for path, target in targets.items():
        text = path.read_text(encoding="utf-8")
        write_whole(target, text if given.install is None else handed_out(text, given.install))
    print(f"{len(targets)} notebook{'s' * (len(targets) > 1)} in {given.out}")


def look(given: argparse.Namespace) -> None:
    is_path = given.model.startswith((".", "/", "~")) or given.model.endswith(".gguf")  # no name on the hub is such
    if is_path and not Path(given.model).exists():
        raise ValueError(f"there is no {given.model}: name a folder, a .gguf file, or owner/name on the hub")
    with waiting(f"reading {given.model}"):
        from mhalib import measures, pretrained
        from mhalib.widgets import HeadWall

        opened = pretrained.load(given.model, revision=given.revision, offline=given.offline)
    with waiting("drawing its heads"):
        reading = opened(given.text)
        kinds = ("previous", "next", "self", "first")
        numbers = {
            f"weight on {kind}": [measures.attention_to(one[None], kind) for one in reading.weights] for kind in kinds
        }
        wall = HeadWall(reading.weights, reading.tokens, numbers=numbers)
        wall.save_html(given.html, title=f"Heads of {given.model}")
    layers, heads = reading.weights.shape[:2]
    print(f"{layers} layers of {heads} heads in {given.html}")


def instrument(given: argparse.Namespace) -> None:
    with waiting("making the instrument"):
        kind, settings = INSTRUMENTS[given.name]
        made = getattr(importlib.import_module("mhalib.widgets"), kind)
        known = [name for name, one in inspect.signature(made).parameters.items() if one.kind != one.VAR_KEYWORD]
        given_settings = dict(settled(one, known) for one in given.set)
        path = given.html or Path(f"{given.name}.html")
        made(**settings | given_settings).save_html(path, title=kind)
    print(f"{kind} in {path}")


def settled(setting: str, known: Sequence[str]) -> tuple[str, Any]:
    """`num_heads=8` as a name and a number; what is neither a number nor a list is a word."""
    name, sign, value = setting.partition("=")
    if not sign or name not in known:
        raise ValueError(f"--set {setting}: write NAME=VALUE, with one of {', '.join(known)}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


COMMANDS = {"open": open_book, "exercises": write_exercises, "look": look, "instrument": instrument}


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["grade"]:
        from mhalib_classroom.grade import __main__ as grader

        return grader.main(words[1:], "mhalib grade")
    given = parser().parse_args(words)
    try:
        COMMANDS[given.command](given)
    except KeyboardInterrupt:
        return 130 if given.command != "open" else 0
    except (ValueError, TypeError, OSError, ImportError, OverflowError) as error:
        system = isinstance(error, OSError) and ": ".join(str(one) for one in (error.filename, error.strerror) if one)
        print(f"mhalib {given.command}: {' '.join((system or str(error)).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
