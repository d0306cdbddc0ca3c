"""Heads that mix their scores, and the wider matrices that mixed weights stand for.

A repair of talking heads, which mask before they mix. Heads that share queries and keys, and heads that see channels of
their neighbours.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from ._exercise import Case
from ._inputs import apart, draw, own_sizes
from ._markdown import exercises_of

exercise = exercises_of(globals())


def mixed(x: Tensor, mixing: Tensor) -> Tensor:
    """(h, Q, K) and (h, h) -> (h, Q, K): head m gets the sum over n of mixing[n, m] * x[n]."""
    return torch.einsum("nqk,nm->mqk", x, mixing)


def _scores(rng: random.Random) -> Iterator[Case]:
    yield {"scores": torch.tensor([[[1.0, 2.0, 3.0]], [[0.0, 4.0, 1.0]]]), "mixing": torch.tensor([[1.0, 2.0], [0, 3]])}
    for num_heads, num_queries, num_kvpairs in apart(rng, 3):
        yield {"scores": draw(rng, num_heads, num_queries, num_kvpairs), "mixing": draw(rng, num_heads, num_heads)}


talk = exercise(
    "talk",
    reference=mixed,
    cases=_scores,
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


output_matrices = exercise(
    "output_matrices",
    reference=_matrices,
    cases=_value_parts,
)


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


def _shared(rng: random.Random) -> Iterator[Case]:
    """The width of the shared channels is never head_dim, nor h * head_dim, so that every wrong scale shows."""
    yield {
        "q": torch.tensor([[1.0, 2.0, 3.0]]),
        "k": torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 2.0], [0.0, 0.0, 1.0], [2.0, 0.0, 1.0]]),
        "mixing": torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 1.0]]),
        "head_dim": 16,
    }
    drawn = apart(rng, 5, largest=9, of=lambda h, Q, K, width, d: [h, Q, K, width, d, h * d])
    for num_heads, num_queries, num_kvpairs, shared_size, head_dim in drawn:
        yield {
            "q": draw(rng, num_queries, shared_size),
            "k": draw(rng, num_kvpairs, shared_size),
            "mixing": draw(rng, num_heads, shared_size),
            "head_dim": head_dim,
        }


def _raw(q: Tensor, k: Tensor, mixing: Tensor) -> Tensor:
    """(h, Q, K), without a scale."""
    return q * mixing[:, None] @ k.T


def _shared_scores(q: Tensor, k: Tensor, mixing: Tensor, head_dim: int) -> Tensor:
    return _raw(q, k, mixing) / math.sqrt(head_dim)


shared_scores = exercise(
    "shared_scores",
    reference=_shared_scores,
    cases=_shared,
)


@own_sizes("an overlap is more than one channel and less than a head: 2 or 3", "overlap")
def _channels(rng: random.Random) -> Iterator[Case]:
    yield {"x": torch.tensor([[[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]]), "num_heads": 3, "overlap": 1}
    drawn = apart(rng, 4, smallest=4, largest=8, of=lambda h, d, B, N: [h, d, B, N, h * d])
    for num_heads, head_dim, batch_size, num_tokens in drawn:
        x = draw(rng, batch_size, num_tokens, num_heads * head_dim)
        yield {"x": x, "num_heads": num_heads, "overlap": rng.choice((2, 3))}


def _windows(x: Tensor, num_heads: int, left: int, right: int, mode: str = "constant") -> Tensor:
    """Head i gets the channels i*d - left to (i+1)*d + right."""
    head_dim = x.shape[-1] // num_heads
    return F.pad(x, (left, right), mode).unfold(-1, left + head_dim + right, head_dim).transpose(1, 2)


def _widened(x: Tensor, num_heads: int, overlap: int) -> Tensor:
    return _windows(x, num_heads, overlap, overlap)


def _parts(x: Tensor, num_heads: int, overlap: int) -> tuple[Tensor, Tensor, Tensor]:
    """A window in three: the channels on its left, its own, those on its right."""
    windows = _widened(x, num_heads, overlap)
    return windows[..., :overlap], windows[..., overlap:-overlap], windows[..., -overlap:]


def _far_ends(x: Tensor, num_heads: int, overlap: int) -> Tensor:
    """The first channels of the left neighbour and the last of the right one: those that are not next to the head."""
    own = _windows(x, num_heads, 0, 0)
    left, right = F.pad(own, (0, 0, 0, 0, 1, 0))[:, :-1], F.pad(own, (0, 0, 0, 0, 0, 1))[:, 1:]
    return torch.cat([left[..., :overlap], own, right[..., -overlap:]], -1)


widened = exercise(
    "widened",
    reference=_widened,
    cases=_channels,
)
