"""The stored cards of real models are those that their weights give."""

import pytest
from real_weights import place

from mhalib import pretrained
from mhalib.measures import head_card, stored_card
from tools.evidence.head_cards import tokens_of


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
