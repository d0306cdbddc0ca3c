"""What attention takes on a GPU: its machine's limits, each step under its roof, decoding, and kernels.

    python -m tools.evidence.gpu [--quick]

Writes mhalib/results/gpu.json, which chapters 28 to 30 read: for each name the numbers of nine rounds, whose numbers
stand where those of seeds do elsewhere. Seconds, unless a name begins with "peak", "bandwidth", "bytes" or "error".
Each call is recorded many times in a CUDA graph, so that Python and the start of a kernel do not count, with inputs of
its own each time where they would else stay in the caches; each round replays all graphs of a group, in a new order.
Before anything is timed, each way must give what the formula gives in float64, within 1 % of its length. `--quick` uses
small sizes, works on a CPU and stores nothing: does it run at all? Nothing else must run on the machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import random
import sys
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

from mhalib.bench import peak_bytes, seconds_by_round
from tools.evidence import results

ROUNDS = 9
LONG_ENOUGH = 5e-3  # seconds that one replay should take
COLD = 2**28  # bytes of inputs in turns: several times the fast memory of any GPU
MOST_OFF = 1e-2
D, HEADS = 4096, 32  # a layer of a model of 7 billion parameters
D_HEAD = D // HEADS

Call = Callable[[], object]
Found = dict[str, list[float]]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, on a CPU too, and nothing stored: does it run at all?"
    )
    chosen = parser.parse_args(arguments)
    if not (torch.cuda.is_available() or chosen.quick):
        parser.error("there is no GPU here that torch can use")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    found: Found = {}
    small = chosen.quick
    groups: list[tuple[str, Callable[[], Found]]] = [
        ("the machine", partial(machine, device, 256 if small else 8192, 2**20 if small else 2**30)),
        *((f"a prompt of {N:,}", partial(prefill, device, N)) for N in ((64,) if small else (2048, 8192))),
        *(
            (f"a step for {B} with {N:,}", partial(decoding, device, B, N))
            for B, N in (((2, 64),) if small else ((1, 2048), (1, 32_768), (64, 2048)))
        ),
        ("kernels", partial(kernels, device, 128 if small else 8192)),
        *(
            (f"there and back, {N:,}", partial(there_and_back, device, N))
            for N in ((64,) if small else (1024, 2048, 4096, 8192, 16_384, 32_768, 65_536))
        ),
    ]
    for title, group in groups:
        print(title, file=sys.stderr, flush=True)
        found |= group()
        if not small:
            results.store("gpu", range(ROUNDS), found, 4, device=results.device_name("cuda"), made_by="make gpu")


def draw(device: torch.device, *shape: int) -> Tensor:
    return torch.randn(*shape, device=device, dtype=torch.bfloat16)


def timed(calls: Mapping[str, Callable[[int], object]], device: torch.device, copies: int = 1) -> Found:
    """The seconds of each call in each round. Each is told which of `copies` inputs to take."""
    if device.type != "cuda":
        return seconds_by_round({name: partial(call, 0) for name, call in calls.items()}, ROUNDS)
    graphs = {name: recorded(call, copies) for name, call in calls.items()}
    seconds: Found = {name: [] for name in calls}
    order = random.Random(0)
    for round_number in range(ROUNDS + 1):
        for name in order.sample(list(graphs), len(graphs)):
            graph, times = graphs[name]
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            if round_number:
                seconds[name].append(begin.elapsed_time(end) / 1e3 / times)
    return seconds


def recorded(call: Callable[[int], object], copies: int) -> tuple[torch.cuda.CUDAGraph, int]:
    """A graph of enough calls, one input after the other, and how many they are."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for copy in range(3):
            call(copy % copies)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for copy in range(5):
            call(copy % copies)
        end.record()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    times = min(200, max(1, math.ceil(LONG_ENOUGH / (begin.elapsed_time(end) / 5e3))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for copy in range(times):
            call(copy % copies)
    return graph, times


def machine(device: torch.device, size: int, num_bytes: int) -> Found:
    """What a product of two matrices reaches, in FLOPs per second, and a copy, in bytes per second."""
    one, other = draw(device, size, size), draw(device, size, size)
    result = torch.empty_like(one)
    source = torch.randint(0, 255, (num_bytes,), device=device, dtype=torch.uint8)
    target = torch.empty_like(source)
    calls = {
        "product": lambda _: torch.mm(one, other, out=result),
        "copy": lambda _: target.copy_(source),
        "read": lambda _: source.view(torch.int32).amax(),
    }
    seconds = timed(calls, device)
    return {
        "peak": [2 * size**3 / one for one in seconds["product"]],
        "bandwidth": [2 * num_bytes / one for one in seconds["copy"]],
        "bandwidth of reading": [num_bytes / one for one in seconds["read"]],
    }


def prefill(device: torch.device, N: int) -> Found:
    """The steps of a layer that reads a prompt, stored, and the fused kernel in the place of three of them."""
    x, W = draw(device, N, D), draw(device, D, D) / math.sqrt(D)
    q, k, v = (draw(device, HEADS, N, D_HEAD) for _ in range(3))
    scores, projected, average = draw(device, HEADS, N, N), torch.empty_like(x), torch.empty_like(q)
    weights = scores.softmax(-1)
    alone = q[None], k[None], v[None]  # one example
    calls = {
        "W_q": lambda _: torch.mm(x, W.T, out=projected),
        "scores": lambda _: torch.bmm(q, k.mT, out=scores),
        "softmax": lambda _: torch.softmax(scores, -1, out=weights),
        "average": lambda _: torch.bmm(weights, v, out=average),
        "fused": lambda _: sdpa(*alone),
        "fused, causal": lambda _: sdpa(*alone, is_causal=True),
    }
    return {f"prompt of {N}: {name}": rounds for name, rounds in timed(calls, device).items()}


def decoding(device: torch.device, B: int, N: int) -> Found:
    """One token for each of B texts: a projection, and attention to N keys that 1, 4 or all 32 heads share.

    "one by one" gives each query to its keys alone, as if they were not shared; "as rows" lays the queries of the heads
    that share keys into one matrix; "fused" is torch's kernel, which is told of the sharing.
    """
    found = projection(device, B)
    for g in (HEADS, 8, 1):
        one_cache = 2 * B * g * N * D_HEAD * 2
        copies = in_turns(device, one_cache)
        caches = [(draw(device, B, g, N, D_HEAD), draw(device, B, g, N, D_HEAD)) for _ in range(copies)]
        q = draw(device, B, HEADS, 1, D_HEAD) / math.sqrt(D_HEAD)
        ways = ways_to_decode(q, caches, g)
        agree({name: partial(way, 0) for name, way in ways.items()}, exact(q, *caches[0], scale=1.0))
        found |= {f"{name}, g = {g}": rounds for name, rounds in timed(ways, device, copies).items()}
    return {f"step for {B} with {N}: {name}": rounds for name, rounds in found.items()}


def projection(device: torch.device, B: int) -> Found:
    """One product of B rows with the D x D weights."""
    copies = in_turns(device, 2 * D * D)
    x, weights = draw(device, B, D), [draw(device, D, D) / math.sqrt(D) for _ in range(copies)]
    projected = torch.empty_like(x)
    return timed({"W_q": lambda copy: torch.mm(x, weights[copy].T, out=projected)}, device, copies)


def in_turns(device: torch.device, num_bytes: int) -> int:
    """How many inputs of so many bytes a GPU must take in turns, so that it finds none in its caches."""
    return max(1, math.ceil(COLD / num_bytes)) if device.type == "cuda" else 1


def ways_to_decode(q: Tensor, caches: list[tuple[Tensor, Tensor]], g: int) -> dict[str, Callable[[int], Tensor]]:
    """By name, functions that take the number of a cache and return (B, h, 1, d)."""
    B, h, _, d = q.shape
    stacked = q.view(B, g, h // g, d)

    def as_rows(copy: int) -> Tensor:
        k, v = caches[copy]
        return ((stacked @ k.mT).softmax(-1) @ v).view(B, h, 1, d)

    def one_by_one(copy: int) -> Tensor:
        k, v = (one.repeat_interleave(h // g, 1) for one in caches[copy])
        return (q @ k.mT).softmax(-1) @ v

    def fused(copy: int) -> Tensor:
        return sdpa(q, *caches[copy], scale=1.0, enable_gqa=g < h)

    ways: dict[str, Callable[[int], Tensor]] = {"as rows": as_rows, "fused": fused}
    return ways | ({"one by one": one_by_one} if g < h else {})


def kernels(device: torch.device, N: int) -> Found:
    """Forward alone, causal, 16 heads of width 128: every kernel of torch, and the one of chapter 30 in Triton."""
    q, k, v = (draw(device, 1, 16, N, D_HEAD) for _ in range(3))
    ways: dict[str, Call] = {
        name: partial(_by, backend, q, k, v)
        for name, backend in (
            ("materialised", SDPBackend.MATH),
            ("FlashAttention-2", SDPBackend.FLASH_ATTENTION),
            ("memory-efficient", SDPBackend.EFFICIENT_ATTENTION),
            ("cuDNN", SDPBackend.CUDNN_ATTENTION),
        )
        if device.type == "cuda" or backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION)
    }
    if device.type == "cuda" and importlib.util.find_spec("triton"):
        from mhalib.reference.in_triton import triton_attention

        ways["Triton, chapter 30"] = partial(triton_attention, q, k, v, causal=True)
    errors = agree(ways, exact(q, k, v, causal=True))
    found = {f"error: {name}": [error] * ROUNDS for name, error in errors.items()}
    found |= {f"kernel: {name}": one for name, one in timed({n: _ignoring(w) for n, w in ways.items()}, device).items()}
    return found


def _by(backend: SDPBackend, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with sdpa_kernel(backend):
        return sdpa(q, k, v, is_causal=True)


def _ignoring(call: Call) -> Callable[[int], object]:
    return lambda _: call()


def there_and_back(device: torch.device, N: int) -> Found:
    """Forward and backward, causal, 16 heads of width 64: seconds and bytes, of what fits into memory."""
    q, k, v = (draw(device, 1, 16, N, 64).requires_grad_() for _ in range(3))
    gradient = torch.randn_like(q)

    def fused() -> None:
        sdpa(q, k, v, is_causal=True).backward(gradient)
        q.grad = k.grad = v.grad = None

    def materialised() -> None:
        hidden = torch.ones(N, N, dtype=torch.bool, device=device).triu(1)
        weights = (q @ k.mT / 8).masked_fill(hidden, -math.inf).softmax(-1)
        (weights @ v).backward(gradient)
        q.grad = k.grad = v.grad = None

    found: Found = {}
    for name, call in (("fused", fused), ("materialised", materialised)):
        try:
            taken = float(peak_bytes(call, device))
        except torch.OutOfMemoryError:
            continue
        finally:
            q.grad = k.grad = v.grad = None
            torch.cuda.empty_cache()
        found[f"bytes there and back of {N}: {name}"] = [taken] * ROUNDS
        found[f"there and back of {N}: {name}"] = seconds_by_round({name: call}, ROUNDS)[name]
    return found


def exact(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None) -> Tensor:
    """The formula in float64, one head of q after the other: (B, h, N, d)."""
    shared = q.shape[1] // k.shape[1]
    outputs = []
    for head in range(q.shape[1]):
        one, keys, values = (x.double() for x in (q[:, head], k[:, head // shared], v[:, head // shared]))
        scores = one @ keys.mT * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
        if causal:
            scores.masked_fill_(torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1), -math.inf)
        outputs.append(scores.softmax(-1) @ values)
    return torch.stack(outputs, 1)


def agree(ways: Mapping[str, Call], expected: Tensor) -> dict[str, float]:
    """How far each way is from `expected`, as a share of its length.

    Raises:
        ValueError: one is further than `MOST_OFF`.
    """
    errors = {}
    for name, way in ways.items():
        output = way()
        assert isinstance(output, Tensor)
        errors[name] = float((output.double() - expected).norm() / expected.norm())
        if not errors[name] <= MOST_OFF:
            raise ValueError(f"{name} is {errors[name]:.2g} of its length away from the formula in float64")
    return errors


if __name__ == "__main__":
    main()
