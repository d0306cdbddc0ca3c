"""One model at several moments of its training, in one small file.

Each moment's matrices are whole numbers from -127 to 127, of one byte, times a float16 for each row; vectors are
float16. `load` gives the very numbers that a page computes with.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from ._validate import as_path, require_count, require_kind
from ._write import write_whole
from .models import MODELS, Model
from .saved import FOLDER as WEIGHTS
from .saved import KEY

FOLDER = WEIGHTS / "moments"
"""Where the moments are that come with the package."""
SCALE = ".scale"
"""What the name of a matrix's scales ends in: (moments, rows, 1)."""


SMALLEST = 1e-6
"""No scale is below this, so that a row of zeros is one of zeros again."""


def names() -> list[str]:
    """The trainings that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.safetensors"))


def write(moments: Mapping[int, Model], path: str | Path) -> None:
    """Write one model's moments to one file, in one piece.

    Args:
        moments: for each number of training steps, the model as it was then. All are of one class with the same
            settings.
        path: of the file, which is replaced if it exists.

    Raises:
        TypeError: a key is no whole number, or what it stands for is no model.
        ValueError: there is no moment, or two differ in class or settings.
    """
    path = as_path("path", path)
    for step, model in moments.items():
        require_count("each step", step, minimum=0)
        require_kind(f"moments[{step}]", model, Model)
    if not moments:
        raise ValueError(f"moments={dict(moments)} must have at least one")
    told = {step: {"model": type(model).__name__, "settings": model.settings} for step, model in moments.items()}
    first = min(moments)
    if odd := [step for step in moments if told[step] != told[first]]:
        raise ValueError(f"moments[{odd[0]}] has not the class and settings of moments[{first}]: {told[odd[0]]}")
    steps = sorted(moments)
    states = [moments[step].state_dict() for step in steps]
    tensors: dict[str, Tensor] = {}
    for name in states[0]:
        value = torch.stack([state[name].detach().to("cpu", torch.float32) for state in states])
        tensors |= _packed(name, value)
    write_whole(path, save(tensors, {KEY: json.dumps({**told[first], "steps": steps})}))


def load(name: str) -> dict[int, Model]:
    """The moments of a training: for each number of training steps the model, in evaluation mode.

    Raises:
        ValueError: there is none of this name.

    >>> moments = load("repeater")
    >>> list(moments)[0], type(moments[0]).__name__
    (0, 'GPT')
    """
    if not isinstance(name, str) or name not in names():
        raise ValueError(f"name={name!r:.80} must be one of {names()}")
    with safe_open(str(FOLDER / f"{name}.safetensors"), "pt") as file:
        told = json.loads(file.metadata()[KEY])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    values = {key: _unpacked(key, tensors) for key in tensors if not key.endswith(SCALE)}
    models: dict[int, Model] = {step: MODELS[told["model"]](**told["settings"]).eval() for step in told["steps"]}
    for i, model in enumerate(models.values()):
        model.load_state_dict({key: value[i] for key, value in values.items()})
    return models


def _packed(name: str, value: Tensor) -> dict[str, Tensor]:
    """What stands in the file for a tensor (moments, ...): float16 for vectors, bytes and scales for matrices."""
    if value.dim() < 3:
        return {name: value.to(torch.float16)}
    scale = (value.abs().amax(-1, keepdim=True) / 127).clamp(min=SMALLEST).to(torch.float16)
    whole = (value / scale.to(torch.float32)).round().clamp(-127, 127)
    return {name: whole.to(torch.int8), name + SCALE: scale}


def _unpacked(name: str, tensors: Mapping[str, Tensor]) -> Tensor:
    """The float32 numbers (moments, ...) that `_packed` has stored."""
    stored = tensors[name].to(torch.float32)
    return stored * tensors[name + SCALE].to(torch.float32) if name + SCALE in tensors else stored
