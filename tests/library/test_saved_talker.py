"""The talker that comes with the package: its file, what the file says of it, and its heads when they do not talk."""

import pytest
import torch

from mhalib import heads_of, saved
from mhalib.data import repeats
from mhalib.evaluation import next_token_accuracy
from mhalib.measures import mixed
from tools.evidence.train import talker

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


def silenced(model, layer, *steps):
    """The accuracy with these matrices of a layer made the identity, to 2 digits as chapter 23 says it."""
    with mixed(model, {("decoder self", layer): dict.fromkeys(steps, SILENT)}):
        return round(accuracy(model), 2)


def test_of_layer_1_either_mixing_can_go_and_not_both(model):
    assert silenced(model, 1, "scores") == 0.74
    assert silenced(model, 1, "weights") == 0.96
    assert silenced(model, 1, "scores", "weights") == 0.39
    assert silenced(model, 0, "scores", "weights") == 0.89


@pytest.mark.weekly("tools/evidence/train.py", "mhalib/variants/talking.py", "chapters/23_heads_that_talk.ipynb")
def test_what_chapter_20_says_holds_in_five_trainings():
    """The ranges that its fold names, with room for another machine's arithmetic."""
    models = [talker(seed)[0].eval() for seed in range(5)]
    for steps, low, high in (
        (("scores",), 0.67, 0.75),
        (("weights",), 0.92, 0.98),
        (("scores", "weights"), 0.38, 0.44),
    ):
        found = [silenced(model, 1, *steps) for model in models]
        print(steps, found)
        assert min(found) == pytest.approx(low, abs=0.05)
        assert max(found) == pytest.approx(high, abs=0.05)
    assert min(accuracy(model) for model in models) > 0.9
    assert min(silenced(model, 0, "scores", "weights") for model in models) > 0.65
