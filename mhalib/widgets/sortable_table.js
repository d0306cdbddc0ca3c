// @ts-check
/* A table that is sorted by the column of one's choice, with a bar behind each number, and one row in full. */

import { arrows, classes, listen, make, range, region, settle, sheet, svg, voice, writer } from "./shared.js";

/** @import * as T from "./types" */
/** @param {T.Place<T.Sortable>} place */
export function SortableTable({ model, el }) {
  const css = classes("sortable-table");
  const put = writer(model);
  const said = voice();
  const [rows, names, values] = [model.get("rows"), model.get("names"), model.get("values")];
  const isNumber = (/** @type {T.Value} */ value) => typeof value === "number";
  const written = (/** @type {T.Value} */ value) =>
    isNumber(value) ? Number(value).toLocaleString("en-US", { maximumSignificantDigits: 3 }).replace("-", "−") : (value ?? "–");
  const largest = values.map((column) => Math.max(...column.map((value) => (isNumber(value) ? Math.abs(Number(value)) : 0))));

  /** Numbers first, then texts, then what is empty; equal ones as they came. @type {(column: T.Value[], falling: boolean) => number[]} */
  function ordered(column, falling) {
    const kind = (/** @type {T.Value} */ value) => (isNumber(value) ? 0 : value === null ? 2 : 1);
    const way = falling ? -1 : 1;
    return range(0, rows.length).sort((a, b) => {
      const [one, other] = [column[a], column[b]];
      const between = one === other || one === null || other === null ? 0 : one < other ? -way : way;
      return kind(one) - kind(other) || between || a - b;
    });
  }
  const ranked = values.map((column) => ordered(column, true).filter((r) => isNumber(column[r])));
  const order = () => (model.get("sort") ? ordered(values[names.indexOf(model.get("sort"))], model.get("falling")) : range(0, rows.length));

  const buttons = names.map((name) => make("button", { type: "button", text: name, title: model.get("about")[name] ?? null, onclick: () => sortBy(name) }));
  const heads = buttons.map((button) => make("th", { scope: "col" }, button));
  const chosen = () => rows.indexOf(model.get("row"));
  const keys = rows.map((name, r) => make("button", { type: "button", class: css("row"), text: name, onclick: () => put({ row: rows[r] }) }));
  const lines = rows.map((_, r) => {
    const cells = values.map((column, c) => {
      const value = column[r];
      const cell = make("td", { class: isNumber(value) ? "mhalib-number" : null, text: written(value) });
      if (isNumber(value)) cell.style.setProperty("--share", `${(100 * Math.abs(Number(value))) / (largest[c] || 1)}%`);
      return cell;
    });
    return make("tr", {}, make("th", { scope: "row" }, keys[r]), ...cells);
  });
  const body = make("tbody", {});
  const header = make("tr", {}, make("th", { scope: "col", text: model.get("first") }), ...heads);
  const table = make("table", {}, make("caption", { text: model.get("caption") }), make("thead", {}, header), body);
  const frame = make("div", { class: `mhalib-frame ${css("frame")}` }, table);
  const card = make("div", { class: css("card") });
  body.addEventListener("keydown", (event) => {
    const now = order();
    arrows(event, { ArrowUp: -1, ArrowDown: 1 }, now.indexOf(chosen()), now.length, (to) => {
      put({ row: rows[now[to]] });
      keys[now[to]].focus();
    });
  });

  function sortBy(/** @type {string} */ name) {
    const again = model.get("sort") === name;
    put({ sort: name, falling: again ? !model.get("falling") : true });
  }

  function drawOrder() {
    const [sort, falling] = [model.get("sort"), model.get("falling")];
    body.replaceChildren(...order().map((r) => lines[r]));
    heads.forEach((head, c) => {
      if (names[c] === sort) head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    const about = model.get("about")[sort];
    said.textContent = sort ? `Sorted by ${sort}, ${falling ? "largest" : "smallest"} first${about ? `: ${about}` : "."}` : "Press a column's name to sort by it.";
  }

  /** The layer, with what is lit in the chosen row. @type {(lit: Record<string, string[]>) => SVGElement} */
  function layer(lit) {
    const { size, beside, paths, letters } = /** @type {T.DrawnLayer} */ (model.get("drawing"));
    const isLit = (/** @type {string[]} */ parts) => parts.some((part) => part in lit);
    const coloured = (/** @type {string} */ colour) => (colour === "ink" ? "currentColor" : colour ? `color-mix(in srgb, ${colour} 75%, currentColor)` : "none");
    const words = Object.entries(lit).flatMap(([part, steps]) => steps.map((step) => [part, step]));
    return svg(
      "svg",
      { viewBox: `0 0 ${size.join(" ")}`, class: css("layer"), role: "img", "aria-label": `The drawing of the layer. Lit: ${words.map((each) => each.join(": ")).join(", ") || "nothing"}.` },
      ...paths.map(([parts, d, fill, stroke]) => svg("path", { d, fill: coloured(fill), stroke: coloured(stroke), class: isLit(parts) ? null : css("pale") })),
      ...letters.map(([parts, text, x, y]) => svg("text", { x, y, text, class: isLit(parts) ? css("on") : null })),
      ...words.map(([part, text], i) => svg("text", { x: beside[part][0], y: beside[part][1] + 40 * words.slice(0, i).filter(([other]) => beside[other][1] === beside[part][1]).length, text, class: css("beside") })),
    );
  }

  function drawCard() {
    const r = chosen();
    keys.forEach((key, i) => {
      key.tabIndex = i === Math.max(0, r) ? 0 : -1;
      key.setAttribute("aria-pressed", String(i === r));
      lines[i].classList.toggle(css("chosen"), i === r);
    });
    if (r < 0) return;
    const beside = Object.entries(model.get("beside"));
    const told = names.map((name, c) => {
      const rank = isNumber(values[c][r]) ? `${ranked[c].indexOf(r) + 1} of ${ranked[c].length}` : "–";
      return [name, written(values[c][r]), ...beside.map(([, of]) => written(of[name]?.[r] ?? null)), rank];
    });
    const title = `${model.get("first")} ${rows[r]}`;
    card.replaceChildren(...(model.get("lit") ?? []).slice(r, r + 1).map(layer), region(title, sheet(title, ["column", "here", ...beside.map(([label]) => label), "rank"], told)));
  }

  const stops = [listen(model, ["sort", "falling"], drawOrder), listen(model, ["row"], drawCard)];
  settle(el, "sortable-table", said, frame, card);
  drawOrder();
  drawCard();
  return () => {
    for (const stop of stops) stop();
  };
}
