"""Speculation: something cheap drafts the next tokens, and one pass of the model checks all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .._validate import require_count, require_integers, require_kind, require_tensor, require_values
from ..attention import Cache
from ..models import GPT
from .caches import caches_for
from .sampling import Choice, require_ids_of, require_positions

Drafter = Callable[[list[int], int], tuple[list[int], Tensor]]
"""The text so far, and how many tokens are wanted -> at most as many, and the probabilities that they had (k, V)."""


@dataclass(frozen=True)
class Speculation:
    """What was written, and what it took.

    tokens: (1, N + T) ids, the prompt in front.
    passes: how often the model ran.
    drafted, taken: how many tokens were drafted, and how many of these the model took.
    """

    tokens: Tensor
    passes: int
    drafted: int
    taken: int


def look_up(tokens: Sequence[int], num_drafts: int, key_length: int = 2) -> list[int]:
    """Drafts by looking up: where did the last `key_length` tokens stand before, and what came after them? If nowhere,
    a shorter key is tried. Of several places the last one counts; none gives no drafts.

    >>> look_up([5, 6, 7, 8, 5, 6], num_drafts=3)
    [7, 8, 5]
    """
    _require_ids("tokens", tokens)
    require_count("num_drafts", num_drafts, minimum=0)
    require_count("key_length", key_length)
    return _followed(list(tokens), num_drafts, key_length)


def _require_ids(name: str, ids: object) -> None:
    """Raise TypeError or ValueError unless `ids` is a list of whole numbers, none below 0."""
    if not isinstance(ids, (list, tuple)):
        raise TypeError(f"{name} must be a list of ids, got {type(ids).__name__}: {ids!r:.80}")
    for place, one in enumerate(ids):
        require_count(f"{name}[{place}]", one, minimum=0)


def _followed(tokens: list[int], num_drafts: int, key_length: int) -> list[int]:
    for size in range(min(key_length, len(tokens) - 1), 0, -1):
        key = tokens[-size:]
        for start in range(len(tokens) - size - 1, -1, -1):
            if tokens[start : start + size] == key:
                return tokens[start + size : start + size + num_drafts]
    return []


def accepted(p: Tensor, drafts: Sequence[int], q: Tensor, generator: torch.Generator | None = None) -> list[int]:
    """The drafts that are taken, and one more token, so that each is distributed as if it were drawn from p.

    A draft x is taken with the probability min(1, p(x) / q(x)). Where one is refused, another token is drawn from what
    the drafter gave too little, max(p - q, 0) divided by its sum, and the drafts behind it go.

    Args:
        p: (k + 1, V) the model's probabilities in the place of each draft, and behind the last.
        drafts: k ids, each drawn from its row of q.
        q: (k, V) the drafter's probabilities.
        generator: what is drawn with; `None` means torch's own.

    Returns:
        1 to k + 1 ids.

    Raises:
        TypeError, ValueError: shapes do not belong together, or a draft is no id.

    Source: Leviathan et al. 2023, section 2.3; Chen et al. 2023, algorithm 2.
    """
    _require_ids("drafts", drafts)
    for name, each in (("p", p), ("q", q)):
        require_tensor(name, each, rank=2)
        if not each.is_floating_point():
            raise TypeError(f"{name} must hold floating-point numbers, got {each.dtype}")
        require_values(name, each)
        if not bool((each.isfinite() & (each >= 0)).all()) or not bool((each.sum(-1) > 0).all()):
            raise ValueError(f"{name} must hold probabilities, none of them negative, and in each row one above 0")
    if generator is not None:
        require_kind("generator", generator, torch.Generator)
    if p.shape[0] != len(drafts) + 1 or q.shape != (len(drafts), p.shape[1]):
        raise ValueError(
            f"{len(drafts)} drafts need p of k + 1 rows and q of k, got {tuple(p.shape)}, {tuple(q.shape)}"
        )
    if any(token >= p.shape[1] for token in drafts):
        raise ValueError(f"drafts holds {max(drafts)}, but ids go from 0 to {p.shape[1] - 1}")
    taken: list[int] = []
    for place, token in enumerate(drafts):
        u = float(torch.rand((), generator=generator, device=None if generator is None else generator.device))
        if u * float(q[place, token]) >= float(p[place, token]):
            left = (p[place] - q[place]).clamp(min=0)
            left = left if float(left.sum()) > 0 else p[place]  # equal, but for rounding
            return [*taken, int(torch.multinomial(left, 1, generator=generator))]
        taken.append(token)
    return [*taken, int(torch.multinomial(p[-1], 1, generator=generator))]


@torch.no_grad()
def speculate(
    model: GPT,
    prompt: Tensor,
    num_tokens: int,
    *,
    draft: GPT | None = None,
    num_drafts: int = 4,
    key_length: int = 2,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    stop: Sequence[int] = (),
    generator: torch.Generator | None = None,
    caches: Sequence[Cache] | None = None,
) -> Speculation:
    """Continue one text in fewer passes. With temperature=0 the tokens are those of `sample`; else each text is as
    likely as there.

    Args:
        model: in evaluation mode; its caches must be able to `crop`, which states and multi-token attention cannot.
        prompt: (1, N) ids, at least one.
        num_tokens: how many are added.
        draft: a smaller model of the same tokens, which drafts; `None` looks up what followed before, see `look_up`.
        num_drafts: how many tokens are drafted for each pass, at most.
        key_length: of how many tokens the key is that is looked up.
        temperature, top_k, top_p, min_p: see `probabilities`; the drafting model draws by the same.
        stop, generator, caches: as in `sample`.

    Raises:
        TypeError, ValueError: an argument is not of this kind, or the text would outgrow a model's positions.
    """
    require_kind("model", model, GPT)
    require_tensor("prompt", prompt, rank=2)
    require_integers("prompt", prompt)
    if prompt.shape[0] != 1 or not prompt.shape[1]:
        raise ValueError(f"prompt must be one text, (1, N) with at least one token, got {tuple(prompt.shape)}")
    for name, number in (("num_tokens", num_tokens), ("num_drafts", num_drafts), ("key_length", key_length)):
        require_count(name, number)
    choice = Choice(temperature, top_k, top_p, min_p)
    choice.check()
    require_ids_of(model, stop)
    if generator is not None:
        require_kind("generator", generator, torch.Generator)
    caches = caches_for(model, caches, True, require_positions(model, prompt, num_tokens))
    drafter: Drafter = _LookUp(key_length, model.settings["vocab_size"])
    if draft is not None:
        drafter = _SmallModel(draft, model, prompt, num_tokens, choice, generator)
    tokens, device = prompt[0].tolist(), prompt.device
    wanted = len(tokens) + num_tokens
    passes = drafted = taken = 0
    while len(tokens) < wanted:
        drafts, q = drafter(tokens, min(num_drafts, wanted - len(tokens) - 1))
        read = torch.tensor([tokens[len(caches[0]) :] + drafts], device=device)
        logits, _ = model(read, caches=caches)
        p = choice(logits[0, -len(drafts) - 1 :])
        new = accepted(p, drafts, q.to(p), generator)
        passes, drafted, taken = passes + 1, drafted + len(drafts), taken + len(new) - 1
        ends = [place for place, token in enumerate(new) if token in stop]
        tokens += new[: ends[0] + 1] if ends else new
        if ends:
            break
        for cache in caches:
            cache.crop(len(tokens) - 1)  # what was refused; the newest token was not read yet
    return Speculation(torch.tensor([tokens], device=device), passes, drafted, taken)


class _LookUp:
    """Drafts without a model: each is certain."""

    def __init__(self, key_length: int, vocab_size: int) -> None:
        self.key_length, self.vocab_size = key_length, vocab_size

    def __call__(self, tokens: list[int], num_drafts: int) -> tuple[list[int], Tensor]:
        drafts = _followed(tokens, num_drafts, self.key_length)
        return drafts, F.one_hot(torch.tensor(drafts, dtype=torch.long), self.vocab_size).float()


class _SmallModel:
    """Drafts of a smaller model, with caches of its own, from which it takes back what was refused."""

    def __init__(
        self, model: Any, large: GPT, prompt: Tensor, num_tokens: int, choice: Choice, generator: torch.Generator | None
    ) -> None:
        require_kind("draft", model, GPT)
        if model.settings["vocab_size"] != large.settings["vocab_size"]:
            raise ValueError(
                f"draft writes {model.settings['vocab_size']} different tokens, "
                f"and model {large.settings['vocab_size']}: they must have the same"
            )
        self.model, self.choice, self.generator, self.device = model, choice, generator, prompt.device
        self.caches = model.new_caches(require_positions(model, prompt, num_tokens))

    def __call__(self, tokens: list[int], num_drafts: int) -> tuple[list[int], Tensor]:
        for cache in self.caches:
            cache.crop(min(len(cache), len(tokens) - 1))
        drafts: list[int] = []
        rows = [torch.zeros(0, self.model.settings["vocab_size"], device=self.device)]
        while len(drafts) < num_drafts:
            read = torch.tensor([(tokens + drafts)[len(self.caches[0]) :]], device=self.device)
            q = self.choice(self.model(read, caches=self.caches)[0][:, -1])
            rows.append(q)
            drafts.append(int(torch.multinomial(q, 1, generator=self.generator)))
        return drafts, torch.cat(rows)
