// @ts-check
/* A game of deduction: one of several mistakes is in a layer; a reader runs checks on it and strikes out whom they clear. */

import { classes, inSentence, listen, make, range, settle, voice, writer } from "./shared.js";

/** @import { Hunt, Place } from "./types" */
/** @param {Place<Hunt>} place */
export function MistakeHunt({ model, el }) {
  const css = classes("mistake-hunt");
  const put = writer(model);
  const said = voice();
  const [checks, mistakes, catches] = [model.get("checks"), model.get("mistakes"), model.get("catches")];
  const about = new Map(Object.entries(model.get("about")));
  const [count, everyone] = [mistakes.length, range(0, mistakes.length)];
  const fails = (/** @type {number} */ check, mistake = model.get("order")[model.get("layer")]) => catches[check].includes(mistake);
  /** Who would have done the same in all these checks. @type {(done: number[]) => number[]} */
  const leftAfter = (done) => everyone.filter((m) => done.every((c) => fails(c, m) === fails(c)));

  const aside = (text = "") => make("span", { class: css("aside"), text });
  const notes = mistakes.map(() => aside());
  const names = mistakes.map((name, m) => make("button", { type: "button", class: css("name"), title: about.get(name) ?? null, onclick: () => strike(m) }, name, notes[m]));
  const heads = names.map((name) => make("th", { scope: "col" }, name));
  const buttons = checks.map((name, c) => make("button", { type: "button", text: name, title: about.get(name) ?? null, onclick: () => run(c) }));
  const cells = checks.map(() => mistakes.map(() => make("td")));
  const results = checks.map(() => make("td", { class: css("result") }));
  const lines = buttons.map((button, c) => make("tr", {}, make("th", { scope: "row" }, button), ...cells[c], results[c]));
  const header = make("tr", {}, make("th", { scope: "col", text: "checks" }), ...heads, make("th", { scope: "col", class: css("result"), text: "this layer" }));
  const table = make("table", {}, make("caption", { text: model.get("caption") }), make("thead", {}, header), make("tbody", {}, ...lines));

  /** Cells that have been found out, and stay so from layer to layer. @type {Set<HTMLElement>} */
  const known = new Set();
  /** By layer whose mistake was found, how many checks it took. @type {Map<number, number>} */
  const found = new Map();
  let [wrong, remark] = [0, ""];
  const score = make("span");

  function run(/** @type {number} */ check) {
    if (!model.get("done").includes(check)) put({ done: [...model.get("done"), check] });
  }

  /** Those who are struck out and rightly so. */
  const struck = () => model.get("struck").filter((m) => !leftAfter(model.get("done")).includes(m));

  function strike(/** @type {number} */ mistake) {
    const done = model.get("done");
    if (struck().includes(mistake)) return;
    const name = inSentence(mistakes[mistake]);
    const telling = done.filter((c) => fails(c, mistake) !== fails(c)).at(-1);
    const check = telling ?? done.at(-1);
    if (check === undefined) remark = "Run a check first.";
    else if (telling === undefined) {
      wrong += 1;
      const [same, other] = fails(check) ? ["fail", "pass"] : ["pass", "fail"];
      remark = `${name} stays: it would ${same} ${inSentence(checks[check])}, too. Only those that would ${other} are cleared.`;
    } else {
      const left = count - struck().length - 1;
      const isAll = left === leftAfter(done).length;
      remark = `${name} is cleared: it would have ${fails(check) ? "passed" : "failed"} ${inSentence(checks[check])}.${isAll ? ` ${left} left: which check next?` : ""}`;
    }
    if (telling !== undefined) return put({ struck: [...struck(), mistake] });
    for (const c of done) known.add(cells[c][mistake]);
    draw();
  }

  function clear() {
    const left = leftAfter(model.get("done"));
    const cleared = count - struck().length - left.length;
    remark = `${cleared || "Nobody is"} cleared, ${left.length} left.`;
    if (cleared) put({ struck: everyone.filter((m) => !left.includes(m)) });
    else draw();
  }

  function draw() {
    const done = model.get("done");
    const gone = struck();
    const last = everyone.filter((m) => !gone.includes(m));
    heads.forEach((head, m) => {
      const isGone = gone.includes(m);
      notes[m].textContent = isGone ? ", cleared" : "";
      names[m].setAttribute("aria-disabled", String(isGone));
      head.classList.toggle(css("found"), !isGone && last.length === 1);
      for (const cell of [head, ...cells.map((row) => row[m])]) cell.classList.toggle(css("cleared"), isGone);
      if (isGone || last.length === 1) for (const c of done) known.add(cells[c][m]);
    });
    cells.forEach((row, c) =>
      row.forEach((cell, m) => {
        const isCaught = known.has(cell) && fails(c, m);
        cell.classList.toggle(css("catches"), isCaught);
        cell.replaceChildren(isCaught ? aside("catches") : known.has(cell) ? aside("does not catch") : "?");
      }),
    );
    buttons.forEach((button, c) => {
      const isRun = done.includes(c);
      button.setAttribute("aria-disabled", String(isRun));
      results[c].textContent = isRun ? (fails(c) ? "fails" : "passes") : "";
    });
    if (last.length === 1 && !found.has(model.get("layer"))) found.set(model.get("layer"), done.length);
    const after = found.size ? `, after ${[...found.values()].join(", ")} checks` : "";
    if (found.size || wrong) score.textContent = `Found: ${found.size} of ${count}${after}. Struck wrongly: ${wrong}.`;
    said.textContent = sentence(done, last);
  }

  /** @type {(done: number[], last: number[]) => string} */
  function sentence(done, last) {
    if (last.length === 1) return `Only ${inSentence(mistakes[last[0]])} is left, after ${done.length} check${done.length > 1 ? "s" : ""}.`;
    if (done.length === checks.length && last.length === leftAfter(done).length) return "No check tells those apart that are left.";
    if (remark) return remark;
    const check = done.at(-1);
    if (check === undefined) return `Broken layer ${model.get("layer") + 1} of ${count}. Which check first?`;
    const asked = about.get(checks[check]);
    return `${inSentence(checks[check])} ${fails(check) ? "fails" : "passes"}.${asked ? ` (${asked})` : ""} Whom does that clear? Press each name.`;
  }

  const help = make("button", { type: "button", text: "clear for me", onclick: clear });
  const again = make("button", { type: "button", text: "start again", onclick: () => put({ done: [], struck: [] }) });
  const next = make("button", { type: "button", text: "next layer", onclick: () => put({ done: [], struck: [], layer: (model.get("layer") + 1) % count }) });
  const stops = [
    listen(model, ["layer", "done"], () => {
      remark = "";
      draw();
    }),
    listen(model, ["struck"], draw),
  ];
  settle(el, "mistake-hunt", said, make("div", { class: "mhalib-frame" }, table), make("div", { class: "mhalib-row" }, help, again, next, score));
  draw();
  return () => stops.forEach((stop) => stop());
}
