// @ts-check
/* What each head attends to. Thousandths in 10 bits; mixed weights, which have a sign, in 16. Above TOP are signs. */

import { arrows, barOf, bytesOf, choice, classes, inSentence, labelled, legible, listen, make, penOf, rampOf, range, region, saveSvg, settle, sheet, svg, voice, writer } from "./shared.js";

/** @import * as T from "./types" */
/** @param {T.Place<T.Explorer>} place */
export function HeadExplorer({ model, el }) {
  const [L, B, H, Q, K] = model.get("sizes");
  const [limit = 0, low = 0, high = 0, least = 0, most = 0] = model.get("span") ?? [];
  const mixed = limit > 0;
  const TOP = mixed ? 32000 : 1000;
  const signs = ["NaN", "inf", "-inf", ...(mixed ? ["< −32", "> 32"] : ["< 0", "> 1"])];
  /** @type {T.Codes} */
  const SIGNS = Object.fromEntries(signs.map((sign, i) => [TOP + 1 + i, sign]));
  const WINDOW = 24;
  const MASKED = -40000;
  const css = classes("head-explorer");
  const weights = bytesOf(model.get("packed"));
  const signed = new DataView(weights.buffer);
  const totals = new DataView(bytesOf(model.get("sums")).buffer);
  const seen = bytesOf(model.get("seen"));
  const images = (model.get("pictures") ?? []).map(bytesOf);
  const [tall, wide, patch] = model.get("picture_size") ?? [0, 0, 1];
  const across = wide / patch; // patches; they are the last keys
  const first = K - (across * tall) / patch;
  const colours = rampOf(model.get("ramp"), 1001);
  const hues = (model.get("ramps") ?? []).map((stops) => rampOf(stops, 1001)); // each head's own
  /** @type {T.Maybe} */
  let key = null; // the key that is spoken of; null: the strongest
  /** @type {T.Maybe} */
  let spokenOf = null; // and its query

  /** @type {T.Weight} */
  function weight(head, q, k) {
    const b = model.get("example");
    const cell = ((b * H + head) * Q + q) * K + k;
    if (seen.length && !((seen[cell >> 3] >> (cell & 7)) & 1)) return MASKED;
    return stored(model.get("layer") * B * H * Q * K + cell);
  }
  function stored(/** @type {number} */ at) {
    if (mixed) return signed.getInt16(2 * at, true);
    const bit = at * 10;
    return ((weights[bit >>> 3] | (weights[(bit >>> 3) + 1] << 8)) >> (bit & 7)) & 1023;
  }
  let holdsSigns = false;
  for (let at = 0; at < L * B * H * Q * K && !holdsSigns; at++) holdsSigns = stored(at) > TOP;
  /** @type {T.Read} */
  function mean(q, k) {
    const found = on().map((head) => weight(head, q, k)).filter((code) => code !== MASKED);
    if (!found.length) return MASKED;
    const sign = found.find((code) => code > TOP);
    return sign || Math.round(found.reduce((sum, code) => sum + code, 0) / found.length);
  }
  function total(/** @type {number} */ q) {
    const at = ((model.get("layer") * B + model.get("example")) * H + model.get("head")) * Q + q;
    const sum = mixed ? totals.getInt32(4 * at, true) : totals.getInt16(2 * at, true);
    return sum === (mixed ? -(2 ** 31) : -(2 ** 15)) ? "no number" : written(sum);
  }
  const on = () => range(0, H).filter((head) => !model.get("off").includes(head));
  /** @type {T.Read} */
  const large = (q, k) => weight(model.get("head"), q, k);
  /** @type {T.InWords} */
  const written = (code, digits = 3) => (code / 1000).toFixed(digits).replace("-", "−");
  /** @type {T.InWords} */
  const inWords = (code) => (code === MASKED ? "masked" : SIGNS[code] || written(code));
  /** The colour of a weight, of a head or of none; a sign has no colour. @type {T.Shade} */
  const shade = (code, head = NaN) => (code > TOP ? undefined : (hues[head % hues.length] ?? colours)[mixed ? Math.round(500 + (500 * code) / limit) : code]);
  /** A weight's part of the scale, from 0 to 1. @type {T.Share} */
  const share = (code) => Math.abs(code) / (mixed ? limit : 1000);
  /** @type {T.Tokens} */
  const tokens = (name) => model.get(name)[model.get("example") % model.get(name).length];
  const query = (/** @type {number} */ q) => tokens("query_tokens")[q];
  const keyName = (/** @type {number} */ k) => tokens("key_tokens")[k];
  /** Keys of a query that have a weight, the strongest first. @type {T.Ranked} */
  function ranked(read, q) {
    const found = range(0, K).map((k) => /** @type {[number, number]} */ ([k, read(q, k)])).filter(([, code]) => code !== MASKED && code <= TOP);
    return found.sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]) || a[0] - b[0]);
  }
  /** @type {T.Spoken} */
  function sentence(read, q, chosen) {
    const best = chosen === null ? ranked(read, q)[0] : [chosen, read(q, chosen)];
    if (best) return `${inSentence(query(q))} → ${inSentence(keyName(best[0]))} ${inWords(best[1])}`;
    const hidden = range(0, K).every((k) => read(q, k) === MASKED);
    return `${inSentence(query(q))}: ${hidden ? "every key is masked" : mixed ? "no weight is a number" : "no weight from 0 to 1"}`;
  }
  /** The key of each head of this layer; empty where heads share none. */
  function keysOfHeads() {
    const groups = model.get("groups") ?? [];
    const keys = groups.length ? groups[model.get("layer") % groups.length] : [];
    return new Set(keys).size < keys.length ? keys : [];
  }
  function sharing(/** @type {number} */ head) {
    const keys = keysOfHeads();
    const those = range(0, keys.length).filter((one) => keys[one] === keys[head]);
    if (those.length < 2) return those.length ? `head ${head} alone has key ${keys[head]}` : "";
    const [from, to] = [those[0], those[those.length - 1]];
    return `heads ${those.length > 3 && to - from === those.length - 1 ? `${from} to ${to}` : those.join(", ")} share key ${keys[head]}`;
  }
  const [gateExamples, gateQueries] = model.get("gate_sizes") ?? [];
  /** What a head's output is multiplied by, in thousandths, or NaN. @type {T.Gate} */
  function gate(head, q) {
    const gates = model.get("gates") ?? [];
    const at = ((model.get("layer") * gateExamples + (model.get("example") % gateExamples)) * H + head) * gateQueries + (q % gateQueries);
    return gates.length ? gates[at % gates.length] : NaN;
  }
  const hasGates = Boolean(model.get("gates")?.length);
  /** What else is known of a head, each with a comma in front. @type {T.About} */
  const about = (head, q) => [hasGates ? `, gate ${written(gate(head, q))}` : "", sharing(head) && `, ${sharing(head)}`].join("");
  const [word = "layer", ...names] = model.get("layer_names") ?? [];
  const named = (/** @type {number} */ layer) => names[layer] ?? `layer ${layer}`;
  const place = () =>
    [L > 1 && named(model.get("layer")), `head ${model.get("head")}`, B > 1 && `example ${model.get("example")}`].filter(Boolean).join(", ");

  const put = writer(model);
  const rows = () => view(model.get("query"), Q);
  const columns = () => view(model.get("key_start"), K);
  /** @type {T.Window} */
  function view(at, length) {
    const start = Math.floor(at / WINDOW) * WINDOW;
    return range(start, Math.min(start + WINDOW, length));
  }

  /** Cells of `size` pixels: masked hatched, signs chequered or written out. @type {T.Paint} */
  function paint(canvas, read, qs, ks, size, head = NaN) {
    canvas.width = ks.length * size;
    canvas.height = qs.length * size;
    const pen = penOf(canvas);
    const image = pen.createImageData(canvas.width, canvas.height);
    /** @type {number[][]} */
    const odd = [];
    const odds = mixed ? [60, 60, 60] : [213, 94, 0]; // orange is below 0
    const thick = size >= 16 ? 3 : 1; // of the hatching
    qs.forEach((q, i) =>
      ks.forEach((k, j) => {
        const code = read(q, k);
        if (code > TOP || (code < -limit / 50 && code !== MASKED)) odd.push([i, j, code]);
        for (let y = i * size; y < (i + 1) * size; y += 1) {
          for (let x = j * size; x < (j + 1) * size; x += 1) {
            const stripe = (x + y) % (5 * thick) < thick + 1;
            const check = ((x >> 1) + (y >> 1)) & 1;
            const rgb = code === MASKED ? (stripe ? [128, 128, 128] : [246, 246, 246]) : shade(code, head) || (check ? odds : [255, 255, 255]);
            image.data.set(rgb, 4 * (y * canvas.width + x));
            image.data[4 * (y * canvas.width + x) + 3] = 255;
          }
        }
      }),
    );
    pen.putImageData(image, 0, 0);
    if (size < 32) return;
    pen.font = `bold ${Math.round(size * 0.36)}px sans-serif`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    for (const [i, j, code] of odd) {
      if (code <= TOP) {
        pen.fillStyle = share(code) > 0.6 ? "#fff" : "#000";
        pen.fillRect((j + 0.5) * size - 7, (i + 0.5) * size - 1, 14, 3);
        continue;
      }
      pen.fillStyle = "#fff";
      pen.fillRect(j * size + 4, i * size + 4, size - 8, size - 8);
      pen.fillStyle = "#000";
      pen.fillText(SIGNS[code].replace("inf", "∞").replace(" ", ""), (j + 0.5) * size, (i + 0.5) * size, size - 8);
    }
  }

  /** @type {HTMLElement[]} */
  const strips = []; // of every small picture: what marks its rows
  function tile(/** @type {string} */ name) {
    const canvas = make("canvas", { class: css("canvas") });
    const marks = make("span", { class: css("marks") });
    const picture = make("span", { class: css("picture") }, canvas, marks);
    strips.push(marks);
    return { canvas, picture, label: make("span", { text: name }), turned: make("span", { class: css("gate") }) };
  }
  const tiles = range(0, H).map((head) => {
    const one = tile(`head ${head}`);
    const button = make("button", { type: "button", role: "radio", class: css("choose"), "data-head": head, onclick: () => put({ head }) }, one.picture, one.label, ...(hasGates ? [one.turned] : []));
    const box = make("input", { type: "checkbox", "data-off": head, "aria-label": `head ${head} counts in the mean` });
    box.addEventListener("change", () => put({ off: range(0, H).filter((each) => !tiles[each].box.checked) }));
    const whole = make("div", { class: css("tile"), role: "presentation" }, button, make("label", {}, box, " in mean"));
    return { ...one, button, box, whole };
  });
  const average = tile("");
  const meanSaid = make("span", { class: css("mean-said") });
  const meanTile = make("div", { class: `${css("tile")} ${css("mean")}` }, average.picture, average.label, meanSaid);
  const heads = make("div", { class: css("heads"), role: "radiogroup", "aria-label": "heads" }, ...tiles.map(({ whole }) => whole));
  let bracketed = "[]";
  /** Heads that share a key, under one bracket. */
  function drawGroups() {
    const keys = keysOfHeads();
    if (JSON.stringify(keys) === bracketed) return;
    bracketed = JSON.stringify(keys);
    /** @type {HTMLElement[][]} */
    const runs = [];
    tiles.forEach(({ whole }, head) => {
      if (head && keys[head] === keys[head - 1]) runs[runs.length - 1].push(whole);
      else runs.push([whole]);
    });
    const starts = runs.map((_, i) => runs.slice(0, i).flat().length);
    const part = (/** @type {string} */ name, /** @type {Node[]} */ ...inside) => make("div", { class: css(name), role: "presentation" }, ...inside);
    const bracket = (/** @type {number} */ head) => make("span", { class: css("bracket"), "aria-hidden": "true", text: sharing(head) });
    if (keys.length) heads.replaceChildren(...runs.map((wholes, i) => part("group", bracket(starts[i]), part("members", ...wholes))));
    else heads.replaceChildren(...tiles.map(({ whole }) => whole));
  }
  heads.addEventListener("keydown", (event) => {
    if (!(/** @type {Element} */ (event.target).matches("[role=radio]"))) return;
    const steps = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 };
    arrows(event, steps, model.get("head"), H, (head) => {
      put({ head });
      tiles[head].button.focus();
    });
  });

  const canvas = make("canvas", { class: css("canvas"), role: "img" });
  const marks = make("span", { class: css("marks") });
  const picture = make("span", { class: css("picture") }, canvas, marks);
  const keyLabels = make("div", { class: css("keys"), "aria-hidden": "true" });
  const list = make("div", { class: css("queries"), role: "listbox", "aria-multiselectable": "true", "aria-label": "queries; Enter locks, Escape unlocks all" });
  const sums = make("div", { class: css("sums"), "aria-hidden": "true" });
  const sumHead = (/** @type {string} */ text) => make("span", { class: css("sum-head"), text });
  const gated = gateQueries > 1; // a column of gates
  const gatesDown = make("div", { class: css("sums"), "aria-hidden": "true" });
  const [gateHeads, gateColumns] = gated ? [[sumHead("gate")], [gatesDown]] : [[], []];
  const grid = make("div", { class: `${css("grid")}${gated ? ` ${css("gated")}` : ""}` }, make("span"), keyLabels, sumHead("sum"), ...gateHeads, list, picture, sums, ...gateColumns);
  const lines = svg("svg", { class: css("lines"), role: "img" });
  const lineNote = make("p", { class: css("note") });
  const under = make("canvas", { class: css("under"), role: "img" });
  const underNote = make("p", { class: css("note"), text: `${mixed ? `Purple: a weight above 0 on the patch, orange: below 0, full from ±${written(limit / 2)} on` : "Colour: the weight on each patch, full from 0.5 on"}. Frame: the patch that is named above.` });
  const title = make("p", { class: css("title") });
  const body = region("numbers of the large head");
  const details = make("details", { ontoggle: () => drawTable() }, make("summary", { text: "numbers as a table" }), body);

  function lock(/** @type {number} */ q) {
    const locked = model.get("locked");
    put({ locked: locked.includes(q) ? locked.filter((each) => each !== q) : [...locked, q] });
  }
  /** @type {T.Choose} */
  function choose(q, k = null) {
    const changed = q !== model.get("query");
    if (!changed && k === key) return;
    key = k;
    spokenOf = q;
    if (changed) put({ query: q });
    else drawRow();
  }
  /** @type {T.Choose} */
  function pick(q, k) {
    choose(q, k);
    lock(q);
  }
  function focusQuery() {
    /** @type {HTMLElement} */ (list.querySelector("[tabindex='0']")).focus();
  }
  list.addEventListener("keydown", (event) => {
    arrows(event, { ArrowUp: -1, ArrowDown: 1 }, model.get("query"), Q, (q) => {
      choose(q);
      focusQuery();
    });
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      const q = model.get("query");
      const at = key === null ? (ranked(large, q)[0] || [0])[0] : key;
      arrows(event, { ArrowLeft: -1, ArrowRight: 1 }, at, K, (k) => {
        choose(q, k);
        if (!columns().includes(k)) put({ key_start: k });
        focusQuery();
      });
    }
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      lock(model.get("query"));
    }
  });
  el.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && model.get("locked").length) put({ locked: [] });
  });
  /** @type {T.Pointed} */
  function pointed(event, drawing, down, along) {
    const box = drawing.getBoundingClientRect();
    /** @type {T.At} */
    const at = (share, all) => all[Math.max(0, Math.min(all.length - 1, Math.floor(share * all.length)))];
    return [at((event.clientY - box.top) / box.height, down), at((event.clientX - box.left) / box.width, along)];
  }
  picture.addEventListener("pointermove", (event) => choose(...pointed(event, canvas, rows(), columns())));
  picture.addEventListener("click", (event) => pick(...pointed(event, canvas, rows(), columns())));
  under.addEventListener("pointermove", (event) => {
    const [row, column] = pointed(event, under, range(0, tall / patch), range(0, across));
    choose(model.get("query"), first + row * across + column);
  });

  const cell = () => Math.max(24, Math.min(40, Math.floor(Math.min(360, innerWidth - (gated ? 205 : 150)) / Math.max(rows().length, columns().length))));
  function drawHeads() {
    drawGroups();
    const size = Math.max(1, Math.floor(176 / Math.max(Q, K)));
    tiles.forEach(({ canvas: small, whole, box }, head) => {
      paint(small, (q, k) => weight(head, q, k), range(0, Q), range(0, K), size, head);
      box.checked = !model.get("off").includes(head);
      whole.classList.toggle(css("off"), !box.checked);
    });
    drawMean(size);
  }
  function drawMean(/** @type {number} */ size) {
    const count = on().length;
    average.label.textContent = count ? `mean of ${count} of ${H}` : "no head is on";
    average.picture.hidden = !count;
    if (count) paint(average.canvas, mean, range(0, Q), range(0, K), size);
  }
  function drawLarge() {
    const [qs, ks, side] = [rows(), columns(), cell()];
    el.style.setProperty("--cell", `${side}px`);
    paint(canvas, large, qs, ks, 2 * side, model.get("head"));
    canvas.style.height = `${side * qs.length}px`;
    canvas.setAttribute("aria-label", `weights of ${place()}; the table below holds the numbers`);
    title.textContent = `${place()}: queries ${qs[0]}–${qs.at(-1)} down, keys ${ks[0]}–${ks.at(-1)} across`;
    keyLabels.replaceChildren(...ks.map((k) => make("span", { title: keyName(k), dir: "auto", text: legible(keyName(k)) })));
    keyLabels.classList.toggle(css("letters"), ks.every((k) => [...legible(keyName(k))].length === 1));
    sums.replaceChildren(...qs.map((q) => make("span", { text: total(q) })));
    gatesDown.replaceChildren(...qs.map((q) => make("span", { text: written(gate(model.get("head"), q)) })));
    const had = list.contains(document.activeElement);
    list.replaceChildren(
      ...qs.map((q) => make("div", { role: "option", "data-query": q, title: query(q), onclick: () => pick(q) }, make("span", { dir: "auto", text: legible(query(q)) }))),
    );
    fit();
    drawRow();
    if (had) focusQuery();
    drawTable();
  }
  /** Cells are narrower than tall where the page would cut the last keys off. */
  function fit() {
    const [side, count] = [cell(), columns().length];
    el.style.setProperty("--cell-width", "0px");
    canvas.style.width = "0";
    const room = el.clientWidth - 8 - grid.offsetWidth; // beside names and sums, in a frame with its padding
    const wide = el.clientWidth ? Math.max(10, Math.min(side, Math.floor(room / count))) : side;
    el.style.setProperty("--cell-width", `${wide}px`);
    canvas.style.width = `${wide * count}px`;
  }
  function drawTable() {
    if (!details.open) return;
    const [qs, ks] = [rows(), columns()];
    const header = ["query", ...ks.map((k) => legible(keyName(k), 40)), "sum", ...(gated ? ["gate"] : [])];
    const ends = (/** @type {number} */ q) => [total(q), ...(gated ? [written(gate(model.get("head"), q))] : [])];
    const lower = qs.map((q) => [legible(query(q), 40), ...ks.map((k) => inWords(large(q, k))), ...ends(q)]);
    body.replaceChildren(sheet(`${title.textContent}; to 3 digits`, header, lower));
  }
  function drawRow() {
    const [chosen, locked] = [model.get("query"), model.get("locked")];
    if (chosen !== spokenOf) key = null;
    /** @type {T.Mark} */
    function mark(q, from, count) {
      const one = make("span", { class: css(q === chosen ? "chosen" : "locked"), "data-row": q });
      one.style.top = `${((q - from) / count) * 100}%`;
      one.style.height = `${100 / count}%`;
      return one;
    }
    const marked = [...locked.filter((q) => q !== chosen), chosen];
    for (const strip of strips) strip.replaceChildren(...marked.map((q) => mark(q, 0, Q)));
    const qs = rows();
    marks.replaceChildren(...marked.filter((q) => qs.includes(q)).map((q) => mark(q, qs[0], qs.length)));
    for (const option of /** @type {Iterable<HTMLElement>} */ (list.children)) {
      const q = Number(option.dataset.query);
      option.tabIndex = q === chosen ? 0 : -1;
      option.setAttribute("aria-selected", String(locked.includes(q)));
      option.classList.toggle(css("current"), q === chosen);
    }
    const fullest = Math.max(...tiles.map((_, head) => gate(head, chosen)));
    tiles.forEach(({ button, turned }, head) => {
      button.tabIndex = head === model.get("head") ? 0 : -1;
      const facts = about(head, chosen);
      if (facts) button.setAttribute("aria-label", `head ${head}${facts}`);
      else button.removeAttribute("aria-label");
      turned.textContent = `gate ${written(gate(head, chosen))}`;
      turned.style.setProperty("--gate", String(Math.max(0, gate(head, chosen) / fullest || 0)));
      button.setAttribute("aria-checked", String(head === model.get("head")));
    });
    if (images.length) drawPicture();
    else drawLines(); // what lines show of words, the picture shows of patches
    const others = locked.map((q) => inSentence(query(q)));
    said.textContent = `${place()}${about(model.get("head"), chosen)}: ${sentence(large, chosen, key)}${others.length ? `; locked: ${others.join(", ")}` : ""}`;
    meanSaid.textContent = on().length ? sentence(mean, chosen, key) : "";
  }
  /** The picture, under the weights of one row: patches in the head's colour, the key that is spoken of framed. */
  function drawPicture() {
    const [size, q] = [Math.max(2, Math.floor(Math.min(352, innerWidth - 60) / wide)), model.get("query")];
    const image = images[model.get("example") % images.length];
    under.width = wide * size;
    under.height = tall * size;
    const pen = penOf(under);
    image.forEach((ink, i) => {
      pen.fillStyle = `hsl(0 0% ${100 - ink / 4}%)`;
      pen.fillRect((i % wide) * size, Math.floor(i / wide) * size, size, size);
    });
    const side = patch * size;
    const corner = (/** @type {number} */ k) => /** @type {const} */ ([((k - first) % across) * side, Math.floor((k - first) / across) * side]);
    const own = shade(740, model.get("head")) ?? [];
    for (const [k, code] of ranked(large, q)) {
      const ink = mixed ? (code > 0 ? [124, 88, 164] : [217, 95, 2]) : own;
      pen.fillStyle = `rgb(${ink.join(" ")} / ${Math.min(2 * share(code), 1) * 0.85})`;
      pen.fillRect(...corner(k), side, side);
    }
    const spoken = key === null ? ranked(large, q)[0]?.[0] : key;
    pen.lineWidth = 3;
    if (spoken !== undefined && spoken >= first) pen.strokeRect(...corner(spoken), side, side);
    under.setAttribute("aria-label", `the picture of ${place()}, from ${inSentence(query(q))}`);
  }
  function drawLines() {
    const [qs, ks, side] = [rows(), columns(), cell()];
    const [left, right] = [100, 260];
    const height = Math.max(qs.length, ks.length) * side;
    const y = (/** @type {number} */ i) => (i + 0.5) * side;
    const drawn = [...new Set([...model.get("locked"), model.get("query")])];
    let outside = 0;
    const paths = drawn.flatMap((q) => {
      const kept = ranked(large, q).filter(([, code]) => code !== 0 && Math.abs(code) >= model.get("threshold") * 1000);
      return kept.slice(0, model.get("top") || K).flatMap(([k, code]) => {
        if (!qs.includes(q) || !ks.includes(k)) {
          outside += 1;
          return [];
        }
        const tip = svg("title", { text: `${inSentence(query(q), 1000)} → ${inSentence(keyName(k), 1000)} ${inWords(code)}` });
        const ends = { x1: left + 6, y1: y(qs.indexOf(q)), x2: right - 6, y2: y(ks.indexOf(k)) };
        const look = { "stroke-width": (1 + 7 * share(code)).toFixed(2), "stroke-opacity": (0.5 + 0.5 * share(code)).toFixed(3) };
        const kind = `${css(q === model.get("query") ? "line" : "line-locked")}${code < 0 ? ` ${css("negative")}` : ""}`;
        return [svg("line", { ...ends, ...look, class: kind, "data-pair": `${q} ${k}` }, tip)];
      });
    });
    /** @type {T.Word} */
    const word = (text, x, i, anchor, strong) =>
      svg("text", { x, y: y(i), "text-anchor": anchor, "dominant-baseline": "central", "font-weight": strong ? 700 : 400, text: legible(text) });
    const words = [
      ...qs.map((q, i) => word(query(q), left, i, "end", drawn.includes(q))),
      ...ks.map((k, i) => word(keyName(k), right, i, "start", false)),
    ];
    lines.setAttribute("viewBox", `0 0 360 ${height}`);
    lines.setAttribute("width", "360");
    lines.setAttribute("height", String(height));
    lines.setAttribute("aria-label", `${paths.length} lines from queries to keys`);
    lines.replaceChildren(...paths, ...words);
    lineNote.textContent = `Queries left, keys right; lines drawn: ${paths.length}${outside ? `, leaving this window: ${outside}` : ""}.${mixed ? " Purple: above 0. Orange, dotted: below 0." : ""}`;
  }

  function download() {
    const [side, left, top] = [20, 120, 120];
    /** @type {T.Picked} */
    const picked = (q, k) => {
      const code = large(q, k);
      const rgb = shade(code, model.get("head"));
      const fill = code === MASKED ? "url(#masked)" : rgb ? `rgb(${rgb})` : "#fff";
      const at = { x: left + k * side, y: top + q * side };
      const cellOf = svg("rect", { ...at, width: side, height: side, fill }, svg("title", { text: `${inSentence(query(q), 1000)} → ${inSentence(keyName(k), 1000)} ${inWords(code)}` }));
      if (code > TOP) return [cellOf, svg("text", { x: at.x + 1, y: at.y + 13, "font-size": 8, text: SIGNS[code] })];
      const minus = code < -limit / 50 && code !== MASKED;
      return minus ? [cellOf, svg("rect", { x: at.x + 7, y: at.y + 9, width: 6, height: 2, fill: share(code) > 0.6 ? "#fff" : "#000" })] : [cellOf];
    };
    const hatch = svg("pattern", { id: "masked", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
    hatch.append(svg("rect", { width: 5, height: 5, fill: "#f6f6f6" }), svg("rect", { width: 1.5, height: 5, fill: "#808080" }));
    const names = [
      ...range(0, Q).map((q) => svg("text", { x: left - 6, y: top + (q + 0.7) * side, "text-anchor": "end", text: legible(query(q)) })),
      ...range(0, K).map((k) => svg("text", { transform: `translate(${left + (k + 0.7) * side} ${top - 6}) rotate(-90)`, text: legible(keyName(k)) })),
    ];
    const [width, height] = [left + K * side + 10, top + Q * side + (mixed ? 30 : 10)];
    if (mixed) names.push(svg("text", { x: 6, y: height - 8, text: `purple: above 0, orange: below 0; full at ±${written(limit)}` }));
    const whole = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": "sans-serif", "font-size": 12 });
    whole.append(svg("title", { text: `Attention weights, ${place()}` }), hatch, ...range(0, Q).flatMap((q) => range(0, K).flatMap((k) => picked(q, k))), ...names);
    saveSvg(whole, place());
  }

  /** @type {T.Options} */
  const options = (name, count) => range(0, count).map((i) => [i, `${name} ${i}`]);
  /** @type {T.Windows} */
  const windows = (count) => range(0, Math.ceil(count / WINDOW)).map((i) => [i * WINDOW, `${i * WINDOW}–${Math.min((i + 1) * WINDOW, count) - 1}`]);
  const start = (/** @type {T.Trait} */ name) => Math.floor(model.get(name) / WINDOW) * WINDOW;
  /** @type {T.Offered[]} */
  const offers = [
    ["layer", word, L > 1 && range(0, L).map((i) => [i, named(i)])],
    ["example", "example", B > 1 && options("example", B)],
    ["head", "large head", options("head", H)],
    ["query", "queries shown", Q > WINDOW && windows(Q), start],
    ["key_start", "keys shown", K > WINDOW && windows(K), start],
    ["top", "lines of each query", !images.length && [[1, "the strongest"], [3, "the 3 strongest"], [5, "the 5 strongest"], [0, "all"]]],
    ["threshold", mixed ? "lines from ± weight" : "lines from weight", !images.length && [[0, "above 0"], [0.01, "0.01"], [0.05, "0.05"], [0.1, "0.1"], [0.25, "0.25"], [0.5, "0.5"]]],
  ];
  const choices = offers.flatMap(([name, label, offered, now = (trait) => model.get(trait)]) => {
    if (!offered) return [];
    const input = choice({ value: now(name), options: offered, changed: (value) => put({ [name]: Number(value) }), "data-name": name });
    const refresh = () => {
      const value = String(now(name));
      if (!Array.from(input.options).some((option) => option.value === value)) input.append(make("option", { value, text: value }));
      input.value = value;
    };
    return { row: labelled(label, input), refresh };
  });

  function scale() {
    /** @type {T.Bar} */
    const bar = (from, to) => barOf(range(from, to).map((i) => colours[10 * i]), css("scale"));
    const digits = limit % 100 ? 2 : 1;
    const ends = mixed
      ? make("span", {}, written(-limit, digits), bar(0, 51), "0", bar(50, 101), written(limit, digits))
      : make("span", {}, "0 ", bar(0, 101), " 1");
    /** @type {T.Swatch} */
    const swatch = (code, text) => {
      const one = make("canvas", { class: css("swatch") });
      paint(one, () => code, [0], [0], 16);
      return make("span", {}, one, text);
    };
    const odd = holdsSigns ? [swatch(TOP + 1, mixed ? "no number" : "no number from 0 to 1")] : [];
    const told = gated ? "gates of the chosen query; weights" : "weights";
    return make("p", { class: css("legend") }, ends, swatch(MASKED, "masked"), ...odd, `${told} to 3 digits; click a row to lock it`);
  }

  let shown = "";
  function follow(/** @type {boolean} */ everything) {
    choices.forEach(({ refresh }) => refresh());
    const now = JSON.stringify([rows()[0], columns()[0]]);
    if (everything || now !== shown) drawLarge();
    else drawRow();
    shown = now;
  }
  const said = voice();
  const mixedSaid =
    `Mixed weights, from ${written(low)} to ${written(high)}: purple above 0, orange below 0, in the large picture with a minus. ` +
    `Their rows need not sum to 1: sums run from ${written(least)} to ${written(most)}.`;
  const save = make("button", { type: "button", class: css("save"), text: "download this head as SVG", onclick: download });
  const stops = [
    listen(model, ["layer", "example"], () => {
      key = null;
      drawHeads();
      follow(true);
    }),
    listen(model, ["head"], () => follow(true)),
    listen(model, ["off"], () => {
      drawHeads();
      drawRow();
    }),
    listen(model, ["query", "key_start", "locked", "top", "threshold"], () => follow(false)),
  ];
  el.classList.toggle(css("mixed"), mixed);
  settle(
    el,
    "head-explorer",
    make("div", { class: "mhalib-controls", role: "group", "aria-label": "what is shown" }, ...choices.map(({ row }) => row)),
    ...(model.get("note") ? [make("p", { class: css("warning"), text: `⚠ ${model.get("note")}` })] : []),
    said,
    ...(mixed ? [make("p", { class: css("mixed-said"), text: mixedSaid })] : []),
    scale(),
    region("all heads", make("div", { class: css("wall") }, heads, meanTile)),
    title,
    make("div", { class: css("panels") }, ...(images.length ? [region("picture", under, underNote)] : []), region("large head", grid), ...(images.length ? [] : [region("lines", lines, lineNote)])),
    save,
    details,
  );
  drawHeads();
  follow(true);
  const resized = new ResizeObserver(fit);
  resized.observe(el);
  return () => [...stops, () => resized.disconnect()].forEach((stop) => stop());
}
