/* Attention on a few tokens: vectors, scores, mask, weights, output. Numbers are recomputed at each change. */

function AttentionPlayground({ model, el }) {
  const NAMES = ["tokens", "q", "k", "v", "scale", "temperature", "mask", "valid_len", "query"];
  const VECTORS = ["q", "k", "v"];
  const BOUND = 100;
  const css = (name) => `mhalib-attention-playground-${name}`;
  const copy = (rows) => rows.map((row) => [...row]);
  const start = Object.fromEntries(NAMES.map((name) => [name, model.get(name)])); // vectors are replaced, never changed

  /** A token as it is shown: what cannot be seen is spelt as its code, what is long ends in an ellipsis. */
  function spelt(token) {
    const code = (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`;
    const unseen = /[\p{Cc}\p{Cs}\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029]/u;
    const drawn = [...[...token.slice(0, 60)].map((c) => (unseen.test(c) ? code(c) : c)).join("")];
    return drawn.length > 14 || token.length > 60 ? `${drawn.slice(0, 13).join("")}…` : drawn.join("") || "(empty)";
  }

  /** Names of the tokens; equal ones are told apart by their number. */
  function shownNames() {
    const plain = model.get("tokens").map(spelt);
    return plain.map((name, t) => (plain.indexOf(name) === plain.lastIndexOf(name) ? name : `${name} (${t})`));
  }

  function inDigits(x) {
    const size = Math.abs(x);
    const text = size >= 1e5 ? size.toExponential(1) : size.toFixed(size >= 100 ? 0 : 2);
    return x < 0 && Number(text) !== 0 ? `−${text}` : text;
  }

  const brief = (x) => String(Number(x.toFixed(3))).replace("-", "−");

  /** The whole computation, in the order of the stages. */
  function attention() {
    const [q, k, v] = VECTORS.map((name) => model.get(name));
    const divisor = (model.get("scale") ? Math.sqrt(q[0].length) : 1) * model.get("temperature");
    const sees = { none: () => true, causal: (t, j) => j <= t, "valid length": (t, j) => j < model.get("valid_len") }[model.get("mask")];
    const scores = q.map((query) => k.map((key) => query.reduce((sum, x, c) => sum + x * key[c], 0) / divisor));
    const mask = q.map((_, t) => k.map((_, j) => sees(t, j)));
    const weights = scores.map((row, t) => {
      const highest = Math.max(...row.filter((_, j) => mask[t][j]));
      const powers = row.map((score, j) => (mask[t][j] ? Math.exp(score - highest) : 0));
      const total = powers.reduce((sum, x) => sum + x, 0);
      return powers.map((x) => (total ? x / total : 0));
    });
    const output = weights.map((row) => v[0].map((_, c) => row.reduce((sum, w, j) => sum + w * v[j][c], 0)));
    return { scores, mask, weights, output };
  }

  const put = writer(model);
  const said = voice();
  let fields, cells, radios, names, form, sum;

  /** A field for a number of the model: `read` finds it there, `changed` puts it there. */
  function realField(read, options) {
    const wrong = (sentence) => (said.textContent = sentence);
    const { input, show } = numberInput({ value: read(), whole: false, wrong, ...options });
    fields.push(() => show(read()));
    return input;
  }

  const named = (text, scope, attributes = {}) => make("th", { scope, ...attributes }, make("bdi", { text }));

  /** A stage: its table with a caption, in a frame that scrolls where the page is narrow. */
  function stage(number, title, key, ...parts) {
    const formula = make("span", { class: "mhalib-formula", "data-formula": key });
    const caption = make("caption", {}, make("b", { text: `${number} ${title} ` }), formula);
    const frame = { class: `mhalib-frame ${css("stage")}`, role: "region", tabindex: 0, "aria-label": `${number} ${title}`, "data-stage": key };
    cells[key] = { formula };
    return make("div", frame, make("table", {}, caption, ...parts));
  }

  /** Rows of a stage, one for each query; a click chooses it. */
  function rowsOf(key, filled) {
    cells[key].rows = names.map((name, t) => make("tr", { onclick: () => put({ query: t }) }, named(name, "row"), ...filled(t)));
    return make("tbody", {}, ...cells[key].rows);
  }

  function grid(number, title, key, columns, corner) {
    const frame = stage(number, title, key);
    cells[key].numbers = names.map(() => columns.map(() => make("td")));
    const heads = columns.map((name) => named(name, "col"));
    frame.firstChild.append(
      make("thead", {}, make("tr", {}, make("td", { class: css("corner"), text: corner }), ...heads)),
      rowsOf(key, (t) => cells[key].numbers[t]),
    );
    return frame;
  }

  function vectorStage() {
    const widths = VECTORS.map((name) => model.get(name)[0].length);
    const frame = stage(1, "vectors", "vectors");
    const top = VECTORS.map((name, i) => make("th", { scope: "colgroup", colspan: widths[i], text: name }));
    const field = (name, t, c) => {
      const changed = (value) => {
        const rows = copy(model.get(name));
        rows[t][c] = value;
        put({ [name]: rows });
      };
      const words = { "aria-label": `${name} of ${names[t]}, channel ${c}`, "data-cell": `${name}-${t}-${c}` };
      const input = realField(() => model.get(name)[t][c], { min: -BOUND, max: BOUND, step: 0.1, changed, ...words });
      return make("td", { class: c ? null : css("first"), "data-vector": name }, input);
    };
    const row = (t) => VECTORS.flatMap((name, i) => range(0, widths[i]).map((c) => field(name, t, c)));
    frame.firstChild.append(
      make("thead", {}, make("tr", {}, make("td", { class: css("corner"), text: "token" }), ...top)),
      rowsOf("vectors", row),
    );
    cells.vectors.rows.forEach((line, t) => line.firstChild.append(make("span", { class: css("index"), text: ` ${t}` })));
    return frame;
  }

  function traitField(name, label, bounds) {
    const changed = (value) => put({ [name]: value });
    return labelled(label, realField(() => model.get(name), { ...bounds, changed, "data-name": name }));
  }

  function controls() {
    const scale = make("input", { type: "checkbox", "data-name": "scale", onchange: () => put({ scale: scale.checked }) });
    const options = ["none", "causal", "valid length"].map((each) => [each, each]);
    const mask = choice({ value: model.get("mask"), options, changed: (value) => put({ mask: value }), "data-name": "mask" });
    const heat = traitField("temperature", "temperature", { min: 0.01, max: 100, step: 0.1 });
    const length = traitField("valid_len", "valid length", { min: 0, max: names.length, whole: true });
    form = { scale, mask, length };
    const reset = make("button", { type: "button", text: "reset", onclick: backToStart });
    return make(
      "div", { class: css("controls"), role: "group", "aria-label": "how the scores become weights" },
      make("label", { class: "mhalib-check" }, scale, "divide by √d"), heat, labelled("mask", mask), length, reset,
    );
  }

  function chooser() {
    const group = freshId();
    radios = names.map((_, t) => make("input", { type: "radio", name: group, value: t, onchange: () => put({ query: t }) }));
    const labels = names.map((name, t) => make("label", { class: "mhalib-check" }, radios[t], make("bdi", { text: name })));
    return make("fieldset", { class: css("queries") }, make("legend", { text: "query" }), ...labels);
  }

  function backToStart() {
    put(Object.fromEntries(NAMES.slice(1).map((name) => [name, start[name]])));
    follow();
    said.textContent = `Back at the start. ${said.textContent}`;
  }

  function fill(cell, value, seen, key) {
    cell.dataset.value = value;
    cell.classList.toggle(css("hidden"), !seen);
    if (seen) cell.textContent = key === "mask" ? "✓" : inDigits(value);
    else cell.replaceChildren(make("span", { "aria-hidden": "true", text: "✕" }));
    if (!seen || key === "mask") cell.append(make("span", { class: css("aside"), text: seen ? "may attend" : "hidden" }));
    cell.style.setProperty("--weight", key === "weights" ? value : 0);
  }

  function sentence(row, mask, query) {
    const seen = row.map((_, j) => j).filter((j) => mask[j]);
    if (!seen.length) return `query ${names[query]}: nothing to see, so its weights and its output are 0.`;
    const most = Math.max(...row);
    const top = seen.filter((j) => most - row[j] < 1e-9);
    if (seen.length === 1) return `query ${names[query]}: sees only ${names[seen[0]]}, weight 1.00.`;
    if (top.length === seen.length) return `query ${names[query]}: the same weight on all ${seen.length} it sees, ${inDigits(most)}.`;
    return `query ${names[query]}: most weight on ${top.map((j) => names[j]).join(" and ")}, ${inDigits(most)}${top.length > 1 ? " each" : ""}.`;
  }

  /** The chosen query's weighted sum in numbers, in two lines. */
  function written(row, mask, result) {
    const seen = row.map((_, j) => j).filter((j) => mask[j]);
    const vector = (numbers, digits) => `(${numbers.map(digits).join(", ")})`;
    const total = vector(result, inDigits);
    if (!seen.length) return [`= ${total}: there is nothing to sum`];
    const values = model.get("v");
    return [
      seen.map((j) => `${inDigits(row[j])}·v${j}`).join(" + "),
      `= ${seen.map((j) => `${inDigits(row[j])}·${vector(values[j], brief)}`).join(" + ")}`,
      `= ${total}`,
    ];
  }

  function draw() {
    const found = attention();
    const query = model.get("query");
    const width = model.get("q")[0].length;
    const divided = (model.get("scale") ? ` / √${width}` : "") + (model.get("temperature") === 1 ? "" : ` / ${brief(model.get("temperature"))}`);
    const length = model.get("mask") === "valid length" ? ` ${model.get("valid_len")}` : "";
    cells.scores.formula.textContent = `q·k${divided}`;
    cells.mask.formula.textContent = `${model.get("mask")}${length}`;
    cells.weights.formula.textContent = "softmax of each row";
    cells.output.formula.textContent = "weights · v";
    for (const key of ["scores", "mask", "weights", "output"]) {
      found[key].forEach((row, t) => row.forEach((value, c) => fill(cells[key].numbers[t][c], Number(value), key === "scores" || key === "output" || found.mask[t][c], key)));
    }
    found.weights.forEach((row, t) => {
      const total = row.reduce((sum, w) => sum + w, 0);
      cells.weights.numbers[t][names.length].textContent = found.mask[t].some(Boolean) ? inDigits(total) : "0: sees nothing";
    });
    for (const { rows } of Object.values(cells)) {
      rows.forEach((row, t) => (t === query ? row.setAttribute("aria-current", "true") : row.removeAttribute("aria-current")));
    }
    const lines = written(found.weights[query], found.mask[query], found.output[query]);
    sum.replaceChildren(make("b", {}, "output of ", make("bdi", { text: names[query] })), ...lines.map((text) => make("span", { text })));
    said.textContent = sentence(found.weights[query], found.mask[query], query);
  }

  /** Fields, boxes and choices say what the model holds. */
  function follow() {
    for (const refresh of fields) refresh();
    form.scale.checked = model.get("scale");
    form.mask.value = model.get("mask");
    form.length.hidden = model.get("mask") !== "valid length";
    radios[model.get("query")].checked = true;
    draw();
  }

  function build() {
    [fields, cells, names] = [[], {}, shownNames()];
    sum = make("p", { class: css("sum") });
    const panel = controls();
    const channels = model.get("v")[0].map((_, c) => String(c));
    const stages = [
      vectorStage(),
      grid(2, "scores", "scores", names, "query \\ key"),
      grid(3, "mask", "mask", names, "query \\ key"),
      grid(4, "weights", "weights", [...names, "sum"], "query \\ key"),
      grid(5, "output", "output", channels, "query"),
    ];
    settle(el, "attention-playground", panel, chooser(), said, make("div", { class: css("stages") }, ...stages, sum));
    follow();
  }

  const stop = listen(model, NAMES.slice(1), follow);
  const stopTokens = listen(model, ["tokens"], build);
  build();
  return () => {
    stop();
    stopTokens();
  };
}
