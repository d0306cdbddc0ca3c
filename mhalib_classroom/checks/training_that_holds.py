"""Queries and keys that are normalised, gradients that are clipped, rates that rise and fall.

The scale of a loss, and gradients that come with it.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw, own_sizes
from ._markdown import exercises_of

exercise = exercises_of(globals())


Gradients = list[Tensor]


def _heads(rng: random.Random) -> Iterator[Case]:
    yield {
        "q": torch.tensor([[[3.0, 4.0], [1.0, 0.0]], [[0.0, 2.0], [1.0, 1.0]]]),
        "k": torch.tensor([[[3.0, 4.0], [4.0, -3.0], [0.0, 1.0]], [[5.0, 0.0], [1.0, 2.0], [3.0, 3.0]]]),
    }
    for num_heads, num_queries, num_kvpairs, head_dim in apart(rng, 4, smallest=3, largest=9):
        yield {
            "q": 3 * draw(rng, num_heads, num_queries, head_dim) + 1,
            "k": 2 * draw(rng, num_heads, num_kvpairs, head_dim) - 1,
        }


def _normed(
    q: Tensor,
    k: Tensor,
    *,
    queries: bool = True,
    keys: bool = True,
    axis: int | tuple[int, ...] = -1,
    size: Callable[..., Tensor] = lambda x, axis: x.pow(2).mean(axis, keepdim=True).sqrt(),
    centred: bool = False,
    scaled: bool = True,
) -> Tensor:
    def norm(x: Tensor) -> Tensor:
        x = x - x.mean(-1, keepdim=True) if centred else x
        return x / size(x, axis)

    scores = (norm(q) if queries else q) @ (norm(k) if keys else k).mT
    return scores / math.sqrt(q.shape[-1]) if scaled else scores


normed_scores = exercise(
    "normed_scores",
    reference=_normed,
    cases=_heads,
    switches=_normed,
)


def _drawn(rng: random.Random, size: float) -> Gradients:
    """Three gradients whose norm together is `size`; they have different shapes and norms."""
    first, second = apart(rng, 2, 2)
    shapes = [tuple(first), (rng.randint(8, 12),), tuple(second)]
    gradients = [draw(rng, *shape) * weight for shape, weight in zip(shapes, (3.0, 0.2, 1.0), strict=True)]
    return [gradient * size / _norm(gradients) for gradient in gradients]


@own_sizes("three gradients in every case, whose shapes differ within it; only their norm counts")
def _gradients(rng: random.Random) -> Iterator[Case]:
    yield {"gradients": [torch.tensor([3.0, 0.0]), torch.tensor([[4.0]])], "max_norm": 1.0}
    yield {"gradients": _drawn(rng, rng.uniform(0.5, 0.9)), "max_norm": 1.0}
    yield {"gradients": _drawn(rng, rng.uniform(6.0, 9.0)), "max_norm": 2.0}
    yield {"gradients": _drawn(rng, rng.uniform(15.0, 25.0)), "max_norm": 0.5}


def _norm(gradients: Gradients) -> float:
    return math.sqrt(sum(float(gradient.pow(2).sum()) for gradient in gradients))


def _times(factor: Callable[[Gradients, float], float]) -> Callable[[Gradients, float], Gradients]:
    return lambda gradients, max_norm: [gradient * factor(gradients, max_norm) for gradient in gradients]


def _clipped(gradients: Gradients, max_norm: float) -> Gradients:
    return _times(lambda gradients, max_norm: min(1.0, max_norm / _norm(gradients)))(gradients, max_norm)


def _alone(gradients: Gradients, max_norm: float) -> Gradients:
    return [_clipped([gradient], max_norm)[0] for gradient in gradients]


clipped = exercise(
    "clipped",
    reference=_clipped,
    cases=_gradients,
)


@own_sizes("steps of one training: one length, one rise")
def _steps(rng: random.Random) -> Iterator[Case]:
    """Steps of one training: in the rise, its last, the first and later ones of the fall, the very last."""
    yield {"step": 0, "steps": 10, "warm_up": 4, "max_lr": 1.0}
    steps, warm_up = rng.randint(50, 90), rng.randint(11, 19)
    max_lr = rng.choice((0.02, 0.5, 3.0))
    for step in (warm_up - 2, warm_up - 1, warm_up, warm_up + rng.randint(5, 20), steps - 1):
        yield {"step": step, "steps": steps, "warm_up": warm_up, "max_lr": max_lr}


def _rate(step: int, steps: int, warm_up: int, max_lr: float) -> float:
    if step < warm_up:
        return max_lr * (step + 1) / warm_up
    return max_lr * (steps - step) / (steps - warm_up + 1)


rate_at = exercise(
    "rate_at",
    reference=_rate,
    cases=_steps,
)


Told = tuple[float, int]  # a scale, and how many good steps in a row it has had


@own_sizes("states of one training: one interval")
def _states(rng: random.Random) -> Iterator[Case]:
    """An overflow with good steps behind it, a step as always, the last before a rise, one after it should have been,
    and an overflow when a rise was due."""
    yield {"scale": 8.0, "good_steps": 2, "is_finite": False, "interval": 5}
    interval = rng.randint(6, 12)
    scale = 2.0 ** rng.randint(5, 16)
    for good_steps, is_finite in ((rng.randint(1, 3), True), (interval - 1, True), (interval - 2, True)):
        yield {"scale": scale, "good_steps": good_steps, "is_finite": is_finite, "interval": interval}
    yield {"scale": 1.0, "good_steps": interval - 1, "is_finite": False, "interval": interval}


def _next(scale: float, good_steps: int, is_finite: bool, interval: int) -> Told:
    if not is_finite:
        return scale / 2, 0
    if good_steps + 1 == interval:
        return scale * 2, 0
    return scale, good_steps + 1


def _never_lowered(scale: float, good_steps: int, is_finite: bool, interval: int) -> Told:
    return _next(scale, good_steps, True, interval) if is_finite else (scale, 0)


def _goes_on_counting(scale: float, good_steps: int, is_finite: bool, interval: int) -> Told:
    return _next(scale, good_steps, True, interval) if is_finite else (scale / 2, good_steps)


def _keeps_count_when_raised(scale: float, good_steps: int, is_finite: bool, interval: int) -> Told:
    found, count = _next(scale, good_steps, is_finite, interval)
    return (found, good_steps + 1) if is_finite else (found, count)


next_scale = exercise(
    "next_scale",
    reference=_next,
    cases=_states,
)


def _scaled(rng: random.Random) -> Iterator[Case]:
    """A small one that is larger than max_norm when scaled, a large one, a tiny one, and one that overflowed."""
    yield {"scaled": torch.tensor([1.5, 2.0]), "scale": 8.0, "max_norm": 1.0}
    norms_and_exponents = [(rng.uniform(0.2, 0.8), 10), (rng.uniform(3.0, 6.0), 4), (rng.uniform(0.1, 0.2), 2)]
    *drawn, last = apart(rng, 2, 4)
    for (norm, exponent), shape in zip(norms_and_exponents, drawn, strict=True):
        gradient = draw(rng, *shape)
        scale = 2.0**exponent
        yield {"scaled": gradient * norm / gradient.norm() * scale, "scale": scale, "max_norm": 1.0}
    broken = draw(rng, *last)
    broken[1, 1] = rng.choice((math.inf, -math.inf))
    yield {"scaled": broken, "scale": 64.0, "max_norm": 1.0}


def _clip(gradient: Tensor, max_norm: float) -> Tensor:
    return gradient * min(1.0, max_norm / float(gradient.norm()))


def _or_zero(gradient: Tensor, changed: Tensor) -> Tensor:
    """What becomes of a gradient, and zeros for one that overflowed."""
    return changed if gradient.isfinite().all() else torch.zeros_like(gradient)


mended_update = exercise(
    "mended_update",
    reference=lambda scaled, scale, max_norm: _or_zero(scaled, _clip(scaled / scale, max_norm)),
    cases=_scaled,
)


def _projections(rng: random.Random) -> Iterator[Case]:
    """All heads but one pass the limit; in one of them the smallest score is further from 0 than the largest."""
    yield {
        "W_q": torch.tensor([[[2.0, 0.0]], [[1.0, 1.0]]]),
        "W_k": torch.tensor([[[0.0, 4.0]], [[2.0, -1.0]]]),
        "scores": torch.tensor([[[8.0, -16.0], [2.0, 4.0]], [[1.0, 0.5], [-3.0, 0.0]]]),
        "limit": 2.0,
    }
    for num_heads, num_queries, num_kvpairs, head_dim, num_hiddens in apart(rng, 5, smallest=3, largest=14):
        W_q, W_k = draw(rng, num_heads, head_dim, num_hiddens), draw(rng, num_heads, head_dim, num_hiddens)
        q, k = draw(rng, num_queries, num_hiddens) @ W_q.mT, draw(rng, num_kvpairs, num_hiddens) @ W_k.mT
        scores = q @ k.mT / math.sqrt(head_dim)
        sign = -1 if scores[0].max() > -scores[0].min() else 1
        W_k[0] *= sign
        scores[0] *= sign
        least, second = scores.amax((1, 2)).sort().values[:2].tolist()
        yield {"W_q": W_q, "W_k": W_k, "scores": scores, "limit": least + rng.uniform(0.3, 0.7) * (second - least)}


def _qk_clipped(
    W_q: Tensor,
    W_k: Tensor,
    scores: Tensor,
    limit: float,
    *,
    largest: Callable[[Tensor], Tensor] = lambda scores: scores.amax((1, 2)),
    bounded: bool = True,
    turned: bool = False,
    power_q: float = 0.5,
    power_k: float = 0.5,
) -> tuple[Tensor, Tensor]:
    factor = largest(scores) / limit if turned else limit / largest(scores)
    factor = (factor.clamp(max=1.0) if bounded else factor)[:, None, None]
    return W_q * factor**power_q, W_k * factor**power_k


qk_clipped = exercise(
    "qk_clipped",
    reference=_qk_clipped,
    cases=_projections,
    switches=_qk_clipped,
)


def _masked_scores(rng: random.Random) -> Iterator[Case]:
    """Scores beyond the cap and below it; each query may attend to one key at least, and not to all."""
    yield {
        "scores": torch.tensor([[8.0, 1.0, -8.0], [0.0, 2.0, 3.0]]),
        "mask": torch.tensor([[True, True, False], [False, True, True]]),
        "cap": 2.0,
    }
    for num_queries, num_kvpairs in apart(rng, 2, smallest=3, largest=9):
        mask = draw(rng, num_queries, num_kvpairs) > 0
        mask[:, 0], mask[:, -1] = True, False
        scores = 6 * draw(rng, num_queries, num_kvpairs)
        yield {"scores": scores, "mask": mask, "cap": rng.uniform(2.0, 4.0)}


def _capped(
    scores: Tensor,
    mask: Tensor,
    cap: float,
    *,
    first: bool = True,
    bend: Callable[[Tensor, float], Tensor] = lambda scores, cap: cap * (scores / cap).tanh(),
    hidden: float = -math.inf,
    visible: bool = True,
) -> Tensor:
    if not first:
        return bend(scores.masked_fill(~mask, -math.inf), cap).softmax(-1)
    return bend(scores, cap).masked_fill(mask != visible, hidden).softmax(-1)


capped_weights = exercise(
    "capped_weights",
    reference=_capped,
    cases=_masked_scores,
    switches=_capped,
)


def _matrices(rng: random.Random) -> Iterator[Case]:
    """Gradients, wide and tall, and several numbers of steps."""
    yield {"gradient": torch.tensor([[3.0, 0.0], [0.0, 1.0]]), "steps": 1}
    for rows, columns, steps in apart(rng, 3, smallest=2, largest=8):
        gradient = draw(rng, rows, columns)
        yield {"gradient": gradient * rng.uniform(0.2, 0.4) / gradient.norm(), "steps": steps}


def _orthogonalised(
    gradient: Tensor,
    steps: int,
    *,
    size: Callable[[Tensor], Tensor] = lambda x: x.norm(),
    square: Callable[[Tensor], Tensor] = lambda a: a @ a,
    numbers: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
    each: bool = False,
    frozen: bool = False,
) -> Tensor:
    a, b, c = numbers
    x = gradient / size(gradient)
    first = x @ x.mT
    for _ in range(steps):
        x = x / size(x) if each else x
        products = first if frozen else x @ x.mT
        x = a * x + (b * products + c * square(products)) @ x
    return x


orthogonalised = exercise(
    "orthogonalised",
    reference=_orthogonalised,
    cases=_matrices,
    switches=_orthogonalised,
)


def _outliers(rng: random.Random) -> Iterator[Case]:
    """Rows whose blocks differ in size by far; in some, the number furthest from 0 is negative."""
    yield {"x": torch.tensor([[1.1, -2.0, 3e5, 0.3], [0.7, 0.01, -5.0, 2.3]]), "width": 2}
    for num_tokens, num_blocks, width in apart(rng, 3, smallest=3, largest=9):
        sizes = torch.tensor([[10.0 ** rng.uniform(-5, 5) for _ in range(num_blocks)] for _ in range(num_tokens)])
        x = draw(rng, num_tokens, num_blocks, width)
        x[..., 1] = -3.0 - x[..., 1].abs()
        yield {"x": (x * sizes[..., None]).flatten(1), "width": width}


def _in_blocks(
    x: Tensor,
    width: int,
    *,
    scale_of: Callable[[Tensor], Tensor],
    rounded: Callable[[Tensor], Tensor],
    split: Callable[[Tensor, int], Tensor] = lambda x, width: x.unflatten(1, (-1, width)),
    merge: Callable[[Tensor], Tensor] = lambda x: x.flatten(1),
    axis: int | tuple[int, ...] = -1,
    absolute: bool = True,
    undone: bool = True,
) -> Tensor:
    """Each block times its scale, which `scale_of` gives for its largest size; rounded; and divided again."""
    blocks = split(x, width)
    scale = scale_of((blocks.abs() if absolute else blocks).amax(axis, keepdim=True))
    found = rounded(blocks * scale)
    return merge(found / scale if undone else found)


_in_8_bits = functools.partial(
    _in_blocks,
    scale_of=lambda largest: 448.0 / largest,
    rounded=lambda x: x.to(torch.float8_e4m3fn).float(),
)
in_8_bits = exercise("in_8_bits", reference=_in_8_bits, cases=_outliers, switches=_in_8_bits)


def _coarse(rng: random.Random) -> Iterator[Case]:
    """Blocks that differ in size by far. The largest size is sometimes below 6 scales, sometimes above; in every other
    block it is negative. No number is half-way between two of the format."""
    yield {"x": torch.tensor([[1.2, -10.0, 3e5, 0.3], [0.7, 0.01, -5.6, 2.3]]), "width": 2}
    for num_tokens, num_blocks, width in apart(rng, 3, smallest=3, largest=9):
        blocks = torch.tensor(
            [[[rng.uniform(0.3, 4.6) for _ in range(width)] for _ in range(num_blocks)] for _ in range(num_tokens)]
        )
        signs = torch.tensor([[[rng.choice((-1.0, 1.0)) for _ in block] for block in row] for row in blocks])
        for row in range(num_tokens):
            for number in range(num_blocks):
                place = rng.randrange(width)
                blocks[row, number, place] = (4.3, 5.6, 7.4)[(row + number) % 3]
                signs[row, number, place] = -1.0 if (row + number) % 2 else 1.0
        sizes = torch.tensor([[2.0 ** rng.randint(-20, 20) for _ in range(num_blocks)] for _ in range(num_tokens)])
        yield {"x": (_off_the_middle(blocks) * signs * sizes[..., None]).flatten(1), "width": width}


_E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def _off_the_middle(sizes: Tensor) -> Tensor:
    """The same sizes, but for those that are nearly half-way between two of the format."""
    middles = (_E2M1[1:] + _E2M1[:-1]) / 2
    near = ((sizes[..., None] - middles).abs() < 0.05).any(-1)
    return torch.where(near, sizes + 0.1, sizes)


def _to_e2m1(x: Tensor) -> Tensor:
    return x.sign() * _E2M1[(x.abs()[..., None] - _E2M1).abs().argmin(-1)]


_in_mxfp4 = functools.partial(
    _in_blocks,
    scale_of=lambda largest: 2 ** (2 - largest.log2().floor()),
    rounded=_to_e2m1,
)
in_mxfp4 = exercise("in_mxfp4", reference=_in_mxfp4, cases=_coarse, switches=_in_mxfp4)


def _logits(rng: random.Random) -> Iterator[Case]:
    """Logits whose ln Z is far from 0, above it for most tokens and below it for others."""
    yield {"logits": torch.tensor([[1.0, 2.0], [-4.0, -3.0]]), "targets": torch.tensor([1, 0]), "weight": 0.5}
    for num_tokens, num_words in apart(rng, 2, smallest=4, largest=11):
        shift = torch.tensor([-4.0, *(rng.uniform(1.0, 5.0) for _ in range(num_tokens - 1))])
        targets = torch.tensor([rng.randrange(num_words) for _ in range(num_tokens)])
        logits = 2 * draw(rng, num_tokens, num_words) + shift[:, None]
        yield {"logits": logits, "targets": targets, "weight": rng.uniform(0.1, 0.4)}


def _z_loss(
    logits: Tensor,
    targets: Tensor,
    weight: float,
    *,
    term: Callable[[Tensor], Tensor | float] = lambda log_z: log_z.square().mean(),
    own: Callable[[Tensor], Tensor | float] = lambda chosen: 0.0,
) -> Tensor:
    log_z = logits.logsumexp(-1)
    chosen = logits.gather(-1, targets[:, None])[:, 0] - log_z
    return weight * (term(log_z) + own(chosen)) - chosen.mean()


with_z_loss = exercise("with_z_loss", reference=_z_loss, cases=_logits, switches=_z_loss)


Shapes = list[tuple[int, ...]]


def _two_widths(rng: random.Random) -> Iterator[Case]:
    """Embeddings, layers with biases, and a readout, in any order; the hidden layers grow by a factor of their own."""
    yield {
        "narrow": [(10, 4), (4, 4), (4,), (10, 4)],
        "wide": [(10, 8), (8, 8), (8,), (10, 8)],
        "rate": 0.5,
    }
    for (num_layers,) in apart(rng, 1, smallest=1, largest=4):
        width, hidden = rng.sample(range(5, 12), 2)
        words, positions = rng.sample(range(30, 60), 2)
        two, three = rng.sample((2, 3, 4, 5), 2)
        models = []
        for D, H in ((width, hidden), (width * two, hidden * three)):
            layers = [(D, D), (D,), (H, D), (H,), (D, H), (D,)] * num_layers
            models.append([(words, D), (positions, D), *layers, (words, D), (words,)])
        order = rng.sample(range(len(models[0])), len(models[0]))
        narrow, wide = ([model[place] for place in order] for model in models)
        yield {"narrow": narrow, "wide": wide, "rate": rng.uniform(0.01, 0.1)}


def _rates(
    narrow: Shapes,
    wide: Shapes,
    rate: float,
    *,
    counts: Callable[[list[bool]], bool] = lambda grown: len(grown) == 2 and all(grown),
    side: int = -1,
    power: float = 1.0,
) -> list[float]:
    """The rate of each parameter, if those that `counts` get a smaller one, by how much one of their sides grows."""
    found = []
    for before, after in zip(narrow, wide, strict=True):
        grown = [a > b for a, b in zip(after, before, strict=True)]
        found.append(rate * (before[side] / after[side]) ** power if counts(grown) else rate)
    return found


mup_rates = exercise("mup_rates", reference=_rates, cases=_two_widths, switches=_rates)
