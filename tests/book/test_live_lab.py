"""The instruments in JupyterLab with a kernel: what Python sets is drawn, what the reader chooses Python reads.

One server and one notebook for all tests. Each test sets what it needs and leaves the rest to the others.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
import pytest
import torch
from playwright.sync_api import Browser, Locator, Page, expect

import mhalib
from mhalib.widgets import AttentionPlayground, CostCalculator, ReshapeStepper

pytestmark = [pytest.mark.browser, pytest.mark.instrument("mhalib/widgets/live_", "mhalib/live/")]

PATIENCE = 60  # seconds for what the lab does on the way; it is ready in a few
TOKENS = "the cat sat on the mat".split()
CELLS = {
    "imports": "import torch\nimport ipywidgets\nfrom mhalib import widgets",
    "explorer": (
        "torch.manual_seed(0)\n"
        "layers = [torch.randn(4, 6, 6).softmax(-1) for _ in range(2)]\n"
        f"explorer = widgets.HeadExplorer(layers, queries={TOKENS})\n"
        "explorer"
    ),
    "second view": "explorer",
    "slider": (
        "slider = ipywidgets.IntSlider(0, 0, 3)\n"
        "link = ipywidgets.jslink((slider, 'value'), (explorer, 'head'))\n"
        "slider"
    ),
    "stepper": "stepper = widgets.ReshapeStepper()\nstepper",
    "playground": "playground = widgets.AttentionPlayground()\nplayground",
    "another playground": "widgets.AttentionPlayground()",
    "calculator": "calculator = widgets.CostCalculator()\ncalculator",
    "wall": (
        "from mhalib.widgets import _levels\n"
        "_levels.DETAIL_LETTERS = 0  # no strongest keys are stored: the kernel has to send them\n"
        f"wall = widgets.HeadWall(torch.randn(3, 4, 6, 6).softmax(-1), {TOKENS})\n"
        "wall"
    ),
    "live": "live = widgets.LiveModel('translator', head='encoder self 1 2')\nlive",
    "python": "",
}
INSTRUMENTS = {
    "explorer": "HeadExplorer",
    "stepper": "ReshapeStepper",
    "playground": "AttentionPlayground",
    "calculator": "CostCalculator",
    "wall": "HeadWall",
    "live": "LiveModel",
}
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "notebook-extension/tracker": {"windowingMode": "none"},  # cells out of sight stay in the page
}


@dataclass
class Lab:
    """A notebook in JupyterLab."""

    page: Page
    path: Path
    hosts: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)

    def output(self, cell: str) -> Locator:
        return self.page.locator(".jp-Notebook .jp-Cell").nth(list(CELLS).index(cell)).locator(".jp-OutputArea-output")

    def instrument(self, cell: str) -> Locator:
        return self.output(cell).locator(".mhalib")

    def voice(self, cell: str) -> Locator:
        return self.instrument(cell).locator(".mhalib-voice")

    def python(self, code: str) -> str:
        """Run code in the kernel; what it prints."""
        result = self.page.evaluate(
            """async ([index, code]) => {
                const notebook = jupyterapp.shell.currentWidget.content;
                notebook.activeCellIndex = index;
                notebook.activeCell.model.sharedModel.setSource(code);
                await jupyterapp.commands.execute("notebook:run-cell");
                return notebook.activeCell.model.outputs.toJSON();
            }""",
            [list(CELLS).index("python"), code],
        )
        assert [one["output_type"] for one in result] in ([], ["stream"]), result
        return "".join("".join(one["text"]) for one in result).strip()

    def expect_python(self, code: str, value: str) -> None:
        """A message of the reader's may be on its way to the kernel: ask again until it is there."""
        until = time.monotonic() + 10
        while (found := self.python(f"print({code})")) != value and time.monotonic() < until:
            pass
        assert found == value, code


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A lab of its own: its address with the token, and the folder it shows."""
    home = tmp_path_factory.mktemp("lab")
    work = home / "work"
    work.mkdir()
    for name, values in SETTINGS.items():
        file = home / "settings/@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values), encoding="utf-8")
    folders = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "IPYTHONDIR": "ipython",
    }
    ours = str(Path(mhalib.__file__).parents[1])
    environment = {
        **os.environ,
        **{name: str(home / folder) for name, folder in folders.items()},
        "PYTHONPATH": os.pathsep.join(filter(None, [ours, os.environ.get("PYTHONPATH")])),
        "OMP_NUM_THREADS": "1",
    }
    options = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.root_dir": str(work),
        "ServerApp.open_browser": "False",
        "ServerApp.allow_root": "True",
        "ServerApp.terminals_enabled": "False",
        "IdentityProvider.token": "test",
        "LabApp.expose_app_in_browser": "True",
        "LabApp.news_url": "None",
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
        "LabApp.extension_manager": "readonly",
    }
    command = [sys.executable, "-m", "jupyterlab", *(f"--{name}={value}" for name, value in options.items())]
    log = home / "log.txt"
    with log.open("w") as stream:
        process = subprocess.Popen(command, env=environment, cwd=work, stdout=stream, stderr=stream)
    try:
        yield _address(process, home / "runtime", log), work
    finally:
        process.terminate()  # ends its kernels, too
        try:
            process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:  # a busy machine
            process.kill()
            process.wait()


def _address(process: subprocess.Popen, runtime: Path, log: Path) -> str:
    """Where the server listens, from the file that it writes, once it answers."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        for file in runtime.glob("jpserver-*.json"):
            try:
                url = json.loads(file.read_text(encoding="utf-8"))["url"]
                with urllib.request.urlopen(f"{url}api", timeout=5):
                    return url
            except (OSError, ValueError):  # not yet
                pass
        time.sleep(0.05)
    raise AssertionError(f"JupyterLab did not start:\n{log.read_text(encoding='utf-8')[-3000:]}")


@pytest.fixture(scope="module")
def lab(browser: Browser, server: tuple[str, Path]) -> Iterator[Lab]:
    address, folder = server
    path = folder / "live.ipynb"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS.values()])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, path)
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    live = Lab(page, path)
    page.on("request", lambda request: live.hosts.add(urlsplit(request.url).netloc))
    page.on("pageerror", lambda error: live.errors.append(str(error)))
    page.goto(f"{address}doc/tree/live.ipynb?token=test")
    page.wait_for_function(
        "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'",
        timeout=1000 * PATIENCE,
    )
    page.evaluate("jupyterapp.commands.execute('notebook:run-all-cells')")
    for cell in INSTRUMENTS.keys() - {"live"}:
        expect(live.voice(cell)).not_to_be_empty(timeout=1000 * PATIENCE)
    settled = live.output("live").locator(".mhalib-live-model[data-settled]")  # it speaks of changes alone
    expect(settled).to_be_attached(timeout=1000 * PATIENCE)
    yield live
    context.close()


@pytest.mark.parametrize("cell", [*INSTRUMENTS, "second view"])
def test_the_instrument_alone_is_shown_and_not_its_table(lab: Lab, cell: str) -> None:
    expect(lab.instrument(cell)).to_be_visible()
    assert lab.output(cell).count() == 1
    assert lab.output(cell).locator(".mhalib-instrument").count() == 0
    assert "Error displaying widget" not in lab.output(cell).inner_text()


def test_explorer_follows_python_in_both_views(lab: Lab) -> None:
    lab.python("explorer.layer, explorer.head, explorer.query, explorer.locked = 1, 3, 2, [4, 5]")
    for cell in ("explorer", "second view"):
        expect(lab.voice(cell)).to_contain_text(re.compile(r"^layer 1, head 3: sat → .*; locked: the, mat$"))
        expect(lab.instrument(cell).locator("[data-head='3']")).to_have_attribute("aria-checked", "true")
    lab.python("explorer.off = [0]")
    expect(lab.instrument("second view").get_by_text("mean of 3 of 4")).to_be_visible()
    lab.python("explorer.layer, explorer.head, explorer.query, explorer.locked, explorer.off = 0, 0, 0, [], []")
    expect(lab.voice("explorer")).to_contain_text("layer 0, head 0: the → ")
    assert "locked" not in lab.voice("explorer").inner_text()


def test_python_reads_what_the_reader_chose_in_the_explorer(lab: Lab) -> None:
    first, second = lab.instrument("explorer"), lab.instrument("second view")
    first.locator("[data-head='2']").click()
    first.locator("select[data-name=layer]").select_option("1")
    second.locator("[role=option][data-query='4']").click()
    second.locator("[role=option]:focus").press("ArrowUp")
    second.get_by_label("head 1 counts in the mean").uncheck()
    lab.expect_python("explorer.head, explorer.layer, explorer.locked, explorer.query, explorer.off", "2 1 [4] 3 [1]")
    for view in (first, second):
        expect(view.locator(".mhalib-voice")).to_contain_text(re.compile("layer 1, head 2: on → .*; locked: the$"))
        expect(view.get_by_label("head 1 counts in the mean")).not_to_be_checked()
    second.locator("[role=option]").first.press("Escape")
    lab.expect_python("explorer.locked", "[]")
    lab.python("explorer.off = []; explorer.layer = 0")


def test_keys_of_an_instrument_are_not_shortcuts_of_the_lab(lab: Lab) -> None:
    """There, arrows go to another cell, Enter edits it, b inserts one and m makes it text."""
    lab.python("explorer.query = 1")
    here = lab.instrument("explorer").locator("[role=option][tabindex='0']")
    expect(here).to_have_attribute("data-query", "1")
    here.focus()
    active = lab.page.evaluate("jupyterapp.shell.currentWidget.content.activeCellIndex")
    for key in ("ArrowDown", "ArrowDown", "Enter", "b", "m", "ArrowUp"):
        lab.page.keyboard.press(key)
    expect(lab.instrument("explorer").locator("[role=option]:focus")).to_have_attribute("data-query", "2")
    assert lab.page.evaluate("jupyterapp.shell.currentWidget.content.activeCellIndex") == active
    assert lab.page.locator(".jp-Notebook .jp-Cell").count() == len(CELLS)
    lab.page.keyboard.press("Control+s")
    lab.page.wait_for_function("() => !jupyterapp.shell.currentWidget.context.model.dirty")
    lab.expect_python("explorer.query, explorer.locked", "2 [3]")
    lab.python("explorer.locked = []")


def test_labels_and_groups_of_several_instruments_do_not_meet(lab: Lab) -> None:
    ids = lab.page.locator(".mhalib [id]").evaluate_all("all => all.map((one) => one.id)")
    assert len(set(ids)) == len(ids) > 20
    first, second = lab.instrument("playground"), lab.instrument("another playground")
    first.get_by_role("radio", name="sat").check()
    second.get_by_role("radio", name="the").check()
    expect(first.get_by_role("radio", name="sat")).to_be_checked()


def test_a_slider_of_ipywidgets_is_linked_without_python(lab: Lab) -> None:
    handle = lab.output("slider").get_by_role("slider")
    lab.python("explorer.head = 0")
    expect(handle).to_have_attribute("aria-valuenow", re.compile(r"^0(\.0)?$"))
    handle.press("ArrowRight")
    handle.press("ArrowRight")
    expect(lab.voice("explorer")).to_contain_text("head 2: ")
    lab.instrument("second view").locator("[data-head='3']").click()
    expect(handle).to_have_attribute("aria-valuenow", re.compile(r"^3(\.0)?$"))
    lab.expect_python("explorer.head, slider.value", "3 3")


def test_stepper_both_ways(lab: Lab) -> None:
    view = lab.instrument("stepper")
    lab.python("stepper.step = 3; stepper.num_tokens = 4; stepper.skip_permute = True; stepper.cell = 9")
    expect(view.locator("[data-fact=shape]")).to_have_text("(B·h, N, d) = (6, 4, 2)")
    expect(view.get_by_label("skip the transpose")).to_be_checked()
    expect(view.get_by_label("tokens N")).to_have_value("4")
    expect(lab.voice("stepper")).to_contain_text("0103 (example 0, token 1, channel 3, head 1)")
    view.get_by_label("skip the transpose").uncheck()
    view.get_by_role("slider").fill("5")
    view.get_by_label("heads h").fill("2")
    view.locator("[role=region][aria-label='the array'] [data-cell='7']").click()
    lab.page.keyboard.press("ArrowRight")
    lab.expect_python("stepper.step, stepper.skip_permute, stepper.num_heads, stepper.cell", "5 False 2 8")
    words = view.locator("dt, dd").evaluate_all("all => all.map((one) => one.scrollWidth - one.clientWidth)")
    assert max(words) <= 0  # the lab's own style for such lists cut them
    found = ReshapeStepper(2, 4, 6, 2).stages()[5]
    expect(view.locator("[data-fact=strides]")).to_have_text(str(tuple(found.array.stride())))


def test_playground_both_ways(lab: Lab) -> None:
    view = lab.instrument("playground")
    lab.python("playground.q = [[0, 0], [1, 2], [3, 4], [5, 6]]; playground.mask = 'causal'; playground.query = 2")
    expect(view.get_by_label("q of down, channel 1")).to_have_value("6")
    expect(view.get_by_label("mask", exact=True)).to_have_value("causal")
    expect(lab.voice("playground")).to_contain_text("query sat: ")
    view.get_by_text("all numbers, as tables").click()
    view.get_by_label("v of the, channel 0").fill("2.5")
    view.get_by_label("divide by √d").uncheck()
    view.get_by_label("temperature").fill("0.5")
    view.get_by_role("radio", name="down").check()
    lab.expect_python(
        "playground.v[0], playground.scale, playground.temperature, playground.query", "[2.5, 1.0] False 0.5 3"
    )
    expected = AttentionPlayground(
        q=[[0.0, 0.0], [1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
        v=[[2.5, 1.0], [3.0, 0.0], [0.0, 2.0], [1.0, -1.0]],
        scale=False,
        temperature=0.5,
        mask="causal",
    )
    lab.expect_python("[round(x, 6) for x in playground.output.flatten().tolist()]", rounded(expected.output))
    shown = view.locator("[data-stage=output] td[data-value]").evaluate_all("all => all.map((x) => +x.dataset.value)")
    torch.testing.assert_close(torch.tensor(shown).double(), expected.output.flatten(), atol=1e-6, rtol=0)
    view.get_by_role("button", name="reset").click()
    lab.expect_python("playground.v[0], playground.scale, playground.mask", "[1.0, 1.0] True none")


def test_keys_that_move_a_point_are_not_the_labs(lab: Lab) -> None:
    """Shift and an arrow select cells there."""
    point = lab.instrument("playground").get_by_role("slider", name="key of cat", exact=True)
    point.focus()
    for key in ("Shift+ArrowDown", "Shift+ArrowUp", "Shift+ArrowRight", "ArrowUp", "PageDown"):
        lab.page.keyboard.press(key)
    expect(lab.instrument("playground").get_by_role("slider", name="key of sat", exact=True)).to_be_focused()
    assert lab.page.locator(".jp-Cell.jp-mod-multiSelected").count() == 0
    lab.expect_python("[round(x, 6) for x in playground.k[1]]", "[3.0, -0.4]")


def rounded(output: torch.Tensor) -> str:
    return str([round(x, 6) for x in output.flatten().tolist()])


def test_calculator_both_ways(lab: Lab) -> None:
    view = lab.instrument("calculator")
    lab.python("calculator.num_hiddens = 96; calculator.num_tokens = 50; calculator.bytes_per_number = 4")
    expect(view.get_by_label("width D")).to_have_value("96")
    expect(view.get_by_label("bytes per number")).to_have_value("4")
    view.get_by_label("layers L").fill("3")
    view.get_by_label("bytes per number").select_option("1")
    lab.expect_python("calculator.num_layers, calculator.bytes_per_number", "3 1")
    expected = CostCalculator(96, 12, num_layers=3, num_tokens=50, bytes_per_number=1).costs()
    lab.expect_python("list(calculator.costs().values())", str(list(expected.values())))
    for name, amount in expected.items():
        expect(view.locator(f"tr[data-cost={name}] td").last).to_have_text(f"{amount:,}")


def test_the_kernel_sends_the_strongest_keys_of_the_head_that_is_chosen(lab: Lab) -> None:
    row = "print('{} {:.3f}'.format(row.argmax().item(), row.max().item()))"
    lab.instrument("wall").get_by_role("gridcell", name="layer 2, head 1,").click()
    key, weight = lab.python(f"row = wall._layers[2][1, 0]; {row}").split()
    expect(lab.voice("wall")).to_contain_text(f"0 the → {key} {TOKENS[int(key)]} {weight}; 5 keys hold")
    lab.expect_python("wall.layer, wall.head, wall.sent[0], wall.detailed", "2 1 9 []")
    lab.python("wall.head, wall.query, wall.view = 3, 2, 'number'")
    key, weight = lab.python(f"row = wall._layers[2][3, 2]; {row}").split()
    expect(lab.voice("wall")).to_contain_text(f"2 sat → {key} {TOKENS[int(key)]} {weight}; ")
    expect(lab.instrument("wall").get_by_role("gridcell").first).to_have_text(re.compile(r"^0\.\d{4}$"))


def test_a_bad_value_from_python_is_refused_and_the_picture_stays(lab: Lab) -> None:
    before = lab.voice("explorer").inner_text()
    said = lab.python("try:\n    explorer.head = 4\nexcept Exception as error:\n    print(error)")
    assert said == "head=4 must lie from 0 to 3, and no number twice"
    assert lab.voice("explorer").inner_text() == before


def test_the_saved_notebook_holds_the_table_and_the_state(lab: Lab) -> None:
    lab.page.evaluate("jupyterapp.commands.execute('docmanager:save')")
    cells = dict(zip(CELLS, nbformat.read(lab.path, as_version=4).cells, strict=True))
    for cell, script in INSTRUMENTS.items():
        (output,) = cells[cell].outputs
        assert "application/vnd.jupyter.widget-view+json" in output.data
        assert f'data-script="{script}"><table><caption>' in output.data["text/html"]
        assert output.data["text/html"].endswith("</script></div>")
        assert output.data["text/plain"].startswith(f"{script}: ")


def test_a_page_opened_again_shows_what_was_chosen(lab: Lab) -> None:
    lab.python("explorer.head, explorer.query, explorer.locked, explorer.off = 2, 4, [1, 3], [0]; stepper.step = 6")
    lab.page.evaluate("jupyterapp.commands.execute('docmanager:save')")
    lab.page.reload()
    expect(lab.voice("explorer")).to_contain_text(
        re.compile("head 2: the → .*; locked: cat, on$"), timeout=1000 * PATIENCE
    )
    expect(lab.instrument("second view").get_by_label("head 0 counts in the mean")).not_to_be_checked()
    expect(lab.voice("stepper")).to_contain_text("Step 7 of 7")


def test_it_needs_no_other_host_and_raises_nothing(lab: Lab) -> None:
    assert {host.rpartition(":")[0] for host in lab.hosts if host} == {"127.0.0.1"}
    assert lab.errors == []


def test_a_live_model_gets_its_weights_from_the_kernel_and_both_change_its_heads(lab: Lab) -> None:
    live = lab.instrument("live")
    expect(lab.output("live").locator(".mhalib-live-model[data-settled]")).to_be_attached(timeout=1000 * PATIENCE)
    answer = live.locator(".mhalib-live-model-sentence")
    expect(answer).to_have_text("la vache blanche voit le chien noir ")
    live.locator("[data-q='0'][data-k='6']").click()
    expect(answer).to_have_text("la le vache blanche voit le chien noir ")
    lab.expect_python("' '.join(live.output())", "le vache blanche voit le chien noir")
    lab.python("live.deeds = {'decoder self 0 1': {'off': True}}")
    expect(live.locator("[data-switch='decoder self 0 1']")).to_have_attribute("aria-checked", "false")
    expect(live.get_by_role("button", name="Copy link")).to_be_hidden()
    lab.python("live.deeds = {}")
    expect(answer).to_have_text("la vache blanche voit le chien noir ")
