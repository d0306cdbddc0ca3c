"""The Python side of the head explorer: what it carries, what it refuses, what it warns of."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import warnings
from typing import Any

import numpy as np
import pytest
import torch
import traitlets

pytest.importorskip("anywidget")

from mhalib import MultiHeadAttention
from mhalib.widgets import HeadExplorer


def rows(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64).softmax(-1)


def unpacked(explorer: HeadExplorer) -> np.ndarray:
    """The carried codes, read back by another way than they were packed: as one long binary number."""
    bits = "".join(f"{byte:08b}"[::-1] for byte in base64.b64decode(explorer.packed))
    cells = int(np.prod(explorer.sizes))
    return np.array([int(bits[10 * i : 10 * i + 10][::-1], 2) for i in range(cells)]).reshape(explorer.sizes)


@pytest.mark.parametrize(
    ("weights", "sizes"),
    [
        (rows(3, 5, 7), [1, 1, 3, 5, 7]),
        (rows(2, 3, 5, 7).numpy(), [1, 2, 3, 5, 7]),
        ([rows(3, 5, 7), rows(3, 5, 7).float().numpy()], [2, 1, 3, 5, 7]),
        ((rows(2, 3, 5, 7), rows(2, 3, 5, 7).bfloat16(), rows(2, 3, 5, 7)), [3, 2, 3, 5, 7]),
    ],
)
def test_takes_what_attention_returns(weights: Any, sizes: list[int]) -> None:
    explorer = HeadExplorer(weights)
    assert explorer.sizes == sizes
    assert unpacked(explorer).shape == tuple(sizes)


def test_carries_thousandths() -> None:
    weights = [rows(2, 3, 5, 7), rows(2, 3, 5, 7).flip(-1)]
    carried = unpacked(HeadExplorer(weights)) / 1000
    assert np.abs(carried - np.stack(weights)).max() <= 0.0005 + 1e-12


@pytest.mark.filterwarnings("ignore:.*sum to 1")
def test_signs_of_what_is_no_weight() -> None:
    odd = [np.nan, np.inf, -np.inf, -0.5, 1.004, 1.005, -9.0, 1.0000001, -1e-9]
    codes = unpacked(HeadExplorer(np.array([[odd]]), mixed=False)).ravel().tolist()
    assert codes == [1001, 1002, 1003, 1004, 1005, 1005, 1004, 1000, 0]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"weights": [[1.0]]}, TypeError, r"weights\[0\] must be a torch.Tensor"),
        ({"weights": rows(5, 7)}, ValueError, r"weights must have 3 or 4 axes, got shape \(5, 7\)"),
        ({"weights": rows(2, 2, 3, 5, 7)}, ValueError, "3 or 4 axes"),
        ({"weights": []}, ValueError, "empty list"),
        ({"weights": [rows(3, 5, 5)] * 2, "layers": "moment"}, TypeError, "layers must be a word and the names"),
        (
            {"weights": [rows(3, 5, 5)] * 2, "layers": ("moment", ["first"])},
            ValueError,
            "names of layers has 1 entries",
        ),
        (
            {"weights": [rows(3, 5, 5)] * 2, "layers": ("moment", ["first", 2])},
            TypeError,
            "each of the names of layers",
        ),
        ({"weights": [rows(3, 5, 7), rows(3, 5, 8)]}, ValueError, r"weights\[1\] has shape \(3, 5, 8\)"),
        ({"weights": rows(3, 5, 7).numpy() + 1j}, TypeError, "real numbers"),
        ({"weights": rows(1, 3, 1200, 1200)}, ValueError, "4,320,000 numbers"),
        ({"weights": rows(3, 5, 7), "queries": list("abcd")}, ValueError, "queries has 4 entries"),
        ({"weights": rows(3, 5, 7), "keys": list("abcd")}, ValueError, "keys has 4 entries"),
        ({"weights": rows(3, 5, 7), "queries": "abcde"}, TypeError, "one string"),
        ({"weights": rows(2, 3, 5, 7), "queries": [list("abcde")]}, ValueError, "1 lists of tokens"),
        ({"weights": rows(3, 5, 7), "mask": torch.ones(5, 7)}, TypeError, "mask must be boolean"),
        ({"weights": rows(3, 5, 7), "mask": torch.ones(7, 5).bool()}, ValueError, "does not broadcast"),
        ({"weights": rows(3, 5, 7), "head": 3}, ValueError, "head=3 is outside"),
        ({"weights": rows(3, 5, 7), "layer": 1}, ValueError, "layer=1 is outside"),
        ({"weights": rows(3, 5, 7), "example": -1}, ValueError, "example=-1"),
        ({"weights": rows(3, 5, 7), "head": True}, TypeError, "head must be an integer"),
        ({"weights": rows(3, 5, 7), "mixed": 1}, TypeError, "mixed must be True or False, got int: 1"),
        ({"weights": rows(3, 5, 7), "groups": [0, 1]}, ValueError, "groups has 2 entries, but there are 3 heads"),
        ({"weights": rows(3, 5, 7), "groups": [0, -1, 1]}, ValueError, r"groups\[1\]=-1 must be at least 0"),
        (
            {"weights": rows(3, 5, 7), "groups": [0, 0.5, 1]},
            TypeError,
            r"groups\[1\] must be an integer, got float: 0.5",
        ),
        ({"weights": rows(3, 5, 7), "groups": "001"}, TypeError, "groups must be a list, got str: '001'"),
        ({"weights": rows(3, 5, 7), "groups": 2}, TypeError, "groups must be a list, got int: 2"),
        (
            {"weights": rows(3, 5, 7), "groups": [[0, 0, 1], None]},
            ValueError,
            "groups has 2 lists, but there are 1 layers",
        ),
        ({"weights": [rows(3, 5, 7)] * 2, "groups": [None, [0, 0]]}, ValueError, r"groups\[1\] has 2 entries"),
        (
            {"weights": [rows(3, 5, 7)] * 2, "groups": [[0, 0, 1], 7]},
            TypeError,
            r"groups\[1\] must be a list, got int: 7",
        ),
        ({"weights": rows(3, 5, 7), "gates": torch.ones(5)}, ValueError, r"gates has shape \(5,\), .* need \(3,\)"),
        ({"weights": rows(3, 5, 7), "gates": torch.ones(3, 7)}, ValueError, r"shape \(3, 7\), .* \(3, 5\)"),
        ({"weights": rows(2, 3, 5, 7), "gates": torch.ones(2, 5, 3)}, ValueError, r"\(2, 5, 3\), .* or \(2, 3, 5\)"),
        ({"weights": rows(3, 5, 7), "gates": torch.ones(1, 3, 5, 1)}, ValueError, "gates must have 1 or 2 or 3 axes"),
        ({"weights": rows(3, 5, 7), "gates": [torch.ones(3)] * 2}, ValueError, "gates has 2 entries, .* 1 layers"),
        (
            {"weights": [rows(3, 5, 7)] * 2, "gates": [torch.ones(3), torch.ones(3, 5)]},
            ValueError,
            r"gates\[1\] has shape",
        ),
        (
            {"weights": rows(3, 5, 7), "gates": [1.0, torch.nan, 0.0]},
            ValueError,
            "gates holds nan: a gate must be finite",
        ),
        (
            {"weights": rows(3, 5, 7), "gates": "all"},
            TypeError,
            "gates must be a torch.Tensor or numpy.ndarray, got str",
        ),
        ({"weights": rows(3, 5, 7), "gates": [["a", "b", "c"]]}, TypeError, r"gates\[0\] must hold real numbers"),
        ({"weights": rows(3, 5, 7), "gates": [[[1.0], [1.0, 2.0]]]}, ValueError, r"gates\[0\] has rows of different"),
    ],
)
def test_refuses(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        HeadExplorer(**arguments)


@pytest.mark.parametrize(
    ("name", "value"), [("head", 3), ("query", -1), ("locked", [5]), ("locked", [1, 1]), ("off", [3])]
)
def test_a_choice_outside_the_weights_changes_nothing(name: str, value: Any) -> None:
    explorer = HeadExplorer(rows(3, 5, 7))
    before = getattr(explorer, name)
    with pytest.raises(traitlets.TraitError, match=name):
        setattr(explorer, name, value)
    assert getattr(explorer, name) == before


def test_rows_that_do_not_sum_to_1_only_warn() -> None:
    weights = rows(3, 5, 7)
    weights[1, 2] *= 2
    with pytest.warns(UserWarning, match="1 of 15 rows do not sum to 1"):
        explorer = HeadExplorer(weights)
    assert "1 of 15 rows" in explorer.note


def test_a_query_without_keys_is_no_wrong_row_but_a_leak_is_named() -> None:
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[2] = False
    for nothing in (0.0, torch.nan):
        weights = rows(3, 5, 7).masked_fill(~mask, nothing)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert HeadExplorer(weights, mask=mask).note == ""
    with pytest.warns(UserWarning, match="masked cells have a weight"):
        HeadExplorer(rows(3, 5, 7), mask=mask)


def test_tokens_show_what_cannot_be_seen() -> None:
    tokens = ["a\x00b", "\u202eevil", "\ud800", "x" * 10_000, "", "  ", "👩\u200d👧"]
    shown = HeadExplorer(rows(1, 7, 7), tokens).query_tokens[0]
    assert shown[:3] == ["a\\x00b", "\\u202eevil", "\\ud800"]
    assert len(shown[3]) == 200
    assert shown[3].endswith("…")
    assert shown[4:] == ["(empty)", "␣␣", "👩\u200d👧"]


def test_table_holds_the_weights_of_the_large_head() -> None:
    weights = [rows(2, 3, 5, 7), rows(2, 3, 5, 7).flip(-1)]
    mask = torch.ones(7, dtype=torch.bool)
    with pytest.warns(UserWarning, match="masked cells"):
        explorer = HeadExplorer(weights, list("abcde"), list("tuvwxyz"), mask=mask.logical_not(), head=1)
    assert explorer.table()[2][0][1:-1] == ["masked"] * 7
    explorer = HeadExplorer(weights, list("abcde"), list("tuvwxyz"), layer=1, head=2, example=1)
    caption, header, body = explorer.table()
    assert "head 2 of layer 1, example 1" in caption
    assert header == ["query", *"tuvwxyz", "sum"]
    for query, row in enumerate(body):
        assert row[1:-1] == [f"{w:.3f}" for w in weights[1][1, 2, query]]
        assert row[-1] == "1.000"


def test_bundle_is_deterministic_and_safe() -> None:
    hostile = ["</SCRIPT><img src=x onerror=window.PWN=1>", "\"'&", "שלום", "😀", "\x07"]
    bundles = [HeadExplorer(rows(3, 5, 5), hostile)._repr_mimebundle_()[0] for _ in range(2)]
    assert bundles[0]["text/html"] == bundles[1]["text/html"]
    assert bundles[0]["text/plain"] == bundles[1]["text/plain"]
    assert "<img" not in bundles[0]["text/html"]
    state = re.search(r'json">(.*)</script>', bundles[0]["text/html"])
    assert state
    assert json.loads(state[1])["query_tokens"][0][0] == hostile[0]


def test_twelve_layers_of_twelve_heads_stay_small() -> None:
    mask = torch.ones(64, 64, dtype=torch.bool).tril()
    layers = [rows(12, 64, 64).masked_fill(~mask, 0) for _ in range(12)]
    layers = [layer / layer.sum(-1, keepdim=True) for layer in layers]
    explorer = HeadExplorer(layers, [f"token{i}" for i in range(64)], mask=mask)
    assert len(explorer._repr_mimebundle_()[0]["text/html"]) < 1_200_000


@pytest.mark.parametrize("first", [0, 1])
def test_pictures_are_carried_pixel_by_pixel(first: int) -> None:
    pictures = torch.tensor([[[0.0, 1.0, 2.0, 0.5], [-3.0, 0.0, 0.0, 4.0]]]).repeat(2, 1, 1)
    pictures[1] = pictures[1].flip(-1)
    explorer = HeadExplorer(rows(2, 3, 5, 2 + first), pictures=pictures, patch_size=2)
    assert explorer.picture_size == [2, 4, 2]
    assert [list(base64.b64decode(each)) for each in explorer.pictures] == [
        [0, 64, 128, 32, 0, 0, 0, 255],
        [32, 128, 64, 0, 255, 0, 0, 0],
    ]
    assert {"pictures", "picture_size"} <= set(explorer.state())


def test_without_pictures_a_page_carries_nothing_of_them() -> None:
    state = HeadExplorer(rows(3, 5, 7)).state()
    assert not {"pictures", "picture_size"} & set(state)
    assert "locked" in state


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pictures": torch.rand(4, 4)}, "go together"),
        ({"patch_size": 2}, "go together"),
        ({"pictures": torch.rand(3, 4, 4), "patch_size": 2}, "pictures holds 3 pictures, but there are 2 examples"),
        ({"pictures": torch.rand(4, 6), "patch_size": 4}, "4 by 6"),
        ({"pictures": torch.rand(4, 4), "patch_size": 1}, "the last of 5 keys"),
        ({"pictures": torch.rand(4), "patch_size": 2}, "pictures"),
        ({"pictures": torch.rand(4, 4), "patch_size": 0}, "patch_size"),
    ],
)
def test_pictures_that_do_not_fit_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HeadExplorer(rows(2, 3, 5, 5), **arguments)


def mixed_rows(*shape: int) -> torch.Tensor:
    """Weights of heads that are summed with signs, so that some are below 0 and some above 1."""
    return rows(*shape) * torch.linspace(-3, 4, shape[-1], dtype=torch.float64)


def test_mixed_weights_are_carried_with_their_signs_and_warn_of_nothing() -> None:
    weights = mixed_rows(2, 3, 5, 7)
    weights[0, 0, 0, 0] = 31.9995
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        explorer = HeadExplorer(weights)
    carried = np.frombuffer(base64.b64decode(explorer.packed), "<i2").reshape(weights.shape)
    assert np.abs(carried / 1000 - weights.numpy()).max() <= 0.0005 + 1e-12
    sums = np.frombuffer(base64.b64decode(explorer.sums), "<i4").reshape(2, 3, 5)
    assert np.abs(sums / 1000 - weights.sum(-1).numpy()).max() <= 0.0005 + 1e-12
    assert explorer.note == ""


@pytest.mark.parametrize(
    ("largest", "end"), [(0.0004, 10), (0.123, 130), (0.12, 120), (0.999, 1000), (1.001, 1100), (4.0, 4000)]
)
@pytest.mark.parametrize("side", [1, -1])
def test_the_scale_reaches_as_far_on_both_sides(largest: float, end: int, side: int) -> None:
    weights = side * torch.tensor([[[largest, -largest / 2, 0.0], [0.0, 0.0, 0.0]]], dtype=torch.float64)
    explorer = HeadExplorer(weights, mixed=True)
    low, high = sorted([side * round(1000 * largest), -side * round(1000 * largest / 2)])
    sums = sorted([0, side * round(1000 * largest / 2)])
    assert explorer.span == [end, low, high, *sums]
    assert explorer.ramp[len(explorer.ramp) // 2] == "#ffffff"


def test_what_is_masked_or_no_number_sets_no_scale() -> None:
    weights = rows(1, 2, 4)
    weights[0, 0] = torch.tensor([-7.0, 0.25, 0.25, 0.5])
    mask = torch.ones(2, 4, dtype=torch.bool)
    mask[0, 0] = False
    with pytest.warns(UserWarning, match="masked cells"):
        assert HeadExplorer(weights, mask=mask).span == []
    weights[0, 0] = torch.tensor([-7.0, torch.nan, -1.5, 0.5])
    with pytest.warns(UserWarning, match=r"1 of 2 rows sum to no number. 1 masked cells"):
        explorer = HeadExplorer(weights, mask=mask)
    assert explorer.span[:2] == [1500, -1500]
    assert explorer.table()[2][0] == ["0", "masked", "NaN", "−1.500", "0.500", "no number"]


def test_mixed_says_what_the_weights_of_one_sentence_may_hide() -> None:
    """A layer may mix its heads and yet, here, have no weight below 0; another may go wrong."""
    weights = rows(3, 5, 7) / 2
    with pytest.warns(UserWarning, match="15 of 15 rows do not sum to 1"):
        assert HeadExplorer(weights).span == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert HeadExplorer(weights, mixed=True).span[0] == -(-round(1000 * float(weights.max())) // 10) * 10
    with pytest.warns(UserWarning, match="do not sum to 1"):
        explorer = HeadExplorer(-weights, mixed=False)
    assert explorer.span == []
    assert explorer.table()[2][0][1] == "< 0"


def test_beyond_the_scale_mixed_weights_are_signs() -> None:
    weights = np.array([[[32.0004, -40.0, 33.0, np.inf, -np.inf, np.nan, -32.0, 0.001]]])
    with pytest.warns(UserWarning, match="1 of 1 rows sum to no number"):
        explorer = HeadExplorer(weights)
    assert explorer.table()[2][0][1:-1] == ["32.000", "< −32", "> 32", "inf", "-inf", "NaN", "−32.000", "0.001"]


def test_the_table_of_mixed_weights_keeps_signs_and_says_what_rows_need_not() -> None:
    weights = mixed_rows(2, 3, 40)
    caption, header, body = HeadExplorer(weights, head=1).table()
    low, high = (f"{float(end):.3f}".replace("-", "−") for end in (weights.min(), weights.max()))
    assert f"mixed weights from {low} to {high}, whose rows need not sum to 1" in caption
    assert header == ["query", "strongest keys", "sum"]
    best = int(weights[1, 2].abs().argmax())
    number = f"{float(weights[1, 2, best]):.3f}".replace("-", "−")
    assert body[2][1].startswith(f"{best} {number}, ")
    assert body[2][2] == f"{float(weights[1, 2].sum()):.3f}".replace("-", "−")


@pytest.mark.parametrize(
    ("groups", "kept"),
    [
        ([0, 0, 1, 1], [[0, 0, 1, 1]]),
        (torch.tensor([0, 0, 1, 1]), [[0, 0, 1, 1]]),
        ((0, 1, 2, 3), [[0, 1, 2, 3]]),
        ([None, np.array([0, 0, 0, 0]).tolist()], [[], [0, 0, 0, 0]]),
        ([range(4), (2, 2, 5, 5)], [[0, 1, 2, 3], [2, 2, 5, 5]]),
    ],
)
def test_groups_are_taken_as_a_layer_has_them(groups: Any, kept: list[list[int]]) -> None:
    assert HeadExplorer([rows(4, 5, 7)] * 2, groups=groups).groups == kept


def test_a_layers_own_groups_fit() -> None:
    layer = MultiHeadAttention(24, 6, num_kv_heads=2)
    caption = HeadExplorer(rows(6, 5, 7), groups=layer.kv_head_of).table()[0]
    assert "; heads 0, 1, 2 share key 0, heads 3, 4, 5 share key 1; rows" in caption


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ([0, 1, 0, 2], "heads 0, 2 share key 0, head 1 alone has key 1, head 3 alone has key 2"),
        ([0, 0, 0, 0], "heads 0 to 3 share key 0"),
        ([0, 1, 2, 3], ""),
    ],
)
def test_the_table_names_every_group_that_shares(keys: list[int], said: str) -> None:
    caption = HeadExplorer(rows(4, 5, 7), groups=keys).table()[0]
    assert (
        caption
        == f"Weights of head 0 of layer 0, example 0, to 3 digits{said and f'; {said}'}; rows are queries, columns keys"
    )


def test_gates_are_carried_by_layer_example_head_and_query() -> None:
    two = [rows(2, 3, 5, 7), rows(2, 3, 5, 7)]
    every = torch.rand(2, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    explorer = HeadExplorer(two, gates=[every, every + 1], layer=1, head=2, example=1)
    assert explorer.gates == [round(1000 * one) for one in [*every.flatten().tolist(), *(every + 1).flatten().tolist()]]
    caption, header, body = explorer.table()
    assert header[-2:] == ["sum", "gate"]
    assert [row[-1] for row in body] == [f"{one + 1:.3f}" for one in every[1, 2].tolist()]
    assert "gates" not in caption
    by_query = HeadExplorer(two, gates=every[0], layer=1, head=1, example=1).table()[2]
    assert [row[-1] for row in by_query] == [f"{one:.3f}" for one in every[0, 1].tolist()]
    for gates in ([0.5, 0.25, -1.0], torch.tensor([0.5, 0.25, -1.0]), [[0.5, 0.25, -1.0]] * 2):
        caption, header, _ = HeadExplorer(two, gates=gates, layer=1).table()
        assert "; gates 0.500, 0.250, −1.000;" in caption
        assert header[-1] == "sum"


def test_of_ordinary_heads_a_page_carries_what_it_always_did() -> None:
    explorer = HeadExplorer(rows(3, 5, 7))
    state = explorer.state()
    assert not {"span", "groups", "gates", "gate_sizes"} & set(state)
    assert explorer.table()[0] == "Weights of head 0 of layer 0, example 0, to 3 digits; rows are queries, columns keys"
    digest = hashlib.sha256(HeadExplorer(torch.eye(4)[None])._repr_mimebundle_()[0]["text/html"].encode()).hexdigest()
    assert digest[:16] == "dbd4453e4bcab25c"


@pytest.mark.parametrize("name", ["queries", "keys"])
def test_tokens_that_are_no_list_are_refused(name):
    with pytest.raises(TypeError, match=f"{name} must be a list, got int: 7"):
        HeadExplorer(torch.full((2, 3, 3), 1 / 3), **{name: 7})


def test_what_is_no_layer_has_a_name() -> None:
    made = HeadExplorer([rows(3, 5, 5)] * 2, layers=("model", ["with norms", "without"]), layer=1)
    assert made.state()["layer_names"] == ["model", "with norms", "without"]
    assert made.table()[0].startswith("Weights of head 0 of without, example 0")
    assert "layer_names" not in HeadExplorer([rows(3, 5, 5)] * 2).state()
