"""The race with many keys: its texts, what is equal, and how runs become verdicts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tools.evidence import many_keys as race


@pytest.mark.parametrize(("num_tokens", "pairs"), [(32, 4), (64, 8), (512, 64), (1024, 64)])
def test_a_text_tells_each_pair_once_and_asks_for_it_twice(num_tokens: int, pairs: int) -> None:
    all_tokens, all_targets = race.texts(3, num_tokens, torch.Generator().manual_seed(num_tokens))
    for tokens, targets in zip(all_tokens.tolist(), all_targets.tolist(), strict=True):
        first, asked, told = tokens[: num_tokens // 2], [], {}
        for place, token in enumerate(first):
            if token < race.NUM_KEYS:
                assert token not in told
                told[token] = first[place + 1] - race.NUM_KEYS
        assert len(told) == pairs
        assert set(told.values()) <= set(range(race.NUM_VALUES))
        for place, (token, target) in enumerate(zip(tokens, targets, strict=True)):
            assert (target >= 0) == (place >= num_tokens // 2 and token < race.NUM_KEYS)
            if target >= 0:
                assert told[token] == target
                asked.append(token)
        assert sorted(asked) == sorted([*told, *told])
        values = [token for token in tokens if race.NUM_KEYS <= token < race.NUM_KEYS + race.NUM_VALUES]
        assert len(values) == pairs  # no answer stands in the text


def test_all_models_have_the_same_weights() -> None:
    goal = race.new_model(race.CONTROL, race.WIDTH).num_weights
    for name in [*race.LAYERS, *race.CHECKS]:
        count = race.new_model(name, race.width_for(name)).num_weights
        assert abs(count / goal - 1) < 0.002, name


def test_four_of_them_keep_as_much_of_512_tokens() -> None:
    kept = {name: race.bytes_kept(name) for name in race.LAYERS}
    assert kept[race.CONTROL] == 2 * 64 * 512 * 4  # keys and values of 64 numbers
    equal = [kept[name] for name in race.EQUAL_BYTES]
    assert max(equal) / min(equal) < 1.02
    assert max(equal) < kept["one key"]


def test_a_token_reads_the_three_before_it_and_none_behind_it() -> None:
    model = race.new_model("window", 8).eval()
    x = torch.zeros(1, 9, dtype=torch.long)
    changed = x.clone()
    changed[0, 4] = 1
    one, other = (model.tokens(tokens, 0, None) for tokens in (x, changed))
    differs = (one - other).abs().sum(-1)[0] > 1e-6
    assert differs.tolist() == [False] * 4 + [True] * 4 + [False]


def test_operations_are_compared_where_they_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = {
        race.CONTROL: tuple(range(10, 130, 10)),
        "twice": tuple(range(20, 260, 20)),
        "half": tuple(range(5, 65, 5)),
    }
    monkeypatch.setattr(race, "operations", spent.__getitem__)
    curve = [n / 100 for n in range(10, 130, 10)]
    assert race.at_equal_operations(race.CONTROL, curve) == pytest.approx(curve[:10])
    halfway = (1 / race.NUM_VALUES + 0.10) / 2  # between chance and the first point
    assert race.at_equal_operations("twice", curve)[:4] == pytest.approx([halfway, 0.10, 0.15, 0.20])
    with pytest.raises(ValueError, match="half has taken 60 operations, and 100 are to be compared"):
        race.at_equal_operations("half", curve)


def _run(name: str, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    level = {"latent": 0.9, "window": 0.2, race.WIDE: 0.4}.get(name, 0.7)
    curve = (level + 0.01 * rng.standard_normal(race.STEPS // race.EVERY)).tolist()
    return {"curve": curve, "ends": {str(length): level for length in race.TESTED}}


def test_questions_are_those_that_were_written_down() -> None:
    names = [*race.LAYERS, *race.CHECKS]
    asked = race.questions({name: [_run(name, seed)["curve"] for seed in range(12)] for name in names})
    assert list(asked) == ["equal weights", "equal operations", "equal bytes", "at the end"]
    assert [len(each) for each in asked.values()] == [6, 6, 3, 9]
    assert np.mean(asked["equal bytes"]["latent - wide state"]) == pytest.approx(0.5, abs=1e-9)
    assert np.mean(asked["equal weights"]["window - multi-head"]) == pytest.approx(-0.5, abs=1e-9)
    for each in asked.values():
        assert not any(check in name for name in each for check in race.CHECKS)


def test_a_grid_grows_at_its_edge_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    best = 0.04
    tried = set()

    def run(folder: Path, name: str, rate: float, seed: int) -> dict[str, Any]:
        tried.add(rate)
        return {"curve": [-abs(rate - best)] * 10 + [9.0, 9.0]}  # what comes later does not choose

    monkeypatch.setattr(race, "run", run)
    assert race.rate_for(tmp_path, "latent") == 0.04
    assert tried == {0.005, 0.01, 0.02, 0.04}
    best = 0.011
    tried.clear()
    assert race.rate_for(tmp_path, "latent") == 0.01
    assert tried == {0.005, 0.01, 0.02}


def test_some_layers_may_be_run_apart_and_all_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = []

    def trained(name: str, rate: float, seed: int) -> dict[str, Any]:
        made.append((name, rate, seed))
        return _run(name, seed)

    monkeypatch.setattr(race, "trained", trained)
    command = ["many_keys", "--folder", str(tmp_path), "--seeds", "3"]
    monkeypatch.setattr(sys, "argv", [*command, "--layers", "latent", race.AGAIN])
    race.main()
    assert capsys.readouterr().out == ""
    assert {name for name, _, seed in made if seed >= 100} == {"latent", race.AGAIN}
    monkeypatch.setattr(sys, "argv", command)
    race.main()
    assert len(made) == len(set(made))  # nothing is done twice
    assert "latent - wide state          +0.500" in capsys.readouterr().out
