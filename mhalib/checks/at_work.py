"""Exercises on the layer at work in sequences: chapters 7 to 9."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ..masks import causal_mask, padding_mask
from ._exercise import Case, Exercise, Mistake, draw, sizes


def _lens_and_length(rng: random.Random) -> Iterator[Case]:
    yield {"valid_lens": torch.tensor([2, 3]), "num_tokens": 3}
    for _ in range(3):
        batch_size, num_tokens = sizes(rng, 2, smallest=3, largest=8)
        lens = torch.tensor([rng.randint(1, num_tokens) for _ in range(batch_size)])
        yield {"valid_lens": lens, "num_tokens": num_tokens}


def _both(valid_lens: Tensor, num_tokens: int) -> Tensor:
    return padding_mask(valid_lens, num_tokens) & causal_mask(num_tokens)


decoder_mask = Exercise(
    "decoder_mask",
    chapter=7,
    title="hide padding and future together",
    reference=_both,
    cases=_lens_and_length,
    verified="four batches; a key is seen only if it is real and not later, shape (B, 1, N, N).",
    points=2,
    mistakes=[
        Mistake(
            "or",
            "you joined the masks by `or`: a key is seen if it is real OR in the past, so the future leaks. Both must "
            "allow: `and`.",
            lambda valid_lens, num_tokens: padding_mask(valid_lens, num_tokens) | causal_mask(num_tokens),
        ),
        Mistake(
            "future only",
            "the padding is not hidden.",
            lambda valid_lens, num_tokens: causal_mask(num_tokens).expand(len(valid_lens), 1, -1, -1),
        ),
        Mistake(
            "padding only",
            "the future is not hidden.",
            lambda valid_lens, num_tokens: padding_mask(valid_lens, num_tokens).expand(-1, -1, num_tokens, -1),
        ),
        Mistake(
            "future of the keys",
            "the triangle is the wrong one: this hides the past.",
            lambda valid_lens, num_tokens: padding_mask(valid_lens, num_tokens) & causal_mask(num_tokens).mT,
        ),
        Mistake(
            "added",
            "you added the masks: they became numbers, 0, 1 and 2. Join booleans by &.",
            lambda valid_lens, num_tokens: padding_mask(valid_lens, num_tokens).int() + causal_mask(num_tokens).int(),
        ),
        Mistake(
            "no axis for the heads",
            "the values are right, but (B, N, N) broadcasts against (B, h, N, N) as if examples were heads. Keep an "
            "axis of size 1 for the heads.",
            lambda valid_lens, num_tokens: _both(valid_lens, num_tokens)[:, 0],
        ),
    ],
)


def _cross_shapes(rng: random.Random) -> Iterator[Case]:
    for _ in range(4):
        batch_size, num_queries, num_kvpairs, num_heads, head_dim = sizes(rng, 5, largest=9)
        yield {
            "target_shape": (batch_size, num_queries, num_heads * head_dim),
            "memory_shape": (batch_size, num_kvpairs, num_heads * head_dim),
            "num_heads": num_heads,
        }


cross_shapes = Exercise(
    "cross_shapes",
    chapter=7,
    title="shapes of a cross-attention's output and weights",
    reference=lambda target_shape, memory_shape, num_heads: (
        target_shape,
        (target_shape[0], num_heads, target_shape[1], memory_shape[1]),
    ),
    cases=_cross_shapes,
    parts=("the shape of the output", "the shape of the weights"),
    verified="four pairs of sequences with different lengths.",
    mistakes=[
        Mistake(
            "output as long as the memory",
            "the output has a row for each query, so it is as long as the target, not as the memory.",
            lambda target_shape, memory_shape, num_heads: (
                memory_shape,
                (target_shape[0], num_heads, target_shape[1], memory_shape[1]),
            ),
        ),
        Mistake(
            "weights transposed",
            "rows of the weights are queries, from the target; columns are keys, from the memory.",
            lambda target_shape, memory_shape, num_heads: (
                target_shape,
                (target_shape[0], num_heads, memory_shape[1], target_shape[1]),
            ),
        ),
        Mistake(
            "square weights",
            "the weights are not square here: queries come from the target, keys from the memory.",
            lambda target_shape, memory_shape, num_heads: (
                target_shape,
                (target_shape[0], num_heads, target_shape[1], target_shape[1]),
            ),
        ),
        Mistake(
            "heads averaged",
            "the weights are per head in this book: an axis h is missing.",
            lambda target_shape, memory_shape, num_heads: (
                target_shape,
                (target_shape[0], target_shape[1], memory_shape[1]),
            ),
        ),
    ],
)


def _targets(rng: random.Random) -> Iterator[Case]:
    yield {"target": torch.tensor([[1, 5, 6, 2, 0], [1, 7, 2, 0, 0]])}
    for _ in range(3):
        batch_size, num_tokens = sizes(rng, 2, smallest=3, largest=8)
        yield {"target": torch.tensor([[rng.randint(3, 50) for _ in range(num_tokens)] for _ in range(batch_size)])}


shifted = Exercise(
    "shifted",
    chapter=7,
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


def _pairs(rng: random.Random) -> Iterator[Case]:
    for number in range(4):
        count, num_tokens = sizes(rng, 2, smallest=4, largest=9)
        expected = torch.randint(
            3, 9, (count, num_tokens), generator=torch.Generator().manual_seed(rng.randrange(2**31))
        )
        lens = [rng.randint(2, num_tokens) for _ in range(count)]
        lens[2] = num_tokens - 1  # so that there is something behind its end
        for row, length in enumerate(lens):
            expected[row, length:] = 0
        written = expected.clone()
        written[0, 0] += 1
        written[1, lens[1] - 1] += 1
        if number % 2:
            written[2, lens[2] :] = 4  # behind the end, where it does not matter
        yield {"written": written, "expected": expected}


def _exact(written: Tensor, expected: Tensor) -> float:
    return ((written == expected) | (expected == 0)).all(1).float().mean().item()


share_exact = Exercise(
    "share_exact",
    chapter=8,
    title="share of sentences that are right to the last word",
    reference=_exact,
    cases=_pairs,
    verified="four batches; what stands where the expected sentence has padding (0) does not count.",
    mistakes=[
        Mistake(
            "per word",
            "this is the share of right words. One wrong word makes a sentence wrong.",
            lambda written, expected: (written == expected)[expected != 0].float().mean().item(),
        ),
        Mistake(
            "per place",
            "this is the share of right places, padding among them: short sentences look better than they are.",
            lambda written, expected: (written == expected).float().mean().item(),
        ),
        Mistake(
            "padding counted",
            "you compare the padding, too. What a model writes behind the end of a sentence does not matter.",
            lambda written, expected: (written == expected).all(1).float().mean().item(),
        ),
        Mistake(
            "any word",
            "a sentence counts as right here as soon as one word is. All must be.",
            lambda written, expected: ((written == expected) & (expected != 0)).any(1).float().mean().item(),
        ),
    ],
)


def _aligned(rng: random.Random) -> Iterator[Case]:
    for _ in range(4):
        num_heads, num_queries, num_kvpairs = sizes(rng, 3, smallest=3, largest=8)
        weights = (2 * draw(rng, num_heads, num_queries, num_kvpairs)).softmax(-1)
        places = torch.tensor([rng.randrange(num_kvpairs) for _ in range(num_queries)])
        best = weights[0].argmax(-1)
        places[: num_queries // 2] = best[: num_queries // 2]  # so that head 0 is right half of the time
        yield {"weights": weights, "places": places}


alignment_share = Exercise(
    "alignment_share",
    chapter=8,
    title="how often a head looks at the right source word",
    reference=lambda weights, places: (weights.argmax(-1) == places).float().mean(-1),
    cases=_aligned,
    verified="four sentences; one share for each head.",
    mistakes=[
        Mistake(
            "mean weight",
            "this is the mean weight on the right word. The exercise counts queries whose largest weight is there.",
            lambda weights, places: weights.gather(-1, places.expand(len(weights), -1)[..., None])[..., 0].mean(-1),
        ),
        Mistake(
            "over the wrong axis",
            "you took the largest weight of each key, over the queries. Take it over the keys.",
            lambda weights, places: (
                (weights.argmax(-2)[:, : len(places)] == places[: weights.shape[-1]]).float().mean(-1)
            ),
        ),
        Mistake(
            "heads averaged",
            "this is one number for all heads; keep their axis.",
            lambda weights, places: (weights.argmax(-1) == places).float().mean(),
        ),
        Mistake(
            "counts",
            "these are counts. Divide by the number of target words.",
            lambda weights, places: (weights.argmax(-1) == places).float().sum(-1),
        ),
    ],
)


def _repeated(rng: random.Random) -> Iterator[Case]:
    for period in (3, 4, 5):
        num_heads, num_tokens = rng.choice([2, 3]), 2 * period + rng.randint(1, 3)
        scores = draw(rng, num_heads, num_tokens, num_tokens) * 2
        scores[0].diagonal(1 - period).add_(5.0)
        yield {"weights": scores.masked_fill(~causal_mask(num_tokens), -torch.inf).softmax(-1), "period": period}


def _induction(weights: Tensor, period: int) -> Tensor:
    """The first query of this diagonal, period - 1, has a token that has not been there before."""
    return weights.diagonal(1 - period, -2, -1)[..., 1:].mean(-1)


induction_weight = Exercise(
    "induction_weight",
    chapter=9,
    title="weight on the token after the last time",
    reference=_induction,
    cases=_repeated,
    verified="three sequences that repeat with a known period; queries without an earlier occurrence are left out.",
    points=2,
    mistakes=[
        Mistake(
            "one query too many",
            "the diagonal begins one query too early: token period - 1 has not occurred before, it is the last of the "
            "first round. Leave it out.",
            lambda weights, period: weights.diagonal(1 - period, -2, -1).mean(-1),
        ),
        Mistake(
            "the same token",
            "you measure the weight on the earlier occurrence of the token itself. An induction head looks at the "
            "token after it, one further on.",
            lambda weights, period: weights.diagonal(-period, -2, -1).mean(-1),
        ),
        Mistake(
            "the token before",
            "you look at the token before the earlier occurrence: off by two.",
            lambda weights, period: weights.diagonal(-period - 1, -2, -1).mean(-1),
        ),
        Mistake(
            "divided by all queries",
            "you divided by all queries. The first ones have no earlier occurrence; leave them out of the mean.",
            lambda weights, period: weights.diagonal(1 - period, -2, -1).sum(-1) / weights.shape[-1],
        ),
        Mistake(
            "previous token",
            "this is the score of a previous-token head.",
            lambda weights, period: weights.diagonal(-1, -2, -1).mean(-1),
        ),
        Mistake(
            "transposed",
            "you read rows as keys: the diagonal above the main one is the future, which is hidden.",
            lambda weights, period: weights.diagonal(period - 1, -2, -1).mean(-1),
        ),
    ],
)


def _logits(rng: random.Random) -> Iterator[Case]:
    yield {"logits": torch.tensor([1.0, 3.0, 2.0, 0.0]), "k": 2, "temperature": 0.5}
    for size in sizes(rng, 3, smallest=5, largest=12):
        yield {"logits": draw(rng, size) * 2, "k": rng.randint(2, size - 2), "temperature": rng.choice([0.5, 2.0, 3.0])}


def _top_k(logits: Tensor, k: int) -> Tensor:
    return logits.masked_fill(logits < logits.topk(k).values[-1], -torch.inf)


next_token_probabilities = Exercise(
    "next_token_probabilities",
    chapter=9,
    title="probabilities with temperature and top-k",
    reference=lambda logits, k, temperature: (_top_k(logits, k) / temperature).softmax(-1),
    cases=_logits,
    verified="four sets of logits: k probabilities that sum to 1, the others exactly 0.",
    points=2,
    mistakes=[
        Mistake(
            "not renormalised",
            "the k probabilities do not sum to 1: those that you dropped had taken their part. Drop logits before the "
            "softmax, or divide by the sum.",
            lambda logits, k, temperature: torch.where(
                logits >= logits.topk(k).values[-1], (logits / temperature).softmax(-1), 0.0
            ),
        ),
        Mistake(
            "temperature multiplied",
            "you multiplied by the temperature. A high temperature makes the distribution flatter: divide.",
            lambda logits, k, temperature: (_top_k(logits, k) * temperature).softmax(-1),
        ),
        Mistake(
            "temperature forgotten",
            "the temperature has no effect.",
            lambda logits, k, temperature: _top_k(logits, k).softmax(-1),
        ),
        Mistake(
            "temperature on probabilities",
            "you divided the probabilities by the temperature, which the normalisation undoes. Divide the logits.",
            lambda logits, k, temperature: _top_k(logits, k).softmax(-1) / temperature,
        ),
        Mistake(
            "dropped to 0",
            "you set the dropped logits to 0, and exp(0) = 1 is not nothing. They must become minus infinity.",
            lambda logits, k, temperature: (
                logits.masked_fill(logits < logits.topk(k).values[-1], 0.0) / temperature
            ).softmax(-1),
        ),
        Mistake(
            "top-k ignored",
            "all tokens can be drawn: k has no effect.",
            lambda logits, k, temperature: (logits / temperature).softmax(-1),
        ),
    ],
)
