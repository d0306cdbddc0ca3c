"""Continue a text by drawing tokens: how often each one may be drawn, and the loop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .._validate import require_count, require_flag, require_kind, require_real, require_tensor
from ..attention import Cache
from ..models import GPT
from .caches import caches_for


class Choice(NamedTuple):
    """How logits become probabilities, see `probabilities`."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def check(self) -> None:
        """Raise unless each number is one (TypeError), and in its range (ValueError)."""
        require_real("temperature", self.temperature)
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature={self.temperature} must be finite and not negative")
        if self.top_k is not None:
            require_count("top_k", self.top_k)
        for name, share in (("top_p", self.top_p), ("min_p", self.min_p)):
            if share is not None:
                require_real(name, share)
                if not 0 < share <= 1:
                    raise ValueError(f"{name}={share} must be above 0 and at most 1")

    def __call__(self, logits: Tensor) -> Tensor:
        """Logits (..., V) -> probabilities (..., V)."""
        if self.temperature == 0:
            return F.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            likeliest = logits.topk(self.top_k)  # and not all that are as likely as the last of them
            logits = torch.full_like(logits, -torch.inf).scatter(-1, likeliest.indices, likeliest.values)
        logits = logits - logits.amax(-1, keepdim=True)  # a small temperature would make large ones infinite
        p = (logits / float(self.temperature)).softmax(-1)
        if self.top_p is not None:
            ordered, order = p.sort(-1, descending=True)
            before = ordered.cumsum(-1) - ordered
            p = torch.zeros_like(p).scatter(-1, order, ordered.masked_fill(before >= self.top_p, 0.0))
        if self.min_p is not None:
            p = p.masked_fill(p < self.min_p * p.amax(-1, keepdim=True), 0.0)
        return p if self.top_p is None and self.min_p is None else p / p.sum(-1, keepdim=True)

    def draw(self, logits: Tensor, generator: torch.Generator | None) -> Tensor:
        """Logits (B, V) -> ids (B, 1)."""
        if self.temperature == 0:
            return logits.argmax(-1, keepdim=True)
        return torch.multinomial(self(logits), 1, generator=generator)


def probabilities(
    logits: Tensor,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
) -> Tensor:
    """How often each token may be drawn: the softmax, sharpened or flattened, with unlikely tokens left out.

    Args:
        logits: (..., V).
        temperature: what logits are divided by; 0 gives the likeliest token all.
        top_k: only k tokens, the likeliest, are kept; `None` means all.
        top_p: of these, as few of the likeliest as together have the probability p, or more.
        min_p: of these, only tokens that are at least min_p times as likely as the likeliest.

    Returns:
        (..., V), each row summing to 1.

    Raises:
        TypeError, ValueError: an argument is not of this kind, or a number is outside its range.

    Sources: Fan et al. 2018 for top_k, Holtzman et al. 2020 for top_p, Nguyen et al. 2025 for min_p.

    >>> probabilities(torch.tensor([0.5, 0.3, 0.15, 0.05]).log(), top_p=0.75)
    tensor([0.6250, 0.3750, 0.0000, 0.0000])
    """
    require_tensor("logits", logits)
    if not logits.is_floating_point():
        raise TypeError(f"logits must hold floating-point numbers, got {logits.dtype}")
    if not logits.dim() or not logits.shape[-1]:
        raise ValueError(f"logits must have shape (..., V) with at least one token, got {tuple(logits.shape)}")
    choice = Choice(temperature, top_k, top_p, min_p)
    choice.check()
    return choice(logits)


@torch.no_grad()
def sample(
    model: GPT,
    prompt: Tensor,
    num_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    stop: Sequence[int] = (),
    padding: int = 0,
    generator: torch.Generator | None = None,
    use_cache: bool = True,
    caches: Sequence[Cache] | None = None,
) -> Tensor:
    """Continue `prompt` with tokens drawn from the model's distribution.

    Args:
        model: in evaluation mode.
        prompt: (B, N) ids, at least one.
        num_tokens: how many are added.
        temperature, top_k, top_p, min_p: which tokens can be drawn, and how often, see `probabilities`.
        stop: ids that end a text, which keeps the first of them.
        padding: id that stands behind it where other texts go on.
        generator: what tokens are drawn with; `None` means torch's own.
        use_cache: whether keys and values are kept. With learned positions, a text longer than `max_tokens` needs
            `False`: the model then sees only the last `max_tokens` tokens.
        caches: where they are kept, one for each layer, empty, such as `mhalib.attention.QuantisedCache()`; `None`
            means `model.new_caches(...)`, with memory for the whole text.

    Returns:
        (B, N + num_tokens) ids, `prompt` in front; fewer, if all texts have ended before.

    Raises:
        TypeError: an argument is not of this kind.
        ValueError: a number is outside its range, the text would outgrow the model's positions while a cache
            is used, or `caches` are not empty or come with use_cache=False.
    """
    require_count("num_tokens", num_tokens)
    require_tensor("prompt", prompt)
    if prompt.dim() != 2 or not prompt.shape[1]:
        raise ValueError(f"prompt must have shape (B, N) with at least one token, got {tuple(prompt.shape)}")
    require_kind("model", model, GPT)
    require_flag("use_cache", use_cache)
    choice = Choice(temperature, top_k, top_p, min_p)
    choice.check()
    require_ids_of(model, stop, padding)
    if generator is not None:
        require_kind("generator", generator, torch.Generator)
    limit = model.tokens.positions.max_tokens
    num_read = require_positions(model, prompt, num_tokens) if use_cache else 0
    caches = caches_for(model, caches, use_cache, num_read)
    tokens, new = prompt, prompt
    ends = torch.tensor(list(stop), device=prompt.device)
    ended = torch.zeros(len(prompt), dtype=torch.bool, device=prompt.device)
    for _ in range(num_tokens):
        if not use_cache:
            new = tokens if limit is None else tokens[:, -limit:]
        logits, _ = model(new, caches=caches)
        new = choice.draw(logits[:, -1], generator)
        if len(ends):
            new = new.masked_fill(ended[:, None], padding)
            ended |= torch.isin(new[:, 0], ends)
        tokens = torch.cat([tokens, new], 1)
        if ended.all():
            break
    return tokens


def require_positions(model: GPT, prompt: Tensor, num_tokens: int) -> int:
    """How many tokens are read when `num_tokens` are added; ValueError if the model has not as many positions."""
    num_read = prompt.shape[1] + num_tokens - 1  # the last token is not read
    limit = model.tokens.positions.max_tokens
    if limit is not None and num_read > limit:
        raise ValueError(
            f"a prompt of {prompt.shape[1]} and num_tokens={num_tokens} need {num_read} positions, but the model has "
            f"only max_tokens={limit}: use_cache=False lets it see the last {limit} tokens"
        )
    return num_read


def require_ids_of(model: GPT, stop: Sequence[int], padding: int = 0) -> None:
    """Raise unless `stop` is a sequence (TypeError), and it and `padding` hold ids of the model (ValueError)."""
    if not isinstance(stop, (list, tuple)):
        raise TypeError(f"stop must be a list of ids, got {type(stop).__name__}: {stop!r:.80}")
    vocab_size = model.settings["vocab_size"]
    for name, word in [("padding", padding), *((f"stop[{n}]", one) for n, one in enumerate(stop))]:
        require_count(name, word, minimum=0)
        if word >= vocab_size:
            raise ValueError(f"{name}={word}, but ids go from 0 to {vocab_size - 1}")
