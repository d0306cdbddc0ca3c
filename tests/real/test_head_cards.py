"""The stored cards of real models are those that their weights give."""

import pytest
import torch
from real_weights import place

from mhalib import Head, pretrained, switched_off
from mhalib.measures import head_card, head_outputs, induction_targets, patched, stored_card
from mhalib.measures.card import MEASURES, Reading
from mhalib.models import GPT
from mhalib.results import read
from tools.evidence.head_benchmark import on_the_way
from tools.evidence.head_cards import (
    ABLATIONS,
    KIND,
    ON_THE_WAY,
    SMOLLM,
    FromItsLayer,
    never_repeated,
    repeated_loss,
    tokens_of,
    way,
)


@pytest.mark.parametrize("name", ["minilm", "smollm2-135m"])
def test_the_stored_card_is_of_these_weights(name):
    loaded = pretrained.load(place(name))
    stored = stored_card(name)
    measures = ["previous", "first", "first x length", "written"]
    card = head_card(loaded.model, tokens_of(name, loaded), measures=measures, control=False)
    assert card.heads == stored.heads
    for measure in measures:
        assert card.values[measure].tolist() == pytest.approx(stored.values[measure].tolist(), rel=0.02, abs=2e-3)
        assert card.spread[measure].tolist() == pytest.approx(stored.spread[measure].tolist(), rel=0.05, abs=5e-3)


def test_the_stored_costs_are_of_these_weights():
    loaded = pretrained.load(place(SMOLLM))
    model, tokens, stored = loaded.model.eval(), tokens_of(SMOLLM, loaded), stored_card(SMOLLM)
    for where in ON_THE_WAY:
        head = Head(KIND, *where)
        number = stored.heads.index(head)
        rises = way(model, tokens, head)
        assert rises == pytest.approx(read("head_cards")["way/{}.{}".format(*where)], abs=0.02)
        assert rises[-1] == pytest.approx(float(stored.values["resample"][number]), abs=0.02)
        with torch.no_grad():
            whole = repeated_loss(model(tokens)[0], tokens)
            with switched_off(model, [head]):
                cost = repeated_loss(model(tokens)[0], tokens) - whole
            unlike, loss = never_repeated(tokens)
            with head_outputs(model) as own:
                nothing_told = loss(model(unlike)[0], unlike)
            with patched(model, {KIND: [z.roll(1, 0) for z in own[KIND]]}, [head]):
                by_chance = loss(model(unlike)[0], unlike) - nothing_told
        assert float(cost.mean()) == pytest.approx(float(stored.values["zero"][number]), abs=0.02)
        assert float(by_chance.mean()) == pytest.approx(float(stored.control["resample"][number]), abs=0.02)
    points = on_the_way(model, tokens, repeated_loss, induction_targets(tokens)).flatten(1).mean(0)
    assert points.tolist() == pytest.approx(stored.values["5 points"].tolist(), rel=0.02, abs=0.01)


def test_the_ablations_control_repeats_nothing_and_counts_the_same_places():
    tokens = torch.tensor([[4, 2, 3, 4, 2, 3], [5, 6, 5, 6, 5, 6]])
    unlike, loss = never_repeated(tokens)
    assert [len(set(text)) for text in unlike.tolist()] == [6, 6]
    logits = torch.zeros(2, 6, 49_000)
    logits[0, 4].scatter_(0, unlike[0, 5], 50.0)  # right after the second 2, and nowhere else
    even = float(torch.tensor(49_000.0).log())
    assert loss(logits, unlike).tolist() == pytest.approx([even / 2, even], rel=1e-4)


@pytest.mark.parametrize("measure", ABLATIONS)
def test_layers_below_a_changed_head_need_not_be_computed_again(measure):
    torch.manual_seed(0)
    model = GPT(29, 24, 3, num_layers=3, positions="rotary").eval()
    tokens = torch.randint(29, (4, 7)).repeat(1, 2)
    asked = model, tokens, repeated_loss, induction_targets(tokens), KIND
    costs = MEASURES[measure].compute(FromItsLayer(*asked))
    torch.testing.assert_close(costs, MEASURES[measure].compute(Reading(*asked)))
    assert costs.abs().min() > 0
    assert not any("forward" in vars(layer) for layer in model.decoder.layers)


def test_only_tokens_that_the_past_tells_cost():
    tokens = torch.tensor([[4, 2, 3, 4, 2, 0]])  # after 4 comes 2, as before; after 2 comes 0, where 3 came before
    logits = torch.zeros(1, 6, 5)
    logits[0, :3] = torch.tensor([9.0, 0, 0, 0, 0])  # what is said before does not count
    assert float(repeated_loss(logits, tokens)) == pytest.approx(float(torch.tensor(5.0).log()))
