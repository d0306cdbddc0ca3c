"""Induction, and drawing the next token.

Repairs of a language model's loss, and of a step with a cache.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from mhalib.attention import attend, causal_mask

from ._exercise import Case
from ._inputs import apart, draw, own_sizes
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _repeated(rng: random.Random) -> Iterator[Case]:
    for period, num_heads, more in apart(rng, 3, smallest=3, of=lambda p, h, more: [p, h, 2 * p + more]):
        num_tokens = 2 * period + more
        scores = draw(rng, num_heads, num_tokens, num_tokens) * 2
        scores[0].diagonal(1 - period).add_(5.0)
        yield {"weights": scores.masked_fill(~causal_mask(num_tokens), -torch.inf).softmax(-1), "period": period}


def _induction(weights: Tensor, period: int) -> Tensor:
    """The first query of this diagonal, period - 1, has a token that has not been there before."""
    return weights.diagonal(1 - period, -2, -1)[..., 1:].mean(-1)


def _on_all_followers(weights: Tensor, period: int) -> Tensor:
    """As `mhalib.measures.induction_score`: one round before, two rounds before, and so on."""
    places = torch.arange(weights.shape[-1])
    back = places[:, None] - places  # [t, j]: how far key j is before query t
    follows = (back >= 0) & ((back + 1) % period == 0) & (places > 0)
    return (weights * follows).sum(-1)[:, period:].mean(-1)


induction_weight = exercise(
    "induction_weight",
    reference=_induction,
    cases=_repeated,
)


def _logits(rng: random.Random) -> Iterator[Case]:
    yield {"logits": torch.tensor([1.0, 3.0, 2.0, 0.0]), "k": 2, "temperature": 0.5}
    (first,), (second,), (far,), (one,), (all_of_them,) = apart(rng, 1, 5, smallest=5, largest=12)
    for size in (first, second):
        yield {"logits": draw(rng, size) * 2, "k": rng.randint(2, size - 2), "temperature": rng.choice([0.5, 2.0])}
    yield {"logits": draw(rng, far) * 8 - 200, "k": rng.randint(2, far - 2), "temperature": 4.0}
    yield {"logits": draw(rng, one), "k": 1, "temperature": 3.0}
    yield {"logits": draw(rng, all_of_them), "k": all_of_them, "temperature": 3.0}


def _top_k(logits: Tensor, k: int, dropped: float = -torch.inf) -> Tensor:
    return logits.masked_fill(logits < logits.topk(k).values[-1], dropped)


def _dropped_to(logits: Tensor, k: int, temperature: float, low: float) -> Tensor:
    return (_top_k(logits, k, low) / temperature).softmax(-1)


next_token_probabilities = exercise(
    "next_token_probabilities",
    reference=lambda logits, k, temperature: (_top_k(logits, k) / temperature).softmax(-1),
    cases=_logits,
)


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


def _sequences(rng: random.Random) -> Iterator[Case]:
    yield {"tokens": torch.tensor([2, 5, 1, 1, 2, 5, 5, 1])}
    for num_symbols, more in ((5, 6), (7, 10), (9, 13)):
        symbols = rng.sample(range(1, 3 * num_symbols), num_symbols)
        rest = [rng.choice(symbols) for _ in range(more)]
        yield {"tokens": torch.tensor([*symbols, *symbols[:2], *rest])}


def _away(
    tokens: Tensor,
    *,
    by: str = "last",
    counted: int = 1,
    newest: bool = False,
    unseen: bool = False,
    place: bool = False,
) -> Tensor:
    said = []
    for t in range(len(tokens)):
        seen = tokens[: max(t + counted, 1)].tolist()
        key: dict[int, int] = dict.fromkeys(range(int(tokens.max()) + 1), 0) if unseen else {}
        for n, symbol in enumerate(seen, start=1):
            known = key.get(symbol, 0)
            key[symbol] = {"last": n, "first": known or n, "count": known + 1}[by]
        chosen = (max if newest else min)(key, key=lambda symbol, key=key: key[symbol])  # type: ignore[misc]
        said.append(key[chosen] - 1 if place else chosen)
    return torch.tensor(said)


longest_ago = exercise(
    "longest_ago",
    reference=_away,
    cases=_sequences,
    switches=_away,
)


def _guesses(rng: random.Random) -> Iterator[Case]:
    for batch_size, num_tokens in ([2, 4], *apart(rng, 2, 3, smallest=5, largest=12)):
        first, second, other = (draw(rng, batch_size, num_tokens).mul(2).round().long().abs() for _ in range(3))
        follows = draw(rng, batch_size, num_tokens)
        guesses = torch.where(follows > 0.3, first, torch.where(follows < -0.8, second, other + 7))
        known = draw(rng, batch_size, num_tokens) > -0.8
        first[0, :3], second[0, :3] = torch.tensor([1, 2, 3]), torch.tensor([4, 2, 5])
        guesses[0, :3], known[0, :3] = torch.tensor([1, 2, 3]), torch.tensor([True, True, False])
        yield {"guesses": guesses, "first": first, "second": second, "known": known}


def _followed(
    guesses: Tensor,
    first: Tensor,
    second: Tensor,
    known: Tensor,
    *,
    agreeing: bool = False,
    silent: bool = False,
    of_all: bool = False,
    turned: bool = False,
) -> Tensor:
    counts = (known | silent) & ((first != second) | agreeing)
    shares = torch.stack([(guesses == rule)[counts].float().sum() for rule in (first, second)])
    shares = shares / (counts.numel() if of_all else counts.sum())
    return shares.flip(0) if turned else shares


rule_shares = exercise(
    "rule_shares",
    reference=_followed,
    cases=_guesses,
    switches=_followed,
)
