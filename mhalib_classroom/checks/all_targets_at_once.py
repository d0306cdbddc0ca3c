"""What a decoder reads and answers in training, and its loss."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _targets(rng: random.Random) -> Iterator[Case]:
    yield {"target": torch.tensor([[1, 5, 6, 2, 0], [1, 7, 2, 0, 0]])}
    for batch_size, num_tokens in apart(rng, 2, smallest=3, largest=8):
        yield {"target": torch.tensor([[rng.randint(3, 50) for _ in range(num_tokens)] for _ in range(batch_size)])}


shifted = exercise(
    "shifted",
    reference=lambda target: (target[:, :-1], target[:, 1:]),
    cases=_targets,
)


def _padded_targets(rng: random.Random) -> Iterator[Case]:
    """The first text is as long as the batch; the second is shorter, by two tokens at least; token 0 is asked for."""
    drawn = apart(rng, 3, smallest=5, largest=11, of=lambda B, N, words: [B, N, words, N - 1])
    for batch_size, num_tokens, vocab_size in ([2, 4, 5], *drawn):
        padding = 0 if batch_size == 2 else 3
        words = [word for word in range(vocab_size) if word != padding]
        lens = [num_tokens, num_tokens - 2, *(rng.randint(2, num_tokens) for _ in range(batch_size - 2))]
        rows = [[rng.choice(words) for _ in range(n)] + [padding] * (num_tokens - n) for n in lens]
        if padding:
            rows[0][-1] = 0
        yield {
            "logits": 2 * draw(rng, len(rows), num_tokens - 1, vocab_size),
            "target": torch.tensor(rows),
            "padding": padding,
        }


def _losses(logits: Tensor, answers: Tensor) -> Tensor:
    return F.cross_entropy(logits.mT, answers, reduction="none")


def _target_loss(logits: Tensor, target: Tensor, padding: int) -> Tensor:
    answers = target[:, 1:]
    return _losses(logits, answers)[answers != padding].mean()


def _mean_of_means(logits: Tensor, target: Tensor, padding: int) -> Tensor:
    real = target[:, 1:] != padding
    return ((_losses(logits, target[:, 1:]) * real).sum(1) / real.sum(1)).mean()


target_loss = exercise(
    "target_loss",
    reference=_target_loss,
    cases=_padded_targets,
)
