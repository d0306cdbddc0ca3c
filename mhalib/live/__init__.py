"""Trained models that run in a page: the engine in JavaScript, and what Python hands over to it.

`engine.js` runs `GPT`, `Transformer`, `ViT` and `SentenceReader` from the bytes that `mhalib.saved.write` has written,
and changes heads while they run: off, replaced by their mean, frozen, with rows of weights set, patched, without
positions. `deeds.js` says what each of these means.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from .._validate import require_kind
from ..measures import removed_heads
from ..models import Model

__all__ = ["described", "scripts"]

_FOLDER = Path(__file__).parent


def scripts() -> list[Path]:
    """The engine's modules, each after those that it imports."""
    return [_FOLDER / f"{name}.js" for name in ("tensors", "deeds", "attention", "settings", "embed", "engine")]


def described(model: Model) -> dict[str, Any]:
    """What the engine must know of a model besides its weights: {"model": its class, "settings": all its settings}.

    `model.settings` and files of weights leave out what is usual; these do not. They can be written as JSON.

    Args:
        model: one of `mhalib.models`. The engine refuses by name what it cannot run.

    Raises:
        TypeError: it is none.
        ValueError: heads were pruned from it.
    """
    require_kind("model", model, Model)
    if removed := removed_heads(model):
        raise ValueError(f"model has lost {len(removed)} of its heads, such as {tuple(removed[0])}")
    arguments = inspect.signature(type(model).__init__).parameters.values()
    usual = {each.name: each.default for each in arguments if each.default is not inspect.Parameter.empty}
    design = model.design.without(*model.fixed)
    return {"model": type(model).__name__, "settings": {**usual, **design, **model.settings}}
