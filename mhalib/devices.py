"""The one place where the book chooses where to compute."""

from __future__ import annotations

import os

import torch


def best_device() -> torch.device:
    """A CUDA GPU where there is one, else the CPU.

    The environment variable `MHALIB_DEVICE` overrides the choice (`cpu`, `cuda`, `cuda:1`); a name that torch
    does not know, or a GPU that is not there, raises `ValueError`.
    """
    name = os.environ.get("MHALIB_DEVICE", "")
    if not name:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"MHALIB_DEVICE={name!r} cannot be used here: {reason}") from error
    return torch.device(name)
