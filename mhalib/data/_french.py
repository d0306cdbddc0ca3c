"""A clause, written in French, and which English words each French word comes from."""

from __future__ import annotations

from typing import NamedTuple

from ._english import Clause, Phrase, places_of
from ._lexicon import ADJECTIVES, ADVERBS, MANNERS, NEGATIONS, NOUNS, PREPOSITIONS, VERBS

_ARTICLES = {  # masculine, feminine, plural, and the singular before a vowel, masculine and feminine
    "the": ("le", "la", "les", "l'", "l'"),
    "a": ("un", "une", "", "un", "une"),
    "some": ("", "", "des", "", ""),
    "this": ("ce", "cette", "", "cet", "cette"),
    "these": ("", "", "ces", "", ""),
    "every": ("chaque", "chaque", "", "chaque", "chaque"),
    "my": ("mon", "ma", "mes", "mon", "mon"),
    "your": ("votre", "votre", "vos", "votre", "votre"),
    "two": ("", "", "deux", "", ""),
    "three": ("", "", "trois", "", ""),
}
_VOWELS = "aeiouéèêâîôh"  # an h is mute, with these exceptions:
_ASPIRATED = ("hibou", "hiboux")


class Written(NamedTuple):
    """French words; for each, where the English words stand that it translates, and the noun that it agrees with."""

    words: list[str]
    origins: list[tuple[int, ...]]
    agreements: list[tuple[int, ...]]


def write(clause: Clause) -> Written:
    """The clause in French."""
    places = places_of(clause)
    written = Written([], [], [])
    _add_phrase(written, clause.subject, places.subject, negated=False)
    subject = places.subject + len(clause.subject.adjectives) + 1
    forms = VERBS[clause.verb]
    verb = forms.french_plural if clause.subject.is_plural else forms.french
    if clause.negation is not None:
        origins = (places.auxiliary, places.negation) if clause.negation == "not" else (places.negation,)
        _add(written, "n'" if _opens_with_vowel(verb) else "ne", origins)
    _add(written, verb, (places.verb,), (subject,))
    if clause.negation is not None:
        _add(written, NEGATIONS[clause.negation], (places.negation,))
    if clause.manner is not None:
        _add(written, MANNERS[clause.manner], (places.manner,))
    if clause.preposition is not None:
        _add(written, PREPOSITIONS[clause.preposition], (places.preposition,))
    if clause.object is not None:
        is_direct = clause.preposition is None
        _add_phrase(written, clause.object, places.object, negated=is_direct and clause.negation is not None)
    if clause.adverb is not None:
        _add(written, ADVERBS[clause.adverb], (places.adverb,))
    return written


def _add(written: Written, word: str, origins: tuple[int, ...], agreements: tuple[int, ...] = ()) -> None:
    written.words.append(word)
    written.origins.append(origins)
    written.agreements.append(agreements)


def _add_phrase(written: Written, phrase: Phrase, start: int, *, negated: bool) -> None:
    """Determiner, adjectives before the noun in the English order, the noun, those after it in the reverse order."""
    placed = list(enumerate(phrase.adjectives, start + 1))
    noun_place = start + len(phrase.adjectives) + 1
    before = [(place, word) for place, word in placed if ADJECTIVES[word].precedes]
    after = [(place, word) for place, word in reversed(placed) if not ADJECTIVES[word].precedes]
    noun = NOUNS[phrase.noun]
    core = [(noun_place, noun.french_plural if phrase.is_plural else noun.french)]
    for place, word in reversed(before):  # from the noun outwards: a form may depend on what follows
        core.insert(0, (place, _adjective_form(word, phrase, core[0][1])))
    core += [(place, _adjective_form(word, phrase, "")) for place, word in after]
    determiner = _determiner_form(phrase, core[0][1], negated=negated, has_adjective_first=bool(before))
    _add(written, determiner, (start,), (noun_place,))
    for place, word in core:
        _add(written, word, (place,), () if place == noun_place else (noun_place,))


def _adjective_form(adjective: str, phrase: Phrase, following: str) -> str:
    forms = ADJECTIVES[adjective]
    if NOUNS[phrase.noun].is_feminine:
        return forms.feminine_plural if phrase.is_plural else forms.feminine
    if phrase.is_plural:
        return forms.masculine_plural
    return forms.before_vowel if _opens_with_vowel(following) else forms.masculine


def _determiner_form(phrase: Phrase, following: str, *, negated: bool, has_adjective_first: bool) -> str:
    """`negated`: the object of a negated verb has "de" for "un" and "des", as "des" has before an adjective."""
    kind, elides = phrase.determiner, _opens_with_vowel(following)
    if kind == "any" or (negated and kind == "a") or (kind == "some" and has_adjective_first):
        return "d'" if elides else "de"
    masculine, feminine, plural, masculine_vowel, feminine_vowel = _ARTICLES[kind]
    if phrase.is_plural:
        return plural
    if NOUNS[phrase.noun].is_feminine:
        return feminine_vowel if elides else feminine
    return masculine_vowel if elides else masculine


def _opens_with_vowel(word: str) -> bool:
    return word[:1] != "" and word[0] in _VOWELS and word not in _ASPIRATED


def _lemmas() -> dict[str, str]:
    """French form -> the English word that it is a form of: "vieilles" -> "old", "chevaux" -> "horse"."""
    found: dict[str, str] = {}
    for english, adjective in ADJECTIVES.items():
        found |= {str(form): english for form in adjective[:-1]}
    for english, noun in NOUNS.items():
        found |= dict.fromkeys((noun.french, noun.french_plural), english)
    for english, verb in VERBS.items():
        found |= dict.fromkeys((verb.french, verb.french_plural), english)
    for english, forms in _ARTICLES.items():
        found |= {form: "this" if english == "these" else english for form in forms if form}
    found |= dict.fromkeys(("de", "d'"), "any") | dict.fromkeys(("ne", "n'"), "not")
    for table in (PREPOSITIONS, MANNERS, ADVERBS, NEGATIONS):
        found |= {french: english for english, french in table.items()}
    return found


LEMMAS = _lemmas()
"""For each French word an English word, the same for all its forms: "vieilles" and "vieil" -> "old"."""

FORMS = tuple(LEMMAS)
