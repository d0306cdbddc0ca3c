"""A live model at moments of its training: the slider in Chromium, and the same model in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page

from mhalib import moments
from mhalib.data import repeats
from mhalib.evaluation import next_token_accuracy
from mhalib.widgets import LiveModel, live_names, weights_script

LIST = "kwcapkwcapkwcap"


@pytest.fixture
def opened(show: Callable[..., Any]) -> Callable[[LiveModel], Page]:
    """The page of a live model, once all is counted."""

    def open_page(live: LiveModel) -> Page:
        page: Page = show(live, width=390).page
        page.wait_for_selector("[data-settled]")
        return page

    return open_page


def said(page: Page) -> str:
    """The symbols that the model expects, one after each that it reads."""
    page.wait_for_selector("[data-settled]")
    titles = page.locator('[title*="it expects"]').evaluate_all("found => found.map((one) => one.title)")
    return "".join(title[-2] for title in titles)


@pytest.mark.instrument("mhalib/widgets/live_", "mhalib/live/", "mhalib/weights/", "mhalib/moments.py")
def test_the_slider_goes_through_the_training_and_the_page_says_what_python_says(
    opened: Callable[[LiveModel], Page],
) -> None:
    live = LiveModel("small_gpt", LIST)
    page = opened(live)
    slider = page.get_by_label("moment of the training")
    assert slider.input_value() == str(len(moments.load("repeater")) - 1)
    heard = {}
    for moment in (15, 8, 5, 0):
        slider.fill(str(moment))
        live.moment = moment
        heard[moment] = said(page)
        assert heard[moment] == "".join(live.output())
    assert heard[15][5:14] == LIST[6:15]
    assert len(set(heard.values())) == 4
    assert "after 0 steps of training" in str(slider.get_attribute("aria-valuetext"))


@pytest.mark.instrument("mhalib/widgets/live_", "mhalib/live/", "mhalib/weights/", "mhalib/moments.py")
def test_what_is_not_learned_yet_is_marked_beside_what_will_be(opened: Callable[[LiveModel], Page]) -> None:
    live = LiveModel("small_gpt", LIST, moment=0)
    page = opened(live)
    right = sum(a == b for a, b in zip(live.output()[5:14], LIST[6:], strict=True))
    assert f"{right} of 9 as trained" in page.inner_text(".mhalib-live-model")


@pytest.mark.instrument("mhalib/widgets/live_", "mhalib/live/", "mhalib/weights/", "mhalib/moments.py")
def test_heads_are_off_at_an_early_moment_as_in_python(opened: Callable[[LiveModel], Page]) -> None:
    deeds = {f"decoder self 0 {head}": {"off": True} for head in (0, 1)}
    live = LiveModel("small_gpt", LIST, moment=11, deeds=deeds)
    assert said(opened(live)) == "".join(live.output()) != "".join(LiveModel("small_gpt", LIST, moment=11).output())


def test_the_curve_is_what_its_moments_get_right() -> None:
    unseen = repeats(200, seed=38)
    facts = LiveModel("small_gpt").facts
    for step, share in zip(facts["steps"], facts["right"], strict=True):
        model = moments.load("repeater")[step]
        right = next_token_accuracy(model, unseen.tokens, unseen.is_predictable)  # type: ignore[arg-type]
        assert share == pytest.approx(right, abs=6e-4)


@pytest.mark.parametrize(("name", "moment"), [("small_gpt", 16), ("small_gpt", -1), ("repeater", 1)])
def test_a_moment_that_is_not_there_is_refused(name: str, moment: int) -> None:
    with pytest.raises(ValueError, match=f"moment={moment} must be from 0 to {15 if name == 'small_gpt' else 0}"):
        LiveModel(name, moment=moment)


def test_heads_of_a_growing_model_have_no_average() -> None:
    with pytest.raises(ValueError, match=r"'mean' must be True$"):
        LiveModel("small_gpt", deeds={"decoder self 0 1": {"off": "mean"}})


def test_all_moments_come_in_one_script_below_a_page_s_budget() -> None:
    sizes = {name: len(weights_script(name)) for name in live_names()}
    assert sizes["small_gpt"] < 900_000
    assert max(size for name, size in sizes.items() if name != "small_gpt") < 620_000
