"""Induction in a real model: what chapters 14 and 15 say of SmolLM2, measured on its weights and stored.

    python -m tools.evidence.real_induction

A sequence is 24 random tokens, all different, twice; a draw has 10 of them. Heads are chosen by score on a draw of
their own, and then measured on five others. A head that is off writes 0. The file is
mhalib/results/smollm2_induction.json; it holds the hash of the weights, and chapters read it with
`mhalib.results.read`, so that a page needs no network.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mhalib import Head, pretrained, switched_off
from mhalib.measures import attention_to, induction_score
from mhalib.pretrained import WHEELS
from tools.evidence import results

NAME, KIND = "smollm2-135m", "decoder self"
DRAWS, CHOOSING = range(5), 100
HALF, SEQUENCES = 24, 10
NUM_BACK, NUM_MATCH, NUM_CONTROLS = 4, 5, 5
READERS = {"query": "W_q", "key": "W_k", "value": "W_v"}


def drawn(seed: int) -> Tensor:
    """(10, 48): tokens without those that mark something, each sequence's first half twice."""
    rng = torch.Generator().manual_seed(seed)
    half = 100 + torch.rand(SEQUENCES, 49_000, generator=rng).topk(HALF, 1).indices
    return torch.cat([half, half], 1)


@torch.no_grad()
def measured(model: Any, tokens: Tensor) -> tuple[float, float, Tensor, Tensor]:
    """Nats per token in the first half and where the past tells the token; both scores of each head, (layers, h)."""
    logits, weights = model(tokens, need_weights=True)
    paid = F.cross_entropy(logits[:, :-1].mT, tokens[:, 1:], reduction="none")
    back = torch.stack([attention_to(layer, "previous") for layer in weights[KIND]])
    match = torch.stack([induction_score(layer, tokens) for layer in weights[KIND]])
    return float(paid[:, : HALF - 1].mean()), float(paid[:, HALF:].mean()), back, match


def best(scores: Tensor, count: int) -> list[tuple[int, int]]:
    return [divmod(int(place), scores.shape[1]) for place in scores.flatten().topk(count).indices]


@contextlib.contextmanager
def unread(model: Any, layer: int, head: int, reader: str) -> Iterator[None]:
    """What one head writes is taken out of the queries, keys or values of all later layers, and of nothing else."""
    layers, read, handles = model.decoder.layers, {}, contextlib.ExitStack()
    attention = layers[layer].attention
    columns = attention.W_o.weight[:, attention.head_slices(head).o]

    def keep(found: Tensor) -> None:
        read["written"] = found[:, head] @ columns.T

    with handles:
        handles.enter_context(attention.on_heads(keep))
        for later in layers[layer + 1 :]:
            norm = later.attention_skip.norm

            def remember(_: Any, inputs: tuple[Tensor], norm: Any = norm) -> None:
                read[norm] = inputs[0]

            def take_out(_: Any, inputs: tuple[Tensor], norm: Any = norm) -> tuple[Tensor]:
                return (norm.forward(read[norm] - read["written"]),)

            handles.enter_context(norm.register_forward_pre_hook(remember))
            handles.enter_context(getattr(later.attention, READERS[reader]).register_forward_pre_hook(take_out))
        yield


def one_draw(model: Any, seed: int, back: list[tuple[int, int]], match: list[tuple[int, int]]) -> dict[str, float]:
    """Everything that is stored of one draw."""
    tokens = drawn(seed)
    first, second, backs, matches = measured(model, tokens)
    found = {"first": first, "second": second}
    found |= {f"previous/{n}.{i}": float(backs[n, i]) for n, i in back}
    found |= {f"induction/{n}.{i}": float(matches[n, i]) for n, i in match}

    def off(places: list[tuple[int, int]]) -> tuple[float, Tensor]:
        with switched_off(model, [Head(KIND, *place) for place in places]):
            _, paid, _, scores = measured(model, tokens)
        return paid, scores

    for n, i in back:
        found[f"off/{n}.{i}"], scores = off([(n, i)])
        if (n, i) == back[0]:
            found |= {f"left/{a}.{b}": float(scores[a, b]) for a, b in match}
    layer, head = back[0]
    others = [(layer, i) for i in range(backs.shape[1]) if i != head]
    found["off/others of its layer"] = sum(off([place])[0] for place in others) / len(others)
    found["off/all induction"] = off(match)[0]
    rng = random.Random(seed)
    rest = [(n, i) for n in sorted({n for n, _ in match}) for i in range(backs.shape[1]) if (n, i) not in match]
    found["off/as many others"] = sum(off(rng.sample(rest, len(match)))[0] for _ in range(NUM_CONTROLS)) / NUM_CONTROLS
    for reader in READERS:
        with unread(model, layer, head, reader):
            found[f"unread/{reader}"] = measured(model, tokens)[1]
    return found


def main() -> None:
    model = pretrained.load(NAME).model.eval()
    _, _, backs, matches = measured(model, drawn(CHOOSING))
    runs = [one_draw(model, seed, best(backs, NUM_BACK), best(matches, NUM_MATCH)) for seed in DRAWS]
    values = results.by_name(runs)
    told = {"made_by": "python -m tools.evidence.real_induction", "model": WHEELS[NAME].files[0].sha256}
    results.store("smollm2_induction", DRAWS, values, 4, **told)


if __name__ == "__main__":
    main()
