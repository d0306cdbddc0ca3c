"""An exercise on reading ledgers: they are taken of real layers, right and wrong, when it is checked. Chapter 5."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from ..attention import merge_heads, split_heads
from ..shapes import ledger
from ._exercise import Case, Exercise, Mistake, draw, sizes
from .layer import straight_merge, straight_split

Steps = list[tuple[str, list[str]]]


def _layer(
    num_heads: int,
    split: Callable[[Tensor, int], Tensor] = split_heads,
    merge: Callable[[Tensor], Tensor] = merge_heads,
    over: int = -1,
) -> Callable[..., Tensor]:
    def layer(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        q, k, v = (split(x, num_heads) for x in (queries, keys, values))
        return merge((q @ k.mT / math.sqrt(q.shape[-1])).softmax(over) @ v)

    return layer


def _ledgers(rng: random.Random) -> Iterator[Case]:
    right: dict[str, Any] = {}
    wrong: list[dict[str, Any]] = [
        {"split": straight_split},
        {"over": -2},
        {"merge": straight_merge},
        {"merge": straight_merge, "over": -2},
        {"split": straight_split, "merge": straight_merge, "over": -2},
    ]
    for changed in (right, *rng.sample(wrong, len(wrong))):
        batch_size, num_queries, num_kvpairs, num_heads, head_dim = sizes(rng, 5, largest=9)
        if changed == {"merge": straight_merge}:  # with these sizes it cuts axes, and mixes none
            batch_size, num_queries, num_kvpairs, num_heads, head_dim = 3, 8, 5, 4, 7
        width = num_heads * head_dim
        lengths = (num_queries, num_kvpairs, num_kvpairs)
        layer = _layer(num_heads, **changed)
        taken = ledger(layer, *(draw(rng, batch_size, n, width) for n in lengths), num_heads=num_heads)
        yield {"steps": [(step.operation, list(step.axes)) for step in taken]}


def _numbers(steps: Steps, wrong: Callable[[str, list[str]], bool]) -> list[int]:
    return [number for number, (operation, axes) in enumerate(steps) if wrong(operation, axes)]


def _mixed(operation: str, axes: list[str]) -> bool:
    return any("~" in axis for axis in axes)


def _mixed_or_cut(operation: str, axes: list[str]) -> bool:
    return any("~" in axis or ":" in axis for axis in axes)


def _wrong_softmax(operation: str, axes: list[str]) -> bool:
    return operation.startswith("softmax over ") and operation != "softmax over K"


def _all_wrong(steps: Steps) -> list[int]:
    return _numbers(steps, lambda *step: _mixed_or_cut(*step) or _wrong_softmax(*step))


def _first_wrong(steps: Steps) -> int:
    return (_all_wrong(steps) or [-1])[0]


first_wrong_step = Exercise(
    "first_wrong_step",
    chapter=5,
    title="read a ledger: the first step that went wrong",
    reference=_first_wrong,
    cases=_ledgers,
    verified="the ledgers of one right layer and five wrong ones, taken just now.",
    points=2,
    mistakes=[
        Mistake(
            "axes only",
            "you look at the axes only. A softmax over another axis than K mixes nothing, and is wrong too.",
            lambda steps: (_numbers(steps, _mixed_or_cut) or [-1])[0],
        ),
        Mistake(
            "cuts overlooked",
            "you found the mixed axes, N~D, but not those that were cut: Q:2 is a piece of Q, and a right layer "
            "leaves no axis in pieces.",
            lambda steps: (_numbers(steps, lambda *step: _mixed(*step) or _wrong_softmax(*step)) or [-1])[0],
        ),
        Mistake(
            "softmax only",
            "you look at the softmax only. An axis like N~D says that a reshape cut across N and D.",
            lambda steps: (_numbers(steps, _wrong_softmax) or [-1])[0],
        ),
        Mistake(
            "the last one",
            "this is the LAST step with something wrong. A mixed axis stays mixed: the step that did it is the first.",
            lambda steps: (_all_wrong(steps) or [-1])[-1],
        ),
        Mistake(
            "counted from 1",
            "you count from 1. A ledger counts its steps from 0.",
            lambda steps: _first_wrong(steps) + (_first_wrong(steps) >= 0),
        ),
        Mistake(
            "the number of wrong steps",
            "you counted the steps that show something wrong. Which is the first?",
            lambda steps: len(_all_wrong(steps)) or -1,
        ),
        Mistake(
            "0 for a right layer",
            "a layer with nothing wrong gets -1. Step 0 is a step.",
            lambda steps: max(_first_wrong(steps), 0),
        ),
    ],
)
