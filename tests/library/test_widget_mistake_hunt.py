"""The hunt for a mistake: who is left after some checks, what a layer passes, and what is refused."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest
import traitlets

from mhalib.widgets import MistakeHunt

MISTAKES = ["split", "swap", "scale"]
CATCHES = {"alone": ["swap"], "ones": ["swap", "split"], "loop": MISTAKES}


def hunt(**settings: Any) -> MistakeHunt:
    return MistakeHunt(CATCHES, MISTAKES, **settings)


@pytest.mark.parametrize("seed", range(20))
def test_who_is_left_does_in_all_checks_what_the_layer_does(seed: int) -> None:
    """By names and whole reports, as a reader would go through a table on paper."""
    rng = random.Random(seed)
    mistakes = [f"mistake {m}" for m in range(rng.randint(2, 12))]
    checks = [f"check {c}" for c in range(rng.randint(1, 12))]
    caught = {check: {name for name in mistakes if rng.random() < 0.5} for check in checks}
    turns = rng.sample(mistakes, len(mistakes))
    made = MistakeHunt({check: list(found) for check, found in caught.items()}, mistakes, order=turns)
    for layer, broken in enumerate(turns):
        made.layer = layer
        assert {check: not made.passes(check) for check in checks} == {c: broken in caught[c] for c in checks}
        run = rng.sample(range(len(checks)), rng.randint(0, len(checks)))
        made.done = run
        report = {name: [name in caught[checks[c]] for c in run] for name in mistakes}
        assert made.left() == [name for name in mistakes if report[name] == report[broken]]


def test_one_is_left_in_the_end_whoever_it_is_and_however_one_asks() -> None:
    for layer, run in itertools.product(range(3), itertools.permutations(range(3))):
        made = hunt(layer=layer, done=run)
        assert made.left() == [MISTAKES[layer]]
        counts = [len(hunt(layer=layer, done=run[:n]).left()) for n in range(4)]
        assert counts[0] == 3
        assert counts == sorted(counts, reverse=True)


def test_layers_come_in_order_and_the_first_after_the_last() -> None:
    made = hunt(order=["scale", "split", "swap"])
    assert made.order == [2, 0, 1]
    assert (made.passes("alone"), made.passes("loop")) == (True, False)
    made.layer = 5
    assert made.layer == 2
    assert not made.passes("alone")


def test_another_layer_begins_without_checks() -> None:
    made = hunt(layer=1, done=[2, 0], struck=[0])
    assert (made.layer, made.done, made.struck) == (1, [2, 0], [0])
    made.layer = 4  # the same one
    assert (made.done, made.struck) == ([2, 0], [0])
    made.layer = 2
    assert (made.done, made.struck) == ([], [])
    assert made.left() == MISTAKES


def test_the_state_makes_the_same_hunt_and_a_page_can_send_one() -> None:
    made = hunt(order=["swap", "scale", "split"], caption="Who?", about={"alone": "One.", "scale": "None."}, layer=1)
    made.done, made.struck = [1], [1, 0]
    state = json.loads(json.dumps(made.state()))
    names = state["mistakes"]
    assert (names, state["checks"], state["catches"]) == (MISTAKES, list(CATCHES), [[1], [0, 1], [0, 1, 2]])
    assert (state["caption"], state["about"]) == ("Who?", {"alone": "One.", "scale": "None."})
    again = MistakeHunt(
        {check: [names[m] for m in found] for check, found in zip(state["checks"], state["catches"], strict=True)},
        names,
        order=[names[m] for m in state["order"]],
        **{name: state[name] for name in ("caption", "about", "layer", "done", "struck")},
    )
    assert again.state() == state
    assert again.left() == ["scale"]
    again.set_state({"layer": 2, "done": []})
    assert (again.layer, again.done, again.left()) == (2, [], MISTAKES)
    again.set_state({"done": [0, 2]})
    assert again.left() == ["split", "scale"]


def test_the_table_says_which_check_catches_which_mistake() -> None:
    caption, header, rows = MistakeHunt({"none": [], "all": ["a", "b"], "b\n": ["b"]}, ["a", "b"], caption="x").table()
    assert (caption, header) == ("x", ["check", "a", "b"])
    assert rows == [["none", "–", "–"], ["all", "catches", "catches"], ["b\\n", "–", "catches"]]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"mistakes": "swap"}, TypeError, "mistakes must be a list, got str"),
        ({"mistakes": [*MISTAKES, 3]}, TypeError, "each of mistakes must be a string, got int"),
        ({"mistakes": ["a"]}, ValueError, "mistakes must be 2 to 12 different names, got 1"),
        ({"mistakes": list("abcdefghijklm")}, ValueError, "mistakes must be 2 to 12 different names, got 13"),
        ({"mistakes": [*MISTAKES, "swap"]}, ValueError, "got 4, 3 different"),
        ({"mistakes": [*MISTAKES, " "]}, ValueError, "must have names that are seen, got an empty one"),
        ({"catches": [("alone", [])]}, TypeError, "catches must be a Mapping, got list"),
        ({"catches": {}}, ValueError, "catches must be 1 to 12 different names, got 0"),
        (
            {"catches": dict.fromkeys("abcdefghijklm", ())},
            ValueError,
            "catches must be 1 to 12 different names, got 13",
        ),
        ({"catches": {1: []}}, TypeError, "each of catches must be a string, got int"),
        ({"catches": {"": []}}, ValueError, "must have names that are seen, got an empty one"),
        ({"catches": {"a\n": [], "a\\n": []}}, ValueError, "got 2, 1 different"),
        ({"catches": {"alone": "swap"}}, TypeError, r"catches\['alone'\] must be a list, got str"),
        ({"catches": {"alone": [1]}}, TypeError, r"each of catches\['alone'\] must be a string, got int"),
        (
            {"catches": {"alone": ["merge"]}},
            ValueError,
            r"each of catches\['alone'\]='merge' must be one of \('split',",
        ),
        ({"order": ["swap", "scale"]}, ValueError, r"order=\['swap', 'scale'\] must have each of mistakes="),
        ({"order": [*MISTAKES, "merge"]}, ValueError, "'merge'] must have each of mistakes="),
        ({"order": ["swap", "swap", "scale"]}, ValueError, "order must be 1 to 12 different names, got 3, 2 different"),
        ({"order": 3}, TypeError, "order must be a list, got int"),
        ({"caption": None}, TypeError, "caption must be a str, got NoneType"),
        ({"about": 0}, TypeError, "about must be a Mapping, got int"),
        ({"about": {"merge": "text"}}, ValueError, "a key of about='merge' must be one of"),
        ({"about": {"alone": 3}}, TypeError, r"about\['alone'\] must be a string, got int"),
        ({"layer": -1}, ValueError, "layer=-1 must be at least 0"),
        ({"layer": "1"}, TypeError, "layer must be an integer, got str"),
        ({"layer": True}, TypeError, "layer must be an integer, got bool"),
        ({"done": 1}, TypeError, "done must be a list, got int"),
        ({"done": [3]}, ValueError, r"done=\[3\] must hold numbers below 3, each at most once"),
        ({"done": [-1]}, ValueError, "each of done=-1 must be at least 0"),
        ({"done": [0, 0]}, ValueError, r"done=\[0, 0\] must hold numbers below 3, each at most once"),
        ({"done": ["alone"]}, TypeError, "each of done must be an integer, got str"),
        ({"done": [True]}, TypeError, "each of done must be an integer, got bool"),
        ({"struck": "012"}, TypeError, "struck must be a list, got str"),
        ({"struck": [3]}, ValueError, r"struck=\[3\] must hold numbers below 3, each at most once"),
        ({"struck": [1, 1]}, ValueError, r"struck=\[1, 1\] must hold numbers below 3, each at most once"),
        ({"struck": [1.0]}, TypeError, "each of struck must be an integer, got float"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(change: dict[str, Any], error: type[Exception], message: str) -> None:
    given = {"catches": CATCHES, "mistakes": MISTAKES} | change
    with pytest.raises(error, match=message):
        MistakeHunt(given.pop("catches"), given.pop("mistakes"), **given)


def test_what_does_not_fit_is_refused_later_too_and_changes_nothing() -> None:
    made = hunt(layer=1, done=[0])
    for name, value, message in (
        ("done", [0, 7], r"done=\[0, 7\] must hold numbers below 3"),
        ("done", [True], "each of done must be an integer"),
        ("done", 0, "done"),
        ("struck", [0, 7], r"struck=\[0, 7\] must hold numbers below 3"),
        ("struck", [-1], "each of struck=-1 must be at least 0"),
        ("layer", -2, "layer=-2 must be at least 0"),
        ("layer", 1.5, "layer"),
    ):
        with pytest.raises((TypeError, ValueError, traitlets.TraitError), match=message):
            setattr(made, name, value)
        assert (made.layer, made.done) == (1, [0])
    with pytest.raises(ValueError, match="check='merge' must be one of"):
        made.passes("merge")
