"""What `pip install mhalib` would bring: the README that the index shows, and what is in sdist and wheel."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path
from types import ModuleType

import pytest
from markdown_it import MarkdownIt
from published import snapshot

import mhalib
from tools import PACKAGES
from tools.notebooks import notebooks

LARGEST_WHEEL = 2_735_000
"""Bytes; two thirds of it are stored maps, weights and moments, and it holds two packages. 2.5 MB, until checkers spoke
French."""
URL = "https://github.com/owner/name"


def setup_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("setup_script", notebooks.ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def targets(markdown: str) -> list[str]:
    """Where its links lead and its pictures are, as CommonMark reads them."""
    inline = [child for token in MarkdownIt().enable("table").parse(markdown) for child in token.children or []]
    return [str(value) for token in inline for name, value in token.attrs.items() if name in ("href", "src")]


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("[a](b/c.md)", f"[a]({URL}/blob/v1/b/c.md)"),
        ("[a](b.md#part)", f"[a]({URL}/blob/v1/b.md#part)"),
        ("![a](b/c.png)", "![a](https://raw.githubusercontent.com/owner/name/v1/b/c.png)"),
        ("[![a](b.svg)](c.md)", f"[![a](https://raw.githubusercontent.com/owner/name/v1/b.svg)]({URL}/blob/v1/c.md)"),
        ("[a](../../releases/latest)", f"[a]({URL}/releases/latest)"),
        ("[`a/`](a) [b](c)", f"[`a/`]({URL}/blob/v1/a) [b]({URL}/blob/v1/c)"),
        *((kept, kept) for kept in ("[a](https://x.org/y.png) [b](#c) [d](mailto:e@f.org)", "```\nheads[0](x)\n```\n")),
    ],
)
def test_relative_links_become_addresses(given: str, made: str) -> None:
    assert setup_script().absolute(given, URL, "v1") == made


def test_the_index_shows_a_readme_in_which_no_link_is_relative() -> None:
    readme = (notebooks.ROOT / "README.md").read_text(encoding="utf-8")
    assert setup_script().described("") == readme
    before, after = targets(readme), targets(setup_script().described(URL))
    assert len(before) == len(after) > 31
    for old, new in zip(before, after, strict=True):
        assert new.startswith("https://"), new
        beside = f"{URL}{old.removeprefix('../..')}"  # releases, which are no file
        is_file = new.endswith(f"/v{mhalib.__version__}/{old}") and (notebooks.ROOT / old).exists()
        assert is_file or new in (old, beside), new


BUILD = """
import os
os.chdir({source!r})
from setuptools import build_meta
print(build_meta.build_{kind}({out!r}))
"""


def build(kind: str, source: Path, out: Path) -> Path:
    """An sdist or a wheel of `source`, made by the setuptools that is installed here. Returns the file."""
    command = [sys.executable, "-c", BUILD.format(source=str(source), out=str(out), kind=kind)]
    quiet = {**os.environ, "PYTHONWARNINGS": "error::setuptools.SetuptoolsDeprecationWarning"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=quiet, cwd=out)
    assert done.returncode == 0, done.stderr[-3000:]
    return out / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel that is made of what is in it, as `python -m build` does."""
    folder = tmp_path_factory.mktemp("package")
    checkout = snapshot(folder / "checkout")
    sdist = build("sdist", checkout, folder)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return sdist, build("wheel", unpacked, folder)


def test_the_wheel_is_small_and_is_the_package_and_nothing_else(built: tuple[Path, Path]) -> None:
    _, wheel = built
    assert wheel.name == f"mhalib-{mhalib.__version__}-py3-none-any.whl"
    assert wheel.stat().st_size < LARGEST_WHEEL
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
    package = [path for name in PACKAGES for path in (notebooks.ROOT / name).rglob("*") if path.is_file()]
    kept = [path for path in package if "__pycache__" not in path.parts and path.suffix != ".ts"]
    assert held == {path.relative_to(notebooks.ROOT).as_posix() for path in kept}
    told = message_from_string(metadata)
    assert told["Description-Content-Type"] == "text/markdown"
    assert re.sub(r"\s+", " ", told.get_payload()).startswith("# Attention, Head by Head")
    assert targets(told.get_payload()) == targets(setup_script().described(setup_script().repository()))


def test_the_sdist_holds_the_library_s_tests_and_what_they_read(built: tuple[Path, Path]) -> None:
    sdist, _ = built
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    tests = {path.relative_to(notebooks.ROOT).as_posix() for path in notebooks.ROOT.glob("tests/library/*.py")}
    assert {"conftest.py", "pyproject.toml", "setup.py", "chapters/notation.md", "tests/conftest.py"} | tests <= held
    assert not any(name.startswith(("_build", "tests/book")) for name in held)
