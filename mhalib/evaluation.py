"""How good a model that writes sequences is."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from ._validate import require_count, require_kind, require_tensor
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
def exact_match(model: EncoderDecoder, data: Pairs, *, batch_size: int = 500) -> float:
    """Share of targets that greedy decoding writes without any error.

    Nothing is decoded. As long as greedy decoding has made no error, it reads the right tokens, so it writes a whole
    target exactly where every token is the likeliest after the right tokens before it; one pass finds these.

    Args:
        model: in evaluation mode.
        data: what it reads, and what it is to write.
        batch_size: how many targets one pass reads.

    Raises:
        TypeError, ValueError: `data` is empty, or `batch_size` is not a positive integer.
    """
    right = 0
    for part in _parts(data, batch_size):
        logits, written = _forced(model, part)
        right += int(((logits.argmax(-1) == written) | (written == 0)).all(1).sum())
    return right / len(data.source)


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
    require_kind("model", model, nn.Module)
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
    found = torch.cat([_next_logits(model, part).argmax(-1) for part in read.split(int(batch_size))])
    return float((found == wanted)[where].float().mean())


def _next_logits(model: nn.Module, tokens: Tensor) -> Tensor:
    """What the model says comes after each token, (B, N, words). `TypeError` if it is no model of that kind."""
    try:
        logits, _ = model(tokens)
    except (RuntimeError, AttributeError, IndexError) as error:
        raise TypeError(f"model must take ids and return logits and weights, got {type(model).__name__}") from error
    require_tensor("model's logits", logits, rank=3)
    return logits


def _forced(model: EncoderDecoder, data: Pairs) -> tuple[Tensor, Tensor]:
    """Logits (B, T - 1, words), and the tokens that they should predict (B, T - 1)."""
    require_kind("model", model, EncoderDecoder)
    _require_pairs(data)
    logits, _ = model(data.source, data.target[:, :-1], data.source_lens)
    return logits, data.target[:, 1:]


def _require_pairs(data: Pairs) -> None:
    """Raise unless `data` has sources and targets (TypeError), as many of each (ValueError)."""
    for name in ("source", "source_lens", "target"):
        if not hasattr(data, name):
            raise TypeError(f"data must have source, source_lens and target, got {type(data).__name__}: {data!r:.80}")
        require_tensor(f"data.{name}", getattr(data, name))
    if not len(data.source):
        raise ValueError("data is empty")
    require_tensor("data.target", data.target, rank=2)
    if not len(data.source) == len(data.source_lens) == len(data.target):
        raise ValueError(f"data has {len(data.source)} sources, but {len(data.target)} targets")


def _parts(data: Pairs, batch_size: int) -> list[Pairs]:
    require_count("batch_size", batch_size)
    _require_pairs(data)
    parts = [tensor.split(int(batch_size)) for tensor in (data.source, data.source_lens, data.target)]
    return [_Part(*part) for part in zip(*parts, strict=True)]


class _Part:
    def __init__(self, source: Tensor, source_lens: Tensor, target: Tensor) -> None:
        self.source, self.source_lens, self.target = source, source_lens, target
