"""One short training loop for the small models of the book."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from tqdm import tqdm

from ._validate import require_count


@dataclass
class History:
    """What happened in training.

    losses: (steps,) on the CPU.
    goals: (step, value) wherever `goal` was asked, in order.
    reached: whether `goal` stopped the training.
    """

    losses: Tensor
    goals: list[tuple[int, float]] = field(default_factory=list)
    reached: bool = False

    def __len__(self) -> int:
        return len(self.losses)


def fit(
    model: nn.Module,
    loss: Callable[[], Tensor],
    steps: int = 400,
    largest_rate: float = 0.02,
    *,
    warm_up: float = 0.3,
    weight_decay: float = 0.01,
    clip: float | None = None,
    seed: int | None = None,
    goal: Callable[[], float] | None = None,
    enough: float = 1.0,
    goal_every: int = 100,
    mixed_precision: bool = False,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 100,
    progress: bool = False,
) -> History:
    """Train `model` in place and leave it in evaluation mode.

    AdamW, with a learning rate that rises to `largest_rate` over the first part of the steps and falls after it.

    Args:
        model: whose parameters are trained.
        loss: draws a batch, applies the model to it and returns a loss without axes.
        steps: how often that is done.
        largest_rate: the highest learning rate.
        warm_up: the part of the steps in which the rate rises.
        weight_decay: of AdamW.
        clip: the largest norm of the gradient of all parameters together; `None` leaves it alone.
        seed: what torch's chance starts from; `None` leaves it as it is. Chance that `loss` takes from elsewhere is its
            own, and a checkpoint does not hold it.
        goal: measures the model in evaluation mode, higher is better; training stops once it is `enough`.
        enough: see `goal`.
        goal_every: how many steps lie between two measurements; the last step is measured too.
        mixed_precision: compute in bfloat16 where the device has it (a GPU from Ampere on); elsewhere, as always.
        checkpoint: a file to go on from if it is there, and to save to. It is replaced in one piece, so that an
            interrupted run leaves a valid one; it is removed when training is done.
        checkpoint_every: how many steps lie between two savings.
        progress: show a bar.

    Returns:
        the losses, and what `goal` measured.

    Raises:
        TypeError, ValueError: an argument is not of this kind, or the checkpoint is of another model or other steps.
        FloatingPointError: the loss is not finite.
    """
    _check_arguments(steps, largest_rate, warm_up, clip, goal_every, checkpoint_every)
    if seed is not None:
        torch.manual_seed(seed)
    run = _Run(model, steps, largest_rate, warm_up, weight_decay)
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None:
        run.load(path) if path.exists() else run.save(path)
    device = next(model.parameters()).device
    half = mixed_precision and device.type == "cuda" and torch.cuda.is_bf16_supported()
    history = run.history
    for step in tqdm(range(len(run.losses) + 1, steps + 1), disable=not progress, unit="step", mininterval=0.5):
        model.train()
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            value = loss()
        run.step(value, clip)
        model.eval()
        if goal is not None and (step % goal_every == 0 or step == steps):
            with torch.no_grad():
                history.goals.append((step, float(goal())))
            history.reached = history.goals[-1][1] >= enough
            if history.reached:
                break
        if path is not None and step % checkpoint_every == 0:
            run.save(path)
    if path is not None:
        path.unlink()
    history.losses = torch.stack(run.losses).cpu()
    return history


class _Run:
    """A training that is under way."""

    def __init__(self, model: nn.Module, steps: int, largest_rate: float, warm_up: float, weight_decay: float) -> None:
        self.model, self.steps = model, steps
        self.optimizer = torch.optim.AdamW(model.parameters(), weight_decay=weight_decay)
        self.rates = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, largest_rate, steps, pct_start=warm_up)
        self.losses: list[Tensor] = []
        self.history = History(torch.zeros(0))

    def step(self, loss: Tensor, clip: float | None) -> None:
        if not loss.isfinite():
            raise FloatingPointError(f"the loss of step {len(self.losses) + 1} is {loss.item()}: try a smaller rate")
        self.optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), clip)
        self.optimizer.step()
        self.rates.step()
        self.losses.append(loss.detach())

    def save(self, path: Path) -> None:
        """Written beside `path` and moved there, so that what stands at `path` is always whole."""
        held = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "rates": self.rates.state_dict(),
            "losses": torch.stack(self.losses).cpu() if self.losses else torch.zeros(0),
            "goals": self.history.goals,
            "steps": self.steps,
            "chance": torch.get_rng_state(),
            "chance_on_gpu": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }
        beside = path.with_name(path.name + ".part")
        torch.save(held, beside)
        os.replace(beside, path)

    def load(self, path: Path) -> None:
        try:
            held = torch.load(path, map_location="cpu", weights_only=True)
            if held["steps"] != self.steps:
                raise ValueError(f"it was made for steps={held['steps']}, not {self.steps}")
            self.model.load_state_dict(held["model"])
            self.optimizer.load_state_dict(held["optimizer"])
            self.rates.load_state_dict(held["rates"])
        except Exception as error:
            raise ValueError(f"checkpoint={str(path)!r} cannot be used: {error}") from error
        device = next(self.model.parameters()).device
        self.losses = list(held["losses"].to(device))
        self.history.goals = [(int(step), float(value)) for step, value in held["goals"]]
        torch.set_rng_state(held["chance"])
        if torch.cuda.is_available() and len(held["chance_on_gpu"]) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all(held["chance_on_gpu"])


def _check_arguments(
    steps: int, largest_rate: float, warm_up: float, clip: float | None, goal_every: int, checkpoint_every: int
) -> None:
    require_count("steps", steps)
    require_count("goal_every", goal_every)
    require_count("checkpoint_every", checkpoint_every)
    if not largest_rate > 0:
        raise ValueError(f"largest_rate={largest_rate} must be positive")
    if not 0 < warm_up < 1:
        raise ValueError(f"warm_up={warm_up} must lie between 0 and 1")
    if clip is not None and not clip > 0:
        raise ValueError(f"clip={clip} must be positive")
