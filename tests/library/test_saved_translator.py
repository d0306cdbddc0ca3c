"""The translator that comes with the package: its file, and what the file says of it."""

import hashlib
import json

import pytest
import torch

from mhalib import heads_of, saved
from mhalib.data import ENGLISH, FRENCH, read_english, translate, translations
from mhalib.decoding import greedy
from mhalib.evaluation import exact_match


@pytest.fixture(scope="module")
def model():
    return saved.load("translator")


def test_the_file_is_small_and_has_the_hash_that_was_written_down():
    path = saved.FOLDER / "translator.safetensors"
    assert path.stat().st_size < 1_000_000
    known = json.loads((saved.FOLDER / "sha256.json").read_text(encoding="utf-8"))
    assert hashlib.sha256(path.read_bytes()).hexdigest() == known["translator"]


def test_it_has_24_heads(model):
    assert len(heads_of(model)) == 24
    assert model.source.vocab_size == len(ENGLISH)
    assert model.target.vocab_size == len(FRENCH)
    assert not model.training


@pytest.mark.package
def test_the_metric_is_what_the_file_says(model):
    about = saved.about("translator")
    assert about.command == "python -m tools.evidence.train translator"
    unseen = translations(21_000, seed=0)[20_000:]
    assert exact_match(model, unseen) == pytest.approx(about.metric[1], abs=0.005)
    assert about.metric[1] > 0.99


def test_pairs_that_it_never_saw_are_translated_too(model):
    assert exact_match(model, translations(500, seed=1, pairs="unseen")) > 0.98


def test_the_fox(model):
    text = "the quick brown fox jumps over the lazy dog"
    data = read_english([text])
    with torch.no_grad():
        found = greedy(model, data.source, data.source_lens, begin=1, end=2, max_tokens=15)
    assert FRENCH.decode(found[0])[:-1] == translate(text)
