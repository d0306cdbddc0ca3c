"""The Python side of the head explorer: what it carries, what it refuses, what it warns of."""

from __future__ import annotations

import base64
import json
import re
import warnings
from typing import Any

import numpy as np
import pytest
import torch
import traitlets

pytest.importorskip("anywidget")

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
    codes = unpacked(HeadExplorer(np.array([[odd]]))).ravel().tolist()
    assert codes == [1001, 1002, 1003, 1004, 1005, 1005, 1004, 1000, 0]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"weights": [[1.0]]}, TypeError, r"weights\[0\] must be a torch.Tensor"),
        ({"weights": rows(5, 7)}, ValueError, r"weights must have 3 or 4 axes, got shape \(5, 7\)"),
        ({"weights": rows(2, 2, 3, 5, 7)}, ValueError, "3 or 4 axes"),
        ({"weights": []}, ValueError, "empty list"),
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
