// @ts-check
/* All heads of a model, layers down and heads across. A block of a map is one letter: code c is the weight (c / 61)². */

import { arrows, barOf, bytesOf, choice, classes, inSentence, labelled, listen, make, numberInput, penOf, rampOf, range, region, saveSvg, settle, sheet, svg, voice, writer } from "./shared.js";

/** @import * as T from "./types" */
/** @param {T.Place<T.Wall>} place */
export function HeadWall({ model, el }) {
  const [L, H, Q, K] = model.get("sizes");
  const [rows, columns, tall, wide] = model.get("grid");
  const [TOP, MASKED, ODD, NONE] = [61, 62, 63, 65535];
  const css = classes("head-wall");
  const put = writer(model);
  const said = voice();
  const names = model.get("number_names");
  const maps = bytesOf(model.get("maps").padEnd(4 * (1 + Math.floor(L * H * rows * columns / 4)), "A")); // 6 bits each
  const colours = rampOf(model.get("ramp"), TOP + 1);
  /** As the memory of a canvas holds it. @type {(rgb: number[]) => number} */
  const pixel = ([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  const [inks, ...hues] = [model.get("ramp"), ...(model.get("ramps") ?? [])].map((stops) => rampOf(stops, TOP + 1).map(pixel)); // of numbers, of each head
  const [GREY, PALE, ORANGE, WHITE] = [[128, 128, 128], [246, 246, 246], [213, 94, 0], [255, 255, 255]].map(pixel);
  const all = range(0, L * H);
  const chosen = () => model.get("layer") * H + model.get("head");
  const called = (/** @type {number} */ index) => `layer ${Math.floor(index / H)}, head ${index % H}`;

  /* Numbers of heads: whole numbers in a unit. */
  const at = () => names.indexOf(model.get("number"));
  /** @type {(units: number, places: number) => string} */
  const inDigits = (units, places) => (units / 10 ** places).toFixed(places).replace("-", "−");
  /** @type {(number: number, index: number) => string} */
  const written = (number, index) => {
    const units = model.get("numbers")[number][index];
    return units === null ? "no number" : inDigits(units, model.get("places")[number]);
  };
  /** Heads that have a number, the highest first. @type {(number: number) => number[]} */
  function ranked(number) {
    const units = model.get("numbers")[number] ?? [];
    return all.filter((index) => Number.isFinite(units[index])).sort((a, b) => Number(units[b]) - Number(units[a]) || a - b);
  }
  const showsNumber = () => model.get("view") === "number" && at() >= 0;
  /** Which head stands where, layer by layer. @type {(found: number[]) => number[]} */
  function placed(found) {
    if (model.get("order") === "model" || !names.length) return all;
    const sorted = model.get("order") === "lowest" ? [...found].reverse() : found;
    const rank = new Map(sorted.map((index, i) => [index, i]));
    return [...all].sort((a, b) => Math.floor(a / H) - Math.floor(b / H) || (rank.get(a) ?? L * H) - (rank.get(b) ?? L * H));
  }

  /** The code of a block. @type {(index: number, r: number, c: number) => number} */
  const block = (index, r, c) => {
    const bit = 6 * ((index * rows + r) * columns + c);
    return (((maps[bit >> 3] << 8) | maps[(bit >> 3) + 1]) >> (10 - (bit & 7))) & 63;
  };
  /** Heads in rows of `perRow`, each block `across` by `down` pixels: masked hatched, what is no weight chequered. @type {T.PaintWall} */
  function paint(canvas, heads, perRow, across, down, gap, read) {
    const [unitX, unitY] = [columns * across + gap, rows * down + gap];
    canvas.width = perRow * unitX;
    canvas.height = Math.ceil(heads.length / perRow) * unitY;
    const pen = penOf(canvas);
    const image = pen.createImageData(canvas.width, canvas.height);
    const pixels = new Uint32Array(image.data.buffer);
    heads.forEach((index, i) => {
      const [left, top] = [(i % perRow) * unitX + gap / 2, Math.floor(i / perRow) * unitY + gap / 2];
      const own = (read === block && hues[(index % H) % hues.length]) || inks;
      for (let y = 0; y < rows * down; y += 1) {
        for (let x = 0; x < columns * across; x += 1) {
          const code = read(index, Math.floor(y / down), Math.floor(x / across));
          const stripe = code === MASKED ? ((x + y) % 5 < 2 ? GREY : PALE) : ((x >> 1) + (y >> 1)) & 1 ? ORANGE : WHITE;
          pixels[(top + y) * canvas.width + left + x] = code <= TOP ? own[code] : stripe;
        }
      }
    });
    pen.putImageData(image, 0, 0);
  }

  const zoom = Math.max(1, Math.floor(24 / Math.max(rows, columns)));
  const [across, down] = [zoom * Math.max(1, Math.ceil(rows / columns / 3)), zoom * Math.max(1, Math.ceil(columns / rows / 3))];
  const GAP = 2;
  const canvas = make("canvas", { class: css("canvas"), "aria-hidden": "true" });
  const cells = all.map((place) => make("div", { role: "gridcell", class: css("cell"), "data-place": place }));
  const lines = range(0, L).map((layer) => make("div", { role: "row", class: css("row"), "aria-label": `layer ${layer}` }, ...cells.slice(layer * H, (layer + 1) * H)));
  const grid = make("div", { class: css("cells"), role: "grid", "aria-label": "heads; arrow keys choose" }, ...lines);
  const picture = make("div", { class: css("picture") }, canvas, grid);
  const layerNames = range(0, L).map((layer) => make("span", { text: String(layer) }));
  const headNames = range(0, H).map((head) => make("span", { text: String(head) }));
  const sorted = make("span", { class: css("sorted") });
  const wall = make(
    "div",
    { class: css("wall") },
    make("span", { class: css("corner"), "aria-hidden": "true", text: "layer" }),
    make("div", { class: css("heads"), "aria-hidden": "true" }, ...headNames, sorted),
    make("div", { class: css("layers"), "aria-hidden": "true" }, ...layerNames),
    picture,
  );
  wall.style.setProperty("--heads", String(H));
  let [order, ranks, marked, tones] = [all, all, all, all]; // heads by place, by number; framed ones; codes of their numbers
  const choose = (/** @type {number} */ index) => put({ layer: Math.floor(index / H), head: index % H });
  grid.addEventListener("click", (event) => {
    const cell = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest("[data-place]"));
    if (cell) choose(order[Number(cell.dataset.place)]);
  });
  grid.addEventListener("keydown", (event) => {
    arrows(event, { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -H, ArrowDown: H }, order.indexOf(chosen()), L * H, (place) => {
      choose(order[place]);
      cells[place].focus();
    });
  });

  /* Labels and numbers as far as there is room. */
  function fit() {
    const side = picture.clientWidth / H;
    const every = (/** @type {number} */ room) => Math.max(1, Math.ceil(room / Math.max(1, side)));
    layerNames.forEach((one, i) => one.classList.toggle(css("unseen"), i % every(17) > 0));
    headNames.forEach((one, i) => one.classList.toggle(css("unseen"), i % every(22) > 0));
    canvas.classList.toggle(css("sharp"), side * devicePixelRatio >= columns * across);
    grid.classList.toggle(css("roomy"), side >= 38);
  }
  const watch = new ResizeObserver(fit);
  watch.observe(picture);

  const mapWords = tall * wide === 1 ? "each block is one weight" : `each block is the ${model.get("pool") === "max" ? "largest" : "mean"} of ${tall} × ${wide} weights`;
  const legend = make("p", { class: css("legend") });
  /** @type {(code: number, text: string) => HTMLElement} */
  function swatch(code, text) {
    const one = make("canvas", { class: css("swatch") });
    paint(one, [0], 1, Math.ceil(16 / columns), Math.ceil(16 / rows), 0, () => code);
    return make("span", {}, one, text);
  }
  let ends = ["", ""];
  function drawLegend() {
    const ticks = showsNumber() ? ends : ["0", "0.25", "1"];
    const scale = make("span", { class: css("bar") }, barOf(colours, css("scale")), make("span", { class: css("ticks") }, ...ticks.map((text) => make("span", { text }))));
    const odd = swatch(ODD, showsNumber() ? "no number" : "no weight from 0 to 1");
    const dots = model.get("detailed").length < L * H ? ["dot: strongest keys are stored"] : [];
    legend.replaceChildren(scale, ...(showsNumber() ? [`${names[at()]}, from the lowest to the highest`, odd] : [mapWords, swatch(MASKED, "masked"), odd]), ...dots);
  }

  function drawWall() {
    ranks = ranked(at());
    order = placed(ranks);
    const units = model.get("numbers")[at()] ?? [];
    const [high, low] = [ranks[0], ranks[ranks.length - 1]].map((index) => Number(units[index]));
    tones = all.map((index) => (Number.isFinite(units[index]) ? Math.round((TOP * (Number(units[index]) - low)) / (high - low || 1)) : ODD));
    paint(canvas, order, H, across, down, GAP, showsNumber() ? (index) => tones[index] : block);
    const few = model.get("detailed").length < L * H;
    cells.forEach((cell, place) => {
      const index = order[place];
      const about = `${called(index)}${names.length ? `, ${names[at()]} ${written(at(), index)}` : ""}`;
      cell.setAttribute("aria-label", about);
      cell.title = about;
      cell.classList.toggle(css("detailed"), few && model.get("detailed").includes(index));
      cell.textContent = showsNumber() ? written(at(), index) : "";
      cell.classList.toggle(css("dark"), tones[index] > 30 && tones[index] <= TOP);
    });
    sorted.textContent = order === all ? "" : `${names[at()]}: ${model.get("order")} first`;
    headNames.forEach((one) => {
      one.hidden = order !== all;
    });
    ends = ranks.length ? [low, high].map((one) => inDigits(one, model.get("places")[at()])) : ["", ""];
    drawLegend();
    drawChoice();
  }

  const title = make("p", { class: css("title") });
  const large = make("canvas", { class: css("canvas"), role: "img" });
  const strip = make("span", { class: css("strip") });
  const map = make("div", { class: css("map") }, large, strip);
  map.addEventListener("click", (event) => {
    const box = large.getBoundingClientRect();
    const row = Math.floor(((event.clientY - box.top) / box.height) * rows);
    put({ query: Math.min(Q - 1, Math.max(0, row) * tall) });
  });
  const mapNote = make("p", { class: css("note"), text: `queries down, keys across; ${mapWords}; click a row to choose its ${tall > 1 ? "first " : ""}query` });
  const about = region("numbers of the chosen head");
  const strongest = region("strongest keys of the chosen query");
  let framed = "";
  const best = make("div", { class: css("best"), role: "group" });

  /** @type {(tokens: string[], i: number) => string} */
  const token = (tokens, i) => (tokens[i] === String(i) ? `${i}` : `${i} ${inSentence(tokens[i])}`);
  /** The strongest keys of a query with thousandths, and the share of the row that they hold, or null. @type {T.Detail} */
  function detail(q) {
    const at = model.get("detailed").indexOf(chosen());
    const [index, text] = model.get("sent");
    const found = at >= 0 ? model.get("details")[at] : index === chosen() ? text : "";
    if (!found) return null;
    const count = model.get("top_keys");
    const numbers = new DataView(bytesOf(found).buffer);
    const read = (/** @type {number} */ i) => numbers.getUint16(2 * (q * (2 * count + 1) + i), true);
    const keys = range(0, count).map((i) => [read(2 * i), read(2 * i + 1)]).filter(([key]) => key !== NONE);
    return { keys, share: read(2 * count) };
  }
  /** @type {(name: string, from: number, count: number, end: number) => string} */
  const span = (name, from, count, end) => (count === 1 ? `${name} ${from}` : `${name === "key" ? "keys" : "queries"} ${from}–${Math.min(end, from + count) - 1}`);
  /** What the map alone says of a query. */
  function fromMap() {
    const r = Math.floor(model.get("query") / tall);
    const row = range(0, columns).map((c) => block(chosen(), r, c));
    const seen = row.filter((code) => code <= TOP);
    const who = span("query", r * tall, tall, Q);
    if (!seen.length) return `${who}: ${row.includes(ODD) ? "no weight from 0 to 1" : "every key is masked"}.`;
    const most = Math.max(...seen);
    const what = model.get("pool") === "max" ? "weight" : "mean weight";
    return `the largest ${what} of ${who} is about ${((most / TOP) ** 2).toFixed(2)}, at ${span("key", row.indexOf(most) * wide, wide, K)}.`;
  }
  function lacking() {
    const count = model.get("detailed").length;
    const those = count ? `${count} of ${L * H} heads, the ones with a dot` : "no head";
    return model.get("kept") ? "The kernel has been asked for the strongest keys of this head." : `The strongest keys of this head are not stored, only those of ${those}.`;
  }
  function drawChoice() {
    const [index, q, count] = [chosen(), model.get("query"), model.get("marked")];
    marked = count < 0 ? [...ranks].reverse().slice(0, -count) : ranks.slice(0, count);
    cells.forEach((cell, place) => {
      const own = order[place] === index;
      cell.tabIndex = own ? 0 : -1;
      cell.setAttribute("aria-selected", String(own));
      cell.classList.toggle(css("marked"), marked.includes(order[place]));
    });
    title.textContent = called(index);
    const size = Math.max(1, Math.floor(320 / Math.max(rows * (down / zoom), columns * (across / zoom))));
    paint(large, [index], 1, size * (across / zoom), size * (down / zoom), 0, block);
    large.setAttribute("aria-label", `the map of ${called(index)}; ${mapWords}`);
    strip.style.top = `${(100 * Math.floor(q / tall)) / rows}%`;
    strip.style.height = `${100 / rows}%`;
    const rankOf = (/** @type {number[]} */ found) => (found.includes(index) ? `${found.indexOf(index) + 1} of ${found.length}` : "none");
    const numbers = names.map((name, number) => [name, written(number, index), rankOf(ranked(number))]);
    about.hidden = !names.length;
    about.replaceChildren(sheet(`${called(index)} in numbers; rank 1 is the highest`, ["number", "value", "rank"], numbers));
    framed = `${marked.length} ${count < 0 ? "lowest" : "highest"} by ${names[at()]}`;
    best.hidden = !marked.length;
    best.setAttribute("aria-label", framed);
    best.replaceChildren(`${framed}, framed:`, ...marked.map((one) => make("button", { type: "button", "data-head": one, "aria-pressed": String(one === index), onclick: () => choose(one), text: `${called(one)}: ${written(at(), one)}` })));
    const numbered = names.length ? `, ${names[at()]} ${written(at(), index)}, rank ${rankOf(ranks)}` : "";
    said.textContent = `${called(index)}${numbered}. ${drawKeys(q)}`;
    choices.forEach(({ show }) => show());
    showQuery(q);
  }
  /** The strongest keys of a query as a table; returns them in a sentence. @type {(q: number) => string} */
  function drawKeys(q) {
    const found = detail(q);
    if (!found) {
      const words = `${lacking()} Its map says: ${fromMap()}`;
      strongest.replaceChildren(make("p", { class: css("lacking"), text: words }));
      return words;
    }
    const keys = model.get("key_tokens");
    const query = token(model.get("query_tokens"), q);
    const weights = found.keys.map(([, code]) => (code / 1000).toFixed(3));
    const share = found.share === NONE ? "nothing" : `${(found.share / 10).toFixed(1)} %`;
    const lower = found.keys.map(([key], i) => [String(key), inSentence(keys[key]), weights[i]]);
    strongest.replaceChildren(sheet(`strongest keys of query ${query}`, ["key", "token", "weight"], [...lower, ["together", "", share]]));
    if (!found.keys.length) return `${query}: no key has a weight from 0 to 1.`;
    return `${query} → ${token(keys, found.keys[0][0])} ${weights[0]}; ${weights.length === 1 ? "this key holds" : `${weights.length} keys hold`} ${share} of the row.`;
  }

  /** The wall: its picture as an image, and over it names, frames, and for each head what is said of it. */
  function download() {
    const [left, top] = [70, 50];
    const [stepX, stepY] = [columns * across + GAP, rows * down + GAP];
    const [width, height] = [left + canvas.width + 10, top + canvas.height + 30];
    const words = showsNumber() ? `${names[at()]}; light: ${ends[0]}, dark: ${ends[1]}` : `${mapWords}; light: 0, dark: 1, on a scale of roots`;
    /** @type {(x: number, y: number, text: string, anchor?: string) => SVGElement} */
    const text = (x, y, text, anchor = "start") => svg("text", { x, y, text, "text-anchor": anchor });
    const heads = order.map((index, place) => {
      const [x, y] = [left + GAP / 2 + (place % H) * stepX, top + GAP / 2 + Math.floor(place / H) * stepY];
      const frame = marked.includes(index) ? { stroke: "#d55e00", "stroke-width": 2 } : { stroke: "none" };
      return svg("rect", { x, y, width: stepX - GAP, height: stepY - GAP, fill: "none", "pointer-events": "all", ...frame }, svg("title", { text: cells[place].title }));
    });
    const whole = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": "sans-serif", "font-size": 11 });
    whole.append(
      svg("title", { text: `All heads: ${words}` }),
      svg("rect", { width, height, fill: "#fff" }),
      svg("image", { x: left, y: top, width: canvas.width, height: canvas.height, "image-rendering": "pixelated", href: canvas.toDataURL() }),
      text(left, 16, words),
      ...range(0, L).map((layer) => text(left - 6, top + (layer + 0.5) * stepY + 3, `layer ${layer}`, "end")),
      ...(order === all ? range(0, H).map((head) => text(left + (head + 0.5) * stepX, top - 6, String(head), "middle")) : [text(left, top - 6, sorted.textContent ?? "")]),
      ...heads,
      ...(marked.length ? [text(left, height - 10, `framed: the ${framed}`)] : []),
    );
    saveSvg(whole, `heads by ${showsNumber() ? model.get("number") : "maps"}`);
  }

  const OFFERS = [0, 5, 10, 20, -5, -10, -20];
  /** @type {[keyof T.Wall & string, string, [string | number, string][]][]} */
  const offers = [
    ["view", "cells show", [["maps", "maps"], ["number", "the number"]]],
    ["number", "number", names.map((name) => [name, name])],
    ["order", "order in a layer", [["model", "as in the model"], ["highest", "highest first"], ["lowest", "lowest first"]]],
    ["marked", "framed", OFFERS.map((count) => [count, count ? `${Math.abs(count)} ${count < 0 ? "lowest" : "highest"}` : "none"])],
    ["layer", "layer", range(0, L).map((i) => [i, String(i)])],
    ["head", "head", range(0, H).map((i) => [i, String(i)])],
  ];
  const choices = offers.filter(([name]) => names.length || ["layer", "head"].includes(name)).map(([name, label, options]) => {
    const input = choice({ value: String(model.get(name)), options, changed: (value) => put({ [name]: typeof model.get(name) === "number" ? Number(value) : value }), "data-name": name });
    const show = () => {
      const value = String(model.get(name));
      if (!Array.from(input.options).some((option) => option.value === value)) input.append(make("option", { value, text: value }));
      input.value = value;
    };
    return { row: labelled(label, input), show };
  });
  const { input: queryInput, show: showQuery } = numberInput({ value: model.get("query"), min: 0, max: Q - 1, changed: (query) => put({ query }), said, "data-name": "query" });
  const stops = [listen(model, ["view", "number", "order"], drawWall), listen(model, ["layer", "head", "query", "marked", "sent"], drawChoice)];
  settle(
    el,
    "head-wall",
    make("div", { class: "mhalib-controls", role: "group", "aria-label": "what is shown" }, ...choices.map(({ row }) => row), labelled(`query, 0 to ${Q - 1}`, queryInput)),
    ...(model.get("note") ? [make("p", { class: css("warning"), text: `⚠ ${model.get("note")}` })] : []),
    said,
    legend,
    region("all heads", wall),
    best,
    title,
    make("div", { class: css("panels") }, make("div", {}, map, mapNote), make("div", { class: css("facts") }, about, strongest)),
    make("button", { type: "button", text: "download the wall as SVG", onclick: download }),
  );
  drawWall();
  return () => {
    stops.forEach((stop) => stop());
    watch.disconnect();
  };
}
