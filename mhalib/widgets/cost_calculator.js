// @ts-check
/* What attention costs, or how a variant differs in that. Counts are exact integers (BigInt), so that they equal Python's. */

import { classes, fieldsOf, inWords, listen, make, settle, sheet, voice } from "./shared.js";

/** @import { Costs, Part, Place, Ratio, Row, Setting } from "./types" */
/** @param {Place<Costs>} place */
export function CostCalculator({ model, el, tell }) {
  const compares = Boolean(model.get("variant"));
  const isCounted = Boolean(model.get("counted")?.length); // in Python, for this D and h: here they stay
  const css = classes("cost-calculator");
  /** @type {[keyof Costs, string, number][]} */
  const FIELDS = [
    ["num_hiddens", "width D", 65536],
    ["num_heads", "heads h", 1024],
    ["num_kv_heads", "key–value heads g", 1024],
    ["num_layers", "layers L", 1000],
    ["num_tokens", "tokens N", 10000000],
    ["batch_size", "examples B", 1000000],
  ];
  /** Of one variant each, the first of which is a size, too: name, label, bounds, or options. @type {Setting[]} */
  const SETTINGS = [
    ["grouped", "num_kv_heads", "key–value heads g", 1, 1024],
    ["latent", "latent_size", "latent width c", 1, 65536],
    ["latent", "rotary_size", "rotary width r", 0, 65536],
    ["latent", "absorbed", "scores from", "keys of each head", "latents (absorbed)"],
    ["collaborative", "shared_size", "shared width D~", 1, 65536],
    ["overlapping", "overlap", "overlap o", 0, 65536],
    ["mixture", "num_shared", "heads always on s", 0, 1024],
    ["mixture", "num_chosen", "chosen heads k", 0, 1024],
    ["composed", "rank", "rank R", 1, 64],
    ["gated", "per_channel", "gates", "one for each head", "one for each channel"],
  ];
  const [PLAIN, COUNTED] = ["multi-head", ""];
  const VARIANTS = [PLAIN, "grouped", "multi-query", "latent", "talking", "collaborative", "overlapping", "mixture", "composed", "differential", "gated", "qk-norm"];
  /** @type {[keyof ReturnType<typeof costs>, string, string, string][]} */
  const COSTS = [
    ["parameters", "parameters", "L · (2 D² + 2 D g d)", ""],
    ["flops", "FLOPs of a forward pass", "L · B · (2 N · (2 D² + 2 D g d) + 4 N² D)", ""],
    ["score_bytes", "scores of one layer, if they are stored", "B · h · N² · bytes", "B"],
    ["cache_bytes", "keys and values of all layers, kept for writing on", "2 L · B · N · g d · bytes", "B"],
  ];
  /** @type {Row[]} */
  const COMPARED = [
    ["parameters", "parameters", "L · (P + p)", ""],
    ["flops", "FLOPs of a forward pass", "L · B · (2 N · P + 2 N² · S)", ""],
    ["chosen_flops", "FLOPs, if heads that a token did not choose were skipped", "P and S less 2 (h − s − k) d D and 2 (h − s − k) d", ""],
    ["cache_bytes_per_token", "cache of all layers for each token", "L · n · bytes", "B"],
  ];
  /** @type {(keyof Costs)[]} */
  const SIZES = [...FIELDS.map(([name]) => name), "bytes_per_number"];
  /** @type {(keyof Costs)[]} */
  const NAMES = isCounted ? [...SIZES, "counted"] : compares ? [...SIZES, "variant", ...SETTINGS.slice(1).map(([, name]) => name)] : SIZES;
  const number = (/** @type {keyof Costs} */ name) => Number(model.get(name) ?? 0);
  const big = (/** @type {keyof Costs} */ name) => BigInt(number(name));

  function costs() {
    const [width, heads, kvHeads, layers, tokens, examples, bytes] = SIZES.map(big);
    const kvWidth = (width / heads) * kvHeads;
    const parameters = 2n * width * width + 2n * width * kvWidth;
    return {
      parameters: layers * parameters,
      flops: layers * examples * (2n * tokens * parameters + 4n * tokens * tokens * width),
      score_bytes: examples * heads * tokens * tokens * bytes,
      cache_bytes: 2n * layers * examples * tokens * kvWidth * bytes,
    };
  }

  /** P, p, S and n of a variant: each in symbols and counted. @type {(variant: string) => Part[]} */
  function parts(variant) {
    if (variant === COUNTED) return (model.get("counted") ?? []).map((count) => ["", BigInt(count)]);
    const [D, h, g, c, r] = (/** @type {const} */ (["num_hiddens", "num_heads", "num_kv_heads", "latent_size", "rotary_size"])).map(big);
    const [m, o, s, R] = (/** @type {const} */ (["shared_size", "overlap", "num_shared", "rank"])).map(big);
    const d = D / h;
    /** @type {Part[]} */
    const [P, p, S, n] = [["4 D²", 4n * D * D], ["0", 0n], ["2 D", 2n * D], ["2 D", 2n * D]];
    /** @type {Part} */
    const overlapping = ["2 h (d + 2 o)", 2n * h * (d + 2n * o)];
    /** @type {Part} */
    const latentPairs = model.get("absorbed") ? ["h (2 c + r)", h * (2n * c + r)] : ["h (2 d + r)", h * (2n * d + r)];
    const bothKinds = s > 0n && s < h;
    /** @type {Record<string, Part[]>} */
    const all = {
      [PLAIN]: [P, p, S, n],
      grouped: [["2 D² + 2 D g d", 2n * D * (D + g * d)], p, S, ["2 g d", 2n * g * d]],
      "multi-query": [["2 D² + 2 D d", 2n * D * (D + d)], p, S, ["2 d", 2n * d]],
      latent: [["2 D² + D (h r + 3 c + r)", D * (2n * D + h * r + 3n * c + r)], ["c", c], latentPairs, ["c + r", c + r]],
      talking: [P, ["2 h²", 2n * h * h], ["2 D + 2 h²", 2n * D + 2n * h * h], n],
      collaborative: [["2 D² + 2 D D~", 2n * D * (D + m)], ["h D~", h * m], ["D + h D~", D + h * m], ["D + D~", D + m]],
      overlapping: [["4 D² + 2 o h D", 4n * D * D + 2n * o * h * D], p, overlapping, overlapping],
      mixture: [bothKinds ? ["4 D² + (h + 2) D", D * (4n * D + h + 2n)] : ["4 D² + h D", D * (4n * D + h)], p, S, n],
      composed: [
        ["4 D² + 4 (2 R h D + 4 R² h² + h D)", 4n * (D * D + 2n * R * h * D + 4n * R * R * h * h + h * D)],
        p,
        ["2 D + 8 R h", 2n * D + 8n * R * h],
        ["2 D + (4 R + 2) h", 2n * D + (4n * R + 2n) * h],
      ],
      differential: [P, ["3 D / h", 3n * d], S, n],
      gated: [model.get("per_channel") ? ["5 D²", 5n * D * D] : ["4 D² + h D", D * (4n * D + h)], p, S, n],
      "qk-norm": [P, ["2 D / h", 2n * d], S, n],
    };
    return all[variant];
  }
  /** @type {(variant: string) => Record<string, bigint>} */
  function variantCosts(variant) {
    const [[, P], [, p], [, S], [, n]] = parts(variant);
    const [width, heads, shared, chosen, layers, tokens, examples, bytes] = (
      /** @type {const} */ (["num_hiddens", "num_heads", "num_shared", "num_chosen", "num_layers", "num_tokens", "batch_size", "bytes_per_number"])
    ).map(big);
    const off = 2n * (heads - shared - chosen) * (width / heads);
    const flops = (/** @type {bigint} */ each, /** @type {bigint} */ pair) => layers * examples * (2n * tokens * each + 2n * tokens * tokens * pair);
    return { parameters: layers * (P + p), flops: flops(P, S), chosen_flops: flops(P - off * width, S - off), cache_bytes_per_token: layers * n * bytes };
  }

  /** What does not divide, or null. */
  function problem() {
    const [width, heads, kvHeads] = SIZES.map(number);
    const variant = isCounted ? COUNTED : model.get("variant");
    if (width % heads) return `D = ${width} is not divisible by h = ${heads}: heads of ${(width / heads).toFixed(2)} channels do not exist.`;
    if ((!compares || variant === "grouped") && heads % kvHeads) return `h = ${heads} is not divisible by g = ${kvHeads}: some heads would have no keys.`;
    if (variant === "differential" && width % (2 * heads)) return `D = ${width} is not divisible by 2 h = ${2 * heads}: each head needs two queries.`;
    if (variant === "latent" && number("rotary_size") % 2) return `r = ${number("rotary_size")} is odd: rotary positions turn pairs.`;
    const routed = heads - number("num_shared");
    if (variant === "mixture" && routed < 0) return `s = ${number("num_shared")} heads are always on, but there are h = ${heads}.`;
    if (variant === "mixture" && (number("num_chosen") > routed || (routed && !number("num_chosen"))))
      return `k = ${number("num_chosen")} cannot be chosen of h − s = ${routed} heads${routed ? ": take 1 or more of them" : ""}.`;
    return null;
  }

  /** Half of a thousandth is rounded up, as in Python. @type {Ratio} */
  const ratio = (one, all) => (Number((2000n * one + all) / (2n * all)) / 1000).toFixed(3);

  const said = voice();
  const cell = (/** @type {Node[]} */ ...inside) => make("td", { class: "mhalib-number" }, ...inside);
  const amounts = (compares ? COMPARED : COSTS).map(([name, title, formula, unit]) => {
    const [exact, words, less] = [cell(), cell(), cell()];
    const head = make("th", { scope: compares ? "rowgroup" : "row", colspan: compares && 3, text: title }, make("div", { class: "mhalib-formula", text: formula }));
    const row = make("tr", { "data-cost": name }, ...(compares ? [words, exact, less] : [head, words, exact]));
    const group = compares ? make("tbody", {}, make("tr", {}, head), row) : row; // on a phone, the words take the width above the numbers
    return { name, unit, exact, words, less, group };
  });
  const table = compares
    ? sheet("What attention costs, beside multi-head attention of the same D and h; d = D / h", ["multi-head", "variant", "ratio"], [])
    : sheet("What attention costs; d = D / h", ["cost", "about", "exactly"], []);
  (compares ? table : table.tBodies[0]).append(...amounts.map(({ group }) => group));
  if (compares) table.tBodies[0].remove();
  const own = make("div", { class: `mhalib-frame ${css("own")}`, role: "region", tabindex: "0", "aria-label": "formulas" });
  const whole = compares ? make("div", { class: `mhalib-frame ${css("both")}`, role: "region", tabindex: "0", "aria-label": "costs" }, table) : table;

  function draw() {
    const reason = problem();
    table.hidden = Boolean(reason);
    own.hidden = Boolean(reason);
    if (reason) {
      said.textContent = reason;
      tell?.({});
      return;
    }
    if (compares) {
      drawComparison();
      return;
    }
    const found = costs();
    for (const { name, unit, exact, words } of amounts) {
      exact.textContent = found[/** @type {keyof typeof found} */ (name)].toLocaleString("en-US");
      words.textContent = inWords(found[/** @type {keyof typeof found} */ (name)], unit);
    }
    const told = COSTS.map(([name, , , unit]) => [name, inWords(found[name], unit)]);
    tell?.({ ...Object.fromEntries(told), d: (number("num_hiddens") / number("num_heads")).toLocaleString("en-US") });
    said.textContent = `${inWords(found.parameters, "")} parameters, ${inWords(found.flops, "")} FLOPs, cache ${inWords(found.cache_bytes, "B")}.`;
  }
  function drawComparison() {
    const variant = String(model.get("variant"));
    const kind = isCounted ? COUNTED : variant;
    const [plain, found] = [variantCosts(PLAIN), variantCosts(kind)];
    plain.chosen_flops = plain.flops;
    for (const { name, unit, words, exact, less, group } of amounts) {
      group.hidden = name === "chosen_flops" && kind !== "mixture";
      for (const [place, count] of /** @type {[HTMLElement, bigint][]} */ ([[words, plain[name]], [exact, found[name]]]))
        place.replaceChildren(inWords(count, unit), make("div", { class: css("exact"), text: count.toLocaleString("en-US") }));
      less.textContent = ratio(found[name], plain[name]);
    }
    /** @type {HTMLElement} */ (table.tHead?.rows[0].cells[1]).textContent = variant;
    const meant = ["P, weights that multiply each token", "p, other weights", "S, products for each query and key", "n, numbers kept of each token"];
    const [plainly, specially] = [parts(PLAIN), parts(kind)];
    const counted = (/** @type {Part} */ [text, count]) => (text === "0" ? text : `${text && `${text} = `}${count.toLocaleString("en-US")}`);
    const rows = meant.map((text, i) => [text, plainly[i][0], counted(specially[i])]);
    own.replaceChildren(sheet("What the formulas are made of, in one layer", ["part", "multi-head", variant], rows));
    const [weights, work, kept] = ["parameters", "flops", "cache_bytes_per_token"].map((name) => ratio(found[name], plain[name]));
    said.textContent = `${variant}: ${weights} of the parameters of multi-head attention, ${work} of the FLOPs, ${kept} of the cache.`;
  }

  const { field, chooser } = fieldsOf(model, said);
  const gone = isCounted ? ["num_hiddens", "num_heads", "num_kv_heads"] : compares ? ["num_kv_heads"] : [];
  const sizes = FIELDS.filter(([name]) => !gone.includes(name));
  const fields = sizes.map(([name, label, max]) => field(name, label, 1, max));
  fields.push(chooser("bytes_per_number", "bytes per number", [[8, "8 (float64)"], [4, "4 (float32)"], [2, "2 (bfloat16)"], [1, "1 (8-bit)"]], Number));
  if (compares && !isCounted) {
    fields.unshift(chooser("variant", "variant", VARIANTS.map((name) => [name, name])));
    for (const [variant, name, label, min, max] of SETTINGS) {
      const one = typeof min === "number" ? field(name, label, min, Number(max)) : chooser(name, label, [[0, min], [1, max]], (value) => value === "1");
      const refresh = () => {
        one.refresh();
        one.row.hidden = model.get("variant") !== variant;
      };
      fields.splice(fields.findIndex(({ row }) => row.querySelector("[data-name=num_layers]")), 0, { ...one, refresh });
    }
  }

  function follow() {
    for (const { refresh } of fields) refresh();
    draw();
  }

  const stop = listen(model, NAMES, follow);
  const controls = make("div", { class: "mhalib-controls", role: "group", "aria-label": "sizes" }, ...fields.map(({ row }) => row));
  settle(el, "cost-calculator", controls, said, whole, ...(compares ? [own] : []));
  follow();
  return stop;
}
