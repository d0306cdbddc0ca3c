"""What chapters 16 and 20 store of other trainings: made by the chapters as they are, a number for each training."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

from mhalib.results import read
from tools.evidence import head_width, registers


@pytest.fixture(scope="module")
def translators() -> ModuleType:
    """Imported by the first test that needs it and not when tests are collected: it makes 27,000 sentences."""
    return importlib.import_module("tools.evidence.translators")


def test_the_cells_of_rollout_and_registers_are_found_once_and_in_order() -> None:
    sources = registers.program()
    assert "SEED = " in sources[0]
    for sign in (*registers.BEFORE, registers.FIRST, registers.LAST):
        assert sum(sign in source for source in sources) >= 1, sign
    assert not any("mhalib.results" in source for source in sources)
    assert next(n for n, source in enumerate(sources) if registers.FIRST in source) == len(registers.BEFORE)


def test_a_training_is_summed_up(translators: ModuleType) -> None:
    run = {"whole": 1.0, "together": [0.0, 0.5, 0.0, 0.0, 0.0, 1.0], "random": [0.4, 0.9, 0.1], "slope": [*range(24)]}
    for way, cost in (("zero", 0.3), ("mean", 0.1), ("resample", 0.2)):
        run |= {f"lost/{way}": [0.0] * 20 + [cost] + [0.0] * 3, f"rise/{way}": [0.0] * 20 + [cost] + [0.0] * 3}
    run |= {"order/one-off": 0.9, "order/importance": 0.5}
    short = translators.summary(run)
    assert short["gap"] == pytest.approx(0.2)
    assert (short["same"], short["costliest/zero"], short["cheap/mean"]) == (23, 20, 23)
    assert (short["singles/5"], short["together/5"]) == (0.1, 1.0)
    assert (short["resample over mean"], short["beaten/one-off"], short["beaten/importance"]) == (1, 1, 1)
    assert (short["random/least"], short["random/most"]) == (0.1, 0.9)


def test_what_is_stored_has_a_number_for_each_training(translators: ModuleType) -> None:
    stored = read("translators")
    own = {name: found for name, found in stored.values.items() if not name.startswith("stored/")}
    assert {len(found) for found in own.values()} == {len(stored.seeds)}
    assert len(stored["stored/random/mean"]) == translators.ORDERS_OF_STORED
    assert len(stored["stored/cross 1.1/zero"]) == translators.DRAWS
    kept = read("registers")
    assert {len(found) for found in kept.values.values()} == {len(kept.seeds)}


def test_the_width_of_a_head_is_asked_of_the_chapter_s_own_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = head_width.program()
    assert [sign in source for sign, source in zip(head_width.SIGNS, sources, strict=True)] == [True] * 5
    longer = head_width.program(24)
    assert "ENTRIES, D = 32, 24, 32" in longer[1]
    assert [*longer[:1], *longer[2:]] == [*sources[:1], *sources[2:]]
    monkeypatch.setattr(head_width, "SIGNS", (*head_width.SIGNS[:1], "class PhoneBook(", *head_width.SIGNS[2:]))
    with pytest.raises(ValueError, match="no longer says"):
        head_width.program(24)


def test_one_rate_is_chosen_for_all_widths() -> None:
    """The best of all pilot runs together, though another is best for the narrowest head."""
    means = {0.005: (0.5, 0.7, 0.7), 0.01: (0.2, 1.0, 1.0), 0.02: (0.3, 0.8, 0.8), 0.04: (0.1, 0.1, 0.1)}
    widths = head_width.PILOT_WIDTHS
    run = {f"{width}/{rate}": one for rate, each in means.items() for width, one in zip(widths, each, strict=True)}
    assert head_width.chosen_rate([run, run]) == 0.01
