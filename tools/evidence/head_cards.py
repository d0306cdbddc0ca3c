"""The head card of real models: what chapter "Which measure is right?" shows of SmolLM2 and MiniLM, and stores.

    python -m tools.evidence.head_cards

SmolLM2 reads 4 sequences of 32 tokens, in which 11, 13, 15 or 16 random ones repeat; MiniLM the first 8 tokens of 16
sentences, which open with [CLS]. Of SmolLM2 no ablations are stored: each takes 271 passes.
mhalib/results/head_cards.json has a number of each head, by layer, then head, with its spread over texts and its
control, and the hashes of the weights; `mhalib.measures.stored_card` reads it.
"""

from __future__ import annotations

import torch

from mhalib import pretrained
from mhalib.measures import head_card
from tools.evidence import results

ABLATIONS = ("zero", "mean", "resample")
MEASURES = {
    "minilm": ("previous", "first", "first x length", "written", *ABLATIONS),
    "smollm2-135m": ("previous", "induction", "first", "first x length", "written", "slope", "attribution", "copying"),
}


def tokens_of(name: str, loaded: pretrained.Pretrained) -> torch.Tensor:
    """What a model reads for its card, (texts, tokens)."""
    if name == "minilm":
        texts = [loaded.tokenizer.encode(text).ids[:8] for text in pretrained.SENTENCES]
        return torch.tensor([ids for ids in texts if len(ids) == 8][:16])
    half = torch.randint(100, 49_000, (4, 16), generator=torch.Generator().manual_seed(0))
    return torch.stack([row[:n].repeat(3)[:32] for row, n in zip(half, (11, 13, 15, 16), strict=True)])


def main() -> None:
    values: dict[str, list[float]] = {}
    hashes = {}
    for name in MEASURES:
        loaded = pretrained.load(pretrained.fetch(name))
        hashes[name] = loaded.sha256
        tokens, measures = tokens_of(name, loaded), list(MEASURES[name])
        ablations = [measure for measure in measures if measure in ABLATIONS]
        card = head_card(loaded.model, tokens, measures=[m for m in measures if m not in ablations])
        more = head_card(loaded.model, tokens, measures=ablations, control=False)
        for measure, numbers in (card.values | more.values).items():
            values[f"{name}/{measure}"] = numbers.tolist()
        for measure, numbers in (card.spread | more.spread).items():
            values[f"{name}/{measure} spread"] = numbers.tolist()
        for measure, numbers in card.control.items():
            values[f"{name}/{measure} control"] = numbers.tolist()
        print(name, tuple(tokens.shape), card.passes | more.passes, flush=True)
    results.store("head_cards", [0], values, 3, weights=hashes)


if __name__ == "__main__":
    main()
