"""Attention on a few tokens, every number of which the reader can change."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
import traitlets
from torch import Tensor

from .._arrays import real_array
from .._tokens import legible
from .._validate import as_list, require_at_most, require_choice, require_count, require_text
from ..attention import attend, causal_mask, padding_mask
from ._instrument import Instrument

MASKS = ("none", "causal", "valid length")
CONTROLS = ("scale", "temperature", "mask", "query", "numbers")
MAX_TOKENS = 6
WIDTHS = {"q": (2, 3), "k": (2, 3), "v": (1, 3)}
BOUND = 100.0
TEMPERATURES = (0.01, 100.0)

TOKENS = ("the", "cat", "sat", "down")
Q = ((1.0, 0.0), (0.0, 1.5), (1.5, 0.5), (-0.5, 1.5))
K = ((0.0, 0.0), (2.0, -0.5), (0.0, 2.0), (0.5, 1.0))
V = ((1.0, 1.0), (3.0, 0.0), (0.0, 2.0), (1.0, -1.0))

Vectors = Tensor | np.ndarray | Sequence[Sequence[float]]


class AttentionPlayground(Instrument):
    """One attention, from vectors to output, recomputed as the reader changes a number.

    Shown are scores, mask, weights and output of `mhalib.attend`, and the chosen query's sum in numbers. With d = 2 the
    chosen query and the keys are an arrow and points of a plane, which the reader drags; each key has a disc whose area
    is its weight. With d_v = 2 a second plane has the values and the output. The tables are then in a fold.
    `weights` and `output` are what `attend` makes of the current traits.

    Args:
        tokens: N names, 2 to 6 of them. Any text; a long one is shortened where it is shown.
        q: (N, d), d = 2 or 3. Numbers from -100 to 100.
        k: (N, d).
        v: (N, d_v), d_v = 1, 2 or 3.
        scale: divide the scores by √d.
        temperature: divide the scores by this as well, 0.01 to 100.
        mask: "none", "causal" (a token sees itself and what is before it) or "valid length".
        valid_len: with `mask="valid length"`, how many tokens may be seen, 0 to N; `None` means N.
            With 0 nothing may be seen: weights and output are 0.
        query: the chosen row.
        controls: what is shown besides the planes, of "scale", "temperature", "mask", "query" (the choice of it) and
            "numbers" (the sum and the tables). Without planes, the numbers are always shown.

    The traits have the same names; `q`, `k`, `v` read back as lists and may be set to tensors and arrays of the same
    shape. `query` is the number of the chosen row.

    Raises:
        TypeError, ValueError: an argument, or what a trait is set to, has another type, shape or range.
    """

    script = "AttentionPlayground"

    tokens = traitlets.Any().tag(sync=True)
    q = traitlets.Any().tag(sync=True)
    k = traitlets.Any().tag(sync=True)
    v = traitlets.Any().tag(sync=True)
    scale = traitlets.Any(True).tag(sync=True)
    temperature = traitlets.Any(1.0).tag(sync=True)
    mask = traitlets.Any("none").tag(sync=True)
    valid_len = traitlets.Any(0).tag(sync=True)
    query = traitlets.Any(0).tag(sync=True)
    controls: Any = traitlets.List(list(CONTROLS)).tag(sync=True)

    def __init__(
        self,
        tokens: Sequence[str] = TOKENS,
        q: Vectors = Q,
        k: Vectors = K,
        v: Vectors = V,
        scale: bool = True,
        temperature: float = 1.0,
        mask: str = "none",
        valid_len: int | None = None,
        query: int = 1,
        controls: Iterable[str] = CONTROLS,
        **kwargs: Any,
    ) -> None:
        names = names_of("tokens", tokens)
        if not 2 <= len(names) <= MAX_TOKENS:
            raise ValueError(f"tokens has {len(names)} entries, but 2 to {MAX_TOKENS} can be shown")
        arrays = {"q": matrix("q", q), "k": matrix("k", k), "v": matrix("v", v)}
        for name, array in arrays.items():
            low, high = WIDTHS[name]
            if len(array) != len(names):
                raise ValueError(f"{name} has {len(array)} rows, but there are {len(names)} tokens")
            if not low <= array.shape[1] <= high:
                raise ValueError(f"{name} has vectors of width {array.shape[1]}, but {low} to {high} can be shown")
        if arrays["q"].shape != arrays["k"].shape:
            raise ValueError(f"q and k must have one shape, got {arrays['q'].shape} and {arrays['k'].shape}")
        self._shapes = {name: array.shape for name, array in arrays.items()}
        super().__init__(
            tokens=names,
            **{name: array.tolist() for name, array in arrays.items()},
            scale=scale,
            temperature=temperature,
            mask=mask,
            valid_len=len(names) if valid_len is None else valid_len,
            query=query,
            controls=_as_controls(controls),
            **kwargs,
        )

    @traitlets.validate("tokens")
    def _check_tokens(self, proposal: traitlets.Bunch) -> list[str]:
        names = names_of("tokens", proposal["value"])
        num_tokens = self._shapes["q"][0]
        if len(names) != num_tokens:
            raise ValueError(f"tokens has {len(names)} entries, but there are {num_tokens} vectors")
        return names

    @traitlets.validate("q", "k", "v")
    def _check_vectors(self, proposal: traitlets.Bunch) -> list[list[float]]:
        name = proposal["trait"].name
        array = matrix(name, proposal["value"])
        if array.shape != self._shapes[name]:
            raise ValueError(f"{name} has shape {array.shape}, but was made with {self._shapes[name]}")
        return array.tolist()

    @traitlets.validate("scale")
    def _check_scale(self, proposal: traitlets.Bunch) -> bool:
        if not isinstance(proposal["value"], (bool, np.bool_)):
            raise TypeError(f"scale must be True or False, got {proposal['value']!r:.80}")
        return bool(proposal["value"])

    @traitlets.validate("temperature")
    def _check_temperature(self, proposal: traitlets.Bunch) -> float:
        value = proposal["value"]
        if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
            raise TypeError(f"temperature must be a number, got {type(value).__name__}: {value!r:.80}")
        low, high = TEMPERATURES
        if not low <= value <= high:
            raise ValueError(f"temperature={value} must be a number from {low} to {high:g}")
        return float(value)

    @traitlets.validate("mask")
    def _check_mask(self, proposal: traitlets.Bunch) -> str:
        if not isinstance(proposal["value"], str):
            raise TypeError(f"mask must be one of {MASKS}, got {type(proposal['value']).__name__}")
        if proposal["value"] not in MASKS:
            raise ValueError(f"mask={proposal['value']!r:.80} must be one of {MASKS}")
        return proposal["value"]

    @traitlets.validate("valid_len", "query")
    def _check_count(self, proposal: traitlets.Bunch) -> int:
        name, value = proposal["trait"].name, proposal["value"]
        require_count(name, value, minimum=0)
        require_at_most(name, value, self._shapes["q"][0] - (name == "query"))
        return int(value)

    @property
    def may_attend(self) -> Tensor:
        """The mask in full, (N, N), True = may attend."""
        num_tokens = len(self.tokens)
        if self.mask == "causal":
            return causal_mask(num_tokens)
        if self.mask == "valid length":
            seen = padding_mask(torch.tensor([self.valid_len]), num_tokens)[0, 0]
            return seen.expand(num_tokens, num_tokens)
        return torch.ones(num_tokens, num_tokens, dtype=torch.bool)

    @property
    def weights(self) -> Tensor:
        """(N, N), float64: rows are queries, columns keys. A query with nothing to see has a row of zeros."""
        return self._attended()[1]

    @property
    def output(self) -> Tensor:
        """(N, d_v), float64."""
        return self._attended()[0]

    def _attended(self) -> tuple[Tensor, Tensor]:
        return attended(self.q, self.k, self.v, self.may_attend, scale=self.scale, temperature=self.temperature)

    def results(self) -> dict[str, str]:
        """Of the chosen query: "largest weight" and "output"."""
        return results_of(self.weights[self.query], self.output[self.query])

    def table(self) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
        names = [_shown(token) for token in self.tokens]
        scores = "q·k" + ("/√d" if self.scale else "") + (f"/{self.temperature:g}" if self.temperature != 1 else "")
        seen = f" {self.valid_len}" if self.mask == "valid length" else ""
        caption = f"Attention of {len(names)} tokens, scores {scores}, mask: {self.mask}{seen}"
        weights, output, mask = self.weights.tolist(), self.output.tolist(), self.may_attend.tolist()
        rows = [
            [
                name,
                *(in_brackets(x[t]) for x in (self.q, self.k, self.v)),
                *(f"{w:.4f}" if sees else "hidden" for w, sees in zip(weights[t], mask[t], strict=True)),
                in_brackets(output[t]),
            ]
            for t, name in enumerate(names)
        ]
        return caption, ("token", "q", "k", "v", *(f"weight on {name}" for name in names), "output"), rows


def attended(
    q: Sequence[Sequence[float]],
    k: Sequence[Sequence[float]],
    v: Sequence[Sequence[float]],
    mask: Tensor,
    *,
    scale: bool,
    temperature: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Output (Q, d_v) and weights (Q, N) of `attend` in float64; scores are divided by √d only if `scale`."""
    queries, keys, values = (torch.tensor(x, dtype=torch.float64) for x in (q, k, v))
    unscaled = 1.0 if scale else math.sqrt(queries.shape[-1])  # attend divides by √d always
    output, weights = attend(queries * (unscaled / temperature), keys, values, mask=mask)
    assert weights is not None
    return output, weights


def results_of(weights: Tensor, output: Tensor) -> dict[str, str]:
    """What a sentence may say of one query's weights (N,) and output (d_v,)."""
    numbers = ", ".join(in_digits(x) for x in output.tolist())
    return {"largest weight": in_digits(float(weights.max())), "output": f"({numbers})"}


def names_of(name: str, tokens: object) -> list[str]:
    """Names as they can travel to a page, from the argument `name`."""
    if isinstance(tokens, str) or not isinstance(tokens, Sequence):
        raise TypeError(f"{name} must be a sequence of strings, got {type(tokens).__name__}: {tokens!r:.80}")
    for token in tokens:
        if not isinstance(token, str):
            raise TypeError(f"{name} must hold strings, got {type(token).__name__}: {token!r:.80}")
    return [token.encode("utf-8", "backslashreplace").decode() for token in tokens]  # half a character cannot travel


def _as_controls(controls: object) -> list[str]:
    names = as_list("controls", controls)
    for name in names:
        require_text("controls", name)
        require_choice("controls", name, CONTROLS)
    return [name for name in CONTROLS if name in names]


def matrix(name: str, value: object) -> np.ndarray:
    """`value` as an (N, d) array of finite numbers; lists will do."""
    if isinstance(value, (list, tuple)):
        try:
            value = np.array(value)
        except ValueError:
            raise ValueError(f"{name} must have rows of one length, got {value!r:.80}") from None
    array = real_array(name, value, rank=2)
    wrong = array[~(np.abs(array) <= BOUND)]
    if wrong.size:
        raise ValueError(f"{name} must hold numbers from {-BOUND:g} to {BOUND:g}, got {wrong[0]}")
    return array + 0.0  # no -0


def in_brackets(numbers: Sequence[float]) -> str:
    return "(" + ", ".join(f"{round(x, 4) + 0.0:g}" for x in numbers) + ")"


def in_digits(number: float) -> str:
    """A number up to BOUND as the page writes it: with two digits behind the point, but 100 has none."""
    text = f"{abs(number):.{0 if abs(number) >= BOUND else 2}f}"
    return f"−{text}" if number < 0 and float(text) != 0 else text


def _shown(token: str) -> str:
    """The token as it stands in the table."""
    return legible(token, 14) or "(empty)"
