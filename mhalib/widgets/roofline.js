// @ts-check
/* What bounds each step of the layer on a machine of two limits. Counts are exact integers (BigInt), so that they equal Python's. */

import { choice, classes, inWords, labelled, listen, make, numberInput, settle, sheet, svg, voice, writer } from "./shared.js";

/** @import { Place, Roof, StepOnRoof } from "./types" */
/** @param {Place<Roof>} place */
export function Roofline({ model, el }) {
  const css = classes("roofline");
  /** @type {[keyof Roof & string, string, number][]} */
  const FIELDS = [
    ["num_hiddens", "width D", 65536],
    ["num_heads", "heads h", 1024],
    ["num_kv_heads", "key–value heads g", 1024],
    ["num_tokens", "tokens N", 10000000],
    ["batch_size", "examples B", 1000000],
  ];
  const STEPS = ["W_q", "W_k", "W_v", "scores", "softmax", "average", "W_o"];
  const PHASES = [["prefill", "prefill: a prompt"], ["training", "training"], ["decoding", "decoding: a token"]];
  const VARIANTS = ["multi-head", "grouped", "multi-query"];
  const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [460, 340, 64, 30, 30, 50];
  const [LEAST, MOST, FLOOR] = [-1, 4, -4]; // powers of ten: FLOPs for each byte, and the least share of the peak
  const put = writer(model);
  const said = voice();
  const number = (/** @type {keyof Roof & string} */ name) => Number(model.get(name));
  const limits = () => /** @type {[string, number, number, number]} */ (model.get("machines").find(([name]) => name === model.get("machine")));
  const shared = () => (model.get("variant") === "grouped" ? number("num_kv_heads") : model.get("variant") === "multi-head" ? number("num_heads") : 1);

  /** FLOPs and bytes of each step, as in mhalib.roofline. @type {() => StepOnRoof[]} */
  function costs() {
    const [, peak, bandwidth, width] = limits();
    const [D, h, N, B] = (/** @type {const} */ (["num_hiddens", "num_heads", "num_tokens", "batch_size"])).map((name) => BigInt(number(name)));
    const g = BigInt(shared());
    const d = D / h;
    const fresh = model.get("phase") === "decoding" ? 1n : N;
    const passes = model.get("phase") === "training" ? 3n : 1n;
    const [rows, stacked] = [B * fresh, (fresh * h) / g];
    /** Matrices (n, k) times (k, m). @type {Record<string, bigint[]>} */
    const products = {
      W_q: [1n, rows, D, D],
      W_k: [1n, rows, D, g * d],
      W_v: [1n, rows, D, g * d],
      scores: [B * g, stacked, d, N],
      average: [B * g, stacked, N, d],
      W_o: [1n, rows, D, D],
    };
    return STEPS.map((name) => {
      const [count, n, k, m] = products[name] ?? [0n, 0n, 0n, 0n];
      const flops = passes * count * 2n * n * k * m;
      const numbers = name === "softmax" ? (passes === 3n ? 5n : 2n) * B * h * fresh * N : passes * count * (n * k + k * m + n * m);
      const moved = numbers * BigInt(width);
      const [computing, moving] = [Number(flops) / peak, Number(moved) / bandwidth];
      return { name, flops, moved, intensity: Number(flops) / Number(moved), seconds: Math.max(computing, moving), bound: computing > moving ? "arithmetic" : "memory" };
    });
  }

  /** What does not divide, or null. */
  function problem() {
    const [D, h, g] = [number("num_hiddens"), number("num_heads"), shared()];
    if (D % h) return `D = ${D} is not divisible by h = ${h}: heads of ${(D / h).toFixed(2)} channels do not exist.`;
    if (h % g) return `h = ${h} is not divisible by g = ${g}: some heads would have no keys.`;
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
    /** Of dots that are near each other, together. @type {{ at: number, down: number, names: string[], last: number }[]} */
    const labels = [];
    for (const { at, down, steps: here } of spots) {
      const names = here.map((step) => step.name);
      const chosen = names.includes(String(model.get("step")));
      parts.push(svg("circle", { cx: at, cy: down, r: chosen ? 8 : 5.5, class: chosen ? css("chosen") : css(here[0].bound), "data-steps": names.join(" "), onclick: () => put({ step: names[0] }) }));
      const before = labels[labels.length - 1];
      if (before && at - before.last < 45) {
        before.names.push(...names);
        before.last = at;
      } else labels.push({ at, down, names, last: at });
    }
    /** @type {[number, number, number][]} */
    const taken = []; // by labels: left, right, down
    for (const { at, down, names, last } of labels) {
      const label = STEPS.filter((step) => names.includes(step)).join(", ");
      const half = 4.3 * label.length;
      const wanted = down > y(0) + 1 ? last + 4 + half : (at + last) / 2; // beside the slope, or below the flat part
      const middle = Math.min(WIDTH - 4 - half, Math.max(LEFT + 4 + half, wanted));
      let low = Math.min(down + 24, HEIGHT - BOTTOM - 8);
      while (taken.some(([from, to, place]) => middle + half > from && middle - half < to && Math.abs(place - low) < 18)) low += down > HEIGHT / 2 ? -18 : 18;
      taken.push([middle - half, middle + half, low]);
      parts.push(text(middle, low, label));
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
    const [name, peak, bandwidth, width] = limits();
    const total = steps.reduce((sum, step) => sum + step.seconds, 0);
    drawRoof(steps);
    const rows = steps.map((step) => [step.name, step.flops ? inWords(step.flops, "") : "0", inWords(step.moved, "B"), step.flops ? digits(step.intensity) : "0", step.bound, inTime(step.seconds), percent(step.seconds / total)]);
    const marks = (/** @type {number} */ r) => ({ "data-step": steps[r].name, "data-flops": String(steps[r].flops), "data-moved": String(steps[r].moved), "aria-current": steps[r].name === model.get("step") && "true" });
    const caption = `${name}: ${inWords(BigInt(Math.round(peak)), "FLOP/s")}, ${inWords(BigInt(Math.round(bandwidth)), "B")}/s, numbers of ${width} bytes. Ridge: ${digits(peak / bandwidth)} FLOPs for each byte.`;
    frame.replaceChildren(sheet(caption, ["step", "FLOPs", "bytes", "FLOPs/byte", "bound by", "at least", "share"], rows, marks));
    const own = steps[STEPS.indexOf(String(model.get("step")))];
    const waiting = steps.filter((step) => step.bound === "memory").reduce((sum, step) => sum + step.seconds, 0);
    said.textContent = `${own.name} is bound by ${own.bound} and takes ${inTime(own.seconds)} at least, ${percent(own.seconds / total)} of the layer's ${inTime(total)}. Steps bound by memory take ${percent(waiting / total)}.`;
  }

  /** @type {(name: keyof Roof & string, label: string, options: string[][]) => { row: HTMLElement, refresh: () => void }} */
  const chooser = (name, label, options) => {
    const input = choice({ value: String(model.get(name)), options, changed: (value) => put({ [name]: value }), "data-name": name });
    return {
      row: labelled(label, input),
      refresh() {
        input.value = String(model.get(name));
      },
    };
  };
  const twice = (/** @type {string} */ name) => [name, name];
  const fields = [
    chooser("machine", "machine", model.get("machines").map(([name]) => twice(name))),
    chooser("phase", "phase", PHASES),
    chooser("variant", "variant", VARIANTS.map(twice)),
    ...FIELDS.map(([name, label, max]) => {
      const { input, show } = numberInput({ value: number(name), min: 1, max, changed: (value) => put({ [name]: value }), said, "data-name": name });
      const row = labelled(label, input);
      const refresh = () => {
        show(number(name));
        row.hidden = name === "num_kv_heads" && model.get("variant") !== "grouped";
      };
      return { row, refresh };
    }),
    chooser("step", "step to speak of", STEPS.map(twice)),
  ];
  function follow() {
    for (const { refresh } of fields) refresh();
    draw();
  }
  const stop = listen(model, ["machine", "phase", "variant", "step", ...FIELDS.map(([name]) => name)], follow);
  const controls = make("div", { class: "mhalib-controls", role: "group", "aria-label": "machine and sizes" }, ...fields.map(({ row }) => row));
  settle(el, "roofline", controls, said, drawing, frame);
  follow();
  return stop;
}
