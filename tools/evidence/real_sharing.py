"""Do heads that share keys share roles? What chapter 19 says of SmolLM2, measured on its weights and stored.

    python -m tools.evidence.real_sharing

Weight on the token before and on the first token, on the five texts of `real_sinks`, for queries from place 8 on;
weight on the key of induction, on the five draws of `real_induction`. mhalib/results/smollm2_sharing.json has the mean
of each head, layer by layer, and, a number for each text or draw, the share of the variance within layers that lies
between the groups of three heads with the same keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from mhalib import pretrained
from mhalib.measures import induction_score
from mhalib.pretrained import WHEELS
from tools.evidence import results
from tools.evidence.real_induction import DRAWS, KIND, NAME, drawn
from tools.evidence.real_sinks import FIRST_QUERY, texts_of


def between(scores: Tensor) -> Tensor:
    """(..., layers, 9) -> (...): of the variance within layers, the share between groups of three neighbours."""
    apart = scores - scores.mean(-1, keepdim=True)
    groups = apart.unflatten(-1, (3, 3)).mean(-1)
    return 3 * groups.square().sum((-1, -2)) / apart.square().sum((-1, -2))


@torch.no_grad()
def scores(model: Any) -> Iterator[tuple[str, Tensor]]:
    """A name and (layers, h), one text or draw after the other."""
    for tokens in texts_of(model):
        weights = torch.stack(model.model(tokens, need_weights=True)[1][KIND])[:, 0, :, FIRST_QUERY:]
        yield "first", weights[..., 0].mean(-1)
        yield "previous", weights.diagonal(FIRST_QUERY - 1, -2, -1).mean(-1)
    for seed in DRAWS:
        tokens = drawn(seed)
        weights = model.model(tokens, need_weights=True)[1][KIND]
        yield "induction", torch.stack([induction_score(layer, tokens) for layer in weights])


def main() -> None:
    model = pretrained.load(NAME)
    model.model.eval()
    found: dict[str, list[Tensor]] = {}
    for name, each in scores(model):
        found.setdefault(name, []).append(each)
    values = {name: torch.stack(each).mean(0).flatten().tolist() for name, each in found.items()}
    values |= {f"share/{name}": [float(between(one)) for one in each] for name, each in found.items()}
    told = {"made_by": "python -m tools.evidence.real_sharing", "model": WHEELS[NAME].files[0].sha256}
    results.store("smollm2_sharing", DRAWS, values, 3, **told)


if __name__ == "__main__":
    main()
