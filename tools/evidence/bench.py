"""Time and memory of this book's layer and of others, in one run, as tables and a picture.

    python -m tools.evidence.bench [--compile] [--quick] [--device DEVICE ...]

All contenders have the same weights, and must give the same output before they are measured. The results replace
what stands of the same device between the markers in chapters/speed.md, and the picture there; what was measured on
other devices stays. Measure on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import functools
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from mhalib import Band, MultiHeadAttention, causal_mask, merge_heads, padding_mask, reference, split_heads
from mhalib.attention import make_attention
from mhalib.attention._arguments import check_inputs
from mhalib.bench import measure_machine, median_seconds, peak_bytes, seconds_by_round
from tools.evidence import bench_page
from tools.evidence.bench_case import (
    AGAIN,
    D2L,
    FUSED,
    LOOP,
    MASKS,
    OURS,
    OURS_WEIGHTS,
    PASSES,
    TORCH,
    TORCH_WEIGHTS,
    Case,
    Size,
)

SIZES = [(2, 6, 100, 5), (8, 128, 512, 8), (4, 512, 512, 8), (1, 2048, 512, 8)]  # B, N, D, h
GPU_SIZES = [*SIZES, (1, 8192, 512, 8), (8, 4096, 1024, 16), (1, 65536, 512, 8)]
NEVER_STORE = (FUSED, AGAIN, OURS)
KEEPS_SCORES_UP_TO = 2**14  # tokens: whoever stores scores is left out beyond
QUICK_SIZES = [(2, 6, 100, 5), (3, 16, 32, 4)]
SECONDS = 6.0  # for the timing of one case, if its rounds are not too long for that
VARIANTS: dict[str, str | dict[str, Any]] = {
    "multi-head": "multi-head",
    "grouped, 2 of 8": {"name": "multi-head", "num_kv_heads": 2},
    "multi-query": {"name": "multi-head", "num_kv_heads": 1},
    "latent": "latent",
    "latent, absorbed": {"name": "latent", "absorbed": True},
    "QK-norm": "qk-norm",
    "gated": "gated",
    "talking": "talking",
    "differential": "differential",
    "entmax": "entmax",
}
CACHED = 1024  # tokens before the one that is measured

Contender = Callable[[Tensor], Tensor]


def contenders(
    layer: MultiHeadAttention, mask: str, valid_lens: Tensor | None, compiled: bool = False
) -> tuple[dict[str, Contender], list[nn.Module]]:
    """By name, functions of x (B, N, D) that return (B, N, D), all with the weights of `layer`; and their modules.

    Each makes its own mask when it is called, as whoever uses it has to.
    """
    twin = reference.to_torch(layer)
    d2l = reference.D2LMultiHeadAttention(layer.num_hiddens, layer.num_heads, bias=True).to(layer.W_q.weight)
    d2l.load_state_dict(reference.to_d2l(layer))
    d2l.train(layer.training)
    causal = mask == "causal"
    band = Band(after=0) if causal else None

    def torchs(x: Tensor, **choice: bool) -> Tensor:
        hidden = None if valid_lens is None else torch.arange(x.shape[1], device=x.device) >= valid_lens[:, None]
        future = ~causal_mask(x.shape[1], device=x.device) if causal else None
        return twin(x, x, x, key_padding_mask=hidden, attn_mask=future, is_causal=causal, **choice)[0]

    def d2ls(x: Tensor) -> Tensor:
        each = torch.arange(1, x.shape[1] + 1, device=x.device).expand(x.shape[:2]) if causal else valid_lens
        return d2l(x, x, x, each)

    functions: dict[str, Contender] = {
        FUSED: lambda x: fused(layer, x, valid_lens, causal),
        AGAIN: lambda x: fused(layer, x, valid_lens, causal),
        OURS: lambda x: layer(x, x, x, valid_lens, mask=band, need_weights=False)[0],
        OURS_WEIGHTS: lambda x: layer(x, x, x, valid_lens, mask=band)[0],
        TORCH: lambda x: torchs(x, need_weights=False),
        TORCH_WEIGHTS: lambda x: torchs(x, average_attn_weights=False),
        D2L: d2ls,
        LOOP: lambda x: loop(layer, x, valid_lens, causal),
    }
    if compiled:
        torch.compiler.reset()  # or the next size would count as one more recompilation, of which few are allowed
        graph = torch.compile(layer)
        functions["ours, compiled"] = lambda x: graph(x, x, x, valid_lens, mask=band, need_weights=False)[0]
        functions["ours, with weights, compiled"] = lambda x: graph(x, x, x, valid_lens, mask=band)[0]
    return functions, [layer, twin, d2l]


def fused(layer: MultiHeadAttention, x: Tensor, valid_lens: Tensor | None, causal: bool = False) -> Tensor:
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
        is_causal=causal,
    )
    return F.linear(output.transpose(1, 2).flatten(2), layer.W_o.weight, layer.W_o.bias)


def fused_in_modules(layer: MultiHeadAttention, x: Tensor) -> Tensor:
    """`fused` without a mask, its projections called as modules."""
    q, k, v = (split_heads(project(x), layer.num_heads) for project in (layer.W_q, layer.W_k, layer.W_v))
    return layer.W_o(merge_heads(F.scaled_dot_product_attention(q, k, v)))


def loop(layer: MultiHeadAttention, x: Tensor, valid_lens: Tensor | None, causal: bool = False) -> Tensor:
    """One head after the other: a matrix product each, for all examples and queries at once."""
    hidden = None if valid_lens is None else ~padding_mask(valid_lens, x.shape[1])[:, 0]  # (B, 1, K)
    if causal:
        hidden = ~causal_mask(x.shape[1], device=x.device)
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
    size: Size, mask: str, device: torch.device, dtype: torch.dtype
) -> tuple[MultiHeadAttention, Tensor, Tensor | None]:
    """A layer, x (B, N, D) and lengths of at least 1, since torch's layer gives NaN where there is no key."""
    batch_size, length, num_hiddens, num_heads = size
    torch.manual_seed(0)
    layer = MultiHeadAttention(num_hiddens, num_heads, bias=True).to(device, dtype).eval()
    x = torch.randn(batch_size, length, num_hiddens).to(device, dtype)
    valid_lens = torch.randint(1, length + 1, (batch_size,)).to(device) if "valid_lens" in mask else None
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


def dtype_of(device: torch.device) -> torch.dtype:
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def measure(size: Size, mask: str, passes: str, device: torch.device, compiled: bool, budget: float) -> Case:
    """Time and peak memory of every contender; `budget` is how many seconds the timing should take."""
    layer, x, valid_lens = problem(size, mask, device, dtype_of(device))
    functions, modules = contenders(layer, mask, valid_lens, compiled)
    if size[1] > KEEPS_SCORES_UP_TO:
        functions = {name: function for name, function in functions.items() if name in NEVER_STORE}
    check_agreement(functions, x)
    parameters = [parameter for module in modules for parameter in module.parameters()]
    calls = {name: as_call(function, x, passes, parameters) for name, function in functions.items()}
    peak = {name: peak_bytes(call, device) for name, call in calls.items()}
    start = time.perf_counter()
    for call in calls.values():
        call()
    rounds = int(budget / (time.perf_counter() - start))
    return Case(size, mask, passes, seconds_by_round(calls, min(max(rounds, 7), 1000)), peak)


def overheads(size: Size, device: torch.device, rounds: int) -> dict[str, float]:
    """What stands between the bare kernel and the layer in a forward pass, in seconds."""
    layer, x, valid_lens = problem(size, MASKS[1], device, torch.float32)
    assert valid_lens is not None
    steps: dict[str, Callable[[], object]] = {
        FUSED: lambda: fused(layer, x, None),
        "the same, its projections called as modules": lambda: fused_in_modules(layer, x),
        "our layer, which is a module and checks": lambda: layer(x, x, x, need_weights=False),
        "of that: checking queries, keys and values": lambda: check_inputs(layer, x, x, x),
        f"{FUSED}, with `valid_lens`": lambda: fused(layer, x, valid_lens),
        "our layer, with `valid_lens`": lambda: layer(x, x, x, valid_lens, need_weights=False),
        "of that: looking whether all lengths are in 0 to $K$": lambda: [int(edge) for edge in valid_lens.aminmax()],
    }
    with torch.no_grad():
        seconds = median_seconds({"": lambda: None} | steps, rounds)
    empty = seconds.pop("")  # what it takes to call a function and look at the clock
    return {name: taken - empty for name, taken in seconds.items()}


def variants(size: Size, device: torch.device, num_cached: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """For each kind of work, the seconds of every layer of `VARIANTS` in each round: training without weights and with
    them, and one new token that meets a cache. All causal."""
    batch_size, length, num_hiddens, num_heads = size
    torch.manual_seed(0)
    layers = {
        name: make_attention(choice, num_hiddens, num_heads).to(device, dtype_of(device)).eval()
        for name, choice in VARIANTS.items()
    }
    x = torch.randn(batch_size, length, num_hiddens).to(device, dtype_of(device))

    def training(layer: MultiHeadAttention, need_weights: bool) -> Callable[[], object]:
        function = functools.partial(_output, layer, need_weights)
        return as_call(function, x, PASSES[1], list(layer.parameters()))

    def decoding(layer: MultiHeadAttention) -> Callable[[], object]:
        past, new = x.new_ones(batch_size, num_cached, num_hiddens), x[:, :1]
        cache = layer.new_cache(num_cached + rounds + 1)
        step = torch.no_grad()(lambda some: layer(some, some, some, mask=None, need_weights=False, cache=cache))
        step(past)
        return lambda: step(new)

    kinds: dict[str, Callable[[MultiHeadAttention], Callable[[], object]]] = {
        "training": lambda layer: training(layer, False),
        "training, with weights": lambda layer: training(layer, True),
        f"one token, {num_cached:,} in the cache": decoding,
    }
    return {
        kind: seconds_by_round({name: make(layer) for name, layer in layers.items()}, rounds)
        for kind, make in kinds.items()
    }


def _output(layer: MultiHeadAttention, need_weights: bool, x: Tensor) -> Tensor:
    return layer(x, x, x, mask=Band(after=0), need_weights=need_weights)[0]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compile", action="store_true", help="measure our layer under torch.compile, too")
    parser.add_argument("--quick", action="store_true", help="tiny sizes and few rounds: does it run at all?")
    parser.add_argument("--device", action="append", help="cpu or cuda; can be given twice (default: all there are)")
    parser.add_argument(
        "--page", type=Path, default=bench_page.PAGE, help="whose part between the markers is rewritten"
    )
    parser.add_argument("--plot", type=Path, default=bench_page.PLOT, help="the picture of the first device measured")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="that the timing of one case should take")
    chosen = parser.parse_args(arguments)
    try:
        devices = [torch.device(name) for name in chosen.device or ["cpu", *["cuda"] * torch.cuda.is_available()]]
    except RuntimeError as error:
        parser.error(f"--device: {error}: give cpu or cuda")
    reports = []
    for number, device in enumerate(devices):
        sizes = QUICK_SIZES if chosen.quick else GPU_SIZES if device.type == "cuda" else SIZES
        plan = [(size, mask, passes) for size in sizes for mask in MASKS for passes in PASSES]
        budget = 0.0 if chosen.quick else chosen.seconds
        square = 64 if chosen.quick else 8192 if device.type == "cuda" else 2048
        machine, _ = measure_machine(
            device=device, dtype=dtype_of(device), size=square, num_bytes=2**20 if chosen.quick else 2**28
        )
        cases = [
            measure(size, mask, passes, device, chosen.compile, budget)
            for size, mask, passes in tqdm(plan, desc=device.type, mininterval=1.0)
        ]
        typical = sizes[1] if chosen.quick else sizes[2]
        rounds = 7 if chosen.quick else 21
        kinds = variants(typical, device, 8 if chosen.quick else CACHED, rounds)
        overhead = overheads(sizes[0], device, rounds=7 if chosen.quick else 3000)
        reports.append(bench_page.report(cases, device, machine, kinds, typical, overhead, sizes[0]))
        if number == 0:
            bench_page.draw(cases, chosen.plot)
    print("\n\n".join(reports))
    bench_page.rewrite(chosen.page, bench_page.beside_others(chosen.page, reports))


if __name__ == "__main__":
    main()
