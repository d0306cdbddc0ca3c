"""The repeater that comes with the package: its file, what the file says of it, and the heads that Part III needs."""

import hashlib
import json
from functools import cache

import pytest
import torch

from mhalib import Head, heads_of, saved, switched_off
from mhalib.data import repeats
from mhalib.evaluation import next_token_accuracy
from mhalib.measures import attention_to, induction_score


@cache
def unseen():
    """Made when a test asks for it first, not when tests are collected."""
    return repeats(21_000, seed=0)[20_000:]


@pytest.fixture(scope="module")
def model():
    return saved.load("repeater")


@pytest.fixture(scope="module")
def weights(model):
    with torch.no_grad():
        return model(unseen().inputs, need_weights=True)[1]["decoder self"]


def accuracy(model):
    return next_token_accuracy(model, unseen().tokens, unseen().is_predictable)


def test_the_file_is_small_and_has_the_hash_that_was_written_down():
    path = saved.FOLDER / "repeater.safetensors"
    assert path.stat().st_size < 1_000_000
    known = json.loads((saved.FOLDER / saved.HASHES).read_text(encoding="utf-8"))
    assert hashlib.sha256(path.read_bytes()).hexdigest() == known["repeater"]


def test_it_has_8_heads_and_nothing_but_attention(model):
    assert len(heads_of(model)) == 8
    assert model.settings["ffn_num_hiddens"] == 0
    assert not model.training


def test_the_metric_is_what_the_file_says(model):
    about = saved.about("repeater")
    assert about.command == "python -m tools.evidence.train repeater"
    assert accuracy(model) == pytest.approx(about.metric[1], abs=0.005)
    assert about.metric[1] > 0.99


def test_sequences_of_another_seed(model):
    made = repeats(500, seed=77)
    assert next_token_accuracy(model, made.tokens, made.is_predictable) > 0.99


def test_layer_0_looks_back_by_one_and_layer_1_looks_for_what_followed(weights):
    previous = [attention_to(layer, "previous") for layer in weights]
    induction = [induction_score(layer, unseen().inputs) for layer in weights]
    assert previous[0].max() > 0.7
    assert previous[1].max() < 0.2
    assert induction[1].min() > 0.9
    assert induction[0].max() < 0.2


def test_without_its_previous_token_head_it_is_lost_and_without_an_idle_head_it_is_not(model, weights):
    scores = attention_to(weights[0], "previous")
    with switched_off(model, [Head("decoder self", 0, int(scores.argmax()))]):
        assert accuracy(model) < 0.85
    with switched_off(model, [Head("decoder self", 0, int(scores.argmin()))]):
        assert accuracy(model) > 0.99
