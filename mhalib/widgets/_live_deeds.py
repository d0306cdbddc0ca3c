"""Deeds on a stored model as `LiveModel` keeps them: checked, and done in Python.

They are plain data, so that a link can hold them: {"encoder self 1 2": {"off": True}, "positions": False}. What another
run did is named by that run's input. Of a layer whose heads talk, single cells of its two matrices are named:
{"decoder self 1": {"scores": {"0 3": 0.5}}} lets half of head 0's scores go to head 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from ..measures import (
    Head,
    frozen,
    heads_of,
    layers_of,
    mixed,
    patched,
    rows,
    switched_off,
    without_future,
    without_positions,
)
from ..variants import TalkingHeads
from ._live_tasks import Run, Task

OF_ALL = ("positions", "future")
"""What may be taken from the whole model."""
OF_A_HEAD = ("off", "rows", "frozen", "patch")
SMALLEST_SUM = 1e-9  # as in mhalib.measures.deeds
MATRICES = {"scores": "P_scores", "weights": "P_weights"}
"""Of talking heads, by what they mix."""
LARGEST_CELL = 1e3


def checked(task: Task, deeds: object) -> dict[str, Any]:
    """The deeds, if the model has these heads and reads these inputs.

    Raises:
        TypeError, ValueError: it has not, with the name and the value.
    """
    if not isinstance(deeds, Mapping):
        raise TypeError(f"deeds must be a mapping, got {type(deeds).__name__}: {deeds!r:.80}")
    names = [" ".join(map(str, head)) for head in heads_of(task.model)]
    talking = talking_layers(task)
    for name, deed in deeds.items():
        if name in OF_ALL:
            if deed is not False:
                raise ValueError(f"deeds[{name!r}]={deed!r:.80} must be False, or left out")
            if name == "future" and not has_encoder(task):
                raise ValueError(f"deeds has 'future', but the {task.name} has no encoder")
        elif name in talking:
            _require_cells(f"deeds[{name!r}]", deed, talking[name].num_heads)
        elif name not in names:
            raise ValueError(f"deeds names {name!r:.80}, but the heads are {names[0]!r} to {names[-1]!r}")
        else:
            _require_deed(task, f"deeds[{name!r}]", deed)
    return {name: dict(deed) if isinstance(deed, Mapping) else deed for name, deed in deeds.items()}


def has_encoder(task: Task) -> bool:
    """Whether the model has an encoder, whose words see the future."""
    return "encoder self" in layers_of(task.model)


def talking_layers(task: Task) -> dict[str, TalkingHeads]:
    """The layers whose heads talk, by name, such as "decoder self 1"."""
    return {
        f"{kind} {number}": layer
        for kind, layers in layers_of(task.model).items()
        for number, layer in enumerate(layers)
        if isinstance(layer, TalkingHeads)
    }


def _require_cells(name: str, deed: object, num_heads: int) -> None:
    """Raise unless it has cells of the two matrices of a layer with so many heads."""
    if not isinstance(deed, Mapping):
        raise TypeError(f"{name} must be a mapping, got {type(deed).__name__}: {deed!r:.80}")
    known = {f"{n} {m}" for n in range(num_heads) for m in range(num_heads)}
    for key, cells in deed.items():
        if key not in MATRICES:
            raise ValueError(f"{name} has {key!r:.80}, but known are {', '.join(MATRICES)}")
        if not isinstance(cells, Mapping):
            raise TypeError(f"{name}[{key!r}] must be a mapping, got {type(cells).__name__}: {cells!r:.80}")
        for cell, value in cells.items():
            if cell not in known:
                raise ValueError(f"{name}[{key!r}] has {cell!r:.80}, but its cells are '0 0' to {max(known)!r}")
            if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= LARGEST_CELL:
                raise ValueError(f"{name}[{key!r}][{cell!r}]={value!r:.80} must be a number from -1000 to 1000")


def _require_deed(task: Task, name: str, deed: object) -> None:
    if not isinstance(deed, Mapping):
        raise TypeError(f"{name} must be a mapping, got {type(deed).__name__}: {deed!r:.80}")
    for key, value in deed.items():
        if key not in OF_A_HEAD:
            raise ValueError(f"{name} has {key!r:.80}, but known are {', '.join(OF_A_HEAD)}")
        if key == "off":
            known = ("mean",) if task.means else ()
            if value is not True and value not in known:
                raise ValueError(f"{name}['off']={value!r:.80} must be {' or '.join(map(repr, (True, *known)))}")
        elif key == "rows":
            _require_rows(task, f"{name}['rows']", value)
        else:
            try:
                task.units(value)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{name}[{key!r}]: {error}") from None


def _require_rows(task: Task, name: str, given: object) -> None:
    if not isinstance(given, Mapping):
        raise TypeError(f"{name} must be a mapping, got {type(given).__name__}: {given!r:.80}")
    for query, row in given.items():
        if not (isinstance(query, str) and query.isascii() and query.isdigit() and len(query) < 4):
            raise ValueError(f"{name} has {query!r:.80}, which is no query: write '0' for the first")
        if not isinstance(row, list | tuple) or not 1 <= len(row) <= 64:
            raise ValueError(f"{name}[{query!r}]={row!r:.80} must be a list of 1 to 64 weights")
        numbers = [x for x in row if isinstance(x, int | float) and not isinstance(x, bool)]
        if len(numbers) < len(row) or not all(0 <= x <= 1e6 for x in numbers) or not math.fsum(numbers):
            raise ValueError(f"{name}[{query!r}]={row!r:.80} must hold numbers from 0 to 1e6, and not only 0")


@contextmanager
def applied(task: Task, deeds: Mapping[str, Any], units: list[str]) -> Iterator[None]:
    """Inside, the model of the task runs under the deeds, with this input."""
    of_heads = {_head(name): deed for name, deed in head_deeds(task, deeds).items()}
    off = [head for head, deed in of_heads.items() if deed.get("off") is True]
    means = [head for head, deed in of_heads.items() if deed.get("off") == "mean"]
    others = _other_runs(task, of_heads)
    with ExitStack() as stack:
        if deeds.get("positions") is False:
            stack.enter_context(without_positions(task.model))
        if deeds.get("future") is False:
            stack.enter_context(without_future(task.model))
        stack.enter_context(mixed(task.model, _matrices(task, deeds)))
        for text, run in others.items():
            by_deed = {
                key: [head for head, deed in of_heads.items() if deed.get(key) == text] for key in ("frozen", "patch")
            }
            stack.enter_context(frozen(task.model, run.weights, by_deed["frozen"]))
            stack.enter_context(patched(task.model, run.outputs, by_deed["patch"]))
        stack.enter_context(rows(task.model, _reachable(task, of_heads, units, deeds.get("future") is not False)))
        if means:
            stack.enter_context(switched_off(task.model, means, task.means))
        stack.enter_context(switched_off(task.model, off))
        yield


def head_deeds(task: Task, deeds: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are done to single heads."""
    others = {*OF_ALL, *talking_layers(task)}
    return {name: deed for name, deed in deeds.items() if name not in others}


def mixing_deeds(task: Task, deeds: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are done to what the heads of a layer say to each other."""
    return {name: deed for name, deed in deeds.items() if name in talking_layers(task)}


def _matrices(task: Task, deeds: Mapping[str, Any]) -> dict[tuple[str, int], dict[str, Tensor]]:
    """The matrices of layers with cells that were moved, as `mixed` takes them."""
    found: dict[tuple[str, int], dict[str, Tensor]] = {}
    layers = talking_layers(task)
    for name, deed in mixing_deeds(task, deeds).items():
        kind, number = name.rsplit(" ", 1)
        of_layer = found.setdefault((kind, int(number)), {})
        for key, cells in deed.items():
            of_layer[key] = getattr(layers[name], MATRICES[key]).detach().clone()
            for cell, value in cells.items():
                n, m = map(int, cell.split())
                of_layer[key][n, m] = value
    return found


def _head(name: str) -> Head:
    kind, layer, head = name.rsplit(" ", 2)
    return Head(kind, int(layer), int(head))


def _other_runs(task: Task, of_heads: Mapping[Head, Mapping[str, Any]]) -> dict[str, Run]:
    """The plain runs of the inputs that deeds name."""
    texts = {deed[key] for deed in of_heads.values() for key in ("frozen", "patch") if key in deed}
    return {text: task.run(task.units(text)) for text in sorted(texts)}


def _reachable(
    task: Task, of_heads: Mapping[Head, Mapping[str, Any]], units: list[str], has_future: bool
) -> dict[Head, dict[int, Tensor]]:
    """The rows that have a weight on a key that their query may see; others wait for a longer input, as in a page."""
    found: dict[Head, dict[int, Tensor]] = {}
    for head, deed in of_heads.items():
        for query, row in deed.get("rows", {}).items():
            num_seen = task.keys_of(head.kind, units, int(query))
            if head.kind == "encoder self" and not has_future:
                num_seen = min(num_seen, int(query) + 1)
            if sum(row[:num_seen]) > SMALLEST_SUM:
                found.setdefault(head, {})[int(query)] = torch.tensor(row, dtype=torch.float64)
    return found
