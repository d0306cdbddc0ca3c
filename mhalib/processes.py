"""The processes that `torchrun` has started together: how many there are, which one this is, and its share of a batch.

A program that was started alone is one process, and everything here then does nothing. The work is done by
`torch.distributed`: gloo between CPUs, NCCL between GPUs.
"""

from __future__ import annotations

import atexit
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ._validate import require_tensor
from .devices import best_device


def start() -> int:
    """Join the other processes, unless that is done, and return how many there are together.

    Only `torchrun` starts several; each has a GPU of its own where there are GPUs, see `best_device`.
    """
    if not dist.is_available():
        return 1
    if not dist.is_initialized():
        if not dist.is_torchelastic_launched():
            return 1
        on_gpu = best_device().type == "cuda"
        if on_gpu:
            torch.cuda.set_device(best_device())
        dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo")
        atexit.register(_leave)
    return dist.get_world_size()


def rank() -> int:
    """The number of this process, from 0."""
    return dist.get_rank() if start() > 1 else 0


def share(*tensors: Tensor) -> Any:
    """This process's rows of a batch that all processes have drawn alike.

    Process r of G takes rows r B/G to (r + 1) B/G. The mean over the processes of the means of their shares is the
    mean of the batch, because the shares are equally long.

    Args:
        tensors: (B, ...) each, the same on all processes: drawn with the same seed.

    Returns:
        (B / G, ...) each; a tuple if there is more than one.

    Raises:
        TypeError: an argument is no tensor.
        ValueError: G does not divide B, or the tensors are not equally long.
    """
    if not tensors:
        raise TypeError("share needs at least one tensor")
    many, mine = start(), rank()
    for number, x in enumerate(tensors):
        require_tensor(f"tensors[{number}]", x)
        if not x.dim():
            raise ValueError(f"tensors[{number}] has shape (), but a batch has an axis of examples")
        if len(x) != len(tensors[0]):
            raise ValueError(f"tensors[{number}] has shape {tuple(x.shape)}, but tensors[0] {tuple(tensors[0].shape)}")
        if len(x) % many:
            raise ValueError(f"a batch of {len(x)} cannot be dealt out evenly to {many} processes")
    parts = tuple(x[mine * len(x) // many : (mine + 1) * len(x) // many] for x in tensors)
    return parts if len(parts) > 1 else parts[0]


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
