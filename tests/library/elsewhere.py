"""The layer in other libraries, each as one function: our layer, inputs, options -> output, weights or None.

Their weights are made from ours as the tables of chapters/notation.md say: the page is read, not repeated.
Keras and Flax are imported only when they are called, and skip the test where they are not installed.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mhalib import MultiHeadAttention, reference
from tools.notebooks import markdown_pages as pages

B, Q, K, h, d = 2, 4, 7, 3, 5
D = h * d
SIZES = {"B": B, "Q": Q, "K": K, "D": D, "h": h, "d": d}
PAGE = (pages.CHAPTERS / "notation.md").read_text(encoding="utf-8")
TABLES = {table.trail[-1]: table for table in pages.tables(PAGE) if table.trail[1] == "The same thing elsewhere"}


def our_layer(bias=False, plain_output=False):
    """One layer of this book; `plain_output` makes W_o the identity, so that the output is what reaches W_o."""
    torch.manual_seed(0)
    layer = MultiHeadAttention(D, h, bias=bias)
    if plain_output:
        nn.init.eye_(layer.W_o.weight)
    return layer


def our_inputs():
    torch.manual_seed(1)
    return torch.randn(B, Q, D), torch.randn(B, K, D), torch.randn(B, K, D)


def full_shape(cell):
    """`$(B h, Q, K)$` -> (6, 4, 7)."""
    axes = cell.strip("$").removeprefix("(").removesuffix(")").split(",")
    return tuple(math.prod(SIZES.get(factor) or int(factor) for factor in axis.split()) for axis in axes)


def convert(cell, layer, **names):
    """Execute a conversion that stands on the page."""
    (expression,) = pages.code_names(cell)
    projections = {name: getattr(layer, name) for name in ("W_q", "W_k", "W_v", "W_o")}
    return eval(expression, {"cat": torch.cat, **SIZES, **projections, **names}).detach()


def page_weights(library, layer):
    """Name -> tensor, as the page's table for `library` says; lines for `query` are repeated for `key` and `value`."""
    found = {}
    for theirs, shape, ours in TABLES[f"Weights: {library}"].rows:
        for name, projection in (("query", "W_q"), ("key", "W_k"), ("value", "W_v")):
            if "bias" in theirs and layer.W_q.bias is None:
                continue
            tensor = convert(ours.replace("W_q", projection) if "query" in theirs else ours, layer, i=1)
            assert tuple(tensor.shape) == full_shape(shape), theirs
            found[theirs.strip("`").replace("query", name)] = tensor
    return found


def run_vaswani(layer, queries, keys, values):
    matrices = {theirs: ours for theirs, _, ours in TABLES["Weights: Vaswani"].rows}
    heads, weights = [], []
    for i in range(h):
        W_Q, W_K, W_V = (convert(matrices[f"$W_i^{name}$"], layer, i=i) for name in "QKV")
        weights.append(((queries @ W_Q) @ (keys @ W_K).mT / math.sqrt(d)).softmax(-1))
        heads.append(weights[-1] @ (values @ W_V))
    return torch.cat(heads, -1) @ convert(matrices["$W^O$"], layer), torch.stack(weights, 1)


def run_torch(layer, queries, keys, values, **options):
    twin = nn.MultiheadAttention(D, h, bias=layer.W_q.bias is not None, batch_first=True)
    twin.load_state_dict(page_weights("torch", layer))
    return twin(queries, keys, values, **options)


def keras_layer(**options):
    return pytest.importorskip("keras").layers.MultiHeadAttention(num_heads=h, **{"key_dim": d, **options})


def run_keras(layer, queries, keys, values, **options):
    twin = keras_layer(use_bias=layer.W_q.bias is not None)
    twin.build(queries.shape, values.shape, keys.shape)
    theirs = {weight.path.split("/", 1)[1]: weight for weight in twin.weights}
    found = page_weights("Keras", layer)
    assert found.keys() == theirs.keys()
    for name, tensor in found.items():
        assert tuple(theirs[name].shape) == tuple(tensor.shape)  # assign would reshape in silence
        theirs[name].assign(tensor)
    result = twin(queries, values, keys, **options)
    return result if options.get("return_attention_scores") else (result, None)


def flax_arrays(*tensors):
    jnp = pytest.importorskip("jax.numpy")
    return [None if tensor is None else jnp.asarray(tensor.detach().numpy()) for tensor in tensors]


def torch_tensors(*arrays):
    numpy = pytest.importorskip("numpy")
    return [torch.from_numpy(numpy.array(array)) for array in arrays]


def run_linen(layer, queries, keys, values, mask=None):
    linen = pytest.importorskip("flax.linen")
    parameters = {}
    for name, tensor in page_weights("Flax", layer).items():
        module, part = name.split(".")
        parameters.setdefault(module, {})[part] = flax_arrays(tensor)[0]
    twin = linen.MultiHeadDotProductAttention(num_heads=h, use_bias=layer.W_q.bias is not None)
    *arrays, mask = flax_arrays(queries, keys, values, mask)
    options = {"sow_weights": True, "mutable": "intermediates"}
    output, state = twin.apply({"params": parameters}, *arrays, mask=mask, **options)
    return torch_tensors(output, state["intermediates"]["attention_weights"][0])


def run_nnx(layer, queries, keys, values, mask=None):
    nnx = pytest.importorskip("flax.nnx")
    options = {"use_bias": layer.W_q.bias is not None, "decode": False, "rngs": nnx.Rngs(0)}
    twin = nnx.MultiHeadAttention(num_heads=h, in_features=D, **options)
    for name, tensor in page_weights("Flax", layer).items():
        module, part = name.split(".")
        parameter = getattr(getattr(twin, module), part)
        assert parameter.shape == tuple(tensor.shape)
        parameter[...] = flax_arrays(tensor)[0]
    *arrays, mask = flax_arrays(queries, keys, values, mask)
    output, state = nnx.capture(twin, nnx.Intermediate)(*arrays, mask=mask, sow_weights=True)
    return torch_tensors(output, nnx.to_pure_dict(state)["attention_weights"][0])


def run_d2l(layer, queries, keys, values, valid_lens=None):
    twin = reference.D2LMultiHeadAttention(D, h)
    twin.load_state_dict(page_weights("D2L", layer))
    return twin(queries, keys, values, valid_lens), twin.attention_weights


def run_harvard(layer, queries, keys, values, mask=None):
    twin = reference.HarvardMultiHeadAttention(h, D, dropout=0.0)
    biases = {f"linears.{number}.bias": torch.zeros(D) for number in range(4)}
    twin.load_state_dict(page_weights("Harvard", layer) | biases)
    return twin(queries, keys, values, mask), twin.attn


def run_function(layer, queries, keys, values, attn_mask=None):
    q, k, v = (
        projection(x).unflatten(-1, (h, d)).transpose(1, 2)
        for projection, x in ((layer.W_q, queries), (layer.W_k, keys), (layer.W_v, values))
    )
    output = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)
    return layer.W_o(output.transpose(1, 2).flatten(2)), None


def run_ours(layer, queries, keys, values, mask=None):
    return layer(queries, keys, values, mask=mask)


RUN = {"Vaswani": run_vaswani, "torch": run_torch, "Keras": run_keras, "Flax linen": run_linen, "Flax nnx": run_nnx}
RUN |= {"D2L": run_d2l, "Harvard": run_harvard, "this book": run_ours}
