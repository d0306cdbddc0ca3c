"""Chapter 12: repairs of a language model's loss, and of a step with a cache."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from mhalib.attention import attend

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw, own_sizes


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


mended_loss = Exercise(
    "mended_loss",
    chapter=12,
    given="nothing mended",
    title="mend the loss of a language model",
    reference=_loss,
    cases=_texts,
    verified="four batches: the logits at each token are held against the token that comes next in the same text.",
    points=2,
    mistakes=[
        Mistake(
            "nothing mended",
            "the logits at a token are still held against that token itself. The model has just read it: it learns to "
            "repeat its input, and its loss falls to 0.",
            partial(_loss, shift=0),
        ),
        Mistake(
            "shifted twice",
            "the logits at a token are held against the second token after it.",
            partial(_loss, shift=2),
        ),
        Mistake(
            "shifted backwards",
            "the logits at a token are held against the token BEFORE it.",
            partial(_loss, shift=-1),
        ),
        Mistake(
            "flattened first",
            "you flattened first and shifted afterwards: the last token of each text is asked for the first token of "
            "the next text. Shift along the axis of tokens, then flatten.",
            lambda logits, tokens: F.cross_entropy(logits.flatten(0, 1)[:-1], tokens.flatten()[1:]),
        ),
        Mistake(
            "the same end cut",
            "you cut the same end off both: nothing is shifted against the other.",
            lambda logits, tokens: F.cross_entropy(logits[:, 1:].flatten(0, 1), tokens[:, 1:].flatten()),
        ),
        Mistake(
            "turned round",
            "you turned the tokens round: the last place of a text is held against its first token. It has no answer: "
            "leave it out.",
            lambda logits, tokens: F.cross_entropy(logits.flatten(0, 1), tokens.roll(-1, 1).flatten()),
        ),
        Mistake(
            "an answer made up",
            "the last place of a text has no answer. You gave it token 0, which is a token like any other.",
            lambda logits, tokens: F.cross_entropy(logits.flatten(0, 1), F.pad(tokens[:, 1:], (0, 1)).flatten()),
        ),
        Mistake(
            "token 0 left out",
            "you left token 0 out. There is no padding here: it is a token like any other.",
            lambda logits, tokens: F.cross_entropy(
                logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=0
            ),
        ),
        Mistake(
            "summed",
            "you added the losses of all tokens. Average them.",
            lambda logits, tokens: F.cross_entropy(
                logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum"
            ),
        ),
    ],
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


mended_step = Exercise(
    "mended_step",
    chapter=12,
    given="nothing mended",
    title="mend a step with a cache",
    reference=_step,
    cases=_new_tokens,
    verified="one new token and several, behind a cache and without one: each sees all that is not later.",
    points=3,
    mistakes=[
        Mistake(
            "nothing mended",
            "`is_causal=True` puts the triangle in the top left corner: the first new token sees key 0 alone, the "
            "oldest in the cache. The new tokens are the LAST of the keys: the triangle belongs in the bottom right "
            "corner.",
            lambda q, k, v: _top_left(q, k, v),
        ),
        Mistake(
            "one new token only",
            "one new token is right now. With several, the triangle still lies in the top left corner, and hides most "
            "of the cache.",
            lambda q, k, v: _top_left(q, k, v) if q.shape[-2] > 1 else attend(q, k, v)[0],
        ),
        Mistake(
            "causal without a cache only",
            "behind a cache you hide nothing now: several new tokens see each other's future.",
            lambda q, k, v: (
                _top_left(q, k, v) if q.shape[-2] == k.shape[-2] else F.scaled_dot_product_attention(q, k, v)
            ),
        ),
        Mistake(
            "moved the wrong way",
            "the edge of the triangle moved the wrong way: by K - Q to the right, not by Q - K.",
            lambda q, k, v: _step(q, k, v, moved=2 * (q.shape[-2] - k.shape[-2])),
        ),
        Mistake(
            "upside down",
            "you hide what may be seen: True must mean may attend.",
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=~_seen(q, k)),
        ),
        Mistake(
            "added",
            "a mask of 0.0 and 1.0 is ADDED to the scores: nothing is hidden. Use booleans.",
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=_seen(q, k).to(q.dtype)),
        ),
        Mistake(
            "no mask",
            "every new token sees all keys, also those of the new tokens after it. With one new token that is right, "
            "with several it is not.",
            lambda q, k, v: attend(q, k, v)[0],
        ),
        Mistake(
            "one too few",
            "a new token does not see itself: the triangle is one column too far to the left.",
            partial(_step, moved=-1),
        ),
        Mistake(
            "one too many",
            "a new token sees the one after it: the triangle is one column too far to the right.",
            partial(_step, moved=1),
        ),
        Mistake(
            "cache not used",
            "the new tokens see each other only, and nothing of what the cache holds.",
            lambda q, k, v: _step(q, k[:, :, -q.shape[-2] :], v[:, :, -q.shape[-2] :]),
        ),
    ],
)
