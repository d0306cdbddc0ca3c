"""From operations to steps: one call in the code, such as a linear layer, is several operations of torch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from .axis_rules import is_fused
from .ledger import Step

Source = str | int  # the name of an argument or a weight, or the number of the operation that made a tensor

SILENT = {"detach", "alias", "lift_fresh", "_local_scalar_dense"}  # no memory, no numbers
PLUMBING = {"view", "_unsafe_view", "_reshape_alias", "t", "transpose", "permute", "expand", "unsqueeze", "squeeze"}
PLUMBING |= {"clone"}
DIVIDES = {"split", "split_with_sizes", "unbind"}  # into several results
TITLES = {
    "mm": "matmul",
    "bmm": "matmul",
    "addmm": "matmul, add",
    "baddbmm": "matmul, add",
    "t": "transpose",
    "_unsafe_view": "view",
    "_reshape_alias": "view",
    "clone": "copy",
    "copy_": "copy",
    "_to_copy": "convert",
    "native_dropout": "dropout",
    "split_with_sizes": "split",
}


@dataclass(frozen=True)
class Operation:
    """One operation of torch, as the recorder saw it."""

    name: str
    over: str
    reads: list[Source | None]
    parts_read: list[int | None]  # which of several results, such as those of a split
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    strides: tuple[int, ...]
    in_place: bool
    parts: int
    bytes: int
    flops: int
    moved: int
    memory_of: Source | None
    pairs: list[str] = field(repr=False)
    site: int
    code: str

    @property
    def is_plumbing(self) -> bool:
        return self.name in PLUMBING

    @property
    def title(self) -> str:
        if is_fused(self.name):
            return "fused attention"
        name = TITLES.get(self.name, self.name.strip("_"))
        name += f" over {self.over}" if self.over else ""
        name += ", in place" if self.in_place else ""
        return f"{name} into {self.parts}" if name in ("split", "unbind") else name


def group(
    operations: Sequence[Operation], weights: Collection[Source | None]
) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """Steps, and notes on axes that meet although they are not the same."""
    groups = _grouped(operations)
    number = {i: step for step, members in enumerate(groups) for i in members}

    def say(source: Source | None, part: int | None = None) -> str:
        name = "?" if source is None else source if isinstance(source, str) else str(number[source])
        return name if part is None else f"{name}[{part}]"

    steps, notes = [], dict[str, None]()
    for step, members in enumerate(groups):
        parts = [operations[i] for i in members]
        last = parts[-1]
        read = [pair for part in parts for pair in zip(part.reads, part.parts_read, strict=True)]
        outside = [(source, part) for source, part in read if source not in members]
        outside.sort(key=lambda pair: pair[0] in weights)
        steps.append(
            Step(
                operation=_title(parts, any(source in weights for source, _ in outside)),
                reads=tuple(dict.fromkeys(say(*pair) for pair in outside)),
                shape=last.shape,
                axes=last.axes,
                strides=last.strides,
                memory=_memory(parts, members, say(last.memory_of)),
                bytes=sum(part.bytes for part in parts),
                code=last.code,
                flops=sum(part.flops for part in parts),
                moved=sum(part.moved for part in parts),
            )
        )
        if "?" in steps[-1].reads:
            notes[f"step {step} reads a tensor that no step made: a constant, or the work of another library"] = None
        notes |= {f"step {step} ({steps[-1].operation}) pairs {pair}": None for part in parts for pair in part.pairs}
    return tuple(steps), tuple(notes)


def _grouped(operations: Sequence[Operation]) -> list[list[int]]:
    """Numbers of operations, those of one call together: plumbing, at most one that computes, plumbing."""
    groups: list[list[int]] = []
    for i, operation in enumerate(operations):
        joins = [g for g in _same_call(groups, operations, i) if set(g) & set(operation.reads)]
        if not joins:
            groups.append([i])
            continue
        groups = [g for g in groups if g not in joins]
        groups.append(sorted([i, *(j for g in joins for j in g)]))
    return groups


def _same_call(groups: list[list[int]], operations: Sequence[Operation], i: int) -> list[list[int]]:
    """The last groups that come from the same place in the code as operation i and may still take it in."""
    result = []
    for g in reversed(groups):
        if operations[g[-1]].site != operations[i].site:
            break
        if operations[i].is_plumbing or all(operations[j].is_plumbing for j in g):
            result.append(g)
    return result


def _title(parts: Sequence[Operation], reads_weight: bool) -> str:
    computing = [part for part in parts if not part.is_plumbing]
    if computing:
        return "linear" if reads_weight and computing[0].name in ("mm", "addmm") else computing[0].title
    titles = list(dict.fromkeys(part.title for part in parts))
    if "copy" in titles and len(titles) > 1:
        return "expand, copy" if "expand" in titles else "reshape" if "view" in titles else "copy"
    return "view" if "view" in titles else titles[-1]


def _memory(parts: Sequence[Operation], members: Sequence[int], owner: str) -> str:
    last = parts[-1]
    copies = any(part.name == "clone" for part in parts)
    if last.memory_of is not None and last.memory_of not in members:
        return f"in {owner}" if last.in_place else f"view of {owner}"
    if all(part.is_plumbing for part in parts):
        return "copy"
    return "new, after a copy" if copies else "new"
