"""Write the locks: every file that continuous integration installs, by its hash.

    python -m tools.development.lock

requirements.txt is what people read and install: 50 packages by version. requirements.lock has all that these bring
along, and of each the hashes of the wheels that CPython 3.11 to 3.13 can take on Linux with an x86 processor, where
the book is built and tested; `make` installs from it where CI is set. A Mac or another processor takes other files, and
their hashes would make the lock ten times as long. requirements-release.lock is the same for what makes the wheel.

torch is the trap. Its CPU build is on PyTorch's own index, and the one on the package index brings 3 GB for a GPU. The
lock has the CPU build's hashes, which `TORCH` keeps, and nothing of a GPU: see there for how to make new ones.

Needs uv, https://docs.astral.sh/uv/ : `pipx install uv`.
"""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomllib  # type: ignore[import-not-found]
from packaging.markers import Marker
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from mhalib._write import write_whole

ROOT = Path(__file__).parents[2]
LOCKED = ("requirements", "requirements-release")
PYTHONS = ("3.11", "3.12", "3.13")
TORCH = {  # sha256sum of the file that  pip download --no-deps --index-url https://download.pytorch.org/whl/cpu  gets
    "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl": (
        "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"
    ),
    "torch-2.13.0+cpu-cp312-cp312-manylinux_2_28_x86_64.whl": (
        "4ca4a9394b0c771238a4f73590fdbbc4debad85ed0fa63d026ae1b085da7d6e2"
    ),
    "torch-2.13.0+cpu-cp313-cp313-manylinux_2_28_x86_64.whl": (
        "3fbf9c9d1f3c10c2d59d04aca426dee9ccc6ceb32d255c61e93acc3b4f75fae6"
    ),
}
_OF_A_GPU = re.compile(r"(nvidia|cuda)-.*|triton")
_HEAD = """\
# Made by  python -m tools.development.lock  from {0}.txt, for Linux on x86, Python {1}:
#   pip install --no-deps --only-binary :all: --require-hashes -r {0}.lock
"""


def written(name: str, locked: dict[str, Any]) -> str:
    """The lock of that name, from what uv has resolved.

    Raises:
        ValueError: a package has no wheel that fits, or is another torch than the one whose hashes are known.
    """
    return _HEAD.format(name, ", ".join(PYTHONS)) + "".join(map(_entry, filter(_is_wanted, locked["packages"])))


def _is_wanted(package: dict[str, Any]) -> bool:
    return not _OF_A_GPU.fullmatch(package["name"]) and any(_holds(package))


def _holds(package: dict[str, Any]) -> list[bool]:
    """Whether a package is wanted, for each Python: the first of a version and a last one."""
    marker = package.get("marker")
    return [marker is None or Marker(marker).evaluate(host) for host in _hosts()]


def _hosts() -> Iterator[dict[str, str]]:
    for version, patch in itertools.product(PYTHONS, ("0", "99")):
        yield {
            "python_version": version,
            "python_full_version": f"{version}.{patch}",
            "platform_python_implementation": "CPython",
            "implementation_name": "cpython",
            "sys_platform": "linux",
            "platform_system": "Linux",
            "platform_machine": "x86_64",
            "os_name": "posix",
        }


def _entry(package: dict[str, Any]) -> str:
    name, version = package["name"], package["version"]
    hashes = TORCH if name == "torch" else dict(_fitting(package))
    if not hashes or (name == "torch" and not all(one.startswith(f"torch-{version}+cpu-") for one in hashes)):
        raise ValueError(f"{name}=={version}: no wheel of it is known that fits Linux on x86 and Python {PYTHONS}")
    marker = "" if all(_holds(package)) else f" ; {package['marker']}"
    lines = [f"{name}=={version}{marker}", *(f"    --hash=sha256:{one}" for one in sorted(hashes.values()))]
    return " \\\n".join(lines) + "\n"


def _fitting(package: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The names and hashes of the wheels that a Python of ours can take."""
    for wheel in package.get("wheels", ()):
        name = (wheel.get("name") or wheel["url"].rpartition("/")[2]).replace("%2B", "+")
        if parse_wheel_filename(name)[3] & _TAGS:
            yield name, wheel["hashes"]["sha256"]


def _tags() -> Iterator[Tag]:
    systems = [f"manylinux_2_{minor}_x86_64" for minor in range(5, 40)]  # the runners' glibc is 2.39
    systems += ["manylinux1_x86_64", "manylinux2010_x86_64", "manylinux2014_x86_64", "linux_x86_64"]
    for version in PYTHONS:
        numbers = [int(one) for one in version.split(".")]
        yield from cpython_tags(numbers, platforms=systems)
        yield from compatible_tags(numbers, f"cp{version.replace('.', '')}", systems)


_TAGS = frozenset(_tags())


def main() -> int:
    uv = shutil.which("uv") or sys.exit("this needs uv: pipx install uv")
    asked = ["pip", "compile", "-", "--universal", "--python-version", PYTHONS[0], "--format", "pylock.toml", "--quiet"]
    for name in LOCKED:
        lines = (ROOT / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        named = "\n".join(line for line in lines if not line.startswith("-e"))
        ran = subprocess.run([uv, *asked], input=named.encode(), capture_output=True, check=False)
        if ran.returncode:
            sys.exit(ran.stderr.decode(errors="replace"))
        write_whole(ROOT / f"{name}.lock", written(name, tomllib.loads(ran.stdout.decode())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
