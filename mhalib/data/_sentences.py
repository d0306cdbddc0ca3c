"""Sentences about whom sees whom, with questions about every word; and meetings, with two names to look up."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from .._validate import as_list, require_count, require_seed, require_text
from ._examples import Examples

PADDING = "<pad>"
"""The word that fills short sentences up; its number is 0."""
DETERMINERS = tuple("the a this my every your".split())
"""With which a sentence's noun phrases begin."""
ADJECTIVES = tuple("small big wise red quiet hungry green brave young tall kind clever".split())
"""None, one or more before a noun."""
NOUNS = tuple("cat dog bird child fox teacher robot horse farmer queen pilot singer mouse bear".split())
"""Subjects and objects."""
ADVERBS = tuple("often slowly today happily never softly".split())
"""May stand before the verb."""
VERBS = tuple("sees likes follows hears finds helps paints meets".split())
"""One in each sentence, with `s`."""
VOCABULARY = (PADDING, *DETERMINERS, *ADJECTIVES, *NOUNS, *ADVERBS, *VERBS)
"""All words of `sentences`; a word's place is its number."""
WORD_IDS = {word: i for i, word in enumerate(VOCABULARY)}
"""Word of `VOCABULARY` -> its number."""

QUESTIONS = ("previous word", "next word", "subject", "verb")
"""What is asked about every word of a sentence; the first word is its own previous one, the last its own next."""

IGNORED = -100
"""The answer at padding: the index that `torch.nn.functional.cross_entropy` ignores."""

MAX_WORDS = 10
"""Words of the longest sentence."""


@dataclass(frozen=True)
class Sentences(Examples):
    """Sentences with the four `QUESTIONS` answered for every word. n sentences, padded to N = 10 tokens.

    tokens: (n, N) word ids.
    valid_lens: (n,) how many tokens are real.
    positions: (n, N, 4) where the answer to each question stands, 0 at padding.
    """

    tokens: Tensor
    valid_lens: Tensor
    positions: Tensor

    @property
    def is_real(self) -> Tensor:
        """(n, N) boolean: `True` at a word, `False` at padding."""
        return torch.arange(self.tokens.shape[1], device=self.tokens.device) < self.valid_lens[:, None]

    @property
    def answers(self) -> Tensor:
        """(n, N, 4) ids of the words that answer the questions, `IGNORED` at padding."""
        found = self.tokens.gather(1, self.positions.flatten(1)).view_as(self.positions)
        return found.masked_fill(~self.is_real[..., None], IGNORED)

    def words(self, i: int) -> list[str]:
        """Sentence i as words, without its padding."""
        return [VOCABULARY[token] for token in self.tokens[i, : self.valid_lens[i]].tolist()]


def sentences(num_examples: int, seed: int) -> Sentences:
    """Different sentences such as "the small cat often sees a dog", so that a split of them is disjoint.

    The grammar: phrase, adverb (in 2 of 5 sentences), verb, phrase; a phrase is a determiner, 0 to 2 adjectives
    and a noun. The subject is the noun of the first phrase. At most 10 words.

    Raises:
        TypeError, ValueError: `num_examples` is not an integer of at least 1.
    """
    require_count("num_examples", num_examples)
    require_seed("seed", seed)
    rng = random.Random(int(seed))
    made: dict[tuple[str, ...], None] = {}  # a dict keeps the order, a set would not
    while len(made) < num_examples:
        made[_sentence(rng)] = None
    return read_sentences(list(made))


def read_sentences(texts: list[tuple[str, ...]]) -> Sentences:
    """Word ids and positions for sentences of this grammar: the first noun is the subject.

    Raises:
        ValueError: a sentence is too long, has an unknown word, no noun or no verb.
    """
    texts = [tuple(as_list("each sentence", text)) for text in as_list("texts", texts)]
    tokens = torch.zeros(len(texts), MAX_WORDS, dtype=torch.long)
    positions = torch.zeros(len(texts), MAX_WORDS, len(QUESTIONS), dtype=torch.long)
    for i, words in enumerate(texts):
        tokens[i, : len(words)] = torch.tensor(_checked_ids(words))
        subject = next(t for t, word in enumerate(words) if word in NOUNS)
        verb = next(t for t, word in enumerate(words) if word in VERBS)
        last = len(words) - 1
        answers = [(max(t - 1, 0), min(t + 1, last), subject, verb) for t in range(len(words))]
        positions[i, : len(words)] = torch.tensor(answers)
    return Sentences(tokens, torch.tensor([len(words) for words in texts], dtype=torch.long), positions)


NAMES = tuple(
    "Ada Ali Amy Ana Ann Avi Bea Ben Bo Cal Cleo Cy Dan Dee Don Dora Ed Eli Ella Emma Eva Ezra Fay Finn Flo Gia Gil "
    "Gus Hal Hugo Ian Ida Ike Ina Iris Ivan Ivy Jan Jo Joy Juan Kai Kay Ken Kim Kit Lea Lee Leo Lia Lin Lou Lucy Luz "
    "Mae Max May Mia Mina Moe Nan Ned Nia Nina Noa Noel Nora Ola Omar Oona Otis Pam Paul Pia Quin Ray Rex Rita Rob "
    "Rosa Roy Sam Sara Sid Sky Sue Tara Ted Tess Tia Tim Tom Una Uri Val Vera Vic Wim Yan Zoe".split()
)
"""Who meets in `meetings`."""
ACTIONS = tuple("calls greets helps meets praises teaches thanks visits".split())
"""What one does to the other in `meetings`."""
SETTINGS = tuple(
    "again always early gladly here inside later often outside quickly quietly rarely slowly softly somewhere soon "
    "there today tomorrow twice".split()
)
"""When, where and how, in `meetings`."""
MEETING_VOCABULARY = (*NAMES, *ACTIONS, *SETTINGS)
"""All words of `meetings`; a word's place is its number."""
MEETING_LENGTH = 8
"""Words of each report of `meetings`."""


@dataclass(frozen=True)
class Meetings(Examples):
    """Sentences of N = 8 words in which one does something to another: "today Ana gladly thanks Ben here again soon".

    tokens: (n, N) ids of words in `MEETING_VOCABULARY`; ids below `len(NAMES)` are names.
    verbs: (n,) where the verb stands.
    places: (n, 2) where the one who does it stands, before the verb, and the one to whom it is done, after it.
    """

    tokens: Tensor
    verbs: Tensor
    places: Tensor

    @property
    def answers(self) -> Tensor:
        """(n, 2) ids of the two names."""
        return self.tokens.gather(1, self.places)

    def words(self, i: int) -> list[str]:
        """Sentence i as words."""
        return [MEETING_VOCABULARY[token] for token in self.tokens[i].tolist()]


def meetings(num_examples: int, seed: int) -> Meetings:
    """Different sentences with two names and a verb at random places, the rest filled with words that do not matter.

    Both names come from one list of 100, and nothing but their order tells who does it.

    Raises:
        TypeError, ValueError: `num_examples` is not an integer of at least 1.
    """
    require_count("num_examples", num_examples)
    require_seed("seed", seed)
    rng = random.Random(int(seed))
    made: dict[tuple[str, ...], tuple[int, int, int]] = {}
    while len(made) < num_examples:
        places = sorted(rng.sample(range(MEETING_LENGTH), 3))
        words = rng.choices(SETTINGS, k=MEETING_LENGTH)
        for place, kind in zip(places, (NAMES, ACTIONS, NAMES), strict=True):
            words[place] = rng.choice(kind)
        made[tuple(words)] = (places[0], places[1], places[2])
    ids = {word: i for i, word in enumerate(MEETING_VOCABULARY)}
    found = torch.tensor(list(made.values()))
    tokens = torch.tensor([[ids[word] for word in words] for words in made])
    return Meetings(tokens, found[:, 1], found[:, [0, 2]])


def _checked_ids(words: tuple[str, ...]) -> list[int]:
    for word in words:
        require_text("each word", word)
    text = " ".join(words)
    if len(words) > MAX_WORDS:
        raise ValueError(f"a sentence has at most {MAX_WORDS} words, got {len(words)}: {text!r}")
    unknown = [word for word in words if word not in WORD_IDS]
    if unknown:
        raise ValueError(f"unknown words {unknown} in {text!r}; mhalib.data.VOCABULARY lists the known ones")
    for kind, members in (("noun", NOUNS), ("verb", VERBS)):
        if not any(word in members for word in words):
            raise ValueError(f"no {kind} in {text!r}")
    return [WORD_IDS[word] for word in words]


def _phrase(rng: random.Random) -> list[str]:
    adjectives = rng.sample(ADJECTIVES, rng.choice((0, 0, 1, 1, 2)))
    return [rng.choice(DETERMINERS), *adjectives, rng.choice(NOUNS)]


def _sentence(rng: random.Random) -> tuple[str, ...]:
    adverb = [rng.choice(ADVERBS)] if rng.random() < 0.4 else []
    return (*_phrase(rng), *adverb, rng.choice(VERBS), *_phrase(rng))
