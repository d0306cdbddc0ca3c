"""Real encoders: their weights in our layers, and the attention maps of one of them, which come with the package."""

from .load import FILES, MINILM, PINS, Pin, Pretrained, load
from .maps import ERROR, About, Reading, about_maps, load_maps, marked, read_maps, stacked, write_maps
from .sentences import SENTENCES

__all__ = [
    "ERROR",
    "FILES",
    "MINILM",
    "PINS",
    "SENTENCES",
    "About",
    "Pin",
    "Pretrained",
    "Reading",
    "about_maps",
    "load",
    "load_maps",
    "marked",
    "read_maps",
    "stacked",
    "write_maps",
]
