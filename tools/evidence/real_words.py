"""Which heads of MiniLM follow words: a head that looks from one word to another wherever both are.

    python -m tools.evidence.real_words

The analysis, written down before it was run:

1. *Material.* The book's 23 sentences but those with word pieces, and of two near twins the second. Of each, five
   random orders of its words; [CLS], the closing mark and [SEP] keep their places and are left out of all maps. Each
   row of a map is divided by its sum, so that what it gives to [CLS] does not count.
2. *Likeness.* The cosine between the map of the sentence as written and the map of the new order with its rows and
   columns put back to the words ("words"), or as it is ("places"): a mean over all sentences and orders, for each head.
3. *Floors.* In the map of the new order, cells change places only with cells at the same distance, 0, 1 to 2, 3 to 5
   or more words, before or behind ("banded"); or words are put back to random places ("shuffled"). Of each 1,999
   draws, the same for all heads; p is the share of draws, with the true one among them, that are at least as alike.
4. *Count.* Heads that pass Holm's correction at 5 % over 72 heads; the chapter does this.

mhalib/results/minilm_words.json has a number for each of 72 heads, with the hash of the weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from mhalib import pretrained
from mhalib.pretrained import SENTENCES
from tools.evidence import results

NUM_ORDERS, NUM_DRAWS, SECOND_TWINS = 5, 1999, (1, 3)
BANDS = (0, 2, 5)
DIGITS = 4


def rows_of(model: Any, ids: Tensor) -> Tensor:
    """ids (N,) -> (72, n, n): what each word gives the words, as shares of what it gives them all."""
    weights = torch.cat(model(ids[None], need_weights=True)[1]["encoder self"])  # (layers, h, N, N)
    inner = weights.flatten(0, 1)[:, 1:-2, 1:-2]
    return inner / inner.sum(-1, keepdim=True)


def put_back(maps: Tensor, order: Tensor) -> Tensor:
    """Maps (..., n, n) of a sentence whose place t holds word order[t] -> the same with word w at place w."""
    back = order.argsort()
    return maps[..., back, :][..., back]


def banded(n: int, rng: torch.Generator) -> Tensor:
    """A new cell for each of n * n cells, by chance, within its band of distance: indices (n * n,)."""
    step = (torch.arange(n) - torch.arange(n)[:, None]).flatten()
    band = step.sign() * torch.bucketize(step.abs(), torch.tensor(BANDS))
    by_chance = (band + 0.9 * torch.rand(n * n, generator=rng)).argsort()
    moved = torch.empty_like(by_chance)
    moved[band.argsort(stable=True)] = by_chance
    return moved


def likeness(pairs: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """The mean cosine of pairs of maps, (72,)."""
    return torch.stack([torch.cosine_similarity(a.flatten(1), b.flatten(1)) for a, b in pairs]).mean(0)


@torch.no_grad()
def material(opened: Any) -> list[tuple[Tensor, Tensor, Tensor]]:
    """For each sentence and order: the map as written, the map of the new order, and the order."""
    found = []
    for number, sentence in enumerate(SENTENCES):
        encoded = opened.tokenizer.encode(sentence)
        if number in SECOND_TWINS or any(token.startswith("##") for token in encoded.tokens):
            continue
        ids = torch.tensor(encoded.ids)
        rng, written = torch.Generator().manual_seed(number), rows_of(opened.model, ids)
        for _ in range(NUM_ORDERS):
            order = torch.randperm(len(ids) - 3, generator=rng)
            moved = torch.cat([ids[:1], ids[1:-2][order], ids[-2:]])
            found.append((written, rows_of(opened.model, moved), order))
    return found


def p_values(real: Tensor, draws: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """The mean of draws of (72,), and the share of them, with the real one, that are at least as large."""
    sums, as_large, count = torch.zeros_like(real), torch.ones_like(real), 0
    for draw in draws:
        sums, as_large, count = sums + draw, as_large + (draw >= real), count + 1
    return sums / count, as_large / (count + 1)


def measured(made: list[tuple[Tensor, Tensor, Tensor]], num_draws: int = NUM_DRAWS) -> dict[str, list[float]]:
    """Everything that is stored, by name a number for each head."""
    rng = torch.Generator().manual_seed(0)

    def within_bands(back: bool) -> Tensor:
        drawn = []
        for written, moved, order in made:
            mixed = moved.flatten(1)[:, banded(len(order), rng)].view_as(moved)
            drawn.append((written, put_back(mixed, order) if back else mixed))
        return likeness(drawn)

    def at_random() -> Tensor:
        return likeness((one, put_back(two, torch.randperm(len(o), generator=rng))) for one, two, o in made)

    words = likeness((one, put_back(two, order)) for one, two, order in made)
    places = likeness((one, two) for one, two, _ in made)
    ways = {
        "words/banded": (words, (within_bands(True) for _ in range(num_draws))),
        "words/shuffled": (words, (at_random() for _ in range(num_draws))),
        "places/banded": (places, (within_bands(False) for _ in range(num_draws))),
    }
    found = {"words": words.tolist(), "places": places.tolist()}
    for name, (real, draws) in ways.items():
        floor, p = p_values(real, draws)
        found |= {f"{name}/floor": floor.tolist(), f"{name}/p": p.tolist()}
    return found


def main() -> None:
    opened = pretrained.load("minilm")
    made = material(opened)
    about: dict[str, Any] = {"model": opened.sha256, "a_number_for": "head, layer by layer", "maps": len(made)}
    told = {"made_by": "python -m tools.evidence.real_words", **about}
    results.store("minilm_words", range(72), measured(made), DIGITS, **told)


if __name__ == "__main__":
    main()
