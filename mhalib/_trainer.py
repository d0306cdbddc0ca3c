"""A training that is under way: its steps, in one process or in several, and how it is saved and taken up again."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from . import _distributed, _plain, processes
from ._validate import require_tensor


class Run:
    """A training that is under way."""

    def __init__(self, model: nn.Module, settings: dict[str, Any]) -> None:
        self.model, self.settings, self.many = model, settings, processes.start()
        if self.many > 1:
            _distributed.follow_first(model)
        steps, rising = settings["steps"], settings["warm_up"]
        if rising * steps == 1:  # torch would divide by zero
            rising = math.nextafter(rising, 0)
        self.optimizer = torch.optim.AdamW(model.parameters(), weight_decay=settings["weight_decay"])
        self.rates = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, settings["max_lr"], steps, pct_start=rising)
        self.earlier_losses = torch.zeros(0)
        self.losses: list[Tensor] = []  # where they were computed: to fetch each one would stop a GPU
        self.goals: list[tuple[int, float]] = []

    @property
    def done(self) -> int:
        """How many steps."""
        return len(self.earlier_losses) + len(self.losses)

    def all_losses(self) -> Tensor:
        return torch.cat([self.earlier_losses, *(value.cpu()[None] for value in self.losses)])

    def step(self, loss: Tensor) -> None:
        require_tensor("the result of loss", loss, rank=0)
        mean = loss.detach()
        if self.many > 1:
            mean = mean.clone()
            _distributed.average([mean])
        if not mean.isfinite():
            raise FloatingPointError(f"the loss of step {self.done + 1} is {mean.item()}: try a smaller rate")
        self.optimizer.zero_grad()
        loss.backward()
        if self.many > 1:
            _distributed.average_gradients(self.model)
        if self.settings["clip"] is not None:
            _clip(self.model, self.settings["clip"])
        self.optimizer.step()
        self.rates.step()
        self.losses.append(mean)

    def measure(self, step: int, value: float) -> None:
        self.goals.append((step, _distributed.of_first(value) if self.many > 1 else value))

    def begin(self, path: Path) -> None:
        """Save what there is before the first step: one process finds out now whether it can."""
        if self.many == 1:
            self.save(path)

    def end(self, path: Path | None) -> None:
        if self.many > 1:
            _distributed.follow_first(self.model)  # running means are each process's own
        if path is not None and processes.rank() == 0:
            _distributed.remove(path)
            _distributed.remove(_distributed.beside(path))  # of a run that was stopped while it was saving

    def save(self, path: Path) -> None:
        """Written beside `path` and moved there, so that what stands at `path` is always whole."""
        if self.many > 1 or path.is_dir():
            shapes = _shapes(self.model.state_dict())
            _distributed.save_folder(path, self._split(), {**self._about(), "shapes": shapes})
            return
        with _distributed.beside(path).open("wb") as file:
            file.write(_plain.packed(self._whole()))
            file.flush()
            os.fsync(file.fileno())
        os.replace(_distributed.beside(path), path)

    def _split(self) -> dict[str, Any]:
        """What several processes may hold parts of, by names that do not depend on how many they are."""
        from torch.distributed.checkpoint.state_dict import get_state_dict

        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def _whole(self) -> dict[str, Any]:
        about = self._about()
        return {
            "settings": about.pop("settings"),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            **about,
        }

    def _about(self) -> dict[str, Any]:
        return {
            "settings": self.settings,
            "rates": self.rates.state_dict(),
            "losses": self.all_losses(),
            "goals": self.goals,
            "rng": torch.get_rng_state(),
            "rng_on_gpu": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }

    def load(self, path: Path) -> None:
        """Go on from where `save` was called; nothing is changed if that cannot be."""
        in_folder = path.is_dir()
        try:
            held = _plain.unpacked((path / _distributed.OWN if in_folder else path).read_bytes())
            was, shapes = held["settings"], held["shapes"] if in_folder else _shapes(held["model"])
        except Exception as error:
            text = f"checkpoint={str(path)!r} is damaged, or was not saved by mhalib.train.fit of this version"
            raise ValueError(text) from error
        other = [f"{name}={was.get(name)}, not {now}" for name, now in self.settings.items() if was.get(name) != now]
        if other:
            raise ValueError(f"checkpoint={str(path)!r} was made with {'; '.join(other)}")
        if shapes != _shapes(self.model.state_dict()):
            raise ValueError(f"checkpoint={str(path)!r} is of another model: its parameters are {shapes}")
        if in_folder:
            self._join(path)
        elif any(map(_distributed.is_split, self.model.parameters())):
            raise ValueError(f"checkpoint={str(path)!r} was saved by one process, but the model is split over several")
        else:
            self.model.load_state_dict(held["model"])
            self.optimizer.load_state_dict(held["optimizer"])
        self.rates.load_state_dict(held["rates"])
        self.earlier_losses = held["losses"]
        self.goals = [(int(step), float(value)) for step, value in held["goals"]]
        torch.set_rng_state(held["rng"])
        if torch.cuda.is_available() and len(held["rng_on_gpu"]) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all(held["rng_on_gpu"])

    def _join(self, folder: Path) -> None:
        """Take from a folder what this process holds of the model and of the optimizer's state."""
        from torch.distributed.checkpoint.state_dict import set_state_dict

        split = self._split()
        _distributed.load_folder(folder, split)
        set_state_dict(self.model, self.optimizer, model_state_dict=split["model"], optim_state_dict=split["optimizer"])


def _shapes(state: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in state.items()}


def _clip(model: nn.Module, largest: float) -> None:
    """As torch's `clip_grad_norm_`, which refuses parameters of which some are split and some are not."""
    if not any(map(_distributed.is_split, model.parameters())):
        nn.utils.clip_grad_norm_(model.parameters(), largest)
        return
    grads = [part.grad for part in model.parameters() if part.grad is not None]
    norms = [grad.norm() for grad in grads if not _distributed.is_split(grad)]
    norms += [grad.norm().full_tensor() for grad in grads if _distributed.is_split(grad)]  # type: ignore[operator]
    factor = (largest / (torch.stack(norms).norm() + 1e-6)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(float(factor))
