"""One query, a few keys, and numbers so small that the whole of attention is done by hand."""

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
CHOICES = ("scale", "mask")


class WorkedExample(Instrument):
    """Attention by hand, as a moving picture: the query goes to each key, scores become weights, values come back.

    Six pictures, one after the other or played: the numbers, the scores, e to each score, the weights, the values times
    their weights, and their sum. Each number of query, keys and values can be changed.

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
        step: 0 to 5, the picture that is shown.
        choices: what else the reader may change: "scale", "mask", both or none.

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
    step = traitlets.Any(0).tag(sync=True)
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
        step: int = 0,
        choices: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        names = names_of("words", words)
        if not 2 <= len(names) <= MAX_WORDS:
            raise ValueError(f"words has {len(names)} entries, but 2 to {MAX_WORDS} can be shown")
        self._num_words = len(names)
        for choice in as_list("choices", choices):
            require_choice("each choice", choice, CHOICES)
        super().__init__(
            words=names,
            asking=asking,
            asked=asked,
            given=given,
            q=q,
            k=k,
            v=v,
            scale=scale,
            step=step,
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
        (row,) = matrix("q", [as_list("q", proposal["value"])]).tolist()
        if len(row) != 2:
            raise ValueError(f"q has {len(row)} numbers, but 2 can be shown")
        return row

    @traitlets.validate("k", "v")
    def _check_vectors(self, proposal: traitlets.Bunch) -> list[list[float]]:
        name = proposal["trait"].name
        array = matrix(name, proposal["value"])
        if array.shape != (self._num_words, 2):
            raise ValueError(f"{name} has shape {array.shape}, but must have {(self._num_words, 2)}")
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
        require_at_most("step", proposal["value"], LAST_STEP)
        return int(proposal["value"])

    @property
    def scores(self) -> Tensor:
        """(N,), float64: the query times each key, divided by √2 if `scale`."""
        q, k = (torch.tensor(x, dtype=torch.float64) for x in (self.q, self.k))
        return k @ q / (math.sqrt(2) if self.scale else 1.0)

    @property
    def weights(self) -> Tensor:
        """(N,), float64."""
        return self._attended()[1]

    @property
    def output(self) -> Tensor:
        """(2,), float64."""
        return self._attended()[0]

    def _attended(self) -> tuple[Tensor, Tensor]:
        output, weights = attended([self.q], self.k, self.v, torch.tensor([self.seen]), scale=self.scale)
        return output[0], weights[0]

    def results(self) -> dict[str, str]:
        """ "largest weight" and "output"."""
        return results_of(self.weights, self.output)

    def table(self) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
        caption = f"{self.asking} asks {in_brackets(self.q)}; it brings back {self.results()['output']}"
        score = "score q·k" + ("/√2" if self.scale else "")
        found = zip(self.words, self.k, self.seen, self.scores.tolist(), self.weights.tolist(), self.v, strict=True)
        rows = [
            (word, in_brackets(key), in_digits(score) if sees else "hidden", in_digits(weight), in_brackets(value))
            for word, key, sees, score, weight, value in found
        ]
        return caption, ("word", "key", score, "weight", "value"), rows
