"""Targets of a source: the likeliest token again and again, or with a beam."""

from __future__ import annotations

import torch
from torch import Tensor

from .._validate import LARGEST, require_count, require_flag, require_kind, require_tensor
from ..models import DecoderCache
from ..models._base import EncoderDecoder
from .caches import caches_for


@torch.no_grad()
def greedy(
    model: EncoderDecoder,
    source: Tensor,
    source_lens: Tensor | None = None,
    *,
    begin: int,
    end: int,
    max_tokens: int,
    padding: int = 0,
    use_cache: bool = True,
    caches: list[DecoderCache] | None = None,
) -> Tensor:
    """Write the likeliest next token, again and again.

    Args:
        model: a `Transformer` or a `Captioner`, in evaluation mode.
        source: what it reads, as its `encode` takes it; B examples.
        source_lens: (B,) how many tokens of the source are real.
        begin, end: ids of the tokens that open and close a target.
        max_tokens: how many tokens are written at most, `end` among them.
        padding: id that stands behind `end`.
        use_cache: whether keys and values are kept, or all is computed anew for every token; the result is the same.
        caches: where they are kept, one for each layer of the decoder, empty; `None` means `model.new_caches()`.

    Returns:
        (B, T) ids without `begin`, T at most `max_tokens`.

    Raises:
        TypeError, ValueError: an argument is not of this kind.
    """
    _require_sequence_writer(model, source, begin, end, padding)
    require_count("max_tokens", max_tokens)
    require_flag("use_cache", use_cache)
    memory, _ = model.encode(source, source_lens)
    caches = caches_for(model, caches, use_cache)
    written = torch.full((len(source), 1), begin, device=source.device)
    ended = torch.zeros(len(source), dtype=torch.bool, device=source.device)
    for _ in range(max_tokens):
        new = written[:, -1:] if use_cache else written
        logits, _ = model.decode(new, memory, source_lens, caches=caches)
        best = logits[:, -1].argmax(-1).masked_fill(ended, padding)
        written = torch.cat([written, best[:, None]], 1)
        ended |= best == end
        if ended.all():
            break
    return written[:, 1:]


@torch.no_grad()
def beam_search(
    model: EncoderDecoder,
    source: Tensor,
    source_lens: Tensor | None = None,
    *,
    begin: int,
    end: int,
    max_tokens: int,
    num_beams: int = 4,
    padding: int = 0,
    caches: list[DecoderCache] | None = None,
) -> tuple[Tensor, Tensor]:
    """Keep the `num_beams` likeliest beginnings of each target, and return what they have become, the best first.

    The score of a target is the sum of the logarithms of its tokens' probabilities, `end` among them; there is no
    correction for length. Where there are fewer targets than beams, the beams left over hold only padding, and their
    score is -inf. Other arguments as in `greedy`.

    Returns:
        (B, num_beams, T) ids without `begin`, and their scores (B, num_beams).

    Raises:
        TypeError, ValueError: an argument is not of this kind.
    """
    require_count("max_tokens", max_tokens)
    require_count("num_beams", num_beams)
    _require_sequence_writer(model, source, begin, end, padding)
    batch_size, device = len(source), source.device
    memory, _ = model.encode(source, source_lens)
    memory = memory.repeat_interleave(num_beams, 0)  # row b * num_beams + i is beam i of example b
    lens = None if source_lens is None else source_lens.repeat_interleave(num_beams, 0)
    caches = caches_for(model, caches)
    written = torch.full((batch_size * num_beams, 1), begin, device=device)
    scores = torch.full((batch_size, num_beams), -torch.inf, device=device)
    scores[:, 0] = 0.0  # at first all beams are equal, so only one counts
    ended = torch.zeros(batch_size * num_beams, dtype=torch.bool, device=device)
    for _ in range(max_tokens):
        logits, _ = model.decode(written[:, -1:], memory, lens, caches=caches)
        steps = logits[:, -1].log_softmax(-1)
        steps[ended] = -torch.inf
        steps[ended, padding] = 0.0  # what has ended costs nothing more
        vocab_size = steps.shape[-1]
        scores, places = (scores[..., None] + steps.unflatten(0, (batch_size, num_beams))).flatten(1).topk(num_beams)
        rows = (places // vocab_size + num_beams * torch.arange(batch_size, device=device)[:, None]).flatten()
        words = (places % vocab_size).flatten()
        written = torch.cat([written[rows], words[:, None]], 1)
        ended = ended[rows] | (words == end) | scores.flatten().isneginf()
        for own, seen_memory in caches:
            own.reorder(rows)
            seen_memory.reorder(rows)
        if ended.all():
            break
    found = written[:, 1:].unflatten(0, (batch_size, num_beams))
    return found.masked_fill(scores.isneginf()[..., None], padding), scores


def _require_sequence_writer(model: EncoderDecoder, source: Tensor, begin: int, end: int, padding: int) -> None:
    """Raise unless `model` writes sequences (TypeError), and the ids are words of it (TypeError, ValueError)."""
    require_kind("model", model, EncoderDecoder)
    require_tensor("source", source)
    for name, word in (("begin", begin), ("end", end), ("padding", padding)):
        require_count(name, word, minimum=-LARGEST)  # what is no word, the model refuses
    if not 0 <= padding < model.target.vocab_size:
        raise ValueError(f"padding={padding}, but ids go from 0 to {model.target.vocab_size - 1}")
