"""The reshape stepper in Python: its stages are torch's, its errors name the argument, its outputs are stable."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import torch
import traitlets

import mhalib

pytest.importorskip("anywidget")

from mhalib.plots import OWNER_COLOURS
from mhalib.widgets import ReshapeStepper

SIZES = [(2, 5, 12, 3), (3, 2, 4, 4), (1, 5, 6, 2), (2, 1, 6, 3), (3, 5, 7, 1), (1, 1, 1, 1)]


@pytest.mark.parametrize(("B", "N", "D", "h"), SIZES)
def test_the_stages_split_and_merge_as_the_library_does(B: int, N: int, D: int, h: int) -> None:
    stages = {stage.name: stage for stage in ReshapeStepper(B, N, D, h).stages()}
    x = stages["x"].array
    assert all(
        x[b, n, c] == 1000 * b + 100 * n + c
        for b, n, c in torch.cartesian_prod(*map(torch.arange, (B, N, D))).view(-1, 3).tolist()
    )
    assert torch.equal(stages["split"].array, mhalib.split_heads(x, h))
    assert torch.equal(stages["folded"].array, mhalib.transpose_qkv(x, h))
    assert torch.equal(stages["back"].array, x)
    assert not any(stages[name].copied for name in ("x", "cut", "split", "heads", "rows"))


@pytest.mark.parametrize("skip", [False, True])
def test_the_compact_form_has_the_same_arrays_without_the_fold(skip: bool) -> None:
    full, compact = (ReshapeStepper(2, 5, 12, 3, skip_permute=skip, compact=one).stages() for one in (False, True))
    kept = [stage for stage in full if stage.name not in ("folded", "heads")]
    assert [stage.name for stage in compact] == [stage.name for stage in kept]
    assert all(torch.equal(one.array, other.array) for one, other in zip(compact, kept, strict=True))
    assert not any(stage.copied for stage in compact)


@pytest.mark.parametrize(
    ("B", "N", "h", "copies"), [(2, 3, 3, True), (1, 3, 3, False), (2, 1, 3, False), (2, 3, 1, False)]
)
def test_folding_copies_only_where_one_stride_cannot_serve(B: int, N: int, h: int, copies: bool) -> None:
    stages = ReshapeStepper(B, N, 6, h).stages()
    assert (stages[3].copied, stages[6].copied) == (copies, copies)


def test_without_the_permute_the_shapes_are_equal_and_the_rows_are_mixed() -> None:
    right, wrong = ReshapeStepper().stages(), ReshapeStepper(skip_permute=True).stages()
    assert [stage.array.shape for stage in right] == [stage.array.shape for stage in wrong]
    assert not torch.equal(right[2].array, wrong[2].array)
    assert torch.equal(wrong[6].array, wrong[0].array)
    assert not any(stage.copied for stage in wrong)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"batch_size": 0}, ValueError, "batch_size=0"),
        ({"batch_size": 4}, ValueError, "batch_size=4 must be at most 3"),
        ({"num_tokens": 6}, ValueError, "num_tokens=6 must be at most 5"),
        ({"num_hiddens": 13}, ValueError, "num_hiddens=13 must be at most 12"),
        ({"num_heads": 5}, ValueError, "num_heads=5 must be at most 4"),
        ({"num_heads": 4}, ValueError, "num_hiddens=6 is not divisible by num_heads=4"),
        ({"num_tokens": 2.0}, TypeError, "num_tokens must be an integer"),
        ({"num_tokens": float("nan")}, TypeError, "num_tokens must be an integer"),
        ({"num_heads": "<b>"}, TypeError, "num_heads must be an integer"),
        ({"batch_size": True}, TypeError, "batch_size must be an integer"),
        ({"step": 7}, ValueError, "step=7 must be at most 6"),
        ({"step": -1}, ValueError, "step=-1"),
        ({"cell": 36}, ValueError, "cell=36 must be at most 35"),
        ({"cell": -1}, ValueError, "cell=-1"),
        ({"skip_permute": 1}, TypeError, "skip_permute must be True or False, got int: 1"),
    ],
)
def test_errors_name_the_argument_and_its_value(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=re.escape(words)):
        ReshapeStepper(**arguments)


@pytest.mark.parametrize(("name", "value"), [("batch_size", 4), ("num_tokens", 0), ("step", 7), ("cell", -1)])
def test_a_trait_keeps_its_bounds(name: str, value: int) -> None:
    stepper = ReshapeStepper()
    with pytest.raises(traitlets.TraitError):
        setattr(stepper, name, value)


def test_the_bundle_is_stable_and_says_the_numbers() -> None:
    first, second = (ReshapeStepper(2, 5, 12, 3, step=3)._repr_mimebundle_()[0] for _ in range(2))
    assert first["text/html"] == second["text/html"]
    assert first["text/plain"] == second["text/plain"]
    assert "(60, 4, 12, 1)" in first["text/html"]
    assert first["text/html"].count('scope="row"') == 7
    state = json.loads(re.search(r'<script type="application/json">(.*?)</script>', first["text/html"]).group(1))
    assert state == {
        "batch_size": 2,
        "num_tokens": 5,
        "num_hiddens": 12,
        "num_heads": 3,
        "step": 3,
        "skip_permute": False,
        "cell": 0,
        "compact": False,
        "colours": list(OWNER_COLOURS),
    }
    assert ReshapeStepper(compact=True).state()["compact"] is True
    with pytest.raises(ValueError, match="step=5 must be at most 4"):
        ReshapeStepper(step=5, compact=True)
    with pytest.raises(TypeError, match="compact must be True or False, got int: 1"):
        ReshapeStepper(compact=1)


@pytest.mark.parametrize(("sizes", "number"), [((2, 4, 12, 3), "1307"), ((1, 2, 4, 2), "0103")])
def test_the_table_explains_a_number_that_is_there(sizes: tuple[int, int, int, int], number: str) -> None:
    caption, _, rows = ReshapeStepper(*sizes).table()
    assert f"; {number} is example {number[0]}, token {number[1]}, channel {number[2:]}" in caption
    assert number in rows[0][-1]


def test_sizes_that_do_not_divide_are_explained_in_the_table() -> None:
    stepper = ReshapeStepper()
    stepper.num_heads = 4
    assert "D=6 is not divisible by h=4" in stepper._repr_mimebundle_()[0]["text/html"]
    with pytest.raises(ValueError, match="num_hiddens=6 is not divisible by num_heads=4"):
        stepper.stages()
