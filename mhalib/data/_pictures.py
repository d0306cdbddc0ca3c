"""Pictures with several handwritten digits: sums to be described in words, and pairs to be asked about."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .._validate import require_count, require_kind, require_seed, require_text
from ._digits import DIGIT_SIZE, Digits, shifted
from ._examples import Examples
from ._translation import BEGIN, END
from ._vocabulary import Vocabulary

DIGIT_WORDS = tuple("zero one two three four five six seven eight nine".split())
SIGN_WORDS = ("plus", "minus", "times")
CAPTION_WORDS = Vocabulary((BEGIN, END, *DIGIT_WORDS, *SIGN_WORDS))
"""The words of captions: begin, end, digits and signs."""
MAX_SYMBOLS = 5  # three digits and two signs
SUM_WIDTH = MAX_SYMBOLS * DIGIT_SIZE

_DRAWN = (
    "........ ...##... ...##... .######. .######. ...##... ...##... ........",
    "........ ........ ........ .######. .######. ........ ........ ........",
    "........ .#....#. ..#..#.. ...##... ...##... ..#..#.. .#....#. ........",
)
SIGNS = torch.tensor([[[float(pixel == "#") for pixel in row] for row in sign.split()] for sign in _DRAWN])
"""(3, 8, 8): plus, minus, times, drawn by us."""


@dataclass(frozen=True)
class Sums(Examples):
    """n pictures such as "three plus seven minus one", with their words. T = 7 tokens.

    Row t of a decoder reads `tokens[:, t]` and writes `tokens[:, t + 1]`.

    images: (n, 8, 40). Two or three digits with a sign between them, somewhere; the rest is blank.
    tokens: (n, T) ids in `CAPTION_WORDS`: begin, the words, end, padding.
    valid_lens: (n,) how many tokens are real, begin and end among them.
    columns: (n,) the column at which the first digit begins; every symbol is 8 columns wide.
    numbers: (n, 3) which of scikit-learn's digits are on the picture, -1 for none.
    """

    images: Tensor
    tokens: Tensor
    valid_lens: Tensor
    columns: Tensor
    numbers: Tensor

    def words(self, i: int) -> list[str]:
        """What stands on picture i, in words, without begin and end."""
        return CAPTION_WORDS.decode(self.tokens[i, 1 : int(self.valid_lens[i]) - 1])


def sums(source: Digits, num_examples: int, seed: int) -> Sums:
    """Pictures of two digits and a sign, or of three digits and two signs, as many of each.

    Args:
        source: where the digits come from: `train, test = digits()`; one of them. Each is moved by a pixel at most.
        num_examples: n.
        seed: of the random numbers.

    Raises:
        TypeError, ValueError: `num_examples` is not an integer of at least 1, or `source` is empty.
    """
    rng = _generator(source, num_examples, seed)
    drawn = torch.randint(len(source), (num_examples, 3), generator=rng).to(source.labels.device)
    signs = torch.randint(len(SIGN_WORDS), (num_examples, 2), generator=rng)
    is_long = torch.rand(num_examples, generator=rng) < 0.5
    columns = torch.randint(2 * DIGIT_SIZE + 1, (num_examples,), generator=rng).masked_fill(is_long, 0)
    images = shifted(source.images[drawn].flatten(0, 1).cpu(), rng).unflatten(0, (-1, 3))
    symbols = torch.stack([images[:, 0], SIGNS[signs[:, 0]], images[:, 1], SIGNS[signs[:, 1]], images[:, 2]], 1)
    symbols[~is_long, 3:] = 0.0
    line = symbols.transpose(1, 2).flatten(2)  # (n, 8, 40), all symbols at the left
    places = (torch.arange(SUM_WIDTH) - columns[:, None]) % SUM_WIDTH
    line = line.gather(2, places[:, None].expand(-1, DIGIT_SIZE, -1))

    labels = source.labels[drawn].cpu()
    digit_ids = torch.tensor([CAPTION_WORDS.ids[word] for word in DIGIT_WORDS])[labels]
    sign_ids = torch.tensor([CAPTION_WORDS.ids[word] for word in SIGN_WORDS])[signs]
    begin, end = (torch.full((num_examples,), CAPTION_WORDS.ids[name]) for name in (BEGIN, END))
    tokens = torch.stack(
        [begin, digit_ids[:, 0], sign_ids[:, 0], digit_ids[:, 1], sign_ids[:, 1], digit_ids[:, 2], end], 1
    )
    tokens[~is_long, 4:] = 0
    tokens[~is_long, 4] = CAPTION_WORDS.ids[END]
    numbers = source.numbers[drawn].cpu()
    numbers[~is_long, 2] = -1
    return Sums(line, tokens, torch.where(is_long, 7, 5), columns, numbers)


QUESTION_WORDS = Vocabulary("are digit digits equal even is larger left right the what ?".split() + list(DIGIT_WORDS))
"""The words of questions."""
PICTURE_QUESTIONS = ("name", "even", "number", "larger", "equal")
"""Kinds of question: what is the left digit? is it even? is it seven? is it larger? are the digits equal? The first
four ask about the left or the right digit; the first is answered by a digit, the others by yes or no."""
ANSWERS = ("no", "yes", *DIGIT_WORDS)
"""The words of answers; a word's place is its number."""
MAX_QUESTION = 6


@dataclass(frozen=True)
class Pairs(Examples):
    """n pictures of two digits, each with a question and its answer. Q = 6 tokens, padded.

    images: (n, 8, 16).
    questions: (n, Q) ids in `QUESTION_WORDS`.
    question_lens: (n,) how many of them are real.
    answers: (n,) places in `ANSWERS`: 0 is no, 1 is yes, 2 + i is the digit i.
    kinds: (n,) places in `PICTURE_QUESTIONS`.
    sides: (n,) which digit is asked about: 0 the left one, 1 the right one, -1 both.
    labels: (n, 2) the digits.
    numbers: (n, 2) which of scikit-learn's images they are.
    """

    images: Tensor
    questions: Tensor
    question_lens: Tensor
    answers: Tensor
    kinds: Tensor
    sides: Tensor
    labels: Tensor
    numbers: Tensor

    def words(self, i: int) -> list[str]:
        """Question i, without its padding."""
        return QUESTION_WORDS.decode(self.questions[i])


def pairs(source: Digits, num_examples: int, seed: int) -> Pairs:
    """Pictures with a question each: all kinds are as likely, and where the answer is yes or no, either is.

    The answer is drawn first, then two digits for which it is right, each such pair of digits as likely.

    Args:
        source: where the digits come from: `train, test = digits()`; one of them. Each is moved by a pixel at most.
        num_examples: n.
        seed: of the random numbers.

    Raises:
        TypeError: `num_examples` is not an integer.
        ValueError: it is less than 1, `source` is empty, or has not all ten digits.
    """
    rng = _generator(source, num_examples, seed)
    kinds = torch.randint(len(PICTURE_QUESTIONS), (num_examples,), generator=rng)
    sides = torch.randint(2, (num_examples,), generator=rng)
    named = torch.randint(10, (num_examples,), generator=rng)
    names = torch.randint(2, len(ANSWERS), (num_examples,), generator=rng)
    wanted = torch.where(
        kinds == PICTURE_QUESTIONS.index("name"), names, torch.randint(2, (num_examples,), generator=rng)
    )
    left, right = torch.arange(100) // 10, torch.arange(100) % 10  # every pair of digits
    fits = answer(kinds[:, None], sides[:, None], named[:, None], left, right) == wanted[:, None]
    drawn = torch.multinomial(fits.float(), 1, generator=rng)[:, 0]
    labels = torch.stack([left[drawn], right[drawn]], 1)
    rows = _one_of_each(source.labels.cpu(), labels, rng)
    images = shifted(source.images.cpu()[rows].flatten(0, 1), rng).unflatten(0, (-1, 2))
    texts = [_question(*asked) for asked in zip(kinds.tolist(), sides.tolist(), named.tolist(), strict=True)]
    questions, question_lens = QUESTION_WORDS.encode(texts, MAX_QUESTION)
    sides = sides.masked_fill(kinds == PICTURE_QUESTIONS.index("equal"), -1)
    picture = images.transpose(1, 2).flatten(2)
    return Pairs(picture, questions, question_lens, wanted, kinds, sides, labels, source.numbers.cpu()[rows])


def answer(kinds: Tensor, sides: Tensor, named: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Places in `ANSWERS`; `named` is the number in a question of the kind "number". Arguments broadcast."""
    own, other = torch.where(sides == 0, left, right), torch.where(sides == 0, right, left)
    by_kind = {
        "name": own + 2,
        "even": own % 2 == 0,
        "number": own == named,
        "larger": own > other,
        "equal": own == other,
    }
    found = torch.zeros_like(own)
    for number, kind in enumerate(PICTURE_QUESTIONS):
        found = torch.where(kinds == number, by_kind[kind].long(), found)
    return found


def read_question(text: str) -> tuple[Tensor, Tensor]:
    """A question such as "is the left digit seven ?" -> ids (1, Q), and how many are real (1,).

    Raises:
        ValueError: a word is not known, or there are too many.
    """
    require_text("text", text)
    return QUESTION_WORDS.encode([text.split()], MAX_QUESTION)


def _question(kind: int, side: int, named: int) -> list[str]:
    name, place = PICTURE_QUESTIONS[kind], ("left", "right")[side]
    if name == "equal":
        return "are the digits equal ?".split()
    if name == "name":
        return ["what", "is", "the", place, "digit", "?"]
    return ["is", "the", place, "digit", DIGIT_WORDS[named] if name == "number" else name, "?"]


def _one_of_each(available: Tensor, wanted: Tensor, rng: torch.Generator) -> Tensor:
    """For each wanted label a row of `available` that has it, each such row as likely."""
    rows = torch.zeros_like(wanted)
    for label in range(10):
        is_wanted, choice = wanted == label, (available == label).nonzero()[:, 0]
        if not len(choice):
            raise ValueError(f"source has no digit {label}")
        rows[is_wanted] = choice[torch.randint(len(choice), (int(is_wanted.sum()),), generator=rng)]
    return rows


def _generator(source: Digits, num_examples: int, seed: int) -> torch.Generator:
    require_count("num_examples", num_examples)
    require_seed("seed", seed)
    require_kind("source", source, Digits)
    if not len(source):
        raise ValueError("source holds no digits")
    return torch.Generator().manual_seed(int(seed))
