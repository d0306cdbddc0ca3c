"""Heads on many devices: which process holds which heads, and models split accordingly, by torch's DTensor.

A split is that of Megatron-LM: W_q, W_k and W_v by rows of their weights, so that a process has whole heads, and W_o
by the columns that belong to these heads. Each process then computes its heads alone, and one sum over the processes,
an all-reduce, makes the layer's output. `PLANS` says for each kind of attention what else it holds, or why it cannot be
split. `ulysses` and `ring` split the tokens instead: one gives each process all tokens of some heads in between, the
other hands keys and values round. `expert_parallel` gives each process some of the networks of a mixture. Processes
are started by `torchrun`. For data parallel training, where each process has the whole model and a part of each batch,
see `mhalib.train.fit` and `mhalib.processes.share`.
"""

from .experts import expert_parallel
from .plans import PLANS, Place, Plan, places, weights_held
from .sequences import Sent, numbers_sent, ring, ulysses, zigzag
from .splitting import mesh, split

__all__ = [
    "PLANS",
    "Place",
    "Plan",
    "Sent",
    "expert_parallel",
    "mesh",
    "numbers_sent",
    "places",
    "ring",
    "split",
    "ulysses",
    "weights_held",
    "zigzag",
]
