"""A query or two, a few keys, and numbers so small that the whole of attention is done by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import traitlets
from torch import Tensor

from .._validate import as_list, require_at_most, require_choice, require_count, require_flag, require_text
from ._instrument import Instrument
from .attention_playground import Vectors, attended, in_brackets, in_digits, matrix, names_of, results_of

MAX_WORDS = 3
LAST_STEP = 5
"""Of one head. With a second, two more: its list beside the first one's, and what W_o makes of both."""
CHOICES = ("scale", "mask")


class WorkedExample(Instrument):
    """Attention by hand, as a moving picture: the query goes to each key, scores become weights, values come back.

    Six pictures, one after the other or played: the numbers, the scores, e to each score, the weights, the values times
    their weights, and their sum. The last is shown at first. Each number of query, keys and values can be changed.
    A second head makes a whole layer of it: both heads' outputs side by side, times `W_o`, are two pictures more. Then
    the numbers of `W_o` can be changed and the words swapped, with what they hand over, and nothing else.

    Args:
        words: names of the 2 or 3 words that are looked at.
        q: the query, two numbers. All numbers here are from -100 to 100.
        k: (N, 2), the keys.
        v: (N, 2), the values.
        asking: name of the word that looks.
        asked: what the two numbers of query and keys stand for.
        given: what the two numbers of a value stand for.
        scale: divide the scores by √2.
        seen: for each word, whether it may be looked at; `None` means yes. Where none may, weights and output are 0.
        step: 0 to 5, or to 7 with a second head: the picture that is shown; `None` means the last.
        choices: what else the reader may change: "scale", "mask", both or none; with a second head not "mask".
        second: q, k and v of a second head, which asks for the same word.
        W_o: (2, 4), with a second head only: each row makes one number of the output from the four of both heads.

    Raises:
        TypeError, ValueError: an argument, or what a trait is set to, has another type, shape or range.
    """

    script = "WorkedExample"

    words = traitlets.Any().tag(sync=True)
    asking = traitlets.Any().tag(sync=True)
    asked = traitlets.Any().tag(sync=True)
    given = traitlets.Any().tag(sync=True)
    q = traitlets.Any().tag(sync=True)
    k = traitlets.Any().tag(sync=True)
    v = traitlets.Any().tag(sync=True)
    scale = traitlets.Any(False).tag(sync=True)
    seen = traitlets.Any().tag(sync=True)
    second = traitlets.Any().tag(sync=True)
    W_o = traitlets.Any().tag(sync=True)
    step = traitlets.Any(LAST_STEP).tag(sync=True)
    choices = traitlets.Any().tag(sync=True)

    def __init__(
        self,
        words: Sequence[str] = ("fox", "bear"),
        q: Sequence[float] = (1.0, 1.0),
        k: Vectors = ((1.0, 1.0), (1.0, -1.0)),
        v: Vectors = ((1.0, 0.0), (0.0, 1.0)),
        *,
        asking: str = "hungry",
        asked: Sequence[str] = ("noun", "early"),
        given: Sequence[str] = ("fox", "bear"),
        scale: bool = False,
        seen: Sequence[bool] | None = None,
        step: int | None = None,
        choices: Sequence[str] = (),
        second: tuple[Sequence[float], Vectors, Vectors] | None = None,
        W_o: Vectors | None = None,
        **kwargs: Any,
    ) -> None:
        names = names_of("words", words)
        if not 2 <= len(names) <= MAX_WORDS:
            raise ValueError(f"words has {len(names)} entries, but 2 to {MAX_WORDS} can be shown")
        self._num_words = len(names)
        for choice in as_list("choices", choices):
            require_choice("each choice", choice, CHOICES)
        if (second is None) != (W_o is None):
            raise ValueError("second and W_o go together: give both or neither")
        if second is not None and "mask" in choices:
            raise ValueError("choices has 'mask', which cannot be changed with a second head")
        self._last = LAST_STEP if second is None else LAST_STEP + 2
        super().__init__(
            words=names,
            asking=asking,
            asked=asked,
            given=given,
            q=q,
            k=k,
            v=v,
            scale=scale,
            second=second,
            W_o=W_o,
            step=self._last if step is None else step,
            seen=[True] * len(names) if seen is None else seen,
            choices=list(choices),
            **kwargs,
        )

    @traitlets.validate("words", "asked", "given")
    def _check_names(self, proposal: traitlets.Bunch) -> list[str]:
        name = proposal["trait"].name
        names = names_of(name, proposal["value"])
        wanted = self._num_words if name == "words" else 2
        if len(names) != wanted:
            raise ValueError(f"{name} has {len(names)} entries, but there are {wanted} to name")
        return names

    @traitlets.validate("asking")
    def _check_asking(self, proposal: traitlets.Bunch) -> str:
        require_text("asking", proposal["value"])
        return names_of("asking", [proposal["value"]])[0]

    @traitlets.validate("q")
    def _check_query(self, proposal: traitlets.Bunch) -> list[float]:
        return self._query("q", proposal["value"])

    @staticmethod
    def _query(name: str, value: object) -> list[float]:
        (row,) = matrix(name, [as_list(name, value)]).tolist()
        if len(row) != 2:
            raise ValueError(f"{name} has {len(row)} numbers, but 2 can be shown")
        return row

    @traitlets.validate("k", "v")
    def _check_vectors(self, proposal: traitlets.Bunch) -> list[list[float]]:
        return self._vectors(proposal["trait"].name, proposal["value"])

    def _vectors(self, name: str, value: object) -> list[list[float]]:
        array = matrix(name, value)
        if array.shape != (self._num_words, 2):
            raise ValueError(f"{name} has shape {array.shape}, but must have {(self._num_words, 2)}")
        return array.tolist()

    @traitlets.validate("second")
    def _check_second(self, proposal: traitlets.Bunch) -> list[Any] | None:
        if proposal["value"] is None:
            return None
        parts = as_list("second", proposal["value"])
        if len(parts) != 3:
            raise ValueError(f"second has {len(parts)} parts, but must have three: q, k and v")
        q, k, v = parts
        return [self._query("q of second", q), self._vectors("k of second", k), self._vectors("v of second", v)]

    @traitlets.validate("W_o")
    def _check_mixing(self, proposal: traitlets.Bunch) -> list[list[float]] | None:
        if proposal["value"] is None:
            return None
        array = matrix("W_o", proposal["value"])
        if array.shape != (2, 4):
            raise ValueError(f"W_o has shape {array.shape}, but must have (2, 4)")
        return array.tolist()

    @traitlets.validate("scale")
    def _check_scale(self, proposal: traitlets.Bunch) -> bool:
        require_flag("scale", proposal["value"])
        return bool(proposal["value"])

    @traitlets.validate("seen")
    def _check_seen(self, proposal: traitlets.Bunch) -> list[bool]:
        seen = as_list("seen", proposal["value"])
        for each in seen:
            require_flag("each of seen", each)
        if len(seen) != self._num_words:
            raise ValueError(f"seen has {len(seen)} entries, but there are {self._num_words} words")
        return [bool(each) for each in seen]

    @traitlets.validate("step")
    def _check_step(self, proposal: traitlets.Bunch) -> int:
        require_count("step", proposal["value"], minimum=0)
        require_at_most("step", proposal["value"], self._last)
        return int(proposal["value"])

    @property
    def scores(self) -> Tensor:
        """(N,), float64, of the first head: the query times each key, divided by √2 if `scale`."""
        q, k = (torch.tensor(x, dtype=torch.float64) for x in (self.q, self.k))
        return k @ q / (math.sqrt(2) if self.scale else 1.0)

    @property
    def weights(self) -> Tensor:
        """(N,), float64, of the first head."""
        return self._attended(self._heads[0])[1]

    @property
    def output(self) -> Tensor:
        """(2,), float64: of the head, or of `W_o` after both."""
        joined = torch.cat([self._attended(head)[0] for head in self._heads])
        return joined if self.W_o is None else torch.tensor(self.W_o, dtype=torch.float64) @ joined

    @property
    def _heads(self) -> list[list[Any]]:
        return [[self.q, self.k, self.v], *([] if self.second is None else [self.second])]

    def _attended(self, head: list[Any]) -> tuple[Tensor, Tensor]:
        q, k, v = head
        output, weights = attended([q], k, v, torch.tensor([self.seen]), scale=self.scale)
        return output[0], weights[0]

    def results(self) -> dict[str, str]:
        """ "largest weight" and "output"."""
        return results_of(self.weights, self.output)

    def table(self) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
        brought = self.results()["output"]
        asks = " and ".join(in_brackets(q) for q, _, _ in self._heads)
        caption = f"{self.asking} asks {asks}; it brings back {brought}"
        heading = ("word", "key", "score q·k" + ("/√2" if self.scale else ""), "weight", "value")
        rows = [row for head in self._heads for row in self._rows(head)]
        if self.second is None:
            return caption, heading, rows
        lists = [in_brackets(self._attended(head)[0].tolist()) for head in self._heads]
        numbered = [(f"head {i // len(self.words)}", *row) for i, row in enumerate(rows)]
        joined = ("both", "side by side", "", "", "", " ".join(lists))
        mixed = [
            ("W_o", in_brackets(row), "", "", "", in_digits(x))
            for row, x in zip(self.W_o, self.output.tolist(), strict=True)
        ]
        return caption, ("head", *heading), [*numbered, joined, *mixed]

    def _rows(self, head: list[Any]) -> list[tuple[str, ...]]:
        q, k, v = head
        scale = math.sqrt(2) if self.scale else 1.0
        scores = (torch.tensor(k, dtype=torch.float64) @ torch.tensor(q, dtype=torch.float64) / scale).tolist()
        found = zip(self.words, k, self.seen, scores, self._attended(head)[1].tolist(), v, strict=True)
        return [
            (word, in_brackets(key), in_digits(score) if sees else "hidden", in_digits(weight), in_brackets(value))
            for word, key, sees, score, weight, value in found
        ]
