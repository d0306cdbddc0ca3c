/* What all instruments share: elements made one by one, controls with labels, tables, keys, and traits written and heard. */

const range = (from, to) => Array.from({ length: to - from }, (_, i) => from + i);

/** An id that nothing else on the page has. In a notebook each instrument runs its own copy of this file: no counter. */
const freshId = () => `mhalib-${Math.random().toString(36).slice(2)}`;

/** An element: make("td", { class: "x", text: "…" }, child, …). Attributes whose value is null or false are left out. */
function make(tag, attributes = {}, ...children) {
  return fitted(document.createElement(tag), attributes, children);
}

/** The same for a part of a drawing. */
function svg(tag, attributes = {}, ...children) {
  return fitted(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fitted(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

/**
 * An input for a number within bounds; an arrow key changes it by `step`. A number calls `changed(value)`; anything else
 * is marked, told to `wrong(sentence)`, and changes nothing. `show(value)` takes the mark away.
 */
function numberInput({ value, min, max, step = 1, whole = true, changed, wrong, ...attributes }) {
  const rounded = (x) => Number(x.toFixed(3));
  const input = make("input", { type: "number", min, max, step: whole ? 1 : "any", value: rounded(value), ...attributes });
  const heard = () => {
    const entered = input.valueAsNumber;
    const fits = entered >= min && entered <= max && (!whole || Number.isInteger(entered));
    if (fits) input.removeAttribute("aria-invalid");
    else input.setAttribute("aria-invalid", "true");
    if (fits) changed(entered + 0); // no -0
    else wrong(`Not a ${whole ? "whole " : ""}number from ${String(min).replace("-", "−")} to ${max.toLocaleString("en-US")}: nothing is changed.`);
  };
  input.addEventListener("input", heard);
  input.addEventListener("keydown", (event) => {
    const way = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (!way || !Number.isFinite(input.valueAsNumber)) return;
    event.preventDefault();
    input.value = Math.min(max, Math.max(min, Number((input.valueAsNumber + way * step).toFixed(4))));
    heard();
  });
  const show = (now) => {
    if (![now, rounded(now)].includes(input.valueAsNumber)) input.value = rounded(now);
    input.removeAttribute("aria-invalid");
  };
  return { input, show };
}

/** A control under its label. */
function labelled(label, input) {
  input.id = freshId();
  return make("div", { class: "mhalib-field" }, make("label", { for: input.id, text: label }), input);
}

/** A choice; options are [value, text]. */
function choice({ value, options, changed, ...attributes }) {
  const select = make("select", attributes, ...options.map(([each, text]) => make("option", { value: each, text })));
  select.value = String(value);
  select.addEventListener("change", () => changed(select.value));
  return select;
}

/** A table: a caption, a header, and rows whose first cell names the row. `marks(r)` are the attributes of row r. */
function sheet(caption, header, rows, marks = () => ({})) {
  const cell = (text, i) => {
    if (i === 0) return make("th", { scope: "row", text });
    return make("td", { class: `mhalib-number${String(text).startsWith("✗") ? " mhalib-wrong" : ""}`, text });
  };
  const body = rows.map((row, r) => make("tr", marks(r), ...row.map(cell)));
  const heads = header.map((text) => make("th", { scope: "col", text }));
  return make("table", {}, make("caption", { text: caption }), make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...body));
}

/** Keys that walk: `steps` says how far each arrow goes; Home and End go to the ends. */
function arrows(event, steps, at, length, go) {
  const ends = { Home: 0, End: length - 1 };
  const next = event.key in steps ? at + steps[event.key] : ends[event.key];
  if (next === undefined) return;
  event.preventDefault();
  if (next >= 0 && next < length) go(next);
}

/** A sentence that screen readers say when it changes. */
function voice() {
  return make("p", { class: "mhalib-voice", role: "status", "aria-live": "polite" });
}

/** A function that sets traits and tells the kernel: put({ head: 3 }). */
function writer(model) {
  return (changes) => {
    for (const [name, value] of Object.entries(changes)) model.set(name, value);
    model.save_changes();
  };
}

/** Listen to several traits; returns the function that stops listening. */
function listen(model, names, heard) {
  for (const name of names) model.on(`change:${name}`, heard);
  return () => names.forEach((name) => model.off(`change:${name}`, heard));
}

/** The root of an instrument. In JupyterLab plain keys are its own (there, b inserts a cell); with Ctrl or Shift they stay the lab's. */
function settle(el, name, ...parts) {
  const claim = ({ target, ctrlKey, metaKey, altKey, shiftKey }) =>
    target.toggleAttribute("data-lm-suppress-shortcuts", !(ctrlKey || metaKey || altKey || shiftKey));
  for (const event of ["focusin", "keydown", "keyup"]) el.addEventListener(event, claim);
  el.classList.add("mhalib", `mhalib-${name}`);
  el.replaceChildren(...parts);
}
