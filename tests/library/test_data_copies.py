"""What the copier reads and spells: digits stand for letters, and no two sources are equal."""

import pytest
import torch

from mhalib.data import COPIED, copies

MADE = copies(3000, seed=0)


def test_a_digit_stands_for_the_letter_at_its_position_and_the_copy_begins_where_it_is_told():
    for i in range(300):
        source, (start, *copy) = COPIED.decode(MADE.source[i]), COPIED.decode(MADE.target[i])
        assert all(source[int(one)].isalpha() for one in source if one.isdigit())
        spelled = [source[int(one)] if one.isdigit() else one for one in source]
        assert copy == [*spelled[int(start) :], "."]
        assert len(source) == MADE.source_lens[i]
        assert 1 + len(copy) == MADE.target_lens[i]


def test_no_two_sources_are_equal_and_every_length_and_start_comes():
    assert len(set(map(tuple, MADE.source.tolist()))) == len(MADE) == 3000
    assert set(MADE.source_lens.tolist()) == set(range(1, 9))
    assert {COPIED.words[i] for i in MADE.target[:, 0].tolist()} == set("01234567")
    assert MADE.source.shape == (3000, 8)
    assert MADE.target.shape == (3000, 10)


def test_the_seed_decides_and_chance_elsewhere_does_not():
    torch.manual_seed(1)
    assert torch.equal(copies(40, seed=3).source, copies(40, seed=3).source)
    assert not torch.equal(copies(40, seed=3).source, copies(40, seed=4).source)


@pytest.mark.parametrize("count", [0, 1.5, True])
def test_a_wrong_number_is_refused(count):
    with pytest.raises((TypeError, ValueError), match="num_examples"):
        copies(count, seed=0)
