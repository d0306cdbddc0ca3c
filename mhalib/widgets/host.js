// @ts-check
/* The static host: finds the instruments of a page and gives each the model that a kernel would give it. */

/** @import { Model, Render } from "./types" */
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
 * For a script that runs when the page has been read: load it with `defer`. What it does not know keeps its table.
 * @param {Record<string, Render>} instruments
 */
export function wake(instruments) {
  /** @type {NodeListOf<HTMLElement>} */
  const found = document.querySelectorAll(".mhalib-instrument[data-script]:not([data-awake])");
  for (const place of found) {
    const render = instruments[place.dataset.script ?? ""];
    const table = place.querySelector("table");
    const state = place.querySelector('script[type="application/json"]')?.textContent;
    if (!render || !table || !state) continue;
    const el = make("div");
    render({ model: standingModel(JSON.parse(state)), el });
    place.dataset.awake = "true";
    table.hidden = true;
    place.append(el);
  }
}
