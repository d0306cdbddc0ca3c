"""Execute the book's notebooks in place, so that running it twice leaves no difference.

    python -m tools.notebooks.notebooks [--measure] [NOTEBOOK ...]
    python -m tools.notebooks.notebooks --tidy [NOTEBOOK ...]      # after an editor: nothing is executed

Before a notebook runs, the cells that are made are written: how to run it, and its set-up. They hold no address; pages
that have one show and publish them with it (see address.py). After a run, everything that changes from run to run is
dropped: times, ids of widgets, kernel versions.

What is stored is of one run, so that a picture and the number beside it agree. While neither the notebook's code nor
the package nor the pinned versions have changed, a new run that confirms it, each measured number within its tolerance
(see statements.py), leaves it as it is, so that another machine leaves no difference either. A cell tagged `timing`
keeps its output until `--measure` is given. Measure on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError
from nbformat import NotebookNode
from tqdm import tqdm

from mhalib._write import write_whole
from tools import PACKAGES, ROOT
from tools.notebooks import statements
from tools.notebooks.address import SITE_BRANCH, Address

CHAPTERS = ROOT / "chapters"
CELL_TIMEOUT = 300  # seconds
PACKAGE_FILES = (".py", ".md", ".js", ".css", ".json", ".npz", ".txt", ".safetensors")
FRONT_PAGE = "front-page"
FRONT_PICTURES = {  # README shows a figure of each part
    "14_small_gpt": CHAPTERS / "_static/copying_heads.svg",
    "18_what_heads_look_at": CHAPTERS / "_static/encoder_heads.svg",
}
PICTURES = ("image/svg+xml", "image/png")  # as mhalib.style stores a figure; the second where the first is too long
# What a cell may carry: handbooks/chapter.md says what each is for.
CELL_METADATA = ("measured", "mystnb", "nbgrader", "numbers", "predict", "results", "tabs", "tags", "tried")
LAUNCHED = "notebooks"  # the folder of the built site with what services open
OTHER_PAGE = re.compile(r"\]\((?:\.\./chapters/)?([\w-]+)\.(?:ipynb|md)(#[\w-]+)?\)")
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}

SETUP = """\
{install}
import mhalib

mhalib.style.use()  # how the figures of this book look"""
HERE = '# %pip install -q -e "..[widgets]"{more}  # if one is missing'  # in the book's folder nothing is
THERE = '%pip install -q "{package}"{more}'  # what a host has, torch and numpy above all, stays as it is

OWN_NEEDS = {  # what one chapter needs beyond the package and its instruments, as pip calls it
    "09_shape_checks": ("einops",),
    **dict.fromkeys(("16_seeing_with_heads", "17_two_modalities"), ("scikit-learn",)),
    "23_heads_that_talk": ("tensorly",),
    "27_bake_off": ("scikit-learn", "scipy"),
    "34_four_frameworks": ("jax", "flax", "keras"),
    "35_open_a_model_you_know": ("tokenizers", "transformers"),
}

LAUNCH = (
    "[![Open in Colab: run this page on a computer of Google's]({static}/open_in_colab.svg)]({colab}) "
    "Or run it in [Binder]({binder}) or [SageMaker Studio Lab]({studio_lab}). "
    "The first cell installs the book's package where it is missing."
)
LAUNCH_HERE = "Run this page yourself: `make lab`, in the folder of the book, opens it in JupyterLab."

EXERCISE_LAUNCH = (
    "### In code\n\n"
    "A checker compares what you write with the right answer, on inputs that it draws, and tells you which mistake you "
    "made. Work in [a notebook of these exercises alone]({notebook}){colab}. Here, hints and "
    "solutions are behind a click."
)


def here(path: Path) -> str:
    """The name of a file of the repository, as an error says it."""
    return path.relative_to(ROOT).as_posix() if ROOT in path.parents else path.name


def given(paths: Sequence[Path]) -> list[Path]:
    """The notebooks that somebody named, each with its whole path.

    Raises:
        ValueError: one is not a notebook of the repository.
    """
    found = [path.resolve() for path in paths]
    for path in found:
        if path.suffix != ".ipynb" or not path.is_file() or ROOT not in path.parents:
            raise ValueError(f"{here(path)} is no notebook of this repository: name one of chapters/*.ipynb")
    return found


def launch_links(path: Path, address: Address) -> dict[str, str]:
    """Where the notebook at `path` can be run, by service. Binder has the package; the others take the notebook from
    the built site, whose copy says where the package is."""
    notebook = path.relative_to(ROOT).as_posix()
    copy = f"{address.slug}/blob/{SITE_BRANCH}/{address.version}/{LAUNCHED}/{notebook}"
    return {
        "colab": f"https://colab.research.google.com/github/{copy}",
        "binder": f"https://mybinder.org/v2/gh/{address.slug}/{address.revision}?urlpath=lab/tree/{notebook}",
        "studio_lab": f"https://studiolab.sagemaker.aws/import/github/{copy}",
    }


def generated_cells(path: Path, address: Address | None = None) -> dict[str, str]:
    """The cells that are written, not edited: tag -> source; as they are stored, or as pages with an address have
    them."""
    more = "".join(f" {name}" for name in OWN_NEEDS.get(path.stem, ()))
    install = THERE.format(package=address.package, more=more) if address else HERE.format(more=more)
    static = "_static" if path.parent == CHAPTERS else "../chapters/_static"
    launch = LAUNCH.format(static=static, **launch_links(path, address)) if address else LAUNCH_HERE
    made = {"launch": launch, "set-up": SETUP.format(install=install)}
    own = ROOT / "exercises" / path.name
    if path.parent == CHAPTERS and own.exists():
        colab = f", or [in Colab]({launch_links(own, address)['colab']})" if address else ""
        made["exercise-launch"] = EXERCISE_LAUNCH.format(notebook=f"../exercises/{path.name}", colab=colab)
    return made


def with_generated(path: Path, notebook: NotebookNode, address: Address | None = None) -> NotebookNode:
    """`notebook`, read from `path`, with the cells that are written; an error names the notebook."""
    for tag, source in generated_cells(path, address).items():
        try:
            cell_with_tag(notebook, tag).source = source
        except ValueError as error:
            raise ValueError(f"{here(path)}: {error}") from error
    return notebook


def launched(path: Path, address: Address) -> NotebookNode:
    """The notebook at `path` as a service opens it: without outputs, and its links lead to the pages of its version."""
    notebook = with_generated(path, nbformat.read(path, as_version=4), address)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        else:
            cell.source = OTHER_PAGE.sub(rf"]({address.pages}chapters/\g<1>.html\g<2>)", cell.source)
    return notebook


def cell_with_tag(notebook: NotebookNode, tag: str) -> NotebookNode:
    """The one cell that carries `tag`; `ValueError` if there is none or more than one."""
    found = [cell for cell in notebook.cells if tag in cell.metadata.get("tags", [])]
    if len(found) != 1:
        raise ValueError(f"{len(found)} cells carry the tag {tag!r}: give it to one cell")
    return found[0]


def normalise(notebook: NotebookNode) -> NotebookNode:
    """Drop what changes from run to run, and what an editor leaves: times, versions, ids and numbers of cells, metadata
    of its own, and widgets' state and ids.

    A widget of ours stores its numbers and its state in text/html, from which a page without a kernel draws it.
    """
    kept = {name: notebook.metadata[name] for name in ("mhalib",) if name in notebook.metadata}
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": KERNEL, "language_info": {"name": "python", "pygments_lexer": "ipython3"}, **kept}
    )
    for number, cell in enumerate(notebook.cells):
        cell.metadata = nbformat.from_dict({key: cell.metadata[key] for key in CELL_METADATA if key in cell.metadata})
        cell.id = f"cell-{number:03d}"
    for count, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), start=1):
        if cell.execution_count is not None:  # a student's notebook was never run
            cell.execution_count = count
        for output in cell.outputs:
            output.get("data", {}).pop(WIDGET_VIEW, None)
            if "execution_count" in output:
                output.execution_count = count
    text = json.dumps(notebook, ensure_ascii=False)
    text = re.sub(r" at 0x[0-9a-f]{6,}", " at 0x0", text)
    return nbformat.from_dict(json.loads(text))


def tidied(path: Path) -> NotebookNode:
    """The notebook at `path` without what an editor left in it; nothing is executed."""
    return normalise(with_generated(path, nbformat.read(path, as_version=4)))


def execute(path: Path, measure: bool = False) -> NotebookNode:
    """Run the notebook at `path` in a fresh kernel, in its own folder, and return it with the outputs to store."""
    notebook = with_generated(path, nbformat.read(path, as_version=4))
    stored = copy.deepcopy(notebook)
    with tqdm(total=len(notebook.cells), desc=path.stem, unit="cell", mininterval=1.0) as progress:
        client = NotebookClient(
            notebook,
            timeout=CELL_TIMEOUT,
            kernel_name="python3",
            record_timing=False,
            coalesce_streams=True,
            extra_arguments=["--IPKernelApp.log_level=ERROR"],
            resources={"metadata": {"path": str(path.parent)}},
            on_cell_complete=lambda **_: progress.update(),
        )
        try:
            client.execute()
        except (CellExecutionError, CellTimeoutError) as error:
            raise ValueError(f"{here(path)} is not stored, for this cell of it failed: mend it\n{error}") from error
    settle(path, stored, notebook, measure)
    return normalise(notebook)


def code_key(path: Path, notebook: NotebookNode) -> str:
    """A hash of all that outputs are made from: the code, the package with this page's results, the pinned versions.

    The set-up cell, which installs the package elsewhere, does nothing here: it is left out.
    """
    made_from = hashlib.sha256()
    for cell in notebook.cells:
        if cell.cell_type == "code" and "set-up" not in cell.metadata.get("tags", []):
            made_from.update(cell.source.encode())
    package = [file for name in PACKAGES for file in (ROOT / name).rglob("*") if file.suffix in PACKAGE_FILES]
    results = [file for file in package if file.parent.name == "results" and file.suffix == ".json"]
    files = {*package} - {*results} | {file for file in results if file.stem == path.stem}
    for file in [*sorted(files), ROOT / "requirements.txt"]:
        made_from.update(file.read_bytes() if file.exists() else b"")
    return made_from.hexdigest()[:16]


def settle(path: Path, stored: NotebookNode, notebook: NotebookNode, measure: bool = False) -> None:
    """Give the newly run `notebook` back what is `stored`: all, if the same code confirms it; else timings alone."""
    key = code_key(path, notebook)
    confirms = stored.metadata.get("mhalib", {}).get("code") == key
    pairs = [pair for pair in zip(stored.cells, notebook.cells, strict=True) if pair[1].cell_type == "code"]
    for old, new in pairs:
        try:
            confirms &= not statements.unconfirmed(new.metadata, old.outputs, new.outputs)
        except ValueError as error:
            raise ValueError(f"{here(path)}, {new.id}: {error}") from error
    for old, new in pairs:
        is_timing = statements.TIMING in new.metadata.get("tags", [])
        if (old.outputs and not measure) if is_timing else confirms:
            new.outputs = old.outputs
    notebook.metadata["mhalib"] = {**notebook.metadata.get("mhalib", {}), "code": key}


def pictures(outputs: Sequence[NotebookNode]) -> Iterator[tuple[NotebookNode, str]]:
    """The data of each output that holds a figure, and the kind of picture that it is."""
    for output in outputs:
        for kind in PICTURES:
            if kind in output.get("data", {}):
                yield output.data, kind


def front_picture(notebook: NotebookNode) -> str | None:
    """The figure of the cell tagged `front-page`, which README shows too; `None` if there is no such cell."""
    if not any(FRONT_PAGE in cell.metadata.get("tags", []) for cell in notebook.cells):
        return None
    drawn = [data[kind] for data, kind in pictures(cell_with_tag(notebook, FRONT_PAGE).outputs) if kind == PICTURES[0]]
    if not drawn:
        raise ValueError(f"the cell with the tag {FRONT_PAGE!r} draws no figure: give the tag to one that does")
    return str(drawn[0])


def store_front_picture(path: Path, notebook: NotebookNode) -> None:
    """Give the start page the notebook's figure, if a cell of it is tagged for that."""
    try:
        picture = front_picture(notebook)
    except ValueError as error:
        raise ValueError(f"{here(path)}: {error}") from error
    if picture is None:
        return
    if path.stem not in FRONT_PICTURES:
        raise ValueError(
            f"{here(path)} has the tag {FRONT_PAGE!r}: add a line to FRONT_PICTURES in tools/notebooks/notebooks.py"
        )
    write_whole(FRONT_PICTURES[path.stem], picture)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="store what measuring cells print, too")
    parser.add_argument("--tidy", action="store_true", help="drop what an editor left, and execute nothing")
    parser.add_argument("notebooks", nargs="*", type=Path, help="all chapters, if none is named")
    arguments = parser.parse_args()
    os.environ["PYTHONHASHSEED"] = "0"
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as in tests; two beside another program take eight times as long
    try:
        for path in given(arguments.notebooks) or sorted(CHAPTERS.glob("*.ipynb")):
            start = time.perf_counter()
            notebook = tidied(path) if arguments.tidy else execute(path, arguments.measure)
            text = nbformat.writes(notebook).rstrip("\n") + "\n"
            if arguments.tidy and text == path.read_text(encoding="utf-8"):
                continue
            write_whole(path, text)
            store_front_picture(path, notebook)
            print(f"{here(path)}: {time.perf_counter() - start:.0f} s, {path.stat().st_size / 1000:.0f} kB")
    except ValueError as error:
        parser.exit(2, f"{error}\n")


if __name__ == "__main__":
    main()
