"""Feed-forward networks: one for all tokens, or several, of which each token goes through a few."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from .._validate import require_choice, require_count, require_flag, require_positive, require_width
from ..attention.kernels import autocasts
from ..variants._settings import largest
from .description import FFN_KINDS

F = nn.functional


def _gelu_sigmoid(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_sigmoid": _gelu_sigmoid,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}
_GATED = {
    "geglu": "gelu",
    "geglu_tanh": "gelu_tanh",
    "reglu": "relu",
    "swiglu": "silu",
    "swiglu_clamped": "gelu_sigmoid",
}
_LIMIT = 7.0
SHARES = ("softmax", "sigmoid")
"""What may make shares of a router's numbers."""


class FeedForward(nn.Module):
    """Two linear maps with a function between them, applied to each token alone: (B, N, D) -> (B, N, D).

    A gated network has a third map, and the function's values multiply: narrow(function(gate(x)) * widen(x)).

    Args:
        num_hiddens: D.
        ffn_num_hiddens: how wide it is inside.
        kind: the function, "gelu", "gelu_tanh" (a GELU with tanh in place of the normal distribution), "gelu_sigmoid"
            (with a logistic function in its place: x / (1 + exp(-1.702 x))), "relu" or "silu"; gated by it, "geglu",
            "geglu_tanh", "reglu" or "swiglu". In gpt-oss's "swiglu_clamped" the function is "gelu_sigmoid", of gates of
            at most 7, and what it multiplies is held between -7 and 7, plus 1.
        bias: whether the maps have biases.

    Raises:
        TypeError, ValueError: an argument is not of this kind.

    Sources: Hendrycks and Gimpel 2016, Gaussian Error Linear Units; of the gates, Shazeer 2020, GLU Variants Improve
    Transformer.
    """

    def __init__(self, num_hiddens: int, ffn_num_hiddens: int, kind: str = "gelu", bias: bool = True) -> None:
        super().__init__()
        require_count("num_hiddens", num_hiddens)
        require_count("ffn_num_hiddens", ffn_num_hiddens)
        require_choice("kind", kind, FFN_KINDS)
        require_flag("bias", bias)
        self.kind = kind
        self.widen = nn.Linear(num_hiddens, ffn_num_hiddens, bias=bias)
        self.narrow = nn.Linear(ffn_num_hiddens, num_hiddens, bias=bias)
        self.gate = nn.Linear(num_hiddens, ffn_num_hiddens, bias=bias) if kind in _GATED else None

    def forward(self, x: Tensor) -> Tensor:
        require_vectors("x", x, self.narrow.weight)
        function = _ACTIVATIONS[_GATED.get(self.kind, self.kind)]
        if self.gate is None:
            return self.narrow(function(self.widen(x)))
        gate, wide = self.gate(x), self.widen(x)
        if self.kind == "swiglu_clamped":
            gate, wide = gate.clamp(max=_LIMIT), wide.clamp(-_LIMIT, _LIMIT) + 1
        return self.narrow(function(gate) * wide)


class MixtureFeedForward(nn.Module):
    """Many feed-forward networks, the experts; each token goes through a few: (B, N, D) -> (B, N, D).

    A router, one linear map, gives a token a number for each expert, and a softmax makes shares of them. The experts
    with the largest shares are computed, and their results are added, times their shares. So a token costs what
    `num_chosen` experts cost, while the layer holds `num_experts` of them. DeepSeek-V3's mixture is
    `MixtureFeedForward(7168, 2048, num_experts=256, num_chosen=8, shares="sigmoid", choice_bias=True, num_groups=8,
    num_chosen_groups=4, share_scale=2.5, num_shared=1)`.

    Args:
        num_hiddens, ffn_num_hiddens, kind, bias: of each expert, as in `FeedForward`; `bias` is the router's, too.
        num_experts: how many networks there are.
        num_chosen: how many of them each token goes through.
        normalised: whether the shares of those that are chosen are divided by their sum.
        shares: "softmax" over all experts, or "sigmoid", of each expert's number alone.
        choice_bias: whether each expert has a number that is added to its share where experts are chosen, and not
            where their results are. No gradient reaches it: DeepSeek-V3 raises it by a step after each batch in which
            the expert had fewer tokens than the mean, and lowers it where it had more.
        num_groups: the experts are in so many groups of the same size, one behind the other.
        num_chosen_groups: the groups whose two best experts together are best; the others' experts cannot be chosen.
        share_scale: what the shares are multiplied by, at last.
        num_shared: how many experts more every token goes through, whose share is 1; they are one network, as wide as
            all of them.

    Raises:
        TypeError, ValueError: an argument is not of this kind, or fewer experts can be chosen than are to be.

    Sources: Shazeer et al. 2017, Outrageously Large Neural Networks; Jiang et al. 2024, Mixtral of Experts, section
    2.1, with shares that sum to 1; DeepSeek-AI 2024, DeepSeek-V3, section 2.1.2, for what stands behind `normalised`.
    """

    def __init__(
        self,
        num_hiddens: int,
        ffn_num_hiddens: int,
        kind: str = "swiglu",
        bias: bool = False,
        *,
        num_experts: int = 8,
        num_chosen: int = 2,
        normalised: bool = True,
        shares: str = "softmax",
        choice_bias: bool = False,
        num_groups: int = 1,
        num_chosen_groups: int = 1,
        share_scale: float = 1.0,
        num_shared: int = 0,
    ) -> None:
        super().__init__()
        require_count("num_experts", num_experts)
        require_count("num_chosen", num_chosen)
        require_flag("normalised", normalised)
        require_choice("shares", shares, SHARES)
        require_flag("choice_bias", choice_bias)
        require_positive("share_scale", share_scale)
        require_count("num_shared", num_shared, minimum=0)
        if num_chosen > num_experts:
            raise ValueError(f"num_chosen={num_chosen} is more than num_experts={num_experts}")
        _require_groups(num_experts, num_chosen, num_groups, num_chosen_groups)
        self.num_chosen, self.normalised = int(num_chosen), bool(normalised)
        self.shares, self.share_scale = shares, float(share_scale)
        self.num_groups, self.num_chosen_groups = int(num_groups), int(num_chosen_groups)
        self.experts = nn.ModuleList(FeedForward(num_hiddens, ffn_num_hiddens, kind, bias) for _ in range(num_experts))
        self.router = nn.Linear(num_hiddens, num_experts, bias=bias)
        self.choice_bias = nn.Parameter(torch.zeros(num_experts), requires_grad=False) if choice_bias else None
        self.shared = FeedForward(num_hiddens, num_shared * ffn_num_hiddens, kind, bias) if num_shared else None

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x (B, N, D) -> shares, and the numbers of the experts that have them, both (B, N, num_chosen)."""
        told = self.router(x).to(torch.promote_types(x.dtype, torch.float32))
        every = told.sigmoid() if self.shares == "sigmoid" else told.softmax(-1)
        chosen = self._choose(every if self.choice_bias is None else every + self.choice_bias)
        shares = every.gather(-1, chosen)
        if self.normalised:
            shares = shares / (shares.sum(-1, keepdim=True) + 1e-20)  # sigmoids may all be 0
        return self.share_scale * shares, chosen

    def _choose(self, wanted: Tensor) -> Tensor:
        """How much each expert is wanted, (B, N, num_experts) -> the numbers of the best, (B, N, num_chosen)."""
        if self.num_groups > 1:
            groups = wanted.unflatten(-1, (self.num_groups, -1))  # (B, N, groups, experts of each)
            is_in = largest(groups.topk(2, -1).values.sum(-1), self.num_chosen_groups)
            wanted = groups.masked_fill(~is_in[..., None], -torch.inf).flatten(-2)
        return wanted.topk(self.num_chosen, -1).indices

    def forward(self, x: Tensor) -> Tensor:
        require_vectors("x", x, self.router.weight[0])
        if x.device != self.router.weight.device:
            raise ValueError(f"x is on {x.device}, but the layer's weights are on {self.router.weight.device}")
        shares, chosen = self.route(x)
        result = torch.zeros_like(x) if self.shared is None else self.shared(x)
        for number, expert in enumerate(self.experts):
            example, token, place = (chosen == number).nonzero(as_tuple=True)
            if len(token):  # nothing is computed of experts that no token chose
                found = expert(x[example, token][None])[0]
                result[example, token] += shares[example, token, place, None] * found
        return result


def _require_groups(num_experts: int, num_chosen: int, num_groups: int, num_chosen_groups: int) -> None:
    """Raise unless the experts make so many groups, and those that are chosen have enough of them."""
    require_count("num_groups", num_groups)
    require_count("num_chosen_groups", num_chosen_groups)
    if num_chosen_groups > num_groups:
        raise ValueError(f"num_chosen_groups={num_chosen_groups} is more than num_groups={num_groups}")
    size, rest = divmod(num_experts, num_groups)
    if rest or (num_groups > 1 and size < 2):
        raise ValueError(f"num_experts={num_experts} do not make num_groups={num_groups} of the same size, 2 or more")
    if num_chosen > num_chosen_groups * size:
        raise ValueError(
            f"num_chosen={num_chosen} is more than the {size} experts of each of num_chosen_groups={num_chosen_groups}"
        )


def require_vectors(name: str, x: Tensor, weight: Tensor | None) -> None:
    """Raise unless `x` is (B, N, D), D as long as `weight`, and of its type where no autocast changes that."""
    require_width(name, x, weight.shape[0] if isinstance(weight, Tensor) else x.shape[-1])
    if isinstance(weight, Tensor) and x.dtype != weight.dtype and not autocasts(x.device.type):
        raise TypeError(f"{name} is {x.dtype}, but the layer's weights are {weight.dtype}")
