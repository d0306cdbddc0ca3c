// @ts-check
/* A game of deduction: one of several mistakes is in a layer, and each check that is run on it clears some of them. */

import { classes, inSentence, listen, make, range, settle, voice, writer } from "./shared.js";

/** @import { Hunt, Place } from "./types" */
/** @param {Place<Hunt>} place */
export function MistakeHunt({ model, el }) {
  const css = classes("mistake-hunt");
  const put = writer(model);
  const said = voice();
  const [checks, mistakes, catches] = [model.get("checks"), model.get("mistakes"), model.get("catches")];
  const about = new Map(Object.entries(model.get("about")));
  const count = mistakes.length;
  const fails = (/** @type {number} */ check, mistake = model.get("order")[model.get("layer")]) => catches[check].includes(mistake);
  /** Who would have done the same in all these checks. @type {(done: number[]) => number[]} */
  const leftAfter = (done) => range(0, count).filter((m) => done.every((c) => fails(c, m) === fails(c)));

  const aside = (text = "") => make("span", { class: css("aside"), text });
  const notes = mistakes.map(() => aside());
  const heads = mistakes.map((name, m) => make("th", { scope: "col", title: about.get(name) ?? null }, make("span", { class: css("name"), text: name }), notes[m]));
  const buttons = checks.map((name, c) => make("button", { type: "button", text: name, title: about.get(name) ?? null, onclick: () => run(c) }));
  const cells = checks.map((_, c) => mistakes.map((_, m) => (fails(c, m) ? make("td", { class: css("catches") }, aside("catches")) : make("td"))));
  const results = checks.map(() => make("td", { class: css("result") }));
  const lines = buttons.map((button, c) => make("tr", {}, make("th", { scope: "row" }, button), ...cells[c], results[c]));
  const header = make("tr", {}, make("th", { scope: "col", text: "checks" }), ...heads, make("th", { scope: "col", class: css("result"), text: "this layer" }));
  const table = make("table", {}, make("caption", { text: model.get("caption") }), make("thead", {}, header), make("tbody", {}, ...lines));

  /** By layer that was found out, how many checks it took. @type {Map<number, number>} */
  const found = new Map();
  const score = make("span");

  function run(/** @type {number} */ check) {
    if (!model.get("done").includes(check)) put({ done: [...model.get("done"), check] });
  }

  function draw() {
    const done = model.get("done");
    const left = leftAfter(done);
    heads.forEach((head, m) => {
      const isLeft = left.includes(m);
      notes[m].textContent = isLeft ? "" : ", cleared";
      head.classList.toggle(css("found"), isLeft && left.length === 1);
      for (const cell of [head, ...cells.map((row) => row[m])]) cell.classList.toggle(css("cleared"), !isLeft);
    });
    buttons.forEach((button, c) => {
      const isRun = done.includes(c);
      button.setAttribute("aria-disabled", String(isRun));
      results[c].textContent = isRun ? (fails(c) ? "fails" : "passes") : "";
    });
    if (left.length === 1 && !found.has(model.get("layer"))) found.set(model.get("layer"), done.length);
    if (found.size) score.textContent = `Found: ${found.size} of ${count}; checks: ${[...found.values()].join(", ")}.`;
    said.textContent = sentence(done, left);
  }

  /** @type {(done: number[], left: number[]) => string} */
  function sentence(done, left) {
    if (!done.length) return `Layer ${model.get("layer") + 1} of ${count} is broken. Which check first?`;
    if (left.length === 1) return `Only ${inSentence(mistakes[left[0]])} is left, after ${done.length} check${done.length > 1 ? "s" : ""}.`;
    const last = done[done.length - 1];
    const cleared = leftAfter(done.slice(0, -1)).length - left.length;
    const end = done.length < checks.length ? "" : " No check tells them apart.";
    return `${inSentence(checks[last])} ${fails(last) ? "fails" : "passes"}: ${cleared || "nobody is"} cleared, ${left.length} left.${end}`;
  }

  const again = make("button", { type: "button", text: "start again", onclick: () => put({ done: [] }) });
  const next = make("button", { type: "button", text: "next layer", onclick: () => put({ done: [], layer: (model.get("layer") + 1) % count }) });
  const stop = listen(model, ["layer", "done"], draw);
  settle(el, "mistake-hunt", said, make("div", { class: "mhalib-frame" }, table), make("div", { class: "mhalib-row" }, again, next, score));
  draw();
  return stop;
}
