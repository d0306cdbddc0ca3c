"""Chapter 13: what a head copies, and what each part of a model adds to a logit."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _weights_of_a_model(rng: random.Random) -> Iterator[Case]:
    for vocab_size, head_dim, num_heads, head in ((3, 1, 2, 1), (7, 2, 3, 1), (5, 3, 4, 2), (11, 4, 5, 3)):
        num_hiddens = head_dim * num_heads
        yield {
            "embedding": draw(rng, vocab_size, num_hiddens),
            "W_v": draw(rng, num_hiddens, num_hiddens),
            "W_o": draw(rng, num_hiddens, num_hiddens),
            "readout": draw(rng, vocab_size, num_hiddens),
            "head": head,
            "num_heads": num_heads,
        }


def _own(W: Tensor, head: int, num_heads: int) -> slice:
    d = len(W) // num_heads
    return slice(head * d, (head + 1) * d)


def _copying(embedding: Tensor, W_v: Tensor, W_o: Tensor, readout: Tensor, head: int, num_heads: int) -> Tensor:
    own = _own(W_v, head, num_heads)
    return embedding @ W_v[own].T @ W_o[:, own].T @ readout.T


def _interleaved(embedding: Tensor, W_v: Tensor, W_o: Tensor, readout: Tensor, head: int, num_heads: int) -> Tensor:
    return embedding @ W_v[head::num_heads].T @ W_o[:, head::num_heads].T @ readout.T


def _rows_of_o(embedding: Tensor, W_v: Tensor, W_o: Tensor, readout: Tensor, head: int, num_heads: int) -> Tensor:
    own = _own(W_v, head, num_heads)
    return embedding @ W_v[own].T @ W_o[own] @ readout.T


def _columns_of_v(embedding: Tensor, W_v: Tensor, W_o: Tensor, readout: Tensor, head: int, num_heads: int) -> Tensor:
    own = _own(W_v, head, num_heads)
    return embedding @ W_v[:, own] @ W_o[:, own].T @ readout.T


def _rows_and_columns(
    embedding: Tensor, W_v: Tensor, W_o: Tensor, readout: Tensor, head: int, num_heads: int
) -> Tensor:
    own = _own(W_v, head, num_heads)
    return embedding @ W_v[:, own] @ W_o[own] @ readout.T


copying_table = exercise(
    "copying_table",
    reference=_copying,
    cases=_weights_of_a_model,
)


def _parts(rng: random.Random) -> Iterator[Case]:
    for num_parts, batch_size, num_tokens, num_hiddens, vocab_size in (
        [2, 1, 3, 2, 4],
        *apart(rng, 5, largest=9),
    ):
        yield {
            "added": draw(rng, num_parts, batch_size, num_tokens, num_hiddens),
            "readout": draw(rng, vocab_size, num_hiddens),
            "targets": torch.tensor(
                [[rng.randrange(vocab_size) for _ in range(num_tokens)] for _ in range(batch_size)]
            ),
        }


def _pick(scores: Tensor, targets: Tensor) -> Tensor:
    """(parts, B, N, words), (B, N) -> (parts, B, N)."""
    return scores.gather(-1, targets.expand(len(scores), *targets.shape)[..., None])[..., 0]


def _centred(added: Tensor, readout: Tensor) -> Tensor:
    scores = added @ readout.T
    return scores - scores.mean(-1, keepdim=True)


logit_attribution = exercise(
    "logit_attribution",
    reference=lambda added, readout, targets: _pick(_centred(added, readout), targets),
    cases=_parts,
)
