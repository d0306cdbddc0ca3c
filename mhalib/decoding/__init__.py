"""From a model's next-token logits to a sequence: greedy, with a beam, by drawing, or by drafts that it checks."""

from .sampling import probabilities, sample
from .sequences import beam_search, greedy
from .speculation import Speculation, accepted, look_up, speculate

__all__ = ["Speculation", "accepted", "beam_search", "greedy", "look_up", "probabilities", "sample", "speculate"]
