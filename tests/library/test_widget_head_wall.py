"""The Python side of the head wall: what it carries of each head, what it keeps out, what it refuses and warns of."""

from __future__ import annotations

import base64
import json
import math
import re
import string
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import traitlets

pytest.importorskip("anywidget")

from mhalib import causal_mask
from mhalib.measures import confidence
from mhalib.widgets import HeadWall

LETTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"


def rows(*shape: int, seed: int = 5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(*shape, generator=generator, dtype=torch.float64)).softmax(-1)


def causal(*shape: int, seed: int = 5) -> torch.Tensor:
    weights = rows(*shape, seed=seed) * causal_mask(*shape[-2:])
    return weights / weights.sum(-1, keepdim=True)


def codes(wall: HeadWall) -> np.ndarray:
    """The letters, read back one by one."""
    L, h, _, _ = wall.sizes
    return np.array([LETTERS.index(letter) for letter in wall.maps]).reshape(L, h, *wall.grid[:2])


def blocks(table: np.ndarray, seen: np.ndarray, wall: HeadWall, pool: Any) -> np.ndarray:
    """The pooled map by loops; NaN where no cell is seen."""
    down, across, tall, wide = wall.grid
    found = np.full((down, across), np.nan)
    for r in range(down):
        for c in range(across):
            place = (slice(r * tall, (r + 1) * tall), slice(c * wide, (c + 1) * wide))
            if seen[place].any():
                found[r, c] = pool(table[place][seen[place]])
    return found


def detail(wall: HeadWall, index: int) -> list[tuple[list[tuple[int, int]], int]]:
    """The keys with thousandths, and the share, of each query; read from a head's list or from what was sent."""
    text = wall.details[wall.detailed.index(index)] if index in wall.detailed else dict([wall.sent])[index]
    data = base64.b64decode(text)
    numbers = [int.from_bytes(data[i : i + 2], "little") for i in range(0, len(data), 2)]
    width = 2 * wall.top_keys + 1
    lines = [numbers[i : i + width] for i in range(0, len(numbers), width)]
    return [([(a, b) for a, b in zip(one[:-1:2], one[1:-1:2], strict=True) if a != 65535], one[-1]) for one in lines]


@pytest.mark.parametrize("pool", ["max", "mean"])
@pytest.mark.parametrize("cells", [3, 7, 50])
def test_blocks_are_the_largest_or_mean_weight_of_what_is_seen(pool: str, cells: int) -> None:
    weights = causal(2, 3, 17, 23)
    wall = HeadWall(weights, causal=True, pool=pool, cells=cells)
    seen = causal_mask(17, 23).numpy()
    assert wall.grid[:2] == [math.ceil(17 / math.ceil(17 / cells)), math.ceil(23 / math.ceil(23 / cells))]
    for layer in range(2):
        for head in range(3):
            exact = blocks(weights[layer, head].numpy(), seen, wall, np.max if pool == "max" else np.mean)
            carried = codes(wall)[layer, head]
            assert ((carried == 62) == np.isnan(exact)).all()
            there = ~np.isnan(exact)
            read = (carried[there] / 61) ** 2
            assert (np.abs(read - exact[there]) <= (0.005 + np.sqrt(exact[there])) / 61).all()
            assert np.abs(read - exact[there]).max() > 0


def test_the_error_that_is_promised_is_kept_by_every_weight() -> None:
    weights = np.linspace(0, 1, 2000)
    pairs = np.stack([weights, 1 - weights], -1)[None, None]  # rows sum to 1
    wall = HeadWall(pairs.reshape(1, 1000, 2, 2), cells=2)
    read = (codes(wall).ravel() / 61) ** 2
    error = np.abs(read - pairs.ravel())
    assert (error <= (0.005 + np.sqrt(pairs.ravel())) / 61).all()
    assert 0.015 < error.max() < 0.017  # near 1
    assert error[pairs.ravel() < 0.01].max() < 0.0018


@pytest.mark.parametrize("count", [1, 3, 9])
def test_strongest_keys_and_the_share_that_they_hold(count: int) -> None:
    weights = causal(2, 2, 7, 7)
    wall = HeadWall(weights, causal=True, top_keys=count)
    assert wall.detailed == [0, 1, 2, 3]
    for index in range(4):
        for query, (found, share) in enumerate(detail(wall, index)):
            row = weights.flatten(0, 1)[index, query, : query + 1]
            best = sorted(range(query + 1), key=lambda k, row=row: (-float(row[k]), k))[:count]
            expected = [(k, round(1000 * float(row[k]))) for k in best]
            assert found == [pair for i, pair in enumerate(expected) if i == 0 or pair[1] > 0]
            assert abs(share - 1000 * sum(float(row[k]) for k, _ in found)) <= 0.5 + 1e-6


@pytest.mark.filterwarnings("ignore:.*sum to 1")
def test_the_share_is_of_what_the_row_holds() -> None:
    weights = rows(1, 1, 4, 8) / 2
    for query, (found, share) in enumerate(detail(HeadWall(weights, top_keys=2), 0)):
        row = weights[0, 0, query]
        assert abs(share - 1000 * sum(float(row[k]) for k, _ in found) / float(row.sum())) <= 0.5 + 1e-6


@pytest.mark.filterwarnings("ignore:.*sum to 1")
def test_weights_that_would_be_written_as_nothing_are_left_out() -> None:
    weights = np.array([[[[0.9994, 0.0004, 0.0002], [0.5, 0.4994, 0.0006], [0.0, 0.0, 0.0]]]])
    assert detail(HeadWall(weights), 0) == [
        ([(0, 999)], 999),
        ([(0, 500), (1, 499), (2, 1)], 1000),
        ([(0, 0)], 65535),
    ]


def test_takes_layers_in_every_form_and_of_every_precision() -> None:
    weights = causal(3, 2, 9, 9).to(torch.bfloat16)
    wall = HeadWall(weights, causal=True)
    given: list[Any] = [
        list(weights),
        tuple(layer[None] for layer in weights),
        weights.double().numpy(),
        [layer.float().numpy() for layer in weights],
        (layer for layer in weights),
    ]
    for one in given:
        other = HeadWall(one, causal=True, cells=9 if not isinstance(one, (list, tuple, np.ndarray)) else None)
        assert (other.sizes, other.maps, other.details) == (wall.sizes, wall.maps, wall.details)
    assert HeadWall(weights[0]).sizes == [1, 2, 9, 9]
    assert HeadWall(rows(1, 2, 3, 3).half()).maps == HeadWall(rows(1, 2, 3, 3).half().double()).maps


def test_a_mask_may_differ_from_head_to_head_and_a_blind_query_is_no_oddity() -> None:
    mask = torch.ones(2, 4, 6, dtype=torch.bool)
    mask[0, :, 3:] = False
    mask[1, 2] = False
    weights = rows(1, 2, 4, 6) * mask
    weights = weights / weights.sum(-1, keepdim=True)  # NaN in the blind row
    wall = HeadWall(weights, mask=mask, numbers={})
    assert ((codes(wall)[0] == 62) == ~mask.numpy()).all()
    assert wall.note == ""
    assert detail(wall, 1)[2] == ([], 65535)


def test_what_is_no_weight_is_told() -> None:
    weights = rows(1, 3, 5, 5)
    weights[0, 0, 1, 2] = torch.nan
    weights[0, 1, 0, 0] = 1.5
    weights[0, 2, 4, 4] = -0.25
    with pytest.warns(UserWarning, match=r"3 of 15 rows do not sum to 1\. 3 of 3 heads have what is no weight"):
        wall = HeadWall(weights)
    assert [np.argwhere(one == 63).tolist() for one in codes(wall)[0]] == [[[1, 2]], [[0, 0]], [[4, 4]]]
    assert all(key != 2 for key, _ in detail(wall, 0)[1][0])
    leaking = rows(1, 1, 3, 3)
    with pytest.warns(UserWarning, match="3 masked cells have a weight other than 0"):
        HeadWall(leaking, causal=True)


def test_numbers_are_whole_in_a_unit_and_have_four_digits() -> None:
    table = torch.tensor([[0.98765, 0.0625, torch.nan], [0.5, -0.25, 0.1]], dtype=torch.float64)
    wall = HeadWall(rows(2, 3, 4, 4), numbers={"small": table / 100, "plain": table, "large": list(1000 * table)})
    assert wall.number_names == ["small", "plain", "large"]
    assert wall.places == [6, 4, 1]
    assert wall.numbers[1] == [9876, 625, None, 5000, -2500, 1000]
    wall.number = "plain"
    caption, header, body = wall.table()
    assert caption == "2 layers of 3 heads: plain"
    assert list(header) == ["layer", "head 0", "head 1", "head 2"]
    assert body == [["0", "0.9876", "0.0625", "no number"], ["1", "0.5000", "−0.2500", "0.1000"]]


def test_without_numbers_of_its_own_it_measures_how_sure_heads_are() -> None:
    weights = causal(2, 3, 6, 6)
    wall = HeadWall(weights, causal=True)
    expected = torch.stack([confidence(layer[None], causal_mask(6)) for layer in weights]).flatten()
    assert wall.number_names == ["mean largest weight"]
    assert np.abs(np.array(wall.numbers[0]) / 10 ** wall.places[0] - expected.numpy()).max() <= 0.5 / 1000
    bare = HeadWall(weights, causal=True, numbers={})
    assert (bare.number, bare.number_names) == ("", [])
    assert "largest weight, about" in bare.table()[0]
    top = [[float(cell) for cell in line[1:]] for line in bare.table()[2]]
    assert np.abs(np.array(top) - weights.amax((-1, -2)).numpy()).max() < 0.017 + 0.005


def test_models_of_many_heads_have_a_table_of_the_highest() -> None:
    table = torch.arange(80, dtype=torch.float64).reshape(2, 40)
    wall = HeadWall(rows(2, 40, 2, 2), numbers={"n": table})
    assert wall.table()[2] == [
        ["0", "head 39: 39.00, head 38: 38.00, head 37: 37.00"],
        ["1", "head 39: 79.00, head 38: 78.00, head 37: 77.00"],
    ]


def few_details(monkeypatch: pytest.MonkeyPatch, fit: int, num_queries: int = 6) -> None:
    from mhalib.widgets import _levels

    monkeypatch.setattr(_levels, "DETAIL_LETTERS", fit * _levels.detail_letters(num_queries, 5))


def test_strongest_keys_are_stored_of_the_chosen_the_named_and_the_highest(monkeypatch: pytest.MonkeyPatch) -> None:
    few_details(monkeypatch, 6)
    first, second = torch.arange(12.0).reshape(3, 4), -torch.arange(12.0).reshape(3, 4)
    options: dict[str, Any] = {"numbers": {"a": first, "b": second}, "detail": [(1, 2), (2, 0)], "layer": 1, "head": 1}
    wall = HeadWall(rows(3, 4, 6, 6), **options)
    assert set(wall.detailed) == {5, 6, 8, 11, 0, 10}  # the chosen, the named, then of each number in turn
    assert HeadWall(iter(rows(3, 4, 6, 6)), **options).details == wall.details
    everything = HeadWall(rows(3, 2, 6, 6))
    assert everything.detailed == list(range(6))
    with pytest.raises(ValueError, match="detail names 6 heads, but with the chosen one at most 6 fit"):
        HeadWall(rows(3, 4, 6, 6), detail=[(2, 0), (2, 1), (2, 2), (2, 3), (1, 0), (1, 1)])


def test_python_sends_what_is_not_stored_when_a_head_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    few_details(monkeypatch, 2)
    weights = rows(3, 4, 6, 6)
    wall = HeadWall(list(weights), numbers={}, detail=[(2, 3)])
    assert (wall.detailed, wall.sent, wall.kept) == ([0, 11], [], True)
    wall.head = 2
    assert wall.sent[0] == 2
    with wall.hold_trait_notifications():
        wall.layer, wall.head = 1, 3
    found = detail(wall, 7)
    for query in range(6):
        row = weights[1, 3, query]
        assert found[query][0][0] == (int(row.argmax()), round(1000 * float(row.max())))
    sent = wall.sent
    wall.layer, wall.head = 2, 3  # stored: what was sent last may stay
    assert wall.sent[0] in (sent[0], 8 + 3 - 1, 11, 8)
    assert wall.state()["kept"] is False
    once = HeadWall(iter(weights), numbers={}, detail=[(2, 3)])
    once.head = 2
    assert (once.sent, once.kept) == ([], False)


class Layers:
    """Makes one layer at a time, and counts how often it is asked."""

    def __init__(self, count: int, shape: tuple[int, int, int]) -> None:
        self.count, self.shape, self.asked = count, shape, 0

    def __iter__(self) -> Iterator[np.ndarray]:
        for number in range(self.count):
            self.asked += 1
            Q = self.shape[1]
            layer = np.zeros(self.shape, dtype=np.float16)
            layer[:, np.arange(Q), np.maximum(np.arange(Q) - 1 - number % 3, 0)] = 1
            yield layer


@pytest.mark.about("mhalib/widgets/", "mhalib/live/")
def test_a_large_model_fits_into_the_page_and_needs_the_memory_of_one_layer() -> None:
    """32 layers of 32 heads of 512 tokens, made one at a time: 17 MB each in float16."""
    layers = Layers(32, (32, 512, 512))
    numbers = {name: torch.rand(32, 32) for name in ("entropy", "induction", "first token", "importance")}
    tracemalloc.start()
    wall = HeadWall(layers, [f"token {i}" for i in range(512)], causal=True, numbers=numbers)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    page = wall._repr_mimebundle_()[0]["text/html"]
    assert layers.asked == 32
    assert wall.grid == [24, 24, 22, 22]
    assert len(wall.maps) == 32 * 32 * 24 * 24 == 589_824
    assert len(wall.detailed) == 400_000 // (4 * math.ceil(2 * 512 * 11 / 3)) == 26
    assert 1_000_000 < len(page) < 1_200_000
    assert peak < 3 * 32 * 512 * 512 * 2  # less than three layers


def test_carries_json_that_no_parser_can_misread() -> None:
    hostile = ["</SCRIPT><img src=x onerror=1>", "שלום", "\ud800\x00", ""]
    wall = HeadWall(rows(2, 3, 4, 4), hostile, numbers={"</SCRIPT><b>\x07": torch.rand(2, 3)})
    text = wall._repr_mimebundle_()[0]["text/html"]
    assert text.count("</script>") == 1
    assert "</SCRIPT" not in text.replace("&lt;/SCRIPT", "")
    (state,) = re.findall(r'<script type="application/json">(.*?)</script>', text)
    assert json.loads(state) == wall.state()
    assert wall.query_tokens == ["</SCRIPT><img src=x onerror=1>", "שלום", "\\ud800\\x00", "(empty)"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"weights": 3}, TypeError, r"weights must be an array \(L, h, Q, K\), or layers of \(h, Q, K\), got int: 3"),
        ({"weights": "abc"}, TypeError, "weights must be an array"),
        ({"weights": []}, ValueError, 'weights is empty.*attn_implementation="eager"'),
        ({"weights": (None, None)}, TypeError, r'weights\[0\] must be .* got NoneType .*"eager"'),
        ({"weights": rows(5, 7)}, ValueError, r"weights must have 3 or 4 axes, got shape \(5, 7\)"),
        ({"weights": [rows(5, 7)]}, ValueError, r"weights\[0\] has shape \(5, 7\), but a layer needs"),
        ({"weights": [rows(2, 3, 5, 7)]}, ValueError, r"weights\[0\] has shape \(2, 3, 5, 7\), so 2 examples"),
        (
            {"weights": [rows(3, 5, 7), rows(3, 5, 8)]},
            ValueError,
            r"weights\[1\] has shape \(3, 5, 8\), but weights\[0",
        ),
        ({"weights": np.ones((1, 1, 2, 2)) + 1j}, TypeError, r"weights\[0\]\[0\] must hold real numbers"),
        ({"weights": np.zeros((0, 2, 2, 2))}, ValueError, "weights is empty"),
        ({"weights": np.zeros((1, 2, 0, 2))}, ValueError, "but a layer needs"),
        ({"weights": np.zeros((1, 20_001, 1, 1))}, ValueError, "heads in weights=20001 must be at most 20000"),
        ({"weights": np.zeros((1, 1, 65_536, 1))}, ValueError, "tokens in weights=65536 must be at most 65535"),
        ({"queries": list("abcd")}, ValueError, "queries has 4 entries, but the weights need 5"),
        ({"queries": "abcde"}, TypeError, "queries must be a sequence of strings, got one string"),
        ({"keys": list("abcd")}, ValueError, "keys has 4 entries, but the weights need 5"),
        ({"mask": torch.ones(5, 5)}, TypeError, "mask must be boolean"),
        ({"mask": torch.ones(4, 5).bool()}, ValueError, "which does not broadcast"),
        ({"mask": torch.ones(5, 5).bool(), "causal": True}, ValueError, "causal=True and mask are two masks"),
        ({"causal": 1}, TypeError, "causal must be True or False, got int: 1"),
        ({"numbers": [1]}, TypeError, "numbers must be a Mapping, got list"),
        ({"numbers": {3: torch.ones(2, 3)}}, TypeError, "each name of numbers must be a string"),
        ({"numbers": {" ": torch.ones(2, 3)}}, ValueError, "numbers has the name ' '"),
        ({"numbers": {"a": torch.ones(3)}}, ValueError, r"numbers\['a'\] must have 2 axes"),
        ({"numbers": {"a": []}}, ValueError, r"numbers\['a'\] is an empty list"),
        ({"numbers": {"a": [torch.ones(3), torch.ones(2)]}}, ValueError, r"numbers\['a'\]\[1\] has 2 heads"),
        (
            {"numbers": {"a": torch.ones(3, 2)}},
            ValueError,
            r"numbers\['a'\] has shape \(3, 2\), but there are 2 layers",
        ),
        (
            {"numbers": {"a": torch.ones(2, 3), "b": torch.ones(2, 2)}},
            ValueError,
            r"numbers\['b'\] has shape \(2, 2\), but numbers\['a'\] has \(2, 3\)",
        ),
        ({"numbers": {"a": torch.full((2, 3), 1e10)}}, ValueError, r"numbers\['a'\] holds a number beyond 1e9"),
        ({"pool": "sum"}, ValueError, "pool='sum' must be one of"),
        ({"cells": 0}, ValueError, "cells=0 must be at least 1"),
        ({"cells": 65}, ValueError, "cells=65 must be at most 64"),
        ({"top_keys": 2.5}, TypeError, "top_keys must be an integer"),
        ({"detail": 3}, TypeError, "detail must be a list"),
        ({"detail": [3]}, TypeError, r"detail\[0\] must be a pair \(layer, head\), got 3"),
        ({"detail": [(0, -1)]}, ValueError, r"a number in detail\[0\]=-1 must be at least 0"),
        ({"detail": [(0, 3)]}, ValueError, "detail names head 3, but layers have 3"),
        ({"detail": [(2, 0)]}, ValueError, "detail names layer 2, but there are 2"),
        ({"layer": 2}, ValueError, "layer=2 is outside the weights, which have 2"),
        ({"head": -1}, ValueError, "head=-1 must be at least 0"),
        ({"query": True}, TypeError, "query must be an integer"),
        ({"view": "all"}, ValueError, "view='all' must be one of"),
        ({"view": "number", "numbers": {}}, ValueError, "view='number' needs numbers"),
        ({"number": "none"}, ValueError, "number='none' must be one of"),
        ({"order": "random"}, ValueError, "order='random' must be one of"),
    ],
)
def test_refuses(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        HeadWall(**{"weights": rows(2, 3, 5, 5), **arguments})


def test_maps_that_do_not_fit_say_how_many_cells_do() -> None:
    weights = np.full((1, 600, 33, 33), 1 / 33, dtype=np.float16)
    with pytest.raises(ValueError, match=r"the maps of 600 heads in 33 by 33 cells take 653,400 letters, .* cells=31"):
        HeadWall(weights, cells=33)
    assert HeadWall(weights).grid[:2] == [17, 17]  # blocks of 2 by 2: 33 tokens do not fit in 31 cells otherwise


@pytest.mark.parametrize(
    ("name", "value"), [("layer", 2), ("head", -1), ("query", 5), ("view", "x"), ("number", "x"), ("marked", 10**6)]
)
def test_a_choice_outside_changes_nothing(name: str, value: Any) -> None:
    wall = HeadWall(rows(2, 3, 5, 5))
    before = getattr(wall, name)
    with pytest.raises((traitlets.TraitError, ValueError), match=name):
        setattr(wall, name, value)
    assert getattr(wall, name) == before
