"""`check_variant` lets every kind of the book pass, and for each check there is a kind that fails it and no other."""

import re

import pytest
import torch
from throwaway_kinds import THROWAWAY, QKClip
from torch import nn

from mhalib import MultiHeadAttention
from mhalib.attention import KINDS, register
from mhalib.variants import CHECKS, DeltaAttention, VariantError, check_variant
from tools.notebooks import notebooks

pytestmark = pytest.mark.package

NAMES = [name for name in KINDS if name != "sparse"]
SETTINGS = [
    {"name": "multi-head", "num_kv_heads": 2},
    {"name": "multi-head", "num_kv_heads": 1},
    {"name": "multi-head", "head_dim": 6, "value_dim": 5, "scale": 0.3},
    {"name": "talking", "init": "normal", "mix_bias": True},
    {"name": "collaborative", "shared_size": 6, "init": "normal"},
    {"name": "overlapping", "overlap": 7},
    {"name": "mixture", "num_shared": 1, "num_chosen": 2, "paper_scaling": True},
    {"name": "composed", "by_keys": False, "static": True},
    {"name": "mixture", "num_shared": 1, "num_chosen": 1, "router": "query norm"},
    {"name": "gated", "per_channel": True},
    {"name": "gated", "init": "multi-head", "norm": "rms", "num_kv_heads": 2},
    {"name": "delta", "decay": "channel"},
    {"name": "tensor-product", "rank": 1, "query_rank": 3, "value_dim": 5},
    {"name": "qk-norm", "norm": "rms"},
    {"name": "qk-norm", "norm": "rms", "together": True},
    {"name": "latent", "latent_size": 5},
    {"name": "latent", "latent_size": 5, "absorbed": True},
    {"name": "span", "max_span": 3, "ramp": 2.0},
    {"name": "sparse", "window": 2, "stride": 3},
    {"name": "multi-token", "kernel_size": [3, 3], "head_group": 2},
    {"name": "blocks", "block_size": 2, "num_chosen": 2},
    {"name": "blocks", "block_size": 3, "num_chosen": 1, "num_kv_heads": 2},
    {"name": "native-sparse", "block_size": 2, "num_chosen": 2, "window": 2, "num_kv_heads": 2},
    {"name": "indexed", "num_chosen": 2},
    {"name": "indexed", "num_chosen": 3, "query_latent_size": 6, "absorbed": True},
    {"name": "relative", "num_buckets": 4, "max_distance": 3},
]


@pytest.mark.parametrize("choice", [*NAMES, *SETTINGS], ids=str)
def test_every_kind_of_the_book_does_what_every_kind_must(choice):
    check_variant(choice, without=() if choice in NAMES or choice["name"] == "sparse" else ["compile"])


@pytest.mark.weekly("mhalib/attention/", "mhalib/variants/", "requirements.txt")
@pytest.mark.parametrize("choice", SETTINGS, ids=str)
def test_every_kind_compiles_with_other_settings(choice):
    check_variant(choice, without=[name for name in CHECKS if name != "compile"])


@pytest.mark.parametrize("name", THROWAWAY)
def test_a_kind_from_a_paper_takes_a_few_lines_and_passes(name):
    register(f"a test's {name}")(THROWAWAY[name])
    try:
        check_variant(f"a test's {name}")
    finally:
        del KINDS[f"a test's {name}"]


def test_clipped_heads_have_smaller_scores_and_the_others_are_left_alone():
    layer, x = QKClip(16, 4), torch.randn(2, 7, 16)
    with torch.no_grad():
        layer.W_q.weight[:4] *= 100
        layer(x, x, x)
        before = layer.largest
        layer.clip()
        layer(x, x, x)
    assert before[0] > 20 > before[1:].max()
    torch.testing.assert_close(layer.largest, torch.cat([torch.tensor([20.0]), before[1:]]))


def _head_of_the_page():
    """The reader's own head in the page of the API: its code, and what the page says of a broken one."""
    page = (notebooks.CHAPTERS / "api.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
    changed, told = re.search(r"`(places\[.*?)`, and you are told\n`(.*?)`", page).groups()
    return code, changed, told


def test_the_head_that_the_page_shows_passes_and_broken_fails_as_the_page_says():
    code, changed, told = _head_of_the_page()
    own = code[code.index("@register") : code.index("check_variant(")]
    assert len(own.strip().splitlines()) <= 10
    right = "places[num_kvpairs - num_queries :, None]"
    assert right in code
    try:
        exec(code, {})
        del KINDS["alibi"]
        with pytest.raises(VariantError, match=f"^{re.escape(told)}$"):
            exec(code.replace(right, changed), {})
    finally:
        KINDS.pop("alibi", None)


class BareWeights(MultiHeadAttention):
    """Says that rows sum to 1, and doubles them."""

    def softmax(self, scores, mask):
        return 2 * super().softmax(scores, mask)


class LoudestToken(MultiHeadAttention):
    """Turns all scores down where one token of the whole text, a later one too, is loud."""

    def mix_scores(self, scores, queries, keys, **_):
        return scores / keys.abs().amax((1, 2))[:, None, None, None].clamp(min=8)


class DistanceFromTheFirst(MultiHeadAttention):
    """A number for each distance, as if the first query were always the first token."""

    looks_at_itself_only = True

    def added(self, num_queries, num_kvpairs):
        return -(torch.arange(num_queries)[:, None] - torch.arange(num_kvpairs)).abs()[None]


class Heedless(DeltaAttention):
    """Keeps a state, and takes a mask that it does not heed."""

    def forward(self, queries, keys, values, valid_lens=None, *, mask=None, **more):
        return super().forward(queries, keys, values, **more)


class Unplaced(MultiHeadAttention):
    """Takes rotary positions and does not use them."""

    def place(self, x, start):
        return x


class Stopped(MultiHeadAttention):
    """No gradient passes what the heads found."""

    def gate(self, found, queries):
        return found.detach()


class Exchanged(MultiHeadAttention):
    """Lays each head beside the columns of W_o that belong to the next."""

    def merge(self, found):
        return super().merge(found.roll(1, 1))


class Scaled(MultiHeadAttention):
    """Each head has a gate; a removed head leaves its gate to the next."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.gates = nn.Parameter(torch.randn(self.num_heads))

    def gate(self, found, queries):
        return found * self.gates[:, None, None]

    def keep_heads(self, heads):
        super().keep_heads(heads)
        self.gates = nn.Parameter(self.gates.detach()[: self.num_heads])


class Forgotten(MultiHeadAttention):
    """Its gates are numbers drawn by chance that no state dict holds."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.gates = torch.rand(self.num_heads, dtype=torch.float64)

    def gate(self, found, queries):
        return found * self.gates[:, None, None]

    def keep_heads(self, heads):
        super().keep_heads(heads)
        self.gates = self.gates[list(heads)]


class Watched(MultiHeadAttention):
    """Computes otherwise where somebody looks on."""

    def gate(self, found, queries):
        if torch.compiler.is_compiling() or torch.utils._python_dispatch._get_current_dispatch_mode() is None:
            return found
        return 0.5 * found


class Branching(MultiHeadAttention):
    """Python decides by a number that only the pass knows."""

    def gate(self, found, queries):
        return found if float(found.detach().abs().max()) < 1e6 else 0 * found


BROKEN = {
    "weights": (BareWeights, "rows_sum_to_one=True, but rows sum to 2 to 2"),
    "causality": (LoudestToken, "a changed future moves earlier outputs: by "),
    "cache": (DistanceFromTheFirst, "pieces with a cache do not give what the whole gives: by "),
    "state": (Heedless, "a window must be refused with a ValueError, not taken in silence"),
    "positions": (Unplaced, "rotary positions change nothing"),
    "gradients": (Stopped, "no gradient reaches ['W_q.weight', 'W_q.bias', 'W_k.weight'"),
    "heads": (Exchanged, "a gate of 0 does not take the head's part away: by "),
    "pruning": (Scaled, "without head 1, the output is not that with a gate of 0 on it: by "),
    "saved": (Forgotten, "settings and state dict do not make the same layer again: by "),
    "ledger": (Watched, "under the ledger the layer computes otherwise: by "),
    "compile": (Branching, "Could not guard on data-dependent expression"),
}


@pytest.fixture
def registered():
    """A function that registers a class under the name of the class, for the time of the test."""
    names = []

    def add(kind):
        names.append(kind.__name__)
        register(kind.__name__)(kind)
        return kind.__name__

    yield add
    for name in names:
        KINDS.pop(name, None)


def test_each_check_has_a_kind_that_fails_it():
    assert BROKEN.keys() == CHECKS.keys()


@pytest.mark.parametrize("check", BROKEN)
def test_a_broken_kind_fails_that_check_and_no_other(check, registered):
    broken, message = BROKEN[check]
    name = registered(broken)
    also = {"cache": {"positions"}}.get(check, set())  # the same pieces again, with rotary positions
    with pytest.raises(VariantError, match=re.escape(message)) as caught:
        check_variant(name)
    assert caught.value.check == check
    assert str(caught.value).startswith(f"kind={name!r} fails {check!r}: ")
    check_variant(name, without={check, *also})


def test_torchs_random_state_is_left_as_it_was():
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    check_variant("multi-head")
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: check_variant(3), TypeError, "attention must be a name or a mapping, got int: 3"),
        (lambda: check_variant("nothing"), ValueError, "attention={'name': 'nothing'} must name one of"),
        (lambda: check_variant({"name": "multi-head", "rank": 2}), TypeError, "unexpected keyword"),
        (lambda: check_variant("multi-head", 18, 4), ValueError, "num_hiddens=18 is not divisible by num_heads=4"),
        (lambda: check_variant("multi-head", 16, 1), ValueError, "num_heads=1 must be at least 2"),
        (lambda: check_variant("multi-head", without="cache"), TypeError, "without must be"),
        (lambda: check_variant("multi-head", without=["speed"]), ValueError, "without='speed'"),
    ],
)
def test_what_cannot_be_checked_is_refused(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()
