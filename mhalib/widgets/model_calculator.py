"""What a real model takes on a real machine, for two choices side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import traitlets

from .._validate import require_at_most, require_choice, require_count, require_kind
from ..roofline import CHIPS, KERNELS
from ..serving import ATTENTIONS, MODELS, PRECISIONS, LanguageModel, ServingCosts, serving_costs
from ._instrument import Instrument
from .cost_calculator import in_words
from .roofline import digits, in_time

BOUNDS = {"num_chips": 10_000, "batch_size": 1_000_000, "num_tokens": 10_000_000}
CHOICES = {
    "model": tuple(MODELS),
    "attention": tuple(ATTENTIONS),
    "machine": tuple(CHIPS),
    "precision": tuple(PRECISIONS),
    "kernel": KERNELS,
}
"""What can be chosen by name."""
DEFAULTS: dict[str, Any] = {
    "model": "LLaMA-3 8B",
    "attention": "its own",
    "machine": "NVIDIA H100 SXM",
    "precision": "16 bits",
    "kernel": "fused",
    "num_chips": 1,
    "batch_size": 1,
    "num_tokens": 8192,
}
ROWS = (
    ("parameters", "P"),
    ("weights of attention", "L (2 h d D + 2 g d D), or with latents"),
    ("memory of the weights", "P · bytes"),
    ("cache of a token", "L · 2 g d · bytes, or L (c + r) · bytes"),
    ("cache", "B N · cache of a token; in layers with a window w, B min(N, w)"),
    ("of the memory", "(weights + cache) / (chips · memory)"),
    ("FLOPs of the prompts", "2 B (N (W − V D) + V D) + L · 2 B N (N + 1) h d"),
    ("time to the first token", "max(FLOPs / peak, W' bytes / bandwidth), then attention"),
    ("of the peak, at most", "FLOPs / (time · peak)"),
    ("time for each token", "max(2 B W / peak, W' bytes / bandwidth), then attention"),
    ("of it, scores and average", "their max(FLOPs / peak, cache / bandwidth)"),
    ("tokens per second, of all texts", "B / time for each token"),
)
"""What is said, and by which formula."""
CAPTION = (
    "What a model takes on a machine, at least. W: weights that a token is multiplied by; W': those that a pass reads; "
    "V: tokens that it knows"
)


class ModelCalculator(Instrument):
    """Memory, time to the first token, time for each token and throughput of a model that people know, on a machine,
    for two choices side by side, each number with its formula.

    The numbers are those of `mhalib.serving.serving_costs`: the least that the machine's limits allow.

    Args:
        first, second: what is chosen at the beginning. What is not named is that of `DEFAULTS`, and in the second that
            of the first; without `second`, 64 texts at once. model: a name in `mhalib.serving.MODELS`. attention: what
            its layers have, a name in `mhalib.serving.ATTENTIONS`. machine: a name in `mhalib.roofline.CHIPS`.
            precision: a name in `mhalib.serving.PRECISIONS`. kernel: "stored" or "fused". num_chips: as many of the
            machine. batch_size: B texts at once. num_tokens: N, of each prompt, and then in the cache.

    Raises:
        TypeError, ValueError: a choice is no mapping, or names something else, a name that is not known, or a size that
            is no integer, not positive, or above its bound.
    """

    script = "ModelCalculator"

    models: traitlets.List[list[Any]] = traitlets.List().tag(sync=True)
    chips: traitlets.List[list[Any]] = traitlets.List().tag(sync=True)
    model_1 = traitlets.Unicode().tag(sync=True)
    attention_1 = traitlets.Unicode().tag(sync=True)
    machine_1 = traitlets.Unicode().tag(sync=True)
    precision_1 = traitlets.Unicode().tag(sync=True)
    kernel_1 = traitlets.Unicode().tag(sync=True)
    num_chips_1 = traitlets.Int().tag(sync=True)
    batch_size_1 = traitlets.Int().tag(sync=True)
    num_tokens_1 = traitlets.Int().tag(sync=True)
    model_2 = traitlets.Unicode().tag(sync=True)
    attention_2 = traitlets.Unicode().tag(sync=True)
    machine_2 = traitlets.Unicode().tag(sync=True)
    precision_2 = traitlets.Unicode().tag(sync=True)
    kernel_2 = traitlets.Unicode().tag(sync=True)
    num_chips_2 = traitlets.Int().tag(sync=True)
    batch_size_2 = traitlets.Int().tag(sync=True)
    num_tokens_2 = traitlets.Int().tag(sync=True)

    def __init__(
        self, first: Mapping[str, Any] | None = None, second: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        chosen: dict[str, Any] = {}
        before = DEFAULTS
        both = {"first": {} if first is None else first, "second": {"batch_size": 64} if second is None else second}
        for place, (name, given) in enumerate(both.items(), 1):
            require_kind(name, given, Mapping)
            for key in given:
                require_choice(f"a name in {name}", key, tuple(DEFAULTS))
            before = {**before, **given}
            for key, value in before.items():
                _require(key, value)
                chosen[f"{key}_{place}"] = value
        models = [
            [name, attention, *model.with_attention(attention)[1:]]
            for name, model in MODELS.items()
            for attention in ATTENTIONS
        ]
        super().__init__(models=models, chips=[list(chip[:6]) for chip in CHIPS.values()], **chosen, **kwargs)

    @traitlets.validate(*(f"{name}_{place}" for name in DEFAULTS for place in (1, 2)))
    def _check_choice(self, proposal: traitlets.Bunch) -> Any:
        _require(proposal["trait"].name[:-2], proposal["value"])
        return proposal["value"]

    def chosen(self, place: int) -> dict[str, Any]:
        """What is chosen, first (1) or second (2)."""
        return {name: getattr(self, f"{name}_{place}") for name in DEFAULTS}

    def model(self, place: int) -> LanguageModel:
        """The first (1) or the second (2) model, with the attention that is chosen."""
        chosen = self.chosen(place)
        return MODELS[chosen["model"]].with_attention(chosen["attention"])

    def costs(self, place: int) -> ServingCosts:
        """What the first (1) or the second (2) choice takes."""
        chosen = self.chosen(place)
        how = {name: chosen[name] for name in ("batch_size", "precision", "kernel", "num_chips")}
        return serving_costs(self.model(place), CHIPS[chosen["machine"]], chosen["num_tokens"], **how)

    def numbers(self, place: int) -> tuple[float, ...]:
        """One for each of `ROWS`."""
        chosen, costs = self.chosen(place), self.costs(place)
        model, chip = self.model(place), CHIPS[chosen["machine"]]
        memory = (costs.weight_bytes + costs.cache_bytes) / (chosen["num_chips"] * chip.memory)
        of_token = model.num_layers * model.cached * PRECISIONS[chosen["precision"]].cache_bytes
        return (
            *(model.parameters, model.attention, costs.weight_bytes, of_token, costs.cache_bytes, memory),
            *(costs.prompt_flops, costs.first_token, costs.prompt_share, costs.step, costs.attending_share),
            costs.tokens_per_second,
        )

    def table(self) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
        names = ["what", "formula"]
        for place in (1, 2):
            chosen = self.chosen(place)
            chips = f"{chosen['num_chips']} × {chosen['machine']}"
            texts = f"{chosen['batch_size']:,} × {chosen['num_tokens']:,} tokens"
            attention = "" if chosen["attention"] == "its own" else f", {chosen['attention']}"
            names.append(f"{chosen['model']}{attention}, {chips}, {chosen['precision']}, {chosen['kernel']}, {texts}")
        both = zip(in_cells(self.numbers(1)), in_cells(self.numbers(2)), strict=True)
        rows = [(*row, *cells) for row, cells in zip(ROWS, both, strict=True)]
        return CAPTION, names, rows


def in_cells(numbers: Sequence[float]) -> list[str]:
    """The `numbers` of a choice to three digits, with their units."""
    units = ("", "", "B", "B", "B", "%", "", "s", "%", "s", "%", "a second")
    as_text = {"s": in_time, "a second": digits}
    as_text["%"] = lambda x: f"{digits(100 * x)} %" + (", too much" if x > 1 + 1e-9 else "")
    return [as_text[unit](x) if unit in as_text else in_words(x, unit) for x, unit in zip(numbers, units, strict=True)]


def _require(name: str, value: Any) -> None:
    if name in CHOICES:
        require_choice(name, value, CHOICES[name])
    else:
        require_count(name, value)
        require_at_most(name, value, BOUNDS[name])
