"""Trained models that come with the package, and files of weights that say what they are.

Each file is `safetensors`, with the model's class, its settings, its metric and the command that trained it. Weights
are stored as float16 and loaded as float32. `tools/train.py NAME` trains and writes one.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from .models import MODELS, Model

FOLDER = Path(__file__).parent / "weights"
_PARTS = ("model", "settings", "about")


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
    if name not in names():
        raise ValueError(f"name={name!r} must be one of {names()}")
    expected = json.loads((FOLDER / "sha256.json").read_text(encoding="utf-8")).get(name)
    found = hashlib.sha256(_path(name).read_bytes()).hexdigest()
    if found != expected:
        raise ValueError(f"the weights of {name!r} are damaged: sha256 is {found}, not {expected}")
    return read(_path(name)).to(device)


def about(name: str) -> About:
    """What the file of a trained model says of itself; `ValueError` if there is no such model."""
    if name not in names():
        raise ValueError(f"name={name!r} must be one of {names()}")
    told = _read_header(_path(name))["about"]
    return About(told["task"], (told["metric"][0], float(told["metric"][1])), told["command"])


def write(model: Model, path: str | Path, about: About) -> str:
    """Write a model's weights, and return the file's sha256.

    Raises:
        TypeError: it is not one of `mhalib.models`.
    """
    if type(model).__name__ not in MODELS:
        raise TypeError(f"model must be one of {sorted(MODELS)}, got {type(model).__name__}")
    told = {"task": about.task, "metric": about.metric, "command": about.command}
    metadata = dict(zip(_PARTS, (type(model).__name__, json.dumps(model.settings), json.dumps(told)), strict=True))
    tensors = {name: value.detach().to("cpu", torch.float16).contiguous() for name, value in model.state_dict().items()}
    save_file(tensors, str(path), metadata)
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def read(path: str | Path) -> Model:
    """The model in a file that `write` has written, in evaluation mode.

    Raises:
        ValueError: the file is missing, is not `safetensors`, or does not hold one of `mhalib.models`.
    """
    header = _read_header(path)
    try:
        model: Model = MODELS[header["model"]](**header["settings"])
        with safe_open(str(path), "pt") as file:
            model.load_state_dict({name: file.get_tensor(name).float() for name in file.keys()})  # noqa: SIM118
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"path={str(path)!r} does not hold a model of this package: {error}") from error
    return model.eval()


def _path(name: str) -> Path:
    return FOLDER / f"{name}.safetensors"


def _read_header(path: str | Path) -> dict[str, Any]:
    if not Path(path).is_file():
        raise ValueError(f"path={str(path)!r} is not a file")
    try:
        with safe_open(str(path), "pt") as file:
            metadata = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise ValueError(f"path={str(path)!r} is not a safetensors file: {error}") from error
    missing = [part for part in _PARTS if part not in metadata]
    if missing:
        raise ValueError(f"path={str(path)!r} was not written by mhalib.saved: it does not tell its {missing}")
    try:
        return {"model": metadata["model"], **{part: json.loads(metadata[part]) for part in _PARTS[1:]}}
    except json.JSONDecodeError as error:
        raise ValueError(f"path={str(path)!r} has a damaged header: {error}") from error
