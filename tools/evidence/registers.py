"""Rollout and registers over many trainings: what the last section of "Seeing with heads" says of other seeds.

    OMP_NUM_THREADS=1 python -m tools.evidence.registers --folder RUNS [--seeds 20] [--first 0] [--store]

Runs the chapter's own cells from seeds 0, 1, ..., but only those that the section needs, and writes RUNS/SEED.json;
what is there already is not done again. `--store` makes mhalib/results/registers.json of all that is there.

The analysis, written down before the seeds were run. The page's own training, seed 4, had been seen; after it the
control of the marked quarter was added, and nothing else changed.

1. *Rollout.* For each of the page's 1,000 sheets, each patch's token is left out in turn; its effect is the rise of
   the loss. Scores: the last layer's weights and rollout, means over heads, in the class token's row; a patch's ink;
   whether it is in the marked quarter. A score is as good as its rank correlation with the effect over a sheet's 16
   patches, and over the 15 without the spot, as a mean over sheets (`order`). Beside it what one patch gets: the
   spot's, one of the other three of its quarter, one of the twelve others (`patch`). Rollout is better where it is over
   the last layer.
2. *Registers.* Four more tokens, trained from the same seed for as many steps. Do they change how many are right; what
   weight do the class token and the patches give to the four together, where an even look gives 4/21; how many are
   right when no token sees them; does the answer follow another sheet's registers, put in behind layer 0; how long is
   the longest vector of a patch, in medians of its sheet (`registers`).
"""

from __future__ import annotations

from functools import partial

import nbformat

from tools.evidence import results
from tools.notebooks import notebooks

CHAPTER = notebooks.CHAPTERS / "16_seeing_with_heads.ipynb"
DIGITS = 4
BEFORE = (
    "import matplotlib.pyplot",
    "def sheets(",
    "pictures, answers = spot(unmarked, marked)",
    "some = [",
    "def cut(",
    "vit = ViT(num_classes=10, **sizes)",
    "def fit(model, steps, draw",
    "def share(found)",
    "fit(vit, 1000, marked_sheets)",
    "def class_rows(",
    "def to_spot(",
    "def from_spot(",
    "def with_tokens_of(",
    "donors = torch.zeros_like(marked)",
)
"""Signs of the cells that the section needs; its own follow, from the first on."""
FIRST, LAST = "def rollout(", 'held["longest without"]'
ASKED = {
    "right": "accuracy(vit, pictures, answers)",
    "gathers": "gathers.max()",
    "order": "order_of",
    "patch": "told",
    "registers": "held",
}


def program() -> list[str]:
    """The cells that run, in the chapter's order."""
    told = [cell for cell in nbformat.read(CHAPTER, as_version=4).cells if cell.cell_type == "code"]
    told = [cell for cell in told if "remove-cell" not in cell.metadata.get("tags", [])]
    sources = [cell.source for cell in told if results.READS not in cell.source]
    begin, end = (next(n for n, source in enumerate(sources) if sign in source) for sign in (FIRST, LAST))
    before = [next(source for source in sources if sign in source) for sign in BEFORE]
    return before + sources[begin : end + 1]


def main() -> None:
    arguments = results.run_arguments(__doc__)
    first = arguments.first
    paths = {seed: arguments.folder / f"{seed}.json" for seed in range(first, first + arguments.seeds)}
    if not arguments.store:
        *before, last = program()
        cells = [*((source, {}) for source in before), (last, ASKED)]
        for seed, path in paths.items():
            results.keep(path, partial(results.run, cells, seed))
        return
    runs = results.kept(paths)
    told = {"made_by": "python -m tools.evidence.registers --folder RUNS --store"}
    results.store("registers", runs, results.by_name([*runs.values()]), DIGITS, **told)


if __name__ == "__main__":
    main()
