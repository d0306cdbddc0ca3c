"""Sequences that repeat themselves: what a language model can only predict by looking back."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .._validate import require_count, require_seed
from ._examples import Examples

NUM_SYMBOLS = 32
SHORTEST_PERIOD, LONGEST_PERIOD = 6, 16
NUM_TOKENS = 48


@dataclass(frozen=True)
class Repeats(Examples):
    """n sequences, each of which repeats a list of different symbols in random order. N tokens each.

    tokens: (n, N) symbols, from 0 on. `tokens[:, t]` is `tokens[:, t - period]` wherever there is such a token.
    periods: (n,) how many tokens a list has.
    """

    tokens: Tensor
    periods: Tensor

    @property
    def inputs(self) -> Tensor:
        """(n, N - 1) what a model reads: all tokens but the last."""
        return self.tokens[:, :-1]

    @property
    def targets(self) -> Tensor:
        """(n, N - 1) what it is to predict: the token after each."""
        return self.tokens[:, 1:]

    @property
    def is_predictable(self) -> Tensor:
        """(n, N - 1) boolean: `True` where the past tells the target, because the input has occurred before.

        Until then nothing tells it: all symbols that have not occurred are equally likely, and so is a new beginning.
        """
        places = torch.arange(self.tokens.shape[1] - 1, device=self.tokens.device)
        return places >= self.periods[:, None]


def repeats(
    num_examples: int,
    seed: int,
    *,
    num_tokens: int = NUM_TOKENS,
    num_symbols: int = NUM_SYMBOLS,
    periods: tuple[int, int] = (SHORTEST_PERIOD, LONGEST_PERIOD),
) -> Repeats:
    """Sequences of which no two repeat the same list, wherever in it they begin, so that a split of them is disjoint.

    A period is drawn for each sequence, then as many different symbols in random order, which are repeated.

    Args:
        num_examples: n.
        seed: of the random numbers; the same seed gives the same sequences.
        num_tokens: N.
        num_symbols: how many symbols there are.
        periods: the shortest and the longest.

    Raises:
        TypeError, ValueError: an argument is not a positive integer, `periods` are not in order, the longest exceeds
            `num_symbols`, `num_tokens` is too small for it to repeat, or there are hardly as many different sequences.

    Source: the repeated random tokens of Olsson et al. 2022. There the period is fixed, and a symbol may come twice.
    """
    for name, value in (("num_examples", num_examples), ("num_tokens", num_tokens), ("num_symbols", num_symbols)):
        require_count(name, value)
    require_seed("seed", seed)
    if not isinstance(periods, (tuple, list)) or len(periods) != 2:
        raise TypeError(f"periods must be two integers, the shortest and the longest, got {periods!r:.80}")
    shortest, longest = periods
    for value in periods:
        require_count("periods", value)
    if not shortest <= longest <= num_symbols:
        raise ValueError(f"periods={periods} must be in order and at most num_symbols={num_symbols}")
    if num_tokens < longest + 2:
        raise ValueError(f"num_tokens={num_tokens} must be at least {longest + 2}, or periods={periods} hardly repeat")
    rng = torch.Generator().manual_seed(int(seed))
    made: dict[tuple[int, ...], None] = {}  # a dict keeps the order
    for _ in range(10):
        missing = num_examples - len(made)
        lengths = torch.randint(shortest, longest + 1, (missing,), generator=rng).tolist()
        orders = torch.rand(missing, num_symbols, generator=rng).argsort(1).tolist()
        known = {_from_smallest(found) for found in made}
        for length, order in zip(lengths, orders, strict=True):
            found = tuple(order[:length])
            turned = _from_smallest(found)
            if turned not in known:
                known.add(turned)
                made[found] = None
        if len(made) == num_examples:
            return _collect(list(made), num_tokens)
    raise ValueError(f"num_examples={num_examples} is too many for {num_symbols} symbols and periods={periods}")


def _from_smallest(found: tuple[int, ...]) -> tuple[int, ...]:
    """The same round, begun at its smallest symbol."""
    start = found.index(min(found))
    return found[start:] + found[:start]


def _collect(made: list[tuple[int, ...]], num_tokens: int) -> Repeats:
    tokens = torch.tensor([(found * (num_tokens // len(found) + 1))[:num_tokens] for found in made])
    return Repeats(tokens, torch.tensor([len(found) for found in made]))
