"""Deeds on heads against attention by hand: hooks on W_q, W_k, W_v and W_o, and loops over rows."""

import contextlib
import copy
import itertools
import re

import pytest
import torch

import mhalib
from mhalib import Head, frozen, gated, heads_of, patched, rows, saved, switched_off, without_future, without_positions
from mhalib.attention import KINDS, Band
from mhalib.data import BEGIN, END, ENGLISH, FRENCH
from mhalib.decoding import greedy, sample
from mhalib.measures import head_outputs, layers_of, mixed, prune_heads
from mhalib.models import BERT, GPT, Transformer

pytestmark = pytest.mark.usefixtures("in_float64")

GROUPED = {"name": "multi-head", "num_kv_heads": 2}
TALKING = {"name": "talking", "init": "normal"}
CASES = {
    "GPT": (GPT, {}),
    "GPT, rotary, grouped": (GPT, {"positions": "rotary", "attention": GROUPED}),
    "GPT, rotary, talking": (GPT, {"positions": "rotary", "attention": TALKING}),
    "Transformer": (Transformer, {}),
    "Transformer, sinusoidal, grouped": (Transformer, {"positions": "sinusoidal", "attention": GROUPED}),
    "Transformer, rotary, talking": (Transformer, {"positions": "rotary", "attention": TALKING}),
}
EACH_CASE = pytest.mark.parametrize("case", CASES)
BOTH = pytest.mark.parametrize("need_weights", [True, False])
# an input and another one, of other lengths: each has queries and keys that the other lacks
LENGTHS = {"shorter": (5, 4), "longer": (3, 7)}


def make(case):
    kind, described = CASES[case]
    torch.manual_seed(1)
    vocabularies = (11,) if kind is GPT else (11, 13)
    model = kind(*vocabularies, 24, 4, 2, 20, max_tokens=9, **described).eval()
    for layers in layers_of(model).values():  # so that no pattern is flat
        for layer in layers:
            layer.W_q.weight.data *= 4
    return model


def read(model, lengths=(4, 6), seed=0, **more):
    """Run the model on two examples; of the source of the second one, the last token is padding."""
    random = torch.Generator().manual_seed(seed)
    source, target = (torch.randint(11, (2, length), generator=random) for length in lengths)
    if isinstance(model, GPT):
        return model(target, **more)
    return model(source, target, torch.tensor([lengths[0], lengths[0] - 1]), **more)


def weights_of(x, q, k, kind, lens):
    """Weights (B, h, Q, K) of a layer, and which are allowed (B, 1, Q, K), from what W_q and W_k give."""
    h, d = 4, 6
    shared = k.shape[-1] // d
    q = torch.stack([q[..., i * d : (i + 1) * d] for i in range(h)], 1)
    k = torch.stack([k[..., i * shared // h * d : (i * shared // h + 1) * d] for i in range(h)], 1)
    if x.positions is not None:
        q, k = turned(q), turned(k)
    scores = q @ k.mT / d**0.5
    allowed = torch.ones(len(q), 1, *scores.shape[-2:], dtype=torch.bool)
    if kind == "decoder self":
        allowed = allowed.tril()
    else:
        allowed &= (torch.arange(k.shape[2]) < lens[:, None])[:, None, None]
    talks = hasattr(x, "P_scores")
    if talks:
        scores = torch.einsum("bnqk,nm->bmqk", scores, x.P_scores)
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
    return torch.einsum("bnqk,nm->bmqk", weights, x.P_weights) if talks else weights, allowed


def turned(x):
    """Rotary positions as complex numbers."""
    places, rates = torch.arange(x.shape[2]), 10000.0 ** -(torch.arange(0, 6, 2) / 6)
    turns = torch.polar(torch.tensor(1.0), places[:, None] * rates)
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * turns).flatten(-2)


def by_hand(model, lengths, weigh=None, give=None):
    """Logits, weights and heads' outputs, where `weigh(head, weights, allowed)` changes weights (B, Q, K) of a head,
    and `give(head, found)` what it found, (B, Q, d)."""
    lens = torch.tensor([lengths[0], lengths[0] - 1])
    weights, outputs = {}, {}
    with contextlib.ExitStack() as handles:
        for kind, layers in layers_of(model).items():
            weights[kind], outputs[kind] = [], []
            for number, layer in enumerate(layers):
                kept = {}
                for name in ("W_q", "W_k", "W_v"):
                    hook = getattr(layer, name).register_forward_hook(
                        lambda _, given, result, kept=kept, name=name: kept.__setitem__(name, result)
                    )
                    handles.callback(hook.remove)

                def replace(_, given, kind=kind, number=number, layer=layer, kept=kept):
                    own, allowed = weights_of(layer, kept["W_q"], kept["W_k"], kind, lens)
                    shared = kept["W_v"].shape[-1] // 6
                    changed, found = [], []
                    for i in range(4):
                        head, of_head = Head(kind, number, i), own[:, i]
                        if weigh is not None:
                            of_head = weigh(head, of_head, allowed[:, 0])
                        at = i * shared // 4 * 6
                        of_values = of_head @ kept["W_v"][..., at : at + 6]
                        changed.append(of_head)
                        found.append(of_values if give is None else give(head, of_values))
                    weights[kind].append(torch.stack(changed, 1))
                    outputs[kind].append(torch.stack(found, 1))
                    return (torch.cat(found, -1),)

                handles.callback(layer.W_o.register_forward_pre_hook(replace).remove)
        logits, _ = read(model, lengths)
    return logits, weights, outputs


def patterns(model, lengths):
    """The weights of another input."""
    with torch.no_grad():
        return read(model, lengths, seed=3, need_weights=True)[1]


def frozen_by_loops(given, renormalise):
    """What `frozen` makes of a head's weights, cell by cell."""

    def weigh(head, own, allowed):
        other, changed = given[head.kind][head.layer][:, head.head], own.clone()
        for b, q in itertools.product(range(own.shape[0]), range(own.shape[1])):
            row = [0.0] * own.shape[2]
            for k in range(own.shape[2]):
                if q < other.shape[1] and k < other.shape[2] and allowed[b, q, k]:
                    row[k] = other[b, q, k].item()
            if any(row):
                changed[b, q] = torch.tensor(row) / (sum(row) if renormalise else 1)
        return changed

    return weigh


def rows_by_loops(given):
    def weigh(head, own, allowed):
        changed = own.clone()
        for query, row in given.get(head, {}).items():
            for b in range(len(own)):
                if query < own.shape[1]:
                    new = [float(row[k]) if k < len(row) and allowed[b, query, k] else 0.0 for k in range(own.shape[2])]
                    changed[b, query] = torch.tensor(new) / sum(new)
        return changed

    return weigh


def patched_by_loops(given):
    def give(head, found):
        other, changed = given[head.kind][head.layer][:, head.head], found.clone()
        for q in range(min(found.shape[1], other.shape[1])):
            changed[:, q] = other[:, q]
        return changed

    return give


def only(heads, change):
    """The change for these heads, none for others."""
    return lambda head, x, *more: change(head, x, *more) if head in heads else x


def some_rows(model):
    """Rows for two heads of each kind: longer and shorter than inputs, and for a query that is out of reach."""
    chosen = {}
    for kind in layers_of(model):
        chosen[Head(kind, 0, 3)] = {1: torch.tensor([1.0, 2.0, 3, 4, 5, 6, 7, 8, 9]), 40: torch.tensor([1.0])}
        chosen[Head(kind, 1, 1)] = {0: torch.tensor([2.0, 0, 1]), 2: torch.tensor([3.0, 1])}
    return chosen


def assert_same(model, lengths, need_weights, expected):
    logits, weights = read(model, lengths, need_weights=need_weights)
    torch.testing.assert_close(logits, expected[0], rtol=0, atol=1e-9)
    if need_weights:
        for kind, layers in expected[1].items():
            for given, wanted in zip(weights[kind], layers, strict=True):
                torch.testing.assert_close(given, wanted, rtol=0, atol=1e-9)


@EACH_CASE
def test_the_hand_does_what_the_model_does(case):
    model = make(case)
    logits, weights, outputs = by_hand(model, (4, 6))
    assert_same(model, (4, 6), True, (logits, weights))
    with head_outputs(model) as own:
        read(model)
    for kind, layers in outputs.items():
        for given, wanted in zip(own[kind], layers, strict=True):
            torch.testing.assert_close(given, wanted, rtol=0, atol=1e-9)


@BOTH
@EACH_CASE
@pytest.mark.parametrize("other", LENGTHS)
def test_frozen_patterns_are_those_of_the_loops(case, other, need_weights):
    model = make(case)
    given = patterns(model, LENGTHS[other])
    weigh = frozen_by_loops(given, "talking" not in case)
    some = heads_of(model)[1::3]
    expected, of_some = by_hand(model, (4, 6), weigh), by_hand(model, (4, 6), only(some, weigh))
    with frozen(model, given):
        assert_same(model, (4, 6), need_weights, expected)
    with frozen(model, given, some):
        assert_same(model, (4, 6), need_weights, of_some)


@BOTH
@EACH_CASE
def test_rows_are_those_of_the_loops(case, need_weights):
    model = make(case)
    given = some_rows(model)
    expected = by_hand(model, (4, 6), rows_by_loops(given))
    with rows(model, given):
        assert_same(model, (4, 6), need_weights, expected)


@BOTH
@EACH_CASE
@pytest.mark.parametrize("other", LENGTHS)
def test_patched_outputs_are_those_of_the_loops(case, other, need_weights):
    model = make(case)
    with head_outputs(model) as given:
        read(model, LENGTHS[other], seed=3)
    some, give = heads_of(model)[::3], patched_by_loops(given)
    expected, of_some = by_hand(model, (4, 6), None, give), by_hand(model, (4, 6), None, only(some, give))
    with patched(model, given):
        assert_same(model, (4, 6), need_weights, expected)
    with patched(model, given, some):
        assert_same(model, (4, 6), need_weights, of_some)


@BOTH
@EACH_CASE
def test_without_positions_a_model_is_one_that_never_had_any(case, need_weights):
    model = make(case)
    never = type(model)(**{**model.settings, "positions": "none"}).eval()
    never.load_state_dict({name: part for name, part in model.state_dict().items() if not name.endswith("table")})
    plain = read(model)[0]
    with without_positions(model):
        assert_same(model, (4, 6), need_weights, read(never, need_weights=True))
        with without_positions(model) if "rotary" not in case else contextlib.nullcontext():
            read(model)
        assert_same(model, (4, 6), need_weights, read(never, need_weights=True))
    assert torch.equal(read(model)[0], plain)
    assert not torch.allclose(read(never)[0], plain, atol=1e-3)


@BOTH
def test_without_future_an_encoder_is_one_with_a_causal_mask(need_weights):
    torch.manual_seed(1)
    model = BERT(11, 24, 4, num_layers=2, max_tokens=9).eval()
    tokens, x = torch.randint(11, (2, 6)), torch.randn(2, 6, 24)
    plain = model(tokens)[0]
    with without_future(model):
        told = model(tokens, need_weights=need_weights)[0]
        for t in range(6):
            assert torch.allclose(model(tokens[:, : t + 1])[0][:, t], told[:, t], atol=1e-5)
        hidden, near, as_matrix = (
            model.encoder(x, mask=mask, need_weights=need_weights)[0]
            for mask in (None, Band(before=1, after=2), Band(before=1, after=2).matrix(6))
        )
    assert torch.allclose(hidden, model.encoder(x, mask=Band())[0], atol=1e-5)
    assert torch.allclose(near, model.encoder(x, mask=Band(before=1, after=0))[0], atol=1e-5)
    assert torch.allclose(near, as_matrix, atol=1e-5)
    assert torch.equal(model(tokens)[0], plain)
    assert not torch.allclose(told[:, 0], plain[:, 0], atol=1e-3)


def test_without_future_padding_stays_hidden_and_the_decoder_is_as_it_was():
    model = make("Transformer")
    with without_future(model):
        weights = read(model, need_weights=True)[1]
    seen = weights["encoder self"][0] > 0
    assert torch.equal(seen[0, 0], torch.ones(4, 4).tril() > 0)
    assert torch.equal(seen[1, 0], Band().matrix(4) & (torch.arange(4) < 3))
    assert (weights["cross"][0][0] > 0).all()
    assert not any(part._forward_pre_hooks for part in model.modules())


def matrices_for(model, seed=5):
    """Random ones for some layers, some with only one of the two."""
    random = torch.Generator().manual_seed(seed)
    both = {
        (kind, i): ("scores", "weights")[i:] for kind, layers in layers_of(model).items() for i in range(len(layers))
    }
    return {where: {step: torch.randn(4, 4, generator=random) for step in steps} for where, steps in both.items()}


@BOTH
@pytest.mark.parametrize("case", [case for case in CASES if "talking" in case])
def test_heads_talk_by_the_matrices_that_are_given(case, need_weights):
    model, given = make(case), matrices_for(make(case))
    other, plain = make(case), read(model)[0]
    names = {"scores": "P_scores", "weights": "P_weights"}
    for (kind, number), of_layer in given.items():
        for step, matrix in of_layer.items():
            getattr(layers_of(other)[kind][number], names[step]).data.copy_(matrix)
    with mixed(model, given):
        assert_same(model, (4, 6), need_weights, read(other, need_weights=True))
        with mixed(model, matrices_for(model, seed=6)):
            assert not torch.allclose(read(model)[0], read(other)[0], atol=1e-3)
        assert_same(model, (4, 6), need_weights, read(other, need_weights=True))  # the inner one is undone
    assert torch.equal(read(model)[0], plain)
    assert not torch.allclose(read(other)[0], plain, atol=1e-3)


def test_a_mixing_that_is_given_gets_gradients_and_the_trained_one_does_not():
    model = make("GPT, rotary, talking")
    given = torch.eye(4, requires_grad=True)
    with mixed(model, {("decoder self", 1): {"weights": given}}):
        read(model)[0].sum().backward()
    assert given.grad.any()
    layers = layers_of(model)["decoder self"]
    assert layers[1].P_weights.grad is None
    assert layers[0].P_weights.grad.any()


TALKS = ("decoder self", 1)
UNMIXED = [
    ([TALKS], TypeError, "matrices must be a Mapping, got list"),
    ({"decoder self": {}}, ValueError, "matrices names 'decoder self', but needs (kind, layer), with a kind of"),
    ({("cross", 0): {}}, ValueError, "matrices names ('cross', 0), but needs (kind, layer)"),
    ({("decoder self", 2): {}}, ValueError, "matrices names ('decoder self', 2), but the layers are 0 to 1"),
    ({("decoder self", True): {}}, ValueError, "matrices names ('decoder self', True), but the layers are 0 to 1"),
    ({TALKS: torch.eye(4)}, TypeError, "matrices[('decoder self', 1)] must be a Mapping"),
    ({TALKS: {"values": torch.eye(4)}}, ValueError, "has 'values', but known are scores, weights"),
    ({TALKS: {"scores": [1.0]}}, TypeError, "matrices[('decoder self', 1)]['scores'] must be a torch.Tensor"),
    ({TALKS: {"scores": torch.eye(3)}}, ValueError, "['scores'] has shape (3, 3), but must be (4, 4), and finite"),
    ({TALKS: {"scores": torch.eye(4) / 0}}, ValueError, "['scores'] has shape (4, 4), but must be (4, 4), and finite"),
]


@pytest.mark.parametrize(("given", "error", "message"), UNMIXED, ids=[message for *_, message in UNMIXED])
def test_a_mixing_that_cannot_be_is_refused_by_name(given, error, message):
    model = make("GPT, rotary, talking")
    with pytest.raises(error, match=re.escape(message)), mixed(model, given):
        pass
    assert not {"mix_scores", "mix_weights"} & {name for part in model.modules() for name in vars(part)}


def test_heads_that_do_not_talk_cannot_be_mixed():
    message = "matrices names ('decoder self', 1), but the heads of this MultiHeadAttention do not talk"
    with pytest.raises(ValueError, match=re.escape(message)), mixed(make("GPT"), {TALKS: {}}):
        pass


def test_deeds_act_in_one_order_however_they_are_nested():
    """On one head of each kind all at once: rows before frozen before its own; patch, then mean, then gate."""
    model = make("Transformer")
    weights = patterns(model, (5, 5))
    with head_outputs(model) as outputs:
        read(model, (5, 5), seed=3)
    outputs = {kind: [one[:, :, :3] for one in layers] for kind, layers in outputs.items()}
    given = some_rows(model)
    heads, off = list(given), list(given)[::2]
    means = {kind: [torch.randn(4, 6) for _ in layers] for kind, layers in layers_of(model).items()}
    gates = {kind: [torch.rand(4) for _ in layers] for kind, layers in layers_of(model).items()}
    deeds = [
        lambda: rows(model, given),
        lambda: frozen(model, weights, heads),
        lambda: patched(model, outputs, heads),
        lambda: switched_off(model, off, means),
        lambda: gated(model, gates),
    ]

    def weigh(head, own, allowed):
        own = frozen_by_loops(weights, True)(head, own, allowed) if head in heads else own
        return rows_by_loops(given)(head, own, allowed)

    def give(head, found):
        if head in heads:
            found = patched_by_loops(outputs)(head, found)
        if head in off:
            found = means[head.kind][head.layer][head.head].expand(found.shape)
        return found * gates[head.kind][head.layer][head.head]

    expected = by_hand(model, (4, 6), weigh, give)
    for order in itertools.permutations(deeds):
        with contextlib.ExitStack() as nested, head_outputs(model) as seen:
            for deed in order:
                nested.enter_context(deed())
            assert_same(model, (4, 6), True, expected)
        for kind, layers in expected[2].items():  # also of a watcher that was there before
            for own, wanted in zip(seen[kind], layers, strict=True):
                torch.testing.assert_close(own, wanted, rtol=0, atol=1e-9)


def test_of_two_deeds_of_one_kind_the_inner_one_counts():
    model = make("GPT")
    head = Head("decoder self", 0, 2)
    with rows(model, {head: {2: torch.tensor([1.0, 0, 0])}}), rows(model, {head: {2: torch.tensor([0.0, 0, 1])}}):
        _, weights = read(model, need_weights=True)
    assert weights["decoder self"][0][0, 2, 2].tolist() == [0, 0, 1, 0, 0, 0]


def read_and_fail(model):
    read(model)
    raise ZeroDivisionError


@EACH_CASE
def test_all_is_undone_also_after_an_exception(case):
    model = make(case)
    plain, weights = read(model, need_weights=True)
    with head_outputs(model) as outputs:
        read(model, seed=3)
    _, others = read(model, seed=3, need_weights=True)
    deeds = [
        lambda: rows(model, some_rows(model)),
        lambda: frozen(model, others),
        lambda: patched(model, outputs),
        lambda: without_positions(model),
        lambda: contextlib.nullcontext() if isinstance(model, GPT) else without_future(model),
        lambda: head_outputs(model),
    ]
    for deed in deeds:
        with pytest.raises(ZeroDivisionError), deed():
            read_and_fail(model)
        after, again = read(model, need_weights=True)
        assert torch.equal(after, plain)
        assert all(torch.equal(*both) for kind in weights for both in zip(again[kind], weights[kind], strict=True))
    assert not any(part._forward_pre_hooks or part._forward_hooks for part in model.modules())


def deeds_on(model):
    """Each deed, made of runs on another input."""
    with head_outputs(model) as outputs:
        _, weights = read(model, (3, 4), seed=3, need_weights=True)
    one = {kind: [x[:1].detach() for x in layers] for kind, layers in weights.items()}
    return {
        "rows": lambda: rows(model, some_rows(model)),
        "frozen": lambda: frozen(model, one),
        "patched": lambda: patched(model, {kind: [x[:1] for x in layers] for kind, layers in outputs.items()}),
        "without positions": lambda: without_positions(model),
    }


@pytest.mark.parametrize("deed", ["rows", "frozen", "patched", "without positions"])
@EACH_CASE
def test_with_caches_deeds_reach_the_same_queries(case, deed):
    """Written with caches, in steps of one and of two tokens, as in one pass."""
    model = make(case)
    source, target = torch.randint(11, (2, 5)), torch.randint(11, (2, 8))
    with deeds_on(model)[deed]():
        caches = model.new_caches()
        if isinstance(model, GPT):
            whole, weights = model(target, need_weights=True)
            steps = [model(part, caches=caches, need_weights=True) for part in target.split([1, 2, 1, 1, 3], 1)]
        else:
            memory, _ = model.encode(source)
            whole, weights = model.decode(target, memory, need_weights=True)
            steps = [
                model.decode(part, memory, caches=caches, need_weights=True)
                for part in target.split([1, 2, 1, 1, 3], 1)
            ]
            weights = weights["cross"]
            for number, one in enumerate(weights):
                in_steps = torch.cat([of_step["cross"][number] for _, of_step in steps], 2)
                torch.testing.assert_close(in_steps, one, rtol=0, atol=1e-9)
    torch.testing.assert_close(torch.cat([logits for logits, _ in steps], 1), whole, rtol=0, atol=1e-9)


@pytest.mark.parametrize("deed", ["rows", "frozen", "patched"])
def test_a_cache_of_a_window_has_keys_at_their_places(deed):
    torch.manual_seed(1)
    model = GPT(11, 24, 4, 2, 20, max_tokens=12, window=3).eval()
    prompt = torch.randint(11, (2, 2))
    with deeds_on(model)[deed]() as _:
        head, late = Head("decoder self", 1, 0), {7: torch.tensor([9.0, 9, 9, 9, 9, 1, 2, 4])}
        with rows(model, {head: late}):
            with_cache = sample(model, prompt, 8, temperature=0)
            assert torch.equal(with_cache, sample(model, prompt, 8, temperature=0, use_cache=False))
            caches = model.new_caches()
            for token in with_cache[:, :8].split(1, 1):
                _, weights = model(token, caches=caches, need_weights=True)
            own = weights["decoder self"][1][0, 0, 0]
            torch.testing.assert_close(own, torch.tensor([0.0, 0, 0, 0, 0, 1, 2, 4]) / 7)


def test_outputs_of_steps_are_joined_and_a_new_pass_begins_anew():
    model = make("Transformer")
    source, target = torch.randint(11, (2, 4)), torch.randint(13, (2, 6))
    with head_outputs(model) as whole:
        model(source, target)
    with head_outputs(model) as steps:
        model(source.flip(1), target.flip(1))
        memory, _ = model.encode(source)
        caches = model.new_caches()
        for token in target.split(1, 1):
            model.decode(token, memory, caches=caches)
    assert whole.keys() == steps.keys() == layers_of(model).keys()
    for kind, layers in whole.items():
        for one, other in zip(layers, steps[kind], strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-9)
            assert not one.requires_grad
    with head_outputs(model) as only_read:
        model.encode(source)
    assert list(only_read) == ["encoder self"]


def test_pruned_models_keep_the_numbers_of_heads():
    model = make("Transformer")
    whole = copy.deepcopy(model)
    gone = [Head("cross", 1, 0), Head("encoder self", 0, 1)]
    prune_heads(model, gone)
    _, weights = read(model, seed=3, need_weights=True)
    head, given = Head("cross", 1, 2), {2: torch.tensor([0.0, 1, 1, 0])}
    with switched_off(whole, gone):
        _, others = read(whole, seed=3, need_weights=True)
        with rows(whole, {head: given}), frozen(whole, others, [Head("encoder self", 0, 3)]):
            expected, _ = read(whole)
    with rows(model, {head: given}), frozen(model, weights, [Head("encoder self", 0, 3)]):
        torch.testing.assert_close(read(model)[0], expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_in_every_kind_of_attention_a_heads_own_pattern_changes_nothing(kind):
    torch.manual_seed(1)
    model = GPT(11, 24, 4, 2, 20, attention={"name": kind, **({"window": 3} if kind == "sparse" else {})}).eval()
    plain, weights = read(model, need_weights=True)
    with head_outputs(model) as outputs:
        read(model)
    first = {"decoder self": [torch.ones(1, 4, 6, 6).tril()] * 2}
    for need_weights in (True, False):
        for deed in (frozen(model, weights), patched(model, outputs)):
            with deed:
                torch.testing.assert_close(read(model, need_weights=need_weights)[0], plain, rtol=0, atol=1e-9)
        with frozen(model, first):
            assert not torch.allclose(read(model, need_weights=need_weights)[0], plain, atol=1e-6)


def test_gradients_reach_what_is_given():
    model = make("GPT")
    _, weights = read(model, seed=3, need_weights=True)
    given = weights["decoder self"][0].detach().requires_grad_()
    with frozen(model, {"decoder self": [given, given]}):
        read(model)[0].sum().backward()
    assert given.grad.any()
    assert model.tokens.embedding.weight.grad.any()


def test_what_is_given_is_brought_to_the_type_of_the_model():
    model = make("Transformer").float()
    for deed in deeds_on(make("Transformer")).values():
        with deed():
            assert read(model)[0].dtype is torch.float32


HEAD, CROSS = Head("decoder self", 0, 1), Head("cross", 0, 1)
ITS = "weights[Head(kind='decoder self', layer=0, head=1)]"
ONE = torch.ones(1, 4, 3, 3)
REFUSED = [
    (lambda m: frozen(m, 3), TypeError, "weights must be a Mapping, got int: 3"),
    (
        lambda m: frozen(m, {"self": []}),
        ValueError,
        "weights names the kind 'self', but the model has ['decoder self']",
    ),
    (lambda m: frozen(m, {"decoder self": 2}), TypeError, "weights['decoder self'] must be a list, got int: 2"),
    (lambda m: frozen(m, {"decoder self": [ONE]}), ValueError, "weights['decoder self'] has 1 entries for 2 layers"),
    (lambda m: frozen(m, {"decoder self": [ONE, 3]}), TypeError, "weights['decoder self'][1] must be a torch.Tensor"),
    (
        lambda m: frozen(m, {"decoder self": [ONE[:, 1:], ONE]}),
        ValueError,
        "weights['decoder self'][0] has shape (1, 3, 3, 3), but needs (B, 4, Q, K)",
    ),
    (
        lambda m: frozen(m, {"decoder self": [ONE / 0, ONE]}),
        ValueError,
        "weights['decoder self'][0] holds numbers that",
    ),
    (lambda m: frozen(m, {}, [HEAD]), ValueError, "heads names the kind 'decoder self', but weights has []"),
    (lambda m: frozen(m, {}, [CROSS]), ValueError, "heads holds ('cross', 0, 1), which the model"),
    (lambda m: frozen(m, {}, HEAD), TypeError, "heads must be a list of heads, got one head"),
    (lambda m: frozen(torch.nn.Linear(2, 2), {}), TypeError, "model must be one of mhalib.models, got Linear"),
    (
        lambda m: patched(m, {"decoder self": [ONE, ONE]}),
        ValueError,
        "outputs['decoder self'][0] has shape (1, 4, 3, 3), but needs (B, 4, Q, 6)",
    ),
    (lambda m: patched(m, [ONE]), TypeError, "outputs must be a Mapping, got list"),
    (lambda m: rows(m, [HEAD]), TypeError, "weights must be a Mapping, got list"),
    (lambda m: rows(m, {CROSS: {}}), ValueError, "heads holds ('cross', 0, 1), which the model"),
    (lambda m: rows(m, {HEAD: ONE}), TypeError, f"{ITS} must be a Mapping"),
    (lambda m: rows(m, {HEAD: {"0": ONE}}), TypeError, f"a query of {ITS} must be an integer"),
    (lambda m: rows(m, {HEAD: {-1: ONE}}), ValueError, "head=1)]=-1 must be at least 0"),
    (lambda m: rows(m, {HEAD: {0: ONE}}), ValueError, "head=1)][0] must have 1 axes, got shape (1, 4, 3, 3)"),
    (lambda m: rows(m, {HEAD: {0: torch.zeros(2)}}), ValueError, "head=1)][0]=[0.0, 0.0] must be finite, at least 0"),
    (lambda m: rows(m, {HEAD: {0: torch.tensor([2.0, -1])}}), ValueError, "head=1)][0]=[2.0, -1.0] must be finite"),
    (lambda m: rows(m, {HEAD: {0: torch.tensor([torch.nan])}}), ValueError, "head=1)][0]=[nan] must be finite"),
    (
        lambda m: rows(m, {HEAD: {1: torch.tensor([0.0, 0, 1])}}),
        ValueError,
        "head=1)][1]=[0.0, 0.0, 1.0] has no weight on a key that the query may see",
    ),
    (
        lambda m: frozen(m, {"decoder self": [ONE.expand(3, -1, -1, -1), ONE]}),
        ValueError,
        "weights['decoder self'][0] has shape (3, 4, 3, 3), 3 examples, but the layer is given 2",
    ),
    (lambda m: head_outputs(torch.nn.Linear(2, 2)), TypeError, "model must be one of mhalib.models, got Linear"),
    (lambda m: without_future(m), ValueError, "model=GPT has no self-attention of an encoder"),
    (lambda m: without_future(torch.nn.Linear(2, 2)), TypeError, "model must be one of mhalib.models, got Linear"),
    (lambda m: without_positions(torch.nn.Linear(2, 2)), TypeError, "model must be one of mhalib.models, got Linear"),
    (
        lambda m: without_positions(GPT(11, 24, 4, positions="none")),
        ValueError,
        "model=GPT has no positions: neither vectors that are added nor rotary ones",
    ),
]


@pytest.mark.parametrize(("make_deed", "error", "message"), REFUSED, ids=[message for *_, message in REFUSED])
def test_what_cannot_be_done_is_refused_by_name(make_deed, error, message):
    model = make("GPT")
    plain = read(model)[0]
    with pytest.raises(error, match=re.escape(message)), make_deed(model):
        read(model)
    assert torch.equal(read(model)[0], plain)


# on the stored translator


@pytest.fixture(scope="module")
def translator():
    return saved.load("translator").double()


def french(model, sentence, use_cache=True):
    source = torch.tensor([[ENGLISH.ids[word] for word in sentence.split()]])
    begin, end = FRENCH.ids[BEGIN], FRENCH.ids[END]
    written = greedy(model, source, begin=begin, end=end, max_tokens=16, use_cache=use_cache)
    return " ".join(FRENCH.words[i] for i in written[0] if i != end)


def test_one_moved_weight_changes_the_gender(translator):
    """Encoder, layer 1, head 2: "the" looks at the other noun, and "la vache" is "le vache". No other head does it."""
    sentence = "the white cow sees the black dog"
    assert french(translator, sentence) == "la vache blanche voit le chien noir"
    to_dog = {0: torch.eye(7)[6]}
    for use_cache in (True, False):
        with rows(translator, {Head("encoder self", 1, 2): to_dog}):
            assert french(translator, sentence, use_cache) == "le vache blanche voit le chien noir"
    for head in heads_of(translator):
        if head.kind == "encoder self" and head != Head("encoder self", 1, 2):
            with rows(translator, {head: to_dog}):
                assert french(translator, sentence).startswith("la vache")


def test_with_all_24_patterns_of_another_sentence_the_words_are_its_own(translator):
    first, second = "the white cow sees the black dog", "your white boat finds this black star"
    source, other = (torch.tensor([[ENGLISH.ids[word] for word in one.split()]]) for one in (first, second))
    target = torch.tensor([[FRENCH.ids[word] for word in [BEGIN, *french(translator, first).split()]]])
    with torch.no_grad():
        _, weights = translator(source, target, need_weights=True)
        with frozen(translator, weights):
            _, changed = translator(other, target, need_weights=True)
    assert len(heads_of(translator)) == 24
    for kind, layers in weights.items():
        for one, wanted in zip(changed[kind], layers, strict=True):
            torch.testing.assert_close(one, wanted, rtol=0, atol=1e-12)
    same_frame = "the white dog sees the black cow"
    plain = french(translator, same_frame)
    with frozen(translator, weights):
        assert french(translator, same_frame) == plain == "le chien blanc voit la vache noire"
        assert french(translator, same_frame, use_cache=False) == plain


def test_the_package_has_the_deeds():
    for deed in (frozen, patched, rows, without_future, without_positions):
        assert getattr(mhalib, deed.__name__) is getattr(mhalib.measures, deed.__name__) is deed
