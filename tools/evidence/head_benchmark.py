"""Which measure of a head is right, on trained models whose rule and whose heads are known.

    python -m tools.evidence.head_benchmark --folder RUNS [--seeds 20] [--store]

Trains, of each seed, one layer of 8 heads for 2,000 steps and two layers of 4 heads for 200 on chapter 14's repeated
lists, scores every measure of `MEASURES` against the truth below, and writes RUNS/KIND_SEED.json and .safetensors;
what is there already is not done again. `--store` makes mhalib/results/head_benchmark.json of all that is there, and of
what is stored of other seeds.

**To add a measure or a model**, write a file of your own, and run it with the same options:

    import mhalib, torch
    from tools.evidence.head_benchmark import MEASURES, MODELS, PASSES, main

    def entropy(model, question):
        with torch.no_grad():
            _, maps = model(question.tokens, need_weights=True)
        return -torch.stack([mhalib.measures.head_entropy(w) for w in maps["decoder self"]])

    MEASURES["entropy"], PASSES["entropy"] = entropy, 1
    MODELS["four"] = {"num_layers": 4, "num_heads": 2}, 400
    main()

A measure gives (layers, h), more for a head that matters more; `question` has `tokens`, `loss` and `looks`. A model is
settings of a GPT with 8 heads in all, and steps of training. At the end a table says how every measure did. Passes are
in `PASSES`.

The analysis, written down before it was run. After one trial, of seed 0, sizes were cut for time (40 lists in place of
60, 10 steps of optimal ablation in place of 20, none of it on untrained models), and nothing else:

1. *The rule.* Lists whose second round is a fresh permutation, of periods 8 and 10, 500 each. Where "what followed the
   same symbol before" and "the symbol seen longest ago" differ, the rule that more answers follow is the model's.
2. *The right heads.* No measure is asked. All 256 subsets of the 8 heads are kept alone, the others giving their mean
   over 200 training lists, on 40 lists held out. A subset is enough if it keeps 95 % of the accuracy above chance,
   1/32, at predictable positions. The truth T is every subset of the least size k that is enough. The same table gives
   each head's Shapley value exactly. Both again with the others giving what they give in another list ("resampled"),
   since a truth by means might favour the measure by means.
3. *Named.* The k heads with the highest scores are a member of T. Precision: the largest share of these k that are in
   one member of T. Average precision: against the member of T with the highest accuracy. Agreement: Spearman's rank
   correlation with the Shapley values. Chance is the measure "random". Where k is 8 naming cannot fail, so such
   models are counted, and left out of named and precision.
4. *The rule named.* On the lists of 1, each measure is taken twice: with the loss, and the keys looked at, of either
   rule's answer. It names the rule whose largest score over heads is higher. A measure that gives the same for both
   (previous, first, written, copying) cannot tell.
5. *False alarms.* Of a kind of model, the threshold is the median over seeds of the lowest score among the heads of
   T's best member. Alarms are heads at or above it: in the untrained models of the same seeds ("untrained"), and in
   trained ones outside every member of T ("idle").
6. *Cost* in passes over all lists; a pass back counts 2. Scores are on 24 lists held out, others than in 2.

Added later, with the table of the other measures known and before its own numbers were:

7. *Attribution at 5 points.* One slope at the model's own text says little of an exchange, yet MIB (2025) finds
   estimates by slopes best. Its estimates average slopes on the way from one input to the other (Hanna et al. 2024). So
   the tokens' vectors are mixed, 0.1, 0.3, 0.5, 0.7 and 0.9 of the other text's, and the slope by each head's output is
   averaged. Expected: agreement near resample's. If it stays near attribution's, one point is not what fails.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from mhalib.data import Repeats, repeats
from mhalib.measures import head_card, head_outputs, heads_of, induction_targets, patched
from mhalib.measures.card import MEASURES as OF_CARD
from mhalib.measures.card import Loss, Reading
from mhalib.models import GPT
from mhalib.results import read
from mhalib.train import fit
from tools.evidence import results

MODELS: dict[str, tuple[dict[str, Any], int]] = {
    "one": ({"num_layers": 1, "num_heads": 8}, 2000),
    "two": ({"num_layers": 2, "num_heads": 4}, 200),
}
RULES = ("induction", "longest ago")
KEPT, CHANCE, NUM_HEADS = 0.95, 1 / 32, 8


@dataclass(frozen=True, eq=False)
class Question:
    """tokens (B, N), what is right after each (B, N), where that counts (B, N), and which keys hold it (B, N, N)."""

    tokens: Tensor
    answers: Tensor
    counts: Tensor
    looks: Tensor

    def loss(self, logits: Tensor, tokens: Tensor) -> Tensor:
        """The mean cross-entropy of each text's answers that count, (B,)."""
        losses = F.cross_entropy(logits.mT, self.answers, reduction="none") * self.counts
        return losses.sum(-1) / self.counts.sum(-1)


def of_card(name: str) -> Callable[[GPT, Question], Tensor]:
    """A measure of `mhalib.measures.head_card`."""

    def score(model: GPT, question: Question) -> Tensor:
        asked: dict[str, Any] = {"loss": question.loss, "targets": question.looks, "control": False}
        card = head_card(model, question.tokens, measures=[name], **asked)
        return card.values[name].view(model.design.num_layers, -1)

    return score


def roles(model: GPT, question: Question) -> Tensor:
    """The larger of a head's two pattern scores, as people look for induction: a head of either kind."""
    return torch.maximum(of_card("previous")(model, question), of_card("induction")(model, question))


POINTS = (0.1, 0.3, 0.5, 0.7, 0.9)


def on_the_way(
    model: Any, tokens: Tensor, loss: Loss, targets: Tensor, kind: str = "decoder self", inputs: nn.Module | None = None
) -> Tensor:
    """Attribution with the mean slope at `POINTS` between each text's vectors and those of the text before,
    (B, layers, h). `inputs` is what gives these vectors; `None` means the table of tokens."""
    inputs = model.tokens.embedding if inputs is None else inputs
    gives = Reading(model, tokens, loss, targets, kind).outputs
    slopes = [torch.zeros_like(z) for z in gives]
    for share in POINTS:
        hook = inputs.register_forward_hook(lambda _, x, y, a=share: (1 - a) * y + a * y.roll(1, 0))
        try:
            for total, slope in zip(slopes, Reading(model, tokens, loss, targets, kind).slopes, strict=True):
                total += slope / len(POINTS)
        finally:
            hook.remove()
    pairs = zip(gives, slopes, strict=True)
    return torch.stack([((z.roll(1, 0) - z) * slope).sum((-1, -2)) for z, slope in pairs], 1)


def five_points(model: GPT, question: Question) -> Tensor:
    """Attribution, with the slope averaged on the way from this text to the other."""
    return on_the_way(model, question.tokens, question.loss, question.looks).mean(0)


def random_scores(model: GPT, question: Question) -> Tensor:
    """No measure: what chance names."""
    seed = int(model.tokens.embedding.weight.detach().abs().sum() * 1000)
    return torch.rand(model.design.num_layers, model.design.num_heads, generator=torch.Generator().manual_seed(seed))


MEASURES: dict[str, Callable[[GPT, Question], Tensor]] = {
    **{name: of_card(name) for name in OF_CARD},
    "previous or induction": roles,
    "attribution, 5 points": five_points,
    "random": random_scores,
}
PASSES = {name: 1 + OF_CARD[name].passes(NUM_HEADS) for name in OF_CARD} | {"previous or induction": 1, "random": 0}
PASSES["attribution, 5 points"] = 1 + 3 * len(POINTS)
RULELESS = {"previous", "first", "first x length", "written", "copying", "random", "previous or induction"}
"""Measures that do not depend on what the answer is."""


def new_model(kind: str, seed: int) -> GPT:
    """Untrained, as the seed makes it."""
    torch.manual_seed(seed)
    return GPT(32, num_hiddens=64, ffn_num_hiddens=0, positions="rotary", **MODELS[kind][0]).eval()


@functools.cache
def every_list() -> Repeats:
    """Chapter 14's: 20,000 to train with, 1,000 held out."""
    return repeats(21000, seed=0)


def train(kind: str, seed: int) -> GPT:
    """Chapter 14's recipe: AdamW, 5e-3, one cycle, batches of 64."""
    lists, model = every_list()[:20000], new_model(kind, seed)

    def loss() -> Tensor:
        batch = lists[torch.randint(len(lists), (64,))]
        return F.cross_entropy(model(batch.inputs)[0].mT, batch.targets)

    fit(model, loss, MODELS[kind][1], max_lr=5e-3, warm_up=0.1, clip=1.0)
    return model


def two_rules(tokens: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """What either rule answers after each token, (B, N), and where the token has occurred before."""
    said = {rule: torch.zeros_like(tokens) for rule in RULES}
    matched = torch.zeros_like(tokens, dtype=torch.bool)
    for text in range(len(tokens)):
        last: dict[int, int] = {}
        for at, token in enumerate(tokens[text].tolist()):
            if token in last:
                matched[text, at] = True
                said["induction"][text, at] = tokens[text, last[token] + 1]
            last[token] = at
            said["longest ago"][text, at] = min(last, key=last.__getitem__)
    return said, matched


@functools.cache
def separating(num: int, seed: int) -> dict[str, Question]:
    """Lists whose second round is a fresh permutation, half of period 8, half of 10, cut to equal lengths; for each
    rule the question whose answers are its own, at the places where both differ."""
    chance = torch.Generator().manual_seed(seed)
    found = []
    for period in (8, 10):
        for _ in range(num // 2):
            symbols = torch.randperm(32, generator=chance)[:period]
            found.append(torch.cat([symbols, symbols[torch.randperm(period, generator=chance)]])[:15])
    tokens = torch.stack(found)
    said, matched = two_rules(tokens)
    apart = matched & (said["induction"] != said["longest ago"])
    tokens = tokens[apart.any(-1)]
    said, apart = {rule: says[apart.any(-1)] for rule, says in said.items()}, apart[apart.any(-1)]
    return {rule: Question(tokens, says, apart, holding(tokens, says, apart)) for rule, says in said.items()}


def holding(tokens: Tensor, answers: Tensor, counts: Tensor) -> Tensor:
    """Of queries that count, the last key so far that holds the answer: boolean (B, N, N)."""
    same = (tokens[:, None, :] == answers[:, :, None]).tril()
    places = torch.arange(tokens.shape[1]) * same
    return same & (places == places.amax(-1, keepdim=True)) & counts[..., None]


def ordinary(first: int, num: int) -> Question:
    """Lists held out of training, as chapter 14 has them."""
    lists = every_list()[20000 + first : 20000 + first + num]
    return Question(lists.inputs, lists.targets, lists.is_predictable, induction_targets(lists.inputs))


@torch.no_grad()
def accuracy(model: GPT, question: Question) -> float:
    right = model(question.tokens)[0].argmax(-1) == question.answers
    return float(right[question.counts].float().mean())


def subsets(model: GPT, question: Question, way: str) -> list[float]:
    """Accuracy of every subset of heads kept alone, bit i of its number being head i."""
    heads, (kind,) = heads_of(model), model.attention_layers()
    with torch.no_grad(), head_outputs(model) as own:
        model(question.tokens if way == "resampled" else every_list()[:200].inputs)
    others = {kind: [z.roll(1, 0) if way == "resampled" else z.mean((0, 2), keepdim=True) for z in own[kind]]}
    if way == "means":
        size = question.tokens.shape[1]
        others = {kind: [z.expand(1, -1, size, -1) for z in others[kind]]}
    found = []
    for number in range(2 ** len(heads)):
        off = [head for i, head in enumerate(heads) if not number >> i & 1]
        with patched(model, others, off):
            found.append(accuracy(model, question))
    return found


def shapley(of_subsets: list[float]) -> list[float]:
    """Each head's mean gain over all orders, exactly, from the accuracy of all subsets."""
    num = int(math.log2(len(of_subsets)))
    share = [math.factorial(k) * math.factorial(num - 1 - k) / math.factorial(num) for k in range(num)]
    return [
        sum(
            share[s.bit_count()] * (of_subsets[s | 1 << i] - of_subsets[s])
            for s in range(len(of_subsets))
            if not s >> i & 1
        )
        for i in range(num)
    ]


def enough(of_subsets: list[float]) -> list[list[int]]:
    """The smallest subsets that keep 95 % of the accuracy above chance, the best first."""
    needed = CHANCE + KEPT * (of_subsets[-1] - CHANCE)
    passing = [s for s in range(len(of_subsets)) if of_subsets[s] >= needed]
    least = min(s.bit_count() for s in passing)
    best = sorted((s for s in passing if s.bit_count() == least), key=lambda s: -of_subsets[s])
    return [[i for i in range(NUM_HEADS) if s >> i & 1] for s in best]


def against(scores: list[float], truth: list[list[int]], values: list[float]) -> dict[str, float]:
    """What point 3 of the analysis says of one model's scores."""
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    size = len(truth[0])
    top = set(order[:size])
    hits = [(rank, i) for rank, i in enumerate(order, 1) if i in truth[0]]
    precise = statistics.fmean(count / rank for count, (rank, _) in enumerate(hits, 1))
    return {
        "named": float(top in map(set, truth)),
        "precision": max(len(top & set(member)) for member in truth) / size,
        "average precision": precise,
        "agreement": spearman(scores, values),
    }


def spearman(x: list[float], y: list[float]) -> float:
    """Rank correlation; equal numbers share their rank, and where all are equal it is 0."""

    def ranks(of: list[float]) -> list[float]:
        return [sum(b < a for b in of) + (sum(b == a for b in of) - 1) / 2 for a in of]

    a, b = ranks(x), ranks(y)
    return statistics.correlation(a, b) if len(set(a)) > 1 < len(set(b)) else 0.0


def measured(model: GPT, question: Question) -> dict[str, list[float]]:
    return {name: measure(model, question).flatten().tolist() for name, measure in MEASURES.items()}


def examine(kind: str, seed: int, model: GPT) -> dict[str, Any]:
    """Everything that is kept of one model."""
    lists, apart = ordinary(100, 40), separating(1000, seed=1)
    found: dict[str, Any] = {"kind": kind, "seed": seed, "accuracy": accuracy(model, ordinary(0, 1000))}
    found["follows"] = {rule: accuracy(model, question) for rule, question in apart.items()}
    for way in ("means", "resampled"):
        of_subsets = subsets(model, lists, way)
        found[way] = {"enough": enough(of_subsets), "shapley": shapley(of_subsets), "subsets": of_subsets}
    few = separating(24, seed=2)
    found["scores"] = measured(model, ordinary(200, 24))
    found["by rule"] = {
        rule: {n: m(model, few[rule]).flatten().tolist() for n, m in MEASURES.items() if n not in RULELESS}
        for rule in RULES
    }
    untrained = new_model(kind, seed)
    found["untrained"] = {
        name: measure(untrained, ordinary(200, 24)).flatten().tolist()
        for name, measure in MEASURES.items()
        if name != "optimal"
    }
    return found


def pooled(runs: list[dict[str, Any]]) -> dict[str, list[float]]:
    """By name, a number of each run: what `mhalib.results.read("head_benchmark")` gives."""
    values: dict[str, list[float]] = {}
    for kind in MODELS:
        of_kind = [run for run in runs if run["kind"] == kind]
        if not of_kind:
            continue
        values[f"{kind}/seed"] = [run["seed"] for run in of_kind]
        values[f"{kind}/accuracy"] = [run["accuracy"] for run in of_kind]
        for rule in RULES:
            values[f"{kind}/follows {rule}"] = [run["follows"][rule] for run in of_kind]
        for way in ("means", "resampled"):
            values[f"{kind}/{way}/k"] = [len(run[way]["enough"][0]) for run in of_kind]
            values[f"{kind}/{way}/sets"] = [len(run[way]["enough"]) for run in of_kind]
        for head in range(NUM_HEADS):
            values[f"{kind}/means/in best {head}"] = [float(head in r["means"]["enough"][0]) for r in of_kind]
            values[f"{kind}/means/shapley {head}"] = [r["means"]["shapley"][head] for r in of_kind]
        for name in MEASURES:
            for way in ("means", "resampled"):
                told = [against(r["scores"][name], r[way]["enough"], r[way]["shapley"]) for r in of_kind]
                for what in told[0]:
                    values[f"{kind}/{way}/{name}/{what}"] = [each[what] for each in told]
            if name not in RULELESS:
                values[f"{kind}/{name}/rule"] = [right_rule(run, name) for run in of_kind]
            lowest = [min(run["scores"][name][i] for i in run["means"]["enough"][0]) for run in of_kind]
            alarm = statistics.median(lowest)
            idle = [
                [x >= alarm for i, x in enumerate(r["scores"][name]) if not any(i in t for t in r["means"]["enough"])]
                for r in of_kind
            ]
            if name != "optimal":
                values[f"{kind}/{name}/untrained"] = [
                    statistics.fmean(x >= alarm for x in r["untrained"][name]) for r in of_kind
                ]
            values[f"{kind}/{name}/idle alarms"] = [sum(each) for each in idle]
            values[f"{kind}/{name}/idle"] = [len(each) for each in idle]
            for head in range(NUM_HEADS):
                values[f"{kind}/{name}/score {head}"] = [run["scores"][name][head] for run in of_kind]
    for name, passes in PASSES.items():
        values[f"passes/{name}"] = [passes]
    return values


def right_rule(run: dict[str, Any], name: str) -> float:
    """1 if the measure is largest for the rule that the model follows; 1/2 for a tie."""
    own = max(RULES, key=run["follows"].__getitem__)
    (other,) = set(RULES) - {own}
    mine, theirs = (max(run["by rule"][rule][name]) for rule in (own, other))
    return 0.5 if mine == theirs else float(mine > theirs)


def with_stored(values: dict[str, list[float]], stored: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """The runs in the folder, and before them those stored of seeds that it lacks.

    A measure that was not asked then has the seeds of its own, "KIND/MEASURE/seed". Alarms hang on a threshold of all
    runs, so a kind of which stored runs are kept has none.
    """
    joined: dict[str, list[float]] = {}
    for key, numbers in values.items():
        kind, *_, what = key.split("/")
        seeds = stored.get(f"{kind}/seed", ())
        old = [at for at, seed in enumerate(seeds) if seed not in values.get(f"{kind}/seed", seeds)]
        if old and what in ("untrained", "idle alarms", "idle"):
            continue
        if old and key in stored:
            numbers = [stored[key][at] for at in old] + numbers
        elif old and what in ("agreement", "rule"):
            joined[key.removesuffix(what).replace("/means/", "/").replace("/resampled/", "/") + "seed"] = values[
                f"{kind}/seed"
            ]
        joined[key] = numbers
    return joined


def runs_in(folder: Path) -> list[dict[str, Any]]:
    runs = [json.loads(path.read_text()) for path in folder.glob("*_*.json")]
    return sorted(runs, key=lambda run: (run["kind"], run["seed"]))


def table(values: Mapping[str, Sequence[float]]) -> str:
    """By kind of model, each measure's mean agreement with the truth and how many models it names, the best first."""
    lines = []
    for kind in MODELS:
        keys = {name: values.get(f"{kind}/means/{name}/agreement", ()) for name in MEASURES}
        found = sorted((name for name in keys if keys[name]), key=lambda name: -statistics.fmean(keys[name]))
        if found:
            lines.append(f"{kind}, {len(keys[found[0]])} models{'':12} agrees  named  passes")
        for name in found:
            named = sum(values[f"{kind}/means/{name}/named"])
            lines.append(f"  {name:24} {statistics.fmean(keys[name]):6.2f} {named:6.0f} {PASSES[name]:7}")
    return "\n".join(lines)


def store(folder: Path) -> None:
    values = with_stored(pooled(runs_in(folder)), read("head_benchmark").values)
    seeds = {int(seed) for kind in MODELS for seed in values.get(f"{kind}/seed", [])}
    results.store("head_benchmark", sorted(seeds), values, 3)


def main() -> None:
    given = results.run_arguments(__doc__)
    if given.store:
        store(given.folder)
        return
    torch.set_num_threads(1)
    for kind, seed in itertools.product(reversed(MODELS), range(given.seeds)):
        path = given.folder / f"{kind}_{seed}.json"
        weights = path.with_suffix(".safetensors")
        if path.exists() and set(MEASURES) <= set(json.loads(path.read_text())["scores"]):
            continue  # a measure that is new is asked of the models that are there
        begun = time.perf_counter()
        if weights.exists():
            model = new_model(kind, seed)
            model.load_state_dict(load_file(weights))
        else:
            model = train(kind, seed)
            save_file({name: value.contiguous() for name, value in model.state_dict().items()}, weights)
        trained = time.perf_counter()
        path.write_text(json.dumps(examine(kind, seed, model)))
        print(kind, seed, f"{trained - begun:.0f} s + {time.perf_counter() - trained:.0f} s", flush=True)
    print(table(pooled(runs_in(given.folder))))


if __name__ == "__main__":
    main()
