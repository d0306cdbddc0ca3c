"""A live model in Python: what it says under deeds, what it refuses, and quests whose solutions are solutions."""

import pytest
import torch

pytest.importorskip("anywidget")

from mhalib import Head, saved, switched_off
from mhalib.data import VERBS, translate
from mhalib.measures import frozen, head_outputs, mixed, patched, rows
from mhalib.widgets import LiveModel
from mhalib.widgets._live_tasks import TASKS, menus
from mhalib.widgets._quests import QUESTS, Quest

COW = "the white cow sees the black dog"
OTHER = "a good school likes every beautiful house"


@pytest.fixture(scope="module")
def live():
    """Of each stored model one, as it was trained."""
    return {name: LiveModel(name) for name in TASKS}


def answer(one, deeds, input=None):
    """What it says with these deeds; then they are undone."""
    one.input, one.deeds = input or TASKS[one.model_name].start, deeds
    said = one.output()
    one.deeds = {}
    return said


def test_every_stored_model_has_a_task():
    assert sorted(TASKS) == sorted([*saved.names(), "small_gpt"])


@pytest.mark.parametrize("name", TASKS)
def test_the_trained_model_is_right_on_its_twelve_others(live, name):
    others = live[name].facts["others"]
    assert len({text for text, _ in others}) == 12
    for text, said in others:
        if name == "translator":
            assert said == translate(text)
        elif name == "copier":
            assert said == [text[int(one)] if one.isdigit() else one for one in text]
        elif name in ("repeater", "small_gpt", "talker"):
            period = text.index(text[0], 1)
            assert said[period : len(text) - 1] == list(text[period + 1 :])
        else:
            (verb,) = set(text.split()) & set(VERBS)
            assert said[3::4] == [verb] * len(text.split())


def test_output_is_what_the_context_managers_give(live):
    one = live["translator"]
    dog = torch.tensor([0.0] * 6 + [1.0])
    with rows(one.model, {Head("encoder self", 1, 2): {0: dog}}):
        moved = one._task.run(COW.split()).answer
    with switched_off(one.model, [Head("decoder self", 0, 1)]):
        off = one._task.run(COW.split()).answer
    assert answer(one, {"encoder self 1 2": {"rows": {"0": [0, 0, 0, 0, 0, 0, 1]}}}) == moved
    assert moved[:2] == ["le", "vache"]
    assert answer(one, {"decoder self 0 1": {"off": True}}) == off != translate(COW)


def test_what_another_input_did_is_named_by_its_text(live):
    one = live["translator"]
    run = one._task.run(OTHER.split())
    head = [Head("encoder self", 0, 1)]
    with (
        frozen(one.model, run.weights, head),
        patched(one.model, run.outputs, [Head("cross", 1, 1)]),
        head_outputs(one.model) as wanted,
    ):
        one._task.run(COW.split())
    one.input, one.deeds = COW, {"encoder self 0 1": {"frozen": OTHER}, "cross 1 1": {"patch": OTHER}}
    with one.applied() as model, head_outputs(model) as found:
        one._task.run(COW.split())
    one.deeds = {}
    for kind in ("encoder self", "cross"):
        for layer in (0, 1):
            torch.testing.assert_close(found[kind][layer], wanted[kind][layer], rtol=0, atol=0)


def test_a_head_that_gives_its_mean_gives_the_mean_of_the_facts(live):
    one = live["reader"]
    one.deeds = {"encoder self 0 2": {"off": "mean"}}
    with one.applied() as model, head_outputs(model) as found:
        one._task.run(one.input.split())
    one.deeds = {}
    mean = torch.tensor(one.facts["means"]["encoder self 0 2"])
    torch.testing.assert_close(found["encoder self"][0][0, 2], mean.expand(8, -1))


def test_a_row_waits_for_a_longer_input_and_positions_can_go(live):
    one = live["translator"]
    late = {"encoder self 1 2": {"rows": {"0": [0] * 6 + [1]}}}
    assert answer(one, late, "the cow sleeps") == answer(one, {}, "the cow sleeps") == translate("the cow sleeps")
    assert answer(one, {"positions": False}) != translate(COW)


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("input", "the white elephant", ValueError, "holds 'elephant', which is none of its 152 words"),
        ("input", " ".join(["the"] * 15), ValueError, "has 15 words, but needs 1 to 14"),
        ("input", "", ValueError, "has 0 words"),
        ("deeds", {"encoder self 9 9": {}}, ValueError, "deeds names 'encoder self 9 9', but the heads"),
        ("deeds", {"cross 0 0": {"of": True}}, ValueError, r"deeds\['cross 0 0'\] has 'of', but known are off, rows"),
        ("deeds", {"cross 0 0": {"off": 1.5}}, ValueError, r"deeds\['cross 0 0'\]\['off'\]=1.5 must be True or 'mean'"),
        ("deeds", {"cross 0 0": 3}, TypeError, r"deeds\['cross 0 0'\] must be a mapping, got int: 3"),
        ("deeds", {"cross 0 0": {"rows": {"x": [1]}}}, ValueError, "has 'x', which is no query"),
        ("deeds", {"cross 0 0": {"rows": {"0": [1, -1]}}}, ValueError, r"\[1, -1\] must hold numbers from 0 to 1e6"),
        ("deeds", {"cross 0 0": {"rows": {"0": [float("nan")]}}}, ValueError, "must hold numbers from 0 to 1e6"),
        ("deeds", {"cross 0 0": {"rows": {"0": [0, 0]}}}, ValueError, "and not only 0"),
        ("deeds", {"cross 0 0": {"rows": {"0": []}}}, ValueError, "must be a list of 1 to 64 weights"),
        ("deeds", {"cross 0 0": {"frozen": "the elephant"}}, ValueError, r"\['frozen'\]: input='the elephant'"),
        ("deeds", {"positions": True}, ValueError, r"deeds\['positions'\]=True must be False, or left out"),
        ("head", "cross 7 7", ValueError, "head='cross 7 7' must be one of"),
        ("query", 64, ValueError, "query=64 must be from 0 to 63"),
        ("model_name", "reader", ValueError, "model_name='reader' cannot be changed: make another LiveModel"),
    ],
)  # fmt: skip
def test_what_a_model_cannot_have_is_refused(live, name, value, error, message):
    one = live["translator"]
    before = getattr(one, name)
    with pytest.raises(error, match=message):
        setattr(one, name, value)
    assert getattr(one, name) == before


def test_cells_of_a_matrix_are_set_as_mixed_sets_them(live):
    one = live["talker"]
    layer = one.model.attention_layers()["decoder self"][1]
    matrix = layer.P_scores.detach().clone()
    matrix[2, 5], matrix[7, 0] = -1.5, 0.25
    with mixed(one.model, {("decoder self", 1): {"scores": matrix}}), head_outputs(one.model) as wanted:
        one._task.run(list(one.input))
    one.deeds = {"decoder self 1": {"scores": {"2 5": -1.5, "7 0": 0.25}}}
    with one.applied() as model, head_outputs(model) as found:
        one._task.run(list(one.input))
    one.deeds = {}
    for own, other in zip(found["decoder self"], wanted["decoder self"], strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("deed", "error", "message"),
    [
        (3, TypeError, r"deeds\['decoder self 1'\] must be a mapping, got int: 3"),
        ({"values": {}}, ValueError, r"\['decoder self 1'\] has 'values', but known are scores, weights"),
        ({"scores": [0.5]}, TypeError, r"\['scores'\] must be a mapping, got list"),
        ({"scores": {"0 8": 1}}, ValueError, r"\['scores'\] has '0 8', but its cells are '0 0' to '7 7'"),
        ({"scores": {(0, 1): 1}}, ValueError, r"\['scores'\] has \(0, 1\), but its cells"),
        ({"weights": {"0 1": float("nan")}}, ValueError, r"\['0 1'\]=nan must be a number from -1000 to 1000"),
        ({"weights": {"0 1": True}}, ValueError, r"\['0 1'\]=True must be a number"),
        ({"weights": {"0 1": 1001}}, ValueError, r"\['0 1'\]=1001 must be a number"),
    ],
)
def test_a_mixing_that_cannot_be_is_refused(live, deed, error, message):
    with pytest.raises(error, match=message):
        live["talker"].deeds = {"decoder self 1": deed}
    with pytest.raises(ValueError, match="deeds names 'decoder self 1', but the heads"):
        live["repeater"].deeds = {"decoder self 1": {"scores": {"0 0": 0}}}
    assert live["talker"].deeds == live["repeater"].deeds == {}


def test_the_table_of_heads_that_talk_has_a_run_in_which_they_do_not(live):
    one = live["talker"]
    one.head = "decoder self 1 2"
    assert one.table()[2][3] == ["decoder self 1, whose heads do not talk", "kkkcw0kkcg0kjcg", "0"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"model_name": "oracle"}, ValueError, "model_name='oracle' must be one of"),
        ({"model_name": 3}, TypeError, "model_name must be a string, got int: 3"),
        ({"quests": "le vache"}, TypeError, "quests"),
        ({"quests": ["stop the copier"]}, ValueError, "quests has 'stop the copier', but the translator has le vache"),
        ({"head": "cross 9 0"}, ValueError, "head='cross 9 0' must be one of"),
        ({"query": -1}, ValueError, "query=-1"),
        ({"compact": "yes"}, TypeError, "compact"),
        ({"heats": 1}, TypeError, "heats must be True or False, got int: 1"),
        ({"future": "no"}, TypeError, "future must be True or False, got str: 'no'"),
        ({"model_name": "repeater", "future": True}, ValueError, "the repeater has no encoder"),
        ({"model_name": "repeater", "deeds": {"future": False}}, ValueError, "the repeater has no encoder"),
        ({"deeds": {"future": True}}, ValueError, r"deeds\['future'\]=True must be False"),
        ({"sums": (0, 1)}, ValueError, r"sums=\[0, 1\], but the translator answers no questions"),
        ({"model_name": "reader", "sums": "ab"}, TypeError, "sums must be a list, got str: 'ab'"),
        ({"model_name": "reader", "sums": (5,)}, ValueError, r"sums=\[5\] must be a word and a question"),
        ({"model_name": "reader", "sums": (5, 4)}, ValueError, r"sums=\[5, 4\]: the question must be from 0 to 3"),
        ({"model_name": "reader", "sums": (0.5, 1)}, TypeError, "sums: the word must be an integer"),
        ({"model_name": "talker", "heats": True}, ValueError, "have no temperature"),
        ({"deeds": []}, TypeError, "deeds must be a mapping, got list"),
    ],
)
def test_what_cannot_be_made_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        LiveModel(**arguments)


def test_a_page_carries_neither_weights_nor_words(live):
    for one in live.values():
        names = "compact deeds future head heats input model_name moment query quests sums"
        assert sorted(one.state()) == names.split()
        assert len(one._html()) < 3500
        assert "weights" not in one._html()


def test_the_table_holds_three_runs_and_that_of_the_moment(live):
    one = live["translator"]
    one.input, one.head = COW, "decoder self 0 1"
    one.deeds = {"encoder self 1 2": {"rows": {"0": [0] * 6 + [1]}}}
    caption, header, table = one.table()
    one.deeds = {}
    assert caption == f"The translator reads “{COW}”"
    assert header == ["the model", "says", "as trained"]
    assert table[0][1:] == ["la vache blanche voit le chien noir", "P 0.993"]
    assert table[1][:2] == ["without decoder self 0 1", "la chien noir voit le chien noir"]
    assert table[3][1] == "le vache blanche voit le chien noir"
    assert [row[0] for row in live["reader"].table()[2]][:2] == ["as trained: previous word", "as trained: next word"]


@pytest.mark.parametrize("name", QUESTS)
def test_a_solution_meets_its_goal_and_an_untouched_model_does_not(live, name):
    one = live[QUESTS[name].model]
    one.input, one.deeds = QUESTS[name].input, {}
    assert not one.meets(name)
    one.deeds = dict(QUESTS[name].solution)
    assert one.meets(name)
    if one.model_name == "translator":
        one.input = OTHER
        assert not one.meets(name)  # the sentence that the quest is about
    one.deeds = {}


@pytest.mark.parametrize(
    ("sentence", "off", "is_met"),
    [
        ("the dog finds your pilot", (0, 3), True),  # finds still said dog, one word back
        ("every clever fox sees my hungry young bear", (0, 1), True),  # clever said fox, one word on
        ("the dog finds your pilot", (0,), False),
        ("the dog finds your pilot", (0, 1), False),
        ("my quiet green cat meets your singer", (0, 2), False),  # words lose it, but head 2 looked at the verb
        ("my quiet green cat meets your singer", (0, 2, 3), False),
    ],
)
def test_a_witness_is_a_head_that_looked_and_is_missed(live, sentence, off, is_met):
    one = live["reader"]
    one.input, one.deeds = sentence, {f"encoder self 0 {head}": {"off": True} for head in off}
    assert one.meets("a witness of your own") is is_met
    one.deeds = {}


def test_a_quest_with_an_unknown_condition_is_refused():
    with pytest.raises(ValueError, match="goal has 'score', but known are says"):
        Quest("?", "reader", "the", {"score": 3}, {})
    with pytest.raises(TypeError, match=r"goal\['says'\]"):
        Quest("?", "reader", "the", {"says": 3}, {})


def test_every_word_has_a_menu_and_a_menu_has_only_words(live):
    known = live["translator"].facts["known"]
    listed = {word for menu in menus() for word in menu}
    assert listed | {"an"} == set(known)
    reader = live["reader"].facts
    assert {word for menu in reader["menus"] for word in menu} == set(reader["known"])


def test_other_inputs_are_read_without_the_order_where_it_is_off():
    """As the page does it, in whose sentence stands how many are right."""
    assert LiveModel("reader")._others_right() == 12
    assert LiveModel("reader", deeds={"positions": False})._others_right() < 12


@pytest.mark.parametrize(("typed", "lost"), [("ab7c", 7), ("3aa1", 3), ("0", 0), ("a10", 1)])
def test_a_digit_of_the_copier_is_the_position_of_a_letter(typed: str, lost: int) -> None:
    with pytest.raises(ValueError, match=rf"input='{typed}' holds {lost}, a position, counted from 0, where no letter"):
        LiveModel("copier", typed)
