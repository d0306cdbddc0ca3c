"""Chapter 20: a repair of talking heads, which mask before they mix."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw
from .chapter_20 import mixed


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


talked_weights = Exercise(
    "talked_weights",
    chapter=20,
    given="nothing mended",
    title="mask scores that heads mix",
    reference=_talked,
    cases=_masked_scores,
    verified="four layers with masks; no masked key gets weight from any head, and no number is NaN.",
    points=3,
    mistakes=[
        Mistake(
            "nothing mended",
            "the scores are still masked with -inf before they are mixed. Then -inf meets a number of `before`: times "
            "zero it is NaN, times a negative number it is +inf. Mix first, then mask.",
            _masked_first,
        ),
        Mistake(
            "masked first, with a large number",
            "you masked with -1e9 before the mixing. Nothing is NaN now, but a head whose column of `before` has a "
            "negative sum turns -1e9 into a large positive score, and attends to masked keys alone. Mix first.",
            partial(_masked_first, filling=-1e9),
        ),
        Mistake(
            "NaN weights set to zero",
            "you still mask before the mixing, and set the weights that are NaN to 0. Those heads no longer attend to "
            "anything. Mix first, then mask: no NaN appears.",
            partial(_masked_first, instead=0.0),
        ),
        *(
            Mistake(
                f"NaN scores hidden{how}",
                "you still mask before the mixing, and hide the scores that are NaN. A head that has only negative "
                "numbers in its column of `before` gets no NaN there, but +inf: its masked keys are the most visible "
                "ones. Mix first, then mask.",
                function,
            )
            for how, function in (
                ("", partial(_masked_first, score_instead=-math.inf)),
                (
                    " by nan_to_num",
                    lambda scores, mask, before, after: mixed(
                        mixed(scores.masked_fill(~mask, -math.inf), before).nan_to_num(-math.inf).softmax(-1), after
                    ),
                ),
            )
        ),
        Mistake(
            "NaN in the result set to zero",
            "you still mask before the mixing, and set what is NaN in the result to 0. One head with NaN spoils all "
            "heads, because `after` mixes them. Mix first, then mask: no NaN appears.",
            lambda scores, mask, before, after: _masked_first(scores, mask, before, after).nan_to_num(0.0),
        ),
        Mistake(
            "mask forgotten",
            "you did not use the mask, so masked keys get weight. Mask between the mixing and the softmax.",
            lambda scores, mask, before, after: _talked(scores, torch.ones_like(mask), before, after),
        ),
        Mistake(
            "mask after the softmax",
            "you masked the weights, after the softmax. The weight of the masked keys is lost, and what is left of a "
            "row is too small. Mask the mixed scores, before the softmax.",
            lambda scores, mask, before, after: _talked(scores, torch.ones_like(mask), before, after) * mask,
        ),
        Mistake(
            "mask the other way round",
            "you hid the keys that may be seen. `True` in the mask means that the query may attend to the key: fill "
            "where the mask is False, `~mask`.",
            lambda scores, mask, before, after: _talked(scores, ~mask, before, after),
        ),
        Mistake(
            "masked with zero",
            "you set masked scores to 0. A score of 0 still gets weight after a softmax, whether you set it before the "
            "mixing or after it. Fill the mixed scores with -inf.",
            partial(_talked, filling=0.0),
        ),
        Mistake(
            "rows made to sum to 1",
            "you divided each row of the result by its sum. Talking heads do not: after the second mixing a row may "
            "have any sum.",
            lambda scores, mask, before, after: (
                (weights := _talked(scores, mask, before, after)) / weights.sum(-1, keepdim=True)
            ),
        ),
        Mistake(
            "second softmax",
            "you took a softmax of the result. There is one softmax only, between the two mixings.",
            lambda scores, mask, before, after: (
                _talked(scores, mask, before, after).masked_fill(~mask, -math.inf).softmax(-1)
            ),
        ),
        Mistake(
            "both mixings before the softmax",
            "you mixed with both matrices before the softmax. `after` mixes the weights that come out of it.",
            lambda scores, mask, before, after: _talked(scores, mask, before @ after, torch.eye(len(after))),
        ),
        Mistake(
            "both mixings after the softmax",
            "the softmax came first, and both mixings after it. `before` mixes the scores: mix, then mask, then the "
            "softmax.",
            lambda scores, mask, before, after: _talked(scores, mask, torch.eye(len(before)), before @ after),
        ),
        Mistake(
            "mixings exchanged",
            "you mixed the scores with `after` and the weights with `before`. Exchange them.",
            lambda scores, mask, before, after: _talked(scores, mask, after, before),
        ),
        Mistake(
            "first mixing forgotten",
            "you masked the heads' own scores, without mixing them by `before`.",
            lambda scores, mask, before, after: _talked(scores, mask, torch.eye(len(before)), after),
        ),
        Mistake(
            "second mixing forgotten",
            "you did not mix the weights after the softmax: use `after`.",
            lambda scores, mask, before, after: _talked(scores, mask, before, torch.eye(len(after))),
        ),
        Mistake(
            "softmax over the queries",
            "the softmax runs over the queries. Each query shares its attention among the keys: the last axis.",
            partial(_talked, dim=1),
        ),
        Mistake(
            "softmax over the heads",
            "the softmax runs over the heads. Each query shares its attention among the keys: the last axis.",
            partial(_talked, dim=0),
        ),
        *(
            Mistake(
                f"{name} transposed",
                f"{which} the wrong way round. Head m gets mixing[n, m] of head n: sum over the first axis.",
                lambda scores, mask, before, after, first=first, second=second: _talked(
                    scores, mask, before.T if first else before, after.T if second else after
                ),
            )
            for name, which, first, second in (
                ("before", "you used `before`", True, False),
                ("after", "you used `after`", False, True),
                ("both", "you used both matrices", True, True),
            )
        ),
    ],
)
