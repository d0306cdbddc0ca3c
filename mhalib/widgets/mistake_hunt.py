"""A game of deduction: which of several mistakes is in a layer, told by the checks that it passes or fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import traitlets

from .._tokens import shown
from .._validate import as_list, require_choice, require_count, require_kind, require_text
from ._instrument import Instrument
from ._names import by_name, different_names

MOST_MISTAKES, MOST_CHECKS = 12, 12


class MistakeHunt(Instrument):
    """Somebody has made one of several mistakes in a layer. If the layer passes a check that a reader runs, the
    mistakes that this check catches are cleared; if it fails, all others are. The reader strikes them out, is told at
    once who was struck wrongly, and so fills the table of who is caught by what. In the end one mistake is left.

    There are as many layers as mistakes, one broken by each. What the reader does can be read and set: `layer`, which
    broken layer it is; `done`, the numbers of the checks that were run on it, in that order; and `struck`, the numbers
    of mistakes that were struck out. Another `layer` begins without both.

    Args:
        catches: by check, the mistakes that it catches, which may be none or all: with one of them, a layer fails.
        mistakes: the names of all of them, all different, 2 to 12. There are 1 to 12 checks.
        order: each of `mistakes` once, as their layers come; `None` is as they are listed.
        caption: of the table.
        about: by check or mistake, a sentence about it, which shows where a mouse rests on the name; of a check,
            also when it is run.
        layer: the one to begin with, from 0; after the last comes the first again.
        done: the numbers of the checks that have been run on it.
        struck: the numbers of the mistakes that have been struck out. One that no check of `done` clears stays.

    Raises:
        TypeError: a name or a sentence is no string, `layer` or a number of `done` or `struck` no integer.
        ValueError: checks or mistakes are too few, too many, the same or without a name; `catches`, `order`, `about`,
            `done` or `struck` name what is not there; `order`, `done` or `struck` name something twice; `layer` is
            negative.

    >>> hunt = MistakeHunt({"alone": ["swap"], "a loop": ["swap", "scale"]}, ["swap", "scale", "none"], layer=1)
    >>> hunt.passes("alone"), hunt.passes("a loop")
    (True, False)
    >>> hunt.done = [0]
    >>> hunt.left()
    ['scale', 'none']
    """

    script = "MistakeHunt"

    caption = traitlets.Unicode().tag(sync=True)
    checks = traitlets.List(traitlets.Unicode()).tag(sync=True)
    mistakes = traitlets.List(traitlets.Unicode()).tag(sync=True)
    catches = traitlets.List(traitlets.List(traitlets.Int())).tag(sync=True)  # by check, the numbers of mistakes
    about = traitlets.Dict().tag(sync=True)
    order = traitlets.List(traitlets.Int()).tag(sync=True)  # by layer, the number of its mistake

    layer = traitlets.Int().tag(sync=True)
    done = traitlets.List(traitlets.Int()).tag(sync=True)
    struck = traitlets.List(traitlets.Int()).tag(sync=True)

    def __init__(
        self,
        catches: Mapping[str, Sequence[str]],
        mistakes: Sequence[str],
        *,
        order: Sequence[str] | None = None,
        caption: str = "",
        about: Mapping[str, str] | None = None,
        layer: int = 0,
        done: Sequence[int] = (),
        struck: Sequence[int] = (),
        **kwargs: Any,
    ) -> None:
        names = different_names("mistakes", mistakes, MOST_MISTAKES, least=2)
        require_kind("catches", catches, Mapping)
        checks = different_names("catches", list(catches), MOST_CHECKS)
        if any(not name.strip() for name in (*names, *checks)):
            raise ValueError("mistakes and checks must have names that are seen, got an empty one")
        require_kind("caption", caption, str)
        told = by_name("about", {} if about is None else about, [*checks, *names])
        for name, text in told.items():
            require_text(f"about[{name!r}]", text)
        turns = names if order is None else different_names("order", order, MOST_MISTAKES)
        if set(turns) != set(names):
            raise ValueError(f"order={turns} must have each of mistakes={names} once")
        super().__init__(
            caption=caption,
            checks=checks,
            mistakes=names,
            catches=[_caught(f"catches[{name!r}]", of, names) for name, of in catches.items()],
            about=told,
            order=[names.index(name) for name in turns],
            **kwargs,
        )
        require_count("layer", layer, minimum=0)
        self.layer = layer
        self.done, self.struck = _numbers("done", done), _numbers("struck", struck)

    @traitlets.validate("layer")
    def _one_of_them(self, proposal: traitlets.Bunch) -> int:
        require_count("layer", proposal["value"], minimum=0)
        return int(proposal["value"]) % len(self.mistakes)

    @traitlets.validate("done", "struck")
    def _there(self, proposal: traitlets.Bunch) -> list[int]:
        name = proposal["trait"].name
        given = _numbers(name, proposal["value"])
        count = len(self.checks if name == "done" else self.mistakes)
        if not set(given) <= set(range(count)) or len(set(given)) < len(given):
            raise ValueError(f"{name}={given} must hold numbers below {count}, each at most once")
        return given

    @traitlets.observe("layer")
    def _begin(self, change: traitlets.Bunch) -> None:
        self.done, self.struck = [], []

    def passes(self, check: str) -> bool:
        """Whether the layer that is broken now passes a check.

        Raises:
            ValueError: there is no such check.
        """
        require_choice("check", check, self.checks)
        return self.order[self.layer] not in self.catches[self.checks.index(check)]

    def left(self) -> list[str]:
        """The mistakes that would have done the same in all checks of `done`."""
        broken, run = self.order[self.layer], [self.catches[c] for c in self.done]
        alike = [all((m in caught) == (broken in caught) for caught in run) for m in range(len(self.mistakes))]
        return [name for name, is_left in zip(self.mistakes, alike, strict=True) if is_left]

    def table(self) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
        """Which check catches which mistake."""
        every = range(len(self.mistakes))
        rows = [
            [name, *("catches" if m in caught else "–" for m in every)]
            for name, caught in zip(self.checks, self.catches, strict=True)
        ]
        return self.caption, ["check", *self.mistakes], rows


def _numbers(name: str, given: Any) -> list[int]:
    """Of checks that were run, or of mistakes that were struck out."""
    found = as_list(name, given)
    for one in found:
        require_count(f"each of {name}", one, minimum=0)
    return [int(one) for one in found]


def _caught(name: str, given: Any, mistakes: Sequence[str]) -> list[int]:
    """The numbers of the mistakes that a check catches."""
    found = as_list(name, given)
    for one in found:
        require_text(f"each of {name}", one)
        require_choice(f"each of {name}", shown(one), mistakes)
    return sorted({mistakes.index(shown(one)) for one in found})
