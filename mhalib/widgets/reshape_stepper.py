"""Where every number goes when the heads are split off, folded into the batch, and merged again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import traitlets

from .._validate import require_at_most, require_count, require_divisible
from ..plots import OWNER_COLOURS
from ._instrument import Instrument

BOUNDS = {"batch_size": 3, "num_tokens": 5, "num_hiddens": 12, "num_heads": 4}
LAST_STEP = 6


@dataclass(frozen=True)
class Stage:
    """One array on the way: what made it, and whether torch had to move the numbers for it."""

    name: str
    code: str
    axes: str
    array: torch.Tensor
    copied: bool


class ReshapeStepper(Instrument):
    """The reshape trick, step by step: x, cut, split, folded, and the way back.

    Each number says where it was born: `1307` is example 1, token 3, channel 07. For each step the instrument shows
    the array, the line of code, shape and strides, and the flat strip of memory under it.

    Args:
        batch_size: B, 1 to 3.
        num_tokens: N, 1 to 5.
        num_hiddens: D, 1 to 12.
        num_heads: h, 1 to 4, divides D.
        step: 0 to 6: x (B, N, D), cut (B, N, h, d), split (B, h, N, d), folded (B*h, N, d), and back again. In the
            compact form 0 to 4, since two steps are left out.
        skip_permute: make the split's shape without the transpose, so that heads get the wrong numbers.
        cell: the chosen number: its position in the memory of x, `(b*N + n)*D + c`.
        compact: only the split and the way back, without the fold, of the chosen number's example; strides, memory,
            fields for sizes, the question about the fold and the list of all steps are left out.

    Raises:
        TypeError, ValueError: a size or step is no integer or out of its bounds, h does not divide D, there is no such
            cell, or `skip_permute` or `compact` is no boolean.
    """

    script = "ReshapeStepper"

    batch_size = traitlets.Int(2, min=1, max=BOUNDS["batch_size"]).tag(sync=True)
    num_tokens = traitlets.Int(3, min=1, max=BOUNDS["num_tokens"]).tag(sync=True)
    num_hiddens = traitlets.Int(6, min=1, max=BOUNDS["num_hiddens"]).tag(sync=True)
    num_heads = traitlets.Int(3, min=1, max=BOUNDS["num_heads"]).tag(sync=True)
    step = traitlets.Int(0, min=0, max=LAST_STEP).tag(sync=True)
    skip_permute = traitlets.Bool(False).tag(sync=True)
    cell = traitlets.Int(0, min=0).tag(sync=True)
    compact = traitlets.Bool(False).tag(sync=True)
    colours = traitlets.List(list(OWNER_COLOURS), read_only=True).tag(sync=True)

    def __init__(
        self,
        batch_size: int = 2,
        num_tokens: int = 3,
        num_hiddens: int = 6,
        num_heads: int = 3,
        step: int = 0,
        skip_permute: bool = False,
        cell: int = 0,
        *,
        compact: bool = False,
        **kwargs: Any,
    ) -> None:
        sizes = dict(zip(BOUNDS, (batch_size, num_tokens, num_hiddens, num_heads), strict=True))
        for name, size in sizes.items():
            require_count(name, size)
            require_at_most(name, size, BOUNDS[name])
        require_divisible("num_hiddens", num_hiddens, num_heads)
        require_count("step", step, minimum=0)
        require_at_most("step", step, LAST_STEP - 2 if compact is True else LAST_STEP)
        require_count("cell", cell, minimum=0)
        require_at_most("cell", cell, batch_size * num_tokens * num_hiddens - 1)
        for name, flag in (("skip_permute", skip_permute), ("compact", compact)):
            if not isinstance(flag, bool):
                raise TypeError(f"{name} must be True or False, got {type(flag).__name__}: {flag!r}")
        super().__init__(**sizes, step=step, skip_permute=skip_permute, cell=cell, compact=compact, **kwargs)

    def stages(self) -> list[Stage]:
        """The seven arrays, in the compact form five, made by torch, of numbers 1000 b + 100 n + c.

        Raises:
            ValueError: h does not divide D, which the sizes can come to when they are changed one by one.
        """
        require_divisible("num_hiddens", self.num_hiddens, self.num_heads)
        B, N, D, h = self.batch_size, self.num_tokens, self.num_hiddens, self.num_heads
        d = D // h
        b, n, c = torch.meshgrid(*map(torch.arange, (B, N, D)), indexing="ij")
        x = (1000 * b + 100 * n + c).contiguous()
        cut = x.reshape(B, N, h, d)
        split = cut.reshape(B, h, N, d) if self.skip_permute else cut.transpose(1, 2)
        folded = split.reshape(B * h, N, d)
        heads = folded.reshape(B, h, N, d)
        merged = "split" if self.compact else "heads"
        before_swap = split if self.compact else heads
        tokens = before_swap.reshape(B, N, h, d) if self.skip_permute else before_swap.transpose(1, 2)
        back = tokens.reshape(B, N, D)
        swap = "transpose(1, 2)"
        named = [
            ("x", "x = W_q(tokens)", "B, N, D", x),
            ("cut", "cut = x.reshape(B, N, h, d)", "B, N, h, d", cut),
            ("split", f"split = cut.{'reshape(B, h, N, d)' if self.skip_permute else swap}", "B, h, N, d", split),
            ("folded", "folded = split.reshape(B * h, N, d)", "B·h, N, d", folded),
            ("heads", "heads = folded.reshape(B, h, N, d)", "B, h, N, d", heads),
            ("rows", f"rows = {merged}.{'reshape(B, N, h, d)' if self.skip_permute else swap}", "B, N, h, d", tokens),
            ("back", "back = rows.reshape(B, N, D)", "B, N, D", back),
        ]
        if self.compact:
            named = [one for one in named if one[0] not in ("folded", "heads")]
        arrays = [x, *(array for *_, array in named)]
        return [
            Stage(name, code, axes, array, copied=array.data_ptr() != before.data_ptr())
            for (name, code, axes, array), before in zip(named, arrays, strict=False)
        ]

    def table(self) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
        B, N, D, h = self.batch_size, self.num_tokens, self.num_hiddens, self.num_heads
        header = ("step", "line of code", "shape", "strides", "memory", "order of the numbers in memory")
        if D % h:
            return f"D={D} is not divisible by h={h}: there is no such split", header, []
        skipped = ", without the transpose" if self.skip_permute else ""
        b, n, c = min(1, B - 1), min(3, N - 1), min(7, D - 1)
        caption = (
            f"Splitting B={B} examples of N={N} tokens and D={D} channels into h={h} heads, and back{skipped}; "
            f"{b}{n}{c:02} is example {b}, token {n}, channel {c:02}"
        )
        rows = [
            (
                str(number),
                stage.code,
                f"({stage.axes}) = {tuple(stage.array.shape)}",
                str(tuple(stage.array.stride())),
                "the first array" if number == 1 else "copy" if stage.copied else "a view: memory stays",
                " ".join(f"{value:04d}" for value in stage.array.as_strided((B * N * D,), (1,)).tolist()),
            )
            for number, stage in enumerate(self.stages(), 1)
        ]
        return caption, header, rows
