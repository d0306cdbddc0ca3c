"""Which measure of a head is right where chapters 3, 17 and 19 have bounds: what a head is worth, without a search.

    OMP_NUM_THREADS=1 python -m tools.evidence.head_bounds --folder RUNS [--seeds 20] [--first 0] [--store]

Trains, of each seed, one model of each kind and writes RUNS/KIND_SEED.json; what is there already is not done again.
`--store` makes mhalib/results/head_bounds.json of all that is there.

The analysis, written down before anything was run. After trials of seed 999 trainings were cut for time (faces 200
steps in place of the chapter's 500, symbols 300 in place of 500, and at most 16 of them asked), and digits were asked
for names alone, in 600 steps: in the chapter's 2,400 steps that model, each of whose heads sees one digit at most,
named 0.85 of the digits and learned nothing of *equal* (0.50), which was to be a third question, with both heads right.

1. *The models.* A "blind" head takes its keys and values from the text before: it can look, but what it reads is of
   another text, in training and ever after. Which heads are blind is drawn by the seed.
   - "faces": chapter 3's listener with four heads, two of them blind. The verb must give back two faces. One head
     explains at most half of the variance of both, so where the model explains more than that, both seeing heads are
     needed, and the blind ones are worth nothing: they are the random heads that serve as control.
   - "digits": chapter 17's reader with four heads of cross-attention, asked which digit is on the left or on the right.
     One head sees the left digit (on the right it has another picture's patches), one the right digit, two are blind;
     patches of a digit see only each other. Asked about the left digit, only the first head is worth anything; about
     the right one, only the second: without it, the answer is a guess. Two questions of one model, so a measure has to
     name another head each time.
   - "symbols": chapter 19's repeater. All heads of layer 1 find the right key and divide the symbols. Here
     the truth is searched: all 16 subsets of layer 1, the others giving their mean over texts at each place, by symbol.
     A master names a symbol in over 0.9 of the cases alone. Questions: symbols with one to three masters.
2. *Named.* The heads with the highest scores, as many as are right, are the right ones; of a symbol: the highest is a
   master. Chance is the measure "random". Of symbols also the rank correlation with the Shapley values of the four.
3. *Alarms.* The share of heads known to be worth nothing (of symbols: no masters) with a score of at least the lowest
   right one's.
4. *Untrained.* The share of heads of untrained models with a score of at least the median, over models, of the lowest
   right one's, asked the same (of symbols: the first four of each model).
5. *Measures.* As `head_benchmark`; "weight" is the weight on the keys that hold the answer (both faces; the digit asked
   about; the symbol that followed), and "written" counts queries that are asked. The mean is over texts at each place.
   Path is resample here: nothing follows. Texts: 96 sentences, 64 pictures of a question, 24 lists of a symbol, none of
   them trained on. "optimal" is left out for symbols: 31 passes for each of 128 questions and heads.
6. *Expected.* Ablations name faces and digits in all models. Weight does, too, and cannot tell heads by symbol. Slope
   and attribution fail on faces, whose loss is near its least. Length names faces and digits, and not symbols.
7. A model counts if it beats its bound (faces: explains over 0.75; a digit: names over 0.75).
"""

from __future__ import annotations

import functools
import itertools
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import mhalib
from mhalib import data
from mhalib.attention import MultiHeadAttention
from mhalib.data import ANSWERS, MEETING_LENGTH, MEETING_VOCABULARY, QUESTION_WORDS
from mhalib.measures import heads_of, induction_targets, patched
from mhalib.measures.card import MEASURES as OF_CARD
from mhalib.measures.card import Reading, _added, weight_on
from mhalib.models import GPT, PictureReader
from tools.evidence import results
from tools.evidence.head_benchmark import every_list, on_the_way, shapley, spearman

HEADS, ENOUGH, MASTERED = 4, 0.75, 0.9


class Asked(nn.Module):
    """One layer of a model, and the texts that it is asked about, so that a `Reading` can read any model."""

    def __init__(
        self, model: nn.Module, layer: MultiHeadAttention, answer: Callable[[Tensor], Any], inputs: nn.Module
    ) -> None:
        super().__init__()
        self.model, self.layer, self.answer, self.inputs = model, layer, answer, inputs

    def forward(self, texts: Tensor, *, need_weights: bool = False) -> tuple[Tensor, dict[str, list[Tensor]]]:
        """texts: (B, 1), their numbers."""
        output, weights = self.answer(texts[:, 0])
        return output, {"asked": [weights]}

    def attention_layers(self) -> dict[str, list[MultiHeadAttention]]:
        return {"asked": [self.layer]}


@dataclass(frozen=True)
class Truth:
    """right: the heads that are right, any of which may stand for `named` of them. worth: of each, if it is known."""

    right: list[int]
    named: int
    worth: list[float] | None = None


@dataclass(frozen=True, eq=False)
class Question:
    """An asked model, the loss of each of its texts, and which keys hold the answer, (B, Q, K)."""

    asked: Asked
    loss: Callable[[Tensor, Tensor], Tensor]
    looks: Tensor

    def scores(self, left_out: frozenset[str]) -> dict[str, list[float]]:
        """By measure, a number of each head."""
        texts = torch.arange(len(self.looks))[:, None]
        reading = Reading(self.asked, texts, self.loss, self.looks, "asked")
        names = [name for name in MEASURES if name not in left_out]
        return {name: MEASURES[name](reading).mean(0).flatten().tolist() for name in names}


def written(reading: Reading) -> Tensor:
    """The length of what a head adds, at queries that are asked, (B, 1, h)."""
    counts = reading.targets.any(-1)[:, None]
    lengths = _added(reading.layers[0], reading.outputs[0]).norm(dim=-1)
    return ((lengths * counts).sum(-1) / counts.sum(-1))[:, None]


def mean(reading: Reading) -> Tensor:
    """How much the loss rises if a head gives its mean over texts at that place, (B, 1, h)."""
    others: dict[str, list[Tensor]] = {"asked": [reading.outputs[0].mean(0, keepdim=True)]}
    return reading.rises(lambda head: patched(reading.model, others, [head]))


def five_points(reading: Reading) -> Tensor:
    model: Any = reading.model
    return on_the_way(model, reading.tokens, reading.loss, reading.targets, "asked", model.inputs)


def at_random(reading: Reading) -> Tensor:
    seed = int(1e6 * float(reading.losses.sum().abs())) % 2**31
    return torch.rand(1, 1, HEADS, generator=torch.Generator().manual_seed(seed))


MEASURES: dict[str, Callable[[Reading], Tensor]] = {
    "weight": lambda reading: weight_on(reading, reading.targets),
    "weight x length": lambda reading: weight_on(reading, reading.targets, by_length=True),
    "written": written,
    "zero": OF_CARD["zero"].compute,
    "mean": mean,
    "resample": OF_CARD["resample"].compute,
    "optimal": OF_CARD["optimal"].compute,
    "slope": OF_CARD["slope"].compute,
    "attribution": OF_CARD["attribution"].compute,
    "attribution, 5 points": five_points,
    "random": at_random,
}
DEAR = frozenset({"optimal"})
"""Measures that symbols are not asked for."""


def reads_elsewhere(layer: MultiHeadAttention, elsewhere: Tensor) -> None:
    """Where `elsewhere` (h, K) says so, a head's keys and values are those of the text before."""

    def swapped(_: nn.Module, __: object, found: Tensor) -> Tensor:
        of_heads = found.unflatten(-1, (HEADS, -1))  # (B, K, h, d)
        return torch.where(elsewhere.T[..., None], of_heads.roll(1, 0), of_heads).flatten(-2)

    for matrix in (layer.W_k, layer.W_v):
        matrix.register_forward_hook(swapped)


def drawn_heads(seed: int) -> list[int]:
    """The heads in an order of the seed: the first ones see, the others are blind."""
    return torch.randperm(HEADS, generator=torch.Generator().manual_seed(seed)).tolist()


class FaceListener(nn.Module):
    """Chapter 3's: the verb's attention gives back two faces of 8 numbers."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.words = nn.Embedding(len(MEETING_VOCABULARY), 32)
        self.positions = nn.Parameter(torch.randn(MEETING_LENGTH, 32) / 2)
        self.attention = MultiHeadAttention(32, HEADS)
        self.faces = nn.Linear(8, 32, bias=False)
        self.inputs = nn.Identity()
        self.readout = nn.Linear(32, 16)
        elsewhere = torch.zeros(HEADS, MEETING_LENGTH, dtype=torch.bool)
        elsewhere[drawn_heads(seed)[2:]] = True
        reads_elsewhere(self.attention, elsewhere)

    def forward(self, batch: data.Meetings, faces: Tensor) -> tuple[Tensor, Tensor | None]:
        x = self.words(batch.tokens) + self.positions
        sentence = torch.arange(len(batch))[:, None]
        x[sentence, batch.places] = self.faces(faces) + self.positions[batch.places]
        x = self.inputs(x)
        verb = x[sentence[:, 0], batch.verbs][:, None]
        output, weights = self.attention(verb, x, x)
        return self.readout(output[:, 0]).unflatten(-1, (2, -1)), weights


@functools.cache
def sentences() -> data.Meetings:
    return data.meetings(42_000, seed=0)


def new_faces(seed: int) -> FaceListener:
    torch.manual_seed(seed)
    return FaceListener(seed)


def train_faces(seed: int) -> FaceListener:
    model, known = new_faces(seed), sentences()[:40_000]

    def loss() -> Tensor:
        batch = known[torch.randint(len(known), (256,))]
        faces = torch.randn(256, 2, 8)
        return F.mse_loss(model(batch, faces)[0], faces)

    mhalib.train.fit(model, loss, 200, max_lr=0.02)
    return model.eval()


@functools.cache
def faces_seen() -> Tensor:
    return torch.randn(2000, 2, 8, generator=torch.Generator().manual_seed(7))


@torch.no_grad()
def know_faces(model: FaceListener, seed: int) -> tuple[dict[str, float], dict[str, Truth]]:
    explained = 1 - float(F.mse_loss(model(sentences()[40_000:], faces_seen())[0], faces_seen()))
    truth = {"faces": Truth(sorted(drawn_heads(seed)[:2]), 2)} if explained > ENOUGH else {}
    return {"explained": explained}, truth


def ask_faces(model: FaceListener, name: str) -> Question:
    texts, faces = sentences()[40_000:40_096], faces_seen()[:96]
    looks = F.one_hot(texts.places, MEETING_LENGTH).sum(1).bool()[:, None]  # (B, 1, K)
    asked = Asked(model, model.attention, lambda at: model(texts[at], faces[at]), model.inputs)
    return Question(asked, lambda found, at: (found - faces[at[:, 0]]).square().mean((1, 2)), looks)


def new_digits(seed: int) -> PictureReader:
    """Chapter 17's; patches see only their own digit, and heads of cross-attention the digits drawn by the seed."""
    torch.manual_seed(seed)
    model = PictureReader(len(QUESTION_WORDS), len(ANSWERS), height=8, width=16, patch_size=4)
    is_left = torch.arange(8) % 4 < 2
    same_half = is_left == is_left[:, None]
    for block in model.encoder.layers:
        block.register_forward_pre_hook(lambda _, x, asked: (x, {**asked, "mask": same_half}), with_kwargs=True)
    left, right, *blind = drawn_heads(seed)
    elsewhere = torch.zeros(HEADS, 8, dtype=torch.bool)
    elsewhere[left], elsewhere[right], elsewhere[blind] = ~is_left, is_left, True
    reads_elsewhere(model.attention_layers()["cross"][0], elsewhere)
    return model


@functools.cache
def pictures() -> tuple[data.Pairs, data.Pairs]:
    known, unseen = data.digits()
    return data.pairs(known, 30_000, seed=0), data.pairs(unseen, 3000, seed=1)


def train_digits(seed: int) -> PictureReader:
    model, known = new_digits(seed), pictures()[0]
    known = known[known.kinds == 0]

    def loss() -> Tensor:
        batch = known[torch.randint(len(known), (128,))]
        return F.cross_entropy(model(batch.images, batch.questions, batch.question_lens)[0], batch.answers)

    mhalib.train.fit(model, loss, 600, max_lr=4e-3)
    return model.eval()


def asked_pictures(name: str) -> tuple[data.Pairs, Tensor]:
    """All unseen pictures of a question, and which patches hold its answer, (K,)."""
    (_, unseen), is_left = pictures(), torch.arange(8) % 4 < 2
    side = ("left", "right").index(name)
    return unseen[(unseen.kinds == 0) & (unseen.sides == side)], is_left if side == 0 else ~is_left


@torch.no_grad()
def know_digits(model: PictureReader, seed: int) -> tuple[dict[str, float], dict[str, Truth]]:
    left, right, *_ = drawn_heads(seed)
    known, truth = {}, {}
    for name, see in (("left", [left]), ("right", [right])):
        texts, _ = asked_pictures(name)
        said = model(texts.images, texts.questions, texts.question_lens)[0].argmax(-1)
        known[name] = float((said == texts.answers).float().mean())
        if known[name] > ENOUGH:
            truth[name] = Truth(see, len(see))
    return known, truth


def ask_digits(model: PictureReader, name: str) -> Question:
    texts, keys = asked_pictures(name)
    texts = texts[:64]

    def answer(at: Tensor) -> tuple[Tensor, Tensor]:
        found, weights = model(texts.images[at], texts.questions[at], texts.question_lens[at], need_weights=True)
        return found, weights["cross"][0]

    looks = torch.zeros(len(texts), texts.questions.shape[1], 8, dtype=torch.bool)
    looks[:, 0] = keys  # the answer is read at the first word
    asked = Asked(model, model.attention_layers()["cross"][0], answer, model.patches)
    return Question(asked, lambda found, at: F.cross_entropy(found, texts.answers[at[:, 0]], reduction="none"), looks)


def new_symbols(seed: int) -> GPT:
    torch.manual_seed(seed)
    return GPT(**mhalib.saved.load("repeater").settings)


def train_symbols(seed: int) -> GPT:
    """Chapter 19's `trained_again`, with fewer steps."""
    model, known = new_symbols(seed), every_list()[:20_000]

    def loss() -> Tensor:
        batch = known[torch.randint(len(known), (64,))]
        return F.cross_entropy(model(batch.inputs)[0].mT, batch.targets)

    mhalib.train.fit(model, loss, 300, 5e-3, warm_up=0.1, clip=1.0)
    return model.eval()


def of_lists(model: GPT, lists: data.Repeats) -> Asked:
    def answer(at: Tensor) -> tuple[Tensor, Tensor]:
        logits, weights = model(lists.inputs[at], need_weights=True)
        return logits, weights["decoder self"][1]

    return Asked(model, model.attention_layers()["decoder self"][1], answer, model.tokens.embedding)


@torch.no_grad()
def subsets_by_symbol(model: GPT, lists: data.Repeats) -> Tensor:
    """(16, 32): how often each symbol is named by each subset of layer 1, the others giving their mean."""
    asked, every = of_lists(model, lists), torch.arange(len(lists))[:, None]
    heads = heads_of(asked)
    with mhalib.measures.head_outputs(asked) as own:
        asked(every)
    means = {"asked": [own["asked"][0].mean(0, keepdim=True)]}
    wanted = F.one_hot(lists.targets, 32) * lists.is_predictable[..., None]
    rows = []
    for number in range(2**HEADS):
        with patched(asked, means, [head for head in heads if not number >> head.head & 1]):
            right = asked(every)[0].argmax(-1) == lists.targets
        rows.append((wanted * right[..., None]).sum((0, 1)) / wanted.sum((0, 1)))
    return torch.stack(rows)


def know_symbols(model: GPT, seed: int) -> tuple[dict[str, float], dict[str, Truth]]:
    table = subsets_by_symbol(model, every_list()[20_000:20_300])
    alone = torch.stack([table[2**i] for i in range(HEADS)])
    known = {"right": float(table[-1].mean()), "most alone": float(alone.mean(1).max())}
    known["mastered"] = float((alone > MASTERED).any(0).sum())
    truth: dict[str, Truth] = {}
    for symbol in range(32):
        masters = (alone[:, symbol] > MASTERED).nonzero()[:, 0].tolist()
        if 0 < len(masters) < HEADS and len(truth) < ASKED:
            truth[str(symbol)] = Truth(masters, 1, shapley(table[:, symbol].tolist()))
    return known, truth


def ask_symbols(model: GPT, name: str) -> Question:
    lists = every_list()[20_300:21_000]
    counts = lists.is_predictable & (lists.targets == int(name))
    few = counts.any(-1).nonzero()[:24, 0]
    lists, counts = lists[few], counts[few]

    def loss(logits: Tensor, at: Tensor) -> Tensor:
        paid = F.cross_entropy(logits.mT, lists.targets[at[:, 0]], reduction="none") * counts[at[:, 0]]
        return paid.sum(-1) / counts[at[:, 0]].sum(-1)

    return Question(of_lists(model, lists), loss, induction_targets(lists.inputs) & counts[..., None])


@dataclass(frozen=True)
class Kind:
    """How a model is made and trained, what is known of it and which heads are right, and how it is asked."""

    new: Callable[[int], nn.Module]
    train: Callable[[int], nn.Module]
    know: Callable[[Any, int], tuple[dict[str, float], dict[str, Truth]]]
    ask: Callable[[Any, str], Question]
    left_out: frozenset[str] = frozenset()


KINDS = {
    "faces": Kind(new_faces, train_faces, know_faces, ask_faces),
    "digits": Kind(new_digits, train_digits, know_digits, ask_digits),
    "symbols": Kind(new_symbols, train_symbols, know_symbols, ask_symbols, DEAR),
}
ASKED = 16
"""How many symbols, at most, a model is asked for."""
UNTRAINED = 4
"""Of how many questions untrained models are asked."""


def told(truth: Truth, scores: list[float]) -> dict[str, float]:
    """Points 2 and 3 of the analysis, for one question and one measure."""
    order = sorted(range(HEADS), key=lambda i: -scores[i])
    lowest = min(scores[i] for i in truth.right)
    found = {"named": float(set(order[: truth.named]) <= set(truth.right))}
    found["alarms"] = statistics.fmean(scores[i] >= lowest for i in range(HEADS) if i not in truth.right)
    if truth.worth is not None:
        found["agreement"] = spearman(scores, truth.worth)
    return found


def examine(kind: str, seed: int) -> dict[str, Any]:
    """Everything that is kept of one model."""
    of = KINDS[kind]
    model, untrained = of.train(seed), of.new(seed).eval()
    known, truth = of.know(model, seed)
    found: dict[str, Any] = {"kind": kind, "seed": seed, "known": known, "truth": {}, "scores": {}, "untrained": {}}
    for name, heads in truth.items():
        found["truth"][name] = [heads.right, heads.named, heads.worth]
        found["scores"][name] = of.ask(model, name).scores(of.left_out)
        if len(found["untrained"]) < UNTRAINED:
            found["untrained"][name] = of.ask(untrained, name).scores(of.left_out)
    return found


def pooled(runs: list[dict[str, Any]]) -> dict[str, list[float]]:
    """By name, a number of each model; "named", "alarms" and "agreement" are means over its questions."""
    values: dict[str, list[float]] = {}
    for kind, of in KINDS.items():
        of_kind = [run for run in runs if run["kind"] == kind]
        for name in of_kind[0]["known"] if of_kind else ():
            values[f"{kind}/{name}"] = [run["known"][name] for run in of_kind]
        asked = [run for run in of_kind if run["truth"]]
        if not asked:
            continue
        values[f"{kind}/questions"] = [len(run["truth"]) for run in of_kind]
        for measure in MEASURES:
            if measure in of.left_out:
                continue
            rows, lowest, untrained = [], [], []
            for run in asked:
                truths = {name: Truth(*heads) for name, heads in run["truth"].items()}
                answers = [told(truth, run["scores"][name][measure]) for name, truth in truths.items()]
                rows.append({what: statistics.fmean(each[what] for each in answers) for what in answers[0]})
                lowest += [min(run["scores"][n][measure][i] for i in truth.right) for n, truth in truths.items()]
                untrained += [x for scores in run["untrained"].values() for x in scores[measure]]
            for what in rows[0]:
                values[f"{kind}/{measure}/{what}"] = [row[what] for row in rows]
            alarm = statistics.median(lowest)
            values[f"{kind}/{measure}/untrained"] = [statistics.fmean(x >= alarm for x in untrained)]
    return values


def main() -> None:
    given = results.run_arguments(__doc__)
    if given.store:
        runs = [json.loads(path.read_text("utf-8")) for path in given.folder.glob("*_*.json")]
        runs.sort(key=lambda run: (run["kind"], run["seed"]))
        seeds = sorted({run["seed"] for run in runs})
        made_by = "python -m tools.evidence.head_bounds --folder RUNS --store"
        results.store("head_bounds", seeds, pooled(runs), 3, made_by=made_by)
        return
    torch.set_num_threads(1)
    for kind, seed in itertools.product(KINDS, range(given.first, given.first + given.seeds)):
        begun = time.perf_counter()
        results.keep(given.folder / f"{kind}_{seed}.json", functools.partial(examine, kind, seed))
        print(kind, seed, f"{time.perf_counter() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
