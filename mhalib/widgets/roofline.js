// @ts-check
/* What bounds each step of the layer on a machine of two limits. Counts are exact integers (BigInt), so that they equal Python's. */

import { classes, fieldsOf, inWords, listen, make, settle, sheet, svg, voice, writer } from "./shared.js";

/** @import { Place, Roof, StepOnRoof } from "./types" */
/** @param {Place<Roof>} place */
export function Roofline({ model, el }) {
  const css = classes("roofline");
  /** Name, label, bounds, and the variant that alone has it. @type {[keyof Roof & string, string, number, number, string?][]} */
  const FIELDS = [
    ["num_hiddens", "width D", 1, 65536],
    ["num_heads", "heads h", 1, 1024],
    ["num_kv_heads", "key–value heads g", 1, 1024, "grouped"],
    ["latent_size", "latent width c", 1, 65536, "latent"],
    ["rotary_size", "rotary width r", 0, 65536, "latent"],
    ["num_tokens", "tokens N", 1, 10000000],
    ["batch_size", "examples B", 1, 1000000],
  ];
  const PHASES = [["prefill", "prefill: a prompt"], ["training", "training"], ["decoding", "decoding: a token"]];
  const VARIANTS = ["multi-head", "grouped", "multi-query", "latent"];
  const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [460, 340, 64, 30, 30, 50];
  const [LEAST, MOST, FLOOR] = [-1, 4, -4]; // powers of ten: FLOPs for each byte, and the least share of the peak
  const put = writer(model);
  const said = voice();
  const number = (/** @type {keyof Roof & string} */ name) => Number(model.get(name));
  const limits = () => /** @type {[string, number, number, number]} */ (model.get("machines").find(([name]) => name === model.get("machine")));
  const isLatent = () => model.get("variant") === "latent";
  const isAbsorbed = () => isLatent() && model.get("phase") === "decoding";
  const isFused = () => model.get("kernel") === "fused";
  const shared = () => ({ "multi-head": number("num_heads"), grouped: number("num_kv_heads"), latent: isAbsorbed() ? 1 : number("num_heads") })[model.get("variant")] ?? 1;

  /** FLOPs and bytes of each step, as in mhalib.roofline. @type {() => StepOnRoof[]} */
  function costs() {
    const [, peak, bandwidth, width] = limits();
    const [D, h, N, B, c, r] = (/** @type {const} */ (["num_hiddens", "num_heads", "num_tokens", "batch_size", "latent_size", "rotary_size"])).map((name) => BigInt(number(name)));
    const g = BigInt(shared());
    const d = D / h;
    const fresh = model.get("phase") === "decoding" ? 1n : N;
    const training = model.get("phase") === "training";
    const rows = B * fresh;
    const pairs = B * h * (model.get("causal") && fresh > 1n ? (N * (N + 1n)) / 2n : fresh * N);
    const [latent, absorbed] = [isLatent(), isAbsorbed()];
    const turned = latent ? r : 0n;
    const [wide, tall] = absorbed ? [c + r, c] : [d + turned, d]; // of a key and of a value
    const [queries, found, keys, values] = [rows * h * wide, rows * h * tall, B * g * N * wide, B * g * N * tall];
    /** FLOPs and numbers; in training three times as much, or as said. @type {(name: string, flops: bigint, numbers: bigint, trained?: bigint[]) => [string, bigint, bigint]} */
    const step = (name, flops, numbers, trained = [3n * flops, 3n * numbers]) => (training ? [name, trained[0], trained[1]] : [name, flops, numbers]);
    /** `count` products of (n, k) with (k, m). */
    const product = (/** @type {string} */ name, /** @type {bigint} */ n, /** @type {bigint} */ k, /** @type {bigint} */ m, count = 1n) => step(name, 2n * count * n * k * m, count * (n * k + k * m + n * m));
    const once = queries + found + keys + (absorbed ? 0n : values); // a latent is key and value
    const attending = isFused()
      ? [step("fused", 2n * pairs * (wide + tall), once, [2n * pairs * (4n * wide + 3n * tall), 3n * once])]
      : [step("scores", 2n * pairs * wide, queries + keys + pairs), step("softmax", 0n, 2n * pairs, [0n, 5n * pairs]), step("average", 2n * pairs * tall, pairs + values + found)];
    const narrow = [product("W_down", rows, D, c), ...(r ? [product("W_rotary", rows, D, r)] : [])];
    const inner = absorbed
      ? [...narrow, product("W_up_k", rows, d, c, h), ...attending, product("W_up_v", rows, c, d, h)]
      : [...(latent ? [...narrow, product("W_up_k", rows, c, D), product("W_up_v", rows, c, D)] : ["W_k", "W_v"].map((name) => product(name, rows, D, g * d))), ...attending];
    return [product("W_q", rows, D, D + h * turned), ...inner, product("W_o", rows, D, D)].map(([name, flops, numbers]) => {
      const moved = numbers * BigInt(width);
      const [computing, moving] = [Number(flops) / peak, Number(moved) / bandwidth];
      return { name, flops, moved, intensity: Number(flops) / Number(moved), seconds: Math.max(computing, moving), bound: computing > moving ? "arithmetic" : "memory" };
    });
  }
  /** The step that is spoken of: the one that was chosen, if this layer has it. @type {(steps: StepOnRoof[]) => StepOnRoof} */
  const spoken = (steps) => steps.find(({ name }) => name === model.get("step")) ?? steps.find(({ name }) => name === "scores" || name === "fused") ?? steps[0];

  /** What does not divide, or null. */
  function problem() {
    const [D, h, g] = [number("num_hiddens"), number("num_heads"), shared()];
    if (D % h) return `D = ${D} is not divisible by h = ${h}: heads of ${(D / h).toFixed(2)} channels do not exist.`;
    if (h % g) return `h = ${h} is not divisible by g = ${g}: some heads would have no keys.`;
    if (isLatent() && number("rotary_size") % 2) return `r = ${number("rotary_size")} is odd: rotary positions turn pairs.`;
    return null;
  }

  const digits = (/** @type {number} */ x) => x.toLocaleString("en-US", { minimumSignificantDigits: 3, maximumSignificantDigits: 3 });
  /** @type {(seconds: number) => string} */
  function inTime(seconds) {
    /** @type {[string, number][]} */
    const units = [["s", 1], ["ms", 1e3], ["µs", 1e6]];
    const [unit, factor] = units.find(([, factor]) => seconds * factor >= 1) ?? ["ns", 1e9];
    return `${digits(seconds * factor)} ${unit}`;
  }
  const percent = (/** @type {number} */ share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;

  const x = (/** @type {number} */ power) => LEFT + ((WIDTH - LEFT - RIGHT) * (Math.min(MOST, Math.max(LEAST, power)) - LEAST)) / (MOST - LEAST);
  const y = (/** @type {number} */ power) => TOP + ((HEIGHT - TOP - BOTTOM) * Math.max(FLOOR, Math.min(0, power))) / FLOOR;
  const words = (/** @type {number} */ power) => (power < 0 ? (10 ** power).toFixed(-power) : (10 ** power).toLocaleString("en-US"));
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: css("drawing"), role: "img" });
  const frame = make("div", { class: "mhalib-frame", role: "region", tabindex: "0", "aria-label": "steps" });

  /** The axes, the roof, and a dot for each step, at most as high as the roof. @type {(steps: StepOnRoof[]) => void} */
  function drawRoof(steps) {
    const own = spoken(steps);
    const [name, peak, bandwidth] = limits();
    const ridge = Math.log10(peak / bandwidth);
    const text = (/** @type {number} */ at, /** @type {number} */ down, /** @type {string} */ words, anchor = "middle") => svg("text", { x: at, y: down, "text-anchor": anchor, text: words });
    const parts = [];
    for (let power = LEAST; power <= MOST; power += 1) {
      parts.push(svg("line", { x1: x(power), x2: x(power), y1: TOP, y2: HEIGHT - BOTTOM, class: css("grid") }));
      parts.push(text(x(power), HEIGHT - BOTTOM + 18, words(power)));
    }
    for (let power = FLOOR; power <= 0; power += 1) {
      parts.push(svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(power), y2: y(power), class: css("grid") }));
      parts.push(text(LEFT - 6, y(power) + 4, `${words(power + 2)} %`, "end"));
    }
    parts.push(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "FLOPs for each byte moved"), text(4, 14, "share of the peak, at most", "start"));
    const roof = [[LEAST, LEAST - ridge], [Math.max(LEAST, ridge), 0], [MOST, 0]].map(([right, up]) => `${x(right)},${y(up)}`);
    parts.push(svg("polyline", { points: roof.join(" "), class: css("roof") }));
    /** @type {{ at: number, down: number, steps: StepOnRoof[] }[]} */
    const spots = [];
    for (const step of [...steps].sort((one, other) => one.intensity - other.intensity)) {
      const power = Math.max(LEAST, Math.log10(step.intensity));
      const spot = { at: x(power), down: y(Math.min(0, power - ridge)), steps: [step] };
      const last = spots[spots.length - 1];
      if (last && spot.at - last.at < 9) last.steps.push(step);
      else spots.push(spot);
    }
    /** Of dots that are near each other, together. @type {{ at: number, down: number, dots: string[][], last: number }[]} */
    const labels = [];
    for (const { at, down, steps: here } of spots) {
      const names = steps.filter((step) => here.includes(step)).map((step) => step.name);
      const chosen = here.includes(own);
      parts.push(svg("circle", { cx: at, cy: down, r: chosen ? 8 : 5.5, class: chosen ? css("chosen") : css(here[0].bound), "data-steps": names.join(" "), onclick: () => put({ step: names[0] }) }));
      const before = labels[labels.length - 1];
      if (before && at - before.last < 45) {
        before.dots.push(names);
        before.last = at;
      } else labels.push({ at, down, dots: [names], last: at });
    }
    /** @type {[number, number, number][]} */
    const taken = []; // by lines of labels: left, right, down
    for (const { at, down, dots, last } of labels) {
      const all = steps.map((step) => step.name).filter((name) => dots.flat().includes(name));
      const many = dots.flatMap((names) => names.flatMap((_, i) => (i % 3 ? [] : [names.slice(i, i + 3)]))); // of a dot, in threes
      const lines = (all.length < 5 ? [all] : many).map((names) => names.join(", "));
      const half = 4.3 * Math.max(...lines.map((line) => line.length));
      const wanted = down > y(0) + 1 ? last + 4 + half : (at + last) / 2; // beside the slope, or below the flat part
      const middle = Math.min(WIDTH - 4 - half, Math.max(LEFT + 4 + half, wanted));
      let low = Math.min(down + 24, HEIGHT - BOTTOM + 10 - 18 * lines.length);
      while (taken.some(([from, to, place]) => middle + half > from && middle - half < to && place > low - 18 && place < low + 18 * lines.length)) low += down > HEIGHT / 2 ? -18 : 18;
      for (const [i, line] of lines.entries()) {
        taken.push([middle - half, middle + half, low + 18 * i]);
        parts.push(text(middle, low + 18 * i, line));
      }
    }
    drawing.replaceChildren(...parts);
    const where = (/** @type {string} */ bound) => steps.filter((step) => step.bound === bound).map((step) => step.name).join(", ") || "none";
    drawing.setAttribute("aria-label", `The roof of ${name}, with its ridge at ${digits(peak / bandwidth)} FLOPs for each byte. Bound by memory: ${where("memory")}. Bound by arithmetic: ${where("arithmetic")}.`);
  }

  function draw() {
    const reason = problem();
    drawing.toggleAttribute("hidden", Boolean(reason));
    frame.hidden = Boolean(reason);
    if (reason) {
      said.textContent = reason;
      return;
    }
    const steps = costs();
    const own = spoken(steps);
    const [name, peak, bandwidth, width] = limits();
    const total = steps.reduce((sum, step) => sum + step.seconds, 0);
    drawRoof(steps);
    const rows = steps.map((step) => [step.name, step.flops ? inWords(step.flops, "") : "0", inWords(step.moved, "B"), step.flops ? digits(step.intensity) : "0", step.bound, inTime(step.seconds), percent(step.seconds / total)]);
    const marks = (/** @type {number} */ r) => ({ "data-step": steps[r].name, "data-flops": String(steps[r].flops), "data-moved": String(steps[r].moved), "aria-current": steps[r] === own && "true" });
    const form = isAbsorbed() ? " Absorbed: the latents are keys and values of all heads." : isLatent() ? " Each head has keys and values of its own, made from latents." : "";
    const caption = `${name}: ${inWords(BigInt(Math.round(peak)), "FLOP/s")}, ${inWords(BigInt(Math.round(bandwidth)), "B")}/s, numbers of ${width} bytes. Ridge: ${digits(peak / bandwidth)} FLOPs for each byte.${form}`;
    frame.replaceChildren(sheet(caption, ["step", "FLOPs", "bytes", "FLOPs per byte", "bound by", "at least", "share"], rows, marks));
    const waiting = steps.filter((step) => step.bound === "memory").reduce((sum, step) => sum + step.seconds, 0);
    said.textContent = `In ${model.get("kernel")} attention, the step ${own.name} is bound by ${own.bound} and takes ${inTime(own.seconds)} at least, ${percent(own.seconds / total)} of the layer's ${inTime(total)}. Steps bound by memory take ${percent(waiting / total)}.`;
  }

  const twice = (/** @type {string} */ name) => [name, name];
  const { field, chooser } = fieldsOf(model, said);
  const steps = chooser("step", "step to speak of", []);
  const fields = [
    chooser("machine", "machine", model.get("machines").map(([name]) => twice(name))),
    chooser("phase", "phase", PHASES),
    chooser("variant", "variant", VARIANTS.map(twice)),
    chooser("kernel", "kernel", [["stored", "stored scores"], ["fused", "fused"]]),
    chooser("causal", "pairs", [[0, "all"], [1, "causal"]], (value) => value === "1"),
    ...FIELDS.map(([name, label, min, max, variant]) => {
      const { row, refresh } = field(name, label, min, max);
      return { row, refresh: () => [refresh(), row.toggleAttribute("hidden", Boolean(variant && variant !== model.get("variant")))] };
    }),
    { row: steps.row, refresh: showSteps },
  ];
  function showSteps() {
    const names = costs().map(({ name }) => name);
    if (steps.input.textContent !== names.join("")) steps.input.replaceChildren(...names.map((name) => make("option", { value: name, text: name })));
    steps.input.value = spoken(costs()).name;
  }
  function follow() {
    for (const { refresh } of fields) refresh();
    draw();
  }
  const stop = listen(model, ["machine", "phase", "variant", "kernel", "causal", "step", ...FIELDS.map(([name]) => name)], follow);
  const controls = make("div", { class: "mhalib-controls", role: "group", "aria-label": "machine and sizes" }, ...fields.map(({ row }) => row));
  settle(el, "roofline", controls, said, drawing, frame);
  follow();
  return stop;
}
