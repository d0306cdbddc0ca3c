"""Exercises on the layer at work in sequences: chapters 7 to 9."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from ...masks import causal_mask, padding_mask
from ._exercise import Case, Exercise, Mistake, draw, sizes


def _lens_and_length(rng: random.Random) -> Iterator[Case]:
    yield {"valid_lens": torch.tensor([2, 3]), "num_tokens": 3}
    for _ in range(3):
        batch_size, num_tokens = sizes(rng, 2, smallest=3, largest=8)
        lens = [1] + [rng.randint(1, num_tokens) for _ in range(batch_size - 1)]
        yield {"valid_lens": torch.tensor(lens), "num_tokens": num_tokens}


def _triangle(num_tokens: int, diagonal: int) -> Tensor:
    return torch.ones(num_tokens, num_tokens, dtype=torch.bool).tril(diagonal)


def _both(valid_lens: Tensor, num_tokens: int) -> Tensor:
    return padding_mask(valid_lens, num_tokens) & causal_mask(num_tokens)


decoder_mask = Exercise(
    "decoder_mask",
    chapter=7,
    title="hide padding and future together",
    reference=_both,
    cases=_lens_and_length,
    verified="four batches; a key is seen only if it is real and not later, shape (B, 1, N, N).",
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
            "either, not both",
            "`^` is true where either mask allows, but not both. Both must allow: `&`.",
            lambda valid_lens, num_tokens: padding_mask(valid_lens, num_tokens) ^ causal_mask(num_tokens),
        ),
        Mistake(
            "inverted",
            "True marks what is hidden here. True must mean: may attend.",
            lambda valid_lens, num_tokens: ~_both(valid_lens, num_tokens),
        ),
        Mistake(
            "hides itself",
            "no token sees itself here, and the first one sees nothing. A token may see itself: leave the diagonal in.",
            lambda valid_lens, num_tokens: padding_mask(valid_lens, num_tokens) & _triangle(num_tokens, -1),
        ),
        Mistake(
            "one token ahead",
            "each token sees the next one, which it should foretell: the triangle is one diagonal too large.",
            lambda valid_lens, num_tokens: padding_mask(valid_lens, num_tokens) & _triangle(num_tokens, 1),
        ),
        Mistake(
            "one padded key",
            "one padded key is seen: with a length of n, the keys 0 to n - 1 are real. Compare with <, not <=.",
            lambda valid_lens, num_tokens: (
                (torch.arange(num_tokens) <= valid_lens[:, None, None, None]) & causal_mask(num_tokens)
            ),
        ),
        Mistake(
            "padded queries hidden",
            "you hid padded queries, the rows. Padded keys, the columns, are what nobody may look at.",
            lambda valid_lens, num_tokens: padding_mask(valid_lens, num_tokens).mT & causal_mask(num_tokens),
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


def _in_another_order(
    target_shape: tuple[int, ...], memory_shape: tuple[int, ...], num_heads: int, order: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    weights = (target_shape[0], num_heads, target_shape[1], memory_shape[1])
    return target_shape, tuple(weights[axis] for axis in order)


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
        *(
            Mistake(
                f"weights as {', '.join('BhQK'[axis] for axis in order)}",
                "the weights are (B, h, Q, K), in this order: each head of each example has its matrix.",
                partial(_in_another_order, order=order),
            )
            for order in ((0, 2, 1, 3), (0, 2, 3, 1), (1, 0, 2, 3))
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
    yield {  # words exchanged; more after the end; two that stop early
        "written": torch.tensor([[4, 3, 5, 2], [6, 7, 2, 9], [8, 2, 0, 0], [5, 0, 0, 0]]),
        "expected": torch.tensor([[3, 4, 5, 2], [6, 7, 2, 0], [8, 2, 5, 2], [5, 8, 2, 0]]),
    }
    for _ in range(3):
        num_tokens = rng.randint(6, 9)
        changes: list[_Change] = [
            _ends_early,
            _ends_early,
            _of_equal_sum,
            partial(_with_wrong, count=3),
            _talks_on,
            _all_wrong,
        ]
        changes += [_exchanged] * 2 + [_with_wrong] * 3 + [_as_it_is] * rng.randint(1, 3)
        rng.shuffle(changes)
        pairs = [_pair(rng, change, num_tokens) for change in changes]
        written, expected = torch.tensor(pairs).unbind(1)
        yield {"written": written.clone(), "expected": expected.clone()}


_Change = Callable[[list[int], int], list[int]]
"""From the right words, and a place among them that is not the last, to what a model wrote."""


def _pair(rng: random.Random, change: _Change, num_tokens: int) -> list[list[int]]:
    """What a model wrote, and what is right: 4 words or more, all different, then padding."""
    words = rng.sample(range(20, 60, 2), rng.randint(4, num_tokens - 1))
    written = change(words, rng.randrange(len(words) - 1))
    return [(row + [0] * num_tokens)[:num_tokens] for row in (written, words)]


def _as_it_is(words: list[int], place: int) -> list[int]:
    return words


def _talks_on(words: list[int], place: int) -> list[int]:
    return [*words, 7]


def _ends_early(words: list[int], place: int) -> list[int]:
    return words[:-1]


def _exchanged(words: list[int], place: int) -> list[int]:
    return [*words[:place], words[place + 1], words[place], *words[place + 2 :]]


def _of_equal_sum(words: list[int], place: int) -> list[int]:
    return [*words[:place], words[place] + 1, words[place + 1] - 1, *words[place + 2 :]]


def _with_wrong(words: list[int], place: int, count: int = 1) -> list[int]:
    return [word + ((number - place) % len(words) < count) for number, word in enumerate(words)]


def _all_wrong(words: list[int], place: int) -> list[int]:
    return [word + 1 for word in words]


def _right_words(written: Tensor, expected: Tensor) -> Tensor:
    return (written == expected) | (expected == 0)


def _exact(written: Tensor, expected: Tensor) -> float:
    return _right_words(written, expected).all(1).float().mean().item()


share_exact = Exercise(
    "share_exact",
    chapter=8,
    title="share of sentences that are right to the last word",
    reference=_exact,
    cases=_pairs,
    verified="four batches, with sentences that end early, words in another order, and one or more mistakes; what "
    "stands where the expected sentence has padding (0) does not count.",
    points=2,
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
            "you compare the padding, too. What a model writes after the end of a sentence does not matter.",
            lambda written, expected: (written == expected).all(1).float().mean().item(),
        ),
        Mistake(
            "early ends excused",
            "you excuse places where the MODEL wrote 0: a sentence that stops too early is wrong. Only where 0 is "
            "expected does it not matter what was written.",
            lambda written, expected: (_right_words(written, expected) | (written == 0)).all(1).float().mean().item(),
        ),
        Mistake(
            "the model's padding excused",
            "you leave out the places where the MODEL wrote 0, instead of those where 0 is expected: who writes "
            "nothing at all is always right.",
            lambda written, expected: ((written == expected) | (written == 0)).all(1).float().mean().item(),
        ),
        Mistake(
            "mean of all places",
            "this is the share of places that are right or padding. One wrong word makes a sentence wrong: `all` over "
            "the words first.",
            lambda written, expected: _right_words(written, expected).float().mean().item(),
        ),
        Mistake(
            "order ignored",
            "you compare which words there are, in whatever order. Each must stand in its place.",
            lambda written, expected: (
                ((written * (expected != 0)).sort(1).values == expected.sort(1).values).all(1).float().mean().item()
            ),
        ),
        Mistake(
            "sums compared",
            "you compare the sums of the ids: other words, or another order, can have the same sum. Compare word by "
            "word.",
            lambda written, expected: ((written * (expected != 0)).sum(1) == expected.sum(1)).float().mean().item(),
        ),
        Mistake(
            "one mistake allowed",
            "a sentence with one wrong word counts as right here. All words must be right.",
            lambda written, expected: ((~_right_words(written, expected)).sum(1) <= 1).float().mean().item(),
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
    points=2,
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


def _on_all_followers(weights: Tensor, period: int) -> Tensor:
    """As `mhalib.scores.induction_score`: one round before, two rounds before, and so on."""
    places = torch.arange(weights.shape[-1])
    back = places[:, None] - places  # [t, j]: how far key j is before query t
    follows = (back >= 0) & ((back + 1) % period == 0) & (places > 0)
    return (weights * follows).sum(-1)[:, period:].mean(-1)


induction_weight = Exercise(
    "induction_weight",
    chapter=9,
    title="weight on the token after the last time",
    reference=_induction,
    cases=_repeated,
    verified="three sequences that repeat with a known period; queries without an earlier occurrence are left out.",
    points=3,
    mistakes=[
        Mistake(
            "one query too many",
            "the diagonal begins one query too early: token period - 1 has not occurred before, it is the last of the "
            "first round. Leave it out.",
            lambda weights, period: weights.diagonal(1 - period, -2, -1).mean(-1),
        ),
        Mistake(
            "last query left out",
            "you left out the last query of the diagonal. It is the first that has no earlier occurrence: leave that "
            "one out, with [..., 1:].",
            lambda weights, period: weights.diagonal(1 - period, -2, -1)[..., :-1].mean(-1),
        ),
        Mistake(
            "all earlier followers",
            "this is the weight on all earlier followers, as in the chapter's score; here only the one after the last "
            "occurrence counts.",
            _on_all_followers,
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
    first, second, far, one, all_of_them = sizes(rng, 5, smallest=5, largest=12)
    for size in (first, second):
        yield {"logits": draw(rng, size) * 2, "k": rng.randint(2, size - 2), "temperature": rng.choice([0.5, 2.0])}
    yield {"logits": draw(rng, far) * 8 - 200, "k": rng.randint(2, far - 2), "temperature": 4.0}
    yield {"logits": draw(rng, one), "k": 1, "temperature": 3.0}
    yield {"logits": draw(rng, all_of_them), "k": all_of_them, "temperature": 3.0}


def _top_k(logits: Tensor, k: int, dropped: float = -torch.inf) -> Tensor:
    return logits.masked_fill(logits < logits.topk(k).values[-1], dropped)


def _dropped_to(logits: Tensor, k: int, temperature: float, low: float) -> Tensor:
    return (_top_k(logits, k, low) / temperature).softmax(-1)


next_token_probabilities = Exercise(
    "next_token_probabilities",
    chapter=9,
    title="probabilities with temperature and top-k",
    reference=lambda logits, k, temperature: (_top_k(logits, k) / temperature).softmax(-1),
    cases=_logits,
    verified="six sets of logits, one of them far below 0, and with k = 1 and k = num_words among them: k "
    "probabilities that sum to 1, the others 0.",
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
            lambda logits, k, temperature: (_top_k(logits, k, 0.0) / temperature).softmax(-1),
        ),
        *(
            Mistake(
                f"dropped to {low}",
                "a dropped token keeps a probability: its logit must be minus infinity, not just small. Real logits "
                "can be lower than any small number.",
                partial(_dropped_to, low=low),
            )
            for low in (-10, -100)
        ),
        Mistake(
            "k - 1 kept",
            "you kept only k - 1 tokens: the k-th likeliest stays, too. Drop what is smaller than its logit (<), not "
            "what equals it (<=).",
            lambda logits, k, temperature: (
                logits.masked_fill(logits <= logits.topk(k).values[-1], -torch.inf) / temperature
            ).softmax(-1),
        ),
        Mistake(
            "k + 1 kept",
            "you kept k + 1 tokens. In descending order the k-th likeliest has the index k - 1.",
            lambda logits, k, temperature: (
                logits.masked_fill(logits < logits.sort(descending=True).values[k], -torch.inf) / temperature
            ).softmax(-1),
        ),
        Mistake(
            "top-k ignored",
            "all tokens can be drawn: k has no effect.",
            lambda logits, k, temperature: (logits / temperature).softmax(-1),
        ),
    ],
)
