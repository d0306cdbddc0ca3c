// @ts-check
/* What a reader has done to a live model: checked as in _live_deeds.py, put into a link, given to the engine, and judged by
 * quests. And where the model's weights come from. */
/** @import { Deeds, HeadDeed, HeadRecord, MixDeed } from "../live/deeds.js" */
/** @import * as T from "./types" */
import { layerOf, SMALLEST_SUM } from "../live/deeds.js";
import { matrixOf } from "./live_mixing.js";
import { make } from "./shared.js";

/** Where this script was loaded from; empty in a notebook, and in a file that holds all it needs. */
const HOME = /** @type {HTMLScriptElement | null} */ (document.currentScript)?.src ?? "";
const OF_A_HEAD = ["off", "rows", "frozen", "patch"];
const OF_A_LAYER = ["scores", "weights"];
const OF_ALL = ["positions", "future"];
const LARGEST_CELL = 1e3;
const LONGEST_LINK = 20000;

/** @type {(holds: boolean, said: string) => asserts holds} */
function need(holds, said) {
  if (!holds) throw new TypeError(said);
}

/** @type {(value: any) => boolean} */
const isPlain = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/**
 * The state, if the model can have it; an error says what it cannot.
 * @param {T.Task} task
 * @param {Record<string, any>} state
 * @returns {T.LiveState}
 */
export function checkedState(task, { input, deeds, head, query, moment = 0, sums }) {
  need(typeof input === "string", "input is no text");
  need(isPlain(deeds), "deeds are no mapping");
  for (const [name, deed] of Object.entries(deeds)) {
    if (OF_ALL.includes(name)) need(deed === false && (name !== "future" || hasEncoder(task)), `${name} can only be false, where the model has it`);
    else if (isLayer(name)) requireCells(task, name, deed);
    else {
      need(task.engine.heads.includes(name), `there is no head “${name.slice(0, 30)}”`);
      requireDeed(task, name, deed);
    }
  }
  need(head === "" || task.engine.heads.includes(head), "the chosen head is not there");
  const isBelow = (/** @type {any} */ number, /** @type {number} */ end) => Number.isInteger(number) && number >= 0 && number < end;
  need(isBelow(query, 64), "the chosen query is no number from 0 to 63");
  need(isBelow(moment, task.facts.steps?.length ?? 1), "the moment is none of its training");
  need(sums === undefined || (Array.isArray(sums) && sums.length === 2 && isBelow(sums[0], 64) && isBelow(sums[1], task.facts.questions?.length ?? 0)), "sums are no word and question");
  return { input: task.joined(task.units(input)), deeds, head, query, moment, ...(sums && { sums }) };
}

/** @type {(task: T.Task, name: string, deed: unknown) => void} */
function requireDeed(task, name, deed) {
  need(isPlain(deed), `what is done to ${name} is no mapping`);
  for (const [key, value] of Object.entries(/** @type {T.LiveDeed} */ (deed))) {
    need(OF_A_HEAD.includes(key), `“${key.slice(0, 30)}” cannot be done to a head`);
    if (key === "off") need(value === true || (value === "mean" && name in task.facts.means), `${name}: off is neither true nor "mean"`);
    else if (key === "rows") {
      need(isPlain(value), `${name}: rows are no mapping`);
      for (const [query, row] of Object.entries(value)) need(/^\d{1,3}$/.test(query) && isRow(row), `${name}: row ${query.slice(0, 9)} is no list of weights`);
    } else {
      need(typeof value === "string", `${name}: ${key} names no input`);
      task.units(value);
    }
  }
}

/** @type {(task: T.Task, name: string, deed: unknown) => void} */
function requireCells({ engine }, name, deed) {
  need(engine.doTalk && engine.heads.some((head) => layerOf(head) === name), `there is no layer “${name.slice(0, 30)}” whose heads talk`);
  need(isPlain(deed), `what is done to ${name} is no mapping`);
  const size = engine.settings.num_heads;
  for (const [step, cells] of Object.entries(/** @type {T.LayerDeed} */ (deed))) {
    need(OF_A_LAYER.includes(step), `“${step.slice(0, 30)}” is nothing that heads mix`);
    need(isPlain(cells), `${name}: ${step} are no mapping`);
    for (const [cell, value] of Object.entries(cells)) {
      const isCell = /^\d{1,2} \d{1,2}$/.test(cell) && cell.split(" ").every((one) => Number(one) < size && String(Number(one)) === one);
      need(isCell, `${name}: ${step} have no cell ${cell.slice(0, 9)}`);
      need(typeof value === "number" && Math.abs(value) <= LARGEST_CELL, `${name}: cell ${cell} is no number from -1000 to 1000`);
    }
  }
}

/** @type {(row: unknown) => boolean} */
function isRow(row) {
  const isWeight = (/** @type {unknown} */ x) => typeof x === "number" && x >= 0 && x <= 1e6;
  return Array.isArray(row) && row.length > 0 && row.length <= 64 && row.every(isWeight) && row.some((x) => x > 0);
}

/**
 * The deeds as the engine takes them with `numUnits` words or symbols. What another input gave comes from `recordsOf`. A row
 * that has no weight on a key that its query may see waits for a longer input.
 * @param {T.Task} task
 * @param {T.LiveDeeds} deeds
 * @param {number} numUnits
 * @param {(text: string) => Record<string, HeadRecord>} recordsOf
 * @returns {Deeds}
 */
export function engineDeeds(task, deeds, numUnits, recordsOf) {
  /** @type {(name: string, rows: Record<string, number[]>) => Record<string, number[]>} */
  const reaching = (name, rows) =>
    Object.fromEntries(Object.entries(rows).filter(([query, row]) => row.slice(0, numSeen(isCausal(task, deeds, name), Number(query), numUnits)).reduce((sum, one) => sum + one, 0) > SMALLEST_SUM));
  /** @type {Record<string, HeadDeed>} */
  const heads = {};
  for (const [name, deed] of headDeeds(deeds)) {
    heads[name] = {
      ...(deed.off === true && { gate: 0 }),
      ...(deed.off === "mean" && { mean: task.facts.means[name] }),
      ...(deed.rows && { rows: reaching(name, deed.rows) }),
      ...(deed.frozen !== undefined && { frozen: recordsOf(deed.frozen)[name] }),
      ...(deed.patch !== undefined && { patch: recordsOf(deed.patch)[name] }),
    };
  }
  /** @type {Record<string, MixDeed>} */
  const mix = {};
  for (const [layer, deed] of mixingDeeds(deeds)) {
    mix[layer] = { ...(deed.scores && { scores: matrixOf(task, layer, "scores", deed) }), ...(deed.weights && { weights: matrixOf(task, layer, "weights", deed) }) };
  }
  return { heads, positions: deeds.positions !== false, future: deeds.future !== false, mix };
}

/** The kind of attention that a head has: "encoder self" of "encoder self 1 2". @type {(head: string) => string} */
export const kindOf = (head) => head.replace(/ \d+ \d+$/, "");

/** Whether the model has an encoder, whose words see the future. @type {(task: T.Task) => boolean} */
export const hasEncoder = ({ engine }) => kindOf(engine.heads[0]) === "encoder self";

/** Whether under these deeds the queries of a head see no key after them. @type {(task: T.Task, deeds: T.LiveDeeds, head: string) => boolean} */
export const isCausal = ({ engine }, deeds, head) => engine.isCausal(kindOf(head), { future: deeds.future !== false });

/** How many of `numKeys` keys a query may see. @type {(isCausal: boolean, query: number, numKeys: number) => number} */
export const numSeen = (isCausal, query, numKeys) => (isCausal ? query + 1 : numKeys);

/** Whether a layer is named, "decoder self 1", and not one of its heads, "decoder self 1 3". @type {(name: string) => boolean} */
const isLayer = (name) => /\D \d+$/.test(name);

/** @type {(name: string) => boolean} */
const isOfHead = (name) => !OF_ALL.includes(name) && !isLayer(name);

/** What is done to heads, as pairs. @type {(deeds: T.LiveDeeds) => [string, T.LiveDeed][]} */
export const headDeeds = (deeds) => /** @type {[string, T.LiveDeed][]} */ (Object.entries(deeds).filter(([name]) => isOfHead(name)));

/** What is done to how the heads of layers talk, as pairs. @type {(deeds: T.LiveDeeds) => [string, T.LayerDeed][]} */
export const mixingDeeds = (deeds) => /** @type {[string, T.LayerDeed][]} */ (Object.entries(deeds).filter(([name]) => isLayer(name)));

/** Only what is off, and how heads talk: other inputs are run with that. @type {(deeds: T.LiveDeeds) => T.LiveDeeds} */
export const switchesOf = (deeds) => Object.fromEntries([...headDeeds(deeds).flatMap(([name, { off }]) => (off ? [[name, { off }]] : [])), ...Object.entries(deeds).filter(([name]) => !isOfHead(name))]);

/** The deeds with some cells of a layer's matrix set; a cell that is given as `undefined` is as it was trained, and so are all with `null`. @type {(deeds: T.LiveDeeds, layer: string, step: T.Step, cells: Record<string, number | undefined> | null) => T.LiveDeeds} */
export function withCells(deeds, layer, step, cells) {
  const { [layer]: old, ...others } = deeds;
  const deed = /** @type {T.LayerDeed} */ (old || {});
  const left = Object.entries(cells ? { ...deed[step], ...cells } : {}).filter(([, value]) => value !== undefined);
  const { [step]: _, ...rest } = deed;
  const changed = left.length ? { ...rest, [step]: Object.fromEntries(left) } : rest;
  return Object.keys(changed).length ? { ...others, [layer]: changed } : others;
}

/** The deeds with one head's changed; what is empty is left out. @type {(deeds: T.LiveDeeds, head: string, change: (deed: T.LiveDeed) => T.LiveDeed) => T.LiveDeeds} */
export function withDeed(deeds, head, change) {
  const { [head]: old, ...others } = deeds;
  const entries = Object.entries(change({ ...(/** @type {T.LiveDeed | undefined} */ (old)) }));
  const left = entries.filter(([, value]) => value !== undefined && !(isPlain(value) && !Object.keys(value).length));
  return left.length ? { ...others, [head]: Object.fromEntries(left) } : others;
}

/** The part of an address that holds a state: base64 of its JSON, with the two signs that addresses do not have exchanged. @type {(state: T.LiveState & { model: string }) => string} */
export function fragmentOf(state) {
  const bytes = new TextEncoder().encode(JSON.stringify(state));
  const text = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  return `#live=${text.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")}`;
}

/** What a fragment holds, if it is one of these; an error if it cannot be read. @type {(fragment: string) => Record<string, any> | null} */
export function stateOfFragment(fragment) {
  if (!fragment.startsWith("#live=")) return null;
  need(fragment.length < LONGEST_LINK, "it is too long");
  const text = atob(fragment.slice(6).replaceAll("-", "+").replaceAll("_", "/"));
  const state = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
  need(isPlain(state), "it holds no state");
  return state;
}

/** Whether a word was told its answer by the second of two heads that are off; `has_witness` of _quests.py is the same. @type {(task: T.Task, witness: [string, number], deeds: T.LiveDeeds, now: { units: string[], answer: string[] }) => boolean} */
export function hasWitness(task, [head, question], deeds, { units, answer }) {
  const off = headDeeds(deeds).flatMap(([name, deed]) => (deed.off ? name : []));
  const right = task.right?.(units);
  if (!right || off.length !== 2 || !off.includes(head)) return false;
  const alone = task.run(units, { heads: { [head]: { gate: 0 } } });
  const [second] = off.filter((name) => name !== head);
  const looks = alone.log[second].weights.filter((_, i) => i % units.length === units.indexOf(right[question]));
  const each = right.length / units.length;
  return right.some((word, i) => i % each === question && looks[(i - question) / each] > 0.5 && alone.answer[i] === word && answer[i] !== word);
}

/** Whether all conditions of a quest's goal hold; `is_met` of _quests.py is the same. @type {(goal: T.Goal, deeds: T.LiveDeeds, facts: { said: string, wrong: number, othersRight: number, isWitnessed: (witness: [string, number]) => boolean }) => boolean} */
export function questMet(goal, deeds, { said, wrong, othersRight, isWitnessed }) {
  const done = headDeeds(deeds).map(([, deed]) => deed);
  if (OF_ALL.some((name) => name in deeds) || done.some((deed) => "frozen" in deed || "patch" in deed)) return false;
  const off = done.filter((deed) => "off" in deed).length;
  const moved = done.flatMap(({ rows = {} }) => Object.keys(rows)).length;
  const cells = mixingDeeds(deeds).flatMap(([, { scores = {}, weights = {} }]) => [...Object.keys(scores), ...Object.keys(weights)]).length;
  const { says = said, unchanged = !wrong, least_off = 0, most_off = off, most_rows = moved, most_cells = 0, others_right_at_most = othersRight, wrong_at_least = 0, witness } = goal;
  return (
    said === says &&
    unchanged === !wrong &&
    off >= least_off &&
    off <= most_off &&
    moved <= most_rows &&
    cells <= most_cells &&
    othersRight <= others_right_at_most &&
    wrong >= wrong_at_least &&
    (!witness || isWitnessed(witness))
  );
}

/**
 * The weights and facts of a model: from the kernel, from the page that holds them, or from a script that is loaded once,
 * when `el` is near what is seen.
 * @param {T.Model<T.Live & T.Carried>} model
 * @param {HTMLElement} el
 * @returns {Promise<T.Carried>}
 */
export function carriedOf(model, el) {
  const name = model.get("model_name");
  const held = document.querySelector(`script[data-live="${CSS.escape(name)}"]`)?.textContent;
  if (model.get("weights")) return Promise.resolve({ weights: model.get("weights"), facts: model.get("facts") });
  if (held) return Promise.resolve(JSON.parse(held));
  return near(el)
    .then(painted)
    .then(() => scriptOf(name));
}

/** Resolves when the page is there and drawn: weights never hold up what a reader sees first. @type {() => Promise<void>} */
function painted() {
  const drawn = (/** @type {() => void} */ done) => requestAnimationFrame(() => setTimeout(done, 0));
  return new Promise((resolve) => {
    if (document.readyState === "complete") drawn(resolve);
    else addEventListener("load", () => drawn(resolve), { once: true });
  });
}

/** Resolves when the element is at most 300 px from what is seen. @type {(el: HTMLElement) => Promise<void>} */
function near(el) {
  return new Promise((resolve) => {
    const watcher = new IntersectionObserver(
      (seen) => {
        if (!seen.some((one) => one.isIntersecting)) return;
        watcher.disconnect();
        resolve();
      },
      { rootMargin: "300px" },
    );
    watcher.observe(el);
  });
}

/** The scripts that are on their way, by model. @type {Map<string, Promise<T.Carried>>} */
const asked = new Map();

/** @type {(name: string) => Promise<T.Carried>} */
function scriptOf(name) {
  const all = /** @type {{ mhalibLive?: Record<string, T.Carried> }} */ (globalThis);
  const loading = asked.get(name) ?? new Promise((resolve, reject) => {
    const script = make("script", { src: new URL(`live/${encodeURIComponent(name)}.js`, HOME || document.baseURI).href });
    script.addEventListener("load", () => resolve(/** @type {T.Carried} */ (all.mhalibLive?.[name])));
    script.addEventListener("error", () => reject(new Error("its weights could not be loaded")));
    document.head.append(script);
  });
  asked.set(name, loading);
  return loading;
}

/** Whether the page has an address of its own that a link can lead to: a notebook's leads to the notebook. */
export const hasAddress = () => HOME !== "" || document.querySelector("script[data-live]") !== null;
