"""Chapter 2: masks that hide padding and the future."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import torch

from mhalib.attention import causal_mask as right_causal_mask
from mhalib.attention import padding_mask as right_padding_mask

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart


def _lens(rng: random.Random) -> Iterator[Case]:
    yield {"valid_lens": torch.tensor([2, 0, 3]), "num_kvpairs": 4}
    for batch_size, num_kvpairs in apart(rng, 2, smallest=3):
        valid_lens = torch.tensor([rng.randint(0, num_kvpairs) for _ in range(batch_size)])
        yield {"valid_lens": valid_lens, "num_kvpairs": num_kvpairs}


padding_mask = Exercise(
    "padding_mask",
    chapter=2,
    title="hide the padding of a batch",
    reference=right_padding_mask,
    cases=_lens,
    verified="four batches, with lengths of 0 and of K among them; the shape (B, 1, 1, K) fits heads and queries.",
    mistakes=[
        Mistake(
            "inverted",
            "True marks the padding here. In this book True means: may attend.",
            lambda valid_lens, num_kvpairs: ~right_padding_mask(valid_lens, num_kvpairs),
        ),
        Mistake(
            "one key too many",
            "each query sees one key too many: with a length of n, the keys 0 to n - 1 are real. "
            "Compare with <, not <=.",
            lambda valid_lens, num_kvpairs: torch.arange(num_kvpairs) <= valid_lens[:, None, None, None],
        ),
        Mistake(
            "shape (B, K)",
            "the values are right, but (B, K) broadcasts against (B, h, Q, K) as if examples were queries. Put axes of "
            "size 1 in for heads and queries: (B, 1, 1, K).",
            lambda valid_lens, num_kvpairs: torch.arange(num_kvpairs) < valid_lens[:, None],
        ),
        Mistake(
            "shape (B, 1, K)",
            "the values are right, but (B, 1, K) broadcasts against (B, h, Q, K) as if examples were heads. One axis "
            "is missing: (B, 1, 1, K).",
            lambda valid_lens, num_kvpairs: torch.arange(num_kvpairs) < valid_lens[:, None, None],
        ),
        Mistake(
            "numbers, not booleans",
            "these are numbers 0 and 1, not booleans. A mask of numbers would be added to the scores by torch.",
            lambda valid_lens, num_kvpairs: right_padding_mask(valid_lens, num_kvpairs).float(),
        ),
    ],
)


def _lengths(rng: random.Random) -> Iterator[Case]:
    yield {"num_tokens": 3}
    for (num_tokens,) in apart(rng, 1, smallest=4, largest=9):
        yield {"num_tokens": num_tokens}


causal_mask = Exercise(
    "causal_mask",
    chapter=2,
    title="hide the future",
    reference=right_causal_mask,
    cases=_lengths,
    verified="four lengths; every token sees itself and what came before.",
    mistakes=[
        Mistake(
            "sees the future",
            "this hides the past and shows the future: rows are queries, and query t may see keys 0 to t, the lower "
            "triangle.",
            lambda num_tokens: torch.ones(num_tokens, num_tokens, dtype=torch.bool).triu(),
        ),
        Mistake(
            "hides itself",
            "a token does not see itself here, and the first one sees nothing at all. The diagonal must be True.",
            lambda num_tokens: torch.ones(num_tokens, num_tokens, dtype=torch.bool).tril(-1),
        ),
        Mistake(
            "one token ahead",
            "each token sees the one behind it: off by one. In training it would read its answer there.",
            lambda num_tokens: torch.ones(num_tokens, num_tokens, dtype=torch.bool).tril(1),
        ),
        Mistake(
            "inverted",
            "True marks what is hidden here. In this book True means: may attend.",
            lambda num_tokens: torch.ones(num_tokens, num_tokens, dtype=torch.bool).triu(1),
        ),
        Mistake(
            "additive form",
            "this is the additive form, 0 and minus infinity, as old code adds it to the scores. Return booleans.",
            lambda num_tokens: torch.full((num_tokens, num_tokens), -math.inf).triu(1),
        ),
        Mistake(
            "numbers, not booleans",
            "these are numbers 0 and 1, not booleans. Compare, or make the tensor with dtype=torch.bool.",
            lambda num_tokens: torch.ones(num_tokens, num_tokens).tril(),
        ),
    ],
)
