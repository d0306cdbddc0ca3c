"""The book's models. Each returns all its attention weights when asked, and keeps none.

Weights come as a dict from kind to a list with one tensor (B, h, Q, K) per layer: `weights["cross"][1]`. The kinds are
`"encoder self"`, `"decoder self"` and `"cross"`. `model.attention_layers()` has the layers in the same places, and
`model.settings` what the model was made with.
"""

from ._base import Model, Weights
from .bert import BERT
from .blocks import DecoderCache, DecoderLayer, EncoderLayer, SkipConnection
from .clip import CLIP
from .description import Description
from .feed_forward import FeedForward, MixtureFeedForward
from .gpt import GPT
from .pictures import Captioner, PictureReader, ViT, patches
from .reader import SentenceReader
from .recompose import recomposed
from .transformer import Transformer

MODELS = {kind.__name__: kind for kind in (Transformer, GPT, BERT, ViT, Captioner, PictureReader, CLIP, SentenceReader)}
"""Every model by the name of its class, as a file of weights names it."""

__all__ = [
    "BERT",
    "CLIP",
    "GPT",
    "MODELS",
    "Captioner",
    "DecoderCache",
    "DecoderLayer",
    "Description",
    "EncoderLayer",
    "FeedForward",
    "MixtureFeedForward",
    "Model",
    "PictureReader",
    "SentenceReader",
    "SkipConnection",
    "Transformer",
    "ViT",
    "Weights",
    "patches",
    "recomposed",
]
