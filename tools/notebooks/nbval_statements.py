"""Plugin of pytest: under --nbval, a cell's outputs are compared by the kind of statement that it makes.

nbval starts the kernel, runs the cells and reports; only its comparison is replaced. See tools/notebooks/statements.py.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from nbval.plugin import IPyNbCell, IPyNbFile

from tools.notebooks import statements


class Cell(IPyNbCell):
    """A cell whose measured numbers are held within their tolerance; `used` is how much of it they took."""

    used: tuple[float, str] = (0.0, "")

    def compare_outputs(
        self, test: Sequence[dict[str, Any]], ref: Sequence[dict[str, Any]], skip_compare: object = None
    ) -> bool:
        self.used = statements.used(self.cell.metadata, ref, test)
        self.comparison_traceback = statements.unconfirmed(self.cell.metadata, ref, test)
        return not self.comparison_traceback


class Notebook(IPyNbFile):
    """A notebook of such cells."""

    def setup(self) -> None:
        """Start the kernel. One that dies before its first answer is started anew, twice at most: it is told its ports
        before it binds them, and meanwhile the kernel of another process may have taken one."""
        for _ in range(2):
            try:
                super().setup()
            except RuntimeError as error:
                if "died" not in str(error):
                    raise
            else:
                return
        super().setup()

    def collect(self) -> Iterator[Cell]:
        for cell in super().collect():
            yield Cell.from_parent(self, name=cell.name, cell_num=cell.cell_num, cell=cell.cell, options=cell.options)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    found = yield
    return [Notebook.from_parent(parent, path=each.path) if type(each) is IPyNbFile else each for each in found]
