"""Run the layers of one framework on stored cases, and print how far they are from the stored answers; or time ours.

    python -m tools.evidence.frameworks.measure RUN CASES.npz [--sharp] [DTYPE ...]
    python -m tools.evidence.frameworks.measure RUN --times

It needs the framework and NumPy, and runs in the framework's own environment; `python -m tools.evidence.frameworks`
writes the cases and calls this. `--sharp` measures the few properties that see most mistakes, which is what the book's
tests do. What it prints is JSON: layer -> dtype -> property -> the largest deviation, or a word where there is none.

`--times` times our layer, eager and compiled, against the same steps in NumPy, in one process. What it prints is the
versions, and for each size how many times as long each way takes as NumPy does.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from tools.evidence.frameworks import Arrays, Call, Layer, Passes, UnableError, layers_of

DTYPES = ("float32", "float64")
NAN, UNABLE = "NaN", "cannot"
SHARP = ("there and back", "all at once", "causal", "no keys")
PROPERTIES = (
    *("there and back", "forward", "weights", "gradients of inputs", "gradients of weights", "no bias", "mask"),
    *("all at once", "valid_lens", "valid_lens per query", "causal", "no keys", "D2L's check", "without weights"),
    *("no keys, without weights", "dropout off", "cache", "compiled"),
)
D, HEADS = 256, 8
SIZES = {"1 × 16": ((1, 16), 200), "4 × 256": ((4, 256), 80)}
"""Examples × tokens -> both, and how many rounds."""
BASELINE = "NumPy"
TOLERANCE = 1e-4


class Case:
    """One case of the file: weights, inputs, options, and the answers."""

    def __init__(self, fields: dict[str, np.ndarray], dtype: str) -> None:
        fields = {name: array.astype(dtype) if array.dtype.kind == "f" else array for name, array in fields.items()}
        self.fields = fields
        self.num_heads = int(fields["num_heads"])
        self.weights = {name: array for name, array in fields.items() if name[:2] in ("W_", "b_")}
        self.call = Call(
            (fields["queries"], fields["keys"], fields["values"]),
            fields.get("valid_lens"),
            fields.get("mask"),
            bool(fields.get("causal", False)),
        )


def numpy(x: Any) -> np.ndarray:
    """A framework's tensor as a NumPy array."""
    for name in ("asnumpy", "detach"):
        if hasattr(x, name):
            x = getattr(x, name)()
    return np.asarray(x)


def deviation(found: Any, expected: np.ndarray) -> float:
    """The largest difference, NaN if there is one in what was found; another shape is an error."""
    found = numpy(found)
    if found.shape != expected.shape:
        raise AssertionError(f"shape {found.shape} instead of {expected.shape}")
    if found.dtype != expected.dtype:
        raise AssertionError(f"{found.dtype} instead of {expected.dtype}")
    return float(np.abs(found - expected).max())


def largest(deviations: list[float]) -> float | str:
    return NAN if np.isnan(deviations).any() else max(deviations)


def of_call(layer: Layer, case: Case, output: Any, weights: Any) -> list[float]:
    found = [deviation(output, case.fields["output"])]
    return found if weights is None else [*found, deviation(weights, case.fields["weights"])]


def gradients(layer: Layer, case: Case) -> tuple[list[float], list[float]]:
    """Deviations of the gradients of inputs, and of weights."""
    made = layer.make(case.weights, case.num_heads)
    of_inputs, of_weights = layer.gradients(made, case.call, case.fields["cotangent"])
    names = ("queries", "keys", "values")
    if set(of_weights) != set(case.weights):
        raise AssertionError(f"gradients of {sorted(of_weights)} instead of {sorted(case.weights)}")
    return (
        [deviation(x, case.fields[f"d_{name}"]) for name, x in zip(names, of_inputs, strict=True)],
        [deviation(x, case.fields[f"d_{name}"]) for name, x in of_weights.items()],
    )


def there_and_back(layer: Layer, case: Case) -> float:
    """How far the weights are after they went into the layer and out again."""
    arrays: Arrays = layer.back(layer.make(case.weights, case.num_heads))
    return max(deviation(arrays[name], array) for name, array in case.weights.items())


def of_case(layer: Layer, case: Case) -> float | str:
    """Output, weights and all gradients of one case."""
    try:
        made = layer.make(case.weights, case.num_heads)
        deviations = of_call(layer, case, *layer.run(made, case.call))
        return largest([*deviations, *(x for part in gradients(layer, case) for x in part)])
    except UnableError:
        return UNABLE


def measure_sharply(layer: Layer, cases: dict[str, Case]) -> dict[str, float | str]:
    """`SHARP` property -> largest deviation."""
    back, *others = SHARP
    others = [name for name in others if name != "causal" or not layer.own]  # to others a mask like any other
    return {back: there_and_back(layer, cases["forward"]), **{name: of_case(layer, cases[name]) for name in others}}


def measure(layer: Layer, cases: dict[str, Case]) -> dict[str, float | str]:
    """Property -> largest deviation."""
    plain = cases["forward"]
    made = layer.make(plain.weights, plain.num_heads)
    output, weights = layer.run(made, plain.call)
    found: dict[str, float | str] = {
        "there and back": there_and_back(layer, plain),
        "forward": largest([deviation(output, plain.fields["output"])]),
        "weights": UNABLE if weights is None else largest([deviation(weights, plain.fields["weights"])]),
    }
    of_inputs, of_weights = gradients(layer, plain)
    found |= {"gradients of inputs": largest(of_inputs), "gradients of weights": largest(of_weights)}
    found |= {name: of_case(layer, case) for name, case in cases.items() if name != "forward"}
    empty = cases["no keys"]
    for name, case in (("without weights", plain), ("no keys, without weights", empty)):
        made = layer.make(case.weights, case.num_heads)
        found[name] = largest(of_call(layer, case, *layer.run(made, case.call._replace(weights=False))))
    made = layer.make(plain.weights, plain.num_heads, dropout=0.5)
    found["dropout off"] = largest(of_call(layer, plain, *layer.run(made, plain.call)))
    return found | {name: of_causal(layer, cases["causal"], name) for name in ("cache", "compiled")}


def of_causal(layer: Layer, case: Case, way: str) -> float | str:
    """Token by token with a cache, or compiled, where the layer can."""
    made = layer.make(case.weights, case.num_heads)
    try:
        if way == "compiled":
            return largest(of_call(layer, case, *layer.compiled(made, case.call)))
        outputs = layer.decode(made, case.fields["queries"])
    except UnableError:
        return UNABLE
    return largest([deviation(np.concatenate([numpy(output) for output in outputs], axis=1), case.fields["output"])])


def read(path: Path) -> dict[str, dict[str, np.ndarray]]:
    """Case -> its fields."""
    cases: dict[str, dict[str, np.ndarray]] = {}
    with np.load(path) as stored:
        for key in stored.files:
            name, _, field = key.partition("/")
            cases.setdefault(name, {})[field] = stored[key]
    return cases


def in_numpy(arrays: Arrays, x: np.ndarray) -> Passes:
    B, N, _ = x.shape

    def attend() -> tuple[np.ndarray, np.ndarray]:
        q, k, v = ((x @ arrays[f"W_{name}"].T).reshape(B, N, HEADS, D // HEADS).transpose(0, 2, 1, 3) for name in "qkv")
        scores = q @ k.swapaxes(2, 3) / np.float32((D // HEADS) ** 0.5)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        weights = scores / scores.sum(-1, keepdims=True)
        return (weights @ v).transpose(0, 2, 1, 3).reshape(B, N, D) @ arrays["W_o"].T, weights

    return {BASELINE: attend}


def ratios(passes: Passes, rounds: int) -> dict[str, float]:
    """The least time of each, as a multiple of NumPy's. Every round calls each once, in an order of its own.

    Other programs only ever add to a time, and to short calls of several threads they add most.
    """
    order, names = random.Random(0), list(passes)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + 3):
        for name in order.sample(names, len(names)):
            begin = time.perf_counter()
            passes[name]()
            if number >= 3:  # the first compile
                seconds[name].append(time.perf_counter() - begin)
    least = {name: min(one) for name, one in seconds.items()}
    return {name: one / least[BASELINE] for name, one in least.items() if name != BASELINE}


def time_passes(layer: Layer, size: tuple[int, int], rounds: int) -> dict[str, float]:
    """The ratios for inputs of (examples, tokens).

    Raises:
        AssertionError: one of the ways does not compute what NumPy does.
    """
    chance = np.random.default_rng(0)
    arrays = {f"W_{name}": chance.normal(0, D**-0.5, (D, D)).astype(np.float32) for name in "qkvo"}
    x = chance.normal(size=(*size, D)).astype(np.float32)
    passes = in_numpy(arrays, x) | layer.passes(layer.make(arrays, HEADS), x)
    for attend in passes.values():
        for found, expected in zip(attend(), passes[BASELINE](), strict=True):
            np.testing.assert_allclose(numpy(found), expected, rtol=0, atol=TOLERANCE)
    return ratios(passes, rounds)


def deviations(layers: list[Layer], cases: dict[str, dict[str, np.ndarray]], words: list[str]) -> dict[str, Any]:
    """Layer -> dtype -> property -> the largest deviation."""
    how = measure_sharply if "--sharp" in words else measure
    dtypes = [word for word in words if word in DTYPES] or DTYPES
    typed = {dtype: {name: Case(fields, dtype) for name, fields in cases.items()} for dtype in dtypes}
    return {layer.name: {dtype: how(layer, typed[dtype]) for dtype in dtypes} for layer in layers}


def times(run: str, layer: Layer) -> dict[str, Any]:
    """Versions, and size -> way -> ratio."""
    found = {name: time_passes(layer, size, rounds) for name, (size, rounds) in SIZES.items()}
    versions = {"numpy": np.__version__, run: importlib.import_module(run).__version__.partition("+")[0]}
    return {"versions": versions, "times": found}


def main() -> None:
    run, what, *words = sys.argv[1:]
    layers = layers_of(run)
    found = times(run, layers[0]) if what == "--times" else deviations(layers, read(Path(what)), words)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
