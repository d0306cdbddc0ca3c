"""What a page writes out and the library holds too must do the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import book_text
import torch
from torch import nn

import mhalib

NAMESPACE = {"torch": torch, "math": math, "nn": nn}


def written_out(page: str, name: str) -> Callable[..., Any]:
    """The function `name` as the page defines it."""
    (cell,) = (code for code in book_text.PAGES[page].code if f"def {name}(" in code)
    namespace = dict(NAMESPACE)
    exec(cell, namespace)
    return namespace[name]


def test_the_training_loop_of_chapter_1_is_the_library_s() -> None:
    trained = []
    for fit in (written_out("01_why_more_than_one_head", "fit"), mhalib.train.fit):
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        fit(model, lambda model=model: model(torch.randn(5, 3)).square().mean(), steps=20, largest_rate=0.05)
        assert not model.training
        trained.append(model.weight)
    assert torch.equal(*trained)


def test_attention_of_chapter_2_is_the_library_s() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 4), torch.randn(5, 4), torch.randn(5, 4)
    torch.testing.assert_close(written_out("02_weighted_average", "attend")(q, k, v), mhalib.attend(q, k, v))
