"""Speculation writes what plain steps write, token by token or as often, and what may be drawn is what is asked."""

import re

import pytest
import torch
from torch.nn import functional as F

from mhalib import decoding
from mhalib.attention import QuantisedCache, WindowCache
from mhalib.decoding import accepted, look_up, probabilities, sample, speculate
from mhalib.decoding.sampling import Choice
from mhalib.models import GPT

P = torch.tensor([0.5, 0.3, 0.15, 0.05])


def _gpt(seed=0, vocab_size=5, num_layers=2, **described):
    torch.manual_seed(seed)
    model = GPT(vocab_size, 12, 3, num_layers, 11, **{"max_tokens": 60, "positions": "rotary", **described}).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(2.5)
    return model


@pytest.mark.parametrize("described", [{}, {"attention": "composed"}, {"attention": "latent"}, {"window": 4},
                                       {"positions": "learned"}], ids=str)  # fmt: skip
@pytest.mark.parametrize("drafter", ["look-up", "small", "itself"])
def test_greedy_speculation_writes_what_plain_steps_write(described, drafter):
    model, small = _gpt(**described), _gpt(1, num_layers=1)
    draft = {"look-up": None, "small": small, "itself": model}[drafter]
    for seed in range(3):
        torch.manual_seed(seed)
        prompt = torch.randint(5, (1, 4))
        found = speculate(model, prompt, 30, draft=draft, num_drafts=3, temperature=0)
        assert torch.equal(found.tokens, sample(model, prompt, 30, temperature=0))
        assert found.passes == 30 - found.taken
        assert found.taken <= found.drafted
        if drafter == "itself":
            assert (found.passes, found.taken) == (8, 22)  # every draft is taken: four tokens a pass, and then two


def test_an_unfit_cache_is_used_and_a_state_is_refused():
    model, prompt = _gpt(), torch.tensor([[0, 1, 2]])
    caches = [QuantisedCache() for _ in range(2)]
    assert speculate(model, prompt, 9, temperature=0, caches=caches).tokens.shape == (1, 12)
    with pytest.raises(TypeError, match="a StateCache cannot forget"):
        speculate(_gpt(attention="delta", positions="none"), prompt, 30, draft=_gpt(1), temperature=1.5)


def test_a_window_and_its_sinks_go_with_speculation():
    model, prompt = _gpt(), torch.randint(5, (1, 30), generator=torch.Generator().manual_seed(0))
    plain = sample(model, prompt, 25, temperature=0, caches=[WindowCache(6, sinks=2) for _ in range(2)])
    caches = [WindowCache(6, sinks=2) for _ in range(2)]
    assert torch.equal(speculate(model, prompt, 25, temperature=0, caches=caches).tokens, plain)


def _chi_square(counts, expected):
    enough = expected > 5
    return float(((counts - expected).square() / expected)[enough].sum())


@torch.no_grad()
def _pairs(model, prompt, choice):
    """The probability of each pair of tokens behind `prompt`, (V * V,), of plain drawing."""
    first = choice(model(prompt)[0][0, -1])
    ways = torch.cat([prompt.expand(5, -1), torch.arange(5)[:, None]], 1)
    return (first[:, None] * choice(model(ways)[0][:, -1])).flatten().double()


def _drawn(draft, number=1000, **choices):
    """How far from the model's own distribution pairs of speculated tokens are: chi square."""
    model, prompt = _gpt(), torch.tensor([[0, 3, 1, 0, 3]])
    generator = torch.Generator().manual_seed(5)
    counts = torch.zeros(25)
    for _ in range(number):
        a, b = speculate(model, prompt, 3, draft=draft, num_drafts=2, generator=generator, **choices).tokens[0, 5:7]
        counts[5 * a + b] += 1
    expected = number * _pairs(model, prompt, Choice(**choices))
    assert (expected > 5).sum() >= 4
    assert counts[expected == 0].sum() == 0
    return _chi_square(counts, expected)


CASES = [(None, {}), ("small", {}), ("small", {"temperature": 1.5, "top_k": 3}), ("small", {"top_p": 0.8})]
BOUND = 76  # 24 degrees of freedom, of which chance passes it once in a million times; the seed is fixed


@pytest.mark.parametrize(("draft", "choices"), CASES, ids=str)
@pytest.mark.about("mhalib/decoding/", "mhalib/models/", "mhalib/attention/", "mhalib/variants/")
def test_speculation_writes_each_text_as_often_as_plain_drawing(draft, choices):
    assert _drawn(draft and _gpt(1, num_layers=1), **choices) < BOUND


@pytest.mark.about("mhalib/decoding/", "mhalib/models/", "mhalib/attention/", "mhalib/variants/")
def test_the_statistic_sees_the_classical_mistake(monkeypatch):
    """A refused draft is replaced by a token of p, and not of what the drafter gave too little."""

    def without_the_rest(p, drafts, q, generator=None):
        for place, token in enumerate(drafts):
            if float(torch.rand((), generator=generator)) * q[place, token] >= p[place, token]:
                return [*drafts[:place], int(torch.multinomial(p[place], 1, generator=generator))]
        return [*drafts, int(torch.multinomial(p[-1], 1, generator=generator))]

    monkeypatch.setattr(decoding.speculation, "accepted", without_the_rest)
    assert _drawn(_gpt(1, num_layers=1)) > 2 * BOUND


@pytest.mark.about("mhalib/decoding/", "mhalib/models/", "mhalib/attention/", "mhalib/variants/")
def test_what_is_accepted_is_distributed_as_p():
    q = torch.tensor([[0.1, 0.6, 0.05, 0.25]])
    generator, number = torch.Generator().manual_seed(0), 20_000
    counts = torch.zeros(4)
    for draft in torch.multinomial(q[0], number, replacement=True, generator=generator).tolist():
        counts[accepted(torch.stack([P, P.flip(0)]), [draft], q, generator)[0]] += 1
    assert _chi_square(counts, number * P) < 31  # 3 degrees of freedom


def test_a_stop_ends_a_text_and_padding_follows():
    model, prompt = _gpt(), torch.tensor([[0, 3, 1], [2, 2, 4]])
    plain = sample(model, prompt, 12, temperature=0)
    stop = int(plain[0, 5])
    found = sample(model, prompt, 12, temperature=0, stop=[stop], padding=1)
    for one, whole in zip(found, plain, strict=True):
        written = whole[3:].tolist()
        end = written.index(stop) + 1 if stop in written else 12
        assert one[3 : 3 + end].tolist() == written[:end][: found.shape[1] - 3]
        assert (one[3 + end :] == 1).all()
    alone = speculate(model, prompt[:1], 12, temperature=0, stop=[stop])
    assert alone.tokens[0].tolist() == plain[0, : plain[0, 3:].tolist().index(stop) + 4].tolist()


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ({}, [0.5, 0.3, 0.15, 0.05]),
        ({"top_p": 0.79}, [0.625, 0.375, 0, 0]),
        ({"top_p": 0.81}, [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0]),
        ({"top_p": 0.01}, [1, 0, 0, 0]),
        ({"min_p": 0.2}, [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0]),
        ({"min_p": 1.0}, [1, 0, 0, 0]),
        ({"top_k": 2, "top_p": 0.6}, [1, 0, 0, 0]),  # 0.625 of what is left
        ({"temperature": 0}, [1, 0, 0, 0]),
        ({"temperature": 0.5, "min_p": 0.3}, [25 / 34, 9 / 34, 0, 0]),
    ],
    ids=str,
)
def test_what_may_be_drawn(choices, expected):
    order = torch.tensor([2, 0, 3, 1])
    found = probabilities(P.double()[order].log(), **choices)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64)[order])


@pytest.mark.parametrize(
    ("tokens", "found"),
    [([1, 2, 3, 1, 2], [3, 1]), ([1, 2, 3, 9, 2], [3, 9]), ([1, 2, 3], []), ([4], []), ([7, 7], [7]),
     ([1, 2, 5, 1, 2, 6, 1, 2], [6, 1])],
)  # fmt: skip
def test_looking_up(tokens, found):
    assert look_up(tokens, 2) == found


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: speculate(_gpt(), torch.zeros(2, 3).long(), 2), ValueError, "prompt must be one text, (1, N)"),
        (lambda: speculate(_gpt(), torch.zeros(1, 3), 2), TypeError, "prompt must hold integers"),
        (lambda: speculate(_gpt(), torch.zeros(1, 3).long(), 2, draft=_gpt(vocab_size=6)), ValueError,
         "draft writes 6 different tokens, and model 5: they must have the same"),
        (lambda: sample(_gpt(), torch.zeros(1, 3).long(), 2, stop=[5]), ValueError, "stop[0]=5, but ids go from 0 to"),
        (lambda: sample(_gpt(), torch.zeros(1, 3).long(), 2, top_p=1.5), ValueError, "top_p=1.5 must be above 0"),
        (lambda: accepted(P[None], [1], P[None]), ValueError, "1 drafts need p of k + 1 rows and q of k"),
        (lambda: probabilities(torch.zeros(3).long()), TypeError, "logits must hold floating-point numbers"),
    ],
)  # fmt: skip
def test_wrong_calls_are_told(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()


def test_drafts_that_are_certain_are_those_of_looking_up():
    p = torch.stack([P, P])
    draft = F.one_hot(torch.tensor([2]), 4).float()
    number = sum(accepted(p, [2], draft, torch.Generator().manual_seed(seed))[0] == 2 for seed in range(400))
    assert 35 < number < 90  # 0.15 of 400, and never again after a refusal
