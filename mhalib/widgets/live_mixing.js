// @ts-check
/* How the heads of a layer talk: its two matrices, whose numbers a reader drags. */
/** @import * as T from "./types" */
import { layerOf } from "../live/deeds.js";
import { arrows, choice, classes, freshId, make, range } from "./shared.js";

const [LARGEST, PER_NUMBER] = [2, 60]; // the ends of the slider, and by how many pixels a finger moves a number by 1
/** @type {Record<T.Step, string>} */
const WHEN = { scores: "before the softmax", weights: "after the softmax" };
const BOTH_STEPS = /** @type {T.Step[]} */ (Object.keys(WHEN));
/** A number with its sign as it is printed. @type {(value: number) => string} */
const printed = (value) => value.toFixed(2).replace("-", "−");

/** The numbers of a matrix as they are now: as trained, but for the cells that were moved. @type {(task: T.Task, layer: string, step: T.Step, deed: T.LayerDeed) => Float64Array} */
export function matrixOf({ engine }, layer, step, deed) {
  const numbers = Float64Array.from(/** @type {import("../live/attention.js").Mixing} */ (engine.trainedMixing(layer))[step].data);
  for (const [cell, value] of Object.entries(deed[step] ?? {})) {
    const [n, m] = cell.split(" ").map(Number);
    numbers[n * engine.settings.num_heads + m] = value;
  }
  return numbers;
}

/**
 * The matrices of one layer; null where heads do not talk. It begins with the layer of the head that is shown.
 * @param {T.Task} task
 * @param {T.Palette} colours
 * @param {(head: string) => string} layerName what the layer of a head is called
 * @param {T.MixingActs} acts
 */
export function mixingOf(task, colours, layerName, acts) {
  if (!task.engine.doTalk) return null;
  const css = classes("live-model");
  const size = task.engine.settings.num_heads;
  const names = new Map(task.engine.heads.map((head) => [layerOf(head), layerName(head)]));
  let [shown, layer] = ["", ""];
  const layers = choice({ value: "", options: [...names], "aria-label": "the layer whose heads talk", changed: (value) => {
    layer = value;
    acts.choose();
  } });
  /** @type {{ step: T.Step, n: number, m: number }} */
  let chosen = { step: "scores", n: 0, m: 0 };
  /** @type {Record<T.Step, Float64Array>} */
  let now = { scores: new Float64Array(), weights: new Float64Array() };
  const value = () => now[chosen.step][chosen.n * size + chosen.m];
  /** The number of the chosen cell is this from now on. @param {number} to */
  const move = (to) => acts.move(layer, chosen, Number(Math.min(LARGEST, Math.max(-LARGEST, to)).toFixed(2)));
  const tables = BOTH_STEPS.map((step) => tableOf(step));
  /** @param {T.Step} step */
  function tableOf(step) {
    const cells = range(0, size).map((n) => range(0, size).map((m) => make("span", { role: "gridcell", tabindex: "-1", class: css("cell"), "data-step": step, "data-n": n, "data-m": m })));
    const heads = range(0, size).map((m) => make("span", { role: "columnheader", class: css("letter"), "aria-label": `into head ${m}`, text: m }));
    const rows = cells.map((own, n) => make("div", { role: "row", class: css("grid-row") }, make("span", { role: "rowheader", class: css("query"), "aria-label": `from head ${n}`, text: n }), ...own));
    const top = make("div", { role: "row", class: css("grid-row") }, make("span", { role: "columnheader", "aria-label": "from head" }), ...heads);
    const grid = make("div", { class: `${css("grid")} ${css("mixing-grid")}`, role: "grid", "aria-label": `${WHEN[step]}: arrow keys walk, plus and minus change the number, Delete brings the trained one back` }, top, ...rows);
    grid.style.setProperty("--keys", String(size));
    const silent = make("button", { type: "button", text: "Do not talk", "aria-label": `do not talk: ${WHEN[step]}`, onclick: () => acts.silence(layer, step) });
    const again = make("button", { type: "button", text: "As trained", "aria-label": `as trained: ${WHEN[step]}`, onclick: () => acts.restore(layer, step) });
    grid.addEventListener("pointerdown", (event) => drag(event, step));
    grid.addEventListener("keydown", (event) => press(event, step, cells));
    return { step, cells, heads, again, whole: make("div", { class: css("mixing-table") }, make("p", { class: css("note"), text: WHEN[step] }), grid, make("div", { class: css("mixing-tools") }, silent, again)) };
  }
  /** A finger on a cell: to the right is more, to the left less. @param {PointerEvent} event @param {T.Step} step */
  function drag(event, step) {
    const cell = /** @type {HTMLElement} */ (event.target);
    if (cell.dataset.n === undefined) return;
    chosen = { step, n: Number(cell.dataset.n), m: Number(cell.dataset.m) };
    cell.focus();
    acts.choose();
    const [from, first] = [event.clientX, value()];
    const pull = (/** @type {PointerEvent} */ moved) => move(first + (moved.clientX - from) / PER_NUMBER);
    const end = () => {
      cell.removeEventListener("pointermove", pull);
      for (const last of ["pointerup", "pointercancel"]) cell.removeEventListener(last, end);
    };
    cell.setPointerCapture(event.pointerId);
    cell.addEventListener("pointermove", pull);
    for (const last of ["pointerup", "pointercancel"]) cell.addEventListener(last, end);
  }
  /** @param {KeyboardEvent} event @param {T.Step} step @param {HTMLElement[][]} cells */
  function press(event, step, cells) {
    if (chosen.step !== step) chosen = { step, n: 0, m: 0 };
    const { n, m } = chosen;
    const change = { "+": 0.1, "-": -0.1 }[event.key];
    if (change !== undefined) move(value() + change);
    else if (event.key === "Delete" || event.key === "Backspace") acts.free(layer, chosen);
    else {
      arrows(event, { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -size, ArrowDown: size }, n * size + m, size * size, (to) => {
        chosen = { step, n: Math.floor(to / size), m: to % size };
        cells[chosen.n][chosen.m].focus();
        acts.choose();
      });
      return;
    }
    event.preventDefault();
  }

  const input = make("input", { type: "range", min: -LARGEST, max: LARGEST, step: 0.01, id: freshId() });
  input.addEventListener("input", () => move(input.valueAsNumber));
  const name = make("label", { for: input.id });
  const number = make("span", { class: "mhalib-number" });
  const hint = make("p", { class: css("note"), text: "Row n, column m: how much of head n goes to head m. Drag a number to the right or to the left, or use the slider. Grey is negative." });
  const echo = make("p", { class: css("echo"), "aria-hidden": "true" }); // on a phone the answer is out of sight
  const whole = make("section", { class: css("mixing"), "aria-label": "how heads talk" }, make("p", { class: css("row-title") }, "How heads talk in ", layers), make("div", { class: css("panels") }, ...tables.map((table) => table.whole)), make("div", { class: css("bars") }, name, input, number), echo, hint);
  return {
    whole,
    /** The matrices as they are under deeds. @param {string} head the one that is shown @param {T.LiveDeeds} deeds @param {string} said what the model says now */
    draw(head, deeds, said) {
      echo.textContent = said;
      if (head !== shown) layer = layerOf(head);
      shown = head;
      layers.value = layer;
      const deed = /** @type {T.LayerDeed} */ (deeds[layer] ?? {});
      now = { scores: matrixOf(task, layer, "scores", deed), weights: matrixOf(task, layer, "weights", deed) };
      for (const { step, cells, heads, again } of tables) {
        heads.forEach((one, m) => one.style.setProperty("--hue", colours.hue(`${layer} ${m}`)));
        again.setAttribute("aria-disabled", String(deed[step] === undefined));
        cells.forEach((own, n) => own.forEach((cell, m) => {
          const isMoved = deed[step]?.[`${n} ${m}`] !== undefined;
          cell.style.backgroundColor = `rgb(${colours.colour(`${layer} ${m}`, now[step][n * size + m])})`;
          cell.title = `from head ${n} into head ${m}: ${printed(now[step][n * size + m])}${isMoved ? ", moved" : ""}`;
          cell.setAttribute("aria-label", cell.title);
          cell.classList.toggle(css("moved"), isMoved);
          const isChosen = chosen.step === step && chosen.n === n && chosen.m === m;
          cell.classList.toggle(css("chosen"), isChosen);
          cell.tabIndex = isChosen || (chosen.step !== step && n === 0 && m === 0) ? 0 : -1;
        }));
      }
      name.textContent = `head ${chosen.n} into head ${chosen.m}, ${WHEN[chosen.step]}`;
      input.style.setProperty("--hue", colours.hue(`${layer} ${chosen.m}`));
      if (document.activeElement !== input || Math.abs(input.valueAsNumber - value()) > 0.02) input.value = String(value());
      number.textContent = printed(value());
    },
  };
}
