// @ts-check
/* What a model takes on a machine, at least: as mhalib.serving counts it, for two choices side by side. */

import { classes, fieldsOf, inWords, listen, make, settle, sheet, voice } from "./shared.js";

/** @import { Place, Served } from "./types" */
/** @param {Place<Served>} place */
export function ModelCalculator({ model, el }) {
  const css = classes("model-calculator");
  const NAMES = ["model", "attention", "machine", "precision", "kernel", "num_chips", "batch_size", "num_tokens"];
  /** Bytes of a weight and of a number in the cache, and bits of a product. @type {Record<string, number[]>} */
  const PRECISIONS = { "16 bits": [2, 2, 16], "8 bits": [1, 1, 8], "4-bit weights": [0.5, 2, 16], "4 bits": [0.5, 1, 4] };
  const ROWS = [
    ["parameters", "P", ""],
    ["weights of attention", "L (2 h d D + 2 g d D), or with latents", ""],
    ["memory of the weights", "P · bytes", "B"],
    ["cache of a token", "L · 2 g d · bytes, or L (c + r) · bytes", "B"],
    ["cache", "B N · cache of a token; in layers with a window w, B min(N, w)", "B"],
    ["of the memory", "(weights + cache) / (chips · memory)", "%"],
    ["FLOPs of the prompts", "2 B (N (W − V D) + V D) + L · 2 B N (N + 1) h d", ""],
    ["time to the first token", "max(FLOPs / peak, W' bytes / bandwidth), then attention", "s"],
    ["of the peak, at most", "FLOPs / (time · peak)", "%"],
    ["time for each token", "max(2 B W / peak, W' bytes / bandwidth), then attention", "s"],
    ["of it, scores and average", "their max(FLOPs / peak, cache / bandwidth)", "%"],
    ["tokens per second, of all texts", "B / time for each token", "a second"],
  ];
  const said = voice();

  /** One number for each row. @param {number} at */
  function numbers(at) {
    const [name, kind, machine, precision, kernel, G, B, N] = NAMES.map((name) => /** @type {any} */ (model.get(/** @type {keyof Served} */ (`${name}_${at}`))));
    const [, , D, L, h, g, d, V, P, tied, experts, E, k, c, r, q, windowed, window] = /** @type {[string, string, ...number[]]} */ (model.get("models").find(([one, other]) => one === name && other === kind));
    const [, peak, bandwidth, memory, fp8, fp4] = /** @type {[string, ...number[]]} */ (model.get("chips").find(([one]) => one === machine));
    const [weight, cached, bits] = PRECISIONS[precision];
    const own = (bits < 8 && fp4) || (bits < 16 && fp8) || peak;
    const chosen = Math.floor((experts * k) / E);
    const multiplied = P - experts + chosen - (tied ? 0 : V * D);
    const attention = L * (c ? (q ? D * q + q * h * (d + r) : D * h * (d + r)) + D * (c + r) + 2 * c * h * d + h * d * D : 2 * D * d * (h + g));
    const kept = c ? c + r : 2 * g * d;
    const cache = B * cached * kept * ((L - windowed) * N + windowed * Math.min(N, window));
    /** FLOPs and seconds of a pass in which `fresh` tokens of each text meet N. @param {boolean} decoding */
    function pass(decoding) {
      const fresh = decoding ? 1 : N;
      const [wide, tall, keys] = c ? (decoding ? [c + r, c, 1] : [d + r, d, h]) : [d, d, g];
      let [work, wait] = [0, 0];
      for (const [layers, seen] of [[L - windowed, N], [windowed, Math.min(window, N)]]) {
        const pairs = B * h * (decoding ? seen : seen * N - (seen * (seen - 1)) / 2);
        const [queries, found, tokens, bytes] = [B * fresh * h * wide, B * fresh * h * tall, B * keys * (decoding ? seen : N), decoding ? cached : 2];
        const steps = kernel === "fused"
          ? [[2 * pairs * (wide + tall), 2 * (queries + found) + bytes * tokens * (c && decoding ? wide : wide + tall)]]
          : [[2 * pairs * wide, 2 * (queries + pairs) + bytes * tokens * wide], [0, 4 * pairs], [2 * pairs * tall, 2 * (pairs + found) + bytes * tokens * tall]];
        for (const [flops, moved] of steps) {
          work += layers * flops;
          wait += (layers * Math.max(flops / peak, moved / bandwidth)) / G;
        }
      }
      const products = 2 * B * (decoding ? multiplied : N * (multiplied - V * D) + V * D);
      const read = multiplied - chosen + experts * (1 - (1 - k / E) ** (B * fresh));
      return { flops: products + work, seconds: Math.max(products / own, (weight * read) / bandwidth) / G + wait, wait };
    }
    const [prompt, step] = [pass(false), pass(true)];
    const full = (weight * P + cache) / (G * memory);
    return [P, attention, weight * P, L * kept * cached, cache, full, prompt.flops, prompt.seconds, prompt.flops / (prompt.seconds * G * own), step.seconds, step.wait / step.seconds, B / step.seconds];
  }

  /** To three digits, with its unit. @type {(value: number, unit: string) => string} */
  function told(value, unit) {
    const digits = (/** @type {number} */ x) => x.toLocaleString("en-US", { minimumSignificantDigits: 3, maximumSignificantDigits: 3 });
    if (unit === "%") return `${digits(100 * value)} %${value > 1 + 1e-9 ? ", too much" : ""}`;
    if (unit === "a second") return digits(value);
    if (unit !== "s") return inWords(value, unit);
    const [prefix, factor] = /** @type {[string, number][]} */ ([["", 1], ["m", 1e3], ["µ", 1e6]]).find(([, factor]) => value * factor >= 1) ?? ["n", 1e9];
    return `${digits(value * factor)} ${prefix}s`;
  }

  const cells = ROWS.map(() => [1, 2].map(() => make("td", { class: "mhalib-number" })));
  const table = sheet("What a model takes on a machine, at least. W: weights that a token is multiplied by; W': those that a pass reads; V: tokens that it knows", ["first", "second"], []);
  table.tBodies[0].remove();
  for (const [i, [title, formula]] of ROWS.entries()) {
    const head = make("th", { scope: "rowgroup", colspan: 2, text: title }, make("div", { class: "mhalib-formula", text: formula }));
    table.append(make("tbody", { "data-row": title }, make("tr", {}, head), make("tr", {}, ...cells[i])));
  }

  function draw() {
    const found = [1, 2].map(numbers);
    for (const [i, [, , unit]] of ROWS.entries())
      for (const [j, cell] of cells[i].entries()) {
        cell.textContent = told(found[j][i], unit);
        cell.dataset.value = String(found[j][i]);
      }
    const one = (/** @type {number[]} */ all) => `first token after ${told(all[7], "s")}, then ${told(all[9], "s")} each, ${told(all[11], "a second")} tokens per second`;
    said.textContent = `First: ${one(found[0])}. Second: ${one(found[1])}.`;
  }

  const { field, chooser } = fieldsOf(model, said);
  /** @type {(name: string) => keyof Served & string} */
  const trait = (name) => /** @type {keyof Served & string} */ (name);
  const same = (/** @type {string[]} */ all) => all.map((name) => [name, name]);
  const sides = [1, 2].map((at) => {
    const choose = (/** @type {string} */ name, /** @type {string[]} */ all) => chooser(trait(`${name}_${at}`), name, same(all));
    const size = (/** @type {string} */ name, /** @type {string} */ label, /** @type {number} */ most) => field(trait(`${name}_${at}`), label, 1, most);
    return [
      choose("model", [...new Set(model.get("models").map(([name]) => name))]),
      choose("attention", [...new Set(model.get("models").map(([, name]) => name))]),
      choose("machine", model.get("chips").map(([name]) => name)),
      choose("precision", Object.keys(PRECISIONS)),
      choose("kernel", ["stored", "fused"]),
      size("num_chips", "chips", 10000),
      size("batch_size", "texts at once B", 1000000),
      size("num_tokens", "tokens N", 10000000),
    ];
  });
  function follow() {
    for (const { refresh } of sides.flat()) refresh();
    draw();
  }
  const stop = listen(model, NAMES.flatMap((name) => [trait(`${name}_1`), trait(`${name}_2`)]), follow);
  const groups = sides.map((side, i) => {
    const label = ["first", "second"][i];
    return make("div", { role: "group", "aria-label": label }, make("strong", { text: label }), make("div", { class: "mhalib-controls" }, ...side.map(({ row }) => row)));
  });
  settle(el, "model-calculator", make("div", { class: css("sides") }, ...groups), said, make("div", { class: "mhalib-frame", role: "region", tabindex: "0", "aria-label": "numbers" }, table));
  follow();
  return stop;
}
