"""Chapter 20: heads that share queries and keys, and heads that see channels of their neighbours."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw, own_sizes


def _shared(rng: random.Random) -> Iterator[Case]:
    """The width of the shared channels is never head_dim, nor h * head_dim, so that every wrong scale shows."""
    yield {
        "q": torch.tensor([[1.0, 2.0, 3.0]]),
        "k": torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 2.0], [0.0, 0.0, 1.0], [2.0, 0.0, 1.0]]),
        "mixing": torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 1.0]]),
        "head_dim": 16,
    }
    drawn = apart(rng, 5, largest=9, of=lambda h, Q, K, width, d: [h, Q, K, width, d, h * d])
    for num_heads, num_queries, num_kvpairs, shared_size, head_dim in drawn:
        yield {
            "q": draw(rng, num_queries, shared_size),
            "k": draw(rng, num_kvpairs, shared_size),
            "mixing": draw(rng, num_heads, shared_size),
            "head_dim": head_dim,
        }


def _raw(q: Tensor, k: Tensor, mixing: Tensor) -> Tensor:
    """(h, Q, K), without a scale."""
    return q * mixing[:, None] @ k.T


def _shared_scores(q: Tensor, k: Tensor, mixing: Tensor, head_dim: int) -> Tensor:
    return _raw(q, k, mixing) / math.sqrt(head_dim)


shared_scores = Exercise(
    "shared_scores",
    chapter=20,
    title="scores of heads that share queries and keys",
    reference=_shared_scores,
    cases=_shared,
    verified="four layers; each head weighs the shared channels with its row of `mixing`.",
    points=2,
    mistakes=[
        Mistake(
            "scale of the shared channels",
            "you divided by the square root of the width that all heads share. Divide by the square root of "
            "`head_dim`, as multi-head attention does, whatever the width.",
            lambda q, k, mixing, head_dim: _raw(q, k, mixing) / math.sqrt(q.shape[-1]),
        ),
        Mistake(
            "scale of width / h",
            "you divided by the square root of width / h, as the authors' own package does. Then the scale "
            "changes with the width. Divide by the square root of `head_dim`.",
            lambda q, k, mixing, head_dim: _raw(q, k, mixing) / math.sqrt(q.shape[-1] / len(mixing)),
        ),
        Mistake(
            "scale of all heads",
            "you divided by the square root of h * d, the width of all heads. Use that of one head, `head_dim`.",
            lambda q, k, mixing, head_dim: _raw(q, k, mixing) / math.sqrt(len(mixing) * head_dim),
        ),
        Mistake(
            "no scale",
            "the scores are not scaled: divide by the square root of `head_dim`.",
            lambda q, k, mixing, head_dim: _raw(q, k, mixing),
        ),
        Mistake(
            "divided by d",
            "you divided by `head_dim` itself. Divide by its square root.",
            lambda q, k, mixing, head_dim: _raw(q, k, mixing) / head_dim,
        ),
        Mistake(
            "mixing on both sides",
            "you multiplied both the queries and the keys by `mixing`, so each channel counts with its square. "
            "Multiply one of the two.",
            lambda q, k, mixing, head_dim: _shared_scores(q, k, mixing.square(), head_dim),
        ),
        Mistake(
            "no mixing",
            "you did not use `mixing`, so all heads have the same scores. Multiply channel c by mixing[i, c] for head "
            "i.",
            lambda q, k, mixing, head_dim: _shared_scores(q, k, torch.ones_like(mixing), head_dim),
        ),
        *(
            Mistake(
                f"mixing softmaxed over {name}",
                f"you put `mixing` through a softmax over the {name}. Its numbers may have any size and any sign: use "
                "them as they are.",
                lambda q, k, mixing, head_dim, dim=dim: _shared_scores(q, k, mixing.softmax(dim), head_dim),
            )
            for dim, name in ((0, "heads"), (1, "channels"))
        ),
        Mistake(
            "one number per head",
            "you multiplied the finished scores by the sum of a head's row of `mixing`. Then all heads prefer the same "
            "keys. Weigh each channel before you sum over channels.",
            lambda q, k, mixing, head_dim: q @ k.T * mixing.sum(1)[:, None, None] / math.sqrt(head_dim),
        ),
        Mistake(
            "mixing added",
            "you added `mixing` to the queries. Multiply: a channel with a weight of 0 must not count.",
            lambda q, k, mixing, head_dim: (q + mixing[:, None]) @ k.T / math.sqrt(head_dim),
        ),
        Mistake(
            "heads summed",
            "you summed over the heads. Each head has scores of its own: keep h in the result.",
            lambda q, k, mixing, head_dim: _shared_scores(q, k, mixing, head_dim).sum(0),
        ),
        Mistake(
            "queries before heads",
            "your result is (Q, h, K). The heads come first: (h, Q, K).",
            lambda q, k, mixing, head_dim: _shared_scores(q, k, mixing, head_dim).transpose(0, 1),
        ),
        Mistake(
            "multiplied by the root",
            "you multiplied by the square root of `head_dim`. Divide by it.",
            lambda q, k, mixing, head_dim: _raw(q, k, mixing) * math.sqrt(head_dim),
        ),
        Mistake(
            "keys by queries",
            "your result is (h, K, Q). Rows are queries and columns are keys: (h, Q, K).",
            lambda q, k, mixing, head_dim: _shared_scores(q, k, mixing, head_dim).mT,
        ),
        Mistake(
            "weights",
            "these are the weights, after the softmax. Return the scores before it.",
            lambda q, k, mixing, head_dim: _shared_scores(q, k, mixing, head_dim).softmax(-1),
        ),
    ],
)


@own_sizes("an overlap is more than one channel and less than a head: 2 or 3", "overlap")
def _channels(rng: random.Random) -> Iterator[Case]:
    yield {"x": torch.tensor([[[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]]), "num_heads": 3, "overlap": 1}
    drawn = apart(rng, 4, smallest=4, largest=8, of=lambda h, d, B, N: [h, d, B, N, h * d])
    for num_heads, head_dim, batch_size, num_tokens in drawn:
        x = draw(rng, batch_size, num_tokens, num_heads * head_dim)
        yield {"x": x, "num_heads": num_heads, "overlap": rng.choice((2, 3))}


def _windows(x: Tensor, num_heads: int, left: int, right: int, mode: str = "constant") -> Tensor:
    """Head i gets the channels i*d - left to (i+1)*d + right."""
    head_dim = x.shape[-1] // num_heads
    return F.pad(x, (left, right), mode).unfold(-1, left + head_dim + right, head_dim).transpose(1, 2)


def _widened(x: Tensor, num_heads: int, overlap: int) -> Tensor:
    return _windows(x, num_heads, overlap, overlap)


def _parts(x: Tensor, num_heads: int, overlap: int) -> tuple[Tensor, Tensor, Tensor]:
    """A window in three: the channels on its left, its own, those on its right."""
    windows = _widened(x, num_heads, overlap)
    return windows[..., :overlap], windows[..., overlap:-overlap], windows[..., -overlap:]


def _far_ends(x: Tensor, num_heads: int, overlap: int) -> Tensor:
    """The first channels of the left neighbour and the last of the right one: those that are not next to the head."""
    own = _windows(x, num_heads, 0, 0)
    left, right = F.pad(own, (0, 0, 0, 0, 1, 0))[:, :-1], F.pad(own, (0, 0, 0, 0, 0, 1))[:, 1:]
    return torch.cat([left[..., :overlap], own, right[..., -overlap:]], -1)


widened = Exercise(
    "widened",
    chapter=20,
    title="give each head channels of its neighbours",
    reference=_widened,
    cases=_channels,
    verified="four layers of three to eight heads; beyond the first and the last channel there are zeros.",
    points=2,
    mistakes=[
        Mistake(
            "round the end",
            "your channels wrap round: head 0 sees the last channels, and the last head sees the first. Beyond the "
            "ends there are zeros.",
            lambda x, num_heads, overlap: _windows(x, num_heads, overlap, overlap, "circular"),
        ),
        Mistake(
            "edge repeated",
            "you repeated the first and the last channel beyond the ends. Put zeros there.",
            lambda x, num_heads, overlap: _windows(x, num_heads, overlap, overlap, "replicate"),
        ),
        Mistake(
            "edge reflected",
            "you reflected the channels at the ends. Put zeros there.",
            lambda x, num_heads, overlap: _windows(x, num_heads, overlap, overlap, "reflect"),
        ),
        Mistake(
            "zeros, not neighbours",
            "you split into heads first and padded each with zeros, so no head sees a neighbour. Pad the whole axis, "
            "then cut windows out of it.",
            lambda x, num_heads, overlap: F.pad(_windows(x, num_heads, 0, 0), (overlap, overlap)),
        ),
        *(
            Mistake(
                f"{side} side only{widely}",
                f"you took channels from the neighbour on the {side} only{widely}. Take `overlap` on each side.",
                lambda x, num_heads, overlap, left=left, right=right: _windows(
                    x, num_heads, left * overlap, right * overlap
                ),
            )
            for side, widely, left, right in (
                ("right", "", 0, 1),
                ("left", "", 1, 0),
                ("right", ", twice as many", 0, 2),
                ("left", ", twice as many", 2, 0),
            )
        ),
        *(
            Mistake(
                f"one channel too far {side}",
                f"every window begins one channel too far {side}. Head i's first channel is i*d - overlap.",
                lambda x, num_heads, overlap, step=step: _windows(x, num_heads, overlap - step, overlap + step),
            )
            for side, step in (("right", 1), ("left", -1))
        ),
        Mistake(
            "windows side by side",
            "your windows follow each other at steps of d + 2 * overlap, so they do not overlap, and there are too "
            "few. Move by d from one head to the next.",
            lambda x, num_heads, overlap: (
                F.pad(x, (overlap, overlap)).unfold(-1, *[x.shape[-1] // num_heads + 2 * overlap] * 2).transpose(1, 2)
            ),
        ),
        Mistake(
            "no overlap",
            "each head has its own d channels only. Add `overlap` channels of the neighbour on each side.",
            lambda x, num_heads, overlap: _windows(x, num_heads, 0, 0),
        ),
        Mistake(
            "tokens added",
            "you added tokens, not channels: the third axis of the result is N + 2 * overlap. Widen the last axis.",
            lambda x, num_heads, overlap: F.pad(_windows(x, num_heads, 0, 0), (0, 0, overlap, overlap)),
        ),
        Mistake(
            "own channels first",
            "each head has the right channels in another order: its own first, then its neighbours'. Keep the order "
            "of x: from i*d - overlap to (i+1)*d + overlap.",
            lambda x, num_heads, overlap: torch.cat([_parts(x, num_heads, overlap)[part] for part in (1, 0, 2)], -1),
        ),
        Mistake(
            "sides exchanged",
            "the channels of the two neighbours are on the wrong sides: the right one's come first. Keep the order "
            "of x.",
            lambda x, num_heads, overlap: torch.cat([_parts(x, num_heads, overlap)[part] for part in (2, 1, 0)], -1),
        ),
        Mistake(
            "far ends of the neighbours",
            "you took the neighbours' channels from the wrong ends: the first ones of the left neighbour, and the last "
            "ones of the right. Take those that are next to the head's own.",
            _far_ends,
        ),
        Mistake(
            "tokens before heads",
            "your result is (B, N, h, d + 2 * overlap). Exchange the axes of tokens and heads.",
            lambda x, num_heads, overlap: _widened(x, num_heads, overlap).transpose(1, 2),
        ),
        Mistake(
            "reshaped",
            "you reshaped the windows to put the heads in front of the tokens. That keeps the order in memory and "
            "mixes tokens with heads; to exchange two axes, transpose.",
            lambda x, num_heads, overlap: (
                (windows := _widened(x, num_heads, overlap)).transpose(1, 2).reshape(windows.shape)
            ),
        ),
    ],
)
