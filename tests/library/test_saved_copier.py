"""The copier that comes with the package: its file, what the file says of it, and that it needs all three uses."""

import pytest
import torch

from mhalib import heads_of, saved, switched_off
from mhalib.data import copies
from mhalib.evaluation import exact_match

UNSEEN = copies(25_000, seed=0)[24_000:]


@pytest.fixture(scope="module")
def model():
    return saved.load("copier")


def test_it_is_small_and_has_4_heads_of_each_use(model):
    assert (saved.FOLDER / "copier.safetensors").stat().st_size < 40_000
    assert [head.kind for head in heads_of(model)] == ["encoder self"] * 4 + ["decoder self"] * 4 + ["cross"] * 4
    assert not model.training


def test_the_metric_is_what_the_file_says(model):
    about = saved.about("copier")
    assert about.command == "python -m tools.evidence.train copier"
    assert exact_match(model, UNSEEN) == pytest.approx(about.metric[1], abs=0.002)
    assert about.metric[1] > 0.99


@pytest.mark.parametrize("kind", ["encoder self", "decoder self", "cross"])
def test_without_one_use_it_spells_no_source_that_needs_it(model, kind):
    long = UNSEEN[UNSEEN.source_lens == 8]
    long = long[torch.tensor([any(21 <= one <= 28 for one in row) for row in long.source.tolist()])]
    with switched_off(model, [head for head in heads_of(model) if head.kind == kind]):
        assert exact_match(model, long) < 0.25
