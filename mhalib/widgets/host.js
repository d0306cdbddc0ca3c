/* The static host: finds the instruments of a page and gives each the model that a kernel would give it. */

function standingModel(state) {
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

/** For a script that runs when the page has been read: load it with `defer`. What it does not know keeps its table. */
function wake(instruments) {
  for (const place of document.querySelectorAll(".mhalib-instrument[data-script]:not([data-awake])")) {
    const render = instruments[place.dataset.script];
    if (!render) continue;
    const state = JSON.parse(place.querySelector('script[type="application/json"]').textContent);
    const el = make("div");
    render({ model: standingModel(state), el });
    place.dataset.awake = "true";
    place.querySelector("table").hidden = true;
    place.append(el);
  }
}
