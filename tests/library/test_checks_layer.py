"""What students write of the whole layer, in their own words, gets the sentence that names the mistake."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mhalib_classroom import checks

Layer = Callable[..., Tensor]


def written(split: Callable[..., Tensor], weigh: Callable[..., Tensor], average: Callable[..., Tensor]) -> Layer:
    """A layer as a student writes it, of three lines that may be wrong."""

    def layer(x: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor, W_o: Tensor, num_heads: int) -> Tensor:
        B, N, D = x.shape
        q, k, v = (split(x @ W.T, B, N, D, num_heads) for W in (W_q, W_k, W_v))
        weights = weigh(q, k)
        return average(weights, v).transpose(1, 2).reshape(B, N, D) @ W_o.T

    return layer


RIGHT: dict[str, Any] = {
    "split": lambda x, B, N, D, h: x.view(B, N, h, D // h).permute(0, 2, 1, 3),
    "weigh": lambda q, k: torch.softmax(q @ k.transpose(2, 3) / math.sqrt(q.size(-1)), dim=-1),
    "average": lambda weights, v: torch.einsum("bhqk,bhkd->bhqd", weights, v),
}


def cut_by_slices(x: Tensor, B: int, N: int, D: int, h: int) -> Tensor:
    d = D / h
    return torch.stack([x[:, :, i * d : (i + 1) * d] for i in range(h)], dim=1)  # type: ignore[misc]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "D / h in view": ({"split": lambda x, B, N, D, h: x.view(B, N, h, D / h).transpose(1, 2)}, "write D // h"),
    "D / h in reshape": ({"split": lambda x, B, N, D, h: x.reshape(B, N, h, D / h).transpose(1, 2)}, "write D // h"),
    "D / h in unflatten": ({"split": lambda x, B, N, D, h: x.unflatten(2, (h, D / h)).transpose(1, 2)}, "write D // h"),
    "D / h in a slice": ({"split": cut_by_slices}, "write D // h"),
    "k.T": ({"weigh": lambda q, k: (q @ k.T / q.shape[-1] ** 0.5).softmax(-1)}, "reverses ALL of them"),
    "k.T, as the wrong two axes": (
        {"weigh": lambda q, k: (torch.matmul(q, k.transpose(1, 2)) / q.shape[-1] ** 0.5).softmax(-1)},
        "swaps heads and tokens",
    ),
    "keys reshaped": (
        {"weigh": lambda q, k: (q @ k.reshape(k.size(0), k.size(1), k.size(3), -1) / q.size(-1) ** 0.5).softmax(-1)},
        "regroups their numbers",
    ),
    "keys not turned": ({"weigh": lambda q, k: (q @ k / q.shape[-1] ** 0.5).softmax(-1)}, "as it is"),
    "weights transposed": ({"average": lambda weights, v: weights.transpose(-1, -2) @ v}, "transposed the weights"),
}


@pytest.mark.filterwarnings("ignore:The use of `x.T` on tensors of dimension other than 2:UserWarning")
@pytest.mark.parametrize("exercise", [checks.multi_head, checks.mended_layer], ids=lambda one: one.name)
@pytest.mark.parametrize("name", WRONG)
def test_a_student_is_told_what_is_wrong(name: str, exercise: Any) -> None:
    wrong, told = WRONG[name]
    for seed in range(5):
        finding = exercise.examine(written(**(RIGHT | wrong)), seed)
        assert finding.mistake == name.partition(", ")[0]
        assert told in finding.message


def test_the_layer_around_the_mistakes_is_right() -> None:
    assert checks.multi_head.examine(written(**RIGHT)).solved
