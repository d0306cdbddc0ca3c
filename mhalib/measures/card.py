"""The card of a model's heads: the measures of the field, side by side, each with its spread, its control, its cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from .. import results
from .._validate import as_list, require_choice, require_count, require_flag, require_function, require_tensor
from ..attention import MultiHeadAttention
from .deeds import patched
from .gates import Head, heads_of, layers_of, marked, switched_off
from .induction import induction_targets
from .outputs import watched

Loss = Callable[[Tensor, Tensor], Tensor]
STEPS = 10
"""Steps by which optimal ablation looks for its constant."""
STORED = {"minilm": ("encoder self", 12), "smollm2-135m": ("decoder self", 9)}
"""Of the models whose cards come with the package: the kind of attention, and heads in a layer."""
MOST_WORDS = 512
"""How many tokens of a vocabulary the copying score looks at, evenly spaced."""


@dataclass(eq=False)
class Reading:
    """One pass over the texts, and one back, of which all measures are made.

    tokens (B, N); targets: boolean (B, N, N), the keys that `induction` adds up the weight of; by layer weights
    (B, h, N, N), outputs (B, h, N, d), what heads give to W_o, and slopes, the loss's by these; vectors (B, h, N, D),
    each key's values through the head's columns of W_o; losses (B,).
    """

    model: nn.Module
    tokens: Tensor
    loss: Loss
    targets: Tensor
    kind: str
    losses: Tensor = field(init=False)
    weights: list[Tensor] = field(init=False)
    outputs: list[Tensor] = field(init=False)
    slopes: list[Tensor] = field(init=False)
    vectors: list[Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self.layers = layers_of(self.model)[self.kind]
        self.heads = heads_of(self.model)
        values: list[Tensor] = []
        hooks = [layer.W_v.register_forward_hook(lambda _, x, y: values.append(y.detach())) for layer in self.layers]
        try:
            with torch.enable_grad(), watched(self.layers, _keep_with_slope) as calls:
                output, weights = self.model(self.tokens, need_weights=True)
                losses = self.loss(output, self.tokens)
                flat = [x for seen in calls for x in seen]
                if losses.shape != (len(self.tokens),):
                    raise ValueError(f"loss must return one number per text, (B,), got {tuple(losses.shape)}")
                slopes = torch.autograd.grad(losses.sum(), flat, allow_unused=True)
        finally:
            for hook in hooks:
                hook.remove()
        self.losses = losses.detach()
        self.weights = [w.detach() for w in weights[self.kind]]
        self.outputs = [x.detach() for x in flat]
        self.slopes = [torch.zeros_like(x) if g is None else g for x, g in zip(flat, slopes, strict=True)]
        self.vectors = [_through(layer, v) for layer, v in zip(self.layers, values, strict=True)]

    @torch.no_grad()
    def rises(self, changed: Callable[[Head], AbstractContextManager[Any]]) -> Tensor:
        """How much the loss of each text is above what it was while one head is changed, (B, layers, h)."""

        def rise(head: Head) -> Tensor:
            with changed(head):
                return self.loss(self.model(self.tokens)[0], self.tokens) - self.losses

        return self.for_each_head(rise)

    def for_each_head(self, rise: Callable[[Head], Tensor]) -> Tensor:
        """(B,) of each head -> (B, layers, h)."""
        return torch.stack([rise(head) for head in self.heads], -1).unflatten(-1, (len(self.layers), -1))


def weight_on(reading: Reading, targets: Tensor, *, by_length: bool = False) -> Tensor:
    """The share of each head's weight on marked keys, (B, layers, h); queries without such a key do not count.

    targets: boolean (B, N, N). With `by_length` each weight is first multiplied by the length of what the key adds,
    ‖w_tj W_o v_j‖, and the row divided by its sum (Kobayashi et al. 2020). A text without such a query has NaN.
    """
    counts = targets.any(-1)[:, None]  # (B, 1, Q)
    shares = []
    for weights, vectors in zip(reading.weights, reading.vectors, strict=True):
        if by_length:
            weights = weights * vectors.norm(dim=-1)[:, :, None]
            weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-30)
        of_queries = (weights * targets[:, None]).sum(-1) * counts
        shares.append(of_queries.sum(-1) / counts.sum(-1))
    return torch.stack(shares, 1)


def _previous(reading: Reading) -> Tensor:
    size = reading.tokens.shape[1]
    one_back = torch.ones(size, size, dtype=torch.bool, device=reading.tokens.device).tril(-1).triu(-1)
    return weight_on(reading, one_back.expand(len(reading.tokens), -1, -1))


def _first(reading: Reading, *, by_length: bool = False) -> Tensor:
    marks = torch.zeros(*reading.tokens.shape, reading.tokens.shape[1], dtype=torch.bool, device=reading.tokens.device)
    marks[:, 1:, 0] = True  # the first token itself has, in a decoder, no other to look at
    return weight_on(reading, marks, by_length=by_length)


def _written(reading: Reading) -> Tensor:
    """The mean length of what a head adds to a token, ‖W_o z‖."""
    lengths = []
    for layer, z in zip(reading.layers, reading.outputs, strict=True):
        lengths.append(_added(layer, z).norm(dim=-1).mean(-1))
    return torch.stack(lengths, 1)


def _zero(reading: Reading) -> Tensor:
    return reading.rises(lambda head: switched_off(reading.model, [head]))


def _mean(reading: Reading) -> Tensor:
    means = {reading.kind: [z.mean((0, 2)) for z in reading.outputs]}
    return reading.rises(lambda head: switched_off(reading.model, [head], means))


def _resample(reading: Reading) -> Tensor:
    """Each text's head gives what it gave in the text before: activation patching from another text."""
    others = {reading.kind: [z.roll(1, 0) for z in reading.outputs]}
    return reading.rises(lambda head: patched(reading.model, others, [head]))


def _path(reading: Reading) -> Tensor:
    """As resample, but all other heads keep what they gave: only what does not go through heads counts."""

    def others_held(head: Head) -> AbstractContextManager[Any]:
        mixed = []
        for z, mark in zip(reading.outputs, marked(reading.model, [head])[reading.kind], strict=True):
            mixed.append(torch.where(mark.to(z.device)[:, None, None], z.roll(1, 0), z))
        return patched(reading.model, {reading.kind: mixed})

    return reading.rises(others_held)


def _optimal(reading: Reading) -> Tensor:
    """The head gives the one vector with which these texts' mean loss is least, by `STEPS` steps of Adam from its mean;
    the vector with the least loss on the way counts."""

    def rise(head: Head) -> Tensor:
        z = reading.outputs[head.layer]
        number = reading.layers[head.layer].head_numbers.index(head.head)
        constant = z[:, number].mean((0, 1)).clone().requires_grad_()
        optimizer = torch.optim.Adam([constant], lr=0.3 * float(z[:, number].std()) + 1e-8)
        best = torch.full_like(reading.losses, torch.inf)
        for step in range(STEPS + 1):
            with torch.enable_grad():
                given = [constant.expand(1, layer.num_heads, z.shape[2], -1) for layer in reading.layers]
                with patched(reading.model, {reading.kind: given}, [head]):
                    losses = reading.loss(reading.model(reading.tokens)[0], reading.tokens)
                if losses.mean() < best.mean():
                    best = losses.detach()
                if step < STEPS:
                    (constant.grad,) = torch.autograd.grad(losses.mean(), constant)
                    optimizer.step()
        return best - reading.losses

    return reading.for_each_head(rise)


def _slope(reading: Reading) -> Tensor:
    """|∂loss/∂gate|, one gate for a head in a text: `head_importance` of mode "example"."""
    pairs = zip(reading.outputs, reading.slopes, strict=True)
    return torch.stack([(z * slope).sum((-1, -2)).abs() for z, slope in pairs], 1)


def _attribution(reading: Reading) -> Tensor:
    """The linear estimate of resample: the change of what a head gives, times the loss's slope."""
    pairs = zip(reading.outputs, reading.slopes, strict=True)
    return torch.stack([((z.roll(1, 0) - z) * slope).sum((-1, -2)) for z, slope in pairs], 1)


@torch.no_grad()
def _copying(reading: Reading) -> Tensor:
    """How high a token stands among the logits that the head gives it for itself: 1 always first, 0.5 chance, (1, ...).

    The token's vector goes through its layer's norm, W_v, W_o, the last norm and the readout, nothing else.
    """
    model: Any = reading.model
    words = model.tokens.embedding.weight
    every = torch.arange(0, len(words), max(1, len(words) // MOST_WORDS), device=words.device)
    last: nn.Linear | None = model.readout
    out = words if last is None else last.weight
    bias = None if last is None or last.bias is None else last.bias[every]
    scores = []
    for block, layer in zip(model.decoder.layers, reading.layers, strict=True):
        seen = block.attention_skip.norm(words[every]) if block.attention_skip.is_pre else words[every]
        written = _through(layer, layer.W_v(seen)[None])[0]  # (h, words, D)
        logits = nn.functional.linear(model.decoder.norm(written), out[every], bias)
        own = logits.diagonal(dim1=-2, dim2=-1)[..., None]
        scores.append((logits < own).float().sum(-1).div(len(every) - 1).mean(-1))
    return torch.stack(scores)[None]


@dataclass(frozen=True)
class Measure:
    """compute: a `Reading` -> (B, layers, h), or (1, layers, h) where texts play no part.
    passes: what it takes beyond the first pass forward, in forward passes over all texts, with so many heads; one
        backward counts 2.
    needs: "nothing", a "slope" of the loss, or a "readout". control: what it is held against: "shuffled" tokens, or, of
    a measure by targets, the targets of "another" text, since a shuffled text has targets of its own."""

    compute: Callable[[Reading], Tensor]
    passes: Callable[[int], int] = lambda num_heads: 0
    needs: str = "nothing"
    control: str = "shuffled"


MEASURES: dict[str, Measure] = {
    "previous": Measure(_previous),
    "induction": Measure(lambda reading: weight_on(reading, reading.targets), control="another"),
    "first": Measure(_first),
    "first x length": Measure(lambda reading: _first(reading, by_length=True)),
    "induction x length": Measure(
        lambda reading: weight_on(reading, reading.targets, by_length=True), control="another"
    ),
    "written": Measure(_written),
    "zero": Measure(_zero, lambda num_heads: num_heads),
    "mean": Measure(_mean, lambda num_heads: num_heads),
    "resample": Measure(_resample, lambda num_heads: num_heads),
    "optimal": Measure(_optimal, lambda num_heads: (3 * STEPS + 1) * num_heads, "slope"),
    "path": Measure(_path, lambda num_heads: num_heads),
    "slope": Measure(_slope, lambda num_heads: 2, "slope"),
    "attribution": Measure(_attribution, lambda num_heads: 2, "slope"),
    "copying": Measure(_copying, lambda num_heads: 0, "readout"),
}
"""What a card can have, by name."""


@dataclass(frozen=True, eq=False)
class HeadCard:
    """A table with a row for each head.

    heads: in the order of the rows.
    values: by measure (rows,), means over texts.
    spread: by measure (rows,), the standard deviation over texts.
    control: by measure (rows,), what it gives where there is nothing to find: the same texts with their tokens
        shuffled, or of "induction" the targets of another text; or nothing.
    passes: by measure, how many passes forward over all texts it took, the first one too, but not those of its
        control. A pass backward counts as two.
    """

    heads: list[Head]
    values: dict[str, Tensor]
    spread: dict[str, Tensor]
    control: dict[str, Tensor]
    passes: dict[str, int]

    def as_rows(self) -> list[dict[str, float | int | str]]:
        """For each head a dict: kind, layer, head, and of a measure `m`: "m", "m ±" and "m control"."""
        rows: list[dict[str, float | int | str]] = []
        for index, head in enumerate(self.heads):
            row: dict[str, float | int | str] = dict(head._asdict())
            for name, values in self.values.items():
                row[name], row[f"{name} ±"] = float(values[index]), float(self.spread[name][index])
                if name in self.control:
                    row[f"{name} control"] = float(self.control[name][index])
            rows.append(row)
        return rows

    def ranked(self, name: str) -> list[Head]:
        """The heads, that with the most of a measure first.

        Raises:
            ValueError: the card does not have the measure.
        """
        require_choice("name", name, tuple(self.values))
        return [self.heads[i] for i in self.values[name].argsort(descending=True, stable=True).tolist()]


def head_card(
    model: nn.Module,
    tokens: Tensor,
    *,
    measures: Iterable[str] | None = None,
    loss: Loss | None = None,
    targets: Tensor | None = None,
    control: bool = True,
    seed: int = 0,
) -> HeadCard:
    """Every measure of every head of a decoder or an encoder, on the same texts.

    previous, first: share of weight on the token before, and on the first one. induction: on `targets`. Each also
    "x length", weights multiplied by the length of what the key adds. written: length of what the head adds. zero,
    mean, resample, optimal: by how much the loss rises when the head gives 0, its mean, what it gives in another text,
    or the constant with which these texts cost least. path: as resample, all other heads held. slope: |derivative by a
    gate|. attribution: the linear estimate of resample. copying: rank of a token among the logits the head gives it.

    Args:
        model: a GPT or a BERT of `mhalib.models`, also one of `mhalib.pretrained` (`.model`); no head pruned. It is
            read in evaluation mode.
        tokens: (B, N) ids, at least two texts and three tokens, all real.
        measures: names out of `mhalib.measures.card.MEASURES`; `None` takes all that the model allows, and "optimal"
            only up to 32 heads.
        loss: `loss(output, tokens)` -> (B,). `None` is, of a GPT, the mean cross-entropy of each next token, in nats;
            of another model 1 - the cosine between its mean vector and that of the whole model, whose slope is 0, so
            that measures by slopes are left out.
        targets: boolean (B, N, N), where an induction head looks; `None` takes `induction_targets(tokens)`.
        control: measure where there is nothing to find, too, which takes as long again.
        seed: of the shuffle.

    Raises:
        TypeError, ValueError: an argument is not of this kind; the model has two kinds of attention, or pruned heads.

    Sources: Olsson et al. 2022; Kobayashi et al. 2020; Michel et al. 2019; Goldowsky-Dill et al. 2023; Syed et al.
    2023; Li and Janson 2024.

    >>> from mhalib.models import GPT
    >>> card = head_card(GPT(10, 8, 2, num_layers=1), torch.tensor([[1, 2, 1, 2], [3, 4, 3, 4]]), measures=["zero"])
    >>> card.passes
    {'zero': 3}
    """
    layers = layers_of(model)
    if len(layers) != 1:
        raise ValueError(f"model has the kinds {list(layers)}, but a card reads a decoder or an encoder alone")
    if any(layer.num_heads != layer.num_heads_made for of_kind in layers.values() for layer in of_kind):
        raise ValueError("model has pruned heads: a card needs all of them")
    require_tensor("tokens", tokens, rank=2)
    if tokens.shape[0] < 2 or tokens.shape[1] < 3:
        raise ValueError(f"tokens has shape {tuple(tokens.shape)}, but needs at least two texts of three tokens")
    if loss is not None:
        require_function("loss", loss)
    require_flag("control", control)
    require_count("seed", seed, minimum=0)
    if targets is not None:
        require_tensor("targets", targets, rank=3)
        if targets.dtype != torch.bool or targets.shape != (*tokens.shape, tokens.shape[1]):
            raise ValueError(f"targets must be boolean {(*tokens.shape, tokens.shape[1])}, got {tuple(targets.shape)}")
    decodes = hasattr(model, "read_out")
    heads = heads_of(model)
    left_out = set() if decodes else {"readout"} if loss is not None else {"readout", "slope"}
    allowed = {name for name, measure in MEASURES.items() if measure.needs not in left_out}
    if measures is None:
        names = [name for name in MEASURES if name in allowed and (name != "optimal" or len(heads) <= 32)]
    else:
        names = as_list("measures", measures)
        for name in names:
            require_choice("a name in measures", name, tuple(sorted(allowed)))
    (kind,) = layers
    was_training = model.training
    model.eval()
    try:
        targets = induction_targets(tokens) if targets is None else targets
        found = _measured(model, tokens, loss, targets, kind, names, decodes)
        others = {}
        if control:
            order = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(seed)).argsort(-1)
            shuffled = tokens.gather(1, order.to(tokens.device))
            by = {way: [name for name in names if MEASURES[name].control == way] for way in ("shuffled", "another")}
            others = _measured(model, shuffled, loss, targets, kind, by["shuffled"], decodes)
            others |= _measured(model, tokens, loss, targets.roll(1, 0) & ~targets, kind, by["another"], decodes)
            others = {name: others[name] for name in names}
    finally:
        model.train(was_training)
    return HeadCard(
        heads,
        {name: x.nanmean(0) for name, x in found.items()},  # NaN where no text has the measure
        {name: x.std(0) if len(x) > 1 else torch.zeros_like(x[0]) for name, x in found.items()},
        {name: x.nanmean(0) for name, x in others.items()},
        {name: 1 + MEASURES[name].passes(len(heads)) for name in names},
    )


def stored_card(name: str) -> HeadCard:
    """The card of a real model, as it comes with the package: 72 heads of "minilm", 270 of "smollm2-135m".

    How it was made: `tools/evidence/head_cards.py`. `passes` is empty.

    Raises:
        TypeError, ValueError: `name` is neither.

    >>> stored_card("minilm").ranked("previous")[0]
    Head(kind='encoder self', layer=0, head=2)
    """
    require_choice("name", name, tuple(STORED))
    kind, width = STORED[name]
    of: dict[str, dict[str, Tensor]] = {"": {}, " spread": {}, " control": {}}
    for key, numbers in results.read("head_cards").values.items():
        model, _, measure = key.partition("/")
        if model == name:
            end = next((one for one in (" spread", " control") if measure.endswith(one)), "")
            of[end][measure.removesuffix(end)] = torch.tensor(numbers)
    heads = [Head(kind, *divmod(index, width)) for index in range(len(next(iter(of[""].values()))))]
    return HeadCard(heads, of[""], of[" spread"], of[" control"], {})


def next_token_loss(logits: Tensor, tokens: Tensor) -> Tensor:
    """Logits (B, N, words), tokens (B, N) -> the mean cross-entropy of each text's tokens after the first, (B,)."""
    return nn.functional.cross_entropy(logits[:, :-1].mT, tokens[:, 1:], reduction="none").mean(-1)


def _measured(
    model: nn.Module,
    tokens: Tensor,
    loss: Loss | None,
    targets: Tensor,
    kind: str,
    names: list[str],
    decodes: bool,
) -> dict[str, Tensor]:
    """By measure (B, rows)."""
    if not names:
        return {}
    if loss is None and not decodes:
        with torch.no_grad():
            whole = model(tokens)[0].mean(1)
        loss = lambda output, _: 1 - nn.functional.cosine_similarity(output.mean(1), whole, dim=-1)  # noqa: E731
    reading = Reading(model, tokens, loss or next_token_loss, targets, kind)
    return {name: MEASURES[name].compute(reading).flatten(1) for name in names}


def _keep_with_slope(calls: list[Tensor], x: Tensor) -> Tensor:
    calls.append(x if x.requires_grad else x.detach().requires_grad_())
    return calls[-1]


def _through(layer: MultiHeadAttention, values: Tensor) -> Tensor:
    """What W_v makes of keys, (B, K, heads of keys times d) -> through each head's columns of W_o, (B, h, K, D)."""
    of_heads = values.unflatten(-1, (layer.num_kv_heads, -1)).transpose(1, 2)
    of_heads = of_heads.repeat_interleave(layer.num_heads // layer.num_kv_heads, 1)
    return _added(layer, of_heads)


def _added(layer: MultiHeadAttention, of_heads: Tensor) -> Tensor:
    """What heads give or could give, (B, h, N, d) -> through each head's columns of W_o, (B, h, N, D)."""
    columns = layer.W_o.weight.detach().unflatten(-1, (layer.num_heads, -1))  # (D, h, d)
    return torch.einsum("bhnd,Dhd->bhnD", of_heads, columns)
