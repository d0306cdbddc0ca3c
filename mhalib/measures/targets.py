"""What a head may look at: a place, an offset, or marked tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from .._validate import LARGEST, require_count, require_integers, require_tensor, seen_extremes
from ..attention import padding_mask

OFFSETS = {"self": 0, "previous": -1, "next": 1}
NAMES = (*OFFSETS, "first")


def find_targets(what: str | int | Tensor, cells: Tensor) -> Tensor:
    """Boolean, broadcastable to (B, h, Q, K): where `what` stands. See `attention_to` for what it may be."""
    batch_size, _, num_queries, num_kvpairs = cells.shape
    if isinstance(what, Tensor):
        if what.dtype != torch.bool:
            raise TypeError(f"what must be boolean (True = looked for), got {what.dtype}")
        if what.device != cells.device:
            raise ValueError(f"what is on {what.device}, but the weights are on {cells.device}")
        if what.shape == (batch_size, num_kvpairs):
            return what[:, None, None]
        if what.shape == (batch_size, num_queries, num_kvpairs):
            return what[:, None]
        raise ValueError(
            f"what has shape {tuple(what.shape)}, but needs ({batch_size}, {num_kvpairs}) "
            f"or ({batch_size}, {num_queries}, {num_kvpairs})"
        )
    if isinstance(what, str):
        if what not in NAMES:
            raise ValueError(f"what={what!r} must be one of {NAMES}, an offset, or a boolean tensor")
        if what == "first":
            return (torch.arange(num_kvpairs, device=cells.device) == 0)[None, None, None]
        require_square(f"what={what!r}", cells)
        what = OFFSETS[what]
    elif isinstance(what, bool) or not isinstance(what, int):
        raise TypeError(f"what must be a name, an offset or a boolean tensor, got {type(what).__name__}: {what!r:.80}")
    elif abs(what) > LARGEST:
        raise ValueError(f"what={what} is no offset: at most {LARGEST}")
    return (offsets(cells) == what)[None, None]


def offsets(cells: Tensor) -> Tensor:
    """(Q, K): how far key j lies behind query t, j - t."""
    num_queries, num_kvpairs = cells.shape[-2:]
    return torch.arange(num_kvpairs, device=cells.device) - torch.arange(num_queries, device=cells.device)[:, None]


def require_square(name: str, cells: Tensor) -> None:
    """Raise unless query t and key t can be one token."""
    if cells.shape[-2] != cells.shape[-1]:
        raise ValueError(
            f"{name} is for self-attention, but there are {cells.shape[-2]} queries, {cells.shape[-1]} keys"
        )


def _shape(name: str, x: Tensor) -> tuple[int, ...]:
    require_tensor(name, x)
    return tuple(x.shape)


def rarest_tokens(tokens: Tensor, counts: Tensor, valid_lens: Tensor | None = None, num_rarest: int = 1) -> Tensor:
    """Mark each sentence's rarest tokens, as targets for `attention_to`, `maximum_at` and `head_roles`.

    Marked are the `num_rarest` tokens of a sentence that are least frequent, and any as rare as the last of them: of
    one word that stands there twice, both.

    Args:
        tokens: (B, K) ids.
        counts: (words,) how often each id occurs in the language, or in the training data.
        valid_lens: (B,) how many tokens are real; `None` means all.
        num_rarest: how many. Voita et al. 2019 look at the rarest, and at the two rarest.

    Returns:
        Boolean, (B, K); nothing is marked in an empty sentence.

    Raises:
        TypeError, ValueError: shapes do not fit, `counts` lacks an id, or a length is not from 0 to K.
    """
    require_tensor("tokens", tokens, rank=2)
    require_tensor("counts", counts, rank=1)
    require_count("num_rarest", num_rarest)
    require_integers("tokens", tokens)
    if counts.is_complex():
        raise TypeError(f"counts must hold real numbers, got {counts.dtype}")
    extremes = seen_extremes(tokens)
    if extremes is not None and not 0 <= extremes[0] <= extremes[1] < len(counts):
        raise ValueError(f"counts has {len(counts)} entries, but tokens holds {extremes[0]} to {extremes[1]}")
    if valid_lens is not None and _shape("valid_lens", valid_lens) != (len(tokens),):
        raise ValueError(f"valid_lens has shape {tuple(valid_lens.shape)}, but tokens has {len(tokens)} sentences")
    if not tokens.numel():
        return torch.zeros_like(tokens, dtype=torch.bool)
    frequency = counts.to(tokens.device, torch.float64)[tokens.long()]
    if valid_lens is not None:
        frequency = frequency.masked_fill(~padding_mask(valid_lens, tokens.shape[1])[:, 0, 0], torch.inf)
    last = frequency.sort(1).values[:, : min(num_rarest, tokens.shape[1])]
    last = last.masked_fill(last.isinf(), -torch.inf).amax(1, keepdim=True)
    return frequency <= last
