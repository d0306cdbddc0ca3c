// @ts-check
/* Numbers in the sentences of a page, which a reader drags, and those that follow. A notebook holds them as plain spans:
 *   at temperature <span class="drag" data-of="AttentionPlayground" data-trait="temperature">1</span> the largest weight
 *   is <span class="follows" data-of="AttentionPlayground" data-value="largest weight">0.65</span>
 * `data-of` names an instrument of the page or one of FORMULAS; a formula's numbers belong to their sentence. What cannot
 * be read stays a plain number. A result may be drawn, too. tools/notebooks/sentences.py computes the same, so that text and toy cannot part. */

import { inWords, make, svg } from "./shared.js";

/** @import { Awake, Bounds, Formula, Hands, Source } from "./types" */

const RATES = [1, 0.1, 0.01, 0.001]; // radians a position: the four pairs of a head of width 8
const degrees = (/** @type {number} */ angle) => Math.round((angle * 180) / Math.PI) % 360;

/** @type {Record<string, Formula>} */
const FORMULAS = {
  scores: {
    variables: { d: ["width d", 1, 1024] },
    results({ d = 1 }) {
      const [score, difference] = [Math.sqrt(d), Math.sqrt(2 * d)];
      const short = (/** @type {number} */ value, digits = 3) => String(Number(value.toPrecision(digits)));
      const [number, ...step] = inWords(Number(Math.exp(difference).toPrecision(2)), "").split(" ");
      const roughly = Number(number.replaceAll(",", "")).toLocaleString("en-US");
      return { "typical score": short(score), difference: short(difference, 4), ratio: [roughly, ...step].join(" ") };
    },
  },
  average: {
    variables: { w: ["weight of the first noun, in percent", 0, 100], f: ["factor of the readout", -4, 4] },
    results({ w = 0, f = 1 }) {
      const told = (/** @type {number} */ dog) => {
        const [first, second] = [dog, 100 - dog].map((percent) => (percent / 100).toFixed(2));
        const best = winners(dog, f);
        return `dog ${first}, man ${second}, cat 0, ${best.length > 1 ? "a tie" : `${best[0]} wins`}`;
      };
      return { winners: `dog bites man: ${told(w)}; man bites dog: ${told(100 - w)}` };
    },
    drawn: { winners: ({ w = 0, f = 1 }) => readouts(w, f) },
  },
  rotation: {
    variables: { t: ["position of the query", 0, 200], j: ["position of the key", 0, 200] },
    results({ t = 0, j = 0 }) {
      const score = RATES.reduce((sum, rate) => sum + Math.cos((t - j) * rate), 0) / Math.sqrt(8);
      const turned = RATES.map((rate) => degrees(Math.abs(t - j) * rate));
      const apart = turned.map((angle) => `${Math.min(angle, 360 - angle)}°`).join(", ");
      return { apart, score: score.toFixed(3).replace("-", "−") };
    },
    drawn: { apart: clocks },
  },
  passes: {
    variables: { N: ["tokens N", 1, 65536] },
    results({ N = 1 }) {
      const [once, again] = [N, (N * (N + 1)) / 2].map((count) => count.toLocaleString("en-US"));
      return { once, again };
    },
  },
  layer: {
    variables: { D: ["width D", 1, 65536], h: ["heads h", 1, 1024], N: ["tokens N", 1, 1048576] },
    results(sizes) {
      const [D, h, N] = ["D", "h", "N"].map((name) => BigInt(sizes[name] ?? 1));
      const [projections, pairs] = [8n * N * D * D, 4n * N * N * D];
      const exactly = (/** @type {bigint} */ count) => count.toLocaleString("en-US");
      return {
        d: D % h ? "no whole number" : exactly(D / h),
        parameters: exactly(4n * D * D),
        FLOPs: exactly(projections + pairs),
        weights: exactly(h * N * N),
        projections: inWords(projections, ""),
        "scores and average": inWords(pairs, ""),
      };
    },
  },
};
const [DOUBLED, FAR, NEAR] = [512, 24, 4]; // a bound from which on sizes double; pixels of one step, doubled or not

/** As a sentence has it: 2,048 and 0.5. @type {(value: number) => string} */
const written = (value) => Number(value.toFixed(3)).toLocaleString("en-US", { maximumFractionDigits: 3 }).replace("-", "−");

/** The value some steps further, as far as the bounds let it. @type {(value: number, steps: number, bounds: Bounds) => number} */
function stepped(value, steps, { min, max, whole }) {
  if (!whole || max < DOUBLED) return Math.min(max, Math.max(min, Number((value + steps * (whole ? 1 : 0.1)).toFixed(4))));
  let reached = value;
  for (let left = Math.abs(steps); left > 0; left -= 1) {
    const next = steps > 0 ? 2 * reached : reached / 2;
    if (next < min || next > max || !Number.isInteger(next)) break;
    reached = next;
  }
  return reached;
}

/** What a woken instrument lends to sentences: bounds and label are those of its own field. @type {(awake: Awake) => Source} */
function ofInstrument({ el, model, told, heard }) {
  const field = (/** @type {string} */ trait) => /** @type {HTMLInputElement | null} */ (el.querySelector(`input[type="number"][data-name="${trait}"]`));
  return {
    bounds(trait) {
      const input = field(trait);
      return input && { label: input.labels?.[0]?.textContent ?? trait, min: Number(input.min), max: Number(input.max), whole: input.step === "1" };
    },
    get: (trait) => model.get(trait),
    set(trait, value) {
      model.set(trait, value);
      model.save_changes();
    },
    results: () => told.results,
    listen: (then) => heard.push(then),
    speaks: true,
  };
}

/** The formula of one sentence, with the numbers that stand there. @type {(formula: Formula, sentence: Element, name: string) => Source} */
function ofFormula({ variables, results, drawn = {} }, sentence, name) {
  /** @type {Record<string, number>} */
  const values = {};
  /** @type {(() => void)[]} */
  const heard = [];
  for (const { dataset, textContent } of /** @type {NodeListOf<HTMLElement>} */ (sentence.querySelectorAll(`span.drag[data-of="${name}"]`))) {
    const [trait, value] = [dataset.trait ?? "", Number(textContent.replace("−", "-").replaceAll(",", ""))];
    if (Object.hasOwn(variables, trait) && Number.isInteger(value)) values[trait] = value;
  }
  return {
    bounds(trait) {
      if (!Object.hasOwn(values, trait)) return null;
      const [label, min, max] = variables[trait];
      return { label, min, max, whole: true };
    },
    get: (trait) => values[trait],
    set(trait, value) {
      values[trait] = value;
      for (const then of heard) then();
    },
    results: () => results(values),
    drawn: (of, told) => (Object.hasOwn(drawn, of) ? drawn[of](values, told) : undefined),
    listen: (then) => heard.push(then),
    speaks: false,
  };
}

/** The hands of a query and a key on one clock; both point to 12 at angle 0. The smaller angle between them is shaded, and told. @type {(hands: Hands, told: string) => SVGElement} */
function clock({ query, key, rate }, told) {
  const at = (/** @type {number} */ angle, /** @type {number} */ length) => [(length * Math.sin(angle)).toFixed(3), (-length * Math.cos(angle)).toFixed(3)];
  const hand = (/** @type {string} */ of, /** @type {number} */ angle, /** @type {number} */ length) => {
    const [x2, y2] = at(angle, length);
    return svg("line", { class: `mhalib-clock-${of}`, x2, y2 });
  };
  const turned = (((query - key) % (2 * Math.PI)) + 2 * Math.PI) % (2 * Math.PI);
  const [from, angle] = turned > Math.PI ? [query, 2 * Math.PI - turned] : [key, turned];
  const wedge = svg("path", { d: `M0 0L${at(from, 0.5).join(" ")}A0.5 0.5 0 0 1 ${at(from + angle, 0.5).join(" ")}Z` });
  const perPosition = `${Number(((rate * 180) / Math.PI).toPrecision(2))}° a position`;
  const texts = [svg("text", { class: "mhalib-clock-told", y: 1.5 }, told), svg("text", { y: 1.85 }, perPosition)];
  return svg("svg", { viewBox: "-1.15 -1.1 2.3 3.05" }, svg("circle", { r: 1 }), wedge, hand("key", key, 0.62), hand("query", query, 0.97), ...texts);
}

/** Four clocks of a query and a key, each with what is told of it. @type {(positions: Record<string, number>, told: string) => HTMLElement} */
function clocks({ t = 0, j = 0 }, told) {
  const each = told.split(", ");
  const drawn = RATES.map((rate, i) => clock({ query: t * rate, key: j * rate, rate }, each[i]));
  return make("span", { class: "mhalib-clocks", "aria-hidden": "true" }, ...drawn);
}

/** The nouns whose share of one average, times the factor, is the largest: dog has so many percent, man the rest. @type {(dog: number, factor: number) => string[]} */
function winners(dog, factor) {
  const scores = Object.entries({ dog, man: 100 - dog, cat: 0 }).map(([noun, share]) => /** @type {const} */ ([noun, factor * share]));
  const best = Math.max(...scores.map(([, score]) => score));
  return scores.filter(([, score]) => score === best).map(([noun]) => noun);
}

/** The shares of dog, man and cat on a line from 0 to 1, the readout's slope over them, and a ring around what wins, for each of two sentences. @type {(first: number, factor: number) => SVGElement} */
function readouts(first, factor) {
  const at = (/** @type {number} */ percent) => 146 + 2 * percent;
  const text = (/** @type {number} */ x, /** @type {number} */ y, /** @type {string} */ said, anchor = "middle") => svg("text", { x, y, "text-anchor": anchor }, said);
  const readout = (/** @type {string} */ sentence, /** @type {number} */ dog, /** @type {number} */ y) => {
    const over = (/** @type {number} */ percent) => y - 56 + factor * (4.5 - 0.09 * percent); // level in the middle
    const nouns = Object.entries({ cat: 0, man: 100 - dog, dog }); // the dog in front
    const dots = nouns.map(([noun, share]) => svg("circle", { class: `mhalib-share-${noun}`, cx: at(share), cy: y, r: 9 }));
    const scores = nouns.map(([, share]) => svg("circle", { class: "mhalib-share-score", cx: at(share), cy: over(share), r: 3 }));
    const best = winners(dog, factor);
    const rings = nouns.filter(([noun]) => best.includes(noun)).map(([noun, share]) => svg("circle", { class: "mhalib-share-wins", "data-noun": noun, cx: at(share), cy: y, r: 14 }));
    const labels = [text(at(dog), y - 19, `dog ${(dog / 100).toFixed(2)}`), text(at(100 - dog), y + 27, `man ${(1 - dog / 100).toFixed(2)}`)];
    const left = [text(0, y + 4, sentence, "start"), text(at(0) - 20, y + 4, "cat 0", "end"), text(at(0) - 18, over(0) + 4, "score", "end")];
    const line = (/** @type {number} */ y1, /** @type {number} */ y2) => svg("line", { x1: at(0), x2: at(100), y1, y2 });
    return [line(y, y), line(over(0), over(100)), ...dots, ...scores, ...rings, ...labels, ...left];
  };
  const axis = ["0", "share", "1"].map((said, i) => text(at(50 * i), 247, said));
  return svg("svg", { class: "mhalib-shares", viewBox: "0 0 380 252", "aria-hidden": "true" }, ...readout("dog bites man", first, 82), ...readout("man bites dog", 100 - first, 196), ...axis);
}

/** A number becomes a slider: for a pointer, a finger, arrow keys, and a screen reader. @type {(span: HTMLElement, source: Source, trait: string, bounds: Bounds) => void} */
function drag(span, source, trait, bounds) {
  /** @type {{ x: number, value: number } | null} */
  let held = null;
  const go = (/** @type {number} */ from, /** @type {number} */ steps) => {
    const to = stepped(from, steps, bounds);
    if (to !== source.get(trait)) source.set(trait, to);
  };
  const show = () => {
    const [value, text] = [source.get(trait), written(source.get(trait))];
    span.textContent = text;
    span.setAttribute("aria-valuenow", String(value));
    span.setAttribute("aria-valuetext", text);
  };
  const fixed = { role: "slider", tabindex: 0, title: "drag it, or use the arrow keys", "aria-label": bounds.label, "aria-valuemin": bounds.min, "aria-valuemax": bounds.max };
  for (const [name, value] of Object.entries(fixed)) span.setAttribute(name, String(value));
  span.addEventListener("touchstart", (event) => event.preventDefault(), { passive: false }); // the page stays where it is
  span.addEventListener("pointerdown", (event) => {
    event.preventDefault(); // no selection of text
    span.focus({ preventScroll: true });
    span.setPointerCapture(event.pointerId);
    held = { x: event.clientX, value: source.get(trait) };
  });
  span.addEventListener("pointermove", (event) => {
    if (held) go(held.value, Math.trunc((event.clientX - held.x) / (bounds.whole && bounds.max >= DOUBLED ? FAR : NEAR)));
  });
  const release = () => {
    held = null;
  };
  for (const end of ["pointerup", "pointercancel"]) span.addEventListener(end, release);
  span.addEventListener("keydown", (event) => {
    const way = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 }[event.key];
    const end = { Home: bounds.min, End: bounds.max }[event.key];
    if ((!way && end === undefined) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (way) go(source.get(trait), way);
    else if (end !== undefined && end !== source.get(trait)) source.set(trait, end);
  });
  source.listen(show);
  show();
}

/** A number that is computed from dragged ones. @type {(span: HTMLElement, source: Source, name: string) => void} */
function follow(span, source, name) {
  /** @type {Element | undefined} */
  let drawn;
  const show = () => {
    const told = source.results()[name] ?? "–";
    const next = source.drawn?.(name, told);
    if (span.textContent !== told) span.textContent = told; // what is written anew is read out anew
    drawn?.remove();
    if (next) span.before(next);
    span.classList.toggle("mhalib-told", Boolean(next)); // the drawing says it to who sees it
    drawn = next;
  };
  span.dataset.awake = "true";
  if (!source.speaks) span.setAttribute("aria-live", "polite"); // an instrument has a voice of its own
  source.listen(show);
  show();
}

/** Wakes the numbers in the page's sentences, given its instruments. @param {Awake[]} instruments */
export function wakeSentences(instruments) {
  /** @type {Map<Element, Record<string, Source>>} */
  const formulas = new Map();
  /** @type {Map<Awake, Source>} */
  const sources = new Map(instruments.map((one) => [one, ofInstrument(one)]));
  /** @type {(span: HTMLElement, name: string) => Source | undefined} */
  const sourceOf = (span, name) => {
    const sentence = span.closest("p, li, td, dd");
    if (sentence && Object.hasOwn(FORMULAS, name)) {
      const known = formulas.get(sentence) ?? {};
      known[name] ??= ofFormula(FORMULAS[name], sentence, name);
      formulas.set(sentence, known);
      return known[name];
    }
    const near = instruments.find(({ place }) => place.dataset.script === name && place.closest("article") === span.closest("article"));
    return near && sources.get(near);
  };
  for (const span of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("span.drag[data-of], span.follows[data-of]"))) {
    const { of = "", trait = "", value = "" } = span.dataset;
    const source = sourceOf(span, of);
    const bounds = source?.bounds(trait);
    if (source && bounds) drag(span, source, trait, bounds);
    else if (source && Object.hasOwn(source.results(), value)) follow(span, source, value);
  }
}
