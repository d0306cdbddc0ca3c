"""Time our layer in one framework, eager and compiled, against the same steps in NumPy, in one process.

    python -m tools.evidence.framework_times RUN

It needs the framework and NumPy, and runs in the framework's own environment; `frameworks.py` calls it. What it prints
is JSON: the versions, and for each size how many times as long each way takes as NumPy does.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
import time
from collections.abc import Callable

import numpy as np

Arrays = dict[str, np.ndarray]
Passes = dict[str, Callable[[], tuple]]
"""Name -> computes the layer once: output and weights."""

D, HEADS = 256, 8
SIZES = {"1 × 16": ((1, 16), 200), "4 × 256": ((4, 256), 80)}
"""Examples × tokens -> both, and how many rounds."""
BASELINE = "NumPy"
TOLERANCE = 1e-4


def in_numpy(arrays: Arrays, x: np.ndarray) -> Passes:
    B, N, _ = x.shape

    def attend() -> tuple[np.ndarray, np.ndarray]:
        q, k, v = ((x @ arrays[f"W_{name}"].T).reshape(B, N, HEADS, D // HEADS).transpose(0, 2, 1, 3) for name in "qkv")
        scores = q @ k.swapaxes(2, 3) / np.float32((D // HEADS) ** 0.5)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        weights = scores / scores.sum(-1, keepdims=True)
        return (weights @ v).transpose(0, 2, 1, 3).reshape(B, N, D) @ arrays["W_o"].T, weights

    return {BASELINE: attend}


def in_torch(arrays: Arrays, x: np.ndarray) -> Passes:
    import torch

    from mhalib import reference

    layer, z = reference.from_arrays(arrays, HEADS).eval().requires_grad_(False), torch.tensor(x)
    return {"PyTorch, eager": lambda: layer(z, z, z, need_weights=True)}


def in_tensorflow(arrays: Arrays, x: np.ndarray) -> Passes:
    import tensorflow as tf

    from mhalib.reference import in_tensorflow as library

    weights, z = library.from_arrays(arrays, HEADS), tf.constant(x)

    def attend(z: object) -> tuple:
        return library.multi_head_attention(weights, z, z, z, num_heads=HEADS)[:2]

    graph, fused = tf.function(attend), tf.function(attend, jit_compile=True)
    return {
        "TensorFlow, eager": lambda: attend(z),
        "TensorFlow, tf.function": lambda: graph(z),
        "TensorFlow, XLA": lambda: fused(z),
    }


def in_mxnet(arrays: Arrays, x: np.ndarray) -> Passes:
    from mxnet import np as mxnp

    from mhalib.reference import in_mxnet as library

    layer, z = library.from_arrays(arrays, HEADS), mxnp.array(x)
    block = library.HybridMultiHeadAttention(layer)
    block.hybridize(static_alloc=True, static_shape=True)

    def waited(found: tuple) -> tuple:
        for one in found:
            one.wait_to_read()  # MXNet returns before it has computed
        return found

    return {
        "MXNet, imperative": lambda: waited(layer(z, z, z)),
        "MXNet, hybridized": lambda: waited(block(z, z, z)),
    }


PASSES = {"torch": in_torch, "tensorflow": in_tensorflow, "mxnet": in_mxnet}


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


def numpy(x: object) -> np.ndarray:
    return x.asnumpy() if hasattr(x, "asnumpy") else np.asarray(x)


def measure(run: str, size: tuple[int, int], rounds: int) -> dict[str, float]:
    """The ratios for inputs of (examples, tokens).

    Raises:
        AssertionError: one of the ways does not compute what NumPy does.
    """
    chance = np.random.default_rng(0)
    arrays = {f"W_{name}": chance.normal(0, D**-0.5, (D, D)).astype(np.float32) for name in "qkvo"}
    x = chance.normal(size=(*size, D)).astype(np.float32)
    passes = in_numpy(arrays, x) | PASSES[run](arrays, x)
    for attend in passes.values():
        for found, expected in zip(attend(), passes[BASELINE](), strict=True):
            np.testing.assert_allclose(numpy(found), expected, rtol=0, atol=TOLERANCE)
    return ratios(passes, rounds)


def main() -> None:
    run = sys.argv[1]
    times = {name: measure(run, size, rounds) for name, (size, rounds) in SIZES.items()}
    versions = {"numpy": np.__version__, run: importlib.import_module(run).__version__.partition("+")[0]}
    print(json.dumps({"versions": versions, "times": times}))


if __name__ == "__main__":
    main()
