"""What the chapter on serving stores of SmolLM2 is what its weights give."""

import pytest
from real_weights import place

from mhalib import pretrained
from mhalib.decoding import speculate
from mhalib.results import read
from tools.evidence import real_serving


def test_what_is_stored_of_smollm2_is_what_the_weights_give():
    place("smollm2-135m")
    opened, stored = pretrained.load("smollm2-135m"), read("smollm2_serving")
    prompt = real_serving.ids_of(opened, real_serving.CODE[0])
    found = speculate(opened.model, prompt, 48, temperature=0, num_drafts=6, key_length=2)
    assert found.passes == stored["prompt/passes"][0]
    for name, value in real_serving.evicted(opened, real_serving.FIRSTS[0]).items():
        assert value == pytest.approx(stored[f"evict/{name}"][0], rel=2e-3)
    for name, value in real_serving.forgotten(opened, real_serving.WORDS[0]).items():
        assert value == pytest.approx(stored[f"forget/{name}"][0], rel=2e-2, abs=1e-4)


def test_a_real_model_writes_text_behind_text():
    place("smollm2-135m")
    opened = pretrained.load("smollm2-135m")
    written = opened.generate("The capital of France is", 8)
    assert written.startswith(" Paris")
    assert opened.ends
    assert opened.generate("The capital of France is", 8, temperature=1.0, top_p=0.01) == written
