"""The exercises' checkers: what is right passes however it is written, and what is wrong is named."""

import ast
import functools
import gc
import importlib
import inspect
import itertools
import math
import pkgutil
import random
import re
import signal
import statistics
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import mhalib
import mhalib_classroom
from mhalib import parallel
from mhalib.reference import flash
from mhalib_classroom import checks
from mhalib_classroom.checks import EXERCISES, CheckFailed, Exercise, Finding, _call, _chapters, _inputs
from mhalib_classroom.checks._call import call, gradients
from mhalib_classroom.checks._inputs import apart

pytestmark = pytest.mark.package

SEEDS = range(5)
LONGEST = 2_500
every_exercise = pytest.mark.parametrize("name", EXERCISES)
split = EXERCISES["split_heads"]


def cases_of(exercise: Exercise, seed: int = 0) -> list[dict]:
    return list(exercise.cases(random.Random(f"{exercise.name}:{seed}")))


def test_there_are_enough():
    assert len(EXERCISES) >= 30
    assert sum(len(exercise.mistakes) for exercise in EXERCISES.values()) >= 60
    assert {exercise.chapter for exercise in EXERCISES.values()} == {*range(1, 38)}


def test_an_exercise_is_in_the_file_of_its_chapter_under_its_name_and_exported():
    found = {}
    for module in pkgutil.iter_modules(checks.__path__):
        for name, one in vars(importlib.import_module(f"{checks.__name__}.{module.name}")).items():
            if isinstance(one, Exercise):
                assert name == one.name
                assert _chapters.number_of(module.name) == one.chapter
                found[name] = one
    assert found == EXERCISES
    assert [one.chapter for one in EXERCISES.values()] == sorted(one.chapter for one in EXERCISES.values())


def test_names_are_seen_by_those_who_only_read_the_source():
    """Editors and type checkers run nothing: every exported name is imported or assigned, and `__all__` is a list."""
    imported, assigned = {}, {}
    for statement in ast.parse(inspect.getsource(checks)).body:
        if isinstance(statement, ast.ImportFrom):
            imported |= {name.name: statement.module for name in statement.names}
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            assigned[target.id] = statement.value
    exported = ast.literal_eval(assigned["__all__"])
    assert len(set(exported)) == len(exported)
    assert set(exported) == {name for name in (*imported, *assigned) if not name.startswith("_")}
    assert {name for name in exported if isinstance(getattr(checks, name), Exercise)} == set(EXERCISES)
    others = {"CheckFailed", "EXERCISES", "Exercise", "Finding", "Mistake", "keep_going", "report"}
    assert set(exported) - set(EXERCISES) == others


@every_exercise
def test_the_reference_solves_it(name):
    for seed in SEEDS:
        finding = EXERCISES[name].examine(EXERCISES[name].reference, seed)
        assert finding == Finding(True, "solved", None, f"Verified: {EXERCISES[name].verified}")


RAISING_IN_A_LAYER = (
    "k.T",
    "keys not turned",
    *(f"D / h in {way}" for way in ("view", "reshape", "unflatten", "a slice")),
)
RAISING = {
    "converted_mask": {"no axes for heads and queries", "one axis too few"},
    "decoder_mask": {"lengths with one axis"},
    "merge_heads": {"view of a transpose"},
    "padding_mask": {"lengths without axes"},
    "target_loss": {"vocabulary last"},
    "weighted_average": {"entry by entry", "values first", "weights transposed"},
    "scores": {"k.T", "keys not turned", "number by number"},
    "multi_head": {*RAISING_IN_A_LAYER},
    "mended_layer": {*RAISING_IN_A_LAYER},
}
"""The mistakes that do not compute; all others do, as a student's own code would, past the package's own checks."""


@every_exercise
def test_every_mistake_is_caught_and_named(name):
    exercise = EXERCISES[name]
    assert len({mistake.name for mistake in exercise.mistakes}) == len(exercise.mistakes) >= 2
    raised = set()
    for mistake in exercise.mistakes:
        for seed in SEEDS:
            finding = exercise.examine(mistake.function, seed)
            assert not finding.solved
            assert finding.mistake == mistake.name, seed
            assert finding.message.startswith(mistake.message)
            assert len(finding.message) < LONGEST
            raised |= {mistake.name} if finding.kind == "raised" else set()
    assert raised == RAISING.get(name, set())


@every_exercise
def test_the_stub_is_not_started(name):
    def stub(*_):
        raise NotImplementedError

    finding = EXERCISES[name].examine(stub)
    assert (finding.kind, finding.mistake) == ("not started", None)
    assert "stub" in finding.message


@every_exercise
def test_sizes_differ(name):
    """In one case at least, no two axes of a tensor are equally long, but for those that are so by definition."""
    square = {"W_q", "W_k", "W_v", "W_o", "compositions"}
    square |= {"mask"} if name in ("mended_tiling", "heard_of") else set()
    chapters = {EXERCISES[one].chapter for one in ("offset_weight", "induction_weight", "sink_weight", "sink_share")}
    square |= {"weights"} if EXERCISES[name].chapter in chapters else set()
    square |= {"before", "after", "mixing"} if name in ("talk", "talked_weights", "output_matrices") else set()
    for seed in range(2):
        distinct = 0
        for case in cases_of(EXERCISES[name], seed):
            shapes = {key: list(value.shape) for key, value in case.items() if isinstance(value, torch.Tensor)}
            axes = [shape[:-1] if key in square else shape for key, shape in shapes.items()]
            axes = [[length for length in one if length > 1] for one in axes]
            distinct += all(len(set(one)) == len(one) for one in axes)
        assert distinct >= 1


NUMBERS = {  # whole numbers that are no sizes
    *("offset", "head", "start", "rank", "row", "padding", "k", "keep", "reach", "num_chosen", "length", "step"),
    *("to", "good_steps", "right", "wrong", "goal", "num_numbers"),
}


def lengths(value, name=""):
    """Of a case: the axes of its tensors, the lengths of its lists and its whole numbers, each with a name."""
    if isinstance(value, torch.Tensor):
        return {f"{name}.{axis}": length for axis, length in enumerate(value.shape)}
    if type(value) is int:
        return {} if name in NUMBERS else {name: value}
    found = {f"len {name}": len(value)} if type(value) is list else {}
    if type(value) is dict or type(value) is tuple or (type(value) is list and isinstance(value[0], torch.Tensor)):
        for key, one in value.items() if type(value) is dict else enumerate(value):
            found |= lengths(one, f"{name}.{key}".removeprefix("."))
    return found


def alike(exercise, seeds=range(2)):
    """What is the same in a case, or in two of one seed: two sizes, a size, a ratio. The first case is for reading.

    Sizes that are equal in all cases of all seeds are one size by its definition.
    """
    drawn = [[lengths(case) for case in cases_of(exercise, seed)[1:]] for seed in seeds]
    every = list(itertools.chain(*drawn))
    excused = getattr(exercise.cases, "own_sizes", ("", ()))[1]
    same = {}
    for name in every[0]:
        if all(name in case for case in every):
            same.setdefault(tuple(case[name] for case in every), []).append(name)
    names = [group[0] for values, group in same.items() if set(values) != {1} and not set(group) & set(excused)]
    found = set()
    for cases in drawn:
        for case in cases:
            found |= {(a, b) for a, b in itertools.combinations(names, 2) if case[a] == case[b]}
        for one, other in itertools.combinations(cases, 2):
            found |= {a for a in names if one[a] == other[a]}
            ratios = ((a, b) for a, b in itertools.combinations(names, 2) if one[a] * other[b] == one[b] * other[a])
            found |= {f"{a} / {b}" for a, b in ratios}
    return found


@every_exercise
def test_no_size_and_no_ratio_stays_from_case_to_case(name, monkeypatch):
    """A checker that draws h/g = 4 in all its cases takes 4 for h/g. What is not drawn `apart` says why."""
    calls, original = [], _inputs._are_apart
    monkeypatch.setattr(_inputs, "_are_apart", lambda *given: calls.append(given) or original(*given))
    exercise = EXERCISES[name]
    why, excused = getattr(exercise.cases, "own_sizes", ("", ("nothing",)))
    assert not why or len(why) > 20
    if excused:
        assert alike(exercise) == set()
        by_hand = [lengths(case) for case in cases_of(exercise, 0)] == [lengths(case) for case in cases_of(exercise, 1)]
        assert calls or by_hand or why


def test_reasons_for_own_sizes_are_needed_and_few(monkeypatch):
    marked = {exercise.cases: exercise for exercise in EXERCISES.values() if hasattr(exercise.cases, "own_sizes")}
    assert sum(not cases.own_sizes[1] for cases in marked) <= 11  # in all their sizes
    assert len(marked) <= 20
    for cases, exercise in marked.items():
        _, names = cases.own_sizes
        monkeypatch.setattr(cases, "own_sizes", ("", ()))
        found = " ".join(map(str, alike(exercise, range(4))))
        assert found, exercise
        assert all(name in found for name in names), (exercise, found)


def test_one_ratio_in_all_cases_is_seen():
    def cases(rng):
        for num_groups, head_dim in apart(rng, 2, 4):
            yield {"k": torch.zeros(num_groups, head_dim), "num_heads": 4 * num_groups}

    grouped = Exercise("grouped", chapter=1, title="", reference=len, verified="", cases=cases)
    assert "k.0 / num_heads" in alike(grouped)
    with pytest.raises(ValueError, match="no such sizes"):  # nor can they be drawn, where they are named
        apart(random.Random(0), 2, 4, of=lambda g, d: [g, 4 * g, d])


def test_sizes_are_drawn_apart():
    for seed in SEEDS:
        rows = apart(random.Random(seed), 3, 4, of=lambda h, d, n: [h, d, n, h * d])
        every = [[h, d, n, h * d] for h, d, n in rows]
        assert all(len(set(row)) == 4 for row in every)
        assert all(len(set(column)) == 4 for column in zip(*every, strict=True))
        for one, other in itertools.combinations(zip(*every, strict=True), 2):
            assert len({a / b for a, b in zip(one, other, strict=True)}) == 4
    with pytest.raises(ValueError, match="from 2 to 4: widen the range"):
        apart(random.Random(0), 2, 4, largest=4)


@pytest.mark.weekly("mhalib_classroom/")
@every_exercise
def test_nothing_constant_passes(name):
    exercise = EXERCISES[name]
    right = [exercise.reference(*case.values()) for case in cases_of(exercise)]
    for answer in (right[0], right[-1], 0, 1, True, (), torch.zeros(()), torch.ones(2, 2)):
        assert not exercise.examine(lambda *_, answer=answer: answer).solved
    calls = iter(right[:1] + [right[0]] * len(right))
    assert not exercise.examine(lambda *_: next(calls)).solved  # right once


@every_exercise
@pytest.mark.parametrize("number", [0, 1])
def test_no_constant_number_in_the_right_form_passes(name, number):
    def filled(value):
        if isinstance(value, torch.Tensor):
            return torch.full_like(value, number)
        return type(value)(map(filled, value)) if isinstance(value, (tuple, list)) else type(value)(number)

    assert not EXERCISES[name].examine(lambda *given: filled(EXERCISES[name].reference(*given))).solved


# What a student might well write. None of it is how the reference does it. A checker sees only what a function returns:
# one version of each exercise is enough, and one more for each other kind of result, and each other answer where inputs
# are ties, zeros or all hidden.


def averaged_by_loops(weights, values):
    rows = [[sum(w * v for w, v in zip(row, column, strict=True)) for column in values.T] for row in weights]
    return torch.tensor(rows, dtype=torch.float64)


def softmax_by_hand(scores, mask):
    hidden = scores.masked_fill(~mask, -1e30)
    e = (hidden - hidden.amax(-1, keepdim=True)).exp() * mask
    total = e.sum(-1, keepdim=True)
    return e / torch.where(total > 0, total, 1.0)


def attention_by_einsum(q, k, v, mask):
    weights = softmax_by_hand(torch.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5, mask)
    return [torch.einsum("bhqk,bhkd->bhqd", weights, v), weights]


def layer_head_by_head(x, W_q, W_k, W_v, W_o, num_heads):
    d, result = x.shape[-1] // num_heads, 0
    for i in range(num_heads):
        own = slice(i * d, (i + 1) * d)
        q, k, v = x @ W_q[own].T, x @ W_k[own].T, x @ W_v[own].T
        result = result + torch.softmax(q @ k.transpose(1, 2) / d**0.5, -1) @ v @ W_o[:, own].T
    return result


def weight_at_offset(weights, offset):
    n = weights.shape[-1]
    queries = [t for t in range(n) if 0 <= t + offset < n]
    return torch.stack([weights[:, :, t, t + offset] for t in queries]).double().mean((0, 1))


def role_by_counting(weights):
    counts = {}
    for one in weights:
        for t, row in enumerate(one):
            distance = int(np.argmax(row.numpy())) - t
            counts[distance] = counts.get(distance, 0) + 1
    winner = max(counts, key=counts.get)
    return np.int64(winner), torch.tensor(counts[winner] / sum(counts.values()))


def js_in_numpy(p, q):
    p, q = p.double().numpy(), q.double().numpy()
    m = (p + q) / 2
    return sum(0.5 * (a[a > 0] * np.log(a[a > 0] / m[a > 0])).sum() for a in (p, q))


def patches_by_unfold(images, patch_size):
    return F.unfold(images[:, None], patch_size, stride=patch_size).transpose(1, 2)


def exact_by_lists(written, expected):
    right = 0
    for one, other in zip(written.tolist(), expected.tolist(), strict=True):
        length = len([token for token in other if token])
        right += one[:length] == other[:length]
    return np.float32(right / len(expected))


def importance_by_loops(outputs, gradients):
    batch_size, num_heads = outputs.shape[:2]
    totals = torch.zeros(num_heads, dtype=torch.float64)
    for b in range(batch_size):
        for i in range(num_heads):
            totals[i] += abs(sum(o @ g for o, g in zip(outputs[b, i], gradients[b, i], strict=True)))
    return totals / batch_size


def pruned_by_cat(W_v, W_o, head, num_heads):
    d = len(W_v) // num_heads
    return [
        torch.cat([W_v[: head * d], W_v[(head + 1) * d :]]),
        torch.hstack([W_o[:, : head * d], W_o[:, (head + 1) * d :]]),
    ]


def first_wrong_by_loop(steps):
    for number, (operation, axes) in enumerate(steps):
        if "~" in "".join(axes) or ":" in "".join(axes):
            return number
        if "softmax" in operation and not operation.endswith(" K"):
            return number
    return -1


def one_by_one_from_the_last(W_v, W_o, heads, num_heads):
    d = len(W_v) // num_heads
    for head in sorted(heads, reverse=True):
        W_v, W_o = pruned_by_cat(W_v, W_o, head, len(W_v) // d)
    return W_v, W_o


def attention_with_4d_masks(q, k, v, mask, num_heads):
    q, k, v = (x.unflatten(-1, (num_heads, -1)).transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None]).transpose(1, 2).flatten(2)


def attention_of_einops_order(q, k, v):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2)


def target_loss_by_loops(logits, target, padding):
    total, count = 0.0, 0
    for row, text in zip(logits.tolist(), target.tolist(), strict=True):
        for scores, answer in zip(row, text[1:], strict=True):
            if answer != padding:
                total += math.log(sum(math.exp(score) for score in scores)) - scores[answer]
                count += 1
    return total / count


def rotated_by_matrices(x, start):
    result = torch.empty_like(x)
    for n in range(x.shape[1]):
        for i in range(x.shape[2] // 2):
            a = (start + n) * 10000 ** (-2 * i / x.shape[2])
            turn = torch.tensor([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]])
            result[:, n, 2 * i : 2 * i + 2] = x[:, n, 2 * i : 2 * i + 2] @ turn.T
    return result


def talked_head_by_head(scores, mask, before, after):
    weights = [softmax_by_hand(sum(w * s for w, s in zip(column, scores, strict=True)), mask) for column in before.T]
    return torch.stack([sum(w * p for w, p in zip(column, weights, strict=True)) for column in after.T])


def widened_by_slices(x, num_heads, overlap):
    B, N, D = x.shape
    d = D // num_heads
    padded = torch.cat([x.new_zeros(B, N, overlap), x, x.new_zeros(B, N, overlap)], -1)
    return torch.stack([padded[..., i * d : (i + 1) * d + 2 * overlap] for i in range(num_heads)], 1)


def composed_by_matrices(scores, first, second, gate):
    matrices = torch.eye(len(scores)) + first.mT @ second + gate.diag_embed()
    return (scores.permute(1, 2, 0) @ matrices).permute(2, 0, 1)


def spans_by_masking(spans, ramp, num_tokens):
    distances = (torch.arange(num_tokens)[:, None] - torch.arange(num_tokens)).float()
    distances = distances.masked_fill(distances < 0, torch.inf)
    return (1 - (distances - spans[:, None, None]) / ramp).clamp(0, 1)


def sparsemax_gradient_row_by_row(weights, gradient):
    result = torch.zeros_like(gradient)
    for row, slope, into in zip(weights, gradient, result, strict=True):
        kept = row.nonzero()[:, 0]
        into[kept] = slope[kept] - slope[kept].mean()
    return result


def news_by_sets(mask, num_layers):
    """Each token's set of those of which it has heard, which grows by the sets of those that it sees."""
    heard = [{n} for n in range(len(mask))]
    for _ in range(num_layers):
        heard = [
            own.union(*(heard[key] for key in row.nonzero()[:, 0].tolist()))
            for own, row in zip(heard, mask, strict=True)
        ]
    return torch.tensor([[key in own for key in range(len(mask))] for own in heard])


def weighted_head_by_head(heads, gates, W_o):
    return sum(
        gates[..., [i]] * (heads[:, i] @ columns.T) for i, columns in enumerate(W_o.chunk(heads.shape[1], dim=1))
    )


def router_token_by_token(router_scores, num_chosen):
    gates = torch.zeros_like(router_scores)
    for b, n in np.ndindex(*router_scores.shape[:2]):
        shares = router_scores[b, n].softmax(0)
        best = shares.argsort(descending=True)[:num_chosen]
        gates[b, n, best] = num_chosen * shares[best] / shares[best].sum()
    return gates


def interval_by_lists(ours, theirs, quantile):
    differences = [a - b for a, b in zip(ours.tolist(), theirs.tolist(), strict=True)]
    return [statistics.mean(differences), quantile * statistics.stdev(differences) / len(differences) ** 0.5]


def holm_by_adjusted_p_values(p_values, level):
    ranked, order = p_values.double().sort()
    adjusted = (ranked * torch.arange(len(ranked), 0, -1)).cummax(0).values
    return adjusted[order.argsort()] <= level


def staying_by_loops(quality, cost):
    layers = list(zip(quality.tolist(), cost.tolist(), strict=True))
    return torch.tensor([not any(q >= a and c <= b and (q, c) != (a, b) for q, c in layers) for a, b in layers])


def grown_by_concatenation(room, length, k):
    stop, size = length + k.shape[2], room.shape[2]
    wanted = size if stop <= size else max(stop, 2 * size)
    free = torch.zeros(*room.shape[:2], wanted - stop, room.shape[3])
    return torch.cat([room[:, :, :length], k, free], 2)


def merged_by_softmax(first, first_lse, second, second_lse):
    both = torch.stack([first_lse, second_lse], -1)
    weights = both.double().softmax(-1).nan_to_num(0.0)
    return weights[:, :1] * first + weights[:, 1:] * second, both.logsumexp(-1)


def gradient_by_autograd(weights, values, output, grad):
    scores = weights.log().requires_grad_()
    return torch.autograd.grad(scores.softmax(-1) @ values, scores, grad)[0]


def numbered_by_loops(starts):
    pairs = [(text, place) for text, length in enumerate(starts.diff().tolist()) for place in range(length)]
    return torch.tensor(pairs).unbind(1)


def late_corrections(scores, size, threshold):
    found = 0
    for row in scores.tolist():
        base = max(row[:size])
        for start in range(size, len(row), size):
            largest = max(row[start : start + size])
            if largest > base + threshold:
                base, found = largest, found + 1
    return found


def update_by_the_norm(scaled, scale, max_norm):
    norm = float(scaled.norm()) / scale
    return scaled / scale / max(1, norm / max_norm) if math.isfinite(norm) else torch.zeros(scaled.shape)


def sent_token_by_token(x, chosen, num_experts, num_ranks, to):
    each = num_experts // num_ranks
    rows = []
    for expert in range(to * each, (to + 1) * each):
        for vector, choice in zip(x, chosen.tolist(), strict=True):
            if choice == expert:
                rows.append(vector)
    return torch.stack(rows)


def delta_by_reflections(keys, values, rates):
    """Each token multiplies the state by a matrix, and adds to it."""
    state = torch.zeros(keys.shape[1], values.shape[1], dtype=keys.dtype)
    for key, value, rate in zip(keys, values, rates, strict=True):
        state = (torch.eye(len(key), dtype=key.dtype) - rate * torch.outer(key, key)) @ state
        state = state + rate * torch.outer(key, value)
    return state


def fading_by_matrices(keys, values, rates, decays):
    """Each token turns the state by a matrix of its own, and adds its pair."""
    state = keys.new_zeros(keys.shape[1], values.shape[1])
    for t in range(len(keys)):
        turn = torch.eye(keys.shape[1], dtype=keys.dtype) - rates[t] * torch.outer(keys[t], keys[t])
        state = turn @ decays[t].diag() @ state + rates[t] * torch.outer(keys[t], values[t])
    return state


def blocks_of(query, k, size, number, t):
    """The blocks that query t reads: its own, and the best of those before it."""
    own = t // size
    worth = {block: float(query @ k[block * size : (block + 1) * size].mean(0)) for block in range(own)}
    return {own, *sorted(worth, key=worth.get, reverse=True)[: number - 1]}


def port_in_numpy(queries, keys, values, W_q, W_k, W_v, W_o, valid_lens, num_heads):
    """Example by example and head by head."""
    return attended_in_numpy(queries @ W_q.T, keys @ W_k.T, values @ W_v.T, valid_lens, num_heads) @ W_o.T


def attended_in_numpy(queries, keys, values, lens, num_heads, bug="none"):
    queries, keys, values = (x.double().numpy() for x in (queries, keys, values))
    d, every = queries.shape[2] // num_heads, []
    for b, length in enumerate(lens.tolist()):
        projected = queries[b], keys[b], values[b]
        if bug == "split":
            q, k, v = (x.reshape(num_heads, len(x), d) for x in projected)
        else:
            q, k, v = (np.stack(np.split(x, num_heads, axis=1)) for x in projected)
        scores = np.einsum("hqd,hkd->hqk", q, k) * (1 if bug == "scale" else d**-0.5)
        seen = np.arange(k.shape[1]) < length
        seen = ~seen if bug == "mask" else seen
        axis = 1 if bug == "axis" else 2
        e = np.exp(scores - scores.max()) * seen
        total = e.sum(axis, keepdims=True)
        weights = np.divide(e, total, out=np.zeros_like(e), where=total > 0)
        if bug == "empty row" and not length:
            weights = weights * np.nan
        every.append(np.concatenate(list(weights @ v), axis=1))
    return torch.tensor(np.stack(every), dtype=torch.float32)


PORT_BUGS = ["empty row", "axis", "scale", "mask", "split", "none"]


def bug_by_the_least_deviation(*given):
    *inputs, found = given
    if found.isnan().any():
        return "empty row"
    others = PORT_BUGS[1:]
    return min(others, key=lambda bug: float((attended_in_numpy(*inputs, bug=bug) - found).abs().max()))


def bytes_with_defaults(config, num_tokens):
    told = {"num_key_value_heads": config["num_attention_heads"], **config}
    told.setdefault("head_dim", told["hidden_size"] // told["num_attention_heads"])
    of_a_token = 2 * told["num_key_value_heads"] * told["head_dim"]
    of_a_layer = [2 * num_tokens * of_a_token, 2 * num_tokens * num_tokens * told["num_attention_heads"]]
    return [told["num_hidden_layers"] * each for each in of_a_layer]


def names_backwards(text, tokens, offsets):
    found, left = [], {}
    for token, (start, stop) in zip(reversed(tokens), reversed(offsets), strict=True):
        if start == stop:
            found.insert(0, token)
            continue
        start += text[start] == " "
        all_of_it = sum(b == stop and a + (text[a] == " ") == start for a, b in offsets if a < b)
        left[stop] = left.get(stop, all_of_it + 1) - 1
        found.insert(0, text[start:stop] if all_of_it == 1 else f"{text[start:stop]}({left[stop]}/{all_of_it})")
    return tuple(found)


def sink_without_padding(weights, is_real):
    rows = [w[:, m][:, :, m][:, 1:, 0] for w, m in zip(weights, is_real, strict=True)]
    return torch.cat(rows, 1).mean(1)


def away_by_tables(tokens):
    table = torch.nn.functional.one_hot(tokens) * torch.arange(1, len(tokens) + 1)[:, None]
    last = table.cummax(0).values
    return last.masked_fill(last == 0, len(tokens) + 1).argmin(1)


def path_by_torch(x, corrupted, clean, W_q, W_k, W_v):
    q, k, v = (x + corrupted) @ W_q.T, (x + clean) @ W_k.T, (x + corrupted) @ W_v.T
    return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]


def shapley_by_sizes(accuracies):
    num_heads = int(np.log2(len(accuracies)))
    means = torch.zeros(num_heads, num_heads)
    for head in range(num_heads):
        gains = {size: [] for size in range(num_heads)}
        for number in range(2**num_heads):
            if not number & 2**head:
                gains[bin(number).count("1")].append(accuracies[number + 2**head] - accuracies[number])
        means[head] = torch.stack([torch.stack(of_size).mean() for of_size in gains.values()])
    return means.mean(1)


def drafts_by_words(tokens, key_length, num_drafts):
    for end in range(len(tokens) - 1, key_length - 1, -1):
        if all(tokens[end - key_length + n] == tokens[n - key_length] for n in range(key_length)):
            return list(tokens)[end:][:num_drafts]
    return []


def in_mxfp4_by_hand(x, width):
    """The largest scale that is a power of two and leaves the block at 4 or above, number by number."""
    found = torch.empty_like(x)
    for row in range(len(x)):
        for start in range(0, x.shape[1], width):
            block = x[row, start : start + width].tolist()
            scale = 2.0**-40
            while max(map(abs, block)) >= 8 * scale:
                scale *= 2
            nearest = [min(E2M1, key=lambda size: abs(abs(n) / scale - size)) for n in block]
            found[row, start : start + width] = torch.tensor(
                [math.copysign(size * scale, n) for size, n in zip(nearest, block, strict=True)]
            )
    return found


E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def in_mxfp4_by_exponents(x, width):
    """`frexp` finds the power of two, and the middles between the sizes cut the line into pieces."""
    blocks = x.reshape(-1, width)
    step = torch.ldexp(torch.ones(len(blocks), 1), torch.frexp(blocks.abs().amax(1, keepdim=True)).exponent - 3)
    middles = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    return (torch.tensor(E2M1)[torch.bucketize((blocks / step).abs(), middles)].copysign(blocks) * step).view_as(x)


def tokens_read_by_a_tree(prompts, page):
    """A tree of pages, as SGLang keeps it."""
    root, read = {}, 0
    for prompt in prompts:
        own, at = [tuple(prompt[n : n + page]) for n in range(0, len(prompt) - page + 1, page)], root
        taken = own[: (len(prompt) - 1) // page]
        while taken and taken[0] in at:
            at = at[taken.pop(0)]
            read -= page
        at, read = root, read + len(prompt)
        for one in own:
            at = at.setdefault(one, {})
    return read


def kept_one_by_one(probabilities, top_p):
    found, left = torch.zeros_like(probabilities), probabilities.clone()
    while float(found.sum()) < top_p:
        token = int(left.argmax())
        found[token], left[token] = left[token], -1.0
    return found / found.sum()


def pipeline_by_events(times, parts):
    """Every part at every stage: it begins when it has come and the stage is free."""
    free, busy = [0] * len(times), 0
    for _ in range(parts):
        here = 0
        for stage, own in enumerate(times):
            here = free[stage] = max(here, free[stage]) + own
            busy += own
    return (len(times) * free[-1] - busy) / (len(times) * free[-1])


def chunks_token_by_token(unread, budget):
    """Who writes comes first, then the seats in order; each place in the pass is handed out alone."""
    queue = [place for place, n in enumerate(unread) if n == 1]
    queue += [place for place, n in enumerate(unread) if n > 1 for _ in range(n)]
    return [queue[:budget].count(place) for place in range(len(unread))]


def rates_by_names(narrow, wide, rate):
    """By what a parameter is: a vector, a matrix with words on one side, or a matrix of a layer."""
    rates = []
    for before, after in zip(narrow, wide, strict=True):
        rates.append(rate)
        if len(after) == 2 and after[0] != before[0] and after[1] != before[1]:
            rates[-1] /= after[1] / before[1]
    return rates


def in_8_bits_by_a_table(x, width):
    """The nearest of all numbers that the format has."""
    table = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).double()
    table = table[table.isfinite()]
    found = torch.empty_like(x)
    for row in range(len(x)):
        for start in range(0, x.shape[1], width):
            block = x[row, start : start + width].double()
            scale = 448 / float(block.abs().max())
            nearest = ((block * scale)[:, None] - table).abs().argmin(1)
            found[row, start : start + width] = (table[nearest] / scale).float()
    return found


def winners_one_by_one(terms, bias):
    winners = []
    for head in range(len(terms)):
        others = [row for other, row in enumerate(terms) if other != head]
        winners.append(int(torch.argmax(sum(others, bias))))
    return torch.tensor(winners)


VARIANTS = {
    "longest_ago": [away_by_tables],
    "rule_shares": [
        lambda guesses, first, second, known: (
            torch.stack([guesses == first, guesses == second])[:, known.logical_and(first.ne(second))].double().mean(1)
        )
    ],
    "estimated_effects": [
        lambda clean, corrupted, gradient: torch.einsum("bhnd,bhnd->hn", clean - corrupted, gradient)
    ],
    "patched_key": [path_by_torch],
    "attribution_estimate": [
        lambda outputs, gradients: (outputs.roll(1, 0) * gradients - outputs * gradients).flatten(2).sum(-1).mean(0)
    ],
    "shapley_values": [shapley_by_sizes],
    "config_bytes": [bytes_with_defaults],
    "readable_tokens": [names_backwards],
    "sink_share": [sink_without_padding],
    "chance_share": [
        lambda claimed, by_chance: (torch.cat([by_chance, by_chance.new_tensor([claimed])]) >= claimed).float().mean()
    ],
    "recovered_share": [
        lambda clean, corrupted, patched, a, b: torch.from_numpy(
            np.interp(
                (patched[:, a] - patched[:, b]).numpy(),
                *(lambda lo, hi: ([lo - 100 * (hi - lo), lo, hi + 100 * (hi - lo)], [-100.0, 0.0, 101.0]))(
                    float(corrupted[a] - corrupted[b]), float(clean[a] - clean[b])
                ),
            )
        ).float()
    ],
    "ported_layer": [port_in_numpy],
    "named_bug": [bug_by_the_least_deviation],
    "mended_kernels": [
        lambda W_q, W_o, h: [
            W_q.unflatten(0, (h, -1)).permute(2, 0, 1),
            W_o.unflatten(1, (h, -1)).permute(1, 2, 0),
        ]
    ],
    "mended_rows": [
        lambda scores, mask: (scores.exp() * mask) / (scores.exp() * mask).sum(-1, keepdim=True).clamp(min=1e-20)
    ],
    "escaping_weights": [
        lambda scores, mask, extra: (
            scores.masked_fill(~mask, -torch.inf)
            - torch.logaddexp(scores.masked_fill(~mask, -torch.inf).logsumexp(-1, keepdim=True), extra[:, None, None])
        ).exp(),
        lambda scores, mask, extra: (
            torch.cat([extra[:, None, None] + 0 * scores[..., :1], scores.where(mask, -torch.inf)], -1)
            .double()
            .softmax(-1)[..., 1:]
        ),
    ],
    "decayed_state": [
        lambda keys, values, decay: torch.einsum(
            "nd,ne,n->de", keys.double(), values.double(), decay.double().prod() / decay.double().cumprod(0)
        )
    ],
    "delta_state": [lambda keys, values, rates: delta_by_reflections(keys.double(), values.double(), rates.double())],
    "fading_state": [
        lambda keys, values, rates, decays: fading_by_matrices(
            keys.double(), values.double(), rates.double(), decays.double()
        )
    ],
    "hybrid_bytes": [
        lambda kinds, num_heads, head_dim, num_tokens: (
            np.int64(num_heads * head_dim * 4) * sum(head_dim if kind == "state" else num_tokens for kind in kinds)
        )
    ],
    "ring_slot": [
        lambda place, window, sinks: np.int64(place if place < sinks else sinks + divmod(place - sinks, window)[1])
    ],
    "found_drafts": [drafts_by_words],
    "rest": [
        lambda p, q: (p - torch.minimum(p, q)) / (1 - torch.minimum(p, q).sum()),
        lambda p, q: torch.where(p > q, p - q, torch.zeros_like(p)).double() / (p - q).abs().sum() * 2,
    ],
    "passes_needed": [
        lambda wants, seats: max(
            __import__("functools").reduce(lambda free, want: sorted([free[0] + want, *free[1:]]), wants, [0] * seats)
        )
    ],
    "kept_keys": [
        lambda index, mask, keep: (
            ((index.where(mask, -torch.inf)[..., None, :] > index[..., :, None]).sum(-1) < keep) & mask
        )
    ],
    "chosen_blocks": [
        lambda q, k, size, number: torch.stack(
            [
                torch.tensor([block in blocks_of(q[t], k, size, number, t) for block in range(-(-len(k) // size))])
                for t in range(len(q))
            ]
        )
    ],
    "index_scores": [lambda q, k, w: sum(w[:, [a]] * (q[:, a] @ k.T).clamp_min(0) for a in range(w.shape[1]))],
    "numbers_read": [
        lambda num_tokens, num_chosen, index_size, latent_size: (
            np.int64(index_size) * num_tokens + sum(latent_size for _ in range(num_tokens)[:num_chosen])
        )
    ],
    "product_intensity": [
        lambda n, k, m, bytes_per_number: np.float64(2 * n * k * m) / (n * k + k * m + n * m) / bytes_per_number
    ],
    "least_seconds": [
        lambda flops, moved, peak, bandwidth: sum(
            max(f / peak, m / bandwidth) for f, m in zip(flops.tolist(), moved.tolist(), strict=True)
        ),
        lambda flops, moved, peak, bandwidth: (
            torch.stack([flops / peak, moved / bandwidth]).max(0).values.sum().double()
        ),
    ],
    "decoding_scores": [
        lambda batch_size, h, g, d, num_tokens, bytes_per_number: [
            batch_size * num_tokens * 2 * h * d,
            batch_size * (h * d + num_tokens * (g * d + h)) * bytes_per_number,
        ]
    ],
    "fused_causal": [lambda n, h, g, d, size: [2 * n * (n + 1) * h * d, (h + g) * 2 * n * d * size]],
    "utilisation": [lambda speed, w, layers, width, n, peak: (w + (n + 1) * layers * width) * 6 / peak * speed],
    "batch_to_fill": [
        lambda num_hiddens, bytes_per_number, ridge: (
            None
            if num_hiddens <= bytes_per_number * ridge
            else -(-bytes_per_number * ridge * num_hiddens // (2 * (num_hiddens - bytes_per_number * ridge)))
        )
    ],
    "step_bytes": [lambda w, layers, h, g, d, n, b, size: float((w + n * b * layers * (g * d + g * d)) * size)],
    "grown": [grown_by_concatenation],
    "read_pages": [lambda pages, table, length: torch.cat([pages[one] for one in table], 1)[:, :length]],
    "rounded_keys": [
        lambda k: [
            (k / (k.abs().max(-1, keepdim=True).values / 127)).round().char(),
            k.abs().max(-1)[0][..., None] / 127,
        ]
    ],
    "mended_rotary_step": [
        lambda q, k, held: torch.cat(
            [
                mhalib.attention.rotate(q, held.shape[2]) @ held.mT,
                mhalib.attention.rotate(q) @ mhalib.attention.rotate(k).mT,
            ],
            -1,
        )
    ],
    "updated": [
        lambda largest, total, scores: (
            (new := torch.maximum(largest, scores.max(-1).values)),
            total * (largest - new).exp().nan_to_num(0.0) + (scores - new[:, None]).exp().nan_to_num(0.0).sum(1),
        )
    ],
    "merged": [merged_by_softmax],
    "mended_pass": [lambda scores, values, size: torch.einsum("qk,kd->qd", scores.softmax(1), values).double()],
    "score_gradient": [gradient_by_autograd],
    "needed_tiles": [
        lambda num_queries, num_kvpairs, rows, cols: (
            torch.arange(0, num_kvpairs, cols)[None]
            < torch.tensor([*range(rows, num_queries, rows), num_queries]).unsqueeze(-1)
        )
    ],
    "numbered": [numbered_by_loops],
    "mended_lazy": [
        lambda scores, values, size, threshold: [
            torch.einsum("qk,kd->qd", (scores - scores.logsumexp(-1, keepdim=True)).exp(), values),
            torch.tensor(late_corrections(scores, size, threshold)),
        ]
    ],
    "normed_scores": [lambda q, k: F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * q.shape[-1] ** 0.5],
    "qk_clipped": [
        lambda W_q, W_k, scores, limit: [
            torch.einsum("h,hdn->hdn", (limit / scores.flatten(1).max(1).values.clamp(min=limit)) ** 0.5, W)
            for W in (W_q, W_k)
        ]
    ],
    "capped_weights": [lambda scores, mask, cap: F.normalize((cap * (scores / cap).tanh()).exp() * mask, p=1, dim=-1)],
    "orthogonalised": [
        lambda gradient, steps: functools.reduce(
            lambda x, _: 3.4445 * x - 4.775 * x @ x.T @ x + 2.0315 * x @ x.T @ x @ x.T @ x,
            range(steps),
            gradient / torch.linalg.matrix_norm(gradient),
        )
    ],
    "with_z_loss": [
        lambda logits, targets, weight: (
            F.cross_entropy(logits, targets) + weight * logits.exp().sum(1).log().pow(2).mean()
        ),
        lambda logits, targets, weight: (
            sum(
                (z := math.log(sum(map(math.exp, row)))) - row[target] + weight * z * z
                for row, target in zip(logits.tolist(), targets.tolist(), strict=True)
            )
            / len(logits)
        ),
    ],
    "mup_rates": [rates_by_names],
    "idle_share": [pipeline_by_events],
    "next_chunks": [chunks_token_by_token],
    "in_mxfp4": [in_mxfp4_by_hand, in_mxfp4_by_exponents],
    "tokens_read": [
        tokens_read_by_a_tree,
        lambda prompts, page: sum(
            len(prompt)
            - page
            * max(
                n
                for n in range((len(prompt) - 1) // page + 1)
                if not n or any(one[: n * page] == prompt[: n * page] for one in prompts[:number])
            )
            for number, prompt in enumerate(prompts)
        ),
    ],
    "kept_by_top_p": [
        lambda probabilities, top_p: (
            (
                kept := torch.where(
                    (probabilities[None] * (probabilities[None] > probabilities[:, None])).sum(1) < top_p,
                    probabilities,
                    0.0,
                )
            )
            / kept.sum()
        ),
        kept_one_by_one,
    ],
    "slowed_rates": [
        lambda rates, num_tokens, factor, low, high: torch.stack(
            [
                rate * (1 / factor + (1 - 1 / factor) * min(1, max(0, (turns - low) / (high - low))))
                for rate, turns in zip(rates, rates * num_tokens / math.tau, strict=True)
            ]
        ),
        lambda rates, num_tokens, factor, low, high: torch.lerp(
            rates / factor, rates, ((rates * num_tokens / math.tau).clamp(low, high) - low) / (high - low)
        ),
    ],
    "in_8_bits": [
        in_8_bits_by_a_table,
        lambda x, width: torch.cat([flash.in_8_bits(block, 1) for block in x.split(width, dim=1)], 1),
    ],
    "rate_at": [
        lambda step, steps, warm_up, max_lr: max_lr * min((step + 1) / warm_up, (steps - step) / (steps - warm_up + 1))
    ],
    "clipped": [
        lambda gradients, max_norm: [
            one / max(1.0, math.hypot(*(float(each.norm()) for each in gradients)) / max_norm) for one in gradients
        ]
    ],
    "next_scale": [
        lambda scale, good_steps, is_finite, interval: (
            [scale / 2, 0]
            if not is_finite
            else [scale, good_steps + 1]
            if good_steps + 1 < interval
            else [2 * scale, 0]
        )
    ],
    "mended_update": [update_by_the_norm],
    "own_weights": [
        lambda W_q, W_o, num_heads, num_ranks, rank: (
            W_q.chunk(num_ranks)[rank],
            torch.tensor_split(W_o, num_ranks, dim=1)[rank],
        )
    ],
    "summed_output": [
        lambda found, columns, bias: torch.einsum("rnw,rdw->nd", torch.stack(found), torch.stack(columns)) + bias
    ],
    "own_keys": [
        lambda num_heads, num_kv_heads, num_ranks, rank: list(
            parallel.places(num_heads, num_kv_heads, num_ranks)[rank][1]
        )
    ],
    "key_gradient": [
        lambda gradients, num_kv_heads: torch.cat(
            [part.sum(0) for part in gradients.split(max(1, len(gradients) // num_kv_heads))]
        )
    ],
    "added_vectors": [
        lambda ids, rows, rank: (ids[:, None] == rank * len(rows) + torch.arange(len(rows))).float() @ rows
    ],
    "all_to_all": [lambda x: x.transpose(0, 1).flatten(1, 2).unflatten(0, (len(x), -1))],
    "zigzag_rows": [
        lambda x, num_ranks, rank: x.view(2, num_ranks, -1, x.shape[1])[[0, 1], [rank, num_ranks - 1 - rank]].flatten(
            0, 1
        )
    ],
    "sent_to": [sent_token_by_token],
    "all_reduce_bytes": [
        lambda num_numbers, num_ranks, bytes_per_number: (
            2 * (num_ranks - 1) * (num_numbers // num_ranks) * bytes_per_number
        )
    ],
    "batch_gradient": [lambda gradients, rows: sum(g * (n / sum(rows)) for g, n in zip(gradients, rows, strict=True))],
    "talk": [lambda scores, mixing: (mixing.T @ scores.flatten(1)).view(scores.shape).double()],
    "talked_weights": [talked_head_by_head],
    "shared_scores": [lambda q, k, mixing, head_dim: q.double() @ (k * mixing[:, None] * head_dim**-0.5).mT.double()],
    "widened": [widened_by_slices],
    "output_matrices": [
        lambda W_v, W_o, mixing: (mixing[:, :, None, None] * W_o).movedim(1, 2).flatten(2) @ W_v.flatten(0, 1)
    ],
    "composed_scores": [
        composed_by_matrices,
        lambda scores, first, second, gate: (
            scores * (1 + gate.mT.unsqueeze(-1)) + torch.einsum("qrn,nqk,qrm->mqk", first, scores, second).double()
        ),
    ],
    "composed_weights": [
        lambda scores, compositions, mask: mhalib.masked_softmax(
            torch.einsum("nqk,qnm->mqk", scores, compositions)[None], mask
        )[0]
    ],
    "differential_weights": [
        lambda scores, second: torch.stack(
            [scores[i].softmax(-1) - second * scores[i + 1].softmax(-1) for i in range(0, len(scores), 2)]
        ).double()
    ],
    "second_weight": [lambda q1, k1, q2, k2, start: math.exp(q1 @ k1) - math.exp(q2 @ k2) + start],
    "gated_output": [
        lambda found, x, W_gate, W_o: (
            torch.einsum("hqd,qh->qhd", found, torch.sigmoid(x @ W_gate.T)).reshape(len(x), -1) @ W_o.T
        )
    ],
    "equal_width": [
        lambda goal, narrow, wide: np.floor(
            narrow[0] + (goal - narrow[1]) * (wide[0] - narrow[0]) / (wide[1] - narrow[1]) + 0.5
        )
    ],
    "paired_interval": [
        interval_by_lists,
        lambda ours, theirs, quantile: (
            ours.mean() - theirs.mean(),
            quantile * ((ours - theirs).var() / len(ours)).sqrt(),
        ),
        lambda ours, theirs, quantile: (
            np.mean((ours - theirs).numpy()),
            quantile * np.std((ours - theirs).double().numpy()) / np.sqrt(len(ours) - 1),
        ),
        lambda ours, theirs, quantile: (
            (ours - theirs).mean(),
            quantile
            * (torch.stack([ours, theirs]).cov() * torch.tensor([[1, -1], [-1, 1]])).sum().div(ours.numel()).sqrt(),
        ),
    ],
    "holm": [holm_by_adjusted_p_values],
    "choose_rates": [lambda quality: (quality @ (1 - torch.eye(quality.shape[1]))).argmax(0).int()],
    "not_dominated": [staying_by_loops],
    "window_mask": [lambda num_tokens, reach: mhalib.Band(before=reach, after=reach).matrix(num_tokens)],
    "heard_of": [news_by_sets],
    "span_shares": [spans_by_masking],
    "sparsemax_gradient": [sparsemax_gradient_row_by_row],
    "balance_loss": [
        lambda shares, chosen: (
            shares.size(-1) * torch.dot(shares.flatten(0, 1).mean(0).double(), chosen.flatten(0, 1).double().mean(0))
        )
    ],
    "mended_router": [router_token_by_token],
    "head_loads": [
        lambda gates, is_real: (gates.bool() & is_real.unsqueeze(-1)).sum((0, 1)) / is_real.sum(),
        lambda gates, is_real: gates[is_real].sign().T.mean(1),
    ],
    "weighted_heads": [
        lambda heads, gates, W_o: torch.einsum(
            "bhnd,bnh,ohd->bno", heads, gates, W_o.view(len(W_o), heads.shape[1], heads.shape[3])
        ),
        weighted_head_by_head,
    ],
    "keys_for_heads": [lambda k, num_heads: torch.repeat_interleave(k, num_heads // k.size(1), dim=1)],
    "tokens_that_fit": [
        lambda num_numbers, num_layers, num_heads, num_kv_heads, head_dim: int(
            num_numbers / num_layers / num_kv_heads / head_dim / 2
        )
    ],
    "pooled": [
        lambda weight, num_heads, num_groups: (
            torch.einsum(
                "gfdc->gdc", weight.view(num_groups, num_heads // num_groups, len(weight) // num_heads, -1)
            ).reshape(-1, weight.shape[1])
            / (num_heads / num_groups)
        )
    ],
    "absorbed_scores": [
        lambda q, up, latents: torch.stack(
            [(one @ matrix / np.sqrt(q.shape[-1])) @ latents.mT for one, matrix in zip(q, up, strict=True)]
        ).double()
    ],
    "to_halves": [
        lambda weight, num_heads: torch.cat(
            [part for head in weight.chunk(num_heads) for part in (head[0::2], head[1::2])]
        )
    ],
    "sinusoidal_positions": [
        lambda num_tokens, num_hiddens: mhalib.attention.sinusoidal_positions(num_tokens, num_hiddens).double()
    ],
    "rotate": [rotated_by_matrices],
    "pairs_to_halves": [lambda x: x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)],
    "mended_scale": [lambda x, W_q, W_k, W_v: F.scaled_dot_product_attention(x @ W_q.T, x @ W_k.T, x @ W_v.T)],
    "mended_filling": [lambda scores, mask: scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1)],
    "mended_merge": [lambda x, num_heads: torch.cat(list(x.view(num_heads, -1, *x.shape[1:])), -1)],
    "mended_tiling": [attention_with_4d_masks],
    "mended_axis": [attention_of_einops_order],
    "mended_masks": [
        lambda source_lens, target_lens, num_sources, num_targets: [
            (torch.arange(num_targets) < target_lens.view(-1, 1, 1, 1))
            & (torch.arange(num_targets)[:, None] >= torch.arange(num_targets)),
            torch.tensor([[[[k < n for k in range(num_sources)]]] for n in source_lens.tolist()]),
        ]
    ],
    "mended_accuracy": [
        lambda written, expected: ((written == expected) & (expected > 0)).sum() / (expected > 0).sum(),
        lambda written, expected: np.mean(
            [a == b for a, b in zip(written.flatten().tolist(), expected.flatten().tolist(), strict=True) if b]
        ),
    ],
    "mended_loss": [lambda logits, tokens: F.cross_entropy(logits[:, :-1].mT, tokens[:, 1:])],
    "mended_step": [
        lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, attn_mask=torch.ones(k.shape[2], k.shape[2], dtype=torch.bool).tril()[-q.shape[2] :]
        )
    ],
    "mended_patches": [lambda images, patch_size: F.unfold(images, patch_size, stride=patch_size).mT],
    "mended_words": [
        lambda weights, tokens: tuple(
            [tokens[len(tokens) - len(weights) + q], tokens[k]] for q, k in enumerate(weights.argmax(-1).tolist())
        )
    ],
    "mended_pruning": [
        one_by_one_from_the_last,
        lambda W_v, W_o, heads, num_heads: [
            W_v.view(num_heads, -1, len(W_o))[[i for i in range(num_heads) if i not in heads]].flatten(0, 1),
            torch.cat([one for i, one in enumerate(W_o.chunk(num_heads, 1)) if i not in heads], 1),
        ],
    ],
    "first_wrong_step": [first_wrong_by_loop],
    "weighted_average": [
        averaged_by_loops,
        lambda weights, values: (values.mT @ weights.mT).mT,  # not contiguous
    ],
    "with_dropout": [
        lambda weights, chance, p: weights * (chance >= p) / (1 - p),
        lambda weights, chance, p: torch.where(chance < p, 0.0, weights / (1 - p)),
    ],
    "head_terms": [
        lambda passed_on, W_o: torch.stack(
            [one @ own.T for one, own in zip(passed_on.unbind(1), W_o.chunk(passed_on.shape[1], 1), strict=True)], 1
        ),
        lambda passed_on, W_o: torch.einsum("bhnd,ohd->bhno", passed_on, W_o.unflatten(1, passed_on.shape[1::2])),
    ],
    "winners_without": [
        winners_one_by_one,
        lambda terms, bias: (terms.sum(0) + bias - terms).argmax(1).int(),
        lambda terms, bias: torch.stack([torch.max(terms.sum(0) - row + bias, 0).indices for row in terms]),
    ],
    "same_average": [
        lambda weights: torch.tensor([row == row[::-1] for row in weights.tolist()]),
        lambda weights: (weights - weights.flip(-1)).abs().amax(-1) < 1e-6,
    ],
    "two_heads": [lambda weights, values: torch.cat([weights[0] @ values[0], weights[1] @ values[1]], -1)],
    "scores": [lambda q, k: (q.double() @ k.double().mT) / np.sqrt(q.shape[-1])],
    "masked_softmax": [lambda scores, mask: torch.nan_to_num(scores.masked_fill(~mask, float("-inf")).softmax(-1))],
    "padding_mask": [
        lambda valid_lens, num_kvpairs: (torch.arange(num_kvpairs)[None] < valid_lens[:, None])[:, None, None, :]
    ],
    "causal_mask": [lambda num_tokens: torch.arange(num_tokens)[:, None] >= torch.arange(num_tokens)],
    "attend": [attention_by_einsum, lambda *given: tuple(one.double() for one in attention_by_einsum(*given))],
    "count_flops": [
        lambda num_tokens, num_hiddens, num_heads: 2 * 2 * num_heads * num_tokens**2 * (num_hiddens / num_heads),
        lambda num_tokens, num_hiddens, num_heads: np.int32(4 * num_tokens * num_tokens * num_hiddens),
        lambda num_tokens, num_hiddens, num_heads: torch.tensor(4 * num_tokens * num_tokens * num_hiddens),
    ],
    "split_heads": [lambda x, num_heads: x.view(*x.shape[:2], num_heads, -1).permute(0, 2, 1, 3).contiguous().double()],
    "merge_heads": [lambda x: torch.cat(list(x.unbind(1)), -1)],
    "fold_heads": [lambda x, num_heads: torch.stack([part for one in x for part in one.chunk(num_heads, -1)])],
    "row_of_fold": [
        divmod,
        lambda row, num_heads: [np.int64(row // num_heads), row - num_heads * (row // num_heads)],
        lambda row, num_heads: tuple(torch.tensor([row // num_heads, row % num_heads])),
    ],
    "strides_of_heads": [
        lambda shape, num_heads: (shape[1] * shape[2], shape[2] // num_heads, shape[2], 1),
        lambda shape, num_heads: [np.prod(shape[1:]).item(), int(shape[2] / num_heads), shape[-1], True + 0],
    ],
    "multi_head": [layer_head_by_head],
    "mended_layer": [layer_head_by_head],
    "folded_lens": [lambda valid_lens, num_heads: valid_lens[:, None].expand(-1, num_heads).reshape(-1).int()],
    "converted_mask": [
        lambda q, k, v, hidden: F.scaled_dot_product_attention(q, k, v, attn_mask=~hidden[:, None, None, :])
    ],
    "head_entropy": [lambda weights: torch.special.entr(weights).sum(-1).transpose(0, 1).flatten(1).mean(1)],
    "offset_weight": [weight_at_offset],
    "sink_weight": [
        lambda weights: weights.unbind(-1)[0].transpose(0, 1).reshape(weights.shape[1], -1).double().mean(1)
    ],
    "written_share": [
        lambda weights, lengths: F.normalize(weights * lengths.unsqueeze(-2), p=1, dim=-1).select(-1, 0).mean(1)
    ],
    "positional_role": [role_by_counting],
    "head_cosines": [
        lambda weights: F.cosine_similarity(weights.flatten(1)[:, None], weights.flatten(1)[None], dim=-1),
        lambda weights: torch.tensor(
            [[(a * b).sum() / (a.norm() * b.norm()) for b in weights.double()] for a in weights.double()]
        ),
    ],
    "js_divergence": [
        js_in_numpy,
        lambda p, q: float(js_in_numpy(p, q)),
    ],
    "decoder_mask": [
        lambda valid_lens, num_tokens: (
            torch.arange(num_tokens)[None, None, None] < valid_lens.view(-1, 1, 1, 1)
        ).logical_and(torch.tril(torch.ones(1, 1, num_tokens, num_tokens)) == 1)
    ],
    "cross_shapes": [
        lambda target_shape, memory_shape, num_heads: [
            torch.Size(target_shape),
            [target_shape[0], num_heads, target_shape[1], memory_shape[1]],
        ]
    ],
    "shifted": [
        lambda target: [target.narrow(1, 0, target.shape[1] - 1), target.narrow(1, 1, target.shape[1] - 1).clone()],
        lambda target: (target.T[:-1].T, target.T[1:].T.int()),
    ],
    "target_loss": [
        target_loss_by_loops,
        lambda logits, target, padding: (
            -torch.masked_select(
                logits.double().log_softmax(-1).gather(-1, target[:, 1:, None])[..., 0], target[:, 1:] != padding
            ).mean()
        ),
    ],
    "share_exact": [exact_by_lists, lambda written, expected: torch.tensor(exact_by_lists(written, expected))],
    "alignment_share": [
        lambda weights, places: torch.tensor(
            [np.mean([int(row.argmax()) == int(k) for row, k in zip(one, places, strict=True)]) for one in weights]
        )
    ],
    "induction_weight": [
        lambda weights, period: torch.stack(
            [weights[:, t, t - period + 1] for t in range(period, weights.shape[-1])]
        ).mean(0)
    ],
    "copying_table": [
        lambda embedding, W_v, W_o, readout, head, num_heads: torch.einsum(
            "ad,vd,ov,bo->ab",
            embedding,
            W_v.unflatten(0, (num_heads, -1))[head],
            W_o.unflatten(1, (num_heads, -1))[:, head],
            readout,
        )
    ],
    "logit_attribution": [
        lambda added, readout, targets: torch.einsum("pbnd,bnd->pbn", added, readout[targets] - readout.mean(0))
    ],
    "next_token_probabilities": [
        lambda logits, k, temperature: torch.zeros(len(logits)).scatter(
            0, logits.topk(k).indices, (logits.topk(k).values / temperature).softmax(0)
        )
    ],
    "patches": [patches_by_unfold],
    "weight_on_the_left": [
        lambda weights, num_columns: sum(
            weights[..., k] for k in range(weights.shape[-1]) if k % num_columns < num_columns / 3
        )
    ],
    "weight_on_the_symbol": [
        lambda weights, num_columns, starts: (
            weights
            * torch.tensor([[k % num_columns - s in (0, 1) for k in range(weights.shape[-1])] for s in starts.tolist()])
        ).sum(-1)
    ],
    "mended_picture_mask": [
        lambda real_columns, num_rows, num_columns: (
            torch.arange(num_rows * num_columns) % num_columns < real_columns[:, None, None, None]
        )
    ],
    "head_importance": [importance_by_loops],
    "hard_gate": [
        lambda log_a: torch.tensor([min(1.0, max(0.0, 1.2 / (1 + math.exp(-a)) - 0.1)) for a in log_a.tolist()])
    ],
    "open_gates": [
        lambda log_a: sum(1 / (1 + math.exp(0.33 * math.log(0.1 / 1.1) - a)) for a in log_a.tolist()),
        lambda log_a: torch.special.expit(log_a.double() + 0.33 * math.log(11)).sum(),
    ],
    "prune": [pruned_by_cat],
}


@every_exercise
def test_no_right_variant_is_rejected(name):
    for variant in VARIANTS[name]:
        for seed in SEEDS:
            finding = EXERCISES[name].examine(variant, seed)
            assert finding.solved, finding.message


def strides_by_import(shape, num_heads):
    import torch as anything

    return anything.empty(shape).unflatten(-1, (num_heads, -1)).transpose(1, 2).stride()


def strides_of_numpy(shape, num_heads):
    from numpy import empty

    array = empty(shape, dtype=np.int8).reshape(*shape[:2], num_heads, -1).swapaxes(1, 2)
    return array.strides


def strides_behind_a_broad_except(shape, num_heads):
    try:
        return tuple(helper_with_torch(shape, num_heads))
    except TypeError:
        return None


def helper_with_torch(shape, num_heads):
    return mhalib.split_heads(torch.empty(shape, device="meta"), num_heads).stride()


class CountsFlops:
    def __call__(self, num_tokens, num_hiddens, num_heads):
        return 4 * torch.zeros(num_tokens, num_tokens, num_hiddens, device="meta").numel()


READ_OFF = {  # right, and no prediction
    "count_flops": [
        lambda n, D, h: 4 * sum(p.numel() for _ in range(n) for p in torch.nn.Linear(n, D, bias=False).parameters()),
        CountsFlops(),
    ],
    "row_of_fold": [lambda row, num_heads: tuple(torch.arange(row + 1).view(-1).unravel_index([row + 1, num_heads]))],
    "strides_of_heads": [
        lambda shape, num_heads: list(torch.empty(shape).view(*shape[:2], num_heads, -1).transpose(1, 2).stride()),
        lambda shape, num_heads: mhalib.split_heads(torch.empty(shape), num_heads).stride(),
        lambda shape, num_heads: mhalib_classroom.checks.strides_of_heads.reference(shape, num_heads),
        functools.partial(functools.lru_cache(helper_with_torch)),
        strides_by_import,
        strides_of_numpy,
        strides_behind_a_broad_except,
    ],
    "cross_shapes": [
        lambda t, m, h: (
            t,
            tuple(F.linear(torch.zeros(t), torch.zeros(m[1], t[2]))[:, None].expand(-1, h, -1, -1).shape),
        )
    ],
}


@pytest.mark.parametrize(
    ("name", "place"), [(name, place) for name, them in READ_OFF.items() for place in range(len(them))]
)
def test_a_prediction_is_worked_out_and_not_read_off(name, place):
    submission, before = READ_OFF[name][place], dict(globals())
    finding = EXERCISES[name].examine(submission)
    assert (finding.kind, finding.solved) == ("computed", False), finding.message
    assert finding.message.startswith("this is a prediction, and your code asks ")
    assert re.search(
        r"asks (torch|numpy|mhalib(_classroom)?)\.[\w.]+\. Work the answer out from the arguments", finding.message
    )
    assert len(finding.message) < LONGEST
    assert {one: value for one, value in globals().items() if value is not before.get(one)} == {}
    assert torch.empty(2).shape == (2,)


def test_what_is_read_off_would_be_right_but_for_that(monkeypatch):
    """So the test above refuses no function for another reason."""
    for name, submissions in READ_OFF.items():
        monkeypatch.setattr(EXERCISES[name], "is_prediction", False)
        right = [EXERCISES[name].examine(submission).solved for submission in submissions]
        assert all(right) or name in ("row_of_fold", "strides_of_heads"), name
        assert any(right) or name == "row_of_fold"


def test_the_predicted_strides_are_those_of_a_real_split():
    for case in cases_of(EXERCISES["strides_of_heads"]):
        real = torch.empty(case["shape"]).unflatten(-1, (case["num_heads"], -1)).transpose(1, 2).stride()
        assert EXERCISES["strides_of_heads"].reference(**case) == real


def test_an_import_during_a_prediction_is_another_s_own_affair():
    def slow(row, num_heads):
        importlib.import_module("colorsys")
        return divmod(row, num_heads)

    imports = __builtins__["__import__"]
    assert EXERCISES["row_of_fold"].examine(slow).solved
    assert EXERCISES["row_of_fold"].examine(raising(KeyError("x"))).kind == "raised"
    assert __builtins__["__import__"] is imports


@every_exercise
def test_a_callable_of_any_kind_will_do(name):
    class Solution:
        def __call__(self, *given):
            return EXERCISES[name].reference(*given)

    assert EXERCISES[name].examine(Solution()).solved
    assert EXERCISES[name].examine(functools.partial(EXERCISES[name].reference)).solved


# What is explained without knowing the mistake.


class Rude:
    """A result that objects to being looked at."""

    def __eq__(self, other):
        raise ValueError("no")

    def __repr__(self):
        raise ValueError("no")

    __len__ = __str__ = __bool__ = __repr__
    __hash__ = None


class WeirdError(Exception):
    def __str__(self):
        raise RuntimeError("not even that")


class NotAnException(BaseException):
    pass


def raising(error):
    def function(*_):
        raise error

    return function


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def itself():
    value = []
    value.append(value)
    return value


def recursive(*given):
    return recursive(*given)


def changing(x, num_heads):
    result = split.reference(x.clone(), num_heads)
    x += 1
    return result


def replacing(x, num_heads):
    result = split.reference(x.clone(), num_heads)
    x.resize_(0)
    return result


def right(change):
    return lambda x, num_heads: change(split.reference(x, num_heads))


DIAGNOSES = {
    "an exception": (raising(ValueError("a bad day")), "raised", "ValueError: a bad day"),
    "its own exception": (raising(WeirdError()), "raised", "WeirdError"),
    "no exception at all": (raising(NotAnException("x")), "raised", "NotAnException"),
    "a long message": (raising(ValueError("very long " * 10_000)), "raised", "very long"),
    "exit": (lambda *_: sys.exit("bye"), "raised", "SystemExit"),
    "recursion": (recursive, "raised", "RecursionError"),
    "too few arguments": (lambda x: x, "raised", "TypeError"),
    "None": (lambda *_: None, "nothing returned", "Did you forget `return`?"),
    "a list": (right(torch.Tensor.tolist), "type", "must be a torch.Tensor, and yours is a list"),
    "an array": (right(torch.Tensor.numpy), "type", "must be a torch.Tensor, and yours is an ndarray: wrap it"),
    "a function": (lambda *_: print, "type", "must be a torch.Tensor"),
    "a long text": (lambda *_: "x" * 100_000, "type", "yours is a str"),
    "a rude object": (lambda *_: Rude(), "type", "yours is a Rude"),
    "a deep list": (lambda *_: nested(5_000), "type", "yours is a list"),
    "a list of itself": (lambda *_: itself(), "type", "yours is a list"),
    "a huge number": (lambda *_: 10**9_999, "type", "yours is an int"),
    "half precision": (right(torch.Tensor.half), "dtype", "torch.float16"),
    "bfloat16": (right(torch.Tensor.bfloat16), "dtype", "torch.bfloat16"),
    "integers": (right(torch.Tensor.long), "dtype", "torch.int64"),
    "booleans": (right(torch.Tensor.bool), "dtype", "torch.bool"),
    "complex numbers": (right(lambda y: y.to(torch.complex64)), "dtype", "torch.complex64"),
    "another device": (right(lambda y: y.to("meta")), "device", "meta"),
    "a sparse tensor": (right(torch.Tensor.to_sparse), "type", "ordinary tensor"),
    "NaN": (right(lambda y: y / 0 * 0), "nan", "NaN"),
    "another shape": (right(torch.Tensor.flatten), "shape", "must have shape (1, 2, 3, 2), and yours has (12,)"),
    "an axis too many": (right(lambda y: y[None]), "shape", "must have shape"),
    "a thousand numbers": (lambda *_: torch.zeros(1000), "shape", "(1000,)"),
    "other values": (right(lambda y: y + 1), "value", "right   "),
    "a changed input": (changing, "input changed", "changed its input x in place"),
    "an input cut short": (replacing, "input changed", "changed its input x in place"),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("what", DIAGNOSES)
def test_what_else_can_be_wrong_is_explained(what):
    function, kind, said = DIAGNOSES[what]
    finding = split.examine(function)
    assert not finding.solved
    assert finding.kind == kind
    assert said in finding.message
    assert finding.mistake is None
    assert len(finding.message) < LONGEST
    assert "Traceback" not in finding.message
    assert "mhalib" not in finding.message


STRANGE = {
    "rude": Rude(),
    "deep": nested(5_000),
    "of itself": itself(),
    "huge": 10**9_999,
    "NaN": float("nan"),
    "complex": 1j,
    "text": "3",
    "rude ones": [Rude()] * 2,
}


@pytest.mark.parametrize("what", STRANGE)
@pytest.mark.parametrize("name", ["row_of_fold", "count_flops", "share_exact", "shifted", "attend", "open_gates"])
def test_no_result_is_too_strange_for_a_diagnosis(name, what):
    for result in (STRANGE[what], (STRANGE[what], STRANGE[what])):
        finding = EXERCISES[name].examine(lambda *_, result=result: result)
        assert not finding.solved
        assert len(finding.message) < LONGEST


def test_the_line_of_an_exception_is_named():
    space = {}
    exec(
        compile(
            "def f(x, num_heads):\n    y = 1\n    return helper(y)\n\ndef helper(y):\n    return y / 0",
            "<cell>",
            "exec",
        ),
        space,
    )
    finding = split.examine(space["f"])
    assert "your code raised ZeroDivisionError: division by zero, in line 6 of the cell" in finding.message


def test_an_unsteady_result_is_explained():
    seen = []

    def unsteady(x, num_heads):
        seen.append(1)
        return split.reference(x, num_heads) + (len(seen) > len(cases_of(split)))

    finding = split.examine(unsteady)
    assert (finding.kind, finding.solved) == ("unsteady", False)
    assert "two results" in finding.message


has_timer = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer on this platform")
ENDLESS = {
    "plain": "while True: pass",
    "of numbers": "while True:\n    try:\n        n = n + 1\n    except Exception:\n        continue",
    "of tensors": "while True:\n    try:\n        x = x + 1\n    except Exception:\n        continue",
    "of calls": "while True:\n    try:\n        len(x)\n    except Exception:\n        pass",
}
CATCHES_ALL = {
    "numbers": "while True:\n    try:\n        n = n + 1\n    except:\n        continue",
    "calls": "while True:\n    try:\n        len(x)\n    except:\n        pass",
    "sleep": "while True:\n    try:\n        while True: time.sleep(0.01)\n    except BaseException: pass",
    "a loop": "while True:\n  try:\n    while True:\n      try: len(x)\n      except: pass\n  except: pass",
    "finally": "while True:\n    try:\n        len(x)\n    finally:\n        continue",
}
hears_all = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 hears no alarm between two `try`")


@has_timer
@pytest.mark.filterwarnings("ignore:.*in a 'finally' block:SyntaxWarning")  # Python 3.14 warns of a student's code
@pytest.mark.parametrize(
    "body",
    [pytest.param(body, id=name) for name, body in ENDLESS.items()]
    + [pytest.param(body, id=f"catches all, {name}", marks=hears_all) for name, body in CATCHES_ALL.items()],
)
def test_an_endless_loop_is_stopped(body, monkeypatch):
    monkeypatch.setattr(split, "seconds", 0.3)
    space = {"time": time}
    exec(f"def endless(x, num_heads):\n    n = 0\n{textwrap.indent(body, '    ')}", space)
    before, tracer, start = signal.getsignal(signal.SIGALRM), sys.gettrace(), time.monotonic()
    finding = split.examine(space["endless"])
    assert finding.kind == "too slow"
    assert "no result after 0.3 seconds. Does a loop never end?" in finding.message
    assert time.monotonic() - start < 5
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert sys.gettrace() is tracer


@has_timer
def test_an_alarm_where_no_exception_is_handed_on_is_told_to_nobody(monkeypatch):
    class Slow:
        def __del__(self):
            while time.perf_counter() < end:
                pass

    def endless():
        while True:
            Slow()

    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    monkeypatch.setattr(_call, "PAUSES", [0.05])  # long enough for Python to tell of the first one
    hook, end = sys.unraisablehook, time.perf_counter() + 0.3
    assert call(endless, {}, 0.1).kind == "too slow"
    assert (told, sys.unraisablehook) == ([], hook)


@has_timer
def test_an_alarm_at_the_end_of_a_call_breaks_nothing():
    def busy():
        end = time.perf_counter() + 0.002
        while time.perf_counter() < end:
            pass

    def forever():
        while True:
            pass

    before = signal.getsignal(signal.SIGALRM)
    gc.disable()  # for 400 alarms, one of which might ring while an object is finalized
    try:
        kinds = {call(busy, {}, 0.0015 + 5e-6 * n).kind for n in range(200)}
        assert kinds == {"returned", "too slow"}
        assert {call(forever, {}, 0.002).kind for _ in range(200)} == {"too slow"}
    finally:
        gc.enable()
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_interrupting_a_check_stops_it():
    with pytest.raises(KeyboardInterrupt):
        split.examine(raising(KeyboardInterrupt()))


@pytest.mark.parametrize("value", [None, 3, torch.zeros(2), "split_heads", Rude()])
def test_what_is_no_function_is_explained(value):
    finding = split.examine(value)
    assert (finding.kind, finding.solved) == ("type", False)
    assert "hand in the function itself" in finding.message


def test_what_students_print_is_not_shown(capsys):
    def printing(x, num_heads):
        print("noise" * 1000)
        return split.reference(x, num_heads)

    split(printing)
    out = capsys.readouterr().out
    assert out == f"split_heads: right. Verified: {split.verified}\n"


def test_a_small_input_is_shown_with_its_numbers():
    message = EXERCISES["masked_softmax"].examine(lambda scores, mask: scores).message
    assert "masked_softmax(scores of shape (2, 3), mask of shape (2, 3))" in message
    assert "mask      [[ True,  True, False],\n               [False, False,  True]]" in message
    assert "yours  " in message


def test_a_difference_in_late_digits_is_seen():
    finding = EXERCISES["weighted_average"].examine(lambda weights, values: weights @ values + 0.003)
    expected, got = (line.split(None, 1)[1] for line in finding.message.splitlines()[-2:])
    assert expected != got


def first_wrong_in(names, softmax=lambda operation, axes: operation != "softmax over K"):
    """`first_wrong_step` that takes only these of a step's names for a step's names."""

    def answer(steps):
        for number, (operation, axes) in enumerate(steps):
            if any("~" in name or ":" in name for name in names(axes)):
                return number
            if operation.startswith("softmax") and softmax(operation, axes):
                return number
        return -1

    return answer


@pytest.mark.parametrize(
    "answer",
    [
        first_wrong_in(lambda axes: axes[-1:]),
        first_wrong_in(lambda axes: axes[-2:]),
        first_wrong_in(lambda axes: axes[:2]),
        first_wrong_in(lambda axes: axes[1:]),
        first_wrong_in(lambda axes: axes[:-1]),
        first_wrong_in(lambda axes: [name for name in axes if "Q" in name]),
        first_wrong_in(lambda axes: [*axes[:-1], axes[-1].replace(":", "")]),
        first_wrong_in(lambda axes: [*(name.replace("~", "") for name in axes[:-1]), axes[-1]]),
        first_wrong_in(lambda axes: axes, lambda operation, axes: not operation.endswith(f" {axes[-1]}")),
    ],
    ids=["last", "last two", "first two", "not first", "not last", "Q", "cut, not last", "mixed, last", "softmax"],
)
def test_a_ledger_read_in_part_is_refused_on_every_seed(answer):
    """Until they had ledgers of their own, the first was accepted on 236 of 300 seeds, and the others on all."""
    assert not [seed for seed in range(2) if checks.first_wrong_step.examine(answer, seed).solved]


def test_a_ledger_read_whole_is_accepted():
    assert checks.first_wrong_step.examine(first_wrong_in(lambda axes: axes), 1).solved


@pytest.mark.parametrize(
    "student",
    [
        lambda weights, values: torch.stack([*(weights @ values)], -1).flatten(1),
        lambda weights, values: torch.einsum("iqk,ikd->qdi", weights, values).reshape(weights.shape[1], -1),
    ],
    ids=["stack", "einsum"],
)
def test_heads_in_turn_are_told_from_heads_side_by_side(student):
    finding = EXERCISES["two_heads"].examine(student)
    assert finding.mistake == "heads interleaved"
    assert "in turn, one of head 0, one of head 1" in finding.message


def test_of_a_large_result_the_first_wrong_row_is_shown():
    def wrong_later(x, num_heads):
        result = split.reference(x, num_heads).clone()
        if len(x) > 1:
            result[1, 1, 1, 0] += 1
        return result

    message = split.examine(wrong_later).message
    assert "numbers differ; the first row that does, [1, 1, 1, :]:" in message


def test_the_wrong_part_is_shown():
    def wrong(q, k, v, mask):
        output, weights = EXERCISES["attend"].reference(q, k, v, mask)
        return output, weights + 1

    finding = EXERCISES["attend"].examine(wrong)
    assert finding.message.startswith("the matrix of weights has the right form, but not the right values")
    assert "the matrix of weights:\n    right" in finding.message


@pytest.mark.parametrize("name", ["offset_weight", "head_entropy", "sink_weight"])
def test_a_shape_that_is_wrong_is_seen_in_what_is_shown(name):
    """One number in the wrong shape is not shown as the number, as if it were right."""
    exercise = EXERCISES[name]
    for change in (lambda x: x[None], lambda x: x[:, None], lambda x: x.squeeze(), lambda x: x.numpy()):
        message = exercise.examine(lambda *given, change=change: change(exercise.reference(*given))).message
        right, yours = message.splitlines()[-2:]
        assert right.replace("right", "yours") != yours


@pytest.mark.parametrize(
    ("mistake", "wrong"),
    {
        "a row": lambda one: one.mean((0, 2))[None],
        "a column": lambda one: one.mean((0, 2))[:, None],
        "axes of length 1 kept": lambda one: one.mean((0, 2), keepdim=True),
        "examples not averaged": lambda one: one.mean(2),
        "examples for heads": lambda one: one.mean(2).mean(1),
        "queries not averaged": lambda one: one.mean(0),
        "heads averaged": lambda one: one.mean().item(),
    }.items(),
)
def test_wrong_shapes_of_offset_weight_have_names(mistake, wrong):
    function = lambda weights, offset: wrong(weights.diagonal(offset, -2, -1))  # noqa: E731
    assert EXERCISES["offset_weight"].examine(function).mistake == mistake


def test_another_exception_is_not_taken_for_a_known_mistake():
    """One known mistake raises; whoever raises something else did not make it."""
    finding = EXERCISES["merge_heads"].examine(raising(ValueError("something else")))
    assert (finding.kind, finding.mistake) == ("raised", None)


@pytest.mark.filterwarnings("ignore:The use of `x.T`")
@pytest.mark.parametrize(
    ("name", "function", "mistake"),
    [
        ("weighted_average", lambda weights, values: weights * values, "entry by entry"),
        ("weighted_average", lambda weights, values: values * weights, None),  # raises with the sizes exchanged
        ("weighted_average", lambda weights, values: torch.mm(weights.t(), values), "weights transposed"),
        ("weighted_average", lambda weights, values: weights @ values.T, None),  # torch complains in nearly those words
        ("scores", lambda q, k: torch.matmul(q, k.T) / q.shape[-1] ** 0.5, "k.T"),
        ("scores", lambda q, k: F.softmax(q @ k.mT / math.sqrt(k.shape[-1]), dim=-1), "softmax already applied"),
        ("scores", lambda q, k: torch.softmax(q @ k.mT, -1), "softmax already applied, and no scale"),
    ],
)
def test_what_beginners_write_in_chapter_1_is_named(name, function, mistake):
    for seed in SEEDS:
        assert EXERCISES[name].examine(function, seed).mistake == mistake


class RudeWord(str):
    __hash__ = None

    def __eq__(self, other):
        raise ValueError("no")


def test_words_that_object_to_being_compared_are_a_wrong_result():
    def rude(weights, tokens):
        return [(RudeWord(asks), looked) for asks, looked in EXERCISES["mended_words"].reference(weights, tokens)]

    finding = EXERCISES["mended_words"].examine(rude)
    assert (finding.kind, finding.mistake) == ("type", None)
    assert "cannot be read" in finding.message


def test_seeds_draw_different_inputs_and_the_same_ones_again():
    one, other, again = (cases_of(split, seed)[-1]["x"] for seed in (1, 2, 1))
    assert one.shape != other.shape or not torch.equal(one, other)
    assert torch.equal(one, again)
    seen = []
    for seed in (1, 2, 1):
        split.examine(lambda x, num_heads: seen.append(x) or split.reference(x, num_heads), seed)
    one, other, again = (seen[3 + len(seen) // 3 * number] for number in range(3))
    assert one.shape != other.shape or not torch.equal(one, other)
    assert torch.equal(one, again)


def test_the_inputs_owe_nothing_to_the_students_seed():
    torch.manual_seed(0)
    random.seed(0)
    one = cases_of(split)[-1]["x"]
    torch.manual_seed(1)
    random.seed(1)
    assert torch.equal(one, cases_of(split)[-1]["x"])


def test_failure_is_one_exception_with_one_message():
    with pytest.raises(CheckFailed, match=r"^split_heads: you reshaped straight") as caught:
        split(split.mistakes[0].function)
    assert caught.value._render_traceback_() == [str(caught.value)]


def test_jupyter_shows_the_message_alone():
    pytest.importorskip("IPython")
    program = inspect.cleandoc("""
        from IPython.core.interactiveshell import InteractiveShell
        InteractiveShell().run_cell("from mhalib_classroom import checks\\nchecks.split_heads(lambda x, num_heads: x)")
    """)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert ran.stdout.startswith("split_heads: the result must have shape (1, 2, 3, 2), and yours has (1, 3, 4)")
    assert "Traceback" not in ran.stdout + ran.stderr
    assert "_exercise" not in ran.stdout + ran.stderr


def test_none_in_some_cases_is_not_taken_for_a_forgotten_return():
    mixed = Exercise(
        "mixed",
        chapter=1,
        title="",
        reference=lambda number: number,
        cases=lambda rng: iter([{"number": 1}, {"number": 2}]),
        verified="",
    )
    finding = mixed.examine(lambda number: number if number > 1 else None)
    assert (finding.kind, finding.solved) == ("type", False)
    assert finding.message.startswith("the result is None in this case, and is to be an int in every one")
    assert "forget `return`" in mixed.examine(lambda number: None).message


def test_a_list_of_tensors_is_told_to_join_them():
    def heads(weights, offset):
        return list(weights.diagonal(offset, -2, -1).mean((0, 2)))

    said = EXERCISES["offset_weight"].examine(heads).message
    assert "torch.stack" in said
    assert "torch.tensor" not in said
    assert "torch.tensor" in EXERCISES["offset_weight"].examine(lambda *given: heads(*given)[0:0]).message


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_another_default_dtype_changes_no_verdict(dtype):
    torch.set_default_dtype(dtype)
    try:
        refused = [
            name for name, one in EXERCISES.items() if one.chapter < 11 and not one.examine(one.reference).solved
        ]
        assert torch.get_default_dtype() == dtype
    finally:
        torch.set_default_dtype(torch.float32)
    assert refused == []


def chosen_afterwards(scores, mask):
    """The weights are right; of a query that sees nothing, the exponential of 1e30 stays in the backward pass."""
    mask = mask.expand(scores.shape)
    largest = scores.masked_fill(~mask, -1e30).amax(-1, keepdim=True)
    e = torch.where(mask, (scores - largest).exp(), 0.0)
    total = e.sum(-1, keepdim=True)
    return torch.where(total > 0, e / total, 0.0)


def added_infinity(scores, mask):
    hidden = torch.where(mask, 0.0, -math.inf)
    return (scores + hidden).softmax(-1).nan_to_num(0.0)


@pytest.mark.parametrize("function", [chosen_afterwards, added_infinity])
def test_gradients_that_are_nan_are_seen_behind_a_right_result(function):
    finding = EXERCISES["masked_softmax"].examine(function)
    assert (finding.kind, finding.solved) == ("gradient", False)
    assert "its gradient with respect to scores holds NaN" in finding.message


def half_detached(q, k, v, mask):
    """Right, and the weights' own gradient goes through the queries alone."""
    scores = (q @ k.detach().mT / math.sqrt(q.shape[-1])).masked_fill(~mask, -math.inf)
    weights = scores.softmax(-1)
    return (weights + 0 * (q @ k.mT)) @ v, weights


def test_a_gradient_that_is_another_is_seen_behind_a_right_result():
    finding = EXERCISES["attend"].examine(half_detached)
    assert (finding.kind, finding.solved) == ("gradient", False)
    assert "its gradient with respect to k is not" in finding.message


def test_references_have_gradients_to_compare_with():
    for name in ("masked_softmax", "attend"):
        exercise = EXERCISES[name]
        assert exercise.has_gradients
        for seed in SEEDS:
            largest = []
            for case in cases_of(exercise, seed):
                right = exercise.reference(*case.values())
                parts = right if isinstance(right, tuple) else (right,)
                found = gradients(exercise.reference, case, [torch.randn_like(one) for one in parts], None)
                assert found
                assert all(one.isfinite().all() for one in found.values())
                largest.append(max(one.abs().max() for one in found.values()))
            assert max(largest) > 1e-2, (name, seed)  # where scores are large, it may be nearly 0


def test_what_has_no_gradients_is_asked_for_none():
    def in_numpy(scores, mask):
        return torch.from_numpy(softmax_by_hand(scores.detach(), mask).numpy())

    def broken_backward(scores, mask):
        class Once(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return softmax_by_hand(x, mask)

            @staticmethod
            def backward(ctx, gradient):
                raise RuntimeError("no gradient")

        return Once.apply(scores)

    for function in (in_numpy, broken_backward):
        assert EXERCISES["masked_softmax"].examine(function).solved
