"""Every public function and class, called with what nobody should give it: it returns, or an error of ours names it.

A parameter gets its good value or a hostile one, drawn by hypothesis. An error must be a ValueError or TypeError that a
`raise` of this package raised, not one that came out of torch, numpy or Python because nobody had looked.
"""

import fractions
import importlib
import inspect
import linecache
import re
import traceback
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import mhalib
from mhalib import attention as A
from mhalib import (
    bench,
    data,
    decoding,
    evaluation,
    measures,
    models,
    plots,
    pretrained,
    reference,
    saved,
    tables,
    train,
)
from mhalib import variants as V
from mhalib.attention import Band

pytestmark = pytest.mark.package

PACKAGE = str(Path(mhalib.__file__).parent)
CALLS = 40
GOOD = "good"


class _Wrong(nn.Module):
    """A model, but none of ours: it takes anything and returns nothing."""

    def forward(self, *args, **kwargs):
        return None


HOSTILE = {
    "None": lambda: None,
    "True": lambda: True,
    "empty text": lambda: "",
    "text": lambda: "x",
    "bytes": lambda: b"x",
    "empty list": list,
    "list of None": lambda: [None],
    "list of ints": lambda: [1, 2],
    "list of texts": lambda: ["x", "y"],
    "list of lists": lambda: [["x"], [3]],
    "empty dict": dict,
    "dict": lambda: {"x": 1},
    "dict of ints": lambda: {1: None},
    "-1": lambda: -1,
    "0": lambda: 0,
    "1": lambda: 1,
    "5": lambda: 5,
    "huge": lambda: 2**70,
    "-huge": lambda: -(2**70),
    "1.5": lambda: 1.5,
    "-1.5": lambda: -1.5,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "-inf": lambda: float("-inf"),
    "1j": lambda: 1j,
    "fraction": lambda: fractions.Fraction(1, 2),
    "numpy integer": lambda: np.int64(2),
    "numpy float": lambda: np.float32(0.5),
    "object": object,
    "function": lambda: lambda *args, **kwargs: None,
    "wrong model": _Wrong,
    "band": lambda: Band("x", -1, 1.5),
    "head": lambda: mhalib.Head("decoder self", 0, 99),
    "path": lambda: Path("nowhere/at/all"),
    "numpy array": lambda: np.zeros((2, 3)),
    "numpy texts": lambda: np.array(["x", "y"]),
    "tensor ()": lambda: torch.tensor(1.5),
    "tensor (0,)": lambda: torch.zeros(0),
    "tensor (3,)": lambda: torch.randn(3),
    "tensor (5, 5)": lambda: torch.randn(5, 5),
    "tensor (2, 5, 12)": lambda: torch.randn(2, 5, 12),
    "tensor (2, 0, 12)": lambda: torch.randn(2, 0, 12),
    "tensor (0, 5, 12)": lambda: torch.randn(0, 5, 12),
    "tensor (2, 5, 7)": lambda: torch.randn(2, 5, 7),
    "tensor (2, 3, 5, 5)": lambda: torch.randn(2, 3, 5, 5),
    "tensor (2, 0, 5, 5)": lambda: torch.rand(2, 0, 5, 5),
    "tensor (0, 3, 5, 5)": lambda: torch.rand(0, 3, 5, 5),
    "tensor of NaN": lambda: torch.full((2, 3, 5, 5), torch.nan),
    "float16": lambda: torch.randn(2, 5, 12).half(),
    "complex": lambda: torch.randn(2, 5, 12).to(torch.complex64),
    "complex weights": lambda: torch.randn(2, 3, 5, 5).to(torch.complex64),
    "integers (2,)": lambda: torch.tensor([3, 99]),
    "negative integers": lambda: torch.tensor([-1, 2]),
    "integers (2, 5)": lambda: torch.tensor([[1, 2, 3, 4, 99], [0, -1, 2, 3, 4]]),
    "integers (2, 0)": lambda: torch.zeros(2, 0, dtype=torch.long),
    "integers (0, 5)": lambda: torch.zeros(0, 5, dtype=torch.long),
    "int8 (2, 5)": lambda: torch.zeros(2, 5, dtype=torch.int8),
    "float ids": lambda: torch.zeros(2, 5),
    "bool (2, 5)": lambda: torch.ones(2, 5, dtype=torch.bool),
    "bool (5, 5)": lambda: torch.ones(5, 5, dtype=torch.bool),
    "bool (7,)": lambda: torch.zeros(7, dtype=torch.bool),
    "bool ()": lambda: torch.tensor(False),
    "bool (1, 1, 1, 1, 5)": lambda: torch.ones(1, 1, 1, 1, 5, dtype=torch.bool),
    "meta": lambda: torch.zeros(2, 5, 12, device="meta"),
    "sparse": lambda: torch.eye(5).to_sparse(),
}


def _ids(batch_size=2, num_tokens=5):
    return torch.arange(batch_size * num_tokens).view(batch_size, num_tokens) % 6


def _weights(num_queries=5, num_kvpairs=5):
    return torch.randn(2, 3, num_queries, num_kvpairs).softmax(-1)


def _run():
    return {"phase": "decoding", "num_tokens": 5, "batch_size": 2, "bytes_per_number": 4}


def _kernel():
    return {"kernel": "fused", "causal": True, "weight_bytes": 1, "cache_bytes": 1}


def _layer():
    return A.MultiHeadAttention(12, 3)


def _gpt():
    return models.GPT(7, 12, 3, 1, 8).eval()


def _talking():
    return models.GPT(7, 12, 3, 1, 8, attention="talking").eval()


def _encoder():
    return models.BERT(7, 12, 3, 1, 8).eval()


def _transformer():
    return models.Transformer(7, 7, 12, 3, 1, 8).eval()


def _captioner():
    return models.Captioner(7, 4, 4, 2, 12, 3, 1, 8).eval()


def _translations():
    class Some:
        source, source_lens, target = _ids(), torch.tensor([5, 3]), _ids(2, 4)

    return Some()


def _digits():
    labels = torch.arange(20) % 10
    return data.Digits(torch.rand(20, 8, 8), labels, torch.arange(20))


def _reading():
    return pretrained.Reading("a b", ("a", "b"), (1, 2), torch.full((2, 3, 2, 2), 0.5))


_ENCODED = SimpleNamespace(tokens=["a", "b"], offsets=[(0, 1), (2, 3)], special_tokens_mask=[0, 0])


def _qkv():
    return {"q": torch.randn(2, 3, 5, 4), "k": torch.randn(2, 3, 5, 4), "v": torch.randn(2, 3, 5, 4)}


def _rule():
    return {**_qkv(), "rates": torch.rand(2, 3, 5), "log_decays": -torch.rand(2, 3, 5, 4)}


def _state_cache():
    cache = A.StateCache()
    cache.replace(3, torch.randn(2, 3, 4, 4))
    return cache


def _x():
    return torch.randn(2, 5, 12)


def _cache():
    cache = A.KeyValueCache()
    cache.append(torch.randn(2, 3, 5, 4), torch.randn(2, 3, 5, 4))
    return cache


def _qkv_inputs():
    return {"queries": _x(), "keys": _x(), "values": _x(), "valid_lens": torch.tensor([5, 3]), "mask": Band()}


def _gate_example(model, gates):
    with mhalib.gated(model, gates):
        model(_ids())


def _switch_example(model, heads, means=None):
    with mhalib.switched_off(model, heads, means):
        model(_ids())


def _deed_example(deed):
    def call(**arguments):
        with deed(**arguments):
            arguments["model"](_ids())

    return call


def _row_example(row):
    model = _gpt()
    with mhalib.rows(model, {("decoder self", 0, 1): {1: row}}):
        model(_ids())


def _read(model, batch):
    model(batch)
    return {"decoder self": torch.ones(batch.shape, dtype=torch.bool)}


def _losses(model, batch):
    logits, _ = model(batch)
    return logits.logsumexp(-1).sum(1)


def _fit(model, **arguments):
    train.fit(model, lambda: sum(p.square().sum() for p in model.parameters()), **arguments)


def _on_all_axes(draw):
    """Draw on axes that are already there: quicker than a figure with a layout."""

    def drawn(**arguments):
        figure, ax = plt.subplots()
        try:
            return draw(**arguments, **({} if "ax" in arguments else {"ax": ax}))
        finally:
            plt.close("all")
            del figure

    return drawn


SIZES = {"num_hiddens": 12, "num_heads": 3, "num_layers": 1, "ffn_num_hiddens": 8, "dropout": 0.0}
OPTIONS = {"norm": "pre", "positions": "learned", "attention": "multi-head", "max_tokens": 8}
LATER = {"norm_kind": "rms", "norm_eps": 0.1, "ffn_kind": "swiglu", "ffn_bias": False, "parallel": True}
LATER |= {"mixture": {"num_experts": 3, "num_chosen": 2}}
FIXED = {**SIZES, "norm": "pre", "attention": "multi-head"}
LAYER = {"num_hiddens": 12, "num_heads": 3, "ffn_num_hiddens": 8, "dropout": 0.0, "norm": "pre"}
PICTURE = {"height": 4, "width": 4, "patch_size": 2}
GREEDY = {"source_lens": None, "begin": 1, "end": 2, "max_tokens": 3, "padding": 0}

# name -> function, and a function that makes its good arguments
PLACES = {
    "mhalib.best_device": (mhalib.best_device, dict),
    "mhalib.attention_on_picture": (
        _on_all_axes(mhalib.attention_on_picture),
        lambda: {"image": torch.rand(4, 4), "weights": torch.rand(4), "vmax": 1.0, "title": "x"},
    ),
    "mhalib.layer_drawing": (
        _on_all_axes(mhalib.layer_drawing),
        lambda: {"lit": ["scores", "softmax"], "maps": torch.rand(4, 3, 3), "sizes": False, "head": 2},
    ),
    "roofline.step_costs": (
        mhalib.roofline.step_costs,
        lambda: {"sizes": mhalib.costs.Sizes(12, 3), **_run(), **_kernel(), "window": 3},
    ),
    "serving.serving_costs": (
        mhalib.serving.serving_costs,
        lambda: {
            "model": mhalib.serving.MODELS["LLaMA-3 8B"],
            "chip": mhalib.roofline.CHIPS["NVIDIA T4"],
            "num_tokens": 7,
            "batch_size": 2,
            "precision": "8 bits",
            "kernel": "fused",
            "num_chips": 2,
        },
    ),
    "serving.cache_bytes": (
        mhalib.serving.MODELS["LLaMA-3 8B"].cache_bytes,
        lambda: {"num_tokens": 7, "batch_size": 2, "bytes_per_number": 2},
    ),
    "serving.weights_read": (mhalib.serving.MODELS["gpt-oss-20b"].weights_read, lambda: {"num_tokens": 7}),
    "serving.training_flops": (
        mhalib.serving.MODELS["gpt-oss-20b"].training_flops,
        lambda: {"num_tokens": 7, "batch_size": 2},
    ),
    "serving.utilisation": (
        mhalib.serving.MODELS["LLaMA-3 8B"].utilisation,
        lambda: {"tokens_per_second": 7.0, "num_tokens": 9, "peak": 1e15},
    ),
    "serving.attending": (
        mhalib.serving.MODELS["DeepSeek-V3"].attending,
        lambda: {"phase": "decoding", "num_tokens": 7, "batch_size": 2, "kernel": "fused", "cache_bytes": 1},
    ),
    "roofline.latent_step_costs": (
        mhalib.roofline.latent_step_costs,
        lambda: {"choice": "latent", "num_hiddens": 12, "num_heads": 3, **_run(), **_kernel()},
    ),
    "roofline.counted_step_costs": (
        mhalib.roofline.counted_step_costs,
        lambda: {"choice": "entmax", "num_hiddens": 12, "num_heads": 3, **_run()},
    ),
    "attention.attend": (
        A.attend,
        lambda: {**_qkv(), "mask": None, "dropout": 0.0, "need_weights": True, "scale": None},
    ),
    "attention.masked_softmax": (
        A.masked_softmax,
        lambda: {"scores": torch.randn(2, 5, 5), "mask": torch.ones(5, 5, dtype=torch.bool)},
    ),
    "attention.split_heads": (A.split_heads, lambda: {"x": _x(), "num_heads": 3}),
    "attention.merge_heads": (A.merge_heads, lambda: {"x": torch.randn(2, 3, 5, 4)}),
    "attention.transpose_qkv": (A.transpose_qkv, lambda: {"x": _x(), "num_heads": 3}),
    "attention.transpose_output": (A.transpose_output, lambda: {"x": torch.randn(6, 5, 4), "num_heads": 3}),
    "attention.padding_mask": (A.padding_mask, lambda: {"valid_lens": torch.tensor([5, 3]), "num_kvpairs": 5}),
    "attention.causal_mask": (
        A.causal_mask,
        lambda: {"num_queries": 5, "num_kvpairs": 5, "offset": 0, "device": "cpu"},
    ),
    "attention.Band": (
        lambda before, after, offset, num_queries, num_kvpairs, device: Band(before, after, offset).matrix(
            num_queries, num_kvpairs, device=device
        ),
        lambda: {"before": 1, "after": 0, "offset": 0, "num_queries": 5, "num_kvpairs": 5, "device": "cpu"},
    ),
    "attention.rotate": (
        A.rotate,
        lambda: {
            "x": torch.randn(2, 3, 5, 4),
            "start": 0,
            "pairs": "halves",
            "base": 100.0,
            "width": 2,
            "scaling": {"name": "linear", "factor": 2.0},
        },
    ),
    "attention.Strided": (
        lambda num_queries, num_kvpairs, device, **own: A.Strided(**own).matrix(
            num_queries, num_kvpairs, device=device
        ),
        lambda: {"stride": 2, "offset": 1, "num_queries": 5, "num_kvpairs": 6, "device": "cpu"},
    ),
    "attention.GlobalTokens": (
        lambda num_queries, num_kvpairs, **own: A.GlobalTokens(**own).matrix(num_queries, num_kvpairs),
        lambda: {"num_tokens": 2, "offset": 1, "num_queries": 5, "num_kvpairs": 6},
    ),
    "attention.AnyOf": (
        lambda masks, num_queries: A.AnyOf(masks).matrix(num_queries),
        lambda: {"masks": (Band(), A.Strided(2)), "num_queries": 5},
    ),
    "attention.AllOf": (
        lambda masks, num_queries: A.AllOf(masks).matrix(num_queries),
        lambda: {"masks": (Band(), A.Strided(2)), "num_queries": 5},
    ),
    "attention.num_pairs": (A.num_pairs, lambda: {"mask": Band(), "num_queries": 5, "num_kvpairs": 6}),
    "attention.kind_of": (A.kind_of, lambda: {"choice": {"name": "multi-head"}}),
    "attention.sinusoidal_positions": (
        A.sinusoidal_positions,
        lambda: {"num_tokens": 5, "num_hiddens": 12, "start": 0, "pairs": "halves"},
    ),
    "attention.make_positions": (A.make_positions, lambda: {"name": "learned", "max_tokens": 5, "num_hiddens": 12}),
    "attention.LearnedPositions": (
        lambda x, start, places, **sizes: A.LearnedPositions(**sizes)(x, start, places),
        lambda: {"max_tokens": 8, "num_hiddens": 12, "x": _x(), "places": None, "start": 1},
    ),
    "attention.SinusoidalPositions": (
        lambda x, start, places, pairs: A.SinusoidalPositions(pairs)(x, start, places),
        lambda: {"x": _x(), "places": None, "start": 1, "pairs": "halves"},
    ),
    "attention.RotaryPositions": (
        lambda x, start, **own: A.RotaryPositions(**own).turn(x, start),
        lambda: {"x": _x(), "start": 1, "pairs": "halves", "base": 100.0, "width": 2, "scaling": None},
    ),
    "attention.register": (
        lambda name, kind: A.register(name)(kind),
        lambda: {"name": "multi-head", "kind": A.MultiHeadAttention},
    ),
    "attention.make_attention": (
        A.make_attention,
        lambda: {"choice": {"name": "multi-head", "num_kv_heads": 1}, "num_hiddens": 12, "num_heads": 3, "bias": True},
    ),
    "attention.KeyValueCache": (
        lambda max_tokens, k, v: A.KeyValueCache(max_tokens).append(k, v),
        lambda: {"max_tokens": 3, "k": torch.randn(2, 3, 5, 4), "v": torch.randn(2, 3, 5, 4)},
    ),
    "attention.QuantisedCache": (
        lambda max_tokens, k, v: A.QuantisedCache(max_tokens).append(k, v),
        lambda: {"max_tokens": 3, "k": torch.randn(2, 3, 5, 4), "v": torch.randn(2, 3, 5, 4)},
    ),
    "attention.WindowCache": (
        lambda window, max_tokens, sinks, k, v: A.WindowCache(window, max_tokens, sinks=sinks).append(k, v),
        lambda: {
            "window": 3,
            "max_tokens": 3,
            "sinks": 1,
            "k": torch.randn(2, 3, 5, 4),
            "v": torch.randn(2, 3, 5, 4),
        },
    ),
    "attention.KeyValueCache.crop": (lambda num_tokens: _cache().crop(num_tokens), lambda: {"num_tokens": 3}),
    "attention.StateCache": (
        lambda num_new, state, rows: [one := A.StateCache(), one.replace(num_new, state), one.reorder(rows)],
        lambda: {"num_new": 2, "state": torch.randn(2, 3, 4, 4), "rows": torch.tensor([1, 0])},
    ),
    "attention.StateCache.replace": (
        lambda num_new, state: _state_cache().replace(num_new, state),
        lambda: {"num_new": 1, "state": torch.randn(2, 3, 4, 4)},
    ),
    "attention.KeyValueCache.append": (
        lambda k, v: _cache().append(k, v),
        lambda: {"k": torch.randn(2, 3, 1, 4), "v": torch.randn(2, 3, 1, 4)},
    ),
    "attention.KeyValueCache.reorder": (lambda rows: _cache().reorder(rows), lambda: {"rows": torch.tensor([1, 0, 1])}),
    "attention.MultiHeadAttention": (
        A.MultiHeadAttention,
        lambda: {
            "num_hiddens": 12,
            "num_heads": 3,
            "dropout": 0.0,
            "bias": True,
            "query_size": 12,
            "key_size": 12,
            "value_size": 12,
            "head_dim": 4,
            "value_dim": 4,
            "num_kv_heads": 3,
            "scale": 0.5,
            "positions": "none",
            "rotary_base": 100.0,
            "rotary_dim": 2,
            "rotary_scaling": None,
            "out_bias": False,
        },
    ),
    "attention.MultiHeadAttention.forward": (lambda **a: _layer()(**a), _qkv_inputs),
    "attention.MultiHeadAttention.forward with a cache": (
        lambda **a: _layer()(**a),
        lambda: {"queries": _x(), "keys": _x(), "values": _x(), "cache": _cache(), "need_weights": False},
    ),
    "attention.MultiHeadAttention.head_slices": (lambda head: _layer().head_slices(head), lambda: {"head": 1}),
    "attention.MultiHeadAttention.keep_heads": (lambda heads: _layer().keep_heads(heads), lambda: {"heads": [0, 2]}),
    "attention.MultiHeadAttention.new_cache": (lambda n: _layer().new_cache(n), lambda: {"n": 4}),
    "attention.MultiHeadAttention.on_heads": (lambda f: _layer().on_heads(f), lambda: {"f": lambda x: x}),
    "measures.HardConcreteGate": (
        lambda batch_size, **a: measures.HardConcreteGate(**a)(batch_size),
        lambda: {"num_heads": 3, "log_a": 2.0, "batch_size": 2},
    ),
    "measures.gated": (_gate_example, lambda: {"model": _gpt(), "gates": {"decoder self": [torch.ones(3)]}}),
    "measures.gated with a hostile gate": (
        lambda gate: _gate_example(_gpt(), {"decoder self": [gate]}),
        lambda: {"gate": torch.ones(2, 5, 3)},
    ),
    "measures.switched_off": (_switch_example, lambda: {"model": _gpt(), "heads": [("decoder self", 0, 1)]}),
    "measures.switched_off with means": (
        _switch_example,
        lambda: {
            "model": _gpt(),
            "heads": [("decoder self", 0, 1)],
            "means": measures.head_means(_gpt(), [_ids()], _read),
        },
    ),
    "measures.switched_off with a hostile mean": (
        lambda mean: _switch_example(_gpt(), [("decoder self", 0, 1)], {"decoder self": [mean]}),
        lambda: {"mean": measures.head_means(_gpt(), [_ids()], _read)["decoder self"][0]},
    ),
    "measures.head_means": (measures.head_means, lambda: {"model": _gpt(), "batches": [_ids()], "run": _read}),
    "measures.head_means with hostile queries": (
        lambda real: measures.head_means(_gpt(), [_ids()], lambda model, batch: (model(batch), real)[1]),
        lambda: {"real": {"decoder self": torch.ones(_ids().shape, dtype=torch.bool)}},
    ),
    "measures.frozen": (
        _deed_example(measures.frozen),
        lambda: {
            "model": _gpt(),
            "weights": {"decoder self": [torch.rand(1, 3, 5, 5)]},
            "heads": [("decoder self", 0, 1)],
        },
    ),
    "measures.frozen with hostile weights": (
        lambda weights: _deed_example(measures.frozen)(model=_gpt(), weights={"decoder self": [weights]}),
        lambda: {"weights": torch.rand(1, 3, 5, 5)},
    ),
    "measures.patched": (
        _deed_example(measures.patched),
        lambda: {
            "model": _gpt(),
            "outputs": {"decoder self": [torch.rand(1, 3, 5, 4)]},
            "heads": [("decoder self", 0, 1)],
        },
    ),
    "measures.patched with hostile outputs": (
        lambda outputs: _deed_example(measures.patched)(model=_gpt(), outputs={"decoder self": [outputs]}),
        lambda: {"outputs": torch.rand(1, 3, 5, 4)},
    ),
    "measures.rows": (
        _deed_example(measures.rows),
        lambda: {"model": _gpt(), "weights": {("decoder self", 0, 1): {1: torch.rand(5)}}},
    ),
    "measures.rows with a hostile row": (
        _row_example,
        lambda: {"row": torch.rand(5)},
    ),
    "measures.mixed": (
        _deed_example(measures.mixed),
        lambda: {"model": _talking(), "matrices": {("decoder self", 0): {"scores": torch.eye(3)}}},
    ),
    "measures.mixed with a hostile matrix": (
        lambda matrix: _deed_example(measures.mixed)(
            model=_talking(), matrices={("decoder self", 0): {"weights": matrix}}
        ),
        lambda: {"matrix": torch.eye(3)},
    ),
    "measures.without_future": (_deed_example(measures.without_future), lambda: {"model": _encoder()}),
    "measures.without_positions": (_deed_example(measures.without_positions), lambda: {"model": _gpt()}),
    "measures.head_outputs": (_deed_example(measures.head_outputs), lambda: {"model": _gpt()}),
    "measures.head_card": (
        lambda **given: measures.head_card(measures=["zero", "induction"], **given),
        lambda: {
            "model": _gpt(),
            "tokens": torch.tensor([[1, 2, 1, 2], [3, 3, 4, 4]]),
            "loss": lambda logits, tokens: logits.mean((1, 2)),
            "targets": torch.ones(2, 4, 4, dtype=torch.bool).tril(),
            "control": True,
            "seed": 0,
        },
    ),
    "measures.stored_card": (measures.stored_card, lambda: {"name": "minilm"}),
    "measures.head_card, its names": (
        lambda measures_: measures.head_card(_gpt(), _ids(), measures=measures_),
        lambda: {"measures_": ["zero"]},
    ),
    "measures.heads_of": (measures.heads_of, lambda: {"model": _gpt()}),
    "measures.layers_of": (measures.layers_of, lambda: {"model": _gpt()}),
    "measures.prune_heads": (measures.prune_heads, lambda: {"model": _gpt(), "heads": [("decoder self", 0, 1)]}),
    "measures.removed_heads": (measures.removed_heads, lambda: {"model": _gpt()}),
    "measures.head_importance": (
        measures.head_importance,
        lambda: {"model": _gpt(), "batches": [_ids()], "loss": _losses, "mode": "example", "normalise": True},
    ),
    "measures.head_entropy": (measures.head_entropy, lambda: {"weights": _weights(), "mask": None, "relative": True}),
    "measures.confidence": (measures.confidence, lambda: {"weights": _weights(), "mask": None}),
    "measures.attention_to": (
        measures.attention_to,
        lambda: {"weights": _weights(), "what": "self", "mask": torch.ones(5, 5, dtype=torch.bool)},
    ),
    "measures.maximum_at": (measures.maximum_at, lambda: {"weights": _weights(), "what": -1, "mask": None}),
    "measures.diagonal_dominance": (
        measures.diagonal_dominance,
        lambda: {"weights": _weights(), "mask": None, "width": 1},
    ),
    "measures.head_similarity": (measures.head_similarity, lambda: {"weights": [_weights()], "mask": None}),
    "measures.js_distance": (measures.js_distance, lambda: {"weights": [_weights(), _weights()], "mask": None}),
    "measures.head_map": (
        measures.head_map,
        lambda: {"distances": torch.ones(3, 3).fill_diagonal_(0), "num_axes": 2},
    ),
    "measures.head_roles": (
        measures.head_roles,
        lambda: {
            "weights": _weights(),
            "mask": None,
            "links": {"x": torch.zeros(2, 5, dtype=torch.long)},
            "rare": torch.ones(2, 5, dtype=torch.bool),
            "positional_share": 0.9,
            "rare_share": 0.5,
        },
    ),
    "measures.head_roles with a hostile link": (
        lambda link: measures.head_roles(_weights(), links={"x": link}),
        lambda: {"link": torch.zeros(2, 5, dtype=torch.long)},
    ),
    "measures.induction_score": (measures.induction_score, lambda: {"weights": _weights(), "tokens": _ids() % 2}),
    "measures.induction_targets": (measures.induction_targets, lambda: {"tokens": _ids()}),
    "measures.rarest_tokens": (
        measures.rarest_tokens,
        lambda: {"tokens": _ids(), "counts": torch.arange(7), "valid_lens": torch.tensor([5, 3]), "num_rarest": 1},
    ),
    "measures.real_cells": (
        measures.real_cells,
        lambda: {
            "query_lens": torch.tensor([5, 3]),
            "num_queries": 5,
            "key_lens": torch.tensor([5, 3]),
            "num_kvpairs": 5,
            "causal": True,
        },
    ),
    "models.GPT": (
        lambda **a: models.GPT(**a)(_ids()),
        lambda: {"vocab_size": 7, **SIZES, **OPTIONS, "window": 2, "readout": "tied", "embedding_scale": 2.0},
    ),
    "models.GPT.forward": (
        lambda **a: _gpt()(**a),
        lambda: {
            "tokens": _ids(),
            "is_real": torch.ones(2, 5, dtype=torch.bool),
            "need_weights": True,
            "caches": _gpt().new_caches(),
        },
    ),
    "models.Transformer": (
        models.Transformer,
        lambda: {
            "source_vocab_size": 7,
            "target_vocab_size": 7,
            "share_tokens": True,
            "embedding_scale": 2.0,
            "embedding_norm": True,
            "readout": "tied",
            "readout_scale": 0.5,
            "decoder": {"num_layers": 2},
            "cross": "multi-head",
            **SIZES,
            **OPTIONS,
        },
    ),
    "models.Transformer.forward": (
        lambda **a: _transformer()(**a),
        lambda: {
            "source": _ids(),
            "target": _ids(),
            "source_lens": torch.tensor([5, 3]),
            "source_is_real": torch.ones(2, 5, dtype=torch.bool),
            "target_is_real": torch.ones(2, 5, dtype=torch.bool),
            "need_weights": True,
        },
    ),
    "models.Transformer.encode": (
        lambda **a: _transformer().encode(**a),
        lambda: {
            "source": _ids(),
            "source_lens": torch.tensor([5, 3]),
            "source_is_real": torch.ones(2, 5, dtype=torch.bool),
        },
    ),
    "models.Transformer.decode": (
        lambda **a: _transformer().decode(**a),
        lambda: {
            "target": _ids(),
            "memory": _x(),
            "source_lens": torch.tensor([5, 3]),
            "source_is_real": torch.ones(2, 5, dtype=torch.bool),
            "target_is_real": torch.ones(2, 5, dtype=torch.bool),
            "caches": _transformer().new_caches(),
        },
    ),
    "models.BERT": (
        models.BERT,
        lambda: {
            "vocab_size": 7,
            **SIZES,
            **OPTIONS,
            "norm_eps": 1e-12,
            "num_segments": 2,
            "window": 3,
        },
    ),
    "models.BERT.forward": (
        lambda **a: models.BERT(7, 12, 3, 1, 8)(**a),
        lambda: (
            {"tokens": _ids(), "valid_lens": torch.tensor([5, 3]), "segments": _ids() % 2, "need_weights": True}
            | {"is_real": torch.ones(2, 5, dtype=torch.bool)}
        ),
    ),
    "models.ViT": (models.ViT, lambda: {"num_classes": 3, **PICTURE, **FIXED}),
    "models.ViT.forward": (
        lambda images: models.ViT(3, 4, 4, 2, 12, 3, 1, 8)(images),
        lambda: {"images": torch.rand(2, 4, 4)},
    ),
    "models.ViT of colours": (
        models.ViT,
        lambda: (
            {"num_classes": None, "channels": 3, "patch_bias": True, "readout_bias": True, "norm_tokens": True}
            | {"distilled": False}
        ),
    ),
    "models.ViT.forward of colours": (
        lambda **a: models.ViT(3, 4, 4, 2, 12, 3, 1, 8, channels=3)(**a),
        lambda: {"images": torch.rand(2, 3, 4, 4), "need_weights": True},
    ),
    "models.CLIP": (
        models.CLIP,
        lambda: {"vocab_size": 7, "num_features": 5, **SIZES, **OPTIONS, "pictures": dict(PICTURE), "end_token": 6},
    ),
    "models.CLIP.forward": (
        lambda **a: models.CLIP(7, 5, 12, 3, 1, 8, pictures=dict(PICTURE))(**a),
        lambda: {
            "images": torch.rand(2, 3, 4, 4),
            "tokens": _ids(),
            "valid_lens": torch.tensor([5, 3]),
            "need_weights": True,
        },
    ),
    "models.CLIP.read_texts": (
        lambda **a: models.CLIP(7, 5, 12, 3, 1, 8, end_token=2).read_texts(**a),
        lambda: {"tokens": _ids(), "valid_lens": torch.tensor([5, 3])},
    ),
    "models.CLIP.read_pictures": (
        lambda **a: models.CLIP(7, 5, 12, 3, 1, 8, pictures=dict(PICTURE)).read_pictures(**a),
        lambda: {"images": torch.rand(2, 3, 4, 4), "need_weights": True},
    ),
    "models.Captioner": (models.Captioner, lambda: {"vocab_size": 7, **PICTURE, **FIXED, "max_tokens": 8}),
    "models.Captioner.forward": (
        lambda **a: _captioner()(**a),
        lambda: {"source": torch.rand(2, 4, 4), "target": _ids(), "source_lens": torch.tensor([4, 3])},
    ),
    "models.PictureReader": (
        models.PictureReader,
        lambda: {"vocab_size": 7, "num_answers": 3, **PICTURE, **FIXED, "max_tokens": 8},
    ),
    "models.PictureReader.forward": (
        lambda **a: models.PictureReader(7, 3, 4, 4, 2, 12, 3, 1, 8)(**a),
        lambda: {"images": torch.rand(2, 4, 4), "questions": _ids(), "question_lens": torch.tensor([5, 3])},
    ),
    "models.SentenceReader": (
        models.SentenceReader,
        lambda: (
            {"vocab_size": 7, "num_questions": 3, "num_hiddens": 12, "num_heads": 3, "max_tokens": 8}
            | {"positions": "rotary", "attention": "multi-head"}
        ),
    ),
    "models.SentenceReader.forward": (
        lambda **a: models.SentenceReader(7, 3, 12, 3)(**a),
        lambda: {"tokens": _ids(), "valid_lens": torch.tensor([5, 3]), "need_weights": True},
    ),
    "models.patches": (models.patches, lambda: {"images": torch.rand(2, 4, 4), "patch_size": 2}),
    "models.patches of colours": (models.patches, lambda: {"images": torch.rand(2, 3, 4, 4), "patch_size": 2}),
    "models.Description": (models.Description, lambda: {**SIZES, **OPTIONS, **LATER}),
    "models.EncoderLayer": (
        models.EncoderLayer,
        lambda: {**LAYER, "positions": "rotary", "attention": "multi-head", **LATER},
    ),
    "models.EncoderLayer.forward": (
        lambda **a: models.EncoderLayer(12, 3, 8)(**a),
        lambda: {"x": _x(), "valid_lens": torch.tensor([5, 3]), "mask": Band(), "cache": A.KeyValueCache()},
    ),
    "models.DecoderLayer": (models.DecoderLayer, lambda: {**LAYER, "positions": "rotary", "attention": "multi-head"}),
    "models.DecoderLayer.forward": (
        lambda **a: models.DecoderLayer(12, 3, 8)(**a),
        lambda: {
            "x": _x(),
            "memory": _x(),
            "memory_lens": torch.tensor([5, 3]),
            "memory_mask": torch.ones(2, 1, 1, 5, dtype=torch.bool),
            "mask": Band(),
            "cache": models.DecoderLayer(12, 3, 8).new_cache(),
        },
    ),
    "models.FeedForward": (
        lambda x, **a: models.FeedForward(**a)(x),
        lambda: {"num_hiddens": 12, "ffn_num_hiddens": 8, "kind": "swiglu", "bias": False, "x": _x()},
    ),
    "models.MixtureFeedForward": (
        lambda x, **a: models.MixtureFeedForward(**a)(x),
        lambda: {
            "num_hiddens": 12,
            "ffn_num_hiddens": 8,
            "kind": "swiglu",
            "bias": False,
            "x": _x(),
            "num_experts": 3,
            "num_chosen": 2,
            "normalised": True,
            "shares": "sigmoid",
            "choice_bias": True,
            "num_groups": 1,
            "num_chosen_groups": 1,
            "share_scale": 2.5,
            "num_shared": 1,
        },
    ),
    "models.SkipConnection": (
        lambda x, result, **a: models.SkipConnection(**a).after(models.SkipConnection(**a).before(x), result),
        lambda: {
            "num_hiddens": 12,
            "dropout": 0.0,
            "norm": "post",
            "norm_kind": "rms",
            "norm_eps": 0.1,
            "x": _x(),
            "result": _x(),
        },
    ),
    "reference.attend_loops": (
        reference.attend_loops,
        lambda: {name: x[:1, :1, :3] for name, x in _qkv().items()} | {"mask": None, "scale": None},
    ),
    "reference.multi_head_attention_loops": (
        reference.multi_head_attention_loops,
        lambda: (
            {"layer": A.MultiHeadAttention(4, 1)}
            | {name: torch.randn(2, 3, 4) for name in ("queries", "keys", "values")}
            | {"valid_lens": torch.tensor([3, 2]), "mask": Band()}
        ),
    ),
    "reference.to_torch": (reference.to_torch, lambda: {"layer": _layer()}),
    "reference.to_d2l": (reference.to_d2l, lambda: {"layer": _layer()}),
    "reference.to_harvard": (reference.to_harvard, lambda: {"layer": _layer()}),
    "reference.from_torch": (reference.from_torch, lambda: {"twin": nn.MultiheadAttention(12, 3)}),
    "reference.from_d2l": (
        reference.from_d2l,
        lambda: {"state_dict": reference.to_d2l(_layer()), "num_heads": 3, "dropout": 0.0},
    ),
    "reference.from_harvard": (
        reference.from_harvard,
        lambda: {"state_dict": reference.to_harvard(_layer()), "num_heads": 3, "dropout": 0.0},
    ),
    "reference.from_d2l with a hostile entry": (
        lambda entry: reference.from_d2l(reference.to_d2l(_layer()) | {"W_q.weight": entry}, 3),
        lambda: {"entry": torch.zeros(12, 12)},
    ),
    "reference.to_arrays": (reference.to_arrays, lambda: {"layer": _layer()}),
    "reference.from_arrays": (
        reference.from_arrays,
        lambda: {"arrays": reference.to_arrays(_layer()), "num_heads": 3, "dropout": 0.0},
    ),
    "reference.from_arrays with a hostile entry": (
        lambda entry: reference.from_arrays(reference.to_arrays(_layer()) | {"W_q": entry}, 3),
        lambda: {"entry": np.zeros((12, 12))},
    ),
    "reference.D2LMultiHeadAttention": (
        reference.D2LMultiHeadAttention,
        lambda: {"num_hiddens": 12, "num_heads": 3, "dropout": 0.0, "bias": True},
    ),
    "reference.HarvardMultiHeadAttention": (
        reference.HarvardMultiHeadAttention,
        lambda: {"h": 3, "d_model": 12, "dropout": 0.0},
    ),
    "decoding.greedy": (
        decoding.greedy,
        lambda: {"model": _transformer(), "source": _ids(), **GREEDY, "use_cache": True},
    ),
    "decoding.beam_search": (
        decoding.beam_search,
        lambda: {"model": _transformer(), "source": _ids(), **GREEDY, "num_beams": 2},
    ),
    "decoding.sample": (
        decoding.sample,
        lambda: {
            "model": _gpt(),
            "prompt": _ids(),
            "num_tokens": 2,
            "temperature": 1.0,
            "top_k": 2,
            "top_p": 0.9,
            "min_p": 0.1,
            "stop": [3],
            "padding": 0,
            "generator": torch.Generator(),
            "use_cache": True,
        },
    ),
    "decoding.speculate": (
        decoding.speculate,
        lambda: {
            "model": _gpt(),
            "prompt": _ids(1),
            "num_tokens": 3,
            "draft": _gpt(),
            "num_drafts": 2,
            "key_length": 2,
            "temperature": 1.0,
            "top_k": 2,
            "top_p": 0.9,
            "min_p": 0.1,
            "stop": [3],
            "generator": torch.Generator(),
        },
    ),
    "decoding.look_up": (
        decoding.look_up,
        lambda: {"tokens": [1, 2, 1], "num_drafts": 2, "key_length": 2},
    ),
    "decoding.accepted": (
        decoding.accepted,
        lambda: {
            "p": torch.full((2, 4), 0.25),
            "drafts": [1],
            "q": torch.full((1, 4), 0.25),
            "generator": torch.Generator(),
        },
    ),
    "decoding.probabilities": (
        decoding.probabilities,
        lambda: {"logits": torch.randn(2, 4), "temperature": 1.0, "top_k": 2, "top_p": 0.9, "min_p": 0.1},
    ),
    "evaluation.token_loss": (evaluation.token_loss, lambda: {"model": _transformer(), "data": _translations()}),
    "evaluation.token_accuracy": (
        evaluation.token_accuracy,
        lambda: {"model": _transformer(), "data": _translations(), "batch_size": 2},
    ),
    "evaluation.exact_match": (
        evaluation.exact_match,
        lambda: {"model": _transformer(), "data": _translations(), "batch_size": 2},
    ),
    "evaluation.next_token_accuracy": (
        evaluation.next_token_accuracy,
        lambda: {"model": _gpt(), "tokens": _ids(), "where": torch.ones(2, 4, dtype=torch.bool), "batch_size": 2},
    ),
    "bench.time_ratios": (
        bench.time_ratios,
        lambda: {"functions": {"x": lambda: None}, "baseline": "x", "rounds": 1},
    ),
    "bench.median_seconds": (bench.median_seconds, lambda: {"functions": {"x": lambda: None}, "rounds": 1}),
    "bench.seconds_by_round": (bench.seconds_by_round, lambda: {"functions": {"x": lambda: None}, "rounds": 1}),
    "bench.measure_machine": (
        bench.measure_machine,
        lambda: {
            "functions": {"x": lambda: None},
            "device": "cpu",
            "dtype": torch.float32,
            "size": 4,
            "num_bytes": 64,
            "rounds": 1,
        },
    ),
    "bench.Machine": (
        bench.Machine,
        lambda: {"name": "mine", "peak": 1e12, "bandwidth": 1e11, "bytes_per_number": 2},
    ),
    "bench.peak_bytes": (bench.peak_bytes, lambda: {"function": lambda: None, "device": "cpu"}),
    "train.fit": (
        _fit,
        lambda: {
            "model": nn.Linear(2, 2),
            "steps": 2,
            "max_lr": 0.1,
            "warm_up": 0.3,
            "weight_decay": 0.0,
            "clip": 1.0,
            "seed": 0,
            "goal": lambda: 0.5,
            "enough": 1.0,
            "goal_every": 1,
            "checkpoint_every": 1,
            "mixed_precision": False,
            "progress": False,
            "checkpoint": None,
        },
    ),
    "train.fit with a hostile loss": (
        lambda loss: train.fit(nn.Linear(2, 2), loss, 1),
        lambda: {"loss": lambda: torch.zeros((), requires_grad=True)},
    ),
    "saved.load": (saved.load, lambda: {"name": saved.names()[0], "device": "cpu"}),
    "saved.about": (saved.about, lambda: {"name": saved.names()[0]}),
    "saved.About": (saved.About, lambda: {"task": "x", "metric": ("x", 1.0), "command": "x"}),
    "saved.write": (
        lambda folder=None, **a: saved.write(**a),
        lambda: {"model": _gpt(), "path": "somewhere", "about": saved.About("x", ("x", 1.0), "x")},
    ),
    "saved.write with a hostile metric": (
        lambda metric: saved.write(_gpt(), "somewhere", saved.About("x", metric, "x")),
        lambda: {"metric": ("x", 1.0)},
    ),
    "saved.read": (saved.read, lambda: {"path": "nowhere"}),
    "shapes.check_shape": (mhalib.check_shape, lambda: {"x": _x(), "expected": (2, None, 12), "name": "x"}),
    "shapes.ledger": (
        lambda layer, x, **a: mhalib.ledger(layer, x, x, x, **a),
        lambda: {"layer": _layer(), "x": _x(), "num_heads": 3, "axes": {"queries": "B N D"}},
    ),
    "results.read": (mhalib.results.read, lambda: {"chapter": "x"}),
    "data.sentences": (data.sentences, lambda: {"num_examples": 3, "seed": 0}),
    "data.copies": (data.copies, lambda: {"num_examples": 3, "seed": 0}),
    "data.meetings": (data.meetings, lambda: {"num_examples": 3, "seed": 0}),
    "data.read_sentences": (data.read_sentences, lambda: {"texts": [("the", "cat", "sees", "a", "dog")]}),
    "data.translations": (data.translations, lambda: {"num_examples": 3, "seed": 0, "pairs": "seen"}),
    "data.read_english": (data.read_english, lambda: {"texts": ["The brown fox jumps."]}),
    "data.translate": (data.translate, lambda: {"text": "The brown fox jumps."}),
    "data.spoken": (data.spoken, lambda: {"words": ["l'", "eau"]}),
    "data.digits": (data.digits, lambda: {"seed": 0}),
    "data.shifted": (data.shifted, lambda: {"images": torch.rand(2, 4, 4), "generator": torch.Generator()}),
    "data.sums": (data.sums, lambda: {"source": _digits(), "num_examples": 3, "seed": 0}),
    "data.pairs": (data.pairs, lambda: {"source": _digits(), "num_examples": 3, "seed": 0}),
    "data.read_question": (data.read_question, lambda: {"text": "is the left digit seven ?"}),
    "data.repeats": (
        data.repeats,
        lambda: {"num_examples": 3, "seed": 0, "num_tokens": 9, "num_symbols": 5, "periods": (2, 3)},
    ),
    "data.repeats with a hostile period": (
        lambda least, most: data.repeats(3, 0, num_tokens=9, num_symbols=5, periods=(least, most)),
        lambda: {"least": 2, "most": 3},
    ),
    "data.Vocabulary": (data.Vocabulary, lambda: {"words": ["a", "b"]}),
    "data.Vocabulary.encode": (
        lambda **a: data.Vocabulary(["a", "b"]).encode(**a),
        lambda: {"texts": [["a"], ["a", "b"]], "num_tokens": 3},
    ),
    "data.Vocabulary.decode": (
        lambda tokens: data.Vocabulary(["a", "b"]).decode(tokens),
        lambda: {"tokens": torch.tensor([1, 2])},
    ),
    "pretrained.load": (
        pretrained.load,
        lambda: {
            "source": "nowhere",
            "revision": None,
            "sha256": None,
            "device": "cpu",
            "through": "mhalib",
            "dtype": torch.float32,
            "offline": True,
            "memory_limit": None,
            "with_tokenizer": False,
        },
    ),
    "pretrained.memory": (
        pretrained.memory,
        lambda: {
            "source": "nowhere",
            "num_tokens": 5,
            "batch_size": 2,
            "dtype": torch.float32,
            "revision": None,
            "offline": True,
        },
    ),
    "pretrained.Preparation": (
        pretrained.Preparation,
        lambda: {"mean": (0.5, 0.4), "std": (0.5, 0.4), "resize": 4, "crop": (2, 3), "mode": "bicubic", "scale": 1.0},
    ),
    "pretrained.Preparation of pictures": (
        pretrained.Preparation((0.5,) * 3, (0.5,) * 3, resize=4),
        lambda: {"pictures": torch.rand(2, 3, 5, 6)},
    ),
    "pretrained.fetch": (pretrained.fetch, lambda: {"name": "nothing", "offline": True}),
    "pretrained.load_maps": (pretrained.load_maps, dict),
    "pretrained.supported": (pretrained.supported, dict),
    "pretrained.pieces": (pretrained.pieces, lambda: {"text": "a b", "encoded": _ENCODED}),
    "pretrained.about_maps": (pretrained.about_maps, dict),
    "pretrained.read_maps": (pretrained.read_maps, lambda: {"path": "nowhere"}),
    "pretrained.write_maps": (
        pretrained.write_maps,
        lambda: {"path": "maps.json", "readings": [_reading()], "about": pretrained.About("x", "x", "x", "x")},
    ),
    "pretrained.stacked": (pretrained.stacked, lambda: {"readings": [_reading()]}),
    "pretrained.marked": (pretrained.marked, lambda: {"readings": [_reading()], "tokens": ["a"]}),
    "plots.head_heatmap": (
        _on_all_axes(plots.head_heatmap),
        lambda: {
            "weights": torch.rand(2, 3),
            "queries": ["x", "y"],
            "keys": ["x", "y", "z"],
            "mask": None,
            "vmax": 1.0,
            "title": "x",
            "colorbar": False,
            "annotate": False,
        },
    ),
    "plots.head_heatmaps": (
        plots.head_heatmaps,
        lambda: {
            "weights": torch.rand(1, 2, 3),
            "queries": ["x", "y"],
            "keys": None,
            "mask": None,
            "vmax": 1.0,
            "titles": ["x"],
            "ncols": 1,
            "ax": None,
        },
    ),
    "plots.head_card": (
        plots.head_card,
        lambda: {"card": measures.head_card(_gpt(), _ids(), measures=["zero"], control=False)},
    ),
    "plots.head_wall": (
        _on_all_axes(plots.head_wall),
        lambda: {"weights": torch.rand(2, 3, 2, 2), "vmax": 1.0, "titles": True, "title": "x", "marked": [(0, 1)]},
    ),
    "plots.score_grid": (
        _on_all_axes(plots.score_grid),
        lambda: {
            "scores": torch.rand(2, 3),
            "title": "x",
            "label": "x",
            "vmin": 0.0,
            "vmax": 1.0,
            "annotate": True,
            "layers": ["x", "y"],
        },
    ),
    "tables.number_table": (
        tables.number_table,
        lambda: {
            "rows": {"a": (1, 2.5), "b": (3, "4")},
            "of": "x",
            "columns": ["y", "z"],
            "bars": {"y": 3.0},
            "caption": "x",
        },
    ),
    "plots.number_grid": (
        _on_all_axes(plots.number_grid),
        lambda: {
            "numbers": torch.arange(6).view(2, 3),
            "owners": torch.zeros(2, 3),
            "title": "x",
            "xlabel": "x",
            "ylabel": "x",
            "digits": 1,
        },
    ),
}

# public, but no call that could go wrong: tables and modules, records that only hold what they are given, protocols
HARMLESS = {
    **dict.fromkeys(
        (
            "Cache",
            "SymbolicMask",
            "HeadSlices",
            "Positions",
            "Head",
            "HeadRole",
            "HeadCard",
            "Model",
            "DecoderCache",
            "Weights",
        ),
        "a type",
    ),
    "Arrays": "a type",
    **dict.fromkeys(
        (
            "Ledger",
            "Step",
            "Results",
            "Reading",
            "About",
            "Pin",
            "Pretrained",
            "Memory",
            "PairReading",
            "NumberTable",
            "Speculation",
        ),
        "a record",
    ),
    **dict.fromkeys(
        ("Copies", "Digits", "Meetings", "Pairs", "Repeats", "Sentences", "Sums", "Translations", "NumberTable"),
        "a record",
    ),
    **dict.fromkeys(("names", "deviations", "kinds", "times"), "a function without arguments"),
    **dict.fromkeys(("History", "StepCost", "Chip", "LanguageModel", "Precision", "ServingCosts"), "a record"),
    "VariantError": "an error",
}
LAYER_SIZES = {"num_hiddens": 12, "num_heads": 3, "dropout": 0.0, "bias": True}
OWN = {
    V.TalkingHeads: {"init": "normal"},
    V.CollaborativeAttention: {"shared_size": 5, "init": "normal"},
    V.OverlappingAttention: {"overlap": 1, "layer_number": 2},
    V.MixtureOfHeads: {"num_shared": 1, "num_chosen": 1, "paper_scaling": True},
    V.ComposedAttention: {"rank": 2, "by_keys": True},
    V.DifferentialAttention: {"lambda_init": 0.3, "layer_number": 1, "normalise": True},
    V.GatedAttention: {"per_channel": True, "init": "multi-head", "norm": "rms"},
    V.TensorProductAttention: {"rank": 1, "query_rank": 2},
    V.DeltaAttention: {"decay": "channel", "convolution": 2, "num_key_heads": 1, "chunk_size": 3},
    V.QKNormAttention: {"norm": "rms", "norm_eps": 0.1, "together": True},
    V.LatentAttention: {
        "latent_size": 5,
        "rotary_size": 2,
        "query_latent_size": 3,
        "absorbed": True,
        "positions": "rotary",
        "rotary_base": 100.0,
    },
    V.EntmaxAttention: {"alpha": 1.5, "learned": True},
    V.SpanAttention: {"max_span": 3, "ramp": 2.0, "begin": 0.5},
    V.SparseAttention: {"window": 2, "stride": 2, "num_global": 1},
    V.SinkAttention: {"sink": 0.5, "learned": False},
    V.SigmoidAttention: {},
    V.SoftpickAttention: {},
    V.SoftCapAttention: {"cap": 2.0},
    V.HandsOn: {},
    V.CrossLayerAttention: {"num_layers_per_key": 2, "makes_keys": True, "layer_number": 1},
    V.MultiTokenAttention: {"kernel_size": [2, 3], "head_group": 3},
    V.MixtureOfBlocks: {"block_size": 2, "num_chosen": 1},
    V.NativeSparseAttention: {"block_size": 2, "num_chosen": 1, "window": 2},
    V.IndexedAttention: {"num_chosen": 2, "index_heads": 2, "index_size": 4},
    V.RelativeAttention: {"num_buckets": 4, "max_distance": 3, "one_sided": True, "own": True},
}
PLACES |= {
    f"variants.{kind.__name__}": (kind, lambda settings=settings: {**LAYER_SIZES, **settings})
    for kind, settings in OWN.items()
}
PLACES |= {
    f"variants.{kind.__name__} with others": (
        kind,
        lambda: {**LAYER_SIZES, "head_dim": 4, "num_kv_heads": None, "scale": 0.5},
    )
    for kind in OWN
    if kind is not V.SparseAttention
}
PLACES |= {
    f"variants.{kind.__name__} forward": (lambda kind=kind, own=own, **a: kind(**LAYER_SIZES, **own)(**a), _qkv_inputs)
    for kind, own in OWN.items()
}
PLACES |= {
    "variants.CollaborativeAttention.from_multi_head": (
        V.CollaborativeAttention.from_multi_head,
        lambda: {"layer": _layer()},
    ),
    "variants.align_heads": (V.align_heads, lambda: {"layer": _layer(), "num_groups": 1}),
    "variants.group_heads": (V.group_heads, lambda: {"layer": _layer(), "num_kv_heads": 1}),
    "variants.exchange_pairs": (
        V.exchange_pairs,
        lambda: {"layer": A.MultiHeadAttention(12, 3, positions="rotary"), "pairs": "halves"},
    ),
    "variants.check_variant": (
        V.check_variant,
        lambda: {
            "kind": "multi-head",
            "num_hiddens": 12,
            "num_heads": 3,
            "without": list(V.CHECKS.keys() - {"weights"}),
        },
    ),
    "variants.compress": (
        V.compress,
        lambda: {"layer": V.CollaborativeAttention(12, 3), "shared_size": 2, "num_rounds": 2},
    ),
    "variants.delta_rule": (V.delta_rule, lambda: {**_rule(), "state": torch.randn(2, 3, 4, 4), "chunk_size": 2}),
    "variants.delta_weights": (
        V.delta_weights,
        lambda: {name: part for name, part in _rule().items() if name != "v"},
    ),
    "variants.distance_buckets": (
        V.distance_buckets,
        lambda: {"distances": torch.arange(-3, 4), "num_buckets": 4, "max_distance": 3, "one_sided": True},
    ),
    "variants.entmax": (V.entmax, lambda: {"scores": torch.randn(2, 5), "alpha": 1.5}),
    "variants.attend_in_windows": (V.attend_in_windows, lambda: {**_qkv(), "before": 2}),
    "variants.Composition": (
        V.Composition,
        lambda: {"width": 12, "num_heads": 3, "rank": 2},
    ),
    "models.recomposed": (
        models.recomposed,
        lambda: {"model": _gpt(), "attention": "multi-head", "convert": lambda layer: layer},
    ),
}
MODULES = (
    *("attention", "bench", "data", "decoding", "evaluation", "measures", "models", "plots", "pretrained"),
    *("reference", "results", "roofline", "saved", "serving", "shapes", "tables", "train", "variants"),
)


def test_every_public_name_is_called():
    called = {name.split(".")[1].split(" ")[0] for name in PLACES}
    for place in MODULES:
        module = importlib.import_module(f"mhalib.{place}")
        own = [name for name in vars(module) if not name.startswith("_")]
        names = getattr(
            module,
            "__all__",
            [name for name in own if getattr(getattr(module, name), "__module__", "") == module.__name__],
        )
        callables = {name for name in names if callable(getattr(module, name))}
        assert callables - called - HARMLESS.keys() == set(), place
    public = {name for name in mhalib.__all__ if not inspect.ismodule(getattr(mhalib, name))}
    assert public - called - HARMLESS.keys() == set()


def test_there_are_enough_calls():
    assert CALLS * len([place for place, (_, good) in PLACES.items() if good()]) >= 2000


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", [place for place, (_, good) in PLACES.items() if good()])
def test_a_hostile_call_returns_or_is_refused_by_name(place, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.getbasetemp())
    function, make = PLACES[place]
    kinds = st.one_of(st.just(GOOD), st.sampled_from(sorted(HOSTILE)))

    @settings(max_examples=CALLS, database=None)
    @given(st.fixed_dictionaries(dict.fromkeys(make(), kinds)))
    def call(chosen):
        good = make()
        given_values = {name: good[name] if kind == GOOD else HOSTILE[kind]() for name, kind in chosen.items()}
        try:
            function(**given_values)
        except Exception as error:
            leak = _leak(error)
            assert leak is None, f"{place}({chosen}): {leak}"

    call()


def _leak(error):
    """What is wrong with an error; `None` if a `raise` of the package raised a kind that is documented."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    documented = (ValueError, TypeError, OSError, ImportError, FloatingPointError)
    is_raised = linecache.getline(last.filename, last.lineno).lstrip().startswith("raise ")
    if isinstance(error, documented) and last.filename.startswith(PACKAGE) and is_raised and str(error):
        return None
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(PACKAGE)]
    where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno} {ours[-1].line}" if ours else "nowhere in the package"
    return f"{type(error).__name__}: {error!s:.120} at {where}"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: mhalib.ledger(_layer(), _x(), _x(), _x(), num_heads=0), ValueError, "num_heads=0 must be at least 1"),
        (lambda: bench.median_seconds({}), ValueError, "functions is empty"),
        (lambda: bench.peak_bytes(None), TypeError, "function must be a function, got NoneType"),
        (lambda: measures.HardConcreteGate(3, "a"), TypeError, "log_a must be a number, got str"),
        (lambda: _fit(nn.Linear(2, 2), clip="a"), TypeError, "clip must be a number, got str"),
        (lambda: data.repeats(3, 0, periods=3), TypeError, "periods must be two integers"),
        (lambda: models.BERT(7, num_segments=-1), ValueError, "num_segments=-1 must be at least 0"),
        (lambda: _cache().append(torch.zeros(2, 3, 3, 4), torch.zeros(2, 3, 2, 4)), ValueError, "a token has one of"),
        (lambda: A.rotate(torch.ones(2, 4, dtype=torch.long)), TypeError, "x must hold floating-point numbers"),
        (lambda: _gate_example(_gpt(), {"decoder self": [torch.ones(5, 3)]}), ValueError, "(5, 3), 5 examples, but"),
        (lambda: measures.confidence(_weights() * 5), ValueError, "rows of weights must sum to 1"),
    ],
)
def test_what_strangers_saw_leak_is_refused_by_name(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()


def test_numpy_integers_are_sizes_and_seeds(tmp_path):
    three, seed = np.int64(3), np.int64(1)
    gpt = models.GPT(np.int64(7), np.int64(12), three, np.int64(1), np.int64(8))
    saved.write(gpt, tmp_path / "model.safetensors", saved.About("x", ("x", 1.0), "x"))
    again = saved.read(tmp_path / "model.safetensors")
    assert again.settings == gpt.settings
    assert again.num_weights == gpt.num_weights
    assert torch.equal(data.repeats(three, seed).tokens, data.repeats(3, 1).tokens)
    assert torch.equal(data.sentences(three, seed).tokens, data.sentences(3, 1).tokens)
    assert torch.equal(data.meetings(three, seed).tokens, data.meetings(3, 1).tokens)
    assert torch.equal(data.copies(three, seed).source, data.copies(3, 1).source)
    assert torch.equal(data.translations(three, seed).target, data.translations(3, 1).target)
    assert torch.equal(data.sums(_digits(), three, seed).tokens, data.sums(_digits(), 3, 1).tokens)


def test_models_run_on_the_device_meta():
    ids, lens = _ids().to("meta"), torch.tensor([5, 3], device="meta")
    assert _gpt().to("meta")(ids)[0].shape == (2, 5, 7)
    assert _transformer().to("meta")(ids, ids, lens)[0].shape == (2, 5, 7)
