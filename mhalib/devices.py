"""The one place where the book chooses where to compute."""

from __future__ import annotations

import os

import torch

from ._validate import require_device


def best_device() -> torch.device:
    """A CUDA GPU where there is one, else the CPU.

    Under `torchrun` each process of a machine takes the GPU of its own number, `LOCAL_RANK`; `ValueError` if there
    are fewer.

    The environment variable `MHALIB_DEVICE` overrides the choice (`cpu`, `cuda`, `cuda:1`, `mps`); a name that torch
    does not know, or a GPU that is not there, raises `ValueError`.

    An Apple GPU, `mps`, is used only if you ask for it. It has no float64, in which chapters compare two ways to
    compute the same and `mhalib.measures` adds: on tensors there, these raise torch's `TypeError`, so move them by
    `.cpu()` first. Layers, models, training and decoding need float32 only. Nobody has yet compared the numbers of
    the pages with those of an Apple GPU.
    """
    name = os.environ.get("MHALIB_DEVICE", "")
    if not name:
        if not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device(f"cuda:{_own_gpu()}" if "LOCAL_RANK" in os.environ else "cuda")
    require_device("MHALIB_DEVICE", name)
    return torch.device(name)


def _own_gpu() -> int:
    """The GPU of one of several processes."""
    number, count = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if number >= count:
        raise ValueError(
            f"LOCAL_RANK={number}, but there are {count} GPUs here: start at most {count} processes, "
            "or set MHALIB_DEVICE=cpu"
        )
    return number
