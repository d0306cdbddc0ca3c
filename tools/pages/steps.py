"""A figure that a reader can watch as it comes about, step by step.

A drawing says by `set_gid` what belongs to which step: what is named "from-3" stands from step 3 on, "only-3" in step
3 alone. A text "name-3" is "only-3", and what the slider calls the step. The stored figure is the last step, so what is
in another step alone is hidden in it: by what covers it, or drawn with `alpha=UNSEEN`. A page shows the last step, or
the first where something of it goes, so that the last is not the whole; steps_script.js puts a button and a slider
below it, and exchanges the files of the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree import ElementTree

UNSEEN = 0.001  # with 0, matplotlib leaves out the fill
PLAY, PAUSE, STEP, CHOOSE = "play", "pause", "step {n} of {m}", "step of {figure}"
SHADE, DRAW = "full colour: {n}", "draw {n}"  # names that figures give their steps
PHRASES = (PLAY, PAUSE, STEP, CHOOSE, SHADE, DRAW)  # locale/*/LC_MESSAGES/book.po has them
NAMED = re.compile(r'\bid="(?:from|only|name)-(\d+)"')
PART = re.compile(r"(from|only|name)-(\d+)")
NUMBER = re.compile(r"\d+(?:\.\d+)?")
FADED = re.compile(rf"\bopacity: {re.escape(str(UNSEEN))}(?:;\s*|$)")
NAMESPACES = {"": "http://www.w3.org/2000/svg", "xlink": "http://www.w3.org/1999/xlink"}


def count(svg: str) -> int:
    """How many steps a figure has; 1 where nothing in it names a step."""
    return max((int(found) for found in NAMED.findall(svg)), default=1)


def loses(first: str) -> bool:
    """Whether something of a figure's first step is not in the next, so that a page opens it there. Of steps with names
    the text says the last."""
    return 'id="only-1"' in first and 'id="name-1"' not in first


def at_step(svg: str, step: int) -> str:
    """The figure as it is at this step, from 1."""
    for prefix, namespace in NAMESPACES.items():
        ElementTree.register_namespace(prefix, namespace)
    whole = ElementTree.fromstring(svg)
    for parent in list(whole.iter()):
        for part in list(parent):
            named = PART.fullmatch(part.get("id", ""))
            if named is None:
                continue
            stands = step >= int(named[2]) if named[1] == "from" else step == int(named[2])
            if not stands:
                parent.remove(part)
            elif named[1] != "from":
                for one in part.iter():
                    if "style" in one.attrib:
                        one.set("style", FADED.sub("", one.get("style", "")))
    return ElementTree.tostring(whole, encoding="unicode")


def name_of(svg: str, say: Callable[[str], str]) -> str:
    """How a figure at one step names it, in the words of `say`, which knows {n} for a number; "" where it does not."""
    named = next((part for part in ElementTree.fromstring(svg).iter() if part.get("id", "").startswith("name-")), None)
    if named is None:
        return ""
    words = "".join(named.itertext()).strip()
    return say(NUMBER.sub("{n}", words)).replace("{n}", "".join(NUMBER.findall(words)))
