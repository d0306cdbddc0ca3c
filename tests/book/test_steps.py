"""A figure in steps: what is there at which step, the files of the steps, and the button and slider on a page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import pytest
from docutils import nodes
from playwright.sync_api import Browser, Page, expect
from test_figure_files import captioned

from mhalib import layer_drawing, style
from tools import ROOT
from tools.pages import figures, steps

SCRIPT = ROOT / "tools/pages/steps_script.js"


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    plt.close("all")


def drawn() -> str:
    """Words that come one after another, a sum that is another at each step, and a bar with each."""
    with plt.rc_context(style.SETTINGS):
        figure, ax = plt.subplots(figsize=(3, 2))
        ax.text(0, 0, "always")
        for step in (1, 2, 3):
            ax.text(0.1, 0.2 * step, f"word {step}", gid=f"from-{step}")
            ax.text(0.5, 0.2 * step, f"sum {step}", gid=f"only-{step}", alpha=1 if step == 3 else steps.UNSEEN)
            ax.bar(step, step, color="C2", gid=f"only-{step}", alpha=1 if step == 3 else steps.UNSEEN)
        return style.as_svg(figure)


def seen(svg: str) -> set[str]:
    """The words that can be seen, and "bar" for a green bar."""
    found = set()
    for one in ElementTree.fromstring(svg).iter():
        said = one.get("style", "")
        if "opacity: 0.001" in said:
            continue
        if one.tag.endswith("text"):
            found.add("".join(one.itertext()))
        elif style.HEADS[2] in said:
            found.add("bar")
    return {text for text in found if text == "bar" or re.match("[a-z]", text)}


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_step_has_what_came_before_and_what_is_its_own(step: int) -> None:
    svg = drawn()
    assert steps.count(svg) == 3
    words = {f"word {k}" for k in range(1, step + 1)}
    assert seen(steps.at_step(svg, step)) == {"always", "bar", f"sum {step}", *words}


def test_the_stored_figure_is_the_last_step_and_a_figure_without_names_has_one() -> None:
    assert seen(drawn()) == seen(steps.at_step(drawn(), 3))
    assert steps.count(drawn().replace("from-", "in-").replace("only-", "at-")) == 1


def test_a_figure_loses_something_of_its_first_step_if_it_stands_there_alone() -> None:
    first = [steps.at_step(svg, 1) for svg in (drawn(), named(), drawn().replace('id="only-1"', 'id="from-1"'))]
    assert [steps.loses(svg) for svg in first] == [True, False, False]


def test_the_layer_grows_from_its_words_to_its_output() -> None:
    whole = style.as_svg(layer_drawing(in_steps=True).figure)
    grown = [seen(steps.at_step(whole, step)) for step in range(1, 7)]
    first = {text for text in grown[0] if text != "bar"}
    assert first == {"words, as lists of numbers", "three matrices make", "queries, keys, values"}
    assert all(before < after for before, after in pairwise(grown))
    assert {"a last matrix mixes", "the heads"} <= grown[5] - grown[4]
    assert steps.count(style.as_svg(layer_drawing().figure)) == 1


def test_a_page_has_the_files_of_all_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_figure_files.drawn", drawn)
    app, page = captioned(tmp_path, "chapters/07_maps")
    app.config = SimpleNamespace(language="en")
    figures.offer_steps(app, page, "chapters/07_maps")
    places = [raw.astext() for raw in page.findall(nodes.raw) if "figure-steps" in raw.astext()]
    assert len(places) == 2
    assert 'data-files="../_downloads/figures/figure-7-1" data-steps="3" data-opens="1"' in places[0]
    for name, made in ("light", figures.lit), ("dark", figures.darkened):
        for step in (1, 2):
            file = tmp_path / f"out/_downloads/figures/figure-7-1-{name}-{step}.svg"
            assert file.read_text(encoding="utf-8") == made(steps.at_step(drawn(), step))
        assert "0.001" not in (tmp_path / f"drawn/a-{name}.svg").read_text(encoding="utf-8")


def test_a_figure_without_steps_has_no_place_for_them(tmp_path: Path) -> None:
    app, page = captioned(tmp_path, "chapters/07_maps")
    app.config = SimpleNamespace(language="en")
    figures.offer_steps(app, page, "chapters/07_maps")
    assert not [raw for raw in page.findall(nodes.raw) if "figure-steps" in raw.astext()]


def named() -> str:
    """A figure in three steps, each with a name."""
    with plt.rc_context(style.SETTINGS):
        figure, ax = plt.subplots(figsize=(3, 2))
        for step, scale in enumerate((0.29, 0.5, 1), start=1):
            ax.bar(step, step, color="C2", gid=f"only-{step}")
            ax.text(0, 3, f"full colour: {scale}", gid=f"name-{step}", alpha=1 if step == 3 else steps.UNSEEN)
        return style.as_svg(figure)


def test_a_step_with_a_name_is_told_by_it_in_the_words_of_the_language(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert seen(steps.at_step(named(), 1)) == {"bar", "full colour: 0.29"}
    assert steps.name_of(steps.at_step(drawn(), 2), str) == ""
    assert steps.name_of(steps.at_step(named(), 2), {steps.SHADE: "{n} au plus"}.__getitem__) == "0.5 au plus"
    monkeypatch.setattr("test_figure_files.drawn", named)
    app, page = captioned(tmp_path, "chapters/07_maps")
    app.config = SimpleNamespace(language="en")
    figures.offer_steps(app, page, "chapters/07_maps")
    place = next(raw.astext() for raw in page.findall(nodes.raw) if "figure-steps" in raw.astext())
    assert 'data-names="full colour: 0.29\nfull colour: 0.5\nfull colour: 1"' in place
    assert 'data-opens="3"' in place


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Page:
    """A page of one figure in three steps, woken by the script."""
    for name in ("light", "dark"):
        (tmp_path / f"whole-{name}.svg").write_text(steps.at_step(drawn(), 3), encoding="utf-8")
        for step in (1, 2):
            (tmp_path / f"figure-7-1-{name}-{step}.svg").write_text(steps.at_step(drawn(), step), encoding="utf-8")
    told = 'data-files="figure-7-1" data-steps="3" data-play="play" data-pause="pause" data-step="step {n} of {m}"'
    images = "".join(f'<img class="only-{name}" src="whole-{name}.svg">' for name in ("light", "dark"))
    text = f'<div>{images}<div class="figure-steps" {told} data-choose="step of Figure 7.1"></div></div>'
    (tmp_path / "page.html").write_text(f"<!doctype html><title>steps</title>{text}", encoding="utf-8")
    opened = browser.new_page()
    opened.clock.install()
    opened.goto((tmp_path / "page.html").as_uri())
    opened.add_script_tag(path=SCRIPT)
    return opened


def shown(page: Page) -> list[str]:
    return [str(image.get_attribute("src")).rpartition("/")[2] for image in page.locator("img").all()]


def test_the_page_begins_with_the_last_step_and_the_slider_chooses(page: Page) -> None:
    assert shown(page) == ["whole-light.svg", "whole-dark.svg"]
    slider = page.get_by_role("slider", name="step of Figure 7.1")
    expect(slider).to_have_attribute("aria-valuetext", "step 3 of 3")
    slider.press("ArrowLeft")
    assert shown(page) == ["figure-7-1-light-2.svg", "figure-7-1-dark-2.svg"]
    page.wait_for_function("[...document.images].every((one) => one.complete && one.naturalWidth > 0)")
    slider.press("Home")
    assert shown(page)[0] == "figure-7-1-light-1.svg"
    expect(page.locator("output")).to_have_text("step 1 of 3")
    slider.press("End")
    assert shown(page)[0] == "whole-light.svg"


def test_the_slider_tells_the_names_of_the_steps(browser: Browser) -> None:
    page = browser.new_page()
    told = 'data-files="f" data-steps="2" data-step="step {n} of {m}" data-names="full colour: 0.29&#10;full colour: 1"'
    page.set_content(f'<div><img src="f.svg"><div class="figure-steps" {told} data-choose="step"></div></div>')
    page.add_script_tag(path=SCRIPT)
    slider = page.get_by_role("slider")
    expect(slider).to_have_attribute("aria-valuetext", "full colour: 1")
    slider.press("Home")
    expect(slider).to_have_attribute("aria-valuetext", "full colour: 0.29")
    expect(page.locator("output")).to_have_text("full colour: 0.29")


def test_a_figure_that_loses_something_of_its_first_step_opens_there(browser: Browser) -> None:
    page = browser.new_page()
    told = 'data-files="f" data-steps="2" data-opens="1" data-step="step {n} of {m}" data-choose="step"'
    page.set_content(f'<div><img src="f.svg" class="only-light"><div class="figure-steps" {told}></div></div>')
    page.add_script_tag(path=SCRIPT)
    expect(page.locator("output")).to_have_text("step 1 of 2")
    assert shown(page) == ["f-light-1.svg"]


def test_play_goes_from_the_first_step_to_the_last_and_stops_there(page: Page) -> None:
    page.get_by_role("button", name="play").click()
    assert shown(page)[0] == "figure-7-1-light-1.svg"
    page.clock.run_for(1200)
    assert shown(page)[0] == "figure-7-1-light-2.svg"
    page.get_by_role("button", name="pause").click()
    page.clock.run_for(5000)
    assert shown(page)[0] == "figure-7-1-light-2.svg"
    page.get_by_role("button", name="play").click()
    page.clock.run_for(1200)
    assert shown(page)[0] == "whole-light.svg"
    expect(page.get_by_role("button")).to_have_text("play")
    page.clock.run_for(5000)
    assert shown(page)[0] == "whole-light.svg"


WITH_STEPS = ("01_weighted_average", "05_mathematics", "06_the_whole_layer", "12_all_targets_at_once")


@pytest.mark.parametrize("name", WITH_STEPS)
def test_the_book_has_the_files_of_its_steps(browser: Browser, site: str, name: str) -> None:
    page = browser.new_page(color_scheme="dark")
    page.goto(f"{site}/chapters/{name}.html")
    figure = page.locator("figure", has=page.locator(".figure-steps"))
    figure.get_by_role("slider").press("Home")
    picture = figure.locator("img.only-dark")
    expect(picture).to_have_attribute("src", re.compile(r"-dark-1\.svg$"))
    page.wait_for_function("one => one.complete && one.naturalWidth", arg=picture.element_handle())
    expect(figure.locator("figcaption")).to_contain_text(re.compile("[Pp]ress play"))
    page.close()
