"""Run the layers of one framework on stored cases, and print how far they are from the stored answers.

    python -m tools.evidence.framework_case RUN CASES.npz [--sharp] [DTYPE ...]

It needs the framework and NumPy, and runs in the framework's own environment; `frameworks.py` writes the cases and
calls this. `--sharp` measures the few properties that see most mistakes, which is what the book's tests do. What it
prints is JSON: layer -> dtype -> property -> the largest deviation, or a word where there is none.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tools.evidence.framework_layers import Arrays, Call, Layer, UnableError, layers_of

DTYPES = ("float32", "float64")
NAN, UNABLE = "NaN", "cannot"
SHARP = ("there and back", "all at once", "causal", "no keys")
PROPERTIES = (
    *("there and back", "forward", "weights", "gradients of inputs", "gradients of weights", "no bias", "mask"),
    *("all at once", "valid_lens", "valid_lens per query", "causal", "no keys", "D2L's check", "without weights"),
    *("no keys, without weights", "dropout off", "cache", "compiled"),
)


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
        "weights": largest([deviation(weights, plain.fields["weights"])]) if layer.has_weights else UNABLE,
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
    causal = cases["causal"]
    made = layer.make(causal.weights, causal.num_heads)
    outputs = layer.decode(made, causal.fields["queries"])
    if outputs is None:
        found["cache"] = UNABLE
    else:
        joined = np.concatenate([numpy(output) for output in outputs], axis=1)
        found["cache"] = largest([deviation(joined, causal.fields["output"])])
    made = layer.make(causal.weights, causal.num_heads)
    answer = layer.compiled(made, causal.call)
    found["compiled"] = UNABLE if answer is None else largest(of_call(layer, causal, *answer))
    return found


def read(path: Path) -> dict[str, dict[str, np.ndarray]]:
    """Case -> its fields."""
    cases: dict[str, dict[str, np.ndarray]] = {}
    with np.load(path) as stored:
        for key in stored.files:
            name, _, field = key.partition("/")
            cases.setdefault(name, {})[field] = stored[key]
    return cases


def main() -> None:
    run, path = sys.argv[1], Path(sys.argv[2])
    sharp, dtypes = "--sharp" in sys.argv, [word for word in sys.argv[3:] if word in DTYPES] or DTYPES
    cases, layers = read(path), layers_of(run)
    found = {
        layer.name: {
            dtype: (measure_sharply if sharp else measure)(
                layer, {name: Case(fields, dtype) for name, fields in cases.items()}
            )
            for dtype in dtypes
        }
        for layer in layers
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
