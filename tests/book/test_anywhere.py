"""What Binder and the Dockerfile install. Their images are built once a week, by the workflow `anywhere.yml`."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib
import yaml

from tools import PACKAGES
from tools.notebooks import notebooks

ROOT = notebooks.ROOT
SCRIPT = ROOT / ".binder/postBuild"
LARGE = {"jax", "flax", "keras", "tokenizers", "transformers"}  # chapters 34 and 35 install them when they are run
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
FAKE_PYTHON = """#!/bin/bash
echo "$PWD" > {told}
echo "$PIP_EXTRA_INDEX_URL" >> {told}
printf '%s\\n' "$@" >> {told}
while [ "$1" != -c ]; do shift; done
cp "$2" {pins}
"""


def test_binder_and_the_image_take_a_python_that_ci_tests_with_every_pin() -> None:
    found = re.fullmatch(r"python-(3\.\d+)\n", (ROOT / ".binder/runtime.txt").read_text(encoding="utf-8"))
    assert found, "repo2docker reads one line, python-X.Y; without it, it takes a Python of its own"
    tests = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text(encoding="utf-8"))
    assert found[1] in tests["jobs"]["book"]["strategy"]["matrix"]["python"]  # where make installs requirements.txt
    images = re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(images) == 2
    for image in images:  # by what it holds: a name can be given to another image
        assert re.fullmatch(rf"python:{re.escape(found[1])}-slim-bookworm@sha256:[0-9a-f]{{64}}", image)


@pytest.fixture
def post_build(tmp_path: Path) -> tuple[str, str, list[str], list[str]]:
    """What the script asks of Python: in which folder, with which index, with which words and constraints."""
    if sys.platform == "win32":
        pytest.skip("Binder runs Linux")
    told, pins, python = tmp_path / "told", tmp_path / "pins", tmp_path / "python"
    python.write_text(FAKE_PYTHON.format(told=shlex.quote(str(told)), pins=shlex.quote(str(pins))), encoding="utf-8")
    python.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "PIP_EXTRA_INDEX_URL"}
    path = os.pathsep.join((str(tmp_path), environment["PATH"]))
    subprocess.run([SCRIPT, "jupyterlab"], env={**environment, "PATH": path}, cwd=tmp_path, check=True)
    folder, index, *words = told.read_text(encoding="utf-8").splitlines()
    return folder, index, words, pins.read_text(encoding="utf-8").splitlines()


def test_binder_installs_what_the_chapters_import_and_none_of_the_book_s_tools(
    post_build: tuple[str, str, list[str], list[str]],
) -> None:
    folder, index, words, constraints = post_build
    assert (Path(folder), index) == (ROOT, CPU_INDEX)
    assert words[:3] == ["-m", "pip", "install"]
    extras = re.fullmatch(r"\.\[([\w,]+)\]", words[words.index("-e") + 1])
    assert extras is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = sum((project["optional-dependencies"][extra] for extra in extras[1].split(",")), project["dependencies"])
    named = {re.match(r"[\w-]+", one)[0] for one in asked + words[words.index("-e") + 2 :]}
    needed = [*project["dependencies"], *project["optional-dependencies"]["widgets"]]
    own = {name for names in notebooks.OWN_NEEDS.values() for name in names}
    assert named == ({re.match(r"[\w-]+", one)[0] for one in needed} | own | {"jupyterlab"}) - LARGE
    pinned = {line.partition("==")[0] for line in constraints if re.match(r"[\w-]+==", line)}
    assert named <= pinned
    assert not any(line.startswith("-") for line in constraints)  # pip takes neither -e nor -r there


def test_the_image_is_made_of_what_is_there_and_of_nothing_made_here() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    copied = [line.split()[1:-1] for line in re.findall(r"^COPY (?!--from).*", dockerfile, flags=re.MULTILINE)]
    assert [[package] in copied for package in PACKAGES] == [True] * len(PACKAGES)
    assert [name for names in copied for name in names if not (ROOT / name).exists()] == []
    ignored, made = (
        {line.strip("/").removeprefix("**/") for line in (ROOT / name).read_text(encoding="utf-8").split()}
        for name in (".dockerignore", ".gitignore")
    )
    caches = {".pytest_cache", ".ruff_cache", ".mypy_cache"}
    assert made - caches <= ignored - {".*_cache"}
    assert ".git" in ignored
    assert ".*_cache" in ignored
