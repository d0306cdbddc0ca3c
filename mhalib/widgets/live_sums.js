// @ts-check
/* What each head adds to the scores of the answers to one question, and their sums: the switches take parts away. */
/** @import * as T from "./types" */
import { headName } from "./live_maps.js";
import { classes, make, range } from "./shared.js";

/** What is added to the score of one answer: by each head, and last the bias, which is no head's. @typedef {number[]} Parts */

const MOST = 8; // answers of the trained model that are shown

/** @type {(numbers: number[]) => number} */
const total = (numbers) => numbers.reduce((sum, one) => sum + one, 0);
/** @type {(number: number) => string} */
const written = (number) => number.toFixed(1).replace(/^-/, "−").replace("−0.0", "0.0");

/**
 * @param {T.Task} task of a SentenceReader
 * @param {T.Palette} colours
 */
export function sumsOf(task, colours) {
  const css = classes("live-model");
  const { engine, facts } = task;
  const { questions = [], known } = facts;
  const width = known.length + 1; // with padding
  const title = make("p", { class: css("row-title") });
  const list = make("div", { class: css("sums"), role: "list" });
  const hint = make("p", { class: css("note"), text: "Each colour is what one head adds; left of the line it speaks against the word. Grey is the bias. The upright mark is the sum, and the largest sum wins. Press an answer above to see its sum." });
  let shape = "";
  /** @type {Map<number, { word: HTMLElement, parts: HTMLElement[], mark: HTMLElement, number: HTMLElement, whole: HTMLElement }>} */
  let rows = new Map();

  /** The parts of the score of each answer to a question. @type {(log: T.Ran["log"], word: number, question: number) => Parts[]} */
  function partsOf(log, word, question) {
    const { byHead, ofNone } = engine.addedByHeads(log, word);
    const at = (/** @type {number} */ id) => question * width + id;
    return range(0, width).map((id) => [...engine.heads.map((_, head) => byHead[head * ofNone.length + at(id)]), ofNone[at(id)]]);
  }
  /** The answer that wins with these heads on. @type {(parts: Parts[], isOn: (head: number) => boolean) => number} */
  function winner(parts, isOn) {
    const sums = parts.map((own) => total(own.filter((_, head) => head === engine.heads.length || isOn(head))));
    return sums.indexOf(Math.max(...sums));
  }
  /** Each answer that wins with some of the heads on, the best with all of them first. @type {(parts: Parts[]) => number[]} */
  function winners(parts) {
    const all = range(0, 2 ** engine.heads.length).map((on) => winner(parts, (head) => Boolean((on >> head) & 1)));
    const best = [...new Set(all)].sort((a, b) => total(parts[b]) - total(parts[a]));
    const none = all[0];
    return [...best.filter((id) => id !== none).slice(0, MOST - 1), none];
  }
  /** @param {number[]} ids */
  function lay(ids) {
    rows = new Map(ids.map((id) => {
      const word = make("span", { text: known[id - 1] ?? "" });
      const parts = [...engine.heads, ""].map((head) => make("i", { title: head ? headName(task, head) : "bias" }));
      const mark = make("b");
      const number = make("span", { class: "mhalib-number" });
      const track = make("span", { class: css("track"), "aria-hidden": "true" }, ...parts, mark);
      return [id, { word, parts, mark, number, whole: make("div", { class: css("sum"), role: "listitem" }, word, track, number) }];
    }));
    list.replaceChildren(...Array.from(rows.values(), ({ whole }) => whole));
  }

  return {
    whole: make("section", { class: css("summed"), "aria-label": "what heads add" }, title, list, hint),
    /** @param {T.Now} now @param {T.Ran["log"]} plain of the same words, with nothing done @param {number[]} asked a word and a question */
    draw(now, plain, [asked, question]) {
      const word = Math.min(asked, now.units.length - 1);
      const before = partsOf(plain, word, question);
      const after = partsOf(now.log, word, question);
      const wins = winner(after, () => true);
      const ids = [...new Set([...winners(before), wins])];
      if (ids.join() !== shape) lay(ids);
      shape = ids.join();
      title.textContent = `${questions[question]} of “${now.units[word]}”: the score of an answer is a sum`;
      const reach = (/** @type {number} */ sign) => Math.max(1, ...[...ids.map((id) => before[id]), ...ids.map((id) => after[id])].map((own) => total(own.map((one) => Math.max(0, sign * one)))));
      const [left, right] = [reach(-1), reach(1)];
      const percent = (/** @type {number} */ number) => `${(100 * number) / (left + right)}%`;
      list.style.setProperty("--zero", percent(left));
      for (const [id, row] of rows) {
        const ends = { "-1": 0, 1: 0 };
        after[id].forEach((number, i) => {
          const side = number < 0 ? -1 : 1;
          const from = side < 0 ? ends[-1] + number : ends[1];
          ends[side] += number;
          const { style } = row.parts[i];
          [style.left, style.width] = [percent(left + from), percent(Math.abs(number))];
          style.setProperty("--hue", i < engine.heads.length ? colours.hue(engine.heads[i]) : "var(--soft)");
        });
        const sum = total(after[id]);
        row.mark.style.left = percent(left + sum);
        row.number.textContent = written(sum);
        row.whole.classList.toggle(css("wins"), id === wins);
        const named = after[id].map((number, i) => `${engine.heads[i] ? headName(task, engine.heads[i]) : "bias"} ${written(number)}`);
        row.whole.setAttribute("aria-label", `${known[id - 1]} ${written(sum)}: ${named.join(", ")}`);
      }
    },
  };
}
