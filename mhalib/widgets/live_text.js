// @ts-check
/* What a live model reads, as menus and as a field, and what it says, beside what it said as trained. */
/** @import * as T from "./types" */
import { arrows, classes, choice, labelled, make, wantsNoMotion } from "./shared.js";

const inLive = classes("live-model");
const PACE = 200; // milliseconds from word to word

/**
 * The input: words as menus, and a field for all of it.
 * @param {T.Task} task
 * @param {T.InputActs} acts
 */
export function inputOf(task, { take, menu, replace }) {
  const css = inLive;
  const isOfWords = task.facts.what === "words";
  const words = make("div", { class: css("words"), role: "group", "aria-label": "what it reads, word by word" });
  const refused = make("p", { class: css("refused"), role: "status" });
  const field = make("input", { type: "text", autocapitalize: "off", autocomplete: "off", spellcheck: "false" });
  /** @type {string[]} */
  let shown = [];
  /** @type {HTMLSelectElement[]} */
  let selects = [];
  let taken = ""; // what was typed last; the field keeps how it was typed

  function tried(/** @type {boolean} */ isLast) {
    try {
      const units = task.units(field.value);
      accept();
      taken = task.joined(units);
      if (taken !== task.joined(shown)) take(units);
    } catch (error) {
      if (isLast) refuse(/** @type {import("./live_tasks.js").Unread} */ (error));
    }
  }
  function accept() {
    field.removeAttribute("aria-invalid");
    refused.textContent = "";
  }
  function refuse(/** @type {import("./live_tasks.js").Unread} */ { message, at }) {
    field.setAttribute("aria-invalid", "true");
    const other = field.value.toLowerCase().match(/[^\s.]+/g)?.filter((unit, i) => unit !== shown[i]);
    const may = isOfWords ? other?.length === 1 && at < shown.length && menu(shown, at).slice(0, 12).join(", ") : task.facts.letters;
    refused.textContent = at < 0 ? `${message}.` : may ? `${message}. What fits here: ${may}.` : `${message}. Choose from the menus.`;
  }
  field.addEventListener("input", () => tried(false));
  field.addEventListener("change", () => tried(true));

  /** @param {string[]} units */
  function lay(units) {
    selects = units.map((unit, i) => {
      const options = menu(units, i);
      const all = options.includes(unit) ? options : [unit, ...options];
      const select = choice({ value: unit, options: all.map((each) => [each, each]), changed: (value) => replace(i, value), "aria-label": `word ${i + 1}` });
      return select;
    });
    words.replaceChildren(...selects);
  }
  return {
    whole: make("div", { class: css("input") }, ...(isOfWords ? [words] : []), labelled(isOfWords ? "or type:" : `a ${task.facts.one} (${task.facts.letters}):`, field), refused),
    /** @param {string[]} units @param {Float64Array | null} weights how much the chosen query looks at each @param {string} hue */
    draw(units, weights, hue) {
      const text = task.joined(units);
      if (units.join() !== shown.join()) {
        if (text !== taken) field.value = text;
        const at = selects.indexOf(/** @type {HTMLSelectElement} */ (document.activeElement));
        if (isOfWords) lay(units);
        if (at >= 0) selects[at]?.focus();
        accept();
      }
      shown = units;
      if (document.activeElement !== field) {
        field.value = text;
        accept();
      }
      selects.forEach((select, i) => {
        select.style.setProperty("--hue", hue || "transparent");
        select.style.setProperty("--share", String(weights?.[i] ?? 0));
      });
    },
  };
}

/** @type {(logP: number) => number} */
const probability = (logP) => Math.min(1, Math.exp(logP));

/** As 5 · 10⁻²³. @type {(p: number) => string} */
function inTens(p) {
  const [digit, power] = p.toExponential(0).split("e-");
  return power === undefined ? "0" : `${digit} · 10⁻${Array.from(power, (one) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(one)]).join("")}`;
}

/** A probability in few digits. @type {(logP: number) => string} */
export function chance(logP) {
  const p = probability(logP);
  return p < 0.001 ? inTens(p) : p.toFixed(3);
}

/** Both lists in one: what they share, and what only one has. @type {(old: string[], now: string[]) => { word: string, is: "same" | "gone" | "new" }[]} */
function merged(old, now) {
  /** The most words that the ends from i and j on share. @type {number[][]} */
  const shared = Array.from({ length: old.length + 1 }, () => new Array(now.length + 1).fill(0));
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = now.length - 1; j >= 0; j -= 1) shared[i][j] = old[i] === now[j] ? shared[i + 1][j + 1] + 1 : Math.max(shared[i + 1][j], shared[i][j + 1]);
  }
  /** @type {{ word: string, is: "same" | "gone" | "new" }[]} */
  const found = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < now.length) {
    const isOld = i < old.length && (j === now.length || old[i] === now[j] || shared[i + 1][j] >= shared[i][j + 1]);
    const is = !isOld ? "new" : old[i] === now[j] ? "same" : "gone";
    found.push({ word: isOld ? old[i] : now[j], is });
    i += Number(isOld);
    j += Number(is !== "gone");
  }
  return found;
}

/**
 * What the model says. Of a sentence, what changed is marked; symbols have what is expected after each; answers are a table,
 * a row for each word.
 * @param {T.Task} task
 * @param {HTMLElement} others what is shown of other inputs
 * @param {{ get: () => number[], set: (word: number, question: number) => void }} asked the answer whose sum is shown, if one is: then a press chooses another
 */
export function answerOf(task, others, asked) {
  const css = inLive;
  const { says, questions = [] } = task.facts;
  const words = make("div", { class: css(says) });
  const meter = make("span", { class: css("meter"), "aria-hidden": "true" });
  const certain = make("span", { class: css("note") });
  const tags = { same: "span", gone: "s", new: "strong" };
  let read = "";
  /** Of another input, each word comes after the one before, as the model writes them. @param {T.Now} now */
  function drawWords({ units, plain, answer }) {
    const parts = merged(plain, answer).map(({ word, is }) => make(/** @type {"span"} */ (tags[is]), { text: word }));
    words.replaceChildren(...parts.flatMap((part) => [part, " "]));
    const isNews = read !== "" && read !== units.join();
    read = units.join();
    if (isNews && !wantsNoMotion()) for (const [i, part] of parts.entries()) part.animate({ opacity: [0, 0] }, PACE * (i + 1));
  }
  /** @param {T.Now} now */
  function drawStrip({ units, plain, answer }) {
    const counted = task.counted(units, answer);
    words.replaceChildren(
      ...units.map((unit, t) => {
        const after = both(answer[t], counted.includes(t) ? plain[t] : answer[t]);
        return make("span", { class: css(counted.includes(t) ? "step" : "guess"), title: `after “${unit}” it expects “${answer[t]}”` }, make("span", { class: css("unit"), text: unit }), ...after);
      }),
    );
  }
  /** What is said now, and what it was if that is another. @type {(now: string, was: string) => (Node | string)[]} */
  const both = (now, was) => (now === was ? [make("span", { text: now })] : [make("strong", { text: now }), " ", make("s", { text: was })]);
  /** @param {T.Now} now @param {string[]} [right] */
  function drawAnswers({ units, plain, answer }, right) {
    const header = make("tr", {}, make("th", { scope: "col", text: "word" }), ...questions.map((text) => make("th", { scope: "col", text })));
    const cell = (/** @type {number} */ i) => {
      const isWrong = right && right[i] !== answer[i];
      const said = both(answer[i], plain[i]);
      const q = i % questions.length;
      const [word, question] = asked.get();
      const isAsked = i === Math.min(word, units.length - 1) * questions.length + question;
      const parts = asked.get().length ? [make("button", { type: "button", class: css("ask"), "data-answer": i, tabindex: isAsked ? 0 : -1, "aria-pressed": String(isAsked), onclick: () => asked.set((i - q) / questions.length, q) }, ...said)] : said;
      return make("td", isWrong ? { class: css("mistaken"), title: `right is “${right[i]}”` } : {}, ...parts);
    };
    const rows = units.map((unit, t) => make("tr", {}, make("th", { scope: "row", text: unit }), ...questions.map((_, i) => cell(t * questions.length + i))));
    const held = words.contains(document.activeElement) ? /** @type {HTMLElement} */ (document.activeElement).dataset.answer : undefined;
    words.replaceChildren(make("table", {}, make("thead", {}, header), make("tbody", {}, ...rows)));
    if (held) focusOn(Number(held));
  }
  /** @type {(answer: number) => void} */
  const focusOn = (answer) => /** @type {HTMLElement | null} */ (words.querySelector(`[data-answer="${answer}"]`))?.focus({ preventScroll: true });
  words.addEventListener("keydown", (event) => {
    const { answer } = /** @type {HTMLElement} */ (event.target).dataset;
    const [across, all] = [questions.length, words.querySelectorAll("[data-answer]").length];
    if (answer !== undefined) arrows(event, { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across }, Number(answer), all, focusOn);
  });
  /** The first answer that is not as it was trained. @type {(now: T.Now) => string} */
  function changed({ units, plain, answer }) {
    const i = answer.findIndex((word, at) => word !== plain[at]);
    const q = i % questions.length;
    return `${questions[q]} of “${units[(i - q) / questions.length]}” is now “${answer[i]}”`;
  }
  const drawSaid = { sentence: drawWords, symbols: drawStrip, answers: drawAnswers }[says];
  return {
    /** What is said of a run that is not as trained. @type {(now: T.Now) => string} */
    inWords(now) {
      const wrong = task.numWrong(now.units, now.answer, now.plain);
      if (says === "answers") return `${wrong} of ${now.plain.length} answers changed${wrong === 1 ? `: ${changed(now)}` : ""}.`;
      return `It says: ${task.joined(now.answer)}${wrong ? "" : ", as trained"}.`;
    },
    whole: make("div", { class: css("said") }, words, make("div", { class: css("sure") }, meter, certain, others)),
    /** @param {T.Now} now @param {number} off @param {number} all */
    draw(now, off, all) {
      const right = task.right?.(now.units);
      drawSaid(now, right);
      const numMistaken = right?.filter((word, i) => word !== now.answer[i]).length ?? 0;
      const total = task.counted(now.units, now.plain).length;
      const kept = total - task.numWrong(now.units, now.answer, now.plain);
      const sure = says === "sentence" ? `chance of the trained answer ${chance(now.logP)}` : `${kept} of ${total}${says === "answers" ? " answers" : ""} as trained${numMistaken ? `; ${numMistaken} wrong` : ""}`;
      meter.style.setProperty("--share", String(says === "sentence" ? probability(now.logP) : kept / total));
      certain.textContent = `${sure}${off ? `, ${off} of ${all} heads off` : ""}`;
    },
  };
}
