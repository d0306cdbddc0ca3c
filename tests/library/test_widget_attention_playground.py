"""The attention playground without a browser: what it computes, what it refuses, what it writes into a page."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import mhalib

pytest.importorskip("anywidget")
from mhalib.widgets import AttentionPlayground, Instrument

NAN, INF = float("nan"), float("inf")


def vectors(num_tokens: int = 5, width: int = 3, value_width: int = 2) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {
        name: torch.randn(num_tokens, w, dtype=torch.float64)
        for name, w in {"q": width, "k": width, "v": value_width}.items()
    }


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize(("mask", "valid_len"), [("none", None), ("causal", None), ("valid length", 2)])
def test_weights_and_output_equal_torch(scale: bool, mask: str, valid_len: int | None) -> None:
    given = vectors()
    playground = AttentionPlayground(
        list("abcde"), **given, scale=scale, temperature=0.7, mask=mask, valid_len=valid_len
    )
    seen = torch.ones(5, 5, dtype=torch.bool)
    if mask == "causal":
        seen = seen.tril()
    if mask == "valid length":
        seen[:, 2:] = False
    factor = (1 / math.sqrt(3) if scale else 1.0) / 0.7
    weights = (given["q"] @ given["k"].T * factor).masked_fill(~seen, -INF).softmax(-1)
    torch.testing.assert_close(playground.weights, weights)
    expected = F.scaled_dot_product_attention(given["q"], given["k"], given["v"], attn_mask=seen, scale=factor)
    torch.testing.assert_close(playground.output, expected)


def test_the_default_is_plain_attend() -> None:
    playground = AttentionPlayground()
    output, weights = mhalib.attend(
        *(torch.tensor(x, dtype=torch.float64) for x in (playground.q, playground.k, playground.v))
    )
    assert torch.equal(playground.weights, weights)
    assert torch.equal(playground.output, output)


def test_nothing_to_see_gives_zero() -> None:
    playground = AttentionPlayground(mask="valid length", valid_len=0)
    assert playground.weights.tolist() == [[0.0] * 4] * 4
    assert playground.output.tolist() == [[0.0] * 2] * 4


@pytest.mark.parametrize("convert", [torch.tensor, np.array, list, tuple])
def test_takes_tensors_arrays_and_lists_and_reads_back_lists(convert: type) -> None:
    rows = [[1.0, 2.0], [3.0, 4.5], [-1.0, 0.25]]
    playground = AttentionPlayground(["a", "b", "c"], convert(rows), convert(rows), [[1], [2], [3]])
    assert playground.q == rows
    assert playground.k == rows
    assert playground.v == [[1.0], [2.0], [3.0]]
    playground.q = convert([[0.0, 1.0]] * 3)
    assert playground.q == [[0.0, 1.0]] * 3


GOOD = [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"tokens": "ab"}, TypeError, "tokens must be a sequence of strings"),
        ({"tokens": ["a", 1]}, TypeError, "tokens must hold strings, got int: 1"),
        ({"tokens": ["a"]}, ValueError, "tokens has 1 entries"),
        ({"tokens": list("abcdefg")}, ValueError, "tokens has 7 entries"),
        ({"tokens": ["a", "b", "c"]}, ValueError, "q has 2 rows, but there are 3 tokens"),
        ({"q": [[1.0], [2.0]]}, ValueError, "q has vectors of width 1"),
        ({"v": [[1.0] * 4] * 2}, ValueError, "v has vectors of width 4"),
        ({"q": [[1.0] * 3] * 2}, ValueError, r"q and k must have one shape, got \(2, 3\) and \(2, 2\)"),
        ({"k": [[1.0, 2.0], [3.0]]}, ValueError, "k must have rows of one length"),
        ({"k": [1.0, 2.0]}, ValueError, "k must have 2 axes"),
        ({"k": [["x", "y"], ["z", "w"]]}, TypeError, "k must hold real numbers"),
        ({"k": None}, TypeError, "k must be a torch.Tensor or numpy.ndarray"),
        ({"q": [[NAN, 1.0], [1.0, 1.0]]}, ValueError, "q must hold numbers from -100 to 100, got nan"),
        ({"v": [[INF, 1.0], [1.0, 1.0]]}, ValueError, "v must hold numbers from -100 to 100, got inf"),
        ({"v": [[-101, 1.0], [1.0, 1.0]]}, ValueError, "got -101"),
        ({"scale": 2}, TypeError, "scale must be True or False, got 2"),
        ({"temperature": 0}, ValueError, "temperature=0"),
        ({"temperature": NAN}, ValueError, "temperature=nan"),
        ({"temperature": "hot"}, TypeError, "temperature must be a number, got str: 'hot'"),
        ({"mask": "padding"}, ValueError, "mask='padding'"),
        ({"mask": None}, TypeError, "mask must be one of"),
        ({"valid_len": 3}, ValueError, "valid_len=3 must be at most 2"),
        ({"valid_len": -1}, ValueError, "valid_len=-1"),
        ({"valid_len": 1.5}, TypeError, "valid_len must be an integer"),
        ({"query": 2}, ValueError, "query=2 must be at most 1"),
    ],
)
def test_bad_arguments_are_named(changed: dict, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        AttentionPlayground(**{"tokens": ["a", "b"], "q": GOOD, "k": GOOD, "v": GOOD, "query": 0, **changed})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("q", [[NAN, 0.0]] * 4),
        ("q", [[0.0, 0.0]] * 3),
        ("v", [[0.0]] * 4),
        ("tokens", ["a"]),
        ("query", 4),
        ("temperature", INF),
    ],
)
def test_a_trait_refuses_what_does_not_fit_and_stays(name: str, value: object) -> None:
    playground = AttentionPlayground()
    before = playground.state()
    with pytest.raises((ValueError, TypeError)):
        setattr(playground, name, value)
    assert playground.state() == before


def test_takes_what_the_page_sends() -> None:
    playground = AttentionPlayground()
    playground.set_state({"q": [[1, 0]] * 4, "temperature": 2, "query": 3, "mask": "causal", "scale": False})
    assert playground.q == [[1.0, 0.0]] * 4
    expected = (torch.tensor(playground.q) @ torch.tensor(playground.k).T / 2).double()
    expected = expected.masked_fill(~mhalib.causal_mask(4), -INF).softmax(-1)
    torch.testing.assert_close(playground.weights, expected)
    assert playground.query == 3


def test_two_playgrounds_do_not_share_numbers() -> None:
    first, second = AttentionPlayground(), AttentionPlayground()
    first.q = torch.zeros(4, 2)
    assert second.q != first.q


def test_output_is_deterministic_and_carries_no_markup_of_a_token() -> None:
    hostile = ["</SCRIPT><img src=x onerror=window.PWN=1>", "a" * 10_000, "\x00\ud800\u202e", ""]
    first, second = (AttentionPlayground(hostile)._repr_mimebundle_()[0] for _ in range(2))
    assert first["text/html"] == second["text/html"]
    assert first["text/plain"] == "AttentionPlayground: Attention of 4 tokens, scores q·k/√d, mask: none"
    assert "<img" not in first["text/html"]
    first["text/html"].encode("utf-8")
    state = json.loads(re.search(r'json">(.*?)</script>', first["text/html"])[1])
    assert state["tokens"][:2] == hostile[:2]
    assert set(state) == {"tokens", "q", "k", "v", "scale", "temperature", "mask", "valid_len", "query", "controls"}
    assert "AttentionPlayground" in Instrument.known


def test_controls_are_chosen_by_name_and_kept_in_one_order():
    assert AttentionPlayground().controls == ["scale", "temperature", "mask", "query", "numbers"]
    assert AttentionPlayground(controls=("numbers", "mask")).controls == ["mask", "numbers"]
    assert AttentionPlayground(controls=()).controls == []
    with pytest.raises(ValueError, match=r"controls='heat' must be one of"):
        AttentionPlayground(controls=("heat",))
    with pytest.raises(TypeError, match="controls must be a list"):
        AttentionPlayground(controls="mask")
