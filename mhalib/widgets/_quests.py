"""Questions beside a live model that tick themselves off. A goal is data, so that Python and the page judge alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._validate import require_kind, require_text
from ._live_deeds import OF_ALL, applied
from ._live_tasks import Questions, Task

GOALS = (
    "says", "unchanged", "least_off", "most_off", "most_rows", "most_cells", "others_right_at_most", "wrong_at_least",
    "witness",
)  # fmt: skip


@dataclass(frozen=True)
class Quest:
    """What a reader is to bring about with a stored model.

    text: the question, one sentence.
    model: the name of the stored model.
    input: what the model reads.
    goal: conditions that must all hold, by name:
        says: the whole answer is this text.
        unchanged: `True`: the answer is the one that the model was trained to give.
        least_off, most_off: how many heads are off.
        most_rows: how many queries have weights that were moved.
        most_cells: how many cells of mixing matrices were moved; without it, none may be.
        others_right_at_most: how many of the twelve other inputs are right.
        wrong_at_least: how many words or symbols of the answer are not the trained ones.
        witness: a head and the number of a question that has one answer for all words of a sentence. Of the two heads
            that are off it is one, and the other is a witness, as `has_witness` says.
        Deeds that `most_rows` and `most_off` do not count (frozen, patch, positions) are not allowed in any quest.
    solution: deeds that meet the goal.
    is_own: whether a reader writes the input. `input` is then one that will do.

    Raises:
        TypeError, ValueError: a text is no string, or the goal has a condition that is not known.
    """

    text: str
    model: str
    input: str
    goal: Mapping[str, Any]
    solution: Mapping[str, Any]
    is_own: bool = False

    def __post_init__(self) -> None:
        for name in ("text", "model", "input"):
            require_text(name, getattr(self, name))
        require_kind("goal", self.goal, Mapping)
        for name, value in self.goal.items():
            wanted = {"says": str, "unchanged": bool, "witness": tuple}.get(name, int)
            if name not in GOALS:
                raise ValueError(f"goal has {name!r:.80}, but known are {', '.join(GOALS)}")
            require_kind(f"goal[{name!r}]", value, wanted)


@dataclass(frozen=True)
class Facts:
    """What a goal asks of a model under deeds.

    said: the whole answer. wrong: how many words or symbols of it are not the trained ones.
    others_right: how many of the twelve other inputs are right. has_witness: of a goal that asks for one.
    """

    said: str
    wrong: int
    others_right: int
    has_witness: bool = False


def is_met(goal: Mapping[str, Any], deeds: Mapping[str, Any], facts: Facts) -> bool:
    """Whether all conditions of a goal hold. `questMet` of live_state.js is the same."""
    of_heads = [deed for name, deed in deeds.items() if name not in OF_ALL]
    cells = sum(len(deed.get(key, {})) for deed in of_heads for key in ("scores", "weights"))
    off = sum("off" in deed for deed in of_heads)
    moved = sum(len(deed.get("rows", {})) for deed in of_heads)
    if (
        cells > goal.get("most_cells", 0)
        or not deeds.keys().isdisjoint(OF_ALL)
        or any("frozen" in deed or "patch" in deed for deed in of_heads)
    ):
        return False
    held = {
        "says": facts.said == goal.get("says"),
        "unchanged": (facts.wrong == 0) == goal.get("unchanged"),
        "least_off": off >= goal.get("least_off", 0),
        "most_off": off <= goal.get("most_off", off),
        "most_rows": moved <= goal.get("most_rows", moved),
        "most_cells": True,
        "others_right_at_most": facts.others_right <= goal.get("others_right_at_most", facts.others_right),
        "wrong_at_least": facts.wrong >= goal.get("wrong_at_least", 0),
        "witness": facts.has_witness,
    }
    return all(held[name] for name in goal)


def has_witness(
    task: Task, witness: tuple[str, int], deeds: Mapping[str, Any], units: list[str], answer: list[str]
) -> bool:
    """Whether a word was told its answer by the second of two heads that are off. With the first off alone, the word
    answers rightly, and the second gives what it names more than half of its weight; with both off, it is wrong."""
    head, question = witness
    off = [name for name, deed in deeds.items() if isinstance(deed, Mapping) and deed.get("off")]
    right = task.right(units) if isinstance(task, Questions) else None
    if head not in off or len(off) != 2 or right is None:
        return False
    (kind, layer, number) = next(name for name in off if name != head).rsplit(" ", 2)
    with applied(task, {head: {"off": True}}, units):
        alone = task.run(units)
    looks = alone.weights[kind][int(layer)][0, int(number), :, units.index(right[question])] > 0.5
    places = range(question, len(right), len(right) // len(units))
    return any(bool(looks[word]) and alone.answer[i] == right[i] != answer[i] for word, i in enumerate(places))


COW = "the white cow sees the black dog"
FOURTEEN = (
    "encoder self 0 0", "encoder self 0 1", "encoder self 0 2", "encoder self 0 3", "encoder self 1 0",
    "encoder self 1 2", "encoder self 1 3", "decoder self 0 3", "decoder self 1 2", "decoder self 1 3",
    "cross 0 0", "cross 0 1", "cross 1 0", "cross 1 2",
)  # fmt: skip
"""Heads that the cow's sentence does without, and the twelve others do not."""

FOX = "the clever fox sees my hungry young bear"
NO_VERB = (
    "the farmer fox finds the farmer fox finds clever today fox finds fox helps fox likes "
    "follows my fox hungry my fox fox small hungry fox fox hears young this fox hears"
)
"""What the reader answers without heads 1 and 2, word by word: previous word, next word, subject and verb."""
ONLY_VERB = " ".join(["sees sees tall sees"] * 6 + ["sees sees this sees", "sees sees tall sees"])
"""What it answers with head 2 alone."""
TOO_FAR = (
    "the clever fox sees the fox fox sees clever sees fox sees fox my fox sees "
    "sees hungry fox sees my young fox sees hungry bear fox sees hungry bear fox sees"
)
"""What it should, but for the previous word of the last, which is the word before that."""


def silent_cells(num_heads: int) -> dict[str, int]:
    """The cells of a mixing matrix with which so many heads do not talk."""
    return {f"{n} {m}": int(n == m) for n in range(num_heads) for m in range(num_heads)}


QUESTS = {
    "le vache": Quest(
        text="Turn one look of one head, so that it says “le vache blanche voit le chien noir”.",
        model="translator",
        input=COW,
        goal={"says": "le vache blanche voit le chien noir", "most_rows": 1, "most_off": 0},
        solution={"encoder self 1 2": {"rows": {"0": [0, 0, 0, 0, 0, 0, 1]}}},
    ),
    "as many as you can": Quest(
        text="Switch off at least 12 heads without changing this sentence.",
        model="translator",
        input=COW,
        goal={"unchanged": True, "least_off": 12, "most_rows": 0},
        solution={head: {"off": True} for head in FOURTEEN},
    ),
    "the others": Quest(
        text="Do that, and look at the other sentences: at most 3 of 12 are still right.",
        model="translator",
        input=COW,
        goal={"unchanged": True, "least_off": 12, "most_rows": 0, "others_right_at_most": 3},
        solution={head: {"off": True} for head in FOURTEEN},
    ),
    "stop the copier": Quest(
        text="Stop the copying with two heads: at least 6 of its 9 right symbols must become wrong.",
        model="repeater",
        input="kwcapkwcapkwcap",
        goal={"wrong_at_least": 6, "most_off": 2, "most_rows": 0},
        solution={f"decoder self 0 {head}": {"off": True} for head in (0, 1)},
    ),
    "the last witness": Quest(
        text="With head 2 off, only “fox” knows the verb. Switch off one more head, so that no word does.",
        model="reader",
        input=FOX,
        goal={"says": NO_VERB, "most_off": 2, "most_rows": 0},
        solution={f"encoder self 0 {head}": {"off": True} for head in (1, 2)},
    ),
    "one is enough": Quest(
        text="Leave a single head on, so that every word still knows the verb.",
        model="reader",
        input=FOX,
        goal={"says": ONLY_VERB, "least_off": 3, "most_rows": 0},
        solution={f"encoder self 0 {head}": {"off": True} for head in (0, 1, 3)},
    ),
    "one word too far": Quest(
        text="With one click, make “bear” say that its previous word is “hungry”. (Which head looks one word back?)",
        model="reader",
        input=FOX,
        goal={"says": TOO_FAR, "most_off": 0, "most_rows": 1},
        solution={"encoder self 0 3": {"rows": {"7": [0, 0, 0, 0, 0, 1, 0, 0]}}},
    ),
    "a witness of your own": Quest(
        text="Write a sentence in which, with head 0 off, some word still names its subject. Then switch off the head "
        "that told it.",
        model="reader",
        input="the dog finds your pilot",
        goal={"witness": ("encoder self 0 0", 2), "least_off": 2, "most_off": 2, "most_rows": 0},
        solution={f"encoder self 0 {head}": {"off": True} for head in (0, 3)},
        is_own=True,
    ),
    "one layer is silent": Quest(
        text="Stop the talking in one of the two layers, so that all 9 right symbols become wrong.",
        model="talker",
        input="kwcapkwcapkwcap",
        goal={"wrong_at_least": 9, "most_off": 0, "most_rows": 0, "most_cells": 128},
        solution={"decoder self 1": dict.fromkeys(("scores", "weights"), silent_cells(8))},
    ),
    "one number": Quest(
        text="Move one number of one matrix, so that at least 4 of the 9 right symbols become wrong.",
        model="talker",
        input="kwcapkwcapkwcap",
        goal={"wrong_at_least": 4, "most_off": 0, "most_rows": 0, "most_cells": 1},
        solution={"decoder self 0": {"weights": {"0 0": -2}}},
    ),
}
"""The quests of the book, by the name that `LiveModel(quests=[...])` takes."""
