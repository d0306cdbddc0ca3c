"""The layer in other frameworks: none of them is imported before it is asked for, and weights keep what they are."""

import importlib
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from mhalib import MultiHeadAttention, reference
from mhalib.reference import arrays as A

FRAMEWORKS = ("jax", "flax", "keras", "tensorflow", "mxnet", "triton")
D, h = 15, 3


@pytest.mark.parametrize("statement", ["import mhalib", "import mhalib.reference", "from mhalib.reference import *"])
def test_no_framework_is_imported_before_it_is_asked_for(statement):
    code = f"import sys\n{statement}\nprint(*sorted({{*{FRAMEWORKS}}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


def test_arrays_need_no_torch():
    code = "import sys, mhalib.reference.arrays; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_framework_that_is_missing_is_named_with_what_to_install(framework, monkeypatch):
    monkeypatch.setitem(sys.modules, framework, None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, f"mhalib.reference.in_{framework}", raising=False)
    with pytest.raises(ImportError, match=f"mhalib.reference.in_{framework} needs .*pip install {framework}"):
        importlib.import_module(f"mhalib.reference.in_{framework}")


def test_names_are_there_and_none_besides():
    assert set(reference.__all__) == set(reference._HOMES) <= set(dir(reference))
    with pytest.raises(AttributeError, match=re.escape("module 'mhalib.reference' has no attribute 'to_jax'")):
        _ = reference.to_jax


def layer_and_arrays(bias=True):
    torch.manual_seed(0)
    layer = MultiHeadAttention(D, h, bias=bias).double()
    return layer, reference.to_arrays(layer)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arrays_go_into_a_layer_and_out_again(bias, dtype):
    layer, arrays = layer_and_arrays(bias)
    arrays = {name: array.astype(dtype) for name, array in arrays.items()}
    again = reference.from_arrays(arrays, h, dropout=0.25)
    assert again.dropout == 0.25
    found = reference.to_arrays(again)
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
    x = torch.randn(2, 4, D, dtype=again.W_o.weight.dtype)
    expected = layer.to(x.dtype)(x, x, x)[0]
    torch.testing.assert_close(again.eval()(x, x, x)[0], expected)


def test_arrays_share_no_memory():
    layer, arrays = layer_and_arrays()
    kept = {name: array.copy() for name, array in arrays.items()}
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
    again = reference.from_arrays(arrays, h)
    for array in arrays.values():
        array[...] = 0
    for name, array in reference.to_arrays(again).items():
        np.testing.assert_array_equal(array, kept[name])


def test_kernels_are_as_the_page_on_notation_says():
    _, arrays = layer_and_arrays()
    kernels = A.to_kernels(arrays, h)
    for name, matrix in (("query", "W_q"), ("key", "W_k"), ("value", "W_v")):
        for i in range(h):  # head i has rows i*d to (i+1)*d
            rows = slice(i * D // h, (i + 1) * D // h)
            np.testing.assert_array_equal(kernels[name]["kernel"][:, i], arrays[matrix][rows].T)
            np.testing.assert_array_equal(kernels[name]["bias"][i], arrays[f"b{matrix[1:]}"][rows])
    for i in range(h):
        columns = slice(i * D // h, (i + 1) * D // h)
        np.testing.assert_array_equal(kernels["out"]["kernel"][i], arrays["W_o"][:, columns].T)
    again = A.from_kernels(kernels)
    assert again.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(again[name], array)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"W_q": None}, TypeError, "W_q must be a NumPy array of floating-point numbers, got NoneType"),
        ({"W_q": np.ones((D, D), int)}, TypeError, "W_q must be a NumPy array of floating-point numbers, got int64"),
        ({"W_q": np.ones((D, D + 1))}, ValueError, "W_q must have shape (15, 15), got (15, 16)"),
        ({"b_o": np.ones(D + 1)}, ValueError, "b_o must have shape (15,), got (16,)"),
        ({"W_o": np.ones(D)}, ValueError, "W_o must have 2 axes, got shape (15,)"),
        ({"W_x": np.ones(D)}, ValueError, "missing [], unknown ['W_x']"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change, error, message):
    _, arrays = layer_and_arrays()
    with pytest.raises(error, match=re.escape(message)):
        reference.from_arrays({**arrays, **change}, h)


def test_arrays_without_one_bias_and_heads_that_do_not_divide_are_refused():
    _, arrays = layer_and_arrays()
    with pytest.raises(ValueError, match="num_hiddens=15 is not divisible by num_heads=4"):
        reference.from_arrays(arrays, 4)
    del arrays["b_q"]
    with pytest.raises(ValueError, match=re.escape("missing ['b_q'], unknown []")):
        reference.from_arrays(arrays, h)
    for options in ({"num_kv_heads": 1}, {"key_size": 7}, {"scale": 1.0}, {"positions": "rotary"}):
        with pytest.raises(ValueError, match=r"arrays|a layer of other frameworks"):
            reference.to_arrays(MultiHeadAttention(12, h, **options))


def test_kernels_that_do_not_fit_are_refused():
    kernels = A.to_kernels(layer_and_arrays()[1], h)
    for wrong, message in (
        ({**kernels, "query": {}}, "each with an entry 'kernel'"),
        ({**kernels, "query": {"kernel": np.ones((D, D))}}, "the kernel of 'query' must be an array with 3 axes"),
        ({**kernels, "query": {"kernel": np.ones((D, h, 4))}}, "which is no (15, 15) matrix"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            A.from_kernels(wrong)
    with pytest.raises(TypeError, match="kernels must be a mapping of mappings"):
        A.from_kernels({"query": None})
