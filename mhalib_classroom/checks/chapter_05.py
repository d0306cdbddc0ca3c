"""Chapter 5: heads that are split, merged and folded into the batch."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from mhalib.attention import merge_heads as right_merge
from mhalib.attention import split_heads as right_split
from mhalib.attention import transpose_qkv as right_fold

from ._exercise import Case, Exercise, Mistake
from ._heads import interleaved_merge, interleaved_split, merge_folded_head_first, straight_merge, straight_split
from ._inputs import apart, draw


def _tokens(rng: random.Random) -> Iterator[Case]:
    """x (B, N, h*d) and h: once with distinct small sizes, then with random ones."""
    yield {"x": draw(rng, 1, 3, 4), "num_heads": 2}
    for batch_size, num_tokens, num_heads, head_dim in apart(rng, 4, of=lambda B, N, h, d: [B, N, h, d, h * d]):
        yield {"x": draw(rng, batch_size, num_tokens, num_heads * head_dim), "num_heads": num_heads}


def _heads(rng: random.Random) -> Iterator[Case]:
    for case in _tokens(rng):
        yield {"x": right_split(case["x"], case["num_heads"]).contiguous()}


def _no_transpose(x: Tensor, num_heads: int) -> Tensor:
    return x.unflatten(-1, (num_heads, -1))


def _wrong_transpose(x: Tensor, num_heads: int) -> Tensor:
    return x.unflatten(-1, (num_heads, -1)).permute(0, 2, 3, 1)


split_heads = Exercise(
    "split_heads",
    chapter=5,
    title="split (B, N, D) into (B, h, N, d)",
    reference=right_split,
    cases=_tokens,
    verified="four random inputs with sizes that all differ; head i holds columns i*d to (i+1)*d of every token.",
    mistakes=[
        Mistake(
            "straight reshape",
            "you reshaped straight to (B, h, N, d). The shape is right, but the rows of head 0 are now the first "
            "numbers in memory, pieces of the first tokens with all their channels. Split the last axis into (h, d) "
            "first, then swap the axes of tokens and heads.",
            straight_split,
        ),
        Mistake(
            "axis split as (d, h)",
            "you split the last axis into (d, h), not (h, d). Head i then holds every h-th column, not columns i*d to "
            "(i+1)*d. The layer would still train, but weights from other libraries would land in the wrong heads.",
            interleaved_split,
        ),
        Mistake(
            "no transpose",
            "you split the last axis but left the heads behind the tokens: (B, N, h, d). Swap axes 1 and 2, or "
            "attention will compare heads of one token instead of tokens.",
            _no_transpose,
        ),
        Mistake(
            "channels before tokens",
            "the heads are right, but inside a head tokens and channels are swapped: (B, h, d, N). That is the form "
            "which `q @ k.mT` makes of the keys by itself.",
            _wrong_transpose,
        ),
    ],
)


merge_heads = Exercise(
    "merge_heads",
    chapter=5,
    title="merge (B, h, N, d) into (B, N, D)",
    reference=right_merge,
    cases=_heads,
    verified="it undoes split_heads on four random inputs with sizes that all differ.",
    mistakes=[
        Mistake(
            "straight reshape",
            "you reshaped straight to (B, N, D). The heads still lie one behind the other in memory, so a row of your "
            "result holds several tokens of one head. Swap the axes of heads and tokens first.",
            straight_merge,
        ),
        Mistake(
            "heads interleaved",
            "you put the heads' channels in turn, one of each head, instead of side by side: (d, h) where (h, d) is "
            "meant.",
            interleaved_merge,
        ),
        Mistake(
            "view of a transpose",
            "`view` needs numbers that lie in one piece, and after the swap of axes they do not. Use `reshape` or "
            "`flatten`, which copy where they must.",
            lambda x: x.transpose(1, 2).view(len(x), x.shape[2], -1),
        ),
    ],
)


fold_heads = Exercise(
    "fold_heads",
    chapter=5,
    title="fold the heads into the batch",
    reference=right_fold,
    cases=_tokens,
    verified="four random inputs; row b*h + i is example b, head i.",
    points=2,
    mistakes=[
        Mistake(
            "straight reshape",
            "you reshaped straight to (B*h, N, d): tokens and channels are mixed. Split, swap the axes, then flatten.",
            lambda x, num_heads: x.reshape(len(x) * num_heads, x.shape[1], -1),
        ),
        Mistake(
            "heads first",
            "the rows are in the order i*B + b: all examples of head 0, then all of head 1. Lengths that are repeated "
            "by `repeat_interleave` would land at wrong rows.",
            lambda x, num_heads: right_split(x, num_heads).transpose(0, 1).flatten(0, 1),
        ),
        Mistake(
            "not folded",
            "the heads are split rightly, but they still have an axis of their own: flatten the first two.",
            right_split,
        ),
        Mistake(
            "no transpose",
            "you folded the axes (B, N) instead of (B, h): your rows are tokens.",
            lambda x, num_heads: x.unflatten(-1, (num_heads, -1)).flatten(0, 1),
        ),
    ],
)


def _rows(rng: random.Random) -> Iterator[Case]:
    yield {"row": 21, "num_heads": 8}
    for num_heads, example in apart(rng, 2, 5, smallest=3, largest=12):
        yield {"row": example * num_heads + rng.randrange(num_heads), "num_heads": num_heads}


row_of_fold = Exercise(
    "row_of_fold",
    chapter=5,
    is_prediction=True,
    title="which example and head a folded row holds",
    reference=lambda row, num_heads: (row // num_heads, row % num_heads),
    cases=_rows,
    parts=("the example b", "the head i"),
    verified="row 21 with 8 heads, and five random rows.",
    mistakes=[
        Mistake(
            "swapped",
            "you return the head first. Return the example b, then the head i.",
            lambda row, num_heads: (row % num_heads, row // num_heads),
        ),
        Mistake(
            "counted from 1",
            "examples and heads count from 0.",
            lambda row, num_heads: (row // num_heads + 1, row % num_heads + 1),
        ),
        Mistake(
            "not rounded",
            "b is a whole number: divide with // and not with /.",
            lambda row, num_heads: (row / num_heads, row % num_heads),
        ),
    ],
)


def _strided(rng: random.Random) -> Iterator[Case]:
    yield {"shape": (2, 3, 4), "num_heads": 2}
    for batch_size, num_tokens, num_heads, head_dim in apart(rng, 4, of=lambda B, N, h, d: [B, N, h, d, h * d]):
        yield {"shape": (batch_size, num_tokens, num_heads * head_dim), "num_heads": num_heads}


def _strides(shape: tuple[int, int, int], num_heads: int) -> tuple[int, ...]:
    return right_split(torch.empty(shape), num_heads).stride()


strides_of_heads = Exercise(
    "strides_of_heads",
    chapter=5,
    is_prediction=True,
    title="strides after the split",
    reference=_strides,
    cases=_strided,
    parts=("the stride of B", "the stride of h", "the stride of N", "the stride of d"),
    verified="four shapes; nothing was copied, so the strides of tokens and channels are those of x.",
    points=3,
    mistakes=[
        Mistake(
            "strides of a copy",
            "these are the strides of a fresh array of shape (B, h, N, d). The split moves no number: it only reads x "
            "with other strides.",
            lambda shape, num_heads: right_split(torch.empty(shape), num_heads).contiguous().stride(),
        ),
        Mistake(
            "in bytes",
            "these are bytes, as NumPy counts them. torch counts numbers.",
            lambda shape, num_heads: tuple(4 * stride for stride in _strides(shape, num_heads)),
        ),
        Mistake(
            "before the swap",
            "these are the strides before the axes of heads and tokens change places. They go with their axes.",
            lambda shape, num_heads: torch.empty(shape).unflatten(-1, (num_heads, -1)).stride(),
        ),
        Mistake(
            "the shape",
            "this is the shape. A stride says how many numbers lie between neighbours along an axis.",
            lambda shape, num_heads: tuple(right_split(torch.empty(shape), num_heads).shape),
        ),
    ],
)


def _head_first(rng: random.Random) -> Iterator[Case]:
    yield {"x": torch.arange(12.0).reshape(6, 2, 1), "num_heads": 2}
    for batch_size, num_heads, num_tokens, head_dim in apart(rng, 4, of=lambda B, h, N, d: [B, h, N, d, h * B, h * d]):
        yield {"x": draw(rng, num_heads * batch_size, num_tokens, head_dim), "num_heads": num_heads}


mended_merge = Exercise(
    "mended_merge",
    chapter=5,
    given="nothing mended",
    title="merge heads that were folded head first",
    reference=merge_folded_head_first,
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
