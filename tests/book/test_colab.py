"""The set-up cell, as Colab runs it: an empty folder, a host that has torch but not mhalib.

The notebook is the copy that the pages' launch link opens, made for an address, which git fetches from this checkout.

One chapter stands for all; with MHALIB_COLAB=all, as once a week in the workflow `anywhere.yml`, each is run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import nbformat
import pytest
from published import publish

from tools.notebooks import address, notebooks

pytestmark = [pytest.mark.network, pytest.mark.tool("mhalib/")]

ALL = sorted(notebooks.CHAPTERS.glob("[0-9][0-9]_*.ipynb"))
CHOSEN = ALL if os.environ.get("MHALIB_COLAB") == "all" else [notebooks.CHAPTERS / "04_reshape_trick.ipynb"]
RUN = """
import sys, nbformat
from nbclient import NotebookClient
NotebookClient(nbformat.read(sys.argv[1], as_version=4), timeout=300, kernel_name="python3").execute()
import mhalib, numpy, torch
print(mhalib.__file__, torch.__file__, numpy.__file__, sep="\\n")
"""


def make_host(folder: Path) -> Path:
    """A new virtual environment in which everything is installed but mhalib. Returns its Python."""
    venv.create(folder, with_pip=True)
    python = folder / "bin/python"
    query = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    target = Path(subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip())
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "mhalib" not in entry.name and not (target / entry.name).exists():
            (target / entry.name).symlink_to(entry)
    return python


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the repository's address leads to."""
    return publish(tmp_path_factory.mktemp("published"))


@pytest.mark.skipif(sys.platform == "win32", reason="the host is made of symbolic links")
@pytest.mark.parametrize("chapter", CHOSEN, ids=lambda path: path.stem)
def test_chapter_runs_where_mhalib_is_missing(chapter: Path, published: Path, tmp_path: Path) -> None:
    python = make_host(tmp_path / "host")
    empty = tmp_path / "empty"
    empty.mkdir()
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=published, capture_output=True, text=True, check=True)
    told = {"BOOK_REPOSITORY": "some-one/my.heads", "GITHUB_SHA": head.stdout.strip()}  # as publish.yml is told
    there = address.here(told)
    nbformat.write(notebooks.launched(chapter, there), empty / chapter.name)
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")},
        "GIT_CONFIG_COUNT": "1",  # git fetches the repository's address from here
        "GIT_CONFIG_KEY_0": f"url.{published.as_uri()}.insteadOf",
        "GIT_CONFIG_VALUE_0": there.url,
        "MHALIB_DEVICE": "cpu",
    }
    host = {"cwd": empty, "env": environment, "capture_output": True, "text": True, "check": False}
    missing = subprocess.run([python, "-c", "import torch, mhalib"], **host)
    assert "No module named 'mhalib'" in missing.stderr

    done = subprocess.run([python, "-c", RUN, chapter.name], **host)

    assert done.returncode == 0, done.stderr[-3000:]
    installed, *kept = done.stdout.splitlines()[-3:]
    assert Path(installed).is_relative_to(tmp_path / "host")
    for module in kept:  # still the links to what the host had: pip replaced neither
        assert Path(module).parent.is_symlink()
