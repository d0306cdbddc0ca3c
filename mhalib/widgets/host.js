// @ts-check
/* The static host: finds the instruments of a page and gives each the model that a kernel would give it. */

/** @import { Awake, Model, Render } from "./types" */
import { make } from "./shared.js";

/**
 * @param {Record<string, any>} state
 * @returns {Model<any>}
 */
function standingModel(state) {
  /** @type {Map<string, (() => void)[]>} */
  const listeners = new Map();
  return {
    get: (name) => state[name],
    set(name, value) {
      if (state[name] === value) return;
      state[name] = value;
      listeners.get(`change:${name}`)?.forEach((heard) => heard());
    },
    save_changes() {},
    on(event, heard) {
      listeners.set(event, [...(listeners.get(event) ?? []), heard]);
    },
  };
}

/**
 * For a script that runs when the page has been read: load it with `defer`. What it does not know keeps its table. Returns
 * what it woke, for the page's sentences, which hear of each change: of a trait, and of what follows from it.
 * @param {Record<string, Render>} instruments
 * @returns {Awake[]}
 */
export function wake(instruments) {
  /** @type {NodeListOf<HTMLElement>} */
  const found = document.querySelectorAll(".mhalib-instrument[data-script]:not([data-awake])");
  /** @type {Awake[]} */
  const awake = [];
  for (const place of found) {
    const render = instruments[place.dataset.script ?? ""];
    const table = place.querySelector("table");
    const state = place.querySelector('script[type="application/json"]')?.textContent;
    if (!render || !table || !state) continue;
    const el = make("div");
    const [traits, told] = [JSON.parse(state), { results: {} }];
    /** @type {(() => void)[]} */
    const heard = [];
    const model = standingModel(traits);
    /** @param {import("./types").Results} results */
    const tell = (results) => {
      told.results = results;
      for (const then of heard) then();
    };
    render({ model, el, tell });
    awake.push({ place, el, model, told, heard });
    place.dataset.awake = "true";
    table.hidden = true;
    place.append(el);
  }
  return awake;
}
