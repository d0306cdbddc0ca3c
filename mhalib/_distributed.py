"""Data parallel training: what processes that train one model tell each other, and how they save it together."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import signal
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from . import _plain
from .devices import best_device
from .processes import rank, start

OWN = "own.safetensors"
"""What the first process alone holds, in a folder."""
_LOST = re.compile(r"gloo|nccl|connection (closed|reset)|broken pipe|socket", re.IGNORECASE)


def average(tensors: Sequence[Tensor]) -> None:
    """Replace the tensors by their means over all processes. They have one type and one device."""
    flat = torch.cat([x.detach().flatten() for x in tensors])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for x, mean in zip(tensors, flat.split([x.numel() for x in tensors]), strict=True):
        x.detach().copy_(mean.view_as(x))


def average_gradients(model: nn.Module) -> None:
    """Make the gradients those of the mean loss of all processes, a loss with as many rows everywhere.

    Gradients of a DTensor are left alone: whoever split the parameter, as `fully_shard` does, also sums them. One that
    no process has stays `None`.
    """
    groups: dict[tuple[torch.dtype, torch.device], list[nn.Parameter]] = {}
    for part in model.parameters():
        if part.requires_grad and not is_split(part):
            groups.setdefault((part.dtype, part.device), []).append(part)
    for parts in groups.values():
        used = parts[0].new_tensor([part.grad is not None for part in parts])
        for part in parts:
            part.grad = torch.zeros_like(part) if part.grad is None else part.grad
        average([used, *(part.grad for part in parts if part.grad is not None)])
        for part, one in zip(parts, used.tolist(), strict=True):
            part.grad = part.grad if one else None


def is_split(x: Tensor) -> bool:
    """Whether a process holds only a part of `x`: it is a DTensor."""
    from torch.distributed.tensor import DTensor

    return isinstance(x, DTensor)


@torch.no_grad()
def follow_first(model: nn.Module) -> None:
    """Give every process the parameters and buffers of process 0, where each has them whole."""
    for part in [*model.parameters(), *model.buffers()]:
        if not is_split(part):
            dist.broadcast(part.detach(), src=0)


def of_first(value: float) -> float:
    """The number that process 0 has."""
    held = torch.tensor([value], dtype=torch.float64, device=best_device())
    dist.broadcast(held, src=0)
    return float(held)


@contextmanager
def in_touch() -> Iterator[None]:
    """Say in plain words that another process has ended: ConnectionError.

    It is seen where the processes meet, or `torchrun` sees it first, and tells the others to end, too.
    """
    many = start()
    if many == 1 or threading.current_thread() is not threading.main_thread():
        yield
        return
    message = (
        f"process {rank()} of {many} stops: another one has ended, and it cannot go on alone. Start them all again "
        "with the same command; with checkpoint= training goes on from where it was last saved"
    )

    def told_to_end(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # so that there is time to say why
        raise ConnectionError(message)

    before = signal.signal(signal.SIGTERM, told_to_end)
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or _LOST.search(str(error)):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            raise ConnectionError(message) from error
        raise
    finally:
        if signal.getsignal(signal.SIGTERM) is told_to_end:
            signal.signal(signal.SIGTERM, before)


def save_folder(path: Path, together: dict[str, Any], own: dict[str, Any]) -> None:
    """Save `together`, of which each process holds a part, and what process 0 holds of `own`, in one folder.

    It is written beside `path` and moved there. The parts are those of `torch.distributed.checkpoint`.
    """
    from torch.distributed.checkpoint.state_dict_saver import save

    many, mine, new = start(), rank(), beside(path)
    if mine == 0:
        shutil.rmtree(new, ignore_errors=True)
    _wait()
    with _not_told_that_alone():
        save(together, checkpoint_id=new, no_dist=many == 1)
    if mine == 0:
        (new / OWN).write_bytes(_plain.packed(own))
        old = beside(path, ".old")
        if path.exists():
            os.replace(path, old)
        os.replace(new, path)
        remove(old)
    _wait()


def settle(path: Path) -> None:
    """Finish what a process was doing that ended inside `save_folder`."""
    new, old = beside(path), beside(path, ".old")
    if rank() == 0:
        if not path.exists() and (new / OWN).exists():
            os.replace(new, path)
        if not path.exists() and old.exists():
            os.replace(old, path)
        remove(old)
        if new.is_dir():
            remove(new)
    _wait()


def load_folder(path: Path, together: dict[str, Any]) -> None:
    """Fill `together` from a folder of `save_folder`, whatever number of processes saved it.

    Torch reads pickles in such a folder, which could run a stranger's code. So what they name is looked at before.

    Raises:
        ValueError: they name more than numbers need, or the folder is damaged. What was filled until then stays.
    """
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
    from torch.distributed.checkpoint.state_dict_loader import load

    class Plain(DefaultLoadPlanner):
        def load_bytes(self, read_item: Any, value: Any) -> None:
            torch.load(value, weights_only=True)
            value.seek(0)
            super().load_bytes(read_item, value)

    text = f"checkpoint={str(path)!r} is damaged, or was not saved by mhalib.train.fit: nothing in it was executed"
    try:
        for described in path.glob("*.metadata"):
            with described.open("rb") as file:
                _Described(file).load()
    except Exception as error:  # a pickle may raise anything
        raise ValueError(text) from error
    try:
        with _not_told_that_alone():
            load(together, checkpoint_id=path, planner=Plain(), no_dist=start() == 1)
    except CheckpointException as error:
        raise ValueError(text) from error


class _Described(pickle.Unpickler):
    """Reads what torch writes of a folder's tensors, and refuses all other names."""

    own = "torch.distributed.checkpoint"
    names: ClassVar = {
        **dict.fromkeys(
            ("PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath"), ("pathlib", "pathlib._local")
        ),
        "_StorageInfo": (f"{own}.filesystem",),
        "_get_layout": ("torch.serialization",),
        "OrderedDict": ("collections",),
        "Size": ("torch",),
    }

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name) if module in (f"{self.own}.metadata", "torch") else None
        is_plain = isinstance(found, torch.dtype) or (isinstance(found, type) and found.__module__ == module != "torch")
        if is_plain or module in self.names.get(name, ()):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a checkpoint")


def beside(path: Path, end: str = ".part") -> Path:
    """Where what will be `path` is written first, or with ".old" where what it replaces is put."""
    return path.with_name(path.name + end)


def remove(path: Path) -> None:
    """A file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _not_told_that_alone() -> Iterator[None]:
    """Without torch's warning that one process saves or loads by itself, which is what is wanted."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is (disabled|unavailable)")
        yield


def _wait() -> None:
    if start() > 1:
        dist.barrier()
