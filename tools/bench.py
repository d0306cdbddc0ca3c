"""Time and memory of this book's layer and of others, in one run, as tables and a picture.

    python tools/bench.py [--compile] [--quick] [--device DEVICE ...]

All contenders have the same weights, and must give the same output before they are measured. The results replace
what stands between the markers in chapters/speed.md, and the picture there. Measure on a machine that does
nothing else.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import seaborn as sns
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from mhalib import MultiHeadAttention, merge_heads, padding_mask, reference, split_heads
from mhalib.bench import median_seconds, peak_bytes
from mhalib.plots import DPI

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "chapters/speed.md"
PLOT = ROOT / "chapters/_static/speed.png"
BEGIN, END = "<!-- make bench writes from here -->", "<!-- make bench writes to here -->"

SIZES = [(2, 6, 100, 5), (8, 128, 512, 8), (4, 512, 512, 8), (1, 2048, 512, 8)]  # B, N, D, h
GPU_SIZES = [*SIZES, (1, 8192, 512, 8), (8, 4096, 1024, 16)]
QUICK_SIZES = [(2, 6, 100, 5), (3, 16, 32, 4)]
SECONDS = 5.0  # for the timing of one case, if its rounds are not too long for that
PASSES = ("forward", "forward + backward")
MASKS = {False: "no mask", True: "with `valid_lens`"}

FUSED = "fused kernel, bare"
OURS, OURS_WEIGHTS = "ours", "ours, with weights"
TORCH, TORCH_WEIGHTS = "torch's layer", "torch's layer, with weights"
D2L, LOOP = "D2L's form", "loop over heads"


Contender = Callable[[Tensor], Tensor]
Size = tuple[int, int, int, int]


class Bar(NamedTuple):
    """A promise: `contender` takes at most `limit` times what `against` takes."""

    quantity: str
    contender: str
    against: str
    limit: float


BARS = (
    Bar("time", OURS, FUSED, 1.05),
    Bar("memory", OURS, FUSED, 1.0),
    Bar("time", OURS_WEIGHTS, TORCH_WEIGHTS, 1.0),
    Bar("memory", OURS_WEIGHTS, TORCH_WEIGHTS, 1.0),
)


class Case(NamedTuple):
    """One size, one pass, masked or not, and what each contender took."""

    size: Size
    masked: bool
    passes: str
    seconds: dict[str, float]
    peak: dict[str, int]

    def ratio(self, quantity: str, contender: str, against: str = FUSED) -> float:
        taken = self.seconds if quantity == "time" else self.peak
        return taken[contender] / taken[against]


def contenders(
    layer: MultiHeadAttention, valid_lens: Tensor | None, compiled: bool = False
) -> tuple[dict[str, Contender], list[nn.Module]]:
    """By name, functions of x (B, N, D) that return (B, N, D), all with the weights of `layer`; and their modules.

    Each makes its own mask from `valid_lens` when it is called, as whoever uses it has to.
    """
    twin = reference.to_torch(layer)
    d2l = reference.D2LMultiHeadAttention(layer.num_hiddens, layer.num_heads, bias=True).to(layer.W_q.weight)
    d2l.load_state_dict(reference.to_d2l(layer))
    d2l.train(layer.training)

    def torchs(x: Tensor, **choice: bool) -> Tensor:
        hidden = None if valid_lens is None else torch.arange(x.shape[1], device=x.device) >= valid_lens[:, None]
        return twin(x, x, x, key_padding_mask=hidden, **choice)[0]

    functions: dict[str, Contender] = {
        FUSED: lambda x: fused(layer, x, valid_lens),
        OURS: lambda x: layer(x, x, x, valid_lens, need_weights=False)[0],
        OURS_WEIGHTS: lambda x: layer(x, x, x, valid_lens)[0],
        TORCH: lambda x: torchs(x, need_weights=False),
        TORCH_WEIGHTS: lambda x: torchs(x, average_attn_weights=False),
        D2L: lambda x: d2l(x, x, x, valid_lens),
        LOOP: lambda x: loop(layer, x, valid_lens),
    }
    if compiled:
        torch.compiler.reset()  # or the next size would count as one more recompilation, of which few are allowed
        graph = torch.compile(layer)
        functions["ours, compiled"] = lambda x: graph(x, x, x, valid_lens, need_weights=False)[0]
        functions["ours, with weights, compiled"] = lambda x: graph(x, x, x, valid_lens)[0]
    return functions, [layer, twin, d2l]


def fused(layer: MultiHeadAttention, x: Tensor, valid_lens: Tensor | None) -> Tensor:
    """Projections, torch's fused kernel, nothing else: no module is called and nothing is checked."""
    mask = None
    if valid_lens is not None:
        mask = (torch.arange(x.shape[1], device=x.device) < valid_lens[:, None])[:, None, None]  # (B, 1, 1, K)
    heads = (layer.num_heads, layer.head_dim)
    output = F.scaled_dot_product_attention(
        F.linear(x, layer.W_q.weight, layer.W_q.bias).unflatten(-1, heads).transpose(1, 2),
        F.linear(x, layer.W_k.weight, layer.W_k.bias).unflatten(-1, heads).transpose(1, 2),
        F.linear(x, layer.W_v.weight, layer.W_v.bias).unflatten(-1, heads).transpose(1, 2),
        attn_mask=mask,
    )
    return F.linear(output.transpose(1, 2).flatten(2), layer.W_o.weight, layer.W_o.bias)


def fused_in_modules(layer: MultiHeadAttention, x: Tensor) -> Tensor:
    """`fused` without a mask, its projections called as modules."""
    q, k, v = (split_heads(project(x), layer.num_heads) for project in (layer.W_q, layer.W_k, layer.W_v))
    return layer.W_o(merge_heads(F.scaled_dot_product_attention(q, k, v)))


def loop(layer: MultiHeadAttention, x: Tensor, valid_lens: Tensor | None) -> Tensor:
    """One head after the other: a matrix product each, for all examples and queries at once."""
    hidden = None if valid_lens is None else ~padding_mask(valid_lens, x.shape[1])[:, 0]  # (B, 1, K)
    heads = []
    for q, k, v in zip(
        *(project(x).chunk(layer.num_heads, -1) for project in (layer.W_q, layer.W_k, layer.W_v)), strict=True
    ):
        scores = q @ k.mT / math.sqrt(layer.head_dim)  # (B, Q, K)
        if hidden is not None:
            scores = scores.masked_fill(hidden, -math.inf)
        heads.append(scores.softmax(-1) @ v)
    return layer.W_o(torch.cat(heads, -1))


def problem(
    size: Size, masked: bool, device: torch.device, dtype: torch.dtype
) -> tuple[MultiHeadAttention, Tensor, Tensor | None]:
    """A layer, x (B, N, D) and lengths of at least 1, since torch's layer gives NaN where there is no key."""
    batch_size, length, num_hiddens, num_heads = size
    torch.manual_seed(0)
    layer = MultiHeadAttention(num_hiddens, num_heads, bias=True).to(device, dtype).eval()
    x = torch.randn(batch_size, length, num_hiddens).to(device, dtype)
    valid_lens = torch.randint(1, length + 1, (batch_size,)).to(device) if masked else None
    return layer, x, valid_lens


def check_agreement(functions: dict[str, Contender], x: Tensor) -> None:
    """Raise AssertionError unless all contenders return what the first does."""
    tolerance = 2e-2 if x.dtype == torch.bfloat16 else 1e-5
    with torch.no_grad():
        outputs = {name: function(x) for name, function in functions.items()}
    first = next(iter(outputs.values()))
    for name, output in outputs.items():
        try:
            torch.testing.assert_close(output, first, rtol=tolerance, atol=tolerance)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


def as_call(function: Contender, x: Tensor, passes: str, parameters: list[nn.Parameter]) -> Callable[[], object]:
    """A function without arguments that runs one or both passes, and leaves no gradient behind."""
    if passes == "forward":
        return torch.no_grad()(lambda: function(x))
    x = x.clone().requires_grad_()
    gradient = torch.randn_like(x)

    def both() -> None:
        function(x).backward(gradient)
        for leaf in (x, *parameters):
            leaf.grad = None

    return both


def measure(size: Size, masked: bool, passes: str, device: torch.device, compiled: bool, budget: float) -> Case:
    """Time and peak memory of every contender; `budget` is how many seconds the timing should take."""
    layer, x, valid_lens = problem(size, masked, device, torch.bfloat16 if device.type == "cuda" else torch.float32)
    functions, modules = contenders(layer, valid_lens, compiled)
    check_agreement(functions, x)
    parameters = [parameter for module in modules for parameter in module.parameters()]
    calls = {name: as_call(function, x, passes, parameters) for name, function in functions.items()}
    peak = {name: peak_bytes(call, device) for name, call in calls.items()}
    start = time.perf_counter()
    for call in calls.values():
        call()
    rounds = int(budget / (time.perf_counter() - start))
    return Case(size, masked, passes, median_seconds(calls, min(max(rounds, 7), 1000)), peak)


def in_units(seconds: float, peak: int) -> str:
    number, unit = next(
        (seconds / size, unit) for size, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")) if seconds >= size
    )
    amount, name = (peak / 1e6, "MB") if peak >= 1e6 else (peak / 1e3, "kB")
    return f"{number:.3g} {unit} · {amount:.3g} {name}"


def table(cases: list[Case]) -> str:
    """Markdown: one row for each contender, one column for each size; time · memory, as multiples of the first row."""
    names = [name for name in cases[0].seconds if name != FUSED]
    rows = [
        ["", *(f"({', '.join(map(str, case.size))})" for case in cases)],  # no formula: it could not wrap on a phone
        ["---", *("---:" for _ in cases)],
        [FUSED, *(in_units(case.seconds[FUSED], case.peak[FUSED]) for case in cases)],
        *(
            [name, *(f"{case.ratio('time', name):.2f} · {case.ratio('memory', name):.2f}" for case in cases)]
            for name in names
        ),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def verdicts(cases: list[Case]) -> str:
    """Markdown: in how many cases each bar holds, and where the ratio is largest. The bar is held to two digits."""
    rows = ["| what, against what | at most | holds in | largest |", "| --- | ---: | ---: | --- |"]
    for bar in BARS:
        ratios = [round(case.ratio(bar.quantity, bar.contender, bar.against), 2) for case in cases]
        held, largest = sum(ratio <= bar.limit for ratio in ratios), max(ratios)
        worst = cases[ratios.index(largest)]
        where = f"$({', '.join(map(str, worst.size))})$, {worst.passes}, {MASKS[worst.masked]}"
        rows.append(
            f"| {bar.quantity}: {bar.contender}, against {bar.against} | {bar.limit:.2f} "
            f"| {held} of {len(cases)}{'' if held == len(cases) else ' ✗'} | {largest:.2f} at {where} |"
        )
    return "\n".join(rows)


def overheads(size: Size, device: torch.device, rounds: int) -> str:
    """Markdown: what stands between the bare kernel and the layer in a forward pass, in microseconds."""
    layer, x, valid_lens = problem(size, True, device, torch.float32)
    assert valid_lens is not None
    steps: dict[str, Callable[[], object]] = {
        FUSED: lambda: fused(layer, x, None),
        "the same, its projections called as modules": lambda: fused_in_modules(layer, x),
        "our layer, which is a module and checks": lambda: layer(x, x, x, need_weights=False),
        "of that: checking queries, keys and values": lambda: layer._check_inputs(x, x, x),
        f"{FUSED}, with `valid_lens`": lambda: fused(layer, x, valid_lens),
        "our layer, with `valid_lens`": lambda: layer(x, x, x, valid_lens, need_weights=False),
        "of that: looking whether all lengths are in 0 to $K$": lambda: [int(edge) for edge in valid_lens.aminmax()],
    }
    with torch.no_grad():
        seconds = median_seconds({"": lambda: None} | steps, rounds)
    empty = seconds.pop("")  # what it takes to call a function and look at the clock
    rows = [f"| {name} | {(taken - empty) * 1e6:.1f} |" for name, taken in seconds.items()]
    return "\n".join([f"| forward at $({', '.join(map(str, size))})$ | µs |", "| --- | ---: |", *rows])


def report(cases: list[Case], device: torch.device, overhead: str) -> str:
    """The part of the page that depends on the run, for one device."""
    if device.type == "cuda":
        where, dtype = "One GPU", "bfloat16"
    else:
        threads = torch.get_num_threads()
        where, dtype = f"{threads} CPU core{'s' if threads > 1 else ''}", "float32"
    parts = [
        f"## {where}, torch {torch.__version__.split('+')[0]}, {dtype}",
        "### The bars",
        "A bar is a limit that this book sets for its own layer, as a ratio. A ✗ marks a bar that some case exceeds.",
        verdicts(cases),
        "### All of them",
        f"Columns are $(B, N, D, h)$. A cell gives time · memory: the first row in units, all others as multiples of "
        f"it. Below 1 is faster, or smaller, than *{FUSED}*.",
    ]
    for passes in PASSES:
        for masked, mask_name in MASKS.items():
            chosen = [case for case in cases if (case.passes, case.masked) == (passes, masked)]
            parts += [f"**{passes.capitalize()}, {mask_name}**", table(chosen)]
    parts += ["### What the layer adds to the kernel when there is little to compute", overhead]
    return "\n\n".join(parts)


def draw(cases: list[Case], path: Path) -> None:
    """Time and memory with `valid_lens`, as multiples of the bare fused kernel, on logarithmic axes."""
    names = [name for name in cases[0].seconds if name != FUSED]
    colours = sns.color_palette("colorblind", len(names))
    sizes = list(dict.fromkeys(case.size for case in cases))
    figure, grid = plt.subplots(2, 2, figsize=(9, 7), dpi=DPI, layout="constrained", sharex=True, sharey="row")
    for row, quantity in zip(grid, ("time", "memory"), strict=True):
        for ax, passes in zip(row, PASSES, strict=True):
            chosen = [case for case in cases if (case.passes, case.masked) == (passes, True)]
            for name, colour, marker in zip(
                names, colours, "osD^vXP*"[: len(names)].ljust(len(names), "."), strict=True
            ):
                ratios = [case.ratio(quantity, name) for case in chosen]
                style = "--" if "with weights" in name else "-"
                ax.plot(ratios, style, marker=marker, color=colour, label=name, markersize=7, alpha=0.9)
            ax.axhline(1.0, color="0.3", linewidth=1.0)
            ax.set_yscale("log", base=2)
            ax.yaxis.set_major_formatter("{x:g}")
            ax.grid(axis="y", color="0.9")
            ax.set(title=f"{quantity}, {passes}")
            labels = [f"N={length}\nB={batch_size}, D={width}, h={heads}" for batch_size, length, width, heads in sizes]
            ax.set_xticks(range(len(sizes)), labels, fontsize="x-small")
        row[0].set_ylabel(f"{quantity}, bare fused kernel = 1")
    for ax in grid[-1]:
        ax.set_xlabel("size of the problem")
    figure.suptitle("Seven ways to compute one layer, with valid_lens")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize="small")
    figure.savefig(path)
    plt.close(figure)
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(64).save(path, optimize=True)  # a third of the bytes


def rewrite(page: Path, text: str) -> None:
    """Put `text` between the markers of `page`.

    Raises:
        ValueError: `page` does not hold each marker once, in order.
    """
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end) or BEGIN in rest or END in after:
        raise ValueError(f"{page.name} needs the lines {BEGIN!r} and {END!r}, once each and in this order")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compile", action="store_true", help="measure our layer under torch.compile, too")
    parser.add_argument("--quick", action="store_true", help="tiny sizes and few rounds: does it run at all?")
    parser.add_argument("--device", action="append", help="cpu or cuda; can be given twice (default: all there are)")
    parser.add_argument("--page", type=Path, default=PAGE, help="whose part between the markers is rewritten")
    parser.add_argument("--plot", type=Path, default=PLOT, help="the picture of the first device")
    chosen = parser.parse_args(arguments)
    try:
        devices = [torch.device(name) for name in chosen.device or ["cpu", *["cuda"] * torch.cuda.is_available()]]
    except RuntimeError as error:
        parser.error(f"--device: {error}: give cpu or cuda")
    reports = []
    for number, device in enumerate(devices):
        sizes = QUICK_SIZES if chosen.quick else GPU_SIZES if device.type == "cuda" else SIZES
        plan = [(size, masked, passes) for size in sizes for masked in MASKS for passes in PASSES]
        budget = 0.0 if chosen.quick else SECONDS
        cases = [
            measure(size, masked, passes, device, chosen.compile, budget)
            for size, masked, passes in tqdm(plan, desc=device.type, mininterval=1.0)
        ]
        overhead = overheads(sizes[0], device, rounds=7 if chosen.quick else 3000)
        reports.append(report(cases, device, overhead))
        if number == 0:
            draw(cases, chosen.plot)
    if all(device.type == "cpu" for device in devices):
        reports.append("This was not run on a GPU.")
    print("\n\n".join(reports))
    rewrite(chosen.page, "\n\n".join(reports))


if __name__ == "__main__":
    main()
