"""Shapes, checked where they are claimed, and listed step by step for any attention layer."""

from .check import check_shape
from .ledger import Ledger, Step
from .recorder import ledger

__all__ = ["Ledger", "Step", "check_shape", "ledger"]
