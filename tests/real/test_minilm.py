"""MiniLM in our layers: transformers' vectors and maps, and the maps that come with the package."""

import pytest
import torch
from real_weights import place

from mhalib import pretrained
from mhalib.pretrained import MINILM, PINS, SENTENCES


@pytest.fixture(scope="module")
def folder():
    return place("minilm")


def test_the_maps_are_what_the_weights_make(folder):
    encoder = pretrained.load(folder, sha256=PINS[MINILM].sha256)
    for stored in pretrained.load_maps():
        made = encoder(stored.text)
        assert (made.tokens, made.ids) == (stored.tokens, stored.ids)
        torch.testing.assert_close(stored.weights, made.weights, rtol=0, atol=pretrained.ERROR + 1e-5)


def test_in_our_layers_it_is_what_it_is_in_transformers(folder):
    pytest.importorskip("transformers", reason="transformers is not installed")
    own, theirs = (pretrained.load(folder, through=route) for route in ("mhalib", "transformers"))
    for text in SENTENCES:
        torch.testing.assert_close(own(text).output, theirs(text).output, rtol=0, atol=1e-5)
        torch.testing.assert_close(own(text).weights, theirs(text).weights, rtol=0, atol=1e-5)
