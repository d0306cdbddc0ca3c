"""The prose that comes with the book: its parts, its characters, and runs that were copied."""

import lzma
import random
import re
from pathlib import Path

import pytest
import torch

import mhalib
from mhalib.data import decode_letters, encode_letters, letters, longest_copy, prose

FILE = lzma.decompress((Path(mhalib.__file__).parent / "data" / "prose.txt.xz").read_bytes()).decode("utf-8")


def test_it_is_the_text_that_it_says_it_is():
    assert FILE.startswith("In the beginning God created the heaven and the earth.\n")
    assert "Now the word of the LORD came unto Jonah the son of Amittai, saying,\n" in FILE
    assert "\nVanity of vanities, saith the Preacher, vanity of vanities; all is vanity.\n" in FILE
    assert len(FILE.split("\n\n")) == 50 + 4 + 31 + 24 + 31 + 12 + 4
    assert 100_000 < len(FILE.split()) < 120_000
    assert re.fullmatch(r"[A-Za-z ,.:;?!'()\-\n]+", FILE)
    assert "  " not in FILE


def test_the_parts_are_disjoint_and_hold_every_chapter_once():
    train, unseen = (part.strip().split("\n\n") for part in prose())
    assert sorted(train + unseen) == sorted(FILE.strip().split("\n\n"))
    assert len(set(train + unseen)) == len(train + unseen)
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
    assert not torch.equal(encode_letters("The LORD"), encode_letters("the lord"))
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
