"""The head card of real models: what chapter "Which measure is right?" shows of SmolLM2 and MiniLM, and stores.

    python -m tools.evidence.head_cards

SmolLM2 reads 4 sequences of 32 tokens, in which 11, 13, 15 or 16 random ones repeat; MiniLM the first 8 tokens of 16
sentences, which open with [CLS]. Of SmolLM2 no ablations are stored: each takes 271 passes.
mhalib/results/head_cards.json has a number of each head, by layer, then head, and the hashes of the weights.
"""

from __future__ import annotations

import json
import platform

import torch

from mhalib import pretrained
from mhalib._write import write_whole
from mhalib.measures import head_card
from tools import ROOT

STORED = ROOT / "mhalib/results/head_cards.json"
NO_ABLATION = ("previous", "induction", "first", "first x length", "written", "slope", "attribution", "copying")


def main() -> None:
    values: dict[str, list[float]] = {}
    hashes = {}
    for name in ("minilm", "smollm2-135m"):
        loaded = pretrained.load(pretrained.fetch(name))
        hashes[name] = loaded.sha256
        if name == "minilm":
            texts = [loaded.tokenizer.encode(text).ids[:8] for text in pretrained.SENTENCES]
            tokens = torch.tensor([ids for ids in texts if len(ids) == 8][:16])
            measures = ["previous", "first", "first x length", "written", "zero", "mean", "resample"]
        else:
            half = torch.randint(100, 49_000, (4, 16), generator=torch.Generator().manual_seed(0))
            tokens = torch.stack([row[:n].repeat(3)[:32] for row, n in zip(half, (11, 13, 15, 16), strict=True)])
            measures = list(NO_ABLATION)
        card = head_card(loaded.model, tokens, measures=measures, control=False)
        for measure, numbers in card.values.items():
            values[f"{name}/{measure}"] = numbers.tolist()
        cheap = [m for m in measures if m not in ("zero", "mean", "resample")]
        for measure, numbers in head_card(loaded.model, tokens, measures=cheap).control.items():
            values[f"{name}/{measure} control"] = numbers.tolist()
        print(name, tuple(tokens.shape), card.passes, flush=True)
    told = {
        "seeds": [0],
        "device": "cpu",
        "versions": {"python": platform.python_version(), "torch": torch.__version__.partition("+")[0]},
        "weights": hashes,
    }
    lines = [
        f"  {json.dumps(n, ensure_ascii=False)}: {json.dumps([float(f'{x:.3g}') for x in v])}"
        for n, v in values.items()
    ]
    text = json.dumps(told, indent=1)[:-2] + ',\n "values": {\n' + ",\n".join(lines) + "\n }\n}\n"
    write_whole(STORED, text.encode())


if __name__ == "__main__":
    main()
