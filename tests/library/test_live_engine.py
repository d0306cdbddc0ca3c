"""The engine of pages, `mhalib/live/*.js` in node, against PyTorch in float64 under the deeds of `mhalib.measures`.

The engine computes in float64, too, so that both must agree to 1e-9, far below the 1e-5 that a page promises.
"""

import copy
import json
import re
import subprocess
from contextlib import ExitStack

import pytest
import torch

from mhalib import Head, frozen, gated, moments, patched, rows, saved, switched_off, without_future, without_positions
from mhalib.data import BEGIN, END, ENGLISH, FRENCH, VOCABULARY
from mhalib.live import described, scripts
from mhalib.measures import head_means, head_outputs, heads_of, layers_of, mixed, prune_heads
from mhalib.models import BERT, GPT, SentenceReader, Transformer, ViT
from mhalib.saved import FOLDER, About
from mhalib.variants import TalkingHeads
from tools.development import javascript

pytestmark = [
    pytest.mark.package,
    pytest.mark.skipif(javascript.node() is None, reason=f"there is no Node: {javascript.REMEDY}"),
]

TOLERANCE = 1e-9
POSITIONS = ("learned", "sinusoidal", "rotary", "none")
ATTENTIONS = {
    "multi-head": "multi-head",
    "grouped": {"name": "multi-head", "num_kv_heads": 2},
    "talking": {"name": "talking", "init": "normal"},
}
SIZES = {"num_hiddens": 24, "num_heads": 4, "num_layers": 2, "ffn_num_hiddens": 19, "max_tokens": 17}
OTHERS = {
    "GPT, post-norm": (GPT, {"norm": "post"}),
    "GPT, no network": (GPT, {"ffn_num_hiddens": 0}),
    "GPT, tied": (GPT, {"readout": "tied", "embedding_scale": 2.5, "norm_eps": 1e-3}),
    "GPT, talking in groups": (GPT, {"attention": {"name": "talking", "init": "normal", "num_kv_heads": 2}}),
    "Transformer, post-norm": (Transformer, {"norm": "post", "ffn_bias": False}),
    "ViT": (ViT, {"height": 6, "width": 8}),
    "ViT, talking, post-norm": (ViT, {"attention": ATTENTIONS["talking"], "norm": "post", "readout_bias": False}),
    "Transformer, tied": (Transformer, {"readout": "tied with bias", "embedding_scale": 0.5}),
    "GPT, no biases": (GPT, {"attention": {"name": "multi-head", "bias": False}}),
    "SentenceReader": (SentenceReader, {"num_questions": 3}),
    "SentenceReader, rotary, grouped": (SentenceReader, {"positions": "rotary", "attention": ATTENTIONS["grouped"]}),
    "SentenceReader, talking": (SentenceReader, {"positions": "sinusoidal", "attention": ATTENTIONS["talking"]}),
}
SETTINGS = {
    f"{kind.__name__}, {positions}, {name}": (kind, {"positions": positions, "attention": attention})
    for kind in (GPT, Transformer)
    for positions in POSITIONS
    for name, attention in ATTENTIONS.items()
} | OTHERS
NAMES = [*saved.names(), *SETTINGS]
WRITERS = [name for name in NAMES if not name.startswith(("ViT", "SentenceReader", "reader"))]
RUNNER = """
import fs from "node:fs";
import { Engine } from "./engine.js";
const { models, cases } = JSON.parse(fs.readFileSync(process.argv[2]));
const made = (name) => new Engine(fs.readFileSync(models[name].file), models[name].described, models[name].moment);
const live = {};
function answer({ model, inputs, deeds, count, end, query }) {
  if (count === undefined && inputs === undefined) return made(model).heads;
  live[model] ??= made(model);
  const log = {};
  const run = { deeds, log };
  if (live[model].kind === "ViT") return told(live[model].look(inputs[0], run), log);
  if (live[model].kind === "SentenceReader") {
    const scores = told(live[model].answer(inputs[0], run), log);
    const { byHead, ofNone } = live[model].addedByHeads(log, query ?? 0);
    return { ...scores, added: { byHead: [...byHead], ofNone: [...ofNone] } };
  }
  const [source, target] = inputs.length === 2 ? inputs : [null, inputs[0]];
  const memory = source ? live[model].encode(source, run) : undefined;
  if (count !== undefined) return live[model].write(target, count, { deeds, memory, end });
  const logits = memory ? live[model].decode(target, memory, run) : live[model].read(target, run);
  return told(logits, log);
}
function told(logits, log) {
  const heads = {};
  for (const name in log) heads[name] = { weights: [...log[name].weights], values: [...log[name].values] };
  return { logits: [...logits], heads };
}
const answers = cases.map((one) => {
  try { return answer(one); } catch (error) { return { error: error.message }; }
});
fs.writeFileSync(process.argv[3], JSON.stringify(answers));
"""


def new_model(name):
    """A model with random weights, whose scores are large enough for heads that look somewhere."""
    kind, settings = SETTINGS[name]
    torch.manual_seed(NAMES.index(name))
    first = {GPT: (11,), Transformer: (13, 13), ViT: (7,), SentenceReader: (11,)}[kind]
    sizes = {name: size for name, size in SIZES.items() if name not in kind.fixed}
    model = kind(*first, **{**sizes, **settings})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for layer in (one for of_kind in model.attention_layers().values() for one in of_kind):
            layer.W_q.weight *= 2
    return model


STORED_SIZES = {"repeater": [32], "talker": [32], "reader": [len(VOCABULARY)]}
STORED_SIZES |= {"translator": [153, 223], "copier": [30, 30]}


def inputs_of(name, number):
    """Token ids of a text, or of a source and a target; texts of other numbers have other lengths. Or pixels."""
    generator = torch.Generator().manual_seed(number)
    if name.startswith("ViT"):
        settings = SETTINGS[name][1]
        return [torch.rand(settings.get("height", 8) * settings.get("width", 8), generator=generator).tolist()]
    sizes = STORED_SIZES.get(name) or ([13, 13] if SETTINGS[name][0] is Transformer else [11])
    lengths = [5 + (3 * number + 2 * side) % (6 if name == "reader" else 7) for side in range(len(sizes))]
    return [torch.randint(size, (n,), generator=generator).tolist() for size, n in zip(sizes, lengths, strict=True)]


def float64(numbers):
    return torch.tensor(numbers, dtype=torch.float64)


class Bench:
    """The models, each in a file for node and in float64 for PyTorch."""

    def __init__(self, folder):
        self.folder, self.models, self.told = folder, {}, {}
        for script in scripts():
            (folder / script.name).write_text(script.read_text(encoding="utf-8"), encoding="utf-8")
        (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
        (folder / "runner.js").write_text(RUNNER, encoding="utf-8")
        for number, name in enumerate(NAMES):
            file = FOLDER / f"{name}.safetensors" if name in saved.names() else folder / f"{number}.safetensors"
            if name in SETTINGS:
                saved.write(new_model(name), file, About("none", ("none", 0.0), "none"))
            self.models[name] = saved.read(file).double().requires_grad_(False)
            self.told[name] = {"file": str(file), "described": described(self.models[name])}
        for number, (step, model) in enumerate(moments.load("repeater").items()):
            self.models[f"step {step}"] = model.double().requires_grad_(False)
            file = str(moments.FOLDER / "repeater.safetensors")
            self.told[f"step {step}"] = {"file": file, "described": described(model), "moment": number}

    def ask(self, cases, told=None):
        """What the engine answers to each case, from one process."""
        asked, answered = self.folder / "asked.json", self.folder / "answered.json"
        asked.write_text(json.dumps({"models": {**self.told, **(told or {})}, "cases": cases}), encoding="utf-8")
        command = [str(javascript.node()), str(self.folder / "runner.js"), str(asked), str(answered)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr
        return json.loads(answered.read_text(encoding="utf-8"))

    def changed(self, folder, file, old, new):
        """The same with one place of a script changed."""
        other = copy.copy(self)
        other.folder = folder
        for script in (*self.folder.glob("*.js"), self.folder / "package.json"):
            text = script.read_text(encoding="utf-8")
            if script.name == file:
                assert text.count(old) == 1
                text = text.replace(old, new)
            (folder / script.name).write_text(text, encoding="utf-8")
        return other


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return Bench(tmp_path_factory.mktemp("live"))


def expect(model, inputs, deeds):
    """Logits (n, words), and weights and output of each head, under the deeds of `mhalib.measures`."""
    is_picture = isinstance(model, ViT)
    tensors = [float64(inputs[0]).view(1, *model.patches.size)] if is_picture else [torch.tensor([x]) for x in inputs]
    with ExitStack() as stack:
        if deeds.get("positions") is False and model.settings.get("positions") != "none":
            stack.enter_context(without_positions(model))
        if deeds.get("future") is False and "encoder self" in layers_of(model):
            stack.enter_context(without_future(model))
        for name, deed in deeds.get("heads", {}).items():
            kind, layer, head = name.rsplit(" ", 2)
            for what, given in deed.items():
                stack.enter_context(DEEDS[what](model, Head(kind, int(layer), int(head)), given))
        for name, deed in deeds.get("mix", {}).items():
            kind, number = name.rsplit(" ", 1)
            size = layers_of(model)[kind][int(number)].num_heads
            matrices = {step: float64(numbers).view(size, size) for step, numbers in deed.items()}
            stack.enter_context(mixed(model, {(kind, int(number)): matrices}))
        outputs = stack.enter_context(head_outputs(model))
        logits, weights = model(*tensors, need_weights=True)
    heads = {
        " ".join(map(str, (kind, layer, head))): {
            "weights": weights[kind][layer][0, head],
            "values": outputs[kind][layer][0, head],
        }
        for kind, layer, head in heads_of(model)
    }
    return {"logits": logits[0], "heads": heads}


def for_head(model, head, given):
    """By kind a tensor for each layer, as deeds take them: `given` (1, n, m) at the head, and 0 elsewhere."""
    layers = layers_of(model)[head.kind]
    tensors = [torch.zeros(1, layer.num_heads, *given.shape, dtype=torch.float64) for layer in layers]
    tensors[head.layer][0, head.head] = given
    return {head.kind: tensors}


DEEDS = {
    "rows": lambda model, head, given: rows(model, {head: {query: float64(row) for query, row in given.items()}}),
    "frozen": lambda model, head, given: frozen(
        model, for_head(model, head, float64(given["weights"]).view(given["nq"], given["nk"])), [head]
    ),
    "patch": lambda model, head, given: patched(
        model, for_head(model, head, float64(given["values"]).view(given["nq"], -1)), [head]
    ),
    "mean": lambda model, head, given: switched_off(
        model,
        [head],
        {kind: [x[0] for x in of_kind] for kind, of_kind in for_head(model, head, float64(given)).items()},
    ),
    "gate": lambda model, head, given: gated(
        model,
        {kind: [1 + x[0] for x in of_kind] for kind, of_kind in for_head(model, head, float64(given - 1)).items()},
    ),
}
"""What the engine's deeds are called in Python."""


def record(heads, name):
    """What a head did, as a deed takes it."""
    weights, values = heads[name]["weights"], heads[name]["values"]
    nq, nk = weights.shape
    return {"nq": nq, "nk": nk, "weights": weights.flatten().tolist(), "values": values.flatten().tolist()}


def some_deeds(bench, name, what, seed):
    """Deeds of one kind, or of all kinds at once, on random heads."""
    model, generator = bench.models[name], torch.Generator().manual_seed(seed)
    heads = [" ".join(map(str, head)) for head in heads_of(model)]
    ((layer, *_), *_) = layers_of(model).values()
    d, doing = (
        layer.value_dim,
        [f"{kind} {i}" for kind, of_kind in layers_of(model).items() for i in range(len(of_kind))],
    )
    other = expect(model, inputs_of(name, seed + 1), {})["heads"]

    def number(limit):
        return int(torch.randint(limit, (), generator=generator))

    def some_rows():
        given = {query: torch.rand(1 + number(12), generator=generator).tolist() for query in range(number(9))}
        query = number(4)
        return given | {query: [0.0] * query + [1.0]}  # the last key that it sees, where the mask is causal

    makers = {
        "off": lambda head: {"gate": 0},
        "gate": lambda head: {"gate": number(100) / 40},
        "mean": lambda head: {"mean": torch.randn(d, generator=generator).tolist()},
        "frozen": lambda head: {"frozen": record(other, head)},
        "rows": lambda head: {"rows": some_rows()},
        "patch": lambda head: {"patch": record(other, head)},
    }

    def some_mixing():
        if not isinstance(layer, TalkingHeads):
            return {}
        steps = {one: [step for step in ("scores", "weights") if number(3)] for one in doing}
        size = layer.num_heads**2
        return {one: {k: torch.randn(size, generator=generator).tolist() for k in steps[one]} for one in doing}

    if what in ("plain", "positions", "future", "mix"):
        return {"plain": {}, "mix": {"mix": some_mixing()}}.get(what, {what: False})
    if what != "all":
        return {"heads": {head: makers[what](head) for head in heads if number(2) or what == "frozen"}}
    kinds = list(makers)
    each = {head: [kind for kind in kinds if not number(3)] for head in heads}
    deeds = {head: {k: v for kind in of_head for k, v in makers[kind](head).items()} for head, of_head in each.items()}
    whole = {"positions": bool(number(3)), "future": bool(number(3))}
    return {"heads": deeds, **whole, "mix": some_mixing() if number(2) else {}}


def as_case(name, inputs, deeds, **more):
    return {"model": name, "inputs": inputs, "deeds": deeds, **more}


def deviation(answer, expected):
    """The largest difference between logits, weights and outputs; NaN is infinite."""
    assert answer.get("error") is None, answer["error"]
    assert answer["heads"].keys() == expected["heads"].keys()
    pairs = [(answer["logits"], expected["logits"])]
    pairs += [
        (answer["heads"][h][part], expected["heads"][h][part])
        for h in answer["heads"]
        for part in ("weights", "values")
    ]
    found = [float64([torch.nan if x is None else x for x in numbers]) for numbers, _ in pairs]
    differences = [(one - wanted.flatten()).abs().max() for one, (_, wanted) in zip(found, pairs, strict=True)]
    return float(torch.stack(differences).nan_to_num(torch.inf).max())


KINDS_OF_DEEDS = ("plain", "off", "gate", "mean", "frozen", "rows", "patch", "positions", "future", "mix", "all")


@pytest.fixture(scope="module")
def deviations(bench):
    """Of each model and kind of deeds, the largest difference."""
    cases, expected = [], []
    for name in NAMES:
        for number, what in enumerate(KINDS_OF_DEEDS):
            inputs, deeds = inputs_of(name, number), some_deeds(bench, name, what, number)
            cases.append(as_case(name, inputs, deeds))
            expected.append(expect(bench.models[name], inputs, deeds))
    keys = [(name, what) for name in NAMES for what in KINDS_OF_DEEDS]
    return dict(zip(keys, map(deviation, bench.ask(cases), expected), strict=True))


@pytest.mark.parametrize("what", KINDS_OF_DEEDS)
@pytest.mark.parametrize("name", NAMES)
def test_logits_weights_and_outputs_are_pytorchs(deviations, name, what):
    assert deviations[name, what] < TOLERANCE


@pytest.mark.parametrize("what", ["plain", "off", "patch", "future"])
def test_what_heads_add_to_a_score_adds_up_and_is_pytorchs(bench, what):
    """By head from PyTorch: what is lost with this head alone switched off, too."""
    model, inputs, query = bench.models["reader"], inputs_of("reader", 4), 3
    deeds = some_deeds(bench, "reader", what, 4)
    (answer,) = bench.ask([as_case("reader", inputs, deeds, query=query)])
    logits = expect(model, inputs, deeds)["logits"][query].flatten()
    by_head, of_none = float64(answer["added"]["byHead"]).view(4, -1), float64(answer["added"]["ofNone"])
    torch.testing.assert_close(by_head.sum(0) + of_none, logits, rtol=0, atol=TOLERANCE)
    for i, name in enumerate(" ".join(map(str, head)) for head in heads_of(model)):
        heads = deeds.get("heads", {})
        off = deeds | {"heads": heads | {name: heads.get(name, {}) | {"gate": 0}}}
        lost = logits - expect(model, inputs, off)["logits"][query].flatten()
        torch.testing.assert_close(by_head[i], lost, rtol=0, atol=TOLERANCE)


def test_each_moment_of_a_training_is_pytorchs(bench):
    steps, inputs = list(moments.load("repeater")), inputs_of("repeater", 2)
    cases = [as_case(f"step {step}", inputs, {}) for step in steps]
    expected = [expect(bench.models[f"step {step}"], inputs, {}) for step in steps]
    assert max(map(deviation, bench.ask(cases), expected)) < TOLERANCE
    assert (expected[3]["logits"] - expected[4]["logits"]).abs().max() > 1e-3


@pytest.mark.weekly("mhalib/live/")
def test_300_random_deeds_do_what_they_do_in_pytorch(bench):
    cases, expected = [], []
    for seed in range(100, 100 + -(-300 // len(SETTINGS))):
        for name in SETTINGS:
            inputs, deeds = inputs_of(name, seed), some_deeds(bench, name, "all", seed)
            cases.append(as_case(name, inputs, deeds))
            expected.append(expect(bench.models[name], inputs, deeds))
    assert len(cases) >= 300
    assert max(map(deviation, bench.ask(cases), expected)) < TOLERANCE


@pytest.mark.parametrize("is_mean", [False, True])
@pytest.mark.parametrize("name", saved.names())
def test_heads_are_off_as_switched_off_has_it(bench, name, is_mean):
    model, inputs = bench.models[name], inputs_of(name, 3)
    tokens = [torch.tensor([ids]) for ids in inputs]
    means = head_means(model, [tokens], lambda model, batch: model(*batch) and None) if is_mean else None
    off = heads_of(model)[::3]
    with switched_off(model, off, means):
        logits, weights = model(*tokens, need_weights=True)
    deeds = {
        " ".join(map(str, head)): {"mean": means[head.kind][head.layer][head.head].tolist()} if is_mean else {"gate": 0}
        for head in off
    }
    (answer,) = bench.ask([as_case(name, inputs, {"heads": deeds})])
    torch.testing.assert_close(float64(answer["logits"]), logits.flatten(), rtol=0, atol=TOLERANCE)
    for head in heads_of(model):
        found = float64(answer["heads"][" ".join(map(str, head))]["weights"])
        torch.testing.assert_close(
            found, weights[head.kind][head.layer][0, head.head].flatten(), rtol=0, atol=TOLERANCE
        )


def written(model, inputs, deeds, count, end=None):
    """What the model writes greedily, each pass from the beginning, with no cache."""
    *source, target = inputs
    new = []
    while len(new) < count and (not new or new[-1] != end):
        new.append(int(expect(model, [*source, target + new], deeds)["logits"][-1].argmax()))
    return new


@pytest.mark.parametrize("name", WRITERS)
def test_greedy_writing_with_a_cache_is_pytorchs_without(bench, name):
    cases = []
    for number, what in enumerate(("plain", "positions", "all", "all")):
        inputs, deeds = inputs_of(name, number), some_deeds(bench, name, what, number)
        cases.append(as_case(name, [*inputs[:-1], inputs[-1][:3]], deeds, count=5))
    expected = [written(bench.models[name], case["inputs"], case["deeds"], 5) for case in cases]
    assert bench.ask(cases) == expected


def test_the_translator_writes_whole_sentences(bench):
    sentences = ["the white cow sees the black dog", "your white boat finds this black star", "the dog sees the boat"]
    sources = [[ENGLISH.ids[word] for word in sentence.split()] for sentence in sentences]
    begin, end = FRENCH.ids[BEGIN], FRENCH.ids[END]
    cases = [as_case("translator", [source, [begin]], {}, count=15, end=end) for source in sources]
    answers = bench.ask(cases)
    assert answers == [written(bench.models["translator"], case["inputs"], {}, 15, end) for case in cases]
    assert all(answer[-1] == end for answer in answers)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"norm": "sandwich"}, 'settings.norm="sandwich" must be one of "pre", "post"'),
        ({"positions": "rotary-halves"}, 'settings.positions="rotary-halves" must be one of'),
        ({"positions": "toString"}, 'settings.positions="toString" must be one of'),
        ({"attention": "latent"}, 'settings.attention="latent" must be one of "multi-head", "talking"'),
        ({"attention": ["multi-head"] * 2}, 'settings.attention=["multi-head","multi-head"] must be one of'),
        ({"attention": {"name": "multi-head", "scale": 2}}, "settings.attention.scale=2 is unknown"),
        ({"norm_kind": "rms"}, 'settings.norm_kind="rms" must be one of "layer"'),
        ({"ffn_kind": "relu"}, 'settings.ffn_kind="relu" must be one of "gelu"'),
        ({"parallel": True}, "settings.parallel=true must be one of false"),
        ({"cross": "talking"}, 'settings.cross="talking" must be one of null'),
        ({"window": 3}, "settings.window=3 must be one of null"),
        ({"norm_eps": "small"}, 'settings.norm_eps="small" must be a number'),
        ({"flavour": "new"}, 'settings.flavour="new" is unknown'),
        ({"logit_cap": 3}, "settings.logit_cap=3 is unknown"),
        ({"mixture": {"num_experts": 2}}, 'settings.mixture={"num_experts":2} is unknown'),
        ({"positions": ...}, "settings.positions is missing: all are needed, also the usual ones"),
    ],
)
def test_what_it_does_not_know_it_refuses_by_name(bench, settings, message):
    told = copy.deepcopy(bench.told["repeater"])
    told["described"]["settings"].update(settings)
    told["described"]["settings"] = {k: v for k, v in told["described"]["settings"].items() if v is not ...}
    (answer,) = bench.ask([{"model": "told"}], {"told": told})
    assert message in answer["error"]


@pytest.mark.parametrize(
    "settings",
    [{"embedding_norm": True}, {"readout_scale": 0.5}, {"decoder": {"num_layers": 1}}, {"readout": "none"}],
    ids=str,
)
def test_of_an_encoder_decoder_too(bench, settings):
    told = copy.deepcopy(bench.told["translator"])
    told["described"]["settings"].update(settings)
    ((name, value),) = settings.items()
    (answer,) = bench.ask([{"model": "told"}], {"told": told})
    assert f"settings.{name}={json.dumps(value, separators=(',', ':'))} must be one of" in answer["error"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"norm_tokens": True}, "settings.norm_tokens=true must be one of false"),
        ({"distilled": True}, "settings.distilled=true must be one of false"),
        ({"channels": 3}, "settings.channels=3 must be one of null"),
        ({"num_classes": None}, "settings.num_classes=null must be a number"),
        ({"positions": "rotary"}, 'settings.positions="rotary" is unknown'),
    ],
)
def test_and_of_one_that_sees(bench, settings, message):
    told = copy.deepcopy(bench.told["ViT"])
    told["described"]["settings"].update(settings)
    (answer,) = bench.ask([{"model": "told"}], {"told": told})
    assert answer["error"] == message


def test_other_models_and_pruned_ones_are_refused(bench, tmp_path):
    told = {"bert": {**bench.told["repeater"], "described": described(BERT(7))}}
    pruned = prune_heads(saved.load("repeater"), heads_of(saved.load("repeater"))[:1])
    with pytest.raises(ValueError, match=r"model has lost 1 of its heads, such as \('decoder self', 0, 0\)"):
        described(pruned)
    with pytest.raises(TypeError, match="model must be a Model, got str"):
        described("repeater")
    saved.write(pruned, tmp_path / "pruned.safetensors", About("none", ("none", 0.0), "none"))
    told["pruned"] = {**bench.told["repeater"], "file": str(tmp_path / "pruned.safetensors")}
    answers = bench.ask([{"model": "bert"}, {"model": "pruned"}], told)
    assert answers[0]["error"] == "model=BERT must be one of GPT, Transformer, ViT, SentenceReader"
    assert "attention.W_q.weight has 48 rows, not 64: were heads removed?" in answers[1]["error"]


HEAD = "decoder self 1 2"


@pytest.mark.parametrize(
    ("deeds", "message"),
    [
        ({"heads": {"decoder self 2 0": {}}}, "the model has no head decoder self 2 0: it has decoder self 0 0 to"),
        ({"heads": {HEAD: {"gait": 0}}}, f"{HEAD}: gait is unknown: known are rows, frozen, patch, mean, gate"),
        ({"heads": {HEAD: {"gate": "0"}}}, f"{HEAD}: gate=0 must be a number"),
        ({"heads": {HEAD: {"mean": [0.0] * 15}}}, f"{HEAD}: mean has 15 numbers, not 16"),
        (
            {"heads": {HEAD: {"frozen": {"nq": 2, "nk": 3, "weights": [0.5] * 5}}}},
            "frozen.weights has 5 numbers, not 6",
        ),
        ({"heads": {HEAD: {"patch": {"nq": 2, "values": [0.5] * 31}}}}, "patch.values has 31 numbers, not 32"),
        ({"heads": {HEAD: {"rows": {"first": [1.0]}}}}, f"{HEAD}: rows has first, which is no query"),
        ({"position": False}, "deeds.position is unknown: known are heads, positions, future, mix"),
        ({"mix": {"decoder self 1": {}}}, "mix names decoder self 1, but the heads of this model do not talk"),
        ({"positions": 0}, "positions=0 must be true or false"),
    ],
)
def test_a_deed_that_cannot_be_is_refused(bench, deeds, message):
    (answer,) = bench.ask([as_case("repeater", [[1, 2, 3]], deeds)])
    assert message in answer["error"]


@pytest.mark.parametrize(
    ("mix", "message"),
    [
        ({"decoder self 2": {}}, "mix names decoder self 2, but the layers are decoder self 0 to decoder self 1"),
        ({"decoder self 1": {"values": []}}, "mix of decoder self 1: values is unknown: known are scores, weights"),
        ({"decoder self 1": {"scores": [1.0] * 63}}, "mix of decoder self 1: scores has 63 numbers, not 64"),
        ({"decoder self 1": {"weights": [1.0] * 63 + ["1"]}}, "mix of decoder self 1: weights must be finite"),
    ],
)
def test_a_mixing_that_cannot_be_is_refused(bench, mix, message):
    (answer,) = bench.ask([as_case("talker", [[1, 2, 3]], {"mix": mix})])
    assert answer.get("error") == message


@pytest.mark.parametrize(
    ("query", "row", "message"),
    [
        (0, [0.0, 0.0, 1.0], " has no weight on a key that the query may see"),
        (1, [1e-10], " has no weight on a key that the query may see"),
        (1, [2.0, -1.0], "=2,-1 must be finite, at least 0, and not 0 everywhere"),
        (7, [0.0, 0.0], "=0,0 must be finite, at least 0, and not 0 everywhere"),
    ],
)
def test_a_row_that_cannot_be_is_refused_in_both_languages(bench, query, row, message):
    deeds = {"heads": {HEAD: {"rows": {query: row}}}}
    (answer,) = bench.ask([as_case("repeater", [[1, 2, 3]], deeds)])
    assert answer.get("error") == f"{HEAD}: rows of query {query}{message}"
    with pytest.raises(ValueError, match=re.escape(message.rpartition("=")[2].partition(" ")[2])):
        expect(bench.models["repeater"], [[1, 2, 3]], deeds)


def test_tokens_and_pictures_that_cannot_be_are_refused(bench):
    learned = "GPT, learned, multi-head"
    answers = bench.ask(
        [as_case("repeater", [[1, 32]], {}), as_case(learned, [[1] * 18], {}), as_case("translator", [[1]], {})]
    )
    assert answers[0]["error"] == "tokens holds 32, but ids go from 0 to 31"
    assert answers[1]["error"] == "18 tokens, but the model has only max_tokens=17 positions"
    assert answers[2]["error"] == "this is a Transformer, not a GPT"
    (answer,) = bench.ask([as_case("ViT", [[0.5] * 47], {})])
    assert answer["error"] == "pixels has 47 numbers, not 6 times 8"


MUTANTS = {
    "no scale": ("attention.js", "product / Math.sqrt(headDim)", "product"),
    "rotation the other way": (
        "tensors.js",
        "(start + row) * rate(pair, headDim)",
        "-(start + row) * rate(pair, headDim)",
    ),
    "pairs of sines": ("tensors.js", "Math.floor(channel / 2)", "channel / 2"),
    "heads exchanged": (
        "engine.js",
        "i * num_hiddens + head * this.headDim);\n      }",
        "i * num_hiddens + (head ^ 1) * this.headDim);\n      }",
    ),
    "mask off by one": ("deeds.js", "start + i + 1", "start + i + 2"),
    "gate ignored": ("deeds.js", "number * gate", "number"),
    "mean ignored": ("deeds.js", "number = mean[channel]", "number = 0"),
    "patch of the next query": ("deeds.js", "patch.values[query * headDim", "patch.values[(query - 1) * headDim"),
    "frozen before rows": ("deeds.js", "if (rows[query]) {", "if (!frozen && rows[query]) {"),
    "rows not divided": ("deeds.js", "(divide ? sum : 1)", "1"),
    "talking rows divided": ("deeds.js", "frozen.nk, rowsSumToOne", "frozen.nk, true"),
    "talking heads transposed": ("attention.js", "data[n * shape[0] + m]", "data[m * shape[0] + n]"),
    "a given mixing ignored": ("engine.js", "scores: scores ? given(scores) : own.scores", "scores: own.scores"),
    "a given mixing transposed": (
        "engine.js",
        "data: Float64Array.from(numbers)",
        "data: Float64Array.from(numbers, (_, i) => numbers[(i % 4) * 4 + Math.floor(i / 4)])",
    ),
    "one mixing for both": ("engine.js", "weights: weights ? given(weights)", "weights: scores ? given(scores)"),
    "groups ignored": ("attention.js", "Math.floor((head * numKvHeads) / numHeads)", "(head % numKvHeads)"),
    "positions stay": ("embed.js", "deeds?.positions === false ? null : ", ""),
    "rotation stays": ("engine.js", " && run.deeds?.positions !== false", ""),
    "no last norm": ("engine.js", 'this.settings.norm === "pre" ? this.normalise(`${stack}.norm`, x, n) : x', "x"),
    "eps of its own": ("tensors.js", "variance + eps", "variance + 1e-5"),
    "gelu by tanh": ("tensors.js", "1 + erf(x / Math.SQRT2)", "1 + Math.tanh(0.7978845608 * (x + 0.044715 * x ** 3))"),
}


@pytest.fixture(scope="module")
def few(bench):
    """Cases that show each bug of the engine, and what is expected."""
    names = ["GPT, rotary, grouped", "GPT, sinusoidal, talking", "Transformer, learned, talking", "GPT, tied"]
    whats = ("plain", "positions", "gate", "mix", "all")
    cases = [as_case(name, inputs_of(name, 1), some_deeds(bench, name, what, 1)) for name in names for what in whats]
    return cases, [expect(bench.models[case["model"]], case["inputs"], case["deeds"]) for case in cases]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_bug_in_the_engine_is_seen(bench, few, tmp_path, mutant):
    cases, expected = few
    assert max(map(deviation, bench.ask(cases), expected)) < TOLERANCE
    answers = bench.changed(tmp_path, *MUTANTS[mutant]).ask(cases)
    assert max(map(deviation, answers, expected)) > 1e-5


CACHE_MUTANTS = {
    "new keys turned from place 0": (
        "engine.js",
        "rotateInPlace(k, n, this.headDim, old?.n ?? 0)",
        "rotateInPlace(k, n, this.headDim, 0)",
    ),
    "new queries turned from place 0": (
        "engine.js",
        "rotateInPlace(q, queries.n, this.headDim, start)",
        "rotateInPlace(q, queries.n, this.headDim, 0)",
    ),
    "new tokens at place 0": ("embed.js", "(cache?.start ?? 0) + i", "i"),
    "old keys forgotten": ("engine.js", "n: old.n + n }", "n }"),
    "deeds count from the new tokens": (
        "engine.js",
        "changeWeights(ofHead, deed, reach,",
        "changeWeights(ofHead, deed, { ...reach, start: 0, isCausal: false },",
    ),
}


@pytest.fixture(scope="module")
def few_written(bench):
    """Cases that show each bug of the cache, and what is expected."""
    names = [name for name in NAMES if "GPT, rotary" in name or "GPT, learned" in name]
    cases = [
        as_case(name, [inputs_of(name, number)[0][:3]], some_deeds(bench, name, what, number), count=9)
        for name in names
        for what in ("plain", "frozen")
        for number in (2, 3, 4, 5)
    ]
    return cases, [written(bench.models[case["model"]], case["inputs"], case["deeds"], 9) for case in cases]


@pytest.mark.parametrize("mutant", CACHE_MUTANTS)
def test_a_bug_in_the_cache_is_seen(bench, few_written, tmp_path, mutant):
    cases, expected = few_written
    assert bench.ask(cases) == expected
    assert bench.changed(tmp_path, *CACHE_MUTANTS[mutant]).ask(cases) != expected


def test_the_engine_makes_no_markup_runs_no_text_and_asks_for_nothing():
    for script in scripts():
        text = script.read_text(encoding="utf-8")
        assert text.startswith("// @ts-check\n")
        assert not re.search(r"innerHTML|\beval\b|Function\(|fetch\(|XMLHttp|document|window\.", text)
        assert set(re.findall(r'^import .* from "(.*)";$', text, re.MULTILINE)) <= {
            f"./{one.name}" for one in scripts()
        }
    assert sorted(scripts()) == sorted(scripts()[0].parent.glob("*.js"))
