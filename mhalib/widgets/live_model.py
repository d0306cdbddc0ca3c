"""A trained model that runs in the page: change its heads, and see at once what it says now."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import traitlets

from .._validate import as_list, require_choice, require_count, require_flag, require_text
from ..live import scripts as engine_scripts
from ..measures import heads_of
from ..models import Model
from . import _live_deeds
from ._instrument import FOLDER, Instrument, as_json
from ._live_tasks import TASKS, Growth, Task, facts_of
from ._quests import QUESTS, Facts, has_witness, is_met, silent_cells


class LiveModel(Instrument):
    """A stored model at its work, all its heads as small maps, and one head large.

    A reader changes the input, switches heads off, freezes what they look at, moves their weights, and reads what the
    model says now beside what it said as trained. The same can be read and set from Python, by `input`, `deeds`,
    `head` and `query`. All count from 0.

    Args:
        model_name: one of `mhalib.saved.names()`: "translator", "copier", "repeater", "reader" or "talker"; or
            "small_gpt", the GPT of chapter 14 at moments of its training.
        input: what it reads: an English sentence, or up to 48 symbols of a to z and 0 to 5. Without it, one of the
            book's.
        deeds: what is done to heads, by a head's name, as in {"encoder self 1 2": {"off": True}}:
            "off": True sets what the head gives to 0, "mean" to what it gives on average;
            "rows": {"0": [0, 0, 1]} are the weights of query 0, divided by their sum;
            "frozen": another input, whose weights the head keeps;
            "patch": another input, whose outputs the head gives.
            And {"positions": False} takes the positions from the whole model, {"future": False} puts a causal mask into
            its encoder. Where heads talk, {"decoder self 1":
            {"scores": {"0 3": 0.5}}} sets how much of head 0 goes to head 3 before the softmax of layer 1, and
            "weights" after it.
        head: the head that is shown large; `None` takes the first, or with `compact` none.
        query: the query whose weights are shown as numbers.
        quests: names of `QUESTS`, shown beside the model until they are met.
        moment: which of its moments a model is at, counted from 0; `None` takes the last. Models without have one.
        compact: whether the large map stays away until a reader chooses a head. What is beside it, what heads cost and
            *it knows the order* are then not shown at all, but the latter is where `deeds` begin without positions. Of
            more than two layers, each has one switch for all its heads.
        heats: whether the large map has a slider for the temperature of its chosen row, by which scores are divided.
            Rows of heads that talk have none.
        future: whether there is a box that hides from each word of an encoder the words after it. Without its tick
            the deeds have {"future": False}.
        sums: a word and a question, both counted from 0, such as (5, 2): a SentenceReader shows what each head adds to
            the scores of that answer. Pressing another answer shows its sums.

    Raises:
        TypeError, ValueError: there is no such model, head or quest, or the model cannot read the input.
    """

    script = "LiveModel"
    needs = (
        *engine_scripts(),
        *(FOLDER / f"live_{part}.js" for part in ("mixing", "state", "tasks", "maps", "text", "moments", "sums")),
    )
    carried: ClassVar[tuple[str, ...]] = ("weights", "facts")

    model_name = traitlets.Unicode().tag(sync=True)
    input = traitlets.Unicode().tag(sync=True)
    deeds = traitlets.Dict().tag(sync=True)
    head = traitlets.Unicode().tag(sync=True)
    query = traitlets.Int(0).tag(sync=True)
    quests: Any = traitlets.List().tag(sync=True)
    moment = traitlets.Int(0).tag(sync=True)
    compact = traitlets.Bool(False).tag(sync=True)
    heats = traitlets.Bool(False).tag(sync=True)
    future = traitlets.Bool(False).tag(sync=True)
    sums: Any = traitlets.List().tag(sync=True)
    weights = traitlets.Bytes().tag(sync=True)  # the file of weights, for a kernel's page; other pages load a script
    facts = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        model_name: str = "translator",
        input: str | None = None,
        *,
        deeds: Mapping[str, Any] | None = None,
        head: str | None = None,
        query: int = 0,
        quests: Iterable[str] = (),
        moment: int | None = None,
        compact: bool = False,
        heats: bool = False,
        future: bool = False,
        sums: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> None:
        require_text("model_name", model_name)
        require_choice("model_name", model_name, sorted(TASKS))
        require_flag("compact", compact)
        require_flag("heats", heats)
        require_flag("future", future)
        if head is not None:
            require_text("head", head)
        require_count("query", query, minimum=0)
        self._task: Task = TASKS[model_name](model_name)
        if heats and _live_deeds.talking_layers(self._task):
            raise ValueError(f"heats=True, but the heads of the {model_name} talk: their rows have no temperature")
        if future and not _live_deeds.has_encoder(self._task):
            raise ValueError(f"future=True, but the {model_name} has no encoder whose words see the future")
        first = "" if compact else self._names()[0]
        super().__init__(
            model_name=model_name,
            input=self._task.start if input is None else input,
            deeds={} if deeds is None else _live_deeds.checked(self._task, deeds),
            head=first if head is None else head,
            query=query,
            quests=[_as_quest(name, model_name) for name in as_list("quests", quests)],
            moment=max(len(self._task.steps) - 1, 0) if moment is None else moment,
            compact=compact,
            heats=heats,
            future=future,
            sums=[] if sums is None else list(as_list("sums", sums)),
            weights=self._task.weights(model_name),
            facts=facts_of(model_name),
            **kwargs,
        )

    @property
    def model(self) -> Model:
        """The stored model, in PyTorch."""
        return self._task.model

    @contextmanager
    def applied(self) -> Iterator[Model]:
        """`with live.applied() as model:` the model runs under the deeds of the moment."""
        with _live_deeds.applied(self._task, self.deeds, self._units):
            yield self.model

    def output(self) -> list[str]:
        """What the model says now: the French words that it writes, or for each symbol the one that it expects next."""
        with self.applied():
            return self._task.run(self._units).answer

    def meets(self, name: str) -> bool:
        """Whether the goal of a quest is met; `ValueError` if there is no such quest of this model."""
        goal = _as_quest(name, self.model_name)["goal"]
        plain, answer = self._task.trained_answer(self._units), self.output()
        wrong = self._task.num_wrong(self._units, answer, plain)
        is_its_input = QUESTS[name].is_own or self.input == QUESTS[name].input
        seen = "witness" in goal and has_witness(self._task, goal["witness"], self.deeds, self._units, answer)
        facts = Facts(self._task.joined(answer), wrong, self._others_right(), seen)
        return is_its_input and is_met(goal, self.deeds, facts)

    def state(self) -> dict[str, Any]:
        """The traits that a page cannot find elsewhere."""
        return {name: value for name, value in super().state().items() if name not in self.carried}

    @property
    def _units(self) -> list[str]:
        return self._task.units(self.input)

    def _names(self) -> list[str]:
        return [" ".join(map(str, head)) for head in heads_of(self._task.model)]

    def _others_right(self) -> int:
        """How many of the twelve other inputs are right with what is off, positions too, and mixed as it is mixed."""
        of_heads = _live_deeds.head_deeds(self._task, self.deeds)
        switches = {name: {"off": deed["off"]} for name, deed in of_heads.items() if "off" in deed}
        switches |= {name: deed for name, deed in self.deeds.items() if name not in of_heads}
        right = 0
        for text, plain in self.facts["others"]:
            units = self._task.units(text)
            with _live_deeds.applied(self._task, switches, units):
                right += not self._task.num_wrong(units, self._task.run(units).answer, plain)
        return right

    @traitlets.validate("model_name")
    def _same_model(self, proposal: Any) -> Any:
        if proposal["value"] != self._task.name:
            raise ValueError(f"model_name={proposal['value']!r:.80} cannot be changed: make another LiveModel")
        return proposal["value"]

    @traitlets.validate("input")
    def _readable(self, proposal: Any) -> Any:
        return self._task.joined(self._task.units(proposal["value"]))

    @traitlets.validate("deeds")
    def _possible(self, proposal: Any) -> Any:
        return _live_deeds.checked(self._task, proposal["value"])

    @traitlets.validate("head")
    def _known(self, proposal: Any) -> Any:
        if proposal["value"]:
            require_choice("head", proposal["value"], self._names())
        return proposal["value"]

    @traitlets.validate("query")
    def _counted(self, proposal: Any) -> Any:
        if not 0 <= proposal["value"] < 64:
            raise ValueError(f"query={proposal['value']} must be from 0 to 63")
        return proposal["value"]

    @traitlets.validate("sums")
    def _asked(self, proposal: Any) -> Any:
        asked = proposal["value"]
        if not asked:
            return asked
        questions = facts_of(self.model_name).get("questions", [])
        if not questions:
            raise ValueError(f"sums={asked!r:.80}, but the {self.model_name} answers no questions")
        if len(asked) != 2:
            raise ValueError(f"sums={asked!r:.80} must be a word and a question")
        for name, number, end in zip(("word", "question"), asked, (64, len(questions)), strict=True):
            require_count(f"sums: the {name}", number, minimum=0)
            if number >= end:
                raise ValueError(f"sums={asked!r:.80}: the {name} must be from 0 to {end - 1}")
        return asked

    @traitlets.validate("moment")
    def _lived(self, proposal: Any) -> Any:
        number = max(len(self._task.steps), 1)
        if not 0 <= proposal["value"] < number:
            raise ValueError(f"moment={proposal['value']} must be from 0 to {number - 1}")
        if isinstance(self._task, Growth):
            self._task.go_to(proposal["value"])
        return proposal["value"]

    def table(self) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
        """Three runs of the stored model: as trained, with the large head off, and with one of its weights moved."""
        head, units = self.head or self._names()[0], self._units
        plain = self._task.trained_answer(units)
        moved = {head: {"rows": {"1": [1.0, 0.0]}}}
        runs: dict[str, Any] = {
            "as trained": {},
            f"without {head}": {head: {"off": True}},
            f"{head}, whose second query looks at the first key only": moved,
        }
        talking = _live_deeds.talking_layers(self._task)
        if talking:
            layer = head.rpartition(" ")[0]
            apart = silent_cells(talking[layer].num_heads)
            runs[f"{layer}, whose heads do not talk"] = {layer: {"scores": apart, "weights": apart}}
        if self.deeds:
            runs["with the changes of the moment"] = self.deeds
        rows = []
        for what, deeds in runs.items():
            with _live_deeds.applied(self._task, deeds, units):
                answer, p = self._task.run(units).answer, self._task.log_p(units, plain)
            kept = len(self._task.counted(units, plain)) - self._task.num_wrong(units, answer, plain)
            sure = f"P {min(math.exp(p), 1.0):.3f}" if self._task.says == "sentence" else str(kept)
            lines = self._task.lines(answer)
            rows += [[f"{what}: {name}" if name else what, text, sure] for name, text in lines]
        step = f", after {self._task.steps[self.moment]} steps of training," if self._task.steps else ""
        caption = f"The {self.model_name.replace('_', ' ')}{step} reads “{self.input}”"
        return caption, ["the model", "says", "as trained"], rows

    def _beside(self) -> str:
        """The weights and facts, for a page that has no other file."""
        told = {"weights": base64.b64encode(self.weights).decode("ascii"), "facts": self.facts}
        return f'<script type="application/json" data-live="{self.model_name}">{as_json(told)}</script>'


def live_names() -> list[str]:
    """The models that `LiveModel` can show."""
    return sorted(TASKS)


def weights_script(name: str) -> str:
    """The script by which a built page gets the weights of a stored model, and what else it must know."""
    weights = base64.b64encode(TASKS[name].weights(name)).decode("ascii")
    told = as_json({"weights": weights, "facts": facts_of(name)})
    return f'"use strict";\n(globalThis.mhalibLive ??= {{}})["{name}"] = {told};\n'


def _as_quest(name: object, model_name: str) -> dict[str, Any]:
    """A quest as a page gets it."""
    require_text("each quest", name)
    own = [each for each in QUESTS if QUESTS[each].model == model_name]
    if name not in own:
        raise ValueError(f"quests has {name!r:.80}, but the {model_name} has {', '.join(own)}")
    quest = QUESTS[str(name)]
    return {"name": name, "text": quest.text, "input": "" if quest.is_own else quest.input, "goal": dict(quest.goal)}
