"""The tabs of chapter 34: their code is the library's, prints what the page shows, and they can be used."""

from __future__ import annotations

import ast
import contextlib
import io
import re
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
import torch
from jaxtyping import TypeCheckError
from playwright.sync_api import Browser, Page

import mhalib
from tools.evidence import tabs
from tools.pages.ways import ALL_OPEN

NOTEBOOK = nbformat.read(tabs.PAGE, as_version=4)
TABS = tabs.tabs_of(NOTEBOOK)
HERE = [key for key in tabs.FRAMEWORKS if key not in tabs.ELSEWHERE]
SETS = range(3)


def bare(function: ast.FunctionDef) -> str:
    """A function without its docstring and types."""
    function.returns = None
    for argument in (*function.args.args, *function.args.kwonlyargs):
        argument.annotation = None
    body = [one for one in function.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    function.body = [
        ast.Assign([one.target], one.value, lineno=0) if isinstance(one, ast.AnnAssign) and one.value else one
        for one in body
    ]
    return ast.unparse(ast.fix_missing_locations(function))


def functions(source: str) -> dict[str, str]:
    """Name -> code, of all functions and methods; the last of those that have one name."""
    return {node.name: bare(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}


def library(key: str) -> dict[str, str]:
    """The functions of the framework's module; `forward` of MXNet is that of the layer as the page has it."""
    tree = ast.parse(tabs.module_source(key))
    tree.body = [node for node in tree.body if getattr(node, "name", "") != "HybridMultiHeadAttention"]
    return functions(ast.unparse(tree))


def executed(key: str, folder: Path, upto: int = len(SETS)) -> tuple[dict[str, Any], list[str]]:
    """All tabs of a framework, run in this process: what they define, and what each prints."""
    inputs, space, texts = folder / "inputs.npz", {"__name__": "tabs"}, []
    tabs.write_inputs(inputs)
    with np.printoptions(), torch.no_grad():  # the tabs change both
        for code in tabs.preambles(key, inputs):
            exec(code, space)
        for tab in tabs.of_key(key, TABS)[:upto]:
            with contextlib.redirect_stdout(io.StringIO()) as text:
                exec(tab.code, space)
            texts.append(text.getvalue().rstrip())
    return space, texts


def test_each_set_has_every_framework_and_follows_the_others() -> None:
    text = "\n".join(cell.source for cell in tabs.cells_with_tabs(NOTEBOOK))
    assert text.count("::::{tab-set}\n:sync-group: framework\n") == text.count("{tab-set}") == len(SETS)
    for number in SETS:
        keys = [tab.key for tab in TABS if tab.number == number]
        assert keys == [key for key in tabs.FRAMEWORKS if key != "einops" or number == 0]


@pytest.mark.parametrize("tab", [tab for tab in TABS if tab.key not in tabs.OWN_IMPORTS], ids=lambda tab: tab[:2])
def test_a_tab_shows_the_functions_of_the_library(tab: tabs.Tab) -> None:
    shown = functions(tab.code)
    assert shown
    assert shown == {name: library(tab.key)[name] for name in shown}


@pytest.mark.parametrize("key", HERE)
def test_a_tab_prints_what_the_page_shows(key: str, tmp_path: Path) -> None:
    for tab, text in zip(tabs.of_key(key, TABS), executed(key, tmp_path)[1], strict=True):
        assert tab.output
        assert not tabs.stale(tab, text)


@pytest.mark.parametrize("key", tabs.ELSEWHERE)
def test_what_the_page_shows_of_other_environments_was_printed_by_this_code(key: str) -> None:
    stored = tabs.cells_with_tabs(NOTEBOOK)[0].metadata[tabs.CODES][key]
    assert stored == tabs.code_key(key, TABS), f"{key}'s tabs have changed since they ran: make frameworks STORE=1"


def floats(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+\.\d*", text)]


@pytest.mark.parametrize("number", SETS)
def test_all_tabs_of_a_set_print_the_same_numbers(number: int) -> None:
    first, *others = (floats(tab.output) for tab in TABS if tab.number == number)
    assert len(first) == (16, 6, 4)[number]
    for other in others:
        np.testing.assert_allclose(other, first, rtol=0, atol=2e-4)


def test_the_layers_print_what_loops_print_on_the_page() -> None:
    (by_loops,) = (
        cell.outputs[0].text for cell in NOTEBOOK.cells if cell.cell_type == "code" and "by_loops[" in cell.source
    )
    for tab in TABS:
        if tab.number == 2:
            np.testing.assert_allclose(floats(tab.output), floats(by_loops), rtol=0, atol=2e-4)
            assert "2, 4, 100" in tab.output


def test_the_trick_in_einops_refuses_other_shapes(tmp_path: Path) -> None:
    space, _ = executed("einops", tmp_path)
    x = torch.randn(2, 5, 12)
    assert torch.equal(space["split_heads"](x, 3), mhalib.split_heads(x, 3))
    with pytest.raises(TypeCheckError, match="B h N d"):
        space["merge_heads"](x)


def test_the_layer_in_torch_is_the_library_s(tmp_path: Path) -> None:
    space, _ = executed("pytorch", tmp_path)
    layer, shown = mhalib.MultiHeadAttention(12, 3), space["MultiHeadAttention"](12, 3)
    shown.load_state_dict(layer.state_dict())
    queries, keys, values = torch.randn(2, 4, 12), torch.randn(2, 7, 12), torch.randn(2, 7, 12)
    mask, lens = torch.rand(2, 3, 4, 7) < 0.6, torch.tensor([5, 0])
    for options in ({}, {"mask": mask}, {"valid_lens": lens}, {"mask": mask, "valid_lens": lens}):
        found = shown(queries, keys, values, **options)
        for ours, one in zip(layer(queries, keys, values, **options), found, strict=True):
            torch.testing.assert_close(one, ours)


def test_another_number_is_stale_and_another_rounding_is_not() -> None:
    tab = tabs.Tab(2, "jax", "", "(2, 4, 100)\n[-0.2969 0.0454]")
    assert not tabs.stale(tab, "(2, 4, 100)\n[-0.2968 0.0454]")
    for text in ("(2, 4, 100)\n[-0.2959 0.0454]", "(2, 4, 101)\n[-0.2969 0.0454]", "(2, 4, 100)\n[0.2969 0.0454]"):
        assert "set 3, jax" in tabs.stale(tab, text)[0]
    assert tabs.stale(tab, "")


def test_outputs_are_written_into_their_own_tabs() -> None:
    notebook = nbformat.from_dict(NOTEBOOK)
    before = [cell.source for cell in notebook.cells]
    tabs.store(notebook, {(tab.number, tab.key): tab.output for tab in TABS})
    assert [cell.source for cell in notebook.cells] == before
    tabs.store(notebook, {(1, "mxnet"): "[42.]"})
    changed = [tab for tab, old in zip(tabs.tabs_of(notebook), TABS, strict=True) if tab != old]
    assert changed == [tabs.Tab(1, "mxnet", next(t.code for t in TABS if t[:2] == (1, "mxnet")), "[42.]")]


def test_the_tool_fails_where_the_page_is_stale_and_stores_only_if_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.ipynb"
    nbformat.write(NOTEBOOK, page)
    monkeypatch.setattr(tabs, "PAGE", page)
    monkeypatch.setattr(tabs, "printed", lambda key, found, inputs: ["[1.]" for _ in tabs.of_key(key, found)])
    before = page.read_bytes()
    with pytest.raises(SystemExit, match=r"does not show what its tabs print(.|\n)*set 1, mxnet"):
        tabs.main(["mxnet"])
    assert page.read_bytes() == before
    tabs.main(["--store", "mxnet"])
    tabs.main(["mxnet"])
    with pytest.raises(SystemExit):
        tabs.main(["mxnte"])
    assert "unknown: mxnte; there are pytorch" in capsys.readouterr().err


@pytest.fixture(scope="module")
def page(browser: Browser, site: str) -> Any:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    shown = context.new_page()
    shown.goto(f"{site}chapters/34_four_frameworks.html{ALL_OPEN}")
    yield shown
    context.close()


def chosen(page: Page) -> list[str]:
    return page.eval_on_selector_all(
        ".sd-tab-set > input:checked + label", "all => all.map((e) => e.textContent.trim())"
    )


def visible(page: Page) -> int:
    return page.eval_on_selector_all(".sd-tab-content", "all => all.filter((e) => e.offsetHeight > 0).length")


def test_one_choice_is_that_of_all_sets_and_is_remembered(page: Page) -> None:
    page.locator(".sd-tab-set").nth(1).get_by_text("MXNet", exact=True).click()
    assert chosen(page) == ["MXNet"] * 3
    page.reload()
    assert chosen(page) == ["MXNet"] * 3
    assert visible(page) == 3


def test_a_tab_is_chosen_by_key_and_its_focus_is_seen(page: Page) -> None:
    page.locator(".sd-tab-set").nth(2).get_by_text("PyTorch", exact=True).click()
    page.keyboard.press("ArrowRight")
    assert chosen(page) == ["JAX"] * 3
    outline = page.evaluate("getComputedStyle(document.activeElement.nextElementSibling).outlineStyle")
    assert outline != "none"


def test_on_paper_all_tabs_are_shown_each_below_its_name(page: Page) -> None:
    page.emulate_media(media="print")
    try:
        assert visible(page) == len(TABS)
        for one in page.locator(".sd-tab-set").all():
            parts = "[...e.querySelectorAll(':scope > label, :scope > .sd-tab-content')]"
            places = one.evaluate(f"e => {parts}.map((x) => x.getBoundingClientRect().top)")
            assert places == sorted(places)
    finally:
        page.emulate_media(media="screen")
