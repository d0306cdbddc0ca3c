"""The benchmark of measures: its truth, its rules and its scores, each against a second way to compute it."""

import itertools
import random

import pytest
import torch
from scipy.stats import spearmanr

from mhalib.measures import head_importance
from mhalib.measures.card import Reading
from mhalib.results import read
from tools.evidence import head_benchmark
from tools.evidence.head_benchmark import Question, against, enough, holding, separating, shapley, spearman


def test_shapley_values_are_the_mean_gain_over_all_orders() -> None:
    rng = random.Random(0)
    table = [rng.random() for _ in range(16)]
    gains = [0.0] * 4
    orders = list(itertools.permutations(range(4)))
    for order in orders:
        number = 0
        for head in order:
            gains[head] += (table[number + 2**head] - table[number]) / len(orders)
            number += 2**head
    assert shapley(table) == pytest.approx(gains)


def test_the_right_heads_are_the_smallest_subsets_that_are_enough() -> None:
    table = [0.03] * 256
    for number in range(256):
        if number & 1 and number & 6:  # head 0, and one of heads 1 and 2
            table[number] = 0.96 if number & 2 else 0.97
    table[255] = 1.0
    assert enough(table) == [[0, 2], [0, 1]]
    table[1 | 2] = 0.94  # 95 % of what is above chance is 0.952
    assert enough(table) == [[0, 2]]


def test_rank_correlation_is_scipys() -> None:
    rng = random.Random(1)
    for _ in range(5):
        x, y = ([float(rng.randrange(5)) for _ in range(8)] for _ in range(2))
        assert spearman(x, y) == pytest.approx(spearmanr(x, y)[0])
    assert spearman([1.0] * 8, y) == 0


def test_scores_are_held_against_any_of_the_smallest_subsets() -> None:
    truth, values = [[0, 1], [0, 2]], [0.5, 0.3, 0.2, 0.0]
    told = against([4.0, 1.0, 3.0, 2.0], truth, values)
    assert told["named"] == 1
    assert told["precision"] == 1
    assert told["average precision"] == pytest.approx((1 / 1 + 2 / 4) / 2)
    assert against([1.0, 2.0, 3.0, 4.0], truth, values)["precision"] == 0.5


def test_both_rules_say_on_separating_lists_what_a_reader_would() -> None:
    for rule, question in separating(12, seed=3).items():
        assert question.counts.any(-1).all()
        for text, says, counts, looks in zip(
            question.tokens.tolist(), question.answers.tolist(), question.counts, question.looks, strict=True
        ):
            for at in counts.nonzero()[:, 0].tolist():
                past = text[: at + 1]
                if rule == "induction":
                    expected = past[past.index(past[-1]) + 1]
                else:
                    expected = max(set(past), key=lambda symbol, past=past: past[::-1].index(symbol))
                assert says[at] == expected
                assert looks[at].nonzero()[:, 0].tolist() == [at - past[::-1].index(expected)]


def test_a_lists_second_round_has_the_symbols_of_its_first() -> None:
    tokens = separating(12, seed=3)["induction"].tokens
    for text in tokens.tolist():
        period = next(p for p in (8, 10) if len(set(text[:p])) == p and set(text[p : p + 5]) <= set(text[:p]))
        assert text[:period] != text[period:]


def test_measures_get_the_loss_of_the_answers_that_count() -> None:
    model = head_benchmark.new_model("two", 0)
    tokens = torch.arange(6).repeat(2, 2)
    counts = torch.zeros(2, 12, dtype=torch.bool)
    counts[:, 7] = counts[0, 8] = True
    answers = torch.full((2, 12), 3)
    question = Question(tokens, answers, counts, holding(tokens, answers, counts))
    chances = model(tokens)[0].log_softmax(-1)[..., 3]
    expected = torch.stack([-chances[0, 7:9].mean(), -chances[1, 7]])
    torch.testing.assert_close(question.loss(model(tokens)[0], tokens), expected)
    slopes = head_importance(model, [tokens], lambda model, x: question.loss(model(x)[0], x))["decoder self"]
    torch.testing.assert_close(head_benchmark.MEASURES["slope"](model, question), slopes)


def test_attribution_at_the_texts_own_point_is_attribution(monkeypatch: pytest.MonkeyPatch) -> None:
    model, question = head_benchmark.new_model("two", 2), head_benchmark.ordinary(0, 6)
    monkeypatch.setattr(head_benchmark, "POINTS", (0.0, 0.0))
    expected = head_benchmark.MEASURES["attribution"](model, question)
    torch.testing.assert_close(head_benchmark.five_points(model, question), expected)


def test_at_the_end_of_the_way_slopes_are_those_of_the_other_text(monkeypatch: pytest.MonkeyPatch) -> None:
    model, question = head_benchmark.new_model("two", 3), head_benchmark.ordinary(0, 6)
    there = question.tokens, question.tokens.roll(1, 0)
    here, other = (Reading(model, tokens, question.loss, question.looks, "decoder self") for tokens in there)
    expected = [
        ((z.roll(1, 0) - z) * slope).sum((-1, -2)).mean(0) for z, slope in zip(here.outputs, other.slopes, strict=True)
    ]
    monkeypatch.setattr(head_benchmark, "POINTS", (1.0,))
    torch.testing.assert_close(head_benchmark.five_points(model, question), torch.stack(expected))


def test_a_subset_alone_is_a_forward_in_which_the_others_give_their_mean() -> None:
    """Heads of the last layer: their mean is a vector that is added, whatever the text."""
    model, question = head_benchmark.new_model("one", 1), head_benchmark.ordinary(0, 5)
    found = head_benchmark.subsets(model, question, "means")
    layer, lists = model.decoder.layers[0].attention, head_benchmark.every_list()[:200].inputs
    given: list[torch.Tensor] = []
    with torch.no_grad():
        handle = layer.W_o.register_forward_pre_hook(lambda _, x: given.append(x[0]))
        model(lists)
        handle.remove()
        mean = given[0].mean((0, 1))
        for number in (0, 5, 200, 255):
            keep = torch.tensor([number >> i & 1 for i in range(8)]).repeat_interleave(8).bool()
            handle = layer.W_o.register_forward_pre_hook(lambda _, x, keep=keep: (torch.where(keep, x[0], mean),))
            assert found[number] == pytest.approx(head_benchmark.accuracy(model, question))
            handle.remove()


def test_stored_runs_are_kept_beside_those_in_the_folder() -> None:
    stored = {
        "one/seed": [0.0, 1.0],
        "one/accuracy": [0.5, 0.6],
        "one/zero/untrained": [1.0, 1.0],
        "passes/zero": [9.0],
    }
    fresh = {"one/seed": [1.0, 2.0], "one/accuracy": [0.7, 0.8], "one/zero/untrained": [0.0, 0.0], "passes/zero": [9.0]}
    fresh["one/means/new/agreement"] = [0.1, 0.2]
    assert head_benchmark.with_stored(fresh, stored) == {
        "one/seed": [0, 1, 2],
        "one/accuracy": [0.5, 0.7, 0.8],
        "one/new/seed": [1, 2],
        "one/means/new/agreement": [0.1, 0.2],
        "passes/zero": [9],
    }
    whole = {name: numbers for name, numbers in fresh.items() if "seed" not in name} | {"one/seed": [0.0, 1.0]}
    assert head_benchmark.with_stored(whole, stored) == whole


def test_a_table_has_the_measures_that_were_asked_the_best_first() -> None:
    values = {
        "one/means/zero/agreement": [0.5, 0.7],
        "one/means/zero/named": [1.0, 1.0],
        "one/means/random/agreement": [0.9, 0.8],
        "one/means/random/named": [0.0, 1.0],
    }
    told = [line.split() for line in head_benchmark.table(values).splitlines()]
    assert told[0][:3] == ["one,", "2", "models"]
    assert told[1:] == [["random", "0.85", "1", "0"], ["zero", "0.60", "2", "9"]]


def test_what_is_stored_is_of_the_measures_that_there_are() -> None:
    stored = read("head_benchmark")
    for kind in head_benchmark.MODELS:
        for name in head_benchmark.MEASURES:
            seeds = stored.values.get(f"{kind}/{name}/seed", stored[f"{kind}/seed"])
            assert len(stored[f"{kind}/means/{name}/agreement"]) == len(seeds)
    assert len(stored["two/seed"]) == 20
