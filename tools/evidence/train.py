"""Train one of the models that come with the package, and store it in mhalib/weights.

    python -m tools.evidence.train NAME

A recipe returns the trained model and what its file says of it. The chapters show how such a model is trained; here
training takes as long as it likes. The file's sha256 goes into mhalib/weights/sha256.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import torch

from mhalib import saved
from mhalib._write import write_whole
from mhalib.data import (
    COPIED,
    ENGLISH,
    FRENCH,
    VOCABULARY,
    Copies,
    Repeats,
    Translations,
    copies,
    repeats,
    sentences,
    translations,
)
from mhalib.evaluation import exact_match, next_token_accuracy, token_loss
from mhalib.models import GPT, Model, SentenceReader, Transformer
from mhalib.train import fit

RECIPES: dict[str, Callable[[], tuple[Model, saved.About]]] = {}


def targets(model: Transformer, made: Translations | Copies, what: str, max_lr: float) -> tuple[str, float]:
    """Train the model to write the targets of all examples but the last 1000; what it is worth on these."""
    train, unseen = made[:-1000], made[-1000:]

    def loss() -> torch.Tensor:
        return token_loss(model, train[torch.randint(len(train), (64,))])

    fit(model, loss, steps=1500, max_lr=max_lr, warm_up=0.1, clip=1.0, progress=True)
    return f"exact match on 1000 unseen {what}", exact_match(model, unseen)


def translator(seed: int = 0) -> tuple[Model, saved.About]:
    """English to French, `mhalib.data.translations`: 2 layers on each side, 24 heads in all."""
    torch.manual_seed(seed)
    model = Transformer(len(ENGLISH), len(FRENCH), num_hiddens=64, num_heads=4, num_layers=2)
    metric = targets(model, translations(21_000, seed=0), "sentences", max_lr=5e-3)
    return model, saved.About("English to French", metric, "python -m tools.evidence.train translator")


RECIPES["translator"] = translator


def next_token(model: GPT, made: Repeats, held_out: int, batch_size: int, **training: Any) -> tuple[str, float]:
    """Train the model to say the next token of all sequences but the last; what it is worth on these."""
    train, unseen = made[:-held_out], made[-held_out:]

    def loss() -> torch.Tensor:
        batch = train[torch.randint(len(train), (batch_size,))]
        logits, _ = model(batch.inputs)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())

    fit(model, loss, warm_up=0.1, clip=1.0, **training)
    what = f"accuracy at predictable places of {held_out} unseen sequences"
    return what, next_token_accuracy(model, unseen.tokens, unseen.is_predictable)


def repeater() -> tuple[Model, saved.About]:
    """The next token of `mhalib.data.repeats`: 2 layers of 4 heads, attention only."""
    torch.manual_seed(0)
    model = GPT(32, num_hiddens=64, num_heads=4, num_layers=2, ffn_num_hiddens=0, positions="rotary")
    metric = next_token(model, repeats(21_000, seed=0), 1000, 64, steps=800, max_lr=5e-3, progress=True)
    return model, saved.About("repeated sequences", metric, "python -m tools.evidence.train repeater")


RECIPES["repeater"] = repeater


def reader() -> tuple[Model, saved.About]:
    """Four questions about each word of `mhalib.data.sentences`: one layer of 4 heads, trained as in chapter 7."""
    made = sentences(21_000, seed=0)
    train, unseen = made[:20_000], made[20_000:]
    torch.manual_seed(10)
    model = SentenceReader(len(VOCABULARY))
    with torch.no_grad():
        model.get_parameter("tokens.positions.table").div_(0.6)  # begins with 0.5 in place of 0.3, as in chapter 7

    def loss() -> torch.Tensor:
        batch = train[torch.randint(len(train), (128,))]
        scores, _ = model(batch.tokens, batch.valid_lens)
        return torch.nn.functional.cross_entropy(scores.flatten(0, 2), batch.answers.flatten())

    fit(model, loss, steps=400, max_lr=0.02, progress=True)
    with torch.no_grad():
        is_right = model(unseen.tokens, unseen.valid_lens)[0].argmax(-1) == unseen.answers
    metric = (
        "least accuracy of the four questions on 1000 unseen sentences",
        is_right[unseen.is_real].float().mean(0).min(),
    )
    return model, saved.About("four questions about each word", metric, "python -m tools.evidence.train reader")


RECIPES["reader"] = reader


def talker(seed: int = 0) -> tuple[Model, saved.About]:
    """The next token of short `mhalib.data.repeats`, by 16 narrow heads that talk: as in chapter 23."""
    made = repeats(4500, seed=1, num_tokens=24, periods=(4, 8))
    torch.manual_seed(seed)
    model = GPT(32, 32, 8, num_layers=2, ffn_num_hiddens=0, positions="rotary", attention="talking")
    metric = next_token(model, made, 500, 32, steps=200, max_lr=2e-2, seed=seed)
    return model, saved.About("short repeated sequences", metric, "python -m tools.evidence.train talker")


RECIPES["talker"] = talker


def copier() -> tuple[Model, saved.About]:
    """What a source of `mhalib.data.copies` spells: 1 layer on each side, 12 heads in all, attention only."""
    torch.manual_seed(0)
    model = Transformer(len(COPIED), len(COPIED), num_hiddens=32, num_heads=4, ffn_num_hiddens=0)
    metric = targets(model, copies(25_000, seed=0), "sources", max_lr=1e-2)
    return model, saved.About("spelling and copying", metric, "python -m tools.evidence.train copier")


RECIPES["copier"] = copier


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(RECIPES))
    name = parser.parse_args().name
    model, about = RECIPES[name]()
    path, hashes = saved.FOLDER / f"{name}.safetensors", saved.FOLDER / saved.HASHES
    saved.FOLDER.mkdir(exist_ok=True)
    known = json.loads(hashes.read_text(encoding="utf-8")) if hashes.exists() else {}
    known[name] = saved.write(model, path, about)
    write_whole(hashes, json.dumps(known, indent=2, sort_keys=True) + "\n")
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB, {about.metric[0]} {about.metric[1]:.4f}")


if __name__ == "__main__":
    main()
