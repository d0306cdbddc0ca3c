// @ts-check
/* What the stored models of the book read and say; the same in JavaScript as in _live_tasks.py. A unit is a word of a
 * sentence, or a symbol of a list. */
/** @import { Deeds, HeadRecord } from "../live/deeds.js" */
/** @import * as T from "./types" */
import { Engine, indexOfLargest } from "../live/engine.js";
import { bytesOf } from "./shared.js";

/**
 * A stored model at its work.
 * @param {T.Carried} carried
 * @returns {T.Task}
 */
export function taskOf({ weights, facts }) {
  const bytes = typeof weights === "string" ? bytesOf(weights) : new Uint8Array(weights.buffer, weights.byteOffset, weights.byteLength);
  const engine = new Engine(bytes, facts.described, facts.steps && facts.steps.length - 1);
  const work = { Transformer: translation, GPT: repetition, SentenceReader: questions }[engine.kind];
  if (!work) throw new RangeError(`there is no task for a ${engine.kind}`);
  return { engine, facts, ...reading(facts), ...work(engine, facts) };
}

/** How texts become units. @param {T.LiveFacts} facts */
function reading(facts) {
  const known = new Set(facts.known);
  const isOfWords = facts.what === "words";
  const split = (/** @type {string} */ text) => (isOfWords ? text.toLowerCase().replace(/\.$/, "").split(/\s+/).filter(Boolean) : [...text.toLowerCase()]);
  /** The units of a text; an error says what cannot be read, and at which place. @param {string} text */
  function units(text) {
    const found = split(text);
    const at = found.findIndex((unit) => !known.has(unit));
    const { what, longest } = facts;
    if (at >= 0) throw new Unread(`“${[...found[at]].slice(0, 30).join("")}” is not one of the ${known.size} ${what} that this model knows`, at);
    if (!found.length || found.length > longest) throw new Unread(`${found.length} ${what}, but it reads 1 to ${longest}`, -1);
    const lost = facts.one === "word" && found.find((unit) => Number(unit) >= 0 && !(found[Number(unit)] > "9"));
    if (lost) throw new Unread(`“${lost}” is a position, counted from 0, and there is no letter`, -1);
    return found;
  }
  return { units, joined: (/** @type {string[]} */ list) => list.join(isOfWords ? " " : "") };
}

/** A text that a model cannot read: `at` is the place of the unit that it does not know, or -1. */
export class Unread extends Error {
  constructor(/** @type {string} */ message, /** @type {number} */ at) {
    super(message);
    this.at = at;
  }
}

/** The logarithm of the probability of one of `width` logits, from `from` on. @type {(logits: Float64Array, from: number, width: number, index: number) => number} */
function logP(logits, from, width, index) {
  const row = logits.subarray(from, from + width);
  const largest = Math.max(...row);
  return row[index] - largest - Math.log(row.reduce((sum, one) => sum + Math.exp(one - largest), 0));
}

/** Where all parts of an answer count: their places, and how many of two answers' parts differ. @type {Pick<T.Task, "counted" | "numWrong">} */
const allCount = {
  counted: (_, answer) => answer.map((__, i) => i),
  numWrong: (_, one, other) => one.filter((unit, i) => i < other.length && unit !== other[i]).length + Math.abs(one.length - other.length),
};

/** Where each unit looks at units. @type {T.Task["labels"]} */
const labels = (_, units) => ({ queries: units, keys: units });

/**
 * The translator: it reads English words, and writes French.
 * @param {Engine} engine
 * @param {T.LiveFacts} facts
 */
function translation(engine, facts) {
  const { written = [], begin = 0, end = 0, most = 0 } = facts;
  const number = new Map(facts.known.map((word, i) => [word, i + 1])); // 0 is padding
  const numberOf = new Map(written.map((word, i) => [word, i]));
  const idsOf = (/** @type {string[]} */ units) => units.map((word) => number.get(word) ?? 0);
  const memoryOf = (/** @type {string[]} */ units, /** @type {Deeds} */ deeds, /** @type {Record<string, HeadRecord>} */ log = {}) => engine.encode(idsOf(units), { deeds, log });
  const write = (/** @type {T.Memory} */ memory, /** @type {Deeds} */ deeds) => engine.write([begin], most, { deeds, memory, end });
  const wordsOf = (/** @type {number[]} */ ids) => ids.filter((id) => id !== end).map((id) => written[id]);
  return {
    ...allCount,
    answer: (/** @type {string[]} */ units, /** @type {Deeds} */ deeds) => wordsOf(write(memoryOf(units, deeds), deeds)),
    /** @type {T.Task["run"]} */
    run(units, deeds) {
      /** @type {Record<string, HeadRecord>} */
      const log = {};
      const memory = memoryOf(units, deeds, log);
      const ids = write(memory, deeds);
      engine.decode([begin, ...ids.slice(0, -1)], memory, { deeds, log });
      return { answer: wordsOf(ids), log };
    },
    /** @type {T.Task["rated"]} */
    rated(units, plain, deeds) {
      const ids = [...plain, written[end]].slice(0, most).map((word) => numberOf.get(word) ?? 0);
      const logits = engine.decode([begin, ...ids.slice(0, -1)], memoryOf(units, deeds), { deeds });
      return { logP: ids.reduce((sum, id, t) => sum + logP(logits, t * written.length, written.length, id), 0) };
    },
    /** @type {T.Task["labels"]} */
    labels(kind, units, answer) {
      const asking = [...answer, "(end)"];
      const read = ["(begin)", ...answer];
      if (kind === "encoder self") return { queries: units, keys: units };
      return { queries: asking, keys: kind === "cross" ? units : read };
    },
  };
}

/**
 * The repeater: it reads symbols, and expects one after each.
 * @param {Engine} engine
 * @param {T.LiveFacts} facts
 */
function repetition(engine, { known }) {
  const width = known.length;
  const read = (/** @type {string[]} */ units, /** @type {Deeds} */ deeds, /** @type {Record<string, HeadRecord>} */ log = {}) => engine.read(units.map((unit) => known.indexOf(unit)), { deeds, log });
  const answered = (/** @type {string[]} */ units, /** @type {Float64Array} */ logits) => units.map((_, t) => known[indexOfLargest(logits, t * width, width)]);
  /** The places whose next symbol the past tells: the symbol has come before. If there are none, all places. @param {string[]} units */
  function counted(units) {
    const places = units.map((_, t) => t).filter((t) => t + 1 < units.length && units.indexOf(units[t]) < t);
    return places.length ? places : units.map((_, t) => t);
  }
  return {
    counted,
    numWrong: (/** @type {string[]} */ units, /** @type {string[]} */ answer, /** @type {string[]} */ plain) => counted(units).filter((t) => answer[t] !== plain[t]).length,
    answer: (/** @type {string[]} */ units, /** @type {Deeds} */ deeds) => answered(units, read(units, deeds)),
    /** @type {T.Task["run"]} */
    run(units, deeds) {
      /** @type {Record<string, HeadRecord>} */
      const log = {};
      return { answer: answered(units, read(units, deeds, log)), log };
    },
    /** @type {T.Task["rated"]} */
    rated(units, plain, deeds) {
      const logits = read(units, deeds);
      return { logP: counted(units).reduce((sum, t) => sum + logP(logits, t * width, width, known.indexOf(plain[t])), 0), answer: answered(units, logits) };
    },
    labels,
  };
}

/**
 * The reader: it reads words, and answers questions about each; answers stand word by word.
 * @param {Engine} engine
 * @param {T.LiveFacts} facts
 */
function questions(engine, { known, menus = [] }) {
  const width = known.length + 1; // with padding
  const [, , nouns = [], , verbs = []] = menus;
  const asked = (/** @type {string[]} */ units, /** @type {Deeds} */ deeds, /** @type {Record<string, HeadRecord>} */ log = {}) => engine.answer(units.map((unit) => known.indexOf(unit) + 1), { deeds, log });
  const answered = (/** @type {Float64Array} */ scores) => Array.from({ length: scores.length / width }, (_, i) => known[indexOfLargest(scores, i * width, width) - 1] ?? "");
  return {
    /** The right answers, of a sentence with one verb and one noun before it; of another there are none. @type {(units: string[]) => string[] | undefined} */
    right(units) {
      const [verb, more] = units.filter((unit) => verbs.includes(unit));
      const [subject, other] = units.slice(0, units.indexOf(verb)).filter((unit) => nouns.includes(unit));
      if (!verb || more || !subject || other) return undefined;
      return units.flatMap((_, t) => [units[Math.max(t - 1, 0)], units[Math.min(t + 1, units.length - 1)], subject, verb]);
    },
    ...allCount,
    answer: (/** @type {string[]} */ units, /** @type {Deeds} */ deeds) => answered(asked(units, deeds)),
    /** @type {T.Task["run"]} */
    run(units, deeds) {
      /** @type {Record<string, HeadRecord>} */
      const log = {};
      return { answer: answered(asked(units, deeds, log)), log };
    },
    /** @type {T.Task["rated"]} */
    rated(units, plain, deeds) {
      const scores = asked(units, deeds);
      return { logP: plain.reduce((sum, word, i) => sum + logP(scores, i * width, width, known.indexOf(word) + 1), 0), answer: answered(scores) };
    },
    labels,
  };
}

/** The words that may stand in the place of word `i`: a determiner's depend on the noun that follows, "an" on the next letter. @type {(task: T.Task, units: string[], i: number) => string[]} */
export function menuAt({ facts }, units, i) {
  const { menus = [], nouns = [], plurals = [], known } = facts;
  const fitting = menus.filter((menu) => menu.includes(units[i] === "an" ? "a" : units[i]));
  const noun = units.slice(i + 1).find((word) => nouns.includes(word) || plurals.includes(word)) ?? "";
  const menu = fitting[fitting.length > 1 && plurals.includes(noun) ? 1 : 0] ?? known;
  return known.includes("an") ? menu.map((word) => articleBefore(word, units[i + 1])) : menu;
}

/** "a" or "an", as the next word asks for it; other words as they are. @type {(word: string, next?: string) => string} */
const articleBefore = (word, next = "") => (word === "a" || word === "an" ? (/^[aeiou]/.test(next) ? "an" : "a") : word);

/** The units with another at place `i`, and the article before it as it must then be. @type {(task: T.Task, units: string[], i: number, unit: string) => string[]} */
export const replacedAt = ({ facts }, units, i, unit) => units.map((one, at) => (at === i ? unit : one)).map((one, at, all) => (at === i - 1 && facts.known.includes("an") ? articleBefore(one, all[i]) : one));
