"""What a page writes out and the library holds too must do the same."""

from __future__ import annotations

import ast
import copy
import inspect
import itertools
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import book_text
import pytest
import torch
from torch import nn

import mhalib

NAMESPACE = {"torch": torch, "math": math, "nn": nn, "F": nn.functional, "mhalib": mhalib}


def written_out(page: str, name: str) -> Callable[..., Any]:
    """The function `name` as the page defines it. What its cell runs needs the rest of the page, and is left out."""
    (cell,) = (code for code in book_text.PAGES[page].code if f"def {name}(" in code and "# BEGIN SOLUTION" not in code)
    namespace = dict(NAMESPACE)
    defines = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    parts = [part for part in ast.parse(cell).body if isinstance(part, defines)]
    exec(compile(ast.Module(parts, []), page, "exec"), namespace)
    return namespace[name]


def test_the_training_loop_of_its_page_is_the_library_s() -> None:
    trained = []
    for fit in (written_out("03_why_more_than_one_head", "fit"), mhalib.train.fit):
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        fit(model, lambda model=model: model(torch.randn(5, 3)).square().mean(), steps=20, max_lr=0.05)
        assert not model.training
        trained.append(model.weight)
    assert torch.equal(*trained)


def test_attention_of_its_page_is_the_library_s() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 4), torch.randn(5, 4), torch.randn(5, 4)
    torch.testing.assert_close(written_out("01_weighted_average", "attend")(q, k, v), mhalib.attend(q, k, v))


def layers_of_its_page(num_hiddens: int, num_heads: int) -> tuple[Any, mhalib.MultiHeadAttention]:
    """The class that the page writes out, and the library's layer, with the same weights."""
    torch.manual_seed(0)
    (cell,) = (code for code in book_text.PAGES["06_the_whole_layer"].code if "class MultiHeadAttention(" in code)
    namespace = dict(NAMESPACE)
    exec(cell, namespace)
    assert len(cell.splitlines()) <= 40
    theirs = mhalib.MultiHeadAttention(num_hiddens, num_heads)
    ours = namespace["MultiHeadAttention"](num_hiddens, num_heads)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


@pytest.mark.parametrize("num_heads", [1, 3, 12])
def test_the_layer_of_its_page_is_the_library_s(num_heads: int) -> None:
    ours, theirs = layers_of_its_page(12, num_heads)
    queries, keys, values = torch.randn(2, 5, 12), torch.randn(2, 7, 12), torch.randn(2, 7, 12)
    nothing = mhalib.padding_mask(torch.tensor([4, 0]), 7)  # the second example may look at no key
    own = torch.rand(2, num_heads, 5, 7) < 0.6
    for mask in (None, nothing, own):
        expected = theirs(queries, keys, values, mask=mask)
        torch.testing.assert_close(ours(queries, keys, values, mask=mask), expected)
    x = torch.randn(2, 5, 12)
    torch.testing.assert_close(ours(x, x, x, mask=mhalib.causal_mask(5)), theirs(x, x, x, mask=mhalib.causal_mask(5)))


def test_the_layer_of_its_page_refuses_heads_that_do_not_divide() -> None:
    for refuse in (layers_of_its_page(12, 3)[0].__class__, mhalib.MultiHeadAttention):
        with pytest.raises(ValueError, match="num_hiddens=64 is not divisible by num_heads=5"):
            refuse(64, 5)


def blocks_of_chapter_8() -> dict[str, Any]:
    """The classes that the page builds, one on the other, a cell each."""
    namespace = {**NAMESPACE, "mhalib": mhalib, "copy": copy}
    names = ("FeedForward", "SkipConnection", "EncoderLayer", "DecoderLayer")
    for name in names:
        (cell,) = (code for code in book_text.PAGES["10_three_uses"].code if f"class {name}(" in code)
        exec(cell, namespace)
    return {name: namespace[name] for name in names}


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_layers_of_its_page_are_the_library_s(norm: str) -> None:
    torch.manual_seed(0)
    written = blocks_of_chapter_8()
    x, memory, mask = torch.randn(2, 5, 12), torch.randn(2, 7, 12), mhalib.causal_mask(5)
    for name, inputs in (("EncoderLayer", (x,)), ("DecoderLayer", (x, memory))):
        mine = written[name](12, 3, 20, norm)
        with torch.no_grad():
            for parameter in mine.parameters():  # born as 0 and 1, norms could be exchanged unseen
                parameter.add_(torch.randn_like(parameter) * 0.2)
        block = getattr(mhalib.models, name)(12, 3, 20, norm=norm)
        block.load_state_dict(mine.state_dict())
        for ours, theirs in zip(mine(*inputs, mask=mask), block(*inputs, mask=mask, need_weights=True), strict=True):
            torch.testing.assert_close(ours, theirs)


def small_gpt(**settings: Any) -> mhalib.models.GPT:
    torch.manual_seed(3)
    model = mhalib.models.GPT(11, 12, 3, 2, 0, max_tokens=40, **settings).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.6)
    return model


def test_the_reader_of_the_heat_maps_is_the_library_s() -> None:
    (cell,) = (code for code in book_text.PAGES["07_per_head_heatmaps"].code if "class Reader(" in code)
    names = NAMESPACE | {"VOCABULARY": mhalib.data.VOCABULARY, "MAX_WORDS": mhalib.data.MAX_WORDS}
    exec(cell, names)
    torch.manual_seed(3)
    ours = mhalib.models.SentenceReader(len(mhalib.data.VOCABULARY))
    theirs = names["Reader"]()
    renamed = {"tokens.embedding.weight": "words.weight", "tokens.positions.table": "positions"}
    theirs.load_state_dict({renamed.get(name, name): value for name, value in ours.state_dict().items()})
    batch = mhalib.data.sentences(5, seed=1)
    with torch.no_grad():
        scores, weights = ours(batch.tokens, batch.valid_lens, need_weights=True)
        expected, expected_weights = theirs(batch, need_weights=True)
    assert torch.equal(scores, expected)
    assert torch.equal(weights["encoder self"][0], expected_weights)


@pytest.mark.parametrize("positions", ["rotary", "learned"])
def test_the_model_of_its_page_is_the_library_s(positions: str) -> None:
    model = small_gpt(positions=positions)
    tokens = torch.randint(11, (5, 7))
    by_hand = written_out("14_small_gpt", "read")
    by_hand.__globals__["mhalib"] = mhalib
    with torch.no_grad():
        torch.testing.assert_close(by_hand(model, tokens), model(tokens)[0])


@pytest.mark.parametrize(("temperature", "top_k"), [(0, None), (1.0, None), (0.7, 3), (2.0, 1)])
def test_drawing_of_its_page_is_the_library_s(temperature: float, top_k: int | None) -> None:
    model, prompt = small_gpt(positions="rotary"), torch.randint(11, (5, 4))
    found = []
    for draw in (written_out("29_token_by_token", "sample"), mhalib.decoding.sample):
        torch.manual_seed(0)
        found.append(draw(model, prompt, 9, temperature=temperature, top_k=top_k))
    assert torch.equal(*found)


def test_what_the_heads_of_its_page_add_is_what_the_layer_adds() -> None:
    torch.manual_seed(0)
    layer = mhalib.MultiHeadAttention(12, 3, positions="rotary")
    x = torch.randn(5, 1, 12)  # a token alone attends fully to itself
    adds = written_out("15_induction_circuit", "head_adds")
    with torch.no_grad():
        torch.testing.assert_close(sum(adds(layer, x, head) for head in range(3)), layer(x, x, x)[0])


@pytest.mark.parametrize("distance", [0, 5, 9])
def test_scores_from_weights_of_its_page_are_those_of_the_projections(distance: int) -> None:
    torch.manual_seed(0)
    below, above = (mhalib.MultiHeadAttention(12, 3, positions="rotary") for _ in range(2))
    model = SimpleNamespace(embed=nn.Embedding(7, 12), layers=(below, above))
    match = inspect.unwrap(written_out("15_induction_circuit", "match"))  # of torch.no_grad
    match.__globals__["head_adds"] = written_out("15_induction_circuit", "head_adds")
    match.__globals__["rotate"] = mhalib.attention.rotate
    with torch.no_grad():
        table = match(model, writer=1, reader=2, distances=[distance])
    with torch.no_grad(), below.on_heads(lambda found: found * torch.tensor([0.0, 1.0, 0.0])[:, None, None]):
        symbols = model.embed.weight[:, None]  # seven sequences of one token, which attends to itself
        copied = below(symbols, symbols, symbols)[0]
        q = mhalib.split_heads(above.W_q(symbols), 3)[:, 2, 0]
        k = mhalib.split_heads(above.W_k(copied), 3)[:, 2, 0]
        for row, column in itertools.product(range(7), repeat=2):
            turned = mhalib.attention.rotate(q[column].expand(distance + 1, 4))[distance]
            torch.testing.assert_close(table[row, column], turned @ k[row] / 2)


def test_patches_and_the_model_of_its_page_are_the_library_s() -> None:
    page = "16_seeing_with_heads"
    (code,) = (code for code in book_text.PAGES[page].code if "def cut(" in code)
    cut = {**NAMESPACE}
    exec(code[: code.index("\n\n\n")], cut)
    images = torch.rand(3, 6, 10)
    assert torch.equal(cut["cut"](images, 2), mhalib.models.patches(images, 2))
    (code,) = (code for code in book_text.PAGES[page].code if "def see(" in code)
    exec(code[: code.index("\n\n\n")], cut)
    model = mhalib.models.ViT(height=6, width=10, num_hiddens=12, num_heads=3, num_layers=3).eval()
    nn.init.normal_(model.encoder.norm.weight)
    torch.testing.assert_close(cut["see"](model, images), model(images)[0])


def test_writing_a_caption_of_its_page_is_the_library_s() -> None:
    words = mhalib.data.CAPTION_WORDS
    (code,) = (code for code in book_text.PAGES["17_two_modalities"].code if "def caption(" in code)
    page = {**NAMESPACE, "CAPTION_WORDS": words}
    exec(code, page)
    torch.manual_seed(1)
    model = mhalib.models.Captioner(len(words), 8, 40, num_hiddens=12, num_heads=3).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.6)
    nn.init.normal_(model.patches.embedding.weight, std=9)  # so that captions depend on the picture
    model.readout.bias.data[page["END"]] += 2  # and some end early
    images = torch.rand(40, 8, 40)
    theirs = mhalib.decoding.greedy(model, images, begin=page["BEGIN"], end=page["END"], max_tokens=6)
    ours = page["until_end"](page["caption"](model, images))
    assert torch.equal(nn.functional.pad(theirs, (0, 6 - theirs.shape[1])), ours)
    ended = (ours == page["END"]).any(1)
    assert ended.any()
    assert not ended.all()


def test_greedy_decoding_of_its_page_is_the_library_s() -> None:
    torch.manual_seed(0)
    data = mhalib.data.translations(40, seed=5)
    model = mhalib.models.Transformer(len(mhalib.data.ENGLISH), len(mhalib.data.FRENCH), 16, 2).eval()
    model.readout.bias.data[2] += 4.0  # so that some sentences end early
    ours = written_out("13_translator", "greedy")(model, data)
    theirs = mhalib.decoding.greedy(model, data.source, data.source_lens, begin=1, end=2, max_tokens=ours.shape[1])
    assert (theirs == 2).any()
    assert torch.equal(ours[:, : theirs.shape[1]], theirs)
    assert not ours[:, theirs.shape[1] :].any()


def test_the_score_of_its_page_is_the_library_s() -> None:
    torch.manual_seed(0)
    weights = torch.rand(3, 4, 5, 7).softmax(-1)
    targets, real = torch.rand(3, 5, 7) < 0.3, torch.rand(3, 5, 7) < 0.7
    assert not (targets & real).any(-1).all()  # some query has no target
    tally, score = (written_out("18_what_heads_look_at", name) for name in ("tally", "score"))
    ours = score(*tally(weights, targets, real))
    torch.testing.assert_close(ours, mhalib.measures.attention_to(weights, targets, real[:, None]))


def test_the_measures_of_its_page_are_the_library_s() -> None:
    page = "19_are_heads_different"
    (code,) = (code for code in book_text.PAGES[page].code if "def divergence(" in code)
    known = {"mhalib": mhalib, "pretrained": mhalib.pretrained, "real_cells": mhalib.measures.real_cells}
    ours = {**NAMESPACE, **known}
    exec(code, ours)
    torch.manual_seed(0)
    lens = torch.tensor([7, 4, 1])
    real = mhalib.measures.real_cells(lens, 7)
    weights = torch.randn(3, 5, 7, 7).mul(3).softmax(-1)  # padding has weights too
    similarity = written_out(page, "similarity")
    flat = (weights * real).transpose(0, 1)
    torch.testing.assert_close(similarity(flat), mhalib.measures.head_similarity(weights, real))
    torch.testing.assert_close(ours["divergence"](weights, real), mhalib.measures.js_distance(weights, real))


def page_18(name: str, **known: Any) -> dict[str, Any]:
    """The names of the cell of chapter 20 that defines `name`."""
    (code,) = (code for code in book_text.PAGES["20_which_heads_matter"].code if f"def {name}(" in code)
    found = {**NAMESPACE, "copy": copy, "mhalib": mhalib, **known}
    exec(code[: code.index("\n\n\n", code.index(f"def {name}("))] if "\n\n\n" in code else code, found)
    return found


@pytest.mark.parametrize("mode", ["example", "token"])
def test_importance_of_its_page_is_the_library_s(mode: str) -> None:
    torch.manual_seed(0)
    data = mhalib.data.translations(7, seed=3)
    sizes = {"num_hiddens": 12, "num_heads": 4, "num_layers": 2}
    model = mhalib.models.Transformer(len(mhalib.data.ENGLISH), len(mhalib.data.FRENCH), **sizes).eval()
    loss = page_18("sentence_loss")["sentence_loss"]
    ours = page_18("importance", sentence_loss=loss, device="cpu")["importance"](model, data, mode)
    theirs = mhalib.measures.head_importance(model, [data], loss, mode)
    torch.testing.assert_close(ours, torch.cat(list(theirs.values())).flatten(), rtol=1e-3, atol=1e-6)


def test_the_gate_of_its_page_is_the_library_s() -> None:
    page, gate = page_18("open_probability"), mhalib.measures.HardConcreteGate(50)
    nn.init.normal_(gate.log_a)
    draw = page_18("draw_gate")["draw_gate"]
    torch.manual_seed(0)
    ours = draw(gate.log_a)
    torch.manual_seed(0)
    torch.testing.assert_close(ours, gate())
    torch.testing.assert_close(page["open_probability"](gate.log_a), gate.open_probability)


def test_a_pruned_layer_of_its_page_is_the_library_s() -> None:
    torch.manual_seed(0)
    model = mhalib.models.GPT(11, 12, 3, 1, 0, max_tokens=9, positions="learned").eval()
    ((kind, (layer,)),) = model.attention_layers().items()
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    ours, x = page_18("without")["without"](layer, [1]), torch.randn(2, 5, 12)
    mhalib.measures.prune_heads(model, [mhalib.Head(kind, 0, 1)])
    torch.testing.assert_close(ours(x, x, x)[0], layer(x, x, x)[0])


def page_19(*names: str) -> dict[str, Any]:
    """The names of the cells of chapter 22 that define these functions and classes."""
    namespace = {**NAMESPACE, "mhalib": mhalib, "rotate": mhalib.attention.rotate, "SEED": 0}
    for name in names:
        (cell,) = (code for code in book_text.PAGES["22_sharing_keys_and_values"].code if f"{name}(" in code)
        exec(cell, namespace)
    return namespace


@pytest.mark.parametrize("num_kv_heads", [1, 2, 6])
def test_shared_keys_of_its_page_are_the_library_s(num_kv_heads: int) -> None:
    torch.manual_seed(0)
    llama = page_19("def shared_attention", "class LlamaAttention")["LlamaAttention"](48, 6, num_kv_heads)
    ours = mhalib.MultiHeadAttention(48, 6, num_kv_heads=num_kv_heads, positions="rotary-halves", rotary_base=500_000.0)
    for projection, theirs in zip((ours.W_q, ours.W_k, ours.W_v, ours.W_o), llama.children(), strict=True):
        projection.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 7, 48)
    torch.testing.assert_close(ours(x, x, x, mask=mhalib.causal_mask(7))[0], llama(x))


def test_the_turn_of_its_page_is_the_library_s() -> None:
    torch.manual_seed(0)
    closest_turn = page_19("def closest_turn")["closest_turn"]
    layer = mhalib.MultiHeadAttention(12, 2).double()
    turned = mhalib.variants.align_heads(layer, 1)
    first, second = turned.W_k.weight.detach().unflatten(0, (2, 6))
    torch.testing.assert_close(closest_turn(second, first), torch.eye(6, dtype=torch.float64))  # nothing left to turn


def composed_anew(*names: str) -> dict[str, Any]:
    """The names of the cells of chapter 26 that define these functions."""
    namespace = dict(NAMESPACE)
    for name in names:
        (cell,) = (code for code in book_text.PAGES["26_heads_composed_anew"].code if f"def {name}(" in code)
        exec(cell.partition("\n\n\n")[0] if name in ("composition", "compose", "differential") else cell, namespace)
    return namespace


@pytest.mark.parametrize("num_heads", [2, 4])
def test_composed_attention_of_its_page_is_the_library_s(num_heads: int) -> None:
    torch.manual_seed(0)
    page = composed_anew("composition", "compose", "composed_attention")
    layer = mhalib.variants.ComposedAttention(12, num_heads).double().eval()
    for part in layer.parameters():
        nn.init.normal_(part, std=0.3)
    x, mask = torch.randn(5, 12, dtype=torch.float64), torch.ones(5, 5).tril().bool()
    expected = layer(x[None], x[None], x[None], mask=mask)
    for ours, theirs in zip(page["composed_attention"](layer, x, mask), expected, strict=True):
        torch.testing.assert_close(ours, theirs[0])


def test_differential_attention_of_its_page_is_the_library_s() -> None:
    torch.manual_seed(0)
    page = composed_anew("differential", "differential_attention")
    layer = mhalib.variants.DifferentialAttention(24, 3, layer_number=2).double()
    x, mask = torch.randn(5, 24, dtype=torch.float64), torch.ones(5, 5).tril().bool()
    expected, _ = layer(x[None], x[None], x[None], mask=mask)
    torch.testing.assert_close(page["differential_attention"](layer, x, mask), expected[0])


ROUTERS = "25_each_word_chooses_its_heads"


def chosen(name: str, page: str = "24_looking_at_fewer_words") -> Any:
    """A function of chapter 24 or 25, from the cell that defines it."""
    namespace = {**NAMESPACE, "mhalib": mhalib, "SEED": 0}
    (cell,) = (code for code in book_text.PAGES[page].code if f"def {name}(" in code)
    exec(cell, namespace)
    return namespace[name]


def test_sparsemax_of_its_page_is_the_library_s() -> None:
    torch.manual_seed(0)
    scores = 2 * torch.randn(3, 5, 11, dtype=torch.float64)
    torch.testing.assert_close(chosen("sparsemax")(scores), mhalib.variants.entmax(scores, 2.0))


def test_spans_of_its_page_are_the_library_s() -> None:
    torch.manual_seed(0)
    layer = mhalib.variants.SpanAttention(18, 3, max_span=9, ramp=2.5)
    with torch.no_grad():
        layer.span_shares.copy_(torch.rand(3))
    x, causal = torch.randn(2, 13, 18), mhalib.causal_mask(13)
    q, k, v = layer.project(x, x, x)
    weights = chosen("in_span")(mhalib.attend(q, k, v, causal)[1], layer.spans, 2.5)
    torch.testing.assert_close(weights, layer(x, x, x, mask=causal)[1])


@pytest.mark.parametrize("paper", [True, False])
@pytest.mark.parametrize("num_chosen", [1, 2, 5])
def test_gates_of_its_page_are_the_library_s(num_chosen: int, paper: bool) -> None:
    torch.manual_seed(0)
    layer = mhalib.variants.MixtureOfHeads(20, 5, num_shared=0, num_chosen=num_chosen, paper_scaling=paper)
    x = torch.randn(2, 7, 20)
    gates = chosen("gates_of", ROUTERS)(layer.W_routed(x), num_chosen, paper)
    torch.testing.assert_close(gates, layer.route(x)[0])
    torch.testing.assert_close(chosen("mixture_by_loop", ROUTERS)(layer, x, gates), layer(x, x, x)[0])


@pytest.mark.parametrize("seed", range(20))
def test_holm_s_correction_is_the_same_on_two_pages(seed: int) -> None:
    p_values = torch.rand(13, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) ** 6
    passed = written_out("27_bake_off", "remain")({name: float(p) for name, p in enumerate(p_values)})
    expected = written_out("18_what_heads_look_at", "holm")(p_values)
    assert passed == set(expected.nonzero()[:, 0].tolist())


def test_a_rate_of_its_page_is_chosen_by_the_other_seeds() -> None:
    chosen = written_out("27_bake_off", "chosen")
    quality = torch.rand(3, 8, generator=torch.Generator().manual_seed(0))
    for seed, rate in enumerate(chosen(quality).tolist()):
        means = [sum(float(row[n]) for n in range(8) if n != seed) for row in quality]
        assert means[rate] == max(means)
    flattered = torch.tensor([[0.5, 0.5, 0.5], [0.4, 0.4, 1.0]])  # the second rate is best with the last seed alone
    assert chosen(flattered)[2] == 0


def test_the_eight_bits_of_its_page_are_the_library_s() -> None:
    torch.manual_seed(0)
    k, v = torch.randn(2, 3, 7, 5), torch.randn(2, 3, 7, 4)
    cache = mhalib.attention.QuantisedCache()
    for found, x in zip(cache.append(k, v), (k, v), strict=True):
        codes, scale = written_out("29_token_by_token", "eight_bits")(x)
        torch.testing.assert_close(found, codes * scale)
