"""The part of the page on speed that `make bench` writes: tables, and a picture that fits a phone."""

from __future__ import annotations

import math
import re
import statistics
from pathlib import Path
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from mhalib import style
from mhalib._write import write_whole
from mhalib.bench import Machine
from mhalib.costs import Sizes
from mhalib.roofline import step_costs
from tools import ROOT
from tools.evidence.bench_case import AGAIN, FUSED, MASKS, OURS, OURS_WEIGHTS, PASSES, TORCH, TORCH_WEIGHTS, Case, Size

PAGE = ROOT / "chapters/speed.md"
PLOT = ROOT / "chapters/_static/speed.svg"
BEGIN, END = "<!-- make bench writes from here -->", "<!-- make bench writes to here -->"
PHASES = dict(zip(PASSES, ("prefill", "training"), strict=True))


class Bar(NamedTuple):
    """A promise: `contender` takes at most `limit` times what `against` takes."""

    quantity: str
    contender: str
    against: str
    limit: float


BARS = (
    Bar("time", OURS, FUSED, 1.02),
    Bar("memory", OURS, FUSED, 1.0),
    Bar("time", OURS_WEIGHTS, TORCH_WEIGHTS, 1.0),
    Bar("memory", OURS_WEIGHTS, TORCH_WEIGHTS, 1.0),
)


def written(size: Size) -> str:
    return f"({', '.join(map(str, size))})"  # no formula: it could not wrap on a phone


def markdown(rows: list[list[str]]) -> str:
    """A table: the first row is its head, and all columns but the first are numbers."""
    head, *others = rows
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *others))


def in_units(seconds: float) -> str:
    number, unit = next(
        (seconds / size, unit) for size, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")) if seconds >= size
    )
    return f"{number:.3g} {unit}"


def in_bytes(amount: float) -> str:
    return f"{amount / 1e6:.3g} MB" if amount >= 1e6 else f"{amount / 1e3:.3g} kB"


def quartiles(ratios: list[float]) -> tuple[float, float]:
    if len(ratios) < 2:
        return ratios[0], ratios[0]
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return low, high


def with_spread(ratios: list[float]) -> str:
    low, high = quartiles(ratios)
    return f"{statistics.median(ratios):.2f} ({low:.2f}–{high:.2f})"


def compared(bar: Bar, case: Case) -> str:
    """The ratio that a bar limits, with the spread of its rounds where it is one of times."""
    if bar.quantity == "time":
        return with_spread(case.ratios(bar.contender, bar.against))
    return f"{case.ratio(bar.quantity, bar.contender, bar.against):.2f}"


def verdicts(cases: list[Case]) -> str:
    """Markdown: how large the ratio of each bar is at most, and at the smallest size, which no bar on time covers. The
    bar is held to two digits. The last row compares the kernel with itself: what noise alone does."""
    rows = [["what, against what", "limit", "largest", "where", "within", "smallest size"]]
    smallest = cases[0].size

    def row(bar: Bar, title: str) -> list[str]:
        known = [case for case in cases if {bar.contender, bar.against} <= case.seconds.keys()]
        covered = [case for case in known if case.size != smallest or bar.quantity == "memory"]
        ratio = {case[:3]: round(case.ratio(bar.quantity, bar.contender, bar.against), 2) for case in known}
        worst = max(covered, key=lambda case: ratio[case[:3]])
        held = sum(ratio[case[:3]] <= bar.limit for case in covered)
        aside = max((case for case in known if case.size == smallest), key=lambda case: ratio[case[:3]])
        where = f"{written(worst.size)}, {worst.passes}, {worst.mask}"
        limit = "none" if math.isinf(bar.limit) else f"{bar.limit:.2f}"
        return [title, limit, compared(bar, worst), where, f"{held} of {len(covered)}", compared(bar, aside)]

    rows += [row(bar, f"{bar.quantity}: {bar.contender}, against {bar.against}") for bar in BARS]
    rows.append(row(Bar("time", AGAIN, FUSED, math.inf), f"control: time of {FUSED}, against {AGAIN}"))
    return markdown(rows)


def times(cases: list[Case]) -> str:
    """Markdown: one row for each contender, one column for each size, as multiples of the first row."""
    names = [name for name in cases[0].seconds if name != FUSED]
    return markdown(
        [
            ["time", *(written(case.size) for case in cases)],
            [FUSED, *(in_units(statistics.median(case.seconds[FUSED])) for case in cases)],
            *(
                [name, *(with_spread(case.ratios(name)) if name in case.seconds else "" for case in cases)]
                for name in names
            ),
        ]
    )


def memory(cases: list[Case]) -> str:
    names = [name for name in cases[0].seconds if name != FUSED]
    return markdown(
        [
            ["memory", *(written(case.size) for case in cases)],
            [FUSED, *(in_bytes(case.peak[FUSED]) for case in cases)],
            *(
                [name, *(f"{case.ratio('memory', name):.2f}" if name in case.peak else "" for case in cases)]
                for name in names
            ),
        ]
    )


def shares(cases: list[Case], machine: Machine) -> str:
    """Markdown: how much of the machine's measured peak the layer's products reach, without masks."""
    sizes = list(dict.fromkeys(case.size for case in cases))
    by_place = {(case.size, case.passes): case for case in cases if case.mask == MASKS[0]}
    names = (FUSED, OURS, OURS_WEIGHTS, TORCH, TORCH_WEIGHTS)

    def share(name: str, size: Size, passes: str) -> str:
        batch_size, length, num_hiddens, num_heads = size
        taken = by_place[size, passes].seconds.get(name)
        if taken is None:
            return ""
        flops = sum(
            step.flops for step in step_costs(Sizes(num_hiddens, num_heads), PHASES[passes], length, batch_size)
        )
        return f"{flops / statistics.median(taken) / machine.peak:.0%}"

    rows = [[name, *(" · ".join(share(name, size, passes) for passes in PASSES) for size in sizes)] for name in names]
    return markdown([["share of the peak", *map(written, sizes)], *rows])


def variants(kinds: dict[str, dict[str, list[float]]]) -> str:
    """Markdown: each layer against the first, in each kind of work."""
    first, *others = next(iter(kinds.values()))
    rows = [["layer", *kinds], [first, *(in_units(statistics.median(taken[first])) for taken in kinds.values())]]
    for name in others:
        ratios = ([a / b for a, b in zip(taken[name], taken[first], strict=True)] for taken in kinds.values())
        rows.append([name, *map(with_spread, ratios)])
    return markdown(rows)


def report(
    cases: list[Case],
    device: torch.device,
    machine: Machine,
    kinds: dict[str, dict[str, list[float]]],
    typical: Size,
    overhead: dict[str, float],
    smallest: Size,
) -> str:
    """The part of the page that depends on the run, for one device."""
    if device.type == "cuda":
        where, dtype = torch.cuda.get_device_name(device), "bfloat16"
    else:
        threads = torch.get_num_threads()
        where, dtype = f"{threads} CPU core{'s' if threads > 1 else ''}", "float32"
    parts = [
        f"## {where}, torch {torch.__version__.split('+')[0]}, {dtype}",
        f"Measured in the same run: a product of two large matrices reaches {machine.peak / 1e9:,.0f} GFLOP/s, called "
        f"the peak below, and a copy moves {machine.bandwidth / 1e9:,.0f} GB/s.",
        "### What this book promises, and what it measures",
        "A limit is what this book allows its own layer, as a ratio. Limits on time leave out the smallest size, "
        f"$({', '.join(map(str, smallest))})$, where calls cost more than arithmetic. Its largest ratio stands in the "
        "last column. In brackets: half of the rounds lie between these two. The last row sets the "
        "kernel against itself: what noise alone does.",
        verdicts(cases),
        "### Share of the peak",
        "FLOPs of the layer's seven steps, forward · forward + backward, divided by time and by the peak. No mask.",
        shares(cases, machine),
        "### Variants, with and without a cache",
        f"At $(B, N, D, h) = ({', '.join(map(str, typical))})$, causal. Multi-head attention in units, all others as "
        "multiples of it. *Training* is forward + backward.",
        variants(kinds),
        "### All times and bytes",
        f"Columns are $(B, N, D, h)$. The first row is in units, all others are multiples of it: below 1 is faster, or "
        f"smaller, than *{FUSED}*.",
    ]
    for passes in PASSES:
        for mask in MASKS:
            chosen = [case for case in cases if (case.passes, case.mask) == (passes, mask)]
            title = f"{passes.capitalize()}, {mask}"
            parts.append(f":::{{dropdown}} {title}\n{times(chosen)}\n\n{memory(chosen)}\n:::")
    rows = [
        [f"forward at {written(smallest)}", "µs"],
        *([name, f"{taken * 1e6:.1f}"] for name, taken in overhead.items()),
    ]
    parts += ["### What the layer adds to the kernel when there is little to compute", markdown(rows)]
    return "\n\n".join(parts)


def draw(cases: list[Case], path: Path) -> None:
    """Bars, without a mask: time at all sizes but the smallest, and memory at the last, against the bare kernel."""
    sizes = list(dict.fromkeys(case.size for case in cases))[1:]
    by_place = {(case.size, case.passes): case for case in cases if case.mask == MASKS[0]}
    names = [name for name in cases[0].seconds if name not in (FUSED, AGAIN)]
    with plt.rc_context(style.SETTINGS):
        figure, axes = plt.subplots(
            len(sizes) + 1, 1, figsize=(4.2, 1.0 + 1.9 * (len(sizes) + 1)), layout="constrained"
        )
        for ax, size in zip(axes, [*sizes, sizes[-1]], strict=True):
            quantity = "memory" if ax is axes[-1] else "time"
            for number, passes in enumerate(PASSES):
                _draw_bars(ax, by_place[size, passes], quantity, names, number)
            _mark_axes(ax, names, quantity, size)
        edges = [edge for ax in axes[:-1] for edge in ax.get_xlim()]
        for ax in axes[:-1]:  # one scale for all times
            ax.set_xlim(min(edges), max(edges))
        axes[-1].set_xlabel("bare fused kernel = 1")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        write_whole(path, style.as_svg(figure))
        plt.close(figure)


def _draw_bars(ax: Axes, case: Case, quantity: str, names: list[str], number: int) -> None:
    """A bar for each way to compute one case, with the quartiles of its times."""
    for place, name in enumerate(names):
        if name not in case.seconds:
            continue
        ratio, y = case.ratio(quantity, name), place + 0.36 * number - 0.18
        label = case.passes if place == 0 else None
        ax.barh(y, ratio - 1, 0.34, left=1, color=style.head_colour(number), label=label, hatch="///" * number,
                edgecolor=style.PAPER)  # fmt: skip
        if quantity == "time":
            ax.plot(quartiles(case.ratios(name)), [y, y], color=style.INK, linewidth=1.2)


def _mark_axes(ax: Axes, names: list[str], quantity: str, size: Size) -> None:
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_locator(LogLocator(2, subs=(1.0, 1.5) if quantity == "time" else (1.0,)))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.axvline(1, color=style.MUTED, linewidth=1)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.grid(axis="x")
    ax.set_axisbelow(True)
    batch_size, length, width, heads = size
    ax.set_title(f"{quantity}, B={batch_size}, N={length}, D={width}, h={heads}", loc="right")


NO_GPU = "GPU columns are missing: this was not run on a GPU."


def beside_others(page: Path, reports: list[str]) -> str:
    """The reports, one for each device, with those of `page` that tell of other devices: first of CPUs."""
    _, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    stored = re.split(r"(?m)^(?=## )", rest.partition(END)[0].replace(NO_GPU, ""))[1:]
    new = {_device(report): report for report in reports}
    told = {_device(report): report.strip() for report in stored} | new
    parts = [told[name] for name in sorted(told, key=lambda name: (name != "CPU", name))]
    return "\n\n".join(parts if set(told) - {"CPU"} else [*parts, NO_GPU])


def _device(report: str) -> str:
    """Of which device a report tells: "CPU", or a GPU's name."""
    name = report.removeprefix("## ").partition(", torch")[0]
    return "CPU" if "CPU core" in name else name


def rewrite(page: Path, text: str, marks: tuple[str, str] = (BEGIN, END)) -> None:
    """Put `text` between the markers of `page`.

    Raises:
        ValueError: `page` does not hold each marker once, in order.
    """
    first, last = marks
    before, begin, rest = page.read_text(encoding="utf-8").partition(first)
    _, end, after = rest.partition(last)
    if not (begin and end) or first in rest or last in after:
        raise ValueError(f"{page.name} needs the lines {first!r} and {last!r}, once each and in this order")
    write_whole(page, f"{before}{first}\n\n{text}\n\n{last}{after}")
