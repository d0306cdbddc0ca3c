"""Real models: their weights in our layers, and the attention maps of one of them, which come with the package."""

from .convert import UNREAD, supported
from .encoders import FAMILIES
from .families import DECODERS, ENCODER_DECODERS
from .files import FILES, INDEX, MINILM, PINS, PREPARATION, Pin
from .load import Pretrained, load
from .maps import ERROR, About, PairReading, Reading, about_maps, load_maps, marked, read_maps, stacked, write_maps
from .memory_estimate import Memory, memory
from .pictures import PICTURES
from .preparation import Preparation
from .sentences import SENTENCES
from .subwords import pieces
from .wheels import CACHE, WHEELS, fetch

__all__ = [
    "CACHE",
    "DECODERS",
    "ENCODER_DECODERS",
    "ERROR",
    "FAMILIES",
    "FILES",
    "INDEX",
    "MINILM",
    "PICTURES",
    "PINS",
    "PREPARATION",
    "SENTENCES",
    "UNREAD",
    "WHEELS",
    "About",
    "Memory",
    "PairReading",
    "Pin",
    "Preparation",
    "Pretrained",
    "Reading",
    "about_maps",
    "fetch",
    "load",
    "load_maps",
    "marked",
    "memory",
    "pieces",
    "read_maps",
    "stacked",
    "supported",
    "write_maps",
]
