"""Feed-forward networks: one for all tokens, or several, of which each token goes through a few."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from .._validate import require_choice, require_count, require_flag, require_width
from ..attention.kernels import autocasts
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
    `num_chosen` experts cost, while the layer holds `num_experts` of them.

    Args:
        num_hiddens, ffn_num_hiddens, kind, bias: of each expert, as in `FeedForward`; `bias` is the router's, too.
        num_experts: how many networks there are.
        num_chosen: how many of them each token goes through.
        normalised: whether the shares of those that are chosen are divided by their sum.

    Raises:
        TypeError, ValueError: an argument is not of this kind.

    Sources: Shazeer et al. 2017, Outrageously Large Neural Networks; Jiang et al. 2024, Mixtral of Experts, section
    2.1, with shares that sum to 1.
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
    ) -> None:
        super().__init__()
        require_count("num_experts", num_experts)
        require_count("num_chosen", num_chosen)
        require_flag("normalised", normalised)
        if num_chosen > num_experts:
            raise ValueError(f"num_chosen={num_chosen} is more than num_experts={num_experts}")
        self.num_chosen, self.normalised = int(num_chosen), bool(normalised)
        self.experts = nn.ModuleList(FeedForward(num_hiddens, ffn_num_hiddens, kind, bias) for _ in range(num_experts))
        self.router = nn.Linear(num_hiddens, num_experts, bias=bias)

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x (B, N, D) -> shares, and the numbers of the experts that have them, both (B, N, num_chosen)."""
        precise = torch.promote_types(x.dtype, torch.float32)
        shares, chosen = self.router(x).softmax(-1, dtype=precise).topk(self.num_chosen, -1)
        return shares / shares.sum(-1, keepdim=True) if self.normalised else shares, chosen

    def forward(self, x: Tensor) -> Tensor:
        require_vectors("x", x, self.router.weight[0])
        if x.device != self.router.weight.device:
            raise ValueError(f"x is on {x.device}, but the layer's weights are on {self.router.weight.device}")
        shares, chosen = self.route(x)
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            example, token, place = (chosen == number).nonzero(as_tuple=True)
            if len(token):  # nothing is computed of experts that no token chose
                found = expert(x[example, token][None])[0]
                result[example, token] += shares[example, token, place, None] * found
        return result


def require_vectors(name: str, x: Tensor, weight: Tensor) -> None:
    """Raise unless `x` is (B, N, D), D as long as `weight`, and of its type where no autocast changes that."""
    require_width(name, x, weight.shape[0] if isinstance(weight, Tensor) else x.shape[-1])
    if isinstance(weight, Tensor) and x.dtype != weight.dtype and not autocasts(x.device.type):
        raise TypeError(f"{name} is {x.dtype}, but the layer's weights are {weight.dtype}")
