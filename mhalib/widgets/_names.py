"""Names that an instrument shows, and what is given by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._tokens import shown
from .._validate import as_list, require_choice, require_kind, require_text


def different_names(name: str, given: Any, most: int, least: int = 1) -> list[str]:
    """From `least` to `most` names, all different, as they are shown.

    Raises:
        TypeError, ValueError: `given` is no list of strings; they are too few, too many or the same.
    """
    found = as_list(name, given)
    for one in found:
        require_text(f"each of {name}", one)
    found = [shown(one) for one in found]
    if not least <= len(found) <= most or len(set(found)) < len(found):
        count = f"{len(found)}, {len(set(found))} different"
        raise ValueError(f"{name} must be {least} to {most} different names, got {count}")
    return found


def by_name(name: str, given: Any, names: Sequence[str] | None) -> dict[str, Any]:
    """The same by keys as they are shown, each of which must be one of `names`, if there are any.

    Raises:
        TypeError, ValueError: `given` is no mapping, a key no string, or not one of `names`.
    """
    require_kind(name, given, Mapping)
    for key in given:
        require_text(f"each key of {name}", key)
        if names is not None:
            require_choice(f"a key of {name}", shown(key), names)
    return {shown(key): value for key, value in given.items()}
