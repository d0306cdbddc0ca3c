"""Repeated sequences: what they promise, token by token, in plain loops."""

import pytest
import torch

from mhalib.data import Repeats, repeats

MADE = repeats(500, seed=5)


def rounds(data):
    """For each sequence its list, turned so that it begins with its smallest symbol."""
    found = []
    for tokens, period in zip(data.tokens.tolist(), data.periods.tolist(), strict=True):
        once = tokens[:period]
        found.append(min(tuple(once[i:] + once[:i]) for i in range(period)))
    return found


def test_sizes():
    assert MADE.tokens.shape == (500, 48)
    assert MADE.periods.shape == (500,)
    assert MADE.tokens.min() == 0
    assert MADE.tokens.max() == 31
    assert sorted(set(MADE.periods.tolist())) == list(range(6, 17))


def test_each_sequence_repeats_a_list_of_different_symbols():
    for tokens, period in zip(MADE.tokens.tolist(), MADE.periods.tolist(), strict=True):
        assert len(set(tokens[:period])) == period
        assert all(tokens[t] == tokens[t - period] for t in range(period, len(tokens)))


def test_predictable_is_what_the_past_tells():
    """A target is predictable if the symbol before it has occurred before: then the one that followed it comes."""
    for i, row in enumerate(MADE.tokens.tolist()):
        for t, target in enumerate(MADE.targets[i].tolist()):
            seen = [row[j + 1] for j in range(t) if row[j] == row[t]]
            assert bool(MADE.is_predictable[i, t]) == bool(seen)
            assert set(seen) <= {target}


def test_inputs_and_targets_are_one_place_apart():
    assert torch.equal(MADE.inputs, MADE.tokens[:, :47])
    assert torch.equal(MADE.targets, MADE.tokens[:, 1:])
    assert MADE.is_predictable.shape == MADE.inputs.shape


def test_train_and_test_share_no_list_even_turned():
    made = repeats(1500, seed=0, num_tokens=14, num_symbols=10, periods=(4, 5))  # of 7308 that there are
    train, test = rounds(made[:1000]), rounds(made[1000:])
    assert len(set(train)) == 1000
    assert len(set(test)) == 500
    assert not set(train) & set(test)


def test_a_seed_gives_the_same_sequences_and_another_others():
    assert torch.equal(repeats(20, seed=5).tokens, repeats(20, seed=5).tokens)
    assert not torch.equal(repeats(20, seed=5).tokens, repeats(20, seed=6).tokens)


def test_torchs_chance_is_not_touched():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    repeats(5, seed=1)
    assert torch.equal(torch.rand(3), expected)


def test_parts_keep_what_belongs_together():
    part = MADE[torch.tensor([7, 2])]
    assert isinstance(part, Repeats)
    assert len(part) == 2
    assert torch.equal(part.tokens[1], MADE.tokens[2])
    assert torch.equal(part.periods, MADE.periods[[7, 2]])
    assert torch.equal(MADE[:3].to("cpu").is_predictable, MADE.is_predictable[:3])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_examples": 0}, "num_examples=0"),
        ({"periods": (5, 4)}, r"periods=\(5, 4\)"),
        ({"periods": (0, 4)}, "periods=0"),
        ({"periods": (4, 33)}, "num_symbols=32"),
        ({"num_tokens": 17}, "num_tokens=17 must be at least 18"),
        ({"num_symbols": 3, "periods": (3, 3), "num_examples": 3}, "num_examples=3 is too many"),
    ],
)
def test_bad_arguments(change, message):
    with pytest.raises(ValueError, match=message):
        repeats(**{"num_examples": 10, "seed": 0, **change})


def test_a_wrong_type():
    with pytest.raises(TypeError, match="num_tokens"):
        repeats(10, seed=0, num_tokens=20.0)
