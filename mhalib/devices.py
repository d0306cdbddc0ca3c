"""The one place where the book chooses where to compute."""

from __future__ import annotations

import os

import torch

from ._validate import require_device


def best_device() -> torch.device:
    """A CUDA GPU where there is one, else the CPU.

    The environment variable `MHALIB_DEVICE` overrides the choice (`cpu`, `cuda`, `cuda:1`); a name that torch
    does not know, or a GPU that is not there, raises `ValueError`.
    """
    name = os.environ.get("MHALIB_DEVICE", "")
    if not name:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    require_device("MHALIB_DEVICE", name)
    return torch.device(name)
