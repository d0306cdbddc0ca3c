"""What bounds each step of the layer, on a machine of two limits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import traitlets

from .. import roofline as formulas
from .._validate import (
    require_at_most,
    require_choice,
    require_count,
    require_divisible,
    require_flag,
    require_kind,
)
from ..bench import Machine
from ..costs import Sizes
from ._instrument import Instrument

BOUNDS = {
    "num_hiddens": 65_536,
    "num_heads": 1024,
    "num_kv_heads": 1024,
    "latent_size": 65_536,
    "rotary_size": 65_536,
    "num_tokens": 10_000_000,
    "batch_size": 1_000_000,
}
SETTINGS_OF = {
    "multi-head": (),
    "grouped": ("num_kv_heads",),
    "multi-query": (),
    "latent": ("latent_size", "rotary_size"),
}
"""The variants, and the settings that each has."""
STEPS = (*formulas.STEPS[:3], *formulas.LATENT_STEPS[1:5], *formulas.STEPS[3:6], formulas.FUSED, "W_o")
"""The steps of all variants, with both kernels."""


class Roofline(Instrument):
    """Each step of the layer as a dot on the roof of a machine: what it computes for each byte, what bounds it, and the
    least time it takes, for a prompt, for training, and for one token that is written.

    The numbers are those of `mhalib.roofline.step_costs` and `mhalib.roofline.latent_step_costs`. Latent attention
    makes keys and values of each head for a prompt and in training, and is absorbed when it writes a token. A machine
    computes with numbers of its own width: 2 bytes on the chips of `mhalib.roofline.MACHINES`.

    Args:
        machine: the name of one of `MACHINES`, or a `Machine`, as `mhalib.bench.measure_machine` gives it, which then
            is there to choose, too.
        num_hiddens: D.
        num_heads: h, divides D.
        variant: "multi-head", "grouped", "multi-query" or "latent".
        num_kv_heads: of "grouped": heads that have keys and values of their own, divides h. `None` means a quarter of
            h, or half, or 1.
        latent_size, rotary_size: of "latent". `None` means 4d, and d/2 made even, as in DeepSeek-V2 (DeepSeek-AI 2024,
            section 2.1.4). A rotary_size of 0 is without rotary positions. Queries have one projection.
        num_tokens: N.
        batch_size: B.
        phase: "prefill", "training" or "decoding", see `mhalib.roofline.PHASES`.
        kernel: "stored" or "fused", see `mhalib.roofline.KERNELS`.
        causal: whether only pairs of a token and one before it, or itself, are computed.
        step: the one that is spoken of, of `mhalib.roofline.STEPS` or `LATENT_STEPS`, or "fused". If the reader chooses
            a variant or a kernel without it, scores take its place, or "fused". `None` means one of these two.

    Raises:
        TypeError, ValueError: a size is no integer, not positive, above its bound, or does not divide; there is no such
            machine, variant, phase or kernel, or the layer has no such step; `causal` is no bool; a limit of the
            machine is no positive number.
    """

    script = "Roofline"

    machines: traitlets.List[list[Any]] = traitlets.List().tag(sync=True)  # name, peak, bandwidth, bytes of a number
    machine = traitlets.Unicode().tag(sync=True)
    num_hiddens = traitlets.Int(4096).tag(sync=True)
    num_heads = traitlets.Int(32).tag(sync=True)
    variant = traitlets.Unicode("multi-head").tag(sync=True)
    num_kv_heads = traitlets.Int(8).tag(sync=True)
    latent_size = traitlets.Int(512).tag(sync=True)
    rotary_size = traitlets.Int(64).tag(sync=True)
    num_tokens = traitlets.Int(2048).tag(sync=True)
    batch_size = traitlets.Int(1).tag(sync=True)
    phase = traitlets.Unicode("prefill").tag(sync=True)
    kernel = traitlets.Unicode("stored").tag(sync=True)
    causal = traitlets.Bool(False).tag(sync=True)
    step = traitlets.Unicode("scores").tag(sync=True)

    def __init__(
        self,
        machine: str | Machine = "NVIDIA A100 80 GB",
        num_hiddens: int = 4096,
        num_heads: int = 32,
        *,
        variant: str = "multi-head",
        num_kv_heads: int | None = None,
        latent_size: int | None = None,
        rotary_size: int | None = None,
        num_tokens: int = 2048,
        batch_size: int = 1,
        phase: str = "prefill",
        kernel: str = "stored",
        causal: bool = False,
        step: str | None = None,
        **kwargs: Any,
    ) -> None:
        known = dict(formulas.MACHINES)
        if not isinstance(machine, str):
            require_kind("machine", machine, Machine)
            known.pop(machine.name, None)  # one of its own may have the name of another
            known = {machine.name: machine, **known}
            machine = machine.name
        require_choice("machine", machine, tuple(known))
        sizes = {"num_hiddens": num_hiddens, "num_heads": num_heads}
        for name, size in sizes.items():
            _require_size(name, size)
        require_divisible("num_hiddens", num_hiddens, num_heads)
        if num_kv_heads is None:
            num_kv_heads = num_heads // next(share for share in (4, 2, num_heads) if num_heads % share == 0)
        d = Sizes(num_hiddens, num_heads, num_kv_heads=1).widths[1]
        sizes |= {
            "num_kv_heads": num_kv_heads,
            "latent_size": min(4 * d, BOUNDS["latent_size"]) if latent_size is None else latent_size,
            "rotary_size": max(2, d // 4 * 2) if rotary_size is None else rotary_size,
            "num_tokens": num_tokens,
            "batch_size": batch_size,
        }
        for name, size in sizes.items():
            _require_size(name, size)
        self._known = known
        require_flag("causal", causal)
        require_choice("kernel", kernel, formulas.KERNELS)
        if step is None:
            step = formulas.FUSED if kernel == formulas.FUSED else "scores"
        choices = {"machine": machine, "variant": variant, "phase": phase, "kernel": kernel, "step": step}
        for name, value in choices.items():
            self._require_known(name, value)
        super().__init__(machines=[list(one) for one in known.values()], causal=causal, **sizes, **choices, **kwargs)
        require_choice("step", step, tuple(one.name for one in self.costs()))  # sizes that do not fit are refused here

    @traitlets.validate(*BOUNDS)
    def _check_size(self, proposal: traitlets.Bunch) -> int:
        """One by one: sizes that do not divide are on the way to others, and the picture says so."""
        _require_size(proposal["trait"].name, proposal["value"])
        return int(proposal["value"])

    @traitlets.validate("machine", "variant", "phase", "kernel", "step")
    def _check_choice(self, proposal: traitlets.Bunch) -> str:
        self._require_known(proposal["trait"].name, proposal["value"])
        return str(proposal["value"])

    def _require_known(self, name: str, value: str) -> None:
        known = {"machine": tuple(self._known), "variant": tuple(SETTINGS_OF), "phase": formulas.PHASES}
        known |= {"kernel": formulas.KERNELS, "step": STEPS}
        require_choice(name, value, known[name])

    @traitlets.validate("machines")
    def _check_machines(self, proposal: traitlets.Bunch) -> list[list[Any]]:
        if proposal["value"] != [list(one) for one in self._known.values()]:
            raise ValueError("machines come too late: make a roofline with machine=")
        return list(proposal["value"])

    def limits(self) -> Machine:
        """The machine that is chosen."""
        return self._known[self.machine]

    def costs(self) -> tuple[formulas.StepCost, ...]:
        """FLOPs and bytes of each step.

        Raises:
            ValueError: the sizes do not divide, as while one is being changed before the other.
        """
        run = (self.phase, self.num_tokens, self.batch_size, self.limits().bytes_per_number)
        how: dict[str, Any] = {"kernel": self.kernel, "causal": self.causal}
        if self.variant == "latent":
            turned = {"positions": "rotary", "rotary_size": self.rotary_size} if self.rotary_size else {}
            choice = {"name": "latent", "latent_size": self.latent_size, "absorbed": self._absorbed(), **turned}
            return formulas.latent_step_costs(choice, self.num_hiddens, self.num_heads, *run, **how)
        shared = {"multi-head": self.num_heads, "grouped": self.num_kv_heads, "multi-query": 1}[self.variant]
        return formulas.step_costs(Sizes(self.num_hiddens, self.num_heads, shared), *run, **how)

    def _absorbed(self) -> bool:
        """Whether heads share latents as keys and values."""
        return self.variant == "latent" and self.phase == "decoding"

    def table(self) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
        names = ("num_hiddens", "num_heads", *SETTINGS_OF[self.variant], "num_tokens", "batch_size")
        sizes = ", ".join(f"{name}={getattr(self, name)}" for name in names)
        kind = f"absorbed {self.variant}" if self._absorbed() else self.variant
        way = f"{self.kernel}{', causal' if self.causal else ''}"
        caption = f"Steps of {kind} attention, {self.phase}, {way}, on {self.machine}, at {sizes}"
        header = ("step", "FLOPs", "bytes", "FLOPs/byte", "bound by", "at least")
        try:
            costs = self.costs()
        except ValueError as error:
            return f"{caption}: {error}", header, []
        limits = self.limits()
        rows = [
            (
                *(name, f"{flops:,}", f"{moved:,}", f"{flops / moved:.2f}"),
                *(limits.bound(flops, moved), in_time(limits.seconds(flops, moved))),
            )
            for name, flops, moved in costs
        ]
        return caption, header, rows


def in_time(seconds: float) -> str:
    """To three digits, in s, ms, µs or ns; not 0."""
    unit, factor = next((pair for pair in (("s", 1), ("ms", 1e3), ("µs", 1e6)) if seconds * pair[1] >= 1), ("ns", 1e9))
    return f"{digits(seconds * factor)} {unit}"


def digits(value: float) -> str:
    """A number above 0 to three digits."""
    value = float(f"{value:.3g}")  # first, or 99.99 would become 100.0
    return f"{value:,.{max(0, 2 - math.floor(math.log10(value)))}f}"


def _require_size(name: str, size: int) -> None:
    require_count(name, size, minimum=0 if name == "rotary_size" else 1)
    require_at_most(name, size, BOUNDS[name])
