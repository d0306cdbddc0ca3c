"""Which keys a head may read, who says so, and what that costs."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _hidden(index: Tensor, mask: Tensor) -> Tensor:
    return index.masked_fill(~mask, -torch.inf)


def _indexed(rng: random.Random) -> Iterator[Case]:
    yield {
        "index": torch.tensor([[[3.0, 1.0, 2.0], [0.0, 9.0, 5.0]]]),
        "mask": torch.tensor([[False, True, True], [True, False, False]]),
        "keep": 2,
    }
    for num_heads, num_queries, more in apart(rng, 3, smallest=3, of=lambda h, Q, more: [h, Q, more, Q + more]):
        num_kvpairs = num_queries + more
        index = draw(rng, num_heads, num_queries, num_kvpairs)
        mask = draw(rng, num_queries, num_kvpairs) > -0.3
        mask[0], mask[1], mask[2] = False, False, True
        mask[1, num_kvpairs - 1] = True  # one key alone, and none
        index[..., 0] += 6  # often hidden, always promising
        mask[3 % num_queries :, 0] = False
        mask[2, 0] = False
        yield {"index": index, "mask": mask, "keep": 2}


def _top(index: Tensor, keep: int) -> Tensor:
    best = index.topk(keep, -1).indices
    return torch.zeros_like(index, dtype=torch.bool).scatter(-1, best, True)


kept_keys = exercise(
    "kept_keys",
    reference=lambda index, mask, keep: _top(_hidden(index, mask), keep) & mask,
    cases=_indexed,
)


def _in_blocks(rng: random.Random) -> Iterator[Case]:
    yield {
        "q": torch.tensor([[1.0], [1.0], [1.0], [1.0], [1.0]]),
        "k": torch.tensor([[0.0], [1.0], [3.0], [-9.0], [2.0]]),
        "size": 2,
        "number": 2,
    }

    def drawn(size: int, number: int, more: int, d: int) -> list[int]:
        return [size * (number + more) - 1, d, size, number]  # the last block is not full

    for size, number, more, d in apart(rng, 4, smallest=2, largest=8, of=drawn):
        num_tokens = drawn(size, number, more, d)[0]
        yield {"q": draw(rng, num_tokens, d), "k": draw(rng, num_tokens, d), "size": size, "number": number}


def _blocks(
    q: Tensor,
    k: Tensor,
    size: int,
    number: int,
    *,
    own: bool = True,
    beside: bool = False,
    later: bool = False,
    filled: bool = False,
    of: str = "mean",
    smallest: bool = False,
) -> Tensor:
    """Which blocks each query reads, with one thing changed."""
    parts = {"mean": lambda part: part.mean(0), "first": lambda part: part[0], "last": lambda part: part[-1]}
    if of == "max":
        worth = torch.stack([(q @ part.T).amax(1) for part in k.split(size)], 1)
    else:
        worth = q @ torch.stack([parts[of](part) for part in k.split(size)]).T
    worth = -worth if smallest else worth
    query, block = torch.arange(len(q))[:, None] // size, torch.arange(worth.shape[1])
    seen = torch.ones_like(worth, dtype=torch.bool) if later else block <= query
    if beside:
        kept = _top(worth.masked_fill(block >= query, -torch.inf), min(number, worth.shape[1])) & (block < query)
        return kept | (block == query)
    worth = _hidden(worth, seen)
    if own:
        worth = worth.masked_fill(block == query, torch.inf)
    kept = _top(worth, min(number, worth.shape[1]))
    return kept if filled else kept & seen


chosen_blocks = exercise(
    "chosen_blocks",
    reference=lambda q, k, size, number: _blocks(q, k, size, number),
    cases=_in_blocks,
    switches=_blocks,
)


def _small(rng: random.Random) -> Iterator[Case]:
    yield {
        "q": torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]),
        "k": torch.tensor([[2.0, -1.0], [-3.0, 4.0], [1.0, 1.0]]),
        "w": torch.tensor([[1.0, -0.5]]),
    }
    for num_queries, num_keys, num_heads, width in apart(rng, 4, smallest=2, largest=11):
        yield {
            "q": draw(rng, num_queries, num_heads, width),
            "k": draw(rng, num_keys, width),
            "w": draw(rng, num_queries, num_heads),
        }


def _products(q: Tensor, k: Tensor) -> Tensor:
    return torch.einsum("thr,sr->ths", q, k)


def _weighed(each: Tensor, w: Tensor) -> Tensor:
    return torch.einsum("ths,th->ts", each, w)


index_scores = exercise(
    "index_scores",
    reference=lambda q, k, w: _weighed(_products(q, k).relu(), w),
    cases=_small,
)


def _read(rng: random.Random) -> Iterator[Case]:
    yield {"num_tokens": 10, "num_chosen": 4, "index_size": 2, "latent_size": 8}
    found: list[list[int]] = []
    while not 0 < sum(num_tokens < num_chosen for num_tokens, num_chosen, *_ in found) < 4:
        found = apart(rng, 4, 4, smallest=2, largest=40)
    for drawn in found:
        yield dict(zip(("num_tokens", "num_chosen", "index_size", "latent_size"), drawn, strict=True))


numbers_read = exercise(
    "numbers_read",
    reference=lambda num_tokens, num_chosen, index_size, latent_size: (
        num_tokens * index_size + min(num_tokens, num_chosen) * latent_size
    ),
    cases=_read,
)
