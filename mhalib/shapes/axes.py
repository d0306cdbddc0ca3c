"""Names of axes, carried along by provenance: a name says where an axis comes from, not which size it has.

An axis is a tuple of factors. (B, h, N, d) folded to (B*h, N, d) has the factors B and h in its first axis; the
columns of (B, N, D) cut into h times d are two factors of D with different strides, which become D again only if they
come back in that order. A reshape that cuts across two axes gives factors of a mixture, written `N~D`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

MIXED = "~"
NUMBER = "#"  # a factor that is no axis of the data and never gets a name, such as the 3 in a stack of three weights


@dataclass(frozen=True)
class Factor:
    """`size` indices of the axis named `root`, `stride` apart, from `start` on; `root` is `None` if nobody knows."""

    root: str | None
    size: int
    stride: int = 1
    start: int = 0

    def cut(self, first: int) -> tuple[Factor, Factor]:
        """Two factors, the outer of size `first`, which divides the size. Their starts add up to this start."""
        rest, root = self.size // first, self.root or NUMBER
        inner_start = self.start % (self.stride * rest)
        outer = Factor(root, first, self.stride * rest, self.start - inner_start)
        return outer, Factor(root, rest, self.stride, inner_start)

    def holds(self, other: Factor) -> bool:
        """Whether `other` was cut from the same axis and counts within one index of this factor."""
        return self.root == other.root and other.stride * other.size <= self.stride


Axis = tuple[Factor, ...]  # of size 1: ()
Axes = tuple[Axis, ...]


@dataclass
class Names:
    """What the sizes are called. `sizes`: D -> 100 and so on; `h` and `d` may be learned from the first cut of D.

    A channel of a head is a channel of D, be it of a head that was cut from D or not: so `d` is a piece of D, `h` of D
    or an axis of its own, and `g`, heads that others share, always an axis of its own.
    """

    sizes: dict[str, int] = field(default_factory=dict)
    inferred: bool = False

    def learn_heads(self, axes: Axes) -> None:
        """Take the first cut of D into two as h and d, unless they are known."""
        if "h" in self.sizes or "D" not in self.sizes:
            return
        cut = [factor for axis in axes for factor in axis if factor.root == "D"]
        if len(cut) == 2 and cut[0].size * cut[1].size == self.sizes["D"] and cut[1].stride == 1:
            self.sizes |= {"h": cut[0].size, "d": cut[1].size}
            self.inferred = True

    def learn_head_width(self) -> None:
        """d = D / h, once both are known, unless the layer says another."""
        if {"D", "h"} <= set(self.sizes) and "d" not in self.sizes and self.sizes["D"] % self.sizes["h"] == 0:
            self.sizes["d"] = self.sizes["D"] // self.sizes["h"]

    def whole(self, word: str, size: int) -> Axis:
        """The axis called `word`; without the name if that stands for another size already."""
        return () if size < 2 else (Factor(word if self.sizes[word] == size else NUMBER, size),)

    def of_axis(self, axis: Axis, size: int) -> str:
        """`B`, `B·h`, `D`, `N~D`; a number where nothing is known."""
        return "·".join(self._of_factor(factor) for factor in joined(axis)) if axis else str(size)

    def of_axes(self, axes: Axes | None, shape: Sequence[int]) -> tuple[str, ...]:
        axes = unknown(shape) if axes is None else axes
        return tuple(self.of_axis(axis, size) for axis, size in zip(axes, shape, strict=True))

    def _of_factor(self, factor: Factor) -> str:
        if factor.root == NUMBER:
            return str(factor.size)
        if factor.root is None:
            fitting = [name for name, size in self.sizes.items() if size == factor.size and size > 1]
            return fitting[0] if len(fitting) == 1 else str(factor.size)
        if factor.root.startswith(MIXED) or factor.size == self.sizes.get(factor.root):
            return factor.root.removeprefix(MIXED)
        width = self.sizes.get("d", 0)
        if factor.root == "D" and factor.size == width and factor.stride == 1 and not factor.start % width:
            return "d"
        if factor.root == "D" and factor.size == self.sizes.get("h") and factor.stride == width > factor.start:
            return "h"
        return f"{factor.root}:{factor.size}"


def unknown(shape: Sequence[int]) -> Axes:
    """Axes that come from nowhere, as those of `arange`: they may be called by their size."""
    return tuple((Factor(None, size),) if size > 1 else () for size in shape)


def numbers(shape: Sequence[int]) -> Axes:
    """Axes that come from somewhere, but nobody knows how: they are not called anything."""
    return tuple((Factor(NUMBER, size),) if size > 1 else () for size in shape)


def joined(axis: Axis) -> Axis:
    """Neighbours that were cut from one axis, in their old order, become one factor again."""
    done: list[Factor] = []
    for factor in axis:
        last = done[-1] if done else None
        if last and last.root is not None and last.root == factor.root and last.stride == factor.stride * factor.size:
            done[-1] = Factor(factor.root, last.size * factor.size, factor.stride, last.start + factor.start)
        else:
            done.append(factor)
    return tuple(done)


def regroup(axes: Axes, shape: Sequence[int]) -> Axes:
    """What `view` and `reshape` do: the same numbers in the same order, cut anew into `shape`."""
    queue = list(joined(tuple(factor for axis in axes for factor in axis)))
    sizes, result = list(shape), list[Axis]()
    while sizes:
        size, taken = sizes[0], list[Factor]()
        while (missing := size // math.prod(factor.size for factor in taken)) > 1:
            first = queue[0]
            if missing % first.size == 0:
                taken.append(queue.pop(0))
            elif first.size % missing == 0:
                outer, queue[0] = first.cut(missing)
                taken.append(outer)
            else:
                break
        if missing == 1:
            result.append(joined(tuple(taken)))
            sizes.pop(0)
        else:
            result += _mixed(taken + queue, queue, sizes)
    return tuple(result)


def _mixed(sources: list[Factor], queue: list[Factor], sizes: list[int]) -> list[Axis]:
    """Axes that cut across others, up to the place where the cuts agree again. Shortens `queue` and `sizes`."""
    used, cut, have, want = 1, 1, sources[0].size, sizes[0]
    while have != want:
        if have < want:
            have *= sources[used].size
            used += 1
        else:
            want *= sizes[cut]
            cut += 1
    names = dict.fromkeys("?" if f.root in (None, NUMBER) else f.root.removeprefix(MIXED) for f in sources[:used])
    root = MIXED + "~".join(names)
    strides = [math.prod(sizes[i + 1 : cut]) for i in range(cut)]
    axes: list[Axis] = [
        (Factor(root, size, stride),) if size > 1 else () for size, stride in zip(sizes, strides, strict=False)
    ]
    del sizes[:cut]
    queue[:] = sources[used:]
    return axes


def piece(axis: Axis, start: int, size: int, step: int = 1) -> Axis:
    """What a slice leaves of an axis."""
    if size == math.prod(factor.size for factor in axis):
        return axis
    if not axis or axis[0].root is None:
        return numbers([size])[0]
    first, inner = axis[0], math.prod(factor.size for factor in axis[1:])
    if inner == 1:
        return (Factor(first.root, size, first.stride * step, first.start + start * first.stride),)[: size > 1]
    if step != 1 or start % inner or size % inner:
        return numbers([size])[0]
    return piece((first,), start // inner, size // inner) + axis[1:]


def fixed(axes: Axes, dim: int, index: int) -> Axes:
    """Axis `dim` stands still at `index`: the other factors cut from the same axis start from there."""
    rest = [*axes[:dim], (), *axes[dim % len(axes) + 1 :]]
    for still in reversed(joined(axes[dim])):
        index, place = divmod(index, still.size)
        cut = [f for axis in rest for f in axis if is_known((f,)) and (still.holds(f) or f.holds(still))]
        if cut:
            moved = max((f for f in cut if still.holds(f)), key=lambda f: f.stride, default=cut[0])
            new = Factor(moved.root, moved.size, moved.stride, moved.start + still.start + place * still.stride)
            rest = [tuple(new if f is moved else f for f in axis) for axis in rest]
    return tuple(rest)


def broadcast(several: Sequence[Axes], shape: Sequence[int]) -> Axes:
    """Axes of an element-wise result: of operands aligned at the end, the first whose origin is known."""
    result = []
    for place in range(-len(shape), 0):
        found = [axes[place] for axes in several if -place <= len(axes) and axes[place]]
        known = [axis for axis in found if is_known(axis)]
        result.append((known or found or [()])[0])
    return tuple(result)


def is_known(axis: Axis) -> bool:
    return bool(axis) and all(factor.root not in (None, NUMBER) for factor in axis)


def differ(one: Axis, other: Axis) -> bool:
    """Whether two axes that meet are surely not the same. A factor of unknown origin may be any of its size."""
    a, b = joined(one), joined(other)
    if not any(is_known((factor,)) for factor in a) or not any(is_known((factor,)) for factor in b):
        return False
    if len(a) != len(b):
        return is_known(a) and is_known(b)
    return not all(map(_may_be_equal, a, b))


def _may_be_equal(a: Factor, b: Factor) -> bool:
    return a == b if is_known((a,)) and is_known((b,)) else a.size == b.size
