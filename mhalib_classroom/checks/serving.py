"""Slots of a ring, pages that prompts share, drafts that are looked up and refused, and the passes of a server."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, own_sizes
from ._markdown import exercises_of

exercise = exercises_of(globals())


@own_sizes("each is a place in the text, beside two sizes of a memory")
def _places(rng: random.Random) -> Iterator[Case]:
    """Among the sinks, the last of a round, the first of the next, and later; sizes differ from case to case."""
    yield {"place": 7, "window": 5, "sinks": 2}
    for way, (window, sinks) in enumerate(((9, 4), (11, 3), (8, 5), (13, 6), (10, 1), (7, 2))):
        place = (rng.randrange(1, sinks + 1) - 1, sinks + window - 1, sinks + window, 0, 0, 0)[way]
        if way > 2:
            place = sinks + rng.randint(2, 5) * window + rng.randrange(1, window - 1)
        yield {"place": place, "window": window, "sinks": sinks}


ring_slot = exercise(
    "ring_slot",
    reference=lambda place, window, sinks: place if place < sinks else sinks + (place - sinks) % window,
    cases=_places,
)


def _passes(rng: random.Random) -> Iterator[Case]:
    """A prompt that fits, one that is cut, a short and a long one that wait; readers who write stand among them."""
    yield {"unread": [5, 1, 4, 1], "budget": 8}
    sizes = apart(
        rng,
        4,
        smallest=4,
        largest=11,
        of=lambda prompts, writers, first, cut: [prompts + writers, writers + first + cut],
    )
    for prompts, writers, first, cut in sizes:
        lengths = [first, 2 * cut, rng.randint(2, 3), rng.randint(30, 39)]
        lengths += [rng.randint(12, 29) for _ in range(prompts - 4)]
        seats = sorted(rng.randrange(prompts + 1) for _ in range(writers - 2))  # how many prompts are in front
        unread = [n for place, length in enumerate(lengths) for n in (*[1] * seats.count(place), length)]
        yield {"unread": [1, *unread, *[1] * seats.count(prompts), 1], "budget": writers + first + cut}


def _chunks(
    unread: list[int],
    budget: int,
    *,
    order: Callable[[list[int], list[int]], list[int]] = lambda places, unread: places,
    writers_first: bool = True,
    writers_counted: bool = True,
    writers: bool = True,
    whole: bool = False,
    at_once: int | None = None,
) -> list[int]:
    """How many tokens of each reader are read, if those who have one left come first."""
    found, left = [0] * len(unread), budget
    writing = [place for place, n in enumerate(unread) if n == 1 and writers_first]
    for place in writing if writers else ():
        found[place], left = 1, left - writers_counted
    reading = order([place for place, n in enumerate(unread) if n > 1 or not writers_first], unread)
    for place in reading[:at_once]:
        found[place] = 0 if whole and unread[place] > left else min(unread[place], left)
        left -= found[place]
    return found


def _shared(unread: list[int], budget: int) -> list[int]:
    """Equal shares for prompts."""
    prompts = sum(n > 1 for n in unread)
    share = (budget - len(unread) + prompts) // prompts
    return [min(n, share) if n > 1 else 1 for n in unread]


def _token_each(unread: list[int], budget: int) -> list[int]:
    left, found = budget - len(unread), []
    for n in unread:
        found.append(1 + min(n - 1, left))
        left -= found[-1] - 1
    return found


next_chunks = exercise("next_chunks", reference=_chunks, cases=_passes, switches=_chunks)


def _prompts(rng: random.Random) -> Iterator[Case]:
    """Equal beginnings and equal pages behind other beginnings; prompts that end with a page, come again, share with
    the first alone or with a later one alone, or differ within a page."""
    yield {"prompts": [[1, 2, 3], [1, 2, 4, 5]], "page": 2}
    for page, others in apart(rng, 2, smallest=4, largest=9, of=lambda page, others: [page, 13 + others]):
        names = iter(rng.sample(range(100, 999), 30 * page))
        a, b, c, d = ([next(names) for _ in range(page)] for _ in range(4))

        def end(names: Iterator[int] = names, page: int = page) -> list[int]:
            return [next(names) for _ in range(rng.randrange(1, page))]

        prompts = [[*a, *b, *end()], [*c, *b, *end()], [*a, *b, *c], [*a, *b, *c], [*a, *b, *c, *end()]]
        prompts += [[*b, *a, *end()], [*a, *b[:3], *d, *end()], [*c, *b, *d, *end()], [*d[:1], *end()]]
        prompts += [[*a, *b, *end()], [*c, *d, *end()], [*a, *d, *end()], [*a]]
        prompts += [end() for _ in range(others)]  # nothing to share
        yield {"prompts": prompts, "page": page}


def _read(
    prompts: list[list[int]],
    page: int,
    *,
    known_by: Callable[[list[int], int, int], object] = lambda prompt, end, page: tuple(prompt[:end]),
    kept: Callable[[list[list[int]], int], list[list[int]]] = lambda prompts, number: prompts[:number],
    step: int | None = None,
    left: int = 1,
    listed: int = 0,
) -> int:
    """How many tokens of prompts are read, if pages are found by `known_by` among the prompts that `kept` gives."""
    step, read = step or page, 0
    for number, prompt in enumerate(prompts):
        known = {
            known_by(one, end, page)
            for one in kept(prompts, number)
            for end in range(step, len(one) + 1 - listed, step)
        }
        begin = 0
        while begin + step + left <= len(prompt) and known_by(prompt, begin + step, page) in known:
            begin += step
        read += len(prompt) - begin
    return read


tokens_read = exercise("tokens_read", reference=_read, cases=_prompts, switches=_read)


@own_sizes("a text is built around the places of its key")
def _texts(rng: random.Random) -> Iterator[Case]:
    yield {"tokens": [5, 6, 7, 8, 9, 5, 6], "key_length": 2, "num_drafts": 3}
    for key_length, num_drafts in ((2, 4), (3, 2), (1, 5), (4, 3)):
        names = rng.sample(range(10, 99), 40)
        key, rest = names[:key_length], names[key_length:]
        decoy = [*rest[30:32], key[-1]]  # the end of the key alone
        parts = [rest[:2], key, rest[2:9], key, rest[9:16], decoy if key_length > 1 else rest[16:18], rest[18:21], key]
        yield {
            "tokens": [token for part in parts for token in part],
            "key_length": key_length,
            "num_drafts": num_drafts,
        }
    names = rng.sample(range(10, 99), 9)
    yield {"tokens": names, "key_length": 2, "num_drafts": 3}


def _found(tokens: list[int], key_length: int, num_drafts: int, *, first: bool = False, shift: int = 0) -> list[int]:
    starts = [n for n in range(len(tokens) - key_length) if tokens[n : n + key_length] == tokens[-key_length:]]
    if not starts:
        return []
    begin = (starts[0] if first else starts[-1]) + key_length + shift
    return tokens[begin : begin + num_drafts]


found_drafts = exercise("found_drafts", reference=_found, cases=_texts)


def _pairs(rng: random.Random) -> Iterator[Case]:
    yield {"p": torch.tensor([0.5, 0.25, 0.25]), "q": torch.tensor([0.25, 0.5, 0.25])}
    for number, size in enumerate((5, 7, 9, 11)):
        p, q = (torch.tensor([rng.uniform(0.2, 1.0) for _ in range(size)]) for _ in range(2))
        if not number:
            p[2] = 0.0
        yield {"p": p / p.sum(), "q": q / q.sum()}


def _normed(x: Tensor) -> Tensor:
    return x / x.sum()


rest = exercise("rest", reference=lambda p, q: _normed((p - q).clamp(min=0)), cases=_pairs)


def _chances(rng: random.Random) -> Iterator[Case]:
    """Distributions whose kept tokens pass `top_p` by far, and fall short of it by far without the last of them."""
    yield {"probabilities": torch.tensor([0.25, 0.5, 0.125, 0.125]), "top_p": 0.625}
    for (size,) in apart(rng, 1, smallest=6, largest=11):
        chances = _normed(torch.tensor([rng.uniform(0.9, 1.0) / (n + 3) for n in range(size)]))
        last = rng.randrange(1, size // 2)
        reached = chances.sort(descending=True).values.cumsum(0)
        order = torch.tensor(rng.sample(range(size), size))
        yield {"probabilities": chances[order], "top_p": float(reached[last - 1] + reached[last]) / 2}


def _kept(
    probabilities: Tensor,
    top_p: float,
    *,
    descending: bool = True,
    ordered: bool = True,
    put_back: bool = True,
    kept: Callable[[Tensor, float], Tensor] = lambda values, top_p: values.cumsum(0) - values < top_p,
    normed: Callable[[Tensor], Tensor] = _normed,
) -> Tensor:
    tokens = probabilities.argsort(descending=descending) if ordered else torch.arange(len(probabilities))
    values = probabilities[tokens]
    values = values * kept(values, top_p)
    return normed(torch.zeros_like(values).index_copy(0, tokens, values) if put_back else values)


kept_by_top_p = exercise("kept_by_top_p", reference=_kept, cases=_chances, switches=_kept)


@own_sizes("a queue has as many wishes as it needs")
def _queues(rng: random.Random) -> Iterator[Case]:
    yield {"wants": [2, 1, 9, 1], "seats": 2}
    for seats in (2, 3, 4, 5, 3):
        wants = [rng.randint(1, 4) if n % 3 else rng.randint(7, 15) for n in range(3 * seats + rng.randint(1, 3))]
        yield {"wants": [*wants, rng.randint(16, 20), rng.randint(1, 4)], "seats": seats}


def _served(wants: list[int], seats: int) -> int:
    """When the last of them has all: each takes the seat that is free first."""
    free = [0] * seats
    for want in wants:
        heapq.heapreplace(free, free[0] + want)
    return max(free)


passes_needed = exercise("passes_needed", reference=_served, cases=_queues)
