// @ts-check
/* What all instruments share: elements made one by one, controls with labels, tables, keys, and traits written and heard. */
/** @import { Attributes, ChoiceOptions, Control, Model, NumberOptions } from "./types" */

/** The whole numbers from `from` to before `to`. @type {(from: number, to: number) => number[]} */
export const range = (from, to) => Array.from({ length: to - from }, (_, i) => from + i);

/** An id that nothing else on the page has. In a notebook each instrument runs its own copy of this file: no counter. */
export const freshId = () => `mhalib-${Math.random().toString(36).slice(2)}`;

/**
 * An element: make("td", { class: "x", text: "…" }, child, …). Attributes whose value is null or false are left out.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} [attributes]
 * @param {(Node | string)[]} children
 */
export function make(tag, attributes = {}, ...children) {
  return fitted(document.createElement(tag), attributes, children);
}

/**
 * The same for a part of a drawing.
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} [attributes]
 * @param {(Node | string)[]} children
 */
export function svg(tag, attributes = {}, ...children) {
  return fitted(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

/**
 * @template {Element} T
 * @param {T} element
 * @param {Attributes} attributes
 * @param {(Node | string)[]} children
 */
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
 * is marked, told in `said`, and changes nothing. `show(value)` takes the mark away.
 * @param {NumberOptions} options
 */
export function numberInput({ value, min, max, step = 1, whole = true, changed, said, ...attributes }) {
  const rounded = (/** @type {number} */ x) => Number(x.toFixed(3));
  const input = make("input", { type: "number", min, max, step: whole ? 1 : "any", value: rounded(value), ...attributes });
  const heard = () => {
    const entered = input.valueAsNumber;
    const fits = entered >= min && entered <= max && (!whole || Number.isInteger(entered));
    if (fits) input.removeAttribute("aria-invalid");
    else input.setAttribute("aria-invalid", "true");
    if (fits) changed(entered + 0); // no -0
    else said.textContent = `Not a ${whole ? "whole " : ""}number from ${String(min).replace("-", "−")} to ${max.toLocaleString("en-US")}: nothing is changed.`;
  };
  input.addEventListener("input", heard);
  input.addEventListener("keydown", (event) => {
    const way = { ArrowUp: 1, ArrowDown: -1 }[event.key] ?? 0;
    if (!way || !Number.isFinite(input.valueAsNumber)) return;
    event.preventDefault();
    input.value = String(Math.min(max, Math.max(min, Number((input.valueAsNumber + way * step).toFixed(4)))));
    heard();
  });
  const show = (/** @type {number} */ now) => {
    if (![now, rounded(now)].includes(input.valueAsNumber)) input.value = String(rounded(now));
    input.removeAttribute("aria-invalid");
  };
  return { input, show };
}

/** A count to three digits: 1.07 billion, or with a unit 1.07 GB. @type {(count: bigint | number, unit: string) => string} */
export function inWords(count, unit) {
  const steps = ["", " thousand", " million", " billion", " trillion", " quadrillion"];
  const prefixes = ["", "k", "M", "G", "T", "P"];
  let power = 0;
  while (power < 5 && Number(count) >= 999.5 * 1000 ** power) power += 1;
  const digits = { minimumSignificantDigits: 3, maximumSignificantDigits: 3 };
  const value = (Number(count) / 1000 ** power).toLocaleString("en-US", digits);
  return `${value}${unit ? ` ${prefixes[power]}${unit}` : steps[power]}`;
}

/** The pen of a canvas. @param {HTMLCanvasElement} canvas */
export function penOf(canvas) {
  return /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
}

/** The bytes that a trait carries in base64. @type {(text: string) => Uint8Array<ArrayBuffer>} */
export const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

/** `count` colours between the few that were carried: red, green and blue. @type {(stops: string[], count: number) => number[][]} */
export function rampOf(stops, count) {
  const parts = stops.map((stop) => [1, 3, 5].map((i) => parseInt(stop.slice(i, i + 2), 16)));
  return range(0, count).map((code) => {
    const at = (code / (count - 1)) * (parts.length - 1);
    const low = Math.min(Math.floor(at), parts.length - 2);
    return parts[low].map((part, i) => Math.round(part + (parts[low + 1][i] - part) * (at - low)));
  });
}

/**
 * Hands a drawing to the reader as an SVG file; of what it is called, spaces and commas become hyphens.
 * @param {SVGElement} drawing
 * @param {string} called
 */
export function saveSvg(drawing, called) {
  const address = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(drawing)], { type: "image/svg+xml" }));
  make("a", { href: address, download: `${called.replaceAll(/[ ,]+/g, "-")}.svg` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

/** A part that scrolls where it is too wide, by keys, too. @type {(label: string, ...inside: (Node | string)[]) => HTMLElement} */
export function region(label, ...inside) {
  return make("div", { class: "mhalib-frame", role: "region", tabindex: "0", "aria-label": label }, ...inside);
}

/** Colours side by side, a pixel each, for a style sheet to stretch. @type {(colours: number[][], name: string) => HTMLCanvasElement} */
export function barOf(colours, name) {
  const bar = make("canvas", { class: name, width: colours.length, height: 1 });
  const pen = penOf(bar);
  const image = pen.createImageData(colours.length, 1);
  colours.forEach((rgb, i) => image.data.set([...rgb, 255], 4 * i));
  pen.putImageData(image, 0, 0);
  return bar;
}

/** Class names of an instrument's parts. @param {string} instrument */
export function classes(instrument) {
  return (/** @type {string} */ name) => `mhalib-${instrument}-${name}`;
}

/**
 * A control under its label.
 * @param {string} label
 * @param {HTMLElement} input
 */
export function labelled(label, input) {
  input.id = freshId();
  return make("div", { class: "mhalib-field" }, make("label", { for: input.id, text: label }), input);
}

/** A choice; options are [value, text]. @param {ChoiceOptions} options */
export function choice({ value, options, changed, ...attributes }) {
  const select = make("select", attributes, ...options.map(([each, text]) => make("option", { value: each, text })));
  select.value = String(value);
  select.addEventListener("change", () => changed(select.value));
  return select;
}

/**
 * A table: a caption, a header, and rows whose first cell names the row. `marks(r)` are the attributes of row r.
 * @param {string} caption
 * @param {(string | number)[]} header
 * @param {(string | number)[][]} rows
 * @param {(r: number) => Attributes} marks
 */
export function sheet(caption, header, rows, marks = () => ({})) {
  const cell = (/** @type {string | number} */ text, /** @type {number} */ i) => {
    if (i === 0) return make("th", { scope: "row", text });
    return make("td", { class: `mhalib-number${String(text).startsWith("✗") ? " mhalib-wrong" : ""}`, text });
  };
  const body = rows.map((row, r) => make("tr", marks(r), ...row.map(cell)));
  const heads = header.map((text) => make("th", { scope: "col", text }));
  return make("table", {}, make("caption", { text: caption }), make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...body));
}

/**
 * Keys that walk: `steps` says how far each arrow goes; Home and End go to the ends.
 * @param {KeyboardEvent} event
 * @param {Record<string, number>} steps
 * @param {number} at
 * @param {number} length
 * @param {(to: number) => void} go
 */
export function arrows(event, steps, at, length, go) {
  /** @type {Record<string, number>} */
  const ends = { Home: 0, End: length - 1 };
  const next = event.key in steps ? at + steps[event.key] : ends[event.key];
  if (next === undefined) return;
  event.preventDefault();
  if (next >= 0 && next < length) go(next);
}

/**
 * A token as it is shown, in at most `most` letters: what cannot be seen is spelt as its code, what is long ends in an ellipsis.
 * @param {string} token
 */
export function legible(token, most = 12) {
  const code = (/** @type {string} */ c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`;
  const unseen = /[\p{Cc}\p{Cs}\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029]/u;
  const start = token.slice(0, 2 * most + 2); // more than `most` letters, however wide
  const drawn = [...[...start].map((c) => (unseen.test(c) ? code(c) : c)).join("")];
  return drawn.length > most ? `${drawn.slice(0, most - 1).join("")}…` : drawn.join("") || "(empty)";
}

/** A token within a sentence: its direction of writing leaves what is around it alone. @type {(token: string, most?: number) => string} */
export function inSentence(token, most = 40) {
  const shown = legible(token, most);
  return /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/.test(shown) ? `\u2068${shown}\u2069` : shown;
}

/** A sentence that screen readers say when it changes. */
export function voice() {
  return make("p", { class: "mhalib-voice", role: "status", "aria-live": "polite" });
}

/**
 * A function that sets traits and tells the kernel: put({ head: 3 }).
 * @template State
 * @param {Model<State>} model
 */
export function writer(model) {
  return (/** @type {Partial<State>} */ changes) => {
    for (const [name, value] of Object.entries(changes)) model.set(name, value);
    model.save_changes();
  };
}

/** Whether the reader wants no motion. */
export const wantsNoMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/**
 * Makers of controls for traits, under their labels: `field` for a whole number, `chooser` for one of [value, text], where 0 and 1
 * are false and true. `refresh()` shows what the trait has become.
 * @template State
 * @param {Model<State>} model
 * @param {HTMLElement} said
 */
export function fieldsOf(model, said) {
  const put = writer(model);
  const write = (/** @type {string} */ name, /** @type {unknown} */ value) => put(/** @type {Partial<State>} */ ({ [name]: value }));
  /** @type {(name: keyof State & string) => string} */
  const now = (name) => String(typeof model.get(name) === "boolean" ? Number(model.get(name)) : model.get(name));
  return {
    /** @type {(name: keyof State & string, label: string, min: number, max: number) => Control} */
    field(name, label, min, max) {
      const { input, show } = numberInput({ value: Number(now(name)), min, max, changed: (value) => write(name, value), said, "data-name": name });
      return { input, row: labelled(label, input), refresh: () => show(Number(now(name))) };
    },
    /** @type {(name: keyof State & string, label: string, options: (string | number)[][], read?: (value: string) => unknown) => Control} */
    chooser(name, label, options, read = String) {
      const input = choice({ value: now(name), options, changed: (value) => write(name, read(value)), "data-name": name });
      const refresh = () => {
        input.value = now(name);
      };
      return { input, row: labelled(label, input), refresh };
    },
  };
}

/**
 * Listen to several traits; returns the function that stops listening.
 * @template State
 * @param {Model<State>} model
 * @param {(string & keyof State)[]} names
 * @param {() => void} heard
 */
export function listen(model, names, heard) {
  for (const name of names) model.on(`change:${name}`, heard);
  return () => {
    for (const name of names) model.off?.(`change:${name}`, heard);
  };
}

/**
 * The root of an instrument. In JupyterLab plain keys are its own (there, b inserts a cell); with Ctrl or Shift they stay the lab's.
 * @param {HTMLElement} el
 * @param {string} name
 * @param {(Node | string)[]} parts
 */
export function settle(el, name, ...parts) {
  const claim = (/** @type {any} */ { target, ctrlKey, metaKey, altKey, shiftKey }) =>
    target.toggleAttribute("data-lm-suppress-shortcuts", !(ctrlKey || metaKey || altKey || shiftKey));
  for (const event of ["focusin", "keydown", "keyup"]) el.addEventListener(event, claim);
  el.classList.add("mhalib", `mhalib-${name}`);
  el.replaceChildren(...parts);
}
