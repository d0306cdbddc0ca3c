"""How the bibliography names its entries: Cordonnier et al. 2020a, as the text cites them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pybtex.plugin import register_plugin
from pybtex.style.formatting.unsrt import Style
from pybtex.style.labels import BaseLabelStyle
from sphinx.application import Sphinx


class AuthorYear(BaseLabelStyle):
    """Last names and year. Two works of the same authors and year have a letter in their `year`: 2020a, 2020b."""

    def format_labels(self, sorted_entries: Iterable[Any]) -> Iterable[str]:
        for entry in sorted_entries:
            names = [" ".join(person.last_names) for person in entry.persons["author"]]
            several = len(names) > 2 or names[-1] == "others"
            who = f"{names[0]} et al." if several else " and ".join(names)
            yield f"{who} {entry.fields['year']}"


class Named(Style):
    """pybtex's plain entries, sorted by author, under these labels."""

    default_sorting_style = "author_year_title"
    default_label_style = AuthorYear


def setup(app: Sphinx) -> dict[str, bool]:
    register_plugin("pybtex.style.formatting", "named", Named)
    app.config.bibtex_default_style = "named"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
