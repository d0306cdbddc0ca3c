"""What every kind of attention must do, whatever it computes: the checks that a new kind has to pass."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from .._validate import as_list, require_choice, require_count, require_kind
from ..attention import Band, Cache, KeyValueCache, MultiHeadAttention, causal_mask, kind_of, make_attention
from ..shapes import ledger

CLOSE: dict[str, Any] = {"atol": 1e-9, "rtol": 1e-7}
"""How near two results must be that are computed in two ways, in 64 bits."""


class VariantError(AssertionError):
    """A kind of attention does not do what every kind must.

    check: the name of the check that failed, one of `CHECKS`.
    """

    def __init__(self, check: str, message: str) -> None:
        super().__init__(message)
        self.check = check


class _Subject(NamedTuple):
    """The kind that is checked, its sizes, and the tokens that it is checked with."""

    choice: str | Mapping[str, Any]
    num_hiddens: int
    num_heads: int

    def layer(self, seed: int = 0, **settings: Any) -> MultiHeadAttention:
        """A layer in 64 bits; the same seed gives the same parameters."""
        choice = {"name": self.choice} if isinstance(self.choice, str) else dict(self.choice)
        torch.manual_seed(seed)
        return make_attention({**choice, **settings}, self.num_hiddens, self.num_heads, bias=True).double().eval()

    @property
    def x(self) -> Tensor:
        """Seven tokens in each of two examples, (2, 7, D)."""
        return torch.randn(2, 7, self.num_hiddens, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def check_variant(
    kind: str | Mapping[str, Any], num_hiddens: int = 16, num_heads: int = 4, *, without: Collection[str] = ()
) -> None:
    """Check that a kind of attention does what every kind must, whatever it computes.

    Weights do not depend on being asked for, a changed future moves no earlier output, a cache gives what the whole
    gives, gradients are those of the function, a removed head is a head whose gate is 0, and so on: `CHECKS` has them
    all. Each makes layers of its own, in float64, with seeds of its own; torch's random state is left as it was.
    What torch has compiled before is compiled anew.

    Args:
        kind: a name in `mhalib.attention.KINDS`, or a mapping with that "name" and settings, as in `make_attention`.
        num_hiddens: D of the layers that are checked.
        num_heads: h of them.
        without: names of checks to leave out, where a kind means to do otherwise. Say why beside the call.

    Raises:
        VariantError: a check fails; the message begins with the kind and the check, and says by how much.
        TypeError, ValueError: there is no such kind or check, or the kind refuses its settings.

    >>> check_variant({"name": "multi-head", "num_kv_heads": 2})
    """
    require_count("num_hiddens", num_hiddens)
    require_count("num_heads", num_heads, minimum=2)
    without = as_list("without", without)
    for name in without:
        require_choice("without", name, tuple(CHECKS))
    made_of, subject = kind_of(kind), _Subject(kind, num_hiddens, num_heads)
    with torch.random.fork_rng(devices=[]):
        require_kind("kind", subject.layer(), made_of)  # refuses what cannot be made at all
        for name, check in CHECKS.items():
            if name in without:
                continue
            try:
                check(subject)
            except Exception as error:  # whatever a step raises, it is this check that it failed
                raise VariantError(name, f"kind={kind!r:.200} fails {name!r}: {error}") from error


def _weights(subject: _Subject) -> None:
    """The output is the same with weights and without; hidden keys have weight 0; rows sum to 1 if the kind says so."""
    layer, x = subject.layer(), subject.x
    output, weights = layer(x, x, x, mask=Band())
    without, none = layer(x, x, x, mask=causal_mask(7), need_weights=False)
    _require(none is None, "need_weights=False returns weights")
    assert weights is not None
    _require(output.shape == x.shape, f"output has shape {tuple(output.shape)}, not {tuple(x.shape)}")
    shape = (2, subject.num_heads, 7, 7)
    _require(weights.shape == shape, f"weights have shape {tuple(weights.shape)}, not {shape}")
    _require_same(without, output, "the output without weights differs from that with weights")
    _require(not weights.triu(1).any(), "hidden keys have weights that are not 0")
    if layer.rows_sum_to_one:
        sums = weights.detach().sum(-1)
        least, most = float(sums.min()), float(sums.max())
        _require(
            abs(least - 1) + abs(most - 1) < 1e-6, f"rows_sum_to_one=True, but rows sum to {least:.4g} to {most:.4g}"
        )


def _causality(subject: _Subject) -> None:
    """With a causal mask, tokens that come later change nothing before them, however large they are."""
    layer, x = subject.layer(), subject.x
    changed = x.clone()
    changed[:, 4:] = 10 * x[:, 4:].flip(-1)
    for need_weights in (True, False):
        before, after = (layer(one, one, one, mask=Band(), need_weights=need_weights)[0][:, :4] for one in (x, changed))
        _require_same(after, before, "a changed future moves earlier outputs")


def _cache(subject: _Subject) -> None:
    """Tokens that come in pieces, with a cache, give what they give at once, and the cache counts them. A layer that
    keeps a state is asked without weights: of tokens that are gone it has none, see the check "state". A
    `KeyValueCache` in place of its own is refused, or gives the same."""
    for need_weights in (True, False):
        layer, x = subject.layer(), subject.x
        if need_weights and layer.keeps_state:
            continue
        _require_whole(layer, x, need_weights, layer.new_cache())
        with contextlib.suppress(TypeError, ValueError):
            _require_whole(layer, x, need_weights, KeyValueCache())


def _state(subject: _Subject) -> None:
    """A layer that keeps a state keeps as many bytes after one token as after seven, and refuses what a state cannot
    do and not silently does otherwise: weights of tokens that a cache has seen, a window, a mask with a hole. Padding
    it takes: hidden tokens change nothing. A layer that keeps tokens is not asked."""
    layer, x = subject.layer(), subject.x
    if not layer.keeps_state:
        return
    cache, sizes = layer.new_cache(), []
    with torch.no_grad():
        for start in range(7):
            one = x[:, start : start + 1]
            layer(one, one, one, cache=cache, need_weights=False)
            sizes.append(cache.num_bytes)
    _require(len(set(sizes)) == 1 and sizes[0] > 0, f"token after token, the cache holds {sizes} bytes")
    hole = causal_mask(7)
    hole[5, 2] = False
    refused: dict[str, dict[str, Any]] = {
        "weights behind a cache": {"cache": cache},
        "a window": {"mask": Band(before=2), "need_weights": False},
        "a mask with a hole": {"mask": hole, "need_weights": False},
    }
    for what, asked in refused.items():
        try:
            layer(x, x, x, **asked)
        except ValueError:
            continue
        _require(False, f"{what} must be refused with a ValueError, not taken in silence")
    real = torch.tensor([True] * 2 + [False] * 2 + [True] * 3)
    changed = torch.where(real[:, None], x, 9 * x)
    before, after = (layer(one, one, one, mask=real[None, None, None])[0][:, real] for one in (x, changed))
    _require_same(after, before, "tokens that the mask calls padding change others")


def _positions(subject: _Subject) -> None:
    """Rotary positions change the output, and a cache knows where its tokens stand; or the kind refuses them."""
    try:
        layer = subject.layer(positions="rotary")
    except (TypeError, ValueError):
        return
    x = subject.x
    _require_whole(layer, x, True, layer.new_cache())
    turned, _ = layer(x, x, x)
    layer.positions = None
    same = torch.allclose(layer(x, x, x)[0], turned, **CLOSE)
    _require(not same, "rotary positions change nothing: do queries and keys go through `place`?")


def _gradients(subject: _Subject) -> None:
    """Every parameter has a gradient, but for parts that learn apart, and the gradient of the input is the function's
    slope."""
    layer, x = subject.layer(), subject.x.requires_grad_()
    along = torch.randn(*x.shape, dtype=x.dtype)

    def loss(x: Tensor) -> Tensor:
        return layer(x, x, x, mask=Band())[0].sin().sum()

    loss(x).backward()
    without = [name for name, parameter in layer.named_parameters() if parameter.grad is None]
    without = [name for name in without if name.split(".")[0] not in layer.learns_apart]
    _require(not without, f"no gradient reaches {without}")
    with torch.no_grad():
        step = 1e-6 * along
        measured = (loss(x + step) - loss(x - step)) / 2e-6
    assert x.grad is not None
    _require_same((x.grad * along).sum(), measured, "the gradient is not the slope", atol=1e-5, rtol=1e-4)


def _heads(subject: _Subject) -> None:
    """`on_heads` sees what each head found, and a gate of 0 takes away just that head's columns of W_o."""
    layer, x = subject.layer(), subject.x
    seen: list[Tensor] = []
    with layer.on_heads(seen.append):
        whole, _ = layer(x, x, x)
    part = seen[0][:, 1] @ layer.W_o.weight[:, layer.head_slices(1).o].T
    with layer.on_heads(lambda outputs: outputs * _all_but_head_1(layer)):
        for need_weights in (True, False):
            gated, _ = layer(x, x, x, need_weights=need_weights)
            _require_same(gated, whole - part, "a gate of 0 does not take the head's part away")
    _require_same(layer(x, x, x)[0], whole, "the output stays changed when the gate is gone")


def _pruning(subject: _Subject) -> None:
    """A removed head is a head whose gate is 0; or the kind refuses to remove any, and stays what it was."""
    layer, x = subject.layer(), subject.x
    with layer.on_heads(lambda outputs: outputs * _all_but_head_1(layer)):
        gated, weights = layer(x, x, x)
    assert weights is not None
    kept = [head for head in range(layer.num_heads) if head != 1]
    before = {name: part.clone() for name, part in layer.state_dict().items()}
    try:
        layer.keep_heads(kept)
    except TypeError:
        left_alone = all(torch.equal(part, before[name]) for name, part in layer.state_dict().items())
        _require(left_alone, "keep_heads refuses, but has changed weights")
        return
    pruned, left = layer(x, x, x)
    assert left is not None
    _require_same(pruned, gated, "without head 1, the output is not that with a gate of 0 on it")
    _require_same(left, weights[:, kept], "without head 1, the other heads have other weights")
    _require_same(layer(x, x, x, need_weights=False)[0], gated, "a pruned layer without weights computes otherwise")
    _require(layer.head_numbers == tuple(kept), f"head_numbers={layer.head_numbers} must be {tuple(kept)}")


def _saved(subject: _Subject) -> None:
    """Settings fit into a JSON file, and they and the state dict make the same layer again."""
    layer, x = subject.layer(), subject.x
    told = json.loads(json.dumps(subject.choice if isinstance(subject.choice, str) else dict(subject.choice)))
    again = subject._replace(choice=told).layer(seed=2)
    again.load_state_dict(layer.state_dict())
    _require_same(again(x, x, x)[0], layer(x, x, x)[0], "settings and state dict do not make the same layer again")


def _ledger(subject: _Subject) -> None:
    """The ledger sees every step, down to the output."""
    layer, x = subject.layer(), subject.x
    seen = ledger(layer, x, x, x)
    output, _ = cast("tuple[Tensor, Tensor]", seen.output)
    _require(len(seen) > 0 and seen[len(seen) - 1].shape == x.shape, "the last step of the ledger is not the output")
    _require_same(output, layer(x, x, x)[0], "under the ledger the layer computes otherwise")


def _compiled(subject: _Subject) -> None:
    """torch.compile takes the layer as one graph, which computes the same."""
    layer, x = subject.layer(), subject.x
    torch.compiler.reset()  # it compiles the same function for a few kinds only
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    with warnings.catch_warnings():  # torch says this of itself where a step is an autograd.Function
        warnings.filterwarnings("ignore", ".*should not be instantiated", DeprecationWarning)
        for need_weights in (True, False):
            own, graph = (one(x, x, x, mask=Band(), need_weights=need_weights)[0] for one in (layer, compiled))
            _require_same(graph, own, "the compiled layer computes otherwise")


CHECKS: dict[str, Callable[[_Subject], None]] = {
    "weights": _weights,
    "causality": _causality,
    "cache": _cache,
    "state": _state,
    "positions": _positions,
    "gradients": _gradients,
    "heads": _heads,
    "pruning": _pruning,
    "saved": _saved,
    "ledger": _ledger,
    "compile": _compiled,
}
"""The checks of `check_variant` by their names, in order. The docstring of each says what it asks."""


def _all_but_head_1(layer: MultiHeadAttention) -> Tensor:
    """(h, 1, 1): 0 for head 1, 1 for the others."""
    return (torch.arange(layer.num_heads) != 1).double()[:, None, None]


def _require_whole(layer: MultiHeadAttention, x: Tensor, need_weights: bool, cache: Cache) -> None:
    """Raise unless x (2, 7, D) in three pieces, with this empty cache, gives what it gives at once."""
    whole, _ = layer(x, x, x, mask=Band(), need_weights=need_weights)
    parts = []
    with torch.no_grad():
        for start, piece in ((0, x[:, :3]), (3, x[:, 3:4]), (4, x[:, 4:])):
            band = Band(offset=start)
            parts.append(layer(piece, piece, piece, mask=band, cache=cache, need_weights=need_weights)[0])
    _require_same(torch.cat(parts, 1), whole, "pieces with a cache do not give what the whole gives")
    _require(len(cache) == x.shape[1], f"the cache counts {len(cache)} tokens after {x.shape[1]}")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)


def _require_same(result: Tensor, expected: Tensor, message: str, **close: float) -> None:
    """Raise with the largest difference unless both are finite and equal, up to rounding."""
    if not torch.allclose(result, expected, **{**CLOSE, **close}):
        raise AssertionError(f"{message}: by {float((result - expected).detach().abs().max()):.2g} at most")
