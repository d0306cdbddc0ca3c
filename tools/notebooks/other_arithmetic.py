"""Another machine's arithmetic, for the kernel of a rehearsal: rehearse.py lets the kernel run this file first.

Other processors add up a matrix product in another order. So the kernels that torch has for products on a CPU are
wrapped here: results and gradients differ as they do elsewhere, whoever asks for them, a layer, an `@`, `einsum` or a
backward pass; and a dispatch mode, such as the ledger's, sees not a step more. `SETTINGS` in the environment is JSON:

    error   each float32 element is multiplied by 1 + error·u, with u in [-1, 1]. u comes from the element's own bits,
            the shape of the result and the seed: what is computed twice, and rows that are equal, stay equal; the same
            number in another shape does not
    order   true: the products are added up in another order, which the seed chooses
    onednn  false: switched off
    report  the file to write once all of this is in place

What is exact on every machine stays exact: zeros, multiples of 2^-10 below 2^13 (sums of halves, counts), and elements
with one product at most, as where a one-hot vector picks a row, or a query has one key. In a large result, a sample
says whether to look. An error over `ROUNDING` shrinks to it when an optimiser makes its first step: a model that is
trained with such errors is another model. Then, whatever compares tensors within a tolerance allows `LOOSE` at least.
"""

from __future__ import annotations

import json
import os
import warnings
import zlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

SETTINGS = "REHEARSAL"
ROUNDING = 1e-6
LOOSE = 2e-2  # relative or absolute: what several products with errors as of TF32 can add up to
UNIT, BELOW = 2.0**-10, 2.0**13
SMALL = 2**14  # elements; of a larger result, `SAMPLE` elements say whether to look at all of them
SAMPLE = 256

# Kernels by name; of a product, how many arguments come before the two that are multiplied.
PRODUCTS = {"mm": 0, "bmm": 0, "mv": 0, "dot": 0, "addmm": 1, "baddbmm": 1, "addmv": 1}
ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
OTHERS = (f"{ATTENTION}_backward", "mkldnn_convolution", "_slow_conv2d_forward")


class Arithmetic:
    """How one machine computes a product: its relative `error`, its `order` of adding."""

    def __init__(self, seed: int = 0, error: float = 0.0, order: bool = False) -> None:
        self.seed, self.error, self.order = seed, error, order
        self.library = torch.library.Library("aten", "IMPL")  # what it replaces lives as long as it does

    def install(self) -> None:
        """From now on, torch computes like this in this process."""
        replaced: dict[str, Callable[..., Any]] = dict.fromkeys(PRODUCTS, self.product)
        replaced |= {ATTENTION: self.attention} | dict.fromkeys(OTHERS, self.other)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # says that a kernel is replaced
            for name, function in replaced.items():
                kernel = torch.library.get_kernel(f"aten::{name}", "CPU")
                added = [PRODUCTS[name]] if name in PRODUCTS else []
                own = partial(function, kernel, *added)
                self.library.impl(name, own, "CPU", with_keyset=True, allow_override=True)

    def remove(self) -> None:
        """From now on, torch computes as it did."""
        self.library._destroy()

    def calm(self, *_: object) -> None:
        """From now on, errors no larger than rounding."""
        self.error = min(self.error, ROUNDING)

    def product(self, kernel: Any, added: int, keys: Any, *arguments: Any, **options: Any) -> torch.Tensor:
        """A matrix product, perhaps with something added."""
        a, b = arguments[added : added + 2]
        if a.dtype != torch.float32:
            return kernel.call_boxed(keys, *arguments, **options)
        left, right = a.numpy(force=True), b.numpy(force=True)
        if self.order:
            chosen = _permutation(a.shape[-1], self.seed)
            shuffled = left[..., chosen], np.take(right, chosen, axis=max(b.dim() - 2, 0))
            arguments = (*arguments[:added], *map(torch.from_numpy, shuffled), *arguments[added + 2 :])
        result = kernel.call_boxed(keys, *arguments, **options)

        def agreed() -> Any:
            if left.all() and right.all():
                return left.shape[-1] == 1
            return (left != 0).astype(np.float32) @ (right != 0).astype(np.float32) <= 1

        self.disturb(result, agreed)
        return result

    def attention(self, kernel: Any, keys: Any, query: Any, key: Any, value: Any, *rest: Any, **options: Any) -> Any:
        """Fused attention."""
        result = kernel.call_boxed(keys, query, key, value, *rest, **options)
        output = result[0]

        def agreed() -> Any:
            if output.shape[:-2] != value.shape[:-2] or output.numel() * value.shape[-2] > SMALL * SAMPLE:
                return False
            rows, values = output.numpy(force=True), value.numpy(force=True)
            return (rows[..., :, None, :] == values[..., None, :, :]).all(-1).any(-1, keepdims=True)

        self.disturb(output, agreed)
        return result

    def other(self, kernel: Any, keys: Any, *arguments: Any, **options: Any) -> Any:
        """A convolution, or what goes back through fused attention."""
        result = kernel.call_boxed(keys, *arguments, **options)
        for each in result if isinstance(result, (tuple, list)) else (result,):
            self.disturb(each, lambda: False)
        return result

    def disturb(self, result: torch.Tensor, agreed: Callable[[], Any]) -> None:
        """Give each element its error, in place, but not where all machines agree; `agreed` names such elements."""
        if not self.error or result.dtype != torch.float32 or not result.numel():
            return
        array = np.atleast_1d(result.numpy(force=True))  # NumPy's memory is not in torch's profile
        factors = (array.view(np.uint32) * _odd_number(array.shape, self.seed)).view(np.int32).astype(np.float32)
        factors *= self.error * 2.0**-31
        factors += 1
        if array.size <= SMALL:
            factors[_is_exact(array) | agreed()] = 1
        elif _is_exact(array.flat[:: array.size // SAMPLE]).all():
            factors[_is_exact(array)] = 1
        array *= factors


def _is_exact(array: Any) -> Any:
    scaled = array / UNIT
    return (np.rint(scaled) == scaled) & (np.abs(array) < BELOW)


@cache
def _odd_number(shape: tuple[int, ...], seed: int) -> Any:
    return np.uint32(zlib.crc32(repr((shape, seed)).encode()) | 1)


@cache
def _permutation(size: int, seed: int) -> Any:
    return np.random.default_rng((size, seed)).permutation(size)


def _loosened(comparison: Callable[..., Any]) -> Callable[..., Any]:
    def loose(one: Any, other: Any, rtol: float | None = None, atol: float | None = None, **options: Any) -> Any:
        return comparison(one, other, rtol=max(rtol or 0, LOOSE), atol=max(atol or 0, LOOSE), **options)

    return loose


def _start(report: str, onednn: bool = True, **arithmetic: Any) -> None:
    if not onednn:
        torch.backends.mkldnn.set_flags(False)
    before = _probe()
    machine = Arithmetic(**arithmetic)
    if machine.error or machine.order:
        machine.install()
    if machine.error > ROUNDING:
        register_optimizer_step_pre_hook(machine.calm)
        for module in (torch, torch.Tensor, torch.testing):
            for name in {"allclose", "isclose", "assert_close"} & set(dir(module)):
                setattr(module, name, _loosened(getattr(module, name)))
    found = {
        "threads": torch.get_num_threads(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "onednn": torch.backends.mkldnn.enabled,
        "error": float((_probe() / before - 1).abs().max()),
    }
    Path(report).write_text(json.dumps(found), encoding="utf-8")


def _probe() -> torch.Tensor:
    numbers = torch.linspace(0.1, 1, 211 * 223)  # leaves the source of chance alone
    return numbers.view(211, 223) @ numbers.view(223, 211)


if SETTINGS in os.environ:
    _start(**json.loads(os.environ[SETTINGS]))
