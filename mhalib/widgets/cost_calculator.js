/* What attention costs. The counts are exact integers (BigInt), so that they equal Python's. */

function CostCalculator({ model, el }) {
  const FIELDS = [
    ["num_hiddens", "width D", 65536],
    ["num_heads", "heads h", 1024],
    ["num_kv_heads", "key–value heads g", 1024],
    ["num_layers", "layers L", 1000],
    ["num_tokens", "tokens N", 10000000],
    ["batch_size", "examples B", 1000000],
  ];
  const COSTS = [
    ["parameters", "parameters", "L · (2 D² + 2 D g d)", ""],
    ["flops", "FLOPs of a forward pass", "L · B · (2 N · (2 D² + 2 D g d) + 4 N² D)", ""],
    ["score_bytes", "scores of one layer, if they are stored", "B · h · N² · bytes", "B"],
    ["cache_bytes", "keys and values of all layers, kept for writing on", "2 L · B · N · g d · bytes", "B"],
  ];
  const NAMES = [...FIELDS.map(([name]) => name), "bytes_per_number"];

  function costs() {
    const [width, heads, kvHeads, layers, tokens, examples, bytes] = NAMES.map((name) => BigInt(model.get(name)));
    const kvWidth = (width / heads) * kvHeads;
    const parameters = 2n * width * width + 2n * width * kvWidth;
    return {
      parameters: layers * parameters,
      flops: layers * examples * (2n * tokens * parameters + 4n * tokens * tokens * width),
      score_bytes: examples * heads * tokens * tokens * bytes,
      cache_bytes: 2n * layers * examples * tokens * kvWidth * bytes,
    };
  }

  /** What does not divide, or null. */
  function problem() {
    const [width, heads, kvHeads] = NAMES.map((name) => model.get(name));
    if (width % heads) return `D = ${width} is not divisible by h = ${heads}: heads of ${(width / heads).toFixed(2)} channels do not exist.`;
    if (heads % kvHeads) return `h = ${heads} is not divisible by g = ${kvHeads}: some heads would have no keys.`;
    return null;
  }

  function inWords(count, unit) {
    const steps = ["", " thousand", " million", " billion", " trillion", " quadrillion"];
    const prefixes = ["B", "kB", "MB", "GB", "TB", "PB"];
    let power = 0;
    while (power < 5 && Number(count) >= 999.5 * 1000 ** power) power += 1;
    const digits = { minimumSignificantDigits: 3, maximumSignificantDigits: 3 };
    const value = (Number(count) / 1000 ** power).toLocaleString("en-US", digits);
    return `${value}${unit ? ` ${prefixes[power]}` : steps[power]}`;
  }

  const said = voice();
  const amounts = {};
  const body = make("tbody");
  for (const [name, title, formula] of COSTS) {
    amounts[name] = { exact: make("td", { class: "mhalib-number" }), words: make("td", { class: "mhalib-number" }) };
    const head = make("th", { scope: "row", text: title }, make("div", { class: "mhalib-formula", text: formula }));
    body.append(make("tr", { "data-cost": name }, head, amounts[name].words, amounts[name].exact));
  }
  const table = sheet("What attention costs; d = D / h", ["cost", "about", "exactly"], []);
  table.tBodies[0].replaceWith(body);

  function draw() {
    const reason = problem();
    table.hidden = Boolean(reason);
    if (reason) {
      said.textContent = reason;
      return;
    }
    const found = costs();
    for (const [name, , , unit] of COSTS) {
      amounts[name].exact.textContent = found[name].toLocaleString("en-US");
      amounts[name].words.textContent = inWords(found[name], unit);
    }
    said.textContent = `${inWords(found.parameters, "")} parameters, ${inWords(found.flops, "")} FLOPs, cache ${inWords(found.cache_bytes, "B")}.`;
  }

  const put = writer(model);
  const wrong = (sentence) => (said.textContent = sentence);
  const fields = FIELDS.map(([name, label, max]) => {
    const changed = (value) => put({ [name]: value });
    const { input, show } = numberInput({ value: model.get(name), min: 1, max, changed, wrong, "data-name": name });
    return { row: labelled(label, input), refresh: () => show(model.get(name)) };
  });
  const bytes = choice({
    value: model.get("bytes_per_number"),
    options: [[8, "8 (float64)"], [4, "4 (float32)"], [2, "2 (bfloat16)"], [1, "1 (8-bit)"]],
    changed: (value) => put({ bytes_per_number: Number(value) }),
    "data-name": "bytes_per_number",
  });

  function follow() {
    for (const { refresh } of fields) refresh();
    bytes.value = String(model.get("bytes_per_number"));
    draw();
  }

  const stop = listen(model, NAMES, follow);
  const rows = [...fields.map(({ row }) => row), labelled("bytes per number", bytes)];
  settle(el, "cost-calculator", make("div", { class: "mhalib-controls", role: "group", "aria-label": "sizes" }, ...rows), said, table);
  draw();
  return stop;
}
