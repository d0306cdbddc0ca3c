"""Words and ids: the same in both directions, and nothing that is not known."""

import re

import pytest
import torch

from mhalib.data import Vocabulary

WORDS = ("red", "green", "a", "blue", "sees")
VOCABULARY = Vocabulary(WORDS)


def test_ids_are_places_and_padding_is_zero():
    assert len(VOCABULARY) == 6
    assert VOCABULARY.words == ("<pad>", *WORDS)
    assert VOCABULARY.ids == {"<pad>": 0, "red": 1, "green": 2, "a": 3, "blue": 4, "sees": 5}


def test_words_may_come_from_a_generator():
    assert Vocabulary(word for word in WORDS).words == VOCABULARY.words


def test_texts_become_padded_ids_and_lengths():
    tokens, valid_lens = VOCABULARY.encode([["a", "red", "a"], [], ["sees"]])
    assert tokens.tolist() == [[3, 1, 3], [0, 0, 0], [5, 0, 0]]
    assert valid_lens.tolist() == [3, 0, 1]
    assert tokens.dtype == valid_lens.dtype == torch.long


def test_a_length_can_be_asked_for():
    assert VOCABULARY.encode([["a", "red"]], num_tokens=5)[0].tolist() == [[3, 1, 0, 0, 0]]
    assert VOCABULARY.encode([["a", "red"]], num_tokens=2)[0].tolist() == [[3, 1]]


@pytest.mark.parametrize(("num_tokens", "shape"), [(None, (0, 0)), (7, (0, 7))])
def test_no_texts_are_no_rows(num_tokens, shape):
    tokens, valid_lens = VOCABULARY.encode([], num_tokens)
    assert tokens.shape == shape
    assert valid_lens.shape == (0,)


def test_what_is_decoded_is_what_was_encoded():
    texts = [["blue", "sees", "a", "red"], ["green"], []]
    tokens, _ = VOCABULARY.encode(texts, num_tokens=7)
    assert [VOCABULARY.decode(row) for row in tokens] == texts


def test_padding_is_left_out_wherever_it_stands():
    assert VOCABULARY.decode(torch.tensor([0, 1, 0, 5, 0], dtype=torch.int32)) == ["red", "sees"]


@pytest.mark.parametrize("words", [("a", "b", "a"), ("a", "<pad>")])
def test_a_word_that_comes_twice_is_refused(words):
    with pytest.raises(ValueError, match=re.escape(f"words holds ['{words[-1]}'] more than once")):
        Vocabulary(words)


@pytest.mark.parametrize(
    ("texts", "num_tokens", "error", "message"),
    [
        ([["a"], ["a", "pink", "red", "cat"]], None, ValueError, "unknown words ['pink', 'cat'] in 'a pink red cat'"),
        ([["a"], ["a", "red", "a"]], 2, ValueError, "a text has 3 words, more than num_tokens=2"),
        ([], -1, ValueError, "num_tokens=-1 must be at least 0"),
        ([["a"]], 2.5, TypeError, "num_tokens must be an integer, got float"),
    ],
)
def test_texts_that_do_not_fit_are_refused(texts, num_tokens, error, message):
    with pytest.raises(error, match=re.escape(message)):
        VOCABULARY.encode(texts, num_tokens)


@pytest.mark.parametrize(
    ("tokens", "error", "message"),
    [
        (torch.tensor([1, 6, -1, 6]), ValueError, "tokens holds [-1, 6], but ids go from 0 to 5"),
        (torch.tensor([[1, 2]]), ValueError, "tokens must have 1 axes, got shape (1, 2)"),
        (torch.tensor([1.0]), TypeError, "tokens must hold integers, got torch.float32"),
        ([1, 2], TypeError, "tokens must be a torch.Tensor, got list"),
    ],
)
def test_ids_that_are_none_are_refused(tokens, error, message):
    with pytest.raises(error, match=re.escape(message)):
        VOCABULARY.decode(tokens)


def test_ids_without_values_are_refused():
    with pytest.raises(ValueError, match="tokens is on the device meta, where tensors have shapes and no values"):
        Vocabulary(["a"]).decode(torch.zeros(3, dtype=torch.long, device="meta"))
