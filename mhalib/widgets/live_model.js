// @ts-check
/* A trained model that runs in the page: its input, what it says now and said as trained, its heads, and quests. */
/** @import * as T from "./types" */
import { softmaxInPlace } from "../live/tensors.js";
import { boardOf, headName, largeOf, layerName, palette } from "./live_maps.js";
import { mixingOf } from "./live_mixing.js";
import { carriedOf, checkedState, engineDeeds, fragmentOf, hasAddress, hasEncoder, hasWitness, headDeeds, isCausal, kindOf, mixingDeeds, numSeen, questMet, stateOfFragment, switchesOf, withCells, withDeed } from "./live_state.js";
import { menuAt, replacedAt, taskOf } from "./live_tasks.js";
import { momentsOf } from "./live_moments.js";
import { sumsOf } from "./live_sums.js";
import { answerOf, chance, inputOf } from "./live_text.js";
import { classes, listen, make, range, settle, voice, writer } from "./shared.js";

const SLICE = 12; // milliseconds of work at a time, so that the page stays quick

/** What one query of a head looks at. @type {(record: import("../live/deeds.js").HeadRecord, query: number) => Float64Array} */
const rowOf = ({ nk, weights }, query) => weights.subarray(query * nk, (query + 1) * nk);

/** The weights of a row if its scores are divided by a temperature. The logarithms of weights are scores, but for a constant. @type {(row: number[], temperature: number) => number[]} */
function heatedRow(row, temperature) {
  const heated = Float64Array.from(row, (weight) => Math.log(weight) / temperature);
  softmaxInPlace(heated, 0, heated.length);
  return [...heated];
}

/** The temperature that makes a row of another, 1 if nothing was set, or NaN if none does. @type {(row: number[], set: number[] | undefined) => number} */
function temperatureOf(row, set) {
  if (!set) return 1;
  const first = row.indexOf(Math.max(...row));
  const second = row.indexOf(Math.max(...row.filter((weight) => weight < row[first]))); // the largest may be there twice
  const temperature = Math.log(row[first] / row[second]) / Math.log(set[first] / set[second]);
  return heatedRow(row, temperature).every((weight, i) => Math.abs(weight - set[i]) < 1e-6) ? temperature : NaN;
}

/** @param {T.Place<T.Live & T.Carried>} place */
export function LiveModel({ model, el }) {
  const css = classes("live-model");
  const waiting = make("p", { class: css("waiting"), role: "status", text: "The model is on its way…" });
  let isStopped = false;
  let stop = () => {};
  settle(el, "live-model", waiting);
  carriedOf(model, el)
    .then((carried) => {
      if (!isStopped) stop = started(model, el, carried);
    })
    .catch((error) => {
      settle(el, "live-model", waiting);
      waiting.textContent = `The model cannot run here: ${error.message}. The table holds stored runs.`;
      const table = el.parentElement?.querySelector("table");
      if (table) table.hidden = false;
    });
  return () => {
    isStopped = true;
    stop();
  };
}

/** What is pressed in one of these parts stays under the finger when what stands above it grows, until this is aborted. @type {(above: HTMLElement, parts: HTMLElement[]) => AbortController} */
function steady(above, parts) {
  /** @type {HTMLElement | undefined} */
  let held;
  let top = 0;
  const look = () => {
    if (held) top = held.getBoundingClientRect().top;
  };
  const hold = (/** @type {Event} */ event) => {
    held = parts.find((part) => part.contains(/** @type {Node} */ (event.target)));
    look();
  };
  const watch = new ResizeObserver(() => {
    const moved = held ? held.getBoundingClientRect().top - top : 0;
    if (Math.abs(moved) >= 1) scrollBy({ top: moved, behavior: "instant" });
  });
  watch.observe(above);
  const until = new AbortController();
  const { signal } = until;
  for (const kind of ["pointerdown", "keydown"]) addEventListener(kind, hold, { signal });
  addEventListener("scroll", look, { passive: true, signal });
  signal.addEventListener("abort", watch.disconnect.bind(watch));
  return until;
}

/**
 * @param {T.Model<T.Live & T.Carried>} model
 * @param {HTMLElement} el
 * @param {T.Carried} carried
 */
function started(model, el, carried) {
  const css = classes("live-model");
  const task = taskOf(carried);
  const { heads } = task.engine;
  const colours = palette(el, task.facts.ramps);
  const put = writer(model);
  const said = voice();
  let isDrawn = false; // the first picture is no news, and takes no word from what is wrong with a link
  /** @type {{ input: string, deeds: T.LiveDeeds }[]} */
  const past = [];
  let lastAct = "";
  let spoken = "";
  /** The plain runs of inputs: what they say, and what their heads did. @type {Map<string, T.Ran>} */
  const plainRuns = new Map();
  /** @type {(text: string) => T.Ran} */
  function plainOf(text) {
    const found = plainRuns.get(text) ?? task.run(task.units(text), {});
    if (plainRuns.size > 40) plainRuns.clear();
    plainRuns.set(text, found);
    return found;
  }
  const recordsOf = (/** @type {string} */ text) => plainOf(text).log;
  /** Deeds as the engine takes them with these words. @type {(deeds: T.LiveDeeds, units?: string[]) => import("../live/deeds.js").Deeds} */
  const engineOf = (deeds, units = now.units) => engineDeeds(task, deeds, units.length, recordsOf);
  /** What the model does with these words under deeds. @type {(deeds: T.LiveDeeds, units?: string[], engine?: import("../live/deeds.js").Deeds) => T.Ran} */
  const runOf = (deeds, units = now.units, engine = engineOf(deeds, units)) => (Object.keys(deeds).length ? task.run(units, engine) : plainOf(task.joined(units)));
  /** @type {T.Now} */
  let now;

  /** What the reader does: it can be undone. Several of one name, such as the moves of a bar, are undone as one. @param {Partial<T.LiveState>} change @param {string} [name] @param {string} [told] */
  function act(change, name = "", told = "") {
    if (!name || name !== lastAct) past.push({ input: model.get("input"), deeds: model.get("deeds") });
    lastAct = name;
    spoken = told;
    put(change);
  }
  /** @type {(head: string, change: (deed: T.LiveDeed) => T.LiveDeed, name?: string, told?: string) => void} */
  const actOn = (head, change, name, told) => act({ deeds: withDeed(model.get("deeds"), head, change) }, name, told);
  const deedOf = (/** @type {string} */ head) => /** @type {T.LiveDeed} */ (model.get("deeds")[head] ?? {});
  const shownHead = () => model.get("head") || (model.get("compact") ? "" : heads[0]);

  function flip(/** @type {string} */ head) {
    const isOff = Boolean(deedOf(head).off);
    actOn(head, (deed) => ({ ...deed, off: isOff ? undefined : true }), "", `${headName(task, head)} is ${isOff ? "on" : "off"}.`);
  }
  /** All heads of a layer off, or, where none is on, all of them on. */
  function flipAll(/** @type {string[]} */ layer) {
    const off = layer.some((head) => !deedOf(head).off) || undefined;
    const deeds = layer.reduce((before, head) => withDeed(before, head, (deed) => ({ ...deed, off })), model.get("deeds"));
    act({ deeds }, "", `${layerName(task, layer[0])} is ${off ? "off" : "on"}.`);
  }
  const board = boardOf(task, colours, { choose: (head) => put({ head }), flip, flipAll: model.get("compact") ? flipAll : undefined });
  /** The row of a query with one weight set, and the rest shared out as it was. @type {(q: number, k: number, weight: number) => number[]} */
  function rowWith(q, k, weight) {
    const row = Array.from(rowOf(now.log[shownHead()], q), (old) => Math.max(0, old)); // talking heads have negative ones
    const seen = numSeen(isCausal(task, model.get("deeds"), shownHead()), q, row.length);
    const rest = row.reduce((sum, old) => sum + old, 0) - row[k];
    return row.map((old, i) => {
      if (i === k) return weight;
      if (i >= seen) return 0;
      return Number((rest > 1e-6 ? (old * (1 - weight)) / rest : (1 - weight) / Math.max(1, seen - 1)).toFixed(4));
    });
  }
  /** @type {(q: number, row: number[] | undefined, name?: string, told?: string) => void} */
  function setRow(q, row, name, told) {
    const { [q]: _, ...others } = deedOf(shownHead()).rows ?? {};
    if (model.get("query") !== q) put({ query: q });
    actOn(shownHead(), (deed) => ({ ...deed, rows: row ? { ...others, [q]: row } : others }), name, told);
  }
  /** What a query of the large head would look at if its row were not set. @type {(q: number) => number[]} */
  function freeRow(q) {
    const head = shownHead();
    const { [q]: set, ...rows } = deedOf(head).rows ?? {};
    const deeds = withDeed(model.get("deeds"), head, (deed) => ({ ...deed, rows }));
    return [...rowOf((set ? runOf(deeds).log : now.log)[head], q)];
  }
  /** The scores of a row divided by a temperature. A row that none changes, as that of a single word, is not set. @type {(q: number, temperature: number) => void} */
  function heat(q, temperature) {
    const row = freeRow(q);
    const heated = heatedRow(row, temperature);
    const isSame = heated.every((weight, i) => Math.abs(weight - row[i]) < 1e-12);
    setRow(q, isSame ? undefined : heated, `heat ${shownHead()} ${q}`);
  }
  const large = largeOf(task, colours, {
    power: (value) => actOn(shownHead(), (deed) => ({ ...deed, off: value === "on" ? undefined : value === "mean" ? "mean" : true })),
    patch: (text) => actOn(shownHead(), (deed) => ({ ...deed, patch: text || undefined })),
    freeze: () => actOn(shownHead(), (deed) => ({ ...deed, frozen: deed.frozen === undefined ? model.get("input") : undefined })),
    query: (query) => put({ query }),
    put(q, k) {
      const { nk, weights } = now.log[shownHead()];
      const isSet = deedOf(shownHead()).rows?.[q] !== undefined && weights[q * nk + k] > 0.98;
      setRow(q, isSet ? undefined : rowWith(q, k, 1), "", isSet ? "This row is as it was." : "");
    },
    pull: (q, k, weight) => setRow(q, rowWith(q, k, weight), `pull ${shownHead()} ${q} ${k}`),
    release: (q) => setRow(q, undefined),
    ...(model.get("heats") && { temperature: { set: heat, of: (q) => temperatureOf(freeRow(q), deedOf(shownHead()).rows?.[q]) } }),
  });

  /** @type {(layer: string, step: T.Step, cells: Record<string, number | undefined> | null, name?: string, told?: string) => void} */
  const mix = (layer, step, cells, name, told) => act({ deeds: withCells(model.get("deeds"), layer, step, cells) }, name, told);
  const mixing = mixingOf(task, colours, (head) => layerName(task, head) || "this layer", {
    choose: () => draw(),
    move: (layer, { step, n, m }, to) => mix(layer, step, { [`${n} ${m}`]: to }, `mix ${layer} ${step} ${n} ${m}`),
    free: (layer, { step, n, m }) => mix(layer, step, { [`${n} ${m}`]: undefined }, "", "This number is as it was trained."),
    silence: (layer, step) => mix(layer, step, apart, "", "Its heads do not talk here."),
    restore: (layer, step) => mix(layer, step, null, "", "This matrix is as it was trained."),
  });
  const numbers = range(0, task.engine.settings.num_heads);
  /** The cells of a matrix with which no head gets anything of another. @type {Record<string, number>} */
  const apart = Object.fromEntries(numbers.flatMap((n) => numbers.map((m) => [`${n} ${m}`, Number(n === m)])));
  const input = inputOf(task, {
    take: (units) => act({ input: task.joined(units) }),
    menu: (units, i) => menuAt(task, units, i),
    replace: (i, unit) => act({ input: task.joined(replacedAt(task, task.units(model.get("input")), i, unit)) }, "", ""),
  });
  const asked = { get: () => model.get("sums"), set: (/** @type {number} */ word, /** @type {number} */ question) => put({ sums: [word, question] }) };
  const sums = task.facts.questions ? sumsOf(task, colours) : null;
  const dots = make("span", { class: css("dots"), role: "img", "aria-label": "others are being read" }, ...task.facts.others.map(() => make("i")));
  const dotsSaid = make("span", { class: css("note") });
  const answer = answerOf(task, make("span", { class: css("others") }, dots, dotsSaid), asked);
  const undo = make("button", { type: "button", text: "Undo", onclick: undoLast });
  const reset = make("button", { type: "button", text: "As trained", onclick: () => act({ deeds: {} }, "", "All heads are as trained.") });
  /** A box that is ticked as long as the whole model has something. @param {string} name @param {string} text @param {boolean} isAsked @param {boolean} [hides] whether it is there only while it is not ticked */
  function boxOf(name, text, isAsked, hides = false) {
    const box = make("input", { type: "checkbox" });
    box.addEventListener("change", () => {
      const { [name]: _, ...others } = model.get("deeds");
      act({ deeds: box.checked ? others : { ...others, [name]: false } });
    });
    const whole = make("label", { class: `mhalib-check ${isAsked ? css("asked") : ""}` }, box, text);
    const draw = () => {
      box.checked = model.get("deeds")[name] !== false;
      whole.hidden = hides && box.checked;
    };
    return { whole, draw };
  }
  const boxes = [boxOf("positions", "it knows the order", model.get("deeds").positions === false)];
  if (hasEncoder(task)) boxes.push(boxOf("future", "words see the future", true, !model.get("future")));
  const address = make("input", { type: "text", readonly: true, hidden: true, "aria-label": "link to this state" });
  const link = make("button", { type: "button", text: "Copy link", hidden: !hasAddress(), onclick: copyLink });
  function undoLast() {
    const last = past.pop();
    lastAct = "";
    spoken = last ? "Undone." : "There is nothing to undo.";
    if (last) put(last);
    else said.textContent = spoken;
  }
  const fragment = () => fragmentOf({ model: task.facts.name, input: model.get("input"), deeds: model.get("deeds"), head: model.get("head"), query: model.get("query"), moment: model.get("moment"), ...(model.get("sums").length && { sums: model.get("sums") }) });
  /** The book's link to the instrument alone takes along what a reader has done. */
  const alone = /** @type {HTMLAnchorElement | null | undefined} */ (el.closest(".mhalib-instrument")?.nextElementSibling?.querySelector(":scope > a"));
  function copyLink() {
    address.value = location.href.replace(/#.*$/, "") + fragment();
    address.hidden = false;
    address.select();
    const copied = navigator.clipboard?.writeText(address.value) ?? Promise.reject();
    copied.then(() => { said.textContent = "The link is copied: it leads to what you see."; }, () => { said.textContent = "This is the link to what you see: copy it."; });
  }
  function takeLink() {
    try {
      const state = stateOfFragment(location.hash);
      if (state?.model === task.facts.name) put(checkedState(task, state));
    } catch (error) {
      said.textContent = `The link does not fit this model, and is left aside: ${/** @type {Error} */ (error).message}.`;
    }
  }

  const quests = model.get("quests").map((quest) => ({ ...quest, item: make("li", {}, make("span", { class: css("tick"), "aria-hidden": "true" }), make("span", { text: quest.text }), make("span", { class: css("done") })) }));
  function judge(othersRight = Infinity) {
    const [units, deeds] = [task.units(model.get("input")), model.get("deeds")];
    const facts = { said: task.joined(now.answer), wrong: task.numWrong(units, now.answer, now.plain), othersRight, isWitnessed: (/** @type {[string, number]} */ witness) => hasWitness(task, witness, deeds, now) };
    for (const { text, goal, item, input: own } of quests) {
      if (item.classList.contains(css("met")) || (own && own !== model.get("input")) || !questMet(goal, deeds, facts)) continue;
      item.classList.add(css("met"));
      /** @type {HTMLElement} */ (item.lastChild).textContent = " Done.";
      said.textContent = `Done: ${text}`;
    }
  }

  const lastMoment = (task.facts.steps?.length ?? 1) - 1;
  let moment = lastMoment;
  /** @type {Map<string, string[]>} */
  const trainedAnswers = new Map();
  /** What the model says at the end of its training, with nothing done to it. @param {string} text */
  function trainedOf(text) {
    if (moment === lastMoment) return plainOf(text).answer;
    let answer = trainedAnswers.get(text);
    if (!answer) {
      task.engine.goTo(lastMoment);
      answer = task.answer(task.units(text), {});
      task.engine.goTo(moment);
      trainedAnswers.set(text, answer);
    }
    return answer;
  }
  function think() {
    if (moment !== model.get("moment")) {
      moment = model.get("moment");
      task.engine.goTo(moment);
      plainRuns.clear();
    }
    const [text, deeds] = [model.get("input"), model.get("deeds")];
    const units = task.units(text);
    const trained = trainedOf(text);
    const engine = engineOf(deeds, units);
    const ran = runOf(deeds, units, engine);
    now = { units, plain: trained, answer: ran.answer, log: ran.log, logP: task.rated(units, trained, engine).logP };
  }
  function draw() {
    const [deeds, head] = [model.get("deeds"), shownHead()];
    const off = headDeeds(deeds).filter(([, deed]) => deed.off).length;
    board.draw(now.log, deeds, head);
    large.whole.hidden = !head;
    if (head) {
      const kind = kindOf(head);
      const query = Math.min(model.get("query"), now.log[head].nq - 1);
      large.say(answer.inWords(now));
      large.draw({ head, record: now.log[head], ...task.labels(kind, now.units, now.answer), deed: deedOf(head), query, isCausal: isCausal(task, deeds, head) });
      input.draw(now.units, kind === "decoder self" && task.facts.written ? null : rowOf(now.log[head], query), colours.hue(head));
    } else input.draw(now.units, null, "");
    mixing?.draw(head || heads[heads.length - 1], deeds, answer.inWords(now));
    answer.draw(now, off, heads.length);
    growth?.draw(model.get("moment"));
    for (const box of boxes) box.draw();
    if (sums) sums.whole.hidden = !asked.get().length;
    if (asked.get().length) sums?.draw(now, plainOf(task.joined(now.units)).log, asked.get());
    undo.setAttribute("aria-disabled", String(!past.length));
    reset.setAttribute("aria-disabled", String(!Object.keys(deeds).length));
    const kept = now.answer.join() === now.plain.join();
    if (spoken || !kept || (isDrawn && said.textContent)) said.textContent = `${spoken} ${answer.inWords(now)}`.trim();
    spoken = "";
    isDrawn = true;
  }

  let turn = 0;
  /** The costs of heads, then the other inputs, a slice at a time; what the reader does breaks it off. */
  function later() {
    turn += 1;
    const mine = turn;
    const deeds = model.get("deeds");
    /** What losing each head, too, would cost the answer as trained, in nats; `null` if it is off. @type {Map<string, number | null>} */
    const costs = new Map();
    const rate = (/** @type {string} */ head) => {
      const rated = deedOf(head).off ? null : task.rated(now.units, now.plain, without(head));
      costs.set(head, rated && now.logP - rated.logP);
      if (head === shownHead()) large.tellCost(withoutShown(rated));
    };
    const jobs = [...heads.map((head) => () => rate(head)), () => board.tellCosts(costs), ...otherJobs(switchesOf(deeds))];
    const slice = () => {
      if (mine !== turn) return;
      const end = performance.now() + SLICE;
      while (jobs.length && performance.now() < end) jobs.shift()?.();
      if (jobs.length) setTimeout(slice, 0);
      else el.dataset.settled = "true";
    };
    delete el.dataset.settled;
    setTimeout(slice, 30);
  }
  /** @type {(head: string) => import("../live/deeds.js").Deeds} */
  const without = (head) => engineOf(withDeed(model.get("deeds"), head, (deed) => ({ ...deed, off: true })));
  /** What switching off the large head would change, in words. @type {(rated: ReturnType<T.Task["rated"]> | null) => string} */
  function withoutShown(rated) {
    if (!rated) return "This head is off.";
    const { logP, answer } = rated;
    if (!answer) return `With this head off, the chance of the trained answer is ${chance(logP)}; now it is ${chance(now.logP)}.`;
    return `With this head off, ${task.numWrong(now.units, answer, now.answer)} of ${task.counted(now.units, answer).length} answers change.`;
  }
  /** @type {(switches: T.LiveDeeds) => (() => void)[]} */
  function otherJobs(switches) {
    const deeds = engineDeeds(task, switches, 0, recordsOf);
    let right = 0;
    const jobs = task.facts.others.map(([text, plain], i) => () => {
      const units = task.units(text);
      const isRight = !task.numWrong(units, task.answer(units, deeds), plain);
      right += Number(isRight);
      const dot = /** @type {HTMLElement} */ (dots.children[i]);
      dot.className = css(isRight ? "right" : "wrong");
      dot.title = `${text}: ${isRight ? "right" : "wrong"}`;
    });
    return [...jobs, () => {
      const same = Object.entries({ "without the order": "positions" in switches, "without the future": "future" in switches, "with the same heads off": headDeeds(switches).length, "with the same matrices": mixingDeeds(switches).length });
      dotsSaid.textContent = [`${right} of ${jobs.length} other ${task.facts.one}s right`, ...same.flatMap(([text, isSo]) => (isSo ? text : []))].join(", ");
      dots.setAttribute("aria-label", dotsSaid.textContent);
      judge(right);
    }];
  }

  let isQueued = false;
  function update() {
    isQueued = false;
    try {
      think();
    } catch (error) {
      said.textContent = `This cannot be run: ${/** @type {Error} */ (error).message}.`;
      return;
    }
    draw();
    if (alone) alone.hash = fragment();
    judge();
    later();
  }
  /** Traits change one after the other; the model runs once. */
  function heard() {
    if (isQueued) return;
    isQueued = true;
    queueMicrotask(update);
  }
  function repaint() {
    colours.refresh();
    draw();
  }
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const themes = new MutationObserver(repaint);
  for (const root of [document.documentElement, document.body]) themes.observe(root, { attributes: true, attributeFilter: ["data-theme", "data-jp-theme-light", "class"] });
  scheme.addEventListener("change", repaint);
  const stopListening = listen(model, ["input", "deeds", "head", "query", "moment", "sums"], heard);

  const talk = make("div", { class: css("talk") });
  const growth = momentsOf(task.facts, (moment) => put({ moment }));
  const tools = make("div", { class: css("tools") }, undo, reset, link, address, ...boxes.map(({ whole }) => whole), said);
  const questList = make("ol", { class: css("quests"), "aria-label": "things to try" }, ...quests.map(({ item }) => item));
  talk.append(input.whole, answer.whole, tools);
  const held = steady(talk, [board.board, ...(sums ? [sums.whole] : []), large.whole, ...(mixing ? [mixing.whole] : [])]);
  settle(
    el,
    "live-model",
    talk,
    ...(growth ? [growth.whole] : []),
    ...(quests.length ? [questList] : []),
    board.board,
    ...(sums ? [sums.whole] : []),
    ...(model.get("compact") ? [] : [make("p", { class: css("note"), text: `Each square is where one head looks. The bar below it: what losing it would cost this ${task.facts.one}.` })]),
    ...(mixing ? [mixing.whole] : []),
    large.whole,
  );
  el.classList.toggle(css("compact"), model.get("compact"));
  takeLink();
  update();
  return () => {
    turn += 1;
    held.abort();
    stopListening();
    themes.disconnect();
    scheme.removeEventListener("change", repaint);
  };
}
