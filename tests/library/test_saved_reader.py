"""The reader that comes with the package: its file, what the file says of it, and one head for each question."""

from functools import cache

import pytest
import torch

from mhalib import heads_of, saved, switched_off
from mhalib.data import QUESTIONS, VOCABULARY, read_sentences, sentences

BEST_HEADS = {"previous word": 3, "next word": 1, "subject": 0, "verb": 2}
EXAMPLE = "the clever fox sees my hungry young bear"


@cache
def unseen():
    """Made when a test asks for it first, not when tests are collected."""
    return sentences(21_000, seed=0)[20_000:]


@pytest.fixture(scope="module")
def model():
    return saved.load("reader")


def accuracy(model, data):
    """(4,): how often each question is answered correctly, over all real words."""
    with torch.no_grad():
        scores, _ = model(data.tokens, data.valid_lens)
    return (scores.argmax(-1) == data.answers)[data.is_real].float().mean(0)


def test_the_file_is_small(model):
    assert model.num_weights == 32_252
    assert (saved.FOLDER / "reader.safetensors").stat().st_size < 67_000


def test_the_metric_is_what_the_file_says(model):
    about = saved.about("reader")
    assert about.command == "python -m tools.evidence.train reader"
    assert accuracy(model, unseen()).min() == pytest.approx(about.metric[1], abs=0.001)
    assert about.metric[1] > 0.999


def test_sentences_of_another_seed(model):
    assert accuracy(model, sentences(1000, seed=77)).min() > 0.999


def test_each_question_has_a_head_of_its_own(model):
    """That head puts most of its weight on the answer, and without it this question, and no other, is mostly lost."""
    with torch.no_grad():
        weights = model(unseen().tokens, unseen().valid_lens, need_weights=True)[1]["encoder self"][0]
    sentence, word = unseen().is_real.nonzero(as_tuple=True)
    for number, question in enumerate(QUESTIONS):
        on_answer = weights[sentence, :, word, unseen().positions[sentence, word, number]].mean(0)
        assert on_answer.argmax() == BEST_HEADS[question]
        assert on_answer.max() > 0.85
        with switched_off(model, [heads_of(model)[BEST_HEADS[question]]]):
            without = accuracy(model, unseen())
        assert without.argmin() == number
        assert without[number] < 0.3
        assert sum(without > 0.85) == 3


def test_the_sentence_of_chapter_0(model):
    """Without the verb's head only the word before the verb still names it: the next word's head is left."""
    example = read_sentences([tuple(EXAMPLE.split())])
    assert accuracy(model, example).tolist() == [1, 1, 1, 1]
    with switched_off(model, [heads_of(model)[BEST_HEADS["verb"]]]), torch.no_grad():
        scores, _ = model(example.tokens, example.valid_lens)
    verbs = [VOCABULARY[i] for i in scores[0, :8, QUESTIONS.index("verb")].argmax(-1)]
    assert [verb == "sees" for verb in verbs] == [False, False, True] + [False] * 5
