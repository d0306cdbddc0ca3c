// @ts-check
/* Attention on a few tokens: vectors, scores, mask, weights, output. Numbers are recomputed at each change. */

import { arrows, choice, classes, freshId, inSentence, labelled, legible, listen, make, numberInput, range, settle, svg, voice, writer } from "./shared.js";

/** @import * as T from "./types" */

/**
 * A plane whose points a reader moves: by pointer or finger, and by the arrow keys on the point that has the focus. It is
 * one tab stop; Page Up, Page Down, Home and End go to another of its points. `moved(i, [x, y])` is told where to.
 * @param {T.PlaneOptions} options
 */
export function planeOf({ title, css, count, bound, moved }) {
  const [SIDE, MARGIN, TOP, GRIP] = [320, 26, 12, 14]; // above TOP, the drawing is cut
  const REACHES = [[3, 1], [4, 1], [6, 2], [10, 2], [20, 5], [50, 10], [100, 20]]; // from the middle to an edge, and between two lines
  let [[reach, step], current] = [REACHES[0], 0];
  /** @type {{ i: number, off: number[] } | null} */
  let held = null;
  /** @type {T.PointInPlane[]} */
  let points = [];
  const x = (/** @type {number} */ value) => SIDE / 2 + (value / reach) * (SIDE / 2 - MARGIN);
  const y = (/** @type {number} */ value) => SIDE - x(value);
  const [grid, below, above] = ["grid", "below", "above"].map((name) => svg("g", { class: css(name), "aria-hidden": "true" }));
  const handles = range(0, count).map((i) =>
    svg("g", { class: css("handle"), role: "slider", "aria-roledescription": "point", tabindex: i ? -1 : 0, "data-point": i }, svg("circle", { r: GRIP }), svg("circle", { r: 4.5, class: css("dot") })),
  );
  const picture = svg("svg", { viewBox: `0 ${TOP} ${SIDE} ${SIDE - TOP}`, role: "group", "aria-label": title }, grid, below, ...[...handles].reverse(), above); // the first one, the query, lies over the others

  /** Where a pointer is, in the numbers of the plane. @type {(event: PointerEvent) => number[]} */
  function under(event) {
    const box = picture.getBoundingClientRect();
    const along = (/** @type {number} */ pixels) => ((pixels - SIDE / 2) * reach) / (SIDE / 2 - MARGIN);
    const pixel = SIDE / box.width;
    return [along((event.clientX - box.left) * pixel), -along(TOP + (event.clientY - box.top) * pixel)];
  }
  /** @type {(i: number, wanted: number[], most: number, digits: number) => void} */
  function move(i, wanted, most, digits) {
    const to = wanted.map((value) => Number(Math.min(most, Math.max(-most, value)).toFixed(digits)) + 0); // no -0
    if (to.some((value, c) => value !== points[i].at[c])) moved(i, to);
  }
  function release() {
    held = null;
    draw(points);
  }
  handles.forEach((handle, i) => {
    handle.addEventListener("pointerdown", (event) => {
      event.preventDefault(); // no selection of text
      handle.focus({ preventScroll: true });
      handle.setPointerCapture(event.pointerId);
      const from = under(event);
      held = { i, off: points[i].at.map((value, c) => value - from[c]) };
    });
    handle.addEventListener("touchstart", (event) => event.preventDefault(), { passive: false }); // or the page scrolls: touch-action stops at the svg
    handle.addEventListener("pointermove", (event) => {
      if (held?.i === i) move(i, under(event).map((value, c) => value + (held?.off[c] ?? 0)), reach, 1);
    });
    for (const end of ["pointerup", "pointercancel"]) handle.addEventListener(end, release);
    handle.addEventListener("focus", () => {
      handles[current].setAttribute("tabindex", "-1");
      handle.setAttribute("tabindex", "0");
      current = i;
    });
    handle.addEventListener("keydown", (event) => {
      arrows(event, { PageUp: -1, PageDown: 1 }, i, count, (to) => handles[to].focus());
      const [right, up] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowDown: [0, -1], ArrowUp: [0, 1] }[event.key] ?? [0, 0];
      if (!right && !up) return;
      event.preventDefault();
      const far = event.shiftKey ? 1 : 0.1;
      move(i, [points[i].at[0] + right * far, points[i].at[1] + up * far], bound, 4);
    });
  });

  function drawGrid() {
    const each = Math.floor(reach / step);
    const ticks = range(-each, each + 1).map((i) => i * step);
    const [low, high] = [x(-reach), x(reach)];
    const line = (/** @type {number[]} */ [x1, y1, x2, y2], /** @type {number} */ value) => svg("line", { x1, y1, x2, y2, class: value ? null : css("axis") });
    const text = (/** @type {number} */ value) => String(value).replace("-", "−");
    grid.replaceChildren(
      ...ticks.flatMap((value) => [line([x(value), low, x(value), high], value), line([low, y(value), high, y(value)], value)]),
      ...ticks.map((value) => svg("text", { x: x(value), y: SIDE - 8, "text-anchor": "middle", text: text(value) })),
      ...ticks.map((value) => svg("text", { x: MARGIN - 6, y: y(value) + 4, "text-anchor": "end", text: text(value) })),
    );
  }
  /** The names beside their points, covering none; without room, at the end of a thin line. @type {(points: T.PointInPlane[]) => SVGElement[]} */
  function names(points) {
    /** @type {number[][]} */
    const taken = points.map(({ at: [a, b] }) => [x(a) - 5, x(a) + 5, y(b)]); // left, right and middle
    for (const { at: [a, b] } of points.filter(({ kind }) => kind === "q"))
      taken.push(...range(1, 10).map((i) => [x((a * i) / 10) - 3, x((a * i) / 10) + 3, y((b * i) / 10)])); // the arrow's shaft
    return points.flatMap(({ at: [a, b], label, kind, size = 0 }, own) => {
      const [away, width] = [9 + 0.7 * size, 7.2 * label.length];
      const beside = [x(a) + away, x(a) - away - width].flatMap((left) => [-6 - 0.5 * size, 15 + 0.5 * size].map((down) => [left, y(b) + down]));
      const over = [-8 - size, 18 + size].map((down) => [x(a) - width / 2, y(b) + down]);
      const far = [34, 56, 80].flatMap((radius) => range(0, 12).map((i) => [x(a) + radius * Math.cos((i * Math.PI) / 6) - width / 2, y(b) + radius * Math.sin((i * Math.PI) / 6) + 4]));
      const isInside = (/** @type {number[]} */ [left, down]) => left > 0 && left + width < SIDE + 12 && down > TOP + 12 && down < SIDE - 20;
      const isFree = (/** @type {number[]} */ [left, down]) => taken.every(([from, to, middle]) => left + width < from || left > to || Math.abs(down - 4 - middle) > 14);
      const gap = (/** @type {number[]} */ [left, down], /** @type {T.PointInPlane} */ { at: [c, d], size = 0 }) => Math.hypot(Math.max(left - x(c), x(c) - left - width, 0), Math.max(down - 10 - y(d), y(d) - down, 0)) - size;
      const isOwn = (/** @type {number[]} */ at) => points.every((other) => Math.hypot(other.at[0] - a, other.at[1] - b) * 30 < reach || gap(at, other) > gap(at, points[own]) + 4);
      const near = [...beside.slice(0, 2), ...over, ...beside.slice(2)].filter(([left]) => left > 0 && left + width < SIDE + 12);
      const place = near.find((at) => isFree(at) && isOwn(at));
      const [left, down] = place ?? far.filter(isInside).find(isFree) ?? near[0] ?? beside[0];
      taken.push([left, left + width, down - 4]);
      const onLeft = left + width <= x(a);
      const text = svg("text", { x: onLeft ? left + width : left, y: down, "text-anchor": onLeft ? "end" : "start", class: css(kind), text: label });
      const end = [Math.min(Math.max(x(a), left), left + width), down < y(b) ? down + 3 : down - 11];
      return place ? [text] : [svg("line", { x1: x(a), y1: y(b), x2: end[0], y2: end[1], class: css("leader") }), text];
    });
  }
  /** The query's line, and where each key meets it at a right angle: how far along it a key reaches is their dot product. */
  function reaches(/** @type {number[]} */ [a, b]) {
    const keys = points.filter(({ kind }) => kind === "k").map(({ at }) => at);
    const along = keys.map(([c, d]) => (a * c + b * d) / (a * a + b * b));
    if (!a && !b) return []; // it asks nothing
    const line = (/** @type {number[]} */ [x1, y1, x2, y2], /** @type {string} */ name) => svg("line", { x1: x(x1), y1: y(y1), x2: x(x2), y2: y(y2), class: css(name) });
    const [low, high] = [Math.min(0, ...along), Math.max(1, ...along)];
    return [line([low * a, low * b, high * a, high * b], "ray"), ...keys.map(([c, d], j) => line([c, d, along[j] * a, along[j] * b], "stem"))];
  }
  function arrow(/** @type {number[]} */ [a, b]) {
    const [dx, dy] = [x(a) - x(0), y(b) - y(0)];
    const length = Math.hypot(dx, dy) || 1;
    const [back, side] = [[(-12 * dx) / length, (-12 * dy) / length], [(-5 * dy) / length, (5 * dx) / length]];
    const tip = [[0, 0], [back[0] + side[0], back[1] + side[1]], [back[0] - side[0], back[1] - side[1]]];
    const corners = tip.map(([right, down]) => `${x(a) + right},${y(b) + down}`).join(" ");
    return [svg("line", { x1: x(0), y1: y(0), x2: x(a), y2: y(b), class: css("shaft") }), ...(length > 12 ? [svg("polygon", { points: corners, class: css("tip") })] : [])];
  }
  /** The points as they are now: the first `count` can be moved, others are only shown. @type {(now: T.PointInPlane[]) => void} */
  function draw(now) {
    points = now;
    const most = Math.max(...points.flatMap(({ at }) => at.map(Math.abs)));
    if (!held) [reach, step] = REACHES.find(([far]) => far >= 1.25 * most) ?? REACHES[REACHES.length - 1];
    drawGrid();
    const hull = hullOf(points.filter(({ kind, hidden }) => kind === "v" && !hidden).map(({ at }) => at));
    const discs = points.filter(({ size }) => size).map(({ at: [a, b], size }) => svg("circle", { cx: x(a), cy: y(b), r: size, class: css("disc") }));
    below.replaceChildren(
      svg("polygon", { points: hull.map(([a, b]) => `${x(a)},${y(b)}`).join(" "), class: css("hull") }),
      ...points.filter(({ kind }) => kind === "q").flatMap(({ at }) => reaches(at)),
      ...discs,
      ...points.filter(({ kind }) => kind === "q").flatMap(({ at }) => arrow(at)),
    );
    const stars = points.filter(({ kind }) => kind === "output").map(({ at: [a, b] }) => svg("path", { d: STAR, transform: `translate(${x(a)} ${y(b)})`, class: css("star") }));
    above.replaceChildren(...stars, ...names(points));
    handles.forEach((handle, i) => {
      const { at, kind, hidden, said, facts } = points[i];
      handle.setAttribute("transform", `translate(${x(at[0])} ${y(at[1])})`);
      handle.classList.toggle(css("unseen"), Boolean(hidden));
      const words = { "data-kind": kind, "aria-label": said, "aria-valuenow": at[0], "aria-valuemin": -bound, "aria-valuemax": bound, "aria-valuetext": facts };
      for (const [name, value] of Object.entries(words)) handle.setAttribute(name, String(value));
    });
  }
  return { picture, draw };
}

/** A five-pointed star about the origin. */
const STAR = `M${range(0, 10).map((i) => [i % 2 ? 5 : 12, (i * Math.PI) / 5]).map(([r, turn]) => `${(r * Math.sin(turn)).toFixed(2)},${(-r * Math.cos(turn)).toFixed(2)}`).join("L")}Z`;

/** The corners of the smallest convex shape around some points, in order. @type {(points: number[][]) => number[][]} */
function hullOf(points) {
  const sorted = [...points].sort(([a, b], [c, d]) => a - c || b - d);
  const half = (/** @type {number[][]} */ inOrder) => {
    /** @type {number[][]} */
    const kept = [];
    for (const next of inOrder) {
      const turnsRight = () => {
        const [[a, b], [c, d]] = kept.slice(-2);
        return (c - a) * (next[1] - b) - (d - b) * (next[0] - a) <= 0;
      };
      while (kept.length > 1 && turnsRight()) kept.pop();
      kept.push(next);
    }
    return kept.slice(0, -1);
  };
  return sorted.length > 2 ? [...half(sorted), ...half(sorted.reverse())] : sorted;
}

/** @param {T.Place<T.Playground>} place */
export function AttentionPlayground({ model, el, tell }) {
  /** @type {(keyof T.Playground)[]} */
  const NAMES = ["tokens", "q", "k", "v", "scale", "temperature", "mask", "valid_len", "query"];
  /** @type {("q" | "k" | "v")[]} */
  const VECTORS = ["q", "k", "v"];
  const BOUND = 100;
  const css = classes("attention-playground");
  const copy = (/** @type {number[][]} */ rows) => rows.map((row) => [...row]);
  const start = Object.fromEntries(NAMES.map((name) => [name, model.get(name)])); // vectors are replaced, never changed

  /** Names of the tokens; equal ones are told apart by their number. */
  function shownNames() {
    const plain = model.get("tokens").map((token) => legible(token, 14));
    return plain.map((name, t) => (plain.indexOf(name) === plain.lastIndexOf(name) ? name : `${name} (${t})`));
  }

  /** @type {T.Digits} */
  function inDigits(x) {
    const size = Math.abs(x);
    const text = size >= 1e5 ? size.toExponential(1) : size.toFixed(size >= 100 ? 0 : 2);
    return x < 0 && Number(text) !== 0 ? `−${text}` : text;
  }

  const brief = (/** @type {number} */ x) => String(Number(x.toFixed(3))).replace("-", "−");

  /** The whole computation, in the order of the stages. */
  function attention() {
    const [q, k, v] = VECTORS.map((name) => model.get(name));
    const divisor = (model.get("scale") ? Math.sqrt(q[0].length) : 1) * model.get("temperature");
    /** @type {Record<string, (t: number, j: number) => boolean>} */
    const rules = { none: () => true, causal: (t, j) => j <= t, "valid length": (_, j) => j < model.get("valid_len") };
    const sees = rules[model.get("mask")];
    const scores = q.map((query) => k.map((key) => query.reduce((sum, x, c) => sum + x * key[c], 0) / divisor));
    const mask = q.map((_, t) => k.map((_, j) => sees(t, j)));
    const weights = scores.map((row, t) => {
      const highest = Math.max(...row.filter((_, j) => mask[t][j]));
      const powers = row.map((score, j) => (mask[t][j] ? Math.exp(score - highest) : 0));
      const total = powers.reduce((sum, x) => sum + x, 0);
      return powers.map((x) => (total ? x / total : 0));
    });
    const output = weights.map((row) => v[0].map((_, c) => row.reduce((sum, w, j) => sum + w * v[j][c], 0)));
    return { scores, mask, weights, output };
  }

  /** The parts of a control, where the page asks for it. */
  const shown = (/** @type {string} */ name, /** @type {Element[]} */ ...parts) => (model.get("controls").includes(name) ? parts : []);
  const put = writer(model);
  const said = voice();
  let { fields, cells, radios, names, form, sum, planes } = /** @type {T.Built} */ ({});
  let opened = false; // the fold with the tables

  /** Another number in row t of q, k or v. @type {(name: "q" | "k" | "v", t: number, row: number[]) => void} */
  function putRow(name, t, row) {
    const rows = copy(model.get(name));
    rows[t] = row;
    put({ [name]: rows });
  }

  /** A field for a number of the model: `read` finds it there, `changed` puts it there. @type {T.RealField} */
  function realField(read, options) {
    const { input, show } = numberInput({ value: read(), whole: false, said, ...options });
    fields.push(() => show(read()));
    return input;
  }

  /** @type {T.Named} */
  const named = (text, scope, attributes = {}) => make("th", { scope, ...attributes }, make("bdi", { text }));

  /** A stage: its table with a caption, in a frame that scrolls where the page is narrow. @type {T.StageTable} */
  function stage(number, title, key, ...parts) {
    const formula = make("span", { class: "mhalib-formula", "data-formula": key });
    const caption = make("caption", {}, make("b", { text: `${number} ${title} ` }), formula);
    const region = { class: `mhalib-frame ${css("stage")}`, role: "region", tabindex: 0, "aria-label": `${number} ${title}`, "data-stage": key };
    cells[key] = { formula, rows: [], numbers: [] };
    const table = make("table", {}, caption, ...parts);
    return { frame: make("div", region, table), table };
  }

  /** Rows of a stage, one for each query; a click chooses it. @type {T.RowsOf} */
  function rowsOf(key, filled) {
    cells[key].rows = names.map((name, t) => make("tr", { onclick: () => put({ query: t }) }, named(name, "row"), ...filled(t)));
    return make("tbody", {}, ...cells[key].rows);
  }

  /** @type {T.Grid} */
  function grid(number, title, key, columns, corner) {
    const { frame, table } = stage(number, title, key);
    cells[key].numbers = names.map(() => columns.map(() => make("td")));
    const heads = columns.map((name) => named(name, "col"));
    table.append(
      make("thead", {}, make("tr", {}, make("td", { class: css("corner"), text: corner }), ...heads)),
      rowsOf(key, (t) => cells[key].numbers[t]),
    );
    return frame;
  }

  function vectorStage() {
    const widths = VECTORS.map((name) => model.get(name)[0].length);
    const { frame, table } = stage(1, "vectors", "vectors");
    const top = VECTORS.map((name, i) => make("th", { scope: "colgroup", colspan: widths[i], text: name }));
    /** @type {T.VectorField} */
    const field = (name, t, c) => {
      const changed = (/** @type {number} */ value) => putRow(name, t, model.get(name)[t].map((old, i) => (i === c ? value : old)));
      const words = { "aria-label": `${name} of ${names[t]}, channel ${c}`, "data-cell": `${name}-${t}-${c}` };
      const input = realField(() => model.get(name)[t][c], { min: -BOUND, max: BOUND, step: 0.1, changed, ...words });
      return make("td", { class: c ? null : css("first"), "data-vector": name }, input);
    };
    const row = (/** @type {number} */ t) => VECTORS.flatMap((name, i) => range(0, widths[i]).map((c) => field(name, t, c)));
    table.append(
      make("thead", {}, make("tr", {}, make("td", { class: css("corner"), text: "token" }), ...top)),
      rowsOf("vectors", row),
    );
    cells.vectors.rows.forEach((line, t) => line.children[0].append(make("span", { class: css("index"), text: ` ${t}` })));
    return frame;
  }

  /** @type {T.TraitField} */
  function traitField(name, label, bounds) {
    const changed = (/** @type {number} */ value) => put({ [name]: value });
    return labelled(label, realField(() => model.get(name), { ...bounds, changed, "data-name": name }));
  }

  function controls() {
    const scale = make("input", { type: "checkbox", "data-name": "scale", onchange: () => put({ scale: scale.checked }) });
    const options = ["none", "causal", "valid length"].map((each) => [each, each]);
    const mask = choice({ value: model.get("mask"), options, changed: (value) => put({ mask: /** @type {T.Playground["mask"]} */ (value) }), "data-name": "mask" });
    const heat = traitField("temperature", "temperature", { min: 0.01, max: 100, step: 0.1 });
    const length = traitField("valid_len", "valid length", { min: 0, max: names.length, whole: true });
    form = { scale, mask, length };
    const reset = make("button", { type: "button", text: "reset", onclick: backToStart });
    return make(
      "div", { class: css("controls"), role: "group", "aria-label": "how the scores become weights" },
      ...shown("scale", make("label", { class: "mhalib-check" }, scale, "divide by √d")), ...shown("temperature", heat), ...shown("mask", labelled("mask", mask), length), reset,
    );
  }

  function chooser() {
    const group = freshId();
    radios = names.map((_, t) => make("input", { type: "radio", name: group, value: t, onchange: () => put({ query: t }) }));
    const labels = names.map((name, t) => make("label", { class: "mhalib-check" }, radios[t], make("bdi", { text: name })));
    return make("fieldset", { class: css("queries") }, make("legend", { text: "query" }), ...labels);
  }

  /** Where q and k have two numbers: the chosen query and the keys; where v has two, the values and the output. */
  function planesOf() {
    const wide = (/** @type {"q" | "v"} */ name) => model.get(name)[0].length === 2;
    if (!wide("q")) return [];
    const asked = planeOf({
      title: "the query and the keys", css, count: names.length + 1, bound: BOUND,
      moved: (i, to) => (i ? putRow("k", i - 1, to) : putRow("q", model.get("query"), to)),
    });
    if (!wide("v")) return [asked];
    return [asked, planeOf({ title: "the values and the output", css, count: names.length, bound: BOUND, moved: (i, to) => putRow("v", i, to) })];
  }

  /** The two planes as they are now. The area of a disc is a weight. @type {(found: ReturnType<typeof attention>) => void} */
  function drawPlanes({ weights, mask, output }) {
    const query = model.get("query");
    const vector = (/** @type {number[]} */ numbers) => `(${numbers.map(brief).join(", ")})`;
    const own = { at: model.get("q")[query], kind: "q", label: `${inSentence(names[query], 14)} asks`, said: `query of ${names[query]}`, facts: vector(model.get("q")[query]) };
    const [keys, values] = /** @type {const} */ (["k", "v"]).map((kind) =>
      model.get(kind).map((at, t) => {
        const [weight, hidden] = [weights[query][t], !mask[query][t]];
        const share = hidden ? "hidden" : `weight ${inDigits(weight)}`;
        const label = `${inSentence(names[t], 14)} ${hidden ? "✕" : inDigits(weight)}`.replace(" 0.00", "");
        return { at, kind, hidden, label, size: 30 * Math.sqrt(weight), said: `${kind === "k" ? "key" : "value"} of ${names[t]}`, facts: `${vector(at)}, ${share}` };
      }),
    );
    planes[0]?.draw([own, ...keys]);
    planes[1]?.draw([...values, { at: output[query], kind: "output", label: "output", said: "", facts: "" }]);
  }

  function backToStart() {
    put(Object.fromEntries(NAMES.slice(1).map((name) => [name, start[name]])));
    follow();
    said.textContent = `Back at the start. ${said.textContent}`;
  }

  /** @type {T.Fill} */
  function fill(cell, value, seen, key) {
    cell.dataset.value = String(value);
    cell.classList.toggle(css("hidden"), !seen);
    if (seen) cell.textContent = key === "mask" ? "✓" : inDigits(value);
    else cell.replaceChildren(make("span", { "aria-hidden": "true", text: "✕" }));
    if (!seen || key === "mask") cell.append(make("span", { class: css("aside"), text: seen ? "may attend" : "hidden" }));
    cell.style.setProperty("--weight", key === "weights" ? String(value) : "0");
  }

  /** @type {T.Sentence} */
  function sentence(row, mask, query) {
    const seen = row.map((_, j) => j).filter((j) => mask[j]);
    if (!seen.length) return `query ${names[query]}: nothing to see, so its weights and its output are 0.`;
    const most = Math.max(...row);
    const top = seen.filter((j) => most - row[j] < 1e-9);
    if (seen.length === 1) return `query ${names[query]}: sees only ${names[seen[0]]}, weight 1.00.`;
    if (top.length === seen.length) return `query ${names[query]}: the same weight on all ${seen.length} it sees, ${inDigits(most)}.`;
    return `query ${names[query]}: most weight on ${top.map((j) => names[j]).join(" and ")}, ${inDigits(most)}${top.length > 1 ? " each" : ""}.`;
  }

  /** The chosen query's weighted sum in numbers, in two lines. @type {T.Written} */
  function written(row, mask, result) {
    const seen = row.map((_, j) => j).filter((j) => mask[j]);
    const vector = (/** @type {number[]} */ numbers, /** @type {T.Digits} */ digits) => `(${numbers.map(digits).join(", ")})`;
    const total = vector(result, inDigits);
    if (!seen.length) return [`= ${total}: there is nothing to sum`];
    const values = model.get("v");
    return [
      seen.map((j) => `${inDigits(row[j])}·v(${names[j]})`).join(" + "),
      `= ${seen.map((j) => `${inDigits(row[j])}·${vector(values[j], brief)}`).join(" + ")}`,
      `= ${total}`,
    ];
  }

  function draw() {
    const found = attention();
    const query = model.get("query");
    const width = model.get("q")[0].length;
    const divided = (model.get("scale") ? ` / √${width}` : "") + (model.get("temperature") === 1 ? "" : ` / ${brief(model.get("temperature"))}`);
    const length = model.get("mask") === "valid length" ? ` ${model.get("valid_len")}` : "";
    cells.scores.formula.textContent = `q·k${divided}`;
    cells.mask.formula.textContent = `${model.get("mask")}${length}`;
    cells.weights.formula.textContent = "softmax of each row";
    cells.output.formula.textContent = "weights · v";
    for (const key of /** @type {T.Key[]} */ (["scores", "mask", "weights", "output"])) {
      found[key].forEach((row, t) => row.forEach((value, c) => fill(cells[key].numbers[t][c], Number(value), key === "scores" || key === "output" || found.mask[t][c], key)));
    }
    found.weights.forEach((row, t) => {
      const total = row.reduce((sum, w) => sum + w, 0);
      cells.weights.numbers[t][names.length].textContent = found.mask[t].some(Boolean) ? inDigits(total) : "0: sees nothing";
    });
    for (const { rows } of Object.values(cells)) {
      rows.forEach((row, t) => (t === query ? row.setAttribute("aria-current", "true") : row.removeAttribute("aria-current")));
    }
    const lines = written(found.weights[query], found.mask[query], found.output[query]);
    sum.replaceChildren(make("b", {}, "output of ", make("bdi", { text: names[query] })), ...lines.map((text) => make("span", { text })));
    said.textContent = sentence(found.weights[query], found.mask[query], query);
    drawPlanes(found);
    tell?.({ "largest weight": inDigits(Math.max(...found.weights[query])), output: lines[lines.length - 1].replace("= ", "") });
  }

  /** Fields, boxes and choices say what the model holds. */
  function follow() {
    for (const refresh of fields) refresh();
    form.scale.checked = model.get("scale");
    form.mask.value = model.get("mask");
    form.length.hidden = model.get("mask") !== "valid length";
    radios[model.get("query")].checked = true;
    draw();
  }

  /** The planes side by side, each with its title, and how to move what is in them. */
  function inPlanes() {
    const titles = ["compare: the query with the keys", "mix: the values, by their weights"];
    const figures = planes.map(({ picture }, i) => make("figure", {}, make("figcaption", { text: titles[i] }), picture));
    const how = "Drag the arrow or any point. By keyboard: arrow keys move it by 0.1, with Shift by 1; Page Up and Page Down go to another.";
    return [make("div", { class: css("planes") }, ...figures), make("p", { class: css("how"), text: how })];
  }

  function build() {
    [fields, cells, names] = [[], {}, shownNames()];
    sum = make("p", { class: css("sum") });
    const panel = controls();
    const channels = model.get("v")[0].map((_, c) => String(c));
    const stages = [
      vectorStage(),
      grid(2, "scores", "scores", names, "query \\ key"),
      grid(3, "mask", "mask", names, "query \\ key"),
      grid(4, "weights", "weights", [...names, "sum"], "query \\ key"),
      grid(5, "output", "output", channels, "query"),
    ];
    planes = planesOf();
    const tables = make("div", { class: css("stages") }, ...stages);
    if (planes.length) {
      const folded = make("details", { open: opened, ontoggle: () => (opened = folded.open) }, make("summary", { text: "all numbers, as tables" }), tables);
      settle(el, "attention-playground", panel, ...shown("query", chooser()), said, ...inPlanes(), ...shown("numbers", sum, folded));
    } else {
      tables.append(sum);
      settle(el, "attention-playground", panel, chooser(), said, tables);
    }
    follow();
  }

  const stop = listen(model, NAMES.slice(1), follow);
  const stopTokens = listen(model, ["tokens"], build);
  build();
  return () => {
    stop();
    stopTokens();
  };
}
