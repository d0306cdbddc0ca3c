"""Repairs of one function each: mistakes that were reported in public code, in a function of ours. Chapters 2 to 7."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import torch
from torch import Tensor

from ...attention import attend
from ...masks import causal_mask, padding_mask
from ._exercise import Case, Exercise, Mistake, draw, sizes
from .weights import filled


def _one_head(rng: random.Random) -> Iterator[Case]:
    for batch_size, num_tokens, head_dim, num_hiddens in ([1, 3, 2, 5], sizes(rng, 4), sizes(rng, 4, largest=9)):
        yield {
            "x": draw(rng, batch_size, num_tokens, num_hiddens),
            **{name: draw(rng, head_dim, num_hiddens) for name in ("W_q", "W_k", "W_v")},
        }


def _head(
    x: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor, *, factor: Callable[[int, int, int], float] = lambda d, D, N: 1.0
) -> Tensor:
    q, k, v = x @ W_q.mT, x @ W_k.mT, x @ W_v.mT
    # `factor` is beside the right scale
    return (q @ k.mT / math.sqrt(q.shape[-1]) * factor(q.shape[-1], x.shape[-1], x.shape[1])).softmax(-1) @ v


mended_scale = Exercise(
    "mended_scale",
    chapter=2,
    title="mend a head's scale",
    reference=_head,
    cases=_one_head,
    verified="three heads whose width d is not the width D of their input: the scores are divided by the root of d.",
    mistakes=[
        Mistake(
            "nothing mended",
            "the scores are still divided by the square root of D, the width of the input. A score is a sum of d "
            "products, one for each number of a query: the width of `q` counts.",
            partial(_head, factor=lambda d, D, N: math.sqrt(d / D)),
        ),
        Mistake(
            "no scale",
            "now the scores are not divided at all.",
            partial(_head, factor=lambda d, D, N: math.sqrt(d)),
        ),
        Mistake(
            "multiplied",
            "the scores are multiplied by the square root of d. That makes large scores larger.",
            partial(_head, factor=lambda d, D, N: d),
        ),
        Mistake(
            "divided by d",
            "the scores are divided by d, not by its square root.",
            partial(_head, factor=lambda d, D, N: 1 / math.sqrt(d)),
        ),
        Mistake(
            "divided by both",
            "the scores are divided twice, by the square root of D and by that of d.",
            partial(_head, factor=lambda d, D, N: 1 / math.sqrt(D)),
        ),
        Mistake(
            "divided after the softmax",
            "you divide the weights, after the softmax: they no longer sum to 1. Divide the scores.",
            lambda x, W_q, W_k, W_v: _head(x, W_q, W_k, W_v / math.sqrt(len(W_q)), factor=lambda d, D, N: math.sqrt(d)),
        ),
        Mistake(
            "scaled by the number of tokens",
            "the scores are divided by the square root of the number of tokens. How large one score is does not depend "
            "on how many there are.",
            partial(_head, factor=lambda d, D, N: math.sqrt(d / N)),
        ),
    ],
)


def _low_scores(rng: random.Random) -> Iterator[Case]:
    yield {"scores": torch.tensor([[[[-1.0, -2.0, 0.5]]]]), "mask": torch.tensor([[[[True, True, False]]]])}
    for middle, hidden_above in ((0.0, 0.0), (-6.0, 0.0), (-3e5, 0.0), (-3e9, 0.0), (0.0, 2e5), (-3e9, 3e9)):
        batch_size, num_heads, num_queries, num_kvpairs = sizes(rng, 4, smallest=3, largest=8)
        mask = padding_mask(torch.tensor([rng.randint(1, num_kvpairs - 1) for _ in range(batch_size)]), num_kvpairs)
        scores = 2 * draw(rng, batch_size, num_heads, num_queries, num_kvpairs).double() + middle + ~mask * hidden_above
        yield {"scores": scores, "mask": mask}


mended_filling = Exercise(
    "mended_filling",
    chapter=2,
    title="mend a mask that hides nothing",
    reference=filled,
    cases=_low_scores,
    verified="seven tables of scores, some of them far below zero, some with hidden scores far above all others.",
    mistakes=[
        Mistake(
            "filled with about 0",
            "the hidden scores become 0, or so small that it makes no difference, and exp(0) = 1: a hidden key gets as "
            "much weight as a visible one whose score is 0. It must become minus infinity, so that exp gives 0.",
            partial(filled, value=0.0),
        ),
        *(
            Mistake(
                f"not low enough: {by:g}",
                "a number that is low may not be low enough: a visible score can be lower, and then the hidden keys "
                "win. Take minus infinity, or the lowest number that the type has.",
                partial(filled, value=by),
            )
            for by in (-1e9, -1e4)
        ),
        *(
            Mistake(
                f"lowered by {by:g}",
                "you lower the hidden scores by a fixed number. One that was far above the visible ones is still seen: "
                "put minus infinity in its place.",
                lambda scores, mask, by=by: (scores - by * ~mask).softmax(-1),
            )
            for by in (1e4, 1e9)
        ),
        Mistake(
            "the minus is gone",
            "the hidden scores become very large: they take all the weight.",
            partial(filled, value=1e9),
        ),
        Mistake(
            "shared out again",
            "you took the hidden weights away after the softmax and divided by what was left. Where a hidden score is "
            "far above the visible ones nothing is left, and 0/0 is NaN. Hide the scores, before the softmax.",
            lambda scores, mask: scores.softmax(-1) * mask / (scores.softmax(-1) * mask).sum(-1, keepdim=True),
        ),
        Mistake(
            "hidden after the softmax",
            "you set the weights of hidden keys to 0 after the softmax. They have taken their share by then: the rows "
            "no longer sum to 1.",
            lambda scores, mask: scores.softmax(-1) * mask,
        ),
        Mistake(
            "mask upside down",
            "you hide what may be seen. `mask` is True where a query may attend.",
            lambda scores, mask: scores.masked_fill(mask, -math.inf).softmax(-1),
        ),
        Mistake(
            "not masked",
            "the mask has no effect any more.",
            lambda scores, mask: scores.softmax(-1),
        ),
    ],
)


def _head_first(rng: random.Random) -> Iterator[Case]:
    yield {"x": torch.arange(12.0).reshape(6, 2, 1), "num_heads": 2}
    for _ in range(3):
        batch_size, num_heads, num_tokens, head_dim = sizes(rng, 4)
        yield {"x": draw(rng, num_heads * batch_size, num_tokens, head_dim), "num_heads": num_heads}


def _merged(x: Tensor, num_heads: int) -> Tensor:
    return x.unflatten(0, (num_heads, -1)).permute(1, 2, 0, 3).flatten(2)


mended_merge = Exercise(
    "mended_merge",
    chapter=4,
    title="merge heads that were folded head first",
    reference=_merged,
    cases=_head_first,
    verified="four folds; row i*B + b went to example b, columns i*d to (i+1)*d.",
    points=2,
    mistakes=[
        Mistake(
            "nothing mended",
            "the four axes are (h, B, N, d), and `permute(0, 2, 1, 3)` swaps examples and tokens. So the first axis "
            "of the reshape is that of the heads, and it is cut into B examples. Bring the axes to (B, N, h, d) first.",
            lambda x, num_heads: (
                x.unflatten(0, (num_heads, -1))
                .transpose(1, 2)
                .reshape(len(x) // num_heads, -1, num_heads * x.shape[-1])
            ),
        ),
        Mistake(
            "example first",
            "you read row b*h + i as example b, head i. Here the heads come first: row i*B + b.",
            lambda x, num_heads: x.unflatten(0, (-1, num_heads)).transpose(1, 2).flatten(2),
        ),
        Mistake(
            "straight reshape",
            "a straight reshape joins numbers that lie side by side in memory: tokens of one head, not heads of one "
            "token.",
            lambda x, num_heads: x.reshape(len(x) // num_heads, x.shape[1], -1),
        ),
        Mistake(
            "the hint's example",
            "the axes are (N, h, B, d) now: the permutation in the hint was an example. You need (B, N, h, d).",
            lambda x, num_heads: (
                x.unflatten(0, (num_heads, -1)).permute(2, 0, 1, 3).reshape(len(x) // num_heads, x.shape[1], -1)
            ),
        ),
        Mistake(
            "tokens before examples",
            "examples and tokens have changed places before the reshape, which cuts the first axis into B examples.",
            lambda x, num_heads: (
                x.unflatten(0, (num_heads, -1)).permute(2, 1, 0, 3).reshape(len(x) // num_heads, x.shape[1], -1)
            ),
        ),
        Mistake(
            "heads inside channels",
            "the heads alternate: column 0 is of head 0, column 1 of head 1. Each head should own d columns in a row.",
            lambda x, num_heads: x.unflatten(0, (num_heads, -1)).permute(1, 2, 3, 0).flatten(2),
        ),
        Mistake(
            "heads not moved",
            "the examples are right, but a straight reshape joins (h, N, d) to (N, h * d): swap heads and tokens "
            "before.",
            lambda x, num_heads: (
                x.unflatten(0, (num_heads, -1)).transpose(0, 1).reshape(len(x) // num_heads, x.shape[1], -1)
            ),
        ),
    ],
)


def _unlike_masks(rng: random.Random) -> Iterator[Case]:
    for batch_size, num_heads, head_dim, num_tokens in ([2, 3, 1, 2], *(sizes(rng, 4, smallest=2) for _ in range(3))):
        seen = [
            [[rng.random() < 0.5 or i == j for j in range(num_tokens)] for i in range(num_tokens)]
            for _ in range(batch_size - 1)
        ]
        yield {
            **{name: draw(rng, batch_size, num_tokens, num_heads * head_dim) for name in "qkv"},
            "mask": torch.cat([torch.tensor(seen), torch.eye(num_tokens, dtype=torch.bool)[None]]),
            "num_heads": num_heads,
        }


def _folded_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, num_heads: int, *, fold: bool = True, tile: bool = True,
    unfold: bool = True,
) -> Tensor:  # fmt: skip
    """Attention over folded heads; each of the three steps is head first (`True`) or example first."""

    def folded(x: Tensor) -> Tensor:
        x = x.unflatten(-1, (num_heads, -1))
        return (x.permute(2, 0, 1, 3) if fold else x.transpose(1, 2)).flatten(0, 1)

    masks = mask.repeat(num_heads, 1, 1) if tile else mask.repeat_interleave(num_heads, 0)
    found, _ = attend(folded(q)[:, None], folded(k)[:, None], folded(v)[:, None], masks[:, None])
    if unfold:
        return _merged(found[:, 0], num_heads)
    return found[:, 0].unflatten(0, (-1, num_heads)).transpose(1, 2).flatten(2)


_FIRST = {True: "head first", False: "example first"}


def _does_not_fit(fold: bool, tile: bool, unfold: bool) -> Mistake:
    said = f"the fold is {_FIRST[fold]}, the masks are repeated {_FIRST[tile]}, the way back is {_FIRST[unfold]}"
    return Mistake(
        "nothing mended" if fold and unfold else f"fold {_FIRST[fold]}, masks {_FIRST[tile]}, back {_FIRST[unfold]}",
        f"{said}. All three must agree. (`repeat` writes mask 0, mask 1, mask 0, mask 1; `repeat_interleave` writes "
        "mask 0, mask 0, mask 1, mask 1.)",
        partial(_folded_attention, fold=fold, tile=tile, unfold=unfold),
    )


mended_tiling = Exercise(
    "mended_tiling",
    chapter=5,
    title="give folded heads their masks",
    reference=_folded_attention,
    cases=_unlike_masks,
    verified="four batches in which every example has a mask of its own.",
    points=3,
    mistakes=[
        *(_does_not_fit(*order) for order in product((True, False), repeat=3) if len(set(order)) == 2),
        Mistake(
            "mask ignored",
            "the mask has no effect any more.",
            lambda q, k, v, mask, num_heads: _folded_attention(q, k, v, torch.ones_like(mask), num_heads),
        ),
        Mistake(
            "one mask for all",
            "every example got the mask of example 0.",
            lambda q, k, v, mask, num_heads: _folded_attention(q, k, v, mask[:1].expand_as(mask), num_heads),
        ),
    ],
)


def _heads_beside_channels(rng: random.Random) -> Iterator[Case]:
    for batch_size, num_heads, head_dim, num_queries, num_kvpairs in ([1, 2, 2, 1, 2], sizes(rng, 5), sizes(rng, 5)):
        lengths = {"q": num_queries, "k": num_kvpairs, "v": num_kvpairs}
        yield {name: 2 * draw(rng, batch_size, length, num_heads, head_dim) for name, length in lengths.items()}


def _over_axis(q: Tensor, k: Tensor, v: Tensor, *, axis: int = 2) -> Tensor:
    scores = torch.einsum("bqhd,bkhd->bqkh", q, k) / math.sqrt(q.shape[-1])
    return torch.einsum("bqkh,bkhd->bqhd", scores.softmax(axis), v)


mended_axis = Exercise(
    "mended_axis",
    chapter=6,
    title="mend a softmax that runs over the wrong axis",
    reference=_over_axis,
    cases=_heads_beside_channels,
    verified="three batches; the weights of every query sum to 1.",
    mistakes=[
        Mistake(
            "nothing mended",
            "the softmax still runs over the queries: in a heatmap, columns would sum to 1 and rows would not. A query "
            "shares out its weight over the keys.",
            partial(_over_axis, axis=1),
        ),
        Mistake(
            "over the heads",
            "the softmax runs over the heads. Which axis are the keys in your scores?",
            partial(_over_axis, axis=3),
        ),
        Mistake(
            "over the batch",
            "the softmax runs over the examples: each one's result depends on all others.",
            partial(_over_axis, axis=0),
        ),
        Mistake(
            "scale lost",
            "the axis is right now, but the scores are no longer divided by the square root of d.",
            lambda q, k, v: _over_axis(q * math.sqrt(q.shape[-1]), k, v),
        ),
    ],
)


def _two_lengths(rng: random.Random) -> Iterator[Case]:
    for batch_size, num_targets, num_sources in ([2, 2, 3], *(sizes(rng, 3, largest=8) for _ in range(3))):
        yield {
            "source_lens": torch.tensor([rng.randint(1, num_sources) for _ in range(batch_size - 1)] + [num_sources]),
            "target_lens": torch.tensor([rng.randint(1, num_targets) for _ in range(batch_size - 1)] + [1]),
            "num_sources": num_sources,
            "num_targets": num_targets,
        }


def _real(lens: Tensor, num_tokens: int) -> Tensor:
    """Like `padding_mask`, but lengths may be those of the other sequence: too long."""
    return torch.arange(num_tokens) < lens[:, None, None, None]


def _self_mask(target_lens: Tensor, num_targets: int) -> Tensor:
    return _real(target_lens, num_targets) & causal_mask(num_targets)


def _both_masks(source_lens: Tensor, target_lens: Tensor, num_sources: int, num_targets: int) -> tuple[Tensor, Tensor]:
    return _self_mask(target_lens, num_targets), _real(source_lens, num_sources)


mended_masks = Exercise(
    "mended_masks",
    chapter=7,
    title="mend the masks of a decoder",
    reference=_both_masks,
    cases=_two_lengths,
    parts=("the mask of the self-attention", "the mask of the cross-attention"),
    verified="four batches of pairs: the target hides its own padding and future, and of the source only its padding.",
    points=2,
    mistakes=[
        Mistake(
            "nothing mended",
            "the cross-attention still hides the source's tokens by the target's lengths. Its keys come from the "
            "source: whose padding must it not see?",
            lambda source_lens, target_lens, num_sources, num_targets: (
                _self_mask(target_lens, num_targets),
                _real(target_lens, num_sources),
            ),
        ),
        Mistake(
            "lengths exchanged",
            "the cross-attention is right now, but the self-attention took the source's lengths: its keys are those of "
            "the target.",
            lambda source_lens, target_lens, num_sources, num_targets: (
                _self_mask(source_lens, num_targets),
                _real(source_lens, num_sources),
            ),
        ),
        Mistake(
            "both wrong",
            "now both masks take the wrong lengths: each attention hides the padding of its own keys.",
            lambda source_lens, target_lens, num_sources, num_targets: (
                _self_mask(source_lens, num_targets),
                _real(target_lens, num_sources),
            ),
        ),
        Mistake(
            "future seen",
            "the cross-attention is right, but the self-attention no longer hides the future.",
            lambda source_lens, target_lens, num_sources, num_targets: (
                _real(target_lens, num_targets).expand(-1, -1, num_targets, -1),
                _real(source_lens, num_sources),
            ),
        ),
        Mistake(
            "target's padding seen",
            "the cross-attention is right, but the self-attention no longer hides the target's padding.",
            lambda source_lens, target_lens, num_sources, num_targets: (
                causal_mask(num_targets).expand(len(target_lens), 1, -1, -1),
                _real(source_lens, num_sources),
            ),
        ),
        Mistake(
            "or",
            "the self-attention joins its two masks by `or`: both must allow, so `and`.",
            lambda source_lens, target_lens, num_sources, num_targets: (
                _real(target_lens, num_targets) | causal_mask(num_targets),
                _real(source_lens, num_sources),
            ),
        ),
        Mistake(
            "source hidden by the future",
            "the cross-attention hides the source's later words. They are all known: only what the decoder writes has "
            "a future.",
            lambda source_lens, target_lens, num_sources, num_targets: (
                _self_mask(target_lens, num_targets),
                _real(source_lens, num_sources) & torch.ones(num_targets, num_sources, dtype=torch.bool).tril(),
            ),
        ),
        Mistake(
            "queries hidden",
            "the cross-attention's mask hides rows, the target's padding as queries. Hide keys: columns.",
            lambda source_lens, target_lens, num_sources, num_targets: (
                _self_mask(target_lens, num_targets),
                _real(target_lens, num_targets).mT,
            ),
        ),
        Mistake(
            "nothing of the source hidden",
            "the cross-attention sees the source's padding.",
            lambda source_lens, target_lens, num_sources, num_targets: (
                _self_mask(target_lens, num_targets),
                torch.ones(len(source_lens), 1, 1, num_sources, dtype=torch.bool),
            ),
        ),
    ],
)
