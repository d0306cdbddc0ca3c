"""Two mistakes at once are named as two; what nobody has named is told by its relation to what is right."""

import functools
import itertools
import random

import pytest
import torch
from torch.nn import functional as F

from mhalib_classroom.checks import EXERCISES, Exercise
from mhalib_classroom.checks._call import call
from mhalib_classroom.checks._relations import relation

pytestmark = pytest.mark.package


def pairs_of_switches(name):
    """Two single switches of different places, as mistakes, and the reference with both."""
    exercise = EXERCISES[name]
    single = [one for one in exercise.mistakes if isinstance(one.function, functools.partial)]
    single = [one for one in single if len(one.function.keywords) == 1 and one.function.func is exercise.switches]
    for one, other in itertools.combinations(single, 2):
        if not one.function.keywords.keys() & other.function.keywords.keys():
            yield one, other, functools.partial(exercise.switches, **one.function.keywords, **other.function.keywords)


PAIRS = {
    "multi_head": 117,
    "mended_layer": 117,
    "mended_pass": 20,
    "attend": 50,
    "copying_table": 13,
    "sinusoidal_positions": 19,
    "rotate": 23,
    "rounded_keys": 44,
    "config_bytes": 27,
    "recovered_share": 9,
}


@pytest.mark.parametrize(("name", "least"), PAIRS.items())
def test_two_mistakes_at_once_are_named_as_two(name, least):
    exercise, named = EXERCISES[name], 0
    for one, other, both in pairs_of_switches(name):
        finding = exercise.examine(both, 1)
        assert finding.mistake  # where two do together what another one or two do, it is these
        if finding.mistake == f"{one.name}, and {other.name}":
            assert finding.message.startswith(f"two things: {one.message} And {other.message}")
            named += 1
    assert named >= least


def test_every_switch_alone_is_wrong_and_none_is_right():
    """What the search combines is the reference itself."""
    switched = [exercise for exercise in EXERCISES.values() if exercise.switches]
    assert len(switched) >= 27
    for exercise in switched:
        assert exercise.examine(exercise.switches).solved
        own = getattr(exercise.switches, "func", exercise.switches)  # a partial of a partial is one of its function
        assert any(getattr(one.function, "func", None) is own for one in exercise.mistakes), exercise.name


def draw(rng, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(rng.randrange(999)))


def cases(rng):
    for queries, keys, width in ((3, 4, 5), (4, 6, 7), (5, 3, 8)):
        yield {"q": draw(rng, queries, width), "k": draw(rng, keys, width), "seen": draw(rng, queries, keys) > 0}


def weights(q, k, seen):
    return ((q @ k.mT / q.shape[-1] ** 0.5) * seen).softmax(-1)


exercise = Exercise("weights", chapter=1, title="", reference=weights, cases=cases, verified="")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda q, k, seen: weights(q, k, seen).mT, "Its axes -2 and -1 are exchanged"),
        (lambda q, k, seen: weights(q, k, seen) * q.shape[-1] ** 0.5, "times the square root of q.shape[-1]"),
        (lambda q, k, seen: weights(q, k, seen) / len(k), "Every number is the right one divided by k.shape[-2]"),
        (lambda q, k, seen: 3 * weights(q, k, seen), "Every number is 3 times the right one"),
        (lambda q, k, seen: weights(q, k, seen) - 2, "Every number is too small by 2"),
        (lambda q, k, seen: -weights(q, k, seen), "Its sign is the opposite"),
        (lambda q, k, seen: 1 - weights(q, k, seen), "It is 1 minus what is right"),
        (lambda q, k, seen: weights(q, k, seen).log(), "It is the logarithm of what is right"),
        (lambda q, k, seen: weights(q, k, seen).roll(1, -1), "each place has the number of the one before"),
        (
            lambda q, k, seen: weights(q, k, seen).roll(-1, -2),
            "by one along axis -2: each place has the number",
        ),
        (lambda q, k, seen: weights(q, k, seen).flip(-2), "It is reversed along axis -2"),
        (lambda q, k, seen: weights(q, k, seen).flatten(), "the right numbers in the right order, in another shape"),
        (lambda q, k, seen: (q @ k.mT / 2).softmax(-2), "It sums to 1 over axis -2, and should over the last axis"),
        (lambda q, k, seen: torch.zeros(len(q), len(k)), "Every number of it is 0"),
        (lambda q, k, seen: torch.full((len(q), len(k)), float(len(k))), "All numbers of it are the same"),
        (lambda q, k, seen: weights(q, k, seen) * 3.1 ** len(q), "a multiple of what is right, by one factor for all"),
        (lambda q, k, seen: weights(q, k, seen) + 3.1 ** len(q), "All its numbers are off by the same amount"),
        (lambda q, k, seen: weights(q, k, seen) * q[:, :1].exp(), "Along axis -1 its numbers have the right ratios"),
        (lambda q, k, seen: weights(q, k, seen) + k[:, 0], "Along axis -2 all its numbers are off by the same amount"),
        (lambda q, k, seen: weights(q, k, seen) * (q @ k.mT).sign(), "right but for the sign of some numbers"),
        (lambda q, k, seen: weights(q, k, seen).sort(-1).values, "Along axis -1 it has the right numbers, in another"),
        (lambda q, k, seen: weights(q, k, seen).flatten().sort().values, "It has the right numbers, in other places"),
        (
            lambda q, k, seen: weights(q, k, seen)[:-1],
            "It is too short along axis -2 at the end, and right before that",
        ),
        (
            lambda q, k, seen: F.pad(weights(q, k, seen), (1, 0)),
            "too long along axis -1 at the front, and right behind",
        ),
        (lambda q, k, seen: weights(q, k, seen).mean(0), "It is the mean of what is right over axis -2"),
        (lambda q, k, seen: weights(q, k, seen)[None, None], "the right numbers in the right order, in another shape"),
        (
            lambda q, k, seen: weights(q, k, seen)[..., None] * torch.tensor([0.5, 1.5]),
            "right as the mean over axis -1",
        ),
        (lambda q, k, seen: weights(q, k, seen) ** 2, "It is the square of what is right"),
        (lambda q, k, seen: weights(q, k, seen).logit(), "It would be right as the sigmoid of what it is"),
        (lambda q, k, seen: weights(q, k, ~seen), "It would be right if seen were its opposite"),
        (lambda q, k, seen: weights(q, k.flip(0), seen), "It would be right if k were reversed along axis -2"),
        (lambda q, k, seen: weights(q * len(k), k, seen), "It would be right if q were multiplied by k.shape[-2]"),
        (lambda q, k, seen: weights(q, k, seen) + 0.1 * ~seen * q[:, :1] ** 3, "It is wrong only where seen is False"),
        (
            lambda q, k, seen: weights(q, k, seen).index_fill(0, torch.tensor(0), 0.3),
            "Along axis -2 only the first is wr",
        ),
        (
            lambda q, k, seen: weights(q, k, seen) ** 3 * k[:, 0].exp() * q[:, :1].exp(),
            "It should sum to 1 over axis -1",
        ),
    ],
)
def test_a_relation_is_told(wrong, told):
    finding = exercise.examine(wrong)
    assert finding.relation
    assert told in finding.relation
    assert finding.mistake is None
    assert f". {finding.relation}\n    weights(" in finding.message


def test_parts_and_arguments_that_are_exchanged_and_a_mask_upside_down_are_told():
    two = Exercise("two", chapter=1, title="", reference=lambda q, k: (q * 2, q * k), cases=pairs, verified="")
    assert two.examine(lambda q, k: (q * k, q * 2)).relation == "Its two parts are exchanged"
    assert two.examine(lambda q, k: (q * 2, -q * k)).relation == "In part 1: its sign is the opposite"
    less = Exercise("less", chapter=1, title="", reference=lambda q, k: q - k**2, cases=pairs, verified="")
    assert less.examine(lambda q, k: k - q**2).relation == "It would be right if q and k were exchanged"
    mask = Exercise("mask", chapter=1, title="", reference=lambda q, k: q > k, cases=pairs, verified="")
    assert "True where it should be False" in mask.examine(lambda q, k: q <= k).relation
    count = Exercise("count", chapter=1, title="", reference=lambda q, k: q.numel(), cases=pairs, verified="")
    assert count.examine(lambda q, k: q.numel() * 2).relation == "Every number is 2 times the right one"
    assert count.examine(lambda q, k: q.numel() + 0.5).relation == "It would be right rounded down"


def counts(rng):
    for num_heads, width, bias in ((2, 3, True), (3, 5, False), (4, 7, True)):
        yield {"num_heads": num_heads, "width": width, "bias": bias}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda num_heads, width, bias: width**2 + num_heads * bias, "num_heads has an effect on it, and should have"),
        (lambda num_heads, width, bias: 17 + bias * 5, "width has no effect on it"),
        (lambda num_heads, width, bias: width**3 + 5, "bias has no effect on it"),
        (lambda num_heads, width, bias: width**3 + 5 * bias, "It grows too fast with width"),
        (
            lambda num_heads, width, bias: width**2 + bias * {3: 1, 7: 9}.get(width, 0),
            "It is right where bias is False, and wrong where it is True",
        ),
        (lambda num_heads, width, bias: width**2 + 5 - 5 * bias, "It would be right if bias were"),
        (lambda num_heads, width, bias: (width + 1) ** 2 + 5 * bias, "It would be right if width were one larger"),
        (lambda num_heads, width, bias: num_heads**2 + 5 * bias, "right if num_heads and width were exchanged"),
        (lambda num_heads, width, bias: width**2 + 5 * bias + num_heads, "Every number is too large by num_heads"),
        (lambda num_heads, width, bias: (width**2 + 5 * bias) * num_heads / width, "times num_heads, divided by width"),
        (lambda num_heads, width, bias: (width**2,) * width, "None"),
    ],
)
def test_what_is_wrong_with_a_count_is_told(wrong, told):
    count = Exercise(
        "count", chapter=1, title="", reference=lambda _, width, bias: width**2 + 5 * bias, cases=counts, verified=""
    )
    for predicted in (False, True):
        count.is_prediction = predicted
        assert told in str(count.examine(wrong).relation)


def test_parts_that_are_right_or_missing_are_told():
    three = Exercise("three", chapter=1, title="", reference=lambda q, k: (q, k, q * k), cases=pairs, verified="")
    assert three.examine(lambda q, k: (k, q * k, q)).relation == "Its parts are those of (1, 2, 0), in this order"
    assert three.examine(lambda q, k: (q, q * k)).relation == "Part 1 is missing, and the rest is right"
    assert three.examine(lambda q, k: q).relation == "It is part 0 of what is right, and the rest is missing"
    assert three.examine(lambda q, k: (q, k, (3 * q).sin())).relation == "It is right but for part 2"


def test_what_computes_in_some_inputs_alone_is_told():
    def wrong(q, k, seen):
        return q @ k.mT if len(q) < 5 else q @ k

    assert exercise.examine(wrong).relation.startswith("In 1 of 3 inputs your code raises RuntimeError: mat1 and mat2")


def test_an_operation_that_torch_lacks_is_not_taken_for_the_stub():
    finding = exercise.examine(lambda q, k, seen: seen.softmax(-1))
    assert (finding.kind, finding.mistake) == ("raised", None)
    assert "softmax" in finding.message


def test_an_empty_result_and_0_are_not_held_against_other_arguments():
    count = Exercise("count", chapter=1, title="", reference=lambda q, k: len(q) // len(k), cases=pairs, verified="")
    assert count.examine(lambda q, k: 0).relation is None or "if" not in count.examine(lambda q, k: 0).relation


def test_a_constant_is_not_taken_for_arguments_that_are_exchanged():
    """With head and num_heads exchanged, no row is left of this table, and every sum of nothing is 0."""
    finding = EXERCISES["copying_table"].examine(lambda embedding, *_: torch.zeros(len(embedding), len(embedding)))
    assert finding.relation == "Every number of it is 0"


def pairs(rng):
    for length in (3, 4, 7):
        yield {"q": draw(rng, length), "k": draw(rng, length)}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda q, k, seen: weights(q + 0.1 * q.roll(1, 0).sin(), k, seen),
        lambda q, k, seen: weights(q * (2 if len(q) < 5 else 3), k, seen),  # one number in some cases, one in others
        lambda q, k, seen: weights(q, k, seen) * (1 if len(q) > 3 else 2),  # wrong in one case
    ],
)
def test_nothing_is_told_that_does_not_hold_in_every_case(wrong):
    finding = exercise.examine(wrong)
    assert (finding.solved, finding.relation) == (False, None)


@pytest.mark.parametrize("name", EXERCISES)
def test_nothing_is_told_of_a_right_answer(name):
    exercise = EXERCISES[name]
    drawn = list(exercise.cases(random.Random(0)))
    right = [call(exercise.reference, case, None) for case in drawn]
    assert relation(exercise.reference, exercise.reference, drawn, right, right, 5.0) is None
    assert exercise.examine(exercise.reference).relation is None
