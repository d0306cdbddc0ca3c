"""Words that refer to themselves: a digit stands for the letter at that position, and a copy spells it out."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from .._validate import require_count, require_seed
from ._examples import Examples
from ._vocabulary import Vocabulary

LETTERS = "abcdefghijklmnopqrst"
LONGEST = 8
DIGITS = "".join(map(str, range(LONGEST)))
COPIED = Vocabulary([*LETTERS, *DIGITS, "."])
"""What sources and copies are made of: letters, digits and the full stop that ends a copy."""
FIRST_LETTER, FIRST_DIGIT, STOP = (COPIED.ids[one] for one in ("a", "0", "."))


@dataclass(frozen=True)
class Copies(Examples):
    """n sources of 1 to 8 letters and digits, and what they spell. K = 8, T = 10, padded with 0.

    source: (n, K) ids in `COPIED`. Digit j stands for the letter at position j, where there is a letter.
    source_lens: (n,) how many of them are real.
    target: (n, T) ids: the digit of the position from which to copy, the letters from there on, the full stop.
    target_lens: (n,) how many of those are real.
    """

    source: Tensor
    source_lens: Tensor
    target: Tensor
    target_lens: Tensor


def copies(num_examples: int, seed: int) -> Copies:
    """Sources of which no two are equal, so that a split of them is disjoint.

    Half of the places are digits, and at least one is a letter. The place to begin is any of the source.

    Args:
        num_examples: n.
        seed: of the random numbers; the same seed gives the same sources.

    Raises:
        TypeError, ValueError: an argument is not of this kind.
    """
    require_count("num_examples", num_examples)
    require_seed("seed", seed)
    rng = torch.Generator().manual_seed(int(seed))
    made: dict[tuple[int, ...], Copies] = {}  # a dict keeps the order, a set would not
    while len(made) < num_examples:
        drawn = _draw(num_examples, rng)
        for i, source in enumerate(drawn.source.tolist()):
            made.setdefault(tuple(source), drawn[i : i + 1])
    rows = [*made.values()][:num_examples]
    return Copies(*(torch.cat([getattr(row, field.name) for row in rows]) for field in fields(Copies)))


def _draw(count: int, rng: torch.Generator) -> Copies:
    places = torch.arange(LONGEST)
    lens = torch.randint(1, LONGEST + 1, (count, 1), generator=rng)
    is_real = places < lens
    letters = torch.randint(FIRST_LETTER, FIRST_DIGIT, (count, LONGEST), generator=rng)
    is_digit = torch.rand(count, LONGEST, generator=rng) < 0.5
    is_digit.scatter_(1, (torch.rand(count, 1, generator=rng) * lens).long(), False)  # at least one is a letter
    named = (~is_digit & is_real).float().multinomial(LONGEST, replacement=True, generator=rng)
    source = torch.where(is_digit, FIRST_DIGIT + named, letters) * is_real
    spelled = letters.gather(1, torch.where(is_digit, named, places))
    start = (torch.rand(count, 1, generator=rng) * lens).long()
    after = torch.zeros(count, 2 * LONGEST + 1, dtype=torch.long)
    after[:, :LONGEST] = spelled * is_real
    after.scatter_(1, lens, STOP)
    target = torch.cat([FIRST_DIGIT + start, after.gather(1, start + torch.arange(LONGEST + 1))], 1)
    return Copies(source, lens[:, 0], target, (lens - start)[:, 0] + 2)
