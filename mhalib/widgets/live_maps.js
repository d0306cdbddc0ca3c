// @ts-check
/* The heads of a live model: all as small maps with their switches, and one large, whose weights a reader moves. */
/** @import { HeadRecord } from "../live/deeds.js" */
/** @import * as T from "./types" */
import { kindOf, numSeen } from "./live_state.js";
import { arrows, choice, classes, freshId, labelled, legible, make, penOf, rampOf, range, region } from "./shared.js";

const ofLive = classes("live-model");
const WOULD = "off: what it would look at";
const HEATS = [0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6, 7, 8, 9, 10, 12, 16, 20, 30, 50, 100];
const FULL_COST = 6; // nats at which the bar of a head is full, unless another costs more

/** A head's number in its layer. @type {(head: string) => number} */
const numberOf = (head) => Number(head.slice(head.lastIndexOf(" ") + 1));

/** What a layer is called: "encoder 1"; of a model with one kind, "layer 1"; where there is one layer, nothing. @type {(task: T.Task, head: string) => string} */
export function layerName({ engine }, head) {
  if (engine.heads.length === engine.settings.num_heads) return "";
  const [, kind, layer] = /** @type {RegExpExecArray} */ (/^(.+) (\d+) \d+$/.exec(head));
  const isOneKind = engine.heads.every((other) => other.startsWith(kind));
  return `${isOneKind ? "layer" : kind.replace(" self", "")} ${layer}`;
}

/** @type {(task: T.Task, head: string) => string} */
export const headName = (task, head) => [layerName(task, head), `head ${numberOf(head)}`].filter(Boolean).join(", ");

/**
 * The colours of weights: 0 is the paper of the page, be it light or dark, 1 the strongest of the head's own colour.
 * @param {HTMLElement} el
 * @param {string[][]} ramps each head's, on white
 */
export function palette(el, ramps) {
  const onWhite = ramps.map((stops) => rampOf(stops, 256));
  const probe = make("span", { class: ofLive("paper") });
  const dot = make("canvas", { width: 1, height: 1 });
  let paper = [255, 255, 255];
  function refresh() {
    el.append(probe);
    const pen = /** @type {CanvasRenderingContext2D} */ (dot.getContext("2d", { willReadFrequently: true }));
    pen.fillStyle = getComputedStyle(probe).backgroundColor;
    pen.fillRect(0, 0, 1, 1);
    paper = [...pen.getImageData(0, 0, 1, 1).data.slice(0, 3)];
    probe.remove();
  }
  const isDark = () => paper[0] + paper[1] + paper[2] < 380;
  const bright = (/** @type {number[][]} */ ramp) => ramp[isDark() ? 80 : 160];
  const ramp = (/** @type {string} */ head) => onWhite[numberOf(head) % onWhite.length];
  refresh();
  return {
    refresh,
    /** The head's colour, for its marks. @type {(head: string) => string} */
    hue: (head) => `rgb(${bright(ramp(head))})`,
    /** The colour of a weight; a negative one, of heads that talk, is grey. @type {(head: string, weight: number) => number[]} */
    colour(head, weight) {
      const share = Math.min(1, Math.abs(weight));
      if (weight < 0) return paper.map((part) => Math.round(part + ((isDark() ? 215 : 60) - part) * share ** 0.75));
      if (!isDark()) return ramp(head)[Math.round(255 * share)];
      return paper.map((part, i) => Math.round(part + (bright(ramp(head))[i] - part) * share ** 0.75));
    },
  };
}

/**
 * All heads as small maps, by layer. One of the maps is chosen, arrow keys lead to the others; so they do among switches.
 * @param {T.Task} task
 * @param {T.Palette} colours
 * @param {{ choose: (head: string) => void, flip: (head: string) => void, flipAll?: (layer: string[]) => void }} acts
 */
export function boardOf(task, colours, { choose, flip, flipAll }) {
  const { heads, settings } = task.engine;
  const css = ofLive;
  const tiles = new Map(heads.map((head) => [head, tileOf(head)]));
  /** @type {(head: string) => T.Tile} */
  const tile = (head) => /** @type {T.Tile} */ (tiles.get(head));
  /** @type {(head: string) => T.Tile} */
  function tileOf(head) {
    const canvas = make("canvas", { class: css("small") });
    const button = make("button", { type: "button", role: "radio", class: css("choose"), "data-head": head, "aria-label": headName(task, head), onclick: () => choose(head) }, canvas);
    const bar = make("span", { class: css("cost"), role: "img", "aria-label": "its cost is being counted" });
    const label = `${headName(task, head)} is on`;
    const power = switchOf("", label, { "data-switch": head, onclick: () => flip(head) });
    const foot = make("span", { class: css("foot") }, make("span", { "aria-hidden": "true", text: String(numberOf(head)) }), power);
    return { canvas, button, bar, power, whole: make("div", { class: css("tile"), role: "presentation" }, button, bar, foot) };
  }
  /** @param {string} more @param {string} label @param {Record<string, unknown>} rest */
  function switchOf(more, label, rest) {
    return make("button", { type: "button", role: "switch", class: `${css("switch")} ${more}`, "aria-label": label, ...rest }, make("span", { class: css("knob") }));
  }
  const layers = range(0, heads.length / settings.num_heads).map((i) => heads.slice(i * settings.num_heads, (i + 1) * settings.num_heads));
  const few = layers.length <= 2;
  /** One for all heads of a layer, where layers are many. */
  const layerSwitches = few || !flipAll ? [] : layers.map((own) => switchOf(css("all"), `${layerName(task, own[0])}: all heads`, { "data-layer": layerName(task, own[0]), onclick: () => flipAll(own) }));
  const groups = layers.map((own, i) => {
    const way = task.facts.ways?.[kindOf(own[0])] ?? "";
    const name = make("span", { class: css("layer") }, make("strong", { text: layerName(task, own[0]) }), make("span", { class: css("way"), text: way }), ...layerSwitches.slice(i, i + 1));
    return make("div", { class: css("group"), role: "presentation" }, name, make("div", { class: css("tiles"), role: "presentation" }, ...own.map((head) => tile(head).whole)));
  });
  const board = make("div", { class: css("board"), role: "radiogroup", "aria-label": "all heads: arrow keys choose one" }, ...groups);
  board.style.setProperty("--layers", String(task.engine.numLayers));
  board.style.setProperty("--heads", String(settings.num_heads));
  board.classList.toggle(css("few"), few);
  board.classList.toggle(css("wide"), settings.num_heads > 4);
  board.addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    const at = heads.indexOf(target.dataset.head ?? target.dataset.switch ?? "");
    if (at < 0) return;
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -settings.num_heads, ArrowDown: settings.num_heads };
    arrows(event, steps, at, heads.length, (to) => {
      const { button, power } = tile(heads[to]);
      if (target.dataset.head) choose(heads[to]);
      walkTo(heads[to]);
      (target.dataset.head ? button : power).focus();
    });
  });
  /** Tab reaches one map and one switch. @param {string} head */
  function walkTo(head) {
    for (const [name, { button, power }] of tiles) {
      button.tabIndex = name === head ? 0 : -1;
      power.tabIndex = name === head ? 0 : -1;
    }
  }
  return {
    board,
    /** @param {Record<string, HeadRecord>} log @param {T.LiveDeeds} deeds @param {string} chosen */
    draw(log, deeds, chosen) {
      const deedOf = (/** @type {string} */ name) => /** @type {T.LiveDeed} */ (deeds[name] ?? {});
      layerSwitches.forEach((power, i) => power.setAttribute("aria-checked", String(layers[i].some((name) => !deedOf(name).off))));
      for (const [name, { canvas, button, power, whole }] of tiles) {
        const deed = deedOf(name);
        paintMap(canvas, colours, name, log[name]);
        whole.style.setProperty("--hue", colours.hue(name));
        whole.classList.toggle(css("is-off"), Boolean(deed.off));
        whole.classList.toggle(css("is-changed"), Boolean(deed.rows || deed.frozen || deed.patch));
        button.setAttribute("aria-checked", String(name === chosen));
        button.title = deed.off ? WOULD : "";
        power.setAttribute("aria-checked", String(!deed.off));
      }
      if (!board.contains(document.activeElement)) walkTo(chosen || heads[0]);
    },
    /** Tell what losing each head would cost; `null` if it is off. @param {Map<string, number | null>} costs */
    tellCosts(costs) {
      const full = Math.max(FULL_COST, ...Array.from(costs.values(), (cost) => cost ?? 0));
      for (const [head, cost] of costs) {
        const { bar } = tile(head);
        bar.style.setProperty("--share", String(Math.max(0, cost ?? 0) / full));
        bar.title = costInWords(cost);
        bar.setAttribute("aria-label", `${headName(task, head)}: ${bar.title}`);
      }
    },
  };
}

/** What losing a head would do to the answer as trained. @type {(cost: number | null) => string} */
function costInWords(cost) {
  if (cost === null) return "this head is off";
  const times = Math.exp(Math.abs(cost));
  if (times < 1.05) return `without it, the trained answer is as likely as now`;
  const factor = times < 100 ? times.toFixed(1) : times < 1e6 ? Math.round(times).toLocaleString("en-US") : "over a million";
  return `without it, the trained answer is ${factor} times ${cost > 0 ? "less" : "more"} likely`;
}

/** A head's weights, a pixel each, for the style sheet to stretch. @type {(canvas: HTMLCanvasElement, colours: T.Palette, head: string, record: HeadRecord) => void} */
function paintMap(canvas, colours, head, { nq, nk, weights }) {
  canvas.width = nk;
  canvas.height = nq;
  const pen = penOf(canvas);
  const image = pen.createImageData(nk, nq);
  weights.forEach((weight, i) => image.data.set([...colours.colour(head, weight), 255], 4 * i));
  pen.putImageData(image, 0, 0);
}

/** A slider for the temperature of a row, which stops at these. @param {(temperature: number) => void} changed */
function heatOf(changed) {
  const input = make("input", { type: "range", min: 0, max: HEATS.length - 1, step: 1, id: freshId() });
  input.addEventListener("input", () => changed(HEATS[input.valueAsNumber]));
  const name = make("label", { for: input.id });
  const number = make("span", { class: "mhalib-number" });
  const whole = make("div", { class: ofLive("heat") }, name, input, number);
  /** @param {string} query @param {number} temperature not a number where the row was changed otherwise */
  const draw = (query, temperature) => {
    name.textContent = `temperature of “${query}”`;
    const isKnown = temperature > 0;
    if (isKnown) input.value = String(HEATS.filter((stop) => stop < temperature * 0.999).length);
    number.textContent = isKnown ? String(Number(temperature.toPrecision(2))) : "–";
    input.setAttribute("aria-valuetext", isKnown ? number.textContent : "none");
  };
  return { whole, draw };
}

/**
 * One head large: a click gives a row's whole weight to a cell, a bar gives less; one more takes that back.
 * @param {T.Task} task
 * @param {T.Palette} colours
 * @param {T.LargeActs} acts
 */
export function largeOf(task, colours, acts) {
  const css = ofLive;
  const title = make("p", { class: css("title") });
  const would = make("span", { class: css("would") });
  const cost = make("p", { class: css("note") });
  /** @type {[string, string][]} */
  const powers = [["on", "on"], ["off", "off: gives nothing"], ["mean", "off: gives its average"]];
  const hasMeans = Object.keys(task.facts.means).length > 0;
  const power = choice({ value: "on", options: hasMeans ? powers : powers.slice(0, 2), changed: (value) => acts.power(value) });
  const others = [["", "this input"], ...task.facts.others.map(([text]) => [text, text])];
  const patch = choice({ value: "", options: others, changed: (value) => acts.patch(value) });
  const freeze = make("button", { type: "button", class: css("freeze"), onclick: () => acts.freeze() });
  const frozenNote = make("p", { class: css("note") });
  const echo = make("p", { class: css("echo"), "aria-hidden": "true" }); // on a phone the answer is out of sight
  const grid = make("div", { class: css("grid"), role: "grid", "aria-label": "weights: arrow keys walk, Enter puts the whole weight there, or takes it back" });
  const barsTitle = make("p", { class: css("row-title") });
  const release = make("button", { type: "button", text: "Reset row", class: css("release"), onclick: () => acts.release(row) });
  const bars = make("div", { class: css("bars"), role: "group" });
  const heat = acts.temperature && heatOf((temperature) => acts.temperature?.set(row, temperature));
  /** @type {HTMLElement[][]} */
  let cells = [];
  /** @type {{ input: HTMLInputElement, number: HTMLElement }[]} */
  let sliders = [];
  let [shape, barsShape, row, column] = ["", "", 0, 0];
  let isCausal = false;
  const seen = (/** @type {number} */ query, /** @type {number} */ numKeys) => numSeen(isCausal, query, numKeys);

  /** @param {HeadRecord} record @param {string[]} queries @param {string[]} keys */
  function lay({ nq, nk }, queries, keys) {
    const size = Math.max(11, Math.min(27, Math.floor(Math.min(310, innerWidth - 105) / Math.max(nq, nk))));
    grid.style.setProperty("--cell", `${size}px`);
    grid.style.setProperty("--keys", String(nk));
    const top = make("div", { role: "row", class: css("grid-row") }, make("span", { role: "columnheader", "aria-label": "looks at" }), ...keys.map((key) => make("span", { role: "columnheader", class: css(key.length > 1 ? "key" : "letter"), text: legible(key) })));
    cells = range(0, nq).map((q) => range(0, nk).map((k) => make("span", { role: "gridcell", tabindex: "-1", class: css(k < seen(q, nk) ? "cell" : "hidden-cell"), "data-q": q, "data-k": k })));
    const rows = cells.map((own, q) => make("div", { role: "row", class: css("grid-row") }, make("span", { role: "rowheader", class: css("query"), "data-q": q, text: legible(queries[q]) }), ...own));
    grid.replaceChildren(top, ...rows);
  }
  grid.addEventListener("click", (event) => {
    const { q, k } = /** @type {HTMLElement} */ (event.target).dataset;
    if (q === undefined) return;
    row = Number(q);
    if (k === undefined || Number(k) >= seen(row, cells[row].length)) return acts.query(row);
    column = Number(k);
    cells[row][column].focus();
    acts.put(row, column);
  });
  grid.addEventListener("keydown", (event) => {
    const focused = document.activeElement;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      acts.put(row, column);
      return;
    }
    const walk = (/** @type {number} */ q, /** @type {number} */ k) => {
      if (!cells[q]?.[k]?.classList.contains(css("cell"))) return;
      [row, column] = [q, k];
      if (grid.contains(focused)) cells[q][k].focus();
      acts.query(q);
    };
    arrows(event, { ArrowUp: -1, ArrowDown: 1 }, row, cells.length, (q) => walk(q, Math.min(column, seen(q, cells[q].length) - 1)));
    if (event.key.startsWith("ArrowL") || event.key.startsWith("ArrowR")) arrows(event, { ArrowLeft: -1, ArrowRight: 1 }, column, cells[row].length, (k) => walk(row, k));
  });

  /** @param {string} head @param {string} query @param {string[]} keys */
  function layBars(head, query, keys) {
    sliders = keys.map((key, k) => {
      const input = make("input", { type: "range", min: 0, max: 1, step: 0.01, id: freshId(), "data-k": k });
      input.addEventListener("input", () => acts.pull(row, k, input.valueAsNumber));
      input.addEventListener("keydown", (event) => {
        if (event.key === "ArrowUp" || event.key === "ArrowDown") arrows(event, { ArrowUp: -1, ArrowDown: 1 }, k, keys.length, (to) => focusSlider(to));
      });
      return { input, number: make("span", { class: "mhalib-number" }), key };
    });
    bars.setAttribute("aria-label", `weights of “${query}”: up and down lead to another, left and right change it`);
    bars.replaceChildren(...sliders.flatMap(({ input, number }, k) => [make("label", { for: input.id, text: legible(keys[k]) }), input, number]));
    bars.style.setProperty("--hue", colours.hue(head));
    focusSlider(0, false);
  }
  function focusSlider(/** @type {number} */ to, moves = true) {
    sliders.forEach(({ input }, k) => {
      input.tabIndex = k === to ? 0 : -1;
    });
    if (moves) sliders[to].input.focus();
  }

  /** @param {T.Drawn} drawn */
  function draw({ head, record, queries, keys, deed, query, isCausal: hidesFuture }) {
    const { nq, nk, weights } = record;
    isCausal = hidesFuture;
    row = Math.min(query, nq - 1);
    column = Math.min(column, seen(row, nk) - 1);
    const now = JSON.stringify([head, nq, queries, keys, isCausal]);
    if (now !== shape) lay(record, queries, keys);
    shape = now;
    cells.forEach((own, q) => {
      own.forEach((cell, k) => {
        if (k >= seen(q, nk)) return;
        const weight = weights[q * nk + k];
        cell.style.backgroundColor = `rgb(${colours.colour(head, weight)})`;
        cell.title = `${queries[q]} → ${keys[k]}: ${weight.toFixed(3)}`;
        cell.setAttribute("aria-label", cell.title);
        cell.tabIndex = q === row && k === column ? 0 : -1;
        cell.classList.toggle(css("moved"), deed.rows?.[q] !== undefined && weight > 0.3);
      });
    });
    grid.querySelectorAll("[role=row]").forEach((one, i) => one.classList.toggle(css("current"), i - 1 === row));
    drawBars(head, keys.slice(0, seen(row, nk)), queries[row], weights.subarray(row * nk, (row + 1) * nk), deed);
    drawControls(head, deed);
  }
  /** @param {string} head @param {string[]} keys @param {string} query @param {Float64Array} weights @param {T.LiveDeed} deed */
  function drawBars(head, keys, query, weights, deed) {
    const now = JSON.stringify([head, keys, query, row]);
    if (now !== barsShape) layBars(head, query, keys);
    barsShape = now;
    sliders.forEach(({ input, number }, k) => {
      if (document.activeElement !== input || Math.abs(input.valueAsNumber - weights[k]) > 0.02) input.value = String(weights[k]);
      number.textContent = weights[k].toFixed(2);
    });
    barsTitle.textContent = `“${legible(query)}” ${deed.off ? "would look at" : "looks at"}`;
    release.hidden = deed.rows?.[row] === undefined;
    heat?.draw(legible(query), acts.temperature?.of(row) ?? NaN);
  }
  /** @param {string} head @param {T.LiveDeed} deed */
  function drawControls(head, deed) {
    title.textContent = headName(task, head);
    title.style.setProperty("--hue", colours.hue(head));
    would.textContent = deed.off ? WOULD : "";
    whole.classList.toggle(css("is-off"), Boolean(deed.off));
    power.value = deed.off === true ? "off" : (deed.off ?? "on");
    if (deed.patch && !others.some(([text]) => text === deed.patch)) patch.append(make("option", { value: deed.patch, text: deed.patch }));
    patch.value = deed.patch ?? "";
    freeze.textContent = deed.frozen === undefined ? "Freeze where it looks" : "Let it look anew";
    freeze.setAttribute("aria-pressed", String(deed.frozen !== undefined));
    frozenNote.textContent = deed.frozen === undefined ? "" : `It looks where it looked in “${deed.frozen}”.`;
  }
  const powered = labelled("this head is", power);
  powered.classList.add(css("power"));
  const controls = make("div", { class: "mhalib-row" }, title, would, powered, freeze, labelled("it gives what it found in", patch));
  const panels = make("div", { class: css("panels") }, region("weights of the large head", grid), make("div", { class: css("beside") }, make("div", { class: css("row-head") }, barsTitle, release), bars));
  const hint = make("p", { class: css("note"), text: "Each row looks at the columns. Click a cell, and its row looks only there. Click again to undo." });
  const whole = make("section", { class: css("large"), "aria-label": "one head" }, controls, frozenNote, echo, ...(heat ? [heat.whole] : []), panels, hint, cost);
  const tellCost = (/** @type {string} */ told) => {
    cost.textContent = told;
  };
  const say = (/** @type {string} */ text) => {
    echo.textContent = text;
  };
  return { whole, draw, tellCost, say };
}
