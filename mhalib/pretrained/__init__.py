"""Real models: their weights in our layers, and the attention maps of one of them, which come with the package."""

from .convert import FAMILIES, UNREAD, supported
from .decoders import DECODERS
from .files import FILES, INDEX, MINILM, PINS, Pin
from .load import Pretrained, load
from .maps import ERROR, About, Reading, about_maps, load_maps, marked, read_maps, stacked, write_maps
from .pieces import pieces
from .room import Memory, memory
from .sentences import SENTENCES

__all__ = [
    "DECODERS",
    "ERROR",
    "FAMILIES",
    "FILES",
    "INDEX",
    "MINILM",
    "PINS",
    "SENTENCES",
    "UNREAD",
    "About",
    "Memory",
    "Pin",
    "Pretrained",
    "Reading",
    "about_maps",
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
