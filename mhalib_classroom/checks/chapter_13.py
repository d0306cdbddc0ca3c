"""Chapter 13: what a head copies, and what each part of a model adds to a logit."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw


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


copying_table = Exercise(
    "copying_table",
    chapter=13,
    title="what one head adds to each logit",
    reference=_copying,
    cases=_weights_of_a_model,
    verified="four models with 2 to 5 heads: row a, column b is what the head adds to the logit of b when it reads a.",
    points=2,
    mistakes=[
        Mistake(
            "transposed",
            "rows and columns are exchanged: row a must be what the head writes when it reads symbol a.",
            lambda embedding, W_v, W_o, readout, head, num_heads: (
                _copying(embedding, W_v, W_o, readout, head, num_heads).T
            ),
        ),
        Mistake(
            "all heads",
            "this is the table of all heads together. Take the rows of W_v and the columns of W_o that belong to the "
            "one head.",
            lambda embedding, W_v, W_o, readout, head, num_heads: embedding @ W_v.T @ W_o.T @ readout.T,
        ),
        Mistake(
            "rows of W_o",
            "you took the head's rows of W_o. What a head writes goes through its COLUMNS of W_o: d values come in, "
            "D numbers come out.",
            _rows_of_o,
        ),
        Mistake(
            "columns of W_v",
            "you took the head's columns of W_v. A head's values are ROWS of W_v: D numbers come in, d come out.",
            _columns_of_v,
        ),
        Mistake(
            "rows and columns exchanged",
            "you took columns of W_v and rows of W_o; it is the other way round.",
            _rows_and_columns,
        ),
        Mistake(
            "interleaved",
            "you took every num_heads-th channel. A head's channels are one block: head * d to (head + 1) * d.",
            _interleaved,
        ),
        Mistake(
            "embedding and readout exchanged",
            "you began with the readout and ended with the embedding: the head reads embeddings and writes towards "
            "the readout.",
            lambda embedding, W_v, W_o, readout, head, num_heads: _copying(
                readout, W_v, W_o, embedding, head, num_heads
            ),
        ),
        Mistake(
            "W_o left out",
            "W_o is missing: you compared the head's values with a part of the readout. The values go through W_o "
            "first.",
            lambda embedding, W_v, W_o, readout, head, num_heads: (
                embedding @ W_v[_own(W_v, head, num_heads)].T @ readout[:, _own(W_v, head, num_heads)].T
            ),
        ),
        Mistake(
            "readout left out",
            "you stopped at what the head writes, D numbers for each symbol. Multiply by the readout to get logits.",
            lambda embedding, W_v, W_o, readout, head, num_heads: (
                embedding @ W_v[_own(W_v, head, num_heads)].T @ W_o[:, _own(W_v, head, num_heads)].T
            ),
        ),
    ],
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


logit_attribution = Exercise(
    "logit_attribution",
    chapter=13,
    title="what each part adds to the right logit",
    reference=lambda added, readout, targets: _pick(_centred(added, readout), targets),
    cases=_parts,
    verified="four models: the parts sum to the logit of the right token, minus the mean of all logits at that place.",
    points=2,
    mistakes=[
        Mistake(
            "mean not subtracted",
            "you did not subtract the mean over the symbols. A part that raises all logits alike changes no "
            "prediction, and should count as 0.",
            lambda added, readout, targets: _pick(added @ readout.T, targets),
        ),
        Mistake(
            "softmax",
            "you took a softmax of each part. Probabilities of the parts do not add up to anything; logits do.",
            lambda added, readout, targets: _pick((added @ readout.T).softmax(-1), targets),
        ),
        Mistake(
            "log-softmax",
            "you took a log-softmax of each part. Its normalisation is not linear, so the parts no longer sum to the "
            "whole. Subtract the mean.",
            lambda added, readout, targets: _pick((added @ readout.T).log_softmax(-1), targets),
        ),
        Mistake(
            "mean over the places",
            "you subtracted the mean over the positions. It is the mean over the symbols, the last axis of the logits.",
            lambda added, readout, targets: _pick(
                added @ readout.T - (added @ readout.T).mean(-2, keepdim=True), targets
            ),
        ),
        Mistake(
            "mean over the parts",
            "you subtracted the mean over the parts. It is the mean over the symbols, the last axis of the logits.",
            lambda added, readout, targets: _pick(
                added @ readout.T - (added @ readout.T).mean(0, keepdim=True), targets
            ),
        ),
        Mistake(
            "mean of the whole",
            "you subtracted from each part the mean of the WHOLE logits, so it is subtracted as often as there are "
            "parts. Each part has its own mean.",
            lambda added, readout, targets: _pick(
                added @ readout.T - (added @ readout.T).sum(0).mean(-1, keepdim=True), targets
            ),
        ),
        Mistake(
            "one sum",
            "you added the parts up. Keep them apart: one number for each part and place.",
            lambda added, readout, targets: _pick(_centred(added.sum(0, keepdim=True), readout), targets)[0],
        ),
        Mistake(
            "the largest logit",
            "this is each part's largest logit. Take the logit of the token in `targets`.",
            lambda added, readout, targets: _centred(added, readout).amax(-1),
        ),
        Mistake(
            "one place too early",
            "you took the target of the next position. `targets[b, n]` belongs to position n already.",
            lambda added, readout, targets: _pick(_centred(added, readout), targets.roll(-1, -1)),
        ),
    ],
)
