"""The talker that comes with the package: its file, what the file says of it, and its heads when they do not talk."""

import pytest
import torch

from mhalib import heads_of, saved
from mhalib.data import repeats
from mhalib.evaluation import next_token_accuracy
from mhalib.measures import mixed

UNSEEN = repeats(4500, seed=1, num_tokens=24, periods=(4, 8))[4000:]
SILENT = torch.eye(8)


@pytest.fixture(scope="module")
def model():
    return saved.load("talker")


def accuracy(model):
    return next_token_accuracy(model, UNSEEN.tokens, UNSEEN.is_predictable)


def test_it_is_small_and_its_16_heads_are_narrow(model):
    assert (saved.FOLDER / "talker.safetensors").stat().st_size < 26_000
    assert len(heads_of(model)) == 16
    assert {layer.head_dim for layer in model.attention_layers()["decoder self"]} == {4}
    assert not model.training


def test_the_metric_is_what_the_file_says(model):
    about = saved.about("talker")
    assert about.command == "python -m tools.evidence.train talker"
    assert accuracy(model) == pytest.approx(about.metric[1], abs=0.005)
    assert about.metric[1] > 0.99


def test_of_layer_1_either_mixing_can_go_and_not_both(model):
    layer = ("decoder self", 1)
    with mixed(model, {layer: {"scores": SILENT}}):
        assert 0.6 < accuracy(model) < 0.85
    with mixed(model, {layer: {"weights": SILENT}}):
        assert accuracy(model) > 0.9
    with mixed(model, {layer: {"scores": SILENT, "weights": SILENT}}):
        assert accuracy(model) < 0.5
    with mixed(model, {("decoder self", 0): {"scores": SILENT, "weights": SILENT}}):
        assert accuracy(model) > 0.8
