"""The layer as others meet it: how far a pass is to read, what the mixing steps are told, and who watches or traces."""

import os
import sys

import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F

import mhalib
from mhalib import Band, MultiHeadAttention, attend, causal_mask
from mhalib.attention import kernels
from mhalib.variants import RelativeAttention, TalkingHeads

BOTH = pytest.mark.parametrize("need_weights", [True, False])
PACKAGE = os.path.dirname(mhalib.__file__)


def layer_and_input(num_tokens=5, **settings):
    torch.manual_seed(0)
    return MultiHeadAttention(16, 4, **settings).eval(), torch.randn(2, num_tokens, 16)


def files_of_calls(function):
    """The package's file of each Python call of its own, and those of the stretches that they and returns make."""
    calls, open_calls, stretches = [], [], []

    def note(frame, event, _):
        name = frame.f_code.co_filename
        if name.startswith(PACKAGE) and event in ("call", "return"):
            if event == "call":
                calls.append(name)
                open_calls.append(name)
            else:
                open_calls.pop()
            if open_calls and stretches[-1:] != open_calls[-1:]:
                stretches.append(open_calls[-1])

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls, stretches


@BOTH
@pytest.mark.parametrize("grad", [True, False])
def test_one_pass_is_20_calls_in_4_files_and_8_stretches(grad, need_weights):
    layer, x = layer_and_input()
    with torch.set_grad_enabled(grad):
        calls, stretches = files_of_calls(lambda: layer(x, x, x, need_weights=need_weights))
    assert 10 < len(calls) <= 20
    assert 2 < len(set(calls)) <= 4
    assert len(stretches) <= 8


@pytest.mark.parametrize(
    "bad",
    [{"mask": torch.ones(5, 6) > 0}, {"valid_lens": torch.tensor([9, 1])}, {"need_weights": 1}, {"cache": 3}],
    ids=str,
)
def test_what_does_not_fit_is_refused_before_the_first_product(bad, monkeypatch):
    layer, x = layer_and_input()
    monkeypatch.setattr(F, "linear", lambda *_: pytest.fail("a product was computed"))
    with pytest.raises((TypeError, ValueError)):
        layer(x, x, x, **bad)


class MultiToken(MultiHeadAttention):
    """Each score is a sum over the two last queries and the three last keys (Golovneva et al. 2025)."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.kernel = nn.Parameter(torch.randn(self.num_heads, 1, 2, 3))

    def mix_scores(self, scores, queries, keys, *, mask=None):
        if mask is not None:
            scores = scores.masked_fill(~mask, 0.0)
        return F.conv2d(F.pad(scores, (1, 1, 1, 0)), self.kernel, groups=self.num_heads)


class ReadsTheFuture(MultiToken):
    """The same, written before the step was given the mask."""

    def mix_scores(self, scores, queries, keys):
        return super().mix_scores(scores, queries, keys)


def moved_by_the_future(layer, mask):
    """How much a change of the last token moves outputs of those before it."""
    x = torch.randn(2, 7, 16)
    changed = x.clone()
    changed[:, -1] += 1
    with torch.no_grad():
        return float(
            (layer(x, x, x, mask=mask)[0] - layer(changed, changed, changed, mask=mask)[0])[:, :-1].abs().max()
        )


@pytest.mark.parametrize("mask", [Band(), causal_mask(7), causal_mask(7).expand(2, 4, 7, 7)], ids=["band", "2", "4"])
def test_a_mixing_step_can_leave_out_what_the_mask_hides(mask):
    torch.manual_seed(0)
    assert moved_by_the_future(MultiToken(16, 4), mask) == 0
    assert moved_by_the_future(ReadsTheFuture(16, 4), mask) > 1e-3


@BOTH
def test_both_mixing_steps_are_given_the_mask_if_they_take_it(need_weights):
    seen = []

    class Watching(MultiHeadAttention):
        def mix_scores(self, scores, queries, keys, **others):
            seen.append(others["mask"])
            return scores

        def mix_weights(self, weights, queries, keys, mask=None):
            seen.append(mask)
            return weights

    layer, x = Watching(16, 4), torch.randn(2, 5, 16)
    layer(x, x, x, mask=Band(), need_weights=need_weights)
    assert all(torch.equal(mask, causal_mask(5)) for mask in seen)
    layer(x, x, x, torch.tensor([5, 3]), mask=Band(before=1), need_weights=need_weights)
    both = Band(before=1).matrix(5) & mhalib.padding_mask(torch.tensor([5, 3]), 5)
    assert all(torch.equal(mask, both) for mask in seen[2:])
    layer(x, x, x, need_weights=need_weights)
    assert seen[4:] == [None, None]


@BOTH
@pytest.mark.parametrize("step", ["mix_scores", "mix_weights"])
def test_a_mixing_step_of_one_layer_needs_no_mask(step, need_weights):
    layer, x = layer_and_input()
    setattr(layer, step, lambda scores, queries, keys: scores * 0)
    output, _ = layer(x, x, x, mask=Band(), need_weights=need_weights)
    expected = causal_mask(5) / torch.arange(1, 6)[:, None] if step == "mix_scores" else torch.zeros(5, 5)
    torch.testing.assert_close(output, layer.W_o(layer.merge(expected @ layer.project(x, x, x)[2])))
    setattr(layer, step, lambda scores, *others: scores * 0)
    assert torch.equal(layer(x, x, x, mask=Band())[0], output)


@BOTH
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("mask", [None, Band(), causal_mask(5)], ids=["none", "band", "matrix"])
@pytest.mark.parametrize("num_kv_heads", [4, 2])
def test_watched_scores_are_those_of_the_softmax_and_nothing_changes(num_kv_heads, mask, grad, need_weights):
    layer, x = layer_and_input(num_kv_heads=num_kv_heads)
    seen = []
    with torch.set_grad_enabled(grad):
        before = layer(x, x, x, mask=mask, need_weights=need_weights)
        _, weights = layer(x, x, x, mask=mask)
        with layer.on_scores(lambda *both: seen.append(both)):
            during = layer(x, x, x, mask=mask, need_weights=need_weights)
        after = layer(x, x, x, mask=mask, need_weights=need_weights)
    for result in (during, after):
        assert torch.equal(result[0], before[0])
        assert (result[1] is None) == (not need_weights)
        assert not need_weights or torch.equal(result[1], before[1])
    ((scores, told),) = seen
    assert (told is None) == (mask is None)
    torch.testing.assert_close(kernels.softmax_(scores.clone(), told), weights)


def test_scores_are_watched_after_they_are_mixed_and_added_to():
    seen = []
    relative, talking = RelativeAttention(16, 4), TalkingHeads(16, 4, init="normal")
    x = torch.randn(2, 5, 16)
    for layer in (relative, talking):
        with layer.on_scores(lambda scores, mask: seen.append(scores)):
            layer(x, x, x, need_weights=False)
    q, k, _ = relative.project(x, x, x)
    torch.testing.assert_close(seen[0], q @ k.mT / 2 + relative.added(5, 5))
    q, k, _ = talking.project(x, x, x)
    torch.testing.assert_close(seen[1], talking.mix_scores(q @ k.mT / 2, x, x))


def test_who_watches_scores_cannot_change_them():
    layer, x = layer_and_input()
    with layer.on_scores(lambda scores, mask: scores * 2), pytest.raises(TypeError, match="replace mix_scores"):
        layer(x, x, x)
    with pytest.raises(TypeError, match="function must be a function, got int"):
        layer.on_scores(3)


@BOTH
@pytest.mark.parametrize("grad", [True, False])
def test_a_pass_without_numbers_has_shapes(grad, need_weights):
    layer = MultiHeadAttention(16, 4).to("meta")
    x = torch.empty(2, 5, 16, device="meta")
    with torch.set_grad_enabled(grad):
        output, weights = layer(x, x, x, torch.ones(2, dtype=torch.long, device="meta"), need_weights=need_weights)
    assert output.shape == (2, 5, 16)
    assert (weights.shape == (2, 4, 5, 5)) if need_weights else weights is None
    with pytest.raises(TypeError, match=r"queries is torch\.float64, but the layer's weights are torch\.float32"):
        layer(x.double(), x, x)


@BOTH
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("num_kv_heads", [4, 2])
@pytest.mark.parametrize("mask", [None, causal_mask(5)], ids=["none", "matrix"])
def test_torch_fx_traces_the_layer(mask, num_kv_heads, grad, need_weights):
    layer, x = layer_and_input(num_kv_heads=num_kv_heads)
    fixed = {"valid_lens": None, "need_weights": need_weights, "cache": None}
    fixed |= {"mask": None} if mask is None else {}
    with torch.set_grad_enabled(grad):
        traced = fx.symbolic_trace(layer, concrete_args=fixed)
        expected = layer(x, x, x, mask=mask, need_weights=need_weights)
        inputs = {"queries": x, "keys": x, "values": x, "mask": mask, "need_weights_1": need_weights}
        asked = [node.target for node in traced.graph.nodes if node.op == "placeholder"]
        torch.testing.assert_close(traced(*map(inputs.get, asked)), expected)
    assert {node.target for node in traced.graph.nodes if node.op == "call_module"} == {"W_q", "W_k", "W_v", "W_o"}


@BOTH
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*torch.jit.script:FutureWarning")  # torch's own
@pytest.mark.parametrize("mask", [None, Band(), Band(before=1)], ids=str)
@pytest.mark.parametrize(
    ("kind", "settings"),
    [(MultiHeadAttention, {}), (MultiHeadAttention, {"num_kv_heads": 2}), (RelativeAttention, {})],
    ids=["multi-head", "grouped", "relative"],
)
def test_the_forward_derivative_is_a_difference(kind, settings, mask, need_weights):
    torch.manual_seed(0)
    layer = kind(16, 4, **settings).double()
    x, direction = torch.randn(2, 2, 5, 16, dtype=torch.float64)

    def output(x):
        return layer(x, x, x, mask=mask, need_weights=need_weights)[0]

    value, slope = torch.func.jvp(output, (x,), (direction,))
    torch.testing.assert_close(value, output(x))
    step = 1e-6 * direction
    torch.testing.assert_close(slope, (output(x + step) - output(x - step)) / 2e-6, rtol=1e-6, atol=1e-8)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*torch.jit.script:FutureWarning")  # torch's own
def test_attend_has_a_forward_mode_jacobian_without_weights():
    q, k, v = torch.randn(3, 1, 2, 4, 3, dtype=torch.float64)

    def output(q, need_weights=False):
        return attend(q, k, v, causal_mask(4), need_weights=need_weights)[0]

    expected = torch.func.jacrev(lambda q: output(q, need_weights=True))(q)
    torch.testing.assert_close(torch.func.jacfwd(output)(q), expected)
