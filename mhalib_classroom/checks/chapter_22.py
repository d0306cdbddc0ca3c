"""Chapter 22: heads that tokens compose."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw


def _said(rng: random.Random) -> Iterator[Case]:
    yield {
        "scores": torch.tensor([[[1.0, 2.0, 3.0]], [[4.0, 5.0, 6.0]]]),
        "first": torch.tensor([[[1.0, 0.0], [1.0, 1.0]]]),
        "second": torch.tensor([[[0.0, 2.0], [-1.0, 0.0]]]),
        "gate": torch.tensor([[0.5, 0.0]]),
    }
    for num_heads, num_queries, num_kvpairs, rank in apart(rng, 4):
        yield {
            "scores": draw(rng, num_heads, num_queries, num_kvpairs),
            "first": draw(rng, num_queries, rank, num_heads),
            "second": draw(rng, num_queries, rank, num_heads),
            "gate": draw(rng, num_queries, num_heads).tanh(),
        }


def _exchanged(scores: Tensor, first: Tensor, second: Tensor) -> Tensor:
    return torch.einsum("nqk,qrn,qrm->mqk", scores, first, second)


def _composed(scores: Tensor, first: Tensor, second: Tensor, gate: Tensor) -> Tensor:
    return scores + _exchanged(scores, first, second) + scores * gate.T[:, :, None]


composed_scores = Exercise(
    "composed_scores",
    chapter=22,
    title="compose heads as each query says",
    reference=_composed,
    cases=_said,
    verified="four sets of scores, with two to seven pairs for each query; identity, pairs and gate are added.",
    points=2,
    mistakes=[
        Mistake(
            "identity missing",
            "the head's own score is missing: you returned only what pairs and gate add to it. Where a query says "
            "nothing, scores must stay as they are.",
            lambda scores, first, second, gate: _composed(scores, first, second, gate) - scores,
        ),
        Mistake(
            "pairs only",
            "the head's own score and its gate are missing: you returned only what the pairs bring.",
            lambda scores, first, second, gate: _exchanged(scores, first, second),
        ),
        Mistake(
            "ones everywhere",
            "you added 1 to every entry of the matrix, so all heads are summed up. The identity has 1 on its diagonal "
            "only.",
            lambda scores, first, second, gate: scores.sum(0) + _composed(scores, first, second, gate) - scores,
        ),
        Mistake(
            "transposed",
            "`first` and `second` changed places, so the matrix is transposed. `first` says what is taken from each "
            "head, `second` what each head is given.",
            lambda scores, first, second, gate: _composed(scores, second, first, gate),
        ),
        Mistake(
            "gate forgotten",
            "the gate is missing: add each score times its head's gate.",
            lambda scores, first, second, gate: scores + _exchanged(scores, first, second),
        ),
        Mistake(
            "gate not multiplied",
            "you added the gate itself. Add the gate times the head's score.",
            lambda scores, first, second, gate: scores + _exchanged(scores, first, second) + gate.T[:, :, None],
        ),
        Mistake(
            "gate only",
            "the pairs are missing: heads exchange nothing here. Add what `first` takes, times `second`.",
            lambda scores, first, second, gate: scores * (1 + gate.T[:, :, None]),
        ),
        Mistake(
            "gate on everything",
            "you gated also what came from the other heads. The gate multiplies the head's own score.",
            lambda scores, first, second, gate: (scores + _exchanged(scores, first, second)) * (1 + gate.T[:, :, None]),
        ),
        Mistake(
            "one pair",
            "you used the first pair only. Every pair adds its share.",
            lambda scores, first, second, gate: _composed(scores, first[:, :1], second[:, :1], gate),
        ),
        Mistake(
            "pairs added first",
            "you added up the pairs before you used them, so what one pair takes is given by another. Apply each "
            "pair, then add.",
            lambda scores, first, second, gate: _composed(scores, first.sum(1, True), second.sum(1, True), gate),
        ),
        Mistake(
            "mean of the pairs",
            "you averaged over the pairs. Add them.",
            lambda scores, first, second, gate: _composed(scores, first / first.shape[1], second, gate),
        ),
        Mistake(
            "query 0 for all",
            "all queries used what query 0 says. Each query has a composition of its own: that is the point of it.",
            lambda scores, first, second, gate: _composed(
                scores, first[:1].expand_as(first), second[:1].expand_as(second), gate[:1].expand_as(gate)
            ),
        ),
        Mistake(
            "mean over queries",
            "all queries used the mean of what they say, a fixed mixing. Each query has a composition of its own.",
            lambda scores, first, second, gate: _composed(
                scores,
                first.mean(0, keepdim=True).expand_as(first),
                second.mean(0, keepdim=True).expand_as(second),
                gate.mean(0, keepdim=True).expand_as(gate),
            ),
        ),
    ],
)


def _masked(rng: random.Random) -> Iterator[Case]:
    yield {
        "scores": torch.tensor([[[1.0, 2.0, 3.0]], [[2.0, 0.0, 1.0]]]),
        "compositions": torch.tensor([[[1.0, -0.5], [0.5, 1.0]]]),
        "mask": torch.tensor([[True, True, False]]),
    }
    for num_heads, num_queries, num_kvpairs in apart(rng, 3, smallest=3):
        mask = draw(rng, num_queries, num_kvpairs) > -0.3
        mask[:, 0], mask[0, 1] = True, False
        compositions = torch.eye(num_heads) + draw(rng, num_queries, num_heads, num_heads)
        compositions[0, :, 1] = -compositions[0, :, 1].abs()  # -inf becomes +inf here, not NaN
        yield {
            "scores": draw(rng, num_heads, num_queries, num_kvpairs),
            "compositions": compositions,
            "mask": mask,
        }


def _mixed(a: Tensor, compositions: Tensor) -> Tensor:
    return torch.einsum("nqk,qnm->mqk", a, compositions)


def _weights(scores: Tensor, compositions: Tensor, mask: Tensor) -> Tensor:
    return _mixed(scores, compositions).masked_fill(~mask, -math.inf).softmax(-1)


composed_weights = Exercise(
    "composed_weights",
    chapter=22,
    given="masked first",
    title="repair the order of mask and composition",
    reference=_weights,
    cases=_masked,
    verified="four sets of scores; hidden keys get exactly 0, whatever the compositions say.",
    points=2,
    mistakes=[
        Mistake(
            "masked first",
            "the mask comes before the composition. It mixes scores of -inf: times a negative number that is +inf, "
            "and inf - inf is NaN. Compose first, then mask.",
            lambda scores, compositions, mask: _mixed(scores.masked_fill(~mask, -math.inf), compositions).softmax(-1),
        ),
        Mistake(
            "masked first, with a large number",
            "you replaced -inf by a large negative number, so nothing is NaN any more. But a negative entry of the "
            "composition makes it a large positive one, and a hidden key gets all the weight. Compose, then mask.",
            lambda scores, compositions, mask: _mixed(scores.masked_fill(~mask, -1e9), compositions).softmax(-1),
        ),
        Mistake(
            "NaN replaced",
            "you replaced NaN by 0 and left its cause: rows in which it occurred have lost all their weights. Compose "
            "first, then mask.",
            lambda scores, compositions, mask: (
                _mixed(scores.masked_fill(~mask, -math.inf), compositions).softmax(-1).nan_to_num(0.0)
            ),
        ),
        Mistake(
            "NaN of scores replaced",
            "you replaced NaN after the composition and left its cause. Where a head receives only negative shares, "
            "-inf has become +inf, and a hidden key gets all the weight. Compose first, then mask.",
            lambda scores, compositions, mask: (
                _mixed(scores.masked_fill(~mask, -math.inf), compositions).nan_to_num(-1e9).softmax(-1)
            ),
        ),
        Mistake(
            "masked with 0",
            "you set hidden scores to 0. A score of 0 still gets a weight, and the composition fills it again. Compose "
            "first, then mask with -inf.",
            lambda scores, compositions, mask: _mixed(scores.masked_fill(~mask, 0.0), compositions).softmax(-1),
        ),
        Mistake(
            "mask inverted",
            "you hid what a query may look at. `mask` is True where it may look.",
            lambda scores, compositions, mask: _weights(scores, compositions, ~mask),
        ),
        Mistake(
            "weights composed",
            "you composed the weights, after the softmax. This composition is for scores: compose, mask, softmax.",
            lambda scores, compositions, mask: _mixed(scores.masked_fill(~mask, -math.inf).softmax(-1), compositions),
        ),
        Mistake(
            "masked at the end",
            "you set hidden weights to 0 after the softmax, so rows no longer sum to 1. Mask the composed scores, "
            "before the softmax.",
            lambda scores, compositions, mask: _mixed(scores, compositions).softmax(-1) * mask,
        ),
        Mistake(
            "no mask",
            "hidden keys have a weight: the mask is missing.",
            lambda scores, compositions, mask: _mixed(scores, compositions).softmax(-1),
        ),
        Mistake(
            "no composition",
            "these are the weights of heads that do not exchange anything: the composition is missing.",
            lambda scores, compositions, mask: scores.masked_fill(~mask, -math.inf).softmax(-1),
        ),
        Mistake(
            "transposed",
            "the compositions are transposed. Entry [n, m] says how much of head n goes into head m.",
            lambda scores, compositions, mask: _weights(scores, compositions.mT, mask),
        ),
        Mistake(
            "no softmax",
            "these are scores: the softmax over the keys is missing.",
            lambda scores, compositions, mask: _mixed(scores, compositions).masked_fill(~mask, -math.inf),
        ),
    ],
)
