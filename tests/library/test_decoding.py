"""Decoding, held against loops of full passes and against all targets that there are."""

import itertools
import math
import re

import pytest
import torch

from mhalib.attention import QuantisedCache
from mhalib.decoding import beam_search, greedy, sample
from mhalib.models import GPT, Captioner, DecoderCache, Transformer

pytestmark = pytest.mark.package

BEGIN, END, NUM_WORDS = 1, 2, 5
MARKS = {"begin": BEGIN, "end": END}
POSITIONS = pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary"])


def _spread(model):
    """Logits far enough apart that the examples end at different times, and that no two targets are equally likely."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(2.5)
    return model.eval()


def _translator(device="cpu", positions="learned", norm="pre", seed=0):
    torch.manual_seed(seed)
    model = Transformer(7, NUM_WORDS, 12, 3, 2, 11, max_tokens=13, positions=positions, norm=norm).to(device)
    source = torch.randint(7, (6, 4), device=device)
    return _spread(model), source, torch.tensor([4, 2, 3, 1, 4, 3], device=device)


def _captioner(device="cpu"):
    torch.manual_seed(0)
    model = Captioner(NUM_WORDS, 4, 8, 4, 12, 3, 2, 11, max_tokens=13).to(device)
    return _spread(model), torch.randn(6, 4, 8, device=device), None


def _log_probabilities(model, source, source_len, target):
    """(V,) of the token after `target`, from a full pass over one example, no padding in it."""
    if source_len is not None:
        source = source[: int(source_len)]
    with torch.no_grad():
        logits, _ = model(source[None], torch.tensor([[BEGIN, *target]], device=source.device))
    return logits[0, -1].double().log_softmax(-1).cpu()


def _greedy_by_hand(model, source, source_len, max_tokens):
    target = []
    while len(target) < max_tokens and END not in target:
        target.append(int(_log_probabilities(model, source, source_len, target).argmax()))
    return target


def _beam_by_hand(model, source, source_len, max_tokens, num_beams):
    """[(score, target)], best first, for one example."""
    beams = [(0.0, ())]
    for _ in range(max_tokens):
        candidates = []
        for score, target in beams:
            if END in target:
                candidates.append((score, target))
            else:
                steps = _log_probabilities(model, source, source_len, target)
                candidates += [(score + float(steps[word]), (*target, word)) for word in range(NUM_WORDS)]
        beams = sorted(candidates, reverse=True)[:num_beams]
    return beams


def _all_targets(max_tokens):
    """Every target that ends, and every one that is cut off."""
    words = [word for word in range(NUM_WORDS) if word != END]
    for length in range(max_tokens):
        for target in itertools.product(words, repeat=length):
            yield (*target, END)
    yield from itertools.product(words, repeat=max_tokens)


def _padded(target, length):
    return [*target, *[0] * (length - len(target))]


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize(
    "made",
    [_translator, lambda d: _translator(d, "sinusoidal"), lambda d: _translator(d, "rotary", "post"), _captioner],
    ids=["learned", "sinusoidal", "rotary and post-norm", "captioner"],
)
def test_greedy_is_a_loop_of_full_passes(made, use_cache, device):
    model, source, lens = made(device)
    found = greedy(model, source, lens, **MARKS, max_tokens=7, use_cache=use_cache)
    each = [None] * len(source) if lens is None else lens
    expected = [_greedy_by_hand(model, source[b], each[b], 7) for b in range(len(source))]
    longest = max(map(len, expected))
    assert found.tolist() == [_padded(target, longest) for target in expected]
    assert found.device.type == device.type


def test_the_examples_end_at_different_times():
    """What the tests above and below need in order to say something."""
    model, source, lens = _translator()
    lengths = {len(_greedy_by_hand(model, source[b], lens[b], 7)) for b in range(len(source))}
    assert len(lengths) > 1
    assert min(lengths) < 7


def test_greedy_stops_once_all_have_ended():
    model, source, lens = _translator()
    model.readout.bias.data[END] = 1e4
    assert greedy(model, source, lens, **MARKS, max_tokens=7).tolist() == [[END]] * 6


def test_greedy_fills_up_with_the_padding_that_is_asked_for():
    model, source, lens = _translator()
    with_0 = greedy(model, source, lens, **MARKS, max_tokens=7)
    with_4 = greedy(model, source, lens, **MARKS, max_tokens=7, padding=4)
    behind = (with_0 == END).cumsum(1) - (with_0 == END).long() > 0
    assert behind.any()
    assert torch.equal(with_4, with_0.masked_fill(behind, 4))


def test_greedy_writes_max_tokens_at_most_and_as_many_as_there_are_positions():
    model, source, _ = _translator()
    model.readout.bias.data[END] = -1e4
    assert greedy(model, source, **MARKS, max_tokens=3).shape == (6, 3)
    assert greedy(model, source, **MARKS, max_tokens=13).shape == (6, 13)
    with pytest.raises(ValueError, match="14 tokens, but the model has only max_tokens=13 positions"):
        greedy(model, source, **MARKS, max_tokens=14)


@pytest.mark.parametrize(("max_tokens", "seed"), [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0)])
def test_a_beam_that_is_wide_enough_finds_all_targets(max_tokens, seed, device):
    """Each once, in the right order, with the right score; the beams left over are empty."""
    model, source, lens = _translator(device, seed=seed)
    number = len(list(_all_targets(max_tokens)))
    found, scores = beam_search(model, source, lens, **MARKS, max_tokens=max_tokens, num_beams=number + 3)
    assert found.shape == (6, number + 3, max_tokens)
    assert scores.shape == (6, number + 3)
    for b in range(len(source)):
        expected = []
        for target in _all_targets(max_tokens):
            steps = [_log_probabilities(model, source[b], lens[b], target[:t])[word] for t, word in enumerate(target)]
            expected.append((float(sum(steps)), _padded(target, max_tokens)))
        expected.sort(reverse=True)
        assert sum(math.exp(score) for score, _ in expected) == pytest.approx(1)
        assert found[b, :number].tolist() == [target for _, target in expected]
        torch.testing.assert_close(
            scores[b, :number].cpu().double(), torch.tensor([s for s, _ in expected]).double(), atol=1e-4, rtol=0
        )
        assert (scores[b, number:] == -math.inf).all()
        assert (found[b, number:] == 0).all()


@pytest.mark.parametrize("num_beams", [1, 2, 3, 11])
@pytest.mark.parametrize("made", [_translator, _captioner])
def test_beam_search_is_a_slow_one_for_each_example(made, num_beams):
    model, source, lens = made()
    found, scores = beam_search(model, source, lens, **MARKS, max_tokens=5, num_beams=num_beams)
    length = found.shape[2]
    for b in range(len(source)):
        expected = _beam_by_hand(model, source[b], None if lens is None else lens[b], 5, num_beams)
        assert found[b].tolist() == [_padded(target, length) for _, target in expected]
        assert scores[b].tolist() == pytest.approx([score for score, _ in expected], abs=1e-4)


def test_beams_end_at_different_times_and_stay_ended():
    model, source, lens = _translator()
    found, scores = beam_search(model, source, lens, **MARKS, max_tokens=5, num_beams=11)
    lengths = (found == END).long().argmax(-1)
    assert len(lengths.unique()) > 2
    behind = (found == END).cumsum(-1) - (found == END).long() > 0
    assert (found[behind] == 0).all()
    assert (scores.diff(dim=1) <= 0).all()


def test_one_beam_is_greedy(device):
    model, source, lens = _translator(device)
    found, _ = beam_search(model, source, lens, **MARKS, max_tokens=7, num_beams=1)
    assert torch.equal(found[:, 0], greedy(model, source, lens, **MARKS, max_tokens=7))


def test_a_beam_can_be_better_than_greedy():
    better = 0
    for seed in range(5):
        model, source, lens = _translator(seed=seed)
        settings = {**MARKS, "max_tokens": 5}
        _, narrow = beam_search(model, source, lens, **settings, num_beams=1)
        _, wide = beam_search(model, source, lens, **settings, num_beams=400)
        assert (wide[:, 0] >= narrow[:, 0] - 1e-4).all()
        better += int((wide[:, 0] > narrow[:, 0] + 1e-3).sum())
    assert better


def test_an_example_does_not_look_at_the_others():
    model, source, lens = _translator()
    found, scores = beam_search(model, source, lens, **MARKS, max_tokens=6, num_beams=3)
    for b in range(len(source)):
        alone, own_scores = beam_search(model, source[b : b + 1], lens[b : b + 1], **MARKS, max_tokens=6, num_beams=3)
        length = alone.shape[2]
        assert torch.equal(found[b, :, :length], alone[0])
        assert (found[b, :, length:] == 0).all()
        torch.testing.assert_close(scores[b], own_scores[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("decode", [greedy, beam_search])
def test_a_target_has_at_least_one_token(decode):
    model, source, _ = _translator()
    with pytest.raises(ValueError, match="max_tokens=0 must be at least 1"):
        decode(model, source, **MARKS, max_tokens=0)


@pytest.mark.parametrize("decode", [greedy, beam_search])
@pytest.mark.parametrize("begin", [-1, NUM_WORDS])
def test_a_begin_that_is_no_token_is_refused(decode, begin):
    model, source, _ = _translator()
    with pytest.raises(ValueError, match=f"target holds {begin}, but ids go from 0 to 4"):
        decode(model, source, begin=begin, end=END, max_tokens=3)


def test_there_is_at_least_one_beam():
    model, source, _ = _translator()
    with pytest.raises(ValueError, match="num_beams=0 must be at least 1"):
        beam_search(model, source, **MARKS, max_tokens=3, num_beams=0)


def _gpt(device="cpu", positions="learned", max_tokens=17, vocab_size=7):
    torch.manual_seed(0)
    model = GPT(vocab_size, 12, 3, 2, 11, max_tokens=max_tokens, positions=positions).to(device)
    return _spread(model), torch.randint(vocab_size, (3, 5), device=device)


def _likeliest_by_hand(model, prompt, num_tokens, limit=None):
    tokens = prompt
    for _ in range(num_tokens):
        seen = tokens if limit is None else tokens[:, -limit:]
        with torch.no_grad():
            tokens = torch.cat([tokens, model(seen)[0][:, -1].argmax(-1)[:, None]], 1)
    return tokens


@POSITIONS
@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("settings", [{"temperature": 0}, {"top_k": 1}, {"temperature": 1e-30}, {"temperature": 1e-8}])
def test_no_chance_takes_the_likeliest(settings, use_cache, positions, device):
    model, prompt = _gpt(device, positions)
    found = sample(model, prompt, 11, use_cache=use_cache, **settings)
    assert torch.equal(found, _likeliest_by_hand(model, prompt, 11))


@POSITIONS
def test_the_cache_changes_nothing(positions):
    model, prompt = _gpt(positions=positions)
    runs = [
        sample(model, prompt, 13, top_k=4, generator=torch.Generator().manual_seed(3), use_cache=use_cache)
        for use_cache in (True, False)
    ]
    assert torch.equal(*runs)


@pytest.mark.parametrize(
    ("temperature", "top_k"), [(1.0, None), (0.5, None), (3.0, None), (1.0, 3), (2.0, 2), (1.5, 99)]
)
def test_tokens_are_drawn_as_often_as_the_model_says(temperature, top_k):
    """Chi square, with a bound that chance passes once in a million times; the seed is fixed."""
    model, prompt = _gpt()
    number = 20_000
    found = sample(
        model,
        prompt[:1].expand(number, -1),
        1,
        temperature=temperature,
        top_k=top_k,
        generator=torch.Generator().manual_seed(0),
    )
    with torch.no_grad():
        logits = model(prompt[:1])[0][0, -1].double()
    powers = (logits / temperature).exp()
    allowed = torch.zeros(7, dtype=torch.bool)
    allowed[logits.argsort(descending=True)[:top_k]] = True
    expected = number * powers * allowed / (powers * allowed).sum()
    counts = found[:, -1].bincount(minlength=7).double()
    assert (counts[~allowed] == 0).all()
    enough = expected > 5
    assert enough.sum() > 1
    chi_square = ((counts - expected).square() / expected)[enough].sum()
    assert chi_square < 40  # 6 degrees of freedom: 38.3 once in a million


def test_large_logits_and_a_small_temperature_do_not_overflow(device):
    model, prompt = _gpt(device)
    model.readout.bias.data += 50  # 50 / 1e-37 is beyond float32
    found = sample(model, prompt, 4, temperature=1e-37)
    assert torch.equal(found, _likeliest_by_hand(model, prompt, 4))


def test_top_k_takes_k_tokens_even_where_more_are_equally_likely():
    model, prompt = _gpt()
    with torch.no_grad():
        model.readout.weight.zero_()
        model.readout.bias.zero_()
    for top_k in (1, 3):
        found = sample(model, prompt[:1].expand(500, -1), 1, top_k=top_k)
        assert len(found[:, -1].unique()) == top_k


def test_a_generator_makes_it_reproducible():
    model, prompt = _gpt()
    runs = [sample(model, prompt, 9, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])
    torch.manual_seed(5)
    first = sample(model, prompt, 9)
    torch.manual_seed(5)
    assert torch.equal(first, sample(model, prompt, 9))


def test_the_prompt_stands_in_front_and_is_not_changed():
    model, prompt = _gpt()
    before = prompt.clone()
    found = sample(model, prompt, 4)
    assert found.shape == (3, 9)
    assert torch.equal(found[:, :5], before)
    assert torch.equal(prompt, before)
    assert not found.is_floating_point()


def test_a_cache_ends_where_the_learned_positions_end():
    """The last token is written, not read: 5 + 13 tokens need 17 positions."""
    model, prompt = _gpt()
    assert sample(model, prompt, 13).shape == (3, 18)
    message = (
        "a prompt of 5 and num_tokens=14 need 18 positions, but the model has only max_tokens=17: "
        "use_cache=False lets it see the last 17 tokens"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        sample(model, prompt, 14)


def test_without_a_cache_the_window_slides():
    model, prompt = _gpt(max_tokens=6)
    found = sample(model, prompt, 11, temperature=0, use_cache=False)
    assert torch.equal(found, _likeliest_by_hand(model, prompt, 11, limit=6))
    long = torch.cat([prompt, prompt], 1)
    found = sample(model, long, 3, temperature=0, use_cache=False)
    assert torch.equal(found, _likeliest_by_hand(model, long, 3, limit=6))


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_other_positions_do_not_end(positions):
    model, prompt = _gpt(positions=positions, max_tokens=6)
    assert torch.equal(sample(model, prompt, 11, temperature=0), _likeliest_by_hand(model, prompt, 11))


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"num_tokens": 0}, ValueError, "num_tokens=0 must be at least 1"),
        ({"temperature": -0.1}, ValueError, "temperature=-0.1 must be finite and not negative"),
        ({"temperature": math.nan}, ValueError, "temperature=nan must be finite and not negative"),
        ({"temperature": math.inf}, ValueError, "temperature=inf must be finite and not negative"),
        ({"top_k": 0}, ValueError, "top_k=0 must be at least 1"),
        ({"top_k": 2.0}, TypeError, "top_k must be an integer, got float"),
        ({"prompt": torch.zeros(2, 0, dtype=torch.long)}, ValueError, "prompt must have shape (B, N)"),
        ({"prompt": torch.zeros(3, dtype=torch.long)}, ValueError, "at least one token, got (3,)"),
        ({"prompt": [[1, 2]]}, TypeError, "prompt must be a torch.Tensor, got list"),
        ({"prompt": torch.zeros(2, 3)}, TypeError, "tokens must hold integers, int64 or int32, got torch.float32"),
        ({"prompt": torch.full((2, 3), 7)}, ValueError, "tokens holds 7, but ids go from 0 to 6"),
    ],
)
def test_what_cannot_be_continued_is_refused(changed, error, message):
    model, prompt = _gpt()
    arguments = {"prompt": prompt, "num_tokens": 3, **changed}
    with pytest.raises(error, match=re.escape(message)):
        sample(model, **arguments)


def test_no_examples_give_no_targets():
    model, source, _ = _translator()
    found, scores = beam_search(model, source[:0], begin=1, end=2, max_tokens=3, num_beams=2)
    assert len(greedy(model, source[:0], begin=1, end=2, max_tokens=3)) == 0
    assert found.shape[:2] == scores.shape == (0, 2)


def test_caches_that_are_given_are_written_to():
    torch.manual_seed(0)
    gpt = GPT(11, 12, 3, 2, 20, max_tokens=13).eval()
    prompt = torch.randint(11, (2, 4))
    plain, rounded = gpt.new_caches(), [QuantisedCache() for _ in range(2)]
    expected = sample(gpt, prompt, 5, temperature=0)
    assert torch.equal(sample(gpt, prompt, 5, temperature=0, caches=plain), expected)
    assert torch.equal(sample(gpt, prompt, 5, temperature=0, caches=rounded)[:, :4], prompt)
    assert [len(cache) for cache in (*plain, *rounded)] == [8] * 4
    model, source, lens = _translator()
    written = greedy(model, source, lens, **MARKS, max_tokens=7)
    beams, _ = beam_search(model, source, lens, **MARKS, max_tokens=7, num_beams=2)
    for rounds in (False, True):
        caches, again = (
            [DecoderCache(QuantisedCache(), QuantisedCache()) for _ in range(2)] if rounds else model.new_caches()
            for _ in range(2)
        )
        found = greedy(model, source, lens, **MARKS, max_tokens=7, caches=caches)
        found_beams, _ = beam_search(model, source, lens, **MARKS, max_tokens=7, num_beams=2, caches=again)
        assert (found[:, :3] == written[:, :3]).all()
        assert rounds or (torch.equal(found, written) and torch.equal(found_beams, beams))
        assert all(len(cache.own) and len(cache.memory) == 4 for cache in (*caches, *again))


def test_memory_for_the_whole_text_is_taken_ahead(monkeypatch):
    gpt, asked = GPT(11, 12, 3, 2, 20).eval(), []
    new_caches = gpt.new_caches
    monkeypatch.setattr(gpt, "new_caches", lambda max_tokens=0: asked.append(max_tokens) or new_caches(max_tokens))
    sample(gpt, torch.zeros(1, 4, dtype=torch.long), 5)
    assert asked == [8]


def test_caches_that_hold_tokens_or_do_not_fit_are_refused():
    gpt, prompt = GPT(11, 12, 3, 2, 20).eval(), torch.zeros(1, 4, dtype=torch.long)
    used = gpt.new_caches()
    sample(gpt, prompt, 2, caches=used)
    with pytest.raises(ValueError, match=re.escape("caches[0] must be empty, but holds 5 tokens")):
        sample(gpt, prompt, 2, caches=used)
    with pytest.raises(ValueError, match="caches cannot be given with use_cache=False"):
        sample(gpt, prompt, 2, caches=gpt.new_caches(), use_cache=False)
    with pytest.raises(ValueError, match="caches holds 1 entries, but the model has 2 layers"):
        sample(gpt, prompt, 2, caches=gpt.new_caches()[:1])
    model, source, lens = _translator()
    caches = model.new_caches()
    caches[1].memory.append(torch.zeros(6, 3, 4, 4), torch.zeros(6, 3, 4, 4))
    with pytest.raises(ValueError, match=re.escape("caches[1] must be empty, but holds 4 tokens")):
        greedy(model, source, lens, **MARKS, max_tokens=7, caches=caches)
    with pytest.raises(TypeError, match=re.escape("caches[0]")):
        beam_search(model, source, lens, **MARKS, max_tokens=7, caches=gpt.new_caches())
