"""The race of the newer layers: what is equal, what an indexer learns from, and which question has which control."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

from mhalib.variants.indexed import IndexedAttention
from tools.evidence import newer_layers as race
from tools.evidence.race import AGAIN, CONTROL

pytestmark = pytest.mark.tool("mhalib/results/")
TASK = race.TASK


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    return race.chapter()


def test_weights_and_operations_are_equal(told: dict[str, Any]) -> None:
    goal = told["new_model"](TASK, CONTROL).num_weights
    spent = told["steps_for"](TASK, CONTROL) * told["step_flops"](TASK, CONTROL)
    for name in told["LAYERS"]:
        count = told["new_model"](TASK, name, told["width_for"](TASK, name)).num_weights
        assert abs(count / goal - 1) < 0.002, name
        assert abs(told["steps_for"](TASK, name) * told["step_flops"](TASK, name) / spent - 1) < 0.03, name
    assert told["steps_for"](TASK, "delta") > 80  # 40 with torch's own count


def test_an_indexer_learns_from_the_loss_and_changes_no_other_model(told: dict[str, Any]) -> None:
    losses = {}
    for name in ("indexed", CONTROL):
        torch.manual_seed(0)
        model = told["new_model"](TASK, name).eval()
        torch.manual_seed(1)
        losses[name] = told["task_loss"](TASK, model)
        torch.manual_seed(1)
        batch = told["lists"][torch.randint(len(told["lists"]), (32,))]
        alone = torch.nn.functional.cross_entropy(model(batch.inputs)[0].mT, batch.targets)
        learns = [layer.index_q.weight for layer in model.modules() if isinstance(layer, IndexedAttention)]
        assert (losses[name] > alone + 0.01) == (name == "indexed")
        assert torch.equal(losses[name], alone) == (name == CONTROL)
        losses[name].backward()
        assert all(weight.grad.abs().sum() > 0 for weight in learns)
        assert not any(layer._forward_pre_hooks for layer in model.modules())


def test_one_entrant_is_multi_head_attention_behind_a_convolution(told: dict[str, Any]) -> None:
    model = told["new_model"](TASK, race.MIXED).eval()
    x = torch.zeros(1, 9, dtype=torch.long)
    changed = x.clone()
    changed[0, 4] = 1
    differs = (model.tokens(x, 0, None) - model.tokens(changed, 0, None)).abs().sum(-1)[0] > 1e-6
    assert differs.tolist() == [False] * 4 + [True] * 4 + [False]
    kinds = [type(layer).__name__ for layer in told["new_model"](TASK, "hybrid").attention_layers()["decoder self"]]
    assert kinds == ["DeltaAttention", "MultiHeadAttention"]


def test_layers_that_see_neighbours_have_the_convolution_for_a_rival() -> None:
    rng = np.random.default_rng(0)
    level = {CONTROL: 0.5, AGAIN: 0.5, race.MIXED: 0.9, "delta": 0.8}
    curves = {name: level.get(name, 0.5) + 0.01 * rng.standard_normal((24, 5)) for name in race.ENTRANTS}
    said = race.lines(curves, dict.fromkeys(race.ENTRANTS, 0.1))
    first, second, third = (n for n, line in enumerate(said) if line.startswith("minus "))
    delta = [line for line in said if line.startswith("delta ")]
    assert len(delta) == 2
    found = [float(re.search(r"[+-]\d\.\d+", line)[0]) for line in delta]
    assert found == pytest.approx([0.3, -0.1], abs=0.005)
    assert len(said[first + 1 : second]) == len(race.NEWER)
    assert len(said[second + 1 : third]) == len(race.NEIGHBOURS)
    assert len(said[third + 1 :]) == len(race.LATER)
