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
SECONDS = {  # of what takes 10 or more when all tests run, on one of two cores; the order is what counts
    "tests/book/test_live_model.py": 250,
    "tests/library/test_grade.py": 145,
    "tests/book/test_predict.py": 140,
    "tests/library/test_checks.py": 95,
    "chapters/24_bake_off.ipynb": 95,
    "chapters/15_two_modalities.ipynb": 90,
    "chapters/14_seeing_with_heads.ipynb": 85,
    "tests/library/test_conformance.py": 80,
    "tests/book/test_reshape_stepper.py": 80,
    "chapters/21_heads_that_talk.ipynb": 75,
    "tests/book/test_roofline.py": 75,
    "chapters/23_heads_composed_anew.ipynb": 70,
    "chapters/11_translator.ipynb": 70,
    "chapters/22_heads_that_are_chosen.ipynb": 65,
    "tests/book/test_head_explorer.py": 65,
    "chapters/18_which_heads_matter.ipynb": 65,
    "tests/book/test_sphinx_book.py": 60,
    "tests/book/test_look_faults.py": 60,
    "chapters/29_many_devices.ipynb": 55,
    "tests/book/test_instruments.py": 55,
    "chapters/27_never_write_the_scores.ipynb": 55,
    "tests/book/test_look_tool.py": 55,
    "tests/library/test_grade_limits.py": 55,
    "tests/book/test_statements.py": 50,
    "tests/library/test_parallel.py": 50,
    "chapters/20_sharing_keys_and_values.ipynb": 45,
    "chapters/10_all_targets_at_once.ipynb": 45,
    "tests/book/test_cost_calculator.py": 45,
    "tests/book/test_ways.py": 45,
    "chapters/17_are_heads_different.ipynb": 45,
    "chapters/16_what_heads_look_at.ipynb": 45,
    "chapters/03_why_more_than_one_head.ipynb": 45,
    "tests/book/test_attention_playground.py": 40,
    "chapters/06_per_head_heatmaps.ipynb": 40,
    "tests/library/test_live_engine.py": 40,
    "tests/library/test_sandboxes.py": 40,
    "chapters/12_small_gpt.ipynb": 40,
    "tests/book/test_look.py": 40,
    "tests/book/test_sentences.py": 35,
    "tests/book/test_rehearse.py": 35,
    "tests/book/test_exercises.py": 35,
    "tests/book/test_head.py": 35,
    "chapters/13_induction_circuit.ipynb": 35,
    "chapters/25_counting.ipynb": 30,
    "tests/book/test_live_lab.py": 30,
    "tests/book/test_live_pages.py": 30,
    "tests/book/test_colab.py": 30,
    "chapters/31_four_frameworks.ipynb": 30,
    "tests/book/test_light.py": 30,
    "tests/book/test_chapter.py": 30,
    "tests/book/test_head_wall.py": 25,
    "tests/book/test_playground_planes.py": 25,
    "chapters/34_what_comes_next.ipynb": 25,
    "tests/library/test_saved_talker.py": 25,
    "tests/library/test_hostile_calls.py": 25,
    "chapters/09_positions.ipynb": 25,
    "tests/book/test_look_formulas.py": 25,
    "chapters/26_token_by_token.ipynb": 25,
    "tests/library/test_checks_relations.py": 25,
    "tests/library/test_frameworks.py": 20,
    "tests/book/test_address.py": 20,
    "tests/book/test_javascript.py": 20,
    "chapters/02_scale_masks_dropout.ipynb": 20,
    "tests/book/test_quick.py": 20,
    "tests/book/test_refusals.py": 20,
    "tests/library/test_plots.py": 20,
    "tests/book/test_figures.py": 20,
    "tests/book/test_notebooks.py": 15,
    "tests/library/test_variants_delta.py": 15,
    "chapters/28_training_that_holds.ipynb": 15,
    "chapters/32_open_a_model_you_know.ipynb": 15,
    "tests/book/test_schedule.py": 15,
    "tests/library/test_widget_live_model.py": 15,
    "tests/book/test_results.py": 15,
    "chapters/04_reshape_trick.ipynb": 15,
    "tests/library/test_style.py": 10,
    "tests/library/test_decoders.py": 10,
    "tests/library/test_devices.py": 10,
    "chapters/08_three_uses.ipynb": 10,
    "chapters/07_shape_checks.ipynb": 10,
    "tests/library/test_grade_a_class.py": 10,
    "tests/library/test_decoding.py": 10,
    "tests/book/test_saved_page.py": 10,
    "tests/library/test_attention.py": 10,
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
