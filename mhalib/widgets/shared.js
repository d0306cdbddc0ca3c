/* What all instruments share: elements made one by one, controls with labels, a voice for screen readers. */

let numbered = 0;

/** An element: make("td", { class: "x", text: "…" }, child, …). Attributes whose value is null are left out. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

/** A number field with its label; calls `changed(value)` when a whole number within the bounds is entered. */
function numberField({ label, value, min, max, changed }) {
  const id = `mhalib-${++numbered}`;
  const input = make("input", { id, type: "number", min, max, step: 1, value, inputmode: "numeric" });
  input.addEventListener("input", () => {
    const entered = Number(input.value);
    const fits = Number.isInteger(entered) && entered >= min && entered <= max && input.value !== "";
    if (fits) input.removeAttribute("aria-invalid");
    else input.setAttribute("aria-invalid", "true");
    if (fits) changed(entered);
  });
  return { input, row: make("div", { class: "mhalib-field" }, make("label", { for: id, text: label }), input) };
}

/** A choice with its label; options are [value, text]. */
function choiceField({ label, value, options, changed }) {
  const id = `mhalib-${++numbered}`;
  const select = make("select", { id });
  for (const [each, text] of options) select.append(make("option", { value: each, text }));
  select.value = String(value);
  select.addEventListener("change", () => changed(select.value));
  return { input: select, row: make("div", { class: "mhalib-field" }, make("label", { for: id, text: label }), select) };
}

/** A sentence that screen readers say when it changes. */
function voice() {
  return make("p", { class: "mhalib-voice", role: "status", "aria-live": "polite" });
}

/** Listen to several traits; returns the function that stops listening. */
function listen(model, names, heard) {
  for (const name of names) model.on(`change:${name}`, heard);
  return () => names.forEach((name) => model.off(`change:${name}`, heard));
}
