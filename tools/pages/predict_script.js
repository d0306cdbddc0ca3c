// @ts-check
/* Predict: the fields of a question, and one button that opens its answer. What a reader writes is kept nowhere.
   Where the page knows what is right, it says so beside what the reader said. */
(() => {
  /** @typedef {HTMLInputElement} Input */
  /** @typedef {{is?: string[], within?: number, choices?: number[]}} Right */
  /** @param {Element | null | undefined} one */
  const words = (one) => one?.textContent?.trim().replace(/\s+/g, " ") ?? "";

  /** The first number of what people write: 0.5, 0,5, 1,024, 50 %, 1/16, head 2, about 7.
   * @param {string} written */
  const number = (written) => {
    const bare = written.replace(/(\d)\s+(?=[\d%/])/g, "$1").replace("−", "-");
    const [, digits, below, percent] = /([-+]?(?:\d[\d.,]*\d|\d|[.,]\d+))(?:\/([1-9]\d*))?(%?)/.exec(bare) ?? [];
    if (digits === undefined) return Number.NaN;
    const thousands = /^[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?$/.test(digits);
    const value = Number(digits.replaceAll(",", thousands ? "" : ".")) / Number(below ?? 1);
    return percent ? value / 100 : value;
  };

  /** What is right in each field; null where the page does not say.
   * @param {HTMLFormElement} form @returns {(Right | null)[]} */
  const rightOf = (form) => JSON.parse(form.dataset.right ?? "[]");

  /** What was written, and what is right.
   * @param {string} given @param {Right} right @param {DOMStringMap} say */
  const compared = (given, { is = [], within = 0 }, say) => {
    const [low, high] = [is[0], is.at(-1)].map((one) => Number(one?.replaceAll(",", "")));
    const range = is.length > 1;
    const known = range ? filled(say.sayRange, { low: is[0], high: is[1] }) : is[0];
    const values = given.includes("%") ? [number(given), 100 * number(given)] : [number(given)];
    const off = Math.min(...values.map((value) => Math.max(low - value, value - high)));
    const far = values[0] < low ? say.sayLow : values[0] > high ? say.sayHigh : say.sayDiffers;
    const sentence = off <= 1e-9 && !range ? say.sayAgrees : off <= within + 1e-9 ? say.sayNear : far;
    return filled(sentence, { said: given, right: known });
  };

  /** @param {string | undefined} sentence @param {Record<string, string | undefined>} parts */
  const filled = (sentence, parts) => (sentence ?? "").replace(/\{(\w+)\}/g, (_, name) => parts[name] ?? "");

  /** What a reader wrote or chose, with what was asked where there is more than one field.
   * @param {HTMLFormElement} form @param {string} said */
  const answers = (form, said) => {
    const fields = [...form.querySelectorAll(".predict-field")];
    const right = rightOf(form);
    return fields.flatMap((field, place) => {
      const asked = words(field.querySelector("legend, label[for]"));
      const written = /** @type {Input | null} */ (field.querySelector("input[type=text]"))?.value.trim();
      const choices = [.../** @type {NodeListOf<Input>} */ (field.querySelectorAll("input:not([type=text])"))];
      const labels = choices.map((choice) => words(choice.nextElementSibling));
      /** @param {number[]} places */
      const named = (places) => places.map((one) => labels[one]).join(", ");
      const chosen = [...choices.keys()].filter((one) => choices[one].checked);
      const given = written ?? named(chosen);
      if (given === "") return [];
      const known = right[place];
      let sentence = `${said} ${given}.`;
      if (known?.choices) {
        const agrees = String(known.choices) === String(chosen);
        sentence = filled(agrees ? form.dataset.sayChosen : form.dataset.sayOther, {
          said: given,
          right: named(known.choices),
        });
      } else if (known) sentence = compared(given, known, form.dataset);
      const between = /[?:.]$/.test(asked) ? " " : ": ";
      return [fields.length > 1 ? `${asked}${between}${sentence}` : sentence];
    });
  };

  /** What came of the reader's choices, where the answer holds a table of all by their places: none before all are made.
   * @param {HTMLFormElement} form @param {HTMLElement} fold */
  const tried = (form, fold) => {
    const fields = [...form.querySelectorAll(".predict-field")];
    const chosen = fields.map((field) => [...field.querySelectorAll("input")].findIndex((one) => one.checked));
    for (const row of form.dataset.tried ? fold.querySelectorAll("table.predict-tried tr") : []) {
      const cells = [...row.children].map(words);
      const isOwn = chosen.every((one, place) => String(one) === cells[place]);
      if (isOwn) return [filled(form.dataset.tried, Object.fromEntries(cells.slice(chosen.length).entries()))];
    }
    return [];
  };

  /** The first field without an answer, or with words where a number is asked for.
   * @param {HTMLFormElement} form */
  const missing = (form) => {
    const right = rightOf(form);
    for (const [place, field] of form.querySelectorAll(".predict-field").entries()) {
      const inputs = [.../** @type {NodeListOf<Input>} */ (field.querySelectorAll("input"))];
      const written = inputs.find((one) => one.type === "text");
      const isWords = written && right[place]?.is && Number.isNaN(number(written.value));
      if (written ? !written.value.trim() || isWords : !inputs.some((one) => one.checked)) return inputs[0];
    }
    return null;
  };

  for (const form of /** @type {NodeListOf<HTMLFormElement>} */ (document.querySelectorAll("form.predict-form"))) {
    const box = form.parentElement;
    const fold = /** @type {HTMLDetailsElement | null} */ (box?.querySelector("details.predict-answer"));
    const opened = /** @type {HTMLElement | null} */ (fold?.querySelector(".predict-opened"));
    const said = /** @type {HTMLElement | null} */ (fold?.querySelector(".predict-said"));
    const nudge = /** @type {HTMLElement | null} */ (form.querySelector(".predict-nudge"));
    if (!fold || !opened || !said || !nudge) continue;
    const given = () => answers(form, said.dataset.said ?? "");
    const tell = () => {
      const lines = [...tried(form, fold), ...given()].map((line) => {
        const paragraph = document.createElement("p");
        paragraph.textContent = line;
        return paragraph;
      });
      said.hidden = lines.length === 0;
      said.replaceChildren(...lines);
    };
    const open = () => {
      nudge.textContent = "";
      fold.open = true;
      tell();
      opened.focus();
    };
    form.addEventListener("change", () => {
      if (fold.open && form.dataset.tried) tell();
    });
    form.hidden = false;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const first = missing(form);
      if (!first) return open();
      nudge.textContent = (first.type === "text" && first.value.trim() ? nudge.dataset.number : nudge.dataset.said) ?? "";
      first.focus();
    });
    form.querySelector(".predict-look")?.addEventListener("click", open);
    fold.addEventListener("toggle", () => {
      if (!fold.open) /** @type {HTMLElement | null} */ (form.querySelector("button"))?.focus();
    });
  }
})();
