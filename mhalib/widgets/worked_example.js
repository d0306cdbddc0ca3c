// @ts-check
/* Attention by hand: a query goes to each key, scores become weights, and the values come back. Six pictures, or a film of them. */

import { classes, inSentence, legible, listen, make, numberInput, range, settle, svg, voice, wantsNoMotion, writer } from "./shared.js";

/** @import * as T from "./types" */

/** @param {T.Place<T.Worked>} place */
export function WorkedExample({ model, el, tell }) {
  const second = model.get("second");
  const [WIDTH, HEIGHT, SUM, BOUND, PAUSE] = [second ? 340 : 420, 330, 5, 100, 2200]; // two drawings stand side by side
  const LAST = second ? SUM + 2 : SUM;
  const W_o = () => model.get("W_o") ?? [];
  const css = classes("worked-example");
  const own = ["", css("second")];
  const put = writer(model);
  const said = voice();
  const asking = legible(model.get("asking"), 10);
  const shownWords = () => model.get("words").map((word) => legible(word, 10));
  let words = shownWords();
  const middle = (/** @type {number} */ j) => (WIDTH * (2 * j + 1)) / (2 * words.length);
  const start = { words: model.get("words"), second, q: model.get("q"), k: model.get("k"), v: model.get("v"), scale: model.get("scale"), seen: model.get("seen"), W_o: model.get("W_o") };
  let [shown, timer] = [model.get("step"), 0];

  const brief = (/** @type {number} */ x) => String(Number(x.toFixed(2))).replace("-", "−");
  const signed = (/** @type {number} */ x) => (x < 0 ? `(${brief(x)})` : brief(x));
  const digits = (/** @type {number} */ x) => (Math.abs(x) >= 1e5 ? x.toExponential(1) : x.toFixed(Math.abs(x) >= 100 ? 0 : 2)).replace("-", Number(x.toFixed(2)) ? "−" : "");
  const vector = (/** @type {number[]} */ row, as = brief) => `(${row.map(as).join(", ")})`;

  /** @typedef {ReturnType<typeof attended>} Found */
  /** @param {number[]} q @param {number[][]} k @param {number[][]} v */
  function attended(q, k, v) {
    const seen = model.get("seen");
    const scores = k.map((key) => (key[0] * q[0] + key[1] * q[1]) / (model.get("scale") ? Math.SQRT2 : 1));
    const highest = Math.max(...scores.filter((_, j) => seen[j]));
    const shifted = scores.map((score, j) => (seen[j] ? Math.exp(score - highest) : 0)); // nothing can overflow
    const total = shifted.reduce((sum, x) => sum + x, 0);
    const weights = shifted.map((x) => (total ? x / total : 0));
    const powers = scores.map((score, j) => (seen[j] ? Math.exp(score) : 0));
    const output = [0, 1].map((c) => weights.reduce((sum, weight, j) => sum + weight * v[j][c], 0));
    return { q, k, v, seen, scores, powers, weights, output };
  }

  /** What each picture says, in a sentence. @type {(found: Found) => string[]} */
  function sentences({ q, seen, scores, powers, weights, output }) {
    const each = (/** @type {number[]} */ row, as = digits) => row.map((x, j) => `${inSentence(words[j])} ${seen[j] ? as(x) : "hidden"}`).join(", ");
    const sum = powers.reduce((all, x) => all + x, 0);
    if (!seen.some(Boolean)) return Array(LAST + 1).fill("Every word is hidden: weights and output are 0.");
    return [
      `${inSentence(asking)} asks ${vector(q)}. Each word has a key, by which it is found, and a value, which it hands over.`,
      `Compare: query times key, number by number, added up${model.get("scale") ? ", and divided by √2" : ""}. The scores: ${each(scores, brief)}.`,
      `Raise e to the power of each score: ${each(powers)}. None is negative.`,
      `Divide by their sum, ${digits(sum)}. The weights: ${each(weights)}.`,
      "Multiply each value by its weight.",
      `Add up: ${inSentence(asking)} gets ${vector(output, digits)}, which is ${output.map((x, c) => `${digits(x)} ${inSentence(given[c])}`).join(" and ")}.`,
    ];
  }

  /** The same of two heads, and of W_o. @type {(found: Found[], joined: number[], output: number[]) => string[]} */
  const saidOfTwo = (found, joined, output) => [
    `Two heads look from ${inSentence(asking)}, each with a query of its own.`,
    "Query times key: the scores.",
    "Raise e to the power of each score.",
    "Divide by their sum: the weights.",
    "Multiply each value by its weight.",
    `Add up, in each head separately: ${found.map((head) => vector(head.output, digits)).join(" and ")}.`,
    `Side by side: ${vector(joined, digits)}.`,
    `Each row of W_o multiplies these four numbers and adds up: ${output.map((x, r) => `${inSentence(given[r])} ${digits(x)}`).join(", ")}.`,
  ];

  const text = (/** @type {string} */ kind, /** @type {number} */ x, /** @type {number} */ y, /** @type {string} */ label) => svg("text", { x, y, class: css(kind), text: label });
  /** A name and two numbers in a frame. @type {(kind: string, x: number, y: number, label: string) => SVGElement} */
  const chip = (kind, x, y, label) => {
    const width = 7.4 * label.length + 14;
    return svg("g", { class: css(kind), "data-kind": kind }, svg("rect", { x: x - width / 2, y: y - 15, width, height: 22, rx: 4 }), svg("text", { x, y, text: label }));
  };

  /** What stands in the column of word j at a step. @type {(found: Found, j: number, step: number) => SVGElement[]} */
  function column({ q, k, v, seen, scores, powers, weights }, j, step) {
    const x = middle(j);
    const [highest, hidden] = [Math.max(...powers), !seen[j]];
    const parts = [text("word", x, 18, words[j]), chip("k", x, 44, `k ${vector(k[j])}`)];
    const products = `${brief(k[j][0])}·${signed(q[0])} + ${signed(k[j][1])}·${signed(q[1])}`;
    if (step >= 1) parts.push(text("sum", x, 74, hidden ? "hidden" : model.get("scale") ? `(${products}) / √2` : products));
    if (step >= 1 && !hidden) parts.push(text("score", x, 92, `= ${brief(scores[j])}`));
    if (step >= 2) {
      const tall = highest ? (44 * (step === 2 ? powers[j] / highest : weights[j])) : 0;
      parts.push(svg("rect", { x: x - 18, y: 146 - tall, width: 36, height: tall, class: css("bar") }), svg("line", { x1: x - 30, x2: x + 30, y1: 146, y2: 146, class: css("ground") }));
      parts.push(text("score", x, 164, step === 2 ? (hidden ? "0" : `e^${brief(scores[j])} = ${digits(powers[j])}`) : `weight ${digits(weights[j])}`));
    }
    parts.push(chip("v", x, 194, step >= 4 ? `${digits(weights[j])} · ${vector(v[j])}` : `v ${vector(v[j])}`));
    if (step >= 4) parts.push(text("sum", x, 218, `= ${vector(v[j].map((each) => each * weights[j]), digits)}`));
    return parts;
  }

  const drawings = own.slice(0, second ? 2 : 1).map((name) => svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", class: name }));
  /** @type {(drawing: SVGElement, found: Found, step: number, says: string) => void} */
  function paint(drawing, found, step, says) {
    const home = [WIDTH / 2, 294];
    const streams = range(0, words.length).map((j) => {
      const path = `M${middle(j)},228 C${middle(j)},256 ${home[0]},244 ${home[0]},${home[1] - 18}`;
      return svg("path", { d: path, class: css("stream"), "stroke-width": step >= 3 ? 14 * found.weights[j] : 0 });
    });
    const query = [chip("q", home[0], home[1], `q ${vector(found.q)}`), text("word", home[0] - (step === SUM ? 62 : 0), 324, asking)];
    if (step === SUM) query.push(chip("v", home[0] + 48, 323, vector(found.output, digits)));
    drawing.replaceChildren(...streams, ...range(0, words.length).flatMap((j) => column(found, j, step)), ...query);
    drawing.setAttribute("aria-label", says);
    drawing.dataset.step = String(step);
  }

  const under = svg("svg", { viewBox: `0 0 ${WIDTH} 148`, role: "img" });
  /** Both lists side by side, and W_o. @type {(joined: number[], output: number[], step: number, says: string) => void} */
  function paintJoined(joined, output, step, says) {
    const [done, at] = [step === LAST, (/** @type {number} */ c) => 70 + 58 * c];
    const marks = own.map((name, i) => svg("rect", { x: at(2 * i) - 26, y: 34, width: 110, height: 5, class: `${css("bar")} ${name}` }));
    const rows = W_o().flatMap((row, r) => {
      const y = 86 + 42 * r;
      const parts = row.map((w, c) => text("score", at(c), y, done ? `${c ? (w < 0 ? "− " : "+ ") : ""}${brief(c ? Math.abs(w) : w)}·${digits(joined[c])}` : brief(w)));
      return [text("word", 22, y, given[r]), ...parts, ...(done ? [chip("v", 309, y, `= ${digits(output[r])}`)] : [])];
    });
    under.replaceChildren(...marks, text("word", 22, 56, "W_o"), ...(step > SUM ? joined.map((x, c) => chip("v", at(c), 24, digits(x))) : []), ...rows);
    under.setAttribute("aria-label", says);
  }

  /** A copy of a chip flies. @type {(from: SVGElement, by: number[]) => void} */
  function fly(from, by) {
    const copy = /** @type {SVGElement} */ (from.cloneNode(true));
    from.parentNode?.append(copy);
    const ways = [{ transform: "none" }, { transform: `translate(${by[0]}px, ${by[1]}px)`, opacity: 0.4 }];
    copy.animate(ways, { duration: 1100, easing: "ease-in-out" }).onfinish = () => copy.remove();
  }
  /** What moves in a drawing on the way to a step. @type {(drawing: SVGElement, step: number) => void} */
  function film(drawing, step) {
    const all = (/** @type {string} */ kind) => /** @type {SVGElement[]} */ ([...drawing.querySelectorAll(`[data-kind="${kind}"]`)]);
    if (step === 1) for (const j of range(0, words.length)) fly(all("q")[0], [middle(j) - WIDTH / 2, -226]);
    if (step === SUM) for (const [j, each] of all("v").entries()) if (model.get("seen")[j]) fly(each, [WIDTH / 2 - middle(j), 122]);
    const fresh = step === 2 || step === 3 ? `.${css("bar")}` : `.${css("sum")}, .${css("score")}`;
    for (const each of drawing.querySelectorAll(fresh)) each.animate([{ opacity: 0 }, { opacity: 1 }], { duration: 900, delay: step === 1 ? 700 : 0, fill: "backwards" });
  }

  const lines = range(1, LAST + 2).map((value) => make("li", { value }));
  const list = make("ol", { class: css("lines") }, ...lines);
  const go = (/** @type {number} */ step) => {
    if (step >= 0 && step <= LAST) put({ step });
  };
  const back = make("button", { type: "button", text: "← back", onclick: () => pause(model.get("step") - 1) });
  const next = make("button", { type: "button", text: "next →", onclick: () => pause(model.get("step") + 1) });
  const play = make("button", { type: "button", class: css("play"), onclick: () => (timer ? pause() : run()) });
  const reset = make("button", { type: "button", text: "reset", onclick: () => put(start) });

  /** Stop the film; then, if given, show a step. */
  function pause(step = model.get("step")) {
    clearTimeout(timer);
    timer = 0;
    go(step);
    namePlay();
  }
  /** Play from here, or again from the beginning. */
  function run() {
    const turn = () => {
      if (model.get("step") === LAST) return pause();
      timer = setTimeout(turn, PAUSE);
      go(model.get("step") + 1);
    };
    if (model.get("step") === LAST) go(0);
    timer = setTimeout(turn, 400);
    namePlay();
  }
  function namePlay() {
    play.textContent = timer ? "❚❚ stop" : "▶ play";
  }

  /** @type {(() => void)[]} */
  const fields = [];
  /** A field for number c of a vector. @type {(label: string, read: () => number[], write: (row: number[]) => void, c: number) => HTMLElement} */
  function field(label, read, write, c) {
    const changed = (/** @type {number} */ value) => write(read().map((old, i) => (i === c ? value : old)));
    const { input, show } = numberInput({ value: read()[c], min: -BOUND, max: BOUND, whole: false, changed, said, "aria-label": label });
    fields.push(() => show(read()[c]));
    return make("td", {}, input);
  }
  /** @type {(name: string, of: string, parts: string[], read: () => number[], write: (row: number[]) => void) => HTMLElement[]} */
  const vectorFields = (name, of, parts, read, write) => parts.map((part, c) => field(`${name} of ${of}, ${part}`, read, write, c));
  const replaced = (/** @type {"k" | "v"} */ name, /** @type {number} */ j, /** @type {number[]} */ row) => put({ [name]: model.get(name).map((old, i) => (i === j ? row : old)) });

  const [asked, given] = [model.get("asked"), model.get("given")].map((names) => names.map((name) => legible(name, 10)));
  const mask = words.map((word, j) => make("input", { type: "checkbox", "aria-label": `${asking} may look at ${word}`, onchange: () => put({ seen: model.get("seen").map((old, i) => (i === j ? mask[j].checked : old)) }) }));
  const masked = model.get("choices").includes("mask");
  const seenCell = (/** @type {Node[]} */ ...inside) => (masked ? [make("td", {}, ...inside)] : []);
  const heading = (/** @type {string} */ name, /** @type {string} */ kind) => make("th", { scope: "col", class: css(kind), text: name });
  const titles = make("tr", {}, make("td"), ...asked.map((name) => heading(name, "k")), ...given.map((name) => heading(name, "v")), ...(masked ? [make("th", { scope: "col", text: "seen" })] : []));
  const group = (/** @type {string} */ name, /** @type {string} */ kind) => make("th", { scope: "colgroup", colspan: 2, class: css(kind), text: name });
  const top = make("tr", {}, make("td"), group("query, keys", "k"), group("values", "v"), ...seenCell());
  const ownRow = make("tr", { class: css("own") }, make("th", { scope: "row", text: `${asking} asks` }), ...vectorFields("query", asking, asked, () => model.get("q"), (row) => put({ q: row })), make("td", { colspan: 2 }), ...seenCell());
  const rows = words.map((word, j) =>
    make("tr", {}, make("th", { scope: "row", text: word }),
      ...vectorFields("key", word, asked, () => model.get("k")[j], (row) => replaced("k", j, row)),
      ...vectorFields("value", word, given, () => model.get("v")[j], (row) => replaced("v", j, row)), ...seenCell(mask[j])),
  );
  function mixing() {
    const four = [0, 1].flatMap((i) => given.map((name) => `head ${i}, ${name}`));
    const titled = (/** @type {typeof heading} */ kind, /** @type {string[]} */ names) => make("tr", {}, make("td"), ...names.map((name) => kind(name, "v")));
    const rows = given.map((name, r) => vectorFields("W_o", name, four, () => W_o()[r], (row) => put({ W_o: W_o().map((old, i) => (i === r ? row : old)) })));
    return [titled(group, ["head 0", "head 1"]), titled(heading, given.concat(given)), ...rows.map((row, r) => make("tr", {}, make("th", { scope: "row", text: `W_o, ${given[r]}` }), ...row))];
  }
  const inside = second ? mixing() : [make("thead", {}, top, titles), make("tbody", {}, ownRow, ...rows)];
  const table = make("table", { class: css("numbers") }, ...inside);
  const scale = make("input", { type: "checkbox", onchange: () => put({ scale: scale.checked }) });
  const scaled = model.get("choices").includes("scale") ? [make("label", { class: "mhalib-check" }, scale, "divide by √2")] : [];

  /** @template Each @param {Each[]} row */
  const flipped = (row) => [...row].reverse();
  /** The words change places: what they hand over goes with them, and the keys of their places stay. @type {() => void} */
  function swap() {
    const [q, k, v] = /** @type {NonNullable<T.Worked["second"]>} */ (model.get("second"));
    put({ words: flipped(model.get("words")), v: flipped(model.get("v")), second: [q, k, flipped(v)] });
    said.textContent = `${words.map((word) => inSentence(word)).join(", ")}.`;
  }
  const swapping = second ? [make("button", { type: "button", text: "swap the words", onclick: swap })] : [];

  function draw() {
    words = shownWords();
    const other = model.get("second");
    const found = [attended(model.get("q"), model.get("k"), model.get("v")), ...(other ? [attended(...other)] : [])];
    const step = model.get("step");
    const joined = found.flatMap((head) => head.output);
    const output = second ? W_o().map((row) => row.reduce((sum, w, c) => sum + w * joined[c], 0)) : joined;
    const texts = second ? saidOfTwo(found, joined, output) : sentences(found[0]);
    const here = Math.min(step, SUM);
    for (const [i, drawing] of drawings.entries()) paint(drawing, found[i], here, sentences(found[i])[here]);
    paintJoined(joined, output, step, texts[step]);
    if (step === shown + 1 && !wantsNoMotion()) for (const drawing of step > SUM ? [under] : drawings) film(drawing, step);
    shown = step;
    for (const refresh of fields) refresh();
    scale.checked = model.get("scale");
    for (const [j, box] of mask.entries()) box.checked = found[0].seen[j];
    for (const [i, sentence] of texts.entries()) {
      lines[i].textContent = i <= step ? sentence : "";
      lines[i].hidden = i > step;
      lines[i].setAttribute("aria-current", i === step ? "step" : "false");
    }
    namePlay();
    back.setAttribute("aria-disabled", String(step === 0)); // not disabled: that would lose the focus
    next.setAttribute("aria-disabled", String(step === LAST));
    said.textContent = "";
    tell?.({ "largest weight": digits(Math.max(...found[0].weights)), output: vector(output, digits) });
  }

  const figures = (second ? [...drawings, under] : drawings).map((drawing, i) => make("figure", {}, ...(second && i < 2 ? [make("figcaption", { text: `head ${i}` })] : []), drawing));
  const stop = listen(model, ["words", "second", "q", "k", "v", "scale", "seen", "W_o", "step"], draw);
  const buttons = make("div", { class: "mhalib-row", role: "group", "aria-label": "steps and changes" }, play, back, next, ...scaled, ...swapping, reset);
  settle(el, "worked-example", buttons, make("div", { class: css("scene") }, ...figures, list), make("div", { class: "mhalib-frame" }, table), said);
  draw();
  return () => {
    clearTimeout(timer);
    stop();
  };
}
