"""What is installed is what was looked at: locks with hashes, and workflows that nobody else can change."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools.development import lock
from tools.notebooks.notebooks import ROOT


def entries(text: str) -> dict[str, tuple[set[str], int]]:
    """Of each package of a lock, its versions, and how many hashes there are."""
    found: dict[str, tuple[set[str], int]] = {}
    for entry in re.sub(r"#.*\n", "", text).replace(" \\\n", " ").splitlines():
        name, version, rest = re.fullmatch(r"([\w.-]+)==(\S+)(.*)", entry).groups()
        versions, hashes = found.get(name, (set(), 0))
        found[name] = (versions | {version}, hashes + len(re.findall(r" --hash=sha256:[0-9a-f]{64}(?= |$)", rest)))
    return found


@pytest.mark.parametrize("name", lock.LOCKED)
def test_a_lock_has_all_pins_and_what_they_bring_by_hash(name: str) -> None:
    held = entries((ROOT / f"{name}.lock").read_text(encoding="utf-8"))
    assert all(hashes >= 1 for _, hashes in held.values())
    pins = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / f"{name}.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)
    pinned = {re.sub(r"[-_.]+", "-", package).lower(): {version} for package, version in pins}
    assert {package: held[package][0] for package in pinned} == pinned, "run  python -m tools.development.lock"
    assert len(held) > len(pinned)
    assert not any(lock._OF_A_GPU.fullmatch(package) for package in held)


def wheels(*names: str) -> list[dict[str, Any]]:
    return [{"url": f"https://host/{name}", "hashes": {"sha256": f"{i:064x}"}} for i, name in enumerate(names)]


def test_a_lock_has_the_files_that_fit_and_no_others() -> None:
    fitting = (
        "a-1-py3-none-any.whl",
        "a-1-cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        "a-1-cp39-abi3-manylinux_2_28_x86_64.whl",
    )
    others = (
        *("a-1-cp310-cp310-manylinux_2_28_x86_64.whl", "a-1-cp312-cp312-musllinux_1_2_x86_64.whl"),
        *(
            "a-1-cp312-cp312-win_amd64.whl",
            "a-1-cp312-cp312-macosx_11_0_arm64.whl",
            "a-1-cp313-cp313t-linux_x86_64.whl",
        ),
        *("a-1-cp312-cp312-manylinux_2_28_aarch64.whl", "a-1-cp314-abi3-manylinux_2_28_x86_64.whl"),
    )
    packages = [
        {"name": "a", "version": "1", "wheels": wheels(*fitting, *others)},
        {"name": "old", "version": "2", "marker": "python_full_version < '3.11'", "wheels": wheels(fitting[0])},
        {"name": "some", "version": "3", "marker": "python_full_version < '3.12'", "wheels": wheels(fitting[0])},
        {"name": "always", "version": "4", "marker": "python_full_version >= '3.11'", "wheels": wheels(fitting[0])},
        {"name": "windows", "version": "5", "marker": "sys_platform == 'win32'", "wheels": wheels(fitting[0])},
        {"name": "nvidia-cublas", "version": "6", "wheels": wheels(fitting[0])},
    ]
    text = lock.written("requirements", {"packages": packages})
    assert entries(text) == {"a": ({"1"}, 3), "some": ({"3"}, 1), "always": ({"4"}, 1)}
    assert "some==3 ; python_full_version < '3.12' \\\n" in text
    assert "always==4 \\\n" in text


@pytest.mark.parametrize(
    "package",
    [
        {"name": "torch", "version": "2.99.0", "wheels": wheels("torch-2.99.0-py3-none-any.whl")},
        {"name": "a", "version": "1", "sdist": {"name": "a-1.tar.gz"}},  # building it runs what nobody has looked at
    ],
)
def test_a_package_whose_files_are_not_known_stops_the_lock(package: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{package['name']}==.*: no wheel"):
        lock.written("requirements", {"packages": [package]})


@pytest.mark.skipif(platform.machine() != "x86_64" or sys.platform != "linux", reason="the lock is for Linux on x86")
@pytest.mark.parametrize(
    ("settings", "is_locked"),
    [(["CI=true"], True), (["CI="], False), (["CI=false"], False), (["CI=true", "LOCKED="], False)],
)
def test_ci_installs_by_hash(settings: list[str], is_locked: bool) -> None:
    ran = subprocess.run(
        ["make", "--dry-run", "--always-make", ".venv/.installed", *settings],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name not in ("CI", "MAKEFLAGS")},
        capture_output=True,
        text=True,
        check=True,
    )
    installing = [line for line in ran.stdout.splitlines() if "pip install" in line]
    assert [("--require-hashes" in line, "--no-build-isolation" in line) for line in installing] == (
        [(True, False), (False, True)] if is_locked else [(False, False)]
    )
    assert all("--no-deps" in line for line in installing) is is_locked


def test_workflows_give_no_stranger_a_way_in() -> None:
    """As zizmor sees it without a network; the workflow `test.yml` lets it look further, and asks actionlint, too."""
    zizmor = Path(sys.executable).with_name("zizmor")
    if not zizmor.exists() and not os.environ.get("CI"):
        pytest.skip("zizmor is not installed: make .venv/.installed")
    ran = subprocess.run([zizmor, "--offline", "--quiet", "."], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
