"""Chapter 10: what a decoder reads and answers in training, and its loss."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw


def _targets(rng: random.Random) -> Iterator[Case]:
    yield {"target": torch.tensor([[1, 5, 6, 2, 0], [1, 7, 2, 0, 0]])}
    for batch_size, num_tokens in apart(rng, 2, smallest=3, largest=8):
        yield {"target": torch.tensor([[rng.randint(3, 50) for _ in range(num_tokens)] for _ in range(batch_size)])}


shifted = Exercise(
    "shifted",
    chapter=10,
    title="what a decoder reads, and what it should answer",
    reference=lambda target: (target[:, :-1], target[:, 1:]),
    cases=_targets,
    parts=("the decoder's input", "the array of answers"),
    verified="four batches: at every position the answer is the token after it.",
    mistakes=[
        Mistake(
            "not shifted",
            "the decoder reads the token that it should answer with: it only has to copy. Shift by one.",
            lambda target: (target, target),
        ),
        Mistake(
            "shifted the wrong way",
            "it reads the later token and should answer with the one before: input and answer have changed places.",
            lambda target: (target[:, 1:], target[:, :-1]),
        ),
        Mistake(
            "rolled",
            "you rolled the target round, so the last answer is the first token. Cut one token off each end instead.",
            lambda target: (target, target.roll(-1, 1)),
        ),
        Mistake(
            "one token lost",
            "the answers are right, but the input is one token too long for them.",
            lambda target: (target, target[:, 1:]),
        ),
    ],
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


target_loss = Exercise(
    "target_loss",
    chapter=10,
    title="the loss of a batch of padded targets",
    reference=_target_loss,
    cases=_padded_targets,
    verified="four batches: the mean of -log p over all answers that are not padding.",
    points=2,
    mistakes=[
        Mistake(
            "padding counted",
            "answers that are padding count too: the model would be trained to write padding, and a batch of short "
            "texts would be about little else. Leave them out.",
            lambda logits, target, padding: _losses(logits, target[:, 1:]).mean(),
        ),
        Mistake(
            "not shifted",
            "the logits at a position are held against the token that is READ there. The answer is the token after it: "
            "target[:, 1:].",
            lambda logits, target, padding: F.cross_entropy(logits.mT, target[:, :-1], ignore_index=padding),
        ),
        Mistake(
            "divided by all",
            "the padding adds nothing to your sum, but it counts where you divide: divide by the number of real "
            "answers.",
            lambda logits, target, padding: (_losses(logits, target[:, 1:]) * (target[:, 1:] != padding)).mean(),
        ),
        Mistake(
            "mean of means",
            "you averaged within each text, then over the texts: a token of a short text then counts for more. Average "
            "over all real answers of the batch at once.",
            _mean_of_means,
        ),
        Mistake(
            "summed",
            "you added the losses. Average them over the real answers.",
            lambda logits, target, padding: _losses(logits, target[:, 1:])[target[:, 1:] != padding].sum(),
        ),
        Mistake(
            "padding of the input",
            "you left out the positions that READ padding. The last real token is answered by padding, too: look at "
            "the answers, target[:, 1:].",
            lambda logits, target, padding: _losses(logits, target[:, 1:])[target[:, :-1] != padding].mean(),
        ),
        Mistake(
            "token 0 left out",
            "you left out token 0. What is padding, the argument `padding` says; here token 0 can be a word.",
            lambda logits, target, padding: F.cross_entropy(logits.mT, target[:, 1:], ignore_index=0),
        ),
        Mistake(
            "softmax twice",
            "cross_entropy takes logits and applies the softmax itself. You gave it probabilities.",
            lambda logits, target, padding: F.cross_entropy(logits.softmax(-1).mT, target[:, 1:], ignore_index=padding),
        ),
        Mistake(
            "no softmax",
            "you averaged the logits themselves. Make probabilities of them first: log_softmax over the vocabulary.",
            lambda logits, target, padding: F.nll_loss(logits.mT, target[:, 1:], ignore_index=padding),
        ),
        Mistake(
            "no logarithm",
            "you averaged the probabilities. The loss is minus the mean of their LOGARITHMS.",
            lambda logits, target, padding: -F.nll_loss(logits.softmax(-1).mT, target[:, 1:], ignore_index=padding),
        ),
        Mistake(
            "sign",
            "the sign is wrong: a loss must fall when the right token becomes likelier.",
            lambda logits, target, padding: -_target_loss(logits, target, padding),
        ),
        Mistake(
            "softmax over positions",
            "your softmax runs over the positions, dim=1. At each position the probabilities of the vocabulary, the "
            "last axis, must sum to 1.",
            lambda logits, target, padding: F.nll_loss(logits.log_softmax(1).mT, target[:, 1:], ignore_index=padding),
        ),
    ],
)
