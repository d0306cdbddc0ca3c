"""Pictures of several digits: words, answers and places are worked out again here from the pictures' own numbers."""

import pytest
import torch

from mhalib.data import ANSWERS, CAPTION_WORDS, PICTURE_QUESTIONS, QUESTION_WORDS, digits, pairs, read_question, sums
from mhalib.data._pictures import DIGIT_WORDS, SIGN_WORDS, SIGNS

TRAIN, TEST = digits()
EVERY = {
    int(n): (image, int(label))
    for part in (TRAIN, TEST)
    for image, label, n in zip(part.images, part.labels, part.numbers, strict=True)
}
SUMS = sums(TEST, 300, seed=0)
PAIRS = pairs(TEST, 600, seed=0)


def is_shift_of(square, image):
    """Whether `square` (8, 8) is `image` moved by at most a pixel."""
    padded = torch.nn.functional.pad(image, (1, 1, 1, 1))
    return any(torch.equal(square, padded[r : r + 8, c : c + 8]) for r in range(3) for c in range(3))


def test_a_sum_shows_what_its_words_say():
    for i in range(len(SUMS)):
        words, start = SUMS.words(i), int(SUMS.columns[i])
        numbers = [n for n in SUMS.numbers[i].tolist() if n >= 0]
        assert len(words) == 2 * len(numbers) - 1
        assert words[::2] == [DIGIT_WORDS[EVERY[n][1]] for n in numbers]
        for place, word in enumerate(words):
            square = SUMS.images[i, :, start + 8 * place : start + 8 * place + 8]
            if place % 2:
                assert torch.equal(square, SIGNS[SIGN_WORDS.index(word)])
            else:
                assert is_shift_of(square, EVERY[numbers[place // 2]][0])
        outside = torch.ones(40, dtype=torch.bool)
        outside[start : start + 8 * len(words)] = False
        assert (SUMS.images[i][:, outside] == 0).all()


def test_the_tokens_of_a_sum():
    begin, end = CAPTION_WORDS.ids["<begin>"], CAPTION_WORDS.ids["<end>"]
    for tokens, length in zip(SUMS.tokens.tolist(), SUMS.valid_lens.tolist(), strict=True):
        assert (tokens[0], tokens[length - 1], tokens[length:]) == (begin, end, [0] * (7 - length))
    assert sorted(SUMS.valid_lens.unique().tolist()) == [5, 7]
    assert 100 < int((SUMS.valid_lens == 7).sum()) < 200


def test_short_sums_stand_anywhere():
    columns = sums(TEST, 2000, seed=3).columns
    assert sorted(columns.unique().tolist()) == list(range(17))


def test_the_signs_differ_and_are_pictures():
    assert SIGNS.shape == (3, 8, 8)
    assert len({tuple(sign.flatten().tolist()) for sign in SIGNS}) == 3
    for sign in SIGNS:
        assert torch.equal(sign, sign.flip(0))
        assert torch.equal(sign, sign.flip(1))


def expected_answer(words, left, right):
    if words == "are the digits equal ?".split():
        return "yes" if left == right else "no"
    own, other = (left, right) if "left" in words else (right, left)
    if words[0] == "what":
        return DIGIT_WORDS[own]
    asked = words[-2]
    truth = own > other if asked == "larger" else own % 2 == 0 if asked == "even" else DIGIT_WORDS[own] == asked
    return "yes" if truth else "no"


def test_answers_follow_from_the_words_and_the_digits():
    for i in range(len(PAIRS)):
        left, right = PAIRS.labels[i].tolist()
        assert ANSWERS[PAIRS.answers[i]] == expected_answer(PAIRS.words(i), left, right), PAIRS.words(i)


def test_a_pair_shows_its_digits():
    for i in range(200):
        for side in (0, 1):
            image, label = EVERY[int(PAIRS.numbers[i, side])]
            assert label == int(PAIRS.labels[i, side])
            assert is_shift_of(PAIRS.images[i, :, 8 * side : 8 * side + 8], image)


def test_kinds_and_sides_are_what_the_words_ask():
    for i in range(len(PAIRS)):
        words, kind, side = PAIRS.words(i), PICTURE_QUESTIONS[PAIRS.kinds[i]], int(PAIRS.sides[i])
        asked = {"what": "name", "are": "equal"}.get(words[0], "number" if words[-2] in DIGIT_WORDS else words[-2])
        assert asked == kind
        assert (side == 0, side == 1) == ("left" in words, "right" in words)
        assert int(PAIRS.question_lens[i]) == len(words)


def test_answers_are_balanced_within_each_kind_and_side():
    many = pairs(TRAIN, 20_000, seed=1)
    for kind in range(len(PICTURE_QUESTIONS)):
        for side in (0, 1) if PICTURE_QUESTIONS[kind] != "equal" else (-1,):
            answers = many.answers[(many.kinds == kind) & (many.sides == side)]
            assert len(answers) > 1800
            if PICTURE_QUESTIONS[kind] == "name":
                assert torch.bincount(answers, minlength=12)[2:].float().div(len(answers)).sub(0.1).abs().max() < 0.025
            else:
                assert abs(float((answers == 1).float().mean()) - 0.5) < 0.04


def test_test_pictures_show_no_image_that_train_pictures_show():
    for make in (sums, pairs):
        seen, unseen = (set(make(part, 3000, seed=0).numbers.flatten().tolist()) - {-1} for part in (TRAIN, TEST))
        assert not seen & unseen
        assert len(unseen) > 400


@pytest.mark.parametrize("make", [sums, pairs])
def test_the_seed_decides_and_chance_elsewhere_does_not(make):
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    first, again, other = make(TEST, 50, seed=4), make(TEST, 50, seed=4), make(TEST, 50, seed=5)
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(first.images, again.images)
    assert not torch.equal(first.images, other.images)


@pytest.mark.parametrize("made", [SUMS, PAIRS], ids=["sums", "pairs"])
def test_a_part_a_batch_a_device(made, device):
    batch = made.to(device)[torch.tensor([3, 1], device=device)]
    assert [batch.words(0), batch.words(1)] == [made.words(3), made.words(1)]
    assert batch.images.device.type == device.type
    assert len(made[:17]) == 17
    for name in vars(made):
        assert torch.equal(getattr(batch, name).cpu(), getattr(made, name)[[3, 1]]), name


@pytest.mark.parametrize("make", [sums, pairs])
@pytest.mark.parametrize(
    ("source", "count", "error", "message"),
    [
        (TEST, 0, ValueError, "num_examples=0 must be at least 1"),
        (TEST, 2.5, TypeError, "num_examples must be an integer, got float: 2.5"),
        (TEST[:0], 3, ValueError, "source holds no digits"),
    ],
)
def test_bad_arguments_are_named(make, source, count, error, message):
    with pytest.raises(error, match=message):
        make(source, count, seed=0)


def test_pairs_need_all_digits():
    with pytest.raises(ValueError, match="source has no digit 4"):
        pairs(TEST[TEST.labels != 4], 500, seed=0)


def test_reading_a_question():
    questions, lens = read_question("is the left digit seven ?")
    assert QUESTION_WORDS.decode(questions[0]) == "is the left digit seven ?".split()
    assert lens.tolist() == [6]
    with pytest.raises(ValueError, match=r"unknown words \['odd'\]"):
        read_question("is the left digit odd ?")
    with pytest.raises(ValueError, match="a text has 7 words, more than num_tokens=6"):
        read_question("is the left digit larger right ?")
