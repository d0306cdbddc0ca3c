"""Chapter 20: a repair of talking heads, which mask before they mix."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of
from .chapter_20 import mixed

exercise = exercises_of(globals())


def _masked_scores(rng: random.Random) -> Iterator[Case]:
    """Each query may attend to a key, but not to all. In the drawn cases head 0 listens with negative numbers only, so
    that a score of -inf becomes +inf there, not NaN."""
    yield {
        "scores": torch.tensor([[[1.0, 2.0, 0.0]], [[0.0, 1.0, 3.0]]]),
        "mask": torch.tensor([[True, True, False]]),
        "before": torch.tensor([[1.0, 0.0], [1.0, -2.0]]),
        "after": torch.tensor([[1.0, 0.5], [0.0, 1.0]]),
    }
    for num_heads, num_queries, num_kvpairs in apart(rng, 3, smallest=3):
        seen = [rng.sample(range(num_kvpairs), rng.randint(1, num_kvpairs - 1)) for _ in range(num_queries)]
        before = draw(rng, num_heads, num_heads)
        yield {
            "scores": 2 * draw(rng, num_heads, num_queries, num_kvpairs),
            "mask": torch.tensor([[key in keys for key in range(num_kvpairs)] for keys in seen]),
            "before": torch.cat([-before[:, :1].abs(), before[:, 1:]], 1),
            "after": draw(rng, num_heads, num_heads),
        }


def _talked(
    scores: Tensor, mask: Tensor, before: Tensor, after: Tensor, *, filling: float = -math.inf, dim: int = -1
) -> Tensor:
    return mixed(mixed(scores, before).masked_fill(~mask, filling).softmax(dim), after)


def _masked_first(
    scores: Tensor,
    mask: Tensor,
    before: Tensor,
    after: Tensor,
    *,
    filling: float = -math.inf,
    instead: float = math.nan,
    score_instead: float = math.nan,
) -> Tensor:
    """Mixed scores that are NaN become `score_instead`; weights that are NaN `instead`, before the second mixing."""
    told = mixed(scores.masked_fill(~mask, filling), before)
    weights = told.where(~told.isnan(), score_instead).softmax(-1)
    return mixed(weights.nan_to_num(instead), after)


talked_weights = exercise(
    "talked_weights",
    reference=_talked,
    cases=_masked_scores,
    switches=_talked,
)
