"""Whom does a sentence mean? Indirect objects in SmolLM2, head by head and layer by layer, measured and stored.

    python -m tools.evidence.real_ioi

*When Mary and John went to the store, John gave a drink to* asks for the name that is not repeated (Wang et al. 2022).
Six templates choose heads, six others with other names measure them; of each 16 prompts, in half of which the repeated
name comes first. A run of the file is a template. mhalib/results/smollm2_ioi.json has a number of each, with the hash
of the weights.

The analysis, written down before it was run (that the task is solved, and that head (23, 3) looks at the repeated name
and lowers it, was known from other prompts):

1. *The task.* The lead of the right name over the repeated one, in logits, and how often it leads, or leads all
   words. Controls: a third name in place of the repeated one, where the lead of the name that comes first over the
   other says how much is place alone ("third"), and the lead on prompts whose three names are others ("others").
2. *What each head adds* to the lead at the last token: its output times the columns of W_o, the last norm with the
   prompt's own scale, the readout. The three heads that add most, and the two that take most away, on the choosing
   prompts, are measured on the others.
3. *What they do:* weight on the right name and on both places of the repeated one, and what their value there does to
   the logit of that same name, less the mean over 15 other names ("own"). Negative is anti-copying. Control: the median
   of all heads of layers 20 to 27.
4. *Switched off:* a head gives what it gives on a prompt with three other names, the same template (the way of Wang et
   al., but one prompt in place of a mean). Each chosen head, the three together, as many heads drawn from the same
   layers without them (10 draws), and the two that take away.
5. *The lens:* after each layer, what the last norm and the readout make of the last token: the lead, and how often the
   right name leads all words. Control: the same on "third", as the lead of the first name. Added after the numbers were
   seen, since the norm divides each layer by another length: the lead with the last layer's scale ("written"), in which
   what layers add is a sum.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mhalib import Head, pretrained
from mhalib.measures import head_outputs, patched
from mhalib.pretrained import WHEELS
from tools.evidence import results

NAME, KIND = "smollm2-135m", "decoder self"
CHOOSING = (
    "When{0} and{1} went to the store,{2} gave a drink to",
    "After{0} and{1} had lunch at the school,{2} handed a letter to",
    "Then{0} and{1} worked in the garden, and{2} passed a spade to",
    "While{0} and{1} were at the station,{2} showed a map to",
    "Yesterday{0} and{1} met at the harbour, and{2} sold a boat to",
    "Once{0} and{1} got to the hospital,{2} offered a chair to",
)
MEASURING = (
    "When{0} and{1} arrived at the office,{2} gave a report to",
    "After{0} and{1} left the museum,{2} sent a picture to",
    "Then{0} and{1} sat in the kitchen, and{2} handed a plate to",
    "While{0} and{1} walked along the river,{2} threw a ball to",
    "Last week{0} and{1} came to the farm, and{2} brought a basket to",
    "Because{0} and{1} were friends,{2} lent a book to",
)
CHOOSING_NAMES = " Mary John Tom Anna James Sarah David Laura Peter Emma Paul Alice Mark Jane Robert Susan"
MEASURING_NAMES = " Daniel Rachel Kevin Lisa Simon Julia Adam Helen Martin Kate Jack Lucy Michael Emily Charles Grace"
PROMPTS, MOST, LEAST, DRAWS = 16, 3, 2, 10
LATE = range(20, 30)


class Asked(NamedTuple):
    """Prompts of one template. tokens, third, others: (B, N), with the name repeated, with a third one there, and with
    three other names; right, wrong: (B,) ids of the two names; places: (B, 3), of the right name, and of the repeated
    one, first and second time; names: (16,) ids."""

    tokens: Tensor
    third: Tensor
    others: Tensor
    right: Tensor
    wrong: Tensor
    places: Tensor
    names: Tensor


def asked(loaded: Any, template: str, names: str, seed: int) -> Asked:
    """16 prompts of a template; in every second one the repeated name comes first."""
    words = [f" {name}" for name in names.split()]
    ids = {word: loaded.tokenizer.encode(word).ids for word in words}
    if any(len(of_word) != 1 for of_word in ids.values()):
        raise ValueError("every name must be one token")
    rng, rows = random.Random(seed), []
    for number in range(PROMPTS):
        a, b, c, *three = rng.sample(words, 6)
        last = a if number % 2 else b
        texts = [template.format(*of) for of in ((a, b, last), (a, b, c), three)]
        tokens, third, others = (loaded.tokenizer.encode(text).ids for text in texts)
        (wrong,), (right,) = ids[last], ids[b if number % 2 else a]
        rows.append([tokens, third, others, right, wrong, [tokens.index(right), *find(tokens, wrong)]])
    every = torch.tensor([of_word[0] for of_word in ids.values()])
    tokens, third, others, right, wrong, places = (torch.tensor(column) for column in zip(*rows, strict=True))
    return Asked(tokens, third, others, right, wrong, places, every)


def find(tokens: list[int], wanted: int) -> list[int]:
    return [place for place, token in enumerate(tokens) if token == wanted]


def lead(logits: Tensor, one: Tensor, other: Tensor) -> Tensor:
    """Of logits (B, words), one word's over another's, (B,)."""
    return (logits.gather(1, one[:, None]) - logits.gather(1, other[:, None]))[:, 0]


class Read(NamedTuple):
    """One pass. logits (B, words) at the last token; after (layers, B, D), the last token's vector behind each layer;
    outputs and weights, by layer what heads give, (B, h, N, d), and the last token's row, (B, h, N)."""

    logits: Tensor
    after: Tensor
    outputs: list[Tensor]
    weights: list[Tensor]


@torch.no_grad()
def read(model: Any, tokens: Tensor) -> Read:
    after: list[Tensor] = []
    with ExitStack() as stack:
        for layer in model.decoder.layers:
            hook = layer.register_forward_hook(lambda _, inputs, result: after.append(result[0][:, -1]))
            stack.callback(hook.remove)
        outputs = stack.enter_context(head_outputs(model))
        logits, weights = model(tokens, need_weights=True)
    return Read(logits[:, -1], torch.stack(after), outputs[KIND], [w[:, :, -1] for w in weights[KIND]])


def readout(model: Any, vectors: Tensor, scale: Tensor) -> Tensor:
    """The last norm with a given scale, (B, 1), and the readout: (..., B, D) -> (..., B, words)."""
    return vectors * scale * model.decoder.norm.weight @ model.tokens.embedding.weight.T


@torch.no_grad()
def of_heads(model: Any, one: Read, question: Asked) -> Tensor:
    """What each head adds to the lead at the last token, (layers, h), as a mean over prompts."""
    scale = (one.after[-1].square().mean(-1, keepdim=True) + model.decoder.norm.eps).rsqrt()
    words = model.tokens.embedding.weight
    wanted = (words[question.right] - words[question.wrong]) * model.decoder.norm.weight * scale  # (B, D)
    found = []
    for layer, outputs in zip(model.decoder.layers, one.outputs, strict=True):
        columns = layer.attention.W_o.weight.unflatten(1, (outputs.shape[1], -1))  # (D, h, d)
        found.append(torch.einsum("bhe,dhe,bd->h", outputs[:, :, -1], columns, wanted) / len(wanted))
    return torch.stack(found)


@torch.no_grad()
def own_name(model: Any, one: Read, question: Asked, layer: int, head: int, values: Tensor) -> Tensor:
    """What reading the repeated name's second place adds to that name's logit, less the mean of 15 others, (B,).

    values: (B, N, groups of keys * d), what the layer's W_v gave.
    """
    attention = model.decoder.layers[layer].attention
    columns = attention.W_o.weight.unflatten(1, (attention.num_heads, -1))[:, head]  # (D, d)
    group = head * attention.num_kv_heads // attention.num_heads
    own = values.unflatten(-1, (attention.num_kv_heads, -1))[:, :, group]  # (B, N, d)
    at = own[torch.arange(len(own)), question.places[:, 2]] @ columns.T
    scale = (one.after[-1].square().mean(-1, keepdim=True) + model.decoder.norm.eps).rsqrt()
    logits = readout(model, at, scale)[:, question.names]  # (B, 16)
    is_own = question.names == question.wrong[:, None]
    return logits[is_own] - logits[~is_own].view(len(logits), -1).mean(1)


def values_of(model: Any, tokens: Tensor) -> list[Tensor]:
    kept: list[Tensor] = []
    with ExitStack() as stack, torch.no_grad():
        for layer in model.decoder.layers:
            hook = layer.attention.W_v.register_forward_hook(lambda _, x, y: kept.append(y))
            stack.callback(hook.remove)
        model(tokens)
    return kept


@torch.no_grad()
def without(model: Any, question: Asked, other: Read, places: list[tuple[int, int]]) -> float:
    """The lead when these heads give what they gave on the prompts with three other names."""
    with patched(model, {KIND: other.outputs}, [Head(KIND, *place) for place in places]):
        logits = model(question.tokens)[0][:, -1]
    return float(lead(logits, question.right, question.wrong).mean())


def one_template(
    model: Any, question: Asked, most: list[tuple[int, int]], least: list[tuple[int, int]]
) -> dict[str, float]:
    """Everything that is stored of one template."""
    one, third, other = (read(model, tokens) for tokens in (question.tokens, question.third, question.others))
    leads = lead(one.logits, question.right, question.wrong)
    is_first = question.places[:, 0] < question.places[:, 1]
    first = torch.where(is_first, question.right, question.wrong)
    second = torch.where(is_first, question.wrong, question.right)
    found = {
        "lead": float(leads.mean()),
        "leads": float((leads > 0).float().mean()),
        "top": float((one.logits.argmax(-1) == question.right).float().mean()),
        "third": float(lead(third.logits, first, second).mean()),
        "others": float(lead(other.logits, question.right, question.wrong).mean()),
    }
    adds, values = of_heads(model, one, question), values_of(model, question.tokens)
    rows = torch.arange(len(leads))[:, None]
    owns = {(n, i): float(own_name(model, one, question, n, i, values[n]).mean()) for n in LATE for i in range(9)}
    for n, i in [*most, *least]:
        on = one.weights[n][rows, i, question.places].mean(0).tolist()
        found |= {f"{part}/{n}.{i}": weight for part, weight in zip(("right", "first", "second"), on, strict=True)}
        found |= {f"adds/{n}.{i}": float(adds[n, i]), f"own/{n}.{i}": owns[n, i]}
        found[f"off/{n}.{i}"] = without(model, question, other, [(n, i)])
    found["own/median"] = float(torch.tensor(list(owns.values())).median())
    found["off/most"] = without(model, question, other, most)
    found["off/least"] = without(model, question, other, least)
    rng = random.Random(0)
    rest = [place for place in owns if place not in most and place not in least]
    draws = [without(model, question, other, rng.sample(rest, MOST)) for _ in range(DRAWS)]
    found |= {"off/drawn": sum(draws) / DRAWS, "off/drawn least": min(draws)}
    scale = (one.after[-1].square().mean(-1, keepdim=True) + model.decoder.norm.eps).rsqrt()
    for layer, (own, of_third) in enumerate(zip(one.after, third.after, strict=True)):
        logits, controls = (model.decoder.norm(x) @ model.tokens.embedding.weight.T for x in (own, of_third))
        found[f"lens/{layer}"] = float(lead(logits, question.right, question.wrong).mean())
        found[f"lens top/{layer}"] = float((logits.argmax(-1) == question.right).float().mean())
        written = readout(model, own, scale)
        found[f"written/{layer}"] = float(lead(written, question.right, question.wrong).mean())
        found[f"lens third/{layer}"] = float(lead(controls, first, second).mean())
    return found


def chosen(model: Any, loaded: Any) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The heads that add most to the lead, and those that take most away, on the choosing prompts."""
    questions = [asked(loaded, template, CHOOSING_NAMES, seed) for seed, template in enumerate(CHOOSING)]
    total = torch.stack([of_heads(model, read(model, question.tokens), question) for question in questions]).sum(0)
    order = [divmod(int(place), total.shape[1]) for place in total.flatten().argsort(descending=True)]
    return order[:MOST], order[: -LEAST - 1 : -1]


def main() -> None:
    loaded = pretrained.load(NAME)
    model = loaded.model.eval()
    most, least = chosen(model, loaded)
    print(most, least, flush=True)
    runs = []
    for seed, template in enumerate(MEASURING):
        with torch.no_grad():
            runs.append(one_template(model, asked(loaded, template, MEASURING_NAMES, 100 + seed), most, least))
        print({name: round(value, 2) for name, value in runs[-1].items() if "lens" not in name}, flush=True)
    told = {"made_by": "python -m tools.evidence.real_ioi", "model": WHEELS[NAME].files[0].sha256}
    results.store("smollm2_ioi", range(len(MEASURING)), results.by_name(runs), 4, **told)


if __name__ == "__main__":
    main()
