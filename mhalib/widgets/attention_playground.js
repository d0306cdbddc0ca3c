// @ts-check
/* Attention on a few tokens: vectors, scores, mask, weights, output. Numbers are recomputed at each change. */

import { choice, classes, freshId, labelled, legible, listen, make, numberInput, range, settle, voice, writer } from "./shared.js";

/** @import * as T from "./types" */
/** @param {T.Place<T.Playground>} place */
export function AttentionPlayground({ model, el }) {
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

  const put = writer(model);
  const said = voice();
  let { fields, cells, radios, names, form, sum } = /** @type {T.Built} */ ({});

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
      const changed = (/** @type {number} */ value) => {
        const rows = copy(model.get(name));
        rows[t][c] = value;
        put({ [name]: rows });
      };
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
      make("label", { class: "mhalib-check" }, scale, "divide by √d"), heat, labelled("mask", mask), length, reset,
    );
  }

  function chooser() {
    const group = freshId();
    radios = names.map((_, t) => make("input", { type: "radio", name: group, value: t, onchange: () => put({ query: t }) }));
    const labels = names.map((name, t) => make("label", { class: "mhalib-check" }, radios[t], make("bdi", { text: name })));
    return make("fieldset", { class: css("queries") }, make("legend", { text: "query" }), ...labels);
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
      seen.map((j) => `${inDigits(row[j])}·v${j}`).join(" + "),
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
    settle(el, "attention-playground", panel, chooser(), said, make("div", { class: css("stages") }, ...stages, sum));
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
