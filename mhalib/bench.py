"""Time and memory, measured so that a noisy machine does not decide the answer."""

from __future__ import annotations

import contextlib
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

from ._validate import (
    require_count,
    require_device,
    require_function,
    require_kind,
    require_positive,
    require_text,
)


def time_ratios(functions: Mapping[Any, Callable[[], object]], baseline: Any, rounds: int = 15) -> dict[Any, float]:
    """How many times as long each function takes as the one named `baseline`: the ratio of their `median_seconds`.

    Args:
        functions: by name, a text or a tuple of sizes; each is called without arguments.
        baseline: the name whose ratio is 1.
        rounds: rounds that count.

    Raises:
        TypeError, ValueError: `functions` is no mapping from names to functions, or empty, `baseline` is not among the
            names, or `rounds` is less than 1.
    """
    _require_functions(functions)
    if not isinstance(baseline, Hashable) or baseline not in functions:
        raise ValueError(f"baseline={baseline!r:.80} is not among the functions: {list(functions)}")
    medians = median_seconds(functions, rounds)
    return {name: median / medians[baseline] for name, median in medians.items()}


def median_seconds(functions: Mapping[Any, Callable[[], object]], rounds: int = 15) -> dict[Any, float]:
    """The median time of each function, all in one run: see `seconds_by_round`."""
    return {name: statistics.median(times) for name, times in seconds_by_round(functions, rounds).items()}


def seconds_by_round(functions: Mapping[Any, Callable[[], object]], rounds: int = 15) -> dict[Any, list[float]]:
    """The times of each function, one for each round; those at one place belong to one round.

    Every round calls each function once, so that a slow moment of the machine hits all of them, in an order of its
    own, so that none always follows the same and finds the memory that it left. One round goes before, uncounted.

    Args:
        functions: by name; each is called without arguments.
        rounds: rounds that count.

    Raises:
        TypeError, ValueError: `functions` is no mapping from names to functions, or empty, or `rounds` is less than 1.
    """
    _require_functions(functions)
    require_count("rounds", rounds)
    names = list(functions)
    seconds: dict[Any, list[float]] = {name: [] for name in names}
    order = random.Random(0)
    for round_number in range(rounds + 1):
        for name in order.sample(names, len(names)):
            _synchronise()
            start = time.perf_counter()
            functions[name]()
            _synchronise()
            if round_number:
                seconds[name].append(time.perf_counter() - start)
    return seconds


class _Limits(NamedTuple):
    name: str
    peak: float
    bandwidth: float
    bytes_per_number: int


class Machine(_Limits):
    """The two limits of a processor that a roofline draws.

    Args:
        name: what it is called.
        peak: FLOPs per second, of numbers of `bytes_per_number` bytes.
        bandwidth: bytes per second between the processor and its memory, read and written together.
        bytes_per_number: 4 for float32, 2 for bfloat16 and float16.

    Raises:
        TypeError, ValueError: the name is no text or empty, a limit is no positive and finite number, or
            `bytes_per_number` is no positive integer.
    """

    __slots__ = ()

    def __new__(cls, name: str, peak: float, bandwidth: float, bytes_per_number: int) -> Machine:
        require_text("name", name)
        if not name.strip():
            raise ValueError(f"name={name!r} must say what the machine is called")
        require_positive("peak", peak)
        require_positive("bandwidth", bandwidth)
        require_count("bytes_per_number", bytes_per_number)
        return super().__new__(cls, name, peak, bandwidth, bytes_per_number)

    @classmethod
    def _make(cls, iterable: Iterable[Any]) -> Machine:  # type: ignore[override]
        """As of every named tuple, and `_replace` calls it: so both check, too."""
        return cls(*iterable)

    @property
    def ridge(self) -> float:
        """FLOPs for each byte where both limits meet. A step with fewer waits for memory."""
        return self.peak / self.bandwidth

    def seconds(self, flops: float, moved: float) -> float:
        """The least time of a step with these FLOPs and bytes: both at once, so the longer of the two decides."""
        return max(flops / self.peak, moved / self.bandwidth)

    def bound(self, flops: float, moved: float) -> str:
        """What decides: "arithmetic" or "memory"."""
        return "arithmetic" if flops / self.peak > moved / self.bandwidth else "memory"


def measure_machine(
    functions: Mapping[Any, Callable[[], object]] | None = None,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    size: int = 1024,
    num_bytes: int = 2**28,
    rounds: int = 15,
) -> tuple[Machine, dict[Any, float]]:
    """The limits of this machine, and the median seconds of `functions`, all measured in the same rounds.

    The peak is that of a product of two square matrices, into memory that is there already. The bandwidth is that of a
    copy from one array to another, each read or written once: 2 `num_bytes`. Both are what torch reaches with the
    threads that it has, which is less than what a data sheet says.

    Args:
        functions: by name, as in `median_seconds`; none measures the machine alone.
        device: where it computes.
        dtype: of the matrices.
        size: rows and columns of the matrices: enough to reach the peak. A GPU needs 8192.
        num_bytes: of each array that is copied: many times the processor's largest cache.
        rounds: rounds that count.

    Raises:
        TypeError, ValueError: a size is no positive integer, the device is not there or is "meta", `dtype` holds no
            floating-point numbers, or what `median_seconds` says.
    """
    _require_memory("device", device)
    for name, count in (("size", size), ("num_bytes", num_bytes)):
        require_count(name, count)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"dtype={dtype!r:.80} must be a torch.dtype of floating-point numbers")
    functions = {} if functions is None else functions
    require_kind("functions", functions, Mapping)
    matrix = torch.ones(size, size, device=device, dtype=dtype)
    result = torch.empty_like(matrix)
    source = torch.ones(num_bytes, device=device, dtype=torch.uint8)
    target = torch.zeros_like(source)
    product, copy = object(), object()  # names that no function has
    timed = {product: lambda: torch.mm(matrix, matrix, out=result), copy: lambda: target.copy_(source)}
    seconds = median_seconds({**timed, **functions}, rounds)
    peak, bandwidth = 2 * size**3 / seconds.pop(product), 2 * num_bytes / seconds.pop(copy)
    return Machine("this machine", peak, bandwidth, dtype.itemsize), seconds


def peak_bytes(function: Callable[[], object], device: torch.device | str = "cpu") -> int:
    """The most memory that tensors made inside `function` hold at one moment, workspace of torch's kernels included.

    Args:
        function: called twice, once uncounted. What it gives back, it must have taken itself: clear gradients at its
            end, not at its beginning.
        device: where its tensors live; what is allocated elsewhere does not count.

    Raises:
        TypeError, ValueError: `function` cannot be called, or there is no such device, or it is "meta", or an Apple
            GPU, whose peak torch does not tell.
    """
    require_function("function", function)
    _require_memory("device", device)
    if torch.device(device).type == "mps":
        raise ValueError(f"device={str(device)!r}: torch tells no peak of an Apple GPU's memory; use 'cpu'")
    function()
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        function()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with _quiet_stderr(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
        function()
    live = peak = 0
    for change in _allocations(trace):
        live += change
        peak = max(peak, live)
    return peak


def _require_functions(functions: Mapping[Any, Callable[[], object]]) -> None:
    require_kind("functions", functions, Mapping)
    if not functions:
        raise ValueError("functions is empty")
    for name, function in functions.items():
        require_function(f"functions[{name!r}]", function)


def _require_memory(name: str, device: torch.device | str) -> None:
    """Raise unless `device` is one (TypeError) that is here and holds numbers (ValueError)."""
    require_device(name, device)
    if device is not None and torch.device(device).type == "meta":
        raise ValueError(f"{name}={str(device)!r} has shapes and no numbers: nothing on it takes time or memory")


def _allocations(trace: profile) -> list[int]:
    """Bytes taken (positive) and given back (negative) on the CPU, in order of time."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        trace.export_chrome_trace(str(file))
        events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    changes = [event for event in events if event["name"] == "[memory]" and event["args"]["Device Type"] == 0]
    return [event["args"]["Bytes"] for event in sorted(changes, key=lambda event: event["ts"])]


@contextlib.contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Hold back what torch's profiler writes straight to the file descriptor, which would end up in a page."""
    saved = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
            yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    if torch.backends.mps.is_available():
        torch.mps.synchronize()
