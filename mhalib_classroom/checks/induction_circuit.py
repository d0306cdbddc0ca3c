"""What a head copies, and what each part of a model adds to a logit."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from mhalib.attention import causal_mask

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _weights_of_a_model(rng: random.Random) -> Iterator[Case]:
    for vocab_size, head_dim, num_heads, head in ((3, 1, 2, 1), (7, 2, 3, 1), (5, 3, 4, 2), (11, 4, 5, 3)):
        num_hiddens = head_dim * num_heads
        yield {
            "embedding": draw(rng, vocab_size, num_hiddens),
            "W_v": draw(rng, num_hiddens, num_hiddens),
            "W_o": draw(rng, num_hiddens, num_hiddens),
            "readout": draw(rng, vocab_size, num_hiddens),
            "head": head,
            "num_heads": num_heads,
        }


def _own(W: Tensor, head: int, num_heads: int) -> slice:
    d = len(W) // num_heads
    return slice(head * d, (head + 1) * d)


def _copying(
    embedding: Tensor,
    W_v: Tensor,
    W_o: Tensor,
    readout: Tensor,
    head: int,
    num_heads: int,
    *,
    channels: Callable[[Tensor, int, int], slice] = _own,
    columns_of_v: bool = False,
    rows_of_o: bool = False,
    from_the_readout: bool = False,
    transposed: bool = False,
) -> Tensor:
    own = channels(W_v, head, num_heads)
    values = W_v[:, own] if columns_of_v else W_v[own].T
    written = W_o[own] if rows_of_o else W_o[:, own].T
    ends = (readout, embedding) if from_the_readout else (embedding, readout)
    table = ends[0] @ values @ written @ ends[1].T
    return table.T if transposed else table


copying_table = exercise(
    "copying_table",
    reference=_copying,
    cases=_weights_of_a_model,
    switches=_copying,
)


def _parts(rng: random.Random) -> Iterator[Case]:
    for num_parts, batch_size, num_tokens, num_hiddens, vocab_size in (
        [2, 1, 3, 2, 4],
        *apart(rng, 5, largest=9),
    ):
        yield {
            "added": draw(rng, num_parts, batch_size, num_tokens, num_hiddens),
            "readout": draw(rng, vocab_size, num_hiddens),
            "targets": torch.tensor(
                [[rng.randrange(vocab_size) for _ in range(num_tokens)] for _ in range(batch_size)]
            ),
        }


def _pick(scores: Tensor, targets: Tensor) -> Tensor:
    """(parts, B, N, words), (B, N) -> (parts, B, N)."""
    return scores.gather(-1, targets.expand(len(scores), *targets.shape)[..., None])[..., 0]


def _centred(added: Tensor, readout: Tensor) -> Tensor:
    scores = added @ readout.T
    return scores - scores.mean(-1, keepdim=True)


logit_attribution = exercise(
    "logit_attribution",
    reference=lambda added, readout, targets: _pick(_centred(added, readout), targets),
    cases=_parts,
)


def _two_runs(rng: random.Random) -> Iterator[Case]:
    for size in ([2, 1, 3, 4], *apart(rng, 4, smallest=2, largest=8)):
        yield {name: draw(rng, *size) for name in ("clean", "corrupted", "gradient")}


def _effects(
    clean: Tensor,
    corrupted: Tensor,
    gradient: Tensor,
    *,
    sign: int = 1,
    to_clean: bool = True,
    from_corrupted: bool = True,
    mean_of_inputs: bool = False,
    mean_of_channels: bool = False,
) -> Tensor:
    step = clean - corrupted if to_clean and from_corrupted else clean if to_clean else corrupted
    change = step * gradient * sign
    change = change.mean(-1) if mean_of_channels else change.sum(-1)
    return change.mean(0) if mean_of_inputs else change.sum(0)


estimated_effects = exercise(
    "estimated_effects",
    reference=_effects,
    cases=_two_runs,
    switches=_effects,
)


def _heads_with_notes(rng: random.Random) -> Iterator[Case]:
    for num_tokens, num_hiddens, head_dim in ([3, 4, 2], *apart(rng, 3, smallest=2, largest=9)):
        columns = {name: draw(rng, num_tokens, num_hiddens) for name in ("x", "corrupted", "clean")}
        yield columns | {name: draw(rng, head_dim, num_hiddens) for name in ("W_q", "W_k", "W_v")}


def _path(
    x: Tensor,
    corrupted: Tensor,
    clean: Tensor,
    W_q: Tensor,
    W_k: Tensor,
    W_v: Tensor,
    *,
    query: bool = False,
    key: bool = True,
    value: bool = False,
    symbol: bool = True,
    causal: bool = True,
    scaled: bool = True,
    by_width: bool = False,
) -> Tensor:
    q = (x + (clean if query else corrupted)) @ W_q.T
    k = (x * symbol + (clean if key else corrupted)) @ W_k.T
    v = (x + (clean if value else corrupted)) @ W_v.T
    scores = q @ k.T / ((x if by_width else q).shape[-1] ** 0.5 if scaled else 1.0)
    if causal:
        scores = scores.masked_fill(~causal_mask(len(x)), -torch.inf)
    return scores.softmax(-1) @ v


patched_key = exercise(
    "patched_key",
    reference=_path,
    cases=_heads_with_notes,
    switches=_path,
)
