"""How tokens know where they stand. Each way is a `Positions`, chosen by its name.

A way acts in one of two places: on the tokens' vectors, before the first layer, or on the queries and keys of each
head, inside every layer. So any layer takes any of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from .._validate import require_choice, require_count, require_integers, require_positive, require_tensor, seen_extremes

PAIRS = ("interleaved", "halves")
"""How channels are paired for rotary positions, see `rotate`."""
_OF_YARN = ("factor", "beta_slow", "beta_fast", "original_max_tokens", "attention_factor")
SCALINGS = {
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_tokens"),
    "yarn": _OF_YARN,
    "yarn-untruncated": _OF_YARN,
    "dynamic": ("factor", "original_max_tokens"),
}
"""How rotary positions may be slowed down, and the numbers that each way asks for, see `rotate`."""
Scaling = Mapping[str, "str | float"]


def sinusoidal_positions(num_tokens: int, num_hiddens: int, start: int = 0, pairs: str = "interleaved") -> Tensor:
    """(N, D): sines in the even columns, cosines in the odd ones; 2i and 2i + 1 turn by 10000^(-2i/D) per token.

    With pairs="halves", all sines stand before all cosines, as in Marian: columns i and i + D/2 are a pair.

    Raises:
        TypeError, ValueError: a size is not a positive integer, `num_hiddens` is odd, `start` is negative, or `pairs`
            is unknown.

    Source: Vaswani et al. 2017, section 3.5.
    """
    require_count("num_tokens", num_tokens, minimum=0)
    require_count("start", start, minimum=0)
    require_choice("pairs", pairs, PAIRS)
    angles = _angles(num_tokens, num_hiddens, start)
    return torch.stack([angles.sin(), angles.cos()], -1 if pairs == "interleaved" else 1).flatten(1).float()


def rotate(
    x: Tensor,
    start: int = 0,
    *,
    pairs: str = "interleaved",
    base: float = 10000.0,
    width: int | None = None,
    scaling: Scaling | None = None,
) -> Tensor:
    """Rotary positions: turn pair i of the channels of token n by the angle (start + n) * base^(-2i/d).

    The product of a rotated query and a rotated key depends on the distance of their tokens only.

    Args:
        x: (..., N, d), floating-point, d even: queries or keys of a head.
        start: position of the first token.
        pairs: which channels are pair i: 2i and 2i + 1, "interleaved", as in RoFormer and Meta's LLaMA; or i and
            i + d/2, "halves", as in GPT-NeoX and Hugging Face's LLaMA. `mhalib.variants.exchange_pairs` takes a layer
            from one to the other.
        base: how slowly the last pair turns; LLaMA 3 has 500,000.
        width: how many channels are turned, the first ones; they count as d in the formula, and the others stay as
            they are. `None` turns all. GPT-NeoX turns a quarter.
        scaling: slows the turning down, for longer texts. {"name": "linear", "factor": 4.0} divides each angle by 4.
            {"name": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_tokens": 8192} does so for the pairs that turn less than once in 8192 tokens, leaves those
            alone that turn more than 4 times, and goes from one to the other in between.
            {"name": "yarn", "factor": 8.0, "beta_slow": 1.0, "beta_fast": 32.0, "original_max_tokens": 4096,
            "attention_factor": 1.2} does the same for turns between 1 and 32, by whole pairs and evenly from pair to
            pair, and makes what is turned 1.2 times longer. Named "yarn-untruncated", as in gpt-oss, it rounds to no
            whole pairs. {"name": "dynamic", "factor": 2.0, "original_max_tokens": 4096} changes nothing in texts of up
            to 4096 tokens, and enlarges `base` with each token more. A key that a cache holds keeps the angle of the
            length at which it was made, so that a long text read at once differs from one read step by step.

    Raises:
        TypeError, ValueError: `x` is no tensor of two axes or more and of real numbers, d or `width` is odd, `width`
            is above d, `start` is negative, `pairs` is unknown, `base` is not a positive number, or `scaling` has
            another form.

    Sources: Su et al. 2021, RoFormer, section 3; Chen et al. 2023, Extending Context Window of Large Language Models
    via Position Interpolation, for "linear"; Meta's code of LLaMA 3.1 for "llama3"; Peng et al. 2023, YaRN, section 3,
    for "yarn", whose whole pairs and whose factor are those of the authors' code; appendix B.1 of the same for
    "dynamic", in the form that transformers has.
    """
    require_tensor("x", x)
    if not x.is_floating_point():
        raise TypeError(f"x must hold floating-point numbers, got {x.dtype}")
    if x.dim() < 2:
        raise ValueError(f"x needs at least 2 axes, got shape {tuple(x.shape)}")
    require_count("start", start, minimum=0)
    require_choice("pairs", pairs, PAIRS)
    require_positive("base", base)
    width = x.shape[-1] if width is None else width
    require_rotary_width("width", width, x.shape[-1])
    require_scaling("scaling", scaling)
    if width < x.shape[-1]:
        turned = rotate(x[..., :width], start, pairs=pairs, base=base, scaling=scaling)
        return torch.cat([turned, x[..., width:]], -1)
    angles = _angles(x.shape[-2], width, start, base, scaling)
    longer = float((scaling or {}).get("attention_factor", 1.0))
    cos, sin = ((part * longer).to(x.dtype).to(x.device) for part in (angles.cos(), angles.sin()))
    if pairs == "halves":
        first, second = x.chunk(2, -1)
        return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


def require_rotary_width(name: str, width: object, head_dim: int) -> None:
    """Raise unless `width` is an integer (TypeError) that says how many of `head_dim` channels may be turned: from 1 to
    all of them (ValueError)."""
    require_count(name, width)
    if width > head_dim:  # type: ignore[operator]
        raise ValueError(f"{name}={width} channels cannot be turned, a head has {head_dim}")


def require_scaling(name: str, scaling: object) -> None:
    """Raise unless `scaling` is `None` or a mapping (TypeError) that `rotate` understands (ValueError)."""
    if scaling is None:
        return
    if not isinstance(scaling, Mapping):
        raise TypeError(f"{name} must be a mapping, got {type(scaling).__name__}: {scaling!r:.80}")
    require_choice(f"{name}['name']", scaling.get("name"), tuple(SCALINGS))
    numbers = SCALINGS[scaling["name"]]
    if scaling.keys() != {"name", *numbers}:
        raise ValueError(f"{name}={dict(scaling)!r:.200} must have just the entries {['name', *numbers]}")
    for number in numbers:
        require_positive(f"{name}[{number!r}]", scaling[number])
    if scaling["name"] == "llama3" and scaling["low_freq_factor"] >= scaling["high_freq_factor"]:
        raise ValueError(f"{name}={dict(scaling)!r:.200} must have a low_freq_factor below its high_freq_factor")
    if "beta_slow" in scaling and scaling["beta_slow"] >= scaling["beta_fast"]:
        raise ValueError(f"{name}={dict(scaling)!r:.200} must have a beta_slow below its beta_fast")


def _angles(num_tokens: int, width: int, start: int, base: float = 10000.0, scaling: Scaling | None = None) -> Tensor:
    """(N, width / 2), in float64: the angles of late places are large, and their sines need the digits."""
    require_count("width", width)
    if width % 2:
        raise ValueError(f"positions by angles need an even width, got {width}")
    if scaling is not None and scaling["name"] == "dynamic" and width > 2:
        factor = float(scaling["factor"])
        length = max(1.0, (start + num_tokens) / float(scaling["original_max_tokens"]))
        base *= (factor * length - (factor - 1)) ** (width / (width - 2))
    rates = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    if scaling is not None and scaling["name"] != "dynamic":
        rates = _slowed(rates, scaling, base)
    places = torch.arange(start, start + num_tokens, dtype=torch.float64)
    return places[:, None] * rates


def _slowed(rates: Tensor, scaling: Scaling, base: float) -> Tensor:
    """The angles per token after `scaling`, see `rotate`."""
    numbers = {name: float(value) for name, value in scaling.items() if name != "name"}
    slow = rates / numbers["factor"]
    if scaling["name"] == "linear":
        return slow
    if "beta_slow" in numbers:
        share_kept = _kept_by_yarn(len(rates), numbers, base, scaling["name"] == "yarn")
    else:
        low, high = numbers["low_freq_factor"], numbers["high_freq_factor"]
        turns = rates * numbers["original_max_tokens"] / (2 * math.pi)  # in the texts of the first training
        share_kept = ((turns - low) / (high - low)).clamp(0, 1)
    return share_kept * rates + (1 - share_kept) * slow


def _kept_by_yarn(num_pairs: int, numbers: Mapping[str, float], base: float, truncated: bool) -> Tensor:
    """(num_pairs,): how much of its rate each pair keeps: all before the one that turns `beta_fast` times in the texts
    of the first training, none behind the one that turns `beta_slow` times, and evenly less in between; `truncated`, in
    between whole pairs."""
    first, last = (
        num_pairs * math.log(numbers["original_max_tokens"] / (2 * math.pi * numbers[turns])) / math.log(base)
        for turns in ("beta_fast", "beta_slow")
    )
    if truncated:
        first, last = math.floor(first), math.ceil(last)
    start, stop = max(first, 0), min(last, 2 * num_pairs - 1)
    pairs = torch.arange(num_pairs, dtype=torch.float64)
    return 1 - ((pairs - start) / max(stop - start, 0.001)).clamp(0, 1)


class Positions(nn.Module):
    """A way to tell tokens where they stand. This one tells them nothing.

    acts_in_heads: whether it is the layers that apply it, with `turn`.
    max_tokens: how many places there are; `None` means without end.
    """

    acts_in_heads = False
    max_tokens: int | None = None

    def forward(self, x: Tensor, start: int = 0, places: Tensor | None = None) -> Tensor:
        """Vectors of tokens, (B, N, D) -> (B, N, D); the first token stands at `start`, or each at its own of `places`,
        (B, N) integers."""
        return x

    def turn(self, x: Tensor, start: int = 0) -> Tensor:
        """Queries or keys of each head, (B, h, N, d) -> (B, h, N, d); the first token stands at `start`."""
        return x


class LearnedPositions(Positions):
    """Adds to each token a vector that belongs to its place and is learned, like a word's.

    Args:
        max_tokens: how many places there are.
        num_hiddens: D.
    """

    max_tokens: int

    def __init__(self, max_tokens: int, num_hiddens: int) -> None:
        super().__init__()
        require_count("max_tokens", max_tokens)
        require_count("num_hiddens", num_hiddens)
        self.max_tokens = int(max_tokens)
        self.table = nn.Parameter(torch.randn(max_tokens, num_hiddens) * 0.3)

    def forward(self, x: Tensor, start: int = 0, places: Tensor | None = None) -> Tensor:
        """(B, N, D) -> (B, N, D); the first token stands at `start`, or each at its own of `places` (B, N).

        Raises:
            ValueError: there are more tokens than places, or `x` is on another device.
        """
        stop = _require_vectors(x, start, places)
        if x.shape[-1] != self.table.shape[1]:
            raise ValueError(f"x has width {x.shape[-1]}, but positions have {self.table.shape[1]}")
        if x.device != self.table.device:
            raise ValueError(f"x is on {x.device}, but positions are on {self.table.device}")
        if stop > len(self.table):
            raise ValueError(f"{stop} tokens, but the model has only max_tokens={len(self.table)} positions")
        return x + (self.table[start:stop] if places is None else self.table[places.long()])


class SinusoidalPositions(Positions):
    """Adds `sinusoidal_positions`: nothing is learned, and no text is too long.

    Args:
        pairs: as in `sinusoidal_positions`.
    """

    def __init__(self, pairs: str = "interleaved") -> None:
        super().__init__()
        require_choice("pairs", pairs, PAIRS)
        self.pairs = pairs

    def forward(self, x: Tensor, start: int = 0, places: Tensor | None = None) -> Tensor:
        """(B, N, D) -> (B, N, D); the first token stands at `start`, or each at its own of `places` (B, N)."""
        stop = _require_vectors(x, start, places)
        if places is None:
            return x + sinusoidal_positions(x.shape[1], x.shape[2], start, self.pairs).to(x)
        return x + sinusoidal_positions(stop, x.shape[2], pairs=self.pairs).to(x)[places.long()]


class RotaryPositions(Positions):
    """Turns queries and keys of each head by their positions, see `rotate`. For self-attention: one token asks and is
    asked under one position.

    Args:
        pairs, base, width, scaling: as in `rotate`.
    """

    acts_in_heads = True

    def __init__(
        self,
        pairs: str = "interleaved",
        base: float = 10000.0,
        width: int | None = None,
        scaling: Scaling | None = None,
    ) -> None:
        super().__init__()
        require_choice("pairs", pairs, PAIRS)
        require_positive("base", base)
        if width is not None:
            require_count("width", width)
        require_scaling("scaling", scaling)
        self.pairs, self.base, self.width = pairs, float(base), width
        self.scaling = None if scaling is None else dict(scaling)

    def turn(self, x: Tensor, start: int = 0) -> Tensor:
        """(B, h, N, d) -> (B, h, N, d), d even; the first token stands at `start`."""
        return rotate(x, start, pairs=self.pairs, base=self.base, width=self.width, scaling=self.scaling)


def _require_vectors(x: Tensor, start: int, places: Tensor | None = None) -> int:
    """How many places are used. Raises unless `x` is (B, N, D), `start` a place, and `places` `None` or (B, N) of
    them."""
    require_tensor("x", x, rank=3)
    require_count("start", start, minimum=0)
    if places is None:
        return start + x.shape[1]
    require_tensor("places", places, rank=2)
    require_integers("places", places)
    if places.shape != x.shape[:2]:
        raise ValueError(f"places has shape {tuple(places.shape)}, but x has {tuple(x.shape[:2])} tokens")
    smallest, largest = seen_extremes(places) or (0, -1)
    if smallest < 0:
        raise ValueError(f"places must not be negative, got {smallest}")
    return largest + 1


ROTARY = ("rotary", "rotary-halves")
"""The names of rotary positions: with interleaved pairs, and with halves."""
SINUSOIDAL = ("sinusoidal", "sinusoidal-halves")
"""The names of sinusoidal positions: with interleaved pairs, and with halves."""
POSITIONS = ("none", "learned", *SINUSOIDAL, *ROTARY)
"""The names that `make_positions` and the models know."""


def rotary_positions(
    name: str, base: float = 10000.0, width: int | None = None, scaling: Scaling | None = None
) -> RotaryPositions:
    """The rotary positions of a name in `ROTARY`."""
    return RotaryPositions("halves" if name == "rotary-halves" else "interleaved", base, width, scaling)


def make_positions(name: str, max_tokens: int, num_hiddens: int) -> Positions:
    """The way of that name.

    Args:
        name: one of `POSITIONS`.
        max_tokens: how many places, for learned ones.
        num_hiddens: D, for learned ones.

    Raises:
        ValueError: there is no such way.
    """
    require_choice("positions", name, POSITIONS)
    if name == "learned":
        return LearnedPositions(max_tokens, num_hiddens)
    if name in ROTARY:
        return rotary_positions(name)
    if name in SINUSOIDAL:
        return SinusoidalPositions("halves" if name == "sinusoidal-halves" else "interleaved")
    return Positions()
