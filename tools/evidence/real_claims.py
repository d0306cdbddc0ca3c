"""Chapter "Open a model you know", run on SmolLM2: its own cells, up to the test of its second claim.

    python -m tools.evidence.real_claims

What is changed in them, and nothing else: the model's name, 4 lists in place of 16, and 100 random groups of heads in
place of 200, since each is a pass through 135 million weights for each list. mhalib/results/smollm2_opened.json has
what the cells found, with the hash of the weights and of the code: by look ("previous", "first", "self", "induction")
the best head of the lists, its score, an even look, its cost when it is off and the rank of that cost; how many heads
give the first token over half of their weight; what each of 270 heads costs ("single"), and random groups ("groups");
what 1,024 tokens need, in GB.
"""

from __future__ import annotations

import hashlib
from typing import Any

import nbformat

from mhalib import pretrained
from mhalib.pretrained import WHEELS
from tools.evidence import results
from tools.notebooks import notebooks

NAME = "smollm2-135m"
CHAPTER = notebooks.CHAPTERS / "31_open_a_model_you_know.ipynb"
CHANGES = {
    "MODEL = None  #": f"MODEL = {NAME!r}  #",
    "for _ in range(16)]": "for _ in range(4)]",
    ".expand(16, 1, -1, -1)": ".expand(4, 1, -1, -1)",
    "for _ in range(200)]": "for _ in range(100)]",
}
FIRST_SIGN, LAST_SIGN = "import matplotlib", "as_bad = "
LEFT_OUT = ("plt.", "HeadWall(", "import transformers")
LOOKS = ("previous", "self", "first", "induction")


def cells() -> list[str]:
    """The page's code, with its changes, from its imports to the groups of heads; without what draws."""
    told = [cell for cell in nbformat.read(CHAPTER, as_version=4).cells if cell.cell_type == "code"]
    found = [cell.source for cell in told if "remove-cell" not in cell.metadata.get("tags", [])]
    begin, end = (next(n for n, source in enumerate(found) if sign in source) for sign in (FIRST_SIGN, LAST_SIGN))
    kept = [source for source in found[begin : end + 1] if not any(sign in source for sign in LEFT_OUT)]
    text = "\0".join(kept)
    for one, other in CHANGES.items():
        if text.count(one) != 1:
            raise ValueError(f"{one!r} is {text.count(one)} times in the chapter's code, not once")
        text = text.replace(one, other)
    return text.split("\0")


def opened(sources: list[str]) -> dict[str, list[float]]:
    """What the cells found, by name."""
    space: dict[str, Any] = {"__name__": "page"}
    for source in sources:
        exec(compile(source, "<cell>", "exec"), space)
    single = space["single"]
    found: dict[str, list[float]] = {}
    for look in LOOKS:
        scores = space["tested"][look].flatten()
        best = int(scores.argmax())
        even = float(space["scores_of"](space["even"], space["mask"], space["places"][look]))
        rank = int((single >= single[best]).sum())
        found[look] = [*space["claims"][look], float(scores[best]), even, float(single[best]), rank]
    memory = pretrained.memory(NAME, 1024, dtype=space["torch"].bfloat16)
    return found | {
        "over half on first": [int((space["tested"]["first"] > 0.5).sum())],
        "single": single.tolist(),
        "groups": space["groups"].tolist(),
        "induction heads": [space["few"]],
        "together": [space["together"]],
        "memory": [part / 1e9 for part in (memory.weights, memory.cache, memory.maps)],
    }


def main() -> None:
    sources = cells()
    told = {"made_by": "python -m tools.evidence.real_claims", "model": WHEELS[NAME].files[0].sha256}
    told["code"] = hashlib.sha256("\0".join(sources).encode()).hexdigest()[:16]
    results.store("smollm2_opened", [0], opened(sources), 4, **told)


if __name__ == "__main__":
    main()
