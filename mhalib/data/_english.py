"""A clause, written in English and read from it."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import NamedTuple

from ._lexicon import ADJECTIVES, ADVERBS, AUXILIARIES, DETERMINERS, MANNERS, NOUNS, PREPOSITIONS, VERBS

MAX_ADJECTIVES = 3
_NOUN_FORMS = {form: (noun, form != noun) for noun, forms in NOUNS.items() for form in (noun, forms.plural)}
_VERB_FORMS = {form: (verb, form != verb) for verb, forms in VERBS.items() for form in (verb, forms.third)}


@dataclass(frozen=True)
class Phrase:
    determiner: str  # "a" stands for "an" too
    adjectives: tuple[str, ...]
    noun: str  # the singular
    is_plural: bool


@dataclass(frozen=True)
class Clause:
    subject: Phrase
    verb: str  # without an s
    negation: str | None  # "not" or "never"
    manner: str | None
    preposition: str | None
    object: Phrase | None  # after the preposition, if there is one
    adverb: str | None


class Spelled(NamedTuple):
    """English words, for each the place of the word that it belongs to (-1: none), and what it is to it."""

    words: list[str]
    governors: list[int]
    relations: list[str | None]


class Places(NamedTuple):
    """Where the parts of a clause stand in its English words; -1 for what it has not."""

    subject: int  # its first word
    auxiliary: int
    negation: int
    manner: int
    verb: int
    preposition: int
    object: int
    adverb: int


def places_of(clause: Clause) -> Places:
    """Where `spell` puts each part."""
    at = _length(clause.subject)
    found = {"subject": 0, "auxiliary": -1, "negation": -1, "manner": -1, "preposition": -1, "object": -1, "adverb": -1}
    order = (
        ("auxiliary", int(clause.negation == "not")),
        ("negation", int(clause.negation is not None)),
        ("manner", int(clause.manner is not None)),
        ("verb", 1),
        ("preposition", int(clause.preposition is not None)),
        ("object", 0 if clause.object is None else _length(clause.object)),
        ("adverb", int(clause.adverb is not None)),
    )
    for part, length in order:
        if length:
            found[part] = at
        at += length
    return Places(**found)


def spell(clause: Clause) -> Spelled:
    """The clause in English."""
    places = places_of(clause)
    spelled = Spelled([], [], [])
    _add_phrase(spelled, clause.subject, places.verb, "subject")
    plural = clause.subject.is_plural
    if clause.negation == "not":
        _add(spelled, AUXILIARIES[plural], places.verb, "auxiliary")
    if clause.negation is not None:
        _add(spelled, clause.negation, places.verb, "negation")
    if clause.manner is not None:
        _add(spelled, clause.manner, places.verb, "adverb")
    _add(spelled, clause.verb if plural or clause.negation == "not" else VERBS[clause.verb].third, -1, None)
    if clause.preposition is not None:
        _add(spelled, clause.preposition, places.verb, "preposition")
    if clause.object is not None:
        if clause.preposition is None:
            _add_phrase(spelled, clause.object, places.verb, "object")
        else:
            _add_phrase(spelled, clause.object, places.preposition, "after preposition")
    if clause.adverb is not None:
        _add(spelled, clause.adverb, places.verb, "adverb")
    return spelled


def parse(words: list[str]) -> Clause:
    """The clause that these English words make; `ValueError` says what is wrong with them."""
    return _Reader(words).clause()


def _length(phrase: Phrase) -> int:
    return 2 + len(phrase.adjectives)


def _add(spelled: Spelled, word: str, governor: int, relation: str | None) -> None:
    spelled.words.append(word)
    spelled.governors.append(governor)
    spelled.relations.append(relation)


def _add_phrase(spelled: Spelled, phrase: Phrase, governor: int, relation: str) -> None:
    at = len(spelled.words) + len(phrase.adjectives) + 1  # of the noun
    noun = NOUNS[phrase.noun].plural if phrase.is_plural else phrase.noun
    _add(spelled, _article(phrase.determiner, (*phrase.adjectives, noun)[0]), at, "determiner")
    for adjective in phrase.adjectives:
        _add(spelled, adjective, at, "adjective")
    _add(spelled, noun, governor, relation)


def _article(determiner: str, following: str) -> str:
    return "an" if determiner == "a" and following[0] in "aeiou" else determiner


class _Reader:
    """Reads words from left to right."""

    def __init__(self, words: list[str]) -> None:
        self.words, self.at = words, 0

    @property
    def next(self) -> str | None:
        return self.words[self.at] if self.at < len(self.words) else None

    def fail(self, message: str) -> ValueError:
        return ValueError(f"{message} in {' '.join(self.words)!r}")

    def take(self, known: Container[str], what: str = "") -> str | None:
        """The next word if it is among the `known` ones; else `None`, or an error that asks for `what`."""
        word = self.next
        if word is not None and word in known:
            self.at += 1
            return word
        if what:
            place = "at the end" if word is None else f"where {word!r} stands"
            raise self.fail(f"expected {what} {place}")
        return None

    def clause(self) -> Clause:
        subject = self.phrase()
        auxiliary = self.take(AUXILIARIES)
        if auxiliary is not None and auxiliary != AUXILIARIES[subject.is_plural]:
            raise self.fail(f"the subject needs {AUXILIARIES[subject.is_plural]!r}, not {auxiliary!r},")
        negation = self.take(("not",), "'not'") if auxiliary else self.take(("never",))
        manner = None if negation == "never" else self.take(MANNERS)
        verb = self.verb(subject, auxiliary)
        is_transitive = VERBS[verb].is_transitive
        preposition = None if is_transitive else self.take(PREPOSITIONS)
        target = None
        if is_transitive or preposition:
            target = self.phrase()
        adverb = self.take(ADVERBS)
        if self.next is not None:
            hint = f" ({verb!r} takes no object; put one of {list(PREPOSITIONS)} before it)"
            reason = hint if not is_transitive and preposition is None and self.next in DETERMINERS else ""
            raise self.fail(f"expected the end of the sentence where {self.next!r} stands{reason}")
        clause = Clause(subject, verb, negation, manner, preposition, target, adverb)
        self.check_any(clause)
        return clause

    def phrase(self) -> Phrase:
        said = self.take((*DETERMINERS, "an"), f"one of {[*DETERMINERS]}")
        determiner = "a" if said == "an" else str(said)
        adjectives: list[str] = []
        while (adjective := self.take(ADJECTIVES)) is not None:
            adjectives.append(adjective)
        if len(adjectives) > MAX_ADJECTIVES:
            raise self.fail(f"a noun has at most {MAX_ADJECTIVES} adjectives, not {len(adjectives)},")
        form = str(self.take(_NOUN_FORMS, "a noun"))
        noun, is_plural = _NOUN_FORMS[form]
        if ("plural" if is_plural else "singular") not in DETERMINERS[determiner]:
            raise self.fail(f"{said!r} does not go with {form!r}")
        right = _article(determiner, (*adjectives, form)[0])
        if said != right:
            raise self.fail(f"{said!r} must be {right!r}")
        return Phrase(determiner, tuple(adjectives), noun, is_plural)

    def verb(self, subject: Phrase, auxiliary: str | None) -> str:
        form = str(self.take(_VERB_FORMS, "a verb"))
        verb, has_s = _VERB_FORMS[form]
        needs_s = auxiliary is None and not subject.is_plural
        if has_s != needs_s:
            raise self.fail(f"{form!r} must be {VERBS[verb].third if needs_s else verb!r}")
        return verb

    def check_any(self, clause: Clause) -> None:
        """`any` belongs to the object of a negated verb, and `some` does not."""
        negated = clause.object if clause.negation is not None and clause.preposition is None else None
        for phrase in (clause.subject, clause.object):
            if phrase is not None and phrase.determiner == "any" and phrase is not negated:
                raise self.fail("'any' is for the object of a negated verb; say 'some'")
        if negated is not None and negated.determiner == "some":
            raise self.fail("after a negation, say 'any' and not 'some'")
