"""What a whole language model takes: weights, cache, time to the first token, time for each token, and what of a peak.

Everything is a least: a machine that reaches both of its limits, and does nothing beside products and attention.
Weights are read once for each pass; what goes between the products is not counted. Gains of norms and biases are
counted as if they were weights of products, which is less than 0.1 % of these models.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ._validate import require_choice, require_count, require_kind, require_positive
from .costs import Sizes
from .roofline import FUSED, KERNELS, Chip, StepCost, latent_step_costs, step_costs


class LanguageModel(NamedTuple):
    """The sizes of a decoder that its costs depend on, and how many numbers it learned.

    parameters: all of them; a readout that is tied to the tokens' vectors counts once.
    experts: those in experts of which each token takes `num_chosen` of `num_experts`.
    latent_size, rotary_size, query_latent_size: c, r and the queries' latent of latent attention; 0 elsewhere, and the
        last where queries are made without one.
    num_windowed: layers in which a token sees `window` tokens, itself among them.
    """

    name: str
    num_hiddens: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    parameters: int
    tied: bool = False
    experts: int = 0
    num_experts: int = 1
    num_chosen: int = 1
    latent_size: int = 0
    rotary_size: int = 0
    query_latent_size: int = 0
    num_windowed: int = 0
    window: int = 0

    @property
    def active(self) -> int:
        """Numbers that one token meets: all, less the experts that it does not choose."""
        return self.parameters - self.experts + self.experts * self.num_chosen // self.num_experts

    @property
    def multiplied(self) -> int:
        """Weights that one token is multiplied by: `active`, less the vectors of tokens, which are looked up."""
        return self.active - (0 if self.tied else self.vocab_size * self.num_hiddens)

    @property
    def attention(self) -> int:
        """Weights of attention: W_q, W_k, W_v and W_o of all layers, or those that take their place."""
        D, h, d = self.num_hiddens, self.num_heads, self.head_dim
        if not self.latent_size:
            return self.num_layers * 2 * D * d * (h + self.num_kv_heads)
        c, r, q = self.latent_size, self.rotary_size, self.query_latent_size
        queries = D * q + q * h * (d + r) if q else D * h * (d + r)
        return self.num_layers * (queries + D * (c + r) + 2 * c * h * d + h * d * D)

    @property
    def cached(self) -> int:
        """Numbers that a layer keeps of a token: 2 g d, or c + r."""
        return self.latent_size + self.rotary_size if self.latent_size else 2 * self.num_kv_heads * self.head_dim

    def with_attention(self, attention: str) -> LanguageModel:
        """The same model with another attention in its layers, as if it had been trained so; heads keep their width.

        Args:
            attention: a name in `ATTENTIONS`.

        Raises:
            ValueError: there is no such name.

        >>> MODELS["LLaMA-3 8B"].with_attention("one key for all heads").cache_bytes(1)
        16384
        """
        require_choice("attention", attention, tuple(ATTENTIONS))
        other = ATTENTIONS[attention](self)
        return other._replace(parameters=self.parameters - self.attention + other.attention)

    def cache_bytes(self, num_tokens: int, batch_size: int = 1, bytes_per_number: int = 2) -> int:
        """Memory of the cache of all layers: B · n · bytes · (L - W) N, and W · min(N, w) for W layers of a window w.

        Raises:
            TypeError, ValueError: a size is not a positive integer.
        """
        _require(num_tokens=num_tokens, batch_size=batch_size, bytes_per_number=bytes_per_number)
        windowed = self.num_windowed * min(int(num_tokens), self.window)
        kept = (self.num_layers - self.num_windowed) * int(num_tokens) + windowed
        return int(batch_size) * int(bytes_per_number) * self.cached * kept

    def weights_read(self, num_tokens: int) -> float:
        """Weights that a pass with so many tokens reads once: `multiplied`, with those experts that anybody chose.

        If each token chooses k of E experts and no expert is preferred, E (1 - (1 - k/E)ⁿ) are chosen by n tokens.

        Raises:
            TypeError, ValueError: `num_tokens` is not a positive integer.
        """
        _require(num_tokens=num_tokens)
        share = self.num_chosen / self.num_experts
        always = self.multiplied - self.experts * self.num_chosen // self.num_experts
        return always + self.experts * (1 - (1 - share) ** int(num_tokens))

    def attending(
        self, phase: str, num_tokens: int, batch_size: int = 1, *, kernel: str = FUSED, cache_bytes: int = 2
    ) -> tuple[tuple[int, StepCost], ...]:
        """Scores, softmax and average, causal, in 2 bytes: how many layers, and each of their steps.

        Raises:
            TypeError, ValueError: as `mhalib.roofline.step_costs`.
        """
        run = (phase, num_tokens, batch_size, 2)
        how: dict[str, Any] = {"kernel": kernel, "causal": True, "cache_bytes": cache_bytes}
        if self.latent_size:
            choice: dict[str, Any] = {"name": "latent", "positions": "rotary", "absorbed": phase == "decoding"}
            choice |= {"head_dim": self.head_dim, "value_dim": self.head_dim, "latent_size": self.latent_size}
            choice |= {"rotary_size": self.rotary_size, "query_latent_size": self.query_latent_size}
            found = latent_step_costs(choice, self.num_hiddens, self.num_heads, *run, **how)
            return tuple((self.num_layers, step) for step in found if step.name in _ATTENDING)
        sizes = Sizes(self.num_hiddens, self.num_heads, self.num_kv_heads, self.head_dim)
        layers = {None: self.num_layers - self.num_windowed, self.window: self.num_windowed}
        return tuple(
            (count, step)
            for window, count in layers.items()
            if count
            for step in step_costs(sizes, *run, **how, window=window)
            if step.name in _ATTENDING
        )

    def attention_flops(self, phase: str, num_tokens: int, batch_size: int = 1) -> int:
        """FLOPs of scores and averages of all layers, causal; in training forward and backward, nothing made twice."""
        found = self.attending(phase, num_tokens, batch_size, kernel="stored")
        return sum(count * step.flops for count, step in found)

    def training_flops(self, num_tokens: int, batch_size: int = 1) -> int:
        """FLOPs of a step on B texts of N tokens: 6 · weights · B N, for two forward and four backward, and attention.

        Raises:
            TypeError, ValueError: a size is not a positive integer.
        """
        _require(num_tokens=num_tokens, batch_size=batch_size)
        products = 6 * self.multiplied * int(batch_size) * int(num_tokens)
        return products + self.attention_flops("training", num_tokens, batch_size)

    def utilisation(self, tokens_per_second: float, num_tokens: int, peak: float) -> float:
        """MFU, model FLOPs utilisation, of a training: FLOPs that its tokens need in a second, as a share of the peak.

        Args:
            tokens_per_second: that it was measured to read, on all devices together.
            num_tokens: N, how long a text is.
            peak: FLOPs per second of all devices.

        Raises:
            TypeError, ValueError: a number is not positive, or `num_tokens` is no positive integer.

        Source: Chowdhery et al. 2022, PaLM, section 4.1 and appendix B. They count all pairs; here only causal ones.
        """
        require_positive("tokens_per_second", tokens_per_second)
        require_positive("peak", peak)
        return tokens_per_second * self.training_flops(num_tokens) / num_tokens / peak


_ATTENDING = ("scores", "softmax", "average", FUSED)

MODELS = {
    model.name: model
    for model in (
        LanguageModel("SmolLM2-135M", 576, 30, 9, 3, 64, 49_152, 134_515_008, tied=True),
        LanguageModel("LLaMA-3 8B", 4096, 32, 32, 8, 128, 128_256, 8_030_261_248),
        LanguageModel("LLaMA-3 70B", 8192, 80, 64, 8, 128, 128_256, 70_553_706_496),
        LanguageModel("Qwen3-8B", 4096, 36, 32, 8, 128, 151_936, 8_190_735_360),
        LanguageModel(
            *("gpt-oss-20b", 2880, 24, 64, 8, 64, 201_088, 20_914_757_184, False),
            experts=19_116_933_120,
            num_experts=32,
            num_chosen=4,
            num_windowed=12,
            window=128,
        ),
        LanguageModel(
            *("DeepSeek-V3", 7168, 61, 128, 128, 128, 129_280, 671_026_419_200, False),
            experts=653_908_770_816,
            num_experts=256,
            num_chosen=8,
            latent_size=512,
            rotary_size=64,
            query_latent_size=1536,
        ),
    )
}
"""Models that people know, as their config.json says."""


def _plain(model: LanguageModel, **sizes: Any) -> LanguageModel:
    return model._replace(latent_size=0, rotary_size=0, query_latent_size=0, **sizes)


def _sharing(model: LanguageModel, most: int) -> LanguageModel:
    """A key for at most so many heads."""
    h = model.num_heads
    return _plain(model, num_kv_heads=min(g for g in range(1, h + 1) if h % g == 0 and h <= g * most))


ATTENTIONS: dict[str, Callable[[LanguageModel], LanguageModel]] = {
    "its own": lambda model: model,
    "a key for each head": lambda model: _sharing(model, 1),
    "a key for 8 heads": lambda model: _sharing(model, 8),
    "one key for all heads": lambda model: _sharing(model, model.num_heads),
    "latents of 512 + 64": lambda model: _plain(model, num_windowed=0)._replace(latent_size=512, rotary_size=64),
    "windows in 5 of 6 layers": lambda model: _plain(model, num_windowed=5 * model.num_layers // 6, window=1024),
}
"""What the layers of a model could have. Windows of 1,024 tokens, as in Gemma 3, with the keys that the model has;
latents as in DeepSeek-V2-Lite, read by a step in their absorbed form. Where 8 does not divide the heads, fewer share a
key."""


class Precision(NamedTuple):
    """Bytes of a weight and of a number in the cache, and bits of the numbers in which weights are multiplied."""

    weight_bytes: float
    cache_bytes: int
    bits: int

    def peak(self, chip: Chip) -> float:
        """Of the products with weights. A chip without a peak for such numbers computes in the next wider ones."""
        peaks = {16: chip.peak, 8: chip.fp8, 4: chip.fp4}
        return next(peak for bits in (4, 8, 16) if bits >= self.bits and (peak := peaks[bits]))


PRECISIONS = {
    "16 bits": Precision(2, 2, 16),
    "8 bits": Precision(1, 1, 8),
    "4-bit weights": Precision(0.5, 2, 16),
    "4 bits": Precision(0.5, 1, 4),
}
"""4-bit weights: stored in 4 bits, and multiplied in 16. Scales of blocks are not counted, about 6 % of 4-bit weights.
Attention multiplies in 16 bits in all of them."""


class ServingCosts(NamedTuple):
    """What a model takes that writes for many at once. Bytes, FLOPs and seconds, each the least.

    fits: whether weights and cache are smaller than the memory; a program needs room beside them.
    prompt_flops, first_token: of reading all prompts of N tokens, up to the first token that is written.
    step_flops, step: of writing one token for each text, with N tokens in its cache.
    prompt_share, step_share: of the peak of the products with weights, at most.
    attending_share: of a step, the share of scores and averages, with what they read of the cache.
    """

    weight_bytes: float
    cache_bytes: int
    fits: bool
    prompt_flops: int
    first_token: float
    step_flops: int
    step: float
    tokens_per_second: float
    prompt_share: float
    step_share: float
    attending_share: float


def serving_costs(
    model: LanguageModel,
    chip: Chip,
    num_tokens: int,
    batch_size: int = 1,
    *,
    precision: str = "16 bits",
    kernel: str = FUSED,
    num_chips: int = 1,
) -> ServingCosts:
    """The least time and memory of a model on a machine.

    A pass takes max(FLOPs / peak, bytes / bandwidth) for its products with weights, and then for attention. Of a
    prompt, only the last token is read out.

    Args:
        model: one of `MODELS`, or another.
        chip: one of `mhalib.roofline.CHIPS`, or another.
        num_tokens: N, of a prompt, and then in the cache.
        batch_size: B texts at once.
        precision: a name in `PRECISIONS`.
        kernel: "stored" or "fused".
        num_chips: with as many times the memory and both limits; messages between them are not counted.

    Raises:
        TypeError, ValueError: an argument is of another kind, a size is not a positive integer, or there is no such
            precision or kernel.
    """
    require_kind("model", model, LanguageModel)
    require_kind("chip", chip, Chip)
    _require(num_tokens=num_tokens, batch_size=batch_size, num_chips=num_chips)
    require_choice("precision", precision, tuple(PRECISIONS))
    require_choice("kernel", kernel, KERNELS)
    N, B, G, how = int(num_tokens), int(batch_size), int(num_chips), PRECISIONS[precision]
    readout = model.vocab_size * model.num_hiddens
    products = {"prefill": 2 * B * (N * (model.multiplied - readout) + readout), "decoding": 2 * B * model.multiplied}
    flops, seconds, attending = {}, {}, {}
    for phase, own in products.items():
        steps = model.attending(phase, N, B, kernel=kernel, cache_bytes=how.cache_bytes)
        read = how.weight_bytes * model.weights_read(B * N if phase == "prefill" else B)
        flops[phase] = own + sum(count * step.flops for count, step in steps)
        limits = [(count, step.flops / chip.peak, step.moved / chip.bandwidth) for count, step in steps]
        attending[phase] = sum(count * max(limit) for count, *limit in limits) / G
        seconds[phase] = max(own / how.peak(chip), read / chip.bandwidth) / G + attending[phase]
    cache, weights = model.cache_bytes(N, B, how.cache_bytes), how.weight_bytes * model.parameters
    shares = {phase: flops[phase] / (seconds[phase] * G * how.peak(chip)) for phase in products}
    return ServingCosts(
        weight_bytes=weights,
        cache_bytes=cache,
        fits=weights + cache <= G * chip.memory,
        prompt_flops=flops["prefill"],
        first_token=seconds["prefill"],
        step_flops=flops["decoding"],
        step=seconds["decoding"],
        tokens_per_second=B / seconds["decoding"],
        prompt_share=shares["prefill"],
        step_share=shares["decoding"],
        attending_share=attending["decoding"] / seconds["decoding"],
    )


def _require(**sizes: int) -> None:
    for name, size in sizes.items():
        require_count(name, size)
