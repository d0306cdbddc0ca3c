/* The static host: finds the instruments of a page and gives each the model that a kernel would give it. */

function standingModel(state) {
  const listeners = new Map();
  return {
    get: (name) => state[name],
    set(name, value) {
      if (state[name] === value) return;
      state[name] = value;
      for (const heard of listeners.get(`change:${name}`) || []) heard();
    },
    save_changes() {},
    on(event, heard) {
      listeners.set(event, [...(listeners.get(event) || []), heard]);
    },
    off(event, heard) {
      listeners.set(event, (listeners.get(event) || []).filter((each) => each !== heard));
    },
  };
}

function wake(instruments) {
  function wakeAll() {
    for (const place of document.querySelectorAll(".mhalib-instrument[data-script]")) {
      const state = place.querySelector('script[type="application/json"]');
      const render = instruments[place.dataset.script];
      if (!state || !render || place.dataset.awake) continue;
      place.dataset.awake = "true";
      const table = place.querySelector("table");
      const el = make("div");
      render({ model: standingModel(JSON.parse(state.textContent)), el });
      place.append(el);
      if (table) table.hidden = true;
    }
  }
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", wakeAll);
  else wakeAll();
}
