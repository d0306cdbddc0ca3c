"""The translations in chapters/notation.md, line by line, against the real libraries.

The page is read, not repeated: shapes and conversions are taken from its cells and executed. A line for which there
is no check fails. Keras and Flax are tested where they are installed, as in requirements.txt.
"""

from __future__ import annotations

import inspect
import re

import elsewhere
import pytest
import torch
from elsewhere import (
    PAGE,
    RUN,
    SIZES,
    TABLES,
    B,
    D,
    K,
    Q,
    convert,
    full_shape,
    h,
    keras_layer,
    our_inputs,
    our_layer,
    run_d2l,
    run_function,
    run_harvard,
    run_keras,
    run_linen,
    run_nnx,
    run_ours,
    run_torch,
)
from torch import Tensor, nn

from mhalib import MultiHeadAttention, reference
from tools.notebooks import markdown_pages as pages

CLOSE = {"rtol": 0, "atol": 1e-5}
LINES = [(section, row) for section, table in TABLES.items() for row in table.rows]
CARRIED = [(name, bias) for name in RUN if name != "this book" for bias in (False, True)]
CARRIED = [case for case in CARRIED if case[0] in ("torch", "Keras", "Flax linen", "Flax nnx") or not case[1]]


@pytest.fixture(scope="module", autouse=True)
def _foreign_settings(tmp_path_factory):
    """What Keras and JAX read once, when they are imported: torch as the backend, no accelerator, no file at home."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERAS_BACKEND", "torch")
        patch.setenv("KERAS_TORCH_DEVICE", "cpu")
        patch.setenv("KERAS_HOME", str(tmp_path_factory.mktemp("keras")))
        patch.setenv("JAX_PLATFORMS", "cpu")
        yield


@pytest.mark.parametrize(("library", "bias"), CARRIED)
def test_weights_carried_over_as_the_page_says_compute_the_same(library, bias):
    layer, inputs = our_layer(bias), our_inputs()
    if bias:  # each bias of its own, so that none can be forgotten or taken for another
        for projection in (layer.W_q, layer.W_k, layer.W_v, layer.W_o):
            nn.init.normal_(projection.bias)
    torch.testing.assert_close(RUN[library](layer, *inputs)[0], layer(*inputs)[0], **CLOSE)


OURS_AND_TORCH = {
    "this book": MultiHeadAttention,
    "torch": nn.MultiheadAttention,
    "D2L": reference.D2LMultiHeadAttention,
    "Harvard": reference.HarvardMultiHeadAttention,
}


def init_parameters(library):
    """The names that the layer's constructor takes."""
    if library == "Keras":
        return {*inspect.signature(type(keras_layer()).__init__).parameters}
    if library == "Flax":
        flax = pytest.importorskip("flax")
        both = (flax.linen.MultiHeadDotProductAttention.__init__, flax.nnx.MultiHeadAttention.__init__)
        return set.intersection(*({*inspect.signature(function).parameters} for function in both))
    return {*inspect.signature(OURS_AND_TORCH[library]).parameters}


def check_sizes(library, width, heads, head_width):
    if library == "Vaswani":
        assert (width, heads, head_width) == (r"$d_{\text{model}}$", "$h$", "$d_k$, and $d_v$")  # section 3.2.2
        return
    takes = init_parameters(library)
    assert {*pages.code_names(width), *pages.code_names(heads)} <= takes
    if library == "Keras":
        twin = keras_layer(key_dim=D)
        twin.build((B, Q, D), (B, K, D))
        assert tuple(twin.query_dense.kernel.shape) == (D, h, D)  # heads that are too wide, and no complaint
        assert (width, head_width) == ("width of the query", "`key_dim`, given")
        assert "key_dim" in takes
        return
    assert "computed" in head_width
    assert not {*pages.code_names(head_width)} & takes
    if library == "Flax":
        flax = pytest.importorskip("flax")
        assert (
            flax.nnx.MultiHeadAttention(h, 11, **{pages.code_names(width)[0]: D}, rngs=flax.nnx.Rngs(0)).head_dim == 5
        )
        return
    twin = OURS_AND_TORCH[library](**{pages.code_names(width)[0]: D, pages.code_names(heads)[0]: h})
    assert all(getattr(twin, name) == SIZES["d"] for name in pages.code_names(head_width))


def check_call(library, arguments, layout):
    if library == "Keras":
        called = [keras_layer().call]
    elif library == "Flax":
        flax = pytest.importorskip("flax")
        called = [flax.linen.MultiHeadDotProductAttention.__call__, flax.nnx.MultiHeadAttention.__call__]
    else:
        called = [OURS_AND_TORCH[library].forward]
    for function in called:
        names = [name for name in inspect.signature(function).parameters if name != "self"]
        assert ", ".join(names[:3]) == arguments.strip("`")
    if library == "torch":
        assert layout == "$(N, B, D)$; $(B, N, D)$ with `batch_first=True`"
        x = torch.randn(B, Q, D)
        assert nn.MultiheadAttention(D, h)(x, x, x)[1].shape == (Q, B, B)  # each place mixes the examples
    else:
        assert layout == "$(B, N, D)$"  # run_... pass that, and their outputs are compared


def check_biases(library, answer):
    if library == "Keras":
        twin = keras_layer()
        twin.build((B, Q, D), (B, K, D))
        biases = [weight.path for weight in twin.weights if "bias" in weight.path]
    elif library == "Flax":
        flax = pytest.importorskip("flax")
        twin = flax.nnx.MultiHeadAttention(h, D, rngs=flax.nnx.Rngs(0))
        biases = [part for part in (twin.query, twin.key, twin.value, twin.out) if part.bias is not None]
        assert inspect.signature(flax.linen.MultiHeadDotProductAttention).parameters["use_bias"].default is True
    else:
        twin = OURS_AND_TORCH[library](*((h, D) if library == "Harvard" else (D, h)))
        biases = [name for name, _ in twin.named_parameters() if "bias" in name]
        assert ("always" in answer) == ("bias" not in inspect.signature(type(twin)).parameters)
    assert answer.split(",")[0] == ("yes" if biases else "no")


MASKS = {
    "torch `key_padding_mask`": (run_torch, "key_padding_mask"),
    "torch `attn_mask`": (run_torch, "attn_mask"),
    "torch `attn_mask`, per head": (run_torch, "attn_mask"),
    "SDPA `attn_mask`": (run_function, "attn_mask"),
    "Keras `attention_mask`": (run_keras, "attention_mask"),
    "Keras `attention_mask`, per head": (run_keras, "attention_mask"),
    "Flax `mask`": (run_linen, "mask"),
    "D2L `valid_lens`": (run_d2l, "valid_lens"),
    "D2L `valid_lens`, per query": (run_d2l, "valid_lens"),
    "Harvard `mask`": (run_harvard, "mask"),
}


def a_mask(shape, counts):
    """A mask (B, h, Q, K) that says no more than an argument of that shape can say; each query may see key 0."""
    if counts:
        lens = torch.randint(1, K + 1, (B, Q if "Q" in shape else 1))
        return (torch.arange(K) < lens[:, None, :, None]).expand(B, h, Q, K)
    mask = torch.rand(*(size if name in shape else 1 for name, size in (("B", B), ("h", h), ("Q", Q))), K) < 0.6
    mask[..., 0] = True
    return mask.expand(B, h, Q, K)


def check_masks(argument, form, ours):
    shape, meaning = form.split("; ")
    layer, inputs = our_layer(), our_inputs()
    mask = a_mask(shape, "count" in meaning)
    theirs = convert(ours, layer, mask=mask)
    assert tuple(theirs.shape) == full_shape(shape)
    run, name = MASKS[argument]
    for run_one in (run_linen, run_nnx) if run is run_linen else (run,):
        output, _ = run_one(layer, *inputs, **{name: theirs})
        torch.testing.assert_close(output, layer(*inputs, mask=mask)[0], **CLOSE)
    where_all_may = convert(ours, layer, mask=torch.ones_like(mask))
    if theirs.dtype == torch.bool:
        assert meaning == ("attends" if where_all_may.all() else "hides")
    else:
        assert meaning == "no booleans: a count"


def kind(found, values):
    """Which of the page's phrases describes a tensor."""
    if found is None:
        return "not returned"
    if found.isnan().all():
        return "NaN"
    if found.count_nonzero() == 0:
        return "0"
    torch.testing.assert_close(found, values.expand_as(found), **CLOSE)
    return "$1/K$ each" if values.dim() == 0 else "mean of the values"


def empty(rows):
    """Nothing for example 0, all for example 1: (B, 1, 1, K) and what each library takes."""
    return torch.tensor([False, True])[:, None, None, None].expand(B, h, Q, rows)


EMPTY = {
    "this book": (run_ours, lambda mask: {"mask": mask}),
    "torch": (run_torch, lambda mask: {"key_padding_mask": ~mask[:, 0, 0], "average_attn_weights": False}),
    "torch, `need_weights=False`": (
        run_torch,
        lambda mask: {"key_padding_mask": ~mask[:, 0, 0], "need_weights": False},
    ),
    "SDPA": (run_function, lambda mask: {"attn_mask": mask}),
    "Keras, weights asked for": (
        run_keras,
        lambda mask: {"attention_mask": mask[:, 0], "return_attention_scores": True},
    ),
    "Keras": (run_keras, lambda mask: {"attention_mask": mask[:, 0]}),
    "Flax": (run_linen, lambda mask: {"mask": mask}),
    "D2L": (run_d2l, lambda mask: {"valid_lens": mask[:, 0, 0].sum(-1)}),
    "Harvard": (run_harvard, lambda mask: {"mask": mask[:, 0]}),
}


def check_empty(library, weights_cell, output_cell):
    layer, inputs = our_layer(plain_output=True), our_inputs()
    run, options = EMPTY[library]
    mean = layer.W_v(inputs[2])[0].mean(0)
    for run_one in (run_linen, run_nnx) if library == "Flax" else (run,):
        output, weights = run_one(layer, *inputs, **options(empty(K)))
        first = None if weights is None else weights[: len(weights) // B]  # example 0, whether or not heads are folded
        assert weights_cell == kind(first, torch.tensor(1 / K))
        assert output_cell == kind(output[0], mean)


def check_weights(library, how, shape):
    layer, inputs = our_layer(), our_inputs()
    expected = layer(*inputs)[1]
    options = {}
    if library.startswith("torch"):
        expected = expected if "average" in library else expected.mean(1)
        options = {"average_attn_weights": False} if "average" in library else {}
        assert ("mean over heads" in how) == (not options)
    elif library == "Keras":
        options = {"return_attention_scores": True}
        assert "`return_attention_scores=True`" in how
    elif library.startswith("Flax"):
        assert "`sow_weights=True`" in how
        assert ('`mutable="intermediates"`' if "linen" in library else "`nnx.capture`") in how
    elif library in ("D2L", "Harvard"):
        assert f"self.{pages.code_names(how)[0]} =" in inspect.getsource(OURS_AND_TORCH[library])
    weights: Tensor = RUN[library.split(",")[0]](layer, *inputs, **options)[1]
    assert tuple(weights.shape) == full_shape(shape)
    torch.testing.assert_close(weights, expected.reshape(weights.shape), **CLOSE)


def check_layout(theirs, shape, ours):
    """Names and completeness are held where the weights are carried over; here shape and conversion agree."""
    if "query" in theirs:
        assert theirs.strip("`").startswith("query")
    assert tuple(convert(ours, our_layer(bias=True), i=1).shape) == full_shape(shape)


CHECKS = {
    "Sizes": check_sizes,
    "The call": check_call,
    "Biases": check_biases,
    "Masks": check_masks,
    "A query that may attend to nothing": check_empty,
    "The weights you get back": check_weights,
    **{f"Weights: {name}": check_layout for name in ("Vaswani", "torch", "Keras", "Flax", "D2L", "Harvard")},
}


@pytest.mark.parametrize(("section", "row"), LINES, ids=[f"{section}-{row[0]}" for section, row in LINES])
def test_line_of_the_page_is_true(section, row):
    CHECKS[section](*row)


def test_no_section_of_the_page_is_left_out():
    assert TABLES.keys() == CHECKS.keys()
    assert [row[0] for row in TABLES["Masks"].rows] == list(MASKS)
    assert [row[0] for row in TABLES["A query that may attend to nothing"].rows] == list(EMPTY)


def test_page_names_the_versions_that_are_tested():
    pinned = (pages.CHAPTERS.parent / "requirements.txt").read_text(encoding="utf-8")
    (line,) = re.findall("Measured with .*", PAGE)
    for name, version in re.findall(r"(\w+) (\d+\.\d+)", line):
        assert f"\n{name.lower()}=={version}." in pinned


@pytest.mark.parametrize(
    ("section", "row"),
    [
        ("Sizes", ("Harvard", "`num_hiddens`", "`h`", "`d_k`, computed")),
        ("The call", ("torch", "`query, value, key`", "$(N, B, D)$; $(B, N, D)$ with `batch_first=True`")),
        ("Biases", ("torch", "no")),
        ("Biases", ("D2L", "yes, always")),
        ("Masks", ("torch `key_padding_mask`", "$(B, K)$; attends", "`~mask[:, 0, 0]`")),
        ("Masks", ("torch `key_padding_mask`", "$(B, K)$; hides", "`mask[:, 0, 0]`")),
        ("Masks", ("torch `attn_mask`, per head", "$(B h, Q, K)$; hides", "`~mask.transpose(0, 1).flatten(0, 1)`")),
        ("A query that may attend to nothing", ("torch", "0", "0")),
        ("A query that may attend to nothing", ("D2L", "0", "mean of the values")),
        ("The weights you get back", ("torch", "second result: the mean over heads", "$(B, h, Q, K)$")),
        ("Weights: torch", ("`out_proj.weight`", "$(D, 3 D)$", "`W_o.weight`")),
    ],
)
def test_a_wrong_line_is_rejected(section, row):
    with pytest.raises(AssertionError):
        CHECKS[section](*row)


def test_a_wrong_layout_is_rejected(monkeypatch):
    right = TABLES["Weights: Vaswani"]
    wrong = [(theirs, shape, ours.replace("W_k", "W_q")) for theirs, shape, ours in right.rows]
    monkeypatch.setitem(elsewhere.TABLES, "Weights: Vaswani", pages.Table(right.trail, right.header, tuple(wrong)))
    with pytest.raises(AssertionError, match="not close"):
        test_weights_carried_over_as_the_page_says_compute_the_same("Vaswani", False)
