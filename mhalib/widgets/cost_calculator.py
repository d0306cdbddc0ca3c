"""What attention costs, as a function of its sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import traitlets

from .. import costs as formulas
from .._validate import require_count, require_divisible
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
}


class CostCalculator(Instrument):
    """Parameters, FLOPs, memory of the scores and of the key–value cache, with the formula of each beside it.

    Counted are the attention layers of a model, without biases, in one forward pass of self-attention.

    Args:
        num_hiddens: D.
        num_heads: h, divides D.
        num_kv_heads: heads that have keys and values of their own, divides h; `None` means h, 1 means one set for all.
        num_layers: how many such layers.
        num_tokens: N.
        batch_size: B.
        bytes_per_number: 4 for float32, 2 for bfloat16 and float16, 1 for 8-bit numbers.

    Raises:
        TypeError, ValueError: a size is no integer, not positive, above its bound, or does not divide.
    """

    script = "CostCalculator"

    num_hiddens = traitlets.Int(768).tag(sync=True)
    num_heads = traitlets.Int(12).tag(sync=True)
    num_kv_heads = traitlets.Int(12).tag(sync=True)
    num_layers = traitlets.Int(12).tag(sync=True)
    num_tokens = traitlets.Int(1024).tag(sync=True)
    batch_size = traitlets.Int(1).tag(sync=True)
    bytes_per_number = traitlets.Int(2).tag(sync=True)

    def __init__(
        self,
        num_hiddens: int = 768,
        num_heads: int = 12,
        num_kv_heads: int | None = None,
        num_layers: int = 12,
        num_tokens: int = 1024,
        batch_size: int = 1,
        bytes_per_number: int = 2,
        **kwargs: Any,
    ) -> None:
        kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        given = (num_hiddens, num_heads, kv_heads, num_layers, num_tokens, batch_size, bytes_per_number)
        sizes = dict(zip(SIZES, given, strict=True))
        for name, size in sizes.items():
            _require_size(name, size)
        require_divisible("num_hiddens", num_hiddens, num_heads)
        if num_heads % kv_heads:
            raise ValueError(f"num_heads={num_heads} is not divisible by num_kv_heads={kv_heads}")
        super().__init__(**sizes, **kwargs)

    @traitlets.validate(*SIZES)
    def _check_size(self, proposal: traitlets.Bunch) -> int:
        """One by one: sizes that do not divide are on the way to others, and the picture says so."""
        _require_size(proposal["trait"].name, proposal["value"])
        return int(proposal["value"])

    def costs(self) -> dict[str, int]:
        """parameters, flops, score_bytes of one layer, cache_bytes of all layers, by `mhalib.costs`.

        Raises:
            ValueError: the sizes do not divide, as while one is being changed before the other.
        """
        run = (self.num_tokens, self.batch_size)
        sizes = Sizes(self.num_hiddens, self.num_heads, self.num_kv_heads)
        return {
            "parameters": self.num_layers * formulas.parameters(sizes),
            "flops": self.num_layers * formulas.flops(sizes, *run),
            "score_bytes": formulas.score_bytes(sizes, *run, self.bytes_per_number),
            "cache_bytes": self.num_layers * formulas.cache_bytes(sizes, *run, self.bytes_per_number),
        }

    def table(self) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
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


def _require_size(name: str, size: int) -> None:
    require_count(name, size)
    if size > BOUNDS[name]:
        raise ValueError(f"{name}={size} must be at most {BOUNDS[name]}")
    if name == "bytes_per_number" and size not in (1, 2, 4, 8):
        raise ValueError(f"bytes_per_number={size} must be 1, 2, 4 or 8")
