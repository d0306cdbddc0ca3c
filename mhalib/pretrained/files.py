"""The files of a pretrained model: in a folder, or on the Hugging Face hub at a pinned commit."""

from __future__ import annotations

import hashlib
import importlib
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from torch import Tensor

from .._validate import require_flag, require_text
from .config import read_config
from .gguf_model import SUFFIX, GGUFModel

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
"""The encoder of chapter 18, by its name on the Hugging Face Hub."""


class Pin(NamedTuple):
    """One state of a model on the hub: its commit, and the sha256 of its model.safetensors."""

    revision: str
    sha256: str


PINS = {
    MINILM: Pin(
        "1110a243fdf4706b3f48f1d95db1a4f5529b4d41",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    )
}
"""What `load` takes where it is told no other. The commit says where to look; the hash says whether it was found."""

FILES = ("config.json", "model.safetensors", "tokenizer.json")
"""What `load` reads of a model's repository. In place of model.safetensors there may be several files, and `INDEX`."""
INDEX = "model.safetensors.index.json"
"""The file that says which of several files holds a tensor."""
CONFIG, WEIGHTS, TOKENIZER = FILES
PREPARATION = "preprocessor_config.json"
"""What `load` reads besides, or in place of tokenizer.json, of a model that reads pictures."""


class Place:
    """Where a model's files are, checked, and which hash its weights must have. Nothing is fetched yet, and only
    the header of a .gguf file is read.

    Args:
        source: a folder; a file that ends in .gguf; or a name on the hub, "owner/name".
        revision: for the hub, the commit; `None` takes that of `PINS`.
        sha256: what the weights must hash to; `None` takes that of `PINS` with its revision, and any otherwise.
        offline: whether the hub's files must be on this machine already.

    Raises:
        TypeError, ValueError: an argument is not of this kind.
    """

    def __init__(
        self, source: str | Path, revision: str | None = None, sha256: str | None = None, offline: bool = False
    ) -> None:
        if not isinstance(source, (str, Path)):
            raise TypeError(f"source must be a string or a Path, got {type(source).__name__}: {source!r:.80}")
        require_flag("offline", offline)
        for name, value, length in (("revision", revision, 40), ("sha256", sha256, 64)):
            if value is not None:
                require_text(name, value)
            if value is not None and not re.fullmatch(rf"[0-9a-f]{{{length}}}", value):
                raise ValueError(f"{name}={value!r} must be {length} hexadecimal digits")
        self.source, self.offline, self.folder = source, offline, None
        self.gguf: GGUFModel | None = None
        if Path(source).is_dir() or (Path(source).suffix == SUFFIX and Path(source).is_file()):
            if revision is not None:
                raise ValueError(f"revision={revision!r} belongs to the hub, but source={str(source)!r} is here")
            if Path(source).is_dir():
                self.folder = Path(source)
            else:
                self.gguf = GGUFModel(Path(source))
        elif isinstance(source, Path) or not re.fullmatch(r"[\w.-]+/[\w.-]+", source):
            raise ValueError(
                f"source={str(source)!r} is neither a folder, nor a .gguf file, nor a name on the hub, 'owner/name'"
            )
        else:
            pin = PINS.get(source)
            if revision is None:
                if pin is None:
                    raise ValueError(
                        f"revision must be given for source={source!r}: a commit, 40 hexadecimal digits, from the "
                        "history of its files on the hub"
                    )
                revision, sha256 = pin.revision, sha256 or pin.sha256
        self.revision, self.sha256 = revision, sha256

    def require(self, needed: tuple[str, ...] = (TOKENIZER,)) -> None:
        """Raise ValueError if the source is a folder that lacks config.json, weights, or a file of `needed`."""
        if self.folder is None:
            return
        has_weights = (self.folder / WEIGHTS).is_file() or (self.folder / INDEX).is_file()
        missing = [name for name in (CONFIG, *needed) if not self.has(name)]
        missing[1 if CONFIG in missing else 0 : 0] = [] if has_weights else [WEIGHTS]
        if missing:
            more = self._other_weights() if WEIGHTS in missing else ""
            more += "".join(f"; {how}" for name, how in _HOW_TO_MAKE.items() if name in missing)
            raise ValueError(f"source={str(self.source)!r} lacks {missing}{more}")

    def _other_weights(self) -> str:
        """What to do with weights of another format that the folder has."""
        assert self.folder is not None
        packed = sorted(self.folder.glob(f"*{SUFFIX}"))
        if packed:
            return f"; it has {packed[0].name}: load that file itself"
        if any(self.folder.glob("pytorch_model*.bin")):
            return (
                "; it has pytorch_model.bin, a pickle, which may run anything when it is read and which nothing here "
                "reads: where its maker is trusted, the model's class of transformers, .from_pretrained(source)"
                ".save_pretrained(folder), writes a model.safetensors"
            )
        return ""

    def has(self, name: str) -> bool:
        """Whether the folder has a file; of the hub, `True`: it is not asked."""
        return self.folder is None or (self.folder / name).is_file()

    def config(self) -> dict[str, Any]:
        """What its config.json says."""
        return read_config(self.path(CONFIG)) if self.gguf is None else self.gguf.config

    def tensors(self, paths: tuple[Path, ...]) -> Checkpoint | GGUFModel:
        """What the files of weights hold, which `weights` gave."""
        return Checkpoint(paths) if self.gguf is None else self.gguf

    def path(self, name: str) -> Path:
        """A file, fetched if need be.

        Raises:
            ValueError: the folder does not have it.
            OSError: the hub does not give it.
        """
        if self.folder is not None:
            if not (self.folder / name).is_file():
                raise ValueError(f"source={str(self.source)!r} lacks {[name]}")
            return self.folder / name
        hub = optional("huggingface_hub")
        more = {"local_files_only": True} if self.offline else {}
        try:
            return Path(hub.hf_hub_download(self.source, name, revision=self.revision, **more))
        except Exception as error:  # a dozen kinds: no network, no such commit, no such file
            where = "is not on this machine" if self.offline else "the hub did not give it"
            raise OSError(
                f"source={self.source!r} is not a folder here, and of revision={self.revision!r} {name} {where}: "
                f"{type(error).__name__}: {error}"
            ) from error

    def weights(self) -> tuple[Path, ...]:
        """The files of weights, fetched if need be: one, or several in the order of their names.

        Raises:
            ValueError: an index is damaged, or names a file that the folder does not have.
            OSError: the hub does not give one.
        """
        if self.gguf is not None:
            return (Path(self.source),)
        if self.folder is not None and not (self.folder / WEIGHTS).is_file():
            return tuple(self.path(name) for name in _shards(self.path(INDEX)))
        try:
            return (self.path(WEIGHTS),)
        except OSError as error:
            try:
                index = self.path(INDEX)
            except OSError:
                raise error from None
            return tuple(self.path(name) for name in _shards(index))


_HOW_TO_MAKE = {
    name: f"transformers.{kind}.from_pretrained(source).save_pretrained(folder) writes a {name}{more}"
    for name, kind, more in (
        (TOKENIZER, "AutoTokenizer", " for most models, and with_tokenizer=False does without"),
        (PREPARATION, "AutoImageProcessor", ""),
    )
}


def _shards(index: Path) -> list[str]:
    """The files that an index names, each once and in order."""
    told = read_config(index).get("weight_map")
    if not isinstance(told, dict) or not told:
        raise ValueError(f"path={str(index)!r} is damaged: it has no weight_map")
    names = sorted(set(map(str, told.values())))
    strange = [name for name in names if not re.fullmatch(r"[\w.-]+\.safetensors", name)]
    if strange:
        raise ValueError(f"path={str(index)!r} is damaged: {strange[0]!r:.80} is not a file of weights beside it")
    return names


class Checkpoint(Mapping[str, Tensor]):
    """The tensors in files of weights, by their names. Each is read from the disk when it is asked for.

    Raises:
        ValueError: a file is not safetensors, or two of them hold a tensor of one name.
    """

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self._files: dict[str, Any] = {}
        for path in paths:
            try:
                file = safe_open(str(path), "pt")
                names = list(file.keys())
            except (SafetensorError, OSError) as error:
                raise ValueError(f"path={str(path)!r} is not a safetensors file: {error}") from error
            twice = sorted(self._files.keys() & set(names))
            if twice:
                raise ValueError(f"path={str(path)!r} holds {twice[0]!r}, which another file holds, too")
            self._files |= dict.fromkeys(names, file)

    def count_numbers(self) -> int:
        """How many numbers all tensors have. Only the files' headers are read."""
        return sum(math.prod(file.get_slice(name).get_shape()) for name, file in self._files.items())

    def __getitem__(self, name: str) -> Tensor:
        tensor: Tensor = self._files[name].get_tensor(name)
        return tensor

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def sha256_of(paths: tuple[Path, ...]) -> str:
    """Of one file, or of several as if they were one."""
    found = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(2**24):
                found.update(block)
    return found.hexdigest()


def optional(name: str) -> ModuleType:
    """A package that is not needed for the rest of ours."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"this needs the package {name}: pip install {name}") from error
