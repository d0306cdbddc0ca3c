"""A table of the book's live models: what each weighs, how far it is from PyTorch, how long it takes beside PyTorch.

    python -m tools.development.live_table [--html _build/html] [--times 15] [PAGE ...]

A row for each live model of each built page, or of those named, such as 08_three_uses. *weights* and *page* are
kilobytes as a public server packs them, the page with all that it has loaded once its live models run, and *requests*
how many it made. *node* and *Chromium*: the largest difference from PyTorch in float64 of a head's weights, its output,
or the logarithm of the answer's probability, with the page's own input as trained, with each head off, and under the
solutions of the model's quests. *update* is what a page computes when a reader changes something, in Chromium: a plain
run and a changed one, all heads noted. *pass* is PyTorch's pass of the same model with the same input and all weights,
on one thread, in turns with it. Both are medians; the last column is their ratio, of which 4 is allowed. Measure on a
machine that does nothing else.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import torch
from playwright.sync_api import Browser, Page, sync_playwright

from mhalib.measures import heads_of
from mhalib.widgets import LiveModel, scripts
from mhalib.widgets._quests import QUESTS
from tools import ROOT
from tools.development import javascript, page_weight
from tools.pages import chromium

HTML = ROOT / "_build/html"
MOST_OFF = 1e-5
MOST_TIMES = 4.0
STATE = re.compile(r'data-script="LiveModel">.*?<script type="application/json">(.*?)</script>', re.DOTALL)
RUN = """
async ({ weights, facts, cases, times }, { taskOf }, { engineDeeds }) => {
  const task = taskOf({ weights, facts });
  const of = (text) => task.run(task.units(text), {}).log;
  const answers = cases.map(({ input, deeds, moment }) => {
    if (facts.steps) task.engine.goTo(moment);
    const units = task.units(input);
    const done = engineDeeds(task, deeds, units.length, of);
    const plain = task.run(units, {}).answer;
    const { answer, log } = task.run(units, done);
    const heads = {};
    for (const name in log) heads[name] = [[...log[name].weights], [...log[name].values]];
    return { answer, heads, logP: task.logP(units, plain, done) };
  });
  const took = [];
  const { input, deeds } = cases.at(-1);
  const units = task.units(input);
  for (let i = 0; i < times; i += 1) {
    const from = performance.now();
    task.run(units, {});
    task.run(units, engineDeeds(task, deeds, units.length, of));
    took.push(performance.now() - from);
  }
  return { answers, took };
}
"""
IN_NODE = f"""
import fs from "node:fs";
globalThis.document = {{ currentScript: null }};
const run = {RUN.strip()};
const [tasks, state] = [await import("./widgets/live_tasks.js"), await import("./widgets/live_state.js")];
const asked = JSON.parse(fs.readFileSync(process.argv[2]));
fs.writeFileSync(process.argv[3], JSON.stringify(await run(asked, tasks, state)));
"""
IN_CHROMIUM = f"""
async (asked) => {{
  const run = {RUN.strip()};
  return run(asked, await import("/widgets/live_tasks.js"), await import("/widgets/live_state.js"));
}}
"""


class Row(NamedTuple):
    """A live model of a page: kilobytes, requests, differences, milliseconds."""

    place: str
    model: str
    weights: float
    page: float
    requests: int
    node: float
    chromium: float
    update: float
    one_pass: float

    @property
    def ratio(self) -> float:
        return self.update / self.one_pass


def states_of(html: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The pages with live models, and what each of these begins with."""
    for page in sorted(html.glob("chapters/*.html")):
        for found in STATE.findall(page.read_text(encoding="utf-8")):
            yield page.stem, json.loads(found)


def cases_of(state: dict[str, Any], live: LiveModel) -> list[dict[str, Any]]:
    """What is run: the state of the page, each head off, and the solutions of its model's quests."""
    heads = [" ".join(map(str, head)) for head in heads_of(live.model)]
    quests = [(quest.input, dict(quest.solution)) for quest in QUESTS.values() if quest.model == state["model_name"]]
    own = [(state["input"], deeds) for deeds in (state["deeds"], *({head: {"off": True}} for head in heads))]
    return [{"input": text, "deeds": deeds, "moment": state["moment"]} for text, deeds in (*quests, *own)]


class Wanted(NamedTuple):
    """What PyTorch says in float64: the answer, its logarithm of probability, each head's weights and output."""

    answer: list[str]
    log_p: float
    heads: dict[str, tuple[torch.Tensor, torch.Tensor]]


def wanted(live: LiveModel, cases: list[dict[str, Any]]) -> list[Wanted]:
    """PyTorch's answers, in float64."""
    task, found = live._task, []
    models = list(getattr(task, "_models", {0: live.model}).values())  # at all its moments, where it has some
    for model in models:
        model.double()
    plain: dict[tuple[str, int], list[str]] = {}
    for case in cases:
        live.moment, live.input, live.deeds = case["moment"], case["input"], {}
        units, key = task.units(live.input), (live.input, live.moment)
        plain[key] = plain.get(key) or task.run(units).answer
        live.deeds = case["deeds"]
        with live.applied():
            run, log_p = task.run(units), task.log_p(units, plain[key])
        heads = {
            " ".join(map(str, head)): tuple(
                of[head.kind][head.layer][0, head.head] for of in (run.weights, run.outputs)
            )
            for head in heads_of(live.model)
        }
        found.append(Wanted(run.answer, log_p, heads))  # type: ignore[arg-type]
    for model in models:
        model.float()
    return found


def deviation(expected: list[Wanted], answers: list[dict[str, Any]]) -> float:
    """The largest difference; infinite where another word is said."""
    largest = 0.0
    for one, found in zip(expected, answers, strict=True):
        if one.answer != found["answer"] or one.heads.keys() != found["heads"].keys():
            return float("inf")
        largest = max(largest, abs(one.log_p - found["logP"]))
        for head, pair in one.heads.items():
            for tensor, numbers in zip(pair, found["heads"][head], strict=True):
                apart = torch.tensor(numbers, dtype=torch.float64) - tensor.flatten()
                largest = max(largest, float(apart.abs().max()))
    return largest


def in_node(asked: dict[str, Any]) -> dict[str, Any]:
    """What node answers."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for script in scripts("LiveModel"):
            (folder / script.parent.name).mkdir(exist_ok=True)
            (folder / script.parent.name / script.name).write_text(script.read_text(encoding="utf-8"), encoding="utf-8")
        (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
        (folder / "run.js").write_text(IN_NODE, encoding="utf-8")
        (folder / "asked.json").write_text(json.dumps(asked), encoding="utf-8")
        command = [str(javascript.node()), "run.js", "asked.json", "answered.json"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        answered: dict[str, Any] = json.loads((folder / "answered.json").read_text(encoding="utf-8"))
    return answered


def new_modules(browser: Browser) -> Page:
    """An empty page that may import the modules of live models."""
    files = {f"/{file.parent.name}/{file.name}": file for file in scripts("LiveModel")}
    page = browser.new_page()

    def serve(route: Any) -> None:
        file = files.get(urlsplit(route.request.url).path)
        body = file.read_text(encoding="utf-8") if file else "<!doctype html>"
        route.fulfill(body=body, content_type="text/javascript" if file else "text/html")

    page.route("**/*", serve)
    page.goto("http://localhost/index.html")
    return page


@torch.no_grad()
def pass_of(live: LiveModel) -> Callable[[], object]:
    """PyTorch's pass with the live model's input: for a translator, the source and the French that it writes."""
    task, units = live._task, live._task.units(live.input)
    if task.says == "sentence":
        source, ids = task._ids(units)  # type: ignore[attr-defined]
        target = torch.tensor([[task.facts()["begin"], *ids[:-1]]])
        return lambda: live.model(source, target, need_weights=True)
    return lambda: live.model(task._ids(units), need_weights=True)  # type: ignore[attr-defined]


@torch.no_grad()
def milliseconds(one_pass: Callable[[], object]) -> float:
    """How long one pass takes."""
    begun = time.perf_counter()
    one_pass()
    return 1000 * (time.perf_counter() - begun)


def weighed(browser: Browser, address: str, name: str) -> dict[str, int]:
    """The bytes of each file that a page loads until its live models run."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    sizes: dict[str, int] = {}
    page.on("requestfinished", lambda request: sizes.update({request.url: request.sizes()["responseBodySize"]}))
    page.goto(page_weight.address_of(address, f"chapters/{name}"))
    for live in page.locator('[data-script="LiveModel"]').all():
        live.scroll_into_view_if_needed()
        live.locator("[data-settled]").wait_for(timeout=page_weight.PATIENCE)
    page.wait_for_load_state("networkidle")
    page.close()
    return sizes


def rows(html: Path, times: int, pages: list[str]) -> Iterator[Row]:
    """The table, row by row."""
    with chromium.serving(html, page_weight.PackingHandler) as address, sync_playwright() as playwright:
        browser = chromium.launch(playwright)
        modules = new_modules(browser)
        for place, state in states_of(html):
            if pages and place not in pages:
                continue
            sizes = weighed(browser, address, place)
            live = LiveModel(state["model_name"], state["input"], moment=state["moment"])
            asked: dict[str, Any] = {
                "weights": base64.b64encode(live.weights).decode("ascii"),
                "facts": live.facts,
                "cases": cases_of(state, live),
                "times": 3,
            }
            fast = pass_of(live)
            for _ in range(3):
                milliseconds(fast)
            in_chromium = modules.evaluate(IN_CHROMIUM, {**asked, "times": 20})  # and compiles what is run often
            passes, updates = [], []
            last = {**asked, "cases": asked["cases"][-1:]}
            for _ in range(times):  # in turns, so that both meet the same machine
                passes.append(statistics.median(milliseconds(fast) for _ in range(3)))
                updates.append(statistics.median(modules.evaluate(IN_CHROMIUM, last)["took"]))
            expected = wanted(live, asked["cases"])
            off = {
                name: deviation(expected, answered["answers"])
                for name, answered in (("node", in_node(asked)), ("chromium", in_chromium))
            }
            own = [size for url, size in sizes.items() if f"/live/{state['model_name']}.js" in url]
            yield Row(
                place, state["model_name"], sum(own) / 1000, sum(sizes.values()) / 1000, len(sizes),
                off["node"], off["chromium"], statistics.median(updates), statistics.median(passes),
            )  # fmt: skip
        browser.close()


def printed(row: Row) -> str:
    """A row as Markdown."""
    cells = [
        row.place, row.model, f"{row.weights:.0f}", f"{row.page:.0f}", str(row.requests), f"{row.node:.1e}",
        f"{row.chromium:.1e}", f"{row.update:.1f}", f"{row.one_pass:.1f}", f"{row.ratio:.1f}",
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--html", type=Path, default=HTML, help="the built book")
    parser.add_argument("--times", type=int, default=15, help="how often an update and a pass are timed, in turns")
    parser.add_argument("pages", nargs="*", help="all with live models, if none is named")
    arguments = parser.parse_args()
    head = "place, model, weights kB, page kB, requests, node, Chromium, update ms, pass ms, ratio".split(", ")
    print("| " + " | ".join(head) + " |\n" + "|" + " --- |" * len(head))
    wrong = 0
    torch.set_num_threads(1)  # as a page has one
    for row in rows(arguments.html, arguments.times, arguments.pages):
        print(printed(row), flush=True)
        wrong += max(row.node, row.chromium) > MOST_OFF or row.ratio > MOST_TIMES
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
