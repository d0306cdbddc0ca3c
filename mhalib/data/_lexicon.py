"""The words of the small English and of its French."""

from __future__ import annotations

from typing import NamedTuple


class Noun(NamedTuple):
    plural: str
    french: str
    french_plural: str
    is_feminine: bool


class Adjective(NamedTuple):
    """French forms, one of them for the masculine singular before a vowel. `precedes`: it stands before its noun."""

    masculine: str
    feminine: str
    masculine_plural: str
    feminine_plural: str
    before_vowel: str
    precedes: bool


class Verb(NamedTuple):
    third: str
    french: str
    french_plural: str
    is_transitive: bool


def _nouns(table: str) -> dict[str, Noun]:
    """Lines: English, its plural, French, its plural, gender."""
    rows = [line.split() for line in table.strip().splitlines()]
    return {
        word: Noun(plural, french, french_plural, gender == "f") for word, plural, french, french_plural, gender in rows
    }


def _adjective(forms: list[str], precedes: bool) -> Adjective:
    """Forms: masculine, feminine; if irregular, masculine plural; and the one before a vowel."""
    masculine, feminine, *more = forms
    plural = more[0] if more else masculine + "s"
    return Adjective(masculine, feminine, plural, feminine + "s", more[1] if more[1:] else masculine, precedes)


NOUNS = _nouns(
    """
    cat cats chat chats m
    dog dogs chien chiens m
    fox foxes renard renards m
    bird birds oiseau oiseaux m
    horse horses cheval chevaux m
    bear bears ours ours m
    lion lions lion lions m
    owl owls hibou hiboux m
    boy boys garçon garçons m
    man men homme hommes m
    king kings roi rois m
    farmer farmers fermier fermiers m
    robot robots robot robots m
    book books livre livres m
    tree trees arbre arbres m
    boat boats bateau bateaux m
    garden gardens jardin jardins m
    hat hats chapeau chapeaux m
    mouse mice souris souris f
    cow cows vache vaches f
    bee bees abeille abeilles f
    girl girls fille filles f
    woman women femme femmes f
    queen queens reine reines f
    house houses maison maisons f
    car cars voiture voitures f
    table tables table tables f
    flower flowers fleur fleurs f
    door doors porte portes f
    star stars étoile étoiles f
    apple apples pomme pommes f
    school schools école écoles f
    letter letters lettre lettres f
    river rivers rivière rivières f
    """
)

_RANKED = (  # in English, adjectives stand in this order: worth, size, age, quality, colour
    """
    good: bon bonne
    beautiful: beau belle beaux bel
    """,
    """
    small: petit petite
    big: grand grande
    """,
    """
    young: jeune jeune
    old: vieux vieille vieux vieil
    new: nouveau nouvelle nouveaux nouvel
    """,
    """
    lazy: paresseux paresseuse paresseux
    quick: rapide rapide
    happy: heureux heureuse heureux
    clever: intelligent intelligente
    strange: étrange étrange
    heavy: lourd lourde
    round: rond ronde
    sad: triste triste
    strong: fort forte
    tired: fatigué fatiguée
    """,
    """
    red: rouge rouge
    black: noir noire
    green: vert verte
    blue: bleu bleue
    white: blanc blanche
    brown: brun brune
    grey: gris grise gris
    """,
)
_NUM_BEFORE = 3  # adjectives of worth, size and age stand before the French noun

ADJECTIVES: dict[str, Adjective] = {}
RANKS: list[list[str]] = []
for _rank, _table in enumerate(_RANKED):
    _rows = [line.split(":") for line in _table.strip().splitlines()]
    RANKS.append([english.strip() for english, _ in _rows])
    ADJECTIVES |= {english.strip(): _adjective(forms.split(), _rank < _NUM_BEFORE) for english, forms in _rows}

VERBS = {
    "see": Verb("sees", "voit", "voient", True),
    "like": Verb("likes", "aime", "aiment", True),
    "follow": Verb("follows", "suit", "suivent", True),
    "find": Verb("finds", "trouve", "trouvent", True),
    "hear": Verb("hears", "entend", "entendent", True),
    "help": Verb("helps", "aide", "aident", True),
    "paint": Verb("paints", "peint", "peignent", True),
    "want": Verb("wants", "veut", "veulent", True),
    "hide": Verb("hides", "cache", "cachent", True),
    "watch": Verb("watches", "regarde", "regardent", True),
    "jump": Verb("jumps", "saute", "sautent", False),
    "sleep": Verb("sleeps", "dort", "dorment", False),
    "run": Verb("runs", "court", "courent", False),
    "sing": Verb("sings", "chante", "chantent", False),
    "arrive": Verb("arrives", "arrive", "arrivent", False),
    "work": Verb("works", "travaille", "travaillent", False),
}

_ANY_NUMBER = ("singular", "plural")
DETERMINERS = {
    "the": _ANY_NUMBER,
    "a": ("singular",),  # "an" before a vowel
    "some": ("plural",),
    "any": ("plural",),  # after a negation, in the place of "some"
    "this": ("singular",),
    "these": ("plural",),
    "every": ("singular",),
    "my": _ANY_NUMBER,
    "your": _ANY_NUMBER,
    "two": ("plural",),
    "three": ("plural",),
}
PREPOSITIONS = {"over": "par-dessus", "behind": "derrière", "under": "sous", "with": "avec"}
MANNERS = {"often": "souvent", "always": "toujours", "really": "vraiment"}  # before the English verb
ADVERBS = {"today": "aujourd'hui", "here": "ici", "now": "maintenant", "slowly": "lentement", "outside": "dehors"}
NEGATIONS = {"not": "pas", "never": "jamais"}
AUXILIARIES = ("does", "do")

ENGLISH_WORDS = (
    *DETERMINERS,
    "an",
    *ADJECTIVES,
    *(form for noun, forms in NOUNS.items() for form in (noun, forms.plural)),
    *(form for verb, forms in VERBS.items() for form in (verb, forms.third)),
    *AUXILIARIES,
    *NEGATIONS,
    *MANNERS,
    *PREPOSITIONS,
    *ADVERBS,
)
