"""`make gpu`: its ways to compute agree with the formula, or nothing is timed; what it gives is what pages read."""

import pytest
import torch

from mhalib.results import read
from tools.evidence import gpu, results

pytestmark = pytest.mark.tool("mhalib/results/gpu.json")


def test_a_quick_run_times_every_way_and_stores_nothing(monkeypatch, capsys) -> None:
    monkeypatch.setattr(results, "write_whole", lambda *_: pytest.fail("stored"))
    gpu.main(["--quick"])
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "the machine"
    assert [line.partition(" ")[0] for line in told[1:]] == ["a", "a", "kernels", "there"]


def test_each_way_to_read_a_cache_is_the_formula_and_a_wrong_one_is_refused() -> None:
    torch.manual_seed(0)
    device, h = torch.device("cpu"), 8
    q, caches = gpu.draw(device, 2, h, 1, 16) / 4, [(gpu.draw(device, 2, 2, 40, 16), gpu.draw(device, 2, 2, 40, 16))]
    ways = gpu.ways_to_decode(q, caches, 2)
    calls = {name: lambda way=way: way(0) for name, way in ways.items()}
    expected = gpu.exact(q, *caches[0], scale=1.0)
    assert set(gpu.agree(calls, expected)) == {"as rows", "fused", "one by one"}
    with pytest.raises(ValueError, match=r"wrong is .* away from the formula"):
        gpu.agree({"wrong": lambda: ways["fused"](0).roll(1, 1)}, expected)


def test_what_is_stored_is_of_a_gpu_and_agreed() -> None:
    stored = read("gpu")
    assert stored.device != "cpu"
    assert {len(rounds) for rounds in stored.values.values()} == {gpu.ROUNDS}
    errors = {name: rounds for name, rounds in stored.values.items() if name.startswith("error: ")}
    assert len(errors) == 5
    assert max(map(max, errors.values())) <= gpu.MOST_OFF
