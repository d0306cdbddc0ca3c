"""Trained models that come with the package, and files of weights that say what they are.

Each file is `safetensors`, with the model's class, its settings, its metric and the command that trained it. Weights
are stored as float16 and loaded as float32. `tools/evidence/train.py NAME` trains and writes one.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from ._validate import as_path, require_device, require_kind, require_text
from ._write import write_whole
from .measures import Head, prune_heads, removed_heads
from .models import MODELS, Model

FOLDER = Path(__file__).parent / "weights"
"""Where the weights are that come with the package."""
HASHES = "sha256.json"
"""The file in `FOLDER` with the SHA-256 of each file of weights."""
KEY = "mhalib"
"""Under which a file of weights holds its class, settings and metric, in the metadata of safetensors."""


@dataclass(frozen=True)
class About:
    """What a file of weights says of itself.

    task: what the model was trained for.
    metric: the name of what was measured on unseen data, and its value.
    command: what trains it anew.
    """

    task: str
    metric: tuple[str, float]
    command: str


def names() -> list[str]:
    """The models that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.safetensors"))


def load(name: str, device: torch.device | str = "cpu") -> Model:
    """A trained model, in evaluation mode.

    Args:
        name: one of `names()`.
        device: where it is put.

    Raises:
        ValueError: there is no such model, or its file is not what the package was made with.
    """
    require_device("device", device)
    path = _path(name)
    hashes = FOLDER / HASHES
    expected = json.loads(hashes.read_text(encoding="utf-8")).get(name) if hashes.exists() else None
    found = _sha256(path)
    if found != expected:
        raise ValueError(f"the weights of {name!r} are damaged: sha256 is {found}, not {expected}")
    return read(path).to(device)


def about(name: str) -> About:
    """What the file of a trained model says of itself; `ValueError` if there is no such model."""
    return _read_header(_path(name)).about


def write(model: Model, path: str | Path, about: About) -> str:
    """Write a model's weights in one piece, and return the file's sha256.

    Equal weights make an equal file. A pruned model is read as it was written.

    Raises:
        TypeError: it is not one of `mhalib.models`, or `about` is no `About`.
        ValueError: a weight is not finite as float16, or the model has not the shape that its settings give it, less
            the heads that were pruned.
    """
    if MODELS.get(type(model).__name__) is not type(model):
        raise TypeError(f"model must be one of {sorted(MODELS)}, got {type(model).__name__}")
    path = as_path("path", path)
    if path.is_dir() or not path.parent.is_dir():
        raise ValueError(f"path={str(path)!r} is a folder, or in one that does not exist")
    require_kind("about", about, About)
    _require_metric(about.metric)
    tensors = {
        name: value.detach().to("cpu", torch.float16, copy=True).contiguous()
        for name, value in model.state_dict().items()
    }
    removed = removed_heads(model)
    new = _new(type(model), model.settings, removed).state_dict()
    if {name: value.shape for name, value in new.items()} != {name: value.shape for name, value in tensors.items()}:
        raise ValueError(f"model has not the shape that model.settings={model.settings} give it")
    lost = [name for name, value in tensors.items() if not value.isfinite().all()]
    if lost:
        raise ValueError(f"model cannot be stored as float16: {lost} would hold numbers that are not finite")
    metric, value = about.metric
    told = {
        "model": type(model).__name__,
        "settings": model.settings,
        "removed heads": removed,
        "about": {"task": about.task, "metric": [metric, float(value)], "command": about.command},
    }
    metadata = {
        KEY: json.dumps(told, default=_plain)
    }  # one entry: safetensors writes several in any order, and the hash would differ
    write_whole(path, save(tensors, metadata))
    return _sha256(path)


def read(path: str | Path) -> Model:
    """The model in a file that `write` has written, in evaluation mode. Torch's random state is not touched.

    Raises:
        ValueError: the file is missing, is not `safetensors`, or does not hold one of `mhalib.models`.
    """
    header = _read_header(path)
    try:
        model = _new(header.model, header.settings, header.removed_heads)
        with safe_open(str(path), "pt") as file:
            tensors = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
        model.load_state_dict(tensors, assign=True)
    except (TypeError, ValueError, RuntimeError, SafetensorError) as error:
        raise ValueError(f"path={str(path)!r} does not hold a model of this package: {error}") from error
    return model.eval()


class _Header(NamedTuple):
    model: type[Model]
    settings: dict[str, Any]
    about: About
    removed_heads: list[Head]


def _read_header(path: str | Path) -> _Header:
    if not as_path("path", path).is_file():
        raise ValueError(f"path={str(path)!r} is not a file")
    try:
        with safe_open(str(path), "pt") as file:
            metadata = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise ValueError(f"path={str(path)!r} is not a safetensors file: {error}") from error
    if KEY not in metadata:
        raise ValueError(f"path={str(path)!r} was not written by mhalib.saved: its header has no {KEY!r}")
    try:
        told = json.loads(metadata[KEY])
        name, settings, about = told["model"], dict(told["settings"]), told["about"]
        removed = [Head(str(kind), int(layer), int(head)) for kind, layer, head in told["removed heads"]]
        metric, value = about["metric"]
        about = About(str(about["task"]), (str(metric), float(value)), str(about["command"]))
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"path={str(path)!r} has a damaged header: {error!r}") from error
    if not isinstance(name, str) or name not in MODELS:
        raise ValueError(f"path={str(path)!r} holds a {name!r}, which is none of {sorted(MODELS)}")
    return _Header(MODELS[name], settings, about, removed)


def _new(kind: type[Model], settings: dict[str, Any], removed: list[Head]) -> Model:
    """A model whose weights take no memory and draw no random numbers, because they will be replaced."""
    with torch.device("meta"):
        return prune_heads(kind(**settings), removed)


def _plain(value: object) -> object:
    """A number of numpy's, which a model may have been made with, as JSON knows it."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"model.settings hold a {type(value).__name__}, which a file cannot: {value!r:.80}")


def _require_metric(metric: object) -> None:
    if not isinstance(metric, tuple) or len(metric) != 2:
        raise TypeError(f"about.metric must be a name and a number, got {metric!r:.80}")
    require_text("the name of about.metric", metric[0])
    try:
        float(metric[1])
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise TypeError(f"about.metric must be a name and a number, got {metric!r:.80}") from error


def _path(name: str) -> Path:
    if not isinstance(name, str) or name not in names():
        raise ValueError(f"name={name!r:.80} must be one of {names()}")
    return FOLDER / f"{name}.safetensors"


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
