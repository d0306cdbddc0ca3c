"""Repairs of what stands around a layer: mistakes that were reported in public code. Chapters 8 to 14."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from ...attention import attend
from ...models import patches
from ._exercise import Case, Exercise, Mistake, draw, sizes
from .importance import without_heads


def _answers(rng: random.Random) -> Iterator[Case]:
    yield {"written": torch.tensor([[4, 5, 0], [4, 3, 5]]), "expected": torch.tensor([[4, 6, 0], [4, 0, 0]])}
    for _ in range(3):
        number, length = sizes(rng, 2, smallest=5, largest=9)
        lens = [1, length, *(rng.randint(2, length) for _ in range(number - 2))]
        expected = torch.tensor([[rng.randint(1, 4) if t < n else 0 for t in range(length)] for n in lens])
        written = [[word if rng.random() < 0.6 else rng.randint(0, 4) for word in row] for row in expected.tolist()]
        written[0][-1], written[1][0] = 1, 0  # something at padding, padding at something
        yield {"written": torch.tensor(written), "expected": expected}


def _accuracy(written: Tensor, expected: Tensor) -> float:
    real = expected != 0
    return (written == expected)[real].float().mean().item()


mended_accuracy = Exercise(
    "mended_accuracy",
    chapter=8,
    title="mend a share of right words",
    reference=_accuracy,
    cases=_answers,
    verified="four batches of sentences with padding; only real words count, above and below the line.",
    mistakes=[
        Mistake(
            "nothing mended",
            "padding still counts as words: where the model writes padding too, each is a right answer that nobody "
            "asked for.",
            lambda written, expected: (written == expected).float().mean().item(),
        ),
        Mistake(
            "divided by all",
            "padding no longer counts as right, but you still divide by all places, padding included.",
            lambda written, expected: ((written == expected) & (expected != 0)).float().mean().item(),
        ),
        Mistake(
            "divided by the real ones only",
            "you divide by the real words, but padding still counts as right above the line.",
            lambda written, expected: ((written == expected).sum() / (expected != 0).sum()).item(),
        ),
        Mistake(
            "where neither is padding",
            "you leave out the real words for which the model wrote padding. They are wrong, and count below the line.",
            lambda written, expected: (written == expected)[(written != 0) & (expected != 0)].float().mean().item(),
        ),
        Mistake(
            "padding counts as right",
            "you count every place of padding as right. It is no word: leave it out above and below the line.",
            lambda written, expected: ((written == expected) | (expected == 0)).float().mean().item(),
        ),
        Mistake(
            "padding of what was written",
            "you leave out the places where the MODEL wrote padding. It could leave out what it does not know: the "
            "expected sentence says which places are real.",
            lambda written, expected: (written == expected)[written != 0].float().mean().item(),
        ),
        Mistake(
            "mean of sentences",
            "this is the mean over sentences of each one's share. A word of a short sentence counts more then. Count "
            "all words together.",
            lambda written, expected: (
                (((written == expected) & (expected != 0)).sum(1) / (expected != 0).sum(1)).mean().item()
            ),
        ),
        Mistake(
            "whole sentences",
            "this is the share of sentences without a mistake. Count words.",
            lambda written, expected: ((written == expected) | (expected == 0)).all(1).float().mean().item(),
        ),
    ],
)


def _texts(rng: random.Random) -> Iterator[Case]:
    for batch_size, num_tokens, num_words in ([2, 3, 4], *(sizes(rng, 3, smallest=4, largest=9) for _ in range(3))):
        yield {
            "logits": 2 * draw(rng, batch_size, num_tokens, num_words),
            "tokens": torch.tensor(
                [[0, *(rng.randrange(num_words) for _ in range(num_tokens - 2)), 0] for _ in range(batch_size - 1)]
                + [[rng.randrange(1, num_words) for _ in range(num_tokens)]]
            ),
        }


def _loss(logits: Tensor, tokens: Tensor, *, shift: int = 1) -> Tensor:
    read = logits[:, : logits.shape[1] - shift] if shift >= 0 else logits[:, -shift:]
    asked = tokens[:, shift:] if shift >= 0 else tokens[:, :shift]
    return F.cross_entropy(read.flatten(0, 1), asked.flatten())


mended_loss = Exercise(
    "mended_loss",
    chapter=9,
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


def _new_tokens(rng: random.Random) -> Iterator[Case]:
    several = [[rng.choice((1, 3)), 2, new, new + rng.randint(2, 4), 11] for new in rng.sample(range(4, 7), 2)]
    for batch_size, num_heads, num_queries, num_kvpairs, head_dim in ([1, 1, 1, 3, 2], *several, [3, 2, 4, 4, 5]):
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
    chapter=9,
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


def _coloured(rng: random.Random) -> Iterator[Case]:
    yield {"images": torch.arange(16.0).reshape(1, 2, 2, 4), "patch_size": 2}
    for _ in range(3):
        batch_size, channels, rows, columns, patch_size = sizes(rng, 5, largest=6)
        images = draw(rng, batch_size, channels, rows * patch_size, columns * patch_size)
        yield {"images": images, "patch_size": patch_size}


def _colour_patches(images: Tensor, patch_size: int) -> Tensor:
    return torch.cat([patches(channel, patch_size) for channel in images.unbind(1)], -1)


def _cut(images: Tensor, patch_size: int) -> Tensor:
    """(B, channels, rows, columns, patch_size, patch_size)."""
    return images.unfold(2, patch_size, patch_size).unfold(3, patch_size, patch_size)


mended_patches = Exercise(
    "mended_patches",
    chapter=10,
    title="mend the patches of coloured pictures",
    reference=_colour_patches,
    cases=_coloured,
    verified="four batches of pictures with several channels, not square: a patch holds all channels of one square.",
    points=2,
    mistakes=[
        Mistake(
            "nothing mended",
            "the axes are (B, channels, rows, columns, patch_size, patch_size), and the reshape reads them in this "
            "order: a patch now holds one channel of several squares. The axis of the channels must stand behind those "
            "of rows and columns.",
            lambda images, patch_size: _cut(images, patch_size).reshape(
                len(images), -1, images.shape[1] * patch_size**2
            ),
        ),
        Mistake(
            "channels behind rows only",
            "the channels must stand behind the rows AND the columns of patches.",
            lambda images, patch_size: (
                _cut(images, patch_size).transpose(1, 2).reshape(len(images), -1, images.shape[1] * patch_size**2)
            ),
        ),
        Mistake(
            "channels last",
            "each patch holds the right numbers, but the channels of one pixel stand together. The text asks for one "
            "channel after the other.",
            lambda images, patch_size: _cut(images, patch_size).permute(0, 2, 3, 4, 5, 1).flatten(3).flatten(1, 2),
        ),
        Mistake(
            "column by column",
            "the patches are in the order of columns: the second one should be to the right of the first.",
            lambda images, patch_size: _cut(images, patch_size).permute(0, 3, 2, 1, 4, 5).flatten(3).flatten(1, 2),
        ),
        Mistake(
            "straight reshape",
            "you reshaped the picture straight: a `patch` is now a piece of some rows.",
            lambda images, patch_size: images.reshape(len(images), -1, images.shape[1] * patch_size**2),
        ),
        Mistake(
            "patches transposed",
            "the patches are in the right order, but each is transposed: pixels column by column.",
            lambda images, patch_size: _cut(images, patch_size).permute(0, 2, 3, 1, 5, 4).flatten(3).flatten(1, 2),
        ),
    ],
)


def _written_words(rng: random.Random) -> Iterator[Case]:
    yield {"weights": torch.tensor([[0.1, 0.2, 0.7, 0.0], [0.5, 0.1, 0.1, 0.3]]), "tokens": ["a", "dog", "saw", "it"]}
    for _ in range(3):
        num_queries, more = sizes(rng, 2)
        tokens = rng.sample("a cat chased the old mouse under our table while two boys slept".split(), 13)
        tokens = [*tokens[: num_queries + more - 1], tokens[0]]  # a word may stand twice
        yield {"weights": (2 * draw(rng, num_queries, len(tokens))).softmax(-1), "tokens": tokens}


def _pairs(weights: Tensor, tokens: list[str], *, first: int | None = None) -> list[tuple[str, str]]:
    first = len(tokens) - len(weights) if first is None else first
    return [(tokens[first + i], tokens[int(row.argmax())]) for i, row in enumerate(weights)]


mended_words = Exercise(
    "mended_words",
    chapter=12,
    title="mend the words beside a heatmap",
    reference=_pairs,
    cases=_written_words,
    verified="four tables with fewer rows than columns: row i is the query of the i-th of the LAST tokens.",
    points=2,
    mistakes=[
        Mistake(
            "nothing mended",
            "row 0 is still called by the first token of the text. The rows are the queries of the last tokens: the "
            "first of them is token K - Q.",
            partial(_pairs, first=0),
        ),
        Mistake(
            "one too early",
            "each row is called by the token before its own.",
            lambda weights, tokens: _pairs(weights, tokens, first=len(tokens) - len(weights) - 1),
        ),
        Mistake(
            "from the end",
            "the rows run backwards: row 0 is the FIRST of the last tokens, not the last of all.",
            lambda weights, tokens: [(tokens[-i - 1], looked) for i, (_, looked) in enumerate(_pairs(weights, tokens))],
        ),
        Mistake(
            "one too far",
            "each row is called by the token after its own.",
            lambda weights, tokens: [
                (tokens[(len(tokens) - len(weights) + i + 1) % len(tokens)], looked)
                for i, (_, looked) in enumerate(_pairs(weights, tokens))
            ],
        ),
        Mistake(
            "keys moved too",
            "you moved the keys as well. The columns are all tokens, from the first on.",
            lambda weights, tokens: [
                (asks, tokens[(int(row.argmax()) + len(tokens) - len(weights)) % len(tokens)])
                for (asks, _), row in zip(_pairs(weights, tokens), weights, strict=True)
            ],
        ),
        Mistake(
            "pairs turned round",
            "each pair is turned round: the token that looks comes first.",
            lambda weights, tokens: [(looked, asks) for asks, looked in _pairs(weights, tokens)],
        ),
    ],
)


def _several_heads(rng: random.Random) -> Iterator[Case]:
    for ordered in (True, True, False):
        num_heads, head_dim = rng.choice([(4, 5), (4, 7), (5, 4), (5, 6), (6, 5), (6, 7)])
        heads = [*sorted(rng.sample(range(num_heads - 1), 2)), num_heads - 1]
        yield {
            "W_v": draw(rng, num_heads * head_dim, num_heads * head_dim),
            "W_o": draw(rng, num_heads * head_dim, num_heads * head_dim),
            "heads": heads if ordered else [heads[1], heads[2], heads[0]],
            "num_heads": num_heads,
        }


def _one_by_one(
    W_v: Tensor, W_o: Tensor, heads: list[int], num_heads: int, *, width: str = "fixed", moved: int = 0
) -> tuple[Tensor, Tensor]:
    """Head after head; `width` says how d is found in each round, `moved` by how much the number falls in each."""
    D = len(W_v)
    for removed, head in enumerate(heads):
        head_dim = {"fixed": D // num_heads, "stale": len(W_v) // num_heads}.get(
            width, len(W_v) // (num_heads - removed)
        )
        keep = torch.arange(len(W_v)) // head_dim != head - moved * removed
        W_v, W_o = W_v[keep], W_o[:, keep]
    return W_v, W_o


mended_pruning = Exercise(
    "mended_pruning",
    chapter=14,
    title="mend the removal of several heads",
    reference=without_heads,
    cases=_several_heads,
    parts=("W_v", "W_o"),
    verified="three layers of which three heads were removed, in several orders; the numbers are those before pruning.",
    points=3,
    mistakes=[
        Mistake(
            "nothing mended",
            "after the first head is gone, `len(W_v)` is smaller, and `num_heads` is not: d comes out too small, and "
            "from then on pieces of other heads are cut out.",
            partial(_one_by_one, width="stale"),
        ),
        *(
            Mistake(
                f"numbers of what is left, d {width}",
                "d is right now, but when a head is gone, all heads after it move up by one. You count in what is "
                "left, and remove others than those that were named.",
                partial(_one_by_one, width=width),
            )
            for width in ("fixed", "counted down")
        ),
        Mistake(
            "moved by all that are gone",
            "you lower a head's number by all heads that are gone. Only those BEFORE it move it, and `heads` need not "
            "be in order.",
            partial(_one_by_one, moved=1),
        ),
        Mistake(
            "from the last, but d too small",
            "from the last head to the first, the numbers stay right. But d is still taken from a layer that has "
            "shrunk.",
            lambda W_v, W_o, heads, num_heads: _one_by_one(
                W_v, W_o, sorted(heads, reverse=True), num_heads, width="stale"
            ),
        ),
        Mistake(
            "first head only",
            "only the first of the heads was removed.",
            lambda W_v, W_o, heads, num_heads: without_heads(W_v, W_o, heads[:1], num_heads),
        ),
        Mistake(
            "only these heads kept",
            "you kept the heads that were to go, and removed the others.",
            lambda W_v, W_o, heads, num_heads: without_heads(
                W_v, W_o, [i for i in range(num_heads) if i not in heads], num_heads
            ),
        ),
    ],
)
