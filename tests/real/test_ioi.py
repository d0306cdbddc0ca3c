"""What is stored of indirect objects is what SmolLM2's weights give, and its parts add up."""

import pytest
import torch
from real_weights import place

from mhalib import Head, pretrained
from mhalib.measures import head_outputs, patched
from mhalib.results import read
from tools.evidence import real_ioi


@pytest.fixture(scope="module")
def loaded():
    place(real_ioi.NAME)
    model = pretrained.load(real_ioi.NAME)
    model.model.eval()
    return model


@pytest.fixture(scope="module")
def question(loaded):
    return real_ioi.asked(loaded, real_ioi.MEASURING[0], real_ioi.MEASURING_NAMES, 100)


def test_a_prompt_asks_for_the_name_that_is_not_repeated(loaded, question):
    repeated_first = 0
    for row, (tokens, third, others) in enumerate(zip(question.tokens, question.third, question.others, strict=True)):
        at_right, at_first, at_second = question.places[row].tolist()
        assert tokens[at_right] == question.right[row]
        assert tokens[at_first] == tokens[at_second] == question.wrong[row]
        assert (tokens != third).nonzero()[:, 0].tolist() == [at_second]
        assert len({*tokens.tolist()} & {*others.tolist()} & {*question.names.tolist()}) == 0
        repeated_first += at_first < at_right
    assert repeated_first == real_ioi.PROMPTS // 2


@torch.no_grad()
def test_what_heads_add_and_what_else_writes_is_the_lead(loaded, question):
    """The lead is linear in what is written to the last token, once the last norm's scale is given."""
    model, one = loaded.model, real_ioi.read(loaded.model, question.tokens)
    adds = real_ioi.of_heads(model, one, question)
    scale = (one.after[-1].square().mean(-1, keepdim=True) + model.decoder.norm.eps).rsqrt()
    rest = one.after[-1].clone()
    for layer, outputs in zip(model.decoder.layers, one.outputs, strict=True):
        rest -= layer.attention.W_o(outputs[:, :, -1].flatten(1))
    others = real_ioi.lead(real_ioi.readout(model, rest, scale), question.right, question.wrong).mean()
    whole = real_ioi.lead(one.logits, question.right, question.wrong).mean()
    torch.testing.assert_close(adds.sum() + others, whole, rtol=1e-3, atol=1e-2)


@torch.no_grad()
def test_what_is_stored_is_what_the_weights_give(loaded, question):
    model, stored = loaded.model, read("smollm2_ioi")
    one = real_ioi.read(model, question.tokens)
    leads = real_ioi.lead(one.logits, question.right, question.wrong)
    assert float(leads.mean()) == pytest.approx(stored["lead"][0], abs=0.02)
    adds = real_ioi.of_heads(model, one, question)
    assert float(adds[23, 3]) == pytest.approx(stored["adds/23.3"][0], abs=0.02)
    own = real_ioi.own_name(model, one, question, 23, 3, real_ioi.values_of(model, question.tokens)[23])
    assert float(own.mean()) == pytest.approx(stored["own/23.3"][0], abs=0.02)
    with head_outputs(model) as outputs:
        model(question.others)
    with patched(model, outputs, [Head(real_ioi.KIND, 23, 3)]):
        now = real_ioi.lead(model(question.tokens)[0][:, -1], question.right, question.wrong)
    assert float(now.mean()) == pytest.approx(stored["off/23.3"][0], abs=0.02)
    at_end = model.decoder.norm(one.after[-1]) @ model.tokens.embedding.weight.T
    torch.testing.assert_close(at_end, one.logits, rtol=1e-3, atol=1e-2)
    assert stored["lens/29"] == pytest.approx(stored["lead"], abs=0.02)
