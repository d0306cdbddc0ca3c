"""Other libraries' names for our arguments, so that an error can name ours."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_HIDES = "a mask here is the opposite, True = may attend"
OURS = {
    **dict.fromkeys(("embed_dim", "d_model", "hidden_size", "n_embd", "embed_size", "dim"), "num_hiddens"),
    **dict.fromkeys(("n_heads", "nhead", "n_head", "num_attention_heads", "heads", "h"), "num_heads"),
    **dict.fromkeys(("n_kv_heads", "num_key_value_heads", "kv_heads"), "num_kv_heads"),
    **dict.fromkeys(("key_dim", "d_k", "d_head", "dim_head", "head_size"), "head_dim"),
    **dict.fromkeys(("d_v", "value_head_dim"), "value_dim"),
    **dict.fromkeys(("dropout_p", "attn_dropout", "attention_dropout", "dropout_rate"), "dropout"),
    **dict.fromkeys(("use_bias", "qkv_bias", "attention_bias"), "bias"),
    **dict.fromkeys(("query", "q", "hidden_states"), "queries"),
    **dict.fromkeys(("past_key_value", "past_key_values", "layer_past", "kv_cache"), "cache, from layer.new_cache()"),
    **dict.fromkeys(("output_attentions", "return_attention_scores"), "need_weights"),
    "kdim": "key_size",
    "vdim": "value_size",
    "key": "keys",
    "k": "keys",
    "value": "values",
    "v": "values",
    "batch_first": "nothing: inputs are always (B, N, D), batch first",
    "average_attn_weights": "nothing: weights are always per head; average them with weights.mean(1)",
    "add_bias_kv": "nothing: the layer has no key of its own",
    "add_zero_attn": "nothing: the layer has no key of its own",
    "device": "nothing: move the layer with .to(device)",
    "dtype": "nothing: change the layer with .to(dtype)",
    "key_padding_mask": f"mask=~key_padding_mask[:, None, None] or valid_lens; {_HIDES}",
    "attn_mask": f"mask=~attn_mask for a boolean mask of torch.nn.MultiheadAttention; {_HIDES}",
    "attention_mask": f"mask=attention_mask[:, None, None].bool(); {_HIDES}",
    "is_causal": "mask=mhalib.Band(), which is causal, or mask=mhalib.causal_mask(num_queries)",
}


def names_of_arguments(function: Callable[..., object]) -> frozenset[str]:
    """What `function` calls its arguments."""
    return frozenset(inspect.signature(function).parameters)


def refuse_other_names(names: Iterable[str], own: Collection[str]) -> None:
    """Raise TypeError where one of `names`, which a call gives, is not in `own`, but what another library calls one of
    our arguments."""
    for name in names:
        if name not in own and name in OURS:
            raise TypeError(f"{name} is another library's name: here it is {OURS[name]}")


def require_three(given: int, names: Collection[str]) -> None:
    """Raise TypeError where a call of a layer, with `given` arguments by place and others by name, lacks one of its
    three inputs."""
    missing = [name for name in ("queries", "keys", "values")[given:] if name not in names]
    if missing:
        raise TypeError(f"{' and '.join(missing)} must be given: self-attention is layer(x, x, x)")


def names_of_this_book(function: Callable[P, R]) -> Callable[P, R]:
    """Let `function` answer an argument that another library knows with the name that it has here, as a TypeError."""
    own = names_of_arguments(function)

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse_other_names(kwargs, own)
        return function(*args, **kwargs)

    return checked
