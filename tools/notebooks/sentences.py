"""Numbers in the sentences of a chapter that a reader can drag, and those that follow: what is stored must be computed.

A Markdown cell holds them as plain spans, which Jupyter, Colab and a page without JavaScript show as the bare number:

    at temperature <span class="drag" data-of="AttentionPlayground" data-trait="temperature">1</span> the largest weight
    is <span class="follows" data-of="AttentionPlayground" data-value="largest weight">0.65</span>

`data-of` names the first instrument of that class on the page, or one of FORMULAS, whose numbers belong to one
paragraph or entry of a list. `mhalib/widgets/sentences.js` wakes them on the built page; here the same is computed in
Python.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mhalib import costs, widgets
from mhalib.widgets.cost_calculator import in_words

SPAN = re.compile(r"<span\b(?P<attributes>[^<>]*)>(?P<text>[^<>]*)</span>")
ATTRIBUTE = re.compile(r'\s+([\w-]+)="([^"]*)"')
KEYS = {"drag": {"class", "data-of", "data-trait"}, "follows": {"class", "data-of", "data-value"}}
BLOCK = re.compile(r"\n\s*\n|^\s*(?:[-*]|\d+\.) ", re.MULTILINE)
WHOLE = re.compile(r"[-−]?\d[\d,]*")
STORED = re.compile(r'data-script="(\w+)".*?<script type="application/json">(.*?)</script>', re.DOTALL)


@dataclass(frozen=True)
class Span:
    """A number in a sentence: `kind` is drag or follows, `name` the trait or the result."""

    kind: str
    of: str
    name: str
    text: str


@dataclass(frozen=True)
class Formula:
    """Variables with their bounds, and what follows from them."""

    variables: dict[str, tuple[int, int]]
    results: Callable[[Mapping[str, int]], dict[str, str]]


def _of_scores(values: Mapping[str, int]) -> dict[str, str]:
    """Products of q and k with d independent numbers of variance 1: their size, and that of a difference of two."""
    d = values.get("d", 1)
    difference = math.sqrt(2 * d)
    number, *step = in_words(float(f"{math.exp(difference):.2g}")).split()
    return {
        "typical score": f"{math.sqrt(d):.3g}",
        "difference": f"{difference:.4g}",
        "ratio": " ".join([f"{float(number.replace(',', '')):,g}", *step]),
    }


def _of_layer(values: Mapping[str, int]) -> dict[str, str]:
    """A layer of width D with h heads, for N tokens of one example. What is not asked for may be missing: 1."""
    D, h, N = (values.get(name, 1) for name in "DhN")
    sizes = costs.Sizes(D, 1)  # nothing but the weights depends on h
    pairs = costs.pair_flops(sizes, N)
    return {
        "d": f"{D // h:,}" if D % h == 0 else "no whole number",
        "parameters": f"{costs.parameters(sizes):,}",
        "FLOPs": f"{costs.flops(sizes, N):,}",
        "weights": f"{h * N * N:,}",
        "projections": in_words(costs.flops(sizes, N) - pairs),
        "scores and average": in_words(pairs),
    }


def _of_average(values: Mapping[str, int]) -> dict[str, str]:
    """What one head brings back of three nouns, with w percent of its weight on the first of a sentence.

    A readout that multiplies each share by f says the noun with the largest score.
    """
    w, f = values.get("w", 0), values.get("f", 1)
    told = []
    for sentence, dog in (("dog bites man", w), ("man bites dog", 100 - w)):
        scores = {"dog": f * dog, "man": f * (100 - dog), "cat": 0}
        best = [noun for noun, score in scores.items() if score == max(scores.values())]
        result = "a tie" if len(best) > 1 else f"{best[0]} wins"
        told.append(f"{sentence}: dog {dog / 100:.2f}, man {(100 - dog) / 100:.2f}, cat 0, {result}")
    return {"winners": "; ".join(told)}


def _of_rotation(values: Mapping[str, int]) -> dict[str, str]:
    """A query at position t and a key at j, both the arrow (1, 0) in each of four pairs, turned by rotary positions.

    `apart` is the angle between them in each pair, 180° at most.
    """
    t, j = (values.get(name, 0) for name in "tj")
    score = sum(math.cos((t - j) * 10.0**-pair) for pair in range(4)) / math.sqrt(8)
    turned = [math.floor(math.degrees(abs(t - j) * 10.0**-pair) + 0.5) % 360 for pair in range(4)]
    apart = ", ".join(f"{min(angle, 360 - angle)}°" for angle in turned)
    return {"apart": apart, "score": f"{score:.3f}".replace("-", "−")}


def _of_passes(values: Mapping[str, int]) -> dict[str, str]:
    """N answers of a decoder: how many tokens go through it in one pass, and in a pass for each of them."""
    N = values.get("N", 1)
    return {"once": f"{N:,}", "again": f"{N * (N + 1) // 2:,}"}


FORMULAS = {
    "scores": Formula({"d": (1, 1024)}, _of_scores),
    "average": Formula({"w": (0, 100), "f": (-4, 4)}, _of_average),
    "rotation": Formula({"t": (0, 200), "j": (0, 200)}, _of_rotation),
    "passes": Formula({"N": (1, 65_536)}, _of_passes),
    "layer": Formula({"D": (1, 65_536), "h": (1, 1024), "N": (1, 1_048_576)}, _of_layer),
}


def written(value: float) -> str:
    """As a sentence has it: 2,048, 0.5 and −2."""
    text = f"{value:,}" if isinstance(value, int) else f"{round(value, 3):,g}"
    return text.replace("-", "−")


def spans(markdown: str) -> list[Span]:
    """The dragged and following numbers of a text, in order.

    Raises:
        ValueError: a span of one of these classes lacks an attribute, has another, or stands for a formula within a
            formula of TeX or a title.
    """
    found = []
    for span in SPAN.finditer(markdown):
        attributes = dict(ATTRIBUTE.findall(span["attributes"]))
        kind = attributes.get("class", "")
        if kind not in KEYS:
            continue
        if set(attributes) != KEYS[kind]:
            raise ValueError(f"{span[0]}: a span of class {kind} has {', '.join(sorted(KEYS[kind]))} and nothing else")
        name = attributes["data-trait" if kind == "drag" else "data-value"]
        found.append(Span(kind, attributes["data-of"], name, span["text"]))
    if len(found) != len(re.findall(r'class="(?:drag|follows)"', markdown)):
        raise ValueError(f"a number in a sentence is not written as one span: {markdown!r:.300}")
    return found


def blocks(markdown: str) -> Iterator[list[Span]]:
    """The numbers of each paragraph or entry of a list, where it has some."""
    for block in BLOCK.split(markdown):
        if found := spans(block):
            yield found


def instruments(cells: Sequence[Mapping[str, Any]]) -> dict[str, widgets.Instrument]:
    """The first instrument of each class that a page shows, as it is stored."""
    made: dict[str, widgets.Instrument] = {}
    shown = (cell for cell in cells if "remove-cell" not in cell.get("metadata", {}).get("tags", []))
    for output in (output for cell in shown for output in cell.get("outputs", [])):
        for script, state in STORED.findall("".join(output.get("data", {}).get("text/html", ""))):
            if script not in made and getattr(widgets, script).results is not widgets.Instrument.results:
                made[script] = getattr(widgets, script)(**json.loads(state))
    return made


def unconfirmed(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for each number of a page that is not what its instrument or formula computes."""
    shown = instruments(cells)
    wrong = []
    for cell in cells:
        if cell["cell_type"] == "markdown":
            for block in blocks("".join(cell["source"])):
                wrong += [found for span in block if (found := _problem(span, block, shown))]
    return wrong


def _problem(span: Span, block: Sequence[Span], shown: Mapping[str, widgets.Instrument]) -> str | None:
    """What is wrong with a number, or `None`."""
    where = f"{span.of}, {span.name}, stored {span.text!r}"
    if span.of in FORMULAS:
        formula = FORMULAS[span.of]
        dragged = {one.name: one.text for one in block if one.kind == "drag" and one.of == span.of}
        whole = {name: text for name, text in dragged.items() if WHOLE.fullmatch(text)}
        numbers = {name: int(text.replace("−", "-").replace(",", "")) for name, text in whole.items()}
        if numbers.keys() != dragged.keys() or not dragged.keys() <= formula.variables.keys():
            return f"{where}: the sentence drags {dragged}, but the variables are {', '.join(formula.variables)}"
        outside = [name for name, (low, high) in formula.variables.items() if not low <= numbers.get(name, low) <= high]
        if outside:
            return f"{where}: {outside[0]} is outside its bounds {formula.variables[outside[0]]}"
        known = {name: written(number) for name, number in numbers.items()}
        if span.kind == "follows":
            known = formula.results(numbers)
    elif span.of in shown:
        instrument = shown[span.of]
        traits = {name: value for name, value in instrument.state().items() if type(value) in (int, float)}
        known = {name: written(value) for name, value in traits.items()}
        if span.kind == "follows":
            known = instrument.results()
    else:
        return f"{where}: no such instrument with results on the page, and no formula: {', '.join(FORMULAS)}"
    if span.name not in known:
        return f"{where}: there is no such name among {', '.join(known)}"
    return None if known[span.name] == span.text else f"{where}, computed {known[span.name]!r}"
