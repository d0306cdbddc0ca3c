"""Time and memory, measured so that a noisy machine does not decide the answer."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from ._validate import require_count, require_device, require_function, require_kind


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
    """The median time of each function, all in one run.

    Every round calls each function once, so that a slow moment of the machine hits all of them, and begins with
    another one, so that none always follows the same. One round goes before, uncounted.

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
    for round_number in range(rounds + 1):
        first = round_number % len(names)
        for name in names[first:] + names[:first]:
            _synchronise()
            start = time.perf_counter()
            functions[name]()
            _synchronise()
            if round_number:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def peak_bytes(function: Callable[[], object], device: torch.device | str = "cpu") -> int:
    """The most memory that tensors made inside `function` hold at one moment, workspace of torch's kernels included.

    Args:
        function: called twice, once uncounted. What it gives back, it must have taken itself: clear gradients at its
            end, not at its beginning.
        device: where its tensors live; what is allocated elsewhere does not count.

    Raises:
        TypeError, ValueError: `function` cannot be called, or there is no such device.
    """
    require_function("function", function)
    require_device("device", device)
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
