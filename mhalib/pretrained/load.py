"""Encoders with the weights that others trained: from a folder, or from the Hugging Face hub at a pinned commit."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from .._validate import require_choice, require_device, require_text
from .convert import build, token_without_position
from .maps import Reading

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
"""The encoder of chapter 16, by its name on the Hugging Face Hub."""


class Pin(NamedTuple):
    """One state of an encoder on the hub: its commit, and the sha256 of its model.safetensors."""

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
"""What `load` reads of an encoder's repository."""
ROUTES = ("mhalib", "transformers")
_Run = Callable[[Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class Pretrained:
    """An encoder and its tokenizer. Call it with a text.

    model: a `mhalib.models.BERT`, which gates, measures and pictures take like the book's own models; or, loaded
        through transformers, what that library made.
    tokenizer: a `tokenizers.Tokenizer` that neither pads nor cuts.
    sha256: of the weights' file.
    """

    model: nn.Module
    tokenizer: Any
    sha256: str
    _run: _Run = field(repr=False)

    def __call__(self, text: str) -> Reading:
        """Read one text: its tokens, all weights (layers, h, N, N), and the output (N, D).

        Raises:
            TypeError: it is not a string.
            ValueError: it has more tokens than the model has positions, or an encoder like RoBERTa is given the token
                that pads.
        """
        if not isinstance(text, str):
            raise TypeError(f"text must be a string, got {type(text).__name__}: {text!r:.80}")
        encoded = self.tokenizer.encode(text)
        with torch.no_grad():
            output, weights = self._run(torch.tensor([encoded.ids], device=next(self.model.parameters()).device))
        return Reading(text, tuple(encoded.tokens), tuple(encoded.ids), weights, output)


def load(
    source: str | Path = MINILM,
    *,
    revision: str | None = None,
    sha256: str | None = None,
    device: torch.device | str = "cpu",
    through: str = "mhalib",
) -> Pretrained:
    """An encoder with its trained weights, in evaluation mode.

    Needs the package `tokenizers`, and for the hub `huggingface_hub`: `pip install "mhalib[pretrained]"`.

    Args:
        source: a folder with config.json, model.safetensors and tokenizer.json; or a name on the hub, "owner/name".
        revision: for the hub, the commit, 40 hexadecimal digits; `None` takes that of `PINS`.
        sha256: what model.safetensors must hash to; `None` takes that of `PINS` with its revision, and any otherwise.
        device: where the model is put.
        through: "mhalib" puts the weights into `mhalib.models.BERT`, for BERT, ELECTRA, RoBERTa, XLM-RoBERTa,
            CamemBERT and DistilBERT; "transformers" lets that library run any encoder it knows.

    Raises:
        TypeError, ValueError: an argument is not of this kind, a file is missing or damaged, the hash is another, or
            the architecture is not supported.
        ImportError: a package is missing.
        OSError: the hub did not give a file.
    """
    require_choice("through", through, ROUTES)
    require_device("device", device)
    folder, sha256 = _find(source, revision, sha256)
    path = folder / "model.safetensors"
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if sha256 not in (None, found):
        raise ValueError(f"{path.name} of {str(source)!r} is not what was asked for: sha256 is {found}, not {sha256}")
    tokenizer = _tokenizer(folder / "tokenizer.json")
    model, run = _own(folder) if through == "mhalib" else _foreign(folder)
    return Pretrained(model.to(device), tokenizer, found, run)


def _find(source: str | Path, revision: str | None, sha256: str | None) -> tuple[Path, str | None]:
    """The folder that holds the files, fetched if need be, and the hash to expect."""
    if not isinstance(source, (str, Path)):
        raise TypeError(f"source must be a string or a Path, got {type(source).__name__}: {source!r:.80}")
    for name, value, length in (("revision", revision, 40), ("sha256", sha256, 64)):
        if value is not None:
            require_text(name, value)
        if value is not None and not re.fullmatch(rf"[0-9a-f]{{{length}}}", value):
            raise ValueError(f"{name}={value!r} must be {length} hexadecimal digits")
    if Path(source).is_dir():
        if revision is not None:
            raise ValueError(f"revision={revision!r} belongs to the hub, but source={str(source)!r} is a folder")
        missing = [name for name in FILES if not (Path(source) / name).is_file()]
        if missing:
            raise ValueError(f"source={str(source)!r} lacks {missing}")
        return Path(source), sha256
    if isinstance(source, Path) or not re.fullmatch(r"[\w.-]+/[\w.-]+", source):
        raise ValueError(f"source={str(source)!r} is neither a folder nor a name on the hub, 'owner/name'")
    pin = PINS.get(source)
    if revision is None:
        if pin is None:
            raise ValueError(f"revision must be given for source={source!r}: a commit, 40 hexadecimal digits")
        revision, sha256 = pin.revision, sha256 or pin.sha256
    return _fetch(source, revision), sha256


def _fetch(name: str, revision: str) -> Path:
    """The folder in the hub's cache that holds the files of this commit."""
    hub = _optional("huggingface_hub")
    try:
        paths = [Path(hub.hf_hub_download(name, file, revision=revision)) for file in FILES]
    except Exception as error:  # a dozen kinds: no network, no such commit, no such file
        raise OSError(
            f"source={name!r} is not a folder here, and the hub did not give its files at revision={revision!r}: "
            f"{type(error).__name__}: {error}"
        ) from error
    return paths[0].parent


def _tokenizer(path: Path) -> Any:
    tokenizers = _optional("tokenizers")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # it raises Exception itself
        raise ValueError(f"path={str(path)!r} does not hold a tokenizer: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _own(folder: Path) -> tuple[nn.Module, _Run]:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"path={str(path)!r} is damaged: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"path={str(path)!r} must hold an object, got {type(config).__name__}")
    try:
        tensors = load_file(folder / "model.safetensors")
    except (SafetensorError, OSError) as error:
        raise ValueError(f"path={str(folder / 'model.safetensors')!r} is not a safetensors file: {error}") from error
    model = build(config, tensors)
    uncounted = token_without_position(config)

    def run(ids: Tensor) -> tuple[Tensor, Tensor]:
        if uncounted is not None and (ids == uncounted).any():
            raise ValueError(
                f"text holds the token that pads, {uncounted}, which this encoder leaves out when it counts positions, "
                'and our model does not: through="transformers" runs it'
            )
        output, weights = model(ids, need_weights=True)
        return output[0], torch.cat([layer for of_kind in weights.values() for layer in of_kind])

    return model, run


def _foreign(folder: Path) -> tuple[nn.Module, _Run]:
    transformers = _optional("transformers")
    model = transformers.AutoModel.from_pretrained(
        str(folder), local_files_only=True, use_safetensors=True, attn_implementation="eager"
    ).eval()

    def run(ids: Tensor) -> tuple[Tensor, Tensor]:
        result = model(input_ids=ids, output_attentions=True)
        if not result.get("attentions"):
            raise ValueError(f"{type(model).__name__} returns no attention weights")
        return result.last_hidden_state[0], torch.cat(list(result.attentions))

    return model, run


def _optional(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"this needs the package {name}: pip install {name}") from error
