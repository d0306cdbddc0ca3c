"""What a class needs, and a page does not: `checks` names the mistake in an exercise, `grade` grades notebooks."""

from ._language import language

__all__ = ["language"]
