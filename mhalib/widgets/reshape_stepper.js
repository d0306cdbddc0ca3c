// @ts-check
/* The reshape trick. A stage is shape, strides and memory; memory holds the cells' positions in x, (b N + n) D + c. */

import { arrows, labelled, listen, make, numberInput, range, settle, sheet, voice, writer } from "./shared.js";

/** @import * as T from "./types" */
/** @param {T.Place<T.Stepper>} place */
export function ReshapeStepper({ model, el }) {
  const CSS = "mhalib-reshape-stepper";
  /** @type {[T.Name, string, number][]} */
  const SIZES = [
    ["batch_size", "examples B", 3],
    ["num_tokens", "tokens N", 5],
    ["num_hiddens", "width D", 12],
    ["num_heads", "heads h", 4],
  ];
  const compact = model.get("compact"); // without the fold, strides and memory, and with one example
  const LAST = compact ? 4 : 6;
  /** What the compact form leaves out. @type {<P>(...parts: P[]) => P[]} */
  const full = (...parts) => (compact ? [] : parts);
  const product = (/** @type {T.Ints} */ sizes) => sizes.reduce((all, size) => all * size, 1);
  const tuple = (/** @type {T.Ints} */ values) => `(${values.join(", ")})`;

  /** The strides of a view of another shape, as in torch; null where only a copy will do. @type {T.ViewStrides} */
  function viewStrides(shape, strides, wanted) {
    /** @type {T.Ints} */
    const found = [];
    let at = wanted.length - 1;
    let chunk = 1;
    let viewed = 1;
    let base = strides[strides.length - 1];
    for (let axis = shape.length - 1; axis >= 0; axis -= 1) {
      chunk *= shape[axis];
      if (axis > 0 && (shape[axis - 1] === 1 || strides[axis - 1] === chunk * base)) continue;
      while (at >= 0 && (viewed < chunk || wanted[at] === 1)) {
        found[at] = viewed * base;
        viewed *= wanted[at];
        at -= 1;
      }
      if (viewed !== chunk) return null;
      base = strides[axis - 1];
      chunk = viewed = 1;
    }
    return found;
  }

  const contiguous = (/** @type {T.Ints} */ shape) => shape.map((_, axis) => product(shape.slice(axis + 1)));
  const places = (/** @type {T.Ints} */ shape) => shape.reduce((all, size) => all.flatMap((index) => range(0, size).map((i) => [...index, i])), /** @type {T.Ints[]} */ ([[]]));
  /** @type {T.Offset} */
  const offset = (index, strides) => index.reduce((sum, i, axis) => sum + i * strides[axis], 0);

  /** @type {T.Reshape} */
  function reshape({ shape, strides, memory }, wanted) {
    const viewed = viewStrides(shape, strides, wanted);
    if (viewed) return { shape: wanted, strides: viewed, memory, copied: false };
    const moved = places(shape).map((index) => memory[offset(index, strides)]);
    return { shape: wanted, strides: contiguous(wanted), memory: moved, copied: true };
  }

  const swapped = (/** @type {T.Ints} */ [a, b, c, d]) => [a, c, b, d];
  /** @type {T.Permute} */
  const permute = ({ shape, strides, memory }) => ({ shape: swapped(shape), strides: swapped(strides), memory, copied: false });

  /** @type {(sizes: T.Sizes) => T.Stage[]} */
  function stages({ B, N, D, h, d, skip }) {
    /** @type {T.Reshape} */
    const swap = (from, shape) => (skip ? reshape(from, shape) : permute(from));
    const call = (/** @type {string} */ axes) => (skip ? `reshape(${axes})` : "transpose(1, 2)");
    const x = { shape: [B, N, D], strides: [N * D, D, 1], memory: range(0, B * N * D), copied: false };
    const cut = reshape(x, [B, N, h, d]);
    const split = swap(cut, [B, h, N, d]);
    const folded = reshape(split, [B * h, N, d]);
    const heads = reshape(folded, [B, h, N, d]);
    const rows = swap(compact ? split : heads, [B, N, h, d]);
    /** @type {[string, string, string, T.Strided][]} */
    const named = [
      ["x", "x = W_q(tokens)", "B, N, D", x],
      ["cut", "cut = x.reshape(B, N, h, d)", "B, N, h, d", cut],
      ["split", `split = cut.${call("B, h, N, d")}`, "B, h, N, d", split],
      ["folded", "folded = split.reshape(B * h, N, d)", "B·h, N, d", folded],
      ["heads", "heads = folded.reshape(B, h, N, d)", "B, h, N, d", heads],
      ["rows", `rows = ${compact ? "split" : "heads"}.${call("B, N, h, d")}`, "B, N, h, d", rows],
      ["back", "back = rows.reshape(B, N, D)", "B, N, D", reshape(rows, [B, N, D])],
    ];
    return named.filter((_, i) => !compact || (i !== 3 && i !== 4)).map(([name, code, axes, array]) => ({ name, code, axes, ...array }));
  }

  /** Which outputs change with a token, if row r attends to rows 0 to r. A cell stands for its token. @type {T.Reached} */
  function reached({ N, D, h, d }, token, wrongSplit, wrongMerge) {
    /** @type {T.TokenOf} */
    const tokenOf = (head, row) => (wrongSplit ? Math.floor(((head * N + row) * d) / D) : row);
    /** @type {T.Changes} */
    const changes = (head, row) => range(0, row + 1).some((r) => tokenOf(head, r) === token);
    return range(0, N).filter((n) => range(0, h).some((i) => {
      const piece = n * h + i; // the d channels from n D + i d on
      return wrongMerge ? changes(Math.floor(piece / N), piece % N) : changes(i, n);
    }));
  }

  function sizes() {
    const [B, N, D, h] = SIZES.map(([name]) => model.get(name));
    const cell = Math.min(model.get("cell"), B * N * D - 1);
    return { B, N, D, h, d: D / h, skip: model.get("skip_permute"), cell, step: Math.min(model.get("step"), LAST) };
  }

  function born(/** @type {number} */ cell, /** @type {T.Sizes} */ { N, D, d }) {
    const [b, n, c] = [Math.floor(cell / (N * D)), Math.floor(cell / D) % N, cell % D];
    return { b, n, c, head: Math.floor(c / d), word: String(1000 * b + 100 * n + c).padStart(4, "0") };
  }

  const put = writer(model);

  /** @type {T.CellButton} */
  function cellButton(cell, now, place, position) {
    const { b, n, c, head, word } = born(cell, now);
    const chosen = cell === now.cell;
    const button = make("button", {
      type: "button",
      class: `${CSS}-cell`,
      "data-cell": cell,
      "data-position": position,
      "aria-pressed": String(chosen),
      tabindex: chosen ? 0 : -1,
      "aria-label": `${word}: example ${b}, token ${n}, channel ${c}, head ${head}; ${place}`,
      onclick: () => put({ cell }),
    }, make("span", { text: word }), make("small", { text: `h${head}` }));
    button.style.setProperty("--owner", model.get("colours")[head]);
    return button;
  }

  /** Arrow keys walk the cells as they are drawn; one of them is in the tab order. @type {T.Walk} */
  function walk(frame, width) {
    frame.onkeydown = (event) => {
      const cells = [.../** @type {NodeListOf<HTMLElement>} */ (frame.querySelectorAll("[data-cell]"))];
      const at = cells.indexOf(/** @type {HTMLElement} */ (document.activeElement));
      const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: width(), ArrowUp: -width() };
      if (at >= 0) arrows(event, steps, at, cells.length, (to) => put({ cell: Number(cells[to].dataset.cell) }));
    };
  }

  /** Draw again what has the focus, and give it back to the chosen cell. @type {T.Refill} */
  function refill(frame, ...children) {
    const focused = frame.contains(document.activeElement) && document.activeElement?.matches("[data-cell]");
    frame.replaceChildren(...children);
    if (focused) /** @type {HTMLElement} */ (frame.querySelector('[aria-pressed="true"]')).focus();
  }

  /** The array as matrices: one for each example, head, or row of the fold. @type {T.Matrices} */
  function matrices(stage, now) {
    const { shape, strides, memory, name } = stage;
    const byHead = name === "split" || name === "heads";
    const outer = byHead ? 2 : 1;
    const width = shape.length - outer === 3 ? now.d : 0; // where a row has gaps
    const { b } = born(now.cell, now);
    return places(shape.slice(0, outer)).filter(([example]) => !compact || example === b).map((first) => {
      const rows = range(0, shape[outer]).map((row) => {
        const cells = places(shape.slice(outer + 1)).map((rest, i) => {
          const index = [...first, row, ...rest];
          const at = offset(index, strides);
          const button = cellButton(memory[at], now, `${name}[${index.join(", ")}]`, at);
          button.classList.toggle(`${CSS}-gap`, width > 0 && i > 0 && i % width === 0);
          return button;
        });
        return make("div", { class: `${CSS}-row` }, make("span", { class: `${CSS}-index`, text: row }), ...cells);
      });
      const title = byHead ? `b = ${first[0]}, head ${first[1]}` : name === "folded" ? `row ${first[0]}` : `b = ${first[0]}`;
      const heading = make("div", { class: `${CSS}-title`, text: title });
      const figure = make("div", { class: `${CSS}-matrix`, role: "group", "aria-label": title }, heading, ...rows);
      if (byHead || name === "folded") {
        const own = first[outer - 1] % now.h;
        const held = new Set([...figure.querySelectorAll("[data-cell]")].map((each) => born(Number(each.getAttribute("data-cell")), now).head));
        if (held.size > 1 || !held.has(own)) {
          figure.classList.add(`${CSS}-mixed`);
          heading.append(make("span", { text: ` ✗ of ${[...held].sort().join(", ")}` }));
        }
      }
      return figure;
    });
  }

  /** @type {T.Strip} */
  function strip(title, memory, now) {
    const cells = memory.map((cell, position) => {
      const button = cellButton(cell, now, `position ${position} in memory`, position);
      button.append(make("i", { text: position }));
      return button;
    });
    return make("div", { class: `${CSS}-memory`, role: "group", "aria-label": title }, make("div", { class: `${CSS}-title`, text: title }), make("div", { class: `${CSS}-strip` }, ...cells));
  }

  /** @type {T.Why} */
  function why(stage, now) {
    const { B, N, D, h, d, skip } = now;
    const fold = stage.copied
      ? `To fold B and h, one stride would have to serve both axes: ${h} heads further is ${h}·${d} = ${D} positions, the next example ${N * D}. No stride does both, so reshape copies.`
      : B === 1
        ? "With one example, B = 1, there is nothing to fold over: the same line makes a view."
        : "Here one stride serves both axes, so the same line makes a view.";
    const same = h === 1 || N === 1;
    const steps = {
      x: `One row for each token: ${d} channels for each of ${h} heads.`,
      cut: `The last axis is cut into ${h} × ${d}. No number moves.`,
      split: skip
        ? `The shape is right, but reshape keeps the order in memory: a new row every ${d} numbers, a new head every ${N * d}.${same ? " With one head or one token, that is the right split." : ""}`
        : "Heads and tokens change places, so that each head is a matrix of its own.",
      folded: skip ? "Nothing has to move, because nothing changed places." : fold,
      heads: "The way back: the first axis is cut into B and h again.",
      rows: skip ? "Skipped here too: the tokens are cut out as they come." : "The way back: tokens and heads change places again.",
      back: skip
        ? `The way back gives x again${same ? "." : ", though the heads held the wrong numbers: a round trip proves nothing."}`
        : `The heads of a token are side by side again${stage.copied ? ", which needs a second copy" : ""}. It equals x.`,
    };
    return steps[/** @type {keyof typeof steps} */ (stage.name)];
  }

  function lengths(/** @type {T.Sizes} */ { B, N, h }) {
    const lens = range(0, B).map((b) => Math.max(1, N - b));
    const right = range(0, B * h).map((row) => lens[Math.floor(row / h)]);
    const wrong = range(0, B * h).map((row) => (lens[row % B] === right[row] ? lens[row % B] : `✗ ${lens[row % B]}`));
    const bad = wrong.filter((each) => String(each).startsWith("✗")).length;
    const verdict = bad ? `${bad} of ${B * h} rows get the length of another example (✗).` : "Here both agree, so this batch cannot show the mistake.";
    return sheet(`valid_lens = [${lens.join(", ")}], one length for each row of folded. With repeat, ${verdict}`, ["row of folded", ...range(0, B * h)], [
      ["belongs to example", ...range(0, B * h).map((row) => Math.floor(row / h))],
      [`repeat_interleave(${h})`, ...right],
      [`repeat(${h})`, ...wrong],
    ]);
  }

  function damage(/** @type {T.Sizes} */ now) {
    const last = now.N - 1;
    const rows = [["right", "right"], ["wrong", "wrong"], ["wrong", "right"], ["right", "wrong"]].map(([split, merge]) => {
      const [from, to] = [split === "wrong", merge === "wrong"];
      const [first, final] = [reached(now, 0, from, to), reached(now, last, from, to)];
      const leaks = final.some((n) => n < last);
      const verdict = leaks ? "✗ the future leaks" : first.length < now.N ? "✗ cannot look back" : "as it should be";
      return [`split ${split}, merge ${merge}`, first.join(", "), final.join(", "), verdict];
    });
    return sheet("Causal attention: which outputs change when one token changes? (wrong = without the transpose)", ["", "token 0 changes outputs", `token ${last} changes outputs`, "so"], rows);
  }

  let turn = 0; // which question is asked

  /** [b, head]. The first is one whose two orders have different answers, if these sizes have one. */
  function question(/** @type {Pick<T.Sizes, "B" | "h">} */ { B, h }) {
    const all = places([B, h]).reverse();
    const telling = all.findIndex(([b, i]) => b * h + i !== i * B + b);
    if (telling > 0) all.unshift(...all.splice(telling, 1));
    return all[turn % all.length];
  }

  /** @type {T.Judge} */
  function judge(text, { B, h }) {
    const [b, i] = question({ B, h });
    const row = Number(text);
    const right = b * h + i;
    if (!/^\d{1,9}$/.test(text)) return `“\u2068${text.slice(0, 40)}\u2069” is no row: enter a whole number from 0 to ${B * h - 1}.`;
    if (row === right) return `Right: row ${b}·${h} + ${i} = ${right}. All heads of an example stand together.`;
    if (row === i * B + b) return `Row ${row} = ${i}·${B} + ${b} is the order h·B, heads first. The fold is B·h: example first, b·h + i.`;
    if (row === right + 1) return `One too many: rows, examples and heads are counted from 0.`;
    if (row >= B * h) return `There is no row ${row}: B·h = ${B * h} rows, 0 to ${B * h - 1}.`;
    return `Row ${row} holds example ${Math.floor(row / h)}, head ${row % h}. How many rows does one example take?`;
  }

  const said = voice();
  const facts = make("div", { class: `${CSS}-facts` });
  const picture = make("div", { class: "mhalib-frame", role: "region", "aria-label": "the array" });
  const memory = make("div", { "data-part": "memory" });
  const below = make("div", { class: "mhalib-frame", role: "region", "aria-label": "lengths and damage", tabindex: 0, "data-part": "below" });
  const ledger = make("div", { class: "mhalib-frame", role: "region", "aria-label": "all steps", tabindex: 0 });
  walk(picture, () => (picture.querySelector(`.${CSS}-row`)?.childElementCount ?? 1) - 1);
  walk(memory, () => sizes().D);

  const move = (/** @type {number} */ by) => put({ step: Math.max(0, Math.min(LAST, model.get("step") + by)) });
  const previous = make("button", { type: "button", text: "← previous", onclick: () => move(-1) });
  const next = make("button", { type: "button", text: "next →", onclick: () => move(1) });
  const slider = make("input", { type: "range", min: 0, max: LAST, step: 1, "aria-label": "step", oninput: () => put({ step: Number(slider.value) }) });
  const skip = make("input", { type: "checkbox", onchange: () => put({ skip_permute: skip.checked }) });
  const fields = SIZES.map(([name, label, max]) => {
    const options = { value: model.get(name), min: 1, max, "data-name": name, said };
    const { input, show } = numberInput({ ...options, changed: (/** @type {number} */ value) => resize(name, value) });
    return { row: labelled(label, input), refresh: () => show(model.get(name)) };
  });
  const asked = make("span");
  const answer = make("input", { type: "text", inputmode: "numeric", size: 4, autocomplete: "off" });
  const feedback = make("p", { role: "status", "data-part": "feedback" });
  const predict = make("form", { class: "mhalib-row" }, make("label", { class: "mhalib-check" }, asked, answer), make("button", { text: "check" }), make("button", { type: "button", text: "show me", onclick: reveal }), make("button", { type: "button", text: "another question", onclick: another }), feedback);
  const quiz = make("details", {}, make("summary", { text: "a question about folded" }), predict);
  const steps = make("details", {}, make("summary", { text: "all steps" }), ledger);
  const board = make("div", { class: `${CSS}-board` }, picture, memory);
  predict.addEventListener("submit", (event) => {
    event.preventDefault();
    feedback.textContent = judge(answer.value.trim(), sizes());
  });

  function another() {
    turn += 1;
    answer.value = "";
    draw();
    answer.focus();
  }

  function reveal() {
    const { N, D, h, B, d } = sizes();
    const [b, i] = question({ B, h });
    put({ skip_permute: false, step: 3, cell: b * N * D + i * d });
    feedback.textContent = `Row ${b}·${h} + ${i} = ${b * h + i}: its first number is now chosen in the picture.`;
  }

  /** A new size keeps the chosen example, token and channel where they still exist. @type {T.Resize} */
  function resize(name, value) {
    const { b, n, c } = born(sizes().cell, sizes());
    model.set(name, value);
    const { B, N, D } = sizes();
    put({ cell: (Math.min(b, B - 1) * N + Math.min(n, N - 1)) * D + Math.min(c, D - 1) });
  }

  function draw() {
    const now = sizes();
    for (const { refresh } of fields) refresh();
    skip.checked = now.skip;
    slider.value = String(now.step);
    previous.setAttribute("aria-disabled", String(now.step === 0)); // not disabled: that would lose the focus
    next.setAttribute("aria-disabled", String(now.step === LAST));
    const broken = now.D % now.h !== 0;
    for (const part of [facts, board, below, quiz, steps]) part.hidden = broken;
    if (broken) {
      slider.setAttribute("aria-valuetext", `step ${now.step + 1}`);
      said.textContent = `D = ${now.D} is not divisible by h = ${now.h}: x.reshape(B, N, ${now.h}, ${(now.D / now.h).toFixed(2)}) does not exist. Choose D = ${now.h * Math.max(1, Math.floor(now.D / now.h))}, or other heads.`;
      return;
    }
    const all = stages(now);
    const stage = all[now.step];
    /** @type {T.How} */
    const how = (each, i) => (i === 0 ? "the first array" : each.copied ? "copy" : "a view: memory stays");
    const found = all.map(({ shape, strides, memory: held }) => places(shape).find((index) => held[offset(index, strides)] === now.cell) ?? []);
    const at = (/** @type {number} */ i) => offset(found[i], all[i].strides);
    slider.setAttribute("aria-valuetext", `step ${now.step + 1} of ${LAST + 1}: ${stage.code}`);
    const terms = [["shape", `(${stage.axes}) = ${tuple(stage.shape)}`], ...full(["strides", tuple(stage.strides)], ["memory", how(stage, now.step)])];
    facts.replaceChildren(
      make("code", { text: stage.code }),
      make("dl", {}, ...terms.map(([term, text]) => make("div", {}, make("dt", { text: term }), make("dd", { text, "data-fact": term })))),
      make("p", { text: why(stage, now) }),
    );
    refill(picture, ...matrices(stage, now));
    const strips = [strip(stage.copied ? "memory after: a new strip, in a new order" : "memory: one flat strip", stage.memory, now)];
    if (stage.copied) strips.unshift(strip("memory before", all[now.step - 1].memory, now));
    refill(memory, ...full(...strips));
    board.classList.toggle(`${CSS}-tall`, product(stage.shape) > 64); // a long strip goes below the array
    const extra = full(...(now.step === 3 ? [lengths(now)] : []), ...(now.skip ? [damage(now)] : []));
    below.replaceChildren(...extra);
    below.hidden = extra.length === 0;
    const { b, n, c, head, word } = born(now.cell, now);
    const rows = all.map((each, i) => [i + 1, each.code, tuple(each.shape), tuple(each.strides), how(each, i), `${each.name}[${found[i].join(", ")}]`, at(i)]);
    const current = (/** @type {number} */ i) => ({ "data-stage": all[i].name, "aria-current": i === now.step ? "step" : null });
    ledger.replaceChildren(sheet(`All steps, and where ${word} is`, ["step", "line of code", "shape", "strides", "memory", word, "position"], rows, current));
    const sum = found[now.step].map((i, axis) => `${i}·${stage.strides[axis]}`).join(" + ");
    const place = full(`, position ${sum} = ${at(now.step)}`).join("");
    said.textContent = `Step ${now.step + 1} of ${LAST + 1}, ${how(stage, now.step)}. ${word} (example ${b}, token ${n}, channel ${c}, head ${head}) is ${stage.name}[${found[now.step].join(", ")}]${place}.`;
    const [askedB, askedHead] = question(now);
    const text = `Predict: which row of folded holds example b = ${askedB}, head ${askedHead}?`;
    if (asked.textContent !== text) feedback.textContent = ""; // it answers another question
    asked.textContent = text;
  }

  const stop = listen(model, [...SIZES.map(([name]) => name), "step", "skip_permute", "cell"], draw);
  settle(
    el,
    "reshape-stepper",
    ...full(make("div", { class: "mhalib-controls", role: "group", "aria-label": "sizes" }, ...fields.map(({ row }) => row))),
    make("div", { class: `mhalib-row ${CSS}-steps`, role: "group", "aria-label": "steps" }, previous, slider, next, make("label", { class: "mhalib-check" }, skip, "skip the transpose")),
    said,
    facts,
    board,
    make("p", { class: `${CSS}-legend`, text: `A number is its example, its token and its channel, which has two digits; h1 = owned by head 1. Choose a number to follow it.${full(" The stride of an axis: how far its next number is in memory.").join("")}` }),
    below,
    ...full(quiz, steps),
  );
  draw();
  return stop;
}
