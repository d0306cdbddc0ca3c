"""A figure that a reader can watch as it comes about, step by step.

A drawing says by `set_gid` what belongs to which step: what is named "from-3" stands from step 3 on, "only-3" in step
3 alone. The stored figure is the last step, so whatever is in another step alone is drawn with `alpha=UNSEEN` there. A
page shows the last step; steps_script.js puts a button and a slider below it, and exchanges the files of the others.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

UNSEEN = 0.001  # with 0, matplotlib leaves out the fill
PLAY, PAUSE, STEP, CHOOSE = "play", "pause", "step {n} of {m}", "step of {figure}"
PHRASES = (PLAY, PAUSE, STEP, CHOOSE)  # locale/*/LC_MESSAGES/book.po has them
NAMED = re.compile(r'\bid="(?:from|only)-(\d+)"')
PART = re.compile(r"(from|only)-(\d+)")
FADED = re.compile(rf"\bopacity: {re.escape(str(UNSEEN))}(?:;\s*|$)")
NAMESPACES = {"": "http://www.w3.org/2000/svg", "xlink": "http://www.w3.org/1999/xlink"}


def count(svg: str) -> int:
    """How many steps a figure has; 1 where nothing in it names a step."""
    return max((int(found) for found in NAMED.findall(svg)), default=1)


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
            elif named[1] == "only":
                for one in part.iter():
                    if "style" in one.attrib:
                        one.set("style", FADED.sub("", one.get("style", "")))
    return ElementTree.tostring(whole, encoding="unicode")
