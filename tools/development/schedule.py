"""Which worker runs which tests, and when: a plugin of pytest, for `-n 2 --dist loadfile`.

A file stays on one worker, so that what its tests share is made once. Only the pages' tests are dealt out page by page.
What takes longest starts first, so that the workers end together on what is short; xdist's own `loadfile` begins with
the files of most tests, and a chapter of 90 seconds has few.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.scheduler import LoadFileScheduling

PAGES = "tests/book/test_pages.py"
PAGE = re.compile(r"\[(?P<page>.+?)(?:-(?:light|dark)-\d+)?\]$")
A_NOTEBOOK, A_PAGE, A_TEST = 25.0, 5.0, 0.05  # seconds, of what has no line below
SECONDS = {  # of what takes 10 or more, on one of two cores; the order is what counts
    "tests/library/test_grade.py": 125,
    "tests/library/test_live_engine.py": 60,
    "chapters/18_which_heads_matter.ipynb": 90,
    "chapters/15_two_modalities.ipynb": 70,
    "chapters/02_scale_masks_dropout.ipynb": 55,
    "chapters/12_small_gpt.ipynb": 50,
    "chapters/13_induction_circuit.ipynb": 35,
    "tests/library/test_conformance.py": 45,
    "tests/library/test_variants_elsewhere.py": 40,
    "tests/library/test_decoders.py": 30,
    "chapters/22_heads_that_are_chosen.ipynb": 55,
    "chapters/20_sharing_keys_and_values.ipynb": 40,
    "chapters/21_heads_that_talk.ipynb": 40,
    "chapters/23_heads_composed_anew.ipynb": 40,
    "chapters/24_bake_off.ipynb": 60,
    "chapters/26_token_by_token.ipynb": 35,
    "chapters/29_many_devices.ipynb": 60,
    "tests/library/test_parallel.py": 40,
    "tests/library/test_frameworks.py": 30,
    "tests/book/test_tabs.py": 25,
    "chapters/28_training_that_holds.ipynb": 30,
    "tests/book/test_reshape_stepper.py": 40,
    "chapters/17_are_heads_different.ipynb": 35,
    "chapters/03_why_more_than_one_head.ipynb": 35,
    "chapters/14_seeing_with_heads.ipynb": 35,
    "tests/book/test_attention_playground.py": 30,
    "tests/book/test_head_explorer.py": 30,
    "tests/book/test_look.py": 40,
    "tests/book/test_look_faults.py": 40,
    "tests/book/test_look_tool.py": 30,
    "tests/book/test_chapter.py": 30,
    "chapters/11_translator.ipynb": 30,
    "chapters/10_all_targets_at_once.ipynb": 30,
    "chapters/08_three_uses.ipynb": 10,
    "chapters/09_positions.ipynb": 30,
    "tests/book/test_sphinx_book.py": 30,
    "tests/book/test_rehearse.py": 30,
    "tests/book/test_look_formulas.py": 30,
    "tests/book/test_instruments.py": 25,
    "tests/book/test_colab.py": 25,
    "tests/book/test_open_a_model.py": 20,
    "tests/library/test_pretrained.py": 20,
    "tests/book/test_quick.py": 20,
    "tests/library/test_deeds.py": 15,
    "tests/library/test_pretrained_pictures.py": 15,
    "tests/book/test_refusals.py": 15,
    "tests/book/test_live_lab.py": 20,
    "tests/library/test_encoder_decoders.py": 15,
    "tests/library/test_train.py": 20,
    "tests/library/test_grade_at_any_size.py": 20,
    "tests/library/test_checks.py": 20,
    "chapters/04_reshape_trick.ipynb": 20,
    "tests/book/test_statements.py": 15,
    "tests/book/test_cost_calculator.py": 15,
    "tests/book/test_roofline.py": 15,
    "tests/book/test_head_wall.py": 30,
    "tests/book/test_saved_page.py": 20,
    "tests/library/test_widget_head_wall.py": 15,
    "chapters/16_what_heads_look_at.ipynb": 15,
    "tests/library/test_plots.py": 15,
    "chapters/06_per_head_heatmaps.ipynb": 15,
    "tests/library/test_devices.py": 15,
    "tests/library/test_hostile_calls.py": 15,
    "chapters/05_mathematics.ipynb": 15,
    "tests/book/test_results.py": 10,
    "tests/book/test_schedule.py": 10,
    "tests/library/test_decoding.py": 10,
    "tests/library/test_ledger.py": 10,
}


def unit(nodeid: str) -> str:
    """What stays together: the tests of a file, and of the pages' tests those of one page."""
    file, _, test = nodeid.partition("::")
    page = PAGE.search(test) if file == PAGES else None
    return f"{file}::{page['page']}" if page else file


def seconds(name: str, num_tests: int) -> float:
    """About how long a unit takes."""
    if "::" in name:
        return A_PAGE
    return SECONDS.get(name, A_NOTEBOOK if name.endswith(".ipynb") else A_TEST * num_tests)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class LongestFirst(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit(nodeid)

        def _assign_work_unit(self, node: Any) -> None:
            longest = max(self.workqueue, key=lambda name: seconds(name, len(self.workqueue[name])))
            self.workqueue.move_to_end(longest, last=False)
            super()._assign_work_unit(node)

    return LongestFirst(config, log)
