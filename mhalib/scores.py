"""How good a model that writes sequences is, and how much its heads look where they should."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from ._validate import require_count, require_tensor
from .decoding import greedy
from .measures.patterns import attention_to
from .models import GPT
from .models._base import EncoderDecoder


class Pairs(Protocol):
    """Sources and targets, as in `mhalib.data.Translations`. `target` opens with the begin token; padding is 0."""

    @property
    def source(self) -> Tensor: ...

    @property
    def source_lens(self) -> Tensor: ...

    @property
    def target(self) -> Tensor: ...


def token_loss(model: EncoderDecoder, data: Pairs) -> Tensor:
    """Mean cross-entropy of the target tokens after the first, each predicted from those before it; no axes."""
    logits, written = _forced(model, data)
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), written.flatten(), ignore_index=0)


@torch.no_grad()
def token_accuracy(model: EncoderDecoder, data: Pairs, *, batch_size: int = 500) -> float:
    """Share of target tokens that the model holds likeliest, given the right tokens before them (teacher forcing)."""
    right = count = 0
    for part in _parts(data, batch_size):
        logits, written = _forced(model, part)
        real = written != 0
        right += int((logits.argmax(-1) == written)[real].sum())
        count += int(real.sum())
    return right / count


@torch.no_grad()
def exact_match(model: EncoderDecoder, data: Pairs, *, end: int = 2, batch_size: int = 500) -> float:
    """Share of targets that greedy decoding writes without any error.

    Args:
        model: in evaluation mode.
        data: what it reads, and what it is to write.
        end: id of the token that closes a target; 2 in the book's vocabularies.
        batch_size: how many are decoded at once.

    Raises:
        TypeError, ValueError: `data` is empty, or `batch_size` is not a positive integer.
    """
    right = 0
    for part in _parts(data, batch_size):
        wanted = part.target[:, 1:]
        begin = int(part.target[0, 0])
        found = greedy(model, part.source, part.source_lens, begin=begin, end=end, max_tokens=wanted.shape[1])
        padded = torch.zeros_like(wanted)
        padded[:, : found.shape[1]] = found
        right += int((padded == wanted).all(1).sum())
    return right / len(data.source)


def alignment_score(weights: Tensor, alignments: Tensor) -> Tensor:
    """For each head, the share of written words at which its largest weight lies on a word that they come from.

    Words that come from none, such as the end token, do not count. Of the words of a target, that in row t of
    `alignments` is the one that row t of the cross-attention *writes*, not the one that it has just read.

    Args:
        weights: (B, h, Q, K), of a cross-attention.
        alignments: (B, Q, K) boolean.

    Returns:
        (h,) in [0, 1].

    Raises:
        TypeError, ValueError: an argument is no tensor of this shape and type, or no word is aligned.

    Source: the agreement of alignments with attention, as in Garg et al. 2019, there as an error rate.
    """
    require_tensor("weights", weights, rank=4)
    require_tensor("alignments", alignments, rank=3)
    if alignments.dtype != torch.bool:
        raise TypeError(f"alignments must be boolean, got {alignments.dtype}")
    if alignments.shape != (weights.shape[0], *weights.shape[2:]):
        raise ValueError(f"alignments has shape {tuple(alignments.shape)}, but weights has {tuple(weights.shape)}")
    counts = alignments.any(-1)  # (B, Q)
    if not counts.any():
        raise ValueError("alignments has no aligned word")
    strongest = weights.argmax(-1)  # (B, h, Q)
    on_source = alignments[:, None].expand(weights.shape).gather(-1, strongest[..., None])[..., 0]
    return on_source.transpose(1, 2)[counts].float().mean(0)


@torch.no_grad()
def next_token_accuracy(model: GPT, tokens: Tensor, where: Tensor | None = None, *, batch_size: int = 500) -> float:
    """Share of tokens that the model holds likeliest, given those before them.

    Args:
        model: in evaluation mode.
        tokens: (B, N) ids; all but the first are predicted.
        where: (B, N - 1) boolean, which predictions count, such as `mhalib.data.Repeats.is_predictable`; `None`: all.
        batch_size: how many sequences are read at once.

    Raises:
        TypeError, ValueError: an argument is no tensor of this shape and type, or nothing counts.
    """
    require_tensor("tokens", tokens, rank=2)
    require_count("batch_size", batch_size)
    read, wanted = tokens[:, :-1], tokens[:, 1:]
    if where is None:
        where = torch.ones_like(wanted, dtype=torch.bool)
    require_tensor("where", where, rank=2)
    if where.dtype != torch.bool:
        raise TypeError(f"where must be boolean, got {where.dtype}")
    if where.shape != wanted.shape:
        raise ValueError(f"where has shape {tuple(where.shape)}, but needs {tuple(wanted.shape)}")
    if not where.any():
        raise ValueError("where marks no prediction")
    found = torch.cat([model(part)[0].argmax(-1) for part in read.split(batch_size)])
    return float((found == wanted)[where].float().mean())


def previous_token_score(weights: Tensor) -> Tensor:
    """How much of its attention each head gives to the token before: the mean over queries of w_t,t-1.

    The first query, which has no token before it, does not count. It is `mhalib.measures.attention_to` with "previous".

    Args:
        weights: (B, h, N, N), self-attention; every token real.

    Returns:
        (h,) in [0, 1].

    Raises:
        TypeError, ValueError: `weights` is no such tensor, or N is 1.

    Source: the previous token heads of Elhage et al. 2021 and Olsson et al. 2022.
    """
    return attention_to(weights, "previous")


def induction_targets(tokens: Tensor) -> Tensor:
    """Where an induction head should look: (B, N) ids -> boolean (B, N, N), `True` at [b, t, j] if token j follows an
    earlier occurrence of token t, that is `tokens[b, j - 1] == tokens[b, t]` and 0 < j <= t.

    Raises:
        TypeError, ValueError: `tokens` is no tensor of two axes.
    """
    require_tensor("tokens", tokens, rank=2)
    is_same = (tokens[:, :, None] == tokens[:, None, :]).tril(-1)  # [b, t, j]: token j comes earlier and is the same
    return is_same.roll(1, -1)  # the last column is empty, so nothing comes round


def induction_score(weights: Tensor, tokens: Tensor) -> Tensor:
    """How much of its attention each head gives to the tokens that followed earlier occurrences of its query's token.

    The mean over queries of the sum of w_tj over `induction_targets`. Queries whose token has not occurred before do
    not count. A head that looks evenly at all it may see has no score of 0: compare with a model that is not trained.

    Args:
        weights: (B, h, N, N), self-attention with a causal mask; every token real.
        tokens: (B, N) ids that the layer's tokens stand for.

    Returns:
        (h,) in [0, 1].

    Raises:
        TypeError, ValueError: an argument is no such tensor, they do not fit, or no token occurs twice.

    Source: the prefix matching of Olsson et al. 2022, which sums over all earlier occurrences too, on repeated random
    tokens. The name is from Elhage et al. 2021.
    """
    require_tensor("weights", weights, rank=4)
    targets = induction_targets(tokens)
    if weights.shape[0] != len(tokens) or weights.shape[2:] != targets.shape[1:]:
        raise ValueError(f"tokens has shape {tuple(tokens.shape)}, but weights has {tuple(weights.shape)}")
    if not targets.any():
        raise ValueError("tokens has no token that occurs twice")
    return attention_to(weights, targets)


def _forced(model: EncoderDecoder, data: Pairs) -> tuple[Tensor, Tensor]:
    """Logits (B, T - 1, words), and the tokens that they should predict (B, T - 1)."""
    logits, _ = model(data.source, data.target[:, :-1], data.source_lens)
    return logits, data.target[:, 1:]


def _parts(data: Pairs, batch_size: int) -> list[Pairs]:
    require_count("batch_size", batch_size)
    if not len(data.source):
        raise ValueError("data is empty")
    parts = [tensor.split(batch_size) for tensor in (data.source, data.source_lens, data.target)]
    return [_Part(*part) for part in zip(*parts, strict=True)]


class _Part:
    def __init__(self, source: Tensor, source_lens: Tensor, target: Tensor) -> None:
        self.source, self.source_lens, self.target = source, source_lens, target
