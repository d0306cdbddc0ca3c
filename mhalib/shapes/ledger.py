"""What a ledger is once it is written: its steps, as text and as an HTML table."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

HEADINGS = ("#", "shape", "axes", "operation", "reads", "strides", "memory", "bytes")
COSTS = ("#", "operation", "reads", "FLOPs", "bytes moved", "FLOPs/byte")


@dataclass(frozen=True)
class Step:
    """One call into torch.

    operation: what torch did, such as `linear`, `view`, `softmax over K`.
    reads: where its inputs come from: names of arguments and weights, numbers of earlier steps.
    shape, strides: of the result, strides in elements.
    axes: a name for each axis, by where it comes from; a number where that is not known.
    memory: "view of ..." shares the memory it names; "copy" moves the same numbers; "new" holds new ones.
    bytes: memory newly taken, temporary copies included.
    code: the line of code that made the call.
    flops: additions and multiplications, as torch's `FlopCounterMode` counts them: those of products of matrices and of
        convolutions, two for each pair. Nothing else counts, such as the exponentials of a softmax.
    moved: bytes read and written. Each operation reads each tensor that it is given once, and writes its results once,
        whatever the caches of the processor may save; a step of several operations moves what each of them moves. A
        view moves nothing, a number that a view repeats counts once, memory that is only taken is not written, and a
        lookup reads what it returns. A fused kernel moves its inputs and outputs, and what it does inside is not seen.
    """

    operation: str
    reads: tuple[str, ...]
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    strides: tuple[int, ...]
    memory: str
    bytes: int
    code: str = ""
    flops: int = 0
    moved: int = 0

    @property
    def intensity(self) -> float:
        """FLOPs for each byte moved; 0 for a step that moves nothing."""
        return self.flops / self.moved if self.moved else 0.0

    def cells(self, number: int) -> tuple[str, ...]:
        """The entries below `HEADINGS`."""
        axes = f"({', '.join(self.axes)})"
        reads = ", ".join(self.reads)
        return (
            str(number),
            str(self.shape),
            axes,
            self.operation,
            reads,
            str(self.strides),
            self.memory,
            f"{self.bytes:,}",
        )


@dataclass(frozen=True)
class Ledger:
    """The steps of one run of a layer, in order. Print it for text; a notebook shows it as a table.

    steps: what was seen.
    notes: what could not be seen, and what does not fit together.
    output: what the layer returned.
    """

    steps: tuple[Step, ...]
    notes: tuple[str, ...]
    output: object

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __getitem__(self, index: int) -> Step:
        return self.steps[index]

    @property
    def bytes(self) -> int:
        """All memory newly taken. What lives at one moment is less; `mhalib.bench.peak_bytes` measures that."""
        return sum(step.bytes for step in self.steps)

    @property
    def flops(self) -> int:
        """All additions and multiplications: what `FlopCounterMode` counts of the same run."""
        return sum(step.flops for step in self.steps)

    @property
    def moved(self) -> int:
        """All bytes read and written."""
        return sum(step.moved for step in self.steps)

    @property
    def costs(self) -> str:
        """FLOPs, bytes moved and FLOPs for each byte of every step that moves something, as text to print."""
        rows = [
            (
                *(str(number), step.operation, ", ".join(step.reads)),
                *(f"{step.flops:,}", f"{step.moved:,}", f"{step.intensity:.2f}"),
            )
            for number, step in enumerate(self.steps)
            if step.moved
        ]
        rest = len(self.steps) - len(rows)
        total = f"{self.flops:,} FLOPs, {self.moved:,} bytes moved; {rest} steps move nothing"
        return "\n".join([*_in_columns([COSTS, *rows], {0, 3, 4, 5}), total])

    @property
    def summary(self) -> str:
        views = sum(step.memory.startswith("view") for step in self.steps)
        return f"{len(self.steps)} steps, {views} of them views; {self.bytes:,} bytes of new memory"

    def __str__(self) -> str:
        rows = [HEADINGS, *(step.cells(number) for number, step in enumerate(self.steps))]
        lines = _in_columns(rows, {0, len(HEADINGS) - 1})
        return "\n".join([*lines, self.summary, *(f"note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        def row(cells: tuple[str, ...], tag: str, attributes: str = "") -> str:
            return "<tr>" + "".join(f"<{tag}{attributes}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        head = row((*HEADINGS, "code"), "th", ' scope="col"')
        body = "".join(row((*step.cells(number), step.code), "td") for number, step in enumerate(self.steps))
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return (
            '<div class="ledger" role="region" aria-label="ledger of a layer\'s steps" tabindex="0"><table>'
            f"<caption>{html.escape(self.summary)}</caption>"
            f"<thead>{head}</thead>"
            f"<tbody>{body}</tbody></table></div>" + (f"<ul>{notes}</ul>" if notes else "")
        )


def _in_columns(rows: Sequence[tuple[str, ...]], right: Collection[int]) -> list[str]:
    """One line for each row, as wide as its widest entries; the columns in `right` end at the same place."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
