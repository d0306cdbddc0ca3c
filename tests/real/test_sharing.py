"""What chapter 19 stores of heads that share keys is what SmolLM2's weights give."""

import pytest
import torch
from real_weights import place

from mhalib import pretrained
from mhalib.results import read
from tools.evidence import real_sharing


def test_the_share_is_all_between_equal_heads_and_none_between_equal_groups():
    of_groups = torch.randn(2, 30, 3)
    assert real_sharing.between(of_groups.repeat_interleave(3, -1)).tolist() == pytest.approx([1, 1])
    assert real_sharing.between(of_groups.repeat(1, 1, 3)).tolist() == pytest.approx([0, 0], abs=1e-6)


def test_what_is_stored_of_smollm2_is_what_the_weights_give():
    place("smollm2-135m")
    model, stored = pretrained.load("smollm2-135m"), read("smollm2_sharing")
    found = {}
    for name, each in real_sharing.scores(model):
        found.setdefault(name, []).append(each)
    for name, each in found.items():
        assert torch.stack(each).mean(0).flatten().tolist() == pytest.approx(stored[name], rel=2e-2, abs=2e-4)
        assert real_sharing.between(torch.stack(each)).tolist() == pytest.approx(stored[f"share/{name}"], abs=2e-3)
    heads = {name: torch.stack(each).mean(0) for name, each in found.items()}
    assert heads["previous"].flatten().argmax() == 9 * 16  # (16, 0), as chapter 14 says
    assert heads["induction"].flatten().topk(4).indices.tolist() == [9 * 18 + 6, 9 * 17 + 4, 9 * 17 + 3, 9 * 17 + 5]
