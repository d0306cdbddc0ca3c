"""A notebook of exercises for somebody who has no clone of the book."""

from __future__ import annotations

import json
import re

FIRST = "Run the first cell of code before you begin: it installs what the exercises need."
IN_CLONE = re.compile(r"\[([^]]*)\]\(\.\./chapters/[^)]*\)")  # a link that leads nowhere without one


def handed_out(notebook: str, install: str) -> str:
    """A notebook's text, whose set-up cell begins with the line that installs a wheel, in place of a comment, and whose
    text speaks of no clone.

    Raises:
        ValueError: `install` is neither a wheel nor an address; a name alone would be anybody's package.
    """
    address = "://" in install
    if not (address or install.endswith(".whl")) or any(letter in install for letter in "\"'`$\\\n"):
        raise ValueError(f"--install={install!r} is no wheel and no address of one")
    told = json.loads(notebook)
    for cell in told["cells"]:
        tags, source = cell["metadata"].get("tags", []), "".join(cell["source"])
        if "set-up" in tags:
            first, rest = source.split("\n", 1)
            more = first.partition('"..[widgets]"')[2].partition("  #")[0]
            kind = f"mhalib[widgets] @ {install}" if address else f"{install}[widgets]"
            source = f'%pip install -q "{kind}"{more}\n{rest}'
        elif "launch" in tags:
            source = FIRST
        elif cell["cell_type"] == "markdown":
            source = IN_CLONE.sub(r"\1", source)
        cell["source"] = source.splitlines(keepends=True)
    return json.dumps(told, indent=1, ensure_ascii=False) + "\n"
