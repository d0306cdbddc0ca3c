"""One short training loop for the small models of the book."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from tqdm import tqdm

from . import _distributed, processes
from ._renamed import told
from ._trainer import Run
from ._validate import (
    as_path,
    require_count,
    require_flag,
    require_function,
    require_kind,
    require_number,
    require_positive,
    require_seed,
)


@dataclass(eq=False)
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


@told
def fit(
    model: nn.Module,
    loss: Callable[[], Tensor],
    steps: int = 400,
    max_lr: float = 0.02,
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

    AdamW, with a learning rate that rises to `max_lr` over the first part of the steps and falls after it.

    Started by `torchrun`, all processes train one model: losses and gradients are means over the processes, parameters
    begin as those of process 0, and `goal` counts there. What a process draws is up to `loss`: with one seed all draw
    the same batch, and `mhalib.processes.share` takes a part of it for each. Then losses are those of one process with
    the whole batch, but for rounding, if a loss is the mean over its rows, and no row depends on others or on dropout.
    A model that is split before by `mhalib.parallel.split` or by torch's `fully_shard` stays split.

    Args:
        model: whose parameters are trained.
        loss: draws a batch, applies the model to it and returns a loss without axes.
        steps: how often that is done.
        max_lr: the highest learning rate.
        warm_up: the part of the steps in which the rate rises.
        weight_decay: of AdamW.
        clip: the largest norm of the gradient of all parameters together; `None` leaves it alone.
        seed: of torch's random numbers; `None` leaves them as they are. Those that `loss` draws from elsewhere are its
            own affair, and no checkpoint holds their state.
        goal: measures the model in evaluation mode, higher is better; training stops once it is `enough`.
        enough: see `goal`.
        goal_every: how many steps lie between two measurements; the last step is measured too.
        mixed_precision: compute in bfloat16 where the device has it (a GPU from Ampere on); elsewhere, as always.
        checkpoint: a file to go on from if it is there, and to save to. It is replaced in one piece, so that an
            interrupted run leaves a valid one; it is removed when training is done. The same call, made again, ends
            as if nothing had happened. With several processes it is a folder of `torch.distributed.checkpoint`, from
            which any number of processes, or one, may go on. Code that a stranger has put into either is not executed.
        checkpoint_every: how many steps lie between two savings.
        progress: show a bar on stderr.

    Returns:
        the losses, and what `goal` measured.

    Raises:
        TypeError, ValueError: an argument is not of this kind, or the checkpoint is damaged, of another model, or of a
            run with other arguments.
        FloatingPointError: the loss is not finite.
        ConnectionError: another process has ended.
    """
    _check_arguments(steps, max_lr, warm_up, weight_decay, clip, goal_every, checkpoint_every)
    require_kind("model", model, nn.Module)
    require_function("loss", loss)
    if not list(model.parameters()):
        raise ValueError(f"model has no parameters to train: {model!r:.80}")
    if goal is not None:
        require_function("goal", goal)
    if not isinstance(enough, float) or not math.isinf(enough):  # without end, it never stops
        require_number("enough", enough)
    require_flag("mixed_precision", mixed_precision)
    require_flag("progress", progress)
    if seed is not None:
        require_seed("seed", seed)
    path = None if checkpoint is None else as_path("checkpoint", checkpoint)
    if path is not None and not path.parent.is_dir():
        raise ValueError(f"checkpoint={str(path)!r} lies in a folder that does not exist")
    if seed is not None:
        torch.manual_seed(int(seed))
    settings = {
        "steps": int(steps),
        "max_lr": float(max_lr),
        "warm_up": float(warm_up),
        "weight_decay": float(weight_decay),
        "clip": None if clip is None else float(clip),
        "seed": None if seed is None else int(seed),
        "mixed_precision": bool(mixed_precision),
        "model.settings": getattr(model, "settings", None),
    }
    run = Run(model, settings)
    if path is not None:
        _distributed.settle(path)
        run.load(path) if path.exists() else run.begin(path)
    half = mixed_precision and _has_bfloat16(model)
    bar = tqdm(
        range(run.done + 1, steps + 1),
        initial=run.done,
        total=steps,
        disable=not progress or processes.rank() > 0,
        unit="step",
        mininterval=0.5,
    )
    try:
        with _distributed.in_touch():
            for step in bar:
                model.train()
                with torch.autocast("cuda", torch.bfloat16, enabled=half):
                    value = loss()
                run.step(value)
                if goal is not None and (step % goal_every == 0 or step == steps):
                    model.eval()
                    with torch.no_grad():
                        run.measure(step, float(goal()))
                    if run.goals[-1][1] >= enough:
                        break
                if path is not None and step % checkpoint_every == 0 and step < steps:
                    run.save(path)
    finally:
        model.eval()
    run.end(path)
    return History(run.all_losses(), run.goals, bool(run.goals) and run.goals[-1][1] >= enough)


def _has_bfloat16(model: nn.Module) -> bool:
    """Whether a parameter lies on a GPU that computes in bfloat16."""
    on_gpu = any(parameter.is_cuda for parameter in model.parameters())
    return on_gpu and torch.cuda.is_bf16_supported(including_emulation=False)


def _check_arguments(
    steps: int,
    max_lr: float,
    warm_up: float,
    weight_decay: float,
    clip: float | None,
    goal_every: int,
    checkpoint_every: int,
) -> None:
    require_count("steps", steps)
    require_count("goal_every", goal_every)
    require_count("checkpoint_every", checkpoint_every)
    require_positive("max_lr", max_lr)
    require_number("warm_up", warm_up)
    require_number("weight_decay", weight_decay)
    if clip is not None and not (isinstance(clip, float) and clip == math.inf):
        require_positive("clip", clip)
    if not 0 < warm_up < 1:
        raise ValueError(f"warm_up={warm_up} must lie between 0 and 1")
    if weight_decay < 0:
        raise ValueError(f"weight_decay={weight_decay} must not be negative")
