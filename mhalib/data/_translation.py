"""A small English and its French: gender, number, word order, elision and negation, by exact rules.

An English sentence is read into a `Clause`, and a clause is written in French, so that a reader's own sentence has one
right translation, and each French word is known to come from certain English words. The rules are those of written
French; two kinds of word that would need rules of their own, pronouns and contractions such as "du", do not occur.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .._validate import as_list, require_choice, require_count, require_seed, require_text
from ._english import Clause, Phrase, parse, spell
from ._examples import Examples
from ._french import FORMS, LEMMAS, write
from ._lexicon import ADJECTIVES, ADVERBS, DETERMINERS, ENGLISH_WORDS, MANNERS, NOUNS, PREPOSITIONS, RANKS, VERBS
from ._vocabulary import Vocabulary

__all__ = [
    "BEGIN",
    "END",
    "ENGLISH",
    "FRENCH",
    "LEMMAS",
    "MAX_SOURCE",
    "MAX_TARGET",
    "RELATIONS",
    "Translations",
    "held_out",
    "read_english",
    "spoken",
    "translate",
    "translations",
]

BEGIN = "<begin>"
"""The token before each French sentence."""
END = "<end>"
"""The token after each French sentence."""
ENGLISH = Vocabulary(ENGLISH_WORDS)
"""The English words of `translations`."""
FRENCH = Vocabulary((BEGIN, END, *FORMS))
"""The French words of `translations`, with begin and end."""
MAX_SOURCE = 14
MAX_TARGET = 16
RELATIONS = (
    "determiner",
    "adjective",
    "subject",
    "object",
    "preposition",
    "after preposition",
    "auxiliary",
    "negation",
    "adverb",
)
"""What an English word is to the word that it belongs to; the verb belongs to none."""

PAIRS = ("seen", "unseen")


@dataclass(frozen=True)
class Translations(Examples):
    """n English sentences and their French. K = 14 English words, T = 16 French tokens, padded with 0.

    Row t of a decoder reads `target[:, t]` and writes `target[:, t + 1]`. What is told of French words is told for the
    words *written*, so that row t of `alignments` belongs to row t of the cross-attention.

    source: (n, K) ids in `ENGLISH`.
    source_lens: (n,) how many English words are real.
    target: (n, T) ids in `FRENCH`: begin, the French words, end.
    target_lens: (n,) how many of those tokens are real, begin and end among them.
    alignments: (n, T - 1, K) boolean, the English words that a written French word translates; none for end.
    agreements: (n, T - 1, K) boolean, the English noun whose gender or number gives a written word its form: for
        determiners and adjectives their noun, for a verb its subject.
    governors: (n, K) the place of the word that an English word belongs to: of a determiner its noun, of a subject its
        verb; -1 at the verb and at padding.
    relations: (n, K) what it is to that word, an index in `RELATIONS`; -1 at the verb and at padding.
    """

    source: Tensor
    source_lens: Tensor
    target: Tensor
    target_lens: Tensor
    alignments: Tensor
    agreements: Tensor
    governors: Tensor
    relations: Tensor

    @property
    def written(self) -> Tensor:
        """(n, T - 1) what the decoder is to write: `target` without its begin."""
        return self.target[:, 1:]

    def words(self, i: int) -> list[str]:
        """English sentence i, without its padding."""
        return ENGLISH.decode(self.source[i])

    def french(self, i: int) -> list[str]:
        """French sentence i, without begin, end and padding."""
        return FRENCH.decode(self.target[i, 1 : int(self.target_lens[i]) - 1])

    def links(self, relation: str) -> Tensor:
        """(n, K, K) boolean: `True` where word t stands in this relation to word j, as in a head's weights[t, j].

        Raises:
            ValueError: `relation` is not one of `RELATIONS`.
        """
        if relation not in RELATIONS:
            raise ValueError(f"relation={relation!r} must be one of {RELATIONS}")
        places = torch.arange(self.source.shape[1], device=self.source.device)
        is_one = self.relations == RELATIONS.index(relation)
        return is_one[..., None] & (self.governors[..., None] == places)


def translations(num_examples: int, seed: int, *, pairs: str = "seen") -> Translations:
    """Different sentences of the grammar, so that a split of them is disjoint.

    A sentence is a subject, a verb, and an object, or a preposition with its phrase, or neither; a phrase is a
    determiner, 0 to 2 adjectives and a noun.

    Args:
        num_examples: n.
        seed: of the random numbers.
        pairs: "seen": no adjective stands beside a noun with which it is `held_out`. "unseen": at least one does. So
            no sentence is in both kinds, and who learns from the first has never met the pairs of the second.

    Raises:
        TypeError, ValueError: an argument is not of this kind.
    """
    require_count("num_examples", num_examples)
    require_seed("seed", seed)
    require_choice("pairs", pairs, PAIRS)
    rng = random.Random(int(seed))
    made: dict[Clause, None] = {}  # a dict keeps the order, a set would not
    while len(made) < num_examples:
        clause = _clause(rng)
        if _has_held_out(clause) == (pairs == "unseen"):
            made[clause] = None
    return _collect(list(made))


def held_out(adjective: str, noun: str) -> bool:
    """Whether no sentence with `pairs="seen"` has this adjective beside this noun, singular or plural: 1 pair in 10.

    Raises:
        ValueError: there is no such adjective, or no such noun in the singular.
    """
    for name, word, known in (("adjective", adjective, ADJECTIVES), ("noun", noun, NOUNS)):
        if word not in known:
            raise ValueError(f"{name}={word!r} must be one of {sorted(known)}")
    return (list(ADJECTIVES).index(adjective) + 3 * list(NOUNS).index(noun)) % 10 == 1


def read_english(texts: Sequence[str]) -> Translations:
    """A reader's own sentences, with their translation, in the form of the training data.

    Args:
        texts: such as "The quick brown fox jumps over the lazy dog."; capitals and a full stop do not matter. A phrase
            may have three adjectives here.

    Raises:
        TypeError: `texts` is one string, or holds something else than strings.
        ValueError: a word is not known, or the sentence is not of the grammar; the message says what is missing.
    """
    if isinstance(texts, str):
        raise TypeError(f"texts must be a list of sentences, got one string: {texts!r:.80}")
    return _collect([_parse(text) for text in as_list("texts", texts)])


def translate(text: str) -> list[str]:
    """The French words of one English sentence, by the rules; errors as in `read_english`."""
    return list(write(_parse(text)).words)


def spoken(words: Sequence[str]) -> str:
    """French words as one writes them: no space behind an apostrophe."""
    for word in as_list("words", words):
        require_text("each word", word)
    return " ".join(words).replace("' ", "'")


def _parse(text: str) -> Clause:
    if not isinstance(text, str):
        raise TypeError(f"a sentence must be a string, got {type(text).__name__}: {text!r:.80}")
    words = text.lower().removesuffix(".").split()
    if not words:
        raise ValueError("a sentence is empty")
    unknown = [word for word in words if word not in ENGLISH.ids or word == ENGLISH.padding]
    if unknown:
        raise ValueError(f"unknown words {unknown} in {text!r}; mhalib.data.ENGLISH.words lists the known ones")
    if len(words) > MAX_SOURCE:
        raise ValueError(f"a sentence has at most {MAX_SOURCE} words, got {len(words)}: {text!r}")
    return parse(words)


def _collect(clauses: list[Clause]) -> Translations:
    count = len(clauses)
    both = [(spell(clause), write(clause)) for clause in clauses]
    source, source_lens = ENGLISH.encode([english.words for english, _ in both], MAX_SOURCE)
    target, target_lens = FRENCH.encode([(BEGIN, *french.words, END) for _, french in both], MAX_TARGET)
    governors = torch.full((count, MAX_SOURCE), -1)
    relations = torch.full((count, MAX_SOURCE), -1)
    for i, (english, _) in enumerate(both):
        length = len(english.words)
        governors[i, :length] = torch.tensor(english.governors)
        relations[i, :length] = torch.tensor(
            [-1 if name is None else RELATIONS.index(name) for name in english.relations]
        )
    alignments = _marks([french.origins for _, french in both])
    agreements = _marks([french.agreements for _, french in both])
    return Translations(source, source_lens, target, target_lens, alignments, agreements, governors, relations)


def _marks(places: list[list[tuple[int, ...]]]) -> Tensor:
    """For each sentence and French word the places of English words -> (n, T - 1, K) boolean."""
    cells = [(i, t, j) for i, of_one in enumerate(places) for t, of_word in enumerate(of_one) for j in of_word]
    marked = torch.zeros(len(places), MAX_TARGET - 1, MAX_SOURCE, dtype=torch.bool)
    if cells:
        marked[tuple(torch.tensor(cells).T)] = True
    return marked


def _has_held_out(clause: Clause) -> bool:
    phrases = [clause.subject] if clause.object is None else [clause.subject, clause.object]
    return any(held_out(adjective, phrase.noun) for phrase in phrases for adjective in phrase.adjectives)


def _phrase(rng: random.Random, *, negated: bool = False) -> Phrase:
    """`negated`: it is the object of a negated verb, where "some" becomes "any"."""
    is_plural = rng.random() < 0.4
    number = "plural" if is_plural else "singular"
    outside = "some" if negated else "any"
    determiner = rng.choice([word for word, numbers in DETERMINERS.items() if number in numbers and word != outside])
    ranks = sorted(rng.sample(range(len(RANKS)), rng.choice((0, 1, 1, 1, 2, 2))))  # one adjective of a rank
    return Phrase(determiner, tuple(rng.choice(RANKS[rank]) for rank in ranks), rng.choice(list(NOUNS)), is_plural)


def _clause(rng: random.Random) -> Clause:
    verb = rng.choice(list(VERBS))
    is_transitive = VERBS[verb].is_transitive
    negation = rng.choices((None, "not", "never"), (65, 25, 10))[0]
    manner = rng.choice(list(MANNERS)) if negation != "never" and rng.random() < 0.25 else None
    preposition = None if is_transitive or rng.random() < 0.15 else rng.choice(list(PREPOSITIONS))
    has_object = is_transitive or preposition is not None
    return Clause(
        subject=_phrase(rng),
        verb=verb,
        negation=negation,
        manner=manner,
        preposition=preposition,
        object=_phrase(rng, negated=is_transitive and negation is not None) if has_object else None,
        adverb=rng.choice(list(ADVERBS)) if rng.random() < 0.35 else None,
    )
