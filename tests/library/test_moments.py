"""Moments of a training: what comes back is what was stored, to half a step of a byte in each row."""

import json

import pytest
import torch
from safetensors import safe_open

from mhalib import moments
from mhalib.data import repeats
from mhalib.evaluation import next_token_accuracy
from mhalib.models import BERT, GPT


def _model(seed=0, **kwargs):
    torch.manual_seed(seed)
    return GPT(7, 12, 3, 2, 11, positions="rotary", **kwargs).eval()


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """Write moments and load them again."""
    monkeypatch.setattr(moments, "FOLDER", tmp_path)

    def store(given):
        moments.write(given, tmp_path / "some.safetensors")
        return moments.load("some")

    return store


def test_each_number_comes_back_to_half_a_step_of_its_row(stored):
    given = {30: _model(1), 4: _model(2)}
    found = stored(given)
    assert list(found) == [4, 30]
    for step, model in given.items():
        for name, value in model.state_dict().items():
            again = found[step].state_dict()[name]
            if value.dim() < 2:
                torch.testing.assert_close(again, value.half().float(), rtol=0, atol=0)
                continue
            largest = value.abs().amax(-1, keepdim=True)
            assert ((again - value).abs() <= largest * (0.5 / 127 + 2**-10)).all(), name
            assert (again - value).abs().max() > 0


def test_a_row_of_zeros_stays_one_and_a_small_row_keeps_its_digits(stored):
    model = _model()
    with torch.no_grad():
        model.tokens.embedding.weight[0] = 0
        model.tokens.embedding.weight[1] = 1e-3 * torch.linspace(-1, 1, 12)
    again = stored({0: model})[0].tokens.embedding.weight
    assert not again[0].any()
    torch.testing.assert_close(again[1], model.tokens.embedding.weight[1], rtol=0, atol=1e-5)


def test_the_file_has_a_byte_for_each_number_of_a_matrix(stored, tmp_path):
    stored({0: _model(), 1: _model(1)})
    with safe_open(str(tmp_path / "some.safetensors"), "pt") as file:
        told = json.loads(file.metadata()["mhalib"])
        matrix, scale = (file.get_tensor(f"readout.weight{end}") for end in ("", ".scale"))
    assert told["steps"] == [0, 1]
    assert matrix.dtype == torch.int8
    assert matrix.shape == (2, 7, 12)
    assert (scale.dtype, scale.shape) == (torch.float16, (2, 7, 1))


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({}, ValueError, "must have at least one"),
        ({0: torch.nn.Linear(2, 2)}, TypeError, r"moments\[0\]"),
        ({"0": _model()}, TypeError, "each step"),
        ({-1: _model()}, ValueError, "each step=-1"),
        ({0: _model(), 1: BERT(7, 12, 3)}, ValueError, r"moments\[1\] has not the class and settings of moments\[0\]"),
        ({0: _model(), 1: _model(norm="post")}, ValueError, r"moments\[1\] has not"),
    ],
)
def test_what_is_no_training_of_one_model_is_refused(given, error, said, stored):
    with pytest.raises(error, match=said):
        stored(given)


def test_a_name_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"name='translator' must be one of \['repeater'\]"):
        moments.load("translator")


def test_the_stored_training_goes_from_chance_to_certainty():
    unseen = repeats(21_000, seed=0)[20_000:20_300]
    right = [next_token_accuracy(m, unseen.tokens, unseen.is_predictable) for m in moments.load("repeater").values()]
    assert right[0] < 0.06  # 1 of 32 by chance
    assert right[-1] > 0.99
    assert len(right) == 16
