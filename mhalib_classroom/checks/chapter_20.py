"""Chapter 20: heads that mix their scores, and the wider matrices that mixed weights stand for."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw


def mixed(x: Tensor, mixing: Tensor) -> Tensor:
    """(h, Q, K) and (h, h) -> (h, Q, K): head m gets the sum over n of mixing[n, m] * x[n]."""
    return torch.einsum("nqk,nm->mqk", x, mixing)


def _scores(rng: random.Random) -> Iterator[Case]:
    yield {"scores": torch.tensor([[[1.0, 2.0, 3.0]], [[0.0, 4.0, 1.0]]]), "mixing": torch.tensor([[1.0, 2.0], [0, 3]])}
    for num_heads, num_queries, num_kvpairs in apart(rng, 3):
        yield {"scores": draw(rng, num_heads, num_queries, num_kvpairs), "mixing": draw(rng, num_heads, num_heads)}


talk = Exercise(
    "talk",
    chapter=20,
    title="mix the scores of all heads",
    reference=mixed,
    cases=_scores,
    verified="four layers of two to seven heads; mixing[n, m] says how much of head n goes to head m.",
    mistakes=[
        Mistake(
            "mixing transposed",
            "you used mixing[m, n] where mixing[n, m] is wanted. The first axis is the head that speaks, n; the second "
            "is the head that listens, m. Sum over the first axis.",
            lambda scores, mixing: mixed(scores, mixing.T),
        ),
        Mistake(
            "own scores added",
            "you added the mixed scores to each head's own scores. How much a head keeps of its own is already in "
            "`mixing`, on the diagonal.",
            lambda scores, mixing: scores + mixed(scores, mixing),
        ),
        Mistake(
            "mean",
            "you took the mean over the heads. Take the sum: `mixing` already has the size of each part.",
            lambda scores, mixing: mixed(scores, mixing) / len(scores),
        ),
        *(
            Mistake(
                f"softmax of the {name}",
                f"you put `mixing` through a softmax, so that its {name} sum to 1. Its numbers may have any size and "
                "any sign: use them as they are.",
                lambda scores, mixing, dim=dim: mixed(scores, mixing.softmax(dim)),
            )
            for dim, name in ((0, "columns"), (1, "rows"))
        ),
        Mistake(
            "diagonal only",
            "you multiplied each head's scores by mixing[m, m], so no head hears another. Sum over all heads.",
            lambda scores, mixing: scores * mixing.diagonal()[:, None, None],
        ),
        Mistake(
            "other heads only",
            "you left out mixing[m, m]. Each head also gets a part of its own scores.",
            lambda scores, mixing: mixed(scores, mixing - mixing.diag().diag()),
        ),
        *(
            Mistake(
                f"own scores, times a {name}",
                f"you multiplied each head's own scores by the sum of a {name} of `mixing`. The sum must run over the "
                "scores, too: the same letter n in both, as in einsum's nqk,nm->mqk.",
                lambda scores, mixing, dim=dim: scores * mixing.sum(dim)[:, None, None],
            )
            for dim, name in ((0, "column"), (1, "row"))
        ),
        Mistake(
            "mixed twice",
            "you mixed the scores twice. Once is enough: the second mixing belongs behind the softmax.",
            lambda scores, mixing: mixed(mixed(scores, mixing), mixing),
        ),
        Mistake(
            "not summed",
            "your result is (h, h, Q, K): every product is there, but nothing was summed. Sum over the heads n.",
            lambda scores, mixing: mixing.T[:, :, None, None] * scores,
        ),
        Mistake(
            "heads summed",
            "you summed over the heads that listen, too. Each head m has scores of its own: keep h in the result.",
            lambda scores, mixing: mixed(scores, mixing).sum(0),
        ),
        Mistake(
            "heads last",
            "the numbers are right, but the heads are the last axis: (Q, K, h). Bring them back to the front.",
            lambda scores, mixing: mixed(scores, mixing).movedim(0, -1),
        ),
        Mistake(
            "reshaped",
            "you reshaped `scores` so that the heads come last. A reshape keeps the order in memory, so heads, queries "
            "and keys get mixed up. Move the axis with `movedim` or `permute`, or write an einsum.",
            lambda scores, mixing: (scores.reshape(*scores.shape[1:], -1) @ mixing).reshape(scores.shape),
        ),
        Mistake(
            "weights",
            "these are weights, after a softmax. Return the mixed scores before it.",
            lambda scores, mixing: mixed(scores, mixing).softmax(-1),
        ),
    ],
)


def _value_parts(rng: random.Random) -> Iterator[Case]:
    yield {
        "W_v": torch.tensor([[[1.0, 0.0, 2.0]], [[0.0, 3.0, 1.0]]]),
        "W_o": torch.tensor([[[1.0], [0.0], [1.0]], [[2.0], [1.0], [0.0]]]),
        "mixing": torch.tensor([[1.0, 2.0], [0.0, 3.0]]),
    }
    for num_heads, head_dim, num_hiddens in apart(rng, 3):
        yield {
            "W_v": draw(rng, num_heads, head_dim, num_hiddens),
            "W_o": draw(rng, num_heads, num_hiddens, head_dim),
            "mixing": draw(rng, num_heads, num_heads),
        }


def _matrices(W_v: Tensor, W_o: Tensor, mixing: Tensor) -> Tensor:
    return mixed(W_o @ W_v, mixing.T)


output_matrices = Exercise(
    "output_matrices",
    chapter=20,
    title="what mixed weights do with a pattern",
    reference=_matrices,
    cases=_value_parts,
    verified="four layers; pattern n with your matrix n gives the output that mixed weights give.",
    points=3,
    mistakes=[
        Mistake(
            "mixing transposed",
            "you summed over the first axis of `mixing`. That is right for the weights of head m. A matrix belongs to "
            "pattern n, which goes to all heads m: sum over the second axis.",
            lambda W_v, W_o, mixing: _matrices(W_v, W_o, mixing.T),
        ),
        Mistake(
            "result transposed",
            "your matrices are transposed. A column vector meets W_v first, then W_o, so W_o is on the left.",
            lambda W_v, W_o, mixing: _matrices(W_v, W_o, mixing).mT,
        ),
        Mistake(
            "W_v @ W_o",
            "you multiplied W_v[m] @ W_o[m], which is (d, d). The matrix goes from tokens to output, both D wide: "
            "W_o[m] @ W_v[m].",
            lambda W_v, W_o, mixing: mixed(W_v @ W_o, mixing.T),
        ),
        Mistake(
            "no mixing",
            "you did not use `mixing`: these are the matrices of multi-head attention, where pattern n meets only head "
            "n's W_v and W_o. Here it meets those of all heads.",
            lambda W_v, W_o, mixing: W_o @ W_v,
        ),
        Mistake(
            "summed without mixing",
            "you summed over the heads without `mixing`, so every pattern has the same matrix. Weigh the product of "
            "head m by mixing[n, m].",
            lambda W_v, W_o, mixing: (W_o @ W_v).sum(0).expand(len(W_v), -1, -1),
        ),
        Mistake(
            "own head once more",
            "you added each head's own product to the sum. It is in the sum already, times mixing[n, n].",
            lambda W_v, W_o, mixing: W_o @ W_v + _matrices(W_v, W_o, mixing),
        ),
        Mistake(
            "product of sums, mixed on both sides",
            "you mixed W_o and W_v first, each for itself, and then multiplied. That joins head 0's W_o to head 1's "
            "W_v. First multiply within each head m, then sum.",
            lambda W_v, W_o, mixing: mixed(W_o, mixing.T) @ mixed(W_v, mixing.T),
        ),
        Mistake(
            "product of sums, W_o mixed",
            "you mixed W_o alone, and multiplied by head n's W_v. Each head's W_o belongs to its own W_v: multiply "
            "within each head m, then sum.",
            lambda W_v, W_o, mixing: mixed(W_o, mixing.T) @ W_v,
        ),
        Mistake(
            "product of sums, W_v mixed",
            "you mixed W_v alone, and multiplied head n's W_o by it. Each head's W_v belongs to its own W_o: multiply "
            "within each head m, then sum.",
            lambda W_v, W_o, mixing: W_o @ mixed(W_v, mixing.T),
        ),
        Mistake(
            "mixing squared",
            "both W_o[m] and W_v[m] have the factor mixing[n, m], so it counts twice. Use it once.",
            lambda W_v, W_o, mixing: _matrices(W_v, W_o, mixing.square()),
        ),
        Mistake(
            "mean",
            "you took the mean over the heads. Take the sum, as W_o does with the heads' outputs.",
            lambda W_v, W_o, mixing: _matrices(W_v, W_o, mixing) / len(W_v),
        ),
        Mistake(
            "diagonal only",
            "you used mixing[n, n] alone. Pattern n also goes to the other heads: sum over all m.",
            lambda W_v, W_o, mixing: W_o @ W_v * mixing.diagonal()[:, None, None],
        ),
        Mistake(
            "patterns summed",
            "you summed over the patterns, too. Each pattern n has a matrix of its own: keep h in the result.",
            lambda W_v, W_o, mixing: _matrices(W_v, W_o, mixing).sum(0),
        ),
    ],
)
