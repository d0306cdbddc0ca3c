"""The toy sentences: what the questions say is worked out again here, from the words alone."""

import random
import re

import pytest
import torch

from mhalib import data
from mhalib.data import (
    ACTIONS,
    IGNORED,
    MEETING_LENGTH,
    MEETING_VOCABULARY,
    NAMES,
    PADDING,
    QUESTIONS,
    SETTINGS,
    VOCABULARY,
    WORD_IDS,
    meetings,
    read_sentences,
    sentences,
)

MADE = sentences(500, seed=0)
TEXTS = [tuple(MADE.words(i)) for i in range(len(MADE))]
WORDS = tuple("the small cat often sees a dog".split())


def _expected_positions(words):
    """For each question a position for each word."""
    nouns = [t for t, word in enumerate(words) if word in data.NOUNS]
    verbs = [t for t, word in enumerate(words) if word in data.VERBS]
    last = len(words) - 1
    return {
        "previous word": [0, *range(last)],
        "next word": [*range(1, last + 1), last],
        "subject": [nouns[0]] * len(words),
        "verb": [verbs[0]] * len(words),
    }


def test_positions_answer_the_questions():
    for i, words in enumerate(TEXTS):
        expected = _expected_positions(words)
        found = {name: MADE.positions[i, : len(words), j].tolist() for j, name in enumerate(QUESTIONS)}
        assert found == expected, words


def test_answers_are_the_words_at_the_positions():
    for i, words in enumerate(TEXTS[:50]):
        for j, name in enumerate(QUESTIONS):
            found = [VOCABULARY[token] for token in MADE.answers[i, : len(words), j].tolist()]
            assert found == [words[t] for t in _expected_positions(words)[name]]


def test_padding_is_marked_everywhere():
    padding = torch.ones(500, 10, dtype=torch.bool)
    for i, words in enumerate(TEXTS):
        padding[i, : len(words)] = False
    assert torch.equal(MADE.is_real, ~padding)
    assert torch.equal(MADE.tokens == WORD_IDS[PADDING], padding)
    assert (MADE.answers[padding] == IGNORED).all()
    assert (MADE.answers[~padding] > 0).all()
    assert (MADE.positions[padding] == 0).all()
    assert torch.nn.CrossEntropyLoss().ignore_index == IGNORED


def test_a_sentence_follows_the_grammar():
    phrase = f"({'|'.join(data.DETERMINERS)})( ({'|'.join(data.ADJECTIVES)})){{0,2}} ({'|'.join(data.NOUNS)})"
    grammar = f"{phrase}( ({'|'.join(data.ADVERBS)}))? ({'|'.join(data.VERBS)}) {phrase}"
    for words in TEXTS:
        assert re.fullmatch(grammar, " ".join(words)), words


def test_every_word_has_one_id_and_one_kind():
    kinds = (data.DETERMINERS, data.ADJECTIVES, data.NOUNS, data.ADVERBS, data.VERBS)
    assert sum(map(len, kinds)) + 1 == len(VOCABULARY) == len(set(VOCABULARY)) == len(WORD_IDS)
    assert WORD_IDS[PADDING] == 0


def test_sentences_differ_so_that_a_split_is_disjoint():
    train, test = MADE[:400], MADE[400:]
    assert (len(train), len(test)) == (400, 100)
    seen = {tuple(row) for row in train.tokens.tolist()}
    assert len(seen) == 400
    assert not seen & {tuple(row) for row in test.tokens.tolist()}


def test_the_seed_decides():
    again, other, longer = sentences(500, seed=0), sentences(500, seed=1), sentences(600, seed=0)
    assert torch.equal(again.tokens, MADE.tokens)
    assert torch.equal(longer.tokens[:500], MADE.tokens)
    assert not torch.equal(other.tokens, MADE.tokens)


def test_making_sentences_leaves_the_global_seeds_alone():
    random.seed(0)
    torch.manual_seed(0)
    expected = random.random(), torch.rand(1)
    random.seed(0)
    torch.manual_seed(0)
    sentences(3, seed=5)
    assert (random.random(), torch.rand(1)) == expected


def test_a_batch_by_indices_and_on_a_device(device):
    batch = MADE.to(device)[torch.tensor([3, 1], device=device)]
    assert [batch.words(0), batch.words(1)] == [MADE.words(3), MADE.words(1)]
    assert torch.equal(batch.answers.cpu(), MADE.answers[[3, 1]])
    assert batch.is_real.device.type == device.type


def test_reading_a_sentence_of_your_own():
    read = read_sentences([WORDS, ("the", "cat", "sees")])
    assert read.words(0) == list(WORDS)
    assert read.valid_lens.tolist() == [7, 3]
    assert read.positions[0, :7, 2:].tolist() == [[2, 4]] * 7


def test_reading_no_sentence():
    read = read_sentences([])
    assert read.tokens.shape == (0, 10)
    assert read.valid_lens.dtype == torch.long
    assert read.answers.shape == (0, 10, 4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (WORDS + WORDS[:4], "at most 10 words, got 11: 'the small cat often sees a dog the small cat often'"),
        (("the", "wolf", "sees", "Cat"), r"unknown words \['wolf', 'Cat'\] in 'the wolf sees Cat'"),
        (("the", "sees"), "no noun in 'the sees'"),
        (("the", "cat"), "no verb in 'the cat'"),
        ((), "no noun in ''"),
    ],
)
def test_reading_names_what_is_wrong(words, message):
    with pytest.raises(ValueError, match=message):
        read_sentences([WORDS, words])


@pytest.mark.parametrize(
    ("number", "error", "message"),
    [
        (0, ValueError, "num_examples=0 must be at least 1"),
        (-5, ValueError, "num_examples=-5 must be at least 1"),
        (5.0, TypeError, "num_examples must be an integer, got float: 5.0"),
    ],
)
def test_sentences_name_a_bad_number(number, error, message):
    with pytest.raises(error, match=message):
        sentences(number, seed=0)


MET = meetings(500, seed=0)


def test_a_meeting_is_a_name_a_verb_and_a_name_among_other_words():
    for i in range(len(MET)):
        words = MET.words(i)
        names = [t for t, word in enumerate(words) if word in NAMES]
        verbs = [t for t, word in enumerate(words) if word in ACTIONS]
        assert len(words) == MEETING_LENGTH
        assert [*names, *verbs] == [*MET.places[i].tolist(), int(MET.verbs[i])]
        assert names[0] < verbs[0] < names[1]
        assert sum(word in SETTINGS for word in words) == MEETING_LENGTH - 3


def test_the_answers_are_the_names_at_the_places():
    found = [[MEETING_VOCABULARY[name] for name in pair] for pair in MET.answers.tolist()]
    expected = [[MET.words(i)[place] for place in pair] for i, pair in enumerate(MET.places.tolist())]
    assert found == expected
    assert int(MET.answers.max()) < len(NAMES)


def test_nothing_but_the_order_tells_the_two_apart():
    """Every name stands about as often in the first place as in the second."""
    first, second = (torch.bincount(ids, minlength=len(NAMES)).float() for ids in meetings(20_000, seed=1).answers.T)
    assert len(set(NAMES)) == len(NAMES) == 100
    assert first.min() > 120
    assert second.min() > 120


def test_meetings_differ_and_follow_the_seed():
    assert len({tuple(MET.words(i)) for i in range(len(MET))}) == len(MET)
    assert torch.equal(meetings(500, seed=0).tokens, MET.tokens)
    assert not torch.equal(meetings(500, seed=1).tokens, MET.tokens)


def test_a_part_of_the_meetings_is_a_batch(device):
    part = MET[torch.tensor([3, 1])].to(device)
    assert len(part) == 2
    assert part.words(0) == MET.words(3)
    assert part.answers.device.type == device.type
    assert torch.equal(part.answers.cpu(), MET.answers[[3, 1]])


@pytest.mark.parametrize(
    ("count", "error", "message"),
    [(0, ValueError, "num_examples=0 must be at least 1"), (2.5, TypeError, "num_examples must be an integer")],
)
def test_a_wrong_number_of_meetings_is_refused(count, error, message):
    with pytest.raises(error, match=re.escape(message)):
        meetings(count, seed=0)
