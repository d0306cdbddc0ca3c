"""Chapter 12: repairs of a language model's loss, and of a step with a cache."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from mhalib.attention import attend

from ._exercise import Case
from ._inputs import apart, draw, own_sizes
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _texts(rng: random.Random) -> Iterator[Case]:
    for batch_size, num_tokens, vocab_size in ([2, 3, 4], *apart(rng, 3, smallest=4, largest=9)):
        yield {
            "logits": 2 * draw(rng, batch_size, num_tokens, vocab_size),
            "tokens": torch.tensor(
                [[0, *(rng.randrange(vocab_size) for _ in range(num_tokens - 2)), 0] for _ in range(batch_size - 1)]
                + [[rng.randrange(1, vocab_size) for _ in range(num_tokens)]]
            ),
        }


def _loss(logits: Tensor, tokens: Tensor, *, shift: int = 1) -> Tensor:
    read = logits[:, : logits.shape[1] - shift] if shift >= 0 else logits[:, -shift:]
    asked = tokens[:, shift:] if shift >= 0 else tokens[:, :shift]
    return F.cross_entropy(read.flatten(0, 1), asked.flatten())


mended_loss = exercise(
    "mended_loss",
    reference=_loss,
    cases=_texts,
    switches=_loss,
)


@own_sizes("in the last case there are no earlier tokens: K = Q", "k.2")
def _new_tokens(rng: random.Random) -> Iterator[Case]:
    drawn = apart(rng, 5, largest=9, of=lambda B, h, Q, more, d: [B, h, Q, more, d, Q + more])
    several = [[B, h, Q, Q + more * (number < 2), d] for number, (B, h, Q, more, d) in enumerate(drawn)]
    for batch_size, num_heads, num_queries, num_kvpairs, head_dim in ([1, 1, 1, 3, 2], *several):
        yield {
            "q": draw(rng, batch_size, num_heads, num_queries, head_dim),
            "k": draw(rng, batch_size, num_heads, num_kvpairs, head_dim),
            "v": draw(rng, batch_size, num_heads, num_kvpairs, head_dim),
        }


def _seen(q: Tensor, k: Tensor, moved: int = 0) -> Tensor:
    return torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril(k.shape[-2] - q.shape[-2] + moved)


def _step(q: Tensor, k: Tensor, v: Tensor, *, moved: int = 0) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=_seen(q, k, moved))


def _top_left(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


mended_step = exercise(
    "mended_step",
    reference=_step,
    cases=_new_tokens,
    switches=_step,
)
