"""The measures on models with bounds: what a head can read, which are right, and how answers are counted."""

import dataclasses
import statistics

import pytest
import torch
from torch.nn import functional as F

from mhalib.measures import head_outputs, heads_of, switched_off
from mhalib.results import read
from tools.evidence import head_bounds
from tools.evidence.head_bounds import Truth, drawn_heads, told


@torch.no_grad()
def given(model: torch.nn.Module, name: str, kind: str) -> torch.Tensor:
    """What each head gives at the place that is asked, (B, h, d)."""
    asked = head_bounds.KINDS[kind].ask(model.eval(), name).asked
    with head_outputs(asked) as outputs:
        asked(torch.arange(8)[:, None])
    return outputs["asked"][0][:, :, 0]


def test_a_blind_head_reads_nothing_of_its_own_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    model = head_bounds.new_faces(3)
    before, faces = given(model, "faces", "faces"), head_bounds.faces_seen().clone()
    faces[5] += 3  # sentence 5 itself, and to blind heads the text before sentence 6
    monkeypatch.setattr(head_bounds, "faces_seen", lambda: faces)
    changes = (given(model, "faces", "faces") - before).abs().amax(-1) > 1e-6
    see = torch.zeros(4, dtype=torch.bool)
    see[drawn_heads(3)[:2]] = True
    assert changes[5].equal(see)
    assert changes[6].equal(~see)
    assert not changes[:5].any()


def test_a_head_that_sees_the_left_digit_reads_nothing_of_the_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model = head_bounds.new_digits(1)
    left, right, *blind = drawn_heads(1)
    before = given(model, "left", "digits")
    texts, keys = head_bounds.asked_pictures("left")
    images = texts.images.clone()
    images[5, :, 8:] = 1 - images[5, :, 8:]
    mended = dataclasses.replace(texts, images=images)
    monkeypatch.setattr(head_bounds, "asked_pictures", lambda name: (mended, keys))
    changes = (given(model, "left", "digits") - before).abs().amax(-1) > 1e-6
    assert changes[5].nonzero()[:, 0].tolist() == [right]
    assert changes[6].nonzero()[:, 0].tolist() == sorted([left, *blind])


def test_the_loss_of_a_symbol_counts_its_own_places_alone() -> None:
    model = head_bounds.new_symbols(0).eval()
    question = head_bounds.ask_symbols(model, "7")
    logits = torch.zeros(24, 47, 32)
    logits[..., 7] = 50.0  # right wherever 7 follows, wrong elsewhere
    texts = torch.arange(24)[:, None]
    assert question.loss(logits, texts).abs().max() < 1e-6
    assert question.looks.any(-1).any(-1).all()
    places = question.looks.any(-1).nonzero()[:, 1]
    assert len(places) > 24


def test_the_means_of_a_place_stand_for_a_head_that_is_off() -> None:
    """Where all heads of the layer are off, the layer adds the same to every text."""
    model, lists = head_bounds.new_symbols(2).eval(), head_bounds.every_list()[20_000:20_020]
    found = head_bounds.subsets_by_symbol(model, lists)
    wanted = F.one_hot(lists.targets, 32) * lists.is_predictable[..., None]
    with torch.no_grad():
        right = model(lists.inputs)[0].argmax(-1) == lists.targets
    whole = (wanted * right[..., None]).sum((0, 1)) / wanted.sum((0, 1))
    torch.testing.assert_close(found[15], whole, equal_nan=True)
    assert found.shape == (16, 32)


def test_measures_by_taking_away_are_what_the_gates_give() -> None:
    model = head_bounds.new_faces(0).eval()
    question = head_bounds.ask_faces(model, "faces")
    scores = question.scores(head_bounds.DEAR)
    texts = torch.arange(96)[:, None]
    with torch.no_grad():
        whole = question.loss(question.asked(texts)[0], texts)
        for number, head in enumerate(heads_of(question.asked)):
            with switched_off(question.asked, [head]):
                cost = (question.loss(question.asked(texts)[0], texts) - whole).mean()
            assert scores["zero"][number] == pytest.approx(float(cost), abs=1e-6)


def test_any_of_the_right_heads_may_stand_for_those_that_are_named() -> None:
    masters = Truth([1, 3], 1, [0.1, 0.6, 0.0, 0.3])
    found = told(masters, [0.0, 2.0, 3.0, 1.0])
    assert found == {"named": 0, "alarms": pytest.approx(1 / 2), "agreement": pytest.approx(-0.2)}
    assert told(masters, [0.2, 0.0, 0.1, 0.3])["named"] == 1
    both = Truth([0, 2], 2)
    assert told(both, [3.0, 1.0, 2.0, 0.0]) == {"named": 1, "alarms": 0}
    assert told(both, [3.0, 2.5, 2.0, 0.0]) == {"named": 0, "alarms": 1 / 2}


def test_what_is_stored_is_of_twenty_models_of_each_kind() -> None:
    stored = read("head_bounds")
    assert stored.seeds == tuple(range(20))
    for kind, of in head_bounds.KINDS.items():
        assert len(stored[f"{kind}/questions"]) == 20
        for name in set(head_bounds.MEASURES) - of.left_out:
            assert 0 <= statistics.fmean(stored[f"{kind}/{name}/named"]) <= 1
