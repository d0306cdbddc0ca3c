"""The race on fresh seeds: how rates are chosen, what passes, and a reader's own layer."""

from __future__ import annotations

import itertools
import json
import sys

import numpy as np
import pytest

from tools.evidence import race, results

pytestmark = pytest.mark.tool("mhalib/results/")
RATES = (0.004, 0.007, 0.012)


def test_the_share_of_turns_is_that_of_all_turns() -> None:
    """Against loops over every turn of eight seeds."""
    rng = np.random.default_rng(0)
    each = {"much": rng.normal(1, 0.5, 8), "little": rng.normal(0.2, 1, 8), "less": rng.normal(-0.5, 0.6, 8)}

    def t(row: np.ndarray) -> float:
        return float(abs(row.mean()) / (row.std(ddof=1) / np.sqrt(len(row))))

    largest = [max(t(row * signs) for row in each.values()) for signs in itertools.product((1, -1), repeat=8)]
    exact = {name: np.mean([one >= t(row) - 1e-9 for one in largest]) for name, row in each.items()}
    found = race.p_values({name: list(row) for name, row in each.items()})
    assert found == pytest.approx(exact, abs=0.012)  # 20,000 random turns
    assert found["much"] < 0.05 < found["little"]


def test_differences_without_spread_have_a_p() -> None:
    """Where all seeds say the same, only turns of all seeds say it as strongly; where none says anything, all do."""
    found = race.p_values({"always": [0.5] * 12, "never": [0.0] * 12})
    assert found["always"] < 0.002
    assert found["never"] == 1


def test_layers_alike_seldom_pass() -> None:
    """Of 200 races of 14 layers that do not differ, one in twenty has something that passes."""
    rng = np.random.default_rng(1)
    passing = 0
    for _ in range(200):
        control = rng.normal(0, 1, 24)
        rivals = {str(n): list(rng.normal(0, 1, 24) - control) for n in range(14)}
        passing += min(race.p_values(rivals).values()) <= 0.05
    assert 2 <= passing <= 20


def a_run(best: float):
    asked = []

    def run(task: str, name: str, rate: float, seed: int) -> dict:
        asked.append(rate)
        return {"curve": [1 - abs(np.log(rate / best))] * 5}

    return run, asked


@pytest.mark.parametrize(("best", "tried"), [(0.007, {0.02}), (0.02, {0.02, 0.035}), (0.06, {0.02, 0.035, 0.06})])
def test_the_grid_grows_until_its_largest_rate_is_not_the_best(monkeypatch, best, tried) -> None:
    run, asked = a_run(best)
    pilot = {rate: [run("copying", "x", rate, 0)["curve"][0]] * 8 for rate in RATES}
    asked.clear()
    monkeypatch.setattr(race, "stored_pilot", lambda task, name: pilot)
    assert race.rate_for(run, "copying", "x", RATES) == best
    assert set(asked) == (tried if best > 0.007 else set())


def test_a_layer_without_a_pilot_is_run_with_every_rate(monkeypatch) -> None:
    run, asked = a_run(0.007)
    monkeypatch.setattr(race, "stored_pilot", lambda task, name: {})
    assert race.rate_for(run, "copying", "my_layer", RATES) == 0.007
    assert set(asked) == set(RATES)
    assert len(asked) == 8 * 3


def test_the_pilot_is_what_the_first_race_stored() -> None:
    found = race.stored_pilot("copying", "multi-head")
    assert tuple(found) == RATES
    assert {len(each) for each in found.values()} == {8}


def test_a_run_is_made_once_and_with_the_layer_of_its_name(tmp_path) -> None:
    made = []

    def trained(*asked):
        made.append(asked)
        return object(), [0.1, 0.2]

    run = race.runner(tmp_path, {"trained": trained})
    for _ in range(2):
        assert run("pictures", race.AGAIN, 0.1, 3) == {"curve": [0.1, 0.2], "focus": None}
    assert made == [("pictures", "multi-head", 0.1, 3, True)]


def test_a_file_that_registers_no_layer_of_its_name_is_refused(tmp_path, monkeypatch, capsys) -> None:
    path = tmp_path / "my_layer.py"
    path.write_text("x = 1\n", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["race", "--folder", str(tmp_path), str(path)])
    monkeypatch.setattr(race, "chapter", lambda: {"LAYERS": {}})
    with pytest.raises(SystemExit, match="2"):
        race.main()
    assert 'put @register("my_layer") above its class' in capsys.readouterr().err


def test_to_store_one_task_keeps_the_others(tmp_path, monkeypatch) -> None:
    """Copying and its focus stay when pictures are stored, and pictures are replaced when they are stored again."""
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(race, "rate_for", lambda run, task, name, rates: 0.1)
    told = {"LAYERS": {"multi-head": (4, "multi-head"), "x": (4, "x")}, "RATES": dict.fromkeys(race.GRID, (0.1,))}
    monkeypatch.setattr(race, "chapter", lambda: dict(told))
    value = 0.0

    def run(task: str, name: str, rate: float, seed: int) -> dict:
        return {
            "curve": [value + seed, float(name == "x") * (1 + seed % 2)],
            "focus": 0.5 if task == "copying" else None,
        }

    monkeypatch.setattr(race, "runner", lambda folder, told: run)

    def store(task: str, seeds: int = 3) -> dict:
        command = ["race", "--folder", "unused", "--tasks", task, "--seeds", str(seeds), "--store"]
        monkeypatch.setattr(sys, "argv", command)
        race.main()
        return json.loads((tmp_path / "race.json").read_text("utf-8"))["values"]

    copying = store("copying")
    assert {"copying/x/1", "focus/x"} <= set(copying)
    value = 1000.0
    both = store("pictures")
    assert copying.items() <= both.items()
    assert both["pictures/x/1"] == [1100, 1101, 1102]
    value = 2000.0
    assert store("pictures") == both | {
        f"pictures/{name}/1": [2100, 2101, 2102] for name in (*told["LAYERS"], race.AGAIN)
    }
    with pytest.raises(ValueError, match=r"other seeds than .*name all tasks"):
        store("copying", 2)
