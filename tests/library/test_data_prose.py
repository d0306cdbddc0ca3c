"""The book's own text: its parts, its characters, and runs that were copied."""

import random
import re
from pathlib import Path

import pytest
import torch

import mhalib
from mhalib.data import decode_letters, encode_letters, letters, longest_copy, prose

FILE = (Path(mhalib.__file__).parent / "data" / "prose.txt").read_text(encoding="utf-8")


def test_there_are_a_few_thousand_words_of_plain_letters():
    assert len(FILE.split()) > 3000
    assert re.fullmatch(r"[A-Za-z ,.?\n]+", FILE)
    assert "  " not in FILE


def test_the_parts_are_disjoint_and_hold_every_paragraph_once():
    train, unseen = prose()
    parts = train.splitlines() + unseen.splitlines()
    assert sorted(parts) == sorted(line for line in FILE.lower().splitlines() if line)
    assert len(set(parts)) == len(parts)
    assert not set(train.splitlines()) & set(unseen.splitlines())
    assert 0.05 < len(unseen) / len(train) < 0.2


def test_every_unseen_letter_was_learned():
    train, unseen = prose()
    assert set(unseen) <= set(train)


def test_letters_there_and_back():
    text = prose()[1]
    tokens = encode_letters(text)
    assert tokens.shape == (len(text),)
    assert tokens.min() > 0
    assert decode_letters(tokens) == text
    assert torch.equal(encode_letters("The Fox"), encode_letters("the fox"))
    assert len(letters()) == len(set("".join(prose()))) + 1


def test_bad_text():
    with pytest.raises(ValueError, match=r"\['7', 'é'\]"):
        encode_letters("café 7")
    with pytest.raises(TypeError, match="text must be a string, got int"):
        encode_letters(7)


@pytest.mark.parametrize("seed", range(20))
def test_longest_copy_against_all_runs(seed):
    rng = random.Random(seed)
    text, source = ("".join(rng.choices("ab c", k=rng.randint(0, 15))) for _ in range(2))
    runs = [text[i:j] for i in range(len(text)) for j in range(i + 1, len(text) + 1) if text[i:j] in source]
    longest = max((len(run) for run in runs), default=0)
    assert longest_copy(text, source) == next((run for run in runs if len(run) == longest), "")
