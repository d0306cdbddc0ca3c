"""What the stored models of the book read and say, for `LiveModel`: the same in Python as in `live_tasks.js`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import data, moments, saved, style
from .._validate import require_text
from ..data import (
    BEGIN,
    COPIED,
    END,
    ENGLISH,
    FRENCH,
    MAX_WORDS,
    QUESTIONS,
    VOCABULARY,
    WORD_IDS,
    Copies,
    Translations,
    Vocabulary,
    copies,
    repeats,
    sentences,
    translations,
)
from ..data._lexicon import ADVERBS, AUXILIARIES, MANNERS, NEGATIONS, NOUNS, PREPOSITIONS, RANKS, VERBS
from ..data._translation import MAX_SOURCE, MAX_TARGET
from ..decoding import greedy
from ..evaluation import next_token_accuracy
from ..live import described
from ..measures import head_means, head_outputs, heads_of
from ..models import Model

SYMBOLS = "abcdefghijklmnopqrstuvwxyz012345"
"""The letters and digits that stand for the 32 symbols of `mhalib.data.repeats`."""
MEAN_OF = 200
"""Over how many examples a head's mean is taken."""
GROWTH = "repeater"
"""The training of `mhalib.moments` that `Growth` shows."""


class Run(NamedTuple):
    """What a model did with one input.

    answer: what it says, word for word or symbol for symbol.
    weights: by kind of attention, one tensor for each layer, (1, h, Q, K).
    outputs: what heads gave to W_o, by kind, one tensor for each layer, (1, h, Q, d).
    """

    answer: list[str]
    weights: dict[str, list[Tensor]]
    outputs: dict[str, list[Tensor]]


class Task:
    """A stored model at its work."""

    what = ""
    """What its input is made of, in errors: "words", or what stands without spaces."""
    says = ""
    """What its answer is: a "sentence", "symbols" or "answers"."""
    one = "sentence"
    """What one input is called."""
    letters = ""
    """What it is made of, where that is no words."""
    longest = 0
    """How many words or symbols an input has at most."""
    start = ""
    """The input that is shown first."""
    others: tuple[str, ...] = ()
    """Twelve other inputs, all of which the trained model gets right."""
    steps: tuple[int, ...] = ()
    """After how many steps of training its moments are, where it has moments."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.model: Model = saved.load(name)

    @staticmethod
    def weights(name: str) -> bytes:
        """The file of its weights."""
        return (saved.FOLDER / f"{name}.safetensors").read_bytes()

    def units(self, text: str) -> list[str]:
        """The words or symbols of a text; `ValueError` if it cannot be read, with what can."""
        require_text("input", text)
        units = self.split(text)
        known = self.known()
        if unknown := [unit for unit in units if unit not in known]:
            raise ValueError(
                f"input={text!r:.80} holds {unknown[0]!r:.40}, which is none of its {len(known)} {self.what}"
            )
        if not 1 <= len(units) <= self.longest:
            raise ValueError(f"input={text!r:.80} has {len(units)} {self.what}, but needs 1 to {self.longest}")
        return units

    def split(self, text: str) -> list[str]:
        """The words of a sentence, or the letters of what has no words."""
        return text.lower().removesuffix(".").split() if self.what == "words" else list(text.lower())

    def joined(self, units: Sequence[str]) -> str:
        return (" " if self.what == "words" else "").join(units)

    def known(self) -> Sequence[str]:
        """The words or symbols that an input may have."""
        raise NotImplementedError

    def lines(self, answer: Sequence[str]) -> list[tuple[str, str]]:
        """An answer as texts, each with its name."""
        return [("", self.joined(answer))]

    def counted(self, units: Sequence[str], answer: Sequence[str]) -> list[int]:
        """Which parts of an answer count."""
        return list(range(len(answer)))

    def run(self, units: Sequence[str]) -> Run:
        """The model with this input, under the deeds that are done to it at the moment."""
        raise NotImplementedError

    def trained_answer(self, units: Sequence[str]) -> list[str]:
        """What the model says at the end of its training, with nothing done to it."""
        return self.run(units).answer

    def keys_of(self, kind: str, units: Sequence[str], query: int) -> int:
        """How many keys this query may see."""
        return len(units) if kind != "decoder self" else query + 1

    def num_wrong(self, units: Sequence[str], answer: Sequence[str], plain: Sequence[str]) -> int:
        """How many words or symbols are not what they are without deeds."""
        pairs = [*zip(answer, plain, strict=False)]
        return sum(one != other for one, other in pairs) + abs(len(answer) - len(plain))

    def log_p(self, units: Sequence[str], plain: Sequence[str]) -> float:
        """The logarithm of the probability that the model, under the deeds of the moment, gives the plain answer."""
        raise NotImplementedError

    @functools.cached_property
    def means(self) -> dict[str, list[Tensor]]:
        """What each head finds on average, as `head_means` returns it, to 6 digits."""
        own = self.own_means().items()
        return {kind: [mean.double().round(decimals=6) for mean in of_kind] for kind, of_kind in own}

    def own_means(self) -> dict[str, list[Tensor]]:
        raise NotImplementedError

    def facts(self) -> dict[str, Any]:
        """What the page needs to know beside the weights. It can be written as JSON."""
        return {
            "name": self.name,
            "described": described(self.model),
            "what": self.what,
            "says": self.says,
            "one": self.one,
            "letters": self.letters,
            "longest": self.longest,
            "start": self.start,
            "known": list(self.known()),
            "others": [[text, self.run(self.units(text)).answer] for text in self.others],
            "means": {
                " ".join(map(str, head)): self.means[head.kind][head.layer][head.head].tolist()
                for head in heads_of(self.model)
                if head.kind in self.means
            },
            "ramps": style.head_stops(),
            **self.more_facts(),
        }

    def more_facts(self) -> dict[str, Any]:
        raise NotImplementedError


class Writing(Task):
    """A model that reads a source and writes a target, word by word."""

    says = "sentence"
    source_words: Vocabulary
    target_words: Vocabulary
    begin = ""
    """The word of the target that is given."""
    end = ""
    """The word with which it ends."""
    most = 0
    """How many words it writes at most, the end among them."""

    def _ids(self, units: Sequence[str]) -> tuple[Tensor, list[int]]:
        """The source (1, K), and the ids that the model writes, without begin."""
        source = self.source_words.encode([list(units)])[0]
        begin, end = self.target_words.ids[self.begin], self.target_words.ids[self.end]
        written = greedy(self.model, source, begin=begin, end=end, max_tokens=self.most)  # type: ignore[arg-type]
        return source, written[0].tolist()

    @torch.no_grad()
    def run(self, units: Sequence[str]) -> Run:
        source, ids = self._ids(units)
        read = torch.tensor([[self.target_words.ids[self.begin], *ids[:-1]]])
        with head_outputs(self.model) as outputs:
            _, weights = self.model(source, read, need_weights=True)
        words = [self.target_words.words[i] for i in ids]
        return Run([word for word in words if word != self.end], weights, outputs)

    @torch.no_grad()
    def log_p(self, units: Sequence[str], plain: Sequence[str]) -> float:
        ids = [self.target_words.ids[word] for word in (*plain, self.end)][: self.most]
        source = self.source_words.encode([list(units)])[0]
        logits, _ = self.model(source, torch.tensor([[self.target_words.ids[self.begin], *ids[:-1]]]))
        return float(logits[0].log_softmax(-1)[range(len(ids)), ids].sum())

    def examples(self) -> Translations | Copies:
        """As many as a mean is taken over."""
        raise NotImplementedError

    def own_means(self) -> dict[str, list[Tensor]]:
        def run(model: Any, batch: Any) -> dict[str, Tensor]:
            model(batch.source, batch.target[:, :-1], batch.source_lens)
            source = torch.arange(batch.source.shape[1]) < batch.source_lens[:, None]
            target = torch.arange(batch.target.shape[1] - 1) < batch.target_lens[:, None] - 1
            return {"encoder self": source, "decoder self": target, "cross": target}

        return head_means(self.model, [self.examples()], run)

    def more_facts(self) -> dict[str, Any]:
        return {
            "written": list(self.target_words.words),
            "begin": self.target_words.ids[self.begin],
            "end": self.target_words.ids[self.end],
            "most": self.most,
        }


class Translation(Writing):
    """The translator: English words, and the French that the model writes."""

    what = "words"
    longest = MAX_SOURCE
    source_words, target_words = ENGLISH, FRENCH
    begin, end, most = BEGIN, END, MAX_TARGET - 1
    start = "the white cow sees the black dog"
    others = (
        "the car finds some round schools now",
        "these boats help my new dog slowly",
        "my small old garden really sees the star",
        "every young book never hides your bee",
        "this big owl does not hear this green hat",
        "these red girls never help this small horse",
        "your small white foxes jump under these cats",
        "a good school likes every beautiful house",
        "a letter does not work over two red rivers",
        "this bear does not see the heavy king outside",
        "my blue river works with my big fox",
        "the new school paints my small quick fox",
    )

    def known(self) -> Sequence[str]:
        return ENGLISH.words[1:]

    def examples(self) -> Translations:
        return translations(MEAN_OF, seed=38)

    def more_facts(self) -> dict[str, Any]:
        return {
            **super().more_facts(),
            "ways": {
                "encoder self": "English to English",
                "decoder self": "French to French",
                "cross": "French to English",
            },
            "menus": menus(),
            "nouns": list(NOUNS),
            "plurals": [noun.plural for noun in NOUNS.values()],
        }


def menus() -> list[list[str]]:
    """English words that may stand in each other's place. The first two lists are determiners: of nouns in the
    singular, where "a" stands for "an" too, and of nouns in the plural."""
    transitive = [verb for verb in VERBS if VERBS[verb].is_transitive]
    others = [verb for verb in VERBS if not VERBS[verb].is_transitive]
    return [
        ["the", "a", "this", "every", "my", "your"],
        ["the", "some", "these", "my", "your", "two", "three"],
        ["any"],
        *RANKS,
        list(NOUNS),
        [noun.plural for noun in NOUNS.values()],
        transitive,
        [VERBS[verb].third for verb in transitive],
        others,
        [VERBS[verb].third for verb in others],
        [AUXILIARIES[0]],
        [AUXILIARIES[1]],
        list(NEGATIONS),
        list(MANNERS),
        list(PREPOSITIONS),
        list(ADVERBS),
    ]


class Copying(Writing):
    """The copier of chapter 12: letters and digits, and the letters that they spell, from position 0 on."""

    what = "letters and digits"
    one, letters = "word", "a to t and 0 to 7"
    longest = 8
    source_words = target_words = COPIED
    begin, end, most = "0", ".", 9
    start = "fo1tbal6"
    others = (
        "ban1n1",
        "no10",
        "mad10",
        "cof2e4",
        "peopl1",
        "toma01",
        "kit2en",
        "pe001r",
        "din2er",
        "let21r",
        "ad1e1",
        "bal2o4n",
    )

    def known(self) -> Sequence[str]:
        return [one for one in COPIED.words[1:] if one != self.end]

    def units(self, text: str) -> list[str]:
        """Letters and digits; a `ValueError`, too, if a digit is no letter's position."""
        units = super().units(text)
        letters = {str(at) for at, unit in enumerate(units) if not unit.isdigit()}
        for unit in units:
            if unit.isdigit() and unit not in letters:
                raise ValueError(f"input={text!r:.80} holds {unit}, a position, counted from 0, where no letter is")
        return units

    def examples(self) -> Copies:
        return copies(MEAN_OF, seed=38)

    def more_facts(self) -> dict[str, Any]:
        ways = {"encoder self": "source to source", "decoder self": "copy to copy", "cross": "copy to source"}
        return {**super().more_facts(), "ways": ways}


class Repetition(Task):
    """The repeater: symbols, and for each the one that the model expects next."""

    what = "symbols"
    says = "symbols"
    one, letters = "list", "a to z and 0 to 5"
    longest = 48
    start = "kwcapkwcapkwcap"
    others = (
        "bgdcp3fbgdcp3fbg",
        "srhxjadftsrhxjadftsr",
        "hjqvdochjqvdochj",
        "a3cnep12fa3cnep12fa3",
        "0l4r3m0l4r3m0l",
        "x0vtmdx0vtmdx0",
        "jcbefpr0jcbefpr0jc",
        "as3vlckas3vlckas",
        "2nxuqp15i2nxuqp15i2n",
        "neqpsglneqpsglne",
        "a3pvsda3pvsda3",
        "3gxuiy3gxuiy3g",
    )

    def known(self) -> Sequence[str]:
        return list(SYMBOLS)

    def counted(self, units: Sequence[str], answer: Sequence[str]) -> list[int]:
        """The places whose next symbol the past tells: the symbol has come before. If there are none, all places."""
        places = [at for at in range(len(units) - 1) if units[at] in units[:at]]
        return places or list(range(len(units)))

    @staticmethod
    def _ids(units: Sequence[str]) -> Tensor:
        return torch.tensor([[SYMBOLS.index(unit) for unit in units]])

    @torch.no_grad()
    def run(self, units: Sequence[str]) -> Run:
        with head_outputs(self.model) as outputs:
            logits, weights = self.model(self._ids(units), need_weights=True)
        return Run([SYMBOLS[i] for i in logits[0].argmax(-1).tolist()], weights, outputs)

    def num_wrong(self, units: Sequence[str], answer: Sequence[str], plain: Sequence[str]) -> int:
        return sum(answer[at] != plain[at] for at in self.counted(units, plain))

    @torch.no_grad()
    def log_p(self, units: Sequence[str], plain: Sequence[str]) -> float:
        places = self.counted(units, plain)
        logits = self.model(self._ids(units))[0][0].log_softmax(-1)
        return float(logits[places, [SYMBOLS.index(plain[at]) for at in places]].sum())

    def own_means(self) -> dict[str, list[Tensor]]:
        def run(model: Any, batch: Any) -> None:
            model(batch.inputs)

        return head_means(self.model, [repeats(MEAN_OF, seed=38)], run)

    def more_facts(self) -> dict[str, Any]:
        return {}


class Talk(Repetition):
    """The talker of chapter 23: the same with narrow heads that talk, on shorter lists."""

    longest = 24
    others = (
        "dh3sdh3sdh3s",
        "c2e05c2e05c2e0",
        "05lgkn05lgkn05lgk",
        "sehjamdsehjamdsehja",
        "21wjelnq21wjelnq21wjel",
        "rulcrulcrulc",
        "ewbunewbunewbu",
        "tveuqrtveuqrtveuq",
        "htrajowhtrajowhtraj",
        "h45cxywrh45cxywrh45cxy",
        "lig0lig0lig0",
        "f3tlbf3tlbf3tl",
    )

    def own_means(self) -> dict[str, list[Tensor]]:
        def run(model: Any, batch: Any) -> None:
            model(batch.inputs)

        return head_means(self.model, [repeats(MEAN_OF, seed=38, num_tokens=24, periods=(4, 8))], run)


class Growth(Repetition):
    """The small GPT of chapter 14, which learns what the repeater has learned, at moments of its training."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._models = moments.load(GROWTH)
        self.steps = tuple(self._models)
        self.go_to(len(self.steps) - 1)

    def go_to(self, moment: int) -> None:
        """From now on the model is as it was at this moment, counted from 0."""
        self.model = self._models[self.steps[moment]]

    def trained_answer(self, units: Sequence[str]) -> list[str]:
        now, self.model = self.model, self._models[self.steps[-1]]
        try:
            return super().trained_answer(units)
        finally:
            self.model = now

    @staticmethod
    def weights(name: str) -> bytes:
        return (moments.FOLDER / f"{GROWTH}.safetensors").read_bytes()

    def own_means(self) -> dict[str, list[Tensor]]:
        """None: heads give something else on average at each moment."""
        return {}

    def more_facts(self) -> dict[str, Any]:
        unseen = repeats(MEAN_OF, seed=38)
        right = [
            next_token_accuracy(model, unseen.tokens, unseen.is_predictable)  # type: ignore[arg-type]
            for model in self._models.values()
        ]
        return {"steps": list(self.steps), "right": [round(share, 3) for share in right]}


class Questions(Task):
    """The reader of chapter 7: a sentence, and four questions about each of its words. Answers stand word by word."""

    what = "words"
    says = "answers"
    longest = MAX_WORDS
    start = "the clever fox sees my hungry young bear"
    others = (
        "the clever dog helps the hungry queen",
        "every dog meets my farmer",
        "every clever pilot happily sees my dog",
        "my dog softly likes your quiet bird",
        "your quiet fox happily follows your quiet singer",
        "a farmer today hears the clever bird",
        "this red bear likes your farmer",
        "the hungry tall child paints your horse",
        "a queen sees a brave small robot",
        "every clever pilot hears a quiet robot",
        "a clever robot never sees every farmer",
        "every singer meets your green quiet pilot",
    )

    def known(self) -> Sequence[str]:
        return VOCABULARY[1:]

    def lines(self, answer: Sequence[str]) -> list[tuple[str, str]]:
        return [(name, self.joined(answer[number :: len(QUESTIONS)])) for number, name in enumerate(QUESTIONS)]

    def right(self, units: Sequence[str]) -> list[str] | None:
        """The right answers, of a sentence with one verb and one noun before it; of another there are none."""
        verbs = [at for at, unit in enumerate(units) if unit in data.VERBS]
        subjects = [unit for unit in units[: verbs[0] if verbs else 0] if unit in data.NOUNS]
        if len(verbs) != 1 or len(subjects) != 1:
            return None
        last = len(units) - 1
        of_all = [subjects[0], units[verbs[0]]]
        return [word for t in range(last + 1) for word in (units[max(t - 1, 0)], units[min(t + 1, last)], *of_all)]

    @torch.no_grad()
    def run(self, units: Sequence[str]) -> Run:
        with head_outputs(self.model) as outputs:
            scores, weights = self.model(self._ids(units), need_weights=True)
        return Run([VOCABULARY[i] for i in scores[0].argmax(-1).flatten().tolist()], weights, outputs)

    @staticmethod
    def _ids(units: Sequence[str]) -> Tensor:
        return torch.tensor([[WORD_IDS[unit] for unit in units]])

    @torch.no_grad()
    def log_p(self, units: Sequence[str], plain: Sequence[str]) -> float:
        scores = self.model(self._ids(units))[0][0].flatten(0, 1).log_softmax(-1)
        return float(scores[range(len(plain)), [WORD_IDS[word] for word in plain]].sum())

    def own_means(self) -> dict[str, list[Tensor]]:
        def run(model: Any, batch: Any) -> dict[str, Tensor]:
            model(batch.tokens, batch.valid_lens)
            return {"encoder self": batch.is_real}

        return head_means(self.model, [sentences(MEAN_OF, seed=38)], run)

    def more_facts(self) -> dict[str, Any]:
        groups = (data.DETERMINERS, data.ADJECTIVES, data.NOUNS, data.ADVERBS, data.VERBS)
        return {"questions": list(QUESTIONS), "menus": [list(group) for group in groups]}


TASKS: dict[str, type[Task]] = {
    "copier": Copying,
    "reader": Questions,
    "repeater": Repetition,
    "small_gpt": Growth,
    "talker": Talk,
    "translator": Translation,
}
"""By name: that of a stored model, or "small_gpt", which has moments."""


@functools.cache
def facts_of(name: str) -> dict[str, Any]:
    """`Task.facts` of a stored model; not to be changed."""
    return TASKS[name](name).facts()
