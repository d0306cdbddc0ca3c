"""This checkout as strangers get it: its files as they are now, without what git ignores."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tools.notebooks import notebooks


def snapshot(folder: Path) -> Path:
    """A copy of the files, in a folder that need not exist."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=notebooks.ROOT,
        capture_output=True,
        check=True,
    )
    for name in listing.stdout.decode().splitlines():
        if (notebooks.ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(notebooks.ROOT / name, folder / name)
    return folder


def publish(folder: Path) -> Path:
    """A git repository that holds them."""
    snapshot(folder)
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "snapshot"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder
