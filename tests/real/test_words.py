"""The test of heads that follow words: on maps whose rule is known, and on MiniLM's weights."""

import pytest
import torch
from real_weights import place

from mhalib import pretrained
from mhalib.results import read
from tools.evidence import real_sinks, real_words


def test_words_are_put_back_where_they_were():
    rng = torch.Generator().manual_seed(0)
    by_word, order = torch.rand(3, 8, 8, generator=rng), torch.randperm(8, generator=rng)
    assert torch.equal(real_words.put_back(by_word[:, order][:, :, order], order), by_word)


def test_cells_stay_within_their_band():
    step = torch.arange(9) - torch.arange(9)[:, None]
    moved = step.flatten()[real_words.banded(9, torch.Generator().manual_seed(0))].view(9, 9)
    for least, most in ((0, 0), (1, 2), (3, 5), (6, 8)):
        own = (step.abs() >= least) & (step.abs() <= most)
        assert moved[own].sign().equal(step[own].sign())
        assert set(moved[own].abs().tolist()) == set(step[own].abs().tolist())
    assert not moved.equal(step)


def test_a_head_of_places_and_one_of_words_are_told_apart():
    """72 heads, of which the first looks one place back, the second at words, and the others at both."""
    rng, made = torch.Generator().manual_seed(1), []
    for _ in range(20):
        by_word, order = torch.rand(72, 9, 9, generator=rng) ** 4, torch.randperm(9, generator=rng)
        moved = by_word[:, order][:, :, order]
        by_place = torch.eye(9).roll(-1, 1)
        by_word[0], moved[0] = by_place, by_place
        made.append((by_word, moved, order))
    found = real_words.measured(made, 99)
    assert found["words"][1] == pytest.approx(1)
    assert found["places"][0] == pytest.approx(1)
    assert max(found["words/shuffled/p"][1], found["places/banded/p"][0]) < 0.011
    assert found["words/shuffled/p"][0] > 0.05
    assert found["places/banded/p"][1] > 0.05


def test_what_is_stored_of_words_is_what_the_weights_give():
    place("minilm")
    made, stored = real_words.material(pretrained.load("minilm")), read("minilm_words")
    assert len(made) == 90
    found = real_words.measured(made, 9)
    for name in ("words", "places"):
        assert found[name] == pytest.approx(stored[name], rel=2e-3)
    for name in ("words/shuffled", "words/banded", "places/banded"):
        assert found[f"{name}/floor"] == pytest.approx(stored[f"{name}/floor"], abs=0.05)


def test_what_is_stored_of_first_values_is_what_the_weights_give():
    place("smollm2-135m")
    model, stored = pretrained.load("smollm2-135m"), read("smollm2_values")
    found = real_sinks.first_values(model.model, real_sinks.texts_of(model))
    for name, values in stored.values.items():
        assert found[name] == pytest.approx(values, rel=5e-3, abs=1e-4)
    assert found["nats"] == pytest.approx(read("smollm2_sinks")["nats"], rel=2e-3)
