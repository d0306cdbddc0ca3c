"""What attention costs, as a function of its sizes."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import traitlets

from .. import costs as formulas
from .._validate import require_at_most, require_choice, require_count, require_divisible, require_flag
from ..attention.registry import KINDS
from ..costs import Sizes
from ._instrument import Instrument

SIZES = ("num_hiddens", "num_heads", "num_kv_heads", "num_layers", "num_tokens", "batch_size", "bytes_per_number")
BOUNDS = {
    "num_hiddens": 65_536,
    "num_heads": 1024,
    "num_kv_heads": 1024,
    "num_layers": 1000,
    "num_tokens": 10_000_000,
    "batch_size": 1_000_000,
    "bytes_per_number": 8,
    "latent_size": 65_536,
    "rotary_size": 65_536,
    "shared_size": 65_536,
    "overlap": 65_536,
    "num_shared": 1024,
    "num_chosen": 1024,
    "rank": 64,
}
SETTINGS_OF: dict[str, tuple[str, ...]] = {
    "multi-head": (),
    "grouped": ("num_kv_heads",),
    "multi-query": (),
    "latent": ("latent_size", "rotary_size", "absorbed"),
    "talking": (),
    "collaborative": ("shared_size",),
    "overlapping": ("overlap",),
    "mixture": ("num_shared", "num_chosen"),
    "composed": ("rank",),
    "differential": (),
    "gated": ("per_channel",),
    "qk-norm": (),
}
"""The variants that can be compared, and which of the settings each has."""
MAY_BE_0 = ("rotary_size", "overlap", "num_shared", "num_chosen")
FLAGS = ("absorbed", "per_channel")
COUNTS = ("latent_size", "rotary_size", "shared_size", "overlap", "num_shared", "num_chosen", "rank")
SETTINGS = (*COUNTS, *FLAGS)


class CostCalculator(Instrument):
    """Parameters, FLOPs, memory of the scores and of the key–value cache, with the formula of each beside it.

    Counted are the attention layers of a model, without biases, in one forward pass of self-attention.

    With `variant`, the reader chooses one, and sees its parameters, FLOPs and cache for each token beside those of
    multi-head attention with the same D and h. The numbers are those of `mhalib.costs.variant_costs`. Any other kind
    that is registered is compared, too: its products are counted for this D and h, which a page without a kernel then
    keeps.

    Args:
        num_hiddens: D.
        num_heads: h, divides D.
        num_kv_heads: heads that have keys and values of their own, divides h; `None` means h, 1 means one set for all.
        num_layers: how many such layers.
        num_tokens: N.
        batch_size: B.
        bytes_per_number: 4 for float32, 2 for bfloat16 and float16, 1 for 8-bit numbers.
        variant: "multi-head", "grouped" (with `num_kv_heads`; `None` then means a quarter of h, or half, or 1),
            "multi-query", "latent", "talking", "collaborative", "overlapping", "mixture", "composed", "differential",
            "gated" or "qk-norm", each with its settings below; or any other name in `mhalib.attention.KINDS`, or a
            mapping with a name and settings, as in `make_attention`.
        latent_size, rotary_size, absorbed: of "latent"; 2d, d/2 made even, and `False`. 0 is without rotary positions.
        shared_size: D~ of "collaborative"; D/2.
        overlap: o of "overlapping".
        num_shared, num_chosen: of "mixture": heads that are always on, and how many of the others a token chooses, half
            of them.
        rank: R of "composed".
        per_channel: of "gated".

    Raises:
        TypeError, ValueError: a size is no integer, not positive, above its bound, or does not divide; the variant is
            unknown, refuses its settings, or cannot be counted; settings of a variant without `variant`.
    """

    script = "CostCalculator"

    num_hiddens = traitlets.Int(768).tag(sync=True)
    num_heads = traitlets.Int(12).tag(sync=True)
    num_kv_heads = traitlets.Int(12).tag(sync=True)
    num_layers = traitlets.Int(12).tag(sync=True)
    num_tokens = traitlets.Int(1024).tag(sync=True)
    batch_size = traitlets.Int(1).tag(sync=True)
    bytes_per_number = traitlets.Int(2).tag(sync=True)
    variant = traitlets.Unicode().tag(sync=True)  # empty: nothing is compared
    counted = traitlets.List(traitlets.Int()).tag(sync=True)  # the `Parts` of a kind that is not among SETTINGS_OF
    latent_size = traitlets.Int(1).tag(sync=True)
    rotary_size = traitlets.Int(0).tag(sync=True)
    absorbed = traitlets.Bool(False).tag(sync=True)
    shared_size = traitlets.Int(1).tag(sync=True)
    overlap = traitlets.Int(1).tag(sync=True)
    num_shared = traitlets.Int(1).tag(sync=True)
    num_chosen = traitlets.Int(1).tag(sync=True)
    rank = traitlets.Int(2).tag(sync=True)
    per_channel = traitlets.Bool(False).tag(sync=True)

    def __init__(
        self,
        num_hiddens: int = 768,
        num_heads: int = 12,
        num_kv_heads: int | None = None,
        num_layers: int = 12,
        num_tokens: int = 1024,
        batch_size: int = 1,
        bytes_per_number: int = 2,
        *,
        variant: str | Mapping[str, Any] | None = None,
        latent_size: int | None = None,
        rotary_size: int | None = None,
        absorbed: bool = False,
        shared_size: int | None = None,
        overlap: int = 1,
        num_shared: int = 1,
        num_chosen: int | None = None,
        rank: int = 2,
        per_channel: bool = False,
        **kwargs: Any,
    ) -> None:
        kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        given = (num_hiddens, num_heads, kv_heads, num_layers, num_tokens, batch_size, bytes_per_number)
        sizes = dict(zip(SIZES, given, strict=True))
        for name, size in sizes.items():
            _require_size(name, size)
        require_divisible("num_hiddens", num_hiddens, num_heads)
        if variant is not None and num_kv_heads is None:
            sizes["num_kv_heads"] = num_heads // next(share for share in (4, 2, num_heads) if num_heads % share == 0)
        if num_heads % kv_heads:
            raise ValueError(f"num_heads={num_heads} is not divisible by num_kv_heads={kv_heads}")
        counts = (latent_size, rotary_size, shared_size, overlap, num_shared, num_chosen, rank)
        settings = dict(zip(SETTINGS, (*counts, absorbed, per_channel), strict=True))
        self._compares, self._other_kind = variant is not None, _as_other_kind(variant)
        if variant is None or self._other_kind is not None:
            _require_none_set(settings)
            super().__init__(**sizes, **self._counts(num_hiddens, num_heads), **kwargs)
            return
        require_choice("variant", variant, tuple(SETTINGS_OF))
        settings = _filled(settings, num_hiddens, num_heads)
        super().__init__(**sizes, **settings, variant=variant, **kwargs)
        self.costs()  # refuses what does not fit

    @traitlets.validate(*SIZES, *COUNTS)
    def _check_size(self, proposal: traitlets.Bunch) -> int:
        """One by one: sizes that do not divide are on the way to others, and the picture says so."""
        _require_size(proposal["trait"].name, proposal["value"])
        return int(proposal["value"])

    @traitlets.validate("variant")
    def _check_variant(self, proposal: traitlets.Bunch) -> str:
        other = self._other_kind
        if not self._compares or (other is not None and proposal["value"] != other["name"]):
            raise ValueError(f"variant={proposal['value']!r} comes too late: make a calculator with it")
        if other is None:
            require_choice("variant", proposal["value"], tuple(SETTINGS_OF))
        return str(proposal["value"])

    @traitlets.observe("num_hiddens", "num_heads")
    def _count_anew(self, change: traitlets.Bunch) -> None:
        if self._other_kind is not None and self.counted and self.num_hiddens % self.num_heads == 0:
            self.counted = self._counts(self.num_hiddens, self.num_heads)["counted"]

    def _counts(self, num_hiddens: int, num_heads: int) -> dict[str, Any]:
        """The traits that a kind has which is counted; none where there is no such kind."""
        if self._other_kind is None:
            return {}
        parts = formulas.variant_parts(self._other_kind, num_hiddens, num_heads)
        if parts.state:
            raise ValueError(f"variant={self._other_kind!r:.80} keeps a state, and nothing for each token to compare")
        return {"variant": self._other_kind["name"], "counted": list(parts[:4])}

    def state(self) -> dict[str, Any]:
        """The traits of its own; where nothing is compared, nothing is said of variants."""
        shown = SIZES if not self._compares else (*SIZES, "variant", *(("counted",) if self.counted else SETTINGS))
        return {name: value for name, value in super().state().items() if name in shown}

    def costs(self) -> dict[str, int]:
        """parameters, flops, score_bytes of one layer, cache_bytes of all layers, by `mhalib.costs`. With a variant:
        its parameters, flops and cache_bytes_per_token; of a mixture, chosen_flops, too.

        Raises:
            ValueError: the sizes do not divide, as while one is being changed before the other.
        """
        if self._compares:
            return {name: found for name, (_, found) in self.comparison().items()}
        run = (self.num_tokens, self.batch_size)
        sizes = Sizes(self.num_hiddens, self.num_heads, self.num_kv_heads)
        return {
            "parameters": self.num_layers * formulas.parameters(sizes),
            "flops": self.num_layers * formulas.flops(sizes, *run),
            "score_bytes": formulas.score_bytes(sizes, *run, self.bytes_per_number),
            "cache_bytes": self.num_layers * formulas.cache_bytes(sizes, *run, self.bytes_per_number),
        }

    def results(self) -> dict[str, str]:
        """The costs to three digits, such as "58.0 billion" and "805 MB", and the width "d" of a head; nothing where a
        variant is compared, or the sizes do not divide."""
        if self._compares or self.num_hiddens % self.num_heads or self.num_heads % self.num_kv_heads:
            return {}
        units = {"score_bytes": "B", "cache_bytes": "B"}
        told = {name: in_words(cost, units.get(name, "")) for name, cost in self.costs().items()}
        _, d = Sizes(self.num_hiddens, self.num_heads, num_kv_heads=1).widths
        return {**told, "d": f"{d:,}"}

    def comparison(self) -> dict[str, tuple[int, int]]:
        """Each cost of multi-head attention and of the variant, of all layers.

        Raises:
            ValueError: nothing is compared, or the sizes do not fit, as while one is being changed before the other.
        """
        if not self._compares:
            raise ValueError("this calculator compares nothing: make one with variant=")
        sizes, run = (self.num_hiddens, self.num_heads), (self.num_tokens, self.batch_size)
        plain, own = (formulas.variant_parts(choice, *sizes) for choice in ("multi-head", self.choice()))
        found = {
            "parameters": (plain.each_token + plain.others, own.each_token + own.others),
            "flops": (plain.flops(*run), own.flops(*run)),
            "cache_bytes_per_token": (plain.cached * self.bytes_per_number, own.cached * self.bytes_per_number),
        }
        if self.variant == "mixture" and self._other_kind is None:
            found["chosen_flops"] = (plain.flops(*run), formulas.chosen_flops(self.choice(), *sizes, *run))
        return {name: (self.num_layers * one, self.num_layers * other) for name, (one, other) in found.items()}

    def choice(self) -> dict[str, Any]:
        """The variant as models take it: `attention=calculator.choice()`.

        Raises:
            ValueError: nothing is compared.
        """
        if not self._compares:
            raise ValueError("this calculator compares nothing: make one with variant=")
        if self._other_kind is not None:
            return dict(self._other_kind)
        if self.variant in ("grouped", "multi-query"):
            return {"name": "multi-head", "num_kv_heads": self.num_kv_heads if self.variant == "grouped" else 1}
        settings = {name: getattr(self, name) for name in SETTINGS_OF[self.variant]}
        if self.variant == "latent":
            turned = settings.pop("rotary_size")
            settings |= {"positions": "rotary", "rotary_size": turned} if turned else {}
        return {"name": self.variant, **settings}

    def table(self) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
        if self._compares:
            return self._table_of_both()
        sizes = ", ".join(f"{name}={getattr(self, name)}" for name in SIZES)
        titles = {
            "parameters": ("parameters", ""),
            "flops": ("FLOPs of a forward pass", ""),
            "score_bytes": ("scores of one layer, if they are stored", " bytes"),
            "cache_bytes": ("keys and values of all layers, kept for writing on", " bytes"),
        }
        try:
            costs = self.costs()
        except ValueError as error:
            return f"What attention costs at {sizes}: {error}", ("cost", "amount"), []
        rows = [(title, f"{costs[name]:,}{unit}") for name, (title, unit) in titles.items()]
        return f"What attention costs at {sizes}", ("cost", "amount"), rows

    def _table_of_both(self) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
        names = [name for name in SIZES if name != "num_kv_heads"]
        names += () if self._other_kind is not None else SETTINGS_OF[self.variant]
        sizes = ", ".join(f"{name}={getattr(self, name)}" for name in names)
        caption = f"What {self.variant} attention costs beside multi-head attention at {sizes}"
        header = ("cost", "multi-head", self.variant, "ratio")
        titles = {
            "parameters": ("parameters", ""),
            "flops": ("FLOPs of a forward pass", ""),
            "chosen_flops": ("FLOPs, if heads that a token did not choose were skipped", ""),
            "cache_bytes_per_token": ("cache of all layers for each token", " bytes"),
        }
        try:
            found = self.comparison()
        except ValueError as error:
            return f"{caption}: {error}", header, []
        rows = []
        for name, (title, unit) in titles.items():
            if name in found:
                plain, own = found[name]
                rows.append([title, f"{plain:,}{unit}", f"{own:,}{unit}", _ratio(own, plain)])
        return caption, header, rows


def in_words(count: float, unit: str = "") -> str:
    """A count to three digits: "1.07 billion", or with a unit "1.07 GB"."""
    steps = ("", " thousand", " million", " billion", " trillion", " quadrillion")
    prefixes = ("", "k", "M", "G", "T", "P")
    power = sum(count >= 999.5 * 1000**step for step in range(5))
    number = float(f"{count / 1000**power:.3g}")
    places = 0 if number >= 100 else 1 if number >= 10 else 2
    return f"{number:,.{places}f}" + (f" {prefixes[power]}{unit}" if unit else steps[power])


def _ratio(one: int, all_of_it: int) -> str:
    """To 3 digits; half of a thousandth is rounded up."""
    return f"{(2000 * one + all_of_it) // (2 * all_of_it) / 1000:.3f}"


def _as_other_kind(variant: Any) -> dict[str, Any] | None:
    """The name and settings of a kind that has no field in the picture, or `None` for one that has."""
    if isinstance(variant, Mapping):
        return dict(variant)
    return {"name": variant} if isinstance(variant, str) and variant in KINDS and variant not in SETTINGS_OF else None


def _require_none_set(settings: dict[str, Any]) -> None:
    """Raise ValueError where a setting has another value than the one it has by itself."""
    unset = {"overlap": 1, "num_shared": 1, "rank": 2, "absorbed": False, "per_channel": False}
    for name, value in settings.items():
        is_known = value is None or isinstance(value, (numbers.Integral, np.bool_))  # a tensor may be equal in part
        if not is_known or value != unset.get(name):
            raise ValueError(f"{name}={value!r:.80} is of a variant, and variant is None")


def _filled(settings: dict[str, Any], num_hiddens: int, num_heads: int) -> dict[str, Any]:
    """The settings, with a number for each `None`."""
    d = Sizes(num_hiddens, num_heads, num_kv_heads=1).widths[1]
    own = {"latent_size": 2 * d, "rotary_size": max(2, d // 4 * 2), "shared_size": max(1, num_hiddens // 2)}
    filled: dict[str, Any] = {name: own.get(name) if value is None else value for name, value in settings.items()}
    for name in COUNTS[:-2]:
        _require_size(name, filled[name])
    if filled["num_chosen"] is None:
        filled["num_chosen"] = (max(0, num_heads - filled["num_shared"]) + 1) // 2
    for name in FLAGS:
        require_flag(name, filled[name])
    for name in COUNTS:
        _require_size(name, filled[name])
    return filled


def _require_size(name: str, size: int) -> None:
    require_count(name, size, minimum=0 if name in MAY_BE_0 else 1)
    require_at_most(name, size, BOUNDS[name])
    if name == "bytes_per_number" and size not in (1, 2, 4, 8):
        raise ValueError(f"bytes_per_number={size} must be 1, 2, 4 or 8")
