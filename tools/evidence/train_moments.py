"""Store the training of chapter 14's small GPT at several moments, for a slider over them.

    python -m tools.evidence.train_moments

The file is mhalib/weights/moments/repeater.safetensors. It is the training of the chapter's page, with its seed.
"""

from __future__ import annotations

import copy

import torch
from torch.nn import functional as F

from mhalib import moments
from mhalib.data import repeats
from mhalib.evaluation import next_token_accuracy
from mhalib.measures import attention_to, induction_score
from mhalib.models import GPT
from mhalib.train import fit

EVERY = 5
STEPS = (0, 20, 40, 50, 60, 65, 70, 75, 80, 85, 90, 95, 100, 120, 150, 200)


def repeater() -> dict[int, GPT]:
    """The model after each of `STEPS` steps."""
    made = repeats(21_000, seed=0)
    train = made[:20_000]
    torch.manual_seed(0)
    model = GPT(32, num_hiddens=64, num_heads=4, num_layers=2, ffn_num_hiddens=0, positions="rotary")
    kept: dict[int, GPT] = {0: copy.deepcopy(model)}

    def loss() -> torch.Tensor:
        batch = train[torch.randint(len(train), (64,))]
        return F.cross_entropy(model(batch.inputs)[0].flatten(0, 1), batch.targets.flatten())

    def keep() -> float:
        kept[EVERY * len(kept)] = copy.deepcopy(model)
        return 0.0  # never enough: only the moments are wanted

    fit(model, loss, steps=200, max_lr=5e-3, warm_up=0.1, clip=1.0, goal=keep, enough=2.0, goal_every=EVERY)
    return {step: kept[step] for step in STEPS}


def main() -> None:
    moments.FOLDER.mkdir(exist_ok=True)
    moments.write(repeater(), moments.FOLDER / "repeater.safetensors")
    unseen = repeats(21_000, seed=0)[20_000:]
    for step, model in moments.load("repeater").items():
        assert isinstance(model, GPT)
        right = next_token_accuracy(model, unseen.tokens, unseen.is_predictable)
        with torch.no_grad():
            _, weights = model(unseen.inputs, need_weights=True)
        first, second = weights["decoder self"]
        back, matched = attention_to(first, "previous").max(), induction_score(second, unseen.inputs).max()
        print(f"step {step:3}: right {right:.2f}, previous-token {back:.2f}, induction {matched:.2f}")


if __name__ == "__main__":
    main()
