"""The small English and its French. The translations were written by hand, from the rules of French."""

import re

import pytest
import torch

from mhalib.data import ENGLISH, FRENCH, Translations, read_english, spoken, translate, translations
from mhalib.data._translation import LEMMAS, MAX_SOURCE, MAX_TARGET, RELATIONS, held_out

MADE = translations(1500, seed=3)
BY_HAND = """
The quick brown fox jumps over the lazy dog. = le renard brun rapide saute par-dessus le chien paresseux
the quick brown foxes jump over the lazy dogs = les renards bruns rapides sautent par-dessus les chiens paresseux
a small white mouse does not see the big black cat = une petite souris blanche ne voit pas le grand chat noir
an old tree hides my house = un vieil arbre cache ma maison
some old trees hide my houses = de vieux arbres cachent mes maisons
my star arrives now = mon étoile arrive maintenant
my beautiful star never arrives = ma belle étoile n'arrive jamais
this bird likes this man = cet oiseau aime cet homme
this owl hears the owl = ce hibou entend le hibou
the apple does not help the horses = la pomme n'aide pas les chevaux
the bee does not help the man = l'abeille n'aide pas l'homme
the women do not often want any apples = les femmes ne veulent pas souvent de pommes
the king never finds a tree = le roi ne trouve jamais d'arbre
the king never sleeps under a tree today = le roi ne dort jamais sous un arbre aujourd'hui
a beautiful old bird sings with these happy bees = un beau vieil oiseau chante avec ces abeilles heureuses
the boy always sings = le garçon chante toujours
your new boats really follow every new bear = vos nouveaux bateaux suivent vraiment chaque nouvel ours
some strange schools watch three tired old girls = des écoles étranges regardent trois vieilles filles fatiguées
two men paint a new grey door outside = deux hommes peignent une nouvelle porte grise dehors
the young queen works = la jeune reine travaille
my small heavy white hat runs slowly = mon petit chapeau blanc lourd court lentement
"""
PAIRS = [line.split(" = ") for line in BY_HAND.strip().splitlines()]


@pytest.mark.parametrize(("english", "french"), PAIRS)
def test_translations_by_hand(english, french):
    assert spoken(translate(english)) == french
    data = read_english([english])
    assert spoken(data.french(0)) == french
    assert data.words(0) == english.lower().removesuffix(".").split()


def _pairs(marked, data):
    """Of the first sentence: each written word with the English words that are marked for it."""
    words = [*data.french(0), "<end>"]
    return [(word, [data.words(0)[j] for j in marked[0, t].nonzero().flatten()]) for t, word in enumerate(words)]


def test_alignments_and_agreements_by_hand():
    data = read_english(["the old white bees do not like any clever men now"])
    assert _pairs(data.alignments, data) == [
        ("les", ["the"]),
        ("vieilles", ["old"]),
        ("abeilles", ["bees"]),
        ("blanches", ["white"]),
        ("n'", ["do", "not"]),
        ("aiment", ["like"]),
        ("pas", ["not"]),
        ("d'", ["any"]),
        ("hommes", ["men"]),
        ("intelligents", ["clever"]),
        ("maintenant", ["now"]),
        ("<end>", []),
    ]
    agrees = dict(_pairs(data.agreements, data))
    for word in ("les", "vieilles", "blanches", "aiment"):
        assert agrees[word] == ["bees"]
    assert agrees["d'"] == agrees["intelligents"] == ["men"]
    for word in ("n'", "pas", "abeilles", "hommes", "maintenant", "<end>"):
        assert agrees[word] == []
    never = read_english(["the bear never sleeps"])
    assert _pairs(never.alignments, never)[2:5] == [("ne", ["never"]), ("dort", ["sleeps"]), ("jamais", ["never"])]


def test_links_by_hand():
    data = read_english(["the old bees do not often jump over my hat now", "a man sees my cat"])
    words = [data.words(i) for i in range(2)]
    found = {
        relation: [
            [(words[i][t], words[i][j]) for t, j in data.links(relation)[i].nonzero().tolist()] for i in range(2)
        ]
        for relation in RELATIONS
    }
    assert found == {
        "determiner": [[("the", "bees"), ("my", "hat")], [("a", "man"), ("my", "cat")]],
        "adjective": [[("old", "bees")], []],
        "subject": [[("bees", "jump")], [("man", "sees")]],
        "object": [[], [("cat", "sees")]],
        "preposition": [[("over", "jump")], []],
        "after preposition": [[("hat", "over")], []],
        "auxiliary": [[("do", "jump")], []],
        "negation": [[("not", "jump")], []],
        "adverb": [[("often", "jump"), ("now", "jump")], []],
    }
    with pytest.raises(ValueError, match="relation='verb' must be one of"):
        data.links("verb")


def test_every_made_sentence_is_read_as_it_was_made():
    texts = [" ".join(MADE.words(i)) for i in range(300)]
    again = read_english(texts)
    for name in Translations.__dataclass_fields__:
        assert torch.equal(getattr(again, name), getattr(MADE[:300], name)), name


def test_every_word_is_aligned_and_every_real_word_has_a_place():
    real_written = torch.arange(MAX_TARGET - 1) < (MADE.target_lens - 2)[:, None]  # without begin and end
    assert torch.equal(MADE.alignments.any(-1), real_written)
    is_word = torch.arange(MAX_SOURCE) < MADE.source_lens[:, None]
    assert torch.equal(MADE.alignments.any(1), is_word)  # each English word is translated
    assert torch.equal((MADE.relations >= 0).sum(1), MADE.source_lens - 1)  # all but the verb
    assert not ((MADE.governors >= 0) & ~is_word).any()


def test_forms_of_one_word_have_one_lemma():
    for forms, lemma in (
        ("beau bel belle beaux belles", "beautiful"),
        ("vieux vieil vieille vieilles", "old"),
        ("gris grise grises", "grey"),
        ("cheval chevaux", "horse"),
        ("voit voient", "see"),
        ("le la les l'", "the"),
        ("ce cet cette ces", "this"),
        ("ne n'", "not"),
    ):
        assert {LEMMAS[form] for form in forms.split()} == {lemma}


@pytest.mark.parametrize(("ending", "verb"), [("", "sleeps"), ("s", "sleep")])
def test_what_agrees_with_a_noun_changes_with_it_and_nothing_else(ending, verb):
    masculine, feminine = (translate(f"the big black {noun}{ending} {verb} now") for noun in ("dog", "cow"))
    assert [a != b for a, b in zip(masculine, feminine, strict=True)] == [not ending, True, True, True, False, False]


def test_sizes_and_vocabularies():
    assert len(ENGLISH) > 100
    assert len(FRENCH) > 100
    assert set(LEMMAS.values()) <= set(ENGLISH.words)
    assert len(LEMMAS) == len(FRENCH) - 3
    assert FRENCH.decode(torch.tensor([1, 2])) == ["<begin>", "<end>"]
    assert MADE.source.shape == (1500, MAX_SOURCE)
    assert MADE.target.shape == (1500, MAX_TARGET)
    assert (MADE.target[:, 0] == 1).all()
    assert (MADE.target.gather(1, MADE.target_lens[:, None] - 1) == 2).all()
    assert torch.equal((MADE.source != 0).sum(1), MADE.source_lens)
    assert torch.equal((MADE.target != 0).sum(1), MADE.target_lens)
    assert torch.equal(MADE.written, MADE.target[:, 1:])


def test_the_same_seed_makes_the_same_and_another_another():
    assert torch.equal(translations(50, seed=7).target, translations(50, seed=7).target)
    assert not torch.equal(translations(50, seed=7).source, translations(50, seed=8).source)


def _held_out_pairs(words):
    """Worked out from the words alone: every adjective before a noun, up to a word that is neither."""
    found, adjectives = [], []
    for word in words:
        singular = SINGULAR.get(word)
        if word in ADJECTIVES:
            adjectives.append(word)
        elif singular:
            found += [(adjective, singular) for adjective in adjectives if held_out(adjective, singular)]
        else:
            adjectives = []
    return found


ADJECTIVES = set(
    "good beautiful small big young old new lazy quick happy clever strange heavy round sad strong tired "
    "red black green blue white brown grey".split()
)
NOUNS = (
    "cat dog bird horse bear lion owl boy king farmer robot book tree boat garden hat cow bee girl queen house car "
    "table flower door star apple school letter river"
).split()
SINGULAR = (
    {noun: noun for noun in NOUNS}
    | {noun + "s": noun for noun in NOUNS}
    | {"fox": "fox", "foxes": "fox", "man": "man", "men": "man", "mouse": "mouse", "mice": "mouse"}
    | {"woman": "woman", "women": "woman"}
)


def test_all_sentences_differ_and_unseen_pairs_are_never_seen():
    seen = [tuple(MADE.words(i)) for i in range(len(MADE))]
    unseen_data = translations(300, seed=3, pairs="unseen")
    unseen = [tuple(unseen_data.words(i)) for i in range(300)]
    assert len({*seen, *unseen}) == 1800
    assert not any(_held_out_pairs(words) for words in seen)
    assert all(_held_out_pairs(words) for words in unseen)


def test_one_pair_in_ten_is_held_out_and_every_word_is_in_a_pair_that_is_not():
    pairs = {(a, n): held_out(a, n) for a in ADJECTIVES for n in {*SINGULAR.values()}}
    assert 0.08 < sum(pairs.values()) / len(pairs) < 0.12
    for words in (ADJECTIVES, set(SINGULAR.values())):
        for word in words:
            assert 0 < sum(is_out for pair, is_out in pairs.items() if word in pair) < 10


def test_parts_and_devices():
    part = MADE[5:8].to("cpu")
    assert len(part) == 3
    assert part.french(0) == MADE.french(5)
    assert torch.equal(MADE[torch.tensor([4, 2])].relations[1], MADE.relations[2])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("the zebra sleeps", "unknown words ['zebra'] in 'the zebra sleeps'"),
        ("", "a sentence is empty"),
        ("cat sleeps", "expected one of ['the', 'a',"),
        ("the black sleeps", "expected a noun where 'sleeps' stands"),
        ("the cat", "expected a verb at the end"),
        ("the cat sees", "expected one of"),
        ("the cat see the dog", "'see' must be 'sees'"),
        ("the cats sees the dog", "'sees' must be 'see'"),
        ("the cat does not sees the dog", "'sees' must be 'see'"),
        ("the cat do not see the dog", "the subject needs 'does', not 'do'"),
        ("the cat does see the dog", "expected 'not' where 'see' stands"),
        ("these cat sleeps", "'these' does not go with 'cat'"),
        ("a cats sleep", "'a' does not go with 'cats'"),
        ("a apple arrives", "'a' must be 'an'"),
        ("an cat arrives", "'an' must be 'a'"),
        ("the cat sleeps the dog", "'sleep' takes no object"),
        ("the cat sleeps now here", "expected the end of the sentence where 'here' stands"),
        ("the cat sees any dogs", "'any' is for the object of a negated verb"),
        ("the cat never sleeps under any dogs", "'any' is for the object of a negated verb"),
        ("the cat never sees some dogs", "after a negation, say 'any' and not 'some'"),
        ("the good big old red cat sleeps", "a noun has at most 3 adjectives, not 4"),
        (" ".join(["the cat"] * 8), "a sentence has at most 14 words, got 16"),
        ("<pad> cat sleeps", "unknown words ['<pad>']"),
    ],
)
def test_what_is_not_of_the_grammar_is_refused(text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        translate(text)


def test_wrong_arguments_are_refused():
    with pytest.raises(TypeError, match="texts must be a list of sentences, got one string"):
        read_english("the cat sleeps")
    with pytest.raises(TypeError, match="a sentence must be a string, got int"):
        read_english([3])
    with pytest.raises(ValueError, match="pairs='all' must be one of"):
        translations(3, 0, pairs="all")
    with pytest.raises(ValueError, match="num_examples=0 must be at least 1"):
        translations(0, 0)
    with pytest.raises(ValueError, match="adjective='cat' must be one of"):
        held_out("cat", "dog")
    with pytest.raises(ValueError, match="noun='dogs' must be one of"):
        held_out("red", "dogs")
