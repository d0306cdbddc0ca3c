// @ts-check
/* What attention costs. The counts are exact integers (BigInt), so that they equal Python's. */

import { choice, labelled, listen, make, numberInput, settle, sheet, voice, writer } from "./shared.js";

/** @import { Costs, Place } from "./types" */
/** @param {Place<Costs>} place */
export function CostCalculator({ model, el }) {
  /** @type {[keyof Costs, string, number][]} */
  const FIELDS = [
    ["num_hiddens", "width D", 65536],
    ["num_heads", "heads h", 1024],
    ["num_kv_heads", "key–value heads g", 1024],
    ["num_layers", "layers L", 1000],
    ["num_tokens", "tokens N", 10000000],
    ["batch_size", "examples B", 1000000],
  ];
  /** @type {[keyof ReturnType<typeof costs>, string, string, string][]} */
  const COSTS = [
    ["parameters", "parameters", "L · (2 D² + 2 D g d)", ""],
    ["flops", "FLOPs of a forward pass", "L · B · (2 N · (2 D² + 2 D g d) + 4 N² D)", ""],
    ["score_bytes", "scores of one layer, if they are stored", "B · h · N² · bytes", "B"],
    ["cache_bytes", "keys and values of all layers, kept for writing on", "2 L · B · N · g d · bytes", "B"],
  ];
  /** @type {(keyof Costs)[]} */
  const NAMES = [...FIELDS.map(([name]) => name), "bytes_per_number"];

  function costs() {
    const [width, heads, kvHeads, layers, tokens, examples, bytes] = NAMES.map((name) => BigInt(model.get(name)));
    const kvWidth = (width / heads) * kvHeads;
    const parameters = 2n * width * width + 2n * width * kvWidth;
    return {
      parameters: layers * parameters,
      flops: layers * examples * (2n * tokens * parameters + 4n * tokens * tokens * width),
      score_bytes: examples * heads * tokens * tokens * bytes,
      cache_bytes: 2n * layers * examples * tokens * kvWidth * bytes,
    };
  }

  /** What does not divide, or null. */
  function problem() {
    const [width, heads, kvHeads] = NAMES.map((name) => model.get(name));
    if (width % heads) return `D = ${width} is not divisible by h = ${heads}: heads of ${(width / heads).toFixed(2)} channels do not exist.`;
    if (heads % kvHeads) return `h = ${heads} is not divisible by g = ${kvHeads}: some heads would have no keys.`;
    return null;
  }

  /** @type {(count: bigint, unit: string) => string} */
  function inWords(count, unit) {
    const steps = ["", " thousand", " million", " billion", " trillion", " quadrillion"];
    const prefixes = ["B", "kB", "MB", "GB", "TB", "PB"];
    let power = 0;
    while (power < 5 && Number(count) >= 999.5 * 1000 ** power) power += 1;
    const digits = { minimumSignificantDigits: 3, maximumSignificantDigits: 3 };
    const value = (Number(count) / 1000 ** power).toLocaleString("en-US", digits);
    return `${value}${unit ? ` ${prefixes[power]}` : steps[power]}`;
  }

  const said = voice();
  const amounts = COSTS.map(([name, title, formula, unit]) => {
    const [exact, words] = [make("td", { class: "mhalib-number" }), make("td", { class: "mhalib-number" })];
    const head = make("th", { scope: "row", text: title }, make("div", { class: "mhalib-formula", text: formula }));
    return { name, unit, exact, words, row: make("tr", { "data-cost": name }, head, words, exact) };
  });
  const table = sheet("What attention costs; d = D / h", ["cost", "about", "exactly"], []);
  table.tBodies[0].append(...amounts.map(({ row }) => row));

  function draw() {
    const reason = problem();
    table.hidden = Boolean(reason);
    if (reason) {
      said.textContent = reason;
      return;
    }
    const found = costs();
    for (const { name, unit, exact, words } of amounts) {
      exact.textContent = found[name].toLocaleString("en-US");
      words.textContent = inWords(found[name], unit);
    }
    said.textContent = `${inWords(found.parameters, "")} parameters, ${inWords(found.flops, "")} FLOPs, cache ${inWords(found.cache_bytes, "B")}.`;
  }

  const put = writer(model);
  const fields = FIELDS.map(([name, label, max]) => {
    const changed = (/** @type {number} */ value) => put({ [name]: value });
    const { input, show } = numberInput({ value: model.get(name), min: 1, max, changed, said, "data-name": name });
    return { row: labelled(label, input), refresh: () => show(model.get(name)) };
  });
  const bytes = choice({
    value: model.get("bytes_per_number"),
    options: [[8, "8 (float64)"], [4, "4 (float32)"], [2, "2 (bfloat16)"], [1, "1 (8-bit)"]],
    changed: (value) => put({ bytes_per_number: Number(value) }),
    "data-name": "bytes_per_number",
  });

  function follow() {
    for (const { refresh } of fields) refresh();
    bytes.value = String(model.get("bytes_per_number"));
    draw();
  }

  const stop = listen(model, NAMES, follow);
  const rows = [...fields.map(({ row }) => row), labelled("bytes per number", bytes)];
  settle(el, "cost-calculator", make("div", { class: "mhalib-controls", role: "group", "aria-label": "sizes" }, ...rows), said, table);
  draw();
  return stop;
}
