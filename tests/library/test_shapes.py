"""Heads are cut in the right place, what does not fit is refused by name, and the package is what it says it is."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest
import torch
from torch import zeros

import mhalib
from mhalib import (
    MultiHeadAttention,
    attend,
    check_shape,
    masked_softmax,
    merge_heads,
    reference,
    split_heads,
    transpose_output,
    transpose_qkv,
)


def _numbered(*shape):
    """Every entry different, so that a number in the wrong place shows."""
    return torch.arange(torch.Size(shape).numel()).view(shape)


@pytest.mark.parametrize(("num_heads", "head_dim"), [(3, 5), (1, 15), (15, 1)])
def test_head_i_owns_columns_i_d_to_i_plus_1_d(num_heads, head_dim):
    x = _numbered(2, 7, 15)
    heads = split_heads(x, num_heads)
    assert heads.shape == (2, num_heads, 7, head_dim)
    for head in range(num_heads):
        torch.testing.assert_close(heads[:, head], x[:, :, head * head_dim : (head + 1) * head_dim])


def test_splitting_moves_no_number():
    x = _numbered(2, 7, 15)
    split_heads(x, 3)[1, 2, 6, 4] = -1
    assert x[1, 6, 14] == -1


def test_a_direct_reshape_has_the_right_shape_and_the_wrong_numbers():
    x = _numbered(2, 7, 15)
    wrong = x.reshape(2, 3, 7, 5)
    assert wrong.shape == split_heads(x, 3).shape
    assert not torch.equal(wrong, split_heads(x, 3))


def test_merging_undoes_splitting():
    x, heads = _numbered(2, 7, 15), _numbered(2, 3, 7, 5)
    assert torch.equal(merge_heads(split_heads(x, 3)), x)
    assert torch.equal(split_heads(merge_heads(heads), 3), heads)


def test_row_b_h_plus_i_of_transpose_qkv_is_head_i_of_example_b():
    x = _numbered(2, 7, 15)
    rows = transpose_qkv(x, 3)
    assert rows.shape == (6, 7, 5)
    for b in range(2):
        for head in range(3):
            torch.testing.assert_close(rows[3 * b + head], x[b, :, 5 * head : 5 * (head + 1)])
    assert torch.equal(transpose_output(rows, 3), x)


@pytest.mark.parametrize("function", [lambda x: split_heads(x, 3), merge_heads, lambda x: transpose_output(x, 3)])
def test_an_empty_batch_can_be_split_and_merged(function):
    x = zeros(0, 3, 7, 5) if function is merge_heads else zeros(0, 7, 15)
    assert function(x).numel() == 0


BAD_HEADS = [
    (lambda: split_heads([1], 3), TypeError, "x must be a torch.Tensor, got list: [1]"),
    (lambda: split_heads(zeros(7, 15), 3), ValueError, "x must have 3 axes, got shape (7, 15)"),
    (lambda: split_heads(zeros(2, 7, 15), 4), ValueError, "x.shape[-1]=15 is not divisible by num_heads=4"),
    (lambda: split_heads(zeros(2, 7, 15), 0), ValueError, "num_heads=0 must be at least 1"),
    (lambda: split_heads(zeros(2, 7, 15), -3), ValueError, "num_heads=-3 must be at least 1"),
    (lambda: split_heads(zeros(2, 7, 15), 3.0), TypeError, "num_heads must be an integer, got float: 3.0"),
    (lambda: split_heads(zeros(2, 7, 15), True), TypeError, "num_heads must be an integer, got bool: True"),
    (lambda: merge_heads(zeros(2, 7, 15)), ValueError, "x must have 4 axes, got shape (2, 7, 15)"),
    (lambda: transpose_output(zeros(2, 3, 7, 5), 3), ValueError, "x must have 3 axes, got shape (2, 3, 7, 5)"),
    (lambda: transpose_output(zeros(7, 7, 5), 3), ValueError, "x.shape[0]=7 is not divisible by num_heads=3"),
    (lambda: masked_softmax([0.5], None), TypeError, "scores must be a torch.Tensor, got list: [0.5]"),
    (lambda: masked_softmax(zeros(5, 7), zeros(5, 7)), TypeError, "mask must be boolean (True = may attend)"),
]

BAD_ATTEND = [
    ({"q": None}, TypeError, "q must be a torch.Tensor, got NoneType: None"),
    ({"v": zeros(7)}, ValueError, "v needs at least 2 axes, got shape (7,)"),
    ({"q": _numbered(2, 3, 5, 7)}, TypeError, "q must hold floating-point numbers, got torch.int64"),
    ({"v": zeros(2, 3, 11, 13).double()}, TypeError, "v is torch.float64, but q is torch.float32"),
    ({"k": zeros(2, 3, 11, 7, device="meta")}, ValueError, "k is on meta, but q is on cpu"),
    ({"k": zeros(2, 1, 11, 7)}, ValueError, "k has leading axes (2, 1), but q has (2, 3)"),
    ({"k": zeros(2, 3, 11, 5)}, ValueError, "q has 7, k has 5"),
    ({"v": zeros(2, 3, 10, 13)}, ValueError, "each key needs a value: 11 keys, 10 values"),
    ({"mask": [True]}, TypeError, "mask must be a torch.Tensor, got list: [True]"),
    ({"mask": zeros(5, 11)}, TypeError, "mask must be boolean (True = may attend), got torch.float32"),
    ({"mask": zeros(5, 11, dtype=torch.long)}, TypeError, "(True = may attend), got torch.int64"),
    ({"mask": zeros(2, 5, 11) > 0}, ValueError, "shape (2, 5, 11), which does not broadcast to (2, 3, 5, 11)"),
    ({"mask": zeros(1, 2, 3, 5, 11) > 0}, ValueError, "shape (1, 2, 3, 5, 11), which does not broadcast"),
    ({"mask": zeros(5, 11, device="meta") > 0}, ValueError, "mask is on meta, but the scores are on cpu"),
    ({"dropout": -0.1}, ValueError, "dropout=-0.1 must lie in [0, 1]"),
    ({"dropout": float("nan")}, ValueError, "dropout=nan must lie in [0, 1]"),
    ({"dropout": "0.1"}, TypeError, "dropout must be a number in [0, 1], got str: '0.1'"),
]

BAD_LAYERS = [
    ({"num_hiddens": 100, "num_heads": 6}, ValueError, "num_hiddens=100 is not divisible by num_heads=6"),
    ({"num_hiddens": 0}, ValueError, "num_hiddens=0 must be at least 1"),
    ({"num_hiddens": 15.0}, TypeError, "num_hiddens must be an integer, got float: 15.0"),
    ({"num_heads": 0}, ValueError, "num_heads=0 must be at least 1"),
    ({"num_heads": -3}, ValueError, "num_heads=-3 must be at least 1"),
    ({"num_heads": True}, TypeError, "num_heads must be an integer, got bool: True"),
    ({"dropout": 1.5}, ValueError, "dropout=1.5 must lie in [0, 1]"),
    ({"dropout": True}, TypeError, "dropout must be a number in [0, 1], got bool: True"),
    ({"query_size": 0}, ValueError, "query_size=0 must be at least 1"),
    ({"key_size": -17}, ValueError, "key_size=-17 must be at least 1"),
    ({"value_size": "19"}, TypeError, "value_size must be an integer, got str: '19'"),
]

BAD_INPUTS = [
    ({"queries": "text"}, TypeError, "queries must be a torch.Tensor, got str: 'text'"),
    ({"queries": zeros(5, 13)}, ValueError, "queries must have 3 axes, got shape (5, 13)"),
    ({"keys": zeros(2, 7, 13)}, ValueError, "keys has width 13, but the layer was made for 17"),
    ({"values": zeros(2, 7, 19, device="meta")}, ValueError, "values is on meta, but the layer's weights are on cpu"),
    ({"values": zeros(2, 7, 19).half()}, TypeError, "values is torch.float16, but the layer's weights are torch.float"),
    ({"keys": zeros(3, 7, 17)}, ValueError, "keys holds 3 examples, but queries holds 2"),
    ({"values": zeros(2, 6, 19)}, ValueError, "each key needs a value: 7 keys, 6 values"),
    ({"mask": zeros(5, 7)}, TypeError, "mask must be boolean (True = may attend), got torch.float32"),
    ({"mask": zeros(2, 5, 7) > 0}, ValueError, "write mask[:, None] for one matrix per example"),
    ({"mask": zeros(3, 5, 7) > 0}, ValueError, "mask[None] for one per head"),  # would broadcast, to whose surprise?
    ({"mask": zeros(2, 1, 7, 5) > 0}, ValueError, "shape (2, 1, 7, 5), which does not broadcast to (2, 3, 5, 7)"),
    ({"valid_lens": [7, 7]}, TypeError, "valid_lens must be a torch.Tensor, got list: [7, 7]"),
    ({"valid_lens": torch.tensor([7.0, 7.0])}, TypeError, "valid_lens must hold integers, got torch.float32"),
    ({"valid_lens": torch.tensor([-1, 7])}, ValueError, "valid_lens must not be negative, got -1"),
    ({"valid_lens": torch.tensor([8, 7])}, ValueError, "valid_lens holds 8, but there are only num_kvpairs=7 keys"),
    ({"valid_lens": torch.tensor([7])}, ValueError, "valid_lens has shape (1,), but needs (2,) for each example"),
    ({"valid_lens": torch.full((2, 7), 7)}, ValueError, "valid_lens has shape (2, 7), but needs (2,) for each example"),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD_HEADS)
def test_functions_on_heads_name_the_bad_argument(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()


@pytest.mark.parametrize(("changed", "error", "message"), BAD_ATTEND)
@pytest.mark.parametrize("need_weights", [True, False])
def test_attend_names_the_bad_argument(changed, error, message, need_weights):
    good = {"q": zeros(2, 3, 5, 7), "k": zeros(2, 3, 11, 7), "v": zeros(2, 3, 11, 13)}
    with pytest.raises(error, match=re.escape(message)):
        attend(**good | changed, need_weights=need_weights)


@pytest.mark.parametrize(("changed", "error", "message"), BAD_LAYERS)
def test_the_layer_names_the_bad_size(changed, error, message):
    with pytest.raises(error, match=re.escape(message)):
        MultiHeadAttention(**{"num_hiddens": 15, "num_heads": 3} | changed)


@pytest.mark.parametrize(("changed", "error", "message"), BAD_INPUTS)
def test_forward_names_the_bad_input(changed, error, message):
    layer = MultiHeadAttention(15, 3, query_size=13, key_size=17, value_size=19)
    good = {"queries": zeros(2, 5, 13), "keys": zeros(2, 7, 17), "values": zeros(2, 7, 19)}
    with pytest.raises(error, match=re.escape(message)):
        layer(**good | changed)


def test_forward_names_lengths_on_another_device():
    layer = MultiHeadAttention(15, 3).to("meta")
    x = zeros(2, 5, 15, device="meta")
    with pytest.raises(ValueError, match="valid_lens is on cpu, but queries is on meta"):
        layer(x, x, x, torch.tensor([5, 5]))


@pytest.mark.parametrize("expected", [(2, 3, 5), (None, 3, None), [2, None, 5]])
def test_check_shape_accepts(expected):
    check_shape(zeros(2, 3, 5), expected)


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ((2, 3), "weights has shape (2, 3, 5), expected (2, 3): 3 axes, not 2"),
        ((2, 3, None, 5), "weights has shape (2, 3, 5), expected (2, 3, any, 5): 3 axes, not 4"),
        ((5,), "expected (5,): 3 axes, not 1"),
        ((2, None, 7), "weights has shape (2, 3, 5), expected (2, any, 7): axis 2 is 5, not 7"),
        ((1, 3, 0), "axis 0 is 2, not 1, axis 2 is 5, not 0"),
    ],
)
def test_check_shape_says_which_axis_is_wrong(expected, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        check_shape(zeros(2, 3, 5), expected, name="weights")


MODULES = ["mhalib", *(module.name for module in pkgutil.walk_packages(mhalib.__path__, "mhalib."))]
MODULES.remove("mhalib.classroom")  # a name that warns


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")  # read when Keras is imported first
    if name.startswith("mhalib.widgets"):
        pytest.importorskip("anywidget")
    if name.startswith("mhalib.reference.in_"):
        pytest.importorskip(name.rpartition("_")[2])
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("package", [mhalib, reference], ids=lambda package: package.__name__)
def test_every_public_name_exists_and_is_described(package):
    assert len(set(package.__all__)) == len(package.__all__)
    for name in package.__all__:
        assert getattr(package, name).__doc__, name


def test_type_checkers_may_read_the_annotations():
    assert (Path(mhalib.__file__).parent / "py.typed").is_file()
